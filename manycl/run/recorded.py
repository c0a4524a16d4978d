"""What the commands of a run in little memory wait for, found from what they read and write, and where: how such a run
becomes a :class:`manycl.run.script.Script`. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from manycl.graph.graph import Launch
from manycl.machine import HOST, Machine
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem
from manycl.run.backend import HOST_DEVICE, Command, Copy, Download, Evict, HostCall, Run, Upload
from manycl.run.coherence import Directory
from manycl.run.holdings import Places
from manycl.run.script import Script, linked
from manycl.run.state import RunState
from manycl.run.steps import Lowered
from manycl.run.windows import stores

_FOUND = -1


class Beginning(NamedTuple):
    """Where buffers were when a run began: masks by buffer; by device whose memory is short, its stores."""

    masks: Mapping[int, int]
    held: Mapping[int, frozenset[int]]


def beginning(state: RunState, directory: Directory) -> Beginning:
    """Of a run that is to be recorded."""
    masks = {key: directory.valid.get(key, 0) for key in state.graph.buffers}
    return Beginning(masks, {device: frozenset(state.held(device)) for device in state.limited})


def recorded(
    problem: Problem,
    plan: Plan,
    lowered: Lowered,
    queues: Sequence[int],
    batches: Sequence[Sequence[Command]],
    begun: Beginning,
    after: Mapping[int, int],
    overwritten: Callable[[int, int], bool],
) -> Script | None:
    """The script of a run that has succeeded; None for one whose commands do not tell all: where ranges of a kernel
    write the same bytes. ``batches``: the commands that were given together. ``after``: the masks of buffers when it
    had ended. ``overwritten``: as in :class:`manycl.run.state.RunState`."""
    if lowered.graph.notes.get("together"):
        return None
    order = _Order(lowered, problem.machine, begun, overwritten)
    if not all(order.add(command) for batch in batches for command in batch):
        return None
    # only memories of their own make a beginning of large transfers, on which all else follows at once; what was held
    # back for other reasons need not be
    ahead = len(batches[0]) if problem.machine.memories > 1 else sum(len(batch) for batch in batches)
    found = order.script(problem, plan, tuple(queues), ahead)
    if lowered.room is None:
        return found
    # what makes way depends on all that is there
    return replace(found, needs=begun.masks, leaves={key: after.get(key, 0) for key in begun.masks})


class _Order:
    """What commands wait for, one after another. Places are as in :mod:`manycl.run.holdings`: memories, and windows."""

    def __init__(
        self, lowered: Lowered, machine: Machine, begun: Beginning, overwritten: Callable[[int, int], bool]
    ) -> None:
        self._lowered = lowered
        self._graph = lowered.graph
        self._memory = [d.memory for d in machine.devices]
        self._places = Places(machine, lowered.graph, lowered.room) if lowered.room is not None else None
        self._begun = begun
        self._overwritten = overwritten
        self._commands: list[Command] = []
        self._index: dict[int, int] = {}  # of a command, by its token
        self._place: dict[int, tuple[int, int]] = {}  # device and queue, by token
        self._masks: dict[int, int] = {}  # of buffers that were written or copied
        self._needs: dict[int, int] = {}
        self._made: dict[int, dict[int, int]] = {}  # by buffer and place: the token that has made it valid there
        self._writers: dict[int, int] = {}  # by buffer, the node that was the last to write it
        self._tells: dict[int, int] = {}  # by transfer: the node that is complete when its data come or have come
        self._last: dict[tuple[int, int], int] = {}  # the last command of a kernel queue, or of the host
        self._ordered: dict[tuple[int, int], set[int]] = {}  # what commands of a kernel queue wait for already
        self._enqueued: list[set[int]] = []  # commands (indices) that must have been enqueued, by command
        self._heard: list[set[int]] = []  # tokens that must have been heard of
        # where memory is short: what a device has allocated, and what made way for it (the last that had, an index);
        # who uses it; and what made way last
        self._held: dict[int, dict[int, int | None]] = {d: dict.fromkeys(found) for d, found in begun.held.items()}
        self._users: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
        self._evicted: dict[int, int] = {}

    def add(self, command: Command) -> bool:
        """Whether it is understood."""
        self._commands.append(command)
        self._enqueued.append(set())
        self._heard.append(set())
        if isinstance(command, Evict):
            self._evict(command)
            return True
        token = command.token
        self._index[token] = len(self._commands) - 1
        if isinstance(command, HostCall):
            self._place[token] = HOST_DEVICE, 0
            return self._call(command)
        self._place[token] = command.device, command.queue
        if isinstance(command, Run):
            return self._run(command)
        maker = self._transfer(command)
        if command.buffer in self._writers:
            self._tells[token] = self._writers[command.buffer]
        return maker is not None

    def _transfer(self, command: Upload | Download | Copy) -> int | None:
        """The token that has made what it moves, as ``_finds``."""
        token, key, device = command.token, command.buffer, command.device
        if isinstance(command, Upload):
            self._use(device, self._store(key, command.store), None)
            maker = self._finds(key, HOST, HOST_DEVICE)
            self._copied(key, self._at(device, command.store), token)
            return maker
        source = command.source if isinstance(command, Copy) else command.store
        maker = self._finds(key, self._at(device, source), device)
        after = [maker] if maker is not None and maker != _FOUND else []
        self._use(device, self._store(key, source), token)
        if isinstance(command, Copy):
            self._use(device, command.target, token)
            self._copied(key, self._at(device, command.target), token)
            self._commands[-1] = command._replace(after=self._in_queue(token, after), notify=True)
        else:
            self._copied(key, HOST, token)
            self._commands[-1] = command._replace(after=tuple(after))
        return maker

    def _run(self, command: Run) -> bool:
        node, device, place = command.token, command.device, self._place[command.token]
        task = self._graph.nodes[node]
        assert isinstance(task, Launch)
        homes = self._homes(node, device)
        after, told = [], set()
        for key in dict.fromkeys((*task.reads, *task.writes)):
            if key not in task.reads and (key in task.overwrites or self._overwritten(node, key)):
                continue
            maker = self._finds(key, homes[key], device)
            if maker is None:
                return False
            if maker >= len(self._graph.nodes):
                after.append(maker)
                told.add(self._tells.get(maker))
        told.update(self._tells.get(token) for token in self._heard[-1])
        for p in self._graph.predecessors[node]:
            if self._place[p][0] != device:
                if p not in told:
                    self._heard[-1].add(p)
            elif self._place[p] != place:
                after.append(p)
        for store in stores(task) if device in self._held else ():
            self._use(device, store, node)
        if self._places is not None:
            self._heard[-1].update(token for key in task.writes if (token := self._leaves(key)) is not None)
        self._commands[-1] = command._replace(after=self._in_queue(node, after))
        for key in task.writes:
            self._written(key, homes[key], node)
        return True

    def _in_queue(self, token: int, after: Sequence[int]) -> tuple[int, ...]:
        """A command of a kernel queue comes after those that the queue was given before; what of ``after`` it has to
        wait for besides."""
        place = self._place[token]
        ordered = self._ordered.setdefault(place, set())
        new = tuple(t for t in after if t not in ordered and self._place[t] != place)
        ordered.update(new)
        self._enqueued[-1].update(self._index[t] for t in after)
        self._behind(token)
        return new

    def _leaves(self, key: int) -> int | None:
        """What has sent a buffer away to make room, perhaps: that has no reader that a writer would wait for."""
        token = self._made.get(key, {}).get(HOST)
        return token if token is not None and token >= len(self._graph.nodes) else None

    def _evict(self, command: Evict) -> None:
        device, store = command
        index = len(self._commands) - 1
        self._heard[-1].update(self._users.pop((device, store), {}).values())
        if device in self._evicted:
            self._enqueued[-1].add(self._evicted[device])
        self._evicted[device] = index
        self._held[device].pop(store, None)

    def _use(self, device: int, store: int, token: int | None) -> None:
        """A command uses a store, which it may have to allocate: what made way for it has gone before."""
        held = self._held.get(device)
        if held is None:
            return
        if store not in held:
            held[store] = self._evicted.get(device)
        if (eviction := held[store]) is not None:
            self._enqueued[-1].add(eviction)
        if token is not None:
            place = self._place[token]
            # of a kernel queue the last one tells of all; transfers may overtake each other
            self._users.setdefault((device, store), {})[place if place[1] >= 0 else (token, place[1])] = token

    def _store(self, key: int, store: int | None) -> int:
        return store if store is not None else self._places.whole[key] if self._places is not None else key

    def _at(self, device: int, store: int | None) -> int:
        """The place that a store of a device is."""
        if store is None or self._places is None:
            return self._memory[device]
        return self._places.at(device, store)

    def _homes(self, node: int, device: int) -> Mapping[int, int]:
        """The places where a launch finds what it touches."""
        if self._places is not None:
            return self._places.homes(node, device)
        task = self._graph.nodes[node]
        return dict.fromkeys((*task.reads, *task.writes), self._memory[device])

    def _call(self, command: HostCall) -> bool:
        task = self._graph.nodes[command.token]
        found = [self._finds(key, HOST, HOST_DEVICE) for key in dict.fromkeys((*task.reads, *task.writes))]
        told = {self._tells.get(token) for token in self._heard[-1]}
        self._heard[-1].update(p for p in self._graph.predecessors[command.token] if p not in told)
        self._behind(command.token)  # what functions do beside arrays is done in their order
        for key in task.writes:
            self._written(key, HOST, command.token)
        return None not in found

    def _behind(self, token: int) -> None:
        """A command comes after those that its queue was given before."""
        place = self._place[token]
        if place in self._last:
            self._enqueued[-1].add(self._index[self._last[place]])
        self._last[place] = token

    def _finds(self, key: int, place: int, device: int) -> int | None:
        """A command of a device reads a buffer at a place: the token that has made it valid there, if the device can
        wait for that itself; ``_FOUND`` if it cannot, or if it was valid when the run began. None: it is not there."""
        token = self._made.get(key, {}).get(place)
        if token is None:
            if key in self._writers:
                return None
            self._needs.setdefault(key, self._begun.masks.get(key, 0))
            return _FOUND
        if device == HOST_DEVICE or self._place[token][0] != device:
            self._heard[-1].add(token)
            return _FOUND
        self._enqueued[-1].add(self._index[token])
        return token

    def _copied(self, key: int, place: int, token: int) -> None:
        self._masks[key] = self._masks.get(key, self._begun.masks.get(key, 0)) | 1 << place
        self._made.setdefault(key, {})[place] = token

    def _written(self, key: int, place: int, node: int) -> None:
        self._made[key] = {place: node}
        self._masks[key] = 1 << place
        self._writers[key] = node

    def script(self, problem: Problem, plan: Plan, queues: tuple[int, ...], ahead: int) -> Script:
        always = [c.token for c in self._commands if isinstance(c, (Download, Copy, HostCall))]
        told = {self._tells.get(token) for token in always}
        ends = [node for node in self._last.values() if node not in told]  # of queues
        hears: dict[int, list[int]] = {token: [] for token in (*always, *ends)}
        waits, frees, heard = linked(dict(enumerate(self._enqueued)), dict(enumerate(self._heard)))
        for token, waiting in heard.items():
            hears.setdefault(token, []).extend(waiting)
        commands = [c._replace(notify=c.token in hears) if isinstance(c, (Run, Upload)) else c for c in self._commands]
        return Script(
            problem=problem,
            plan=plan,
            lowered=self._lowered,
            queues=queues,
            commands=tuple(commands),
            ahead=ahead,
            waits=waits,
            frees=frees,
            hears=hears,
            needs=self._needs,
            leaves=self._masks,
            held=self._begun.held,
        )
