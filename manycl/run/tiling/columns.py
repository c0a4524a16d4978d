"""The accesses of ranges in the columns of a time tile (:mod:`manycl.run.tiling.time_skewing`). Every range of a column
is taken to touch all bytes of its buffers that the column touches. So buffers are cut at the edges of columns alone,
into few pieces, and a column's bytes of a buffer are transferred together, for the first range that uses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from manycl.graph.access import Access
from manycl.graph.graph import BufferKey, Graph, HostTask, Window
from manycl.plan.plan import Assignment
from manycl.run.tiling.limits import stores
from manycl.run.tiling.time_skewing import Column, TimeTile
from manycl.run.tiling.windows import Windows


class Touched(NamedTuple):
    """Accesses to buffers, and windows of them, by buffer; the same object for all ranges that touch the same."""

    access: dict[BufferKey, Access]
    windows: dict[BufferKey, Window]


class Columns:
    """The columns of some time tiles, by the ranges in them."""

    def __init__(self, graph: Graph, passes: Sequence[TimeTile]) -> None:
        self._columns: dict[int, dict[int, Column]] = {}  # by node and first group
        self._first: dict[int, dict[BufferKey, int]] = {}  # by column: the first launch that touches a buffer
        self._touched: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Touched] = {}
        for column in (c for found in passes for c in found.columns):
            begins: dict[BufferKey, int] = self._first.setdefault(id(column), {})
            for node, groups in column.ranges:
                self._columns.setdefault(node, {})[groups.first] = column
                task = graph.nodes[node]
                for key in () if isinstance(task, HostTask) else stores(task):
                    begins.setdefault(key, node)

    def __contains__(self, node: int) -> bool:
        return node in self._columns

    def intervals(self, node: int) -> Iterator[tuple[BufferKey, int, int]]:
        """Return (buffer, low, high) of the windows of a launch's columns."""
        return ((key, *span) for c in self._columns[node].values() for key, span in c.windows.items())

    def touched(self, a: Assignment, keys: tuple[BufferKey, ...], windows: Windows) -> Touched:
        """Return what a range of a launch with these buffers is taken to touch."""
        column = self._columns[a.node][a.first]
        first = tuple(k for k in keys if self._first[id(column)][k] == a.node)
        known = self._touched.get((id(column), keys, first))
        if known is None:
            access = {k: column.access[k] for k in keys}
            for k in access.keys() - set(first):  # also what earlier ranges of the column have written
                access[k] = Access(access[k].reads | access[k].writes, access[k].writes, False)
            found = {k: windows.of(a.device, k, *column.windows[k]) for k in keys if k in column.windows}
            known = Touched(access, found)
            self._touched[id(column), keys, first] = known
        return known
