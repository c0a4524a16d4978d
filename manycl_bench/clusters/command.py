"""``manycl bench clusters``: its options, and what it prints."""

from __future__ import annotations

import argparse
from functools import partial

from manycl.errors import ManyclError
from manycl_bench.cli import Experiment, Figures, show_summary, show_table
from manycl_bench.clusters import experiments, report
from manycl_bench.clusters.experiments import CASES, Settings


def experiment(args: argparse.Namespace) -> Experiment:
    """Return the experiment that was asked for. Raises ManyclError."""
    names = tuple(args.applications.split(",")) if args.applications else ()
    known = [case.name for case in CASES]
    for name in names:
        if name not in known:
            raise ManyclError(f"--applications {name}: there is none", hint=f"there are {', '.join(known)}")
    settings = Settings(names=names)
    if args.quick:
        settings = Settings(nodes=(1, 4, 16), planned=(4, 16), names=names)

    def show(figures: Figures) -> None:
        for key in ("weak", "client", "strong"):
            show_table(figures[key], f"{key} scaling")
        show_table(figures["planning"], "planning")
        show_summary(figures["summary"], 1)

    machine = experiments.machine_of(max(settings.planned))
    return Experiment(partial(experiments.run, settings), report.write, show, [machine], simulated=True)
