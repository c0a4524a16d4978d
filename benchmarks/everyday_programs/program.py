"""What a program of the benchmark is, and the queues of plain PyOpenCL that its other halves are written with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

import manycl as mc

Host = npt.NDArray[Any]
ResultMemory = Sequence[Host]
Rows = Sequence[tuple[int, int]]
"""The begin and the number of rows of each device."""
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
        self._made.append(self.kept_empty(nbytes))
        return self._made[-1]

    def kept_empty(self, nbytes: int) -> Any:
        """A buffer that outlives the run."""
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, nbytes)

    def array(self, data: Host) -> Any:
        made = self.empty(data.nbytes)
        self.cl.enqueue_copy(self.queue, made, data)
        return made

    def kept(self, data: Host) -> Any:
        """The same, with data."""
        made = self.array(data)
        self._made.pop()
        return made

    def get(self, buffer: Any, shape: Sequence[int], dtype: npt.DTypeLike = np.float32) -> Host:
        found: Host = np.empty(shape, dtype)
        self.cl.enqueue_copy(self.queue, found, buffer)
        return found

    def done(self) -> None:
        self._made.clear()


class Hand:
    """Several devices, between which somebody divides evenly: a context and an in-order queue for each.

    Buffers are as large as on one device, so that kernels run unchanged with a global offset; a device has its own rows
    of them, and others' where they were exchanged. In each run the buffers of the first one are used again. Rows go
    from device to device by pinned host memory.
    """

    def __init__(self, devices: Sequence[Any], source: str) -> None:
        self.devices = [Plain(device, source) for device in devices]
        self.cl = self.devices[0].cl
        self._buffers: list[list[Any]] = []
        self._used = self._swaps = 0
        self._pinned: dict[tuple[int, ...], Host] = {}
        self._copies: list[Any] = []  # PyOpenCL waits for a copy where its event is dropped

    def split(self, rows: int, unit: int) -> Rows:
        """As even as multiples of ``unit`` rows are."""
        count = len(self.devices)
        cuts = [min(rows, (rows // unit * i + count - 1) // count * unit) for i in range(count)] + [rows]
        return [(cuts[i], cuts[i + 1] - cuts[i]) for i in range(count)]

    def each(self, rows: Rows, *buffers: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Of each device that has rows: its queue, its kernels, its begin and number of rows, its buffers. What is
        enqueued begins at once."""
        for one, (begin, count), *own in zip(self.devices, rows, *buffers, strict=True):
            if count:
                yield one.queue, one.k, begin, count, *own
                one.queue.flush()

    def empty(self, nbytes: int) -> Sequence[Any]:
        self._used += 1
        if self._used > len(self._buffers):
            self._buffers.append([one.kept_empty(nbytes) for one in self.devices])
        return self._buffers[self._used - 1]

    def upload(self, data: Host, rows: Rows | None = None, reach: int = 0) -> Sequence[Any]:
        """All of it to all devices, or to each its rows and ``reach`` more at both ends."""
        made, width = self.empty(data.nbytes), data.nbytes // len(data)
        for queue, _, begin, count, buffer in self.each(rows or [(0, len(data))] * len(self.devices), made):
            first = max(begin - reach, 0)
            self._copy(queue, buffer, data[first : begin + count + reach], dst_offset=first * width)
        return made

    def exchange(self, buffers: Sequence[Any], rows: Rows, width: int, reach: int | None = None) -> None:
        """Each device gets the others' rows, of ``width`` bytes, or ``reach`` rows beyond both ends of its own."""
        self._swaps += 1  # what was sent last may still be read: two places take turns
        sent, everybody = [], list(zip(self.devices, buffers, rows, strict=True))
        for i, (one, buffer, (begin, count)) in enumerate(everybody):
            spans = [(begin, count)] if reach is None else [(begin, reach), (begin + count - reach, reach)]
            for end, (first, many) in enumerate(spans if count else []):
                place = self._place(i, end, self._swaps % 2, many * width)
                self._copy(one.queue, place, buffer, src_offset=first * width)
                sent.append((i, first, place))
            one.queue.flush()
        self.finish()
        for i, (one, buffer, (begin, count)) in enumerate(everybody):
            for other, first, place in sent:
                if other != i and (reach is None or first in (begin - reach, begin + count)):
                    self._copy(one.queue, buffer, place, dst_offset=first * width)

    def download(self, buffers: Sequence[Any], like: Host, rows: Rows) -> Host:
        """The rows of all."""
        found, width = np.empty_like(like), like.nbytes // len(like)
        for queue, _, begin, count, buffer in self.each(rows, buffers):
            self._copy(queue, found[begin : begin + count], buffer, src_offset=begin * width)
        self.finish()
        return found

    def finish(self) -> None:
        for one in self.devices:
            one.queue.finish()
        self._copies.clear()

    def done(self) -> None:
        self._used = 0
        for one in self.devices:
            one.done()

    def _copy(self, queue: Any, target: Any, source: Any, **where: int) -> None:
        self._copies.append(self.cl.enqueue_copy(queue, target, source, is_blocking=False, **where))

    def _place(self, *key: int) -> Host:
        """Page-locked memory of the host, of ``key[-1]`` bytes."""
        if key not in self._pinned:
            one, flags, maps = self.devices[key[0]], self.cl.mem_flags, self.cl.map_flags
            memory = self.cl.Buffer(one.context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, key[-1])
            mapped = self.cl.enqueue_map_buffer(one.queue, memory, maps.READ | maps.WRITE, 0, key[-1], np.uint8)
            self._pinned[key] = mapped[0]
        return self._pinned[key]


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

    def on_kept(self, queue: mc.Queue, program: mc.Program) -> Callable[[], ResultMemory]:
        """The same on arrays of the inputs that are kept, and given the inputs anew each time."""
        arrays = [queue.array(data) for data in self.inputs]

        def run() -> ResultMemory:
            for array, data in zip(arrays, self.inputs, strict=True):
                array.set(data)
            return [array.get() for array in self.launches(queue, program, *arrays)]

        return run

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


class Divisible(Repeatable):
    """A program that somebody has also divided by hand."""

    @abstractmethod
    def hand(self, at: Hand) -> ResultMemory:
        """A run with PyOpenCL on several devices, each of which has as much to do as the others; one device where
        dividing cannot pay."""


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
