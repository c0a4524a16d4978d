"""Several cells of a launch become one command. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from manycl.graph.graph import HostTask, Launch
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
        graph, device, lane = self._graph, step.device, (step.device, step.queue)
        memory, token = self._memory[device], step.node
        after: list[int] = []
        told: set[int | None] = set()
        heard: set[int] = set()
        for cell in cells:
            node = graph.nodes[cell]
            assert not isinstance(node, HostTask)
            is_due = not self.far or self._is_due(cell, lane)
            self._bring_all(cell, node, lane, is_due, after, told, heard)
        waited: set[int] = set()
        for p in {p for cell in cells for p in graph.predecessors[cell]}:
            at, by = self._lane[p], self._by.get(p, p)
            assert at is not None, "a cell is given before what it depends on"
            if at[0] != device:
                if by not in told:
                    heard.add(by)
            elif at != lane:
                waited.add(by)
        index = len(self.commands)
        waits = self._in_queue(index, lane, [*after, *sorted(waited)], heard)
        self.commands.append(Run(token, device, step.queue, waits, True, cells, task))
        self._newest[lane] = token
        for cell in cells:
            self._at[cell], self._lane[cell], self._by[cell] = index, lane, token
        for cell in cells:
            for key in graph.nodes[cell].writes:
                self._write(key, memory, cell, token)
        if self.far:
            self._turn[lane] = self._turn.get(lane, 0) + len(cells)
            for cell in cells:
                self._hand_over(cell, device, graph.nodes[cell].writes)

    def _in_queue(
        self, index: int, lane: Lane, after: Sequence[int], heard: set[int], given: Iterable[int] = ()
    ) -> tuple[int, ...]:
        by = self._by
        if by:
            after, heard = [by.get(t, t) for t in after], {by.get(t, t) for t in heard}
        if self._done:
            heard = heard - self._done
        return super()._in_queue(index, lane, after, heard, given)
