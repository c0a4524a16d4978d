"""How far ahead of a device commands are enqueued: what it was given cannot be taken back, so whoever presses Ctrl-C
waits for it. Pure; in seconds as the plan foresees them, so that no clock decides anything."""

from __future__ import annotations

from dataclasses import dataclass

AHEAD = 1.0
"""Seconds of work that a queue has at most, when it is given more: of queues that kernels of microseconds go through,
as much as they like."""
_HEARD = AHEAD / 4
"""Seconds of work after which a queue's progress is heard of: before it is at its limit, and long before it is idle."""


@dataclass(slots=True)
class _Queue:
    given: float = 0.0  # seconds of all that it was given
    heard: float = 0.0  # … up to the last node whose end will be reported
    ended: float = 0.0  # … up to the last node whose end was


class Pace:
    """Of one run's queues."""

    def __init__(self) -> None:
        self._queues: dict[tuple[int, int], _Queue] = {}
        self._upto: dict[int, float] = {}  # by node, what its queue was given with it

    def is_full(self, device: int, queue: int) -> bool:
        """Whether a queue is given nothing now. The end of one of its nodes will be reported then."""
        of = self._queues.get((device, queue))
        return of is not None and of.given - of.ended > AHEAD

    def give(self, node: int, device: int, queue: int, seconds: float, watched: bool) -> bool:
        """A queue is given a node; whether the node's end must be reported (``watched``: it is in any case)."""
        of = self._queues.get((device, queue))
        if of is None:
            of = self._queues[device, queue] = _Queue()
        of.given += seconds
        self._upto[node] = of.given
        if watched or of.given - of.heard >= _HEARD:
            of.heard = of.given
            return True
        return False

    def end(self, node: int, place: tuple[int, int]) -> None:
        """A node is complete, and with it what its queue was given before."""
        upto = self._upto.get(node)
        if upto is not None:
            of = self._queues[place]
            of.ended = max(of.ended, upto)
