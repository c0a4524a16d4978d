"""The books of a command graph that is being made: which command makes which bytes valid where, what has to wait for
what, and the transfers between memories that follow. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, DeviceIndex
from manycl.plan.plan import ON_HOST
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Command, Copy, Lane, TransferQueue
from manycl.run.lowering.steps import RANGE, Lowered
from manycl.run.recovery.checkpoints import NOTHING_KEPT, CheckpointPolicy
from manycl.run.recovery.lineage import Overwrites, nothing_known


class Subject(NamedTuple):
    """The input of compilation: the steps of a problem's graph, and where their buffers are valid before them (masks of
    memories). ``overwritten(step, key)``: whether a step writes all of a buffer, where ``Launch.overwrites`` need not
    say so. ``keeping``: which copies are kept in case a device is lost."""

    problem: Problem
    lowered: Lowered
    valid: Mapping[BufferKey, int]
    overwritten: Overwrites = nothing_known
    keeping: CheckpointPolicy = NOTHING_KEPT


DISTINCT = Reduction.NONE.words()
"""The method of ranges whose results are not combined."""


class EndedTransfers(NamedTuple):
    """Transfers that must have ended: those ``after`` which a command comes on its device, and those of other devices
    that must be ``heard`` of."""

    after: Collection[int] = ()
    heard: Collection[int] = ()


NOTHING = EndedTransfers()


class Dependences:
    """The dependences of a command of a ``device``: tokens of that device (``after``), and those of others that must be
    reported (``heard``). ``told``: the nodes of whose ends these tell."""

    __slots__ = ("after", "device", "heard", "told")

    def __init__(self, device: DeviceIndex) -> None:
        self.device = device
        self.after: list[int] = []
        self.told: set[int | None] = set()
        self.heard: set[int] = set()


class Copies:
    """The books of where buffers are, and the emitter of transfers. ``masks``: where each buffer is valid after the
    commands so far, as bits of places: memories, and where room is short also windows. ``made[key][place]``: the
    command whose end makes it so, where that is one of the run's. A command is *held* if it waits for a report, or
    comes after a held one: in its queue, or by what it waits for on its device. All others are enqueued at once."""

    def __init__(self, subject: Subject) -> None:
        machine, graph = subject.problem.machine, subject.lowered.graph
        self._problem, self._lowered, self._graph = subject.problem, subject.lowered, graph
        self._valid = subject.valid
        self.far = machine.memories > 1
        self._routes = subject.problem.routes
        self._memory = [d.memory for d in machine.devices]
        self._domains = [d.event_domain for d in machine.devices]
        # devices for whose uploads other ones may have to wait, which only hear of them
        self._awaited = {
            d
            for d, (memory, domain) in enumerate(zip(self._memory, self._domains, strict=True))
            if (self._routes.has_peers or (memory != HOST and self._memory.count(memory) > 1))
            and not (domain and self._domains.count(domain) == len(self._domains))
        }
        # pieces that ranges of a launch write at the same time: they have several writers
        self._together = graph.written_together
        self.commands: list[Command] = []
        self._at: dict[int, int] = {}  # the index of a command, by the token of a transfer or by node
        self._lane: list[Lane | None] = [None] * len(graph.nodes)
        self._transfers: list[Lane] = []  # by a transfer's token less the number of nodes, its queue
        self._tells: list[int | None] = []  # and the node, if any, that is complete when it is
        self.masks: dict[BufferKey, int] = {}
        self._needs: dict[BufferKey, int] = {}
        self._made: dict[BufferKey, dict[int, int]] = {}
        self._writers: dict[BufferKey, list[int]] = {}  # the last ones; several, of what is written together
        self._arrived: dict[tuple[BufferKey, int], int] = {}  # transfers for which joint writers wait
        self._unawaited: dict[BufferKey, list[int]] = {}  # transfers for which only writers need wait
        # packets that may still be dropped: transfers of what they write wait until these are reported
        self._droppable: set[int] = set()
        self._last: dict[Lane, int] = {}  # by kernel queue, or the host's, the index of its last command
        self._ordered: dict[Lane, set[int]] = {}  # by kernel queue, the tokens that its commands wait for already
        self.held: set[int] = set()  # indices of held commands
        # tuples: the garbage collector passes over those of numbers
        self.enqueued: dict[int, tuple[int, ...]] = {}  # by held command, indices that must be enqueued before
        self.heard: dict[int, tuple[int, ...]] = {}  # by held command, tokens that must be reported before

    # the order of commands

    def _in_queue(
        self,
        index: int,
        lane: Lane,
        after: Sequence[int],
        heard: set[int],
        given: Iterable[int] = (),
        by_events: bool = True,
    ) -> tuple[int, ...]:
        """Put a command after those that its queue was given before. Return which of ``after``, tokens on its own
        device, it has to wait for besides. ``given``: commands that must have been given before; ``by_events``: of
        ``heard``, it may wait without the host for those that it can wait for so. This decides whether it is held."""
        if heard and by_events:
            after = self._waited_for(lane[0], after, heard)
        held, last = self.held, self._last.get(lane)
        behind = held.intersection(given)
        if last is not None and last in held:
            behind.add(last)
        self._last[lane] = index
        new: tuple[int, ...] = ()
        if after:
            ordered = self._ordered.setdefault(lane, set())
            # staged transfers do not keep the order of their queue
            is_node, of = len(self._lane), self._lane_of
            new = tuple(dict.fromkeys([t for t in after if t not in ordered and (t >= is_node or of(t) != lane)]))
            ordered.update(new)
            behind.update(held.intersection([self._at[t] for t in after]))
        if behind or heard:
            self._hold(index, behind, heard)
        return new

    def _waited_for(self, device: DeviceIndex, after: Sequence[int], heard: set[int]) -> Sequence[int]:
        """Return what a command of a device waits for without the host: ``after``, and those of ``heard``, which are
        taken out there, that are of other devices whose commands it can wait for."""
        domain = self._domains[device] if device != ON_HOST else ""
        if not domain:
            return after
        others = [t for t in heard if self._lane_of(t)[0] not in (device, ON_HOST)]
        others = [t for t in others if self._domains[self._lane_of(t)[0]] == domain]
        heard.difference_update(others)
        return (*after, *sorted(others)) if others else after

    def _hold(self, index: int, behind: set[int], heard: set[int]) -> None:
        self.held.add(index)
        if behind:
            self.enqueued[index] = tuple(behind)
        if heard:
            self.heard[index] = tuple(heard)

    # where buffers are

    def _mask(self, key: BufferKey) -> int:
        mask = self.masks.get(key)
        if mask is None:
            mask = self._needs[key] = self._valid.get(key, 0)
        return mask

    def _lane_of(self, token: int) -> Lane:
        if token < len(self._lane):
            lane = self._lane[token]
            assert lane is not None
            return lane
        return self._transfers[token - len(self._lane)]

    def command(self, token: int) -> Command:
        """Return the command with a token."""
        return self.commands[self.index(token)]

    def index(self, token: int) -> int:
        """Return the index of the command with a token."""
        return self._at[token]

    @property
    def lanes(self) -> Sequence[Lane | None]:
        """The queues of nodes, as far as they are decided."""
        return self._lane

    def told_by(self, token: int) -> int | None:
        """Return the node that is known to be complete when a command is reported complete."""
        return token if token < len(self._lane) else self._tells[token - len(self._lane)]

    def _transfer(self, key: BufferKey, at: int, device: DeviceIndex, queue: int, tells: int | None) -> int:
        """Note that a transfer makes a buffer valid in one more place. Return its token."""
        token = self._token(device, queue, tells)
        self.masks[key] = self._mask(key) | 1 << at
        self._made.setdefault(key, {})[at] = token
        return token

    def _token(self, device: DeviceIndex, queue: int, tells: int | None) -> int:
        """Return the token of a transfer that comes next."""
        token = len(self._lane) + len(self._transfers)
        self._transfers.append((device, queue))
        self._tells.append(tells)
        self._at[token] = len(self.commands)
        return token

    def _transfer_to(self, key: BufferKey, at: int) -> int | None:
        """Return the transfer that makes a buffer valid in a place, if a transfer does."""
        token = self._made.get(key, {}).get(at)
        return token if token is not None and token >= len(self._lane) else None

    def _makers(self, key: BufferKey, at: int, device: DeviceIndex) -> tuple[list[int], set[int]]:
        """Return the commands that make a buffer valid in a place: those of a device, and those of other devices."""
        made = self._made.get(key, {}).get(at)
        if made is None:
            return [], set()
        if made < len(self._lane) and key in self._together:
            found = self._writers[key]
            mine = [t for t in found if self._lane_of(t)[0] == device]
            return mine, {t for t in found if t not in mine}
        return ([made], set()) if self._lane_of(made)[0] == device else ([], {made})

    def _comes_behind(self, token: int, waits: Dependences) -> None:
        """Make a command come after a transfer, or after one that another device of its memory makes."""
        if self._lane_of(token)[0] == waits.device:
            waits.after.append(token)
        else:
            waits.heard.add(token)

    def _comes_after(self, key: BufferKey, at: int, waits: Dependences) -> None:
        """Make a command, which finds a buffer in a place, come after the transfer that brings it there. (Nodes that
        write it there are the command's predecessors, or write it at the same time.)"""
        token = self._made.get(key, {}).get(at)
        if token is not None and token < len(self._lane):
            token = self._arrived.get((key, at)) if key in self._together else None
        if token is not None:
            self._comes_behind(token, waits)
            waits.told.add(self.told_by(token))

    def reads_on(self, key: BufferKey, token: int) -> None:
        """Note that a transfer reads a buffer, and that maybe no command waits for it."""
        self._unawaited.setdefault(key, []).append(token)

    def _comes_behind_unawaited(self, writes: Iterable[BufferKey], waits: Dependences) -> None:
        """Make a command come after the transfers that still read what it writes."""
        if not self._unawaited:
            return
        for key in writes:
            # (other commands may write it together with this one)
            found = self._unawaited.get(key, ()) if key in self._together else self._unawaited.pop(key, ())
            for token in found:
                self._comes_behind(token, waits)

    # copies

    def _bring_up(
        self,
        key: BufferKey,
        at: int,
        device: DeviceIndex,
        queue: int,
        behind: Collection[int] = (),
        store: BufferKey | None = None,
        source: int = HOST,
        is_told: bool = False,
    ) -> int:
        """Emit a transfer from the host's memory (or ``source``), once the buffer is there, to a place of a device.
        Return its token. ``behind``: commands that must have been enqueued before; ``is_told``: its end is reported."""
        index, maker = len(self.commands), self._made.get(key, {}).get(source)
        heard = {maker} if maker is not None else set()
        tells = self.told_by(maker) if maker is not None else None
        if maker is not None and maker < len(self._lane) and key in self._together:
            heard, tells = set(self._writers[key]), None
        token = self._transfer(key, at, device, queue, tells)
        # (what the host has may be read as an upload is enqueued)
        by_events = source >= self._routes.hosts and maker not in self._droppable
        after = self._copies_wait(index, (device, queue), (), heard, behind, by_events)
        is_told |= device in self._awaited
        target = self._memory[device]
        self.commands.append(Copy(token, key, device, queue, after, is_told, source, target, None, store))
        return token

    def _bring_down(
        self,
        key: BufferKey,
        at: int,
        device: DeviceIndex,
        queue: int,
        store: BufferKey | None = None,
        ends: EndedTransfers = NOTHING,
        target: int = HOST,
    ) -> int:
        """Emit a transfer by a device from a place, once the buffer is there and the transfers in ``ends`` have ended,
        to a host's memory. Return its token."""
        index, writers = len(self.commands), self._writers.get(key, [])
        before, others = self._makers(key, at, device)
        if not self._droppable.isdisjoint(before):
            before, others = [], others.union(before)
        waits, saves = tuple(dict.fromkeys((*before, *ends.after))), target == HOST and self._saves(key)
        token = self._transfer(key, target, device, queue, writers[0] if len(writers) == 1 else None)
        waits = self._copies_wait(index, (device, queue), waits, others.union(ends.heard))
        source = at if store is None else self._memory[device]
        self.commands.append(Copy(token, key, device, queue, waits, True, source, target, store, None, saves))
        return token

    def _saves(self, key: BufferKey) -> bool:
        """Return whether the host's contents of a buffer are copied beside before a transfer overwrites them."""
        return False

    def set_aside(self, key: BufferKey, device: DeviceIndex, queue: int, copy: int, ends: EndedTransfers) -> int:
        """Emit a transfer from a device's memory, once the buffer is there and the transfers in ``ends`` have ended, to
        a copy that the host keeps beside. Return its token."""
        index = len(self.commands)
        self._mask(key)  # note that it is needed there
        before, others = self._makers(key, self._memory[device], device)
        waits = tuple(dict.fromkeys((*before, *ends.after)))
        token = self._token(device, queue, None)
        waits = self._copies_wait(index, (device, queue), waits, others.union(ends.heard))
        self.commands.append(Copy(token, key, device, queue, waits, True, self._memory[device], copy))
        return token

    def _copies_wait(
        self,
        index: int,
        lane: Lane,
        after: Sequence[int],
        heard: set[int],
        behind: Collection[int] = (),
        by_events: bool = True,
    ) -> tuple[int, ...]:
        """Make a transfer wait for what it comes after: queues of transfers guarantee no order. Return the tokens of
        commands that it waits for without the host (none of other devices, unless ``by_events``)."""
        after = tuple(self._waited_for(lane[0], after, heard) if heard and by_events else after)
        if not isinstance(lane[1], TransferQueue):
            self._in_queue(index, lane, after, heard, behind, by_events)
            return after
        held = self.held.intersection((*behind, *[self._at[t] for t in after])) if behind or after else set()
        if held or heard:
            self._hold(index, held, heard)
        return after


class WriteBack:
    """The results of a plan's steps that go to the host's memory as soon as they are made
    (:mod:`manycl.plan.merging`)."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        plan, merging = lowered.plan, problem.merging
        self._lowered, self._every = lowered, merging == "each"
        self._in_turn = frozenset(plan.in_turn if plan is not None else ())
        is_never = merging == "last" or not (self._every or self._in_turn)
        self.is_off = is_never or lowered.room is not None or problem.machine.memories == 1 or not lowered.steps

    def keys(self, nodes: Iterable[int]) -> list[BufferKey]:
        """Return what some steps write that is to be sent: of parts of launches, what no other part writes at the same
        time, needs not be put together, and is not written again."""
        if self.is_off:
            return []
        steps, graph = self._lowered.steps, self._lowered.graph
        tasks, last, together = graph.nodes, graph.last_writers, graph.written_together
        early: list[BufferKey] = []
        mine = self._in_turn
        for node in nodes:
            step = steps[node]
            if step.role == RANGE and step.method == DISTINCT and (self._every or step.node in mine):
                early += [key for key in tasks[node].writes if last[key] == node and key not in together]
        return early
