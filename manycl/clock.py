"""Time as an object: the engine asks a clock, so that the simulator can hand it a virtual one. Unit: seconds."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since an arbitrary origin; never goes back."""


class WallClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.perf_counter()


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
