"""The eager policy: where there is nothing to decide, commands go to their device as they are enqueued. That is the
only device, or the one that has proved to be the best for what is expected to come.

The commands that a queue gives it until a result is asked for are an *eager stream*
(:mod:`manycl.run.streams.eager_stream`): one run, without a graph and a plan unless its trace or result is looked at.
All other uses of the session's devices wait until it has ended.
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
"""The number of streams in a row with new commands after which streams go on all the same: with one device there is
nothing to decide, and sizes may change each time."""
POLICIES = (None, "auto", "in_order")
"""The policies that are the same as eager submission where there is no choice."""


def is_possible(session: Session, queues: Mapping[str, int]) -> bool:
    """Return whether devices may be given commands without a plan."""
    if session.backend.memory.guarded or (queues and any(count != 1 for count in queues.values())):
        return False
    return all(opened.device.slowdown == 1.0 for opened in session.opened)


def begun(session: Session, device: DeviceIndex, learning: bool, news: int = 0) -> EagerStream | None:
    """Return a new eager stream to a device. Return None where another one is in progress, or the run is to be
    observed. ``learning``: whether models learn from it. ``news``: how many streams before it, in a row, had new
    commands."""
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
                session.land()  # another queue's stream, with nothing in flight
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
