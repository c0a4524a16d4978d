"""The state of one run. Threads that work for a run hold this and not the back end: when the run was left (Ctrl-C,
twice) and another one has begun, what they report or do does not affect that one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from itertools import count
from operator import attrgetter
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import NamedTuple

from manycl.drivers.driver import DeviceLost, Driver, DriverError, Event
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex, Machine
from manycl.run.commands.backend import Done, Failed, Report
from manycl.run.executor.lanes import Lanes
from manycl.run.executor.record import RunRecord
from manycl.run.executor.waits import LOOKS, let_others, responsive
from manycl.run.recovery.undo_log import UndoCopy
from manycl.utilities.interrupts import interruptible

_Watched = tuple[Sequence[int], Driver, Event]


class Completions:
    """The completions of the commands of run ``run``: reports that threads bring, and events that the thread that waits
    polls itself. ``now``: seconds since the run began."""

    def __init__(self, now: Callable[[], float], run: int = 0) -> None:
        self._now = now
        self._run = run
        self._brought: SimpleQueue[Report | None] = SimpleQueue()
        # by queue, as the commands of each end in order
        self._watched: dict[tuple[int, int], deque[_Watched]] = {}

    def put(self, report: Report) -> None:
        """Add a thread's report."""
        self._brought.put(report)

    def wake(self) -> None:
        """End the present wait, or the next one, even if there are no reports."""
        self._brought.put(None)

    def watch(self, place: tuple[int, int], tokens: Sequence[int], driver: Driver, event: Event) -> None:
        """Watch an event that stands for commands of a queue (device, number), behind those watched of this queue
        before; they are reported when it is complete."""
        self._watched.setdefault(place, deque()).append((tokens, driver, event))

    def wait(self, until: float | None = None) -> list[Report]:
        """Block until there are reports, ``wake`` was called, or it is ``until``; return all reports."""
        began, looks = perf_counter(), 0
        while True:
            reports: list[Report] = []
            brought: list[Report | None] = []
            watched = False
            for line in self._watched.values():
                while line and self._look(line[0], reports):
                    line.popleft()
                watched = watched or bool(line)
            if until is not None and self._now() >= until:
                brought.append(None)
            elif not reports and not watched:
                with suppress(Empty):
                    brought.append(self._brought.get(timeout=None if until is None else max(0.0, until - self._now())))
            try:
                while True:
                    brought.append(self._brought.get_nowait())
            except Empty:
                pass
            if reports or brought:
                return reports + [report for report in brought if report is not None]
            looks += 1
            if not looks % LOOKS:
                let_others(perf_counter() - began)

    def _look(self, watched: _Watched, reports: list[Report]) -> bool:
        """Return whether an event is complete or has failed; add the reports of its commands."""
        tokens, driver, event = watched
        try:
            if not driver.done(event):
                return False
        except DriverError as error:
            reports.append(Failed(tokens[0], self._now(), error.message, self._run))
            return True
        now = self._now()
        reports.extend(Done(token, now, self._run) for token in tokens)
        return True


_DEVICE, _DRIVER = attrgetter("device"), attrgetter("driver")
_INTERRUPTIBLE, _WATCHED = attrgetter("is_interruptible"), attrgetter("watched")


