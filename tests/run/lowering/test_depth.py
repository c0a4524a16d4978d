"""Launches in depth: what every byte depends on, the bits of one device, how much is exchanged, and when it pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis import parse_program, service
from manycl.graph.dependences import GraphBuilder
from manycl.graph.division import divide
from manycl.graph.graph import Argument, BufferArg, BufferKey, CopyTask, Graph, Launch
from manycl.graph.work_groups import with_work_groups
from manycl.machine import DeviceIndex, Link, Machine
from manycl.model.transfer import TransferModel
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.auto import Auto
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.plan.verification.verify import verify
from manycl.run.data.coherence import Directory
from manycl.run.engine.result import Result
from manycl.run.lowering.depth import IN_DEPTH, _LaunchSequence, in_depth
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import RANGE, Lowered, first_reads
from manycl.run.recovery.replanning import not_begun
from manycl.run.simulation.foresee import directory_of, foresee, foreseeing
from tests.run.chaos.test_state import Unit, machine

SOURCE = """
kernel void line(global const int *a, global int *b, int n, int left, int right) {
    int i = get_global_id(0);
    if (i >= left && i + right < n) b[i] = 3 * a[i - left] + 5 * a[i] + 7 * a[i + right];
}
kernel void ring(global const int *a, global int *b, int n) {
    int i = get_global_id(0);
    if (i < n) b[i] = a[i] + 2 * (i > 0 ? a[i - 1] : 1) + 3 * (i < n - 1 ? a[i + 1] : 1);
}
kernel void change(global int *a, global const int *b, int n) {
    int i = get_global_id(0);
    if (i < n) a[i] = 2 * a[i] + b[i];
}
kernel void area(global const int *a, global int *b, int w, int h, int r) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x >= r && x < w - r && y >= r && y < h - r)
        b[y * w + x] = 3 * a[y * w + x] + a[y * w + x - r] + a[y * w + x + r] + a[(y - r) * w + x] + a[(y + r) * w + x];
}
kernel void edged(global const int *a, global int *b, int w, int h) {
    int x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && x < w - 1 && y > 0 && y < h - 1) b[y * w + x] = a[(y - 1) * w + x] + 3 * a[(y + 1) * w + x];
    else b[y * w + x] = a[y * w + x];
}
kernel void tally(global const int *a, global int *b, int n) { atomic_add(&b[a[get_global_id(0)] & 7], n); }
kernel void maybe(global const int *a, global int *b) { if (a[get_global_id(0)]) b[get_global_id(0)] = 1; }
kernel void printing(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)]; printf("x"); }
kernel void copied(global const int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)]; }
"""
FACTS = parse_program(SOURCE)
PROGRAM = mc.Program(SOURCE)
ITEMS = 48
NBYTES = 4 * ITEMS


def at_depth(depth: int) -> Callable[[_LaunchSequence], Any]:
    """0: border ranges first, whatever is predicted."""
    return lambda sequence: (sequence._at(depth) if depth > 1 else None) if depth else borders_first(sequence)


def borders_first(sequence: _LaunchSequence) -> Any:
    today = sequence._at(1)
    sequence._seconds = lambda kind, device, groups: float(groups.count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_LaunchSequence, "_copying", lambda *of, is_deep: inf)
        return sequence._borders_first(today) if today is not None else None


DEPTHS = st.sampled_from([0, 2, 3, 4, 5, 6])


def launch(
    name: str, keys: Sequence[BufferKey], group: int, *scalars: int, size: tuple[int, ...] | None = None
) -> Launch:
    """``group``: of the first dimension; those of the others are 2."""
    facts = FACTS.kernels[name]
    of = list(zip(keys, facts.arguments, strict=False))
    args: list[Argument] = [BufferArg(k) for k in keys]
    args += [s.to_bytes(4, "little") for s in scalars]
    reads, writes = tuple(k for k, f in of if f.reads), tuple(k for k, f in of if f.writes)
    size = size or (-(-ITEMS // group) * group,)
    return Launch(name, FACTS, facts, size, (group, 2)[: len(size)], tuple(args), reads, writes)


def to_and_fro(name: str, count: int, group: int, *scalars: int, size: tuple[int, ...] | None = None) -> Graph:
    builder = GraphBuilder()
    one, other = (builder.buffer(4 * prod(size) if size else NBYTES, n) for n in "ab")
    for n in range(count):
        builder.add(launch(name, (other, one) if n % 2 else (one, other), group, *scalars, size=size))
    return builder.build()


@st.composite
def loops(draw: Any) -> Graph:
    """Any of the kernels, on the line, one after another."""
    builder = GraphBuilder()
    keys = [builder.buffer(NBYTES, f"b{i}") for i in range(draw(st.integers(2, 3)))]
    group = draw(st.sampled_from([2, 3, 4]))
    kinds = draw(st.lists(st.tuples(st.sampled_from(["line", "ring", "change"]), st.permutations(keys)), max_size=3))
    kinds += [("line", tuple(keys)), ("ring", tuple(keys[::-1]))][not kinds :]
    left, right = draw(st.integers(0, 5)), draw(st.integers(0, 3))
    for turn in range(draw(st.integers(2, 11))):
        name, of = kinds[turn % len(kinds)]
        scalars = (ITEMS, left, right) if name == "line" else (ITEMS,)
        builder.add(launch(name, tuple(of[:2]), group, *scalars))
    return builder.build()


def ranges(graph: Graph, cuts: list[float], names: tuple[str, ...]) -> Plan:
    """Every launch in one range on each device, cut at these parts of its work-groups along its last dimension."""
    out = []
    for n, task in enumerate(graph.nodes):
        assert isinstance(task, Launch)
        along = len(task.global_size) - 1
        local = with_work_groups(task).local_size
        assert local is not None
        groups = -(-task.global_size[along] // local[along])
        ends = [0, *(round(groups * cut) for cut in cuts), groups]
        given = [(DeviceIndex(d), a, b - a) for d, (a, b) in enumerate(pairwise(ends)) if b > a]
        out += [Assignment(n, d, 0, 0.0, 0.0, along, a, count) for d, a, count in given]
    return Plan(tuple(out), "ranges", names, 0.0)


class Symbols:
    """What every byte of every buffer was made of, as a number."""

    def __init__(self) -> None:
        self._held: dict[int, list[int]] = {}

    def of(self, key: int) -> list[int]:
        return self._held.setdefault(key, [hash((key, i)) for i in range(NBYTES)])

    def run(self, node: int, task: Launch, called: dict[BufferKey, BufferKey], first: int, count: int) -> None:
        """Work-groups, one after another: each byte depends on all that its group reads."""
        division = divide(task, 0, dict.fromkeys((a.key for a in task.args if isinstance(a, BufferArg)), NBYTES))
        for group in range(first, first + count):
            access = division.access(division.range(group, 1))
            seen = tuple(
                self.of(called[k])[i] for k, x in access.items() for a, b in x.reads.intervals for i in range(a, b)
            )
            for key, x in access.items():
                for low, high in x.writes.intervals:
                    for i in range(low, high):
                        self.of(called[key])[i] = hash((node, key, i, seen))

    def copy(self, task: CopyTask) -> None:
        (target, source), to, of = (a.key for a in task.args), task.target_offset, task.source_offset
        self.of(target)[to : to + task.nbytes] = self.of(source)[of : of + task.nbytes]


def made_of(graph: Graph) -> Symbols:
    symbols = Symbols()
    for n, task in enumerate(graph.nodes):
        assert isinstance(task, Launch)
        keys = {a.key: a.key for a in task.args if isinstance(a, BufferArg)}
        symbols.run(n, task, keys, 0, divide(task, 0, dict.fromkeys(keys, NBYTES)).groups)
    return symbols


def made_by(graph: Graph, lowered: Lowered) -> Symbols:
    symbols = Symbols()
    for token, task in enumerate(lowered.graph.nodes):
        step = lowered.step(token)
        if isinstance(task, CopyTask):
            symbols.copy(task)
            continue
        own = graph.nodes[step.node]
        assert isinstance(task, Launch)
        assert isinstance(own, Launch)
        pairs = zip(own.args, task.args, strict=False)
        called = {a.key: b.key for a, b in pairs if isinstance(a, BufferArg) and isinstance(b, BufferArg)}
        assert step.role == RANGE
        symbols.run(step.node, own, called, step.first, step.groups)
    return symbols


@settings(max_examples=40)
@given(graph=loops(), depth=DEPTHS, devices=st.integers(2, 3), data=st.data())
def test_every_byte_is_made_of_what_it_is_made_of_on_one_device(
    graph: Graph, depth: int, devices: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.floats(0.1, 0.9), min_size=devices - 1, max_size=devices - 1)))
    where = machine(list(range(1, devices + 1)))
    plan = ranges(graph, cuts, tuple(d.name for d in where.devices))
    directory = Directory()
    for key in graph.buffers:
        directory.define(key)
    problem = Problem(graph, where, Unit(), tuple(1 for _ in where.devices), splits=Splits(graph))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_LaunchSequence, "best", at_depth(depth))
        deep = in_depth(problem, plan)
        lowered = lower(problem, plan, directory)
    found, expected = made_by(graph, lowered), made_of(graph)
    for key in graph.buffers:
        assert found.of(key) == expected.of(key)
    if deep.own and len(deep.own) == len(graph):  # (what ranges write in pieces that others read goes together)
        begun = next(t for t, s in enumerate(lowered.steps) if s.role == RANGE and s.node == 0)
        assert not not_begun(lowered, [begun]), "what has begun in copies has to end there"


# on devices


@pytest.fixture(params=["cpu0/2", "opencl/2"], scope="module")
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    """Two devices with memories of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        with mc.Queue(request.param) as found:
            yield found


