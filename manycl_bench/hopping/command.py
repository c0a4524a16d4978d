"""``manycl bench hopping``: its options, and what it prints."""

from __future__ import annotations

import argparse
from dataclasses import replace

from manycl.drivers.choice import open_devices
from manycl.errors import ManyclError
from manycl_bench.cli import Experiment, Figures, Say, show_summary, show_table
from manycl_bench.hopping import real, report
from manycl_bench.hopping.model import TABLE_3


def experiment(args: argparse.Namespace) -> Experiment:
    """The experiment that was asked for. Raises ManyclError."""
    names = tuple(args.applications.split(",")) if args.applications else tuple(TABLE_3)
    for name in names:
        if name not in TABLE_3:
            raise ManyclError(f"--applications {name}: there is none", hint=f"there are {', '.join(TABLE_3)}")
    if args.devices is None and (args.applications or args.repeats):
        raise ManyclError("without --devices bench hopping measures nothing", hint="--devices cpu/2#0,cpu/2#1@2")
    settings = real.Settings(names=names)
    if args.quick:
        settings = replace(settings, parts=(0.25, 0.5, 0.75), repeats=3, seconds=0.05, samples=False)
    if args.repeats is not None:
        settings = replace(settings, repeats=args.repeats)

    def run(say: Say) -> Figures:
        measured = real.run(args.devices, settings, say) if args.devices is not None else {}
        return {**report.figures_of_model(), **measured}

    def show(figures: Figures) -> None:
        keys = ("name", "by_hand", "loop", "fewer_percent")
        show_table([{k: row[k] for k in keys} for row in figures["lines"]], "lines of code")
        show_table(figures["model"], "speed-ups of migrating, and of going on on both devices")
        show_summary(report.summary(figures), 3)

    machine = open_devices(args.devices)[0] if args.devices is not None else None
    return Experiment(run, report.write, show, lambda: [machine] if machine is not None else [], False, True)
