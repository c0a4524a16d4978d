"""``manycl bench hopping``: its options, and what it prints."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from manycl.drivers.choice import open_devices
from manycl.errors import ManyclError
from manycl_bench import provenance
from manycl_bench.cli import Experiment, Figures, Say, show_summary, show_table
from manycl_bench.hopping import real, report
from manycl_bench.hopping.kept import FILE, Kept
from manycl_bench.hopping.model import TABLE_3

PAIRS = ";"
"""Between pairs of devices."""


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
        settings = replace(settings, parts=(0.25, 0.5, 0.75), repeats=3, seconds=(0.1, 0.2, 0.4))
    if args.repeats is not None:
        settings = replace(settings, repeats=args.repeats)

    def run(say: Say) -> Figures:
        return {**report.figures_of_model(), **_measured(pairs, settings, say, folder)}

    def write(figures: Figures, folder: Path) -> None:
        report.write(figures, folder)
        for file in folder.glob(f"*{FILE}"):
            file.unlink()

    def show(figures: Figures) -> None:
        keys = ("name", "by_hand", "loop", "fewer_percent")
        show_table([{k: row[k] for k in keys} for row in figures["lines"]], "lines of code")
        show_table(figures["model"], "speed-ups of migrating, and of going on on both devices")
        show_summary(report.summary(figures), 3)
        for other in figures.get("others", ()):
            print(f"\n{other['devices']}")
            show_summary(other["summary"], 3)
        print("\nthe paper's")
        show_summary(report.PAPER, 3)

    pairs = args.devices.split(PAIRS) if args.devices is not None else []
    machines = [open_devices(devices)[0] for devices in pairs]
    folder = Path(args.output) if args.output else None
    return Experiment(run, write, show, machines)


def _measured(pairs: Sequence[str], settings: real.Settings, say: Say, folder: Path | None) -> Figures:
    """The figures of the first pair of devices; ``others``: those of further ones. ``folder``: where rows are kept as
    long as not all are measured."""
    if not pairs:
        return {}

    def kept(pair: int) -> Kept:
        asked = {"devices": pairs[pair], "settings": asdict(settings), "commit": provenance.commit()}
        return Kept(None if folder is None else folder / f"{pair}_{FILE}", asked)

    first, *others = (
        {"devices": devices, **real.run(devices, settings, say, kept(pair))} for pair, devices in enumerate(pairs)
    )
    return {**first, "others": others}
