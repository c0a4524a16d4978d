"""Several cells of a launch become one command. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from manycl.graph.graph import HostTask, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment
from manycl.run.backend import Lane, Run
from manycl.run.emit import Emitter
from manycl.run.emit_copies import Subject


class PacketEmitter(Emitter):
    """What is made by one of some cells that run together is made by their command, which has the token of the last."""

    def __init__(self, subject: Subject, queues: tuple[int, ...], done: Set[int] = frozenset()) -> None:
        super().__init__(subject, queues)
        self._done = done
        for step in done:  # it has run before, and is known to be complete
            self._lane[step] = (ON_HOST, 0)
        self._by: dict[int, int] = {}  # the tokens of cells' commands

    def take(self, step: Assignment, cells: tuple[int, ...], task: Launch) -> None:
        """Emit the command of some cells, the last of which is the step's node: it is one launch, and its end is
        reported."""
        lane, token = (step.device, step.queue), step.node
        after: list[int] = []
        told: set[int | None] = set()
        heard: set[int] = set()
        if self.far:
            self._bring_cells(cells, lane, after, told, heard)
            for cell in cells:
                self._keeper.before(self._graph.nodes[cell], step.device, after, heard)
        else:
            self._find_cells(cells)
        if before := {p for cell in cells for p in self._graph.predecessors[cell]}:
            self._comes_behind(before, lane, after, told, heard)
        index, beside = len(self.commands), self._goes_on(lane, cells)
        waits = self._in_queue(index, lane, after, heard)
        undo = self._keeper.undo(cells, step.device)
        beside = beside and not undo
        self.commands.append(Run(token, step.device, step.queue, waits, True, cells, task, beside, undo))
        self._newest[lane] = token
        at, lanes, by = self._at, self._lane, self._by
        for cell in cells:
            at[cell], lanes[cell], by[cell] = index, lane, token
        self._make(cells, step.device, token)
        if self.far:
            self._turn[lane] = self._turn.get(lane, 0) + len(cells)
            for cell in cells:
                self._hand_over(cell, step.device, self._graph.nodes[cell].writes)
            for cell in cells:
                self._send_home(cell, step.device)
            self._keeper.wrote(cells, lane)

    def _goes_on(self, lane: Lane, cells: tuple[int, ...]) -> bool:
        """Whether the last command of a queue runs other cells of the same launch. They need not wait for one another;
        all that they are to come after in the queue came before the first of them."""
        last = self._last.get(lane)
        before = self.commands[last] if last is not None else None
        if not isinstance(before, Run) or not before.cells:
            return False
        return self._lowered.step(before.cells[0]).node == self._lowered.step(cells[0]).node

    def _make(self, cells: tuple[int, ...], device: DeviceIndex, token: int) -> None:
        """What cells write is valid where their command has written it."""
        nodes, memory = self._graph.nodes, self._memory[device]
        if self.far or self._together:
            for cell in cells:
                for key in nodes[cell].writes:
                    self._write(key, memory, cell, token)
            return
        masks, made, writers = self.masks, self._made, self._writers
        mine, place, bit = [token], {memory: token}, 1 << memory  # nothing is added to these in one memory
        for cell in cells:
            for key in nodes[cell].writes:
                masks[key], made[key], writers[key] = bit, place, mine

    def _bring_cells(
        self, cells: tuple[int, ...], lane: Lane, after: list[int], told: set[int | None], heard: set[int]
    ) -> None:
        """What cells need comes to their device."""
        for cell in cells:
            node = self._graph.nodes[cell]
            assert not isinstance(node, HostTask)
            self._bring_all(cell, node, lane, self._is_due(cell, lane), after, told, heard)

    def _find_cells(self, cells: tuple[int, ...]) -> None:
        """Cells find what they need where it is, in the one memory."""
        nodes, masks, valid, needs = self._graph.nodes, self.masks, self._valid, self._needs
        for cell in cells:
            node = nodes[cell]
            assert not isinstance(node, HostTask)
            reads, writes, overwrites = node.reads, node.writes, node.overwrites
            for key in reads:
                if key not in masks:
                    needs[key] = valid.get(key, 0)
            if writes != overwrites:
                for key in writes:
                    if key not in masks and key not in overwrites and key not in reads:
                        needs[key] = valid.get(key, 0)

    def _comes_behind(
        self, steps: set[int], lane: Lane, after: list[int], told: set[int | None], heard: set[int]
    ) -> None:
        """Of what a command of a queue depends on, the tokens that its device waits for are added to ``after``, those
        of others to ``heard``, but of which it is ``told``."""
        device, of = lane[0], self._lane
        waited: set[int] = set()
        for p in steps:
            at = of[p]
            assert at is not None, "a cell is given before what it depends on"
            if at == lane:
                continue
            by = self._by.get(p, p)
            if at[0] == device:
                waited.add(by)
            elif by not in told:
                heard.add(by)
        after += sorted(waited)

    def _in_queue(
        self, index: int, lane: Lane, after: Sequence[int], heard: set[int], given: Iterable[int] = ()
    ) -> tuple[int, ...]:
        by = self._by
        if by and (after or heard):
            after, heard = [by.get(t, t) for t in after], {by.get(t, t) for t in heard}
        if self._done and heard:
            heard = heard - self._done
        return super()._in_queue(index, lane, after, heard, given)
