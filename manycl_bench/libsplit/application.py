"""What the applications of Libsplit's experiments are made of: arrays, launches, and a NumPy reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.api.arrays.host_arrays import AnyArray
from manycl.api.program import Program
from manycl.api.queue import Queue

Contents = dict[str, AnyArray]
KERNELS = Path(__file__).with_name("kernels")


@dataclass(frozen=True)
class Step:
    """A launch: the kernel, its NDRange, and its arguments (names of arrays, and numbers)."""

    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    args: tuple[str | int | float, ...]


@dataclass(frozen=True)
class Application:
    """A computation that is repeated: all ``steps`` are one repetition.

    ``arrays``: what they hold at the start. ``reference(contents)`` does one repetition in place, in NumPy.
    ``between(contents, turn)``, where there is one, is the host's code before repetition ``turn`` (from 1 on): it
    returns the arrays that it changes. ``results`` are compared, max|difference| / max|reference| within
    ``tolerance`` (0: bit for bit).
    """

    name: str
    source: str
    steps: tuple[Step, ...]
    arrays: Mapping[str, AnyArray]
    results: tuple[str, ...]
    reference: Callable[[Contents], None]
    tolerance: float = 1e-4
    between: Callable[[Contents, int], Sequence[str]] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def program(self) -> Program:
        return program(self.source)

    def allocate(self, queue: Queue) -> dict[str, Array]:
        """The arrays on a queue, with their first contents."""
        return {name: queue.array(data, name=name) for name, data in self.arrays.items()}

    def enqueue(self, queue: Queue, arrays: Mapping[str, Array]) -> None:
        """One repetition."""
        for step in self.steps:
            args = (arrays[a] if isinstance(a, str) else a for a in step.args)
            self.program().kernel(step.kernel)(queue, step.global_size, step.local_size, *args)

    def expected(self, repetitions: int) -> Contents:
        """What the results are after so many repetitions, by the reference."""
        contents = {name: data.copy() for name, data in self.arrays.items()}
        for turn in range(repetitions):
            if turn and self.between is not None:
                self.between(contents, turn)
            self.reference(contents)
        return {name: contents[name] for name in self.results}


@cache
def program(name: str) -> Program:
    """The kernels in a file of this folder."""
    return Program.from_file(KERNELS / name)


def around(items: int, local: int) -> int:
    """The smallest multiple of a work-group's size that has all items."""
    return -(-items // local) * local


def uniform(seed: int, *shape: int, low: float = 0.0, high: float = 1.0) -> AnyArray:
    """Random numbers of single precision."""
    found = np.random.default_rng(seed).random(shape, dtype=np.float32)
    return (low + (high - low) * found).astype(np.float32)
