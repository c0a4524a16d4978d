"""The engine's mind under chaos: any graph, any machine, any placement, any legal order of events."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import ResultError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import Choice, KernelByKernel
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, execute
from tests.graph.graph_judge import verify as verify_graph
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_values import left_by, touched
from tests.run.chaos.transitions import validated
from tests.run.commands.verify_commands import verify_commands

__all__ = ["validated"]  # a fixture of the module

FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("", (), {"k": FACTS})


class Unit(Estimates):
    """Estimates: everything takes as long: a second, of which few are enqueued ahead of a device."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds

    def launch(self, node: int, device: int) -> float:
        return self.seconds

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else self.seconds


def unit(seed: int) -> Unit:
    """Seconds, or so little time that nothing is heard of for the sake of what is ahead of a device."""
    return Unit(1e-9 if seed % 2 else 1.0)


def launch(name: str, reads: tuple[int, ...], writes: tuple[int, ...]) -> Launch:
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    return Launch(name, PROGRAM, FACTS, (1,), None, args, reads, writes)


def machine(memories: list[int], peers: Iterable[tuple[int, int]] = ()) -> Machine:
    links = tuple(Link(a, b, 1e9, 0.0) for a, b in peers)
    return Machine(tuple(Device(f"d{i}", "cpu", memory=m) for i, m in enumerate(memories)), links)


@st.composite
def graphs(draw: Any) -> Graph:
    builder = GraphBuilder()
    buffers = [builder.buffer(4, f"b{i}") for i in range(draw(st.integers(1, 5)))]
    some = st.lists(st.sampled_from(buffers), max_size=3, unique=True).map(tuple)
    for i in range(draw(st.integers(1, 14))):
        reads, writes = draw(some), draw(some)
        if draw(st.integers(0, 9)) == 0:
            builder.add(HostTask(f"h{i}", print, (), reads, writes))
        else:
            builder.add(launch(f"n{i}", reads, writes))
    return builder.build()


@st.composite
def machines(draw: Any, shared: bool = False, domains: bool = True) -> Machine:
    """``shared``: several devices may have one memory that is not the host's. ``domains``: some may wait for each
    other's events, as those of one process do, of which none is lost alone."""
    memories: list[int] = []
    for kind in draw(st.lists(st.sampled_from(("host", "own", "same")[: 2 + shared]), min_size=1, max_size=4)):
        most = max(memories, default=HOST)
        memories.append(HOST if kind == "host" else most + 1 if kind == "own" else most)
    pairs = list(itertools.permutations(sorted({*memories} - {HOST}), 2))
    found = machine(memories, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else ())
    ends_early = draw(st.integers(0, 3)) > 0
    names = st.sampled_from(["a", "b", ""] if domains and draw(st.booleans()) else [""])
    model = draw(st.sampled_from(["", "alike"]))
    return replace(
        found,
        devices=tuple(replace(d, shortens=ends_early, event_domain=draw(names), model=model) for d in found.devices),
    )


def random_plan(draw: Any, graph: Graph, where: Machine, queues: int) -> Plan:
    devices = len(where.devices)
    assignments = []
    for n, node in enumerate(graph.nodes):
        if isinstance(node, HostTask):
            assignments.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
        else:
            device = draw(st.integers(0, devices - 1))
            assignments.append(Assignment(n, device, draw(st.integers(0, queues - 1)), 0.0, 0.0))
    return Plan(tuple(assignments), "random", tuple(d.name for d in where.devices), 0.0)


class Anyhow(KernelByKernel):
    """A dynamic policy that decides by a fixed list of numbers."""

    def __init__(self, numbers: list[int]) -> None:
        self._numbers = itertools.cycle(numbers or [0])

    def resident(self, device: int) -> int:
        return 2

    def queues(self, device: int) -> int:
        return 2

    def select(self, frontier: Any, devices: Any, now: float) -> Choice | None:
        free = [d for d in devices if d.free]
        if not free or (len(free) < len(devices) and next(self._numbers) % 3 == 0):
            return None
        component = frontier[next(self._numbers) % len(frontier)]
        return Choice(component.index, free[next(self._numbers) % len(free)].index)


def expected(graph: Graph, start: dict[int, object], nodes: Collection[int] | None = None) -> dict[int, object]:
    """One node after another in one memory (``nodes``: only these)."""
    values = dict(start)
    for n in range(len(graph.nodes)) if nodes is None else sorted(nodes):
        inputs = {k: values.get(k) for k in touched(graph, n)}
        for key in graph.nodes[n].writes:
            values[key] = left_by(graph, n, key, inputs, None)
    return values


def begin(graph: Graph, where: Machine, draw: Any) -> tuple[Directory, dict[int, object], list[dict[int, object]]]:
    """Random initial places: undefined, or defined in one memory, with stale values in all others."""
    directory = Directory()
    start: dict[int, object] = {}
    values: list[dict[int, object]] = [{} for _ in range(where.memories)]
    for key in graph.buffers:
        if draw(st.integers(0, 3)) == 0:
            continue
        start[key] = f"initial {key}"
        home = draw(st.integers(0, where.memories - 1))
        directory.define(key, home)
        for m in range(where.memories):
            values[m][key] = start[key] if m == home else f"stale {m} {key}"
    return directory, start, values


