"""The reservation listener: devices that other processes reserve are left, and used again when the reservations end.

A process that uses devices listens, from its first session on, in a thread that sleeps. When a process makes a
reservation, the thread reads which devices are not its own now, and notifies its sessions. A session that has other
devices leaves the reserved ones (:mod:`manycl.run.recovery.device_events`). Where all that a session has is reserved,
nothing can run elsewhere: native devices are held, wherever they are in what runs, and what is enqueued for any device
waits.
"""

from __future__ import annotations

import atexit
import math
import os
import select
import threading
import time
import warnings
import weakref
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from manycl import flags
from manycl.drivers.driver import Holdable
from manycl.errors import ManyclError
from manycl.reservations.ear import Ear, sweep
from manycl.reservations.records import Reservation, Resources, held_by_others, in_force, process, under, unexpired
from manycl.reservations.register import LOOK_AGAIN, reservations
from manycl.run.recovery.device_events import DeviceComes, DeviceLeaves
from manycl.utilities.logs import logger
from manycl.utilities.prompt import TURN, ShortTurns, be_prompt, be_punctual
from manycl.utilities.runtime_folder import runtime_folder
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.run.session.device_set import DeviceSet

log = logger(__name__)
SOONEST = 5e-5
"""The least seconds between two looks whether a device that is to be left has ended what it had; our own choice."""
LATEST = 5e-4
"""The most seconds between two such looks; our own choice."""
OF_WAIT = 1 / 4
"""The part of the time since a process asked for a device that passes until the next look whether it has ended what it
had: a device that is held is soon still (our own choice)."""


@dataclass
class _Watched:
    """The ``devices`` of a session that heeds reservations. ``resources``: of each, by name; ``away``: those that other
    processes have, of which some are ``held``, and some the session has left (``left``)."""

    devices: weakref.ref[DeviceSet]
    resources: dict[str, Resources]
    away: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        devices = self.devices()
        return devices is None or devices.closed

    def look(self, taken: Resources, there: Sequence[Reservation]) -> None:
        """Act on the resources that other processes have now; ``there``: all reservations."""
        devices = self.devices()
        if devices is None or devices.closed:
            return
        wanted = {name for name, own in self.resources.items() if own & taken}
        gone, new, self.away = self.away - wanted, wanted - self.away, wanted
        drivers = {lanes.device.name: lanes.driver for lanes in devices.backend.lanes}
        events = devices.events
        present = {name for name in drivers if name in self.left or name not in events.away}
        is_all = bool(present) and present <= wanted
        for name in self.held & gone:
            self._hold(name, drivers.get(name), False)
        for name in self.left & gone:
            self.left.discard(name)
            left = events.away.get(name)
            if left is not None and left.returns:  # else it is lost, or not to be used, since
                events.put(DeviceComes(name))
        for name in new if is_all else ():
            self._hold(name, drivers.get(name), True)
        for name in wanted - self.left:
            if not (is_all and name in self.held) and events.put(DeviceLeaves(name, returns=True)):
                self.left.add(name)
        if new:
            self._tell(new, is_all, there)
        if gone:
            log.info("not reserved by other processes any more: %s", ", ".join(sorted(gone)))

    def _hold(self, name: str, driver: object, is_held: bool) -> None:
        if isinstance(driver, Holdable):
            driver.hold(is_held)
            (self.held.add if is_held else self.held.discard)(name)

    def _tell(self, new: Collection[str], is_all: bool, there: Sequence[Reservation]) -> None:
        taken = frozenset[str]().union(*(self.resources[name] for name in new))
        who = sorted({f"process {r.pid} ({r.command})" for r in in_force(there) if r.resources & taken})
        said = f"{', '.join(sorted(new))}: reserved by {', '.join(who)}"
        log.info("%s", said)
        if is_all:
            words = f"{said}; no other device is left: what is enqueued waits (MANYCL_RESERVED=ignore does not)"
            with suppress(RuntimeWarning):  # where warnings are errors
                warnings.warn(words, RuntimeWarning, stacklevel=2)

    def has_left(self) -> bool:
        """Return whether the devices that other processes have reserved have nothing to do for this session."""
        devices = self.devices()
        if devices is None or devices.closed:
            return True
        drivers = {lanes.device.name: lanes.driver for lanes in devices.backend.lanes}
        return all(
            name not in drivers
            or (name in self.held and isinstance(driver := drivers[name], Holdable) and driver.is_still)
            or devices.events.wait_until_free(name, 0.0)
            for name in self.away
        )


