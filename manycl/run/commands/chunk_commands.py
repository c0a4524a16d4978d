"""Packets as commands: several chunks of a launch become one command. Pure."""

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
    """The state of a piece before a chunk writes it: its mask, the commands that made it valid there, its writers, and
    the transfers that still read it."""

    key: BufferKey
    mask: int | None
    made: dict[int, int] | None
    writers: list[int] | None
    read_on: list[int]


class PacketEmitter(Emitter):
    """An emitter of packets. What one of the chunks of a packet makes is made by the packet's command, which has the
    first chunk's token."""

    def __init__(self, subject: Subject, queues: tuple[int, ...], done: Set[int] = frozenset()) -> None:
        super().__init__(subject, queues)
        self._done = done
        for step in done:  # it ran before, and is complete
            self._lane[step] = (ON_HOST, 0)
        self._is_cut = False  # whether there are packets
        # by queue, the index of its last packet and the first chunk of its launch: a packet of the same launch that
        # follows directly need not come after it, as all that it depends on came before
        self._latest: dict[Lane, tuple[int, int]] = {}
        self._is_near = not (self.far or self._together or done)
        self._keeps = bool(subject.keeping.mortal)
        # launches, by their first chunk: those whose chunks' accesses are all entered in the books
        self._known: set[int] = set()
        self.alone: set[int] = set()
        """Launches, by their first chunk, of which no chunk depends on another step, so that packets only follow what
        their queues were given."""
        self._simple: set[int] = set()  # launches in both sets, where nothing is kept for lost devices
        self._shortens = [d.shortens for d in subject.problem.machine.devices]
        # by chunk of a packet that may be shortened, the state of what it writes as it is without that chunk
        self._without: dict[int, list[_Before]] = {}

    def take(self, token: int, lane: Lane, cells: tuple[int, ...], task: Launch, launch: Chunks) -> int:
        """Emit the command of a packet of chunks and return its index. The command is one launch with the first chunk's
        token, and its end is reported."""
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
        """Do the same, with all checks of what comes before and after."""
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
        # (undo copies put back all that the whole packet was to change)
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
        """Store the state of pieces as it is without some chunks. ``read_on``: the transfers that still read what they
        are to write."""
        masks, made, writers = self.masks, self._made, self._writers
        for cell in cells:
            keys = self._graph.nodes[cell].writes
            self._without[cell] = [
                _Before(k, masks.get(k), made.get(k), writers.get(k), read_on.get(k, [])) for k in keys
            ]

    # prefetching: uploads to devices before it is known whether they need the data

    def may_bring(self, heard: Set[int], device: DeviceIndex, key: BufferKey) -> bool:
        """Return whether a piece is in the host's memory and not in a device's, and no command has to be waited for.
        ``heard``: tokens of commands that are known to be complete."""
        mask, maker = self.masks.get(key, self._valid.get(key, 0)), self._made.get(key, {}).get(HOST)
        if not mask & HOST_BIT or mask >> self._memory[device] & 1 or key in self._together:
            return False
        return maker is None or maker in heard

    def bring_ahead(self, keys: Iterable[BufferKey], device: DeviceIndex) -> list[int]:
        """Emit uploads of pieces to a device, after all uploads for what it was given. Return their tokens, which are
        reported."""
        tokens, memory = [], self._memory[device]
        for key in keys:
            tokens.append(self._bring_up(key, memory, device, TransferQueue.AHEAD, is_told=True))
            self.reads_on(key, tokens[-1])
        return tokens

    def is_held(self, token: int) -> bool:
        """Return whether the command of a packet that may be shortened is still held back, so that no device has it."""
        command = self.command(token)
        return self._at[token] in self.held and isinstance(command, Run) and command.parts is not None

    def shorten(self, token: int, count: int, task: Launch) -> tuple[int, ...]:
        """Shorten a packet to the first ``count`` of its chunks, which are one ``task``. Return the other chunks, which
        are to be emitted again."""
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
                    if read_on or key in self._unawaited:  # (later transfers read the contents from before)
                        self._unawaited[key] = list(dict.fromkeys((*read_on, *self._unawaited.get(key, ()))))
            for cell in gone:
                self._moves_in_vain(cell)
        return gone

    def _moves_in_vain(self, cell: int) -> None:
        """Note that transfers to the host's memory may still run for a chunk that leaves a packet."""
        node = self._graph.nodes[cell]
        for key in dict.fromkeys((*node.reads, *node.writes)):
            token = self._transfer_to(key, HOST)
            if token is not None and token not in self._unawaited.get(key, ()):
                self.reads_on(key, token)

    def _know(self, launch: Chunks, memory: int) -> bool:
        """Enter the accesses of all chunks of a launch at once, in the one memory, if all that any of them depends on
        is emitted. Return whether that is so. What the chunks find is there by now; what they write will be, as later
        commands come after those of them that they depend on."""
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
        """Note that what chunks write is valid where their command writes it."""
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
        """Bring what chunks need to their device, in the order of its bytes, so that few transfers are needed."""
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
        """Note where chunks find what they need, in the one memory."""
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
        """Add the tokens that a command of a queue depends on: to ``after`` those that its device waits for, and to
        ``heard`` those of other devices, unless they are in ``told``."""
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
        """Return the token of the command that runs a node, or of the transfer itself."""
        at = self._at.get(token)
        if at is None:
            return token  # it ran before
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
