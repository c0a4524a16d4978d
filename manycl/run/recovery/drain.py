"""Drain of devices between runs: devices that leave end the eager commands that they were given, and contents that only
they have are copied to the host. A session without devices waits for one to come."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from manycl.errors import DeviceError, ManyclError
from manycl.machine import HOST
from manycl.run.recovery.reservation_listener import left
from manycl.utilities.interrupts import Uninterrupted, interruptible
from manycl.utilities.logs import logger

if TYPE_CHECKING:
    from manycl.run.session.session import Session

log = logger(__name__)


def leaving(session: Session) -> Callable[[], None]:
    """Return the listener to a session's device events."""
    of = weakref.ref(session)

    def listener() -> None:
        here = of()
        if here is None or here.closed:
            return
        away = here.away
        stream = here.stream
        own = any(here.machine.devices[d].memory != HOST for d in away)
        if own or (stream is not None and stream.device in away):
            # in a thread of its own: the source of the event does not wait for the device's work
            threading.Thread(target=_leave, args=(of,), name="manycl-leaving", daemon=True).start()

    return listener


def _leave(of: weakref.ref[Session]) -> None:
    session = of()
    if session is None:
        return
    stream = session.stream
    if stream is not None and stream.device in session.away:
        stream.close()  # nothing more is given to it
    with session.lock, Uninterrupted():
        if session.closed:
            return
        with suppress(ManyclError):  # the error is raised where results are asked for
            if session.stream is not None and session.stream.device in session.away:
                session.end_stream()
    left()  # a process that waits for the device need not wait for its memory
    with session.lock, Uninterrupted():
        if not session.closed:
            vacate(session)


def vacate(session: Session) -> None:
    """Free the memories of devices that have left, outside a run. Contents that are nowhere else go to the host."""
    away, devices = session.away, session.machine.devices
    for device in away:
        memory = devices[device].memory
        if memory == HOST or any(d.memory == memory and i not in away for i, d in session.machine.numbered()):
            continue
        held = session.backend.memory.allocated(device)
        if held and session.backend.is_idle:
            log.info("%s has left: %d buffers leave its memory", devices[device].name, len(held))
            for key in tuple(held):
                session.buffers.evict(key, memory)


def await_devices(session: Session) -> None:
    """Return when there is a device to run something on, if need be after waiting for one that has left and will
    return. Raises DeviceError where there is none; Ctrl-C ends the waiting."""
    if not session.machine.devices:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in session.excluded.items())
        raise DeviceError(f"no device is left that works ({reasons})", hint="Queue.admit tries one again")
    events = session.device_events
    while True:
        count, away = events.count, events.away
        there = [d.name for d in session.machine.devices]
        if any(name not in away for name in there):
            return
        if not any(away[name].returns for name in there):
            raise DeviceError(
                f"all devices have left: {', '.join(there)}", hint="Queue.come says that one may be used again"
            )
        log.info("all devices have left; waiting for one of them to come")
        with interruptible:
            events.wait_for_news(count)
