"""Reads that are under way while the program goes on: the host's memory that they write to, and what is left to do with
it when they have ended."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from manycl.drivers.driver import Bytes
from manycl.errors import ManyclError, anew
from manycl.front.events import Event


class _Arrival(NamedTuple):
    event: Event
    memory: Bytes
    deliver: Callable[[], None] | None


class Arrivals:
    """Of a runtime. ``under_way``: in the order in which they end, which is that of the program's calls.
    ``lost``: those that have failed, and nobody was told; others may have done all else of a lost device."""

    def __init__(self) -> None:
        self.under_way: deque[_Arrival] = deque()
        self.lost: list[tuple[Event, ManyclError]] = []
        self._lock = threading.RLock()

    def add(self, event: Event, memory: Bytes, deliver: Callable[[], None] | None = None) -> None:
        """A read to some memory; ``deliver``: what puts there what has come elsewhere."""
        with self._lock:
            self.look()
            self.under_way.append(_Arrival(event, memory, deliver))

    def look(self) -> None:
        """Somebody has learned how far commands are: what has ended is in its place."""
        with self._lock:
            while self.under_way:
                event, _, deliver = self.under_way[0]
                status = event.status
                if isinstance(status, ManyclError):
                    self.lost.append((event, status))
                elif status > 0:
                    return
                self.under_way.popleft()
                if deliver is not None and status == 0:
                    deliver()

    def was_told(self, event: Event) -> None:
        """Who waits for a read knows that it has failed."""
        with self._lock:
            self.look()
            self.lost = [lost for lost in self.lost if lost[0] is not event]

    def tell(self) -> None:
        """Raise what has become of reads that somebody counts upon, who has waited for what is behind them; once."""
        with self._lock:
            lost, self.lost = self.lost, []
        if lost:
            raise anew(lost[0][1])

    def wait_for(self, data: Bytes) -> None:
        """Until what some memory is about to be asked for is there. (What goes wrong is told to who waits for it.)"""
        with self._lock:
            coming = [arrival for arrival in self.under_way if np.may_share_memory(arrival.memory, data)]
        for arrival in coming:
            with suppress(ManyclError):
                arrival.event.wait()
        self.look()
