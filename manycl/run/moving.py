"""A run of a plan in which shares of launches move from device to device while they run. Pure.

What is no share that may move is given in the plan's order, as soon as all that it depends on is: each queue has a line
of it. A share is taken packet by packet (:mod:`manycl.run.stealing`), between what its queue has before and behind it,
and not before its device is through with that.
A device that has nothing to do, as its lines have come to an end, or wait for what others have not begun, steals.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from manycl.changed import changed
from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.assign import Assigned
from manycl.run.backend import Lane, Run
from manycl.run.coherence import Directory, places
from manycl.run.dynamic import Dynamic
from manycl.run.emit_copies import Subject
from manycl.run.emit_packets import PacketEmitter
from manycl.run.stealing import Packet, Stealing, Terms, nothing_moves
from manycl.run.steps import Cells, Lowered, Stock
from manycl.trace import DecisionEvent

DECIDING = 20e-6
"""Seconds that the engine takes to decide and enqueue a packet."""


class _Moved:
    """A launch whose shares may move. ``is_ready``: whether all that it depends on has been given to devices;
    ``thieves``: devices that have stolen."""

    def __init__(self, node: int, cells: Cells, stealing: Stealing) -> None:
        self.node, self.cells, self.stealing = node, cells, stealing
        self.is_ready = False
        self.thieves: set[DeviceIndex] = set()


class Share(NamedTuple):
    """The work-groups of a launch that a device was to run, and those that it has run."""

    device: DeviceIndex
    groups: int
    ran: int


class Following:
    """Who follows a plan whose shares may move: an assigner. ``stolen``: the first packets of what devices took from
    other ones' shares."""

    def __init__(self, problem: Problem, lowered: Lowered, valid: Mapping[BufferKey, int]) -> None:
        assert lowered.plan is not None
        self._problem, self._graph, self._valid = problem, lowered.graph, valid
        self._in_turn = frozenset(lowered.plan.in_turn)
        self._memory = [d.memory for d in problem.machine.devices]
        self.decisions: list[DecisionEvent] = []
        self.stolen: list[Packet] = []
        self._ran = Counter[tuple[int, DeviceIndex]]()  # work-groups, by node and device
        self._seconds = {a.node: a.end - a.start for a in lowered.plan.assignments}
        self._moved = [_Moved(n, c, self._stealing(n, c)) for n, c in lowered.cells.items()]
        self._of = {step: moved for moved in self._moved for step in moved.cells.steps}
        self._given = bytearray(len(lowered.graph.nodes))
        self._busy = [0] * len(self._memory)  # steps that a device was given and that are not known to be complete
        self._whole = [0] * len(self._memory)  # those of them that are no packets
        self._lane: dict[int, Lane] = {}  # of steps that are given
        self._lines: dict[Lane, deque[int | _Moved]] = {}
        used = [0] * len(self._memory)
        for a in lowered.plan.assignments:
            line = self._lines.setdefault((a.device, a.queue), deque())
            moved = self._of.get(a.node)
            if moved is None:
                line.append(a.node)
            elif not line or line[-1] is not moved:
                line.append(moved)
            if a.device != ON_HOST:
                used[a.device] = max(used[a.device], a.queue + 1)
        self.queues = tuple(used)

    def shares(self) -> Iterator[tuple[int, Share]]:
        """Of each launch (node), its shares in the order of their work-groups."""
        for moved in self._moved:
            for device, _, first, last in moved.cells.stocks:
                planned = sum(moved.cells.groups[first:last])
                yield moved.node, Share(device, planned, self._ran[moved.node, device])

    def _stealing(self, node: int, cells: Cells) -> Stealing:
        problem, total = self._problem, sum(cells.groups)
        terms = {}
        for stock in cells.stocks:
            overhead = problem.machine.devices[stock.device].launch_overhead
            each = self._planned_group(cells, stock)
            if not each:  # asking the models anew takes longer than all else that is done before a run
                each = (problem.range_seconds(node, stock.device, total) - overhead) / total
            terms[stock.device] = Terms(max(each, 1e-9 / total), overhead + DECIDING)

        def moving(device: DeviceIndex, first: int, last: int) -> float:
            return self._moving(cells.steps[first:last], device)

        stocks = {s.device: (s.first, s.last) for s in cells.stocks}
        cost = moving if problem.machine.memories > 1 else nothing_moves
        return Stealing(cells.groups, stocks, terms, cost, in_turn=node in self._in_turn)

    def _planned_group(self, cells: Cells, stock: Stock) -> float:
        """Seconds of a work-group, as the plan has them for a device's share (0: it has none)."""
        seconds = sum(self._seconds[step] for step in cells.steps[stock.first : stock.last])
        return seconds / sum(cells.groups[stock.first : stock.last])

    def _moving(self, steps: tuple[int, ...], device: DeviceIndex) -> float:
        """Seconds in which what some cells read comes to a device."""
        memory, missing = self._memory[device], dict[int, int]()
        nodes, buffers = self._graph.nodes, self._graph.buffers
        for key in {key for step in steps for key in nodes[step].reads}:
            mask = self._valid.get(key, 0)
            if mask and not mask >> memory & 1:
                source = min(places(mask))
                missing[source] = missing.get(source, 0) + buffers[key].nbytes
        return sum(self._problem.estimates.transfer(nbytes, source, memory) for source, nbytes in missing.items())

    # the assigner

    def start(self, now: float) -> list[Assigned]:
        return self._go(now)

    def completed(self, nodes: list[int], now: float, valid: Mapping[BufferKey, int]) -> list[Assigned]:
        self._valid = valid
        for node in nodes:
            lane = self._lane.pop(node, None)
            if lane is None:
                continue  # a cell, of which the last of its packet tells
            if lane[0] != ON_HOST:
                self._busy[lane[0]] -= 1
                self._whole[lane[0]] -= node not in self._of
            if node in self._of:
                self._of[node].stealing.ended(lane[0], now)
        return self._go(now)

    def _go(self, now: float) -> list[Assigned]:
        out: list[Assigned] = []
        waiting, before = True, -1
        while waiting and len(out) > before:  # what one line is given may be what another one waits for
            waiting, before = False, len(out)
            for lane, line in self._lines.items():
                if line and self._advance(lane, line, now, out):
                    waiting = True
        for moved in self._moved:
            if moved.stealing.left and self._is_open(moved):
                self._steal(moved, now, out)
        return out

    def _steal(self, moved: _Moved, now: float, out: list[Assigned]) -> None:
        """Devices that have nothing to do take packets of a launch, and go on with what they have stolen of it."""
        for device, queue, _, _ in moved.cells.stocks:
            if not self._busy[device] or (device in moved.thieves and moved.stealing.has_own(device)):
                while self._take(moved, (device, queue), now, None, out):
                    pass

    def _advance(self, lane: Lane, line: deque[int | _Moved], now: float, out: list[Assigned]) -> bool:
        """Give a queue what may be given; whether it waits for what is not given yet."""
        while line:
            item = line[0]
            if isinstance(item, _Moved):
                if item.stealing.has_own(lane[0]):
                    if self._whole[lane[0]]:
                        return True  # nobody knows how long it takes, and others may be free before
                    limit = None if self._is_open(item) else self._ready(item, lane[0])
                    if not self._take(item, lane, now, limit, out):
                        return limit is not None
                else:
                    line.popleft()
            elif self._may_run(item):
                line.popleft()
                self._give(item, lane, out)
            else:
                return True
        return False

    def _may_run(self, step: int) -> bool:
        """Whether all that a step depends on has been given."""
        given = self._given
        return all(given[p] for p in self._graph.predecessors[step])

    def _is_open(self, moved: _Moved) -> bool:
        """Whether all that any cell of a launch depends on has been given."""
        if not moved.is_ready:
            moved.is_ready = all(self._may_run(step) for step in moved.cells.steps)
        return moved.is_ready

    def _ready(self, moved: _Moved, device: DeviceIndex) -> int:
        """The first cell of a device's stock that cannot be given yet, or the stock's end."""
        first, last = moved.stealing.stock(device)
        steps = moved.cells.steps
        return next((c for c in range(first, last) if not self._may_run(steps[c])), last)

    def _give(self, step: int, lane: Lane, out: list[Assigned]) -> None:
        self._given[step] = 1
        self._lane[step] = lane
        if lane[0] != ON_HOST:
            self._busy[lane[0]] += 1
            self._whole[lane[0]] += 1
        is_host = isinstance(self._graph.nodes[step], HostTask)
        out.append(Assigned(step, lane[0], lane[1], is_host, self._seconds[step]))

    def _take(self, moved: _Moved, lane: Lane, now: float, limit: int | None, out: list[Assigned]) -> bool:
        """Give a device a packet, of its own cells before ``limit`` or of anybody's; whether there was one."""
        device, queue = lane
        taken = moved.stealing.take(device, now, limit)
        if taken is None:
            return False
        cells = moved.cells.steps[taken.first : taken.last]
        for cell in cells:
            self._given[cell] = 1
        self._lane[cells[-1]] = lane
        self._busy[device] += 1
        self._ran[moved.node, device] += sum(moved.cells.groups[taken.first : taken.last])
        if taken.stolen is not None:
            self.stolen.append(taken)
            moved.thieves.add(device)
        task = moved.cells.launch(taken.first, taken.last)
        out.append(Assigned(cells[-1], device, queue, True, 0.0, cells, task))
        return True


