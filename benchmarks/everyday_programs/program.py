"""What a program of the benchmark is, and the queue of plain PyOpenCL that its other half is written with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

import manycl as mc

Host = npt.NDArray[Any]
ResultMemory = Sequence[Host]
SIZES = ("small", "medium", "large")


class Plain:
    """One in-order queue on one device, as people write it: ordinary memory, blocking copies, kernels fetched once.

    ``device`` is PyOpenCL's. Buffers live until ``done``: kernels do not keep those alive that they were given.
    """

    def __init__(self, device: Any, source: str) -> None:
        import pyopencl as cl

        self.cl = cl
        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context, device)  # of a part: its context holds the whole
        program = cl.Program(self.context, source).build(devices=[device])
        self.k: Any = SimpleNamespace(**{k.function_name: k for k in program.all_kernels()})
        self._made: list[Any] = []

    def empty(self, nbytes: int) -> Any:
        self._made.append(self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, nbytes))
        return self._made[-1]

    def array(self, data: Host) -> Any:
        made = self.empty(data.nbytes)
        self.cl.enqueue_copy(self.queue, made, data)
        return made

    def kept(self, data: Host) -> Any:
        """A buffer that outlives the run."""
        made = self.array(data)
        self._made.pop()
        return made

    def get(self, buffer: Any, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> Host:
        found: Host = np.empty(shape, dtype)
        self.cl.enqueue_copy(self.queue, found, buffer)
        return found

    def done(self) -> None:
        self._made.clear()


class Program(ABC):
    """One program on data of one size. ``source``: OpenCL C of both halves; ``exact``: results are the same bit for bit
    on devices of one kind, however often and in whatever order it runs."""

    source: ClassVar[str]
    exact: ClassVar[bool] = True
    waits: ClassVar[int] = 0  # launches of a run that are waited for one by one

    @abstractmethod
    def plain(self, at: Plain, turn: int) -> ResultMemory:
        """A run with PyOpenCL, from NumPy's arrays to NumPy's arrays. ``turn`` counts the runs."""

    @abstractmethod
    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        """The same with manycl."""


class Repeatable(Program):
    """A program that is one graph: it can also be prepared."""

    inputs: Sequence[Host]

    @abstractmethod
    def plain_launches(self, at: Plain, *buffers: Any) -> Sequence[tuple[Any, Host]]:
        """Enqueue on buffers with the inputs; the buffers of the results, and arrays of their shapes and types."""

    @abstractmethod
    def launches(self, queue: mc.Queue, program: mc.Program, *arrays: mc.Array) -> Sequence[mc.Array]:
        """Enqueue on arrays with the inputs; the results."""

    def plain(self, at: Plain, turn: int) -> ResultMemory:
        made = self.plain_launches(at, *(at.array(data) for data in self.inputs))
        return [at.get(buffer, like.shape, like.dtype) for buffer, like in made]

    def manycl(self, queue: mc.Queue, program: mc.Program, turn: int) -> ResultMemory:
        made = self.launches(queue, program, *(queue.array(data) for data in self.inputs))
        return [array.get() for array in made]

    def prepare(self, queue: mc.Queue, program: mc.Program) -> Callable[[], ResultMemory]:
        """A prepared graph on arrays that are kept: each call gives them the inputs, runs it, and gets the results."""
        arrays = [queue.array(data) for data in self.inputs]
        with queue.prepare() as prepared:
            made = self.launches(queue, program, *arrays)

        def run() -> ResultMemory:
            for array, data in zip(arrays, self.inputs, strict=True):
                array.set(data)
            prepared.run()
            return [array.get() for array in made]

        return run


class Entry(NamedTuple):
    """A program in the list: what it is, and what it is given at each size."""

    kind: type[Program]
    sizes: Mapping[str, Mapping[str, int]]

    def made(self, size: str) -> Program:
        return self.kind(**self.sizes[size])


PROGRAMS: dict[str, Entry] = {}


def program(name: str, **given: Sequence[int]) -> Callable[[type[Program]], type[Program]]:
    """Register a class under a name; each keyword has its values at sizes small, medium and large."""

    def register(kind: type[Program]) -> type[Program]:
        if name in PROGRAMS:
            raise ValueError(f"two programs are called {name}")
        sizes = {size: {word: values[i] for word, values in given.items()} for i, size in enumerate(SIZES)}
        PROGRAMS[name] = Entry(kind, sizes)
        return kind

    return register


def random(*shape: int, seed: int = 1) -> Host:
    """Uniform numbers from [0, 1), single precision."""
    return np.random.default_rng(seed).random(shape, dtype=np.float32)
