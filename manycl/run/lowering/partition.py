"""Buffers cut into pieces, and the order of steps that follows from the pieces that they touch. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from manycl.graph.access import Access
from manycl.graph.graph import Buffer, BufferKey, Piece
from manycl.region import Region, bytes_of, holders, partition
from manycl.run.data.coherence import Directory
from manycl.units import PAGE


def chunks(region: Region, most: int) -> list[Region]:
    """Return a region as several of about ``most`` bytes, if it is much larger and one interval or one rectangle."""
    low, high = region.hull
    if high - low < 2 * most or region.nbytes < 2 * most or len(region.rectangles) != 1:
        return [region]
    offset, width, _, count, *_ = region.rectangles[0]
    if count == 1:
        number = width // most
        ends = [width * i // number // PAGE * PAGE for i in range(number)] + [width]
        return [Region.span(offset + a, offset + b) for a, b in pairwise(ends)]
    number = min(count, width * count // most)
    ends = [count * i // number for i in range(number + 1)]
    return [Region(region.ends[2 * a : 2 * b]) for a, b in pairwise(ends)]


class Touches(NamedTuple):
    """The pieces that a step reads, those that it writes, and those of which it writes every byte; as in nodes."""

    reads: tuple[BufferKey, ...]
    writes: tuple[BufferKey, ...]
    overwrites: tuple[BufferKey, ...]


class Cut:
    """The buffers of a run, cut into pieces: those ``exchanged`` (None: all) into pieces of no more than about ``most``
    bytes (0: of any size). ``along``: the parts of those buffers that had to be cut along their parts as well."""

    def __init__(
        self,
        sizes: Mapping[BufferKey, int],
        directory: Directory,
        most: int = 0,
        exchanged: Collection[BufferKey] | None = None,
    ) -> None:
        self._most = dict.fromkeys(sizes if exchanged is None else exchanged, most)
        self._sizes = sizes
        self._directory = directory
        self._regions: dict[BufferKey, dict[Region, None]] = {key: {} for key in sizes}
        self._pieces: dict[BufferKey, dict[Region, tuple[BufferKey, ...]]] = {}
        self.buffers: dict[BufferKey, Buffer] = {}
        self.cut: dict[BufferKey, dict[BufferKey, Region]] = {}
        self.along: dict[BufferKey, tuple[Region, ...]] = {}

    def add(self, touched: Mapping[BufferKey, Access]) -> None:
        """Add regions, by buffer, along which the buffers are cut."""
        for key, access in touched.items():
            regions = self._regions[key]
            regions.update((region, None) for region in (access.reads, access.writes) if region)

    def make(self, buffers: Mapping[BufferKey, Buffer]) -> None:
        """Cut the buffers, so that each piece lies in one valid region of its buffer."""
        for key, buffer in buffers.items():
            regions = list(self._regions[key])
            valid = tuple([v.region for v in self._directory.valid_regions.get(key, ())])
            found, held = self._cut(key, buffer.nbytes, regions)
            if valid and holders(found, valid) is None:
                self.along[key] = valid
                regions = list(dict.fromkeys((*regions, *valid)))
                found, held = self._cut(key, buffer.nbytes, regions)
            if len(found) == 1:
                self.buffers[key] = buffer
                self._pieces[key] = {region: (key,) if h else () for region, h in zip(regions, held, strict=True)}
                continue
            keys = [self._directory.new_key() for _ in found]
            name = buffer.name or f"buffer {key}"
            for new, region, nbytes in zip(keys, found, bytes_of(found), strict=True):
                self.buffers[new] = Piece(new, nbytes, name, key, region)
            self._pieces[key] = {region: tuple([keys[i] for i in h]) for region, h in zip(regions, held, strict=True)}
            self.cut[key] = dict(zip(keys, found, strict=True))

    def _cut(
        self, key: BufferKey, nbytes: int, regions: Sequence[Region]
    ) -> tuple[list[Region], list[tuple[int, ...]]]:
        """Return what :func:`partition` returns, with large pieces cut into chunks."""
        found, held = partition(nbytes, regions)
        most = self._most.get(key, 0)
        if not most or len(found) == 1:  # a buffer used as a whole stays whole
            return found, held
        if max(bytes_of(found)) < 2 * most:
            return found, held
        parts = [chunks(region, most) for region in found]
        first = [0, *accumulate(len(p) for p in parts)]
        return [c for p in parts for c in p], [tuple(j for i in h for j in range(first[i], first[i + 1])) for h in held]

    def of(self, touched: Mapping[BufferKey, Access]) -> Touches:
        """Return the accesses to pieces that accesses to their buffers are."""
        reads, writes, overwrites = list[BufferKey](), list[BufferKey](), list[BufferKey]()
        for key, access in touched.items():
            pieces = self._pieces[key]
            if access.reads:
                reads += pieces[access.reads]
            if access.writes:
                writes += pieces[access.writes]
                overwrites += pieces[access.writes] if access.overwrites else ()
        return Touches(tuple(reads), tuple(writes), tuple(overwrites))


class Order:
    """The predecessors of steps: read after write, write after read, write after write, by pieces. Steps that are added
    between ``begin`` and ``end`` do not wait for one another."""

    def __init__(self) -> None:
        self.predecessors: list[tuple[int, ...]] = []
        self._writers: dict[BufferKey, list[int]] = {}
        self._readers: dict[BufferKey, list[int]] = {}

    def begin(self) -> None:
        self._read: dict[BufferKey, list[int]] = {}
        self._written: dict[BufferKey, list[int]] = {}

    def add(self, step: int, reads: Iterable[BufferKey], writes: Iterable[BufferKey], before: Iterable[int]) -> None:
        found = set(before)
        for piece in reads:
            found.update(self._writers.get(piece, ()))
            self._read.setdefault(piece, []).append(step)
        for piece in writes:
            found.update(self._readers.get(piece) or self._writers.get(piece) or ())
            self._written.setdefault(piece, []).append(step)
        self.predecessors.append(tuple(sorted(found)))

    def end(self) -> None:
        for piece, steps in self._read.items():
            if piece not in self._written:
                self._readers.setdefault(piece, []).extend(steps)
        for piece, steps in self._written.items():
            self._writers[piece] = steps
            self._readers.pop(piece, None)
            # steps of the round that only read the piece (never what others of the round write) are to be waited for,
            # too
            only = [s for s in self._read.get(piece, ()) if s not in steps]
            if only:
                self._writers[piece] = [*steps, *only]