def steps(queue: mc.Queue, pair: list[mc.Array], shape: tuple[int, int], group: tuple[int, int], *more: int) -> Graph:
    """``more``: the number of steps, and their radius."""
    count, radius = more
    height, width = shape
    with queue.prepare() as prepared:
        for _ in range(count):
            size = (-(-width // group[0]) * group[0], -(-height // group[1]) * group[1])
            PROGRAM.area(queue, size, group, *pair, width, height, radius)
            pair.reverse()
    return prepared.graph


def by_numpy(a: np.ndarray, b: np.ndarray, count: int, r: int) -> tuple[np.ndarray, np.ndarray]:
    a, b = a.copy(), b.copy()
    for _ in range(count):
        here, h, w = slice(r, -r), *a.shape
        if h > 2 * r and w > 2 * r:
            b[here, here] = (
                3 * a[here, here] + a[here, : -2 * r] + a[here, 2 * r :] + a[: -2 * r, here] + a[2 * r :, here]
            )
        a, b = b, a
    return a, b


@settings(max_examples=20)
@given(data=st.data())
def test_stencils_in_depth_give_the_bits_of_one_device(queue: mc.Queue, data: st.DataObject) -> None:
    """Any shape, work-groups, radius, cut, depth, and numbers of steps, which are no multiples of it; arrays that the
    host reads, and writes, between runs."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    shape = data.draw(st.tuples(st.integers(12, 40), st.integers(5, 20)))
    group = data.draw(st.sampled_from([(4, 1), (4, 2), (2, 4), (8, 3)]))
    first, second = (rng.integers(0, 100, shape, np.int32) for _ in range(2))
    pair = [queue.array(first), queue.array(second)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_LaunchSequence, "best", at_depth(data.draw(DEPTHS, "depth")))
        for _ in range(2):
            count, radius = data.draw(st.integers(2, 9), "steps"), data.draw(st.integers(1, 2), "radius")
            graph = steps(queue, pair, shape, group, count, radius)
            plan = ranges(graph, [data.draw(st.sampled_from([0.25, 0.5, 0.6]), "cut")], queue.devices)
            queue.session.run(graph, plan)
            first, second = by_numpy(first, second, count, radius)
            if data.draw(st.booleans(), "read"):
                assert (pair[0].get() == first).all()
            if data.draw(st.booleans(), "written"):
                second = rng.integers(0, 100, shape, np.int32)
                pair[1].set(second)
    assert (pair[0].get() == first).all()
    assert (pair[1].get() == second).all()


def runs(queue: mc.Queue, patch: pytest.MonkeyPatch, depth: int, count: int = 24) -> Result:
    patch.setattr(_LaunchSequence, "best", at_depth(depth))
    pair = [queue.array(np.ones((64, 16), np.int32)) for _ in range(2)]
    graph = steps(queue, pair, (64, 16), (16, 2), count, 1)
    plan = ranges(graph, [0.5], queue.devices)
    queue.session.run(graph, plan)
    result = queue.session.run(graph, plan)  # all is where it is needed
    assert (pair[0].get() == by_numpy(np.ones((64, 16), np.int32), np.ones((64, 16), np.int32), 2 * count, 1)[0]).all()
    return result


def test_exchanges_become_fewer(queue: mc.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each direction once in ``depth`` steps."""
    for depth in (1, 2, 4, 8):
        result = runs(queue, monkeypatch, depth)
        names = {d.name for d in queue.session.machine.devices}
        moves = [t for t in result.trace.transfers() if t.target in names]
        assert 2 * (24 // depth - 1) <= len(moves) <= 2 * (24 // depth) + 2
        groups = sum(k.groups for k in result.trace.kernels() if k.role == RANGE)
        extra = 24 // depth * sum(2 * step for step in range(depth))  # on both sides of the cut
        assert groups == 24 * 32 + extra


class Evenly:
    """A policy that divides all launches evenly."""

    def plan(self, problem: Problem) -> Plan:
        return ranges(problem.graph, [0.5], tuple(d.name for d in problem.machine.devices))


@pytest.mark.parametrize("devices", ["cpu0/2", "opencl/2"])
def test_ordinary_loops_run_in_depth(devices: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches enqueued anew in each run, whose results the host reads in the middle and at the end."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(_LaunchSequence, "best", at_depth(4))
    start = np.arange(64 * 16, dtype=np.int32).reshape(64, 16)
    first, second, methods = start, start, set[str]()
    with mc.Queue(devices, policy=Evenly()) as queue:
        pair = [queue.array(start), queue.array(start)]
        for _ in range(3):
            for count in (10, 7):
                for _ in range(count):
                    PROGRAM.area(queue, (16, 64), (16, 2), *pair, 16, 64, 1)
                    pair.reverse()
                first, second = by_numpy(first, second, count, 1)
                assert (pair[0].get() == first).all()
            assert (pair[1].get() == second).all()
            methods |= {k.method for k in queue.trace.kernels() if k.role == RANGE}
    assert IN_DEPTH in methods


# when it pays


def test_it_pays_where_links_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """By prediction, and in the simulation, which knows nothing of that."""
    graph, found = to_and_fro("area", 32, 16, 64, 64, 1, size=(64, 64)), {}
    for latency in (1e-7, 1e-3):
        links = [Link(a, b, 1e9, latency) for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]]
        where = Machine(machine([1, 2]).devices, tuple(links))
        problem = Problem(graph, where, Taking(where, 1e-4), (1, 1), splits=Splits(graph), handover=1e-7)
        plan = ranges(graph, [0.5], ("d0", "d1"))
        found[latency] = in_depth(problem, plan)
        with monkeypatch.context() as patch:
            deep = foresee(problem, plan).makespan
            patch.setattr(_LaunchSequence, "best", at_depth(1))
            plain = foresee(problem, plan).makespan
        assert deep == plain if latency < 1e-5 else deep < 0.5 * plain
    assert not found[1e-7].own
    assert len(found[1e-3].own) == 32
    assert sum(map(bool, found[1e-3].before.values())) == 2


def test_borders_travel_while_the_other_groups_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 steps whose rows of 128 kB a link moves in 0.33 ms, there and back, and whose halves take 1 ms: as long as
    if nothing was exchanged, but for the first step's borders and the last exchange."""
    height, width, latency, count, enqueuing = 256, 1 << 15, 2e-4, 100, 1e-6
    graph = to_and_fro("area", count, 16, width, height, 1, size=(width, height))
    links = [Link(a, b, 1e9, latency) for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]]
    where = Machine(machine([1, 2]).devices, tuple(links))
    problem = Problem(graph, where, Taking(where, 2e-3), (1, 1), splits=Splits(graph), handover=enqueuing)
    plan = ranges(graph, [0.5], ("d0", "d1"))
    found = in_depth(problem, plan)
    assert found.is_cut
    assert not found.own
    cut = [[(a.first, a.groups) for a in found.plan.assignments if (a.node, a.device) == (7, d)] for d in (0, 1)]
    assert cut == [[(63, 1), (0, 63)], [(64, 1), (65, 63)]]
    assert len(found.plan.assignments) == 4 * count - 2, "what the last launch writes is exchanged with nobody"
    first = foresee(problem, plan).makespan
    monkeypatch.setattr(_LaunchSequence, "best", at_depth(1))
    plain, computing, moving = foresee(problem, plan).makespan, count * 1e-3, 2 * (latency + 4 * width / 1e9)
    assert plain == pytest.approx(computing + (count - 1) * moving, rel=0.02)
    assert computing <= first < 1.02 * computing


class Taking(Unit):
    """Launches take as long; transfers as the links say."""

    def __init__(self, where: Machine, seconds: float) -> None:
        super().__init__(seconds)
        self._model = TransferModel(where)

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self._model.seconds(nbytes, source, target)


def test_auto_divides_launches_that_take_less_than_an_exchange() -> None:
    """None of them would end earlier divided, so only the plan that divides all evenly shows what depth gains."""
    graph = to_and_fro("area", 64, 16, 64, 64, 1, size=(64, 64))
    links = [Link(a, b, 1e9, 3e-5) for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]]
    where = Machine(machine([1, 2]).devices, tuple(links))
    problem = Problem(graph, where, Taking(where, 1e-4), (1, 1), splits=Splits(graph), repeated=2)
    plan = Auto().plan(replace(problem, foresee=foreseeing(problem, directory_of(problem))))
    assert plan.details["chosen"] == "evenly"
    assert plan.foreseen
    others = {name: seconds for name, seconds in plan.details["asked"].items() if name not in ("evenly", "in parts")}
    assert {"one device", "mkmd", "balance"} <= {*others}
    assert plan.makespan < 0.9 * min(others.values())
    verify(plan, graph, where, problem)


def test_auto_divides_long_launches_of_a_loop_evenly_between_devices_that_are_alike() -> None:
    """No other shares end earlier, so nobody is asked for them."""
    graph = to_and_fro("area", 64, 16, 64, 64, 1, size=(64, 64))
    for names, is_asked in (["A", "A"], False), (["A", "B"], True):
        devices = [replace(d, model=name) for d, name in zip(machine([1, 2]).devices, names, strict=True)]
        where = Machine(tuple(devices), machine([1, 2]).links)
        problem = Problem(graph, where, Taking(where, 1e-2), (1, 1), splits=Splits(graph), repeated=2)
        plan = Auto().plan(replace(problem, foresee=foreseeing(problem, directory_of(problem))))
        assert ("mkmd" in plan.details["asked"]) is is_asked
        assert plan.is_split


def test_what_devices_need_first_is_what_their_ranges_read_before_a_step_has_written_it() -> None:
    graph = to_and_fro("edged", 2, 4, 68, 132, size=(68, 132))
    where = Machine(machine([1, 2]).devices, tuple(Link(a, b, 1e9, 1e-9) for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]))
    problem = Problem(graph, where, Taking(where, 1e-2), (1, 1), splits=Splits(graph))
    plan = ranges(graph, [0.5], ("d0", "d1"))
    found = first_reads(lower(problem, plan, directory_of(problem)), where)
    read, written = (BufferKey(key) for key in (0, 1))
    assert written not in found, "the first launch overwrites it"
    masks = np.zeros(4 * 68 * 132, int)
    for region, mask in found[read]:
        for low, high in zip(region.low, region.high, strict=True):
            assert not masks[low:high].any(), "regions do not overlap"
            masks[low:high] = mask
    first = graph.nodes[0]
    assert isinstance(first, Launch)
    division = divide(first, plan.assignments[0].range.dimension, dict.fromkeys((read, written), len(masks)))
    for a in plan.assignments[:2]:
        reads = division.access(a.range)[read].reads
        for low, high in zip(reads.low, reads.high, strict=True):
            assert (masks[low:high] & 1 << where.devices[a.device].memory).all(), "each has what its range reads"
    assert set(masks) <= {2, 4, 6}
    assert 0 < (masks == 6).sum() < len(masks) // 4, "both have a border"


