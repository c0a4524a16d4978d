"""Accesses of launches, and of ranges of them, to buffers; which of them touch the same bytes. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from manycl.graph.graph import BufferArg, BufferKey, CopyTask, FillTask, Launch, Node
from manycl.region import NOTHING, Region, common, union

COPIES = (CopyTask, FillTask)
Touched = tuple[dict[BufferKey, Region], dict[BufferKey, Region]]
"""The bytes that may be read, and that may be written, by buffer."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a buffer: the bytes that are read and written, at most, exactly or as intervals around them;
    ``overwrites``: all of ``writes`` is written."""

    reads: Region
    writes: Region
    overwrites: bool

    @property
    def needs(self) -> Region:
        """The bytes that must have been brought: those that are read, and those that may be left in part as they
        were."""
        return self.reads if self.overwrites else self.reads | self.writes


def is_partial(task: Node) -> bool:
    """Return whether a node may touch only parts of some buffers."""
    for a in task.args:  # a plain loop: this is asked of every launch that is enqueued
        if type(a) is BufferArg and a.nbytes is not None:
            return True
    return type(task) in COPIES


def touched(task: Node, sizes: Mapping[BufferKey, int]) -> Touched:
    """Return what a node that runs as a whole may touch of its buffers: what its arguments have of them, in the
    directions of these. ``sizes``: bytes of the buffers, by key."""
    if isinstance(task, CopyTask | FillTask):
        writes = {task.args[0].key: Region.span(task.target_offset, task.target_offset + task.nbytes)}
        if not isinstance(task, CopyTask):
            return {}, writes
        return {task.args[1].key: Region.span(task.source_offset, task.source_offset + task.nbytes)}, writes
    views = [(i, a) for i, a in enumerate(task.args) if isinstance(a, BufferArg) and a.nbytes is not None]
    if not views:
        return {k: Region.span(0, sizes[k]) for k in task.reads}, {k: Region.span(0, sizes[k]) for k in task.writes}
    found: Touched = {}, {}
    partly = {a.key for _, a in views}
    for keys, regions, direction in ((task.reads, found[0], "reads"), (task.writes, found[1], "writes")):
        facts = task.kernel.arguments if isinstance(task, Launch) else ()
        for key in keys:
            mine = [(i, a) for i, a in enumerate(task.args) if isinstance(a, BufferArg) and a.key == key]
            # (of a node that says more than its kernel's facts: all that it has of the buffer)
            given = [a for i, a in mine if i >= len(facts) or getattr(facts[i], direction)] or [a for _, a in mine]
            spans = [Region.span(a.offset, a.offset + a.size(sizes)) for a in given]
            regions[key] = union(spans) if key in partly else Region.span(0, sizes[key])
    return found


def access_of(task: Node, sizes: Mapping[BufferKey, int]) -> dict[BufferKey, Access]:
    """Return what a node does that runs as a whole, by buffer; ``sizes``: bytes by key."""
    reads, writes = touched(task, sizes)
    sure = writes if isinstance(task, CopyTask | FillTask) else task.overwrites
    return {k: Access(reads.get(k, NOTHING), writes.get(k, NOTHING), k in sure) for k in {**reads, **writes}}


def needed(task: Node, sizes: Mapping[BufferKey, int]) -> dict[BufferKey, Region]:
    """The bytes that a node that runs as a whole must find: those that it reads, or may leave in part as they were."""
    found, writes = touched(task, sizes)
    if not isinstance(task, CopyTask | FillTask):
        for key, region in writes.items():
            if key not in task.overwrites:
                found[key] = found.get(key, NOTHING) | region
    return found


def forget_unread(found: list[dict[BufferKey, Access]], shared: Container[BufferKey]) -> None:
    """No range reads what another one writes, but of buffers that groups share by atomic operations: that was proved of
    all groups, so what is said to be read at most is less by what the others certainly write."""
    for key in found[0] if found else ():
        if key in shared:
            continue
        sure = [access[key].writes for access in found if access[key].overwrites]
        written, twice = union(sure), common(sure)
        for index, access in enumerate(found):
            mine = access[key]
            if mine.overwrites and not twice and mine.reads == mine.writes:
                continue  # it changes in place what no other range writes
            theirs = mine.reads & written
            if theirs and mine.overwrites:
                theirs = theirs - mine.writes | theirs & twice
            if theirs:
                found[index] = {**found[index], key: replace(mine, reads=mine.reads - theirs)}


def clash(key: BufferKey, found: Sequence[Mapping[BufferKey, Access]], memories: Sequence[int]) -> bool:
    """Return whether ranges in different memories touch the same bytes of a buffer that one of them writes."""
    by_memory: dict[int, list[Access]] = {}
    for access, memory in zip(found, memories, strict=True):
        by_memory.setdefault(memory, []).append(access[key])
    written = {m: union(a.writes for a in members) for m, members in by_memory.items()}
    read = {m: union(a.reads for a in members) for m, members in by_memory.items()}
    return interfere([(read[m], written[m]) for m in by_memory])


def interfere(touched: Sequence[tuple[Region, Region]]) -> bool:
    """Return whether one of some ranges, given as the bytes that each reads and writes, may write what another one
    touches."""
    if common(written for _, written in touched):
        return True
    everything = union(written for _, written in touched)
    return any((read & everything) - written for read, written in touched if read != written)
