"""Which ranges of a launch touch the same bytes. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from manycl.region import Region, common, union
from manycl.run.divide import Access


def forget_unread(found: list[dict[int, Access]], shared: Container[int]) -> None:
    """No range reads what another one writes, but of buffers that groups share by atomic operations: that was proved of
    all groups, so what is said to be read at most is less by what the others certainly write."""
    for key in found[0] if found else ():
        if key in shared:
            continue
        sure = [access[key].writes for access in found if access[key].exact]
        written, twice = union(sure), common(sure)
        for index, access in enumerate(found):
            mine = access[key]
            theirs = mine.reads & written
            if theirs and mine.exact:
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
