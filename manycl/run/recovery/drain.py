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
    from manycl.run.data.buffers import Buffers
    from manycl.run.session.device_set import DeviceSet

log = logger(__name__)


def leaving(buffers: Buffers) -> Callable[[], None]:
    """Return the listener to the events of the devices on which buffers are."""
    of = weakref.ref(buffers)

    def listener() -> None:
        here = of()
        if here is None or here.devices.closed:
            return
        devices = here.devices
        away, stream = devices.away, devices.stream
        own = any(devices.machine.devices[d].memory != HOST for d in away)
        if own or (stream is not None and stream.device in away):
            # in a thread of its own: the source of the event does not wait for the device's work
            threading.Thread(target=_leave, args=(of,), name="manycl-leaving", daemon=True).start()

    return listener


def _leave(of: weakref.ref[Buffers]) -> None:
    buffers = of()
    if buffers is None:
        return
    devices = buffers.devices
    stream = devices.stream
    if stream is not None and stream.device in devices.away:
        stream.close()  # nothing more is given to it
    with devices.lock, Uninterrupted():
        if devices.closed:
            return
        with suppress(ManyclError):  # the error is raised where results are asked for
            if devices.stream is not None and devices.stream.device in devices.away:
                devices.end_stream()
    left()  # a process that waits for the device need not wait for its memory
    with devices.lock, Uninterrupted():
        if not devices.closed:
            vacate(devices, buffers)


def vacate(devices: DeviceSet, buffers: Buffers) -> None:
    """Free the memories of devices that have left, outside a run. Contents that are nowhere else go to the host."""
    away, machine = devices.away, devices.machine
    for device in away:
        memory = machine.devices[device].memory
        if memory == HOST or any(d.memory == memory and i not in away for i, d in machine.numbered()):
            continue
        held = devices.backend.memory.allocated(device)
        if held and devices.backend.is_idle:
            log.info("%s has left: %d buffers leave its memory", machine.devices[device].name, len(held))
            for key in tuple(held):
                buffers.evict(key, memory)


def await_devices(devices: DeviceSet) -> None:
    """Return when there is a device to run something on, if need be after waiting for one that has left and will
    return. Raises DeviceError where there is none; Ctrl-C ends the waiting."""
    if not devices.machine.devices:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in devices.excluded.items())
        raise DeviceError(f"no device is left that works ({reasons})", hint="Queue.admit tries one again")
    events = devices.events
    while True:
        count, away = len(events.happened), events.away
        there = [d.name for d in devices.machine.devices]
        if any(name not in away for name in there):
            return
        if not any(away[name].returns for name in there):
            raise DeviceError(
                f"all devices have left: {', '.join(there)}", hint="Queue.come says that one may be used again"
            )
        log.info("all devices have left; waiting for one of them to come")
        with interruptible:
            events.wait_for_news(count)
