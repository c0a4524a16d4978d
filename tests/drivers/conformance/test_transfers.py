"""What drivers copy and fill: just what is asked for, in its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.drivers.driver import (
    End,
)
from manycl.region import Rectangle
from manycl.run.data.host_memory import HostMemory
from tests.drivers.conformance.suite import Desk, noise


@pytest.mark.parametrize("nbytes", [1, 3, 4096, (1 << 16) + 1, (9 << 20) + 7])
@pytest.mark.parametrize("is_pinned", [False, True])
def test_what_goes_there_comes_back(desk: Desk, nbytes: int, is_pinned: bool) -> None:
    """Little and much (more than goes at once), from ordinary and from pinned memory."""
    driver, data = desk.driver, noise(nbytes)
    sent, came = data.copy(), np.zeros(nbytes, np.uint8)
    pins = [driver.pin(end) for end in (sent, came)] if is_pinned else []
    assert (sent == data).all(), "it stays as it is"
    memory, rows = driver.allocate(nbytes), (Rectangle(0, nbytes),)
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
    memory, rows = driver.allocate(nbytes), (Rectangle(0, nbytes),)
    for turn in range(24):
        sent, came = np.full(nbytes + turn % 3, turn, np.uint8), np.zeros(nbytes, np.uint8)
        pins = [driver.pin(end) for end in (sent, came)]
        driver.copy(desk.queue, End(memory), End(sent, 0, True), rows, ())
        (*_, event) = driver.copy(desk.queue, End(came, 0, True), End(memory), rows, ())
        desk.end(event)
        assert (came == turn).all()
        del pins, sent, came
    driver.free(memory)


def test_memory_is_free_for_others_though_the_events_of_copies_are_kept(desk: Desk) -> None:
    """Copies of parts, too: the memory is used again where nothing but the driver's events refers to it."""
    driver, nbytes = desk.driver, 1 << 18
    held, rows = driver.allocate(nbytes), (Rectangle(nbytes // 4, nbytes // 2),)
    host = HostMemory(np.zeros(nbytes, np.uint8)[:])
    kept = list(driver.copy(desk.queue, End(held), End(host.data), rows, ()))
    kept += driver.copy(desk.queue, End(host.data), End(held), rows, ())
    desk.end(kept[-1])
    assert host.views() == 0
    driver.free(held)
    assert kept


@st.composite
def some_rows(draw: Any, nbytes: int) -> tuple[Rectangle, ...]:
    """Disjoint, in order."""
    found: list[Rectangle] = []
    at = 0
    for _ in range(draw(st.integers(1, 3))):
        at += draw(st.integers(0, 40))
        count = draw(st.integers(1, 6))
        width = draw(st.integers(1, 60))
        pitch = width + draw(st.integers(0, 30)) if count > 1 else 0
        if at + (count - 1) * pitch + width > nbytes:
            break
        found.append(Rectangle(at, width, pitch, count))
        at += (count - 1) * pitch + width
    return tuple(found) or (Rectangle(0, nbytes),)


def inside(rows: Sequence[Rectangle], nbytes: int) -> Any:
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
