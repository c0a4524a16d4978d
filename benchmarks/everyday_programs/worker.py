"""One program, one way, in a process of its own: runs when it is told to, and says how long that took."""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import manycl as mc
from everyday_programs import grids, matrices, solvers, streams
from everyday_programs.program import PROGRAMS, Divisible, Hand, Plain, Program, Repeatable, ResultMemory
from manycl.drivers.choice import OpenDevice, open_devices

_ = grids, matrices, solvers, streams  # they register theirs
TOLERANCE = 1e-3
"""Across kinds of devices, and where sums are put together in any order: max|difference| / max|result|."""


@dataclass(frozen=True)
class Task:
    """``way``: "manycl" on the devices; "plain" PyOpenCL on the one at the place ``single``; "hand": PyOpenCL on all of
    them, divided by hand.

    ``results``: the file that some are written to, and others compared with. ``kept``: manycl's arrays of the inputs
    are kept from run to run.
    """

    name: str
    size: str
    devices: str | None
    way: str
    results: str
    single: int = 0
    kept: bool = False


class Outcomes:
    """The results of all runs; those that are like the ones before are kept once."""

    def __init__(self) -> None:
        self.distinct: list[ResultMemory] = []
        self.of_run: list[int] = []

    def add(self, results: ResultMemory) -> None:
        last = self.distinct[-1] if self.distinct else None
        if last is None or not all(np.array_equal(a, b) for a, b in zip(last, results, strict=True)):
            self.distinct.append([np.array(data) for data in results])
        self.of_run.append(len(self.distinct) - 1)

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            pickle.dump((self.distinct, self.of_run), file)

    def error(self, path: Path) -> float:
        """How far the results are off, at most, from those in a file: max|difference| / max|result| of an array."""
        with path.open("rb") as file:
            distinct, of_run = pickle.load(file)
        pairs = dict.fromkeys(zip(self.of_run, of_run, strict=False))
        return max(_error(self.distinct[mine], distinct[theirs]) for mine, theirs in pairs)


def _error(ours: ResultMemory, theirs: ResultMemory) -> float:
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if not np.array_equal(a, b):
            a, b = a.astype(np.float64), b.astype(np.float64)
            error = float(np.max(np.abs(a - b))) / max(float(np.max(np.abs(b))), 1e-30)
            worst = max(worst, error if np.isfinite(error) else float("inf"))
    return worst


class Plainly:
    """A program with plain PyOpenCL on one device."""

    def __init__(self, task: Task, made: Program) -> None:
        mc.devices()  # PyOpenCL's loader is shown all drivers
        handle: Any = open_devices(task.devices)[1][task.single].handle
        self._made, self._at = made, Plain(handle.cl, made.source)

    def run(self, turn: int) -> ResultMemory:
        results = self._made.plain(self._at, turn)
        self._at.done()
        return results


def opencl_devices(opened: Sequence[OpenDevice]) -> list[Any]:
    """PyOpenCL's devices; of native ones, those of the same cores."""
    return [one.handle.cl for one in opened if hasattr(one.handle, "cl")]


class ByHand:
    """A program with PyOpenCL on several devices."""

    def __init__(self, task: Task, made: Program) -> None:
        mc.devices()
        assert isinstance(made, Divisible)
        self._made, self._at = made, Hand(opencl_devices(open_devices(task.devices)[1]), made.source)

    def run(self, turn: int) -> ResultMemory:
        results = self._made.hand(self._at)
        self._at.done()
        return results


class Many:
    """A program with manycl on all devices."""

    def __init__(self, task: Task, made: Program) -> None:
        self._made = made
        self._queue = mc.Queue(task.devices)
        self._program = mc.Program(made.source).build()
        self._again: Callable[[], ResultMemory] | None = None
        self._kept: Callable[[], ResultMemory] | None = None
        if task.kept and isinstance(made, Repeatable):
            self._kept = made.on_kept(self._queue, self._program)

    def run(self, turn: int) -> ResultMemory:
        if self._kept is not None:
            return self._kept()
        return self._made.manycl(self._queue, self._program, turn)

    def prepared(self) -> ResultMemory:
        """Its graph, prepared once."""
        assert isinstance(self._made, Repeatable)
        if self._again is None:
            self._again = self._made.prepare(self._queue, self._program)
        return self._again()


def serve(task: Task) -> None:
    """Do what is asked for, line by line: ``run`` or ``prepared`` so many times, ``save`` and ``compare`` results. The
    answer is a line as well: seconds, or how far results are off. The first line says that all is built."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints
    made = PROGRAMS[task.name].made(task.size)
    anew, again = Outcomes(), Outcomes()
    ways: dict[str, type[Many | Plainly | ByHand]] = {"manycl": Many, "plain": Plainly, "hand": ByHand}
    at = ways[task.way](task, made)
    print("[]", file=answers)
    for line in sys.stdin:
        word, _, count = line.strip().partition(" ")
        told: list[float] = []
        if word == "run":
            told = timed(lambda: at.run(len(anew.of_run)), anew, int(count))
        elif word == "prepared" and isinstance(at, Many):
            told = timed(at.prepared, again, int(count))
        elif word == "save":
            anew.save(Path(task.results))
        elif word == "compare":
            told = [max(outcomes.error(Path(task.results)) for outcomes in (anew, again) if outcomes.of_run)]
        else:
            raise ValueError(f"nobody can {word!r}")
        print(json.dumps(told), file=answers)


def timed(run: Callable[[], ResultMemory], outcomes: Outcomes, times: int) -> list[float]:
    """Seconds of each run; the results are looked at outside of them."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        results = run()
        seconds.append(time.perf_counter() - begin)
        outcomes.add(results)
    return seconds
