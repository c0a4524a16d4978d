"""Where the pieces of a run that does not fit are, and what of it devices hold: the bookkeeping of
:mod:`manycl.run.eviction`, which decides. Pure.

What a device allocates are *stores*: whole buffers, and windows of them (:mod:`manycl.run.windows`). Each window counts
as a memory of its own in the masks of the directory while the run lasts, so a piece of a buffer may be valid in the
host's memory, in a device's whole buffer and in any of its windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from math import inf

from manycl.graph.graph import Graph, Launch, Piece
from manycl.machine import HOST, Machine
from manycl.plan.plan import Plan
from manycl.run.coherence import HOST_BIT
from manycl.run.windows import Room, stores


class Places:
    """Where pieces may be valid. A place is a memory of the machine, or, from ``base`` on, a window: the bits of the
    directory's masks. ``whole[piece]``: the buffer that it is a piece of (or itself). Nothing here changes."""

    def __init__(self, machine: Machine, graph: Graph, room: Room) -> None:
        self.base = machine.memories
        self.whole = {k: b.whole if isinstance(b, Piece) else k for k, b in graph.buffers.items()}
        self._memory = [d.memory for d in machine.devices]
        self._owner = {d.memory: i for i, d in enumerate(machine.devices) if d.memory != HOST}
        self._place_of = {key: self.base + i for i, key in enumerate(room.windows)}
        self._window_at = list(room.windows.values())
        self._using = room.using
        self._nodes = graph.nodes
        self._homes: dict[tuple[int, int, int], dict[int, int]] = {}  # ranges of many launches have them in common
        self._pieces = self._pieces_of_stores(graph)

    def _pieces_of_stores(self, graph: Graph) -> dict[int, list[int]]:
        found: dict[int, dict[int, None]] = {}
        for piece, whole in self.whole.items():
            found.setdefault(whole, {})[piece] = None
        seen: set[tuple[int, int, int]] = set()
        for step, using in enumerate(self._using):
            task = graph.nodes[step]
            if using and (name := (id(task.reads), id(task.writes), id(using))) not in seen:
                seen.add(name)
                for key in (*task.reads, *task.writes):
                    window = using.get(self.whole[key])
                    if window is not None:
                        found.setdefault(window, {})[key] = None
        return {store: list(keys) for store, keys in found.items()}

    @property
    def buffers(self) -> Set[int]:
        """The run's buffers, as they are without being cut."""
        return self._pieces.keys() - self._place_of.keys()

    def homes(self, step: int, device: int) -> Mapping[int, int]:
        """The places where a step on a device finds the pieces that it touches."""
        task = self._nodes[step]
        using: Mapping[int, int] = self._using[step] if self._using else {}
        name = id(task.reads), id(task.writes), id(using) if using else device
        found = self._homes.get(name)
        if found is None:
            memory = self._memory[device]
            found = self._homes[name] = {
                key: self._place_of[window] if (window := using.get(self.whole[key])) is not None else memory
                for key in (*task.reads, *task.writes)
            }
        return found

    def at(self, device: int, store: int) -> int:
        """The place that a store of a device is."""
        return self._place_of.get(store, self._memory[device])

    def store(self, place: int, key: int) -> tuple[int, int]:
        """The device and the store that hold a piece at a place other than the host's memory."""
        if place < self.base:
            return self._owner[place], self.whole[key]
        window = self._window_at[place - self.base]
        return window.device, window.key

    def pieces(self, store: int) -> Sequence[int]:
        """The pieces that may be valid in a store."""
        return self._pieces.get(store, ())

    @staticmethod
    def of(mask: int) -> Iterator[int]:
        """The places of a mask other than the host's memory."""
        mask &= ~HOST_BIT
        while mask:
            bit = mask & -mask
            yield bit.bit_length() - 1
            mask ^= bit


