"""``manycl profile``: measure what the models of an application's kernels lack."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from manycl import flags
from manycl.cli import options
from manycl.errors import ManyclError

if TYPE_CHECKING:
    from manycl.applications.application import Application

HELP = "measure an application's kernels on every device, at several sizes, so that plans rest on measurements"
_EPILOG = """\
examples:
  manycl profile matrix_equation.json -D n=512 -D m=512
  manycl profile app.json --devices cpu/2 --budget 10 --json
sizes are varied by the symbols that the kernels' NDRanges depend on, downwards from the values given;
what was measured before is not measured again (`manycl models` shows and forgets it)
exit status: 0 done, 1 some of it failed, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_application(parser)
    options.add_devices(parser)
    parser.add_argument(
        "--budget", metavar="SECONDS", type=float, default=math.inf, help="begin nothing that would end later"
    )
    parser.add_argument("--one-size", action="store_true", help="only the size that is given")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")


def run(args: argparse.Namespace) -> int:
    from manycl.applications.profiling import profile, variations
    from manycl.drivers.choice import open_devices
    from manycl.report.progress import Progress

    if not args.budget > 0:
        raise ManyclError(f"--budget {args.budget:g}: expected seconds above zero")
    if not flags.learning():
        raise ManyclError("MANYCL_MODELS is 0, so nothing would be kept", hint="unset it to profile")
    begin = time.monotonic()
    given = options.pairs(args.define, "-D")
    first = options.application(args)
    found: list[tuple[Mapping[str, str], Application]] = [(given, first)]
    if not args.one_size:
        found = variations(lambda p: options.load(args, p), given)
    machine, _ = open_devices(args.devices if args.devices is not None else flags.devices())
    with Progress(len(found) * len(machine.devices), delay=0.5) as progress:
        left = max(0.0, args.budget - (time.monotonic() - begin))
        steps = list(profile(found, args.devices, left, progress.update))
    seconds = time.monotonic() - begin
    if args.json:
        told = ("device", "version", "outcome", "runs", "seconds")
        record = [{"parameters": dict(s.parameters), **{name: getattr(s, name) for name in told}} for s in steps]
        print(json.dumps({"application": first.name, "seconds": seconds, "steps": record}))
    else:
        for s in steps:
            symbols = " ".join(f"{k}={v}" for k, v in s.parameters.items()) or "as given"
            version = f", version {s.version + 1}" if s.version else ""
            print(f"{symbols} on {s.device}{version}: {s.outcome}{f' in {s.seconds:.2f} s' if s.runs else ''}")
        print(f"{sum(s.runs for s in steps)} runs in {seconds:.1f} s; manycl models list shows what is known now")
        if any(s.outcome.startswith(("left out", "measured ")) for s in steps):
            print(f"--budget {args.budget:g} was too little for all: the same command goes on from here")
    return 1 if any(s.outcome.startswith("failed") for s in steps) else 0
