"""Events, queues and their order."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl

F = cl.mem_flags
STATUS = cl.command_execution_status
SOURCE = "__kernel void add(__global int *a, int n) { a[get_global_id(0)] = 3 * a[get_global_id(0)] + n; }"


def numbers(ctx: Any) -> Any:
    return cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.zeros(16, np.int32))


def contents(queue: Any, buffer: Any) -> int:
    out = np.empty(16, np.int32)
    cl.enqueue_copy(queue, out, buffer)
    return int(out[3])


@cache
def program(ctx: Any) -> Any:
    return cl.Program(ctx, SOURCE).build()


def adder(ctx: Any) -> Any:
    kernel = cl.Kernel(program(ctx), "add")
    return lambda queue, buffer, n, **how: kernel(queue, (16,), None, buffer, np.int32(n), **how)


def case_held_back(ctx, queue):
    """An in-order queue: what comes behind a command that waits for a user event waits as well."""
    add, buffer, other = adder(ctx), numbers(ctx), numbers(ctx)
    free, go = cl.CommandQueue(ctx), cl.UserEvent(ctx)
    first = add(queue, buffer, 1, wait_for=[go])
    second = add(queue, buffer, 2)
    add(free, other, 7).wait()
    before = first.command_execution_status > STATUS.COMPLETE, second.command_execution_status > STATUS.COMPLETE
    go.set_status(STATUS.COMPLETE)
    queue.finish()
    return before, contents(queue, buffer), contents(free, other), second.command_execution_status


def case_chain_over_queues(ctx, queue):
    add, buffer, other, go = adder(ctx), numbers(ctx), cl.CommandQueue(ctx), cl.UserEvent(ctx)
    first = add(queue, buffer, 1, wait_for=[go])
    second = add(other, buffer, 2, wait_for=[first])
    out = np.empty(16, np.int32)
    third = cl.enqueue_copy(queue, out, buffer, wait_for=[second], is_blocking=False)
    go.set_status(STATUS.COMPLETE)
    third.wait()
    return out.tolist()


def case_set_by_another_thread(ctx, queue):
    add, buffer, go = adder(ctx), numbers(ctx), cl.UserEvent(ctx)
    add(queue, buffer, 5, wait_for=[go])
    timer = threading.Timer(0.05, lambda: go.set_status(STATUS.COMPLETE))
    timer.start()
    found = contents(queue, buffer)
    timer.join()
    return found


def case_set_twice(ctx, queue):
    go = cl.UserEvent(ctx)
    go.set_status(STATUS.COMPLETE)
    go.set_status(STATUS.COMPLETE)


def case_out_of_order(ctx, queue):
    add, buffer, other, go = adder(ctx), numbers(ctx), numbers(ctx), cl.UserEvent(ctx)
    free = cl.CommandQueue(ctx, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
    held = add(free, buffer, 1, wait_for=[go])
    add(free, other, 2).wait()
    barrier = cl.enqueue_barrier(free)
    last = add(free, other, 3)
    go.set_status(STATUS.COMPLETE)
    cl.wait_for_events([held, barrier, last])
    return contents(queue, buffer), contents(queue, other)


def case_markers(ctx, queue):
    add, buffer = adder(ctx), numbers(ctx)
    first = add(queue, buffer, 1)
    marker = cl.enqueue_marker(queue, wait_for=[first])
    marker.wait()
    cl.enqueue_barrier(queue).wait()
    kinds = first.command_type, marker.command_type
    return first.command_execution_status, kinds, first.command_queue == queue, contents(queue, buffer)


def case_polled(ctx, queue):
    add, buffer = adder(ctx), numbers(ctx)
    event = add(queue, buffer, 4)
    queue.flush()
    until = time.monotonic() + 30
    while event.command_execution_status != STATUS.COMPLETE and time.monotonic() < until:
        time.sleep(0.001)
    return event.command_execution_status


def case_called_back(ctx, queue):
    add, buffer, called, told = adder(ctx), numbers(ctx), threading.Event(), []
    event = add(queue, buffer, 4)
    event.set_callback(STATUS.COMPLETE, lambda status: (told.append(status), called.set()))
    queue.flush()
    return called.wait(30), told


def case_times(ctx, queue):
    add, buffer = adder(ctx), numbers(ctx)
    timed = cl.CommandQueue(ctx, properties=cl.command_queue_properties.PROFILING_ENABLE)
    out = np.empty(16, np.int32)
    events = [
        add(timed, buffer, 4),
        cl.enqueue_copy(timed, buffer, np.ones(16, np.int32), is_blocking=False),
        cl.enqueue_fill_buffer(timed, buffer, np.int32(1), 0, 64),
        cl.enqueue_copy(timed, out, buffer),
    ]
    timed.finish()
    return [e.profile.queued <= e.profile.submit <= e.profile.start <= e.profile.end for e in events]


def case_no_times(ctx, queue):
    event = adder(ctx)(queue, numbers(ctx), 4)
    event.wait()
    return event.profile.start


def case_wait_for_nothing(ctx, queue):
    cl.wait_for_events([])


def case_kept_memory(ctx, queue):
    out = np.empty(16, np.int32)
    event = cl.enqueue_copy(queue, out, numbers(ctx), is_blocking=False)
    kept = event.get_ward() is out
    event.wait()
    return kept, event.get_ward() is None, out.tolist()


def case_used_after_its_block(ctx, queue):
    import warnings

    with cl.CommandQueue(ctx) as own:
        buffer = numbers(ctx)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        cl.enqueue_fill_buffer(own, buffer, np.int32(1), 0, 64)
    return [warning.category.__name__ for warning in found if "after exit" in str(warning.message)]


def case_threads(ctx, queue):
    """Each thread has a queue and a buffer of its own, all use one context and one program."""
    found: list[Any] = [None] * 8

    def work(number: int) -> None:
        own, buffer, kernel = cl.CommandQueue(ctx), numbers(ctx), cl.Kernel(program(ctx), "add")
        check = 0
        for step in range(60):
            kernel(own, (16,), None, buffer, np.int32(step + number))
            check = 3 * check + step + number
            if step % 13 == 0:
                check = (check + 2**31) % 2**32 - 2**31
                if contents(own, buffer) != check:
                    return
            if step % 7 == 0:
                check = step
                cl.enqueue_fill_buffer(own, buffer, np.int32(step), 0, 64)
        own.finish()
        found[number] = contents(own, buffer)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def case_random_commands(ctx, queue):
    """Commands of all kinds on buffers and parts of them, over three queues, ordered by events; some are held back."""
    random = np.random.default_rng(7)
    wholes = [cl.Buffer(ctx, F.READ_WRITE | F.COPY_HOST_PTR, hostbuf=np.arange(256, dtype=np.int32)) for _ in range(3)]
    buffers = [*wholes, wholes[0][256:512], wholes[1][512:1024]]
    queues = [queue, cl.CommandQueue(ctx), cl.CommandQueue(ctx)]
    kernel = cl.Kernel(program(ctx), "add")
    last, found, held, kept = None, [], None, []  # (plain PyOpenCL waits for transfers whose events are dropped)
    for step in range(150):
        kept.append(last)
        own, after = queues[random.integers(3)], [last] if last is not None else None
        target, source = buffers[random.integers(5)], buffers[random.integers(3)]
        kind = random.integers(7)
        if kind == 0 and held is None:
            held = cl.UserEvent(ctx)
            after = [*(after or ()), held]
        if kind <= 2:
            last = kernel(own, (int(random.integers(1, 64)),), None, target, np.int32(step), wait_for=after)
        elif kind == 3 and target not in (source, *buffers[3:]):
            last = cl.enqueue_copy(own, target, source, byte_count=100, dst_offset=64, wait_for=after)
        elif kind == 4:
            last = cl.enqueue_fill_buffer(own, target, np.int32(step), 16, 64, wait_for=after)
        elif kind == 5:
            data = np.full(8, step, np.int32)
            last = cl.enqueue_copy(own, target, data, dst_offset=32, wait_for=after, is_blocking=False)
        elif kind == 6:
            if held is not None:
                held.set_status(STATUS.COMPLETE)
                held = None
            out = np.empty(8, np.int32)
            last = cl.enqueue_copy(own, out, target, src_offset=24, wait_for=after, is_blocking=False)
            last.wait()
            found.append(out.tolist())
    if held is not None:
        held.set_status(STATUS.COMPLETE)
    for own in queues:
        own.finish()
    out = np.empty(256, np.int32)
    for whole in wholes:
        cl.enqueue_copy(queue, out, whole)
        found.append(out.tolist())
    return found
