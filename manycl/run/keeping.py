"""What a run keeps because a device may be lost, whose process may end at any time: contents that steps are about to
change, and what only a device's own memory has. Pure.

Where a device computes in the host's memory, a step that changes contents in place leaves nothing to run it again from
when it is interrupted: what it writes is copied beside before it begins (*undo copy*; as database systems log before
they write), and put back if it does not end. What is in a memory of the device's own is gone with it: when the run
begins, and from time to time, all that is nowhere else is copied to the host (*checkpoint*; runs before may have been
too short to pay for theirs). Both take time while nothing is lost: for each device a part KEEPING of the foreseen time
in which the device that has most to do does its work, at most (one that has little to do may have what all others
need); what is not worth that is not kept, and such a loss ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.steps import Lowered

KEEPING = 0.02
"""The part of foreseen seconds that keeping may take each device."""
COMMAND = 10e-6
"""Seconds that one more command takes a device in another process."""
MOST = 1 << 28
"""Bytes of an undo copy: each queue has memory for one."""
NOWHERE: frozenset[DeviceIndex] = frozenset()


@dataclass(frozen=True)
class Keeping:
    """``mortal``: the devices that may be lost. ``undone``: the steps before which what they write is copied, if they
    run on one of these and in the host's memory. ``seconds``: of steps, as foreseen."""

    mortal: frozenset[DeviceIndex] = NOWHERE
    undone: frozenset[int] = frozenset()
    seconds: Mapping[int, float] | None = None

    def foreseen(self, steps: Collection[int]) -> float:
        """Seconds of some steps (0: nobody knows)."""
        return sum(self.seconds.get(step, 0.0) for step in steps) if self.seconds else 0.0


NOTHING_KEPT = Keeping()


def keeping(problem: Problem, lowered: Lowered, plan: Plan | None, mortal: Collection[DeviceIndex]) -> Keeping:
    """What is kept of a plan (None: it is decided while the run goes on, and nothing is). Where memory is short, there
    is none for that."""
    steps = lowered.plan or plan
    if not mortal or steps is None or lowered.room is not None:
        return NOTHING_KEPT
    seconds = {a.node: a.end - a.start for a in steps.assignments if a.device != ON_HOST}
    devices = frozenset(mortal)
    return Keeping(devices, _undone(problem, lowered, steps.assignments, devices), seconds)


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
    """Which pieces of a device's memory are to be copied to the host, while it is given steps."""

    def __init__(self) -> None:
        self._earned = self._seconds = 0.0
        self._alone: dict[BufferKey, float] = {}  # pieces that the host has not got: seconds to bring them there

    def begin(self, costs: Mapping[BufferKey, float], seconds: float) -> list[BufferKey]:
        """The run, which takes so many ``seconds``, finds contents that the device alone has (``costs``: seconds to
        bring each to the host): the pieces that are to be copied before anything else. All of them, or, if the run does
        not pay for that, none: what is done again after a loss needs all that the run has found."""
        total = sum(costs.values())
        if total > KEEPING * seconds:
            return []
        self._earned -= total
        return list(costs)

    def wrote(self, costs: Mapping[BufferKey, float], seconds: float) -> list[BufferKey]:
        """The device has been given what writes some pieces (``costs``: seconds to bring each to the host), and the run
        goes on for so many ``seconds`` more than when it was told last: the pieces that are to be copied behind it."""
        self._alone.update(costs)
        self._earned += KEEPING * seconds
        self._seconds += seconds
        total = sum(self._alone.values())
        if not self._alone or total > self._earned:
            return []
        found = list(self._alone)
        self._earned -= total
        self._alone.clear()
        return found

    def last(self) -> list[BufferKey]:
        """The device is given nothing more: what is copied for those who come after the run. It may take as long as all
        that was copied during it."""
        return list(self._alone) if sum(self._alone.values()) <= KEEPING * self._seconds else []

    def gone(self, key: BufferKey) -> None:
        """Somebody else has written a piece, or the host has got it."""
        self._alone.pop(key, None)
