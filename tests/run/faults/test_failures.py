"""After a failure: nothing hangs, nothing is left running, and what counts as valid is valid."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.drivers.driver import DriverError
from manycl.drivers.opencl import staging
from manycl.errors import DeviceError, ResultError, RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.machine import Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Done, Failed, HostCall, Run
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data import host_memory
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.observers import Counting
from manycl.run.engine.playback import Playback
from manycl.run.executor.record import RunRecord
from manycl.run.lowering.steps import Lowered
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import is_download
from tests.run.chaos.chaos_values import left_by, touched
from tests.run.chaos.test_state import Unit, begin, graphs, launch, machine, machines, random_plan

N = 64
TOO_LARGE = 1 << 16  # work-items in one work-group
INTERVAL = sys.getswitchinterval()  # seconds; before any test has begun
PROGRAM = mc.Program(
    "__kernel void inc(__global int *x, int by) { x[get_global_id(0)] += by; }\n"
    "__kernel void copy(__global const int *a, __global int *b) { b[get_global_id(0)] = a[get_global_id(0)]; }"
)


@settings(max_examples=100)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32), st.booleans())
def test_what_counts_as_valid_is_valid_after_a_failure(
    data: Any, graph: Graph, where: Machine, seed: int, interrupted: bool
) -> None:
    """Every buffer that is not lost holds the result of one of its writers, the same in all its memories, and that of
    the last writer that the run counts as complete or a later one."""
    directory, start, values = begin(graph, where, data.draw)
    victim = data.draw(st.integers(0, len(graph) - 1))
    plan = random_plan(data.draw, graph, where, queues=2)
    backend = ChaosBackend(where, seed, fail=[] if interrupted else [victim])
    backend.values = values
    complete: list[int] = []

    def interrupt(count: int) -> None:
        complete.append(count)
        if interrupted and count > victim // 2:
            raise KeyboardInterrupt

    problem = Problem(graph, where, Unit(), tuple(2 for _ in where.devices))
    with pytest.raises((RunFailure, KeyboardInterrupt)):
        execute(problem, plan, backend, directory, observers=(Counting(interrupt),))
    versions = {key: [value] for key, value in start.items()}
    current: dict[int, object] = dict(start)
    for n, node in enumerate(graph.nodes):
        seen = {k: current.get(k) for k in touched(graph, n)}
        for key in node.writes:
            current[key] = left_by(graph, n, key, seen, None)
            versions.setdefault(key, []).append(current[key])
    for key, mask in directory.valid.items():
        assert mask > 0, "valid nowhere, and nobody says that it is lost"
        held = [backend.values[m].get(key) for m in range(where.memories) if mask >> m & 1]
        assert len(set(held)) == 1, f"buffer {key} differs between the memories {mask:b} where it counts as valid"
        assert held[0] in versions[key], f"buffer {key} holds what nobody ever wrote to it"


def test_under_chaos_nothing_counts_on_a_queue_in_which_something_has_failed() -> None:
    """What is enqueued there later, before anybody has heard of it, comes after commands that never run."""
    builder = GraphBuilder()
    a = builder.buffer(4)
    for name in ("fails", "behind it", "later"):
        builder.add(launch(name, (a,), (a,)))
    backend = ChaosBackend(machine([1]), 0, fail=[0])
    backend.begin(builder.build(), (2,))
    backend.perform([Run(0, 0, 0, (), True), Run(1, 0, 0, (), False)])
    assert isinstance(backend.wait()[0], Failed)
    backend.perform([Run(2, 0, 0, (), False)])
    assert not backend.finish().ran


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """One device with memory of its own, which takes less than it says."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    for asked in ("api.program", "graph.versions.feasible"):
        monkeypatch.setattr(f"manycl.{asked}.beyond", lambda launch, device: "")
    with mc.Queue("cpu/2#0") as queue:
        yield queue


