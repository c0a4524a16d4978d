"""Data flow between families of kernels in every repetition of a graph, and how long devices wait for it.

A device waits before a family's kernels for what they read and other families have written. Of linear regions, it waits
for its own range's part of the bytes in other memories. Of other buffers, it waits for all bytes there that its range
reads: for many kernels this is the whole buffer, for a triangular one it depends on where the range begins or ends
(``ReadShape``). So waiting depends on where both families are cut, and is nothing where all is in one memory. Host
functions, and kernels that are not divided, are taken to be in the host's memory; their inputs are waited for there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST, DeviceIndex
from manycl.model.estimates import for_each_byte
from manycl.plan.adapt.families import Family
from manycl.plan.problem import Problem
from manycl.plan.split import AnalysedSplits
from manycl.plan.tuning import ADAPT

Waits = tuple[tuple[float, float], ...]
"""Waits of every device: the seconds if it has any groups of a family, and the seconds for each of these groups."""
OUTSIDE = -1
"""The index of the host, and of nodes that are in no family."""


Parts = Mapping[int, float]
"""The part of a family's groups that runs in each memory."""


class ReadShape(NamedTuple):
    """The parts of a buffer that ranges read: those from the first group to each sample's, and those from there on."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    def part(self, first: float, end: float) -> float:
        """Return at most how much of the buffer a range reads that begins and ends at these parts of all groups."""
        return max(_between(self.before, end) + _between(self.after, first) - 1.0, 0.0)

    def line(self, first: float, end: float) -> tuple[float, float]:
        """Return the same as a straight line of the range's length (constant and slope), while its other end stays in
        place. The slope is 0 for a range that touches neither end."""
        if end <= first:  # a range without groups may get some
            first, end = (0.0, ADAPT.cell) if end <= 0.0 else (1.0 - ADAPT.cell, 1.0) if first >= 1.0 else (first, end)
        part, length = self.part(first, end), end - first
        if first > 0.0 and end < 1.0:
            return part, 0.0
        step = ADAPT.cell if length + ADAPT.cell <= 1.0 else -ADAPT.cell
        other = self.part(first - step, end) if first > 0.0 else self.part(first, end + step)
        rises = min(max((other - part) / step, 0.0), part / length)
        return part - rises * length, rises


WHOLE = ReadShape((1.0,) * (ADAPT.samples + 1), (1.0,) * (ADAPT.samples + 1))
"""The shape of a buffer that every range reads as a whole."""


class DataFlow(NamedTuple):
    """``nbytes`` of a buffer that a family (index, or OUTSIDE) has written and another one reads, in linear regions or
    otherwise (``shape``). ``version``: the buffer, and the node that wrote it last."""

    version: tuple[int, int]
    writer: int
    reader: int
    nbytes: int
    linear: bool
    shape: ReadShape = WHOLE


class DataFlows:
    """The data flows of a repeated graph: its first nodes read what its last nodes write. By family: ``readers``: the
    families that read what it writes; ``near``: these, and those that write what it reads; ``linked``: whether it has
    any flow. ``components``: the families that are near each other."""

    def __init__(self, problem: Problem, several: Sequence[Family]) -> None:
        self._estimates, self._transfer = problem.estimates, problem.estimates.transfer
        self._memory = [d.memory for d in problem.machine.devices]
        self._read: list[list[DataFlow]] = [[] for _ in several]
        self._kept: list[list[DataFlow]] = [[] for _ in several]  # written there, and read by the host
        self._within: list[list[DataFlow]] = [[] for _ in several]
        self._wholly: dict[tuple[int, int], list[int]] = {}  # families that read all of a version
        self.readers: list[set[int]] = [set() for _ in several]
        apart = set(self._memory) != {HOST}
        for flow in dict.fromkeys(_found(problem, several)) if apart else ():
            if flow.reader == flow.writer:
                self._within[flow.reader].append(flow)
            elif flow.reader == OUTSIDE:
                self._kept[flow.writer].append(flow)
            else:
                self._read[flow.reader].append(flow)
                if not flow.linear:
                    self._wholly.setdefault(flow.version, []).append(flow.reader)
                if flow.writer != OUTSIDE:
                    self.readers[flow.writer].add(flow.reader)
        self.near = [{f.writer for f in self._read[i]} - {OUTSIDE} | r for i, r in enumerate(self.readers)]
        self.components = list(_components(self.near))
        self.linked = [bool(self.near[i] or self._within[i]) for i in range(len(several))]

    def waits(
        self,
        family: int,
        groups: int,
        devices: Sequence[DeviceIndex],
        parts: Mapping[int, Parts],
        at: Sequence[int] = (),
    ) -> Waits:
        """Return how long each device waits before (and the host after) the kernels of a family with so many groups,
        about where it is cut ``at`` (empty: each as if it had all groups). ``parts``: of the other families (absent:
        nothing comes from that one)."""
        own = [(a / groups, b / groups) for a, b in pairwise(at)] or [(0.0, 1.0)] * len(devices)
        return tuple(self._wait(family, groups, self._memory[d], parts, r) for d, r in zip(devices, own, strict=True))

    def within(self, family: int, own: Parts) -> float:
        """Return the seconds that a family's kernels wait for what they write on one device and read on another, when
        divided so; latencies are part of the handovers that dividing them costs."""
        seconds = 0.0
        for flow in self._within[family]:
            if flow.linear:  # bytes that neighbours share
                several = (self._rate(a, b) * flow.nbytes for a in own for b in own if a != b)
                seconds += max(several, default=0.0)
            else:
                seconds += max((self._brought(flow, memory, own) for memory in own), default=0.0)
        return seconds

    def parts(self, devices: Sequence[DeviceIndex], at: Sequence[int]) -> Parts:
        """Return the parts of a family that is cut ``at``, by memory."""
        out: dict[int, float] = {}
        for i, d in enumerate(devices):
            if at[i + 1] > at[i]:
                memory = self._memory[d]
                out[memory] = out.get(memory, 0.0) + (at[i + 1] - at[i]) / at[-1]
        return out

    def _wait(
        self, family: int, groups: int, memory: int, parts: Mapping[int, Parts], own: tuple[float, float]
    ) -> tuple[float, float]:
        once, each = 0.0, 0.0
        for flow in self._kept[family]:
            each += self._rate(memory, HOST) * flow.nbytes / groups
        for flow in self._read[family]:
            source = parts.get(flow.writer, {}) if flow.writer != OUTSIDE else {HOST: 1.0}
            if flow.linear:
                rate = sum(part * self._rate(other, memory) for other, part in source.items())
                each += rate * flow.nbytes / groups
            elif not self._there(flow, memory, parts):
                always, rising = flow.shape.line(*own)
                seconds = self._brought(flow, memory, source)
                once += always * seconds
                each += rising * seconds / groups
        return once, each

    def _brought(self, flow: DataFlow, memory: int, source: Parts) -> float:
        """Return the seconds until all of a flow is in a memory."""
        away = ((other, round(flow.nbytes * part)) for other, part in source.items() if other != memory)
        return sum(self._transfer(nbytes, other, memory) for other, nbytes in away)

    def _there(self, flow: DataFlow, memory: int, parts: Mapping[int, Parts]) -> bool:
        """Return whether an earlier family has had it moved there."""
        others = (r for r in self._wholly.get(flow.version, ()) if r < flow.reader)
        return any(memory in parts.get(r, {}) for r in others)

    def _rate(self, source: int, target: int) -> float:
        return for_each_byte(self._estimates, source, target) if source != target else 0.0


def _between(samples: Sequence[float], at: float) -> float:
    """Interpolate between samples at equal distances from 0 to 1."""
    i = min(max(int(at * (len(samples) - 1)), 0), len(samples) - 2)
    left = at * (len(samples) - 1) - i
    return samples[i] + left * (samples[i + 1] - samples[i])


def _shape(problem: Problem, node: int, key: BufferKey) -> ReadShape:
    """Return what ranges of a node read of a buffer."""
    splits = problem.splits
    if not isinstance(splits, AnalysedSplits):
        return WHOLE
    touched, groups = splits.touched, splits[node].groups
    cuts = [groups * i // ADAPT.samples for i in range(ADAPT.samples + 1)]
    before = [touched(node, key, 0, max(cut, 1)) for cut in cuts]
    after = [touched(node, key, min(cut, groups - 1), max(groups - cut, 1)) for cut in cuts]
    return ReadShape(tuple(before), tuple(after))


def _components(near: Sequence[set[int]]) -> Iterator[list[int]]:
    """Yield families (several) with flows between them, also by way of others."""
    seen = set[int]()
    for first in range(len(near)):
        todo, found = [first], set[int]()
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                found.add(at)
                todo += near[at]
        if len(found) > 1:
            yield sorted(found)


def _found(problem: Problem, several: Sequence[Family]) -> Iterator[DataFlow]:
    """Yield the flows between families, within them, and between them and nodes outside."""
    nodes, splits = problem.graph.nodes, problem.splits
    family = {m.node: i for i, f in enumerate(several) for m in f.members}
    last = {key: n for n, task in enumerate(nodes) for key in task.writes}  # at first those of the repetition before
    for n, task in enumerate(nodes):
        reader = family.get(n, OUTSIDE)
        for key in task.reads:
            if key not in last:
                continue  # it stays where it was moved once
            before = last[key]
            writer = family.get(before, OUTSIDE)
            if writer != OUTSIDE and key not in splits[before].regions:
                continue  # it is merged on one of the devices
            linear = reader != OUTSIDE and key in splits[n].regions
            nbytes = problem.graph.buffers[key].nbytes
            if linear:
                part = splits[n].regions[key]
                nbytes = min(nbytes, part.stride * splits[n].groups)
                if writer == reader:  # only bytes that neighbours share are elsewhere
                    nbytes = max(part.width - part.stride, 0)
            if nbytes and (writer, reader) != (OUTSIDE, OUTSIDE):
                shape = WHOLE if linear or reader == OUTSIDE else _shape(problem, n, key)
                yield DataFlow((key, before), writer, reader, nbytes, linear, shape)
        last |= dict.fromkeys(task.writes, n)
