"""Rollback recovery of a session whose devices may be lost: contents are copied every so many runs (*checkpoint*), the
runs since are logged, and done again from there after a loss (Elnozahy et al. 2002, Section 2).

What only a device's own memory has is copied twice, within that memory and to a partner's: a device that has a link
from there, the next one in their order, or else the host (two copies in memory, as Zheng, Shi and Kale 2004 have it).
So of each byte one copy is left whichever device is lost, also of what the others have changed in place since. Between
runs a checkpoint is a consistent cut by itself. Only what has changed since the last one is copied.
:mod:`manycl.run.recovery.checkpoints` is for within a run, and keeps what costs little; where there are these
checkpoints, a run keeps nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manycl.drivers.driver import Bytes, Driver, DriverError, End, Event
from manycl.drivers.worker.rows import copy_rows
from manycl.errors import ManyclError, RunError
from manycl.graph.copies import without_results
from manycl.graph.graph import BufferKey, Graph, HostTask
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.region import NOTHING, Region
from manycl.run.data.coherence import ValidRegion
from manycl.run.recovery.health import examine
from manycl.utilities.logs import logger

if TYPE_CHECKING:
    from manycl.run.data.coherence import Directory
    from manycl.run.executor.lanes import Lanes
    from manycl.run.session.device_set import DeviceSet

log = logger(__name__)


class SavedRegion(NamedTuple):
    """A region of a buffer as it was: copies from its first byte on, each in the memory of a device (None: the host's).
    Without copies it was undefined."""

    region: Region
    copies: tuple[tuple[Lanes | None, Any], ...]

    @property
    def low(self) -> int:
        return int(self.region.ends[0])

    def left(self, lanes: Collection[Lanes]) -> tuple[Lanes | None, Any] | None:
        """Return a copy that is left where a session has these lanes."""
        return next(((at, data) for at, data in self.copies if at is None or at in lanes), None)


class SavedBuffer(NamedTuple):
    """A buffer as it was. ``lost``: what was said of unknown contents."""

    regions: tuple[SavedRegion, ...]
    lost: tuple[str, Region] | None


class HostWrite(NamedTuple):
    """Bytes of a buffer that the host wrote between runs."""

    key: BufferKey
    region: Region
    data: Bytes


class Rollback:
    """The checkpoints of a session, after every ``every`` runs, and its log since the last one. ``run``: runs a graph.
    To be told of all that changes contents; only when no run is under way."""

    def __init__(self, every: int, devices: DeviceSet, directory: Directory, run: Callable[[Graph], object]) -> None:
        self._every, self._devices, self._directory, self._run = every, devices, directory, run
        self._memory = devices.backend.memory
        self._saved: dict[BufferKey, SavedBuffer] = {}
        self._log: list[Graph | HostWrite] = []
        self._changed: set[BufferKey] = set()  # since the checkpoint
        self._written: dict[BufferKey, Region] = {}  # by the host, and not in the log yet
        self._runs = 0  # since the checkpoint
        self._is_unknown = False  # whether something has happened since that the log has not
        self._is_replaying = False

    @property
    def holds(self) -> bool:
        """True if buffers that nobody has any more have to stay, as they are in the log."""
        return bool(self._log)

    # what happens between checkpoints

    def wrote(self, key: BufferKey, region: Region) -> None:
        """Note bytes that the host is about to write."""
        if not self._is_replaying:
            self._written[key] = self._written.get(key, NOTHING) | region

    def begin(self, graph: Graph) -> None:
        """Make a checkpoint, if one is due, as a graph is about to run. Raises RunError."""
        if self._is_replaying:
            return
        self._look_at_writes(graph.buffers)  # (others may still be written, by other threads)
        if self._is_unknown or self._runs >= self._every:
            self._make()

    def ran(self, graph: Graph) -> None:
        """Note that a graph has run."""
        if self._is_replaying:
            return
        self._changed.update(graph.last_writers)
        graph = without_results(graph)
        self._log.append(graph)
        self._runs += 1
        if not is_repeatable(graph):
            self._is_unknown = True
            with suppress(RunError):  # the next run's is tried again
                self._make()

    def failed(self, graph: Graph) -> None:
        """Note that a graph has run in parts, for another reason than the loss of a device."""
        if not self._is_replaying:
            self._changed.update(graph.last_writers)
            self._is_unknown = True

    def defined(self, key: BufferKey) -> None:
        """Note contents that came from elsewhere than the host."""
        self._changed.add(key)
        self._is_unknown = True

    def _look_at_writes(self, keys: Collection[BufferKey]) -> None:
        """Put what the host has written of some buffers into the log."""
        for key in [key for key in self._written if key in keys]:
            region = self._written.pop(key)
            if self._memory.has(key):
                first = int(region.ends[0])
                data = np.empty(int(region.ends[-1]) - first, np.uint8)
                copy_rows(data, self._memory.host(key), region.rectangles, -first, 0)
                self._log.append(HostWrite(key, region, data))
                self._changed.add(key)

    # checkpoints

    def _make(self) -> None:
        """Make a checkpoint, or first do again what a loss has undone. Raises RunError."""
        while True:
            before = self._devices.changes
            try:
                self._save(self._changed | self._unsafe())
                break
            except RunError:
                examine(self._devices, self._directory)
                if self._devices.changes == before or not self.recover():
                    raise
        self._changed.clear()
        self._log.clear()
        self._runs, self._is_unknown = 0, False
        known = self._directory
        for key in [k for k in self._saved if not (k in known.valid or k in known.valid_regions or k in known.lost)]:
            self._free(self._saved.pop(key))

    def _unsafe(self) -> set[BufferKey]:
        """Return the buffers of which a device that is lost had copies."""
        lanes = {None, *self._devices.backend.lanes}
        return {k for k, (of, _) in self._saved.items() if any(at not in lanes for r in of for at, _ in r.copies)}

    def _save(self, keys: Collection[BufferKey]) -> None:
        """Copy buffers as they are now. Raises RunError."""
        self._devices.backend.settle()
        found: dict[BufferKey, SavedBuffer] = {}
        copying = _Copying()
        try:
            for key in sorted(filter(self._memory.has, keys)):
                parts = self._directory.regions_of(key, self._memory.nbytes(key))
                regions = tuple([self._copied(key, part, copying) for part in parts])
                found[key] = SavedBuffer(regions, self._directory.lost.get(key))
            copying.wait()
        except DriverError as error:
            copying.give_up()
            raise RunError(f"no checkpoint can be made: {error.message}") from None
        for key in keys:
            if (old := self._saved.pop(key, None)) is not None:
                self._free(old)
        self._saved |= found

    def _copied(self, key: BufferKey, part: ValidRegion, copying: _Copying) -> SavedRegion:
        """Begin to copy a region. Raises DriverError."""
        region, mask = part
        if not mask:
            return SavedRegion(region, ())
        rows, low, nbytes = region.rectangles, int(region.ends[0]), int(region.ends[-1] - region.ends[0])
        machine, lanes = self._devices.machine, self._devices.backend.lanes
        if mask & HOST_BIT:
            data = np.empty(nbytes, np.uint8)
            copy_rows(data, self._memory.host(key), rows, -low, 0)
            return SavedRegion(region, ((None, data),))
        having = [d for d, device in machine.numbered() if mask >> device.memory & 1]
        owner, *others = having
        partner = others[0] if others else self._partner(owner)
        copies: list[tuple[Lanes | None, Any]] = []
        for at in (partner,) if partner is None else (owner, partner):
            if at is None:
                data, from_owner = np.empty(nbytes, np.uint8), lanes[owner]
                end = End(self._memory.on_device(key, owner))
                copying.add(from_owner, from_owner.downloads, End(data, low), end, rows)
                copies.append((None, data))
                continue
            there = lanes[at].driver.allocate(nbytes)
            of = at if at in having else owner
            source = End(self._memory.on_device(key, of), owner=None if of == at else lanes[of].driver)
            copying.add(lanes[at], lanes[at].uploads, End(there, low), source, rows)
            copies.append((lanes[at], there))
        return SavedRegion(region, tuple(copies))

    def _partner(self, device: DeviceIndex) -> DeviceIndex | None:
        """Return the device whose memory has copies of another one's contents (None: the host's has them)."""
        machine = self._devices.machine
        memory, count = machine.devices[device].memory, len(machine.devices)
        for step in range(1, count):
            other = DeviceIndex((device + step) % count)
            at = machine.devices[other].memory
            if at not in (HOST, memory) and machine.link(memory, at) is not None:
                return other
        return None

    def _free(self, saved: SavedBuffer) -> None:
        lanes = self._devices.backend.lanes
        for region in saved.regions:
            for at, data in region.copies:
                if at is not None and at in lanes:
                    at.driver.free(data)

    # going back

    def recover(self, graph: Graph | None = None) -> bool:
        """Go back to the checkpoint and do again what the log has, as a device was lost; return whether all contents
        are as they were then. ``graph``: one that was interrupted."""
        if self._is_replaying:
            return False  # whoever does that, begins again
        self._look_at_writes(list(self._written))
        if self._is_unknown:
            return False
        if graph is not None:
            self._changed.update(graph.last_writers)
        self._is_replaying, reason = True, "what was lost could not be done again"
        try:
            while self._is_restorable():
                before = self._devices.changes
                try:
                    self._replay()
                except ManyclError as error:
                    examine(self._devices, self._directory)
                    if self._devices.changes == before:
                        reason = f"{reason}: {error.message}"
                        break
                else:
                    reason = ""
                    return True
            return False
        finally:
            self._is_replaying = False
            if reason:
                for key in self._changed:
                    self._directory.lose(key, reason)

    def _replay(self) -> None:
        """Put the contents of the checkpoint back, and do all again that the log has. Raises ManyclError."""
        self._restore()
        self._save(self._unsafe())
        log.warning("%d runs are done again from the last checkpoint on", self._runs)
        for entry in self._log:
            if isinstance(entry, Graph):
                self._run(entry)
                continue
            copy_rows(self._memory.host(entry.key), entry.data, entry.region.rectangles, 0, -int(entry.region.ends[0]))
            self._directory.define_region(entry.key, entry.region, self._memory.nbytes(entry.key))

    def _to_restore(self) -> dict[BufferKey, SavedBuffer]:
        """Return the buffers that have changed since the checkpoint, or are gone, as they were."""
        keys = sorted(filter(self._memory.has, self._changed | self._directory.lost.keys()))
        return {key: self._saved.get(key, SavedBuffer((), None)) for key in keys}

    def _is_restorable(self) -> bool:
        """Return whether there are devices, and a copy of all that is to be restored."""
        devices, lanes = self._devices.machine.devices, self._devices.backend.lanes
        found = self._to_restore().values()
        return bool(devices) and all(not r.copies or r.left(lanes) for saved in found for r in saved.regions)

    def _restore(self) -> None:
        """Put the contents of the checkpoint back. Raises RunError."""
        self._devices.backend.settle()
        directory, copying = self._directory, _Copying()
        try:
            for key, (regions, lost) in self._to_restore().items():
                directory.forget(key)
                if regions:
                    directory.define_regions(key, [(r.region, self._put_back(key, r, copying)) for r in regions])
                if lost is not None:
                    directory.lost[key] = lost
            copying.wait()
        except DriverError as error:
            copying.give_up()
            raise RunError(f"a checkpoint cannot be put back: {error.message}") from None

    def _put_back(self, key: BufferKey, saved: SavedRegion, copying: _Copying) -> int:
        """Begin to put a region back; return the mask of the memory where it is then. Raises DriverError."""
        found = saved.left(self._devices.backend.lanes)
        if found is None:
            return 0
        at, data = found
        rows = saved.region.rectangles
        if at is None:
            copy_rows(self._memory.host(key), data, rows, 0, -saved.low)
            return HOST_BIT
        device = DeviceIndex(self._devices.backend.lanes.index(at))
        copying.add(at, at.uploads, End(self._memory.on_device(key, device)), End(data, saved.low), rows)
        return int(1 << self._devices.machine.devices[device].memory)


class _Copying:
    """Copies that are under way."""

    def __init__(self) -> None:
        self._events: list[tuple[Driver, Event]] = []

    def add(self, lanes: Lanes, queue: Any, target: End, source: End, rows: Sequence[Any]) -> None:
        """Begin a copy. Raises DriverError."""
        events = lanes.driver.copy(queue, target, source, rows, ())
        self._events += [(lanes.driver, event) for event in events]
        lanes.driver.flush(queue)

    def wait(self) -> None:
        """Wait for all of them. Raises DriverError."""
        while self._events:
            driver, event = self._events.pop()
            driver.wait(event)

    def give_up(self) -> None:
        """Wait until none is under way."""
        for driver, event in self._events:
            with suppress(DriverError):
                driver.wait(event)


def is_repeatable(graph: Graph) -> bool:
    """Return whether a graph may run again from contents as they were: nobody is told a second time."""
    return all(task.repeats for task in graph.nodes if isinstance(task, HostTask))
