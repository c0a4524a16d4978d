"""Events of devices that leave, come and become slower while a session works with them, from any source and thread.

Events are put into the session's queue (:class:`DeviceEvents`). Launches that are planned from then on do not use a
device that has left. A run in progress is notified, and reacts as soon as what bounds its reaction allows
(:mod:`manycl.run.stealing.player`). An event states what is so; a repeated event, or one about a device that is not
there, changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import inf
from operator import attrgetter
from time import monotonic
from typing import Literal, get_args

from manycl.errors import DeviceError
from manycl.machine import DeviceIndex, Machine
from manycl.run.engine.playback import Changed, Playback

How = Literal["drain", "now", "lost"]
"""The ways in which a device leaves. ``drain``: what the device was given ends there. ``now``: the same, as kernels are
never killed, but only transfers that have begun are carried out. ``lost``: the device does not work any more: what it
was given fails, and is run again elsewhere (:mod:`manycl.run.recovery.lineage`)."""


@dataclass(frozen=True, slots=True)
class DeviceLeaves:
    """The event that a device (its name, or that of what it is a part of) is not to be used from now on. ``returns``:
    an event will follow when it comes again, so that a run without other devices waits for that."""

    device: str
    how: How = "drain"
    returns: bool = False

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise DeviceError(f"how={self.how!r}", hint=f"it is one of {', '.join(get_args(How))}")


@dataclass(frozen=True, slots=True)
class DeviceComes:
    """The event that a device (its name, or that of what it is a part of) may be used from now on."""

    device: str


@dataclass(frozen=True, slots=True)
class DeviceSlows:
    """The event that a device (its name, or that of what it is a part of) takes ``factor`` times as long for kernels as
    was measured (1: as long; 0.5: half as long), from now on."""

    device: str
    factor: float

    def __post_init__(self) -> None:
        if not 0.0 < self.factor < inf:
            raise DeviceError(f"factor={self.factor!r}", hint="it is a positive number: 2 is half as fast")


DeviceEvent = DeviceLeaves | DeviceComes | DeviceSlows

_NAME = attrgetter("name")


class DeviceEvents:
    """The event queue of a session. ``names``: of its devices; ``freed`` is called, by the thread of the user, each
    time that a user uses fewer of them. All methods may be called by any thread."""

    def __init__(self, names: Iterable[str], freed: Callable[[], None] = lambda: None) -> None:
        self._names, self.freed = tuple(names), freed
        self.changed = threading.Condition()
        """The condition that is notified of events, and of devices that begin or cease to be used."""
        self.happened: list[DeviceEvent] = []
        """The events that changed something, for one device each."""
        self.away: Mapping[str, DeviceLeaves] = {}
        """The devices that have left, by name, with the event of each; never changed, but replaced."""
        self.slow: Mapping[str, float] = {}
        """The devices that do not take as long as was measured, by name, with the factor of each; never changed, but
        replaced."""
        self.demanded = frozenset[str]()
        """The names of the preemptible devices: another process has had them in the meantime, and may want them again;
        never changed, but replaced."""
        self.version = 0
        """A number that changes with the devices that may be used, to be compared with that of another time."""
        self.used: dict[DevicesInUse, frozenset[str]] = {}
        """The names of the devices that each user uses."""
        self._listeners: list[Callable[[], None]] = []

    def put(self, event: DeviceEvent) -> tuple[str, ...]:
        """Put an event about a device, or all parts of one, and return the names of the devices for which it changes
        something. Raises DeviceError where the session has no such device."""
        parts = tuple(n for n in self._names if event.device == n or n.startswith(f"{event.device}."))
        if not parts:
            raise DeviceError(f"there is no device {event.device}", hint=f"there are: {', '.join(self._names)}")
        with self.changed:
            before = self.away, self.demanded
            news = [found for name in parts if (found := self._news(event, name)) is not None]
            self.version += before != (self.away, self.demanded)
            self.happened += news
            self.changed.notify_all()
            listeners = tuple(self._listeners) if news else ()
        for listener in listeners:
            listener()
        return tuple(found.device for found in news)

    def _news(self, event: DeviceEvent, name: str) -> DeviceEvent | None:
        if isinstance(event, DeviceSlows):
            if self.slow.get(name, 1.0) == event.factor:
                return None
            slow = {**self.slow, name: event.factor}
            self.slow = {device: factor for device, factor in slow.items() if factor != 1.0}
            return DeviceSlows(name, event.factor)
        before = self.away.get(name)
        if isinstance(event, DeviceComes):
            self.away = {device: left for device, left in self.away.items() if device != name}
            return DeviceComes(name) if before is not None else None
        found = DeviceLeaves(name, event.how, event.returns)
        if event.returns:
            self.demanded |= {name}
        self.away = {**self.away, name: found}
        return found if before is None or (before.how != "lost" and event.how == "lost") else None

    def listen(self, listener: Callable[[], None]) -> None:
        """Have a function called after each event that changes something, by the thread that has put it."""
        with self.changed:
            self._listeners.append(listener)

    def since(self, count: int) -> Sequence[DeviceEvent]:
        """Return the events after the first ``count``, each about one device of the session."""
        if len(self.happened) == count:  # as nearly always; called after every report
            return ()
        with self.changed:
            return tuple(self.happened[count:])

    def wait_for_news(self, count: int, seconds: float | None = None) -> bool:
        """Wait until there were more than ``count`` events, at most so many seconds. Return whether there were."""
        with self.changed:
            return self.changed.wait_for(lambda: len(self.happened) > count, seconds)

    # devices in use

    def restrict(self) -> None:
        """Note that only some of the session's devices are used from now on."""
        with self.changed:
            self.version += 1

    def wait_until_free(self, device: str, seconds: float | None = None) -> bool:
        """Wait until a device, and all parts of one, have nothing to do any more, at most so many seconds. Return
        whether that is so."""
        until = None if seconds is None else monotonic() + seconds
        mine = {n for n in self._names if device == n or n.startswith(f"{device}.")}
        with self.changed:
            while any(not mine.isdisjoint(names) for names in self.used.values()):
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0.0:
                    return False
                self.changed.wait(left)
        return True


