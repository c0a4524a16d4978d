"""Programs of CLsmith, the public generator of OpenCL C programs (C. Lidbury et al., "Many-core compiler fuzzing", PLDI
2015; its repository is ChrisLidbury/CLSmith), as cases. Built apart; never part of this project."""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from pathlib import Path

from tests.analysis.corpus_case import Argument, Buffer, Case, Launch

MODES = (("--vectors",), ("--barriers", "--vectors"), ("--atomics", "--vectors"), ("--atomic_reductions",), ())
MOST = 30_000
"""Characters of a program: others take long, and are passed by."""
COMPUTING = 3
"""Seconds of computing of the generator, which rarely goes on for minutes."""
GROUPS = 2  # in each dimension at most: its programs are for thousands
_SIZES = re.compile(r"-g (\d+),(\d+),(\d+) -l (\d+),(\d+),(\d+)")
_ATOMICS = re.compile(r"--atomics (\d+)")


def clsmith(program: str, include: str, seed: int) -> Case:
    """The first fit program of those that a seed stands for."""
    for attempt in range(1000):
        text = _generated(program, seed * 1000 + attempt, MODES[seed % len(MODES)])
        if len(text) <= MOST and "void entry(" in text:
            return _case(f"clsmith{seed * 1000 + attempt}", text, include)
    raise RuntimeError(f"{program} makes no program of at most {MOST} characters from seed {seed}")


def _generated(program: str, seed: int, mode: tuple[str, ...]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [program, "--seed", str(seed), "--small", *mode]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        resource.prlimit(process.pid, resource.RLIMIT_CPU, (COMPUTING, COMPUTING))
        status = process.wait()
        path = Path(folder) / "CLProg.c"
        return path.read_text() if status == 0 and path.exists() else ""  # some seeds end it


def _case(name: str, text: str, include: str) -> Case:
    head = text.partition("\n")[0]
    sizes = _SIZES.search(head)
    assert sizes is not None, head
    numbers = [int(n) for n in sizes.groups()]
    local = tuple(numbers[3:])
    groups = [min(g // w, GROUPS) for g, w in zip(numbers[:3], local, strict=True)]
    count = groups[0] * groups[1] * groups[2]
    items = count * local[0] * local[1] * local[2]
    arguments: list[Argument] = [_zeros("u8", items)]
    if counters := _ATOMICS.search(head):
        arguments += [_zeros("u4", int(counters[1]) * count)] * 2
    if "---atomic_reductions" in head:
        arguments.append(_zeros("i4", count))
    launch = Launch(tuple(g * w for g, w in zip(groups, local, strict=True)), local, tuple(arguments))
    return Case("entry", name, (launch,), (), options=("-w", f"-I{include}"), text=text)


def _zeros(dtype: str, count: int) -> Buffer:
    return Buffer(dtype, count, values=(0,) * count)
