"""Bytes that a program reads and writes between launches, on a device with memory of its own: the stream goes on, and
the program sees what NumPy sees."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manycl as mc
from manycl.api.events import Event
from manycl.drivers.driver import Holdable
from manycl.drivers.opencl.real import compiled
from manycl.model.transfer import LARGE, TINY
from manycl.run.streams import eager_rule, stream_state
from manycl.run.streams.eager_rule import SEVERAL
from manycl.stand_in import runtime
from manycl.stand_in.objects.contexts import CommandQueue, Context, Platforms
from manycl.stand_in.objects.memory import Buffer
from manycl.stand_in.objects.transfers import _enqueue_read_buffer, enqueue_map_buffer
from manycl.stand_in.runtime import Runtime

SOURCE = """
__kernel void add(__global int *x, __global const int *y, int by) { x[get_global_id(0)] += y[get_global_id(0)] + by; }
__kernel void spin(__global int *x, int turns) { for (int t = 0; t < turns; t++) x[0] = x[0] * 5 + t; }
"""
N = 16
_MAP = compiled.map_flags
KINDS = ["add", "add", "load", "load", "store", "store", "copy", "get", "set", "finish", "new", "whole"]
KINDS += ["fetch", "fetch", "arrive", "map", "map"]
_STEP = st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2), st.integers(0, N - 1))


@pytest.fixture(params=["opencl/2#0", "opencl/2", "native/2#0", "native/2", "shared opencl/2", "shared native/2"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """What runs a program, on devices whose memory is taken to be their own, or is the host's. Where there are several,
    what comes again is soon given to one of them without looking at it."""
    *how, devices = request.param.split()
    monkeypatch.setenv("MANYCL_ZERO_COPY", "1" if how else "0")
    monkeypatch.setattr(eager_rule, "RETRIED", 2)
    monkeypatch.setattr(eager_rule, "WORTH", 1e9)
    monkeypatch.setattr(stream_state, "LONGEST", 1e9)
    found = Runtime(devices)
    machine = found.session.machine
    assert machine.memories == (1 if how else 1 + len(machine.devices))
    yield found
    found.queue.close()


def loaded(program: Runtime, array: mc.Array, first: int, count: int) -> list[int]:
    out = np.full(count, -1, np.int32)
    program.load(array, 4 * first, out.view(np.uint8))
    return list(out.tolist())


def store(program: Runtime, array: mc.Array, first: int, values: np.ndarray) -> None:
    program.store(array, 4 * first, values.view(np.uint8))
    values[:] = -7  # taken at the call


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blocks=st.lists(st.tuples(st.lists(_STEP, min_size=1, max_size=4), st.integers(1, 7)), min_size=1, max_size=12))
def test_programs_see_what_numpy_sees_there(
    program: Runtime, blocks: list[tuple[list[tuple[str, int, int, int]], int]]
) -> None:
    steps = [step for block, times in blocks for step in block * times]
    source, queue = mc.Program(SOURCE), program.queue
    expected = [np.arange(N, dtype=np.int32) * (i + 1) for i in range(3)]
    arrays = [queue.array(e) for e in expected]
    coming: list[tuple[np.ndarray, list[int], Event | None]] = []
    for number, (what, one, two, first) in enumerate(steps):
        count = min(N - first, 1 + two)
        if what == "add" and one != two:
            source.add(queue, (N,), None, arrays[one], arrays[two], np.int32(number))
            expected[one] = expected[one] + expected[two] + np.int32(number)
        elif what == "load":
            assert loaded(program, arrays[one], first, count) == list(expected[one][first : first + count])
        elif what == "store":
            store(program, arrays[one], first, np.full(count, number, np.int32))
            expected[one] = expected[one].copy()
            expected[one][first : first + count] = number
        elif what == "whole":
            store(program, arrays[one], 0, np.full(N, number, np.int32))
            expected[one] = np.full(N, number, np.int32)
        elif what == "copy" and one != two:
            queue.copy(arrays[one], arrays[two])
            expected[one] = expected[two].copy()
        elif what == "get":
            assert (arrays[one].get() == expected[one]).all()
        elif what == "set":
            arrays[one][first : first + count] = number
            expected[one] = expected[one].copy()
            expected[one][first : first + count] = number
        elif what == "new":  # undefined but for what is stored
            arrays[one] = queue.empty(N, np.int32)
            store(program, arrays[one], 0, np.full(first, 3, np.int32))
            store(program, arrays[one], first, np.full(N - first, number, np.int32))
            expected[one] = np.array([3] * first + [number] * (N - first), np.int32)
        elif what == "map":
            place = program.common(arrays[one], 4 * first, 4 * count, reads=True, writes=two == 0)
            assert (place is None) == (program.session.machine.memories > 1)
            if place is not None:
                assert place.view(np.int32).tolist() == expected[one][first : first + count].tolist()
            if place is not None and two == 0:
                place.view(np.int32)[:] = number
                expected[one] = expected[one].copy()
                expected[one][first : first + count] = number
        elif what == "fetch":
            out = np.full(count, -1, np.int32)
            place = out.view(np.uint8)
            coming.append(
                (
                    out,
                    expected[one][first : first + count].tolist(),
                    program.fetch(arrays[one], 4 * first, place, place),
                )
            )
        elif what == "arrive" and coming:
            out, there, event = coming[number % len(coming)]
            if event is not None:
                event.wait()
            assert out.tolist() == there
        elif what == "finish":
            program.finish()
            assert all(out.tolist() == there for out, there, _ in coming)
            coming = []
    program.finish()
    assert all(out.tolist() == there for out, there, _ in coming)
    for array, wanted in zip(arrays, expected, strict=True):
        assert (array.get() == wanted).all()


def test_what_comes_to_a_device_is_what_the_host_had_at_the_launch(program: Runtime) -> None:
    source, queue = mc.Program(SOURCE), program.queue
    x, busy = queue.zeros(N, np.int32), queue.zeros(1, np.int32)
    for number in range(10):
        y = queue.zeros(N, np.int32)
        source.spin(queue, (1,), None, busy, np.int32(1 << 24))
        source.add(queue, (N,), None, x, y, np.int32(1))
        store(program, y, 0, np.full(N, 9, np.int32))
        assert loaded(program, x, 0, N) == [number + 1] * N


@pytest.mark.parametrize(("count", "every"), [(1, 1), (100, 1), (100, 16), (TINY // 4 + 1, 1)])
def test_a_loop_that_writes_launches_and_reads_is_few_runs(program: Runtime, count: int, every: int) -> None:
    source, queue = mc.Program(SOURCE), program.queue
    x, y = queue.zeros(1 << 19, np.int32), queue.zeros(1 << 19, np.int32)
    joined = 0
    for number in range(3 * SEVERAL):
        store(program, x, 5, np.full(count, number, np.int32))
        source.add(queue, (5 + count,), None, x, y, np.int32(1))
        if number % every == 0:
            assert set(loaded(program, x, 5, count)) == {number + 1}
        stream = queue.enqueued.stream
        joined += stream is not None and stream.is_joined
    assert loaded(program, x, 0, 5) == [3 * SEVERAL] * 5
    assert queue.result.seconds > 0.0
    if (count, every) == (1, 1):
        assert joined > 2 * SEVERAL


def test_a_read_comes_while_the_program_goes_on(program: Runtime) -> None:
    """Also where what is before it has to be planned; what is enqueued behind it does not change it."""
    source, queue = mc.Program(SOURCE), program.queue
    x = queue.zeros(N, np.int32)
    for number in range(1, 10):
        source.spin(queue, (1,), None, x, np.int32(1 << 16))
        source.add(queue, (N,), None, x, queue.array(np.ones(N, np.int32)), np.int32(0))
        out = np.zeros(N - 1, np.int32)
        event = program.fetch(x, 4, out.view(np.uint8), out.view(np.uint8))
        assert event is not None, "it was waited for"
        source.spin(queue, (1,), None, x, np.int32(4))
        event.wait()
        assert set(out) == {number}


@pytest.mark.parametrize("count", [N, LARGE])
@pytest.mark.parametrize("zero_copy", ["0", "1"])
def test_the_end_is_waited_for_with_reads_behind_it(
    monkeypatch: pytest.MonkeyPatch, zero_copy: str, count: int
) -> None:
    """Also where all commands have been waited for before, and only a read, or a write and a read, came since."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    monkeypatch.setattr(stream_state, "LONGEST", 1e9)
    program = Runtime("native/2#0")
    source, queue, device = mc.Program(SOURCE), program.queue, program.session.backend.lanes[0].driver
    assert isinstance(device, Holdable)
    x, y = queue.zeros(LARGE, np.int32), queue.zeros(LARGE, np.int32)
    for number in range(1, 13):
        source.add(queue, (LARGE,), None, x, y, np.int32(1))
        program.finish()
        device.hold(True)
        if zero_copy == "0":
            store(program, x, 4, np.full(1, number, np.int32))
        out = np.zeros(count, np.int32)
        event = program.fetch(x, 0, out.view(np.uint8), out.view(np.uint8)) if number > 6 or zero_copy == "1" else None
        ends = threading.Thread(target=program.finish)
        ends.start()
        ends.join(0.1 if event is not None else 0.0)
        assert event is None or ends.is_alive(), "nobody has waited for the read"
        device.hold(False)
        ends.join()
        assert event is None or set(out) <= {number}
    queue.close()


