"""Transfers through pinned chunks: whole contents, and that nothing that is due waits for what is not made yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from manycl.drivers.choice import open_devices
from manycl.drivers.driver import DriverError, End
from manycl.drivers.opencl.staging import CHUNK, STAGE_FROM, Failures, Staged, StagedPart, Stager, staged_part
from manycl.region import Rectangle

cl = pytest.importorskip("pyopencl")


@pytest.fixture
def context() -> cl.Context:
    for platform in cl.get_platforms():
        if "Portable" in platform.name:
            return cl.Context([platform.get_devices()[0]])
    pytest.skip("no PoCL here")


@pytest.fixture
def stager(context: cl.Context) -> Iterator[Stager]:
    found = Stager(context, cl.CommandQueue(context), Failures())
    yield found
    found.close()


def ended(event: Staged) -> bool:
    return bool(event.command_execution_status == cl.command_execution_status.COMPLETE)


def test_what_is_due_does_not_wait_for_what_is_not_made_yet(context: cl.Context, stager: Stager) -> None:
    count = 2 * CHUNK + 17
    given = np.random.default_rng(1).integers(0, 256, count, np.uint8)
    early, due = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, count)
    made = cl.UserEvent(context)
    result = stager.start(0, StagedPart(buffer, early, 0, False), made, Staged(context))
    stager.start(1, StagedPart(buffer, given, 0, True), None, Staged(context)).wait()
    stager.start(2, StagedPart(buffer, due, 0, False), None, Staged(context)).wait()
    assert (due == given).all()
    assert not ended(result)
    made.set_status(cl.command_execution_status.COMPLETE)
    stager.settle()
    assert ended(result)
    assert (early == given).all()


def test_transfers_of_a_queue_keep_their_order(context: cl.Context, stager: Stager) -> None:
    count = CHUNK + 5
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, count)
    made = cl.UserEvent(context)
    first = stager.start(0, StagedPart(buffer, np.full(count, 1, np.uint8), 0, True), made, Staged(context))
    second = stager.start(0, StagedPart(buffer, np.full(count, 2, np.uint8), 0, True), None, Staged(context))
    assert not ended(second)
    made.set_status(cl.command_execution_status.COMPLETE)
    stager.settle()
    assert first.began < first.ended <= second.began < second.ended
    found = np.zeros(count, np.uint8)
    stager.start(0, StagedPart(buffer, found, 0, False), None, Staged(context)).wait()
    assert (found == 2).all()


def test_parts_of_buffers_keep_their_places(
    context: cl.Context, stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces move through several chunks from and to anywhere in a buffer; the bytes around them stay."""
    monkeypatch.setattr("manycl.drivers.opencl.staging.CHUNK", 1000)
    count, at, size = 9000, 1234, 5678
    there = np.random.default_rng(2).integers(0, 256, count, np.uint8)
    piece = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, count)
    stager.start(0, StagedPart(buffer, there, 0, True), None, Staged(context)).wait()
    stager.start(0, StagedPart(buffer, piece, at, True), None, Staged(context)).wait()
    there[at : at + size] = piece
    whole, part = np.zeros(count, np.uint8), np.zeros(size - 100, np.uint8)
    stager.start(0, StagedPart(buffer, whole, 0, False), None, Staged(context)).wait()
    stager.start(0, StagedPart(buffer, part, at + 50, False), None, Staged(context)).wait()
    assert (whole == there).all()
    assert (part == there[at + 50 : at + size - 50]).all()


