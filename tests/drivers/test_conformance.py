"""One suite for every driver: OpenCL's; native devices', also with programs that were compiled by hand; both, opened
by a process of their own; and one whose programs are Python functions. ``MANYCL_TEST_DEVICES=gpu0`` adds the first
device of a selection, as it is."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import (
    BuildError,
    CommandRecorder,
    Driver,
    DriverError,
    End,
    Event,
    RecordedCopy,
    RecordedFill,
    RecordedLaunch,
    Source,
)
from manycl.drivers.recorded_calls import RecordedCalls
from manycl.drivers.shared import shared_memory
from manycl.drivers.survey import survey
from manycl.graph.graph import LocalArg
from manycl.machine import HOST
from manycl.region import Box
from tests.drivers.host_functions import HostFunctions, NDRange
from tests.drivers.native import native_entries

TEXT = """
kernel void add(global uint *x, uint by) { x[get_global_id(0)] += by; }
kernel void slow(global uint *x, uint by) {
    uint v = x[get_global_id(0)];
    for (int i = 0; i < 200000; i++) v = v * 1664525u + 1013904223u;
    x[get_global_id(0)] += by + (v & 0u);
}
kernel void places(global ulong *out) {
    size_t i[3], at = 0;
    for (int d = 2; d >= 0; d--) {
        i[d] = get_global_id(d);
        at = at * get_global_size(d) + i[d] - get_global_offset(d);
    }
    out[at] = i[0] | i[1] << 16 | i[2] << 32;
}
kernel void turned(global uint *x, local uint *t) {
    size_t i = get_local_id(0), n = get_local_size(0);
    t[i] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = t[n - 1 - i];
}
"""
FUNCTIONS = HostFunctions()


def number(value: bytes) -> Any:
    return np.frombuffer(value, np.uint32)[0]


@FUNCTIONS.kernel
def add(over: NDRange, x: Any, by: bytes) -> None:
    x.view(np.uint32)[over.items()] += number(by)


@FUNCTIONS.kernel
def slow(over: NDRange, x: Any, by: bytes) -> None:
    time.sleep(0.005)
    x.view(np.uint32)[over.items()] += number(by)


@FUNCTIONS.kernel
def places(over: NDRange, out: Any) -> None:
    ids = [np.arange(over.offset[d], over.offset[d] + over.global_size[d]) for d in range(len(over.global_size))]
    grids = np.meshgrid(*ids[::-1], indexing="ij")[::-1]
    total = sum((grid.astype(np.uint64) << np.uint64(16 * d) for d, grid in enumerate(grids)), np.uint64(0))
    out.view(np.uint64)[: total.size] = total.reshape(-1)


@FUNCTIONS.kernel
def turned(over: NDRange, x: Any, local: LocalArg) -> None:
    assert over.local_size is not None
    assert local.nbytes == 4 * over.local_size[0]
    groups = x.view(np.uint32)[over.items()].reshape(-1, over.local_size[0])
    groups[:] = groups[:, ::-1].copy()


KINDS = ["opencl", "opencl@process", "entries", "functions"]
if any(root.driver == "native" for root in survey().roots):
    KINDS += ["native", "native@process"]
CASES = [f"{kind} {where}" for kind in KINDS for where in ("shared", "own")]
if GIVEN := os.environ.get("MANYCL_TEST_DEVICES", ""):
    CASES.append("given any")


@pytest.fixture(scope="module", params=CASES)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    kind, where = request.param.split()
    with pytest.MonkeyPatch.context() as patch:
        if where != "any":
            patch.setenv("MANYCL_ZERO_COPY", "0" if where == "own" else "1")
        if kind == "entries":
            native_entries.add(patch)
        elif not kind.endswith("@process"):  # which has not got it
            FUNCTIONS.add(patch)
        names = {
            "opencl": "cpu0/2#0",
            "opencl@process": "portable computing@process",
            "native@process": "native/2#0@process",
            "native": "native",
            "entries": "entries",
            "functions": "accelerator0" if where == "own" else "host functions cpu",
            "given": GIVEN,
        }
        machine, (opened, *_) = open_devices(names[kind])
        made = opened.open()
        assert made.device == opened.device == machine.devices[0]
        assert where == "any" or (made.device.memory == HOST) == (where == "shared")
    yield made
    made.finish()
    made.release()


class Desk:
    """A driver, a queue of it, and short ways to use them."""

    def __init__(self, driver: Driver, timed: bool = True) -> None:
        self.driver, self.queue = driver, driver.queue(timed)
        self.program = driver.build(Source(TEXT))

    def kernel(self, name: str, *args: Any) -> Any:
        kernel = self.driver.kernel(self.program, name)
        for index, value in enumerate(args):
            kernel.set(index, uint(value) if isinstance(value, int) else value)
        return kernel

    def launch(self, kernel: Any, items: int, after: Sequence[Event] | None = None, local: int | None = None) -> Event:
        return self.driver.launch(self.queue, kernel, (items,), None if local is None else (local,), None, after)

    def copy(self, target: Any, source: Any, rows: Sequence[Box] = (), after: Sequence[Event] = ()) -> Event:
        """All of it, if no rows are given."""
        nbytes = min(len(m) for m in (target, source) if isinstance(m, np.ndarray))
        ends = End(target), End(source)
        events = self.driver.copy(self.queue, *ends, rows or (Box(0, nbytes),), after)
        assert len(events) >= 1
        return events[-1]

    def end(self, event: Event) -> None:
        self.driver.flush(self.queue)
        self.driver.wait(event)
        assert self.driver.done(event)

    def there(self, data: Any) -> Any:
        """An allocation with these bytes."""
        memory = self.driver.allocate(len(data))
        self.end(self.driver.copy(self.queue, End(memory), End(data), (Box(0, len(data)),), ())[-1])
        return memory

    def look(self, memory: Any, nbytes: int) -> Any:
        data = np.zeros(nbytes, np.uint8)
        self.end(self.driver.copy(self.queue, End(data), End(memory), (Box(0, nbytes),), ())[-1])
        return data


def uint(value: int) -> bytes:
    return value.to_bytes(4, sys.byteorder)


def noise(nbytes: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


@pytest.fixture
def desk(driver: Driver) -> Desk:
    return Desk(driver)


@pytest.mark.parametrize("nbytes", [1, 3, 4096, (1 << 16) + 1, (9 << 20) + 7])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_what_goes_there_comes_back(desk: Desk, nbytes: int, is_pinned: bool) -> None:
    """Little and much (more than goes at once), from ordinary and from pinned memory."""
    driver, data = desk.driver, noise(nbytes)
    sent, came = data.copy(), np.zeros(nbytes, np.uint8)
    pins = [driver.pin(end) for end in (sent, came)] if is_pinned else []
    assert (sent == data).all(), "it stays as it is"
    memory, rows = driver.allocate(nbytes), (Box(0, nbytes),)
    driver.copy(desk.queue, End(memory), End(sent, 0, is_pinned), rows, ())
    (*_, event) = driver.copy(desk.queue, End(came, 0, is_pinned), End(memory), rows, ())
    desk.end(event)
    assert (came == data).all()
    driver.free(memory)
    pins.clear()
    assert (sent == data).all()
    assert (came == data).all(), "also when it is not page-locked any more"


def test_memory_that_is_given_back_is_pinned_anew(desk: Desk) -> None:
    """The next array lies where the last one did, on other pages: what is moved is what is there now."""
    driver, nbytes = desk.driver, 1 << 20
    memory, rows = driver.allocate(nbytes), (Box(0, nbytes),)
    for turn in range(24):
        sent, came = np.full(nbytes + turn % 3, turn, np.uint8), np.zeros(nbytes, np.uint8)
        pins = [driver.pin(end) for end in (sent, came)]
        driver.copy(desk.queue, End(memory), End(sent, 0, True), rows, ())
        (*_, event) = driver.copy(desk.queue, End(came, 0, True), End(memory), rows, ())
        desk.end(event)
        assert (came == turn).all()
        del pins, sent, came
    driver.free(memory)


@st.composite
def some_rows(draw: Any, nbytes: int) -> tuple[Box, ...]:
    """Disjoint, in order."""
    found: list[Box] = []
    at = 0
    for _ in range(draw(st.integers(1, 3))):
        at += draw(st.integers(0, 40))
        count = draw(st.integers(1, 6))
        width = draw(st.integers(1, 60))
        pitch = width + draw(st.integers(0, 30)) if count > 1 else 0
        if at + (count - 1) * pitch + width > nbytes:
            break
        found.append(Box(at, width, pitch, count))
        at += (count - 1) * pitch + width
    return tuple(found) or (Box(0, nbytes),)


def inside(rows: Sequence[Box], nbytes: int) -> Any:
    mask = np.zeros(nbytes, bool)
    for offset, width, pitch, count, *_ in rows:
        for i in range(count):
            mask[offset + i * pitch : offset + i * pitch + width] = True
    return mask


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_just_the_rows_are_copied(desk: Desk, data: Any) -> None:
    """To the device, from it, and within it; of a buffer of which a device may have the bytes from some byte on."""
    nbytes, driver = 1000, desk.driver
    low, other = (data.draw(st.integers(0, 300)) for _ in range(2))
    least = max(low, other)
    rows = tuple(row._replace(offset=row.offset + least) for row in data.draw(some_rows(nbytes - least)))
    mask, host, before = inside(rows, nbytes), noise(nbytes), np.full(nbytes, 9, np.uint8)
    first, second = desk.there(before[low:].copy()), desk.there(before[other:].copy())
    down = before.copy()
    driver.copy(desk.queue, End(first, low), End(host), rows, ())
    driver.copy(desk.queue, End(second, other), End(first, low), rows, ())
    (*_, event) = driver.copy(desk.queue, End(down), End(second, other), rows, ())
    desk.end(event)
    expected = np.where(mask, host, before)
    assert (desk.look(first, nbytes - low) == expected[low:]).all()
    assert (desk.look(second, nbytes - other) == expected[other:]).all()
    assert (down == expected).all()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128]), data=st.data())
def test_just_what_is_asked_for_is_filled(desk: Desk, length: int, data: Any) -> None:
    """Behind what it waits for; all around it stays as it was."""
    first, count = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 9))
    nbytes = 16 * length
    offset, size = first * length, count * length
    pattern, before = noise(length).tobytes(), np.full(nbytes, 9, np.uint8)
    memory, other = desk.there(before), desk.there(np.zeros(64, np.uint8))
    waited = desk.launch(desk.kernel("slow", other, 1), 16)
    event = desk.driver.fill(desk.queue, memory, pattern, offset, size, [waited])
    desk.end(event)
    assert desk.driver.done(waited)
    expected = before.copy()
    expected[offset : offset + size] = np.frombuffer(pattern * count, np.uint8)
    assert (desk.look(memory, nbytes) == expected).all()


def test_a_copy_of_nothing_is_complete_in_its_turn(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    before = desk.launch(desk.kernel("slow", memory, 1), 16)
    (*_, event) = desk.driver.copy(desk.queue, End(memory), End(np.ones(64, np.uint8)), (), [before])
    desk.end(event)
    assert desk.driver.done(before)
    assert (desk.look(memory, 64).view(np.uint32) == 1).all()


@pytest.mark.parametrize("nbytes", [64, 3 << 20])
def test_a_queue_keeps_its_order(desk: Desk, nbytes: int) -> None:
    """Of kernels and copies, small and large, without waiting for anything."""
    memory, items = desk.driver.allocate(nbytes), nbytes // 4
    results = [np.zeros(nbytes, np.uint8) for _ in range(3)]
    event = desk.copy(memory, np.zeros(nbytes, np.uint8))
    for turn, result in enumerate(results):
        for _ in range(3):
            desk.launch(desk.kernel("add", memory, turn + 1), items)
        event = desk.copy(result, memory)
    desk.end(event)
    assert [set(r.view(np.uint32).tolist()) for r in results] == [{3}, {9}, {18}]


def test_queues_are_ordered_by_what_comes_after(driver: Driver) -> None:
    """Each command in another queue than the one before, flushed in any order."""
    desks = [Desk(driver) for _ in range(3)]
    memory, data = driver.allocate(64), np.zeros(64, np.uint8)
    event = desks[0].copy(memory, data)
    for turn in range(12):
        desk = desks[turn % 3]
        event = desk.launch(desk.kernel("slow" if turn % 4 == 0 else "add", memory, 1), 16, [event])
    event = desks[1].copy(data, memory, after=[event])
    for desk in reversed(desks):
        driver.flush(desk.queue)
    driver.wait(event)
    assert (data.view(np.uint32) == 12).all()


@pytest.mark.parametrize(
    ("global_size", "local_size", "offset"),
    [
        ((7,), None, None),
        ((8,), (4,), (3,)),
        ((6, 4), (3, 2), None),
        ((6, 4), None, (5, 9)),
        ((2, 4, 6), None, (1, 0, 2)),
    ],
)
def test_kernels_run_on_the_whole_ndrange(desk: Desk, global_size: Any, local_size: Any, offset: Any) -> None:
    count = int(np.prod(global_size))
    memory = desk.there(np.zeros(8 * count, np.uint8))
    event = desk.driver.launch(desk.queue, desk.kernel("places", memory), global_size, local_size, offset, None)
    desk.end(event)
    ids = np.indices(global_size[::-1]).reshape(len(global_size), -1)[::-1]
    expected = sum((row + (offset[d] if offset else 0)) << 16 * d for d, row in enumerate(ids))
    assert (desk.look(memory, 8 * count).view(np.uint64) == expected).all()


def test_local_memory(desk: Desk) -> None:
    memory = desk.there(np.arange(64, dtype=np.uint32).view(np.uint8))
    desk.end(desk.launch(desk.kernel("turned", memory, LocalArg(32)), 64, local=8))
    expected = np.arange(64).reshape(8, 8)[:, ::-1].reshape(-1)
    assert (desk.look(memory, 256).view(np.uint32) == expected).all()


def test_a_launch_takes_its_arguments_as_they_are(desk: Desk) -> None:
    first, second = (desk.there(np.zeros(64, np.uint8)) for _ in range(2))
    kernel = desk.kernel("add", first, 1)
    desk.launch(kernel, 16)
    kernel.set(1, uint(10))
    desk.launch(kernel, 16)
    kernel.set(0, second)
    kernel.set(1, uint(100))
    desk.end(desk.launch(kernel, 16))
    assert (desk.look(first, 64).view(np.uint32) == 11).all()
    assert (desk.look(second, 64).view(np.uint32) == 100).all()


def test_two_kernels_of_a_name_are_two(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    one, ten = desk.kernel("add", memory, 1), desk.kernel("add", memory, 10)
    assert one.most_items >= 1
    desk.launch(one, 16)
    desk.launch(ten, 16)
    desk.end(desk.launch(one, 16))
    assert (desk.look(memory, 64).view(np.uint32) == 12).all()


def test_programs_that_do_not_build(desk: Desk) -> None:
    with pytest.raises(BuildError) as caught:
        desk.driver.build(Source("kernel void broken(global uint *x) { x[0] = nowhere_declared; }"))
    assert caught.value.message
    with pytest.raises(DriverError):
        desk.driver.kernel(desk.program, "absent")


def test_a_launch_that_cannot_run_fails_and_the_next_runs(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    kernel = desk.kernel("add", memory, 1)
    with pytest.raises(DriverError) as caught:
        desk.end(desk.launch(kernel, 1 << 24, local=1 << 24))
    assert caught.value.message
    desk.driver.finish()
    desk.end(desk.launch(kernel, 16))
    assert (desk.look(memory, 64).view(np.uint32) == 1).all()


def test_events_tell_when(desk: Desk) -> None:
    """By the host's clock, as well as the device's can be compared with it."""
    memory, driver = desk.there(np.zeros(1 << 22, np.uint8)), desk.driver
    clock = driver.clock()
    assert clock is not None
    began = time.perf_counter()
    events = [desk.launch(desk.kernel("slow", memory, 1), 16) for _ in range(3)]
    events.append(desk.copy(np.zeros(1 << 22, np.uint8), memory))
    desk.end(events[-1])
    ended = time.perf_counter()
    spans = [driver.times(event) for event in events]
    assert all(start < end for start, end in spans)
    # copies that are staged are timed by the host's clock
    assert all(a[1] <= b[0] + 1e-3 for a, b in itertools.pairwise(spans))
    assert began - 1.0 < spans[0][0] + clock
    assert spans[-1][1] + clock < ended + 1.0


def test_queues_that_are_not_timed_work_as_well(driver: Driver) -> None:
    desk = Desk(driver, timed=False)
    memory = desk.there(np.zeros(64, np.uint8))
    event = desk.launch(desk.kernel("add", memory, 1), 16)
    desk.end(event)
    try:
        start, end = driver.times(event)
        assert start <= end
    except DriverError:
        pass  # nobody knows
    assert (desk.look(memory, 64).view(np.uint32) == 1).all()


@pytest.fixture(params=["its own", "calls"])
def recording(request: pytest.FixtureRequest, desk: Desk) -> CommandRecorder:
    """What records a driver's commands: itself, if it can, or the calls."""
    if request.param == "calls":
        return RecordedCalls(desk.driver)
    if not isinstance(desk.driver, CommandRecorder):
        pytest.skip("it records nothing")
    return desk.driver


