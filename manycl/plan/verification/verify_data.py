"""Judges when a plan's assignments start: their inputs can have arrived by then, and merged results have been made.
This is a lower bound, whatever transfers the bytes: they take as long as they do alone. That nothing is read before it
is really there is judged in command graphs (``tests/run/commands/verify_commands.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem

Bytes = NDArray[np.int64]


class Data:
    """The places where a plan's assignments leave their results."""

    def __init__(self, plan: Plan, problem: Problem) -> None:
        self._problem = problem
        self._of: dict[int, list[Assignment]] = {}
        for a in plan.assignments:
            self._of.setdefault(a.node, []).append(a)
        self._in_ranges = plan.is_split
        self._lanes = [d.memory for d in problem.machine.devices]
        self._slack = plan.slack
        self._devices = plan.devices
        self._makers = cache(self._left_by)

    def _memory(self, a: Assignment) -> int:
        return HOST if a.device == ON_HOST else self._problem.machine.devices[a.device].memory

    def _least(self, nbytes: int, source: int, target: int) -> float:
        """Return the least seconds to move bytes from a memory to another. Where ranges cut them, each device of a
        memory may move some, and some may arrive at a host's memory while others leave it."""
        transfer = self._problem.estimates.transfer
        ways = [self._problem.routes.between(source, target), ((source, HOST), (HOST, target))]
        if self._in_ranges:
            lanes = max(1, *(self._lanes.count(memory) for memory in (source, target) if memory != HOST), 1)
            nbytes = -(-nbytes // lanes)
        by_hops = [[transfer(nbytes, *ends) for ends in way] for way in ways if way]
        least = min(max(hops) if self._in_ranges else sum(hops) for hops in by_hops)
        return min(transfer(nbytes, source, target), least)

    def merges(self) -> Iterator[str]:
        """Yield faults unless partial results are merged once, where some of them are, after all of them."""
        for node, members in self._of.items():
            merges = [a for a in members if a.dimension is MERGE]
            parts = [a for a in members if a.is_range]
            if not parts and not merges:
                continue
            split, task = self._problem.splits[node], self._problem.graph.nodes[node]
            split.check(task.reads, task.writes)
            memories = {self._memory(a) for a in parts}
            due = 1 if split.merge != "none" and len(memories) > 1 else 0
            if len(merges) != due:
                yield f"node {node} is merged {len(merges)} times, not {due}"
                continue
            for a in merges:
                if self._memory(a) not in memories:
                    yield f"node {node} is merged on {self._devices[a.device]}, where no part of it ran"
                if a.start < max(b.end for b in parts) - self._slack:
                    yield f"node {node} is merged before all of it has run"
                least = self._problem.merge_seconds(node, a.device, len(memories - {self._memory(a)}))
                if a.end - a.start < least - self._slack:
                    yield f"the merge of node {node} takes {a.end - a.start} s, but is estimated at {least} s"

    def arrivals(self) -> Iterator[str]:
        """Yield a fault where inputs, from their last writer or the start, cannot have arrived for an assignment."""
        problem, nodes = self._problem, self._problem.graph.nodes
        fixed = {a.node for a in problem.fixed}  # their inputs have been transferred
        writers: dict[
            BufferKey, list[tuple[int, int, int]]
        ] = {}  # (from, to, node) of written bytes, the last write at the end
        for node, task in enumerate(nodes):
            for a in self._of[node] if node not in fixed else ():
                if a.dimension is MERGE:
                    continue
                for key, low, high in problem.needs(node, a.first, 0 if a.dimension is WHOLE else a.groups):
                    if key not in task.reads:
                        continue
                    for begin, end, writer in _last_writers(writers.get(key, []), low, high):
                        if a.start < self._earliest(a, key, begin, end, writer) - self._slack:
                            of = f" of node {writer}" if writer is not None else ""
                            yield f"node {node} starts before buffer {key}{of} can have arrived"
            for key in task.writes:
                writers.setdefault(key, []).extend((*span, node) for span in problem.written(node, key))

    def _earliest(self, a: Assignment, key: BufferKey, low: int, high: int, writer: int | None) -> float:
        """Return when bytes of a buffer, as their writer (None: the start) left them, can be there."""
        problem, here = self._problem, self._memory(a)
        floor = problem.not_before
        if writer is None:
            parts = [p for p in problem.initial(key) if p.low < high and low < p.high]
            sizes = [min(high, p.high) - max(low, p.low) for p in parts]
            arrive = (min(self._least(n, m, here) for m in p.memories) for p, n in zip(parts, sizes, strict=True))
            return floor + max(arrive, default=0.0)
        makers, first, last = self._makers(writer, key)
        at = floor
        for i in np.flatnonzero((first < high) & (low < last)).tolist():
            b, nbytes = makers[i], min(high, int(last[i])) - max(low, int(first[i]))
            at = max(at, b.end + self._least(nbytes, self._memory(b), here))
        return at

    def _left_by(self, writer: int, key: BufferKey) -> tuple[list[Assignment], Bytes, Bytes]:
        """Return the assignments that leave what a node writes to a buffer, and the bytes: from and up to."""
        members = self._of[writer]
        makers = [b for b in members if b.dimension is MERGE] or members
        first, last = zip(*(self._written(b, key) for b in makers), strict=True)
        return makers, np.array(first, np.int64), np.array(last, np.int64)

    def _written(self, b: Assignment, key: BufferKey) -> tuple[int, int]:
        """Return the bytes of a buffer that an assignment writes."""
        problem, size = self._problem, self._problem.graph.buffers[key].nbytes
        if not b.is_range or isinstance(problem.graph.nodes[b.node], HostTask):
            return 0, size
        part = problem.splits[b.node].regions.get(key)
        return (0, size) if part is None else part.bounds(b.first, b.groups, size)


def _last_writers(writers: list[tuple[int, int, int]], low: int, high: int) -> Iterator[tuple[int, int, int | None]]:
    """Yield bytes of a buffer by their last writer: from which up to which, and the node (None: not written)."""
    left = [(low, high)]
    for begin, end, node in reversed(writers):
        if not left:
            return
        found = [(max(a, begin), min(b, end)) for a, b in left if a < end and begin < b]
        yield from ((a, b, node) for a, b in found)
        left = [(x, y) for a, b in left for x, y in ((a, min(b, begin)), (max(a, end), b)) if x < y]
    yield from ((a, b, None) for a, b in left)
