"""The event monitor of a run: devices that leave, come and become slower."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from manycl.machine import DeviceIndex, Machine
from manycl.run.engine.playback import Changed, Playback
from manycl.run.recovery.device_events import (
    DeviceComes,
    DeviceEvent,
    DeviceEvents,
    DeviceLeaves,
    DevicesInUse,
    DeviceSlows,
)


class EventMonitor:
    """The device events of a run on a machine from the time when it is planned; earlier ones are part of the plan.
    ``used``: the devices that the run uses. ``lost``: by index, the devices that the run has found to be lost, with the
    reason."""

    def __init__(self, events: DeviceEvents, machine: Machine, used: DevicesInUse | None = None) -> None:
        self._events = events
        self._used = DevicesInUse(events) if used is None else used
        self._seen = events.count
        self._slow = events.slow
        self.found: Mapping[DeviceIndex, float] = {}
        """The factors, by device, by which devices take longer than their last events say, as the run itself has found;
        never changed, but replaced."""
        self._known: Mapping[DeviceIndex, float] = self.found  # as the plan assumes
        self._index = {d.name: i for i, d in machine.numbered()}
        self._names = [d.name for d in machine.devices]
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
        now = self._events.slow
        total = {d: f * self._total(d, self._slow, self._known) for d, f in factors.items()}
        self.found = {**self.found, **{d: t / now.get(self._names[d], 1.0) for d, t in total.items()}}

    def planned(self) -> None:
        """Note that a new plan takes the present speeds of devices into account."""
        self._slow, self._known = self._events.slow, self.found

    @property
    def slower(self) -> Mapping[DeviceIndex, float]:
        """The factors, by device, by which devices take longer now than the plan assumes; only of those that have
        changed."""
        then, now = (self._slow, self._known), (self._events.slow, self.found)
        if then[0] is now[0] and then[1] is now[1]:
            return {}
        both = ((d, self._total(d, *then), self._total(d, *now)) for d in self._index.values())
        return {d: after / before for d, before, after in both if after != before}

    def _total(self, device: DeviceIndex, said: Mapping[str, float], found: Mapping[DeviceIndex, float]) -> float:
        return said.get(self._names[device], 1.0) * found.get(device, 1.0)

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