class ReservationListener:
    """The part of a process that acts on reservations."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._watched: list[_Watched] = []
        self._ear: Ear | None = None
        self._there: Sequence[Reservation] = ()  # the reservations when they were last read
        self._looked = 0.0  # when they were last read, by time.monotonic
        self._end = math.inf  # when the first of them ends by itself
        self._waiting: list[int] = []  # pipes of processes that wait until this one has left
        self._asked = 0.0  # when the last of them asked

    def watch(self, devices: DeviceSet) -> None:
        """Make a session leave those of its ``devices`` that are reserved by now, or will be."""
        if not flags.heeds_reservations():
            return
        resources = {opened.device.name: opened.handle.resources for opened in devices.opened}
        watched = _Watched(weakref.ref(devices), resources)
        with self._lock:
            self._watched = [one for one in self._watched if not one.is_over] + [watched]
            if self._ear is None or not self._ear.is_there:
                if self._ear is not None:
                    self._ear.close()
                    self._ear = None
                try:
                    folder = runtime_folder()
                    self._ear = Ear(folder)
                    sweep(str(folder))  # nothing else does, where nothing is ever reserved
                except ManyclError as error:
                    log.warning("reservations of other processes are not heard of: %s", error)
                    return
                threading.Thread(target=self._listen, args=(self._ear,), name="manycl-listener", daemon=True).start()
            there = reservations()
            if there:
                watched.look(held_by_others(there, process(), under()), there)
                self._ear.wake()  # reservations end: the thread must not sleep until the next message

    def _listen(self, ear: Ear) -> None:
        be_prompt()
        be_punctual()
        poll = select.poll()
        poll.register(ear, select.POLLIN)
        turns = ShortTurns(TURN)
        while True:
            has_heard = self._wait(poll)
            if flags.prompt():
                turns.enter(self)
            try:
                with self._lock:
                    if ear is not self._ear:
                        return
                    self._hear(ear, has_heard)
            except Exception as error:
                told(error, "heeding reservations")
            finally:
                if not self._waiting:  # no process waits for this one to leave
                    turns.leave(self)

    def _wait(self, poll: select.poll) -> bool:
        """Wait for a message, or until the next look. Return whether there was a message."""
        with self._lock:
            since, waits, next_look = self._asked, bool(self._waiting), self._next_look()
        patience = None if next_look == math.inf else 1e3 * max(next_look - time.monotonic(), 0.0)
        if waits:  # poll() counts whole milliseconds
            time.sleep(min(max((time.monotonic() - since) * OF_WAIT, SOONEST), LATEST))
            patience = 0.0
        return bool(poll.poll(patience))

    def _next_look(self) -> float:
        """Return when reservations are read without a message, by time.monotonic."""
        if any(watched.away for watched in self._watched):
            return min(self._end, self._looked + LOOK_AGAIN)
        return math.inf

    def _hear(self, ear: Ear, has_heard: bool) -> None:
        """Read the reservations, if it is time to, and notify the processes that wait once nothing runs on them."""
        came = ear.heard() or () if has_heard else ()
        if came:
            self._waiting += came
            self._asked = time.monotonic()
        if ear.told:  # reading all takes a while
            told = {r.name: r for r in (*self._there, *ear.told)}
            self._follow(unexpired(told.values()))
        if has_heard or time.monotonic() >= self._next_look():
            self._look()
        self._tell_who_waits()

    def _look(self) -> None:
        self._there = there = reservations()
        self._looked = time.monotonic()
        self._end = min([r.until for r in there if r.until is not None], default=math.inf)
        self._follow(there)

    def _follow(self, there: Sequence[Reservation]) -> None:
        """Apply these reservations, which are all that are known."""
        self._watched = [watched for watched in self._watched if not watched.is_over]
        taken = held_by_others(there, process(), under())
        for watched in self._watched:
            watched.look(taken, there)

    def left(self) -> None:
        """Note that a session's devices have ended what they had. (A thread that holds the lock will find that out.)"""
        if self._waiting and self._lock.acquire(blocking=False):
            try:
                self._tell_who_waits()
            finally:
                self._lock.release()

    def _tell_who_waits(self) -> None:
        """Notify the processes that wait, once nothing runs on reserved devices."""
        if self._waiting and all([watched.has_left() for watched in self._watched]):  # noqa: C419
            waiting, self._waiting = self._waiting, []
            for handle in waiting:
                os.close(handle)

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            ear, self._ear = self._ear, None
            if ear is not None:
                ear.close()
            for handle in self._waiting:
                os.close(handle)
            self._waiting = []


_availability = ReservationListener()
watch = _availability.watch
left = _availability.left


def _forked() -> None:
    """Reset the listener in a forked process, without its thread and devices; the pipes are the parent's."""
    for handle in _availability._waiting:
        os.close(handle)
    _availability.__init__()  # type: ignore[misc]


atexit.register(_availability.close)
os.register_at_fork(after_in_child=_forked)
