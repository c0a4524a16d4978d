"""The simulator: a back end whose times are estimates, on a virtual clock. The engine is the real one.

A kernel takes its estimated seconds on its in-order queue. Kernels in different queues of a device run together: at
full speed as long as their shares of the device (``model/occupancy.py``) add up to at most 1, else all slowed down by
the sum. A transfer takes its estimated seconds on its queue, and a device's link makes one at a time in each direction,
whatever queues of transfers they are in: of those that are ready, the one that was enqueued first (as NVIDIA's driver
does: docs/decisions/04-enqueue-ahead.md). Small ones in kernels' queues do not wait for it, and share the link with it.
Commands that share links or the host's memory slow each other down (``model/contention.py``). Reports reach the engine
``report_latency`` seconds after the events that they report. The same commands always give the same events, also with a
disturbance (``run/simulation/disturbance.py``) that makes them take other times than the estimates.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from heapq import heappop, heappush

from manycl.errors import RunError
from manycl.graph.graph import BufferKey, Graph, HostTask, Launch, ndrange
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.model.contention import NOTHING, Activities, Contention, Use
from manycl.model.estimates import Estimates
from manycl.model.occupancy import share
from manycl.run.commands.backend import (
    UPLOADS,
    Command,
    Copy,
    Done,
    EndsEarly,
    Evict,
    Failed,
    HostCall,
    Lane,
    Queued,
    Report,
    Run,
    Shorten,
    TransferQueue,
    continues,
    lane_of,
    nodes_of,
)
from manycl.run.simulation.disturbance import UNDISTURBED, Disturbance
from manycl.trace import Event, HostEvent, KernelEvent, TransferEvent


@dataclass(slots=True)
class _Started:
    """A command under way."""

    command: Queued
    place: Lane
    number: int  # of all commands started; breaks ties
    start: float
    seconds: float  # seconds that it takes alone
    end: float = 0.0  # its end as far as is known


@dataclass(slots=True)
class SimRecord:
    """The record of a simulated run, its events sorted by start."""

    begin: float = 0.0
    sorted_events: list[KernelEvent | TransferEvent | HostEvent] = field(default_factory=list)
    launches: list[tuple[int, DeviceIndex, float]] = field(default_factory=list)
    failure: Failed | None = None
    failed_transfer: Failed | None = None

    def events(self) -> Sequence[Event]:
        return self.sorted_events

    def waited(self) -> Iterable[tuple[float, float]]:
        return ()  # nothing is compiled

    def durations(self, nodes: Set[int] | None = None) -> Iterable[tuple[int, DeviceIndex, float]]:
        return [launch for launch in self.launches if nodes is None or launch[0] in nodes]


class SimBackend:
    """A back end that simulates a machine. Host tasks take no time, and their functions are not called.
    ``report_latency``: seconds from an end to its report. ``start``: the clock's first reading in seconds.
    ``disturbance``: what the estimates do not know."""

    def __init__(
        self,
        machine: Machine,
        estimates: Estimates,
        *,
        report_latency: float = 0.0,
        start: float = 0.0,
        disturbance: Disturbance = UNDISTURBED,
    ) -> None:
        self.machine = machine
        self._latency = report_latency
        self._start = start
        self.follow(estimates, disturbance)

    def follow(self, estimates: Estimates, disturbance: Disturbance) -> None:
        """Take the seconds of steps from these from now on, as the graph will be another one."""
        self._estimates, self._disturbance = estimates, disturbance
        self._contention = Contention(self.machine, estimates, in_turn=self.machine.memories == 1)

    def begin(self, graph: Graph, queues: Sequence[int], goes_on: bool = False) -> int:
        self._graph, self._queues = graph, queues
        if not goes_on:
            self._now = self._start
            self._happening = deque(self._disturbance.happening)
        self._lines: dict[Lane, deque[Queued]] = {}
        # queues whose first command waits: for the end of another one (its token), or its turn on a link
        self._waiting: dict[int | tuple[int, bool], list[Lane]] = {}
        self._active: dict[Lane, _Started] = {}
        self._by_token: dict[int, _Started] = {}
        # (end, number, token) of commands under way; out of date where the end has changed since
        self._ends: list[tuple[float, int, int]] = []
        self._sent: dict[int, int] = {}  # bytes of a joined transfer before a command's own, by token
        self._moving: set[tuple[int, bool]] = set()  # links in use: device, and whether to it
        self._progress = Activities(self._contention)
        self._done: set[int] = set()
        self._doomed: set[int] = set()  # commands whose device will be lost before they end
        self._reports: deque[Report] = deque()  # in order of their times
        self._started = 0
        self._enqueued: dict[int, int] = {}  # by token: how many commands were enqueued before
        self._component = {n: c for c, nodes in enumerate(graph.components) for n in nodes}
        self._shares: dict[tuple[int, tuple[int, ...], tuple[int, ...] | None], float] = {}
        self._took: dict[int, float] = {}  # seconds of the launches that have ended, by token
        self.record = SimRecord()
        return 0  # nothing is ever left of a run

    def now(self) -> float:
        return self._now

    def perform(self, commands: Sequence[Command]) -> None:
        before: Command | None = None
        for command in commands:
            if isinstance(command, Evict):
                continue  # it takes no time
            place = lane_of(command)
            joined = isinstance(before, Copy) and continues(self._graph, before, command)
            if not isinstance(command, HostCall) and not joined:
                where = self.machine.devices[command.device]
                if seconds := where.enqueuing_copy if isinstance(command, Copy) else where.enqueuing:
                    self._pass(self._now + seconds)
            if joined and isinstance(before, Copy) and before.source != before.target:
                sent = self._sent.get(before.token, 0)  # one transfer serves both commands
                self._sent[command.token] = sent + self._graph.buffers[before.buffer].nbytes
            before = command
            line = self._lines.get(place)
            if line is None:
                line = self._lines[place] = deque()
            line.append(command)
            self._enqueued[command.token] = len(self._enqueued)
            if len(line) == 1:
                self._try_start(place)

    def _pass(self, until: float) -> None:
        """Let time pass in which the engine gets no reports."""
        while (following := self._next()) is not None and following.end <= until:
            self._complete(following)
        self._now = until

    def took(self, token: int, device: DeviceIndex) -> float | None:
        return self._took.get(token)

    def shorten(self, command: Shorten) -> EndsEarly | None:
        active = self._by_token.get(command.token)
        if active is None:
            return self._shorten_waiting(command)
        run, now = active.command, self._now
        assert isinstance(run, Run)
        if run.parts is None:
            return None
        done = active.seconds - self._progress.left(run.token, now)
        ends = [0.0, *(self._takes(run, count, active.start) for count in range(1, len(run.chunks) + 1))]
        at = min(bisect_left(ends, done, 1), len(run.chunks))  # the part that it is at, from 1 on
        items = (0, *run.parts.ends)
        part = min(1.0, (done - ends[at - 1]) / (ends[at] - ends[at - 1])) if ends[at] > ends[at - 1] else 0.0
        begun = (items[at - 1] + part * (items[at] - items[at - 1])) / items[-1]
        if at < len(run.chunks):
            active.command = _first_of(run, command, at)
            active.seconds = self._until_lost(run, ends[at], active.start)
            self._ending(self._progress.shorten(run.token, now, max(0.0, active.seconds - done)))
            self._lines[active.place][0] = active.command
        return EndsEarly(at, begun)

    def _shorten_waiting(self, command: Shorten) -> EndsEarly | None:
        for line in self._lines.values():
            for place, run in enumerate(line):
                if isinstance(run, Run) and run.token == command.token and run.parts is not None:
                    line[place] = _first_of(run, command, 1)
                    return EndsEarly(1, 0.0)
        return None

    def _takes(self, run: Run, count: int, start: float) -> float:
        """Return the seconds of the first ``count`` chunks of a launch that has started, when it runs alone."""
        seconds = self._estimates.together(run.chunks[:count], run.device)
        if self._disturbance is UNDISTURBED:
            return seconds
        return self._disturbance.slowed(run.device, self._disturbance.noisy(run.token, run.device, seconds), start)

    def wake(self) -> None:
        """Do nothing: no thread waits while time stands still."""

    def restore(self, graph: Graph, copies: Mapping[BufferKey, int]) -> None:
        pass  # a simulation has no contents

    def ends(self, failed: Set[int]) -> tuple[Set[int], Set[int]]:
        return self._done, self._enqueued.keys() | failed

    def is_cut_off(self, device: DeviceIndex) -> bool:
        return False

    def has_crashed(self, device: DeviceIndex) -> bool:
        return False

    def lost(self, device: DeviceIndex) -> str:
        lost = self._disturbance.lost.get(device)
        return "the device was lost" if lost is not None and self._now >= lost else ""

    def wait(self, until: float | None = None) -> list[Report]:
        """Let time pass until there is a report, or it is ``until``; return all reports of that moment."""
        while True:
            following = self._next()
            if self._happening and self._happens(following):
                return []
            if until is not None:
                said_at = self._reports[0].time if self._reports else math.inf
                if until < min(said_at, following.end if following is not None else math.inf):
                    self._now = max(until, self._now)
                    return []
            if self._reports and (following is None or following.end > self._reports[0].time):
                moment = self._reports[0].time
                self._now = max(moment, self._now)
                said: list[Report] = []
                while self._reports and self._reports[0].time <= moment:
                    said.append(self._reports.popleft())
                return said
            if following is None:
                waiting = sum(len(line) for line in self._lines.values())
                raise RunError(f"the simulation stands still: {waiting} commands wait for what never happens")
            self._complete(following)

    def _happens(self, following: _Started | None) -> bool:
        """Call the next function of the disturbance if it is before the next end and report; return whether it was."""
        moment, happen = self._happening[0]
        if (following is not None and following.end < moment) or (self._reports and self._reports[0].time < moment):
            return False
        self._happening.popleft()
        self._now = max(moment, self._now)
        happen()
        return True

    def finish(self) -> SimRecord:
        while (following := self._next()) is not None:
            self._complete(following)
        return self.abort()

    def abort(self) -> SimRecord:
        self._lines.clear()
        self._active.clear()
        self._by_token.clear()
        self.record.sorted_events.sort(key=lambda event: event.start)
        return self.record

    # time

    def _next(self) -> _Started | None:
        """Return the command that ends next; the first started of those that end together."""
        while self._ends:
            end, _, token = self._ends[0]
            active = self._by_token.get(token)
            if active is not None and active.end == end:
                return active
            heappop(self._ends)
        return None

    def _ending(self, changed: Sequence[tuple[int, float]]) -> None:
        """Note commands whose ends have changed."""
        for token, end in changed:
            active = self._by_token[token]
            active.end = end
            heappush(self._ends, (end, active.number, token))

    # commands

    def _try_start(self, place: Lane) -> None:
        """Start the command at the head of an idle queue if the commands that it waits for are done."""
        line = self._lines[place]
        if place in self._active or not line:
            return
        command = line[0]
        # a transfer in a kernel queue is small, and does not wait for its turn
        way = (place[0], place[1] in UPLOADS) if isinstance(place[1], TransferQueue) else None
        if way is not None and way in self._moving:
            self._waiting.setdefault(way, []).append(place)
            return
        if not isinstance(command, HostCall) and not self._done.issuperset(command.after):
            self._waiting.setdefault(next(t for t in command.after if t not in self._done), []).append(place)
            return
        now = self._now
        self._started += 1
        seconds, part = self._cost(command)
        if self._disturbance is not UNDISTURBED:
            seconds = self._disturbed(self._disturbance, command, seconds, now)
        self._active[place] = self._by_token[command.token] = _Started(command, place, self._started, now, seconds)
        if way is not None:
            self._moving.add(way)
        use = self._use(command, seconds) if self._contention.anything else NOTHING
        self._ending(self._progress.begin(command.token, now, seconds, place[0], part, use))

    def _use(self, command: Queued, seconds: float) -> Use:
        """Return what a command of ``seconds`` uses beside its device: links and the host's memory."""
        if isinstance(command, HostCall):
            return NOTHING
        memory = self.machine.devices[command.device].memory
        if isinstance(command, Run):
            traffic = self._estimates.traffic
            is_shared = memory == HOST or self._queues[command.device] > 1
            if not self._contention.limited or not is_shared:
                return NOTHING
            nbytes = sum(traffic(node, command.device) for node in nodes_of(command))
            return Use(None, self._contention.draws(nbytes, seconds, memory), memory=memory)
        nbytes = self._graph.buffers[command.buffer].nbytes
        if command.source == command.target:
            return self._contention.use(None, 2.0 * nbytes if memory == HOST else 0.0, seconds)
        return self._contention.use(command.ends, nbytes, seconds, isinstance(command.queue, TransferQueue))

    def _cost(self, command: Queued) -> tuple[float, float]:
        """Return the seconds of a command when alone, and its share of the device."""
        if isinstance(command, HostCall):
            return 0.0, 0.0
        device = self.machine.devices[command.device]
        if isinstance(command, Run):
            launch = command.task or self._graph.nodes[command.token]
            if command.task is None:
                seconds = self._estimates.launch(command.token, command.device)
            else:
                seconds = self._estimates.together(command.chunks, command.device)
            if not isinstance(launch, Launch):  # a copy within the device
                return seconds, 0.0
            key = (command.device, launch.global_size, launch.local_size)
            if key not in self._shares:
                self._shares[key] = share(launch, device)
            return seconds, self._shares[key]
        nbytes = self._graph.buffers[command.buffer].nbytes
        if command.source == command.target:  # read and written
            return 2 * nbytes / device.bandwidth, 0.0
        ends = command.ends
        sent = self._sent.get(command.token)
        if sent is not None:
            return self._estimates.transfer(sent + nbytes, *ends) - self._estimates.transfer(sent, *ends), 0.0
        return self._estimates.transfer(nbytes, *ends), 0.0

    def _disturbed(self, by: Disturbance, command: Queued, seconds: float, now: float) -> float:
        """Return the seconds that a command takes that starts now, or that pass until a fault ends it."""
        if isinstance(command, HostCall):
            return seconds
        seconds = by.noisy(command.token, command.device, seconds)
        if isinstance(command, Run):
            seconds = by.slowed(command.device, seconds, now)
        return self._until_lost(command, seconds, now)

    def _until_lost(self, command: Run | Copy, seconds: float, start: float) -> float:
        """Return the seconds of a command that takes ``seconds``; less, and it is doomed, if its device is lost."""
        lost = self._disturbance.lost.get(command.device)
        self._doomed.discard(command.token)
        if lost is not None and start + seconds > lost:
            self._doomed.add(command.token)
            return max(0.0, lost - start)
        return seconds

    def _failure(self, command: Queued) -> str | None:
        """Return why a command that ends now has failed, if it has."""
        if not isinstance(command, HostCall) and command.token in self._doomed:
            # a copy that is not reported: the kernel that needs it will fail
            return "the device was lost" if isinstance(command, Run) or command.notify else None
        if not self._disturbance.failing or not isinstance(command, Run | HostCall):
            return None
        return next(filter(None, map(self._disturbance.failing.get, nodes_of(command))), None)

    def _complete(self, active: _Started) -> None:
        self._now = end = max(self._now, active.end)
        command, place = active.command, active.place
        del self._active[place], self._by_token[command.token]
        way = (place[0], place[1] in UPLOADS) if isinstance(place[1], TransferQueue) else None
        if way is not None:
            self._moving.remove(way)
        self._ending(self._progress.finish(command.token, end))
        heard = isinstance(command, HostCall) or command.notify
        message = self._failure(command)
        if message is not None:
            failed = Failed(command.token, end + self._latency, message)
            if heard:
                first = self.record.failure or failed  # a command that was not reported failed before
                self._reports.append(first._replace(time=failed.time))
                self._lines[place].clear()  # no later command may report that all before it is complete
                self._try_waiting(way)
                return
            self.record.failure = self.record.failure or failed
        else:
            self._note(command, active.start, end)
        self._lines[place].popleft()
        self._done.add(command.token)
        if heard:
            self._reports.append(Done(command.token, end + self._latency))
        self._try_waiting(way, command.token, place)

    def _try_waiting(self, way: tuple[int, bool] | None, token: int | None = None, place: Lane | None = None) -> None:
        """Start what waits for a link that has become free, for the end of a command, and behind it in a queue."""
        lines, busy, waiting = self._lines, self._active, self._waiting
        able = dict.fromkeys(() if place is None else (place,))
        for of in (way, token):
            able.update(dict.fromkeys(waiting.pop(of, ()) if of is not None else ()))
        idle = [p for p in able if lines[p] and p not in busy]
        for other in sorted(idle, key=self._turn) if len(idle) > 1 else idle:
            self._try_start(other)

    def _turn(self, place: Lane) -> int:
        """Return when the command at the head of a queue was enqueued, counted in commands."""
        return self._enqueued[self._lines[place][0].token]

    def _note(self, command: Queued, start: float, end: float) -> None:
        events, devices = self.record.sorted_events, self.machine.devices
        if isinstance(command, Run):
            task = command.task or self._graph.nodes[command.token]
            assert not isinstance(task, HostTask)
            what, sizes = (command.token, task.name, devices[command.device].name, command.queue), ndrange(task)
            component = self._component.get(command.token)
            events.append(KernelEvent(*what, start, end, *sizes[:2], component, sizes[2]))
            self.record.launches.append((command.token, command.device, end - start))
            self._took[command.token] = end - start
        elif isinstance(command, HostCall):
            events.append(HostEvent(command.token, self._graph.nodes[command.token].name, start, end))
        else:
            buffer = self._graph.buffers[command.buffer]
            source, target = [self.machine.memory_name(memory, command.device) for memory in command.ends]
            name = buffer.name or f"buffer {buffer.key}"
            events.append(TransferEvent(buffer.key, name, source, target, buffer.nbytes, start, end))


def _first_of(run: Run, command: Shorten, count: int) -> Run:
    """Return the first ``count`` chunks of a launch."""
    return run._replace(chunks=run.chunks[:count], task=command.launch(count))
