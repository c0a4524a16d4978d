"""Queues: prepared graphs, events, components, several queues, plans; machines of mixed memories."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.drivers.opencl import devices as opencl
from manycl.errors import LaunchError, ManyclError, PolicyError, ResultError, RunError
from manycl.machine import HOST
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.classical.in_order import InOrder
from manycl.plan.problem import Problem
from manycl.run.graph_cache import kept_commands

N = 64
PROGRAM = mc.Program(
    """
__kernel void inc(__global int *x, int by) { x[get_global_id(0)] += by; }
__kernel void affine(__global const int *a, __global int *c, int m, int b) {
  int i = get_global_id(0); c[i] = a[i] * m + b;
}
__kernel void add(__global const int *a, __global const int *b, __global int *c) {
  int i = get_global_id(0); c[i] = a[i] + b[i];
}
"""
)
MIXED = "native/2#0,opencl/2#0,native/2#1,opencl/2#1"
POLICIES = ["auto", "in_order", "eager", "heft", "clustering"]


def size() -> tuple[tuple[int], tuple[int]]:
    return (N,), (16,)


@pytest.fixture(scope="module", params=["shared", "own", "mixed", "slowed own", "opencl own"])
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """``mixed``: two devices in the host's memory beside two of another driver with memories of their own, as a CPU
    beside GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0" if "own" in request.param else "1")
        if request.param == "mixed":
            patch.setattr(opencl, "shares_host_memory", lambda _: False)
        devices = {"mixed": MIXED, "slowed own": "cpu/2#0,cpu/2#1@3", "opencl own": "opencl/2"}
        queue = mc.Queue(devices.get(request.param, "cpu/2"))
    memories = {"shared": [HOST, HOST], "mixed": [HOST, 1, HOST, 2]}.get(request.param, [1, 2])
    assert [d.memory for d in queue.session.machine.devices] == memories
    yield queue.session
    queue.session.close()


# prepared graphs


@pytest.mark.parametrize("policy", POLICIES)
def test_two_prepared_graphs_take_turns(session: Any, policy: str) -> None:
    """Each is recorded where its data are, and the other moves them away in between."""
    queue = mc.Queue(session=session, policy=policy)
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.zeros(N, np.int32)
    with queue.prepare() as first:
        for _ in range(3):
            PROGRAM.inc(queue, *size(), x, 2)
        PROGRAM.affine(queue, *size(), x, y, 1, 0)
    with queue.prepare() as second:
        PROGRAM.affine(queue, *size(), y, x, -1, 5)
        PROGRAM.inc(queue, *size(), y, 1)
    a, b = np.arange(N, dtype=np.int32), np.zeros(N, np.int32)
    for turn in range(12):
        if turn in (0, 1, 2, 4, 7, 8, 9, 11):
            first.run()
            a = a + 6
            b = a.copy()
        if turn in (1, 3, 4, 5, 6, 9, 10):
            second.run()
            a, b = 5 - b, b + 1
        if turn % 3 == 0:
            assert (y.get() == b).all()
    assert (x.get() == a).all()
    assert (y.get() == b).all()
    assert first.plan is not None


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["set", "borrow", "map", "look", "launch", "drop", "make", "call"]),
        st.integers(0, 2),
        st.integers(-99, 99),
    ),
    max_size=4,
)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 1), CHANGES), min_size=3, max_size=10), st.sampled_from(POLICIES))
def test_what_happens_between_the_runs_of_prepared_graphs(
    session: Any, turns: list[tuple[int, list[tuple[str, int, int]]]], policy: str
) -> None:
    queue = mc.Queue(session=session, policy=policy)
    values = [np.full(N, k, np.int32) for k in range(3)]
    arrays = [queue.array(v) for v in values]
    with queue.prepare() as one:
        PROGRAM.add(queue, *size(), arrays[0], arrays[1], arrays[2])
        PROGRAM.inc(queue, *size(), arrays[0], 3)
    with queue.prepare() as two:
        PROGRAM.affine(queue, *size(), arrays[2], arrays[1], 3, -1)
        PROGRAM.inc(queue, *size(), arrays[2], 1)
    others: list[mc.Array] = []
    borrowed: list[np.ndarray] = []
    for which, changes in turns:
        for kind, index, number in changes:
            array = arrays[index]
            new = np.arange(N, dtype=np.int32) + np.int32(number)
            if kind in ("set", "borrow"):
                borrowed.append(new)
                array.set(new, copy=kind == "set")
                values[index] = new.copy()
            elif kind == "map":
                with array.map() as host:
                    host[::2] = number
                values[index] = values[index].copy()
                values[index][::2] = number
            elif kind == "look":
                assert (array.get() == values[index]).all()
            elif kind == "launch":
                PROGRAM.inc(queue, *size(), array, number)
                values[index] = values[index] + np.int32(number)
            elif kind == "call":
                queue.call(negate, array)
                values[index] = -values[index]
            elif kind == "make":
                others.append(queue.array(new))
                PROGRAM.inc(queue, *size(), others[-1], 1)
            elif others:
                others.pop(0)
                gc.collect()
        if which == 0:
            one.run()
            values[2] = values[0] + values[1]
            values[0] = values[0] + np.int32(3)
        else:
            two.run()
            values[1] = values[2] * np.int32(3) - np.int32(1)
            values[2] = values[2] + np.int32(1)
    for array, value in zip(arrays, values, strict=True):
        assert array.get().tobytes() == value.tobytes()


