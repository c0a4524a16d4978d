"""What a run keeps because a device may be lost, whose process may end at any time: contents that steps are about to
change, and what only a device's own memory has. Pure.

Where a device computes in the host's memory, a step that changes contents in place leaves nothing to run it again from
when it is interrupted: what it writes is copied beside before it begins (*undo copy*; as database systems log before
they write), and put back if it does not end. What is in a memory of the device's own is gone with it: when the run
begins, what is nowhere else is copied to the host (runs before may have been too short to pay for that), and from time
to time all that has been changed in such memories (*checkpoint*). All of that takes time while nothing is lost: for
each device a part KEEPING of the foreseen time in which the device that has most to do does its work, at most (one that
has little to do may have what all others need); what is not worth that is not kept, and such a loss ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.lowering.steps import Lowered

KEEPING = 0.02
"""The part of foreseen seconds that keeping may take each device."""
COMMAND = 10e-6
"""Seconds that one more command takes a device in another process."""
COPYING = 4e9
"""Bytes a second at which the host copies what it keeps of its own."""
MOST = 1 << 28
"""Bytes of an undo copy: each queue has memory for one."""
NOWHERE: frozenset[DeviceIndex] = frozenset()


@dataclass(frozen=True)
class CheckpointPolicy:
    """``mortal``: the devices that may be lost. ``undone``: the steps before which what they write is copied, if they
    run on one of these and in the host's memory. ``seconds``: of steps, as foreseen."""

    mortal: frozenset[DeviceIndex] = NOWHERE
    undone: frozenset[int] = frozenset()
    seconds: Mapping[int, float] | None = None

    def foreseen(self, steps: Collection[int]) -> float:
        """Seconds of some steps (0: nobody knows)."""
        return sum(self.seconds.get(step, 0.0) for step in steps) if self.seconds else 0.0


NOTHING_KEPT = CheckpointPolicy()


def keeping(problem: Problem, lowered: Lowered, plan: Plan | None, mortal: Collection[DeviceIndex]) -> CheckpointPolicy:
    """What is kept of a plan (None: it is decided while the run goes on, and nothing is). Where memory is short, there
    is none for that."""
    steps = lowered.plan or plan
    if not mortal or steps is None or lowered.room is not None:
        return NOTHING_KEPT
    seconds = {a.node: a.end - a.start for a in steps.assignments if a.device != ON_HOST}
    devices = frozenset(mortal)
    return CheckpointPolicy(devices, _undone(problem, lowered, steps.assignments, devices), seconds)


def _undone(
    problem: Problem, lowered: Lowered, steps: Sequence[Assignment], mortal: frozenset[DeviceIndex]
) -> frozenset[int]:
    """The steps for which an undo copy is made: those that take longest for what it costs, of each device."""
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
            if nbytes and a.end > a.start and a.node not in graph.beside:  # who writes together is not undone alone
                cost = COMMAND + 2.0 * nbytes / devices[device].bandwidth
                costs.append((cost / (a.end - a.start), cost, a.node))
        for _, cost, step in sorted(costs):
            if cost > left:
                break
            left -= cost
            found.add(step)
    return frozenset(found)


def undo_bytes(lowered: Lowered, step: int) -> int:
    """Of a step that changes contents in place, how many bytes are copied before it; 0: none, or too many."""
    task, buffers = lowered.graph.nodes[step], lowered.graph.buffers
    if isinstance(task, HostTask) or not any(key in task.reads for key in task.writes):
        return 0
    nbytes = sum(buffers[key].nbytes for key in task.writes)
    return nbytes if nbytes <= MOST else 0


