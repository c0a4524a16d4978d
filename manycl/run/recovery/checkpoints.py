"""The checkpoint policy: what a run keeps because a device's process may end at any time: contents that steps are about
to change, and contents that only a device's own memory has. Pure.

Where a device computes in the host's memory, a step that changes contents in place and is interrupted cannot be run
again from what it leaves. What it writes is copied beside before it begins (*undo copy*; as database systems log before
they write), and put back if it does not end. What is in a device's own memory is lost with the device. So when the run
begins, contents that are nowhere else are copied to the host (earlier runs may have been too short to pay for that),
and from time to time all that has been changed in such memories (*checkpoint*). All of this takes time while nothing is
lost. For each device it may take a part KEEPING of the predicted time in which the device that has most to do does its
work (a device that has little to do may have what all others need). What is not worth that is not kept, and such a loss
ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import ENQUEUING, Problem
from manycl.run.lowering.steps import Lowered

KEEPING = 0.02
"""The part of the predicted seconds that checkpoints and undo copies may take for each device; our own choice."""
MOST = 1 << 28
"""The most bytes of an undo copy: each queue has memory for one; our own choice."""
NOWHERE: frozenset[DeviceIndex] = frozenset()


@dataclass(frozen=True)
class CheckpointPolicy:
    """The checkpoint policy of a run. ``mortal``: the devices that may be lost. ``undone``: the steps before which what
    they write is copied, if they run on one of these and in the host's memory. ``seconds``: of steps, predicted."""

    mortal: frozenset[DeviceIndex] = NOWHERE
    undone: frozenset[int] = frozenset()
    seconds: Mapping[int, float] | None = None

    def foreseen(self, steps: Collection[int]) -> float:
        """Return the predicted seconds of some steps (0: unknown)."""
        return sum(self.seconds.get(step, 0.0) for step in steps) if self.seconds else 0.0


NOTHING_KEPT = CheckpointPolicy()


def keeping(problem: Problem, lowered: Lowered, plan: Plan | None, mortal: Collection[DeviceIndex]) -> CheckpointPolicy:
    """Return the checkpoint policy for a plan, as some devices may be lost (``mortal``). Nothing is kept without a plan
    (None: it is decided at run time), nor where memory is short."""
    steps = lowered.plan or plan
    if steps is None or lowered.room is not None:
        return NOTHING_KEPT
    seconds = {a.node: a.end - a.start for a in steps.assignments if a.device != ON_HOST}
    devices = frozenset(mortal)
    return CheckpointPolicy(devices, _undone(problem, lowered, steps.assignments, devices), seconds)


def _undone(
    problem: Problem, lowered: Lowered, steps: Sequence[Assignment], mortal: frozenset[DeviceIndex]
) -> frozenset[int]:
    """Return the steps for which an undo copy is made: by device, those with the most time for a copy's cost."""
    graph, devices, found = lowered.graph, problem.machine.devices, set[int]()
    busy = [0.0] * len(devices)
    for a in steps:
        if a.device != ON_HOST:
            busy[a.device] += a.end - a.start
    for device in sorted(mortal):
        if devices[device].memory != HOST:
            continue
        mine = [a for a in steps if a.device == device]
        left = KEEPING * max(busy)
        costs: list[tuple[float, float, int]] = []
        for a in mine:
            nbytes = undo_bytes(lowered, a.node)
            if nbytes and a.end > a.start and a.node not in graph.beside:  # joint writers are not undone one by one
                cost = ENQUEUING + 2.0 * nbytes / devices[device].bandwidth
                costs.append((cost / (a.end - a.start), cost, a.node))
        for _, cost, step in sorted(costs):
            if cost > left:
                break
            left -= cost
            found.add(step)
    return frozenset(found)


def undo_bytes(lowered: Lowered, step: int) -> int:
    """Return how many bytes are copied before a step that changes contents in place; 0: none, or too many."""
    task, buffers = lowered.graph.nodes[step], lowered.graph.buffers
    if isinstance(task, HostTask) or not any(key in task.reads for key in task.writes):
        return 0
    nbytes = sum(buffers[key].nbytes for key in task.writes)
    return nbytes if nbytes <= MOST else 0


