"""``with queue.prepare()``: what is enqueued inside is a graph, and what else goes on is as if it were not there."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import LaunchError, PolicyError

N = 64
PROGRAM = mc.Program("__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }")


@pytest.fixture
def queue() -> Iterator[mc.Queue]:
    with mc.Queue("cpu/2", policy="in_order") as found:
        yield found


def inc(queue: mc.Queue, x: mc.Array, **more: Any) -> mc.Event:
    return PROGRAM.inc(queue, (N,), (16,), x, **more)


def on_a_thread(work: Callable[[], Any]) -> None:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_what_is_enqueued_inside_runs_when_it_is_told_to(queue: mc.Queue) -> None:
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    inc(queue, x)
    with queue.prepare() as graph:
        inc(queue, y)
        inc(queue, y)
        assert len(queue) == 1, "what was enqueued before stays enqueued"
    assert len(queue) == 1
    assert len(graph.graph) == 2
    assert (y.get() == 0).all()
    assert (x.get() == 1).all()
    for turn in range(1, 4):
        inc(queue, x)
        graph.run()
        assert len(queue) == 0, "it runs after what is enqueued"
        assert (y.get() == 2 * turn).all()
        assert (x.get() == 1 + turn).all()


def test_everything_that_enqueues_works_inside(queue: mc.Queue) -> None:
    given = np.arange(N, dtype=np.int32)
    x = queue.zeros(N, np.int32)
    with queue.prepare() as graph:
        y = queue.empty(N, np.int32)
        queue.write(x, given, copy=False)
        with queue.component():
            queue.copy(y, x)
            last = inc(queue, y)
        queue.fill(x, 7)
        queue.call(lambda a: np.multiply(a, 2, out=a), y, wait_for=[last])
        seen = queue.read(y)
    assert graph.graph.components[0] == (1, 2)
    for _ in range(2):
        given += 1
        graph.run()
        assert (seen.out == 2 * (given + 1)).all()
        assert (x.get() == 7).all()
        assert (y.get() == seen.out).all()


def test_results_are_asked_for_when_the_block_has_ended(queue: mc.Queue) -> None:
    x, other = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.prepare() as before:
        inc(queue, x)
    outside = inc(queue, x)

    def map_it() -> None:
        with x.map():
            pass

    def nest() -> None:
        with queue.prepare():
            pass

    with queue.prepare() as graph:
        inside = inc(queue, x)
        asked = [
            queue.finish,
            x.get,
            x[3:7].get,
            lambda: np.asarray(x),
            lambda: x.set(np.ones(N, np.int32)),
            lambda: x.set(np.ones(N, np.int32), copy=False),
            lambda: x[:4].set(np.ones(4, np.int32)),
            lambda: x.exchange(other),
            map_it,
            inside.wait,
            outside.wait,
            before.run,
            graph.run,
            nest,
        ]
        for ask in asked:
            with pytest.raises(LaunchError, match="a graph is being prepared"):
                ask()
        with pytest.raises(LaunchError, match="not complete"):
            len(graph.graph)
        inc(queue, x)
    assert len(queue) == 1, "nothing has run"
    assert len(graph.graph) == 2, "what was refused has left nothing behind"
    assert (x.get() == 1).all()
    graph.run()
    assert (x.get() == 3).all()


def test_other_threads_go_on(queue: mc.Queue) -> None:
    x, y, z = (queue.zeros(N, np.int32) for _ in range(3))
    graphs: list[mc.Prepared] = []

    def work() -> None:
        inc(queue, y)
        with queue.prepare() as graph:
            inc(queue, z)
        graphs.append(graph)
        assert (y.get() == 1).all()
        with pytest.raises(LaunchError, match="not complete"):
            mine.run()

    with queue.prepare() as mine:
        inc(queue, x)
        on_a_thread(work)
        inc(queue, x)
    assert [len(g.graph) for g in (mine, *graphs)] == [2, 1]
    mine.run()
    graphs[0].run()
    assert [int(array.get()[0]) for array in (x, y, z)] == [2, 1, 1]


def test_a_block_that_raises_leaves_nothing(queue: mc.Queue) -> None:
    x = queue.zeros(N, np.int32)
    inc(queue, x)
    graphs, arrays = [], []

    def stopped() -> None:
        with queue.prepare() as graph:
            graphs.append(graph)
            inc(queue, x)
            hidden = queue.zeros(N, np.int32)
            inc(queue, hidden)
            arrays.append(weakref.ref(hidden))
            raise KeyError("no more")

    with pytest.raises(KeyError):
        stopped()
    gc.collect()
    assert arrays[0]() is None
    with pytest.raises(LaunchError, match="not complete"):
        graphs[0].run()
    queue.policy = "nowhere"
    with pytest.raises(PolicyError), queue.prepare():
        inc(queue, x)
    queue.policy = "in_order"
    inc(queue, x)
    assert (x.get() == 2).all()


def test_events_order_what_is_in_the_same_block(queue: mc.Queue) -> None:
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    before = inc(queue, x)
    with queue.prepare() as graph:
        first = inc(queue, x, wait_for=[before])
        inc(queue, y, wait_for=[first])
    assert graph.graph.predecessors == ((), (0,))
    inc(queue, y, wait_for=[first])  # elsewhere it is nothing to wait for
    first.wait()
    assert len(queue) == 2, "and its graph runs when it is told to"
    queue.finish()
    assert queue.result.graph.predecessors == ((), ())
    assert (x.get() == 1).all()


def test_arrays_of_other_queues(queue: mc.Queue) -> None:
    other = mc.Queue(session=queue.session, policy="in_order")
    x = queue.zeros(N, np.int32)
    inc(other, x)
    with queue.prepare() as graph:
        inc(queue, x)  # what the other queue has enqueued with it runs first
        assert len(other) == 0
        inc(other, x)
        assert (x.get() == 2).all(), "asked of the other queue"
    graph.run()
    assert (x.get() == 3).all()


def test_an_array_of_the_block_may_not_exchange_its_contents_meanwhile(queue: mc.Queue) -> None:
    """Which contents would be meant when the graph runs?"""
    other = mc.Queue(session=queue.session, policy="in_order")
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)

    def prepared() -> None:
        with queue.prepare():
            inc(queue, x)
            inc(other, x)
            x.exchange(y)

    with pytest.raises(LaunchError, match="exchanged contents while"):
        prepared()
    assert [int(array.get()[0]) for array in (x, y)] == [0, 1]


def test_a_component_around_a_block_does_not_reach_into_it(queue: mc.Queue) -> None:
    queue.policy = "clustering"
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.component():
        inc(queue, x)
        with queue.prepare() as graph:
            inc(queue, y)
        inc(queue, x)
    inc(queue, y)
    queue.finish()
    assert graph.graph.components == ()
    assert queue.result.graph.components == ((0, 1), (2,))


def test_what_is_refused_when_it_runs_is_refused_when_it_is_enqueued_next() -> None:
    """It was not given to a device, which has a stream under way: nothing says yet that it keeps to its arrays."""
    with mc.Queue("cpu/2#0") as queue:
        x, short = queue.zeros(N, np.int32), queue.zeros(N // 2, np.int32)
        for _ in range(2):
            inc(queue, x)
            with queue.prepare() as graph:
                inc(queue, short)
            with pytest.raises(LaunchError, match="outside of a buffer"):
                graph.run()
            with pytest.raises(LaunchError, match="outside of a buffer"):
                inc(queue, short)
        assert (x.get() == 2).all()
