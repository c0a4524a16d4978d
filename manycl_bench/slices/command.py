"""``manycl bench slices``: its options, what it prints, and the file that ``manycl train`` reads."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manycl.drivers.choice import open_devices
from manycl.errors import ManyclError
from manycl_bench.cli import Experiment, Figures, Say, show_table
from manycl_bench.slices import sampling
from manycl_bench.slices.loops import sampled
from manycl_bench.slices.sampling import Measured

FILE = "slice_samples.json"


def experiment(args: argparse.Namespace) -> Experiment:
    """The experiment that was asked for. Raises ManyclError."""
    names = tuple(args.applications.split(",")) if args.applications else ()
    known = dict.fromkeys(s.name for s in sampled())
    for name in names:
        if name not in known:
            raise ManyclError(f"--applications {name}: there is none", hint=f"there are {', '.join(known)}")
    if args.devices is None:
        raise ManyclError("bench slices measures one device", hint="--devices gpu0")
    machine, _ = open_devices(args.devices)
    if len(machine.devices) != 1:
        raise ManyclError(f"--devices {args.devices}: bench slices measures one device, not {len(machine.devices)}")
    settings = sampling.Settings(names=names)
    if args.quick:
        settings = replace(settings, seconds=0.005, repeats=2)
    if args.repeats is not None:
        settings = replace(settings, repeats=args.repeats)
    if args.output:
        Path(args.output).mkdir(parents=True, exist_ok=True)

    def run(say: Say) -> Figures:
        def keep(found: Sequence[Measured]) -> None:
            if args.output:
                write(_figures(found), Path(args.output))

        return _figures(sampling.run(args.devices, settings, say, keep))

    def show(figures: Figures) -> None:
        keys = ("kernel", "seconds", "total", "points")
        show_table([{k: row[k] for k in keys} for row in figures["slice_samples"]], "slices that cost little")
        print(f"{len(figures['without'])} without a target")

    return Experiment(run, write, show, [machine], draws=False)


def _figures(found: Sequence[Measured]) -> dict[str, Any]:
    return {
        "slice_samples": [m.as_json() for m in found if m.points is not None],
        "without": [m.as_json() for m in found if m.points is None],
    }


def write(figures: Figures, folder: Path) -> None:
    """Whole or not at all: it may be cut off at any time."""
    unfinished = folder / f"{FILE}.part"
    unfinished.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, folder / FILE)