def recorded_launch(
    desk: Desk, kernel: Any, args: tuple[int, ...], after: Sequence[int] = (), queue: Any = None
) -> Any:
    """A launch of 16 work-items; ``args``: slots."""
    return RecordedLaunch(queue or desk.queue, tuple(after), kernel, args, (16,), None, None)


def play(desk: Desk, recording: CommandRecorder, bound: Any) -> list[Event]:
    events: list[Event] = []
    recording.play(bound, events)
    desk.driver.flush(desk.queue)
    return events


@pytest.mark.parametrize("is_timed", [False, True])
def test_recorded_commands_run_on_other_buffers_with_other_scalars(
    driver: Driver, desk: Desk, recording: CommandRecorder, is_timed: bool
) -> None:
    """As the calls one by one. Of one kernel and of several, one buffer in several slots; more than have their times in
    one array."""
    desk.queue = driver.queue(is_timed)
    add, other = desk.kernel("add"), desk.kernel("add")
    commands: list[Any] = []
    for turn in range(300):  # slots: two buffers, three scalars
        commands.append(recorded_launch(desk, add, (turn % 2, 2)))
        commands.append(recorded_launch(desk, other, (0, 3 + turn % 2), (len(commands) - 1,)))
    commands.append(RecordedCopy(desk.queue, (), 1, 0, 32, 16, 16))
    commands.append(RecordedFill(desk.queue, (len(commands) - 1,), 1, uint(7), 8, 8))
    memories = [desk.there(np.zeros(64, np.uint8)) for _ in range(3)]
    want = [np.zeros(16, np.uint32) for _ in memories]
    tables = [(0, 1, 1, 2, 3), (1, 2, 5, 1, 4), (2, 0, 1, 1, 1), (2, 2, 1, 2, 3)]
    first = [memories[0], memories[1], *map(uint, tables[0][2:])]
    recorded = recording.record(commands, first)
    if recorded is None:
        pytest.skip("its kernels run elsewhere")
    bound = []
    for a, b, *scalars in tables:
        bound.append((a, b, scalars, recording.bind(recorded, [memories[a], memories[b], *map(uint, scalars)])))
    for a, b, scalars, playable in [*bound, *bound[::-1], bound[0]]:
        events = play(desk, recording, playable)
        assert len(events) == len(commands)
        for turn in range(300):
            want[(a, b)[turn % 2]] += scalars[0]
            want[a] += scalars[1 + turn % 2]
        want[b][8:12] = want[a][4:8].copy()
        want[b][2:4] = 7
        desk.end(events[-1])
        assert all(driver.done(event) for event in events)
        if is_timed:
            spans = [driver.times(event) for event in events]
            assert all(start <= end for start, end in spans)
        for memory, values in zip(memories, want, strict=True):
            assert (desk.look(memory, 64).view(np.uint32) == values).all()


