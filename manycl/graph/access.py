"""What launches, and ranges of them, do to buffers; which of them touch the same bytes. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from manycl.region import Region, common, union


@dataclass(frozen=True, slots=True)
class Access:
    """What is done to a buffer: the bytes that are read and written, at most, exactly or as intervals around them;
    ``overwrites``: all of ``writes`` is written."""

    reads: Region
    writes: Region
    overwrites: bool

    @property
    def needs(self) -> Region:
        """What must have been brought: what is read, and what may be left in part as it was."""
        return self.reads if self.overwrites else self.reads | self.writes


def forget_unread(found: list[dict[int, Access]], shared: Container[int]) -> None:
    """No range reads what another one writes, but of buffers that groups share by atomic operations: that was proved of
    all groups, so what is said to be read at most is less by what the others certainly write."""
    for key in found[0] if found else ():
        if key in shared:
            continue
        sure = [access[key].writes for access in found if access[key].overwrites]
        written, twice = union(sure), common(sure)
        for index, access in enumerate(found):
            mine = access[key]
            theirs = mine.reads & written
            if theirs and mine.overwrites:
                theirs = theirs - mine.writes | theirs & twice
            if theirs:
                found[index] = {**found[index], key: replace(mine, reads=mine.reads - theirs)}


def clash(key: int, found: Sequence[Mapping[int, Access]], memories: Sequence[int]) -> bool:
    """Whether ranges in different memories touch the same bytes of a buffer that one of them writes."""
    by_memory: dict[int, list[Access]] = {}
    for access, memory in zip(found, memories, strict=True):
        by_memory.setdefault(memory, []).append(access[key])
    written = {m: union(a.writes for a in members) for m, members in by_memory.items()}
    read = {m: union(a.reads for a in members) for m, members in by_memory.items()}
    return any(written[a].meets(written[b]) or written[a].meets(read[b]) for a in written for b in written if a != b)


def interfere(touched: Sequence[tuple[Region, Region]]) -> bool:
    """Whether one of some ranges, given as the bytes that each reads and writes, may write what another one touches."""
    if common(written for _, written in touched):
        return True
    everything = union(written for _, written in touched)
    return any((read & everything) - written for read, written in touched)
