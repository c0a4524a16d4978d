"""How fast kernels are understood, and how exactly: loading, regions of launches, the proof that groups may run apart.

Speed is measured on ``analysis_200_lines.cl``; exactness and soundness on the corpus of the tests, against what its
kernels do on Oclgrind.
"""

from __future__ import annotations

import importlib
import itertools
import os
import statistics
import struct
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import common

from manycl.analysis import service
from manycl.analysis.facts import ProgramFacts
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.group_range import GroupRange

os.environ["OCLGRIND_NUM_THREADS"] = "1"  # kernels that race do so in the same way every time
os.environ["PYOPENCL_NO_CACHE"] = "1"
warnings.simplefilter("ignore")  # compilers' remarks
HERE = Path(__file__).parent
QUICK = 12
"""Kernels of the corpus that ``--quick`` looks at."""
#: what no analysis of the source alone can know
_DATA = ("contents of argument", "on data", "of data", "floating-point", "atomic", "a return in the loop")


def main() -> None:
    args = common.parse(__doc__)
    source = (HERE / "analysis_200_lines.cl").read_text(encoding="utf-8")
    figures: dict[str, Any] = {"load_200_lines_ms": load_ms(source, args.repeats)}
    program = service.parse_program(source)
    firsts, repeats, splits = {}, {}, {}
    for name, dimension in (("matrix_multiply", 1), ("stencil", 2), ("reduce_sum", 0)):
        found = [launch_times(program, name, launch_of(name, k), dimension) for k in range(args.repeats + 1)][1:]
        firsts[name], repeats[name], splits[name] = (statistics.median(column) for column in zip(*found, strict=True))
    figures["launch_first_ms"] = max(firsts.values()) * 1e3
    figures["launch_repeat_us"] = max(repeats.values()) * 1e6
    figures["split_proof_ms"] = max(splits.values()) * 1e3
    for name in firsts:
        figures[f"{name}_first_ms"] = firsts[name] * 1e3
    figures |= corpus(args.json, QUICK if args.quick else None)
    common.report(args, figures)
    if figures["unsound"]:
        sys.exit(1)


def load_ms(source: str, repeats: int) -> float:
    """Parse, find all facts, and interpret every kernel; the text differs each time, so nothing is remembered."""
    service.parse_program("kernel void warm_up(global int *a) { a[get_global_id(0)] = 1; }")

    def load(number: int) -> float:
        changed = source.replace("activation", f"activation_{number}")
        start = time.perf_counter()
        program = service.parse_program(changed)
        for kernel in program.kernels:
            service.symbolic(program, kernel)
        return time.perf_counter() - start

    numbers = itertools.count()
    load(next(numbers))
    return common.median(lambda: load(next(numbers)), repeats) * 1e3


def launch_of(name: str, k: int) -> KnownLaunch:
    """A launch of usual size, each a little different."""
    if name == "matrix_multiply":
        n = 4096 + 16 * k
        numbers = {3: integer(n), 4: integer(n), 5: integer(n)}
        return KnownLaunch((n, n), (16, 16), (), numbers, dict.fromkeys((0, 1, 2), 4 * n * n))
    if name == "stencil":
        n = 256 + 16 * k
        return KnownLaunch(
            (n, n, n), (16, 4, 4), (), {2: integer(n), 3: integer(n), 4: integer(n)}, {0: 4 * n**3, 1: 4 * n**3}
        )
    n = (1 << 24) + 1000 * k
    return KnownLaunch((65536,), (256,), (), {3: integer(n)}, {0: 1024, 1: 4 * n})


def integer(number: int) -> bytes:
    return struct.pack("<i", number)


def launch_times(program: ProgramFacts, name: str, launch: KnownLaunch, dimension: int) -> tuple[float, float, float]:
    """Seconds for the regions of all arguments of half the groups, first and again, and for the split proof."""

    def regions() -> LaunchFacts:
        facts = service.launched(program, name, launch)
        for argument, kind in itertools.product(facts.regions.buffers, ("read", "write")):
            facts.region(argument, kind, GroupRange(dimension, 0, launch.groups(dimension) // 2))
        return facts

    first = common.seconds(regions)
    again = statistics.median(common.seconds(regions) for _ in range(20))
    facts = regions()
    return first, again, common.seconds(lambda: facts.split(dimension))


def corpus(quiet: bool, most: int | None) -> dict[str, Any]:
    """Over all launches of the corpus' kernels (``most`` of them): the share of exact accesses, and what is wrong."""
    sys.path.insert(0, str(HERE.parents[1]))
    cases = importlib.import_module("tests.analysis.kernel_corpus").CASES[:most]
    judge = importlib.import_module("tests.analysis.regions.test_regions")

    exact = total = unsound = 0
    for number, case in enumerate(cases):
        if not quiet:
            common.progress(f"{number + 1} of {len(cases)}: {case.name}")
        for ndrange in case.launches:
            regions = judge.regions_of(case, ndrange)
            for index, kind in itertools.product(regions.buffers, ("read", "write")):
                for relation in regions.relations(index, kind):
                    data = any(words in relation.reason for words in _DATA)
                    total += relation.exact or not data
                    exact += relation.exact
            try:
                judge.check(case, ndrange)
            except AssertionError as error:
                unsound += 1
                print(f"{case.name}: {str(error).splitlines()[0]}", file=sys.stderr)
    return {"exact_share": exact / total, "unsound": unsound, "kernels": len(cases)}
