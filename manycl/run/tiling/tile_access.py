"""The accesses of ranges in the tiles of a time tile (:mod:`manycl.run.tiling.time_skewing`). Every range of a tile
is taken to touch all bytes of its buffers that the tile touches. So buffers are cut at the edges of tiles alone,
into few pieces, and a tile's bytes of a buffer are transferred together, for the first range that uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from manycl.graph.access import Access
from manycl.graph.graph import BufferKey, Graph, HostTask, Window
from manycl.plan.plan import Assignment
from manycl.run.tiling.limits import stores
from manycl.run.tiling.time_skewing import Tile, TimeTile
from manycl.run.tiling.windows import Windows


class Touched(NamedTuple):
    """Accesses to buffers, and windows of them, by buffer; the same object for all ranges that touch the same."""

    access: dict[BufferKey, Access]
    windows: dict[BufferKey, Window]


class TileAccess:
    """The tiles of some time tiles, by the ranges in them."""

    def __init__(self, graph: Graph, time_tiles: Sequence[TimeTile]) -> None:
        self._tiles: dict[int, dict[int, Tile]] = {}  # by node and first group
        self._first: dict[int, dict[BufferKey, int]] = {}  # by tile: the first launch that touches a buffer
        self._touched: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Touched] = {}
        for tile in (c for found in time_tiles for c in found.tiles):
            begins: dict[BufferKey, int] = self._first.setdefault(id(tile), {})
            for node, groups in tile.ranges:
                self._tiles.setdefault(node, {})[groups.first] = tile
                task = graph.nodes[node]
                for key in () if isinstance(task, HostTask) else stores(task):
                    begins.setdefault(key, node)

    def __contains__(self, node: int) -> bool:
        return node in self._tiles

    def intervals(self, node: int) -> Iterator[tuple[BufferKey, int, int]]:
        """Return (buffer, low, high) of the windows of a launch's tiles."""
        return ((key, *span) for c in self._tiles[node].values() for key, span in c.windows.items())

    def touched(self, a: Assignment, keys: tuple[BufferKey, ...], windows: Windows) -> Touched:
        """Return what a range of a launch with these buffers is taken to touch."""
        tile = self._tiles[a.node][a.first]
        first = tuple(k for k in keys if self._first[id(tile)][k] == a.node)
        known = self._touched.get((id(tile), keys, first))
        if known is None:
            access = {k: tile.access[k] for k in keys}
            for k in access.keys() - set(first):  # also what earlier ranges of the tile have written
                access[k] = Access(access[k].reads | access[k].writes, access[k].writes, False)
            found = {k: windows.of(a.device, k, *tile.windows[k]) for k in keys if k in tile.windows}
            known = Touched(access, found)
            self._touched[id(tile), keys, first] = known
        return known
