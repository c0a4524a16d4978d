"""Rows copied between a device and the host are the rows, also by drivers that are strict about rectangles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import End
from manycl.drivers.opencl import copies
from manycl.region import Rectangle

NBYTES = 1000


@pytest.fixture(scope="module")
def queue() -> Any:
    _, opened = open_devices("cpu/2#0")
    context = cl.Context([opened[0].handle.cl])
    return cl.CommandQueue(context, opened[0].handle.cl)


@st.composite
def rows(draw: Any) -> Rectangle:
    count = draw(st.integers(1, 8))
    if count == 1:
        offset = draw(st.integers(0, NBYTES - 1))
        return Rectangle(offset, draw(st.integers(1, NBYTES - offset)))
    pitch = draw(st.integers(2, NBYTES // count))
    width = draw(st.integers(1, pitch))
    return Rectangle(draw(st.integers(0, NBYTES - (count - 1) * pitch - width)), width, pitch, count)


def inside(given: Rectangle) -> Any:
    mask = np.zeros(NBYTES, bool)
    for i in range(given.rows):
        start = given.offset + i * given.pitch
        mask[start : start + given.width] = True
    return mask


REAL = cl.enqueue_copy


def strict(queue: Any, target: Any, source: Any, **how: Any) -> Any:
    """Takes rectangles only if all of their lines are there."""
    if "region" in how:
        (left, top, _), (wide, high, _) = how["buffer_origin"], how["region"]
        (pitch,) = how["buffer_pitches"]
        assert left + wide <= pitch
        assert (top + high) * pitch <= NBYTES, "a line is not complete"
    return REAL(queue, target, source, **how)


def unable(queue: Any, target: Any, source: Any, **how: Any) -> Any:
    """Takes no rectangles."""
    if "region" in how:
        raise cl.LogicError("clEnqueueWriteBufferRect", cl.status_code.INVALID_VALUE)
    return REAL(queue, target, source, **how)


@pytest.mark.parametrize("driver", [REAL, strict, unable])
@settings(max_examples=60)
@given(given=st.lists(rows(), min_size=1, max_size=3))
def test_just_the_rows_are_copied(queue: Any, driver: Any, given: list[Rectangle]) -> None:
    wanted = np.any([inside(r) for r in given], axis=0)
    host = np.arange(NBYTES, dtype=np.uint8)
    before = np.full(NBYTES, 255, np.uint8)
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies.cl, "enqueue_copy", driver)
        for event in copies.copy_rows(queue, End(buffer), End(host), given, ()):
            event.wait()
        up = np.empty_like(host)
        REAL(queue, up, buffer)
        assert (up == np.where(wanted, host, before)).all()
        down = before.copy()
        for event in copies.copy_rows(queue, End(down), End(buffer), given, ()):
            event.wait()
    assert (down == np.where(wanted, host, before)).all()


def test_a_small_upload_takes_what_was_there_when_it_was_asked_for(queue: Any) -> None:
    data = np.arange(NBYTES, dtype=np.uint64).astype(np.uint8)
    expected = data.copy()
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, NBYTES)
    cl.enqueue_fill_buffer(queue, buffer, np.uint8(255), 0, NBYTES)
    begin = cl.UserEvent(queue.context)
    (event,) = copies.copy_rows(queue, End(buffer), End(data), [Rectangle(100, 300)], [begin])
    data[:] = 0
    begin.set_status(cl.command_execution_status.COMPLETE)
    event.wait()
    found = np.empty(NBYTES, np.uint8)
    cl.enqueue_copy(queue, found, buffer)
    assert np.array_equal(found[100:400], expected[100:400])
    assert (found[:100] == 255).all()
    assert (found[400:] == 255).all()
