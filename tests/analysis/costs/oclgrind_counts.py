"""How many instructions of each kind a launch executes, as Oclgrind counts them.

Oclgrind interprets the LLVM code that Clang made of the kernel. Unoptimised (``-cl-opt-disable``, what is counted
unless asked otherwise) that code follows the source:

- every load and store of the source is one of the counted ``load global``, ``store local`` and so on, in every
  iteration, also where the same element was loaded just before; variables are ``load private`` and ``store private``;
- ``icmp`` and ``fcmp`` are the comparisons that are evaluated: a loop of n iterations tests n + 1 times, the right side
  of ``&&`` only where it is reached, a number used as a condition is compared with zero;
- ``a * b + c`` of floats in one expression is one ``call llvm.fmuladd``, that is two operations;
- subscripts show as ``sext``/``zext`` and ``getelementptr``, their own ``add`` and ``mul`` as such, and so do ``k++``
  and ``k--`` (``add``);
- an operation on a vector counts once, its width shows in the bytes of loads and stores only; a swizzled store loads
  and stores the whole vector; a structure is copied by ``call llvm.memcpy``; vloadN and vstoreN are calls;
- atomic operations and asynchronous copies are calls and no loads or stores, ``barrier`` is a call per work-item;
- get_global_id and the like are calls, one per evaluation.

Optimised code counts less: loads of what is known, also from earlier iterations, are gone, loops may be unrolled, so
that comparisons are fewer, conditional values become ``select``, and integers of odd widths are computed wrongly.

As a program it reads pickled jobs from its standard input and runs them; Oclgrind prints a block for each.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests import environment
from tests.analysis.corpus_case import Case, Launch

_BLOCK = "Instructions executed for kernel"
_LINE = re.compile(r"^\s*([\d,']+) - (.+?)(?: \(([\d,']+) bytes\))?$")
_MANGLED = re.compile(r"^call _Z(\d+)(\w+)")


@dataclass(frozen=True)
class Job:
    """One run: the whole launch, or ``count`` work-groups from ``first`` along the dimension."""

    case: Case
    launch: Launch
    dimension: int = 0
    first: int = 0
    count: int | None = None


def _plain(name: str) -> str:
    """``call _Z13get_global_idj()`` is ``call get_global_id``."""
    if found := _MANGLED.match(name):
        return f"call {found[2][: int(found[1])]}"
    return name.removesuffix("()")


def parse(text: str) -> list[tuple[str, dict[str, int]]]:
    """Of each block the kernel's name, and the counts; the bytes of loads and stores under ``<name> bytes``."""
    blocks: list[tuple[str, dict[str, int]]] = []
    for line in text.splitlines():
        if line.startswith(_BLOCK):
            blocks.append((line.split("'")[1], {}))
        elif blocks and (found := _LINE.match(line)):
            counts, name = blocks[-1][1], _plain(found[2])
            counts[name] = counts.get(name, 0) + _number(found[1])
            if found[3]:
                counts[f"{name} bytes"] = counts.get(f"{name} bytes", 0) + _number(found[3])
    return blocks


def _number(digits: str) -> int:
    return int(re.sub(r"\D", "", digits))


def count_all(jobs: Sequence[Job], optimised: bool = False) -> list[dict[str, int]]:
    """The counts of every job, all in one process of its own: Oclgrind reads its settings when it is loaded."""
    if not jobs:
        return []
    plain = [Job(_case(j.case), j.launch, j.dimension, j.first, j.count) for j in jobs]
    done = subprocess.run(
        [sys.executable, "-m", "tests.analysis.costs.oclgrind_counts"],
        input=pickle.dumps((plain, optimised)),
        env=environment(OCLGRIND_INST_COUNTS="1", OCLGRIND_NUM_THREADS="1"),
        capture_output=True,
        check=False,
    )
    blocks = parse(done.stdout.decode())
    if done.returncode or [name for name, _ in blocks] != [j.case.name for j in jobs]:
        raise RuntimeError(f"{len(blocks)} of {len(jobs)} launches were counted:\n{done.stderr.decode()[-2000:]}")
    return [counts for _, counts in blocks]


def instruction_counts(case: Case, launch: Launch, optimised: bool = False) -> dict[str, int]:
    """The counts of the whole launch."""
    return count_all([Job(case, launch)], optimised)[0]


def _case(case: Case) -> Case:
    """Without what only its maker knows."""
    return Case(case.name, case.file, (), case.split, options=case.options, text=case.text)


def main() -> None:
    from tests.analysis import truth

    jobs, optimised = pickle.load(sys.stdin.buffer)
    if optimised:
        truth.UNOPTIMISED.clear()
    for job in jobs:
        truth.run_range(job.case, job.launch, job.dimension, job.first, job.count, truth.contents(job.launch, 1))


if __name__ == "__main__":
    main()