class Moving(Dynamic):
    """The player of such a plan."""

    def __init__(self, subject: Subject, plan: Plan, following: Following, directory: Directory) -> None:
        self._followed, self._following = plan, following
        self._packets = PacketEmitter(subject, following.queues)
        super().__init__(subject, following, self._packets, directory)

    @staticmethod
    def following(subject: Subject, plan: Plan, directory: Directory) -> Moving:
        """Who plays a plan, of which some shares may move (``lowered.cells``)."""
        follows = Following(subject.problem, subject.lowered, directory.valid)
        return Moving(subject, plan, follows, directory)

    @property
    def stolen(self) -> Mapping[str, float]:
        total, elsewhere = Counter[str](), Counter[str]()
        for node, share in self._following.shares():
            launch = self.script.problem.graph.nodes[node]
            assert isinstance(launch, Launch)
            name = launch.kernel.name
            total[name] += share.groups
            elsewhere[name] += max(0, share.ran - share.groups)
        return {name: elsewhere[name] / groups for name, groups in total.items()}

    def settled(self, plan: Plan | None) -> Plan | None:
        if plan is None:
            return None
        begins, now = Counter[int](), dict[tuple[int, DeviceIndex], tuple[int, int]]()
        for node, share in self._following.shares():
            now[node, share.device] = begins[node], share.ran
            begins[node] += share.ran
        out: list[Assignment] = []
        for a in plan.assignments:
            first, groups = now.get((a.node, a.device), (a.first, a.groups))
            if groups or not a.is_range:
                end = a.start + (a.end - a.start) * (groups / a.groups if a.groups else 1.0)
                out.append(a._replace(first=first, groups=groups, end=end))
        return replace(plan, assignments=tuple(out), movable=(), in_turn=())

    def _emit(self, step: Assignment, assigned: Assigned, watched: bool) -> None:
        if assigned.task is not None:
            self._packets.take(step, assigned.cells, assigned.task)
        else:
            super()._emit(step, assigned, watched)

    def plan(self, name: str) -> Plan:
        return self._followed

    @property
    def ran(self) -> Lowered:
        """The steps, packets in the places of their last cells."""
        lowered = self.script.lowered
        nodes, steps = list(lowered.graph.nodes), list(lowered.steps)
        for command in self._emitter.commands:
            if isinstance(command, Run) and command.task is not None:
                first, last = (steps[c] for c in (command.cells[0], command.cells[-1]))
                groups = last.first + last.groups - first.first
                steps[command.token] = first._replace(groups=groups)
                nodes[command.token] = command.task
        return changed(lowered, graph=changed(lowered.graph, nodes=tuple(nodes)), steps=tuple(steps))
