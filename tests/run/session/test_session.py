"""What a session does around its runs: where buffers are, what is freed, what is learned, and when something fails."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.errors import DeviceError, GraphError, ResultError, RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer
from manycl.graph.signature import Signature
from manycl.machine import HOST, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.problem import ValidInterval as Interval
from manycl.region import Rectangle, Region
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.data import buffers as buffers_module
from manycl.run.data.admission import make_room
from manycl.run.data.coherence import ValidRegion
from manycl.run.engine.result import Result
from manycl.run.graph_cache import kept_commands as kept_module
from manycl.run.graph_cache.kept_commands import KeptCommands
from manycl.run.lowering.steps import Lowered
from manycl.run.session import models as models_module
from manycl.run.session import session as session_module
from manycl.run.session.session import Session
from manycl.utilities.kept import PLANS
from manycl.utilities.unforeseen import UnforeseenWarning
from tests.run.chaos.test_state import launch, machine

UP = "kernel void up(global int *x) { x[get_global_id(0)] += 1; }"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """Two parts of the CPU, with memories of their own."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with Queue("cpu/2#0-1") as made:
        yield made


def up(queue: Queue, n: int = 64) -> Any:
    """An array, and a graph that adds one to it."""
    x = queue.array(np.zeros(n, np.int32), name="x")
    with queue.prepare() as prepared:
        Program(UP).up(queue, (n,), (8,), x)
    return x, prepared.graph


def keep(session: Session, command_graph: CommandGraph | None) -> Callable[[], Result | None]:
    """What plays a command graph again, on the buffers that it was made for."""
    assert command_graph is not None
    graph = command_graph.problem.graph
    of = Signature((), (), tuple(graph.buffers))
    kept = KeptCommands(command_graph, of, session.devices.events.version, lasting=True)
    return lambda: kept.play(session, learning=True)


def every_other(first: int) -> Region:
    """64 runs of two bytes."""
    return Region.of_rectangles([Rectangle(first, 2, 4, 64)])


def test_parts_of_buffers_are_told_to_policies(queue: Queue) -> None:
    x, graph = up(queue)
    session, key = queue.session, x.buffer.key
    session.directory.forget(key)
    halves = (
        ValidRegion(Region.span(0, 100), 1 << 1),
        ValidRegion(Region.span(100, 156), 1 << 2 | 1),
        ValidRegion(Region.span(156, 256), 0),
    )
    session.directory.valid_regions[key] = halves
    told = session.problem(graph).valid_intervals
    assert told == {key: (Interval(0, 100, frozenset({1})), Interval(100, 156, frozenset({0, 2})))}
    session.directory.valid_regions[key] = ValidRegion(every_other(0), 1 << 1), ValidRegion(every_other(2), 1 << 2)
    assert session.problem(graph).valid_intervals == {}, "rows of a pitch are no interval"
    other = queue.array(np.zeros(8, np.int32))
    session.directory.valid_regions[other.buffer.key] = halves
    assert session.problem(graph).valid_intervals == {}, "of the graph's buffers"
    session.directory.forget(key)
    session.directory.forget(other.buffer.key)


def test_a_policy_is_told_where_buffers_are(queue: Queue) -> None:
    x, graph = up(queue)
    session, key = queue.session, x.buffer.key
    assert session.problem(graph).valid == {key: {HOST}}
    session.run(graph, InOrder())
    (place,) = session.problem(graph).valid[key]
    assert place in (1, 2)
    assert (x.get() == 1).all()
    assert session.problem(graph).valid == {key: {HOST, place}}
    asked = session.problem(graph, {"cpu": 3}, {"a": "b"})
    assert (asked.queues, dict(asked.options), asked.spills, asked.repeated) == ((3, 3), {"a": "b"}, True, 0)


def test_what_makes_way_outside_a_run_comes_to_the_host_first(queue: Queue) -> None:
    x, graph = up(queue)
    session, key = queue.session, x.buffer.key
    session.run(graph, InOrder())
    (place,) = session.directory.memories(key)
    device = next(i for i, d in enumerate(session.machine.devices) if d.memory == place)
    assert key in session.backend.memory.allocated(device)
    session.buffers.evict(key, place)
    assert session.directory.memories(key) == {HOST}
    assert key not in session.backend.memory.allocated(device)
    assert (x.get() == 1).all()
    session.run(graph, InOrder())
    assert (x.get() == 2).all(), "it is brought again"


