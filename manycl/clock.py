"""The simulator's time. Unit: seconds."""

from __future__ import annotations


class VirtualClock:
    """A clock that stands still until it is moved forward."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance_to(self, when: float) -> None:
        if when < self._now:
            raise ValueError(f"a clock does not go back: {when} < {self._now}")
        self._now = when
