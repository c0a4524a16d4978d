"""What a worker process keeps from one client to the next: opened devices, and programs by their texts."""

from __future__ import annotations

from dataclasses import replace

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import Driver, DriverError, Program, Queue, Source
from manycl.kept import Kept
from manycl.machine import HOST

_PROGRAMS = 256  # of a device


class Warm:
    """Of one process."""

    def __init__(self) -> None:
        self._drivers: dict[str, Driver] = {}
        self._programs: dict[int, Kept[Source, Program]] = {}
        self._queues: dict[tuple[int, bool], list[Queue]] = {}

    @staticmethod
    def key(selection: str, own: bool) -> str:
        """What a device is kept by."""
        return f"{selection} own" if own else selection

    @property
    def devices(self) -> list[str]:
        """That are open, and that nobody has."""
        return list(self._drivers)

    def driver(self, selection: str, name: str, own: bool) -> Driver:
        """The device that a selection means, opened. Raises DeviceError."""
        kept = self._drivers.pop(self.key(selection, own), None)
        if kept is not None:
            return kept
        machine, opened = open_devices(selection)
        if len(opened) != 1:
            raise DriverError(f"{selection} means {len(opened)} devices")
        device = machine.devices[0]
        if device.memory != HOST and not own:
            raise DriverError(f"{name} does not compute in the host's memory")
        memory = HOST + 1 if own else HOST
        return opened[0].handle.open(replace(device, name=name, memory=memory))

    def give_back(self, key: str, driver: Driver) -> None:
        """Nobody uses it any more."""
        driver.finish()
        self._drivers[key] = driver

    def program(self, driver: Driver, source: Source) -> Program:
        """Raises BuildError. What a text includes may have changed."""
        if "include" in source.text:
            return driver.build(source)
        programs = self._programs.setdefault(id(driver), Kept(_PROGRAMS))
        found = programs.get(source)
        return programs.keep(source, driver.build(source)) if found is None else found

    def queue(self, driver: Driver, timed: bool) -> Queue:
        """One that is empty: drivers keep the queues that they have made."""
        waiting = self._queues.get((id(driver), timed))
        return waiting.pop() if waiting else driver.queue(timed)

    def put_away(self, driver: Driver, timed: bool, queue: Queue) -> None:
        """Nothing is under way in it any more."""
        self._queues.setdefault((id(driver), timed), []).append(queue)
