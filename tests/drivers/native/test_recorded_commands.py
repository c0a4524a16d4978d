"""Recorded commands of native devices: what depends on the buffers of the binding table, and what is not recorded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import DriverError, Event, RecordedCopy, RecordedFill, RecordedLaunch, Source
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.native.kernel import SetKernel
from manycl.drivers.native.queue import TIMES
from manycl.graph.graph import LocalArg

SOURCE = """
kernel void histogram(global const uchar *x, global int *h) { atomic_inc(&h[x[get_global_id(0)] & 15]); }
kernel void turned(global uint *x, local uint *t, uint by) {
    size_t i = get_local_id(0), n = get_local_size(0);
    t[i] = x[get_global_id(0)] + by;
    barrier(CLK_LOCAL_MEM_FENCE);
    x[get_global_id(0)] = t[n - 1 - i];
}
"""


@pytest.fixture
def driver() -> Iterator[NativeDriver]:
    _, (opened,) = open_devices("native")
    made = opened.open()
    assert isinstance(made, NativeDriver)
    yield made
    made.finish()
    made.release()


def shared(driver: NativeDriver, values: Any) -> Any:
    data = values.reshape(-1).view(np.uint8)
    return driver.allocate(data.nbytes, data)


def play(driver: NativeDriver, recorded: Any, table: Sequence[Any]) -> list[Event]:
    events: list[Event] = []
    driver.play(driver.bind(recorded, table), events)
    return events


def test_what_is_counted_in_is_looked_at_for_each_table(driver: NativeDriver) -> None:
    """Threads may have copies of it only where nothing else overlaps it."""
    items, queue = 1 << 12, driver.queue(timed=False)
    kernel = driver.kernel(driver.build(Source(SOURCE)), "histogram")
    values = np.random.default_rng(1).integers(0, 16, items, np.uint8)
    tables = [(shared(driver, values.copy()), shared(driver, count)) for count in np.zeros((3, 16), np.int32)]
    counts = [np.frombuffer(h.kept, np.int32) for _, h in tables]
    recorded = driver.record([RecordedLaunch(queue, (), kernel, (0, 1), (items,), (64,), None)], tables[0])
    assert recorded is not None
    assert isinstance(kernel, SetKernel)
    assert kernel.kernel.counted == (1,)
    for turn in range(1, 4):
        for table, count in zip(tables, counts, strict=True):
            driver.wait(play(driver, recorded, table)[-1])
            assert (count == turn * np.bincount(values, minlength=16)).all()
    both = shared(driver, np.zeros(items, np.uint8))  # each reads what all count in
    driver.wait(play(driver, recorded, (both, driver.part(both, 0, 64)))[-1])
    assert recorded.bind((both, driver.part(both, 0, 64))).table[-8:] == bytes(8)
    assert recorded.bind(tables[0]).table[-8:] == (64).to_bytes(8, "little")


def test_local_memory_is_that_of_the_recording(driver: NativeDriver) -> None:
    queue, x, y = driver.queue(timed=False), np.arange(64, dtype=np.uint32), np.arange(64, dtype=np.uint32)
    kernel = driver.kernel(driver.build(Source(SOURCE)), "turned")
    table = [shared(driver, x), LocalArg(64), bytes(4)]
    recorded = driver.record([RecordedLaunch(queue, (), kernel, (0, 1, 2), (64,), (16,), None)], table)
    kernel.set(1, LocalArg(4096))  # somebody else's launches
    driver.wait(play(driver, recorded, table)[-1])
    driver.wait(play(driver, recorded, [shared(driver, y), LocalArg(64), (5).to_bytes(4, "little")])[-1])
    want = np.arange(64).reshape(4, 16)[:, ::-1].reshape(-1)
    assert (x == want).all()
    assert (y == want + 5).all()


def test_what_is_not_recorded(driver: NativeDriver) -> None:
    """Python's functions, and what the driver refuses: its own calls say why."""
    queue, memory = driver.queue(timed=False), driver.allocate(64)
    function = driver.function(lambda values, size, offset: None, 1)
    refused: list[Any] = [
        RecordedLaunch(queue, (), function, (0,), (16,), None, None),
        RecordedCopy(queue, (), 0, 0, 0, 32, 33),
        RecordedFill(queue, (), 0, b"abc", 0, 63),
        RecordedFill(queue, (), 0, b"ab", 0, 66),
    ]
    for command in refused:
        assert driver.record([command], [memory]) is None
    recorded = driver.record([RecordedFill(queue, (), 0, b"ab", 0, 64)], [memory])
    driver.free(memory)
    with pytest.raises(DriverError, match="freed"):
        driver.bind(recorded, [memory])


def test_what_plays_use_is_dropped(driver: NativeDriver) -> None:
    """Also of a timed queue, of whose times there are several arrays under way."""
    queue, memory = driver.queue(timed=True), driver.allocate(64)
    commands = [RecordedFill(queue, (), 0, b"a", 0, 64)] * (TIMES - 1)
    recorded = driver.record(commands, [memory])
    last: list[Event] = []
    for _ in range(20):
        last = play(driver, recorded, [memory])
    driver.wait(last[-1])
    assert len(queue.kept) <= 1
    spans = [driver.times(event) for event in last]
    assert all(a[0] <= a[1] <= b[1] for a, b in itertools.pairwise(spans))
