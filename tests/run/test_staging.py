"""Transfers through pinned chunks: whole contents, and that nothing that is due waits for what is not made yet."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from manycl.run.backends.staging import CHUNK, Stager

cl = pytest.importorskip("pyopencl")


@pytest.fixture
def context() -> cl.Context:
    for platform in cl.get_platforms():
        if "Portable" in platform.name:
            return cl.Context([platform.get_devices()[0]])
    pytest.skip("no PoCL here")


@pytest.fixture
def stager(context: cl.Context) -> Iterator[Stager]:
    found = Stager(context, cl.CommandQueue(context))
    yield found
    found.close()


def test_what_is_due_does_not_wait_for_what_is_not_made_yet(context: cl.Context, stager: Stager) -> None:
    count = 2 * CHUNK + 17
    given = np.random.default_rng(1).integers(0, 256, count, np.uint8)
    early, due = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, count)
    made = cl.UserEvent(context)
    result = stager.download(buffer, early, [made], early=True)
    stager.upload(buffer, given, []).result(timeout=60)
    stager.download(buffer, due, []).result(timeout=60)
    assert (due == given).all()
    assert not result.done()
    made.set_status(cl.command_execution_status.COMPLETE)
    stager.settle()
    assert result.done()
    assert (early == given).all()


def test_transfers_of_a_direction_keep_their_order(context: cl.Context, stager: Stager) -> None:
    count = CHUNK + 5
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, count)
    made = cl.UserEvent(context)
    first = stager.upload(buffer, np.full(count, 1, np.uint8), [made])
    second = stager.upload(buffer, np.full(count, 2, np.uint8), [])
    assert not second.done()
    made.set_status(cl.command_execution_status.COMPLETE)
    stager.settle()
    assert first.result() < second.result()
    found = np.zeros(count, np.uint8)
    stager.download(buffer, found, []).result()
    assert (found == 2).all()


def test_parts_of_buffers_keep_their_places(
    context: cl.Context, stager: Stager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces move through several chunks from and to anywhere in a buffer; the bytes around them stay."""
    monkeypatch.setattr("manycl.run.backends.staging.CHUNK", 1000)
    count, at, size = 9000, 1234, 5678
    there = np.random.default_rng(2).integers(0, 256, count, np.uint8)
    piece = np.random.default_rng(3).integers(0, 256, size, np.uint8)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, count)
    stager.upload(buffer, there, []).result(timeout=60)
    stager.upload(buffer, piece, [], offset=at).result(timeout=60)
    there[at : at + size] = piece
    whole, part = np.zeros(count, np.uint8), np.zeros(size - 100, np.uint8)
    stager.download(buffer, whole, []).result(timeout=60)
    stager.download(buffer, part, [], offset=at + 50).result(timeout=60)
    assert (whole == there).all()
    assert (part == there[at + 50 : at + size - 50]).all()
