"""The application that a file describes: a graph, what its buffers hold at the start, and which of them are results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from manycl.errors import SpecificationError
from manycl.graph.dependences import with_results
from manycl.graph.graph import BufferKey, Graph
from manycl.machine import Machine


@dataclass(frozen=True, slots=True)
class Contents:
    """Initial contents of a buffer: an array of NumPy type ``dtype`` and ``shape`` (in elements of that type).
    ``kind``: ``random`` (uniform in [low, high); integers from low to high - 1), ``zeros``, ``constant`` (``value``),
    ``range`` (0, 1, 2, ... in memory order), ``file`` (a .npy file), ``undefined`` (anything)."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    seed: int = 0
    low: float = 0.0
    high: float = 1.0
    value: float = 0.0
    path: str = ""

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * np.dtype(self.dtype).itemsize

    def create(self) -> np.ndarray:
        """A new C-contiguous array. Raises SpecificationError when a file is not as it was when it was looked at."""
        dtype = np.dtype(self.dtype)
        match self.kind:
            case "zeros":
                return np.zeros(self.shape, dtype)
            case "undefined":
                return np.empty(self.shape, dtype)
            case "constant":
                return np.full(self.shape, self.value, dtype)
            case "range":
                items = self.nbytes // dtype.itemsize
                return np.arange(items).astype(dtype).reshape(self.shape)
            case "random":
                return self._random(dtype)
            case "file":
                return self._read(dtype)
        raise SpecificationError(f"unknown kind of initial contents {self.kind!r}")

    def _random(self, dtype: np.dtype) -> np.ndarray:
        generator = np.random.default_rng(self.seed)
        if dtype.kind in "iu":
            return generator.integers(int(self.low), int(self.high), self.shape, dtype=dtype)
        if dtype.itemsize < 4:
            dtype = np.dtype(np.float32)
        uniform = generator.random(self.shape, dtype=dtype)
        uniform *= self.high - self.low
        uniform += self.low
        return uniform.astype(self.dtype, copy=False)

    def _read(self, dtype: np.dtype) -> np.ndarray:
        try:
            array = np.load(self.path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise SpecificationError(f"cannot be read as a .npy file: {error}", path=self.path) from None
        if array.shape != self.shape or array.dtype != dtype:
            problem = f"holds {array.dtype} {array.shape}, not {dtype} {self.shape}"
            raise SpecificationError(problem, path=self.path)
        return np.ascontiguousarray(array)


@dataclass(frozen=True, slots=True)
class Output:
    """A result: ``path`` is the .npy file to save it to, or empty."""

    name: str
    buffer: BufferKey
    dtype: str
    shape: tuple[int, ...]
    path: str = ""


@dataclass(frozen=True, slots=True)
class Iterate:
    """All kernels run ``times`` times, or until a condition holds; pairs of buffers (``swap``, keys) exchange their
    contents after each time. ``until``: a Python file and a function in it, called after every ``every`` repetitions
    with a dictionary of the contents of ``buffers`` (keys) by name; None: there is no condition."""

    times: int
    swap: tuple[tuple[BufferKey, BufferKey], ...] = ()
    until: tuple[str, str] | None = None
    buffers: tuple[BufferKey, ...] = ()
    every: int = 1


@dataclass(frozen=True)
class Application:
    """A graph with everything that running it needs. ``contents`` has every buffer of the graph. ``queues``: command
    queues per device, by device kind or name. ``goals``: what policies plan for, as their options (``objective``,
    ``deadline``). ``reference``: a Python file and a function in it, called with a dictionary of the arrays with
    initial contents (by buffer name) that returns a dictionary of outputs; ``tolerance`` is the relative error allowed
    against it. ``iterate``: how the graph is repeated (None: it runs once)."""

    name: str
    graph: Graph
    contents: Mapping[BufferKey, Contents]
    outputs: tuple[Output, ...]
    queues: Mapping[str, int] = field(default_factory=dict)
    goals: Mapping[str, str] = field(default_factory=dict)
    reference: tuple[str, str] | None = None
    tolerance: float = 1e-4
    parameters: Mapping[str, int | float] = field(default_factory=dict)
    iterate: Iterate | None = None

    def read_after(self, turn: int) -> tuple[BufferKey, ...]:
        """Return the buffers, as the graph names them, that the host reads after a repetition (1: the first, or the
        only one): the outputs after the last one, and what the condition is given."""
        iterate, outputs = self.iterate, [output.buffer for output in self.outputs]
        if iterate is None:
            return tuple(outputs)
        asked = iterate.buffers if iterate.until is not None and turn % iterate.every == 0 else ()
        swapped = dict((*iterate.swap, *((b, a) for a, b in iterate.swap)))  # when it has run
        return tuple([swapped.get(key, key) for key in (*asked, *(outputs if turn == iterate.times else ()))])

    def graph_with(self, results: Collection[BufferKey], machine: Machine) -> Graph:
        """Return the graph with a node for what the host reads, unless all devices compute in the host's memory."""
        return with_results(self.graph, results) if machine.memories > 1 else self.graph

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.graph.warnings