def test_recorded_commands_of_several_queues(driver: Driver, desk: Desk, recording: CommandRecorder) -> None:
    """They wait for one another."""
    queues = [desk.queue, driver.queue(False)]
    slow, memory = desk.kernel("slow"), desk.there(np.zeros(64, np.uint8))
    result = desk.there(np.zeros(64, np.uint8))
    commands: list[Any] = [
        recorded_launch(desk, slow, (0, 2)),
        RecordedCopy(queues[1], (0,), 1, 0, 0, 0, 64),
        recorded_launch(desk, slow, (0, 2), (1,)),
        recorded_launch(desk, slow, (1, 2), (2,), queues[1]),
    ]
    table = [memory, result, uint(1)]
    recorded = recording.record(commands, table)
    if recorded is None:
        pytest.skip("its kernels run elsewhere")
    for _ in range(3):
        events: list[Event] = []
        recording.play(recording.bind(recorded, table), events)
        for queue in queues:
            driver.flush(queue)
        driver.wait(events[-1])
    assert (desk.look(memory, 64).view(np.uint32) == 6).all()
    assert (desk.look(result, 64).view(np.uint32) == 6).all(), "5 were copied, and 1 added"


def test_recorded_commands_keep_what_they_use(desk: Desk, recording: CommandRecorder) -> None:
    """Nobody else holds the memory, nor what was recorded."""
    result, slow = desk.there(np.zeros(64, np.uint8)), desk.kernel("slow")
    commands = [recorded_launch(desk, slow, (1, 2)), RecordedCopy(desk.queue, (), 0, 1, 0, 0, 64)]
    table = [result, desk.there(np.full(64, 7, np.uint8)), uint(0)]
    recorded = recording.record(commands, table)
    if recorded is None:
        pytest.skip("its kernels run elsewhere")
    events = play(desk, recording, recording.bind(recorded, table))
    del table[1:], recorded, slow, commands
    scratch = [desk.there(noise(64, n)) for n in range(8)]
    desk.end(events[-1])
    assert (desk.look(result, 64) == 7).all()
    assert len(scratch) == 8