class Checkpoints:
    """The choice of which pieces are copied to the host, and when, as a run is given its steps. A *checkpoint* has all
    pieces as they are at one point of the run's order of steps, so that all later steps can be done again from there,
    whichever device is lost and whatever devices have passed on meanwhile (a consistent cut, Chandy and Lamport 1985).
    It goes beside the host's own copies, which are overwritten by what devices pass on, and in turns to one of two
    places: the previous one is complete while a new one is not."""

    def __init__(self, total: float) -> None:
        """Begin with the predicted seconds of the run; 0: unknown."""
        self._total = total
        self._now = self._made = 0.0  # seconds of the run as far as it was given, and at the last checkpoint
        self._spent: dict[DeviceIndex, float] = {}
        self._saved = 0.0
        self._turn = 0
        # by place: pieces of which it has old contents, with their device and the seconds to bring them to the host
        self._changed: tuple[dict[BufferKey, tuple[DeviceIndex, float]], ...] = ({}, {})
        self._costs: tuple[dict[DeviceIndex, float], ...] = ({}, {})
        # by device whose memory may be lost: pieces that the host does not have, and seconds to bring them there
        self._alone: dict[DeviceIndex, dict[BufferKey, float]] = {}

    def begin(self, device: DeviceIndex, costs: Mapping[BufferKey, float]) -> list[BufferKey]:
        """Return the pieces to copy before anything else, of contents that only a device has when the run begins
        (``costs``: seconds to bring each to the host). These are all, or none if the run does not pay for that: what is
        done again after a loss needs all that the run has found."""
        total = sum(costs.values())
        if total > KEEPING * self._total:
            for key, cost in costs.items():
                self.wrote(key, device, cost)
            return []
        self._spent[device] = total
        return list(costs)

    def saves(self, cost: float) -> bool:
        """Return whether the host's contents of a piece at the run's beginning are kept (``cost``: seconds)."""
        if self._saved + cost > KEEPING * self._total:
            return False
        self._saved += cost
        return True

    def wrote(self, key: BufferKey, device: DeviceIndex, cost: float) -> None:
        """Note that a device has been given a step that writes a piece."""
        for changed, costs in zip(self._changed, self._costs, strict=True):
            if (before := changed.get(key)) is not None:
                costs[before[0]] -= before[1]
            changed[key] = device, cost
            costs[device] = costs.get(device, 0.0) + cost

    def elsewhere(self, key: BufferKey) -> None:
        """Note that a piece is where it cannot be copied from."""
        for changed, costs in zip(self._changed, self._costs, strict=True):
            if (before := changed.pop(key, None)) is not None:
                costs[before[0]] -= before[1]

    def is_due(self, now: float) -> bool:
        """Return whether a checkpoint is to be made, ``now`` seconds after the run began. There are as many as KEEPING
        pays for, at most one in each part KEEPING of the run, as more would gain little."""
        self._now = now
        if not self._changed[self._turn] or now - self._made < KEEPING * self._total:
            return False
        costs, spent = self._costs[self._turn], self._spent
        return all(c <= KEEPING * now - spent.get(d, 0.0) for d, c in costs.items() if c > 0.0)

    def make(self) -> tuple[int, Mapping[BufferKey, DeviceIndex]]:
        """Make a checkpoint. Return the number of its place, and the pieces that go there with their devices."""
        turn, self._made = self._turn, self._now
        for device, cost in self._costs[turn].items():
            self._spent[device] = self._spent.get(device, 0.0) + cost
        found = {key: device for key, (device, _) in self._changed[turn].items()}
        self._changed[turn].clear()
        self._costs[turn].clear()
        self._turn = 1 - turn
        return turn, found

    def alone(self, key: BufferKey, device: DeviceIndex, cost: float) -> None:
        """Note that only a device whose memory may be lost has a piece now."""
        self._alone.setdefault(device, {})[key] = cost

    def gone(self, key: BufferKey) -> None:
        """Note that a piece has another writer, or is in the host's memory."""
        for pieces in self._alone.values():
            pieces.pop(key, None)

    def last(self) -> Mapping[BufferKey, DeviceIndex]:
        """Return the pieces that are copied at the end of the run, with their devices, for later runs. That may take as
        long as all copies during the run."""
        return {
            key: device
            for device, pieces in self._alone.items()
            if sum(pieces.values()) <= KEEPING * self._now
            for key in pieces
        }