class RunState:
    """The run ``number`` of a back end. ``stopping``: something failed, or the run is given up; no more is enqueued."""

    def __init__(
        self,
        number: int,
        graph: Graph,
        machine: Machine,
        lanes: Sequence[Lanes],
        profiled: bool,
        began: float | None = None,
    ) -> None:
        self.number = number
        self.graph = graph
        self.stopping = False
        self.events: dict[int, Event] = {}
        self._refused: set[int] = set()  # commands that were not enqueued, as their device was lost
        self._undo: dict[int, UndoCopy] = {}  # of buffers that commands may change
        self.awaited = 0  # reports that are still to come
        self.is_left = False  # the user did not wait for its end
        self.host: int | None = None  # the node whose host function runs now
        self._machine = machine
        self.lanes = lanes
        self.began = began = perf_counter() if began is None else began
        # not a method: an object in a reference cycle waits for the garbage collection, with all its events
        self.now: Callable[[], float] = lambda: perf_counter() - began
        """Seconds since the run began."""
        self.inbox = Completions(self.now, number)
        self.waits = count(-1, -1)
        """Tokens of waits for events that are no command's report."""
        self.launched: Callable[[], list[tuple[str, DeviceIndex, int, Event]]] | None = None
        """A function that returns names, devices, queues and events of the run's launches, until its record does."""
        self.record = RunRecord(graph, machine, [*map(_DRIVER, lanes)], self.began, profiled=profiled)

    def fail(self, token: int, error: object) -> None:
        """Report that a command failed. Nothing more is enqueued, and none may report all before it complete."""
        self.stopping = True
        if isinstance(error, DeviceLost) and token not in self.events:  # (a flush may fail after it has begun)
            self._refused.add(token)
        self.inbox.put(Failed(token, self.now(), str(error), self.number))

    def watch(self, device: DeviceIndex, queue: int, tokens: Sequence[int], event: Event) -> None:
        """Report the commands that an event stands for when it is complete."""
        lanes = self.lanes[device]
        if lanes.watched:
            self.inbox.watch((device, queue), tokens, lanes.driver, event)
        else:
            lanes.submit(queue, lambda: self._await(lanes, tokens, event))

    def _await(self, lanes: Lanes, tokens: Sequence[int], event: Event) -> None:
        """Block until an event is complete, then report its commands; on a device's thread."""
        try:
            lanes.driver.wait(event)
        except DriverError as error:
            self.inbox.put(Failed(tokens[0], self.now(), error.message, self.number))
            return
        now = self.now()
        for token in tokens:
            self.inbox.put(Done(token, now, self.number))

    def took(self, token: int, device: DeviceIndex) -> float | None:
        """Return what Backend.took returns, for commands that are timed."""
        event, lanes = self.events.get(token), self.lanes[device]
        if event is None:
            return None
        try:
            start, end = lanes.driver.times(event)
        except DriverError:
            return None
        return end - start

    def ends(self, failed: Set[int]) -> tuple[set[int], set[int]]:
        """Return what Backend.ends returns, before anything is undone."""
        devices = {id(event): device for _, device, _, event in self.record.kernels}
        devices |= {id(event): moved.device for moved in self.record.transfers for event in moved.events}
        ended, not_begun = {token for token, _, _ in self.record.hosts}, set(self._refused)
        begun = {*self.events, *ended, *failed}
        for token, event in self.events.items():
            device = devices.get(id(event))
            if device is None:
                continue
            if self._is_believed(device) and self.lanes[device].driver.succeeded([event]):
                ended.add(token)
            if self.lanes[device].is_lost and not may_have_begun(self.lanes[device].driver, event):
                not_begun.add(token)
        return ended, begun - not_begun

    def _is_believed(self, device: DeviceIndex) -> bool:
        """Return whether a driver's answers about commands are true."""
        return not self.lanes[device].is_lost or self.lanes[device].driver.tells_when_lost

    def is_cut_off(self, device: DeviceIndex) -> bool:
        """Return what ``Backend.is_cut_off`` does: the driver tells of the lost device's commands, and none had failed
        before."""
        driver = self.lanes[device].driver
        mine = [event for _, d, _, event in self.record.kernels if d == device]
        mine += [event for moved in self.record.transfers if moved.device == device for event in moved.events]
        try:
            for event in mine:
                with suppress(DeviceLost):
                    driver.done(event)
        except DriverError:
            return False
        return driver.tells_when_lost

    def undo(self, token: int, copy: UndoCopy | None) -> None:
        """Note the copy of what a command may change, which is made before the command."""
        if copy is not None:
            self._undo[token] = copy

    def undone(self, begun: Set[int]) -> Iterator[tuple[int, UndoCopy]]:
        """Yield the commands that may have ``begun``, did not end, and can be undone, with their undo copies: those of
        lost devices that tell of their commands, in whose queue no other command may have begun without an end."""
        pending: dict[tuple[int, int], list[int]] = {}
        for token, device, queue, event in self.record.kernels if self._undo else ():
            lanes = self.lanes[device]
            is_known = lanes.is_lost and lanes.driver.tells_when_lost
            if token in begun and is_known and not lanes.driver.succeeded([event]):
                pending.setdefault((device, queue), []).append(token)
        for tokens in pending.values():
            if len(tokens) == 1 and tokens[0] in self._undo:
                yield tokens[0], self._undo[tokens[0]]

    def unfinished(self) -> list[str]:
        """Return the names of the first command in each queue that is not complete."""
        names = [d.name for d in self._machine.devices]
        found: dict[tuple[DeviceIndex, int | None] | None, str] = {}
        nodes = self.graph.nodes
        recorded = [(nodes[node].name, *rest) for node, *rest in self.record.kernels] if self.launched is None else []
        for name, device, queue, event in recorded if self.launched is None else self.launched():
            if (device, queue) not in found and self._is_pending(device, event):
                found[device, queue] = f"kernel {name} on {names[device]}"
        for moved in list(self.record.transfers):
            device = moved.device
            if (device, None) not in found and self._is_pending(device, moved.events[-1]):
                found[device, None] = f"a transfer of {names[device]}"
        if self.host is not None:
            found[None] = f"host function {self.graph.nodes[self.host].name}"
        return sorted(set(found.values()), key=list(found.values()).index)

    def listed(self) -> str:
        """Return in words what is not complete."""
        found = self.unfinished() or ["the devices"]
        return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"

    def events_of(self, after: Sequence[int]) -> list[Event]:
        """Return the events of some commands, each once: commands that became one transfer share one."""
        return list({id(e): e for e in map(self.events.__getitem__, after)}.values()) if after else []

    def _is_pending(self, device: DeviceIndex, event: Event) -> bool:
        try:
            return not self.lanes[device].driver.done(event)
        except DriverError:
            return False


