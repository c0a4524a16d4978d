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
from math import inf
from time import monotonic
from typing import Literal, get_args

from manycl.errors import DeviceError

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


class DeviceEvents:
    """The event queue of a session. ``names``: of its devices; ``freed`` is called, by the thread of the user, each
    time that a user uses fewer of them. All methods may be called by any thread."""

    def __init__(self, names: Iterable[str], freed: Callable[[], None] = lambda: None) -> None:
        self._names, self._freed = tuple(names), freed
        self._changed = threading.Condition()
        self._happened: list[DeviceEvent] = []  # those that changed something, for one device each
        self.away: Mapping[str, DeviceLeaves] = {}
        """The devices that have left, by name, with the event of each; never changed, but replaced."""
        self.slow: Mapping[str, float] = {}
        """The devices that do not take as long as was measured, by name, with the factor of each; never changed, but
        replaced."""
        self.demanded = frozenset[str]()
        """The names of the preemptible devices: another process has had them in the meantime, and may want them again;
        never changed, but replaced."""
        self._used: dict[DevicesInUse, frozenset[str]] = {}
        self._listeners: list[Callable[[], None]] = []

    def put(self, event: DeviceEvent) -> tuple[str, ...]:
        """Put an event about a device, or all parts of one, and return the names of the devices for which it changes
        something. Raises DeviceError where the session has no such device."""
        parts = tuple(n for n in self._names if event.device == n or n.startswith(f"{event.device}."))
        if not parts:
            raise DeviceError(f"there is no device {event.device}", hint=f"there are: {', '.join(self._names)}")
        with self._changed:
            news = [found for name in parts if (found := self._news(event, name)) is not None]
            self._happened += news
            self._changed.notify_all()
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
        with self._changed:
            self._listeners.append(listener)

    @property
    def count(self) -> int:
        """The number of events so far."""
        with self._changed:
            return len(self._happened)

    def since(self, count: int) -> Sequence[DeviceEvent]:
        """Return the events after the first ``count``, each about one device of the session."""
        if len(self._happened) == count:  # as nearly always; called after every report
            return ()
        with self._changed:
            return tuple(self._happened[count:])

    def wait_for_news(self, count: int, seconds: float | None = None) -> bool:
        """Wait until there were more than ``count`` events, at most so many seconds. Return whether there were."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._happened) > count, seconds)

    # devices in use

    def uses(self, use: DevicesInUse, names: Collection[str]) -> None:
        """Note that a user uses these devices from now on, and no other ones."""
        with self._changed:
            before = self._used.pop(use, frozenset())
            if names:
                self._used[use] = frozenset(names)
            self._changed.notify_all()
        if not before.issubset(names):
            self._freed()

    def wait_until_free(self, device: str, seconds: float | None = None) -> bool:
        """Wait until a device, and all parts of one, have nothing to do any more, at most so many seconds. Return
        whether that is so."""
        until = None if seconds is None else monotonic() + seconds
        mine = {n for n in self._names if device == n or n.startswith(f"{device}.")}
        with self._changed:
            while any(not mine.isdisjoint(names) for names in self._used.values()):
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0.0:
                    return False
                self._changed.wait(left)
        return True


class DevicesInUse:
    """The devices that a user, such as a run, uses. Changed by one thread at a time."""

    def __init__(self, events: DeviceEvents, names: Collection[str] = ()) -> None:
        self._events, self._names = events, frozenset[str]()
        self.become(names)

    def become(self, names: Collection[str]) -> None:
        """Use these devices from now on, and no other ones."""
        if self._names or names:
            self._names = frozenset(names)
            self._events.uses(self, self._names)

    def add(self, name: str) -> None:
        """Use this device as well."""
        self.become(self._names | {name})

    def discard(self, name: str) -> None:
        """Note that this device, if it was used, has ended what it had to do."""
        self.become(self._names - {name})
