"""Launches that run together part by part of their data: the bits of one after another, and little crosses the link."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.graph.access import Access
from manycl.graph.division import divide
from manycl.graph.graph import Graph, Launch, Piece
from manycl.machine import HOST, Device, Link, Machine
from manycl.model.estimates import Estimates
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion
from manycl.plan.splitting import Splits
from manycl.region import NOTHING, Region
from manycl.run.data.coherence import Directory
from manycl.run.lowering import lower as lowering
from manycl.run.simulation.foresee import foresee
from manycl.run.tiling import time_skewing
from manycl.run.tiling.tiling import Fitted, fitted
from manycl.run.tiling.time_skewing import Outline, TileMember, shape_of, tiles_of
from manycl.run.tiling.windows import size_of
from manycl.trace import Trace
from tests.run.tiling import test_windows
from tests.run.tiling.test_windows import EVERYTHING, limit

queue = test_windows.queue
PROGRAM = mc.Program("""
kernel void around(global const int *a, global int *b, int n, int h) {
    int i = get_global_id(0);
    if (i >= h && i < n - h) b[i] = (a[i - h] + 3 * a[i] + a[i + h]) % 1000;
}
kernel void behind(global const int *a, global int *b, int h) {
    int i = get_global_id(0);
    b[i] = i >= h ? a[i - h] + 1 : a[i];
}
kernel void ahead(global const int *a, global int *b, int n, int h) {
    int i = get_global_id(0);
    if (i < n - h) b[i] = a[i + h] * 3 % 1000;
}
kernel void change(global int *a) { a[get_global_id(0)] = (a[get_global_id(0)] * 2 + (int)get_group_id(0)) % 1000; }
kernel void both(global const int *a, global const int *b, global int *c) {
    c[get_global_id(0)] = (a[get_global_id(0)] + b[get_global_id(0)] * 7) % 1000;
}
kernel void maybe(global const int *a, global int *b) { if (a[get_global_id(0)] & 1) b[get_global_id(0)] += 5; }
kernel void edge(global int *a) { a[get_global_id(0)] = 7; }
kernel void reversed(global const int *a, global int *b, int n) { b[n - 1 - get_global_id(0)] = a[get_global_id(0)]; }
kernel void first(global const int *a, global int *b) { b[get_global_id(0)] = (b[get_global_id(0)] + a[0]) % 1000; }
kernel void plane(global const int *a, global int *b, int n, int m, int h) {
    int i = get_global_id(0), j = get_global_id(1);
    if (i >= h && j >= h && i < n - h && j < m - h)
        b[j * n + i] = (a[(j - h) * n + i] + a[j * n + i - h] + a[(j + h) * n + i] + 2 * a[j * n + i + h]) % 1000;
}
kernel void tile(global int *a, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    a[j * n + i] = (a[j * n + i] * 3 + (int)get_group_id(1)) % 1000;
}
kernel void row(global int *a, int n, int j) { a[j * n + get_global_id(0)] = (int)get_global_id(0) % 10; }
""")
KEYS = st.integers(0, 3)
spans = st.tuples(st.integers(0, 20), st.integers(1, 9)).map(lambda s: (1000 * s[0], 1000 * sum(s)))


@given(st.lists(st.tuples(st.frozensets(KEYS), st.dictionaries(KEYS, spans)), max_size=4), st.permutations(range(4)))
def test_what_tiles_need_is_what_any_of_them_does(
    touched: list[tuple[frozenset[int], dict[int, tuple[int, int]]]], places: list[int]
) -> None:
    """Whole buffers and windows, each as large as the largest of any tile; and the largest of all of these."""
    sizes = {key: 3000 * (place + 1) for key, place in enumerate(places)}
    made = [
        time_skewing.Tile((), dict.fromkeys({*whole, *w}, Access(NOTHING, NOTHING, False)), w) for whole, w in touched
    ]
    rest = {key for whole, windows in touched for key in whole - windows.keys()}
    windows = {key: max(size_of(*w[key]) for _, w in touched if key in w) for _, w in touched for key in w}
    largest = sorted([sizes[key] for key in rest] + list(windows.values()))
    expected = sum(sizes[key] for key in rest), sum(windows.values()), largest[-1] if largest else 0
    assert time_skewing.needed(made, sizes) == expected


@given(st.none() | spans, st.none() | spans)
def test_intervals_are_one_where_they_touch(one: tuple[int, int] | None, other: tuple[int, int] | None) -> None:
    """Else the longer one."""
    a, b = (s or (0, 0) for s in (one, other))
    both = min(a[0], b[0]), max(a[1], b[1])
    lengths = [high - low for low, high in (a, b)]
    found = time_skewing._joined(Region.span(*a), Region.span(*b)).hull
    if one and other and both[1] - both[0] <= sum(lengths):
        assert found == both
    else:
        assert found in (a, b)
        assert found[1] - found[0] == max(lengths)


@given(st.integers(0, 20), st.integers(1, 9), st.integers(-4, 4), st.integers(0, 5), st.integers(0, 40))
def test_where_a_launch_is_cut_so_that_it_touches_nothing_behind_a_byte(
    low: int, size: int, stride: int, at: int, limit: int
) -> None:
    groups = 6
    line = LinearRegion(max(stride, 0), size, low - max(stride, 0) * at)
    fitting = [n for n in range(groups + 1) if n == 0 or line.end(n) <= limit]
    assert line.until(limit, groups) == max(fitting)
    assert line.until(math.inf, groups) == groups


COUNT, WIDTH = 8192, 64


def apply(queue: mc.Queue, name: str, arrays: list[mc.Array], halo: int) -> None:
    """Enqueue a kernel on some of the arrays."""
    a, b, c = (arrays[i % len(arrays)] for i in range(3))
    line, height = (queue, (COUNT,), (64,)), COUNT // WIDTH
    plane = queue, (WIDTH, height), (16, 2)
    if name == "around":
        PROGRAM.around(*line, a, b, COUNT, halo)
    elif name == "behind":
        PROGRAM.behind(*line, a, b, 16 * halo)
    elif name == "ahead":
        PROGRAM.ahead(*line, a, b, COUNT, 16 * halo)
    elif name == "change":
        PROGRAM.change(*line, a)
    elif name == "both":
        PROGRAM.both(*line, a, b, c)
    elif name in ("maybe", "first"):
        getattr(PROGRAM, name)(*line, a, b)
    elif name == "edge":
        PROGRAM.edge(queue, (64,), (64,), a)
    elif name == "reversed":
        PROGRAM.reversed(*line, a, b, COUNT)
    elif name == "plane":
        PROGRAM.plane(*plane, a, b, WIDTH, height, halo)
    elif name == "tile":
        PROGRAM.tile(*plane, a, WIDTH)
    elif name == "row":
        PROGRAM.row(queue, (WIDTH,), (16,), a, WIDTH, halo * 20)
    else:
        queue.call(_shift, a)


def _shift(data: Any) -> None:
    data += 1


LINES = ("around", "behind", "ahead", "change", "both", "maybe", "edge")
PLANES = ("plane", "tile", "row", "both", "change")
OTHERS = ("reversed", "first", "host")


def everything(graph: Graph) -> tuple[Assignment, ...]:
    """All launches on the first device."""
    places = (0 if isinstance(task, Launch) else ON_HOST for task in graph.nodes)
    return tuple(Assignment(n, place, 0, 0.0, 0.0) for n, place in enumerate(places))


def run(prepared: mc.Prepared) -> None:
    """On the first device."""
    queue = prepared.queue
    queue.session.run(prepared.graph, Plan(everything(prepared.graph), "one", queue.devices, 0.0))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The launches of each time tile that is made."""
    depths: list[int] = []

    def watched(*given: Any, **more: Any) -> Fitted:
        result = fitted(*given, **more)
        depths.extend(len(list(p.nodes)) for p in result.time_tiles)
        return result

    monkeypatch.setattr(lowering, "fitted", watched)
    return depths


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_chain_within_any_limit_gives_the_same_bits(queue: mc.Queue, found: list[int], data: st.DataObject) -> None:
    """Several arrays, halos of different widths, kernels of one and two dimensions, in place, at an edge, and now and
    then one that needs all of an array, or a host function."""
    count = data.draw(st.integers(2, 4), "arrays")
    kinds = data.draw(st.sampled_from([LINES, PLANES, LINES + PLANES, (*LINES, *OTHERS), (*PLANES, *OTHERS)]))
    step = st.tuples(st.sampled_from(kinds), st.permutations(range(count)), st.integers(1, 3))
    chain = data.draw(st.lists(step, min_size=2, max_size=12), "launches")
    rounds = data.draw(st.integers(1, 3), "times")
    share = data.draw(st.floats(0.15, 0.9), "share")
    start = np.random.default_rng(1).integers(0, 1000, (count, COUNT)).astype(np.int32)
    results = []
    for nbytes in (EVERYTHING, int(share * start.nbytes)):
        limit(queue, nbytes)
        arrays = [queue.array(start[i]) for i in range(count)]
        with queue.prepare() as prepared:
            for name, order, halo in chain * rounds:
                apply(queue, name, [arrays[i] for i in order], halo)
        found.clear()
        try:
            run(prepared)
        except mc.errors.RunError as error:
            if "at once" not in str(error):
                raise
            event("a launch does not fit")
            return
        results.append([array.get().tobytes() for array in arrays])
    assert results[0] == results[1]
    event("time tiles" if found else "no time tiles")
    if found:
        event(f"{min(max(found) // 8 * 8, 16)} launches and more")


