"""Divided launches under chaos: real kernels and their regions, any cuts on any machine, any legal order of events."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.annotations import annotation
from manycl.errors import ResultError
from manycl.graph.copies import copy_task, fill_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, CopyTask, FillTask, Graph, HostTask, Launch, Node
from manycl.machine import Machine
from manycl.plan.merging import Merging
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.setup import Setup
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_values import left_by, seen_by
from tests.run.chaos.test_state import Unit, machines, unit
from tests.run.chaos.transitions import validated

__all__ = ["validated"]  # a fixture of the module

ITEMS, GROUP = 32, 4
NBYTES = 4 * ITEMS
PROGRAM = parse_program("""
kernel void map(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)]; }
kernel void change(global int *a) { a[get_global_id(0)] += 1; }
kernel void stencil(global const int *a, global int *b) {
    int i = get_global_id(0), n = get_global_size(0);
    if (i > 0 && i < n - 1) b[i] = a[i - 1] + a[i + 1];
}
kernel void reversed(global const int *a, global int *b) { b[get_global_size(0) - 1 - get_global_id(0)] = a[0]; }
kernel void columns(global const int *a, global int *b) {
    b[get_local_id(0) * get_num_groups(0) + get_group_id(0)] = a[get_global_id(0)];
}
kernel void maybe(global const int *a, global int *b) { if (a[get_global_id(0)]) b[get_global_id(0)] = 1; }
kernel void scatter(global const int *to, global int *b) { b[to[get_global_id(0)]] = get_global_id(0); }
kernel void scatter_back(global const int *to, global int *a, global int *b) {
    int i = get_global_id(0);
    if (a[i]) b[to[i]] = 1;
    a[i] = 0;
}
kernel void count(global const int *a, global int *bins) { atomic_inc(&bins[a[get_global_id(0)] & 7]); }
kernel void part(global int *a) { a[get_global_id(0) / 2 + get_global_id(0) % 2] = get_global_id(0); }
""")
DIVISIBLE = [name for name in PROGRAM.kernels if name != "part"]


@pytest.fixture(scope="module", autouse=True)
def small_chunks() -> Iterator[None]:
    """Pieces fall into chunks, as large ones do where data go from device to device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.lowering.lower.CHUNK", 16)
        patch.setattr("manycl.run.lowering.partition.PAGE", 4)
        yield


def launch(name: str, keys: list[int]) -> Launch:
    facts = PROGRAM.kernels[name]
    of = list(zip(keys, facts.arguments, strict=False))
    promised = (annotation(facts, "to", distinct=True),) if "scatter" in name else ()
    args = tuple(BufferArg(k) for k, _ in of)
    reads, writes = tuple(k for k, f in of if f.reads), tuple(k for k, f in of if f.writes)
    return Launch(name, PROGRAM, facts, (ITEMS,), (GROUP,), args, reads, writes, annotations=promised)


@st.composite
def within(draw: Any, target: int, source: int) -> CopyTask | FillTask:
    """A copy or fill of some bytes, often of all, or of words that ranges have cut."""
    count = draw(st.sampled_from([NBYTES, 4, 16]) | st.integers(1, NBYTES))
    to, of = (draw(st.integers(0, NBYTES - count)) for _ in range(2))
    if draw(st.booleans()):
        return fill_task(Buffer(target, NBYTES), b"x", count, target_offset=to)
    return copy_task(Buffer(target, NBYTES), Buffer(source, NBYTES), count, target_offset=to, source_offset=of)


@st.composite
def graphs(draw: Any) -> Graph:
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(draw(st.integers(3, 5)))]
    for i in range(draw(st.integers(1, 7))):
        keys = draw(st.permutations(buffers))
        if draw(st.integers(0, 9)) == 0:
            task: Node = HostTask(f"h{i}", print, (), tuple(keys[:2]), tuple(keys[1:2]))
        elif draw(st.integers(0, 4)) == 0:
            task = draw(within(*keys[:2]))
        else:
            task = launch(draw(st.sampled_from(list(PROGRAM.kernels))), keys)
        builder.add(task, sorted(draw(st.sets(st.integers(0, i - 1), max_size=1))) if i else ())
    return builder.build()


@st.composite
def plans(draw: Any, graph: Graph, where: Machine, queues: int = 2) -> Plan:
    device = st.integers(0, len(where.devices) - 1)
    queue = st.integers(0, queues - 1)
    groups = ITEMS // GROUP
    out: list[Assignment] = []
    for n, task in enumerate(graph.nodes):
        if isinstance(task, HostTask):
            out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
        elif not isinstance(task, Launch) or task.name == "part" or draw(st.integers(0, 4)) == 0:
            out.append(Assignment(n, draw(device), draw(queue), 0.0, 0.0, WHOLE))
        else:
            cuts = sorted(draw(st.sets(st.integers(1, groups - 1), max_size=3)))
            ranges = draw(st.permutations(list(itertools.pairwise([0, *cuts, groups]))))
            out += [Assignment(n, draw(device), draw(queue), 0.0, 0.0, 0, a, b - a) for a, b in ranges]
    return Plan(tuple(out), "random", tuple(d.name for d in where.devices), 0.0)


class Values:
    """What every byte of the buffers holds, in every memory and in the one memory of a sequential run, as text: a
    value of a piece is what all its bytes hold."""

    def __init__(self, graph: Graph, memories: int) -> None:
        self.graph = graph
        self.held = {(m, k): [None] * NBYTES for m in range(-1, memories) for k in graph.buffers}  # -1: sequential

    def copy(self) -> Values:
        found = Values(self.graph, 0)
        found.held = {place: [*values] for place, values in self.held.items()}
        return found

    def piece(self, memory: int, key: int, region: Region) -> Any:
        held = self.held[memory, key]
        found = [value for a, b in region.intervals for value in held[a:b]]
        return None if found.count(None) == len(found) else hash(tuple(found))

    def put(self, memory: int, key: int, region: Region, value: Any) -> None:
        for a, b in region.intervals:
            values = itertools.repeat(value, b - a)
            self.held[memory, key][a:b] = values if value is None else zip(values, itertools.count(), strict=False)