def test_a_buffer_that_is_not_needed_any_more_is_freed_before_the_next_run(queue: Queue) -> None:
    x, graph = up(queue)
    other = queue.array(np.zeros(8, np.int32))
    session, key = queue.session, other.buffer.key
    session.run(graph, InOrder())
    del other
    assert session.directory.memories(key) == {HOST}, "only a note is taken"
    session.run(graph, InOrder())
    assert session.directory.memories(key) == frozenset()
    assert queue.empty(8, np.int32).buffer.key == key, "the next array of its size has all that it had"
    session.trim()
    with pytest.raises(KeyError):
        session.backend.memory.nbytes(key)
    assert (x.get() == 2).all()


def test_buffers_that_have_keys_are_adopted_in_their_turn() -> None:
    with Session("cpu") as session:
        session.buffers.adopt(Buffer(0, 16, "first"))
        with pytest.raises(GraphError, match="buffer 2 is adopted out of turn"):
            session.buffers.adopt(Buffer(2, 16, "third"))
    buffers = session.buffers
    for use in (lambda: buffers.new(4), lambda: buffers.adopt(Buffer(1, 4)), lambda: buffers.host(0)):
        with pytest.raises(DeviceError, match="the session is closed"):
            use()


def test_what_is_lost_is_not_run_with(queue: Queue) -> None:
    x, graph = up(queue)
    session, key = queue.session, x.buffer.key
    plan = InOrder().plan(session.problem(graph))
    results = [session.run(graph, plan) for _ in range(3)]
    command_graph = results[-1].command_graph
    again = keep(session, command_graph)
    assert again() is not None
    assert (x.get() == 4).all()
    session.directory.lose(key, "it is broken")
    for run in (lambda: session.run(graph, plan), again, lambda: session.buffers.host(key)):
        with pytest.raises(ResultError, match="the contents of x are unknown: it is broken"):
            run()
    x.set(np.zeros(64, np.int32))
    session.run(graph, plan)
    assert (x.get() == 1).all()


