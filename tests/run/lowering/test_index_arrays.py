"""Divided launches that read by index arrays: only what these tell is moved, and results are right whatever becomes of
their contents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import manycl as mc
from manycl.analysis.regions import counted
from manycl.analysis.regions.counted import CountedRegions
from manycl.plan.plan import Assignment, Plan
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.utilities.unforeseen import UnforeseenWarning

ROWS, COLUMNS, GROUP, CUT = 1 << 12, 1 << 12, 64, 16
SOURCE = """
kernel void product(global const int *rows, global const int *at, global const int *v, global const int *x,
                    global int *y) {
    int r = get_global_id(0), s = 0;
    for (int k = rows[r]; k < rows[r + 1]; k++) s += v[k] * x[at[k]];
    y[r] = s;
}
kernel void gather(global const int *at, global const int *x, global int *y, int stride) {
    int i = get_global_id(0); y[i] = x[at[i] * stride];
}
kernel void reversed(global const int *from, global int *rows) {
    int i = get_global_id(0); rows[i] = from[i];
}
"""
Data = npt.NDArray[Any]
random = np.random.default_rng(7)


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2#0-1")
    with queue:
        yield queue


@pytest.fixture(autouse=True)
def it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """However fast this machine moves bytes."""
    monkeypatch.setattr(counted, "SECONDS", 1e-10)


@pytest.fixture(scope="module")
def program() -> mc.Program:
    return mc.Program(SOURCE)


def halves(queue: mc.Queue, cut: int = CUT) -> Plan:
    first = Assignment(0, 0, 0, 0.0, 0.0, 0, 0, cut)
    second = first._replace(device=1, first=cut, groups=ROWS // GROUP - cut)
    return Plan((first, second), "parts", queue.devices, 0.0)


def moved(result: Any, to: str) -> int:
    return sum(t.nbytes for t in result.trace.transfers() if t.target == to)


class Matrix:
    """A sparse matrix by rows, and its product."""

    def __init__(self) -> None:
        self.rows = np.concatenate([[0], np.cumsum(random.integers(40, 80, ROWS))]).astype(np.int32)
        count = ROWS * 80
        self.at, self.v = random.integers(0, COLUMNS, count, np.int32), random.integers(-9, 9, count, np.int32)
        self.x = random.integers(-9, 9, COLUMNS, np.int32)

    def product(self) -> Data:
        sums = np.concatenate([[0], np.cumsum(self.v * self.x[self.at])])
        found: Data = sums[self.rows[1:]] - sums[self.rows[:-1]]
        return found

    def on(self, queue: mc.Queue) -> list[Any]:
        return [queue.array(a) for a in (self.rows, self.at, self.v, self.x)]


def prepared(queue: mc.Queue, program: mc.Program, arrays: list[Any]) -> tuple[Any, Any]:
    y = queue.zeros(ROWS, np.int32)
    with queue.prepare() as graph:
        program.product(queue, (ROWS,), (GROUP,), *arrays, y)
    return graph, y


def test_each_device_gets_the_elements_of_its_rows(queue: mc.Queue, program: mc.Program) -> None:
    matrix = Matrix()
    arrays = matrix.on(queue)
    graph, y = prepared(queue, program, arrays)
    result = queue.session.run(graph.graph, halves(queue))
    assert (y.get() == matrix.product()).all()
    first, last = matrix.rows[CUT * GROUP], matrix.rows[-1]
    of_rows, x = 4 * (ROWS + 2), matrix.x.nbytes
    assert 8 * first + x < moved(result, "cpu0.0") <= 8 * first + x + of_rows
    assert moved(result, "cpu0.1") <= 8 * (last - first) + x + of_rows
    again = queue.session.run(graph.graph, halves(queue))
    assert not moved(again, "cpu0.0") + moved(again, "cpu0.1")
    assert (y.get() == matrix.product()).all()


def test_contents_that_change_between_runs(queue: mc.Queue, program: mc.Program) -> None:
    """By the host, in part; by a launch in an eager stream; by a graph, on a device; by a graph itself."""
    matrix = Matrix()
    rows, *others = arrays = matrix.on(queue)
    graph, y = prepared(queue, program, arrays)
    plan = halves(queue)

    def check() -> None:
        result = queue.session.run(graph.graph, plan)
        assert len(result.ranges(0)) == 2
        assert (y.get() == matrix.product()).all()

    def other() -> Data:
        matrix.rows = np.sort(random.integers(0, ROWS * 79, ROWS + 1)).astype(np.int32)
        return matrix.rows

    for _ in range(2):
        check()
    rows.set(other())
    check()
    # (buffers that were seen to change are not looked at any more)
    for change in range(4):
        rows, *_ = arrays = [queue.array(matrix.rows), *others]
        graph, y = prepared(queue, program, arrays)
        check()
        new = other()
        if change == 0:
            rows[100:] = new[100:]
            rows[:100] = new[:100]
            queue.finish()
        else:
            source = queue.array(new)
            with queue.prepare() as writing:
                program.reversed(queue, (ROWS + 1,), None, source, rows)
            if change == 1:
                program.reversed(queue, (ROWS + 1,), None, source, rows)
                queue.finish()
            else:
                writing.run()
            if change == 3:
                assert (rows.get() == new).all()
        check()
        check()


def test_prepared_graphs_play_other_commands_when_contents_change(queue: mc.Queue, program: mc.Program) -> None:
    matrix = Matrix()
    rows, *_ = arrays = matrix.on(queue)
    graph, y = prepared(queue, program, arrays)
    cached = CachedGraph(queue.session, graph.graph, halves(queue))
    for turn in range(6):
        if turn == 4:
            matrix.rows = np.sort(random.integers(0, ROWS * 79, ROWS + 1)).astype(np.int32)
            rows.set(matrix.rows)
        cached.run()
        assert (y.get() == matrix.product()).all(), turn


def test_what_the_graph_itself_writes_is_not_looked_at(queue: mc.Queue, program: mc.Program) -> None:
    matrix = Matrix()
    rows, *_ = arrays = matrix.on(queue)
    matrix.rows = np.sort(random.integers(0, ROWS * 79, ROWS + 1)).astype(np.int32)
    source, y = queue.array(matrix.rows), queue.zeros(ROWS, np.int32)
    with queue.prepare() as graph:
        program.reversed(queue, (ROWS + 1,), None, source, rows)
        program.product(queue, (ROWS,), (GROUP,), *arrays, y)
    first, *others = halves(queue).assignments
    plan = Plan(
        (Assignment(0, 1, 0, 0.0, 0.0), *(a._replace(node=1) for a in (first, *others))), "p", queue.devices, 0.0
    )
    queue.session.run(graph.graph, plan)
    assert (y.get() == matrix.product()).all()


@pytest.mark.parametrize("stride", [128, 64, 96])
def test_gathers_from_a_part(queue: mc.Queue, program: mc.Program, stride: int) -> None:
    """The least and the greatest place count, and a scalar that decides nothing without them."""
    x = random.integers(0, 99, 1 << 20, np.int32)
    at = np.sort(random.integers(0, len(x) // stride, ROWS, np.int32))
    arrays, y = [queue.array(at), queue.array(x)], queue.zeros(ROWS, np.int32)
    with queue.prepare() as graph:
        program.gather(queue, (ROWS,), (GROUP,), *arrays, y, np.int32(stride))
    result = queue.session.run(graph.graph, halves(queue))
    assert (y.get() == x[at * stride]).all()
    own = at[: CUT * GROUP] * stride
    assert moved(result, "cpu0.0") <= 4 * (own.max() - own.min() + 1) + at.nbytes
    assert moved(result, "cpu0.0") + moved(result, "cpu0.1") < 1.1 * x.nbytes


def test_what_fails_moves_all(queue: mc.Queue, program: mc.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(CountedRegions, "hull", fails)
    matrix = Matrix()
    arrays = matrix.on(queue)
    graph, y = prepared(queue, program, arrays)
    with pytest.warns(UnforeseenWarning, match="looking at the index arrays of product"):
        result = queue.session.run(graph.graph, halves(queue))
    assert moved(result, "cpu0.0") > 2 * matrix.v.nbytes
    assert (y.get() == matrix.product()).all()


def test_what_is_small_is_moved_whole(queue: mc.Queue, program: mc.Program) -> None:
    x, at = random.integers(0, 99, ROWS, np.int32), np.zeros(ROWS, np.int32)
    arrays, y = [queue.array(at), queue.array(x)], queue.zeros(ROWS, np.int32)
    with queue.prepare() as graph:
        program.gather(queue, (ROWS,), (GROUP,), *arrays, y, np.int32(1))
    assert moved(queue.session.run(graph.graph, halves(queue)), "cpu0.0") >= x.nbytes
    assert (y.get() == x[0]).all()


def test_steps_made_beside_runs_rely_on_contents_that_are_known(queue: mc.Queue, program: mc.Program) -> None:
    """They read no memory, and have keys of their own."""
    matrix = Matrix()
    rows, *_ = arrays = matrix.on(queue)
    graph, y = prepared(queue, program, arrays)
    session, plan = queue.session, halves(queue)
    problem = session.problem(graph.graph)
    assert session.data.steps.lower_ahead(problem, plan, session.directory.copy(), frozenset()) is None
    session.run(graph.graph, plan)
    found = session.data.steps.lower_ahead(problem, plan, copied := session.directory.copy(), frozenset())
    assert found is not None
    assert found.looked_at
    assert found.fits(session.directory)
    assert copied.new_key() != session.directory.new_key()
    rows.set(matrix.rows[::-1].copy())
    assert not found.fits(session.directory)
    assert (y.get() == matrix.product()).all()
