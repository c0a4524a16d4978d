"""Packets as commands: several chunks of a launch become one command. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeVar

from manycl.graph.graph import BufferKey, Launch
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.run.commands.backend import Evict, Lane, Run, TransferQueue
from manycl.run.commands.emit import AS_NODES_HAVE_IT, Emitter
from manycl.run.commands.transfers import Dependences, Subject
from manycl.run.lowering.steps import Chunks
from manycl.utilities.changed import named

Found = TypeVar("Found")


class _Before(NamedTuple):
    """The state of a piece before a chunk (``chunk``) writes it: its mask, the commands that made it valid there, its
    writers, and the transfers that still read it."""

    chunk: int
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
        # by index of a packet's command, the first chunk of its launch: a packet of the same launch that follows
        # directly in its queue need not come after it, as all that it depends on came before
        self._packets: dict[int | None, int] = {}
        self._is_near = not (self.far or self._together or done)
        self._keeps = bool(subject.keeping.mortal)
        # by first chunk of launches whose chunks' accesses are all entered in the books, whether any comes after a step
        self._known: dict[int, bool] = {}
        self._shortens = [d.shortens for d in subject.problem.machine.devices]
        # by token of a packet that may be shortened or dropped, the state of what its chunks write without each of them
        self._without: dict[int, list[_Before]] = {}
        machine, may_restart = subject.problem.machine, not self._keeps and subject.lowered.room is None
        self.apart = frozenset(filter(machine.drops, machine.indices)) if may_restart else frozenset()
        """The devices whose packets may be begun anew on others."""
        self._awaited |= self.apart

    def take(
        self, token: int, device: DeviceIndex, queue: int, chunks: tuple[int, ...], task: Launch, launch: Chunks
    ) -> Collection[int]:
        lane, commands, first = (device, queue), self.commands, launch.steps[0]
        last, has_before = self._last.get(lane), self._known.get(first)
        if has_before is None and self._is_near:
            has_before = self._know(launch, self._memory[device])
        undo = self._keeper.undo(chunks, device) if self._keeps else ()
        parts = None
        is_first = token == chunks[0]  # else it is begun anew
        if self._shortens[device] and not undo and is_first:  # (undo copies put back all that a packet was to change)
            parts = launch.parts(launch.steps.index(token), len(chunks))
        may_end = bool(parts) or device in self.apart
        beside = self._packets.get(last) == first and not undo
        waits: tuple[int, ...]
        before: Collection[int]
        if has_before is False:
            index, waits, before = len(commands), (), ()
            self._last[lane] = index
            if self.held and last is not None and last in self.held:
                self._hold(index, {last}, set())
        else:
            before = {p for chunk in chunks for p in self._graph.predecessors[chunk]}
            order = launch.order(self._graph) if self.far else AS_NODES_HAVE_IT
            read_on = dict(self._unawaited) if self.far and may_end else {}
            near = has_before is not None
            found = Dependences(device) if near else self._find(chunks, before, lane, order)
            if before:
                self._comes_behind_nodes(before, lane, found)
            index = len(commands)
            waits = self._in_queue(index, lane, found.after, found.heard)
        commands.append(named(Run, (token, device, queue, waits, True, chunks, task, beside, undo, parts)))
        self._packets[index] = first
        lanes, at = self._lane, self._at
        for chunk in chunks:
            lanes[chunk] = lane
            at[chunk] = index
        if has_before is None:
            self._newest[lane] = token
            if self.far and may_end:
                self._remember(token, chunks, read_on)
                if device in self.apart:
                    self._droppable.add(token)
            self._change(chunks, lane, token, order)
        return before

    def _remember(self, token: int, chunks: tuple[int, ...], read_on: Mapping[BufferKey, list[int]]) -> None:
        """Store the state of pieces as it is without some chunks. ``read_on``: transfers that read what they write."""
        masks, made, writers, tasks = self.masks, self._made, self._writers, self._graph.nodes
        found = self._without[token] = []
        for chunk in chunks:
            for k in tasks[chunk].writes:
                state = chunk, k, masks.get(k), made.get(k), writers.get(k), read_on.get(k, [])
                found.append(named(_Before, state))

    # prefetching: uploads to devices before it is known whether they need the data

    def may_bring(self, is_heard: Callable[[int], bool], device: DeviceIndex, key: BufferKey) -> bool | None:
        """Return whether a piece is in the host's memory, and no command has to be waited for; None if it is in a
        device's. ``is_heard(token)``: whether a command is known to be complete."""
        mask = self.masks.get(key, self._valid.get(key, 0))
        if mask >> self._memory[device] & 1:
            return None
        maker = self._made.get(key, {}).get(HOST)
        if not mask & HOST_BIT or key in self._together:
            return False
        is_near = len(self._routes.between(HOST, self._memory[device])) == 1
        return is_near and (maker is None or is_heard(maker))

    def prefetch(self, keys: Iterable[BufferKey], device: DeviceIndex) -> list[int]:
        """Emit uploads of pieces to a device, after all uploads for what it was given. Return their tokens, which are
        reported."""
        tokens, memory = [], self._memory[device]
        for key in keys:
            tokens.append(self._bring_up(key, memory, device, TransferQueue.PREFETCH, is_told=True))
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
        self.commands[index] = command._replace(chunks=command.chunks[:count], task=task, parts=parts)
        gone = command.chunks[count:]
        for chunk in gone:
            self._lane[chunk] = None
            del self._at[chunk]
        if self.far:
            self._take_out(token, gone, (command.device, command.queue))
            for chunk in gone:
                self._moves_in_vain(chunk, HOST)
        return gone

    def _take_out(self, token: int, gone: Collection[int], lane: Lane) -> None:
        """Restore the state as it is without some chunks of a packet in a queue."""
        self._turn[lane] -= len(gone)
        for chunk in gone:
            self._lines[lane].remove(chunk)
            self._going.pop(chunk, None)
        left = set(gone)
        for chunk, key, mask, made, writers, read_on in self._without[token]:
            if chunk not in left:
                continue
            _put(self.masks, key, mask)
            _put(self._made, key, made)
            _put(self._writers, key, writers)
            if read_on:  # (later transfers read the contents from before)
                self._unawaited[key] = list(dict.fromkeys((*read_on, *self._unawaited.get(key, ()))))

    def _moves_in_vain(self, chunk: int, to: int) -> None:
        """Note that transfers to a memory may still run for a chunk that leaves a packet."""
        node = self._graph.nodes[chunk]
        for key in dict.fromkeys((*node.reads, *node.writes)):
            token = self._transfer_to(key, to)
            if token is not None and token not in self._unawaited.get(key, ()):
                self.reads_on(key, token)

    # packets that are dropped, and begun anew on other devices

    def may_drop(self, token: int) -> bool:
        """Return whether a packet that its device was given may be dropped: nothing but held transfers depends on what
        it writes, and what it writes only in part is valid in another memory."""
        command = self.command(token)
        if token not in self._droppable or not isinstance(command, Run):
            return False
        bit = 1 << self._memory[command.device]
        for chunk, key, mask, *_ in self._without[token]:
            task, found = self._graph.nodes[chunk], self._valid.get(key, 0) if mask is None else mask
            overwrites = key in task.overwrites or self._overwritten(chunk, key)
            if (found == bit and not overwrites) or key in self._together:
                return False
            moved = [t for t in self._made[key].values() if t != token]
            if any(self._at[t] not in self.held for t in moved):
                return False
        return bool(self._without[token])

    def drop(self, token: int) -> list[int]:
        """Drop a packet that its device was given: its chunks are to be emitted again. Until it has ended, nothing may
        be emitted that touches in its memory what it touches there. Return the transfers that will never be given."""
        index = self._at[token]
        command, tasks = self.commands[index], self._graph.nodes
        assert isinstance(command, Run)
        writes = tuple(key for chunk in command.chunks for key in tasks[chunk].writes)
        vain = [t for key in writes for t in self._made[key].values() if t != token]
        memory = self._memory[command.device]
        self.commands[index] = Evict(command.device, writes[0], writes)
        self._take_out(token, command.chunks, (command.device, command.queue))
        for key in writes:
            self.masks[key] = self._mask(key) & ~(1 << memory)
        for chunk in command.chunks:
            for to in (HOST, memory):  # (it may not have begun)
                self._moves_in_vain(chunk, to)
            self._lane[chunk] = None
            del self._at[chunk]
        for key in writes:
            self._made.get(key, {}).pop(memory, None)
        self.ended((token,))
        return vain

    def ended(self, tokens: Iterable[int]) -> None:
        """Note that packets have ended, so that they will not be dropped."""
        for token in tokens:
            self._droppable.discard(token)
            self._without.pop(token, None)

    def _know(self, launch: Chunks, memory: int) -> bool | None:
        """Enter the accesses of all chunks of a launch at once, in the one memory, if all that any of them depends on
        is emitted; else return None. Return whether any depends on something. What the chunks find is there by now;
        what they write will be, as later commands come after those of them that they depend on."""
        lanes, touched = self._lane, launch.bytes(self._graph)
        if any(lanes[p] is None for p in touched.before):
            return None
        self._known[launch.steps[0]] = has_before = bool(touched.before)
        masks, valid, needs = self.masks, self._valid, self._needs
        for key in touched.finds:
            if key not in masks:
                needs[key] = valid.get(key, 0)
        masks.update(dict.fromkeys(touched.writes, 1 << memory))
        return has_before

    def _comes_behind_nodes(self, steps: Collection[int], lane: Lane, waits: Dependences) -> None:
        """Make a command of a queue come after those of some nodes, unless what it waits for tells of their ends."""
        device, of = lane[0], self._lane
        waited: set[int] = set()
        for p in steps:
            at = of[p]
            assert at is not None, "a chunk is given before what it depends on"
            if at == lane:
                continue
            by = self._by(p)
            if at[0] == device:
                waited.add(by)
            elif by not in waits.told:
                waits.heard.add(by)
        waits.after += sorted(waited)

    def _by(self, token: int) -> int:
        """Return the token of the command that runs a node, or of the transfer itself."""
        at = self._at.get(token)
        if at is None:
            return token  # it ran before
        command = self.commands[at]
        assert not isinstance(command, Evict)
        return command.token

    def _in_queue(self, index: int, lane: Lane, after: Sequence[int], heard: set[int], *how: Any) -> tuple[int, ...]:
        if self._packets and (after or heard):  # there are packets
            count = len(self._lane)  # (tokens from that on are those of transfers)
            after = [t if t >= count else self._by(t) for t in after]
            heard = {t if t >= count else self._by(t) for t in heard}
        if self._done and heard:
            heard = heard - self._done
        return super()._in_queue(index, lane, after, heard, *how)


def _put(of: dict[BufferKey, Found], key: BufferKey, value: Found | None) -> None:
    if value is None:
        of.pop(key, None)
    else:
        of[key] = value