def check_order(graph: Graph, lowered: Lowered) -> None:
    """What a graph says comes first comes first where no buffer says so: all its steps."""
    before: list[set[int]] = []
    for predecessors in lowered.graph.predecessors:
        before.append(set(predecessors).union(*(before[p] for p in predecessors)))
    steps: dict[int, list[int]] = {}
    for token in range(len(lowered.graph)):
        steps.setdefault(lowered.step(token).node, []).append(token)
    for first, then in graph.edges:
        one, other = graph.nodes[first], graph.nodes[then]
        if {*one.writes}.isdisjoint({*other.reads, *other.writes}) and {*one.reads}.isdisjoint(other.writes):
            assert all(before[token].issuperset(steps[first]) for token in steps[then])


def one_run(graph: Graph, where: Machine, plan: Plan, directory: Directory, values: Values, backend: Any) -> None:
    """Run under chaos and one step after another, and note what every byte holds afterwards."""
    made: list[Lowered] = []

    def parts(lowered: Lowered) -> Any:
        """(piece, buffer, its bytes) of all buffers of the graph."""
        for key in graph.buffers:
            for piece, rows in lowered.cut.get(key, {key: Region.span(0, NBYTES)}).items():
                yield piece, key, rows

    def lowering(*given: Any) -> Lowered:
        lowered = lower(*given)
        made.append(lowered)
        for m in range(where.memories):
            backend.values[m] = {p: values.piece(m, k, rows) for p, k, rows in parts(lowered)}
        return lowered

    queues, merging = tuple(2 for _ in where.devices), get_args(Merging)[len(plan.assignments) % 3]
    problem = Problem(graph, where, Unit(), queues, splits=Splits(graph), merging=merging)
    try:
        execute(problem, plan, backend, directory, setup=Setup(lowering))
    finally:
        directory.validate(where.memories)
    lowered = made[0]
    check_order(graph, lowered)
    alone = {p: values.piece(-1, k, rows) for p, k, rows in parts(lowered)}
    for step, task in enumerate(lowered.graph.nodes):
        inputs = seen_by(lowered.graph, step, alone)
        for key in task.writes:
            alone[key] = left_by(lowered.graph, step, key, inputs, alone.get(key))
    for p, k, rows in parts(lowered):
        values.put(-1, k, rows, alone[p])
        for m in range(where.memories):
            values.put(m, k, rows, backend.values[m].get(p))


def check_valid(graph: Graph, where: Machine, directory: Directory, values: Values) -> None:
    """Every byte that counts as valid in a memory is there what the sequential run has."""
    for key in graph.buffers:
        whole = (Region.span(0, NBYTES), directory.valid.get(key, 0))
        for rows, mask in directory.valid_regions.get(key, (whole,)):
            for m in range(where.memories):
                if mask >> m & 1:
                    assert values.piece(m, key, rows) == values.piece(-1, key, rows), f"buffer {key}, memory {m}"


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_divided_launches_give_the_sequential_result(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    """Two runs: the second finds buffers in parts; the host may have written in between."""
    directory = Directory()
    values = Values(graph, where.memories)
    pays = data.draw(st.booleans(), "cut wherever it is possible")
    for key in graph.buffers:
        if data.draw(st.integers(0, 3)):
            home = data.draw(st.integers(0, where.memories - 1))
            directory.define(key, home)
            for m in range(-1, where.memories):
                value = f"initial {key}" if m in (-1, home) else f"stale {m} {key}"
                values.put(m, key, Region.span(0, NBYTES), value)
    for turn in range(2):
        backend = ChaosBackend(where, seed + turn)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("manycl.run.lowering.pipelining._Cutter._pays", lambda *given: pays)
            patch.setattr("manycl.run.lowering.pipelining.share_of", lambda *given: 1.0)
            plan = data.draw(plans(graph, where, 1 if pays else 2))  # who uses several queues overlaps by himself
            one_run(graph, where, plan, directory, values, backend)
        check_valid(graph, where, directory, values)
        assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"
        for key in graph.buffers:
            if data.draw(st.integers(0, 4)) == 0:
                directory.define(key)
                for m in (-1, 0):
                    values.put(m, key, Region.span(0, NBYTES), f"host {turn} {key}")


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_what_a_failed_range_leaves_is_unknown(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, data.draw(st.integers(0, where.memories - 1)))
    victim = data.draw(st.integers(0, len(graph) - 1))
    plan = data.draw(plans(graph, where))
    tokens: list[int] = []

    def lowering(*given: Any) -> Lowered:
        lowered = lower(*given)
        tokens.extend(t for t in range(len(lowered.graph)) if lowered.step(t).node == victim)
        backend._fail = {data.draw(st.sampled_from(tokens))}
        return lowered

    backend = ChaosBackend(where, seed)
    problem = Problem(graph, where, unit(seed), tuple(2 for _ in where.devices))
    with pytest.raises(RunFailure, match=rf"node {victim}\)"):
        execute(problem, plan, backend, directory, setup=Setup(lowering))
    directory.validate(where.memories)
    assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"
    for key in graph.buffers:
        if not (directory.valid.get(key) or directory.valid_regions.get(key)):
            with pytest.raises(ResultError):
                directory.check(key)