def negate(data: np.ndarray) -> None:
    np.negative(data, out=data)


def test_a_prepared_graph_is_played_by_the_shortest_way(session: Any) -> None:
    """Without this, the tests above would not test it."""
    if any(d.slowdown > 1 for d in session.machine.devices):
        pytest.skip("slowed devices are driven step by step")
    queue = mc.Queue(session=session, policy="in_order")
    x = queue.zeros(N, np.int32)
    with queue.prepare() as prepared:
        PROGRAM.inc(queue, *size(), x, 1)
    for _ in range(7):
        prepared.run()
    with mock.patch.object(kept_commands, "play", wraps=kept_commands.play) as shortest:
        assert prepared.run().policy == "in_order"
    assert shortest.call_count == 1
    assert [k.node for k in queue.trace.kernels()] == [0]
    assert (x.get() == 8).all()


def test_a_prepared_graph_keeps_its_arrays_and_loses_them_like_any_run(session: Any) -> None:
    queue = mc.Queue(session=session)
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    hidden = queue.array(np.full(N, 5, np.int32))
    with queue.prepare() as prepared:
        PROGRAM.add(queue, *size(), x, hidden, x)
    del hidden
    gc.collect()
    for _ in range(5):
        prepared.run()
    assert (x.get() == 25).all()
    queue.call(fail, x, y)
    with pytest.raises(RunError):
        queue.finish()
    with pytest.raises(ResultError, match="unknown"):
        prepared.run()
    x.set(np.zeros(N, np.int32))
    prepared.run()
    assert (x.get() == 5).all()


def fail(*_: Any) -> None:
    raise ValueError("no more")


def test_an_empty_prepared_graph(session: Any) -> None:
    with mc.Queue(session=session).prepare() as prepared:
        pass
    for _ in range(4):
        assert len(prepared.run().graph) == 0


# events, components, several queues


def test_events_of_another_queue_are_waited_for(session: Any) -> None:
    one, two = mc.Queue(session=session), mc.Queue(session=session)
    seen: list[int] = []
    event = one.call(lambda: seen.append(1))
    two.call(lambda: seen.append(2), wait_for=[event])
    two.finish()
    assert seen == [1, 2]
    event.wait()  # long done
    assert seen == [1, 2]
    two.call(lambda: seen.append(3), wait_for=[event])
    two.finish()
    assert seen == [1, 2, 3]


def test_a_component_goes_on_after_a_result(session: Any) -> None:
    queue = mc.Queue(session=session, policy="clustering")
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    with queue.component():
        PROGRAM.inc(queue, *size(), x, 1)
        assert (x.get() == 1).all()
        PROGRAM.inc(queue, *size(), x, 1)
        PROGRAM.inc(queue, *size(), x, 1)
    PROGRAM.inc(queue, *size(), y, 1)
    queue.finish()
    assert queue.result.graph.components == ((0, 1), (2,))
    assert (x.get() == 3).all()
    with queue.component():
        pass
    PROGRAM.inc(queue, *size(), y, 1)
    assert (y.get() == 2).all()
    assert queue.result.graph.components == ()