def test_a_recorded_command_that_cannot_run(desk: Desk, recording: CommandRecorder) -> None:
    """It is not recorded, or fails when it is played: those before it have their events."""
    add, memory = desk.kernel("add"), desk.there(np.zeros(64, np.uint8))
    large = RecordedLaunch(desk.queue, (), desk.kernel("add"), (0, 1), (1 << 24,), (1 << 24,), None)
    commands = [recorded_launch(desk, add, (0, 1)), large, recorded_launch(desk, add, (0, 1))]
    table = [memory, uint(1)]
    recorded, events = recording.record(commands, table), list[Event]()

    def run() -> None:
        recording.play(recording.bind(recorded, table), events)
        desk.driver.flush(desk.queue)
        for event in events:
            desk.driver.wait(event)

    if recorded is not None:
        with pytest.raises(DriverError):
            run()
        desk.driver.finish()
        assert len(events) in (1, 3)
    desk.end(desk.launch(desk.kernel("add", memory, 1), 16))
    assert desk.look(memory, 64).view(np.uint32)[0] in (1, 2, 3)


def test_a_binding_table_of_another_shape_is_refused(desk: Desk) -> None:
    driver, memory = desk.driver, desk.there(np.zeros(64, np.uint8))
    if not isinstance(driver, CommandRecorder):
        pytest.skip("it records nothing")
    recorded = driver.record([recorded_launch(desk, desk.kernel("add"), (0, 1))], [memory, uint(1)])
    for table in ([memory, b"12"], [memory, memory], [uint(1), memory], [memory], [memory, bytes(16)]):
        with pytest.raises(DriverError, match="binding table"):
            driver.bind(recorded, table)


