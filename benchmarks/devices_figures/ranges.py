"""How far off predictions of a part of a launch are, of the kernels of the applications of Libsplit's Figure 6 and
PolyBench, those of ``native.py``, and those of `manycl bench slices`, on the first of some devices.

What is measured: manycl_bench/ranges.py. ranges_off_percent: the median error of predicted halves, quarters and
eighths, from the whole launch alone; ranges_worst: the largest factor by which one of a launch of over a millisecond is
off. ranges_learned_off_percent, ranges_learned_worst: the same of halves and eighths where the quarters were measured,
too. ranges_noise_percent: how much longer than the shortest time of a range its others are, the median of all kernels.
ranges: by kernel, its milliseconds, the median and the largest factor, both with the quarters measured, and the noise.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain

import common

os.environ["MANYCL_MODELS"] = "0"  # neither learns from this machine's past nor adds to it

from native_kernels.measured import CASES, Case

import manycl as mc
from manycl.api.prepared import Prepared
from manycl_bench import ranges
from manycl_bench.libsplit.application import Step
from manycl_bench.libsplit.registry import APPLICATIONS


def launches(queue: mc.Queue, size: str, only: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Prepared]]]:
    """Each kernel of each application whose name begins with one of some words."""
    for name, case in CASES.items():
        if not name.startswith(only):
            continue
        application = case.make(points(name, case, size))
        arrays = application.allocate(queue)
        program = mc.Program.from_file(case.folder / application.source, options=case.options)
        for step in {step.kernel: step for step in application.steps}.values():
            yield f"{name} {step.kernel}", partial(enqueued, queue, program, step, arrays)


def points(name: str, case: Case, size: str) -> int:
    """The size of an application."""
    if size != "large":
        return case.small if size == "small" else case.size
    entry = APPLICATIONS.get(name.removeprefix("libsplit "))
    return entry.large if entry is not None else 4 * case.size


def enqueued(queue: mc.Queue, program: mc.Program, step: Step, arrays: Mapping[str, mc.Array]) -> Prepared:
    """One launch alone."""
    with queue.prepare() as prepared:
        program.kernel(step.kernel)(
            queue, step.global_size, step.local_size, *(arrays[a] if isinstance(a, str) else a for a in step.args)
        )
    return prepared


def main() -> None:
    made = common.parser(__doc__)
    made.add_argument("--devices", default="cpu/2", help="as for manycl; the first of them is measured (default cpu/2)")
    made.add_argument("--size", choices=("quick", "large"), default="quick", help="of applications: large for GPUs")
    made.add_argument("--only", default="", help="applications and sampled kernels that begin so, separated by commas")
    args = made.parse_args()
    only, size = tuple(args.only.split(",")), "small" if args.quick else args.size
    with mc.Queue(args.devices, profile=True, policy="in_order") as queue:
        sampled = (found for found in ranges.sampled_launches(queue) if found[0].startswith(only))
        figures = ranges.range_errors(queue, chain(launches(queue, size, only), sampled), args.repeats, common.progress)
    rows = figures.pop("ranges")
    common.report(args, {"device": str(args.devices), "kernels": len(rows), **figures}, {"ranges": rows})
