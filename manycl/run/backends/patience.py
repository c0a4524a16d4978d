"""Two ways to wait for a device that will be ready soon: looking again and again, or being woken by its driver.

Being woken takes some 30 us, but whoever looks has a core that others may want, the device itself if it is the host's
processor. Which way takes less depends on what else the machine does just now, so both are tried.
"""

from __future__ import annotations

import os

SPIN = 2e-4
"""Seconds after which whoever looks is woken after all; where waits take longer, nobody looks."""
_CORES = os.cpu_count() or 1
_SOON, _RARELY = 8, 256
"""Waits until the other way is tried again, when something has changed, and at most."""


class Patience:
    """Of those who wait for one device."""

    def __init__(self) -> None:
        self._woken, self._looked = 2 * SPIN, 0.0  # what the waits of either kind took of late, in seconds
        self._looks = False  # what takes less
        self._interval = self._left = _SOON

    def looks(self) -> bool:
        """Whether the next wait is one of looking."""
        if self._woken > SPIN or _CORES == 1:
            return False
        self._left -= 1
        if self._left > 0:
            return self._looks
        self._interval = min(2 * self._interval, _RARELY)
        self._left = self._interval
        return not self._looks

    def took(self, looked: bool, seconds: float) -> None:
        """A wait has taken so long."""
        seconds = min(seconds, 4 * SPIN)
        if looked:
            self._looked = seconds if not self._looked else self._looked + (seconds - self._looked) / 4
        else:
            self._woken += (seconds - self._woken) / 4
        better = 0.0 < self._looked < self._woken
        if better != self._looks:
            self._looks, self._interval, self._left = better, _SOON, _SOON
