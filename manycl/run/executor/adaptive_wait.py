"""Adaptive waits for a device that will be ready soon: by polling, or by blocking until its driver wakes the thread.

To be woken takes some 30 us, but a polling thread occupies a core that others may want, the device itself if it is the
host's processor. Which way takes less depends on what else the machine does just now, so both are tried.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

SPIN = 2e-4
"""Seconds after which polling gives way to blocking; where waits take longer, nothing polls."""
_CORES = os.cpu_count() or 1
_SOON, _RARELY = 8, 256
"""Waits until the other way is tried again: the least (as soon as the better way has changed), and the most."""


class AdaptiveWait:
    """The waits of all threads for one device."""

    def __init__(self) -> None:
        self._woken, self._looked = 2 * SPIN, 0.0  # average seconds of recent waits of either kind
        self._looks = False  # polling takes less
        self._interval = self._left = _SOON

    def looks(self) -> bool:
        """Return whether the next wait is to poll."""
        if self._woken > SPIN or _CORES == 1:
            return False
        self._left -= 1
        if self._left > 0:
            return self._looks
        self._interval = min(2 * self._interval, _RARELY)
        self._left = self._interval
        return not self._looks

    def took(self, looked: bool, seconds: float) -> None:
        """Note that a wait took so many seconds."""
        seconds = min(seconds, 4 * SPIN)
        if looked:
            self._looked = seconds if not self._looked else self._looked + (seconds - self._looked) / 4
        else:
            self._woken += (seconds - self._woken) / 4
        better = 0.0 < self._looked < self._woken
        if better != self._looks:
            self._looks, self._interval, self._left = better, _SOON, _SOON


# The interpreter's switch interval: short while any run is under way whose threads report.


SWITCH_INTERVAL = 1e-4
"""Seconds; the default of 5 ms delays every report while another thread computes."""


class SwitchInterval:
    """The interpreter's switch interval, which all runs of the process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[object] = set()
        self._interval = 0.0

    def enter(self, run: object) -> None:
        with self._lock:
            if not self._runs:
                self._interval = sys.getswitchinterval()
                sys.setswitchinterval(SWITCH_INTERVAL)
            self._runs.add(run)

    def leave(self, run: object) -> None:
        if run not in self._runs:
            return
        with self._lock:
            self._runs.remove(run)
            if not self._runs:
                sys.setswitchinterval(self._interval)


responsive = SwitchInterval()


# A message to a user who waits.


AFTER = 0.2
"""Seconds; an interruption that is handled sooner needs no message."""


class InterruptMessage:
    """Print on stderr what ``words()`` returns, once, if the ``with`` block takes longer than ``AFTER``."""

    def __init__(self, words: Callable[[], str]) -> None:
        self._words = words
        self._timer = threading.Timer(AFTER, self._say)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()

    def _say(self) -> None:
        if sys.stderr is not None:
            print(f"manycl: {self._words()}", file=sys.stderr, flush=True)
