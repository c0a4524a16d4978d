"""One queue, several threads: each call is one step, as with OpenCL's own queues."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import manycl as mc

N = 64
PROGRAM = mc.Program(
    "__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }\n"
    "__kernel void add(__global const int *a, __global int *b) { b[get_global_id(0)] += a[get_global_id(0)]; }"
)


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*work: Callable[[], None]) -> None:
    """Each on a thread of its own; raises what one of them raised."""
    errors: list[BaseException] = []

    def guarded(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for what does not come"
    if errors:
        raise errors[0]


@pytest.mark.parametrize("policy", ["in_order", "auto"])
def test_launches_of_several_threads_do_not_mix(policy: str) -> None:
    with mc.Queue("cpu/2", policy=policy) as queue:

        def work() -> None:
            for _ in range(15):
                a = queue.zeros(N, np.int32)
                for _ in range(8):
                    PROGRAM.inc(queue, (N,), (16,), a)
                queue.call(lambda x: np.add(x, 1, out=x), a)
                assert (a.get() == 9).all()

        at_once(work, work, work, work)


def test_who_asks_for_a_result_waits_for_the_run_that_another_thread_began() -> None:
    with mc.Queue("cpu/2#0", policy="in_order") as queue:
        a, begun, asked = queue.zeros(N, np.int32), threading.Event(), threading.Event()

        def slow(x: object) -> None:
            begun.set()
            asked.wait(10)

        PROGRAM.inc(queue, (N,), (16,), a)
        queue.call(slow, a)
        PROGRAM.inc(queue, (N,), (16,), a)

        def ask() -> None:
            assert begun.wait(60)
            PROGRAM.inc(queue, (N,), (16,), a)  # enqueueing does not wait
            threading.Timer(0.05, asked.set).start()
            assert (a.get() == 3).all()

        at_once(queue.finish, ask)


def test_an_array_that_goes_to_and_fro_between_two_threads_queues() -> None:
    with mc.Queue("cpu/2", policy="in_order") as one, mc.Queue(session=one.session, policy="eager") as two:
        a = one.zeros(N, np.int32)
        turns = 30

        def work(queue: mc.Queue) -> Callable[[], None]:
            def turn() -> None:
                for _ in range(turns):
                    PROGRAM.inc(queue, (N,), (16,), a)

            return turn

        at_once(work(one), work(two), lambda: [one.finish() for _ in range(10)] and None)
        assert (a.get() == 2 * turns).all()


def test_prepared_graphs_of_two_threads() -> None:
    with mc.Queue("cpu/2") as queue:
        a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        with queue.prepare() as first:
            PROGRAM.inc(queue, (N,), (16,), a)
        with queue.prepare() as second:
            PROGRAM.inc(queue, (N,), (16,), b)
        at_once(lambda: first.repeat(20) and None, lambda: second.repeat(20) and None)
        assert (a.get() == 20).all()
        assert (b.get() == 20).all()


def test_a_component_is_of_the_thread_that_opened_it() -> None:
    with mc.Queue("cpu/2", policy="clustering") as queue:
        a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        with queue.component():
            PROGRAM.inc(queue, (N,), (16,), a)
            at_once(lambda: PROGRAM.inc(queue, (N,), (16,), b) and None)
            PROGRAM.inc(queue, (N,), (16,), a)
        queue.finish()
        assert queue.result.graph.components == ((0, 2), (1,))


def test_an_add_that_was_interrupted_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch that was to come would have been taken for the last writer."""
    with mc.Queue("cpu/2", policy="in_order") as queue:
        a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        PROGRAM.inc(queue, (N,), (16,), a)
        builder = queue.enqueued.builder

        class Interrupted(list[object]):
            def append(self, node: object) -> None:
                raise KeyboardInterrupt

        nodes = builder.nodes
        builder.nodes = Interrupted(nodes)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            PROGRAM.inc(queue, (N,), (16,), a)
        builder.nodes = nodes
        PROGRAM.inc(queue, (N,), (16,), b)
        PROGRAM.add(queue, (N,), (16,), a, b)
        assert (b.get() == 2).all()
        assert queue.result.graph.predecessors == ((), (), (0, 1))
