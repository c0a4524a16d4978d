"""Replacement, for runs that do not fit into the devices' memories: room is made for what a step needs by evicting what
is used again last. Pure, like :mod:`manycl.run.commands.emit`.

A device allocates *stores*: whole buffers, and windows of them (:mod:`manycl.run.tiling.windows`);
:mod:`manycl.run.tiling.locations` says where their pieces may be valid. The room of an evicted store is free when the
commands that use it have ended; commands that use the room next wait for that. Commands wait only for earlier ones in
the command graph, so a run never deadlocks: of the commands that have not ended, the first waits for nothing. Commands
enter their queues as soon as they can, so evicted contents are transferred while other commands run, and results that
no further step touches are transferred as soon as they are written. Contents that the next step to touch them
overwrites (:mod:`manycl.run.data.lifetimes`) are lost with their store, also where a run ends before that step.

The victim is the store whose next use lies furthest ahead: Belady, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966; a plan tells the future. Where devices are chosen during the
run, the order of the graph stands for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from manycl.graph.graph import BufferKey, DeviceTask, HostTask
from manycl.machine import HOST, HOST_BIT, DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.run.commands.backend import Copy, Evict, Lane, TransferQueue
from manycl.run.commands.emit import Emitter
from manycl.run.commands.transfers import Dependences, Subject
from manycl.run.data.lifetimes import Lifetimes
from manycl.run.tiling.limits import stores, too_large
from manycl.run.tiling.locations import PieceLocations

Store = tuple[DeviceIndex, BufferKey]
"""A device and the key of what it allocates there: a whole buffer, or a window of one."""


class TightEmitter(Emitter):
    """An :class:`Emitter` with limited room. Masks are over locations
    (:class:`manycl.run.tiling.locations.PieceLocations`). At the end nothing is valid in windows alone."""

    def __init__(self, subject: Subject, queues: tuple[int, ...], plan: Plan | None) -> None:
        """Begin with all stores that the devices hold. ``plan``: the devices of steps (None: chosen during the run)."""
        super().__init__(subject, queues)
        lowered = subject.lowered
        assert lowered.room is not None
        self._room = lowered.room
        self._places = PieceLocations(subject.problem.machine, self._graph, self._room)
        self._everywhere = (1 << self._places.base) - 1
        self._mine = frozenset(lowered.own)
        self._lifetimes = Lifetimes(self._graph, self._is_emitted, self._mine, subject.overwritten)
        self._left = self._lifetimes.counts()  # steps still to be emitted that touch a piece
        # stores of tasks, by id; ranges of many launches have them in common
        self._stores: dict[int, frozenset[BufferKey]] = {}
        self._free = dict(self._room.limits)
        # by device: its stores, and for each the last eviction (index) before it was allocated
        self._holds: dict[DeviceIndex, dict[BufferKey, int | None]] = {d: {} for d in self._room.limits}
        self._evicted: dict[int, int] = {}  # index of the last eviction, by device
        # by store: commands that use it; the last one stands for all of a kernel queue, but transfers may overtake each
        # other
        self._users: dict[Store, dict[tuple[int, int], int]] = {}
        self._coming = {d: self._order(d, plan) for d in self._room.limits}
        self._latest: dict[int, int] = {}  # the step that was emitted last, by device
        for key in self._graph.buffers:
            self._mask(key)
        for device, held in self._holds.items():
            bit = 1 << self._memory[device]
            for key in self._graph.buffers:
                store = self._places.whole[key]
                if self._mask(key) & bit and store not in held:
                    held[store] = None
                    self._free[device] -= self._room.sizes[store]
        self._begun = {device: frozenset(held) for device, held in self._holds.items()}

    def _order(self, device: DeviceIndex, plan: Plan | None) -> dict[int, deque[tuple[int, int]]]:
        """Return the steps that use each store on a device, in their order: (position, step)."""
        steps = range(len(self._graph)) if plan is None else [a.node for a in plan.assignments if a.device == device]
        found: dict[int, deque[tuple[int, int]]] = {}
        for position, step in enumerate(steps):
            for store in self._needs_of(step):
                found.setdefault(store, deque()).append((position, step))
        return found

    def _needs_of(self, step: int) -> frozenset[BufferKey]:
        """Return the stores that a step works on."""
        task = self._graph.nodes[step]
        found = self._stores.get(id(task))
        if found is None:
            found = self._stores[id(task)] = frozenset(() if isinstance(task, HostTask) else stores(task))
        return found

    def _is_emitted(self, step: int) -> bool:
        return self._lane[step] is not None

    @property
    def begun(self) -> Mapping[DeviceIndex, frozenset[BufferKey]]:
        return self._begun

    def begin(self) -> None:
        """Transfer nothing in advance: it would need room in advance."""

    # steps

    def _run(self, step: Assignment, task: DeviceTask, watched: bool) -> None:
        node, device, lane = step.node, step.device, (step.device, step.queue)
        homes = self._places.homes(node, device)
        if device in self._holds:
            self._make_room(node, device)
        waits = Dependences(device)
        for key in dict.fromkeys((*task.reads, *task.writes)):
            there = self._mask(key) >> homes[key] & 1
            if key not in task.reads and (key in task.overwrites or (not there and self._overwritten(node, key))):
                continue
            self._fetch(key, homes[key], lane, waits)
        # a piece that was downloaded to make room has no other reader that the write would wait for
        for key in task.writes:
            token = self._transfer_to(key, HOST)
            if token is not None:
                self._comes_behind(token, waits)
        behind = [b for store in self._needs_of(node) if (b := self._use((device, store), lane, node)) is not None]
        self._emit(step, waits, watched, behind)
        self._latest[device] = node
        for key in task.writes:
            self._write(key, homes[key], node)
        self._send_results(homes)

    def _called(self, node: int, task: HostTask) -> None:
        for key in {*task.reads, *task.writes}:
            self._left[key] -= 1

    def _send_results(self, homes: Mapping[BufferKey, int]) -> None:
        """Download results that no further step touches from the windows of the last step that does."""
        for key, place in homes.items():
            self._left[key] -= 1
            mask = self._mask(key)
            if self._left[key] or key in self._mine:
                continue
            if mask >> place & 1 and not mask & self._everywhere:
                self._send(key, place, TransferQueue.EARLY)

    def finish(self) -> None:
        """Download what is valid in windows alone, after all steps."""
        for key in self._graph.buffers:
            mask = self._mask(key)
            if mask and not mask & self._everywhere and key not in self._mine:
                self._approach(key, HOST, TransferQueue.DOWNLOAD)

    def leaves(self) -> Mapping[BufferKey, int]:
        return {key: self._mask(key) & self._everywhere for key in self._graph.buffers}

    # transfers

    def _fetch(self, key: BufferKey, at: int, lane: Lane, waits: Dependences) -> None:
        """Make a piece valid at a location of a step's device."""
        device, _ = lane
        mask = self._mask(key)
        if not mask:
            return  # undefined contents: nothing to transfer
        if not mask >> at & 1:
            mine = (other for other in self._places.of(mask) if self._places.store(other, key)[0] == device)
            source = next(mine, None) if at != HOST else None
            if source is not None:
                self._copy(key, source, at, lane)
            else:
                if not mask & HOST_BIT:
                    self._approach(key, HOST, TransferQueue.DOWNLOAD)
                if at != HOST:
                    self._come(key, at, device)
        self._comes_after(key, at, waits)

    def _copy(self, key: BufferKey, source: int, target: int, lane: Lane) -> None:
        """Copy a piece from one store of a device to another, in a queue of its kernels."""
        (device, queue), index = lane, len(self.commands)
        one, other = self._places.store(source, key), self._places.store(target, key)
        before, others = self._makers(key, source, device)
        token = self._transfer(key, target, device, queue, None)
        behind = [b for store in (one, other) if (b := self._use(store, lane, token)) is not None]
        waits = self._in_queue(index, lane, before, others, behind)
        memory = self._memory[device]
        self.commands.append(Copy(token, key, device, queue, waits, True, memory, memory, one[1], other[1]))

    def _come(self, key: BufferKey, at: int, device: DeviceIndex) -> None:
        """Upload a piece from the host's memory to a store of a device."""
        store = self._places.store(at, key)
        made_way = self._use(store, None, 0)
        self._bring_up(key, at, device, TransferQueue.UPLOAD, () if made_way is None else (made_way,), store[1])

    def _approach(self, key: BufferKey, target: int, queue: int) -> int:
        """Download a piece to the host's memory, from where it was written if it is still there."""
        mask = self._mask(key)
        written = next((at for at, t in self._made.get(key, {}).items() if t < len(self._lane) and at != HOST), HOST)
        self._send(key, written if written != HOST and mask >> written & 1 else next(self._places.of(mask)), queue)
        return HOST

    def _send(self, key: BufferKey, at: int, queue: int) -> None:
        """Download a piece from a store of a device."""
        store = self._places.store(at, key)
        token = self._bring_down(key, at, store[0], queue, store[1])
        self._use(store, (token, queue), token)

    # room

    def _use(self, store: Store, lane: tuple[int, int] | None, token: int) -> int | None:
        """Note that a command uses a store; return the index of the eviction that must come before, if there is one.
        ``lane``: the kernel queue in which the last command stands for all; None: one that waits for this one."""
        device, key = store
        held = self._holds.get(device)
        if held is None:
            return None
        if lane is not None:
            self._users.setdefault(store, {})[lane] = token
        return held[key]

    def _make_room(self, node: int, device: DeviceIndex) -> None:
        """Allocate what a step needs on its device. Raises RunError for a step that does not fit alone."""
        held, sizes, needed = self._holds[device], self._room.sizes, self._needs_of(node)
        missing = [store for store in sorted(needed) if store not in held]
        if not missing:
            return
        self._check_fits(node, device, needed)
        wanted = sum(sizes[store] for store in missing)
        # stores of the last step can only be evicted when it has ended: the device would be idle meanwhile
        busy = self._needs_of(self._latest[device]) if device in self._latest else frozenset()
        sources = self._sources(node, device)
        victims = [store for store in held if store not in needed]
        victims.sort(key=lambda store: (store in sources, store in busy, -self._next_use(device, store)))
        going: list[BufferKey] = []
        room = self._free[device]
        for store in victims:
            if room >= wanted:
                break
            room += sizes[store]
            going.append(store)
        for store in going:
            self._send_away(device, store, going)
        for store in going:
            self._evict(device, store)
        for store in missing:
            held[store] = self._evicted.get(device)
            self._free[device] -= sizes[store]
        assert self._free[device] >= 0, "a step fits alone"

    def _sources(self, node: int, device: DeviceIndex) -> set[BufferKey]:
        """Return the stores of a device that alone have what a step needs."""
        found: set[BufferKey] = set()
        for key in self._graph.nodes[node].reads:
            mask = self._mask(key)
            if not mask & HOST_BIT:
                holders = (self._places.store(place, key) for place in self._places.of(mask))
                found.update(store for where, store in holders if where == device)
        return found

    def _next_use(self, device: DeviceIndex, store: BufferKey) -> float:
        """Return the position in a device's order of the next step that uses a store; infinite if there is none."""
        coming = self._coming[device].get(store)
        while coming and self._is_emitted(coming[0][1]):
            coming.popleft()
        return coming[0][0] if coming else inf

    def _check_fits(self, node: int, device: DeviceIndex, needed: frozenset[BufferKey]) -> None:
        """Raise RunError for a step whose stores do not fit at once; those that are there already are not evicted for
        it. Where there is a plan, this was checked before (``room``)."""
        where, sizes = self._problem.machine.devices[device], [self._room.sizes[store] for store in needed]
        if sum(sizes) > self._room.limits[device] or max(sizes) > where.max_allocation:
            raise too_large(self._graph.nodes[node], self._lowered.step(node).node, sum(sizes), where)

    def _send_away(self, device: DeviceIndex, store: BufferKey, going: Sequence[BufferKey]) -> None:
        """Download what only this store holds, and others that are evicted with it, if it may be needed."""
        at = self._places.at(device, store)
        for key in self._places.pieces(store):
            mask = self._mask(key)
            if not mask >> at & 1 or mask & HOST_BIT or not self._lifetimes.lives(key):
                continue
            others = (self._places.store(other, key) for other in self._places.of(mask))
            if all(where == device and other in going for where, other in others):
                self._send(key, at, TransferQueue.DOWNLOAD)

    def _evict(self, device: DeviceIndex, store: BufferKey) -> None:
        """Evict a store: its room is free when all commands that use it have ended."""
        at, index = self._places.at(device, store), len(self.commands)
        for key in self._places.pieces(store):
            if self._mask(key) >> at & 1:
                self.masks[key] = self._mask(key) & ~(1 << at)
                self._made.get(key, {}).pop(at, None)
        heard = set(self._users.pop((device, store), {}).values())
        before = self._evicted.get(device)
        behind = {before} if before is not None and before in self.held else set()
        if behind or heard:
            self._hold(index, behind, heard)
        self._evicted[device] = index
        del self._holds[device][store]
        self._free[device] += self._room.sizes[store]
        self.commands.append(Evict(device, store))
