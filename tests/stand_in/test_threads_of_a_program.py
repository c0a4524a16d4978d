"""Threads of an unmodified program: 8 with queues and kernels of their own on one context, 10,000 commands."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manycl.drivers.opencl.real import compiled
from manycl.stand_in import runtime
from manycl.stand_in.objects.contexts import CommandQueue, Context, Platforms
from manycl.stand_in.objects.events import UserEvent, _enqueue_marker_with_wait_list

OUT_OF_ORDER = compiled.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE

PROGRAM = """
import threading
import numpy as np
import pyopencl as cl

THREADS, STEPS, N = 8, 1250, 64
ctx = cl.create_some_context(interactive=False)
built = cl.Program(ctx, '''
__kernel void advance(__global int *x, __global const int *y, int by) {
    int i = get_global_id(0);
    x[i] = 3 * x[i] + y[i] + by;
}''').build()
common = cl.Buffer(ctx, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.arange(N, dtype=np.int32))
others, wrong, commands = [None] * THREADS, [], [0] * THREADS


def work(number):
    queue, kernel = cl.CommandQueue(ctx), cl.Kernel(built, "advance")
    whole = cl.Buffer(ctx, cl.mem_flags.READ_WRITE, 8192)
    x = whole.get_sub_region(4096, 4 * N)
    cl.enqueue_fill_buffer(queue, whole, np.int32(0), 0, 8192)
    expected, y, coming = np.zeros(N, np.int32), np.arange(N, dtype=np.int32), []
    for step in range(STEPS):
        kind = step % 8
        if kind < 5:
            others[number] = kernel(queue, (N,), None, x, common, np.int32(step + number))
            expected = 3 * expected + y + np.int32(step + number)
        elif kind == 5:
            out = np.empty(N, np.int32)
            cl.enqueue_copy(queue, out, x)
            wrong.extend([(number, step)] * int((out != expected).any()))
        elif kind == 6:
            out = np.empty(N, np.int32)
            coming.append((out, expected, cl.enqueue_copy(queue, out, x, is_blocking=False)))
            event = others[(number + 1) % THREADS]
            if event is not None:
                event.wait()  # another thread's
        elif step % 3:
            cl.enqueue_fill_buffer(queue, x, np.int32(step), 0, 4 * N)
            expected = np.full(N, step, np.int32)
        else:
            expected = np.full(N, number, np.int32)
            cl.enqueue_copy(queue, x, expected, is_blocking=False)
        commands[number] += 1
    queue.finish()
    wrong.extend((number, "later") for out, there, _ in coming if (out != there).any())


def guarded(number):
    try:
        work(number)
    except BaseException as error:
        wrong.append((number, repr(error)))


threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(ctx.devices[0].platform.name, sum(commands), wrong)
"""


@pytest.mark.parametrize("devices", ["cpu/2", "opencl/2"])
def test_threads_with_queues_of_their_own(devices: str, tmp_path: Path) -> None:
    """On one buffer in common and one of each thread's; events are waited for by other threads, too."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    words = [sys.executable, "-m", "manycl", "exec", "--devices", devices, "--", sys.executable, str(script)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)
    assert ended.stdout == "manycl 10000 []\n", ended.stderr[-2000:]


def test_what_is_held_back_while_an_event_is_set_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread sets a user event just when another one enqueues what waits for a second one: that is not forgotten."""
    monkeypatch.setattr(runtime, "_runtimes", {})
    context = Context(Platforms("cpu/2", None, real_too=False).get_platforms()[0].get_devices())
    queue, first, second = CommandQueue(context, properties=OUT_OF_ORDER), UserEvent(context), UserEvent(context)
    is_looked_at, is_enqueued = threading.Event(), threading.Event()

    class Watched(list[Any]):
        def append(self, held: Any) -> None:
            setting.start()
            is_looked_at.wait(0.3)  # the other thread comes as far as it can
            super().append(held)
            is_enqueued.set()

        def __iter__(self) -> Iterator[Any]:
            seen = tuple(super().__iter__())
            if threading.current_thread() is setting:
                is_looked_at.set()
                is_enqueued.wait(0.3)
            return iter(seen)

    setting = threading.Thread(target=first.set_status, args=(0,))
    _enqueue_marker_with_wait_list(queue, [first])
    queue._held = Watched(queue._held)
    held = _enqueue_marker_with_wait_list(queue, [second])
    setting.join()
    assert not queue.is_usual
    assert [event for event, _ in queue._held] == [held]
    second.set_status(0)
    queue.finish()
    assert queue.is_usual
    context.runtime.queue.close()