class Checkpoints:
    """Which pieces are copied to the host, and when, as a run is given its steps.

    A *checkpoint* is what all pieces are at one point of the run's order of steps, so that all that comes later can be
    done again from there, whoever is lost and whatever devices have handed on meanwhile (a consistent cut, Chandy and
    Lamport 1985). It goes beside the host's own copies, which are overwritten by what devices hand on, and in turns to
    one of two places: the one before is whole as long as a new one is not.
    """

    def __init__(self, total: float) -> None:
        """The run takes so many seconds; 0: nobody knows."""
        self._total = total
        self._now = self._made = 0.0  # seconds of it, as far as it was given, and until the last checkpoint
        self._spent: dict[DeviceIndex, float] = {}
        self._saved = 0.0
        self._turn = 0
        # by place: what is not there as it is now, on which device it is, and seconds to bring it to the host
        self._changed: tuple[dict[BufferKey, tuple[DeviceIndex, float]], ...] = ({}, {})
        self._costs: tuple[dict[DeviceIndex, float], ...] = ({}, {})
        # by device whose memory may be lost: pieces that the host has not got, and seconds to bring them there
        self._alone: dict[DeviceIndex, dict[BufferKey, float]] = {}

    def begin(self, device: DeviceIndex, costs: Mapping[BufferKey, float]) -> list[BufferKey]:
        """The run finds contents that a device alone has (``costs``: seconds to bring each to the host): the pieces
        that are to be copied before anything else. All of them, or, if the run does not pay for that, none: what is
        done again after a loss needs all that the run has found."""
        total = sum(costs.values())
        if total > KEEPING * self._total:
            for key, cost in costs.items():
                self.wrote(key, device, cost)
            return []
        self._spent[device] = total
        return list(costs)

    def saves(self, cost: float) -> bool:
        """Whether what the host had of a piece when the run began is kept (``cost``: seconds for that)."""
        if self._saved + cost > KEEPING * self._total:
            return False
        self._saved += cost
        return True

    def wrote(self, key: BufferKey, device: DeviceIndex, cost: float) -> None:
        """A device has been given what writes a piece."""
        for changed, costs in zip(self._changed, self._costs, strict=True):
            if (before := changed.get(key)) is not None:
                costs[before[0]] -= before[1]
            changed[key] = device, cost
            costs[device] = costs.get(device, 0.0) + cost

    def elsewhere(self, key: BufferKey) -> None:
        """A piece is where nothing can be copied from."""
        for changed, costs in zip(self._changed, self._costs, strict=True):
            if (before := changed.pop(key, None)) is not None:
                costs[before[0]] -= before[1]

    def is_due(self, now: float) -> bool:
        """Whether a checkpoint is to be made, ``now`` seconds after the run began: there are as many as are paid for,
        but one for each part KEEPING of the run at most, as more would gain little."""
        self._now = now
        if not self._changed[self._turn] or now - self._made < KEEPING * self._total:
            return False
        costs, spent = self._costs[self._turn], self._spent
        return all(c <= KEEPING * now - spent.get(d, 0.0) for d, c in costs.items() if c > 0.0)

    def make(self) -> tuple[int, Mapping[BufferKey, DeviceIndex]]:
        """A checkpoint is made: in which of the places, and from which devices what comes there."""
        turn, self._made = self._turn, self._now
        for device, cost in self._costs[turn].items():
            self._spent[device] = self._spent.get(device, 0.0) + cost
        found = {key: device for key, (device, _) in self._changed[turn].items()}
        self._changed[turn].clear()
        self._costs[turn].clear()
        self._turn = 1 - turn
        return turn, found

    def alone(self, key: BufferKey, device: DeviceIndex, cost: float) -> None:
        """Only a device whose memory may be lost has a piece now."""
        self._alone.setdefault(device, {})[key] = cost

    def gone(self, key: BufferKey) -> None:
        """Somebody else has written a piece, or the host has got it."""
        for pieces in self._alone.values():
            pieces.pop(key, None)

    def last(self) -> Mapping[BufferKey, DeviceIndex]:
        """Nothing more is given: what is copied for those who come after the run. It may take as long as all that was
        copied during it."""
        return {
            key: device
            for device, pieces in self._alone.items()
            if sum(pieces.values()) <= KEEPING * self._now
            for key in pieces
        }
