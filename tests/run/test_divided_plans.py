"""Plans with ranges on real devices: the bits of one device, whatever the cuts, and only what is missing moves."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import PolicyError
from manycl.graph.graph import Graph, Launch
from manycl.graph.work_groups import with_work_groups
from manycl.plan.plan import WHOLE, Assignment, Plan
from manycl.run.engine.result import Result
from manycl.run.executor.command_buffer import recorded
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.lowering.depth import InDepth
from tests.run.between_runs import Numbers, host_code_between_runs, run_by

SOURCE = """
kernel void scale(global float *x, global const float *y, int n) {
    int i = get_global_id(0);
    if (i < n) x[i] = 2 * y[i];
}
kernel void in_place(global float *x) {
    x[get_global_id(0)] = x[get_global_id(0)] * 2 + get_group_id(0) + get_global_size(0);
}
kernel void jacobi(global const float *a, global float *b, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1)
        b[j * n + i] = 0.25f * (a[j * n + i - 1] + a[j * n + i + 1] + a[(j - 1) * n + i] + a[(j + 1) * n + i]);
}
kernel void transpose(global const float *a, global float *b, int n) {
    b[get_global_id(0) * n + get_global_id(1)] = a[get_global_id(1) * n + get_global_id(0)];
}
kernel void strided(global const int *a, global int *b) {
    b[get_local_id(0) * get_num_groups(0) + get_group_id(0)] = a[get_global_id(0)] * 3;
}
kernel void scatter(global const int *place, global const int *a, global int *b) {
    b[place[get_global_id(0)]] = a[get_global_id(0)] + 1;
}
kernel void scatter_and_reset(global const int *place, global int *a, global int *b) {
    int i = get_global_id(0);
    if (a[i] & 1) b[place[i]] = a[i];
    a[i] = 0;
}
kernel void all_scattered(global const int *place, global int *a, global int *b) {
    int i = get_global_id(0);
    b[place[i]] = (a[i] & 1) ? a[i] : -1;
    if (a[i] & 1) a[i] = 0;
}
kernel void condition(global const int *a, global int *b) {
    if (a[get_global_id(0)] & 1) b[get_global_id(0)] = a[get_global_id(0)] * 5;
}
kernel void histogram(global const uchar *s, global int *bins) {
    atomic_add(&bins[s[get_global_id(0)] % 64], 1);
}
kernel void extremes(global const uint *s, global uint *least, global uint *most) {
    atomic_min(least, s[get_global_id(0)]);
    atomic_max(most, s[get_global_id(0)]);
}
kernel void neighbours(global const int *a, global int *b, int n) {
    int i = get_global_id(0);
    if (i > 0 && i < n - 1) b[i] = a[i - 1] + a[i + 1];
}
kernel void product(global const float *a, global float *c, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    float s = 0;
    for (int k = 0; k < n; k++) s += a[j * n + k] * a[k * n + i];
    c[j * n + i] = s;
}
kernel void functions(global const float *a, global float *b) {
    float x = a[get_global_id(0)];
    b[get_global_id(0)] = sin(x) * exp(x) + pow(x, 1.7f) / (x + 0.3f) - sqrt(x) * native_log(x + 1);
}
kernel void area(global const float *a, global float *b) {
    size_t at = get_global_id(1) * get_global_size(0) + get_global_id(0);
    b[at] = a[at] * 0.37f + get_global_linear_id() * 0.11f;
}
kernel void prefix(global int *x) { x[get_global_id(0) + 1] = x[get_global_id(0)]; }
"""
PROGRAM = mc.Program(SOURCE)
for name in ("scatter", "scatter_and_reset", "all_scattered"):
    PROGRAM.annotate(name, "place", distinct=True)
N = 64
DEVICES = "cpu/4"

Submission = tuple[list[mc.Array], list[int]]


def linear(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    """Exact writes; a part of a buffer that nobody writes; ids of the whole launch."""
    x, y = queue.array(rng.random(1600, np.float32)), queue.array(rng.random(1600, np.float32))
    PROGRAM.scale(queue, (1600,), (16,), x, y, 1591)
    PROGRAM.in_place(queue, (1600,), (16,), x)
    PROGRAM.scale(queue, (1600,), (16,), y, x, 900)
    return [x, y], [0, 0, 0]


def stencil(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    a, b = queue.array(rng.random((N, N), np.float32)), queue.array(rng.random((N, N), np.float32))
    for _ in range(3):
        PROGRAM.jacobi(queue, (N, N), (4, 4), a, b, N)
        a, b = b, a
    return [a, b], [1, 1, 0]


def columns(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    """Rectangles, written along one dimension and read along the other."""
    a, b, c = queue.array(rng.random((N, N), np.float32)), queue.empty((N, N)), queue.empty((N, N))
    PROGRAM.transpose(queue, (N, N), (4, 4), a, b, N)
    PROGRAM.transpose(queue, (N, N), (4, 4), b, c, N)
    PROGRAM.transpose(queue, (N, N), (4, 4), c, a, N)
    return [a, b, c], [0, 1, 0]


def interleaved(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    """Columns; conditions and places that data decide: by the merge kernel where there is one, else by difference."""
    a, b = queue.array(rng.integers(0, 1000, 1024, np.int32)), queue.empty(1024, np.int32)
    c, d = queue.array(rng.integers(0, 1000, 1024, np.int32)), queue.empty(1024, np.int32)
    place = queue.array(rng.permutation(1024).astype(np.int32))
    e = queue.array(rng.integers(0, 1000, 1024, np.int32))
    PROGRAM.strided(queue, (1024,), (16,), a, b)
    PROGRAM.condition(queue, (1024,), (16,), b, c)
    PROGRAM.scatter(queue, (1024,), (16,), place, c, d)
    PROGRAM.scatter_and_reset(queue, (1024,), (16,), place, c, e)
    return [a, b, c, d, e], [0, 0, 0, 0]


def unknown_places(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    """By difference, of undefined contents."""
    c, e = queue.array(rng.integers(0, 1000, 1024, np.int32)), queue.empty(1024, np.int32)
    place = queue.array(rng.permutation(1024).astype(np.int32))
    PROGRAM.condition(queue, (1024,), (16,), c, c)
    PROGRAM.all_scattered(queue, (1024,), (16,), place, c, e)
    return [c, e], [0, 0]


def atomics(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    s, bins = queue.array(rng.integers(0, 256, 4096, np.uint8)), queue.zeros(64, np.int32)
    numbers = queue.array(rng.integers(0, 1 << 32, 512, np.uint32))
    least, most = queue.array(np.array([1 << 31], np.uint32)), queue.array(np.array([1 << 31], np.uint32))
    PROGRAM.histogram(queue, (4096,), (64,), s, bins)
    PROGRAM.histogram(queue, (2048,), (64,), s, bins)
    PROGRAM.extremes(queue, (512,), (32,), numbers, least, most)
    return [bins, least, most], [0, 0, 0]


def left_to_the_driver(queue: mc.Queue, rng: np.random.Generator) -> Submission:
    """No local sizes; sizes that are prime, that 256 does not divide, and that it does."""
    a, b, c = queue.array(rng.random(1009, np.float32)), queue.empty(1009), queue.zeros(1009)
    PROGRAM.functions(queue, (1009,), None, a, b)
    PROGRAM.functions(queue, (1000,), None, b, c)
    PROGRAM.functions(queue, (512,), None, c, a)
    d, e = queue.array(rng.random((37, 34), np.float32)), queue.empty((37, 34))
    PROGRAM.area(queue, (34, 37), None, d, e)
    PROGRAM.area(queue, (17, 74), None, e, d)
    f, g = queue.array(rng.integers(0, 1000, 1009, np.int32)), queue.empty(1009, np.int32)
    PROGRAM.scatter(queue, (1009,), None, queue.array(rng.permutation(1009).astype(np.int32)), f, g)
    PROGRAM.all_scattered(queue, (1009,), None, queue.array(rng.permutation(1009).astype(np.int32)), g, f)
    return [a, b, c, d, e, f, g], [0, 0, 0, 1, 0, 0, 0]


def work_groups(launch: Launch, dimension: int) -> int:
    local = with_work_groups(launch).local_size
    assert local is not None
    return launch.global_size[dimension] // local[dimension]


def random_cuts(launch: Launch, dimension: int, chance: random.Random, devices: int) -> list[tuple[int, int, int]]:
    """(device, first, groups) of one to five ranges."""
    groups = work_groups(launch, dimension)
    inner = chance.sample(range(1, groups), min(groups - 1, chance.randint(0, 4)))
    return [(chance.randrange(devices), a, b - a) for a, b in itertools.pairwise([0, *sorted(inner), groups])]


def random_plan(queue: mc.Queue, graph: Graph, dimensions: Sequence[int], seed: int, devices: int) -> Plan:
    chance = random.Random(seed)
    assignments: list[Assignment] = []
    for node, (task, dimension) in enumerate(zip(graph.nodes, dimensions, strict=True)):
        assert isinstance(task, Launch)
        for device, first, groups in random_cuts(task, dimension, chance, devices):
            assignments.append(Assignment(node, device, 0, 0.0, 0.0, dimension, first, groups))
    return Plan(tuple(assignments), f"seed {seed}", queue.devices, 0.0)


def on_one_device(graph: Graph, names: tuple[str, ...]) -> Plan:
    return Plan(tuple(Assignment(n, 0, 0, 0.0, 0.0, WHOLE) for n in range(len(graph))), "one", names, 0.0)


def run(queue: mc.Queue, build: Callable[..., Submission], plan_for: Callable[[Graph, list[int]], Plan]) -> Any:
    with queue.prepare() as prepared:
        arrays, dimensions = build(queue, np.random.default_rng(3))
    result = run_by(prepared, lambda graph: plan_for(graph, dimensions))
    found = [a.get().copy() for a in arrays]
    queue.session.directory.validate(queue.session.machine.memories)
    return found, result


@pytest.fixture(params=["separate", "shared"], scope="module")
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    """Four one-core devices, each with memory of its own, or all in the host's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0" if request.param == "separate" else "1")
        with mc.Queue(DEVICES) as found:
            yield found