def may_have_begun(driver: Driver, event: Event) -> bool:
    """Return whether a command may have begun, after a failure."""
    try:
        driver.done(event)
    except DeviceLost as lost:
        return lost.has_begun
    except DriverError:
        return True
    return True


class Awaited(NamedTuple):
    """An event of a run that is waited for. ``token``: the number of its command; no other event that the run's reports
    are about has it."""

    device: DeviceIndex
    queue: int
    token: int
    event: Event


def wait_for_all(run: RunState, ends: Sequence[Awaited], at_once: bool = False) -> Failed | None:
    """Wait until some events are complete, or one has failed; return the failure. ``at_once``: they end so soon that
    Ctrl-C may wait for them. Waiting in a thread lets Ctrl-C in, but learns of the end 30 us later (PoCL)."""
    lanes = [*map(run.lanes.__getitem__, map(_DEVICE, ends))]
    are_interruptible = all(map(_INTERRUPTIBLE, lanes))
    if at_once and not are_interruptible and not any(map(_WATCHED, lanes)):
        return _blocked(run, ends)
    if not at_once:
        responsive.enter(run)
    try:
        if are_interruptible:
            with interruptible:
                return _blocked(run, ends)
        return _reported(run, ends)
    finally:
        if not at_once:
            responsive.leave(run)


def _reported(run: RunState, ends: Iterable[Awaited]) -> Failed | None:
    """Wait until some events are reported as complete, or one as failed; return the failure."""
    missing: set[int] = set()
    for end in ends:
        missing.add(end.token)
        run.watch(end.device, end.queue, [end.token], end.event)
    while missing:  # (a report of an earlier wait, which Ctrl-C ended, may come now)
        with interruptible:
            reports = run.inbox.wait()
        for report in reports:
            if isinstance(report, Failed) and report.token in missing:
                return report
            missing.discard(report.token)
    return None


def _blocked(run: RunState, ends: Iterable[Awaited]) -> Failed | None:
    """Wait for some events in the drivers' own waits; return the first failure."""
    failure: Failed | None = None
    for end in ends:
        try:
            run.lanes[end.device].driver.wait(end.event)
        except DriverError as error:
            failure = failure or Failed(end.token, run.now(), error.message, run.number)
    return failure


def wait_for(run: RunState, device: DeviceIndex, event: Event) -> None:
    """Wait until an event of a run is complete, as :func:`wait_for_all` does. Raises DriverError if it has failed."""
    if (failure := wait_for_all(run, (Awaited(device, 0, next(run.waits), event),))) is not None:
        raise DriverError(failure.message)