def test_an_upload_behind_a_refused_launch_is_done_in_the_next_run(own: mc.Queue) -> None:
    x = own.zeros(TOO_LARGE, np.int32)
    y, z = own.zeros(N, np.int32), own.zeros(N, np.int32)
    PROGRAM.copy(own, (N,), (16,), y, z)
    own.finish()
    y.set(np.full(N, 7, np.int32))  # the device's copy is stale now
    with own.prepare() as prepared:
        PROGRAM.inc(own, (TOO_LARGE,), (TOO_LARGE,), x, 1)
        PROGRAM.copy(own, (N,), (16,), y, z)
    with pytest.raises(RunError, match="kernel inc"):
        prepared.run()
    w = own.empty(N, np.int32)
    PROGRAM.copy(own, (N,), (16,), y, w)
    assert (w.get() == 7).all()
    assert (y.get() == 7).all()
    with pytest.raises(ResultError, match="unknown"):
        x.get()


@pytest.mark.parametrize("devices", ["cpu/2", "cpu/2@2"])
@pytest.mark.parametrize("what", [SystemExit, KeyboardInterrupt, MemoryError])
def test_whatever_a_host_function_raises_ends_the_run(devices: str, what: type[BaseException]) -> None:
    def stop(_: Any) -> None:
        raise what("enough")

    with mc.Queue(devices, policy="eager") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        PROGRAM.inc(queue, (N,), (16,), x, 1)
        queue.call(stop, y, name="stop")
        with pytest.raises(RunError, match=rf"host function stop \(node 1\) failed on host: {what.__name__}: enough"):
            queue.finish()
        y.set(np.zeros(N, np.int32))
        queue.call(lambda data: data.fill(4), y)
        PROGRAM.inc(queue, (N,), (16,), y, 1)
        assert (y.get() == 5).all()


def by_get(x: mc.Array) -> object:
    return x.get()


def by_set(x: mc.Array) -> object:
    return x.set(np.zeros(N, np.int32))


def by_borrowing(x: mc.Array) -> object:
    return x.set(np.zeros(N, np.int32), copy=False)


def by_running(x: mc.Array) -> object:
    PROGRAM.inc(x.queue, (N,), (16,), x, 1)
    return x.queue.finish()


@pytest.mark.parametrize("how", [by_get, by_set, by_borrowing, by_running])
def test_a_host_function_that_turns_to_its_own_queue_is_told_so(how: Callable[[mc.Array], object]) -> None:
    with mc.Queue("cpu/2") as queue:
        x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        queue.call(lambda _: how(x), y, name="turn")
        with pytest.raises(RunError, match=r"turn.*a host function asked for an array"):
            queue.finish()
        enqueued = int(how is by_running)  # by the function, and not run yet
        assert (x.get() == enqueued).all()


def test_a_host_function_may_not_change_what_it_only_reads() -> None:
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(N, np.int32)
        queue.call(lambda data: data.fill(1), x, writes=[], name="fill")
        with pytest.raises(RunError, match=r"fill.*read-only"):
            queue.finish()
        assert (x.get() == 0).all()


def test_a_run_that_the_user_interrupts(own: mc.Queue) -> None:
    x, y = own.zeros(N, np.int32), own.array(np.arange(N, dtype=np.int32))
    with own.prepare() as prepared:
        for _ in range(30):
            PROGRAM.inc(own, (N,), (16,), x, 1)
    graph = prepared.graph

    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        own.session.run(graph, observers=(Counting(interrupt),))
    x.set(np.zeros(N, np.int32))
    PROGRAM.copy(own, (N,), (16,), y, x)
    PROGRAM.inc(own, (N,), (16,), x, 1)
    assert (x.get() == np.arange(N) + 1).all()


def test_a_failed_queue_in_a_with_block_releases_its_devices() -> None:
    with pytest.raises(RunError), mc.Queue("cpu/2") as queue:
        queue.call(lambda: 1 / 0, name="divide")
    with pytest.raises(DeviceError, match="closed"):
        queue.zeros(1)


class Told:
    """A driver whose events are how they ended."""

    def done(self, status: int) -> bool:
        if status < 0:
            raise DriverError(f"it ended with {status}")
        return True

    def succeeded(self, statuses: Sequence[int]) -> bool:
        return not any(statuses)


