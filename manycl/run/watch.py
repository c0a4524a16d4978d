"""What a run hears of devices that leave and come."""

from __future__ import annotations

from collections.abc import Collection

from manycl.machine import DeviceIndex, Machine
from manycl.run.device_events import DeviceComes, DeviceEvents
from manycl.run.playback import Changed, Playback


class Watch:
    """Of a run on a machine, from when it is planned on: what was said before, the plan knows. ``lost``: devices that
    the run has found to be so, by index, with the reason."""

    def __init__(self, events: DeviceEvents, machine: Machine) -> None:
        self._events = events
        self._seen = events.count
        self._index = {d.name: i for i, d in machine.numbered()}
        self._names = [d.name for d in machine.devices]
        self.lost: dict[DeviceIndex, str] = {}
        self._leaving: set[DeviceIndex] = set()  # and have, or may have, something to do
        self._left: set[DeviceIndex] = set()

    def news(self) -> list[Changed]:
        """What has happened since this was asked last."""
        events = self._events.since(self._seen)
        if not events:
            return []
        self._seen += len(events)
        found = [(self._index.get(e.device), isinstance(e, DeviceComes)) for e in events]
        news = [Changed(d, comes) for d, comes in found if d is not None and d not in self.lost]
        for device, comes in news:
            (self._leaving.discard if comes else self._leaving.add)(device)
            if comes and device in self._left:
                self._left.discard(device)
                self._events.use([self._names[device]])
        return news

    @property
    def away(self) -> frozenset[DeviceIndex]:
        """The devices that are not to be used any more."""
        left = self._events.away
        return frozenset(d for name, d in self._index.items() if name in left) | self.lost.keys()

    def look(self, playback: Playback | None = None) -> None:
        """Say which of the devices that leave have ended what they had to do (None: all of them)."""
        if self._leaving:
            self._leave({d for d in self._leaving if playback is None or playback.is_free(d)})

    def _leave(self, devices: Collection[DeviceIndex]) -> None:
        self._events.done_with([self._names[d] for d in devices])
        self._leaving -= {*devices}
        self._left |= {*devices}