def test_auto_divides_a_launch_whose_results_are_merged() -> None:
    graph = to_and_fro("tally", 1, 4, 3)
    where = Machine(machine([1, 2]).devices, tuple(Link(a, b, 1e9, 1e-6) for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]))
    problem = Problem(graph, where, Taking(where, 1e-2), (1, 1), splits=Splits(graph), repeated=2)
    plan = Auto().plan(replace(problem, foresee=foreseeing(problem, directory_of(problem))))
    assert plan.is_split, plan.details


def test_what_ranges_of_deeper_blocks_touch_is_hardly_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = list[object](), service._answer
    monkeypatch.setattr(
        service, "_answer", lambda question, seconds: asked.append(question) or answer(question, seconds)
    )
    graph = to_and_fro("edged", 32, 4, 68, 132, size=(68, 132))
    where = Machine(machine([1, 2]).devices, tuple(Link(a, b, 1e9, 3e-5) for a, b in [(0, 1), (1, 0), (0, 2), (2, 0)]))
    problem = Problem(graph, where, Taking(where, 1e-5), (1, 1), splits=Splits(graph))
    deep = in_depth(problem, ranges(graph, [0.5], ("d0", "d1")))
    assert deep.own, "it is worth it"
    assert len(asked) < 16, "range by range they are some sixty"


@pytest.mark.parametrize("name", ["maybe", "printing"])
def test_kernels_that_must_not_run_twice(name: str) -> None:
    """One of which it is not known what it leaves as it was, and one that prints."""
    for kernel, runs_deep in ((name, False), ("copied", True)):
        graph = to_and_fro(kernel, 4, 4)
        problem = Problem(graph, machine([1, 2]), Unit(), (1, 1), splits=Splits(graph))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_LaunchSequence, "best", at_depth(2))
            assert bool(in_depth(problem, ranges(graph, [0.5], ("d0", "d1"))).own) == runs_deep


def test_devices_of_different_kinds_do_not_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_LaunchSequence, "best", at_depth(2))
    graph, alike = to_and_fro("copied", 4, 4), machine([1, 2])
    other = replace(alike, devices=(alike.devices[0], replace(alike.devices[1], model="other")))
    for where, is_deep in ((alike, True), (other, False)):
        problem = Problem(graph, where, Unit(), (1, 1), splits=Splits(graph))
        assert bool(in_depth(problem, ranges(graph, [0.5], ("d0", "d1"))).own) == is_deep