def test_finish_waits_for_all_queues(driver: Driver) -> None:
    desks = [Desk(driver) for _ in range(3)]
    memories = [desk.there(np.zeros(64, np.uint8)) for desk in desks]
    events = [desk.launch(desk.kernel("slow", m, 1), 16) for desk, m in zip(desks, memories, strict=True)]
    driver.finish()
    assert all(driver.done(event) for event in events)
    driver.finish()


def test_a_thread_may_wait_before_it_is_sent(desk: Desk) -> None:
    memory = desk.there(np.zeros(64, np.uint8))
    event = desk.launch(desk.kernel("slow", memory, 1), 16)
    ended = threading.Event()
    threading.Thread(target=lambda: (desk.driver.wait(event), ended.set()), daemon=True).start()
    desk.driver.flush(desk.queue)
    assert ended.wait(60)


def test_what_a_command_uses_is_kept(desk: Desk) -> None:
    """Nobody else holds it any more."""
    result, memory = np.zeros(64, np.uint8), desk.there(np.zeros(64, np.uint8))
    desk.launch(desk.kernel("slow", memory, 1), 16)
    desk.copy(memory, np.full(64, 7, np.uint8))
    desk.launch(desk.kernel("slow", memory, 0), 16)
    event = desk.copy(result, memory)
    del memory
    scratch = [desk.there(noise(64, n)) for n in range(8)]
    desk.end(event)
    assert (result == 7).all()
    for other in scratch:
        desk.driver.free(other)