APPLICATIONS = [linear, stencil, columns, interleaved, unknown_places, atomics, left_to_the_driver]
METHODS = {
    linear: {"in place"},
    stencil: {"in place"},
    columns: {"in place"},
    interleaved: {"in place", "merge kernel", "difference"},
    unknown_places: {"in place", "difference"},
    atomics: {"difference add", "difference min, difference max"},
    left_to_the_driver: {"in place", "merge kernel", "difference"},
}


@pytest.mark.parametrize("build", APPLICATIONS)
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_any_cuts_give_the_bits_of_one_device(queue: mc.Queue, build: Any, devices: int) -> None:
    expected, _ = run(queue, build, lambda graph, _: on_one_device(graph, queue.devices))
    methods: set[str] = set()
    for seed in range(3):
        found, result = run(queue, build, lambda g, d, s=seed: random_plan(queue, g, d, s, devices))  # type: ignore
        for index, (one, many) in enumerate(zip(expected, found, strict=True)):
            assert one.tobytes() == many.tobytes(), f"array {index}, seed {seed}"
        methods |= {e.method for e in result.trace.kernels() if e.role == "range"}
    assert methods <= (METHODS[build] if queue.session.machine.memories > 1 else {"in place"}) | {"in place"}


def test_every_method_is_used(queue: mc.Queue) -> None:
    """An even split in two of each application, on devices that share no memory."""
    if queue.session.machine.memories == 1:
        pytest.skip("devices in one memory need no method")
    for build, methods in METHODS.items():
        _, result = run(queue, build, lambda g, d: even(queue, g, d))
        assert {e.method for e in result.trace.kernels() if e.role == "range"} == methods


