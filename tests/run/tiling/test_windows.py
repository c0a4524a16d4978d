"""Data larger than the devices' memories on real devices: the bits of one device without limit, within the limit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.errors import PolicyError, RunError
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.report.summary import summarise
from manycl.run.data.device_memory import DeviceMemory
from manycl.run.data.memory import Memory, StoredBuffer
from manycl.run.engine.engine import RunFailure
from manycl.run.engine.result import Result
from tests.run.between_runs import Numbers, host_code_between_runs, run_by
from tests.run.test_divided_plans import APPLICATIONS, PROGRAM, atomics, on_one_device, random_plan, run

EVERYTHING = 1 << 30
CHANGE = mc.Program("""
kernel void change(global int *x) {
    x[get_global_id(0)] = (x[get_global_id(0)] * 2 + (int)get_group_id(0) + (int)get_global_size(0)) % 1000;
}
""")


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    """Four one-core devices, each with memory of its own; windows also of small buffers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        patch.setattr("manycl.run.tiling.windows.PAGE", 256)
        patch.setattr("manycl.run.tiling.windows.SMALL", 1024)
        create = Memory._create_on

        def counted(memory: Memory, stored: StoredBuffer, held: DeviceMemory) -> Any:
            buffer = create(memory, stored, held)
            device = DeviceIndex(memory._devices.index(held))
            total = stored.nbytes + sum(memory.allocated(device).values()) + held.spare_bytes()
            assert total <= held.device.global_memory, "more than the limit is allocated"
            return buffer

        patch.setattr(Memory, "_create_on", counted)
        with mc.Queue("cpu/4") as found:
            yield found


def limit(queue: mc.Queue, nbytes: int) -> None:
    """From now on, every device has so many bytes, none of which is taken."""
    session = queue.session
    for key in list(session.directory.valid) + list(session.directory.valid_regions):
        for device in session.machine.devices:
            session.buffers.evict(key, device.memory)
    for index in range(len(session.machine.devices)):
        for key in list(session.backend.memory.allocated(index)):
            session.backend.memory.evict(key, index)
    shrink(queue, nbytes)


def shrink(queue: mc.Queue, nbytes: int) -> None:
    """From now on, every device has so many bytes, with what it holds."""
    session = queue.session
    session.trim()
    devices = tuple(replace(d, global_memory=nbytes, max_allocation=nbytes) for d in session.machine.devices)
    session.devices._in_use = replace(session.devices._in_use, devices=devices)  # what learning begins with
    session.devices.machine = session.backend.machine = machine = replace(session.machine, devices=devices)
    session.backend.memory.rearrange(machine, session.backend.drivers, machine.indices)


def cut_by_memory(result: Result) -> bool:
    assert result.lowered is not None
    return result.lowered.room is not None and bool(result.lowered.room.windows)