def test_after_every_kind_of_failure_devices_are_examined(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    x, graph = up(queue)
    session, key = queue.session, x.buffer.key
    plan = InOrder().plan(session.problem(graph))
    for _ in range(2):
        command_graph = session.run(graph, plan).command_graph
    again = keep(session, command_graph)
    examined: list[Any] = []

    def fails(*args: Any, **named: Any) -> None:
        raise RunError("broken")

    for module in (session_module, buffers_module):
        monkeypatch.setattr(module, "examine", lambda devices, directory: examined.append(devices))
    monkeypatch.setattr(session_module, "execute", fails)
    monkeypatch.setattr(kept_module, "again", fails)
    monkeypatch.setattr(session.backend, "move", fails)
    tidied: list[int] = []
    monkeypatch.setattr(session.backend.memory, "tidy", lambda: tidied.append(1))
    runs = [
        lambda: session.run(graph, plan),
        again,
        lambda: session.buffers.host(key),
    ]
    for count, run in enumerate(runs, 1):
        with pytest.raises(RunError, match="broken"):
            run()
        assert examined == [session.devices] * count
    assert len(tidied) == 2, "of runs that decide, and of repetitions"


def test_only_the_last_results_are_learned_from_and_a_defect_stops_nothing(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, graph = up(queue)
    session = queue.session
    plan = InOrder().plan(session.problem(graph))
    results = [session.run(graph, plan) for _ in range(PLANS + 2)]
    learned: list[Any] = []
    monkeypatch.setattr(session.models, "_learn_from", lambda result, machine: bool(learned.append(result)))
    session.devices.learn()
    assert learned == results[2:]
    session.devices.learn()
    assert len(learned) == PLANS
    session.run(graph, plan)
    session.models.forget()
    session.devices.learn()
    assert len(learned) == PLANS
    assert (x.get() == PLANS + 3).all()


def test_devices_that_are_left_out_leave_nothing_to_follow(queue: Queue) -> None:
    x, graph = up(queue)
    session = queue.session
    plan = InOrder().plan(session.problem(graph))
    again = keep(session, session.run(graph, plan).command_graph)
    everything = [d.name for d in session.machine.devices]
    x.get()
    session.buffers.evict(x.buffer.key, 1)
    session.buffers.evict(x.buffer.key, 2)
    assert [d.name for d in session.devices.restrict(everything[:1]).devices] == everything[:1]
    assert again() is None, "it is of other devices"
    assert [d.name for d in session.devices.restrict(everything).devices] == everything


def test_no_run_without_a_device_or_by_nobody(queue: Queue) -> None:
    _, graph = up(queue)
    session = queue.session
    names = [d.name for d in session.machine.devices]
    session.devices.excluded = {"cpu0": "burnt"}
    session.devices.restrict([])
    with pytest.raises(DeviceError, match=r"no device is left that works \(cpu0: burnt\)"):
        session.run(graph)
    session.devices.restrict(names)
    session.devices.excluded = {}


class Room:
    """A session of which only what makes way is asked."""

    def __init__(self, held: list[dict[int, int]], limits: list[int], sizes: dict[int, int]) -> None:
        self.held, self.sizes = held, sizes
        self.evicted: list[tuple[int, int]] = []
        memory = SimpleNamespace(allocated=lambda d: dict(self.held[d]), nbytes=sizes.__getitem__)
        self.backend = SimpleNamespace(memory=memory)
        self.buffers = self
        self.directory = SimpleNamespace(valid={})
        devices = zip(machine([1, 2]).devices, limits, strict=True)
        self.machine = Machine(tuple(replace(device, global_memory=nbytes) for device, nbytes in devices))

    def evict(self, key: int, memory: int) -> None:
        self.evicted.append((key, memory))
        del self.held[memory - 1][key]


@pytest.mark.parametrize("seed", range(60))
def test_what_a_run_does_not_use_makes_way_the_largest_first_and_no_more_than_that(seed: int) -> None:
    chance = random.Random(seed)
    builder = GraphBuilder()
    mine = [builder.buffer(chance.randint(1, 6)) for _ in range(chance.randint(1, 4))]
    places = [chance.randrange(2) for _ in range(3)]
    used: list[set[int]] = [set(), set()]
    for place in places:
        keys = tuple(chance.sample(mine, chance.randint(1, len(mine))))
        used[place].update(keys)
        builder.add(launch("n", keys, ()))
    graph = builder.build()
    others = range(100, 100 + chance.randint(0, 5))
    sizes = {key: b.nbytes for key, b in graph.buffers.items()} | {key: chance.randint(1, 6) for key in others}
    held = [{key: sizes[key] for key in sizes if chance.random() < 0.6} for _ in range(2)]
    needed = [sum(sizes[key] for key in keys) for keys in used]
    limits = [max(sum(h.values()), n) - chance.choice((0, 0, 1, 2)) for h, n in zip(held, needed, strict=True)]
    before = [dict(h) for h in held]
    session: Any = Room(held, limits, sizes)
    ranges = tuple(Assignment(n, place, 0, 0.0, 0.0) for n, place in enumerate(places))
    lowered = Lowered(graph, Plan(ranges, "given", ("d0", "d1"), 0.0))
    queues = tuple(int(d in places) for d in range(2))
    state: Any = SimpleNamespace(limited=(), queues=queues, held=None, buffers=None, full=frozenset())
    total = sum(graph.buffers[key].nbytes for key in graph.buffers)
    short = [d for d in range(2) if d in places and sum(before[d].values()) + total > limits[d]]
    if any(needed[d] > limits[d] for d in short):
        with pytest.raises(RunError, match=r"the run needs .* bytes of buffers on d"):
            make_room(session, session, lowered, state)
        return
    make_room(session, session, lowered, state)
    for d in range(2):
        gone = [key for key, memory in session.evicted if memory == d + 1]
        if d not in short:
            assert not gone
            continue
        assert not used[d].intersection(gone), "what the run uses stays"
        free = [sizes[key] for key in before[d] if key not in used[d]]
        assert [sizes[key] for key in gone] == sorted(free, reverse=True)[: len(gone)], "the largest first"
        there = {key for key in before[d] if key not in gone} | used[d]
        assert sum(sizes[key] for key in there) <= limits[d], "all that is used has room"
        if gone:
            assert sum(sizes[key] for key in there | {gone[-1]}) > limits[d], "no more than that"


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_links_are_learned_where_there_are_any(zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    with Queue("cpu/2#0-1") as made:
        x, graph = up(made, 1 << 16)
        session, seen = made.session, []
        session.devices.learn()
        monkeypatch.setattr(session.models.links, "observe", lambda device, *found: seen.append((device.name, *found)))
        before, after = session.machine, object()
        session.run(graph, InOrder())
        with monkeypatch.context() as patch:
            patch.setattr(models_module, "on_machine", lambda *given: after)
            session.devices.learn()
        found, session.devices.machine = session.machine, before
        assert (x.get() == 1).all()
        if zero_copy == "1":
            assert not seen
            assert found is before
        else:
            assert [(to_device, nbytes) for _, to_device, nbytes, _ in seen] == [(True, 1 << 18)]
            assert all(seconds > 0 for *_, seconds in seen)
            assert found is after, "with what has been learned"


def test_what_is_played_is_learned_from_and_what_cannot_be_played_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "1")
    with Queue("cpu") as made:
        x, graph = up(made)
        session = made.session
        plan = InOrder().plan(session.problem(graph))
        session.run(graph, plan)
        again = keep(session, session.run(graph, plan).command_graph)
        again()
        session.devices.learn()
        with mock.patch.object(kept_module, "play", wraps=kept_module.play) as shortest:
            result = again()
        assert shortest.call_count == 1
        assert result is not None
        assert list(session.models.unlearned) == [result]
        assert (x.get() == 4).all()
        monkeypatch.setattr(kept_module, "again", lambda *given, **more: None)
        assert again() is None
        assert list(session.models.unlearned) == [result]


def test_what_is_discarded_is_freed_on_the_device_before_the_next_run(queue: Queue) -> None:
    _, graph = up(queue)
    other, more = up(queue)
    session, key = queue.session, other.buffer.key
    plan = InOrder().plan(session.problem(graph))
    session.run(graph, plan)
    session.run(more, plan)
    memory = session.backend.memory
    devices = [(driver, memory.buffers(d)) for d, driver in enumerate(session.backend.drivers)]
    ((driver, buffer),) = [(driver, held[key]) for driver, held in devices if key in held]
    with mock.patch.object(driver, "free", wraps=driver.free) as free:
        del other, more
        session.run(graph, plan)
        assert not free.called, "the next array of its size may have it"
        session.trim()
        assert not session.backend.memory.has(key)
    free.assert_called_once_with(buffer)


@pytest.mark.parametrize(("limit", "steady"), [("9", True), ("n", False)])
def test_how_long_commands_take_is_known_where_their_scalars_do_not_decide(
    limit: str, steady: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then a short wait need not let Ctrl-C in; with the same scalars, too."""
    monkeypatch.setattr(kept_module, "LONGEST", math.inf)
    text = f"kernel void f(global int *x, int n) {{ for (int k = 0; k < {limit}; k++) x[get_global_id(0)] += k * n; }}"
    with Queue("native") as made:
        x = made.array(np.zeros(64, np.int32))
        with made.prepare() as prepared:
            Program(text).f(made, (64,), (8,), x, np.int32(2))
        session, graph = made.session, prepared.graph
        command_graph = session.run(graph, InOrder().plan(session.problem(graph))).command_graph
        assert command_graph is not None
        asked = []
        with mock.patch.object(kept_module, "play", wraps=kept_module.play) as played:
            version = session.devices.events.version
            kept = KeptCommands(command_graph, Signature((), (b"2",), (x.buffer.key,)), version, lasting=True)
            for scalars in (b"2", b"2", b"3", b"3"):
                kept.of = kept.of._replace(scalars=(scalars,))
                assert kept.play(session, learning=False) is not None
                asked.append(played.call_args.args[3])
    assert asked == [True, True, steady, True]


def in_two_queues(queue: Queue) -> tuple[Any, CommandGraph]:
    """Two arrays, and a command graph that adds one to each in its own queue, both timed; it has run three times."""
    arrays = [queue.array(np.zeros(64, np.int32)) for _ in range(2)]
    with queue.prepare() as prepared:
        for x in arrays:
            Program(UP).up(queue, (64,), (8,), x)
    plan = Plan((Assignment(0, 0, 0, 0.0, 0.0), Assignment(1, 0, 1, 0.0, 0.0)), "given", queue.devices, 0.0)
    results = [queue.session.run(prepared.graph, plan) for _ in range(3)]
    command_graph = results[-1].command_graph
    assert command_graph is not None
    assert command_graph.queues[0] == 2
    return arrays, command_graph


def test_a_repetition_that_is_not_timed_has_as_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "1")
    with Queue("cpu", profile="learning", queues={"cpu": 2}) as made:
        session, (arrays, command_graph) = made.session, in_two_queues(made)
        of = Signature((), (), tuple([x.buffer.key for x in arrays]))
        with mock.patch.object(kept_module, "play", wraps=kept_module.play) as shortest:
            found = KeptCommands(command_graph, of, session.devices.events.version, lasting=True).play(
                session, learning=False
            )
        assert shortest.call_count == 1
        assert found is not None
        assert {lane for _, _, lane, _ in found.record.kernels} == {0, 1}
        assert not session.backend.profile
        assert all((x.get() == 4).all() for x in arrays)


def test_a_repetition_whose_recording_fails_runs_by_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: Any) -> Any:
        raise IndexError("at random")

    monkeypatch.setenv("MANYCL_ZERO_COPY", "1")
    monkeypatch.setattr(kept_module, "recorded", fails)
    with Queue("cpu", queues={"cpu": 2}) as made:
        session, (arrays, command_graph) = made.session, in_two_queues(made)
        again = keep(session, command_graph)
        with pytest.warns(UnforeseenWarning, match="finding the shortest way to enqueue a run failed"):
            assert again() is not None
        assert again() is not None, "nobody asks again"
        assert all((x.get() == 5).all() for x in arrays)
