"""Copies, fills and results as nodes: made, and checked against the sizes of buffers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.errors import LaunchError
from manycl.graph.graph import Buffer, BufferArg, BufferKey, CopyTask, FillTask, Graph, HostTask, Node, ResultTask

Bytes = npt.NDArray[np.uint8]

PATTERNS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Bytes that a pattern may have (clEnqueueFillBuffer)."""


class Place(NamedTuple):
    """A buffer, or of a view of it the ``nbytes`` bytes from byte ``low`` on."""

    buffer: Buffer
    low: int
    nbytes: int

    @classmethod
    def of(cls, what: Buffer | Place) -> Place:
        return what if isinstance(what, Place) else cls(what, 0, what.nbytes)

    def check(self, name: str, which: str, offset: int, nbytes: int) -> None:
        """Raise LaunchError for bytes that it does not have."""
        if offset < 0 or offset + nbytes > self.nbytes:
            raise LaunchError(f"{name}: bytes {offset} to {offset + nbytes} of the {which}, which has {self.nbytes}")


def copy_task(
    target: Buffer | Place,
    source: Buffer | Place,
    nbytes: int | None = None,
    *,
    target_offset: int = 0,
    source_offset: int = 0,
    name: str = "copy",
) -> CopyTask:
    """Some bytes of a buffer, or a view of one, copied (None: all that are behind both offsets, of which there must be
    equally many). Raises LaunchError for bytes that it does not have, or that overlap."""
    to, of = Place.of(target), Place.of(source)
    if nbytes is None:
        nbytes, there = of.nbytes - source_offset, to.nbytes - target_offset
        if nbytes != there:
            raise LaunchError(
                f"{name}: the source has {nbytes} bytes from byte {source_offset} on, the target {there} from byte"
                f" {target_offset} on",
                hint="say how many are to be copied",
            )
    to.check(name, "target", target_offset, nbytes)
    of.check(name, "source", source_offset, nbytes)
    written, read = to.buffer, of.buffer
    task = CopyTask(
        name,
        (BufferArg(written.key), BufferArg(read.key)),
        nbytes,
        to.low + target_offset,
        (read.key,),
        (written.key,),
        (written.key,) if nbytes == written.nbytes else (),
        source_offset=of.low + source_offset,
    )
    check_extent(task, {written.key: written.nbytes, read.key: read.nbytes})
    return task


def fill_task(
    target: Buffer | Place, pattern: bytes, nbytes: int | None = None, *, target_offset: int = 0, name: str = "fill"
) -> FillTask:
    """Some bytes of a buffer, or a view of one, filled (None: all from the offset on). Raises LaunchError for bytes
    that it does not have, and for a pattern whose length OpenCL does not have, or does not divide offset and size."""
    to = Place.of(target)
    nbytes = to.nbytes - target_offset if nbytes is None else nbytes
    to.check(name, "target", target_offset, nbytes)
    key = to.buffer.key
    overwrites = (key,) if nbytes == to.buffer.nbytes else ()
    low, args = to.low + target_offset, (BufferArg(key),)
    task = FillTask(name, args, nbytes, low, (), (key,), overwrites, pattern=pattern)
    check_extent(task, {key: to.buffer.nbytes})
    return task


def read_task(source: BufferArg, out: Bytes, name: str = "read") -> HostTask:
    """Return the node that copies a buffer, or a view of one, to the host's memory ``out`` of as many bytes."""

    def read(data: Bytes) -> None:
        out[:] = data

    return HostTask(name, read, (source,), (source.key,), (), repeats=True)


def result_task(keys: Sequence[BufferKey]) -> ResultTask:
    """Return the node that stands for the host's reading of some buffers."""
    return ResultTask("results", _nothing, tuple(map(BufferArg, keys)), tuple(keys), (), repeats=True)


def _nothing(*_: Bytes) -> None:
    """The bytes only have to be there."""


def without_results(graph: Graph) -> Graph:
    """Return a graph with the same effect on buffers in which no host function is called that writes none."""
    calls = {n: t for n, t in enumerate(graph.nodes) if type(t) is HostTask and not t.writes}
    muted: dict[int, Node] = {n: replace(task, function=_nothing, repeats=True) for n, task in calls.items()}
    return replace(graph, nodes=tuple([muted.get(n, t) for n, t in enumerate(graph.nodes)])) if muted else graph


def write_task(target: BufferArg, data: Bytes, name: str = "write", repeats: bool = False) -> HostTask:
    """Return the node that overwrites a buffer, or a view of one, with ``data``, as it is then. ``repeats``: nobody
    changes that."""

    def write(place: Bytes) -> None:
        place[:] = data

    return HostTask(name, write, (target,), (), (target.key,), None, (target.key,), repeats)


def host_task(task: CopyTask | FillTask) -> HostTask:
    """Return a copy or fill as a node that the host does in its own memory: where no device has room for the
    buffers."""
    kept = () if task.overwrites else task.writes  # whose other bytes stay as they are
    reads = tuple(dict.fromkeys((*task.reads, *kept)))
    return HostTask(task.name, _by_numpy(task), task.args, reads, task.writes, task.rank, task.overwrites)


def _by_numpy(task: CopyTask | FillTask) -> Callable[..., None]:
    where = slice(task.target_offset, task.target_offset + task.nbytes)
    if isinstance(task, CopyTask):
        there = slice(task.source_offset, task.source_offset + task.nbytes)

        def copied(target: Bytes, source: Bytes) -> None:
            target[where] = source[there]

        return copied
    pattern = np.frombuffer(task.pattern, np.uint8)

    def filled(target: Bytes) -> None:
        target[where].reshape(-1, len(pattern))[:] = pattern

    return filled


def check_extent(task: Node, sizes: Mapping[BufferKey, int]) -> None:
    """Raise LaunchError for a copy or fill that does not fit into buffers of known ``sizes`` (bytes, by key)."""
    if not isinstance(task, CopyTask | FillTask):
        return
    if task.nbytes < 1:
        raise LaunchError(f"{task.name}: {task.nbytes} bytes; there must be at least one")
    ends = [("target", task.args[0].key, task.target_offset)]
    if isinstance(task, CopyTask):
        ends.append(("source", task.args[1].key, task.source_offset))
    for which, key, offset in ends:
        there = sizes.get(key)
        if offset < 0 or (there is not None and offset + task.nbytes > there):
            raise LaunchError(
                f"{task.name}: bytes {offset} to {offset + task.nbytes} of the {which}"
                + ("" if there is None else f", which has {there}")
            )
    if isinstance(task, FillTask):
        length = len(task.pattern)
        if length not in PATTERNS:
            raise LaunchError(f"{task.name}: a pattern of {length} bytes; it may have {', '.join(map(str, PATTERNS))}")
        if task.nbytes % length or task.target_offset % length:
            raise LaunchError(
                f"{task.name}: {task.nbytes} bytes from byte {task.target_offset} on are no multiples of the pattern's"
                f" {length}"
            )
    elif task.args[0] == task.args[1] and abs(task.target_offset - task.source_offset) < task.nbytes:
        raise LaunchError(f"{task.name}: source and target overlap")
