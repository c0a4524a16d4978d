"""What a recording asks of devices when it is done again, with room and in little room: the recorded commands in any
legal order of events, each as soon as nothing that it needs is missing, and nobody is heard of who need not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import command_model as roomy
import little_room_model as tight
import pytest
from little_room_cases import Case as TightCase
from test_state import Unit, expected

from manycl.graph.graph import Graph, Launch, Piece, Rows
from manycl.machine import HOST
from manycl.plan.problem import Problem
from manycl.run.backend import HOST_DEVICE, Command, Copy, Download, Evict, Failed, HostCall, Run, Upload
from manycl.run.backends.chaos import ChaosBackend
from manycl.run.coherence import Directory
from manycl.run.eviction import TightState
from manycl.run.recorded import recorded
from manycl.run.recording import Playback, Recording, beginning
from manycl.run.state import RunState
from manycl.run.steps import Lowered

SEEDS = 200
Place = tuple[int, int]  # a memory and, where memory is short, a store there: where contents are


class Needs:
    """What each command of a recording needs, by what it reads and writes, and where: ``held_back(i)`` says what is
    still missing. ``graph``: with all that launches overwrite. ``home(node, key)``: where a node finds a buffer."""

    def __init__(self, recording: Recording, graph: Graph, home: Callable[[int, int], Place]) -> None:
        self.commands, self.graph, self.home = recording.commands, graph, home
        self.memory = [d.memory for d in recording.problem.machine.devices]
        self.held = {d: dict.fromkeys(stores, -1) for d, stores in recording.held.items()}
        self.short = recording.held.keys()
        self.index = {c.token: i for i, c in enumerate(self.commands) if not isinstance(c, Evict)}
        self.before: list[list[int]] = []  # commands that have to be enqueued
        self.over: list[list[int]] = []  # commands that have to be known to be over
        made: dict[tuple[int, Place], int] = {}
        writers: dict[int, int] = {}
        tells: dict[int, int] = {}  # by transfer: the node that has made what it moves
        last: dict[tuple[int, int], int] = {}
        users: dict[tuple[int, int], dict[Any, int]] = {}
        evicted: dict[int, int] = {}
        for i, c in enumerate(self.commands):
            before: set[int] = set()
            over: set[int] = set()
            if isinstance(c, Evict):
                over.update(users.pop((c.device, c.store), {}).values())
                if c.device in evicted:
                    before.add(evicted[c.device])
                evicted[c.device] = i
                self.held[c.device].pop(c.store, None)
            else:
                told = set()
                for key, place in self.finds(c):
                    maker = made.get((key, place))
                    if maker is not None:
                        mine = not isinstance(c, Upload) and self.device(self.commands[maker]) == self.device(c)
                        (before if mine and self.device(c) != HOST_DEVICE else over).add(maker)
                        told.add(tells.get(maker))
                if isinstance(c, Run | HostCall):
                    for p in graph.predecessors[c.token]:
                        j = self.index[p]
                        if self.device(self.commands[j]) == self.device(c) != HOST_DEVICE:
                            before.add(j)
                        elif j not in told:
                            over.add(j)
                if isinstance(c, Run) and self.short:
                    ways = (made.get((key, (HOST, HOST))) for key in graph.nodes[c.token].writes)
                    over.update(j for j in ways if j is not None and isinstance(self.commands[j], Download))
                lane = (self.device(c), getattr(c, "queue", 0))
                if isinstance(c, Run | Copy | HostCall):
                    if lane in last:
                        before.add(last[lane])
                    last[lane] = i
                for store in self.uses(c):
                    if store not in self.held[lane[0]]:
                        self.held[lane[0]][store] = evicted.get(lane[0], -1)
                    if self.held[lane[0]][store] >= 0:
                        before.add(self.held[lane[0]][store])
                    if not isinstance(c, Upload):
                        mark = lane if lane[1] >= 0 else (i, lane[1])
                        users.setdefault((lane[0], store), {})[mark] = i
                if isinstance(c, Run | HostCall):
                    for key in graph.nodes[c.token].writes:
                        made = {of: j for of, j in made.items() if of[0] != key}
                        made[key, home(c.token, key)] = i
                        writers[key] = i
                else:
                    made[c.buffer, self.goes_to(c)] = i
                    if c.buffer in writers:
                        tells[i] = writers[c.buffer]
            self.before.append(sorted(before))
            self.over.append(sorted(over))
        downs = [tells.get(i) for i, c in enumerate(self.commands) if isinstance(c, Download | Copy)]
        self.ends = {j for j in last.values() if j not in downs}

    def device(self, c: Command) -> int:
        return HOST_DEVICE if isinstance(c, HostCall) else c.device

    def at(self, device: int, store: int | None) -> Place:
        return self.memory[device], store if store is not None and self.short else HOST

    def finds(self, c: Command) -> Iterator[tuple[int, Place]]:
        if isinstance(c, Run | HostCall):
            task = self.graph.nodes[c.token]
            for key in dict.fromkeys((*task.reads, *task.writes)):
                if not (isinstance(task, Launch) and key in task.overwrites):
                    yield key, self.home(c.token, key)
        elif isinstance(c, Upload):
            yield c.buffer, (HOST, HOST)
        elif isinstance(c, Download | Copy):
            yield c.buffer, self.at(c.device, c.source if isinstance(c, Copy) else c.store)

    def goes_to(self, c: Upload | Download | Copy) -> Place:
        if isinstance(c, Download):
            return HOST, HOST
        return self.at(c.device, c.target if isinstance(c, Copy) else c.store)

    def uses(self, c: Command) -> list[int]:
        """The stores of a device whose memory is short that a command uses."""
        if isinstance(c, HostCall) or c.device not in self.short or isinstance(c, Evict):
            return []
        if isinstance(c, Run):
            return sorted({self.home(c.token, k)[1] for k in self.touches(c.token)} | self.stores(c.token))
        found = [c.source, c.target] if isinstance(c, Copy) else [c.store]
        return [store for store in found if store is not None]

    def touches(self, node: int) -> set[int]:
        return {*self.graph.nodes[node].reads, *self.graph.nodes[node].writes}

    def stores(self, node: int) -> set[int]:
        task = self.graph.nodes[node]
        return {a.key for a in task.args if hasattr(a, "key")} if isinstance(task, Launch) else set()

    def held_back(self, i: int, given: set[int], known: set[int]) -> bool:
        return not (given.issuperset(self.before[i]) and known.issuperset(self.over[i]))


def again(recording: Recording, needs: Needs, directory: Directory, backend: ChaosBackend) -> None:
    """Done again: everything once, nothing too early, nothing held back."""
    state = Playback(recording, directory)
    given: set[int] = set()
    known: set[int] = set()
    place = {id(c): i for i, c in enumerate(recording.commands)}

    def perform(commands: list[Command]) -> None:
        for c in commands:
            i = place[id(c)]
            assert i not in given, "it was enqueued before"
            assert not needs.held_back(i, given, known), f"{c} is enqueued too early"
            given.add(i)
        backend.perform(commands)

    backend.begin(needs.graph, state.queues)
    wholes = {b.whole if isinstance(b, Piece) else key for key, b in needs.graph.buffers.items()}
    assert (state.complete, state.buffers, set(state.limited)) == (0, wholes, set(recording.held))
    assert all(state.held(d) == recording.held[d] for d in state.limited)
    first = state.start(0.0)
    assert all(place[id(c)] < recording.ahead for c in first)
    perform(first)
    perform(state.handle())
    while not state.finished:
        for i, c in enumerate(recording.commands):
            assert i in given or needs.held_back(i, given, known), f"{c} could be enqueued"
        reports = backend.wait()
        known.update(needs.index[r.token] for r in reports)
        perform(state.handle(*reports))
        state.validate()
        ended = {recording.commands[i].token for i in known}  # type: ignore[union-attr]
        count = len([t for t in ended if t < len(needs.graph)])
        assert state.complete == (len(needs.graph) if state.finished else count)
        assert state.finished == (ended == recording.hears.keys())
    assert len(given) == len(recording.commands)
    assert state.complete == len(recording.lowered.graph)
    backend.finish()


def check_told(recording: Recording, needs: Needs) -> None:
    """Of launches and uploads, those are reported that somebody waits to hear of, and the ends of queues of which
    nothing else tells."""
    heard = {j for over in needs.over for j in over}
    for i, c in enumerate(recording.commands):
        if isinstance(c, Run | Upload):
            assert c.notify == (i in heard or i in needs.ends), f"{c} is heard of"
        elif isinstance(c, Download | Copy):
            assert c.notify


def check_waits(recording: Recording) -> None:
    """What is put into a kernel queue waits once for what other queues of its device do."""
    place = {c.token: (c.device, c.queue) for c in recording.commands if not isinstance(c, Evict | HostCall)}
    waited: dict[tuple[int, int], set[int]] = {}
    for c in recording.commands:
        if isinstance(c, Run | Copy):
            behind = waited.setdefault((c.device, c.queue), set())
            assert len(c.after) == len(set(c.after))
            assert not behind.intersection(c.after), f"{c} waits for what its queue has waited for"
            for token in c.after:
                assert place[token][0] == c.device, f"{c} waits for another device"
                assert place[token][1] != c.queue, f"{c} waits for what is before it"
            behind.update(c.after)


def record(state: RunState, backend: ChaosBackend, directory: Directory, *given: Any) -> Recording | None:
    problem, plan, lowered, graph, overwritten = given
    begun = beginning(state, directory)
    assert begun.masks == {key: directory.valid.get(key, 0) for key in graph.buffers}
    backend.begin(graph, state.queues)
    batches = [state.start(0.0)]
    backend.perform(batches[-1])
    batches.append(state.handle())
    backend.perform(batches[-1])
    while not state.finished:
        batches.append(state.handle(*backend.wait()))
        backend.perform(batches[-1])
    backend.finish()
    state.close()

    def asked(node: int, key: int) -> bool:
        task = lowered.graph.nodes[node]
        assert key not in (*task.reads, *task.overwrites), "who asks knows that"
        found: bool = overwritten(node, key)
        return found

    made = recorded(problem, plan, lowered, state.queues, batches, begun, directory.valid, asked)
    assert made is not None
    assert len(made.commands) == sum(map(len, batches))
    assert made.ahead == (len(batches[0]) if problem.machine.memories > 1 else len(made.commands))
    return made


@pytest.mark.parametrize("nodes", [12, 30])
def test_a_repetition_does_the_same_and_holds_nothing_back(nodes: int) -> None:
    for seed in range(SEEDS if nodes < 20 else SEEDS // 5):
        try:
            one(roomy.Case(seed, nodes), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def one(case: roomy.Case, seed: int) -> None:
    problem = Problem(case.told, case.where, Unit(), (case.queues,) * len(case.where.devices))
    plan = case.plan()

    def begun(turn: int) -> tuple[Directory, ChaosBackend]:
        directory, backend = Directory(), ChaosBackend(case.where, seed + turn)
        directory.valid.update(case.valid)
        for m in range(case.where.memories):
            for key, mask in case.valid.items():
                backend.values[m][key] = f"initial {key}" if mask >> m & 1 else f"stale {m}"
        return directory, backend

    first, backend = begun(0)
    state = RunState(problem, plan, first, case.overwritten)
    lowered = Lowered(case.told, plan)
    made = record(state, backend, first, problem, plan, lowered, case.graph, case.overwritten)
    memory = [d.memory for d in case.where.devices]
    home = lambda n, key: (memory[case.places[n][0]] if case.places[n][0] >= 0 else HOST, HOST)  # noqa: E731
    needs = Needs(made, case.graph, home)
    check_told(made, needs)
    check_waits(made)
    found = {key for c in made.commands if not isinstance(c, Evict) for key, _ in needs.finds(c)}
    assert made.needs.keys() <= found
    final = expected(case.graph, {key: f"initial {key}" for key in case.valid})
    for turn in range(1, 3):
        directory, backend = begun(turn)
        assert made.fits(directory)
        again(made, needs, directory, backend)
        assert directory.valid == first.valid
        for key, mask in directory.valid.items():
            for m in range(case.where.memories):
                assert not mask >> m & 1 or backend.values[m].get(key) == final[key], f"buffer {key} in memory {m}"


@pytest.mark.parametrize("nodes", [10, 25])
def test_a_repetition_in_little_room_does_too(nodes: int) -> None:
    for seed in range(SEEDS):
        try:
            one_in_little_room(TightCase(seed, nodes), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def one_in_little_room(case: TightCase, seed: int) -> None:
    state, backend, first = tight.begun(case, seed)
    assert isinstance(state, TightState)
    problem = Problem(case.told_graph, case.where, Unit(), (case.queues,) * case.count)
    lowered = case.lowered()
    over = lambda n, p: p in case.over[n]  # noqa: E731
    made = record(state, backend, first, problem, lowered.plan, lowered, case.graph, over)

    def home(n: int, piece: int) -> Place:
        device, store = case.home(n, piece)
        return device + 1, store

    needs = Needs(made, case.graph, home)
    check_told(made, needs)
    check_waits(made)
    for turn in range(1, 3):
        _, backend, directory = tight.begun(case, seed + turn)
        assert made.fits(directory)
        again(made, needs, directory, backend)
        assert directory.valid == first.valid
        tight.check(case, directory, backend, tight.alone(case, range(len(case.graph))))


def test_what_a_failed_repetition_has_not_done_is_told() -> None:
    """The first failure counts, nothing is done after it, and what was not enqueued is said."""
    for seed in range(60):
        case = roomy.Case(seed, 8)
        problem = Problem(case.told, case.where, Unit(), (case.queues,) * len(case.where.devices))
        lowered, directory, backend = Lowered(case.told, case.plan()), Directory(), ChaosBackend(case.where, seed)
        directory.valid.update(case.valid)
        state = RunState(problem, case.plan(), directory, case.overwritten)
        made = record(state, backend, directory, problem, case.plan(), lowered, case.graph, case.overwritten)
        again = Playback(made, directory)
        commands = [*again.start(0.0), *again.handle()]
        rest = [c for c in made.commands if c not in commands]
        assert again.held_up() == f"{len(rest)} commands of a recording were not enqueued, first {rest[:1]}"
        for c in made.commands:
            assert not isinstance(c, Evict)
            device = -1 if isinstance(c, HostCall) else c.device
            assert again.where(c.token, 5)[0] == device
            task = case.told.nodes[c.token] if c.token < len(case.told) else None
            assert again.where(c.token, 5)[1] == (None if task is None else c.token)
            said = again.where(c.token, 5)[2]
            if isinstance(task, Launch):
                assert said == f"kernel k ({task.name}, node 5)"
            else:
                assert said == ("a transfer" if task is None else f"host function {task.name} (node 5)")
        first, *others = made.hears
        failure = Failed(first, 1.0, "broken")
        assert again.handle(failure, *(Failed(t, 1.0, "too") for t in others)) == []
        assert again.failed == failure
        assert again.handle() == []
        assert again.unfinished_writes() == {key for task in case.graph.nodes for key in task.writes}


def test_what_else_is_in_parts_does_not_matter() -> None:
    case = roomy.Case(3, 8)
    problem = Problem(case.told, case.where, Unit(), (case.queues,) * len(case.where.devices))
    lowered, directory, backend = Lowered(case.told, case.plan()), Directory(), ChaosBackend(case.where, 3)
    directory.valid.update(case.valid)
    before = directory.copy()
    state = RunState(problem, case.plan(), directory, case.overwritten)
    made = record(state, backend, directory, problem, case.plan(), lowered, case.graph, case.overwritten)
    for key in (1000, next(iter(case.graph.buffers))):
        now = before.copy()
        now.forget(key)
        now.define(-1, HOST)
        now.close({key: {-1: (Rows(0, 2),), -2: (Rows(2, 2),)}}, {})
        assert key in now.parts
        assert made.fits(now) == (key == 1000)
