"""Compares the programs of some seeds, several kernels compiled together, and prints a line of JSON for each.

``python -m tests.fuzz.fuzz_worker FIRST COUNT [--clsmith PROGRAM --include FOLDER] [--shrink] [--keep FOLDER]``.
Before a program is run its seed is printed, so that one that ends the process is known (``scripts/fuzz``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.analysis.corpus_case import Case
from tests.fuzz.fuzz_clsmith import clsmith
from tests.fuzz.fuzz_compare import IMPLEMENTATIONS, Compared, compare
from tests.fuzz.fuzz_kernel import kernel
from tests.fuzz.fuzz_shrink import differs, shrunk
from tests.fuzz.fuzz_tree import PROLOGUE, Kernel
from tests.fuzz.fuzz_types import IMAGES

TOGETHER = 4
"""Kernels of one program."""
ONE_IN = {"native -O0": 2, "PoCL": 4, "divided": 4, "exec": 8, "GPU": 8}
ONE_IN_CLSMITH = {"native -O0": 2, "PoCL": 4, "divided": 16, "exec": 16, "GPU": 8}
"""Of how many programs those that take longest run one, beside those that differ, and those with images."""


def own(first: int, count: int) -> Iterator[tuple[int, Case, Kernel | None]]:
    for start in range(first, first + count, TOGETHER):
        kernels = [kernel(seed) for seed in range(start, min(start + TOGETHER, first + count))]
        text = PROLOGUE + "\n".join(k.text for k in kernels)
        for seed, one in enumerate(kernels, start):
            yield seed, one.case(text), one


def compared(seed: int, case: Case, called: frozenset[str], without: str, one_in: dict[str, int]) -> Compared:
    """``without``: an implementation that ends the process."""
    all_ = tuple(n for n in IMPLEMENTATIONS if n != without)
    every = without or IMAGES in called
    whom = tuple(n for n in all_ if every or seed % one_in.get(n, 1) == 0)
    found = compare(case, called, whom)
    if found.differences and len(whom) < len(all_):
        found = compare(case, called, all_)
    if without:
        found.refused[without] = "known: it ends the process"
    return found


def keep(folder: Path, case: Case, found: Compared, made: Kernel | None) -> None:
    """The program, and where it was made here one that is smaller."""
    folder.mkdir(parents=True, exist_ok=True)
    told = "".join(f"// {d}\n" for d in found.differences)
    launch = case.launches[0]
    told += f"// global size {launch.global_size}, local size {launch.local_size}, offset {launch.offset}\n"
    told += "".join(f"// argument {i}: {a}\n" for i, a in enumerate(launch.arguments))
    (folder / f"{found.name}.cl").write_text(told + case.source)
    if made is not None:
        first = found.differences[0]
        test = differs((first.who, first.than))

        def tried(kernel: Kernel) -> bool:
            print(json.dumps({"shrunk": found.name}), flush=True)  # who waits for a word sees that it goes on
            return test(kernel)

        small = shrunk(made, tried)
        (folder / f"{found.name}_small.cl").write_text(told + PROLOGUE + small.text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--clsmith", default="")
    parser.add_argument("--include", default="")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--keep", default="")
    parser.add_argument("--without", default="")
    given = parser.parse_args()
    made, one_in = own(given.first, given.count), ONE_IN
    if given.clsmith:
        one_in = ONE_IN_CLSMITH
        seeds = range(given.first, given.first + given.count)
        made = ((seed, clsmith(given.clsmith, given.include, seed), None) for seed in seeds)
    for seed, case, small in made:
        print(json.dumps({"begun": seed}), flush=True)
        found = compared(seed, case, small.called if small is not None else frozenset(), given.without, one_in)
        print(json.dumps({"seed": seed} | asdict(found)), flush=True)
        if found.differences and given.keep:
            keep(Path(given.keep), case, found, small if given.shrink else None)


if __name__ == "__main__":
    main()