def test_what_a_failed_transfer_has_on_its_way_gets_into_no_other(
    context: cl.Context, stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy goes through a chunk that the next transfer uses."""
    buffer, out = cl.Buffer(context, cl.mem_flags.READ_WRITE, 64), np.zeros(64, np.uint8)
    stager.start(0, StagedPart(buffer, np.full(64, 1, np.uint8), 0, True), None, Staged(context)).wait()
    gate, waits = cl.UserEvent(context), cl.Event.wait
    cl.enqueue_barrier(stager._queue, wait_for=[gate])

    def failing(event: cl.Event) -> None:
        if event.command_type == cl.command_type.READ_BUFFER:
            threading.Timer(0.05, gate.set_status, [cl.command_execution_status.COMPLETE]).start()
            raise cl.RuntimeError("clWaitForEvents failed: OUT_OF_RESOURCES")
        waits(event)

    with monkeypatch.context() as patch:
        patch.setattr(cl.Event, "wait", failing)
        failed = stager.start(0, StagedPart(buffer, out, 0, False), None, Staged(context))
        assert failed.over.wait()
        assert "OUT_OF_RESOURCES" in failed.failure
    stager.start(0, StagedPart(buffer, np.full(64, 2, np.uint8), 0, True), None, Staged(context)).over.wait()
    stager.start(0, StagedPart(buffer, out, 0, False), None, Staged(context)).over.wait()
    assert (out == 2).all()


def test_a_transfer_that_fails_is_told_by_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    _, (opened,) = open_devices("opencl/2#0")
    driver, data = opened.open(), np.zeros(STAGE_FROM, np.uint8)

    def broken(*given: object) -> None:
        raise cl.RuntimeError("clEnqueueWriteBuffer failed: OUT_OF_RESOURCES")

    with monkeypatch.context() as patch:
        patch.setattr(Stager, "_transfer", broken)
        memory, queue = driver.allocate(len(data)), driver.queue(timed=True)
        (event,) = driver.copy(queue, End(memory), End(data), (Rectangle(0, len(data)),), ())
        driver.flush(queue)
        for ask in (driver.wait, driver.done):
            with pytest.raises(DriverError, match="OUT_OF_RESOURCES"):
                ask(event)
    driver.finish()
    queue = driver.queue(timed=True)
    (*_, event) = driver.copy(queue, End(memory), End(data), (Rectangle(0, len(data)),), ())
    driver.flush(queue)
    driver.wait(event)
    driver.release()


@pytest.mark.parametrize("is_polled", [False, True])
def test_transfers_come_behind_what_their_queue_was_given(is_polled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In either way of finding out when that is complete; also behind what other queues do."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr("manycl.drivers.opencl.staging.STAGE_FROM", 1)
    _, (opened,) = open_devices("opencl/2#0")
    driver = opened.open()
    driver.is_polled = is_polled
    count = 1 << 20
    memory, other, out = driver.allocate(count), driver.allocate(count), np.zeros(count, np.uint8)
    queue, beside, whole = driver.queue(timed=True), driver.queue(timed=True), (Rectangle(0, count),)
    for value in range(1, 9):
        driver.fill(queue, memory, bytes([value]), 0, count, ())
        driver.copy(queue, End(out), End(memory), whole, ())
        found = out.copy()
        (made,) = driver.copy(beside, End(other), End(np.full(count, 10 + value, np.uint8)), whole, ())
        (event,) = driver.copy(queue, End(found), End(other), whole, (made,))
        driver.flush(beside)
        driver.flush(queue)
        driver.wait(event)
        assert isinstance(event, Staged)
        assert (out == value).all()
        assert (found == 10 + value).all()
    driver.finish()
    driver.release()


def test_pieces_are_staged_where_the_driver_holds_up_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    driver = open_devices("opencl/2#0")[1][0].open()
    device, host = End(driver.allocate(STAGE_FROM)), End(np.zeros(STAGE_FROM, np.uint8))
    for nbytes, alone, beside in ((CHUNK - 1, False, False), (CHUNK, False, True), (STAGE_FROM, True, True)):
        for ends in ((device, host), (host, device)):
            for holds_up, is_staged in ((False, alone), (True, beside)):
                part = staged_part(*ends, (Rectangle(0, nbytes),), holds_up)
                assert (part is not None) == is_staged
    driver.release()
