"""Which ranges of a launch touch the same bytes. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from manycl.graph import pieces
from manycl.graph.pieces import Bytes
from manycl.run.divide import Access


def forget_unread(found: list[dict[int, Access]], shared: Container[int]) -> None:
    """No range reads what another one writes, but of buffers that groups share by atomic operations: that was proved of
    all groups, so what is said to be read at most is less by what the others certainly write."""
    for index, access in enumerate(found):
        changed = {}
        for key, mine in access.items():
            reads = mine.reads
            for other, theirs in enumerate(found if key not in shared else ()):
                if other != index and len(reads[0]) and theirs[key].exact:
                    reads = pieces.without(reads, theirs[key].writes)
            changed[key] = replace(mine, reads=reads) if reads is not mine.reads else mine
        found[index] = changed


def clash(key: int, found: Sequence[Mapping[int, Access]], memories: Sequence[int]) -> bool:
    """Whether ranges in different memories touch the same bytes of a buffer that one of them writes."""
    by_memory: dict[int, list[Access]] = {}
    for access, memory in zip(found, memories, strict=True):
        by_memory.setdefault(memory, []).append(access[key])
    written = {m: pieces.union(a.writes for a in members) for m, members in by_memory.items()}
    read = {m: pieces.union(a.reads for a in members) for m, members in by_memory.items()}
    return any(
        pieces.meet(written[a], written[b]) or pieces.meet(written[a], read[b])
        for a in written
        for b in written
        if a != b
    )


def interfere(touched: Sequence[tuple[Bytes, Bytes]]) -> bool:
    """Whether one of some ranges, given as the bytes that each reads and writes, may write what another one touches."""
    everything = pieces.union(written for _, written in touched)
    if sum(_length(written) for _, written in touched) > _length(everything):
        return True
    return any(_common(read, everything) > _common(read, written) for read, written in touched)


def _length(given: Bytes) -> int:
    return int((given[1] - given[0]).sum())


def _common(a: Bytes, b: Bytes) -> int:
    """How many bytes two sets have in common."""
    return _length(a) + _length(b) - _length(pieces.union([a, b]))
