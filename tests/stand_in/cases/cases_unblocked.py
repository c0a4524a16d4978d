"""Reads that do not block: what they bring, and when."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array

F = cl.mem_flags
STATUS = cl.command_execution_status
N = 1 << 12
SOURCE = """
__kernel void work(__global int *a, int n)
{ int i = get_global_id(0), x = a[i]; for (int t = 0; t < 2000; t++) x = x * 5 + n; a[i] = x; }
"""


@cache
def program(ctx: Any) -> Any:
    return cl.Program(ctx, SOURCE).build()


def worker(ctx: Any) -> Any:
    kernel = cl.Kernel(program(ctx), "work")
    return lambda queue, buffer, n, **how: kernel(queue, (N,), None, buffer, np.int32(n), **how)


def numbers(ctx: Any, first: int = 0) -> Any:
    return cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.arange(first, first + N, dtype=np.int32))


def told(*arrays: Any) -> list[int]:
    return [int(a.astype(np.int64).sum()) for a in arrays]


def fetch(queue: Any, buffer: Any, count: int = N, **how: Any) -> tuple[Any, Any]:
    out = np.full(count, -1, np.int32)
    return out, cl.enqueue_copy(queue, out, buffer, is_blocking=False, **how)


def case_read_then_work_then_wait(ctx, queue):
    work, buffer = worker(ctx), numbers(ctx)
    found = []
    for step in range(6):
        work(queue, buffer, step)
        out, event = fetch(queue, buffer)
        sum(range(10000))
        event.wait()
        found += told(out)
    return found


def case_overwritten_behind_the_read(ctx, queue):
    """By a kernel, a fill, a copy and the host, which all come after it."""
    work, buffer, other = worker(ctx), numbers(ctx), numbers(ctx, 9)
    found, kept = [], []
    for step in range(4):
        work(queue, buffer, step)
        kept.append(fetch(queue, buffer))
        work(queue, buffer, 3)
        kept.append(fetch(queue, buffer))
        cl.enqueue_fill_buffer(queue, buffer, np.int32(step), 0, 4 * N)
        kept.append(fetch(queue, buffer))
        cl.enqueue_copy(queue, buffer, other)
        kept.append(fetch(queue, buffer))
        kept[-1] += (cl.enqueue_copy(queue, buffer, np.full(N, 7 * step, np.int32), is_blocking=False),)
        kept.append(fetch(queue, buffer))
    queue.finish()
    for out, *_ in kept:
        found += told(out)
    return found


def case_two_reads_overlap(ctx, queue):
    """The second one writes to memory of the first one."""
    work, one, two = worker(ctx), numbers(ctx), numbers(ctx, 5)
    out, found = np.full(2 * N, -1, np.int32), []
    for step in range(4):
        work(queue, one, step)
        first = cl.enqueue_copy(queue, out[:N], one, is_blocking=False)
        work(queue, two, step)
        second = cl.enqueue_copy(queue, out[N // 2 : N // 2 + N], two, is_blocking=False)
        cl.wait_for_events([first, second])
        found += told(out)
    return found


def case_chains(ctx, queue):
    """Over queues, one of them out of order; what was read is written to another buffer, behind the read."""
    mode = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    other, free = cl.CommandQueue(ctx), cl.CommandQueue(ctx, properties=mode)
    work, one, two = worker(ctx), numbers(ctx), numbers(ctx, 5)
    found = []
    for step in range(4):
        first = work(queue, one, step)
        out, second = fetch(free, one, wait_for=[first])
        third = work(other, one, 2, wait_for=[second])
        later, fourth = fetch(free, one, wait_for=[third])
        second.wait()
        fifth = cl.enqueue_copy(queue, two, out, is_blocking=False, wait_for=[second])
        sixth = work(free, two, 4, wait_for=[fifth])
        last, seventh = fetch(other, two, wait_for=[sixth])
        cl.wait_for_events([fourth, seventh])
        found += told(out, later, last)
    return found


def case_written_from_what_is_being_read(ctx, queue):
    """In order: the write comes behind the read."""
    work, one, two = worker(ctx), numbers(ctx), numbers(ctx, 5)
    work(queue, one, 3)
    out, read = fetch(queue, one)
    written = cl.enqueue_copy(queue, two, out, is_blocking=False)
    last, event = fetch(queue, two)
    event.wait()
    return told(last), read.command_execution_status, written.command_execution_status


def case_a_marker_comes_behind_it(ctx, queue):
    work, buffer = worker(ctx), numbers(ctx)
    work(queue, buffer, 3)
    out, read = fetch(queue, buffer)
    cl.enqueue_marker(queue).wait()
    return told(out), read.command_execution_status


def case_polled_read(ctx, queue):
    work, buffer = worker(ctx), numbers(ctx)
    work(queue, buffer, 3)
    out, read = fetch(queue, buffer)
    queue.flush()
    until = time.monotonic() + 30
    while read.command_execution_status != STATUS.COMPLETE and time.monotonic() < until:
        time.sleep(0.0005)
    return told(out), read.command_execution_status, read.command_type


def case_called_back_in_order(ctx, queue):
    work, buffer, order, over = worker(ctx), numbers(ctx), [], threading.Event()
    kept = []
    for step in range(3):
        work(queue, buffer, step)
        out, read = fetch(queue, buffer)
        kept.append((out, read))
    for step, (out, read) in enumerate(kept):
        read.set_callback(
            STATUS.COMPLETE,
            lambda status, step=step, out=out: (
                order.append((step, status, *told(out))),
                len(order) == 3 and over.set(),
            ),
        )
    queue.finish()
    return over.wait(30), sorted(order)


def case_released_before_it_has_come(ctx, queue):
    work = worker(ctx)
    found, kept = [], []
    for step in range(4):
        buffer = numbers(ctx, step)
        work(queue, buffer, step)
        kept.append(fetch(queue, buffer))
        buffer.release()
        del buffer
    queue.finish()
    for out, _ in kept:
        found += told(out)
    return found


def case_dropped_event(ctx, queue):
    """PyOpenCL waits for a read whose event nobody keeps."""
    work, buffer = worker(ctx), numbers(ctx)
    work(queue, buffer, 3)
    out = np.full(N, -1, np.int32)
    cl.enqueue_copy(queue, out, buffer, is_blocking=False)
    return told(out)


def case_rectangles(ctx, queue):
    work, buffer = worker(ctx), numbers(ctx)
    found, kept = [], []
    how = {"buffer_origin": (16, 2, 0), "host_origin": (8, 1, 0), "region": (40, 10, 1), "is_blocking": False}
    for step in range(3):
        work(queue, buffer, step)
        out = np.full((20, 30), -1, np.int32)
        event = cl.enqueue_copy(queue, out, buffer, buffer_pitches=(256,), host_pitches=(120,), **how)
        work(queue, buffer, 8)
        kept.append((out, event))
    kept[1][1].wait()
    found += told(*[out for out, _ in kept[:2]])
    queue.finish()
    return found + told(kept[2][0])


def case_maps(ctx, queue):
    """One is changed and unmapped at once, in its turn."""
    work, buffer = worker(ctx), numbers(ctx)
    work(queue, buffer, 2)
    flags = cl.map_flags.READ | cl.map_flags.WRITE
    mapped, event = cl.enqueue_map_buffer(queue, buffer, flags, 0, (N,), np.int32, is_blocking=False)
    event.wait()
    seen = told(mapped)
    mapped += 1
    mapped.base.release(queue)
    work(queue, buffer, 2)
    unseen, _ = cl.enqueue_map_buffer(queue, buffer, flags, 0, (N,), np.int32, is_blocking=False)
    unseen.base.release(queue)
    out, event = fetch(queue, buffer)
    event.wait()
    return seen, told(out)


def case_arrays(ctx, queue):
    x = cl.array.arange(queue, N, dtype=np.int32)
    found = []
    for step in range(4):
        y = 3 * x + step
        out, event = y.get_async() if hasattr(y, "get_async") else (y.get(), None)
        x = y
        if event is not None:
            event.wait()
        found += told(out)
    return found


def case_read_times(ctx, queue):
    timed = cl.CommandQueue(ctx, properties=cl.command_queue_properties.PROFILING_ENABLE)
    work, buffer = worker(ctx), numbers(ctx)
    first = work(timed, buffer, 4)
    _, read = fetch(timed, buffer)
    last = work(timed, buffer, 4)
    timed.finish()
    events = first, read, last
    ordered = [e.profile.queued <= e.profile.submit <= e.profile.start <= e.profile.end for e in events]
    return ordered, first.profile.end <= read.profile.start, read.profile.end <= last.profile.start


def case_held_read(ctx, queue):
    work, buffer, go = worker(ctx), numbers(ctx), cl.UserEvent(ctx)
    work(queue, buffer, 4, wait_for=[go])
    out, read = fetch(queue, buffer)
    before = told(out), read.command_execution_status > STATUS.COMPLETE
    go.set_status(STATUS.COMPLETE)
    read.wait()
    return before, told(out)


def case_random_reads(ctx, queue):
    """Many under way at once, of all buffers, between commands that change these."""
    random = np.random.default_rng(11)
    work, buffers = worker(ctx), [numbers(ctx, n) for n in range(3)]
    queues, kept, found = [queue, cl.CommandQueue(ctx)], [], []
    last = None
    for step in range(120):
        own, after = queues[random.integers(2)], [last] if last is not None else None
        target, source = (buffers[n] for n in random.permutation(3)[:2])
        kind = random.integers(6)
        if kind <= 1:
            last = work(own, target, step, wait_for=after)
        elif kind == 2:
            last = cl.enqueue_copy(own, target, source, wait_for=after)
        elif kind == 3:
            last = cl.enqueue_fill_buffer(own, target, np.int32(step), 0, 64, wait_for=after)
        else:
            count = int(random.integers(1, N))
            out, last = fetch(own, target, count, wait_for=after, src_offset=4 * int(random.integers(N - count)))
            kept.append((out, last))
        if step % 17 == 16:
            kept[-1][1].wait()
            found += told(kept[-1][0])
    for own in queues:
        own.finish()
    return found + told(*[out for out, _ in kept])
