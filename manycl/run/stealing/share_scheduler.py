"""The share scheduler: it follows a plan in which shares of launches move from device to device during a run. Pure.

It decides when a device may take something; which chunks that are is decided by the launch's work stealing alone
(:mod:`manycl.run.stealing.work_stealing`). All that is not a share that may move is given in the plan's order, as soon
as what it depends on has been given; each queue has a line of the plan. A share is taken packet by packet, between what
its queue has before and after it, and the queue goes on only when its device has ended the share. A device steals when
it has nothing to do, as its lines have come to an end, or wait for what other devices have not begun.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial
from math import inf

from manycl import flags
from manycl.graph.graph import BufferKey, HostTask
from manycl.machine import DeviceIndex, are_of_a_kind
from manycl.model.estimates import Slowed
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.preemptible import at_a_time, may_differ
from manycl.plan.problem import Problem
from manycl.plan.rescheduling import Rescheduler
from manycl.run.commands.backend import EndsEarly, Lane, Shorten
from manycl.run.engine.assign import Assigned
from manycl.run.lowering.steps import Chunks, Lowered
from manycl.run.stealing.device_estimates import DeviceEstimates
from manycl.run.stealing.restarts import Restarts, StepGiven
from manycl.run.stealing.work_stealing import WorkStealing, nothing_moves
from manycl.run.stealing.worker import LATE, TIMES, Packet, StealingWorker
from manycl.trace import DecisionEvent
from manycl.utilities.changed import named

REPLANNED = 2e-3
"""The least seconds to be gained for which the rest is distributed anew when a device comes; our own choice."""


class ShareScheduler:
    """The assigner of a plan whose shares may move. ``launches``: those whose shares may move, by node."""

    def __init__(
        self, problem: Problem, lowered: Lowered, valid: Mapping[BufferKey, int], done: Set[int] = frozenset()
    ) -> None:
        assert lowered.plan is not None
        self._problem, self._graph, self._valid = problem, lowered.graph, valid
        self._extent = lowered.extent
        self._estimates, self._now = DeviceEstimates(problem, lowered), 0.0
        self._inputs = self._estimates.inputs
        self._away: set[DeviceIndex] = set()
        self._returning: set[DeviceIndex] = set()
        timetable, devices = lowered.timetable, problem.machine.devices
        self._seconds, self._position = timetable.seconds, timetable.position
        self.decisions: list[DecisionEvent] = []
        self.launches: dict[int, WorkStealing] = {}
        # whether results may be any device's (and are the same on all, or a graph runs once)
        self._anywhere = are_of_a_kind(devices) or may_differ(problem, flags.strict())
        # launches whose shares stay until a device is late, and how many times as long as planned it takes then
        self._watched: dict[int, float] = {}
        self._late: set[DeviceIndex] = set()  # devices that were late, of which no packet has ended since
        self._speeds: dict[DeviceIndex, float] = {}  # of devices by now, as parts of those planned, once one was late
        for node, chunks in lowered.chunks.items():
            how = node in lowered.plan.in_turn, node in lowered.plan.still
            self._begin(node, chunks, timetable.each[node], done, *how)
        self._given = bytearray(len(lowered.graph.nodes))
        for step in done:
            self._given[step] = StepGiven.FINAL
        self.restarts = Restarts(self._graph, self._given)
        self._busy = [0] * len(devices)  # by device, the number of given steps that are not known to be complete
        self._whole = [0] * len(devices)  # by device, the number of those that are no packets
        # by given step (a packet has its first chunk's), its device, and a packet's launch
        self._under_way: dict[int, tuple[DeviceIndex, WorkStealing | None]] = {}
        self._is_steady = False  # whether the end of a packet concerns no other device, as all have enough packets
        # by token, packets that are to end early, for another device or (None) because their own one leaves
        self._wishes: dict[int, tuple[WorkStealing, Packet, DeviceIndex | None]] = {}
        self._foreseen = [0.0] * len(devices)  # by device, predicted seconds of its steps that are no packets
        self._since = [0.0] * len(devices)  # by device, the time from which these seconds count
        self._lines: dict[Lane, deque[int | WorkStealing]] = {}
        used = [1] * len(devices)  # also of devices that come, or steal
        for lane, line in timetable.lines.items():
            self._lines[lane] = deque(self.launches[-1 - i] if i < 0 else i for i in line if i not in done)
            if lane[0] != ON_HOST:
                used[lane[0]] = max(used[lane[0]], lane[1] + 1)
        # few work-groups do not fill a GPU: there short packets run beside each other
        demanded = [d for d in problem.demanded if self.launches and devices[d].kind != "cpu"]
        self._turn_of = dict.fromkeys(demanded, 0)
        for device in demanded:
            used[device] = max(used[device], at_a_time(devices[device]))
        self.queues = tuple(used)

    @cached_property
    def _rescheduler(self) -> Rescheduler:
        return Rescheduler(self._problem, self._extent, self._graph)

    def _begin(
        self, node: int, chunks: Chunks, each: Mapping[DeviceIndex, float], done: Set[int], in_turn: bool, still: bool
    ) -> None:
        """Make the scheduler of a launch whose shares may move. ``each``: the seconds of a work-group, by device."""
        problem, estimates = self._problem, self._estimates
        terms = {device: estimates.terms(node, device, seconds) for device, seconds in each.items()}

        def moving(device: DeviceIndex, first: int, last: int) -> float:
            return estimates.moving(chunks.steps[first:last], device, self._valid, self._now)

        cost = moving if problem.machine.memories > 1 else nothing_moves
        launch = self.launches[node] = WorkStealing(chunks, terms, cost, done, in_turn, still, self._free)
        launch.is_ready = not chunks.bytes(self._graph).before
        if still and all(problem.estimates.is_measured(node, d) for d in terms):
            alike = are_of_a_kind([problem.machine.devices[d] for d in self._able(launch)])
            if alike or self._anywhere:
                self._watched[node] = LATE if alike else TIMES
        if (in_turn or len(chunks.deques) == 1) and not still and len(terms) < len(problem.machine.devices):
            # any device may take it over, also without a share of its own
            others = {d for d in estimates.known(node) - terms.keys() if problem.can_run(node, d)}
            if not others or problem.away:  # the models are slow to ask, and nothing has changed since
                others = {d for d in self._able(launch) if d not in terms and problem.fits(node, d)}
            self._join(node, sorted(others), 0.0)

    def shares(self) -> Iterator[tuple[int, StealingWorker, int]]:
        """Yield each launch (node) with the devices that had shares of it, and the work-groups that each was to run, in
        the order of these."""
        for node, launch in self.launches.items():
            for device, _, first, last in launch.chunks.deques:
                yield node, launch.workers[device], launch.groups(first, last)

    def plan(self, name: str) -> Plan | None:
        """Return the plan of what was chosen at run time; None where a plan is followed. ``name``: the policy's."""
        return None

    # the assigner

    def start(self, now: float) -> list[Assigned]:
        return self._go(now, [])

    def completed(self, nodes: list[int], now: float, valid: Mapping[BufferKey, int]) -> list[Assigned]:
        self._valid, self._now = valid, now
        out: list[Assigned] = []
        for node in nodes:
            device, launch = self._under_way.pop(node)
            if device == ON_HOST:
                continue
            self._busy[device] -= 1
            if node < 0:
                self.restarts.ended(node, now, device not in self._away)
                continue
            if launch is None:
                self._whole[device] -= 1
                self._foreseen[device] -= self._seconds[node]
                self._since[device] = now
                continue
            worker = launch.workers[device]
            packet = worker.end(now)
            if self._watched and not launch.still:
                self._speeds[device] = worker.rate / worker.planned
                if device in self._late:  # now it is known how slow it is
                    self._slowed({})
            for at, other in self._under_way.values():
                if at == device and other is not launch and other is not None and device not in self._turn_of:
                    other.workers[device].begins(now)  # its packet was behind this one
            for chunk in launch.chunks.steps[packet.first : packet.last]:
                self._given[chunk] = StepGiven.FINAL
            if self._is_steady and len(nodes) == 1 and not self._whole[device] and not worker.shortens:
                first, last = worker.rest
                if first < last and self._take(launch, device, worker.queue, None, out) and worker.rest[0] < last:
                    return out
        return self._go(now, out)

    def _go(self, now: float, out: list[Assigned]) -> list[Assigned]:
        self._now = now
        if self._returning and self.is_paused:
            return out
        waiting, before = True, -1
        while waiting and len(out) > before:  # a line may wait for what another one is given
            waiting, before, self._is_steady = False, len(out), True
            for lane, line in self._lines.items():
                if line and self._advance(lane, line, out):
                    waiting = True
        for launch in self.launches.values():
            is_wanted = launch.thieves or not all(self._busy)
            if is_wanted and launch.is_open and (launch.is_ready or self._is_open(launch)):
                self._steal(launch, out)
        self._is_steady = self._is_steady and not waiting and all(self._busy)
        restarts = self.restarts
        while (found := restarts.found(self.launches.values(), self._busy, now)) is not None:
            launch, thief, packet = found
            token = launch.chunks.steps[packet.first + packet.again]
            self._under_way[~token] = self._under_way.pop(token)
            self._hand(launch, restarts.drop(launch, packet, thief, now), launch.workers[thief].queue, out)
        return out

    def _steal(self, launch: WorkStealing, out: list[Assigned]) -> None:
        """Let devices that have nothing to do take packets of a launch, and go on with what they have stolen of it."""
        for device, worker in launch.workers.items():
            if not self._busy[device] or (device in launch.thieves and worker.wants_more):
                while self._take(launch, device, worker.queue, None, out):
                    pass
                if worker.wants_more:
                    self._is_steady = False
                if not self._busy[device] and (packet := launch.wanted(device, self._now)) is not None:
                    self._wish(launch, packet, device)

    def _advance(self, lane: Lane, line: deque[int | WorkStealing], out: list[Assigned]) -> bool:
        """Give a queue what may be given. Return whether it waits for a step that is not given yet."""
        device, queue = lane
        if self.restarts.blocked[device]:
            return False
        while line:
            item = line[0]
            if isinstance(item, int):
                least = (
                    StepGiven.FINAL if device == ON_HOST else StepGiven.OPEN
                )  # (no function is called on what may change)
                if any(self._given[p] < least for p in self._graph.predecessors[item]):
                    return True
                line.popleft()
                self._give(item, lane, out)
                continue
            if self._speeds and not item.still:
                item.foresee(self._speeds)
            worker = item.workers[device]
            if worker.rest[0] == worker.rest[1] or not worker.is_here:
                if worker.given and worker.shortens:
                    return False  # some of it may be returned to the deque
                line.popleft()
                continue
            if self._whole[device]:
                return True  # its time is not certain, and other devices may be free before
            is_ready = item.is_ready or self._is_open(item)
            if is_ready and len(worker.given) >= worker.in_flight:
                return False
            limit = None if is_ready else self._ready(item, *worker.rest)
            if not self._take(item, device, queue, limit, out):
                self._is_steady = False
                return limit is not None
        return False

    def _are_given(self, steps: Iterable[int]) -> bool:
        """Return whether steps have been given to devices."""
        return all(map(self._given.__getitem__, steps))

    def _is_open(self, launch: WorkStealing) -> bool:
        """Return whether all that any chunk of a launch depends on has been given by now."""
        launch.is_ready = self._are_given(launch.chunks.bytes(self._graph).before)
        return launch.is_ready

    def _ready(self, launch: WorkStealing, first: int, last: int) -> int:
        """Return the first chunk of a deque that cannot be given yet, or the deque's end."""
        steps, before = launch.chunks.steps, self._graph.predecessors
        return next((c for c in range(first, last) if not self._are_given(before[steps[c]])), last)

    def _give(self, step: int, lane: Lane, out: list[Assigned]) -> None:
        self._given[step] = StepGiven.FINAL
        device, seconds = lane[0], self._seconds[step]
        self._under_way[step] = device, None
        if device != ON_HOST:
            self._busy[device] += 1
            self._whole[device] += 1
            self._foreseen[device] += seconds
            if self._busy[device] == 1:
                self._since[device] = self._now
        out.append(Assigned(step, device, lane[1], isinstance(self._graph.nodes[step], HostTask), seconds))

    def _take(
        self, launch: WorkStealing, device: DeviceIndex, queue: int, limit: int | None, out: list[Assigned]
    ) -> bool:
        """Give a device a packet, of its own chunks before ``limit`` or of any. Return whether there was one."""
        if self.restarts.blocked[device] or (taken := launch.take(device, self._now, limit)) is None:
            return False
        self._hand(launch, taken, queue, out)
        return True

    def _hand(self, launch: WorkStealing, packet: Packet, queue: int, out: list[Assigned]) -> None:
        """Give a device a packet that it has taken."""
        device, first, last, _, again = packet
        self._busy[device] += 1
        if device in self._turn_of:
            queue = self._turn_of[device]
            self._turn_of[device] = (queue + 1) % self.queues[device]
        chunks, given = launch.chunks, self._given
        steps = chunks.steps[first:last]
        token, mark = steps[again], self.restarts.mark(launch, launch.workers[device], steps)
        for step in steps:
            given[step] = mark
        self._under_way[token] = device, launch
        out.append(named(Assigned, (token, device, queue, True, 0.0, steps, chunks.launch(first, last), chunks)))

    # prefetching

    @property
    def foresees(self) -> bool:
        """True if a device may be busy with something else than the only launch whose shares move."""
        return self._inputs is not None and (len(self.launches) > 1 or any(self._whole))

    def prefetched(
        self, devices: Collection[DeviceIndex], may_bring: Callable[[DeviceIndex, BufferKey], bool | None]
    ) -> list[tuple[DeviceIndex, list[BufferKey]]]:
        """Return the pieces to prefetch to each of some devices that are busy with something else. ``may_bring``:
        whether a piece may be moved to a device now (None: it is there)."""
        out: list[tuple[DeviceIndex, list[BufferKey]]] = []
        inputs, now = self._inputs, self._now
        assert inputs is not None
        launches = [launch for launch in self.launches.values() if launch.is_ready and not launch.is_over]
        for device in devices:
            if (
                device in self._away
                or not self._busy[device]
                or device in inputs.coming
                or self.restarts.blocked[device]
            ):
                continue  # (a device that is free takes chunks at once)
            ends = [one.end(w, now) for one in launches if (w := one.workers.get(device)) is not None and w.given]
            free = max(now, self._free(device), *ends)
            for launch in launches:
                found = launch.foreseen(device, free, now)
                keys = found and inputs.next(launch.chunks, device, found, now, partial(may_bring, device))
                if keys:
                    out.append((device, keys))
                    break
        return out

    def _free(self, device: DeviceIndex) -> float:
        """Return when a device is predicted to have ended the steps that are no packets."""
        return self._since[device] + self._foreseen[device]

    def arrived(self, device: DeviceIndex, now: float) -> list[Assigned]:
        """Return what a device takes, if it has waited for prefetching transfers, as all of these have ended."""
        assert self._inputs is not None
        self._inputs.arrived(device)
        return [] if self._busy[device] else self._go(now, [])

    # packets that end early

    def _wish(self, launch: WorkStealing, packet: Packet, thief: DeviceIndex | None) -> None:
        self._wishes.setdefault(launch.chunks.steps[packet.first], (launch, packet, thief))

    def shortening(self) -> list[Shorten]:
        """Return the packets that are to end early. Nothing that was given depends on them yet."""
        return [
            Shorten(token, packet.device, partial(launch.shorter, packet))
            for token, (launch, packet, _) in self._wishes.items()
        ]

    def shortened(self, token: int, found: EndsEarly | None, now: float) -> list[Assigned]:
        """Return what may be enqueued as a packet has ended early, or has not."""
        launch, packet, thief = self._wishes.pop(token)
        self._now, out = now, list[Assigned]()
        if token in self._under_way:  # else it has ended
            if found is not None and packet.first + found.nodes < packet.last:
                launch.shortened(packet, packet.first + found.nodes, found.begun, now)
            if thief is not None and (taker := launch.workers[thief]).is_idle:
                is_near = not self._take(launch, thief, taker.queue, None, out)
                launch.workers[packet.device].is_near = is_near
        return self._go(now, out)

    # devices that are late, leave and come

    @property
    def alarm(self) -> float | None:
        """The time from which a device counts as late with a share that stays, while another one is idle, or whole
        kernels may go to other devices."""
        first = self.restarts.at
        if self._watched and not (all(self._busy) and not any(self._wholes())):
            first = min([first, *[self.launches[node].overdue(factor) for node, factor in self._watched.items()]])
        return None if first == inf else first

    def late(self, now: float) -> list[Assigned]:
        """Return what may be enqueued as devices are late: others take from their shares from now on, also of launches
        to come, and whole kernels that would end earlier there."""
        late = {d: factor for node, factor in self._watched.items() for d in self.launches[node].late(now, factor)}
        for device in sorted(late):
            self._help(device, self._watched, now)
        if late and self._anywhere:
            self._now = now
            self._slowed(late)
        return self._go(now, [])

    def _slowed(self, late: Mapping[DeviceIndex, float]) -> None:
        """Move whole kernels, as devices take at least so many times as long as planned."""
        slower = {d: max(late.get(d, 0.0), self._slower(d)) for d in self._problem.machine.indices}
        known = replace(self._problem, estimates=Slowed(self._problem.estimates, slower))
        self._rescheduler, self._late = Rescheduler(known, self._extent, self._graph), {*late}
        self.even_out()

    def _slower(self, device: DeviceIndex) -> float:
        """Return how many times as long as planned a device has taken for packets of launches that are watched."""
        workers = [w for node in self._watched if (w := self.launches[node].workers.get(device)) is not None]
        return max([w.planned / w.rate for w in workers], default=1.0)

    def slow(self, device: DeviceIndex) -> None:
        """Let others take from the shares of a device that has become slower."""
        self._help(device, self.launches, 0.0)

    def _help(self, device: DeviceIndex, nodes: Iterable[int], now: float) -> None:
        """Let others take from what a device has of some launches."""
        for node in nodes:
            launch = self.launches[node]
            worker = launch.workers.get(device)
            if launch.still and worker is not None and (worker.given or worker.rest[0] < worker.rest[1]):
                launch.loosen()
                self._join(node, [d for d in self._able(launch) if d not in launch.workers], now)

    @property
    def is_paused(self) -> bool:
        """True if all devices have left, and the rest waits for one that returns."""
        return bool(self._returning) and len(self._away) == len(self._busy)

    def awaits(self, devices: Collection[DeviceIndex]) -> None:
        """Note devices that have left, or leave now, and are expected to return."""
        self._returning.update(devices)

    def leave(self, device: DeviceIndex, is_stopped: bool = False) -> None:
        """Give a device nothing more that another one can run. ``is_stopped``: no command is in flight."""
        self._away.add(device)
        for node, launch in self.launches.items():
            if not launch.is_over and (able := self._able(launch)):
                self._join(node, [d for d in able if d not in launch.workers or not launch.workers[d].is_here], 0.0)
                launch.leave(device)
                worker = launch.workers.get(device)
                for packet, _, _ in worker.given if worker is not None and worker.shortens else ():
                    if not packet.again:
                        self._wish(launch, packet, None)
        was = self._in_lines()
        left = [step for step, at in was.items() if at in self._away]
        self._place(was, self._rescheduler.chosen(left, was, self._load(was, self._ahead()), self._away, is_stopped))

    def needs(self, devices: Collection[DeviceIndex]) -> list[int]:
        """Return the steps that only these devices can run."""
        found = [step for step, device in self._in_lines().items() if device in devices]
        for launch in self.launches.values():
            if launch.left and not self._able(launch):
                found += launch.chunks.steps
        return found

    def come(self, device: DeviceIndex, now: float) -> None:
        """Let a device take part from now on: in launches whose shares may move, others if all would end earlier."""
        self._away.discard(device)
        self._returning.discard(device)
        for node, launch in self.launches.items():
            if not launch.is_over and device in self._able(launch):
                launch.loosen()
                self._join(node, [device], now)
        self.even_out()

    def even_out(self) -> None:
        """Move whole kernels and shares that cannot be divided to other devices where all would end earlier."""
        was, busy = self._in_lines(), self._ahead()
        if was and self._rescheduler.until(was, was, busy, self._away) + REPLANNED < max(self._load(was, busy)):
            self._place(was, self._rescheduler.chosen(was, was, busy, self._away))

    def _ahead(self) -> list[float]:
        """Return, by device, the seconds of what it was given, and of its shares that may move."""
        found = [max(0.0, self._free(d) - self._now) for d in self._problem.machine.indices]
        for launch in self.launches.values():
            for w in launch.workers.values():
                found[w.device] += launch.end(w, self._now) - self._now
        return found

    def _able(self, launch: WorkStealing) -> list[DeviceIndex]:
        """Return the devices that can take chunks of a launch, without those that have left."""
        return self._rescheduler.able(launch.chunks.steps[0], launch.chunks.deques[0].device, self._away)

    def _join(self, node: int, devices: Collection[DeviceIndex], now: float) -> None:
        launch = self.launches[node]
        for device in devices:
            launch.come(device, self._estimates.terms(node, device), now)

    def _wholes(self) -> Iterator[tuple[int, DeviceIndex]]:
        """Yield the steps in lines that are no chunks, with their devices."""
        for (device, _), line in self._lines.items():
            yield from [(step, device) for step in line if isinstance(step, int)] if device != ON_HOST else ()

    def _in_lines(self) -> dict[int, DeviceIndex]:
        """Return the devices of the steps in lines that are no chunks, in the plan's order."""
        return dict(sorted(self._wholes(), key=lambda item: self._position[item[0]]))

    def _load(self, was: Mapping[int, DeviceIndex], ahead: Sequence[float]) -> list[float]:
        """Return, by device, the seconds of the steps in its lines, and those of what it has before (``ahead``)."""
        busy = list(ahead)
        for step, device in was.items():
            busy[device] += self._rescheduler.seconds(step, device)
        return busy

    def _place(self, was: Mapping[int, DeviceIndex], chosen: Mapping[int, DeviceIndex]) -> None:
        """Move steps to the first queues of other devices, in the plan's order."""
        moved = {step for step, device in chosen.items() if was[step] != device}
        for lane, line in self._lines.items() if moved else ():
            self._lines[lane] = deque(item for item in line if item not in moved)
        for step in sorted(moved):
            device = chosen[step]
            insort(self._lines.setdefault((device, 0), deque()), step, key=partial(self._turn, device))

    def _turn(self, device: DeviceIndex, item: int | WorkStealing) -> int:
        """Return the position of an item in the plan's order."""
        if isinstance(item, int):
            return self._position[item]
        chunks = item.chunks
        first = next((s.first for s in chunks.deques if s.device == device), 0)
        return self._position[chunks.steps[first]]
