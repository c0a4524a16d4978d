"""First guesses of kernels' times, which nobody has measured, against what they take: on a native device and on PoCL.

The kernels are those of ``native.py``, each launch on one core. Times are CPU seconds, the least of several, as other
programs disturb them least. Guesses are those of a machine that nobody has measured either (``manycl/model/prior.py``).

For each way: within_2, the share of kernels whose guess is at most twice and at least half of what they take;
within_4, likewise; worst, the ratio of guess and time that is furthest from 1, and whose. ``kernels`` in the JSON has a
row for each. Of native devices, whose weights of operations were fitted to these kernels: held_out_within_2, the share
by weights that are fitted to all benchmarks but the kernel's own (``native_kernels/held_out.py``); refitted_within_2,
by those that are fitted to all in the same way. --quick: small sizes, for tests. Ways that are not installed have no
figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common
import native
from native_kernels.held_out import Judged, held_out, refitted, within
from native_kernels.measured import BLAS, CASES, PLATFORMS, Case, Task

from manycl.analysis.costs.cost import Work
from manycl.machine import Device

DEVICES = {"native": "native", **{way: name.lower() for way, name in PLATFORMS.items()}}
"""What is chosen for a way of ``native.py``."""
Key = tuple[str, str]
ITSELF = (sys.executable, str(Path(__file__).parents[1] / "stages.py"), "first_guesses")


def arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--only", metavar="NAMES", help="of those of native.py")
    parser.add_argument("--guess", metavar="WAY", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.names = args.only.split(",") if args.only else [name for name in CASES if name != BLAS]
    if unknown := [name for name in args.names if name not in CASES]:
        parser.error(f"there are no kernels {', '.join(unknown)}")
    return args


def guesses(way: str, names: list[str], quick: bool) -> Iterator[dict[str, Any]]:
    """Of the first launch of every kernel, in this process."""
    from manycl.api.queue import Queue

    with Queue(DEVICES[way], policy="in_order") as queue:
        for name in names:
            case = CASES[name]
            yield from _of_case(queue, name, case, case.small if quick else case.size)


def _of_case(queue: Any, name: str, case: Case, size: int) -> Iterator[dict[str, Any]]:
    from manycl.api.program import Program
    from manycl.graph.graph import Launch
    from manycl.machine import DeviceIndex
    from manycl.model.counts import Counts
    from manycl.model.history.history import History
    from manycl.model.predictor import Predictor
    from manycl.model.prior import prior

    application = case.make(size)
    program = Program((case.folder / application.source).read_text(encoding="utf-8"), options=list(case.options))
    arrays = {key: queue.empty(data.shape, data.dtype) for key, data in application.arrays.items()}
    with queue.prepare() as prepared:
        for step in application.steps:
            args = (arrays[a] if isinstance(a, str) else a for a in step.args)
            program.kernel(step.kernel)(queue, step.global_size, step.local_size, *args)
    predictor = Predictor(queue.session.machine, History(), prepared.graph.buffers)
    counts = Counts(prepared.graph.buffers)
    met = set()
    for node in prepared.graph.nodes:
        if isinstance(node, Launch) and node.kernel.name not in met:
            met.add(node.kernel.name)
            guess = predictor.guess(node, node, DeviceIndex(0))
            row: dict[str, Any] = {"application": name, "kernel": node.kernel.name}
            row |= {"guess_s": guess.seconds, "source": guess.source}
            work, device = counts.work(node, node), queue.session.machine.devices[0]
            plain = guess.seconds != prior(work, device).seconds
            yield row | {"work": asdict(work), "device": asdict(device), "plain": plain}


def guessed(args: argparse.Namespace, way: str, env: dict[str, str], core: int) -> dict[Key, dict[str, Any]]:
    """The same, in a process that has one core."""
    command = [*ITSELF, "--guess", way, "--only", ",".join(args.names)]
    command += ["--quick"] if args.quick else []
    env = env | {"MANYCL_THREADS": "1", "MANYCL_MODELS": "0"}
    done = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, [core]),
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(row["application"], row["kernel"]): row for row in rows}


def measure(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """A row for each kernel and way: what was guessed, and what it took."""
    core = min(os.sched_getaffinity(0))
    env = native.environment(folder, 1)
    rows = []
    for way in ("native", *native.installed()):
        found = guessed(args, way, env, core)
        for row in native.told(Task(way, args.names, args.quick, args.repeats, str(folder)), env, [core]):
            key = row["application"], row["kernel"]
            if "cpu_s" in row and key in found:
                took = max(row["cpu_s"], 1e-9)
                rows.append({**found[key], "way": way, "cpu_s": took, "ratio": found[key]["guess_s"] / took})
                common.progress(f"{way}: {', '.join(key)}: guessed {rows[-1]['ratio']:.2f} of {1e3 * took:.3f} ms")
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all kernels."""
    out: dict[str, Any] = {}
    for way in DEVICES:
        mine = [row for row in rows if row["way"] == way]
        if mine:
            for factor in (2, 4):
                near = [row for row in mine if 1 / factor <= row["ratio"] <= factor]
                out[f"{way}_within_{factor}"] = len(near) / len(mine)
            worst = max(mine, key=lambda row: abs(math.log(row["ratio"])))
            out[f"{way}_worst"] = worst["ratio"]
            out[f"{way}_worst_kernel"] = f"{worst['application']}, {worst['kernel']}"
            out[f"{way}_kernels"] = len(mine)
        if way == "native" and len({row["application"] for row in mine}) > 1:
            judged = [_judged(row) for row in mine]
            out["native_held_out_within_2"] = within(held_out(judged), 2)
            out["native_refitted_within_2"] = within(refitted(judged), 2)
    return out


def _judged(row: dict[str, Any]) -> Judged:
    return Judged(row["application"], Work(**row["work"]), Device(**row["device"]), row["plain"], row["cpu_s"])


def main() -> None:
    args = arguments()
    if args.guess:
        for row in guesses(args.guess, args.names, args.quick):
            print(json.dumps(row), flush=True)
        return
    with tempfile.TemporaryDirectory(prefix="manycl-guesses-") as name:
        rows = measure(args, Path(name))
    shown = [{key: value for key, value in row.items() if key not in ("work", "device", "plain")} for row in rows]
    common.report(args, summary(rows), {"kernels": shown})
