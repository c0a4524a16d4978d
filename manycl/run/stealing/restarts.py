"""Restarts: packets of devices that have become slow are begun anew at once on idle devices, and their first results
are not waited for (P. Metzger et al., "Device-Hopping", TACO 2021, Section 3.2). Pure.

What was given to a device that can end nothing early runs there to its end. Such a packet is *dropped*: it goes on, and
its results do not count. This is done where the kernel is idempotent, nothing was given to a device that depends on the
packet, and the device is alone in its memory, where what the packet writes disturbs nobody. Until the packet has ended,
its device is given nothing, so that nothing touches there what the packet touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from enum import IntEnum
from math import inf

from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.run.stealing.work_stealing import WorkStealing
from manycl.run.stealing.worker import TIMES, Packet, StealingWorker


class StepGiven(IntEnum):
    """The state of a step: not given to any device, given in a packet that another one may begin anew, or for good."""

    NOT = 0
    OPEN = 1
    FINAL = 2


class Restarts:
    """The restarts of a run. ``given``: of each step, whether it is. ``apart``: the devices whose packets may be begun
    anew; ``may_drop``: whether the packet with a token may be dropped by now (None: its device was not given it yet);
    ``repeats``: whether a step may run again on what it has left. ``at``: when restarts are to be looked for again.
    ``blocked``: by device, the dropped packets that have not ended."""

    def __init__(self, graph: Graph, given: bytearray) -> None:
        self._graph, self._given = graph, given
        self._handed = set[int]()  # steps that devices were given, but that do not count as given
        self.apart: Set[DeviceIndex] = frozenset()
        self.may_drop: Callable[[int], bool | None] = lambda token: False
        self.repeats: Callable[[int], bool] = lambda step: False
        self.at = inf
        self.blocked = Counter[DeviceIndex]()
        self._dropped: dict[int, tuple[WorkStealing, DeviceIndex, float, int]] = {}

    def mark(self, launch: WorkStealing, worker: StealingWorker, steps: Sequence[int]) -> StepGiven:
        """Return what the steps of a packet are that a device is given. What depends on packets of a device that is
        known to be slow waits until they have ended."""
        is_apart, is_slow = worker.device in self.apart, worker.rate * TIMES < worker.planned
        if worker.shortens or (is_apart and is_slow and self.repeats(launch.chunks.steps[0])):
            self._handed.update(steps)
            return StepGiven.NOT  # its chunks may be given again
        return StepGiven.OPEN if is_apart else StepGiven.FINAL

    def found(
        self, launches: Iterable[WorkStealing], busy: Sequence[int], now: float
    ) -> tuple[WorkStealing, DeviceIndex, Packet] | None:
        """Return a packet to begin anew now, its launch, and the idle device that does; note when to look again."""
        self.at = inf
        for launch in launches if self.apart and not all(busy) else ():
            if not launch.has_packets(self.apart):
                continue
            for device in [d for d in launch.workers if not busy[d]]:
                found = launch.restart(device, now, lambda packet, of=launch: self._may(of, packet))  # type: ignore[misc]
                if found is not None and found[0] <= now:
                    return launch, device, found[1]
                self.at = self.at if found is None else min(self.at, found[0])
        return None

    def _may(self, launch: WorkStealing, packet: Packet) -> bool | None:
        """Return whether a packet may be dropped; None: not yet."""
        steps, after = launch.chunks.steps, self._graph.successors
        mine = steps[packet.first : packet.last]
        if packet.device not in self.apart or any(
            self._given[s] or s in self._handed for step in mine for s in after[step]
        ):
            return False
        return self.may_drop(mine[packet.again]) if self.repeats(mine[0]) else False

    def drop(self, launch: WorkStealing, packet: Packet, thief: DeviceIndex, now: float) -> Packet:
        """Note that a packet is begun anew. Return it as the other device has it."""
        token = launch.chunks.steps[packet.first + packet.again]
        anew, given, groups = launch.drop(packet, thief, now)
        self.blocked[packet.device] += 1
        self._dropped[~token] = launch, packet.device, given, groups
        return anew

    def ended(self, token: int, now: float, returns: bool) -> None:
        """Note that a dropped packet has ended. ``returns``: its device may be used again."""
        launch, device, given, groups = self._dropped.pop(token)
        self.blocked[device] -= 1
        launch.dropped(device, given, groups, now, returns and not launch.is_over)