class DevicesInUse:
    """The devices that a user, such as a run, uses. Changed by one thread at a time."""

    def __init__(self, events: DeviceEvents, names: Collection[str] = ()) -> None:
        self._events, self._names = events, frozenset[str]()
        self.become(names)

    def become(self, names: Collection[str]) -> None:
        """Use these devices from now on, and no other ones."""
        events, before = self._events, self._names
        if before or names:
            self._names = now = frozenset(names)
            with events.changed:
                events.used.pop(self, None)
                if now:
                    events.used[self] = now
                events.changed.notify_all()
            if not before <= now:
                events.freed()

    def add(self, name: str) -> None:
        """Use this device as well."""
        self.become(self._names | {name})

    def discard(self, name: str) -> None:
        """Note that this device, if it was used, has ended what it had to do."""
        self.become(self._names - {name})


class EventMonitor:
    """The device events of a run on a machine from the time when it is planned; earlier ones are part of the plan.
    ``used``: the devices that the run uses. ``lost``: by index, the devices that the run has found to be lost, with the
    reason."""

    def __init__(self, events: DeviceEvents, machine: Machine, used: DevicesInUse | None = None) -> None:
        self._events = events
        self._used = DevicesInUse(events) if used is None else used
        self._seen = len(events.happened)
        self.found: Mapping[DeviceIndex, float] = {}
        """The factors, by device, by which devices take longer than their last events say, as the run itself has found;
        never changed, but replaced."""
        self._names = [*map(_NAME, machine.devices)]
        self._index = dict(zip(self._names, map(DeviceIndex, count()), strict=False))
        self._assumed: tuple[Mapping[str, float], Mapping[DeviceIndex, float]] = events.slow, {}  # by the plan
        self.lost: dict[DeviceIndex, str] = {}
        self._leaving: set[DeviceIndex] = set()  # leaving devices that have, or may have, something to do

    def news(self) -> list[Changed]:
        """Return the changes since the last call."""
        events = self._events.since(self._seen)
        if not events:
            return []
        self._seen += len(events)
        news = [found for e in events if (found := self._changed(e)) is not None and found.device not in self.lost]
        for device, comes, factor, _ in news:
            if factor:  # an event replaces what was found
                self.found = {d: f for d, f in self.found.items() if d != device}
                continue
            (self._leaving.discard if comes else self._leaving.add)(device)
            if comes:
                self._used.add(self._names[device])
        return news

    def _changed(self, event: DeviceEvent) -> Changed | None:
        device = self._index.get(event.device)
        if device is None:
            return None
        if isinstance(event, DeviceLeaves):
            return Changed(device, False, returns=event.returns)
        return Changed(device, isinstance(event, DeviceComes), event.factor if isinstance(event, DeviceSlows) else 0.0)

    def told(self, news: Collection[Changed]) -> str:
        """Return changes in words."""
        words = (f"takes {c.factor:.3g} times as long" if c.factor else "came" if c.comes else "left" for c in news)
        return ", ".join(f"{self._names[c.device]} {said}" for c, said in zip(news, words, strict=True))

    def find(self, factors: Mapping[DeviceIndex, float]) -> None:
        """Note that the run has found devices to take so many times as long as the plan assumes."""
        said, assumed = self._events.slow, self._factors(*self._assumed)
        now = {d: f * assumed[d] / said.get(self._names[d], 1.0) for d, f in factors.items()}
        self.found = {**self.found, **now}

    def planned(self) -> None:
        """Note that a new plan takes the present speeds of devices into account."""
        self._assumed = self._events.slow, self.found

    @property
    def slower(self) -> Mapping[DeviceIndex, float]:
        """The factors, by device, by which devices take longer now than the plan assumes; only changed ones."""
        before, now = self._factors(*self._assumed), self._factors(self._events.slow, self.found)
        return {d: factor / before[d] for d, factor in now.items() if factor != before[d]}

    def _factors(self, said: Mapping[str, float], found: Mapping[DeviceIndex, float]) -> Mapping[DeviceIndex, float]:
        """Return, by device, how many times as long as measured it takes, by what is said and what was found."""
        return {d: said.get(name, 1.0) * found.get(d, 1.0) for name, d in self._index.items()}

    @property
    def away(self) -> frozenset[DeviceIndex]:
        """The devices that are not to be used any more."""
        left = self._events.away
        return frozenset(d for name, d in self._index.items() if name in left) | self.lost.keys()

    @property
    def returning(self) -> frozenset[DeviceIndex]:
        """The devices that have left and will return, without those that are lost."""
        left = self._events.away
        return frozenset(d for name, d in self._index.items() if name in left and left[name].returns) - self.lost.keys()

    @property
    def is_deserted(self) -> bool:
        """True if there is no device until one returns."""
        return bool(self.returning) and len(self.away) == len(self._index)

    def wait(self) -> None:
        """Wait for an event."""
        self._events.wait_for_news(self._seen)

    def look(self, playback: Playback | None = None) -> None:
        """Mark devices that leave as not in use, once they have ended what they had to do (None: all of them have)."""
        if self._leaving:
            self._leave({d for d in self._leaving if playback is None or playback.is_free(d)})

    def _leave(self, devices: Collection[DeviceIndex]) -> None:
        for device in devices:
            self._used.discard(self._names[device])
        self._leaving -= {*devices}