def test_the_first_of_several_silent_failures_decides_what_is_lost() -> None:
    """Queues interleave: the launch that was enqueued first need not be the one with the lowest number."""
    record = RunRecord(Graph((), {}, ()), Machine(()), [Told()], 0.0)  # type: ignore[list-item]
    for node, status in ((5, -5), (2, 0), (3, -14), (7, -5)):
        record.kernels.append((node, 0, 0, status))
    record.find_failure()
    assert record.failure is not None
    assert record.failure.token == 3
    assert record.failure.message == "it ended with -14"


@given(st.data(), st.integers(1, 3))
def test_what_comes_after_a_failed_node_is_unknown_though_it_was_reported(data: Any, queues: int) -> None:
    """A driver may go on behind a command that failed, and report that first."""
    builder = GraphBuilder()
    buffers = [builder.buffer(4) for _ in range(data.draw(st.integers(1, 4)))]
    some = st.sets(st.sampled_from(buffers), max_size=2)
    for i in range(data.draw(st.integers(1, 8))):
        builder.add(launch(f"n{i}", tuple(data.draw(some)), tuple(data.draw(some))))
    graph, where = builder.build(), machine([1])
    places = [data.draw(st.integers(0, queues - 1)) for _ in graph.nodes]
    plan = Plan(tuple(Assignment(n, 0, q, 0.0, 0.0) for n, q in enumerate(places)), "", ("d0",), 0.0)
    directory = Directory()
    problem, lowered = Problem(graph, where, Unit(), (queues,)), Lowered(graph)
    state = Playback(compiled(Subject(problem, lowered, directory.valid), plan), directory)
    assert len([c for c in [*state.start(0.0), *state.handle()] if isinstance(c, Run)]) == len(graph)
    reported = data.draw(st.sets(st.integers(0, len(graph) - 1)))
    victim = data.draw(st.integers(0, len(graph) - 1))
    # a report says so of all that its queue held before it
    done = {n for n in range(len(graph)) if any(n <= r and places[n] == places[r] for r in reported - {victim})}
    for node in sorted(reported - {victim}):
        state.handle(Done(node, 1.0))
    state.handle(Failed(victim, 2.0, "it failed"))
    after = {victim}
    for a, b in sorted(graph.edges, key=lambda edge: edge[1]):
        after |= {b} if a in after else set()
    unknown = {key for n, node in enumerate(graph.nodes) if n in after or n not in done for key in node.writes}
    state.lose("it failed")
    written = {key for node in graph.nodes for key in node.writes}
    assert {key for key in written if is_lost(directory, key)} == unknown
    assert all(directory.memories(key) == {1} for key in written - unknown)


def is_lost(directory: Directory, key: int) -> bool:
    try:
        directory.check(key)
    except ResultError:
        return True
    return False


class TransferFails(ChaosBackend):
    """The first transfer fails, and so has the launch whose result it moves, of which nobody was told."""

    def wait(self, until: float | None = None) -> list[Any]:
        moved = next(c for line in self._lines.values() for c in line if is_download(c))
        return [Failed(moved.token, 1.0, "the transfer failed", self._run)]

    def abort(self) -> Any:
        super().abort()
        self.record.failure = Failed(0, 1.0, "the kernel failed")
        return self.record


def test_a_silent_failure_is_told_rather_than_that_of_the_transfer_behind_it() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4), builder.buffer(4)
    builder.add(launch("makes", (), (a,)))
    builder.add(launch("reads", (a,), (b,)))
    plan = Plan((Assignment(0, 0, 0, 0.0, 0.0), Assignment(1, 1, 0, 0.0, 0.0)), "", ("d0", "d1"), 0.0)
    where, directory = machine([1, 2]), Directory()
    problem = Problem(builder.build(), where, Unit(), (1, 1))
    with pytest.raises(RunFailure, match=r"makes.* failed on d0(.|\n)*the kernel failed"):
        execute(problem, plan, TransferFails(where, 0), directory)
    with pytest.raises(ResultError, match="makes"):
        directory.check(a)


