"""How far ahead of a device commands are enqueued: what it was given cannot be taken back, so whoever presses Ctrl-C
waits for it. Pure; in seconds as the plan foresees them, so that no clock decides anything."""

from __future__ import annotations

from collections import deque

from manycl.plan.preemptible import ahead
from manycl.plan.problem import Problem

AHEAD = 1.0
"""Seconds of work that a queue has at most, when it is given more: of queues that kernels of microseconds go through,
as much as they like."""
EXPECTANT = 0.1
"""The same where what is left may be planned anew, as a device comes or is found to be slower: what is given by then
stays where it is. Of kernels that take longer a queue has one behind the one that runs, or it would stand idle between
them until the end of each is heard of."""
PARTS = 4
"""Of what a queue may have: after one of them its progress is heard of, before it is at its limit, and long before it
is idle."""


def ahead_of(problem: Problem) -> float:
    """Seconds of work that queues have at most in a run of a problem's graph. Of one that will run again and again,
    scripts are kept, which are followed to their end."""
    if problem.demanded:
        return ahead(problem)
    several = len(problem.machine.devices) > 1 and not problem.repeated
    return EXPECTANT if problem.away or several else AHEAD


def at_once(problem: Problem) -> float:
    """Seconds of work that a queue is given without anybody hearing of its progress."""
    return min(AHEAD, ahead(problem))


class FlowControl:
    """Of one queue of a script: the nodes whose ends will be heard of, so that it is never given more than it should
    have: ``ahead``; or what it was given since the last of these nodes, up to ``AHEAD``, where that is more."""

    def __init__(self, ahead: float = AHEAD) -> None:
        self._ahead = self._most = ahead  # always, and at present
        self._given = 0.0
        self._heard = 0.0  # up to the last mark
        self._ended = 0.0  # up to the last mark that nodes come after
        self._marks: deque[tuple[float, int]] = deque()  # what the queue was given up to a node, and the node

    def give(self, node: int, seconds: float, heard: set[int]) -> bool:
        """The queue is given its next node, which comes after the end of the mark that is added to ``heard``, if it
        has to; whether the node is a mark itself."""
        if self._given - self._ended > self._most:
            marks = self._marks
            while self._given - marks[0][0] > self._most:
                marks.popleft()
            self._ended, latest = marks[0]
            heard.add(latest)
        self._given += seconds
        behind = self._given - self._heard  # what the queue still has, when the mark before is heard of
        self._most = behind if self._ahead < behind <= AHEAD else self._ahead
        if behind < self._ahead / PARTS:
            return False
        self._heard = self._given
        self._marks.append((self._given, node))
        return True