def even(queue: mc.Queue, graph: Graph, dimensions: Sequence[int]) -> Plan:
    """Every launch halved, the first half on the first device."""
    assignments = []
    for node, (task, d) in enumerate(zip(graph.nodes, dimensions, strict=True)):
        assert isinstance(task, Launch)
        groups = work_groups(task, d)
        half = groups // 2
        assignments.append(Assignment(node, 0, 0, 0.0, 0.0, d, 0, half))
        assignments.append(Assignment(node, 1, 0, 0.0, 0.0, d, half, groups - half))
    return Plan(tuple(assignments), "even", queue.devices, 0.0)


def test_only_halos_move_between_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, six iterations of a stencil from a to b and back: what moves are the rows at the cut, once an
    iteration and direction."""
    start = np.random.default_rng(1).random((N, N), np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2#0-1")
    monkeypatch.setattr("manycl.run.lowering.lower.in_depth", lambda _, plan: InDepth(plan))
    with queue:
        pair = [queue.array(start), queue.array(start)]

        def iterate(steps: int) -> Result:
            with queue.prepare() as prepared:
                for _ in range(steps):
                    PROGRAM.jacobi(queue, (N, N), (4, 4), *pair, N)
                    pair.reverse()
            graph = prepared.graph
            return queue.session.run(graph, even(queue, graph, [1] * steps))

        iterate(2)  # both arrays are where they are needed
        later = [iterate(3), iterate(3)]
        row = 4 * (N - 2)  # the ends of a row are never written
        moved = [(t.source, t.target, t.nbytes) for r in later for t in r.trace.transfers()]
        one, other = queue.devices  # which copy from each other
        assert sorted(moved) == sorted(6 * [(one, other, row), (other, one, row)])
        found = pair[0].get()
    with mc.Queue("cpu/2#0") as alone:
        a, b = alone.array(start), alone.array(start)
        for _ in range(8):
            PROGRAM.jacobi(alone, (N, N), (4, 4), a, b, N)
            a, b = b, a
        assert a.get().tobytes() == found.tobytes()


def test_what_cannot_be_right_is_refused() -> None:
    with mc.Queue("cpu/2") as queue:
        x = queue.array(np.arange(65, dtype=np.int32))
        with queue.prepare() as prepared:
            PROGRAM.prefix(queue, (64,), (16,), x)
        graph = prepared.graph
        with pytest.raises(PolicyError, match="prefix cannot be split along dimension 0: x: line"):
            queue.session.run(graph, even(queue, graph, [0]))
        halves = even(queue, graph, [0]).assignments
        for wrong in (halves[:1], (*halves, halves[0]), (halves[0], halves[1]._replace(first=3))):
            with pytest.raises(PolicyError):
                queue.session.run(graph, Plan(wrong, "wrong", queue.devices, 0.0))
        with queue.prepare() as prepared:
            PROGRAM.condition(queue, (64,), (16,), x, x)
        graph = prepared.graph
        for wrong in (halves[:1], (*halves, halves[0]), (halves[0], halves[1]._replace(first=3))):
            with pytest.raises(PolicyError, match=r"work-groups? of node 0"):
                queue.session.run(graph, Plan(wrong, "wrong", queue.devices, 0.0))
        assert (x.get() == np.arange(65)).all(), "nothing was run"


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), data=st.data())
def test_host_code_may_write_between_runs(queue: mc.Queue, seed: int, data: st.DataObject) -> None:
    """Runs with random cuts, and arrays written by the host (whole, or in place) and read by it in between."""
    chance = random.Random(seed)

    def both(a: mc.Array, b: mc.Array, x: Numbers, y: Numbers) -> None:
        with queue.prepare() as prepared:
            PROGRAM.neighbours(queue, (256,), (8,), a, b, 256)
            PROGRAM.condition(queue, (256,), (8,), b, a)
        run_by(prepared, lambda graph: random_plan(queue, graph, [0, 0], chance.randrange(1 << 30), 3))
        y[1:-1] = x[:-2] + x[2:]
        odd = (y & 1).astype(bool)
        x[odd] = y[odd] * 5

    host_code_between_runs(queue, 256, chance, data, both)


def test_what_is_overwritten_is_not_brought() -> None:
    """A whole kernel, and the ranges of one, that write every byte of an array with contents elsewhere."""
    count = 1 << 14
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2#0-1")
    with queue:
        x = queue.array(np.zeros(count, np.float32), name="x")
        y = queue.array(np.ones(count, np.float32), name="y")
        for plan_for in (on_one_device, lambda graph, names: even(queue, graph, [0])):
            x.set(np.zeros(count, np.float32))
            with queue.prepare() as prepared:
                PROGRAM.scale(queue, (count,), (16,), x, y, count)
            graph = prepared.graph
            result = queue.session.run(graph, plan_for(graph, queue.devices))
            assert {t.name for t in result.trace.transfers() if t.source == "host"} <= {"y"}
            assert (x.get() == 2).all()
        with queue.prepare() as prepared:
            PROGRAM.scale(queue, (count,), (16,), x, y, count - 1)  # the last element stays: brought
        graph = prepared.graph
        x.set(np.zeros(count, np.float32))
        result = queue.session.run(graph, on_one_device(graph, queue.devices))
        assert "x" in {t.name for t in result.trace.transfers()}
        assert x.get()[-1] == 0


def test_a_prepared_graph_in_ranges_is_played() -> None:
    """Independent ranges in the host's memory need nothing but launches: the second run is recorded."""
    with mc.Queue("cpu/2#0-1") as queue:
        x = queue.array(np.ones(1024, np.int32))
        with queue.prepare() as enqueued:
            PROGRAM.condition(queue, (1024,), (16,), x, x)
        graph = enqueued.graph
        prepared = CachedGraph(queue.session, graph, even(queue, graph, [0]))
        for turn in range(1, 6):
            result = prepared.run()
            assert (x.get() == 5**turn).all()
            assert [m.step.groups for m in result.ranges(0)] == [32, 32]
            assert all(m.seconds > 0 for m in result.ranges(0))
            assert {e.role for e in result.trace.kernels()} == {"range"}
        (kept,) = prepared._commands
        assert recorded(queue.session.backend, kept.command_graph) is not None, "it is played the shortest way"