def test_chains_of_different_kernels_are_time_tiles(queue: mc.Queue, found: list[int]) -> None:
    """A stencil, a change in place, a row at the edge and a sum, again and again, on a third of the memory."""
    start = np.random.default_rng(1).integers(0, 1000, (3, COUNT)).astype(np.int32)
    results = []
    for nbytes in (EVERYTHING, start.nbytes // 3):
        limit(queue, nbytes)
        arrays = [queue.array(part) for part in start]
        with queue.prepare() as prepared:
            for _ in range(3):
                for name, order, halo in (("plane", (0, 1, 2), 1), ("row", (1, 0, 2), 0), ("both", (1, 0, 2), 1)):
                    apply(queue, name, [arrays[i] for i in order], halo)
                apply(queue, "tile", [arrays[2]], 1)
                arrays = [arrays[2], arrays[0], arrays[1]]
        run(prepared)
        results.append([array.get().tobytes() for array in arrays])
    assert results[0] == results[1]
    assert max(found) >= 6, found
    limit(queue, EVERYTHING)


def test_host_functions_and_other_devices_end_a_time_tile(queue: mc.Queue, found: list[int]) -> None:
    """What somebody else does between two launches is not jumped over."""
    limit(queue, EVERYTHING)
    a, b = queue.array(np.zeros(COUNT, np.int32)), queue.array(np.ones(COUNT, np.int32))
    limit(queue, COUNT * 4)
    with queue.prepare() as prepared:
        for _ in range(2):
            apply(queue, "around", [a, b], 1)
            apply(queue, "around", [b, a], 1)
            queue.call(_shift, a)
    run(prepared)
    assert found == [2, 2]
    found.clear()
    with queue.prepare() as prepared:
        for _ in range(2):
            apply(queue, "around", [a, b], 1)
            apply(queue, "around", [b, a], 1)
            apply(queue, "change", [a], 1)
    graph = prepared.graph
    elsewhere = [a._replace(device=int(graph.nodes[a.node].name == "change")) for a in everything(graph)]
    queue.session.run(graph, Plan(tuple(elsewhere), "two", queue.devices, 0.0))
    assert found == [2, 2]
    limit(queue, EVERYTHING)


# the benchmark's case, smaller

SIDE = (2048, 128)
JACOBI = """
kernel void jacobi(global const float *a, global float *b, int n) {
    int i = get_global_id(0), j = get_global_id(1);
    if (i > 0 && j > 0 && i < n - 1 && j < get_global_size(1) - 1)
        b[j * n + i] = 0.25f * (a[j * n + i - 1] + a[j * n + i + 1] + a[(j - 1) * n + i] + a[(j + 1) * n + i]);
}
"""


class Link16(Estimates):
    """Kernels of no time to speak of, and a link that takes a while."""

    def launch(self, node: int, device: int) -> float:
        return 1e-6

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 1e-6 + nbytes / 16e9 if source != target else 0.0


def sweeps(count: int) -> Graph:
    program = mc.Program(JACOBI)
    with mc.Queue("cpu") as queue:
        pair = [queue.array(np.zeros(SIDE, np.float32)) for _ in range(2)]
        with queue.prepare() as prepared:
            for _ in range(count):
                program.jacobi(queue, SIDE[::-1], (64, 4), *pair, SIDE[1])
                pair.reverse()
        return prepared.graph


def simulated(graph: Graph, memory: int) -> Trace:
    where = Machine(
        (Device("d", "gpu", memory=1, global_memory=memory, max_allocation=memory),),
        (Link(HOST, 1, 16e9, 1e-6), Link(1, HOST, 16e9, 1e-6)),
    )
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    problem = Problem(graph, where, Link16(), (1,), valid, splits=Splits(graph), spills=True)
    return foresee(problem, Plan(everything(graph), "one", ("d",), 0.0))


def test_sixteen_sweeps_on_four_times_the_memory_cross_the_link_once() -> None:
    graph = sweeps(16)
    total = sum(b.nbytes for b in graph.buffers.values())
    free, tight = simulated(graph, EVERYTHING), simulated(graph, total // 4)
    moved = sum(t.nbytes for t in tight.transfers())
    # without the limit, results stay on the device: one of both arrays is fetched afterwards
    assert moved < 1.5 * (sum(t.nbytes for t in free.transfers()) + total // 2)
    assert tight.details["memory"][0]["again"] == 0, "nothing comes twice"
    ranges, moves = sum(1 for _ in tight.kernels()), sum(1 for _ in tight.transfers())
    assert moves < ranges, "what is brought is brought for many sweeps"
    assert len({e.first for e in tight.kernels() if e.node == 0}) < 24


def test_what_a_tile_shares_with_the_one_before_moves_inside_the_device() -> None:
    tight = simulated(sweeps(16), 2 * 4 * SIDE[0] * SIDE[1] // 4)
    copies = list(tight.copies())
    row = 4 * SIDE[1]
    assert copies
    # sixteen sweeps of a halo of one row, in groups of four: a band of less than 80 rows of each array and tile
    number = len({e.first for e in tight.kernels() if e.node == 0})
    assert sum(c.nbytes for c in copies) <= 2 * (number - 1) * 80 * row


# what follows from the regions, and what does not


def members(count: int = 4) -> tuple[list[TileMember], list[Outline]]:
    graph = sweeps(count)
    sizes = {key: b.nbytes for key, b in graph.buffers.items()}
    found = []
    for node, task in enumerate(graph.nodes):
        assert isinstance(task, Launch)
        found.append(TileMember(node, divide(task, 1, sizes), 1.0))
    shapes = [shape_of(m.division) for m in found]
    assert all(shapes)
    return found, [s for s in shapes if s is not None]


@settings(max_examples=40)
@given(data=st.data())
def test_a_range_is_said_to_touch_what_it_touches(data: st.DataObject) -> None:
    """Against the regions of the very ranges, byte by byte."""
    count = data.draw(st.integers(2, 3), "arrays")
    step = st.tuples(st.sampled_from([*LINES, *PLANES]), st.permutations(range(count)), st.integers(1, 3))
    with mc.Queue("cpu") as queue, pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.tiling.windows.PAGE", 256)
        patch.setattr("manycl.run.tiling.windows.SMALL", 1024)
        arrays = [queue.array(np.zeros(COUNT, np.int32)) for _ in range(count)]
        with queue.prepare() as prepared:
            for name, order, halo in data.draw(st.lists(step, min_size=2, max_size=6), "launches"):
                apply(queue, name, [arrays[i] for i in order], halo)
        graph = prepared.graph
        memory = int(data.draw(st.floats(0.3, 0.9)) * 4 * COUNT * count)
        where = Machine((Device("d", "gpu", memory=1, global_memory=memory, max_allocation=memory),))
        problem = Problem(graph, where, Link16(), (1,))
        plan = Plan(everything(graph), "one", ("d",), 0.0)
        try:
            lowered = lowering.lower(problem, plan, Directory(), {0: memory})
        except mc.errors.RunError:
            return
    sizes = {key: b.nbytes for key, b in graph.buffers.items()}
    made: dict[int, set[int]] = {}  # by buffer, bytes that are known to be written since the device found them
    for node, task in enumerate(lowered.graph.nodes):
        of = lowered.step(node)
        if of.role != "range" or not isinstance(task, Launch):
            continue
        launch = graph.nodes[of.node]
        assert isinstance(launch, Launch)
        division = divide(launch, of.dimension, sizes)
        access = division.access(division.range(of.first, of.groups))
        declared = [numbers(lowered.graph, keys) for keys in (task.reads, task.writes, task.overwrites)]
        reads, writes, overwrites = declared
        for key, found in access.items():
            nothing: set[int] = set()
            assert given_by(found.reads) <= reads.get(key, nothing), "what it reads is there"
            assert given_by(found.writes) <= writes.get(key, nothing), "what it writes is known"
            pending = made.setdefault(key, set())
            pending |= overwrites.get(key, nothing) - reads.get(key, nothing)  # not brought
            assert not given_by(found.reads) & pending, "nothing is read that was not brought"
            if found.overwrites:
                pending -= given_by(found.writes)
    assert not any(made.values()), "what is not brought is overwritten"


def numbers(graph: Graph, keys: Any) -> dict[int, set[int]]:
    """The bytes of pieces, by buffer."""
    found: dict[int, set[int]] = {}
    for key in keys:
        buffer = graph.buffers[key]
        whole, region = key, Region.span(0, buffer.nbytes)
        if isinstance(buffer, Piece):
            whole, region = buffer.whole, buffer.region
        found.setdefault(whole, set()).update(given_by(region))
    return found


def given_by(found: Region) -> set[int]:
    return {i for low, high in found.intervals for i in range(low, high)}


def test_a_launch_lags_behind_by_its_halo_in_whole_groups() -> None:
    found, shapes = members()
    sizes = found[0].division.sizes
    assert time_skewing.cuts(shapes, 100, sizes) == [100, 99, 98, 97]
    made = tiles_of(found, shapes, 8)
    assert made is not None
    assert [groups for _, groups in made[3].ranges] == [(1, 192 - i, 64) for i in range(4)]
    for m, shape in zip(found, shapes, strict=True):
        mine = [(first, count) for c in made for node, (_, first, count) in c.ranges if node == m.node]
        assert sum(count for _, count in mine) == shape.groups
        assert all(a + n == b for (a, n), (b, _) in pairwise(mine))


def test_tiles_that_would_overtake_what_they_need_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found, shapes = members()
    assert tiles_of(found, shapes, 8) is not None
    monkeypatch.setattr(time_skewing, "cuts", lambda shapes, count, sizes: [count] * len(shapes))
    assert tiles_of(found, shapes, 8) is None


@given(lags=st.lists(st.integers(-2, 6), min_size=3, max_size=3), number=st.integers(2, 16))
def test_tiles_are_allowed_just_where_no_byte_is_overtaken(lags: list[int], number: int) -> None:
    """Against looking at every pair of ranges, byte by byte."""
    found, shapes = members()
    with pytest.MonkeyPatch.context() as patch:
        shifts = [0, *np.cumsum(lags).tolist()]

        def shifted(shapes: list[Outline], count: int, sizes: Any) -> list[int]:
            return [min(max(count - shift, 0), s.groups) for s, shift in zip(shapes, shifts, strict=True)]

        patch.setattr(time_skewing, "cuts", shifted)
        made = tiles_of(found, shapes, number)
    assert (made is not None) == all(lag >= 1 for lag in lags)


def test_what_lies_between_bytes_that_a_tile_overwrites_is_brought() -> None:
    """Two rows, and what is between them, which leaves with them."""
    with mc.Queue("cpu") as queue:
        a = queue.array(np.zeros(COUNT, np.int32))
        with queue.prepare() as prepared:
            for j in (60, 20):
                PROGRAM.row(queue, (WIDTH,), (16,), a, WIDTH, j)
        graph = prepared.graph
    sizes = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
    found = [TileMember(n, divide(t, 0, sizes), 1.0) for n, t in enumerate(graph.nodes) if isinstance(t, Launch)]
    made = tiles_of(found, [s for m in found if (s := shape_of(m.division)) is not None], 2)
    assert made is not None
    ((key, _),) = sizes.items()
    row, half = 4 * WIDTH, 2 * WIDTH
    assert made[0].access[key].writes.intervals == [(20 * row, 60 * row + half)]
    ((low, high),) = made[0].access[key].reads.intervals
    assert 20 * row < low <= 21 * row
    assert high >= 60 * row


def test_a_tile_overwrites_what_its_first_launch_writes() -> None:
    """Of what a launch makes from nothing, nothing is brought."""
    program = mc.Program("""
    kernel void make(global int *a) { a[get_global_id(0)] = get_global_id(0); }
    kernel void twice(global const int *a, global int *b) { b[get_global_id(0)] = 2 * a[get_global_id(0)]; }
    """)
    with mc.Queue("cpu") as queue:
        a, b = queue.array(np.zeros(1 << 16, np.int32)), queue.array(np.zeros(1 << 16, np.int32))
        with queue.prepare() as prepared:
            program.make(queue, (1 << 16,), (64,), a)
            program.twice(queue, (1 << 16,), (64,), a, b)
        graph = prepared.graph
    sizes = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
    found = [TileMember(n, divide(t, 0, sizes), 1.0) for n, t in enumerate(graph.nodes) if isinstance(t, Launch)]
    shapes = [s for m in found if (s := shape_of(m.division)) is not None]
    made = tiles_of(found, shapes, 4)
    assert made is not None
    for tile in made:
        assert tile.access.keys() == set(sizes)
        assert all(a.overwrites and not a.reads for a in tile.access.values())
    where = Machine((Device("d", "gpu", memory=1, global_memory=1 << 17, max_allocation=1 << 17),))
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    problem = Problem(graph, where, Link16(), (1,), valid, splits=Splits(graph), spills=True)
    trace = foresee(problem, Plan(everything(graph), "one", ("d",), 0.0))
    assert not [t for t in trace.transfers() if t.source == "host"]
