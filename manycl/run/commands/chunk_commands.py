"""Several cells of a launch become one command. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

from manycl.graph.graph import BufferKey, HostTask, Launch
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.run.commands.backend import Evict, Lane, Run, TransferQueue
from manycl.run.commands.emit import Emitter
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import HOST_BIT
from manycl.run.lowering.steps import Chunks
from manycl.utilities.changed import named

Found = TypeVar("Found")


class _Before(NamedTuple):
    """Of a piece, before a cell writes it: where it is, by which commands, who has written it, and which transfers
    still read it."""

    key: BufferKey
    mask: int | None
    made: dict[int, int] | None
    writers: list[int] | None
    read_on: list[int]


class PacketEmitter(Emitter):
    """What is made by one of some cells that run together is made by their command, which has the first one's token."""

    def __init__(self, subject: Subject, queues: tuple[int, ...], done: Set[int] = frozenset()) -> None:
        super().__init__(subject, queues)
        self._done = done
        for step in done:  # it has run before, and is known to be complete
            self._lane[step] = (ON_HOST, 0)
        self._is_cut = False  # there are packets
        # of a queue, the index of its last packet, and the first cell of its launch: if nothing comes between, the
        # next one need not come after it, and all that it is to come after came before
        self._latest: dict[Lane, tuple[int, int]] = {}
        self._is_near = not (self.far or self._together or done)
        self._keeps = bool(subject.keeping.mortal)
        # launches, by the first of their cells: of which it is known what all cells do, …
        self._known: set[int] = set()
        self.alone: set[int] = set()
        """… of which no cell comes after anything, so that packets only come behind what their queues were given, …"""
        self._simple: set[int] = set()  # … and those of which both is so, with nothing to be kept
        self._shortens = [d.shortens for d in subject.problem.machine.devices]
        # what is where without a cell of a packet that may be shortened: of what it writes masks, makers, writers, and
        # transfers that still read it
        self._without: dict[int, list[_Before]] = {}

    def take(self, token: int, lane: Lane, cells: tuple[int, ...], task: Launch, launch: Chunks) -> int:
        """Emit the command of some cells of a launch, the first of which is the token: it is one launch, and its end is
        reported. Which of the commands it is."""
        first = launch.steps[0]
        if first not in self._simple:
            return self._take(token, lane, cells, task, launch)
        commands = self.commands
        last, index = self._last.get(lane), len(commands)
        if self.held and last is not None and last in self.held:
            self._hold(index, {last}, set())
        beside = self._latest.get(lane) == (last, first)
        self._last[lane] = index
        self._latest[lane] = index, first
        device, queue = lane
        parts = launch.parts(launch.steps.index(token), len(cells)) if self._shortens[device] else None
        commands.append(named(Run, (token, device, queue, (), True, cells, task, beside, (), parts)))
        lanes, at = self._lane, self._at
        for cell in cells:
            lanes[cell], at[cell] = lane, index
        return index

    def _take(self, token: int, lane: Lane, cells: tuple[int, ...], task: Launch, launch: Chunks) -> int:
        """The same, whatever comes before and behind it."""
        device, first = lane[0], launch.steps[0]
        is_alone = not launch.bytes(self._graph).before
        near = self._is_near and (first in self._known or self._know(launch, self._memory[device]))
        if is_alone:
            self.alone.add(first)
            if near and not self._keeps:
                self._simple.add(first)
        beside = self._latest.get(lane) == (self._last.get(lane), first)
        after: list[int] = []
        told: set[int | None] = set()
        heard: set[int] = set()
        read_on = dict(self._unawaited)
        if self.far:
            self._bring_cells(cells, launch, lane, after, told, heard)
            for cell in cells:
                self._comes_behind_unawaited(self._graph.nodes[cell].writes, device, after, heard)
        elif not near:
            self._find_cells(cells)
        if before := {p for cell in cells for p in self._graph.predecessors[cell]}:
            self._comes_behind(before, lane, after, told, heard)
        index = len(self.commands)
        waits = self._in_queue(index, lane, after, heard)
        undo = self._keeper.undo(cells, device)
        # (what undo copies put back is what the whole packet was to change)
        ends_early = self._shortens[device] and not undo
        parts = launch.parts(launch.steps.index(token), len(cells)) if ends_early else None
        self.commands.append(Run(token, device, lane[1], waits, True, cells, task, beside and not undo, undo, parts))
        self._newest[lane], self._latest[lane] = token, (index, first)
        self._is_cut = True
        lanes, at = self._lane, self._at
        for cell in cells:
            lanes[cell], at[cell] = lane, index
        if near:
            return index
        if self.far and parts is not None:
            self._remember(cells, read_on)
        self._make(cells, device, token)
        if self.far:
            self._turn[lane] = self._turn.get(lane, 0) + len(cells)
            for cell in cells:
                self._hand_over(cell, device, self._graph.nodes[cell].writes)
            early = [key for cell in cells for key in self._early.keys(cell)]
            self._send_home(sorted(early, key=launch.order(self._graph).__getitem__), device)
            self._keeper.wrote(cells, lane)
        return index

    def _remember(self, cells: tuple[int, ...], read_on: Mapping[BufferKey, list[int]]) -> None:
        """What is where without some cells; ``read_on``: which transfers still read what they were to write."""
        masks, made, writers = self.masks, self._made, self._writers
        for cell in cells:
            keys = self._graph.nodes[cell].writes
            self._without[cell] = [
                _Before(k, masks.get(k), made.get(k), writers.get(k), read_on.get(k, [])) for k in keys
            ]

    # what comes to devices before it is known whether they need it

    def may_bring(self, heard: Set[int], device: DeviceIndex, key: BufferKey) -> bool:
        """Whether a piece is in the host's memory and not in a device's, and nothing has to be waited for; ``heard``:
        tokens of commands that are known to be complete."""
        mask, maker = self.masks.get(key, self._valid.get(key, 0)), self._made.get(key, {}).get(HOST)
        if not mask & HOST_BIT or mask >> self._memory[device] & 1 or key in self._together:
            return False
        return maker is None or maker in heard

    def bring_ahead(self, keys: Iterable[BufferKey], device: DeviceIndex) -> list[int]:
        """Pieces come from the host's memory to a device, behind all that comes for what it was given; the tokens,
        which are reported."""
        tokens, memory = [], self._memory[device]
        for key in keys:
            tokens.append(self._bring_up(key, memory, device, TransferQueue.AHEAD, is_told=True))
            self.reads_on(key, tokens[-1])
        return tokens

    def is_held(self, token: int) -> bool:
        """Whether the command of a packet that may be shortened waits for others, and no device has it."""
        command = self.command(token)
        return self._at[token] in self.held and isinstance(command, Run) and command.parts is not None

    def shorten(self, token: int, count: int, task: Launch) -> tuple[int, ...]:
        """A packet runs the first ``count`` of its cells alone, which are one ``task``: the others, which are to be
        emitted again."""
        index = self._at[token]
        command = self.commands[index]
        assert isinstance(command, Run)
        assert command.parts is not None
        parts = command.parts._replace(ends=command.parts.ends[:count])
        self.commands[index] = command._replace(cells=command.cells[:count], task=task, parts=parts)
        gone = command.cells[count:]
        for cell in gone:
            self._lane[cell] = None
            del self._at[cell]
        if self.far:
            lane = command.device, command.queue
            self._turn[lane] -= len(gone)
            for cell in gone:
                self._lines[lane].remove(cell)
                self._going.pop(cell, None)
                for key, mask, made, writers, read_on in self._without.pop(cell):
                    _put(self.masks, key, mask)
                    _put(self._made, key, made)
                    _put(self._writers, key, writers)
                    if read_on or key in self._unawaited:  # (what reads it since, reads what was there before)
                        self._unawaited[key] = list(dict.fromkeys((*read_on, *self._unawaited.get(key, ()))))
            for cell in gone:
                self._moves_in_vain(cell)
        return gone

    def _moves_in_vain(self, cell: int) -> None:
        """A cell leaves a packet: what it needs may still be on its way to the host's memory for that."""
        node = self._graph.nodes[cell]
        for key in dict.fromkeys((*node.reads, *node.writes)):
            token = self._transfer_to(key, HOST)
            if token is not None and token not in self._unawaited.get(key, ()):
                self.reads_on(key, token)

    def _know(self, launch: Chunks, memory: int) -> bool:
        """In the one memory, once all that any cell of a launch comes after is emitted: what its cells find is there by
        now, and what they write will be, as what is emitted from now on comes behind those of them that it has to do
        with. Whether that is so."""
        lanes, touched = self._lane, launch.bytes(self._graph)
        if any(lanes[p] is None for p in touched.before):
            return False
        self._known.add(launch.steps[0])
        masks, valid, needs = self.masks, self._valid, self._needs
        for key in touched.finds:
            if key not in masks:
                needs[key] = valid.get(key, 0)
        masks.update(dict.fromkeys(touched.writes, 1 << memory))
        return True

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
        self,
        cells: tuple[int, ...],
        launch: Chunks,
        lane: Lane,
        after: list[int],
        told: set[int | None],
        heard: set[int],
    ) -> None:
        """What cells need comes to their device: in the order of its bytes, so that few transfers bring it."""
        missing = dict[BufferKey, None]()
        for cell in cells:
            node = self._graph.nodes[cell]
            assert not isinstance(node, HostTask)
            missing.update(dict.fromkeys(self._missing(cell, node, self._memory[lane[0]])))
        if not missing:
            return
        is_due = all(self._is_due(cell, lane) for cell in cells)
        for key in sorted(missing, key=launch.order(self._graph).__getitem__):
            self._bring(key, lane, is_due, after, told, heard)

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
            by = self._by(p)
            if at[0] == device:
                waited.add(by)
            elif by not in told:
                heard.add(by)
        after += sorted(waited)

    def _by(self, token: int) -> int:
        """The token of the command that runs a node, or moves what it says."""
        at = self._at.get(token)
        if at is None:
            return token  # it has run before
        command = self.commands[at]
        assert not isinstance(command, Evict)
        return command.token

    def _in_queue(
        self, index: int, lane: Lane, after: Sequence[int], heard: set[int], given: Iterable[int] = ()
    ) -> tuple[int, ...]:
        if self._is_cut and (after or heard):
            after, heard = [self._by(t) for t in after], {self._by(t) for t in heard}
        if self._done and heard:
            heard = heard - self._done
        return super()._in_queue(index, lane, after, heard, given)


def _put(of: dict[BufferKey, Found], key: BufferKey, value: Found | None) -> None:
    if value is None:
        of.pop(key, None)
    else:
        of[key] = value