def test_work_groups_that_are_left_to_the_driver(queue: mc.Queue) -> None:
    program = mc.Program(
        "kernel void square(global const int *a, global int *b) { int i = get_global_id(0); b[i] = a[i] * a[i]; }"
    )
    a, b = queue.array(np.arange(1000, dtype=np.int32)), queue.empty(1000, np.int32)
    with queue.prepare() as prepared:
        program.square(queue, (992,), None, a, b)
    graph = prepared.graph
    halves = [Assignment(0, d, 0, 0.0, 0.0, 0, 20 * d, 20 - 9 * d) for d in range(2)]
    result = queue.session.run(graph, Plan(tuple(halves), "by hand", queue.devices, 0.0))
    assert [(m.step.first, m.step.groups) for m in result.ranges(0)] == [(0, 20), (20, 11)]
    assert (b.get()[:992] == np.arange(992) ** 2).all()


def test_static_policies_split_real_launches() -> None:
    """With two equal devices and a kernel that takes long, mkmd and balance divide it; results stay the same."""
    with mc.Queue("cpu/2#0-1") as queue:
        data = np.random.default_rng(1).random((512, 512), np.float32)
        a, b = queue.array(data), queue.empty((512, 512))
        one = queue.empty((512, 512))
        for policy, c in (("in_order", one), ("in_order", one), ("mkmd", b), ("balance", b)):
            with queue.prepare() as prepared:
                PROGRAM.product(queue, (512, 512), (16, 16), a, c, 512)
            graph = prepared.graph
            result = queue.session.run(graph, policy)
            if c is b:
                assert result.plan is not None
                assert result.plan.is_split, policy
                assert len(result.ranges(0)) > 1
                assert b.get().tobytes() == one.get().tobytes()
