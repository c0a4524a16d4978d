"""The share scheduler: it follows a plan in which shares of launches move from device to device during a run. Pure.

All that is not a share that may move is given in the plan's order, as soon as what it depends on has been given; each
queue has a line of the plan. A share is taken packet by packet (:mod:`manycl.run.stealing.work_stealing`), between what
its queue has before and after it, and the queue goes on only when its device has ended the share. A device steals when
it has nothing to do, as its lines have come to an end, or wait for what other devices have not begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from functools import partial
from typing import NamedTuple

from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.preemptible import at_a_time
from manycl.plan.problem import Problem
from manycl.plan.rescheduling import Rescheduler
from manycl.run.commands.backend import EndsEarly, Lane, Shorten
from manycl.run.engine.assign import Assigned
from manycl.run.lowering.steps import Chunks, Lowered
from manycl.run.stealing.device_estimates import DeviceEstimates
from manycl.run.stealing.prefetch import foreseen
from manycl.run.stealing.work_stealing import WorkStealing, nothing_moves, stocks_left
from manycl.run.stealing.worker import Packet
from manycl.trace import DecisionEvent
from manycl.utilities.changed import named

REPLANNED = 2e-3
"""The least seconds to be gained for which the rest is distributed anew when a device comes."""


class _Moved:
    """A launch whose shares may move. ``before``: the steps on which any of its chunks depends; ``is_ready``: whether
    all of these have been given to devices; ``lanes``: the queues of the devices that take part; ``thieves``: devices
    that have stolen."""

    def __init__(self, node: int, chunks: Chunks, stealing: WorkStealing, before: frozenset[int]) -> None:
        self.node, self.chunks, self.stealing, self.before = node, chunks, stealing, before
        self.lanes = {deque.device: (deque.device, deque.queue) for deque in chunks.deques}
        self.is_ready = False
        self.thieves: set[DeviceIndex] = set()


class _Wish(NamedTuple):
    """A request that a packet of a launch ends early, for another device (``thief``), or because its own one leaves."""

    moved: _Moved
    packet: Packet
    thief: DeviceIndex | None


class Share(NamedTuple):
    """The number of work-groups of a launch that a device was to run, and the number that it has run."""

    device: DeviceIndex
    groups: int
    ran: int


class ShareScheduler:
    """The assigner of a plan whose shares may move. ``stolen``: the first packets of what devices took from shares of
    other devices."""

    def __init__(
        self, problem: Problem, lowered: Lowered, valid: Mapping[BufferKey, int], done: Set[int] = frozenset()
    ) -> None:
        assert lowered.plan is not None
        self._problem, self._graph, self._valid, self._done = problem, lowered.graph, valid, done
        self._in_turn = frozenset(lowered.plan.in_turn)
        self._estimates, self._now = DeviceEstimates(problem, lowered), 0.0
        self._reassignment = Rescheduler(problem, lowered.extent, lowered.graph)
        self._away: set[DeviceIndex] = set()
        self._returning: set[DeviceIndex] = set()
        timetable = lowered.timetable
        self._seconds, self._position = timetable.seconds, timetable.position
        self._each, self._others = timetable.each, timetable.others
        self._memory = [d.memory for d in problem.machine.devices]
        self.decisions: list[DecisionEvent] = []
        self.stolen: list[Packet] = []
        self._moved = {
            n: _Moved(n, c, self._stealing(n, c), c.bytes(lowered.graph).before) for n, c in lowered.chunks.items()
        }
        for one in self._moved.values():
            # any device may take it over, also without a share of its own
            is_alone = one.node in self._in_turn or len(one.chunks.deques) == 1
            if is_alone and len(one.lanes) < len(self._memory):
                for device in self._others_of(one):
                    self._join(one, device, 0.0)
        self._given = bytearray(len(lowered.graph.nodes))
        for step in done:
            self._given[step] = 1
        self._busy = [0] * len(self._memory)  # by device, the number of given steps that are not known to be complete
        self._whole = [0] * len(self._memory)  # by device, the number of those that are no packets
        self._under_way: dict[int, tuple[Lane, _Moved | None]] = {}  # by given step, its queue, and a packet's launch
        self._wishes: dict[int, _Wish] = {}  # by token of the packet
        self._lines: dict[Lane, deque[int | _Moved]] = {}
        self._inputs = self._estimates.inputs
        self._foreseen = [0.0] * len(self._memory)  # by device, predicted seconds of its steps that are no packets
        self._since = [0.0] * len(self._memory)  # by device, the time from which these seconds count
        used = [0] * len(self._memory)
        for lane, line in timetable.lines.items():
            self._lines[lane] = deque(self._moved[-1 - item] if item < 0 else item for item in line if item not in done)
            if lane[0] != ON_HOST:
                used[lane[0]] = max(used[lane[0]], lane[1] + 1)
        # few work-groups do not fill a GPU: there short packets run beside each other
        devices = [d for d in problem.demanded if self._moved and problem.machine.devices[d].kind != "cpu"]
        self._turn_of = dict.fromkeys(devices, 0)
        for device in devices:
            used[device] = max(used[device], at_a_time(problem.machine.devices[device]))
        self.queues = tuple(max(1, count) for count in used)  # also of devices that come, or steal

    def _others_of(self, moved: _Moved) -> list[DeviceIndex]:
        """Return the devices without a share of a launch that may take part in it."""
        node, problem = moved.node, self._problem
        found = [d for n, d in self._others if n == node and d not in moved.lanes]
        if not found or problem.away:  # the models are slow to ask, and nothing has changed since
            able = [d for d in self._able(moved) if d not in moved.lanes]
            found = [d for d in able if problem.fits(node, d)]
        return found

    def settled_packets(self, node: int, device: DeviceIndex) -> float:
        """Return the groups of a launch's packets on which a device has settled; 0 where it has not."""
        moved = self._moved.get(node)
        return moved.stealing.settled(device) if moved is not None else 0.0

    def shares(self) -> Iterator[tuple[int, Share]]:
        """Yield each launch (node) with its shares, in the order of their work-groups."""
        for moved in self._moved.values():
            for device, _, first, last in moved.chunks.deques:
                planned = sum(moved.chunks.groups[first:last])
                yield moved.node, Share(device, planned, moved.stealing.ran(device))

    def _stealing(self, node: int, chunks: Chunks) -> WorkStealing:
        problem, total = self._problem, sum(chunks.groups)
        terms = {d: self._estimates.terms(node, d, total, seconds) for d, seconds in self._each[node].items()}

        def moving(device: DeviceIndex, first: int, last: int) -> float:
            return self._estimates.moving(chunks.steps[first:last], device, self._valid, self._now)

        deques, others = stocks_left(chunks, self._done)
        ran = sum(1 for step in chunks.steps if step in self._done)
        cost = moving if problem.machine.memories > 1 else nothing_moves
        in_turn = node in self._in_turn
        return WorkStealing(chunks.groups, deques, terms, cost, others=others, ran=ran, in_turn=in_turn)

    # the assigner

    def start(self, now: float) -> list[Assigned]:
        return self._go(now)

    def completed(self, nodes: list[int], now: float, valid: Mapping[BufferKey, int]) -> list[Assigned]:
        self._valid, self._now = valid, now
        for node in nodes:
            (device, _), moved = self._under_way.pop(node)  # a packet has the token of its first chunk
            if device == ON_HOST:
                continue
            self._busy[device] -= 1
            if moved is None:
                self._whole[device] -= 1
                self._foreseen[device] -= self._seconds[node]
                self._since[device] = now
            else:
                packet = moved.stealing.ended(device, now)
                if device in moved.stealing.shortening:
                    for chunk in moved.chunks.steps[packet.first : packet.last]:
                        self._given[chunk] = 1
        return self._go(now)

    def _go(self, now: float) -> list[Assigned]:
        self._now = now
        out: list[Assigned] = []
        if self._returning and self.is_paused:
            return out
        waiting, before = True, -1
        while waiting and len(out) > before:  # a line may wait for what another one is given
            waiting, before = False, len(out)
            for lane, line in self._lines.items():
                if line and self._advance(lane, line, now, out):
                    waiting = True
        for moved in self._moved.values():
            is_wanted = moved.thieves or not all(self._busy)
            if is_wanted and moved.stealing.is_open and (moved.is_ready or self._is_open(moved)):
                self._steal(moved, now, out)
        return out

    def _steal(self, moved: _Moved, now: float, out: list[Assigned]) -> None:
        """Let devices that have nothing to do take packets of a launch, and go on with what they have stolen of it."""
        for device, queue in moved.lanes.values():
            if not self._busy[device] or (device in moved.thieves and moved.stealing.wants(device)):
                while self._take(moved, (device, queue), now, None, out):
                    pass
                if not self._busy[device] and (packet := moved.stealing.wanted(device, now)) is not None:
                    self._wish(moved, packet, device)

    def _advance(self, lane: Lane, line: deque[int | _Moved], now: float, out: list[Assigned]) -> bool:
        """Give a queue what may be given. Return whether it waits for a step that is not given yet."""
        while line:
            item = line[0]
            if isinstance(item, _Moved):
                wants = item.stealing.wants(lane[0])
                if wants is None:
                    if item.stealing.packets(lane[0]):
                        return False  # some of it may be returned to the deque
                    line.popleft()
                    continue
                if self._whole[lane[0]]:
                    return True  # its time is not certain, and other devices may be free before
                if item.is_ready and not wants:
                    return False
                limit = None if item.is_ready or self._is_open(item) else self._ready(item, lane[0])
                if not self._take(item, lane, now, limit, out):
                    return limit is not None
            elif self._may_run(item):
                line.popleft()
                self._give(item, lane, out)
            else:
                return True
        return False

    def _may_run(self, step: int) -> bool:
        """Return whether all that a step depends on has been given."""
        given = self._given
        return all(given[p] for p in self._graph.predecessors[step])

    def _is_open(self, moved: _Moved) -> bool:
        """Return whether all that any chunk of a launch depends on has been given."""
        if not moved.is_ready:
            given = self._given
            moved.is_ready = all(given[p] for p in moved.before)
        return moved.is_ready

    def _ready(self, moved: _Moved, device: DeviceIndex) -> int:
        """Return the first chunk of a device's deque that cannot be given yet, or the deque's end."""
        first, last = moved.stealing.deque(device)
        steps = moved.chunks.steps
        return next((c for c in range(first, last) if not self._may_run(steps[c])), last)

    def _give(self, step: int, lane: Lane, out: list[Assigned]) -> None:
        self._given[step] = 1
        self._under_way[step] = lane, None
        if lane[0] != ON_HOST:
            self._busy[lane[0]] += 1
            self._whole[lane[0]] += 1
            self._foreseen[lane[0]] += self._seconds[step]
            if self._busy[lane[0]] == 1:
                self._since[lane[0]] = self._now
        is_host = isinstance(self._graph.nodes[step], HostTask)
        out.append(Assigned(step, lane[0], lane[1], is_host, self._seconds[step]))

    def _take(self, moved: _Moved, lane: Lane, now: float, limit: int | None, out: list[Assigned]) -> bool:
        """Give a device a packet, of its own chunks before ``limit`` or of any. Return whether there was one."""
        device, queue = lane
        taken = moved.stealing.take(device, now, limit)
        if taken is None:
            return False
        self._busy[device] += 1
        if device in self._turn_of:
            queue = self._turn_of[device]
            self._turn_of[device] = (queue + 1) % self.queues[device]
        _, first, last, stolen = taken
        if stolen is not None:
            self.stolen.append(taken)
            moved.thieves.add(device)
        launch, given = moved.chunks, self._given
        chunks = launch.steps[first:last]
        token = chunks[0]
        if device not in moved.stealing.shortening:  # else its chunks may be given again
            for chunk in chunks:
                given[chunk] = 1
        self._under_way[token] = (device, queue), moved
        task = launch.launch(first, last)
        out.append(named(Assigned, (token, device, queue, True, 0.0, chunks, task, launch)))
        return True

    # prefetching

    def ahead(
        self, devices: Collection[DeviceIndex], may_bring: Callable[[DeviceIndex, BufferKey], bool]
    ) -> list[tuple[DeviceIndex, list[BufferKey]]]:
        """Return the pieces to prefetch to each of some devices that are busy with something else. ``may_bring``:
        whether a piece may be moved to a device now."""
        out: list[tuple[DeviceIndex, list[BufferKey]]] = []
        inputs, now = self._inputs, self._now
        launches = [moved for moved in self._moved.values() if moved.is_ready and not moved.stealing.is_over]
        if inputs is None or not launches:
            return out
        for device in devices:
            if device in self._away or not self._busy[device] or device in inputs.coming:
                continue  # (a device that is free takes chunks at once)
            mine = [moved for moved in launches if moved.stealing.has_packets(device)]
            if len(mine) == len(launches):
                continue
            ends = [moved.stealing.end(device, now) for moved in mine]
            free = max(now, self._since[device] + self._foreseen[device], *ends)
            for moved in launches:
                if moved in mine or device not in moved.lanes:
                    continue
                standings = moved.stealing.standings(now)
                found = foreseen(moved.chunks, standings, device, free, moved.node in self._in_turn)
                keys = found and inputs.next(moved.chunks, device, found, now, partial(may_bring, device))
                if keys:
                    out.append((device, keys))
                    break
        return out

    def arrived(self, device: DeviceIndex, now: float) -> list[Assigned]:
        """Return what a device takes, if it has waited for prefetching transfers, as all of these have ended."""
        assert self._inputs is not None
        self._inputs.arrived(device)
        return [] if self._busy[device] else self._go(now)

    # packets that end early

    def _wish(self, moved: _Moved, packet: Packet, thief: DeviceIndex | None) -> None:
        self._wishes.setdefault(moved.chunks.steps[packet.first], _Wish(moved, packet, thief))

    def shortening(self) -> list[Shorten]:
        """Return the packets that are to end early. Nothing that was given depends on them yet."""
        out = []
        for token, (moved, (device, first, _, _), _) in self._wishes.items():

            def launch(count: int, of: Chunks = moved.chunks, first: int = first) -> Launch:
                return of.launch(first, first + count)

            out.append(Shorten(token, device, launch))
        return out

    def shortened(self, token: int, found: EndsEarly | None, now: float) -> list[Assigned]:
        """Return what may be enqueued as a packet has ended early, or has not."""
        moved, packet, thief = self._wishes.pop(token)
        device, first, last, _ = packet
        end, begun = (last, 0.0) if found is None else (first + found.nodes, found.begun)
        if self._under_way.get(token) != (moved.lanes[device], moved):
            return self._go(now)  # it has ended
        if end < last:
            moved.thieves.add(device)  # its line may have gone on to what follows
        stealing = moved.stealing
        if stealing.shortened(packet, end, begun * stealing.groups(first, last), now, thief):
            assert thief is not None
            self.stolen.append(Packet(thief, end, last, device))
            moved.thieves.add(thief)
        return self._go(now)

    # devices that leave and come

    @property
    def is_paused(self) -> bool:
        """True if all devices have left, and the rest waits for one that returns."""
        return bool(self._returning) and len(self._away) == len(self._memory)

    def awaits(self, devices: Collection[DeviceIndex]) -> None:
        """Note devices that have left, or leave now, and are expected to return."""
        self._returning.update(devices)

    def leave(self, device: DeviceIndex, is_stopped: bool = False) -> None:
        """Give a device nothing more that another one can run. ``is_stopped``: no command is in flight."""
        self._away.add(device)
        for moved in self._moved.values():
            if not moved.stealing.is_over and self._are_others(moved):
                moved.stealing.leave(device)
                for packet in moved.stealing.packets(device):
                    self._wish(moved, packet, None)
        was = self._in_lines()
        left = [step for step, device in was.items() if device in self._away]
        self._place(self._reassignment.chosen(left, was, self._load(), self._away, is_stopped))

    def needs(self, devices: Collection[DeviceIndex]) -> list[int]:
        """Return the steps that only these devices can run."""
        found = [step for step, device in self._in_lines().items() if device in devices]
        for moved in self._moved.values():
            if moved.stealing.left and not self._able(moved):
                found += moved.chunks.steps
        return found

    def come(self, device: DeviceIndex, now: float) -> None:
        """Let a device take part from now on: in launches whose shares may move, and in other steps if all would end
        earlier."""
        self._away.discard(device)
        self._returning.discard(device)
        for moved in self._moved.values():
            if not moved.stealing.is_over and device in self._able(moved):
                self._join(moved, device, now)
        self.even_out()

    def even_out(self) -> None:
        """Move whole kernels and shares that cannot be divided to other devices where all of them would end earlier
        so."""
        was = self._in_lines()
        left = [step for step, device in was.items() if device != ON_HOST]
        if not left:
            return
        nothing = [0.0] * len(self._memory)
        if self._reassignment.until(left, was, nothing, self._away) + REPLANNED < max(self._load()):
            found = self._reassignment.chosen(left, was, nothing, self._away)
            self._place({step: at for step, at in found.items() if at != was[step]})

    def _able(self, moved: _Moved) -> list[DeviceIndex]:
        step = moved.chunks.steps[0]
        return self._reassignment.able(step, moved.chunks.deques[0].device, self._away)

    def _are_others(self, moved: _Moved) -> bool:
        """Return whether any device can take the chunks that another one leaves; all devices that can take part
        join."""
        able = self._able(moved)
        for device in able:
            if device not in moved.lanes:
                self._join(moved, device, 0.0)
        return bool(able)

    def _join(self, moved: _Moved, device: DeviceIndex, now: float) -> None:
        terms = self._estimates.terms(moved.node, device, sum(moved.chunks.groups))
        moved.stealing.come(device, terms, now)
        moved.lanes.setdefault(device, (device, 0))

    def _load(self) -> list[float]:
        """Return, by device, the seconds of the steps in its lines."""
        busy = [0.0] * len(self._memory)
        for step, device in self._in_lines().items():
            if device != ON_HOST:
                busy[device] += self._reassignment.seconds(step, device)
        return busy

    def _in_lines(self) -> dict[int, DeviceIndex]:
        """Return the devices of the steps in lines that are no chunks, in the plan's order."""
        found = [(step, lane[0]) for lane, line in self._lines.items() for step in line if isinstance(step, int)]
        return dict(sorted(found, key=lambda item: self._position[item[0]]))

    def _place(self, chosen: Mapping[int, DeviceIndex]) -> None:
        """Move steps to the first queues of other devices, in the plan's order."""
        for lane, line in self._lines.items():
            if any(type(item) is int and chosen.get(item, lane[0]) != lane[0] for item in line):
                self._lines[lane] = deque(i for i in line if type(i) is not int or chosen.get(i, lane[0]) == lane[0])
        there = self._in_lines()
        for step, device in chosen.items():
            if step not in there:
                lane = device, 0
                items = [*self._lines.get(lane, ()), step]
                self._lines[lane] = deque(sorted(items, key=lambda item: self._turn(item, device)))

    def _turn(self, item: int | _Moved, device: DeviceIndex) -> int:
        """Return the position of an item in the plan's order."""
        if isinstance(item, int):
            return self._position[item]
        chunks = item.chunks
        first = next((s.first for s in chunks.deques if s.device == device), 0)
        return self._position[chunks.steps[first]]
