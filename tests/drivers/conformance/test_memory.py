"""Memory of drivers: what is kept and freed, parts of allocations, the host's memory, few bytes, and copies between
devices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import (
    End,
)
from manycl.drivers.shared import shared_memory
from manycl.machine import HOST
from manycl.region import Rectangle
from tests.drivers.conformance.suite import Desk, noise


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
        assert can_copy == (a.device.platform == b.device.platform)
        if not can_copy:
            continue
        there, here, found = source.allocate(4096), target.allocate(4096), np.zeros(4096, np.uint8)
        queues = source.queue(False), target.queue(False)
        source.wait(source.copy(queues[0], End(there), End(data), (Rectangle(0, 4096),), ())[-1])
        rect = Rectangle(100, 7, 64, 20)
        events = target.copy(queues[1], End(here), End(there, owner=source), (rect,), ())
        target.wait(target.copy(queues[1], End(found), End(here), (rect,), events)[-1])
        rows = [slice(100 + 64 * n, 107 + 64 * n) for n in range(20)]
        assert all((found[row] == data[row]).all() for row in rows)
    for driver in drivers:
        driver.finish()
        driver.release()