class Holdings:
    """What devices with limited room hold: stores, which commands use them, and which steps will. ``free``: bytes by
    device; ``leaving``: the stores that are to go, by device, in the order of their choice (who decides changes it).

    Invariant (``validate``): what a device holds and what is free there are its limit.
    """

    def __init__(self, graph: Graph, plan: Plan | None, room: Room) -> None:
        """``plan``: who runs the steps (None: it is decided while the run goes on, and the graph's order stands for
        it)."""
        self._limits, self._sizes = room.limits, room.sizes
        self._nodes = graph.nodes
        self._needs: dict[int, frozenset[int]] = {}  # ranges of many launches have them in common
        self._held: dict[int, dict[int, int]] = {d: {} for d in room.limits}
        self.free = dict(room.limits)
        self.leaving: dict[int, dict[int, None]] = {d: {} for d in room.limits}
        self._coming = {d: self._order(d, plan) for d in room.limits}
        # by (device, store): commands that use it and have not completed
        self._users: dict[tuple[int, int], set[int]] = {}
        self._used: dict[int, set[tuple[int, int]]] = {}  # by command

    def _order(self, device: int, plan: Plan | None) -> dict[int, deque[tuple[int, int]]]:
        """Of each store, the steps that use it on a device, in their order: (position, step)."""
        steps = range(len(self._nodes)) if plan is None else [a.node for a in plan.assignments if a.device == device]
        found: dict[int, deque[tuple[int, int]]] = {}
        for position, step in enumerate(steps):
            for store in self.needs(step):
                found.setdefault(store, deque()).append((position, step))
        return found

    @property
    def devices(self) -> Collection[int]:
        """Those whose room is limited."""
        return self._held.keys()

    def held(self, device: int) -> Mapping[int, int]:
        """Bytes by store."""
        return self._held[device]

    def hold(self, device: int, store: int) -> None:
        """A device is about to allocate a store, if it does not hold it."""
        if store not in self._held[device]:
            nbytes = self._held[device][store] = self._sizes[store]
            self.free[device] -= nbytes

    def evict(self, device: int, store: int) -> None:
        """A store that was leaving is gone."""
        self.free[device] += self._held[device].pop(store)
        del self.leaving[device][store]

    def use(self, token: int, store: tuple[int, int]) -> None:
        """A command uses a store, (device, key), until it is complete."""
        if store[0] in self._held:
            self._users.setdefault(store, set()).add(token)
            self._used.setdefault(token, set()).add(store)

    def completed(self, token: int) -> None:
        """A command uses nothing any more."""
        for store in self._used.pop(token, ()):
            self._users[store].discard(token)

    def needs(self, step: int) -> frozenset[int]:
        """The stores that a step works on."""
        task = self._nodes[step]
        found = self._needs.get(id(task))
        if found is None:
            found = self._needs[id(task)] = frozenset(stores(task) if isinstance(task, Launch) else ())
        return found

    def uses(self, token: int) -> bool:
        """Whether a command that is not complete uses any store."""
        return token in self._used

    def used(self, token: int) -> Collection[tuple[int, int]]:
        """The stores, (device, key), that a command uses which is not complete."""
        return self._used.get(token, ())

    def users(self, store: tuple[int, int]) -> Collection[int]:
        """The commands that use a store, (device, key), and are not complete."""
        return self._users.get(store, ())

    def next_use(self, device: int, store: int, issued: Callable[[int], bool]) -> float:
        """The position in a device's order of the first step that uses a store and has not been ``issued``
        (what was, stays so); infinite if there is none."""
        coming = self._coming[device].get(store)
        while coming and issued(coming[0][1]):
            coming.popleft()
        return coming[0][0] if coming else inf

    def validate(self) -> None:
        """Assert the invariant."""
        for device, held in self._held.items():
            assert self.free[device] == self._limits[device] - sum(held.values()), "the count of free bytes is wrong"
            assert self.free[device] >= 0, f"device {device} holds more than it has room for"
            assert self.leaving[device].keys() <= held.keys(), "what is not there is leaving"
        for (device, store), tokens in self._users.items():
            assert not tokens or store in self._held[device], (
                f"{store} is gone from device {device}, but {tokens} use it"
            )