def test_what_is_kept_of_reads_does_not_grow(program: Runtime) -> None:
    source, queue = mc.Program(SOURCE), program.queue
    x, y = queue.array(np.arange(N, dtype=np.int32)), queue.zeros(N, np.int32)
    for _ in range(20):
        source.add(queue, (N,), None, x, y, np.int32(1))
        assert loaded(program, x, 3, 1)
    for number in range(3 * SEVERAL):
        assert loaded(program, x, number % N, 1) == [20 + number % N]
        stream = queue.enqueued.stream
        assert stream is None or len(stream.record.transfers) <= SEVERAL + 1


@pytest.mark.parametrize("nbytes", [4, 1 << 20])
def test_a_buffer_is_mapped_in_place(nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its devices compute in the host's memory, as drivers of processors do it: nothing is copied."""
    monkeypatch.setattr(runtime, "_runtimes", {})
    platform = Platforms("native/2", None, real_too=False).get_platforms()[0]
    context = Context(platform.get_devices())
    queue, buffer = CommandQueue(context), Buffer(context, compiled.mem_flags.READ_WRITE, 1 << 20)
    places = []
    for flags in (_MAP.WRITE_INVALIDATE_REGION, _MAP.WRITE, _MAP.READ):
        array, event = enqueue_map_buffer(queue, buffer, flags, (1 << 20) - nbytes, (nbytes,), np.uint8)
        assert event.status == 0
        places.append(array.ctypes.data)
        if flags != _MAP.READ:
            array[-1] += 1
        last = int(array[-1])
        array.base.release(queue)
    assert len(set(places)) == 1
    out = np.zeros(4, np.uint8)
    _enqueue_read_buffer(queue, buffer, out, (1 << 20) - 4)
    assert out[-1] == last
    context.runtime.queue.close()


def test_a_command_that_fails_is_told_by_the_read_behind_it(program: Runtime) -> None:
    source, queue = mc.Program(SOURCE), program.queue
    x, y = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
    for _ in range(5):
        source.add(queue, (N,), None, x, y, np.int32(1))
        assert loaded(program, x, 0, 1)
    with pytest.raises(Exception, match="16"):
        source.add(queue, (N,), (N + 1,), x, y, np.int32(1))
    assert loaded(program, x, 0, 2) == [5, 5]
