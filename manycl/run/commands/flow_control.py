"""Flow control: how far ahead of a device commands are enqueued. An enqueued command cannot be taken back, so Ctrl-C
waits for it. Pure; in seconds as the plan predicts them, so that no clock decides anything."""

from __future__ import annotations

from collections import deque

from manycl.plan.preemptible import ahead
from manycl.plan.problem import Problem

AHEAD = 1.0
"""The seconds of work that a queue may have at most, at the moment when it is given more. Queues of kernels of
microseconds thus hold as many as they like."""
EXPECTANT = 0.1
"""The seconds of work that a queue may have at most where the rest may be planned anew, because a device comes or is
found to be slower: what is enqueued by then stays where it is. A queue of kernels that take longer holds one behind the
one that runs; otherwise it would be idle after each until the report of its end."""
PARTS = 4
"""The number of parts of a queue's limit of work. A queue's progress is reported after one of them, before it is at its
limit, and long before it is idle."""


def ahead_of(problem: Problem) -> float:
    """Return the seconds of work that queues have at most in a run of a problem's graph. (Command graphs of a graph
    that will run again and again are kept, and followed to their end.)"""
    if problem.demanded:
        return ahead(problem)
    several = len(problem.machine.devices) > 1 and not problem.repeated
    return EXPECTANT if problem.away or several else AHEAD


def at_once(problem: Problem) -> float:
    """Return the seconds of work that a queue is given without any report of its progress."""
    return min(AHEAD, ahead(problem))


class FlowControl:
    """The flow control of one queue of a command graph. It marks nodes whose ends will be reported, so that the queue
    never has more than its limit: ``ahead``, or what it was given since the last mark, up to ``AHEAD``, where that is
    more."""

    def __init__(self, ahead: float = AHEAD) -> None:
        self._ahead = self._most = ahead  # the limit as given, and at present
        self._given = 0.0
        self._heard = 0.0  # seconds given up to the last mark
        self._ended = 0.0  # seconds given up to the last mark that a node waited for
        self._marks: deque[tuple[float, int]] = deque()  # the seconds given up to a node, and the node

    def give(self, node: int, seconds: float, heard: set[int]) -> bool:
        """Give the queue its next node. If it has to wait for the end of a mark, add that to ``heard``. Return whether
        the node is a mark itself."""
        if self._given - self._ended > self._most:
            marks = self._marks
            while self._given - marks[0][0] > self._most:
                marks.popleft()
            self._ended, latest = marks[0]
            heard.add(latest)
        self._given += seconds
        behind = self._given - self._heard  # what the queue still has when the mark before is reported
        self._most = behind if self._ahead < behind <= AHEAD else self._ahead
        if behind < self._ahead / PARTS:
            return False
        self._heard = self._given
        self._marks.append((self._given, node))
        return True
