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

from collections.abc import Callable, Collection, Sequence, Set

from manycl.graph.graph import BufferKey, Graph
from manycl.machine import HOST, DeviceIndex
from manycl.model.estimates import Estimates
from manycl.run.lowering.steps import Chunks
from manycl.run.stealing.work_stealing import Foreseen

STEP = 1e-3
"""Seconds of prefetching transfers in flight to a device at a time: so long may other data that it needs have to
wait."""
LOADED = 1.5
"""The factor by which a transfer takes longer while the host's cores compute (beside an H200 with 16 cores, 64 MiB of
page-locked memory: 1.3 ms alone, and 1.5 to 1.8 ms while all compute; ordinary memory takes 13 to 19 ms)."""


class Prefetch:
    """The prefetching of a run. ``graph``: of steps and pieces; ``memory``: of each device. ``coming``: the
    transfers in flight, by device: what they bring, when they began, and the seconds that they would take alone."""

    def __init__(self, graph: Graph, memory: Sequence[int], estimates: Estimates) -> None:
        self._graph, self._memory, self._estimates = graph, memory, estimates
        self._slower = LOADED if HOST in memory else 1.0
        self.coming: dict[DeviceIndex, tuple[Set[BufferKey], float, float]] = {}

    def arrived(self, device: DeviceIndex) -> None:
        """Note that all prefetching transfers to a device have ended."""
        del self.coming[device]

    def left(self, keys: Collection[BufferKey], device: DeviceIndex, now: float) -> float:
        """Return the seconds until prefetched pieces are at a device, if no other device computes any more."""
        coming, begun, seconds = self.coming.get(device, (frozenset(), 0.0, 0.0))
        return 0.0 if coming.isdisjoint(keys) else max(0.0, seconds - (now - begun) / self._slower)

    def next(
        self, chunks: Chunks, device: DeviceIndex, found: Foreseen, now: float, may_bring: Callable[[BufferKey], bool]
    ) -> list[BufferKey]:
        """Return the pieces to prefetch next for the chunks that a device would take, in the order of their bytes, and
        count them as in flight. Return nothing if they would come too late."""
        wanted, nbytes, seconds = dict[BufferKey, None](), 0, 0.0
        graph, written = self._graph, chunks.bytes(self._graph).writes
        for step in reversed(chunks.steps[found.first : found.last]):
            new = [k for k in graph.nodes[step].reads if k not in written and k not in wanted and may_bring(k)]
            if not new:
                continue
            more = nbytes + sum(graph.buffers[key].nbytes for key in new)
            took = self._estimates.transfer(more, HOST, self._memory[device])
            if wanted and took > STEP:
                break
            wanted.update(dict.fromkeys(new))
            nbytes, seconds = more, took
        if not wanted or (found.end is not None and now + self._slower * seconds >= found.end):
            return []
        self.coming[device] = wanted.keys(), now, seconds
        return sorted(wanted, key=chunks.order(graph).__getitem__)
