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
        self.found: Mapping[DeviceIndex, float] = {}
        """The factors, by device, by which devices take longer than their last events say, as the run itself has found;
        never changed, but replaced."""
        self._index = {d.name: i for i, d in machine.numbered()}
        self._names = [d.name for d in machine.devices]
        self._assumed = self._factors()  # by the plan
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
        said = self._events.slow
        now = {d: f * self._assumed[d] / said.get(self._names[d], 1.0) for d, f in factors.items()}
        self.found = {**self.found, **now}

    def planned(self) -> None:
        """Note that a new plan takes the present speeds of devices into account."""
        self._assumed = self._factors()

    @property
    def slower(self) -> Mapping[DeviceIndex, float]:
        """The factors, by device, by which devices take longer now than the plan assumes; only of those that have
        changed."""
        before = self._assumed
        return {d: factor / before[d] for d, factor in self._factors().items() if factor != before[d]}

    def _factors(self) -> Mapping[DeviceIndex, float]:
        """Return, by device, how many times as long as measured it takes, by what is said and what was found."""
        said = self._events.slow
        return {d: said.get(name, 1.0) * self.found.get(d, 1.0) for name, d in self._index.items()}

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
