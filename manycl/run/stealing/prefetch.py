"""Prefetching: inputs of a launch come to a device with memory of its own while it is busy with something else. Pure.

A launch whose shares may move begins on the devices that are free. A device that becomes free later takes some of it,
or all that is left (:mod:`manycl.run.stealing.work_stealing`). If inputs came only then, the device would wait for them
first, and often longer than it computes; a plan that waits for that device has its inputs moved meanwhile. So inputs
are moved ahead here, too, by prediction: those of the chunks that the device is predicted to take when it has ended
what it was given, from the far end, as other devices run the launch from its front. The link is used for a STEP at a
time, as it is unknown when that device will be free, and other commands may have to wait for what is moved in vain; and
only while there is something to gain. What any chunk of the launch writes stays where it is: it changes while the other
devices are at work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from manycl.graph.graph import BufferKey, Graph
from manycl.machine import HOST, DeviceIndex
from manycl.model.estimates import Estimates
from manycl.run.lowering.steps import Chunks
from manycl.run.stealing.worker import Standing

STEP = 1e-3
"""Seconds of prefetching transfers in flight to a device at a time: so long may other data that it needs have to
wait."""
LOADED = 1.5
"""The factor by which a transfer takes longer while the host's cores compute (beside an H200 with 16 cores, 64 MiB of
page-locked memory: 1.3 ms alone, and 1.5 to 1.8 ms while all compute; ordinary memory takes 13 to 19 ms)."""


class Foreseen(NamedTuple):
    """The chunks that a device would take, from ``first`` to before ``last``, and the time by which they would have
    been run if it did not (None: no other device runs them)."""

    first: int
    last: int
    end: float | None


class _Coming(NamedTuple):
    """Prefetching transfers in flight to a device: when they began, and the seconds that they would take alone."""

    keys: frozenset[BufferKey]
    begun: float
    seconds: float


def foreseen(
    chunks: Chunks, standings: Mapping[DeviceIndex, Standing], device: DeviceIndex, free: float, in_turn: bool
) -> Foreseen | None:
    """Return the chunks that a device is predicted to take of a launch of which it has run nothing yet; ``free``: when
    it will have ended what it was given before. Return None if it takes nothing, or has nothing else to do, and takes
    chunks without prefetching. Until then the other devices are taken to work at their predicted rates."""
    mine = standings.get(device)
    if mine is None or mine.since is not None or free < 0.0:
        return None
    if mine.first < mine.last:
        return Foreseen(mine.first, mine.last, None)
    others = [s for s in standings.values() if s.since is not None and (not in_turn or s.rate < mine.rate)]
    if not others:
        return None
    victim, before = max(others, key=lambda s: s.end), (0, *accumulate(chunks.groups))
    (theirs, _, first, last, since, end), start = victim, free + mine.packet
    assert since is not None
    if in_turn:  # all chunks that have not begun by then
        first = bisect_right(before, before[first] + max(0.0, free - since) * theirs, first, last)
        ends_earlier = start + (before[last] - before[first]) / mine.rate < end
        return Foreseen(first, last, end) if first < last and ends_earlier else None
    groups = (end - start) / (1.0 / mine.rate + 1.0 / theirs)  # both end together
    if groups <= 0.0:
        return None
    return Foreseen(max(first, bisect_left(before, before[last] - groups, first, last) - 1), last, end)


class Prefetch:
    """The prefetching of a run. ``graph``: of steps and pieces; ``memory``: of each device. ``coming``: the
    transfers in flight, by device."""

    def __init__(self, graph: Graph, memory: Sequence[int], estimates: Estimates) -> None:
        self._graph, self._memory, self._estimates = graph, memory, estimates
        self._slower = LOADED if HOST in memory else 1.0
        self.coming: dict[DeviceIndex, _Coming] = {}
        self._read: dict[int, list[list[BufferKey]]] = {}  # by launch, what each of its chunks only reads

    def arrived(self, device: DeviceIndex) -> None:
        """Note that all prefetching transfers to a device have ended."""
        del self.coming[device]

    def left(self, keys: Collection[BufferKey], device: DeviceIndex, now: float) -> float:
        """Return the seconds until prefetched pieces are at a device, if no other device computes any more."""
        coming = self.coming.get(device)
        if coming is None or coming.keys.isdisjoint(keys):
            return 0.0
        return max(0.0, coming.seconds - (now - coming.begun) / self._slower)

    def next(
        self, chunks: Chunks, device: DeviceIndex, found: Foreseen, now: float, may_bring: Callable[[BufferKey], bool]
    ) -> list[BufferKey]:
        """Return the pieces to prefetch next for the chunks that a device would take, in the order of their bytes, and
        count them as in flight. Return nothing if they would come too late."""
        wanted, nbytes, seconds = dict[BufferKey, None](), 0, 0.0
        for chunk in reversed(self._reads(chunks)[found.first : found.last]):
            new = [key for key in chunk if key not in wanted and may_bring(key)]
            if not new:
                continue
            more = nbytes + sum(self._graph.buffers[key].nbytes for key in new)
            took = self._estimates.transfer(more, HOST, self._memory[device])
            if wanted and took > STEP:
                break
            wanted.update(dict.fromkeys(new))
            nbytes, seconds = more, took
        if not wanted or (found.end is not None and now + self._slower * seconds >= found.end):
            return []
        self.coming[device] = _Coming(frozenset(wanted), now, seconds)
        return sorted(wanted, key=chunks.order(self._graph).__getitem__)

    def _reads(self, chunks: Chunks) -> list[list[BufferKey]]:
        """Return what each chunk of a launch reads and no chunk writes."""
        found = self._read.get(chunks.steps[0])
        if found is None:
            written, nodes = {*chunks.bytes(self._graph).writes}, self._graph.nodes
            found = [[key for key in nodes[step].reads if key not in written] for step in chunks.steps]
            self._read[chunks.steps[0]] = found
        return found