@pytest.mark.parametrize("build", APPLICATIONS)
def test_with_little_memory_any_cuts_give_the_bits_of_one_device(queue: mc.Queue, build: Any) -> None:
    limit(queue, EVERYTHING)
    expected, whole = run(queue, build, lambda graph, _: on_one_device(graph, queue.devices))
    total = sum(b.nbytes for b in whole.graph.buffers.values())
    ran = windows = 0
    for seed in range(6):
        limit(queue, int(total * random.Random(seed).uniform(0.05, 1.2)))

        def plan(graph: Any, dimensions: Any, seed: int = seed) -> Plan:
            if seed % 4 == 0:
                return on_one_device(graph, queue.devices)
            return random_plan(queue, graph, dimensions, seed, 1 + seed % 4)

        try:
            found, result = run(queue, build, plan)
        except RunError as error:
            if isinstance(error, RunFailure) or "at once" not in str(error):
                raise
            continue
        ran += 1
        windows += cut_by_memory(result)
        for index, (one, many) in enumerate(zip(expected, found, strict=True)):
            assert one.tobytes() == many.tobytes(), f"array {index}, seed {seed}"
    assert ran >= 2
    if build is not atomics:  # whose small arrays must be whole
        assert windows >= 1


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), data=st.data())
def test_host_code_may_write_between_runs(queue: mc.Queue, seed: int, data: st.DataObject) -> None:
    """Runs with random cuts and limits, and arrays written by the host (whole, or in place) and read in between."""
    chance = random.Random(seed)
    count = 2048
    limit(queue, data.draw(st.integers(4 * count, 14 * count)))

    def plan(graph: Graph) -> Plan:
        cut = random_plan(queue, graph, [0, 0], chance.randrange(1 << 30), 3)
        return chance.choice([cut, on_one_device(graph, queue.devices)])

    def both(a: mc.Array, b: mc.Array, x: Numbers, y: Numbers) -> None:
        with queue.prepare() as prepared:
            PROGRAM.neighbours(queue, (count,), (64,), a, b, count)
            CHANGE.change(queue, (count,), (64,), a)
        run_by(prepared, plan)
        y[1:-1] = x[:-2] + x[2:]
        x[:] = (x * 2 + np.arange(count, dtype=np.int32) // 64 + count) % 1000

    host_code_between_runs(queue, count, chance, data, both)


@pytest.mark.parametrize("policy", ["auto", "in_order", "balance"])
def test_a_stencil_on_four_times_the_memory(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """As users have it: the limit is a variable, policies decide."""
    shape, sweeps = (1024, 256), 4
    start = np.random.default_rng(1).random(shape, np.float32)

    def iterate() -> tuple[Any, Result]:
        with mc.Queue("cpu/4#0", policy=policy) as queue:
            a, b = queue.array(start), queue.array(start)
            for _ in range(sweeps):
                tall.jacobi(queue, (256, 1024), (64, 4), a, b, 256, 1024)
                a, b = b, a
            return a.get().copy(), queue.result

    tall = mc.Program("""
    kernel void jacobi(global const float *a, global float *b, int n, int m) {
        int i = get_global_id(0), j = get_global_id(1);
        if (i > 0 && j > 0 && i < n - 1 && j < m - 1)
            b[j * n + i] = 0.25f * (a[j * n + i - 1] + a[j * n + i + 1] + a[(j - 1) * n + i] + a[(j + 1) * n + i]);
    }
    """)
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    expected, _ = iterate()
    monkeypatch.setenv("MANYCL_DEVICE_MEMORY", str(2 * start.nbytes // 4))
    found, result = iterate()
    assert expected.tobytes() == found.tobytes()
    assert cut_by_memory(result)
    ranges = [e for e in result.trace.kernels() if e.role == "range"]
    assert len(ranges) >= 8 * sweeps
    copies, moved = list(result.trace.copies()), list(result.trace.transfers())
    assert copies, "rows beside a range are in the window of the one before"
    assert {(c.source, c.target) for c in copies} == {("cpu0.0", "cpu0.0")}
    assert all(0 <= c.start <= c.end <= result.trace.makespan for c in copies)
    record: Any = result.record
    assert sum(t.nbytes for t in moved) == sum(nbytes for _, _, nbytes, _ in record.moved()), "nothing but the link's"
    links = {(k.source, k.target): k for k in summarise(result.trace).links}
    assert links["cpu0.0", "cpu0.0"].nbytes == sum(c.nbytes for c in copies)
    assert sum(k.nbytes for k in links.values() if k.source != k.target) == sum(t.nbytes for t in moved)
    assert len(moved) <= 3 * len(ranges), "to each of two windows at most once, and from one"


def test_what_cannot_run_in_ranges_is_said(queue: mc.Queue) -> None:
    """Places that data decide: all of the array is needed, whatever the range; the message says what and how much."""
    place = queue.array(np.arange(4096, dtype=np.int32))
    a, b = queue.array(np.zeros(4096, np.int32)), queue.array(np.zeros(4096, np.int32))
    limit(queue, 15000)
    with queue.prepare() as prepared:
        PROGRAM.scatter(queue, (4096,), (64,), place, a, b)
    graph = prepared.graph
    with pytest.raises(RunError, match=r"49,152 bytes of buffers on cpu0\.0 at once, which has 15,000.*scatter"):
        queue.session.run(graph, on_one_device(graph, queue.devices))
    limit(queue, 40000)
    queue.session.run(graph, on_one_device(graph, queue.devices))
    assert (b.get() == 1).all()
    limit(queue, EVERYTHING)


def test_small_buffers_are_said_to_be_kept_whole(queue: mc.Queue) -> None:
    x, y = queue.zeros(192), queue.zeros(192)  # 768 bytes each
    for room, words in ((1000, "1,536 bytes"), (700, "1,536 bytes, 768 of them for one buffer")):
        limit(queue, room)
        with queue.prepare() as prepared:
            PROGRAM.scale(queue, (192,), (16,), x, y, 192)
        graph = prepared.graph
        with pytest.raises(RunError, match=rf"needs {words}: buffers of less than 1,024 bytes are kept whole"):
            queue.session.run(graph, on_one_device(graph, queue.devices))
    limit(queue, EVERYTHING)


def test_pointers_that_are_looked_at_are_no_windows(queue: mc.Queue) -> None:
    program = mc.Program("""
    kernel void same(global const int *a, global int *b) {
        int i = get_global_id(0);
        b[i] = (a == b) ? -1 : a[i];
    }
    """)
    a, b = queue.array(np.arange(4096, dtype=np.int32)), queue.array(np.zeros(4096, np.int32))
    limit(queue, 20000)
    with queue.prepare() as prepared:
        program.same(queue, (4096,), (64,), a, b)
    graph = prepared.graph
    with pytest.raises(RunError, match=r"kernel same .*compares an address"):
        queue.session.run(graph, on_one_device(graph, queue.devices))
    limit(queue, EVERYTHING)


def test_a_prepared_graph_that_does_not_fit_runs_again_and_again(queue: mc.Queue) -> None:
    from manycl.run.graph_cache.cached_graph import CachedGraph

    start = np.random.default_rng(2).integers(0, 100, 4096).astype(np.int32)
    x = queue.array(start)
    limit(queue, 4 * 4096 // 3)
    session, made = queue.session, list[list[int]]()

    def own() -> list[int]:
        """The buffers that are runs' own."""
        return [key for key in session.backend.memory._stored if key < 0]

    session.data.steps.clear()
    session.buffers.collect()
    assert not own(), "of earlier runs, whose steps are forgotten"
    with queue.prepare() as enqueued:
        PROGRAM.condition(queue, (4096,), (64,), x, x)
    graph = enqueued.graph
    prepared = CachedGraph(session, graph, on_one_device(graph, queue.devices))
    for _ in range(5):
        result = prepared.run()
        assert cut_by_memory(result)
        start = np.where(start & 1, start * 5, start)
        assert (x.get() == start).all()
        made.append(own())
    assert made == [made[0]] * 5, "the same windows again and again"
    assert made[0]
    assert not any(session.backend.memory.allocated(0)), "windows are left"
    limit(queue, EVERYTHING)


def test_what_makes_way_may_be_used_elsewhere_in_the_run(queue: mc.Queue) -> None:
    """A device holds y and z and is to run a kernel on x; a range of another kernel changes y on another device."""
    count = 2048
    limit(queue, EVERYTHING)
    x, y, z = (queue.array(np.full(count, i, np.int32)) for i in range(3))
    for array in (y, z):
        with queue.prepare() as prepared:
            CHANGE.change(queue, (count,), (64,), array)
        graph = prepared.graph
        queue.session.run(graph, on_one_device(graph, queue.devices))
    with queue.prepare() as prepared:
        CHANGE.change(queue, (count,), (64,), x)
        CHANGE.change(queue, (count,), (64,), y)
    graph = prepared.graph
    shrink(queue, 20000)
    ranges = [Assignment(1, 1, 0, 0.0, 0.0, 0, 0, 16), Assignment(1, 2, 0, 0.0, 0.0, 0, 16, 16)]
    queue.session.run(graph, Plan((Assignment(0, 0, 0, 0.0, 0.0), *ranges), "by hand", queue.devices, 0.0))

    def changed(data: Any) -> Any:
        return (data * 2 + np.arange(count, dtype=np.int32) // 64 + count) % 1000

    start = [np.full(count, i, np.int32) for i in range(3)]
    assert (x.get() == changed(start[0])).all()
    assert (y.get() == changed(changed(start[1]))).all()
    assert (z.get() == changed(start[2])).all()
    limit(queue, EVERYTHING)


@pytest.mark.parametrize("policy", ["eager", "heft", "clustering"])
def test_policies_that_decide_while_it_runs_have_ranges_or_say_what_does_not_fit(queue: mc.Queue, policy: str) -> None:
    program = mc.Program("""
    kernel void more(global int *a, global int *b) { b[get_global_id(0)] = a[get_global_id(0)] + 1; }
    kernel void any(global int *a, global int *b) { b[get_global_id(0)] = a[b[get_global_id(0)] & 4095]; }
    """)
    a, b = queue.array(np.arange(4096, dtype=np.int32)), queue.array(np.zeros(4096, np.int32))
    limit(queue, 15000)
    with queue.prepare() as prepared:
        program.any(queue, (4096,), (64,), a, b)
    graph = prepared.graph
    with pytest.raises(PolicyError, match=r"no device can run node 0 \(any\).*too little memory"):
        queue.session.run(graph, policy)
    with queue.prepare() as prepared:
        program.more(queue, (4096,), (64,), a, b)
    result = queue.session.run(prepared.graph, policy)
    assert len(result.ranges(0)) > 1
    limit(queue, EVERYTHING)
    assert (b.get() == np.arange(4096) + 1).all()