@settings(max_examples=150)
@given(st.data(), graphs(), machines(shared=True), st.integers(0, 2**32))
def test_every_order_gives_the_sequential_result(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    verify_graph(graph)
    directory, start, values = begin(graph, where, data.draw)
    dynamic = data.draw(st.booleans())
    policy: Any = (
        Anyhow(data.draw(st.lists(st.integers(0, 100), max_size=20)))
        if dynamic
        else random_plan(data.draw, graph, where, queues=3)
    )
    problem = Problem(graph, where, unit(seed), tuple(3 for _ in where.devices))
    backend = ChaosBackend(where, seed)
    backend.values = values
    execute(problem, policy, backend, directory)
    directory.validate(where.memories)
    final = expected(graph, start)
    assert sorted(n for n, _ in backend.record.ran) == list(range(len(graph)))
    for key, mask in directory.valid.items():
        for m in range(where.memories):
            if mask >> m & 1:
                assert backend.values[m].get(key) == final[key], f"buffer {key} in memory {m}"
    written = {k for n in graph.nodes for k in n.writes}
    assert written <= set(directory.valid), "a buffer was written and nobody knows where it is"


@settings(max_examples=100)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_a_failure_stops_the_run_and_says_what_is_lost(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    directory, start, values = begin(graph, where, data.draw)
    victim = data.draw(st.integers(0, len(graph) - 1))
    plan = random_plan(data.draw, graph, where, queues=2)
    problem = Problem(graph, where, unit(seed), tuple(2 for _ in where.devices))
    backend = ChaosBackend(where, seed, fail=[victim])
    backend.values = values
    with pytest.raises(RunFailure, match=f"node {victim}\\)"):
        execute(problem, plan, backend, directory)
    final = expected(graph, start)
    for key in graph.nodes[victim].writes:
        with pytest.raises(ResultError):
            directory.check(key)
    ran = {n for n, _ in backend.record.ran}
    assert victim not in ran
    untouched = set(start) - {k for n in graph.nodes for k in n.writes}
    assert all(final[k] == start[k] for k in untouched)
    assert all(directory.valid.get(k) for k in untouched)


TWO_NODES = Machine(
    tuple(Device(f"d{i}", "cpu", memory=m) for i, m in enumerate((1, HOST, 2, 3, 4, 4))),
    tuple(Link(*ends, 1e9, 0.0) for a, b in ((HOST, 1), (HOST, 2), (HOST, 3), (1, 4)) for ends in ((a, b), (b, a))),
    hosts=("node1",),
)
"""Devices of two nodes: two compute in the nodes' own memories, two of the second node share another one."""


@settings(max_examples=100)
@given(st.data(), graphs(), st.integers(0, 2**32))
def test_data_go_from_node_to_node_by_links_alone(data: Any, graph: Graph, seed: int) -> None:
    where, is_dynamic = TWO_NODES, data.draw(st.booleans(), "a policy decides while the run goes on")
    directory, start, values = begin(graph, where, data.draw)
    policy: Any = Anyhow([seed % 5, seed % 7]) if is_dynamic else random_plan(data.draw, graph, where, queues=2)
    problem = Problem(graph, where, unit(seed), tuple(2 for _ in where.devices))
    backend = ChaosBackend(where, seed)
    backend.values = values
    command_graph = execute(problem, policy, backend, directory).command_graph
    if command_graph is not None and not is_dynamic:
        verify_commands(command_graph)
    final = expected(graph, start)
    assert {(source, target) for _, source, target in backend.record.moved} <= {
        (x.source, x.target) for x in where.links
    }
    assert sorted(n for n, _ in backend.record.ran) == list(range(len(graph)))
    for key, mask in directory.valid.items():
        for m in range(where.memories):
            if mask >> m & 1:
                assert backend.values[m].get(key) == final[key], f"buffer {key} in memory {m}"


def test_nothing_is_copied_that_is_valid_where_it_is_needed() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    for _ in range(5):
        builder.add(launch("ping", (a,), (b,)))
        builder.add(launch("pong", (b,), (a,)))
    graph = builder.build()
    where = machine([1])
    plan = Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0) for n in range(10)), "one", ("d0",), 0.0)
    directory = Directory()
    directory.define(a)
    backend = ChaosBackend(where, 1)
    backend.values[HOST][a] = "start"
    execute(Problem(graph, where, Unit(), (1,)), plan, backend, directory)
    assert backend.record.moved == [(a, HOST, 1)]


def test_devices_that_share_the_hosts_memory_never_copy() -> None:
    builder = GraphBuilder()
    a = builder.buffer(4)
    for _ in range(6):
        builder.add(launch("inc", (a,), (a,)))
    graph = builder.build()
    where = machine([HOST, HOST])
    plan = Plan(tuple(Assignment(n, n % 2, 0, 0.0, 0.0) for n in range(6)), "two", ("d0", "d1"), 0.0)
    directory = Directory()
    directory.define(a)
    backend = ChaosBackend(where, 3)
    backend.values[HOST][a] = "start"
    execute(Problem(graph, where, Unit(), (1, 1)), plan, backend, directory)
    assert backend.record.moved == []


@pytest.mark.parametrize("memories", [(1, 1), (1, 2), (0, 1)])
def test_a_device_hears_of_what_another_one_of_its_memory_was_given_before(memories: tuple[int, int]) -> None:
    """Of a transfer that had begun when it was decided that somebody else waits for it."""

    class InTurn(KernelByKernel):
        def select(self, frontier: Any, devices: Any, now: float) -> Choice | None:
            return Choice(frontier[0].index, DeviceIndex(frontier[0].index % 2))

    builder = GraphBuilder()
    a, b, c = (builder.buffer(4) for _ in range(3))
    builder.add(launch("makes", (a,), (b,)))
    builder.add(launch("reads", (a, b), (c,)))
    graph = builder.build()
    for seed in range(8):
        directory, backend = Directory(), ChaosBackend(machine([*memories]), seed)
        directory.define(a)
        backend.values[HOST][a] = "start"
        execute(Problem(graph, backend.machine, Unit(), (1, 1)), InTurn(), backend, directory)
        assert backend.values[memories[1]][c] == expected(graph, {a: "start"})[c]