def test_a_plan_is_a_policy(session: Any) -> None:
    queue = mc.Queue(session=session, policy="eager")
    x = queue.zeros(N, np.int32)
    for _ in range(4):
        PROGRAM.inc(queue, *size(), x, 1)
    queue.finish()
    plan = queue.result.plan
    again = mc.Queue(session=session, policy=plan)
    for _ in range(4):
        PROGRAM.inc(again, *size(), x, 1)
    assert (x.get() == 8).all()
    assert plan is not None
    assert [(k.node, k.device) for k in sorted(again.trace.kernels(), key=lambda k: k.node)] == [
        (a.node, plan.devices[a.device]) for a in sorted(plan.assignments)
    ]
    PROGRAM.inc(again, *size(), x, 1)
    with pytest.raises(PolicyError, match="plan"):
        again.finish()


def test_what_a_queue_cannot_do(session: Any) -> None:
    queue = mc.Queue(session=session)
    x = queue.zeros(N, np.int32)
    with pytest.raises(ManyclError, match="nothing has run"):
        queue.trace  # noqa: B018
    with pytest.raises(LaunchError, match="not among"):
        queue.call(print, x, writes=[queue.zeros(N, np.int32)], name="print")
    later = mc.Queue(session=session)
    later.policy = "best"
    PROGRAM.inc(later, *size(), later.zeros(N, np.int32), 1)
    with pytest.raises(PolicyError, match="no policy is called 'best'"):
        later.finish()


def test_a_policy_that_is_none_is_told_when_the_queue_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*args: object, **named: object) -> None:
        raise AssertionError("devices were opened")

    monkeypatch.setattr("manycl.run.session.session.Session", opened)
    with pytest.raises(PolicyError, match=r"'balence' \(did you mean 'balance'\?\)") as caught:
        mc.Queue("cpu/2", policy="balence")
    assert "auto, balance, clustering" in str(caught.value)
    monkeypatch.setenv("MANYCL_POLICY", "nope")
    with pytest.raises(PolicyError, match="no policy is called 'nope'"):
        mc.Queue("cpu/2")
    with pytest.raises(AssertionError):  # one that is named comes before the environment's
        mc.Queue("cpu/2", policy="eager")


@pytest.mark.usefixtures("collected")
def test_memory_limits_are_looked_at_before_anything_is_allocated(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = session.machine
    small = tuple(replace(d, max_allocation=4 * N) for d in machine.devices)
    queue = mc.Queue(session=session)
    fits, large = queue.zeros(N, np.int32), queue.zeros(2 * N, np.int32)
    for held, device in zip(session.backend.memory._devices, small, strict=True):
        monkeypatch.setattr(held, "device", device)
    PROGRAM.inc(queue, *size(), fits, 1)
    assert (fits.get() == 1).all()
    PROGRAM.inc(queue, (2 * N,), (16,), large, 1)
    with pytest.raises(RunError, match=r"512 bytes; cpu\d\.\d allocates at most 256"):
        queue.finish()


def test_what_is_refused_leaves_the_trace_of_what_ran(session: Any) -> None:
    source = "kernel void far(global int *x, int n) { x[get_global_id(0) + n] = 1; }"
    far = mc.Program(source).far
    with mc.Queue(session=session, policy="heft") as queue:
        x = queue.zeros(64, np.int32)
        far(queue, (64,), (8,), x, np.int32(0))
        queue.finish()
        ran = list(queue.trace.kernels())
        far(queue, (64,), (8,), x, np.int32(100))
        with pytest.raises(mc.ManyclError, match="outside"):
            queue.finish()
        assert list(queue.trace.kernels()) == ran


def test_a_result_in_the_middle_of_a_run_is_refused() -> None:
    """By a policy, which is asked within the run; what was enqueued is right all the same."""

    class Asks:
        def plan(self, problem: Problem) -> Plan:
            with pytest.raises(RunError, match="in the middle of a run"):
                x.get()
            return InOrder().plan(problem)

    with mc.Queue("cpu/2", policy=Asks()) as queue:
        x = queue.zeros(N, np.int32)
        for _ in range(3):
            PROGRAM.inc(queue, *size(), x, 1)
        assert (x.get() == 3).all()


@pytest.mark.parametrize("devices", ["cpu/2#0", "cpu/2"])
def test_a_plan_as_the_policy_is_for_what_comes_then(devices: str) -> None:
    """What a device was given before, under another policy, is that one's run."""
    with mc.Queue(devices) as queue:
        a = queue.zeros(N, np.int32)
        for n in range(6):
            PROGRAM.inc(queue, *size(), a, 1)
            queue.policy = Plan((Assignment(0, 0, 0, 0.0, 0.0),), "by hand", queue.devices, 0.0)
            queue.finish()
            assert (a.get() == n + 1).all()
            queue.policy = None
