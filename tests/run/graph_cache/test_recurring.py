"""Graphs that come again, enqueued anew on other arrays, are recognised and give what they would give alone."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import LaunchError, PolicyError
from manycl.graph.graph import Graph
from manycl.plan.plan import Plan
from manycl.plan.policies.auto import Auto
from manycl.plan.problem import Problem
from manycl.run.graph_cache import graph_cache
from manycl.run.graph_cache.background_analysis import BackgroundAnalysis
from manycl.run.graph_cache.graph_cache import GraphCache
from manycl.run.graph_cache.kept_commands import KeptCommands
from manycl.utilities.kept import FEW
from tests.run.commands.verify_commands import verify_commands
from tests.run.graph_cache.loops import COUNT, GROUP, PROGRAM, Numbers, loop


def _stencil(x: Numbers, y: Numbers) -> None:
    y[:-1] = x[1:] + 3 * x[:-1]


def _bins(x: Numbers, y: Numbers) -> None:
    np.add.at(y, x & 7, 1)


def _copy(x: Numbers, y: Numbers) -> None:
    y[:] = x


KERNELS: dict[str, Callable[[Numbers, Numbers], None]] = {"copy": _copy, "stencil": _stencil, "bins": _bins}

Call = tuple[str, int, int]
"""What is called, and two numbers: arrays, or an array and what is added."""
CALLS = st.lists(
    st.tuples(st.sampled_from([*KERNELS, "add", "moved", "filled"]), st.integers(0, 2), st.integers(0, 2)).filter(
        lambda call: call[0] in ("add", "filled") or call[1] != call[2]
    ),
    min_size=1,
    max_size=6,
)


def enqueue(queue: mc.Queue, calls: list[Call], arrays: list[mc.Array]) -> None:
    for kind, a, b in calls:
        if kind == "add":
            PROGRAM.add(queue, (COUNT,), (GROUP,), arrays[a], b)
        elif kind == "moved":
            queue.copy(arrays[b], arrays[a], byte_count=4 * (COUNT - 8), dst_offset=32)
        elif kind == "filled":
            queue.fill(arrays[a], b, size=40)
        else:
            getattr(PROGRAM, kind)(queue, (COUNT,), (GROUP,), arrays[a], arrays[b])


def apply(calls: list[Call], arrays: list[Numbers]) -> None:
    for kind, a, b in calls:
        if kind == "add":
            arrays[a] += np.int32(b)
        elif kind == "moved":
            arrays[b][8:] = arrays[a][:-8]
        elif kind == "filled":
            arrays[a][:10] = b
        else:
            KERNELS[kind](arrays[a], arrays[b])


MEMORIES = {"shared": {}, "own": {"MANYCL_ZERO_COPY": "0"}, "little": {"MANYCL_ZERO_COPY": "0"}}
MEMORIES["little"]["MANYCL_DEVICE_MEMORY"] = str(3 * 4 * COUNT + 100)


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(MEMORIES)),
    st.sampled_from(["native/1", "native/2", "opencl/1", "opencl/2"]),
    st.sampled_from(["auto", "in_order", "balance", "eager"]),
    st.lists(CALLS, min_size=1, max_size=3),
    st.data(),
)
def test_every_repetition_gives_what_it_would_give_alone(
    memory: str, devices: str, policy: str, loops: list[list[Call]], data: Any
) -> None:
    """Several loops in turn; arrays are made anew, or those of the last time are used again, written or not."""
    seeds = itertools.count()

    def fresh() -> Numbers:
        return np.random.default_rng(next(seeds)).integers(0, 99, COUNT).astype(np.int32)

    with pytest.MonkeyPatch.context() as patch:
        for name, value in MEMORIES[memory].items():
            patch.setenv(name, value)
        with mc.Queue(devices, policy=policy) as queue:
            arrays: list[mc.Array] = []
            contents: list[Numbers] = []
            for _ in range(data.draw(st.integers(4, 14))):
                calls = data.draw(st.sampled_from(loops))
                how = data.draw(st.sampled_from(["anew", "anew", "anew", "again", "written", "turned"]))
                if how == "anew" or not arrays:
                    contents = [fresh() for _ in range(3)]
                    arrays = [queue.array(c) for c in contents]
                elif how == "written":
                    contents[0] = fresh()
                    arrays[0].set(contents[0])
                elif how == "turned":
                    arrays, contents = [*arrays[1:], arrays[0]], [*contents[1:], contents[0]]
                enqueue(queue, calls, arrays)
                apply(calls, contents)
                if data.draw(st.booleans()):
                    which = data.draw(st.integers(0, 2))
                    assert (arrays[which].get() == contents[which]).all()
                else:
                    queue.finish()
                command_graph = queue.result.command_graph
                if command_graph is not None and command_graph.is_plain:
                    verify_commands(command_graph)
                queue.session.directory.validate(queue.session.machine.memories)
            for array, held in zip(arrays, contents, strict=True):
                assert (array.get() == held).all()
            event("recognised" if any(k._commands for k in queue._recurring._known.values()) else "not")


PLANNED = {"budget": "1.0"}
"""Options of ``auto``, with which it plans for one device, too."""


def planned(devices: str) -> mc.Queue:
    return mc.Queue(devices, options=PLANNED)


def test_with_one_device_a_graph_is_planned_once(asked: list[int]) -> None:
    with planned("cpu/1") as queue:
        results = [loop(queue, n) for n in range(12)]
        assert asked == [6]
        assert [loop(queue, n, 2)[0] for n in range(3)] == [4 * (4 * n + 1) + 1 for n in range(3)]
        assert asked == [6, 4]
        assert [r[0] for r in results] == [4 * (4 * (4 * n + 1) + 1) + 1 for n in range(12)]


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_with_several_devices_a_few_runs_are_planned(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, zero_copy: str
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    monkeypatch.setattr(BackgroundAnalysis, "begin", lambda *args: None)
    with planned("cpu/2") as queue:
        for n in range(7):
            assert loop(queue, n)[0] == 4 * (4 * (4 * n + 1) + 1) + 1
        for n in range(60):
            assert loop(queue, n)[0] == 4 * (4 * (4 * n + 1) + 1) + 1
        assert 1 <= len(asked) <= 6, "it is asked again, ever more rarely"


def test_another_policy_option_or_place_is_another_graph(asked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with planned("cpu/1") as queue:
        for n in range(3):
            loop(queue, n)
        assert len(asked) == 1
        queue.options = {"budget": "0.5"}
        loop(queue, 4)
        assert len(asked) == 2
        queue.policy, queue.options = "in_order", {}
        loop(queue, 5)
        queue.policy, queue.options = "auto", dict(PLANNED)
        loop(queue, 6)
        assert len(asked) == 2
        x = queue.array(np.ones(COUNT, np.int32))
        for expected, count in [(2, 3), (3, 4), (4, 4), (5, 4)]:  # on the host, then on the device
            PROGRAM.add(queue, (COUNT,), (GROUP,), x, 1)
            queue.finish()
            assert len(asked) == count
            if expected == 5:
                assert (x.get() == 5).all()


def test_a_policy_of_the_users_own_is_asked_each_time() -> None:
    asked = []

    class Mine:
        def plan(self, problem: Problem) -> Plan:
            asked.append(len(problem.graph))
            return Auto().plan(problem)

    mc.policy("mine_each_time")(Mine)
    for policy in ("mine_each_time", Mine()):
        with mc.Queue("cpu/1", policy=policy) as queue:
            for n in range(3):
                loop(queue, n)
    assert asked == [6] * 6


def test_a_plan_that_cannot_be_followed_any_more_is_forgotten(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with planned("cpu/1") as queue:
        loop(queue, 1)
        run, refused = queue.session.run, []

        def refusing(graph: Graph, policy: Any = None, **more: Any) -> Any:
            if isinstance(policy, Plan):
                refused.append(policy)
                raise PolicyError("not any more")
            return run(graph, policy, **more)

        monkeypatch.setattr(queue.session, "run", refusing)
        monkeypatch.setattr(KeptCommands, "play", lambda *args: None)
        assert [loop(queue, n)[0] for n in range(3)] == [4 * (4 * (4 * n + 1) + 1) + 1 for n in range(3)]
        assert len(refused) == 3
        assert len(asked) == 4


def test_what_is_kept_is_bounded_and_holds_no_arrays() -> None:
    with planned("cpu/1") as queue:
        programs = [mc.Program(f"kernel void f(global int *x) {{ x[get_global_id(0)] = {n}; }}") for n in range(3)]
        arrays = []
        for size in range(1, FEW + 20):
            x = queue.zeros(8 * size, np.int32)
            for program in programs[:2] * 2:
                program.f(queue, (8 * size,), (8,), x)
            queue.finish()
            assert (x.get() == 1).all()
            arrays.append(weakref.ref(x))
        del x
        known = queue._recurring
        assert len(known._known) == FEW
        assert known._nodes == sum(len(k.graph) for k in known._known.values())
        gc.collect()
        assert not [ref for ref in arrays if ref() is not None]
        queue.session.buffers.collect()
        assert not queue.session.backend.memory.allocated(0)


def test_large_graphs_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_cache, "NODES", 20)
    with planned("cpu/1") as queue:
        for times in (3, 4, 5, 11):
            loop(queue, 1, times)
            assert queue._recurring._nodes <= 20
        assert [len(k.graph) for k in queue._recurring._known.values()] == [8, 10]


@pytest.mark.parametrize("numbers", [(0, 60), (60, 0)])
def test_what_fails_is_told_each_time(numbers: tuple[int, int]) -> None:
    """Whether the first of its kind is refused, or one like it has run before."""
    source = (
        "kernel void f(global const int *x, global int *y, int n) { y[get_global_id(0)] = x[get_global_id(0) + n]; }"
    )
    with planned("cpu/1") as queue:
        program = mc.Program(source)
        x, y = queue.array(np.ones(64, np.int32)), queue.zeros(64, np.int32)
        for _ in range(3):
            for n in numbers:
                program.f(queue, (64,), (8,), x, y, n)
                if not n:
                    queue.finish()
                    continue
                with pytest.raises(LaunchError, match="outside of a buffer"):
                    queue.finish()
        assert (y.get() == 1).all()


def test_host_functions_are_called_each_time() -> None:
    with planned("cpu/1") as queue:
        for n in range(5):
            x = queue.zeros(COUNT, np.int32)
            PROGRAM.add(queue, (COUNT,), (GROUP,), x, 1)

            def more(data: Numbers, n: int = n) -> None:
                data += n

            queue.call(more, x)
            assert (x.get() == 1 + n).all()


def test_recurring_is_forgotten_when_devices_change() -> None:
    with mc.Queue("cpu/2") as queue:
        known: GraphCache = queue._recurring
        loop(queue, 1)
        assert known._known
        queue.session.devices.changes += 1
        loop(queue, 1)
        assert len(known._known) == 1
        assert known._nodes == 6


def test_with_one_device_other_scalars_need_no_other_plan(asked: list[int]) -> None:
    """What they do to the contents, and to whether a launch stays in its buffers, they do each time."""
    source = """kernel void f(global int *x, int a, int n, int first) {
        int i = get_global_id(0);
        for (int k = 0; k < n; k++) x[i + first] = x[i + first] * 2 + a;
    }"""
    with planned("cpu/1") as queue:
        program = mc.Program(source)
        for turn in range(6):
            x = queue.zeros(COUNT, np.int32)
            expected = 0
            for a, n in ((turn, 2), (3, turn), (3, 1)):
                program.f(queue, (COUNT,), (GROUP,), x, a, n, 0)
                for _ in range(n):
                    expected = expected * 2 + a
            assert (x.get() == expected).all()
        assert asked == [3]
        y = queue.zeros(COUNT, np.int32)
        for a, n, first in ((1, 1, 0), (1, 1, 8), (1, 1, 0)):
            program.f(queue, (COUNT,), (GROUP,), y, a, n, first)
        with pytest.raises(LaunchError, match="outside of a buffer"):
            queue.finish()
        assert asked == [3]


def test_with_several_devices_scalars_are_part_of_the_graph(asked: list[int]) -> None:
    with planned("cpu/2") as queue:
        for n in range(3):
            x = queue.zeros(COUNT, np.int32)
            PROGRAM.add(queue, (COUNT,), (GROUP,), x, n)
            assert (x.get() == n).all()
        assert len(asked) == 3
        assert len(queue._recurring._known) == 3


@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_with_several_devices_floats_are_no_part_of_it(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, zero_copy: str
) -> None:
    """Whole kernels, kernels in parts, and streams: each run has its own numbers."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    program = mc.Program("""
    kernel void scaled(global const float *x, global float *y, float a, int first) {
        int i = get_global_id(0);
        y[i] = a * x[i] + first;
    }""")
    data = np.arange(COUNT, dtype=np.float32)
    with mc.Queue("cpu/2") as queue:
        for policy in ("auto", "balance", "in_order"):
            queue.policy = policy
            for n in range(50):
                x, y = queue.array(data), queue.empty(COUNT, np.float32)
                program.scaled(queue, (COUNT,), (GROUP,), x, y, float(n), 1)
                program.scaled(queue, (COUNT,), (GROUP,), y, x, n / 2, 2)
                assert (x.get() == n / 2 * (n * data + 1) + 2).all()
        assert len(queue._recurring._known) <= 3
        assert len(asked) < 20
