"""The interpreter's switch interval: short while any run is under way of which threads report."""

from __future__ import annotations

import sys
import threading

SWITCH_INTERVAL = 1e-4
"""Seconds; the default of 5 ms delays every report while another thread computes."""


class Responsive:
    """Shared by all runs of the process."""

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


responsive = Responsive()
