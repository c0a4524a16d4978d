"""``manycl models``: what has been learned about kernels and devices, and forgetting it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from manycl.cli.options import writable
from manycl.errors import ManyclError
from manycl.report.words import aligned, count
from manycl.units import format_quantity

if TYPE_CHECKING:
    from manycl.model.history.catalogue import Entry
    from manycl.model.history.store import Store

HELP = "list, show, export or forget what has been measured of kernels, devices and links"
_EPILOG = """\
examples:
  manycl models list
  manycl models show gemm                      every launch, its time and what the model says of it
  manycl models list --device nvidia --json
  manycl models export -o models.json
  manycl models forget gemm                    or: --device TEXT, or: --all
  manycl models powers --runs a.jsonl b.jsonl  powers from the joules of runs (manycl run --trace), kept for planning
they lie in MANYCL_DATA (default: the user's data folder); MANYCL_MODELS=0 neither reads nor writes them
exit status: 0 done, 1 nothing found, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("action", nargs="?", default="list", choices=("list", "show", "export", "forget", "powers"))
    parser.add_argument("kernel", nargs="?", default="", metavar="KERNEL", help="only kernels of this name")
    parser.add_argument("--device", metavar="TEXT", default="", help="only devices whose model or driver contains this")
    parser.add_argument("--all", action="store_true", help="forget: everything, measurements of devices and links too")
    parser.add_argument("-o", "--output", metavar="FILE", help="export: the file to write (default: print it)")
    parser.add_argument(
        "--runs", metavar="FILE", nargs="+", default=[], help="powers: traces of runs that were metered"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(args: argparse.Namespace) -> int:
    from manycl.model.history.catalogue import entries
    from manycl.model.history.store import Store

    if args.all and args.action != "forget":
        raise ManyclError("--all is for forget")
    if args.output and args.action != "export":
        raise ManyclError("--output is for export")
    store = Store()
    if args.action == "powers":
        return _powers(store, args)
    if args.action == "forget":
        return _forget(store, args)
    found = entries(store, args.kernel, args.device)
    if args.action == "export":
        return _export(store, found, args)
    if args.json:
        print(json.dumps([e.to_dict() for e in found]))
    elif not found:
        what = f" of {args.kernel}" if args.kernel else ""
        print(f"nothing is known{what} ({store.path}); manycl profile measures, manycl run learns", file=sys.stderr)
    elif args.action == "list":
        _list(found)
    else:
        for entry in found:
            _show(entry)
    return 0 if found else 1


def _powers(store: Store, args: argparse.Namespace) -> int:
    """Fit the powers of this machine's devices to the joules of runs, and keep them."""
    from manycl.applications.planning import this_machine
    from manycl.model.energy.powers import JOULES, fitted, usage
    from manycl.trace import Trace

    known = [t for t in map(Trace.load, args.runs) if t.details.get(JOULES)]
    machine = this_machine(None).machine
    if strange := {name for t in known for name in t.devices} - {d.name for d in machine.devices}:
        raise ManyclError(f"--runs: there is no {', '.join(sorted(strange))} here; MANYCL_DEVICES chooses devices")
    if not known:
        print("manycl: there are no joules in these runs: no meter could be read", file=sys.stderr)
        return 1
    totals = [sum(t.details[JOULES].values()) for t in known]
    for subject, values in fitted(machine, [usage(t.events, t.makespan) for t in known], totals).items():
        store.measured(subject, values)
        print(f"{subject}: {values['idle_power']:.3g} W idle, {values['power']:.3g} W computing")
    return 0


def _forget(store: Store, args: argparse.Namespace) -> int:
    if args.all and (args.kernel or args.device):
        raise ManyclError("forget --all is everything; name no kernel and no device")
    if not (args.all or args.kernel or args.device):
        raise ManyclError("forget what? a kernel, --device TEXT or --all")
    series = store.forget(args.kernel, args.device)
    numbers = store.forget_measurements(args.device) if not args.kernel else 0
    if args.json:
        print(json.dumps({"launches": series, "measurements": numbers}))
    else:
        print(f"forgotten: {series} launches, {numbers} measurements of devices and links")
    return 0 if series or numbers else 1


def _export(store: Store, found: Sequence[Entry], args: argparse.Namespace) -> int:
    writable({"--output": args.output})
    text = json.dumps({"models": [e.to_dict() for e in found], "measurements": store.measurements()}, indent=1)
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)
    return 0


def _list(found: Sequence[Entry]) -> None:
    """A table, with the devices below it: their full names would not fit."""
    devices = {name: f"[{i}]" for i, name in enumerate(dict.fromkeys(e.device for e in found), 1)}
    rows = [("KERNEL", "GROUP", "TEXT", "DEVICE", "LAUNCHES", "RUNS", "MODEL", "ERROR")]
    for e in found:
        group = "x".join(map(str, e.key.local_size)) if e.key.local_size else "-"
        counts = str(len(e.launches)), str(e.samples)
        rows.append(
            (e.key.kernel, group, e.key.text[:8], devices[e.device], *counts, e.model, _percent(e.error_percent))
        )
    print(*aligned(rows), sep="\n")
    for name, number in devices.items():
        print(f"{number} {name}")


def _show(e: Entry) -> None:
    group = f", work-groups of {'x'.join(map(str, e.key.local_size))}" if e.key.local_size else ""
    print(f"{e.key.kernel} ({e.key.text[:8]}){group}\n  on {e.device}")
    if e.regression is not None:
        r = e.regression
        left_out = f", {r.refused} left out" if r.refused else ""
        print(
            f"  regression: {r.b1:.4g} s x T f + {r.b2:.4g} s x T + {r.e:.4g} s; {r.samples} launches{left_out}, "
            f"{_percent(100 * r.error)} off when each is predicted by the others"
        )
    for model, (percent, times) in sorted(e.errors.items()):
        print(f"  {model}: {_percent(percent)} off in {count(times, 'prediction')} of what was measured later")
    for x in e.launches:
        size = "x".join(map(str, x.shape.global_size))
        told = ""
        if x.predicted is not None:
            told = f"; regression {_seconds(x.predicted)} ({100 * (x.predicted / x.typical - 1):+.1f} %)"
        f = f", f = {x.shape.f:g}" if x.shape.f != 1 else ""
        print(f"    {size}{f}: {_seconds(x.typical)} ({count(len(x.samples), 'run')}){told}")


def _percent(value: float | None) -> str:
    return f"{value:.1f} %" if value is not None and value < float("inf") else "unknown"


def _seconds(value: float) -> str:
    return format_quantity(float(f"{value:.4g}"), "s")
