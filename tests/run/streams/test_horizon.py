"""Programs that enqueue a long time before they ask for a result: they run part by part, beside the enqueueing."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.api import submission
from manycl.errors import ManyclError
from manycl.graph.graph import Launch
from manycl.graph.horizon import missing
from manycl.run.graph_cache.recurring_graph import RecurringGraph
from manycl.run.session.models import Models
from manycl.run.streams import eager_rule

N = 64
PROGRAM = mc.Program("""
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }
kernel void add(global const int *a, global int *b) { b[get_global_id(0)] += a[get_global_id(0)]; }
""")


def launch(name: str) -> Any:
    made = mock.Mock(Launch, global_size=(1,), local_size=None, args=())
    made.name = name
    return made


@pytest.mark.parametrize(("body", "count", "first"), [(1, 300, 0), (2, 300, 0), (3, 300, 1), (7, 300, 5), (64, 300, 0)])
def test_parts_are_multiples_of_the_loops_body(body: int, count: int, first: int) -> None:
    before = [launch(f"before{i}") for i in range(first)]
    more = missing([*before, *(launch(f"k{i % body}") for i in range(count - first))])
    assert 0 <= more < body
    assert (count + more) % body == 0


def test_what_does_not_repeat_is_not_waited_for() -> None:
    assert missing([launch(f"k{i}") for i in range(300)]) == 0


@pytest.fixture
def short() -> Iterator[None]:
    # (parts that were short, as they mostly are, would be given to one device as they are enqueued)
    with (
        mock.patch.object(submission, "HORIZON", 8),
        mock.patch.multiple(eager_rule, HORIZON=8, ENOUGH=1 << 30),
        mock.patch.object(RecurringGraph, "begins_with", return_value=False),
        mock.patch.object(Models, "took", return_value=inf),
    ):
        yield


@pytest.fixture(params=["cpu/2", "cpu/2#0,cpu/2#1@2"])
def queue(request: pytest.FixtureRequest, short: None) -> Iterator[mc.Queue]:
    with mc.Queue(request.param) as made:
        yield made


def enqueue(queue: mc.Queue, count: int, *arrays: Any) -> None:
    for i in range(count):
        (PROGRAM.inc, PROGRAM.twice)[i % 2](queue, (N,), (8,), arrays[0])
        PROGRAM.add(queue, (N,), (8,), arrays[0], arrays[1])


def expected(count: int, x: Any, y: Any) -> None:
    for i in range(count):
        x[:] = x + 1 if i % 2 == 0 else x * 2
        y += x


def test_a_long_loop_is_right_and_its_trace_has_all_of_it(queue: mc.Queue) -> None:
    for _ in range(4):
        x, y = (queue.array(np.full(N, k, np.int32)) for k in range(2))
        a, b = np.full(N, 0, np.int32), np.full(N, 1, np.int32)
        enqueue(queue, 31, x, y)
        is_given = queue.enqueued.stream is not None  # a part that was short before
        assert len(queue.enqueued) < 8 or is_given, "parts have been taken"
        assert (y.get() != 0).all()
        expected(31, a, b)
        assert (x.get() == a).all()
        assert (y.get() == b).all()
        kernels = {e.node for e in queue.trace.kernels()}
        assert len(kernels) >= 62
        x.set(np.zeros(N, np.int32))
        enqueue(queue, 1, x, y)
        queue.finish()
        assert len({e.node for e in queue.trace.kernels()}) == 2, (
            "what ran before a result was asked for is another trace"
        )


def test_parts_are_known_again(queue: mc.Queue) -> None:
    x, y = (queue.array(np.full(N, k, np.int32)) for k in range(2))
    enqueue(queue, 100, x, y)
    queue.finish()
    assert len(queue._recurring._known) <= 3, "all parts are alike but for where their data are"


def test_somebodys_policy_has_all_of_a_graph(short: None) -> None:
    with mc.Queue("cpu/2", policy="in_order") as queue:
        x, y = (queue.array(np.full(N, k, np.int32)) for k in range(2))
        queue.call(lambda data: None, x)
        enqueue(queue, 30, x, y)
        assert len(queue) == 61
        queue.finish()


def test_a_failure_in_a_part_is_told_to_who_asks(queue: mc.Queue) -> None:
    x, y = (queue.array(np.full(N, k, np.int32)) for k in range(2))

    def fail(data: Any) -> None:
        raise ValueError("on purpose")

    queue.call(fail, x)
    enqueue(queue, 40, x, y)
    with pytest.raises(ManyclError, match="on purpose"):
        queue.finish()
    x.set(np.zeros(N, np.int32))
    y.set(np.zeros(N, np.int32))
    enqueue(queue, 20, x, y)
    a, b = np.zeros(N, np.int32), np.zeros(N, np.int32)
    expected(20, a, b)
    assert (y.get() == b).all()


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["inc", "twice", "add", "get", "wait", "set", "component"]), st.integers(0, 2))
    )
)
def test_whatever_is_enqueued_results_are_numpys(steps: list[tuple[str, int]]) -> None:
    with (
        mock.patch.object(submission, "HORIZON", 3),
        mock.patch.object(eager_rule, "HORIZON", 3),
        mc.Queue("cpu/2") as queue,
    ):
        mine = [np.full(N, k, np.int32) for k in range(3)]
        arrays, event = [queue.array(m) for m in mine], None
        for kind, i in steps * 3:
            if kind == "inc":
                event = PROGRAM.inc(queue, (N,), (8,), arrays[i])
                mine[i] += 1
            elif kind == "twice":
                PROGRAM.twice(queue, (N,), (8,), arrays[i], wait_for=[event] if event is not None else None)
                mine[i] *= 2
            elif kind == "add":
                PROGRAM.add(queue, (N,), (8,), arrays[i], arrays[(i + 1) % 3])
                mine[(i + 1) % 3] += mine[i]
            elif kind == "get":
                assert (arrays[i].get() == mine[i]).all()
            elif kind == "wait" and event is not None:
                event.wait()
            elif kind == "set":
                arrays[i].set(np.full(N, i, np.int32))
                mine[i][:] = i
            elif kind == "component":
                with queue.component():
                    PROGRAM.inc(queue, (N,), (8,), arrays[i])
                    PROGRAM.inc(queue, (N,), (8,), arrays[i])
                mine[i] += 2
        for array, m in zip(arrays, mine, strict=True):
            assert (array.get() == m).all()
