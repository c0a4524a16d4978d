"""Where there is nothing to decide, commands go to their device as they are enqueued: it is the only one, or it has
proved to be the best for what is expected to come.

What a queue gives it until somebody asks for a result is a *flight* (:mod:`manycl.run.streams.eager_stream`): one run,
of which no graph is made and nothing is planned unless somebody wants to see what it did. Whatever else wants the
devices of the session lets it end first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from manycl.drivers import last_words
from manycl.machine import DeviceIndex
from manycl.run.streams.eager_stream import EagerStream
from manycl.utilities.interrupts import Uninterrupted

if TYPE_CHECKING:
    from manycl.run.session.session import Session

MOST_NEWS = 4
"""Flights in a row that had something new: where that is always so (sizes that change each time), the next ones go on
all the same, as with one device there is nothing to decide."""
POLICIES = (None, "auto", "in_order")
"""Those that do what is done here where nothing can be chosen."""


def is_possible(session: Session, queues: Mapping[str, int]) -> bool:
    """Whether devices may be given commands that nobody has planned."""
    if session.backend.memory.guarded or (queues and any(count != 1 for count in queues.values())):
        return False
    return all(opened.device.slowdown == 1.0 for opened in session.opened)


def begun(session: Session, device: DeviceIndex, learning: bool, news: int = 0) -> EagerStream | None:
    """A new flight to a device, of which somebody learns or not; None where something else is under way, or somebody
    wants to look on. ``news``: how many flights before it, in a row, had something new."""
    if session.closed or session.debug or last_words.keeping():
        return None
    if session.flight is not None and session.flight.has_leg:
        return None
    if not session.lock.acquire(blocking=False):
        return None
    try:
        with Uninterrupted():
            if session.flight is not None:
                if session.flight.has_leg:
                    return None
                session.land()  # another queue's, of which nothing is under way
            if not session.machine.devices or not session.backend.is_idle:
                return None
            session.check_open()
            session.buffers.collect()
            session.use_clocks(learning)
            flight = session.flight = EagerStream(
                session, device, news >= MOST_NEWS and len(session.machine.devices) == 1
            )
            return flight
    finally:
        session.lock.release()
