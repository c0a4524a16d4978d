"""Reads that do not block, of a device whose process is killed: who counts upon them is told, whatever others do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.api.events import CommandStatus
from manycl.drivers.opencl.real import compiled
from manycl.run.graph_cache import graph_cache
from manycl.run.streams.eager_rule import Facts, decide
from manycl.stand_in import runtime
from manycl.stand_in.objects.contexts import CommandQueue, Context, Platforms
from manycl.stand_in.objects.events import Event
from manycl.stand_in.objects.memory import Buffer
from manycl.stand_in.objects.transfers import (
    _enqueue_copy_buffer,
    _enqueue_fill_buffer,
    _enqueue_read_buffer,
    _enqueue_write_buffer,
    _enqueue_write_buffer_rect,
    enqueue_map_buffer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*does not work any more:RuntimeWarning")

N = 1 << 10
PROGRAM = mc.Program(
    "kernel void twice(global const uint *x, global uint *y) { y[get_global_id(0)] = 2 * x[get_global_id(0)]; }"
)
X = np.arange(N, dtype=np.uint32)


class Stranger:
    """A program on some devices, of which the first gets all, and holds still from now on: ``x`` has X, ``y`` twice
    that."""

    def __init__(self, devices: str) -> None:
        context = Context(Platforms(devices, None, real_too=False).get_platforms()[0].get_devices())
        self.queue, self.runtime = CommandQueue(context), context.runtime
        self.x, self.y = (Buffer(context, compiled.mem_flags.READ_WRITE, X.nbytes) for _ in range(2))
        _enqueue_write_buffer(self.queue, self.x, X)
        self.twice()
        self.queue.finish()  # what the device has to be asked for is there
        self.driver: Any = self.runtime.session.backend.drivers[0]
        os.kill(self.driver.pid, signal.SIGSTOP)

    def twice(self) -> mc.Event:
        return PROGRAM.twice(self.runtime.queue, (N,), (64,), self.x.array, self.y.array)

    def read(self, *, is_blocking: bool = False) -> tuple[np.ndarray, Event]:
        out = np.zeros(N, np.uint32)
        return out, _enqueue_read_buffer(self.queue, self.y, out, is_blocking=is_blocking)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.driver.pid, signal.SIGKILL)


@pytest.fixture
def stranger(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    devices, zero_copy = request.param
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    monkeypatch.setattr(graph_cache, "decide", lambda facts: decide(Facts()))
    monkeypatch.setattr(runtime, "_runtimes", {})
    made = Stranger(devices)
    yield made
    made.kill()
    made.runtime.queue.close()


SHARED, OWN, ALONE = ("cpu/2@process", "1"), ("cpu/2@process", "0"), ("cpu/2#0@process", "0")
LOST = r"is lost: its process \d+ was ended by SIGKILL"


@pytest.mark.parametrize(("stranger", "is_dropped"), [(OWN, False), (SHARED, True)], indirect=["stranger"])
def test_others_go_on_and_the_read_is_told_to_have_failed(stranger: Stranger, is_dropped: bool) -> None:
    """Once, to who waits for it, or for what is behind it; what the device should have done is there, and counts as
    complete."""
    launched = stranger.twice()
    out, event = stranger.read()
    assert event.status > 0
    stranger.kill()
    wait = event.wait
    if is_dropped:  # it is waited for
        wait = stranger.queue.finish
        del event
    with pytest.raises(compiled.RuntimeError, match=LOST):
        wait()
    assert not out.any()
    stranger.queue.finish()
    assert (stranger.read(is_blocking=True)[0] == 2 * X).all()
    assert launched.status == CommandStatus.COMPLETE
    assert launched.command_execution_status == 0
    assert len(stranger.runtime.session.devices.excluded) == 1


@pytest.mark.parametrize("stranger", [ALONE], indirect=True)
def test_nobody_goes_on(stranger: Stranger) -> None:
    """The event fails, and so does all that waits; nothing waits for ever."""
    launched = stranger.twice()
    out, event = stranger.read()
    stranger.kill()
    with pytest.raises(compiled.RuntimeError, match=LOST):
        event.wait()
    assert event.status < 0
    assert launched.command_execution_status < 0
    with pytest.raises(compiled.RuntimeError, match=LOST):
        stranger.queue.finish()
    assert not out.any()
    assert not stranger.runtime.arrivals.under_way
    assert not stranger.runtime.arrivals.lost
    with pytest.raises(compiled.RuntimeError):
        stranger.read(is_blocking=True)


def mapped(queue: CommandQueue, buffer: Buffer, low: int) -> None:
    """Half of a buffer is mapped to be overwritten, and unmapped."""
    place, _ = enqueue_map_buffer(queue, buffer, compiled.map_flags.WRITE_INVALIDATE_REGION, low, N // 2, np.uint32)
    place[:] = 7
    place.base.release(queue)


SEVENS = np.full(N, 7, np.uint32)
HALVES: dict[str, Callable[[CommandQueue, Buffer, Buffer, int], Any]] = {
    "write": lambda q, y, x, low: _enqueue_write_buffer(q, y, SEVENS[: N // 2], low),
    "copy": lambda q, y, x, low: _enqueue_copy_buffer(q, x, y, 2 * N, low, low),
    "fill": lambda q, y, x, low: _enqueue_fill_buffer(q, y, np.uint32(7), low, 2 * N),
    "map": lambda q, y, x, low: mapped(q, y, low),
    "rectangle": lambda q, y, x, low: _enqueue_write_buffer_rect(q, y, SEVENS, (low, 0), (0, 0), (2 * N, 1)),
}


@pytest.mark.parametrize("memories", ["1", "0"])
@pytest.mark.parametrize("how", HALVES)
def test_what_overwrites_a_buffer_heals_it(how: str, memories: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contents that a failure has left unknown are known again where something was written, and only there."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", memories)
    monkeypatch.setattr(runtime, "_runtimes", {})
    context = Context(Platforms("cpu/2", None, real_too=False).get_platforms()[0].get_devices())
    queue, session = CommandQueue(context), context.runtime.session
    x, y = (Buffer(context, compiled.mem_flags.READ_WRITE, X.nbytes) for _ in range(2))
    for buffer in (x, y):
        _enqueue_write_buffer(queue, buffer, SEVENS)
    PROGRAM.twice(context.runtime.queue, (N,), (64,), x.array, y.array)
    queue.finish()
    session.directory.lose(y.array.buffer.key, "it failed")
    out = np.zeros(N, np.uint32)
    for low in (0, 2 * N):
        with pytest.raises(compiled.RuntimeError, match="unknown: it failed"):
            _enqueue_read_buffer(queue, y, out)
        HALVES[how](queue, y, x, low)
        _enqueue_read_buffer(queue, y, out[: N // 2], low)
        assert (out[: N // 2] == 7).all()
    _enqueue_read_buffer(queue, y, out)
    assert (out == 7).all()
    context.runtime.queue.close()
