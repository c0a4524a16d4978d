"""Flow control: how far ahead of a device commands are enqueued. An enqueued command cannot be taken back, so Ctrl-C
waits for it. Pure; in seconds as the plan predicts them, so that no clock decides anything."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from manycl.plan.preemptible import in_flight
from manycl.plan.problem import Problem

AHEAD = 1.0
"""The seconds of work that a queue may have at most, at the moment when it is given more; our own choice: Ctrl-C is
answered in about a second. Queues of kernels of microseconds thus hold as many as they like."""
EXPECTANT = 10e-3
"""The seconds of work that a queue may have at most where the rest may be planned anew, because a device comes or is
found to be slower: what is enqueued by then stays where it is; our own choice. A queue of kernels that take longer
holds one behind the one that runs; otherwise it would be idle after each until the report of its end."""
PARTS = 4
"""The number of parts of a queue's limit of work; our own choice. There is a mark after each: a queue's progress is
known before it is at its limit, and long before it is idle."""
PART = AHEAD / PARTS
"""The seconds of work after which an eager stream has a mark."""


def ahead_of(problem: Problem) -> float:
    """Return the seconds of work that queues have at most in a run of a problem's graph. (Command graphs of a graph
    that will run again and again are kept, and followed to their end.)"""
    if problem.demanded:
        return in_flight(problem)
    several = len(problem.machine.devices) > 1 and not problem.repeated
    return EXPECTANT if problem.away or several else AHEAD


def at_once(problem: Problem) -> float:
    """Return the seconds of work that a queue is given without any report of its progress."""
    return min(AHEAD, in_flight(problem))


Mark = TypeVar("Mark")


class FlowControl(Generic[Mark]):
    """The flow control of one queue. It chooses marks among the commands that the queue is given: nodes of a command
    graph, or the events of an eager stream. Before the queue is given more, the end of a mark has to be known, so that
    it never has more than its limit: ``ahead``, or what it was given since the last mark, up to ``AHEAD``, where that
    is more."""

    def __init__(self, ahead: float = AHEAD) -> None:
        self._ahead = self._most = ahead  # the limit as given, and at present
        self._given = 0.0
        self._heard = 0.0  # seconds given up to the last mark
        self._ended = 0.0  # seconds given up to the last mark whose end was due
        self._marks: deque[tuple[float, Mark]] = deque()  # the seconds given up to a mark, and the mark

    @property
    def ahead(self) -> float:
        """The seconds of work that the queue may have."""
        return self._given - self._ended

    @property
    def limit(self) -> float:
        """The seconds of work beyond which the queue is given a mark, or one is due."""
        return min(self._most, self._heard + self._ahead / PARTS - self._ended)

    def due(self, seconds: float = 0.0) -> Mark | None:
        """Return the mark whose end has to be known before the queue is given more; from now on it counts as known.
        ``seconds``: what the queue has beside all that is counted."""
        due, given = None, self._given + seconds
        while given - self._ended > self._most and self._marks:
            self._ended, due = self._marks.popleft()
        return due

    def give(self, mark: Mark, seconds: float) -> bool:
        """Count what the queue was given, up to ``mark``. Return whether that is a mark, whose end will be due."""
        self._given += seconds
        behind = self._given - self._heard  # what the queue still has when the mark before is reported
        self._most = behind if self._ahead < behind <= AHEAD else self._ahead
        if behind < self._ahead / PARTS:
            return False
        self._heard = self._given
        self._marks.append((self._given, mark))
        return True