def test_parts_of_allocations(desk: Desk) -> None:
    """They begin at multiples of what the device says, which divides 4096, and may overlap."""
    whole, least = desk.there(np.zeros(3 * 4096, np.uint8)), max(desk.driver.device.alignment, 4)
    assert 4096 % least == 0
    want = np.zeros(3 * 1024, np.uint32)
    for offset, nbytes in ((4096, 4096), (least, 64), (4096 + 3 * least, 100), (3 * 4096 - least, least)):
        part = desk.driver.part(whole, offset, nbytes)
        desk.end(desk.launch(desk.kernel("add", part, 5), nbytes // 4))
        want[offset // 4 : (offset + nbytes) // 4] += 5
        desk.driver.free(part)
        assert (desk.look(whole, 3 * 4096).view(np.uint32) == want).all()


def test_a_kernel_may_be_set_to_what_is_freed(desk: Desk) -> None:
    old, new = (desk.there(np.zeros(64, np.uint8)) for _ in range(2))
    kernel = desk.kernel("add", old, 1)
    desk.end(desk.launch(kernel, 16))
    desk.driver.free(old)
    kernel.set(0, new)
    desk.end(desk.launch(kernel, 16))
    assert (desk.look(new, 64).view(np.uint32) == 1).all()


def test_the_hosts_memory_as_the_devices(desk: Desk) -> None:
    if desk.driver.device.memory != HOST:
        pytest.skip("it has a memory of its own")
    raw = np.zeros(2 * 4096, np.uint8)
    data = raw[-raw.ctypes.data % 4096 :][:4096]
    if desk.driver.needs_shared_memory:
        data = shared_memory().take(4096)
        data[:] = 0
    memory = desk.driver.allocate(4096, data)
    desk.end(desk.launch(desk.kernel("add", memory, 3), 1024))
    assert (data.view(np.uint32) == 3).all()
    data.view(np.uint32)[:] = 10
    desk.end(desk.launch(desk.kernel("add", memory, 3), 1024))
    assert (data.view(np.uint32) == 13).all()
    desk.driver.free(memory)


def test_threads_with_queues_of_their_own(driver: Driver) -> None:
    desks = [Desk(driver) for _ in range(4)]
    results: list[Any] = []

    def use(desk: Desk, n: int) -> None:
        memory = desk.there(np.full(64, 0, np.uint8))
        for _ in range(20):
            desk.launch(desk.kernel("add", memory, n), 16)
        results.append((n, set(desk.look(memory, 64).view(np.uint32).tolist())))

    threads = [threading.Thread(target=use, args=(desk, n)) for n, desk in enumerate(desks, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(n, {20 * n}) for n in range(1, 5)]


def test_functions_of_python_are_called_in_their_turn(desk: Desk) -> None:
    """With the bytes of memory, values as they were, and the NDRange; what they raise is the launch's failure."""
    seen: list[Any] = []

    def double(values: Any, global_size: Any, offset: Any) -> None:
        memory, by, room = values
        seen.append((by, room, tuple(global_size), tuple(offset or (0,))))
        memory.view(np.uint32)[: global_size[0]] *= 2

    def fails(values: Any, global_size: Any, offset: Any) -> None:
        raise ValueError("these words")

    try:
        kernel = desk.driver.function(double, 3)
        bad = desk.driver.function(fails, 0)
    except DriverError:
        assert type(desk.driver).__name__ in ("OpenCLDriver", "WorkerDriver")
        return
    assert kernel.most_items >= 1 << 31
    memory = desk.there(np.ones(16, np.uint32).view(np.uint8))
    desk.launch(desk.kernel("add", memory, 2), 16)
    for index, value in enumerate((memory, uint(5), LocalArg(8))):
        kernel.set(index, value)
    desk.launch(kernel, 16)
    kernel.set(1, uint(6))
    desk.driver.launch(desk.queue, kernel, (8,), None, (3,), None)
    desk.end(desk.launch(desk.kernel("add", memory, 1), 16))
    assert (desk.look(memory, 64).view(np.uint32) == [13] * 8 + [7] * 8).all()
    assert seen == [(uint(5), LocalArg(8), (16,), (0,)), (uint(6), LocalArg(8), (8,), (3,))]
    event = desk.launch(bad, 1)
    desk.driver.flush(desk.queue)
    with pytest.raises(DriverError, match="these words"):
        desk.driver.wait(event)
    desk.end(desk.launch(desk.kernel("add", memory, 1), 16))


def test_few_bytes_are_written_and_read_behind_what_was_given(desk: Desk) -> None:
    memory, want = desk.there(noise(64)), noise(64)
    for number in range(50):
        data = noise(12, number)
        written = desk.driver.write(desk.queue, memory, data, 8)
        want[8:20] = data
        data[:] = 0  # taken at the call
        desk.launch(desk.kernel("add", memory, 3), 8)
        want[:32] = (want[:32].view(np.uint32) + np.uint32(3)).view(np.uint8)
        out = np.zeros(9, np.uint8)
        read = desk.driver.read(desk.queue, out, memory, number % 50)
        assert (out == want[number % 50 :][:9]).all()
        assert desk.driver.done(read)
        assert desk.driver.done(written)
        later = np.zeros(11, np.uint8)
        coming = desk.driver.download(desk.queue, later, memory, number % 50)
        desk.launch(desk.kernel("add", memory, 3), 8)
        desk.driver.flush(desk.queue)
        desk.driver.wait(coming)
        assert (later == want[number % 50 :][:11]).all()
        want[:32] = (want[:32].view(np.uint32) + np.uint32(3)).view(np.uint8)
    assert (desk.look(memory, 64) == want).all()


@pytest.mark.parametrize("names", ["cpu0/2", "opencl/2", "cpu0/2#0,portable computing"])
def test_a_device_copies_from_another_where_it_says_so(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of another device's memory come as they are there; the machine has a link for each such pair."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    machine, opened = open_devices(names)
    drivers = [one.open() for one in opened]
    data = np.random.default_rng(7).integers(0, 256, 4096, np.uint8)
    for (a, source), (b, target) in itertools.permutations(zip(opened, drivers, strict=True), 2):
        can_copy = b.handle.can_copy(a.handle)
        assert can_copy == ((a.device.memory, b.device.memory) in machine.peers)
        assert can_copy == (a.device.platform == b.device.platform == "native")
        if not can_copy:
            continue
        there, here, found = source.allocate(4096), target.allocate(4096), np.zeros(4096, np.uint8)
        queues = source.queue(False), target.queue(False)
        source.wait(source.copy(queues[0], End(there), End(data), (Box(0, 4096),), ())[-1])
        box = Box(100, 7, 64, 20)
        events = target.copy(queues[1], End(here), End(there), (box,), ())
        target.wait(target.copy(queues[1], End(found), End(here), (box,), events)[-1])
        rows = [slice(100 + 64 * n, 107 + 64 * n) for n in range(20)]
        assert all((found[row] == data[row]).all() for row in rows)
    for driver in drivers:
        driver.finish()
        driver.release()
