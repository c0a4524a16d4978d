"""A back end that does everything in the worst legal order, and watches for races.

Commands start and end at random (seeded) as far as queues and wait lists allow; reports are held back and shuffled.
Buffers hold values instead of bytes: a launch's result is a value that depends on the launch and on every buffer it
touches, so one stale or early read changes the end of the run. A command that finds that what it read has changed
before it ended was in a race. A launch that may run beside the one before it does, and counts as complete after it.
Ranges of one launch that write elements of the same piece at the same time (``Graph.beside`` names these) leave a value
that depends on what was there before, and on which of them have written. Windows hold values of their own, which are
gone when they are evicted. What fails, and what is left of it, is said by ``Faults``. The clock counts steps.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass, replace
from math import ceil, inf

from manycl.graph.graph import Graph, HostTask, Piece
from manycl.machine import HOST, Machine
from manycl.plan.plan import ON_HOST
from manycl.run.commands.backend import (
    ASIDE,
    FIRST,
    Command,
    Copy,
    Done,
    EndsEarly,
    Evict,
    Failed,
    HostCall,
    Queued,
    Report,
    Run,
    Shorten,
    lane_of,
    nodes_of,
)
from manycl.run.tiling.limits import stores
from tests.run.chaos.chaos_parts import ChaosRecord, Faults
from tests.run.chaos.chaos_values import Interrupted, Left, Value, left_by, seen_by, together


@dataclass(slots=True)
class _Active:
    command: Queued
    seen: dict[int, Value]


class ChaosBackend:
    """``values[m][key]`` is what memory m holds. ``fail`` lists nodes that fail when they would end. ``room[d]``: bytes
    that all stores of device d may have together. ``happening``: what is called from which step on, while somebody
    waits."""

    def __init__(
        self,
        machine: Machine,
        seed: int,
        fail: Iterable[int] = (),
        room: Mapping[int, int] | None = None,
        faults: Faults | None = None,
        happening: Iterable[tuple[int, Callable[[], object]]] = (),
    ) -> None:
        self.machine = machine
        self.faults = faults or Faults()
        self._run = 0
        self._older: list[Report] = []  # reports of interrupted runs
        self._is_over = True
        self.most: dict[int, int] = {}  # bytes that the stores of a device had at most
        self._room = room or {}
        self.values: list[dict[int, Value]] = [{} for _ in range(machine.memories)]
        self._random = random.Random(seed)
        self._fail = set(fail)
        self._step = 0
        self._happening = sorted(happening, key=lambda h: h[0])
        self._woken = False
        self.shortened = 0  # launches that have ended early
        self.restored = 0  # buffers that became what was kept beside of them
        self.undefined: Callable[[int, int], bool] = lambda node, key: False  # before the node
        self.gone: set[int] = set()  # memories
        self.taking: dict[int, float] = {}  # seconds of each kernel, by device, where that is known
        self.repeatable: Callable[[int], bool] = lambda node: False
        self.judged: Callable[[Graph], Graph] = lambda graph: graph  # with what its nodes are known to overwrite

    def begin(self, graph: Graph, queues: Sequence[int], goes_on: bool = False) -> int:
        self.settle()
        self._run += 1
        self._is_over = False
        self._graph = graph = self.judged(graph)
        self._queues = queues
        self._lines: dict[tuple[int, int], deque[Queued]] = {}
        self._active: dict[tuple[int, int, int], _Active] = {}  # by device, queue and token, in their order
        self._early: dict[tuple[int, int], list[tuple[Queued, Report | None]]] = {}  # ended before those before them
        self._broken: set[tuple[int, int]] = set()  # queues in which something has failed
        self._silent: set[tuple[int, int]] = set()  # of these, those that are not heard of any more
        self._failed: set[int] = set()  # commands
        self._enqueued: set[int] = set()
        self._ended: set[int] = set()
        self._begun: set[int] = set()
        self._places: dict[int, tuple[int, int]] = {}  # of commands
        self._undo: dict[tuple[int, int], tuple[Run, dict[int, Value]]] = {}
        self._kept: dict[int, dict[int, Value]] = {m: {} for m in (FIRST, *ASIDE)}  # beside the host's own
        self._saved: set[int] = set()
        self._windows = graph.windows
        self._inside: dict[int, dict[int, Value]] = {}  # by window
        self._stores: dict[int, dict[int, int]] = {}  # by device: bytes by store
        self._sizes = {key: window.nbytes for key, window in self._windows.items()}
        for key, buffer in graph.buffers.items():
            self._sizes[_whole(graph, key)] = self._sizes.get(_whole(graph, key), 0) + buffer.nbytes
        for device in self._room:
            memory = self.machine.devices[device].memory
            for key in graph.buffers:
                if key in self.values[memory]:
                    self._allocate(device, _whole(graph, key))
        self._held: list[Report] = []
        self._paused: list[Report] = []
        self.record = ChaosRecord()
        return self._run

    def perform(self, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Evict):
                self._evict(command)
                continue
            if isinstance(command, Run):
                for store in self._stores_of(command):
                    self._allocate(command.device, store)
            if isinstance(command, Copy) and command.saves:
                assert command.buffer not in self._saved, "it is not what it was when the run began"
                self._saved.add(command.buffer)
                self._kept[FIRST][command.buffer] = self.values[HOST].get(command.buffer)
            if isinstance(command, Copy) and command.is_upload and command.target_store is not None:
                self._allocate(command.device, command.target_store)
            if isinstance(command, Copy) and command.is_upload and command.source <= len(self.machine.hosts):
                under_way = [a.command for a in self._active.values()]
                under_way += [c for line in self._lines.values() for c in line]
                coming = [c for c in under_way if isinstance(c, Copy) and c.target == command.source]
                assert command.buffer not in [c.buffer for c in coming], "what a driver may read now is to come"
            if isinstance(command, Run) or (isinstance(command, Copy) and command.source == command.target):
                assert 0 <= command.queue < self._queues[command.device], "a queue that was not announced"
            place = lane_of(command)
            assert self._enqueued.issuperset(getattr(command, "after", ())), f"{command} waits for what is to come"
            self._enqueued.add(command.token)
            self._places[command.token] = place
            if place not in self._silent:
                self._lines.setdefault(place, deque()).append(command)

    def _allocate(self, device: int, store: int) -> None:
        if device not in self._room:
            return
        held = self._stores.setdefault(device, {})
        held[store] = self._sizes[store]
        self.most[device] = max(self.most.get(device, 0), sum(held.values()))
        assert self.most[device] <= self._room[device], f"device {device} does not have room for {held}"

    def _evict(self, command: Evict) -> None:
        device, store, _ = command
        pending = [c for line in self._lines.values() for c in line] + [a.command for a in self._active.values()]
        pending += [c for early in self._early.values() for c, _ in early]
        for c in pending:
            assert not self._uses(c, device, store), f"{c} still uses what is evicted: {command}"
        del self._stores[device][store]
        self._inside.pop(store, None)
        if store not in self._windows:
            held = self.values[self.machine.devices[device].memory]
            for key in [k for k in held if k in self._graph.buffers and _whole(self._graph, k) == store]:
                del held[key]

    def _uses(self, command: Queued, device: int, store: int) -> bool:
        if isinstance(command, HostCall) or command.device != device:
            return False
        if isinstance(command, Run):
            return store in self._stores_of(command)
        return store in (command.source_store, command.target_store)

    def _stores_of(self, command: Run) -> set[int]:
        task = self._graph.nodes[command.token]
        assert not isinstance(task, HostTask)
        return stores(task)

    def _at(self, memory: int, store: int | None) -> dict[int, Value]:
        """What a store holds (None: what the memory does beside windows, or a copy beside the host's own)."""
        if store is not None and store in self._windows:
            return self._inside.setdefault(store, {})
        return self._kept[memory] if memory < HOST else self.values[memory]

    def took(self, token: int, device: int) -> float | None:
        return self.taking.get(device)

    def shorten(self, command: Shorten) -> EndsEarly | None:
        """It is anywhere."""
        if command.token not in self._places:
            return None
        place = self._places[command.token]
        active = self._active.get((*place, command.token))
        waiting = [c for c in self._lines.get(place, ()) if c.token == command.token]
        run = active.command if active is not None else waiting[0] if waiting else None
        if not isinstance(run, Run) or run.parts is None or self._random.random() < 0.1:
            return None
        count = self._random.randint(1, len(run.chunks)) if active is not None else 1
        short = run._replace(chunks=run.chunks[:count], task=command.launch(count))
        if active is not None:
            active.command = short
            for node in run.chunks[count:]:
                del active.seen[node]
        else:
            line = self._lines[place]
            line[line.index(run)] = short
        if count < len(run.chunks):
            self.shortened += 1
        return EndsEarly(count, self._random.random() if active is not None else 0.0)

    def wake(self) -> None:
        self._woken = True

    def ends(self, failed: Set[int]) -> tuple[Set[int], Set[int]]:
        begun = set(self._begun if self.faults.exact else self._begun | failed)
        for place, (command, values) in self._undo.items():
            mine = {t for t in begun - (self._ended - self._failed) if self._places.get(t) == place}
            if self._has_died(place) and mine == {command.token}:
                self._memory_of(command).update(values)
                begun.remove(command.token)
        self._undo.clear()
        return self._ended - self._failed, begun

    def restore(self, graph: Graph, copies: Mapping[int, int]) -> None:
        self.restored += len(copies)
        for key, copy in copies.items():
            self.values[HOST][key] = self._kept[copy][key]

    def has_crashed(self, device: int) -> bool:
        return False

    def is_cut_off(self, device: int) -> bool:
        return self.faults.exact and not self._fail and not self.faults.fail

    def lost(self, device: int) -> str:
        dies = self.faults.dies.get(device)
        if dies is None or self._step < dies:
            return ""
        memory = self.machine.devices[device].memory
        others = (self.faults.dies.get(i, inf) for i, d in self.machine.numbered() if d.memory == memory)
        if memory != HOST and self._step >= max(others):
            self.values[memory].clear()
            self.gone.add(memory)
        return "it has died"

    def wait(self, until: float | None = None) -> list[Report]:
        if until is not None and self._random.random() < 0.2:
            self._step = max(self._step, ceil(until))
            return []
        while True:
            self._press()
            if self._happening and self._step >= self._happening[0][0]:
                self._happening.pop(0)[1]()
            if self._woken:
                self._woken = False
                return []
            places = self._startable() + list(self._active)
            if self._older and self._random.random() < 0.2:
                return [self._older.pop()]
            if not places and not self._held:
                self._held, self._paused = self._paused, []
            if self._held and (not places or self._random.random() < 0.3):
                self._random.shuffle(self._held)
                count = self._random.randint(1, len(self._held))
                out, self._held = self._held[:count], self._held[count:]
                return out
            assert places, "the engine waits, but nothing is under way: deadlock"
            self._advance(self._random.choice(places))

    def now(self) -> float:
        return float(self._step)

    def _press(self) -> None:
        """Ctrl-C, once."""
        if self.faults.interrupt is not None and self._step >= self.faults.interrupt:
            step = self._step + 1 if self.faults.again else None
            self.faults = replace(self.faults, interrupt=step, again=False)
            raise KeyboardInterrupt

    def finish(self) -> ChaosRecord:
        while places := self._startable() + list(self._active):
            self._press()
            self._advance(self._random.choice(places))
        assert self._failed or not any(self._lines.values()), "commands that can never start"
        self._is_over = True
        return self.record

    def abort(self) -> ChaosRecord:
        if self.faults.late:
            self._older += [*self._held, *self._paused]
        if not self.faults.drains and self.faults.interrupt is None:
            self._lines.clear()
            self._active.clear()
            self._early.clear()
        self._drain(self._press)
        return self.record

    def settle(self) -> None:
        """What an interrupted run has left runs to its end."""
        if not self._is_over:
            self._drain()

    def _drain(self, between: Callable[[], None] = lambda: None) -> None:
        """What was enqueued runs to its end; nobody hears of it in this run."""
        while places := self._startable() + list(self._active):
            between()
            self._advance(self._random.choice(places))
            if self.faults.late:
                self._older += [*self._held, *self._paused]
            self._held, self._paused = [], []
        self._is_over = True

    def _startable(self) -> list[tuple[int, int]]:
        return [
            place
            for place, line in self._lines.items()
            if line
            and (not self._is_busy(place) or (isinstance(line[0], Run) and line[0].beside))
            and all(t in self._ended for t in getattr(line[0], "after", ()))
        ]

    def _is_busy(self, place: tuple[int, int]) -> bool:
        return any(key[:2] == place for key in self._active)

    def _advance(self, at: tuple[int, int] | tuple[int, int, int]) -> None:
        self._step += 1
        place = at[:2]
        if len(at) == 2:
            command = self._lines[place].popleft()
            if self.faults.exact and (
                self._has_died(place) or not self._failed.isdisjoint(getattr(command, "after", ()))
            ):
                self._ends_in_turn(place, self._ends_badly(command, place), not self._is_busy(place))
                return
            self._begun.add(command.token)
            self._copy_beside(command, place)
            self._active[*place, command.token] = _Active(command, self._read(command))
            return
        is_first = next(key for key in self._active if key[:2] == place) == at
        self._ends_in_turn(place, self._end(self._active.pop(at), place), is_first)

    def _ends_in_turn(self, place: tuple[int, int], report: tuple[Queued, Report | None], is_first: bool) -> None:
        """A command of a queue is over; those before it are as well, if it ``is_first``."""
        if not is_first:
            self._early.setdefault(place, []).append(report)
            return
        ended = [report]
        if not self._is_busy(place):
            ended += self._early.pop(place, [])
        for command, told in ended:
            self._ended.add(command.token)
            if told is not None:
                self._report(place, told)

    def _end(self, active: _Active, place: tuple[int, int]) -> tuple[Queued, Report | None]:
        """A command has run: what is reported of it, if anything, once all before it are complete."""
        command = active.command
        if self._fails(command, place):
            self._spoil(command)
            return self._ends_badly(command, place)
        if not self._failed:  # what ran on rubbish may be in a race with what failed
            assert self._read(command) == active.seen, f"{command} was in a race: what it read changed before it ended"
        self._write(command, active.seen)
        is_told = isinstance(command, HostCall) or command.notify
        return command, Done(command.token, self.now(), self._run) if is_told else None

    def _ends_badly(self, command: Queued, place: tuple[int, int]) -> tuple[Queued, Report | None]:
        """A command has failed: likewise."""
        self._failed.add(command.token)
        self._broken.add(place)
        failed = Failed(command.token, self.now(), "made to fail", self._run)
        if isinstance(command, Run) and (self.record.failure is None or self.record.failure.token > failed.token):
            self.record.failure = failed
        first = self.record.failed_transfer
        if isinstance(command, Copy) and (first is None or first.token > failed.token):
            self.record.failed_transfer = failed
        if not isinstance(command, HostCall) and not command.notify:
            return command, None
        if not self.faults.goes_on:
            # a later command must not report that all before it is complete, nor count on what never ran
            self._lines[place].clear()
            self._silent.add(place)
        return command, failed

    def _has_died(self, place: tuple[int, int]) -> bool:
        return self._step >= self.faults.dies.get(place[0], inf)

    def _copy_beside(self, command: Queued, place: tuple[int, int]) -> None:
        """There is one undo copy for each queue."""
        if isinstance(command, Run) and command.undo:
            held = self._memory_of(command)
            self._undo[place] = command, {key: held.get(key) for key in command.undo}

    def _report(self, place: tuple[int, int], report: Report) -> None:
        (self._paused if place == self.faults.paused else self._held).append(report)

    def _fails(self, command: Queued, place: tuple[int, int]) -> bool:
        """By itself, with its device, or for what it waits for or comes behind."""
        tokens = nodes_of(command) if isinstance(command, (Run, HostCall)) else (command.token,)
        if not self._fail.isdisjoint(tokens) or not self.faults.fail.isdisjoint(tokens):
            return True
        if self._has_died(place):
            return True
        if place in self._broken and not self.faults.goes_on:
            return True
        return not self._failed.isdisjoint(getattr(command, "after", ()))

    def _spoil(self, command: Queued) -> None:
        """What failed may have got anywhere."""
        rubbish = f"rubbish of {command.token} in run {self._run}"
        if isinstance(command, (Run, HostCall)):
            held = self._memory_of(command)
            for node in nodes_of(command):
                for key in self._graph.nodes[node].writes:
                    repeats = isinstance(command, Run) and self.repeatable(node)
                    if not repeats:
                        held[key] = rubbish
                    elif key not in together(self._graph, node).pieces:  # of these it may write elements of its own
                        before = held.get(key)
                        is_second = isinstance(before, Interrupted) and before.node == node
                        held[key] = before if is_second else Interrupted(node, before)
        else:
            self._at(command.target, command.target_store)[command.buffer] = rubbish

    def _memory_of(self, command: Run | HostCall) -> MutableMapping[int, Value]:
        """What a node finds where it runs: pieces of buffers of which it has windows in these."""
        if isinstance(command, HostCall):
            return self.values[HOST]
        memory = self.values[self.machine.devices[command.device].memory]
        windows = [w for s in self._stores_of(command) if (w := self._windows.get(s)) is not None]
        if not windows:
            return memory
        place = {w.whole: self._at(HOST, w.key) for w in windows}
        return _Through(self._graph, place, memory)

    def _read(self, command: Queued) -> dict[int, Value]:
        if isinstance(command, (Run, HostCall)):
            held = self._memory_of(command)
            return {node: self._base(node, seen_by(self._graph, node, held)) for node in nodes_of(command)}
        return {command.buffer: self._at(command.source, command.source_store).get(command.buffer)}

    def _base(self, node: int, seen: dict[int, Value]) -> dict[int, Value]:
        """What a node finds that may run twice, and does."""
        for key, value in seen.items():
            if self.undefined(node, key):
                seen[key] = None
            elif isinstance(value, Left) and value.node == node and self.repeatable(node):
                seen[key] = value.base
        return seen

    def _write(self, command: Queued, seen: dict[int, Value]) -> None:
        if isinstance(command, (Run, HostCall)):
            held = self._memory_of(command)
            for node in nodes_of(command):
                inputs = seen[node]
                assert isinstance(inputs, dict)
                for key in self._graph.nodes[node].writes:
                    held[key] = left_by(self._graph, node, key, inputs, held.get(key))
                self.record.ran.append((node, command.device if isinstance(command, Run) else ON_HOST))
            return
        self._at(command.target, command.target_store)[command.buffer] = seen[command.buffer]
        if command.source != command.target >= HOST:
            self.record.moved.append((command.buffer, command.source, command.target))


class _Through(MutableMapping[int, Value]):
    """Pieces in the windows of their buffers (by buffer), others in memory."""

    def __init__(self, graph: Graph, windows: Mapping[int, dict[int, Value]], memory: dict[int, Value]) -> None:
        self._graph, self._windows, self._memory = graph, windows, memory

    def _at(self, key: int) -> dict[int, Value]:
        return self._windows.get(_whole(self._graph, key), self._memory)

    def __getitem__(self, key: int) -> Value:
        return self._at(key)[key]

    def __setitem__(self, key: int, value: Value) -> None:
        self._at(key)[key] = value

    def __delitem__(self, key: int) -> None:
        del self._at(key)[key]

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


def _whole(graph: Graph, key: int) -> int:
    buffer = graph.buffers[key]
    return buffer.whole if isinstance(buffer, Piece) else key