# staged transfers: pageable memory of at least STAGE_FROM bytes


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    """Two devices with memories of their own that move every buffer through many small pinned chunks."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(staging, "STAGE_FROM", 1)
    monkeypatch.setattr(host_memory, "PAGE", 1 << 40)
    monkeypatch.setattr(staging, "CHUNK", 1000)
    with mc.Queue("opencl/2") as queue:
        yield queue


def round_robin(queue: mc.Queue, graph: Graph) -> Plan:
    """Every node on another device than the one before."""
    count = len(queue.devices)
    return Plan(tuple(Assignment(n, n % count, 0, 0.0, 0.0) for n in range(len(graph))), "", queue.devices, 0.0)


def test_staged_transfers_move_every_byte(staged: mc.Queue) -> None:
    big = 5001
    data = np.random.default_rng(1).integers(0, 1 << 30, big, dtype=np.int32)
    x, y = staged.array(data, copy=False), staged.empty(big, np.int32)
    with staged.prepare() as prepared:
        PROGRAM.copy(staged, (big,), (1,), x, y)
        for _ in range(4):
            PROGRAM.inc(staged, (big,), (1,), y, 1)
    graph = prepared.graph
    result = staged.session.run(graph, round_robin(staged, graph))
    moved = [e for e in result.trace.events if e.event == "transfer"]
    assert {e.nbytes for e in moved} == {4 * big}
    assert len(moved) >= 5  # x up, and y from one to the other between each two
    assert (y.get() == data + 4).all()


def test_staged_transfers_end_with_the_run_that_failed(staged: mc.Queue) -> None:
    big = 5001

    def fail() -> None:
        raise ValueError("no more")

    x = staged.zeros(big, np.int32)
    for turn in range(10):
        with staged.prepare() as prepared:
            for _ in range(3):
                PROGRAM.inc(staged, (big,), (1,), x, 1)
            staged.call(fail)
        graph = prepared.graph
        assignments = [Assignment(n, n % 2, 0, 0.0, 0.0) for n in range(3)] + [Assignment(3, -1, 0, 0.0, 0.0)]
        with pytest.raises(RunError, match="no more"):
            staged.session.run(graph, Plan(tuple(assignments), "", staged.devices, 0.0))
        x.set(np.full(big, turn, np.int32))
        PROGRAM.inc(staged, (big,), (1,), x, 1)
        assert (x.get() == turn + 1).all()


def test_runs_at_once_leave_the_interpreter_as_it_was() -> None:
    def work() -> None:
        with mc.Queue("cpu/2") as queue:
            x = queue.zeros(N, np.int32)
            for _ in range(20):
                PROGRAM.inc(queue, (N,), (16,), x, 1)
                queue.finish()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
    deadline = monotonic() + 120  # what is loaded in the background takes short turns, too, until that is done
    while sys.getswitchinterval() != INTERVAL and monotonic() < deadline:
        sleep(0.01)
    assert sys.getswitchinterval() == INTERVAL


def test_commands_behind_a_refused_one_are_not_enqueued(own: mc.Queue) -> None:
    """The engine may hear of other things first, and send commands that wait for what was never enqueued."""
    x = own.zeros(TOO_LARGE, np.int32)
    with own.prepare() as prepared:
        PROGRAM.inc(own, (TOO_LARGE,), (TOO_LARGE,), x, 1)
        PROGRAM.inc(own, (N,), (16,), x, 1)
        PROGRAM.inc(own, (N,), (16,), x, 1)
    backend, graph = own.session.backend, prepared.graph
    backend.begin(graph, (2,))
    backend.perform([Run(0, 0, 0, (), True), Run(1, 0, 0, (), True)])
    backend.perform([Run(2, 0, 1, (1,), True)])
    (report,) = backend.wait()
    assert isinstance(report, Failed)
    assert report.token == 0
    assert list(backend.abort().durations()) == []


def test_functions_of_the_host_that_have_not_begun_are_not_called_once_a_run_is_given_up(
    own: mc.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up, called = threading.Event(), list[str]()

    def first() -> None:
        called.append("first")
        given_up.wait(60)

    tasks = HostTask("first", first, (), (), ()), HostTask("second", lambda: called.append("second"), (), (), ())
    backend = own.session.backend
    settle = backend._settle_threads
    monkeypatch.setattr(backend, "_settle_threads", lambda: (given_up.set(), settle()))
    backend.begin(Graph(tasks, {}, ((), ())), (1,))
    backend.perform([HostCall(0), HostCall(1)])
    backend.abort()
    assert called in ([], ["first"])


# what looks complete, and is not
