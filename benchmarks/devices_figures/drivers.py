"""What the design rests on of OpenCL's drivers (docs/decisions/02-devices-and-drivers.md), by
hand, on a GPU if there is one.

queues_8_speedup, out_of_order_speedup: 32 small kernels in eight in-order queues, or in one out-of-order queue, against
one in-order queue. polled_us, waited_us, callback_us: from the end of a kernel, one in each of four queues, until the
program knows: by looking at the status in turn, by a thread each that waits, by completion callbacks; by the device's
own clock. pinned_gb_per_s: to the device from pinned memory. result_beside_us, result_behind_us: from a kernel's
end until its result begins to leave while a large upload is under way, by another queue and by the kernel's own.
small_pinned_us, small_copied_us: from the start of a large upload until the second of two small ones begins that are
enqueued behind it in another queue, from pinned and from ordinary memory. marker_us, barrier_us: from the end of an
upload until a marker, or a barrier, behind it is known to be complete, while a kernel that began before takes
``kernel_ms`` in another queue. enqueued_us, enqueued_untimed_us: a call that
enqueues a kernel, in a queue whose commands are timed and in one whose are not. migrated_gb_per_s: from another device
in a context of both, left to the driver (where two have memory of their own). Medians.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from functools import partial

import common
import numpy as np
import pyopencl as cl

import manycl as mc
from manycl.drivers.addresses import aligned
from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.driver import OpenCLDriver
from manycl.machine import HOST

SOURCE = """
kernel void spin(global float *x, int rounds) {
  float v = x[get_global_id(0)];
  for (int i = 0; i < rounds; i++) v = v * 0.999f + 0.5f;
  x[get_global_id(0)] = v;
}
kernel void touch(global uchar *x) { if (get_global_id(0) == 0) x[0] += 1; }
"""
KERNELS, QUEUES, WATCHED, ROUNDS = 32, 8, 4, 100_000
BESIDE = 20 * ROUNDS
"""Rounds of a kernel beside which something else is waited for."""
NBYTES = 1 << 28
FEW = 1 << 14
COMPLETE = cl.command_execution_status.COMPLETE
Look = Callable[[list[cl.Event], list[float]], None]
"""Note when each of some events was seen to be complete."""


class Spins:
    """Small kernels, each on a buffer of its own."""

    def __init__(self, driver: OpenCLDriver) -> None:
        self.program = program = cl.Program(driver.context, SOURCE).build()
        self.buffers = [cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, 4 * 64) for _ in range(KERNELS)]
        self.kernels = [cl.Kernel(program, "spin") for _ in range(KERNELS)]
        for kernel, buffer in zip(self.kernels, self.buffers, strict=True):
            kernel.set_args(buffer, np.int32(ROUNDS))

    def enqueue(self, queues: list[cl.CommandQueue], count: int = KERNELS) -> list[cl.Event]:
        """Round-robin."""
        events = [
            cl.enqueue_nd_range_kernel(queues[i % len(queues)], self.kernels[i], (64,), (64,)) for i in range(count)
        ]
        for queue in queues:
            queue.flush()
        return events

    def seconds(self, queues: list[cl.CommandQueue]) -> float:
        return common.seconds(lambda: [event.wait() for event in self.enqueue(queues)])


def polled(events: list[cl.Event], seen: list[float]) -> None:
    left = dict(enumerate(events))
    while left:
        for i, event in list(left.items()):
            if event.command_execution_status == COMPLETE:
                seen[i] = time.perf_counter()
                del left[i]


def waited(events: list[cl.Event], seen: list[float]) -> None:
    def wait(i: int) -> None:
        events[i].wait()
        seen[i] = time.perf_counter()

    threads = [threading.Thread(target=wait, args=(i,)) for i in range(len(events))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def by_callback(events: list[cl.Event], seen: list[float]) -> None:
    done = threading.Semaphore(0)

    def called(i: int) -> None:
        seen[i] = time.perf_counter()
        done.release()

    for i, event in enumerate(events):
        event.set_callback(COMPLETE, lambda _, i=i: called(i))
    for _ in events:
        done.acquire()


def late_us(driver: OpenCLDriver, spins: Spins, look: Look) -> float:
    queues = [driver.queue(timed=True) for _ in range(WATCHED)]
    offset = driver.clock()
    events = spins.enqueue(queues, WATCHED)
    seen = [0.0] * WATCHED
    look(events, seen)
    ends = (event.profile.end * 1e-9 + offset for event in events)
    return 1e6 * float(statistics.median(s - end for s, end in zip(seen, ends, strict=True)))


def pinned(driver: OpenCLDriver, nbytes: int) -> tuple[Bytes, object]:
    """Page-locked memory, and what keeps it so."""
    data = aligned(nbytes)
    data[:] = 1
    return data, driver.pin(data)


def pinned_rate(driver: OpenCLDriver) -> float:
    uploads = driver.queue(timed=False)
    target = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, NBYTES)
    data, _pin = pinned(driver, NBYTES)
    rates = [NBYTES / 1e9 / common.seconds(lambda: cl.enqueue_copy(uploads, target, data).wait()) for _ in range(2)]
    return rates[-1]  # the first one allocates


def result_us(driver: OpenCLDriver, spins: Spins, *, own: bool) -> float:
    """From a kernel's end until its result leaves, by the kernel's own queue or by another one, in microseconds."""
    kernels, uploads, results = (driver.queue(timed=True) for _ in range(3))
    data, kept = pinned(driver, NBYTES)
    small, host = pinned(driver, 4 * 64)
    target = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, NBYTES)
    up = cl.enqueue_copy(uploads, target, data, is_blocking=False)
    uploads.flush()
    kernel = cl.enqueue_nd_range_kernel(kernels, spins.kernels[0], (64,), (64,))
    leaves = kernels if own else results
    down = cl.enqueue_copy(leaves, small, spins.buffers[0], is_blocking=False, wait_for=[kernel])
    kernels.flush()
    leaves.flush()
    cl.wait_for_events([up, down])
    del kept, host
    return 1e-3 * float(down.profile.start - kernel.profile.end)


def small_us(driver: OpenCLDriver, *, is_pinned: bool) -> float:
    """From the start of a large upload until the second of two small ones begins, in microseconds."""
    large, small = (driver.queue(timed=True) for _ in range(2))
    data, kept = pinned(driver, NBYTES)
    few, host = pinned(driver, FEW)
    source = few if is_pinned else np.zeros(FEW, np.uint8)
    target = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, NBYTES)
    first = cl.enqueue_copy(large, target, data, is_blocking=False)
    large.flush()
    targets = [cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, FEW) for _ in range(2)]
    events = [cl.enqueue_copy(small, t, source, is_blocking=False) for t in targets]
    small.flush()
    cl.wait_for_events([first, *events])
    del kept, host
    return 1e-3 * float(events[-1].profile.start - first.profile.start)


def marked_us(driver: OpenCLDriver, spins: Spins, mark: Callable[[cl.CommandQueue], cl.Event]) -> tuple[float, float]:
    """From an upload's end until what marks it is seen to be complete, beside a kernel; how long that takes (s)."""
    kernels, uploads = (driver.queue(timed=True) for _ in range(2))
    data = np.zeros(FEW, np.uint8)
    target = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, FEW)
    kernel = cl.Kernel(spins.program, "spin")
    kernel.set_args(spins.buffers[0], np.int32(BESIDE))
    beside = cl.enqueue_nd_range_kernel(kernels, kernel, (64,), (64,))
    kernels.flush()
    events = {"upload": cl.enqueue_copy(uploads, target, data, is_blocking=False), "mark": mark(uploads)}
    uploads.flush()
    seen: dict[str, float] = {}
    while len(seen) < len(events):
        for name, event in events.items():
            if name not in seen and event.command_execution_status == COMPLETE:
                seen[name] = time.perf_counter()
    beside.wait()
    return 1e6 * (seen["mark"] - seen["upload"]), 1e-9 * float(beside.profile.end - beside.profile.start)


def enqueued_us(driver: OpenCLDriver, spins: Spins, *, profile: bool) -> float:
    """The call that enqueues a kernel, the median of all, in microseconds."""
    queue = driver.queue(timed=profile)
    taken = [
        common.seconds(partial(cl.enqueue_nd_range_kernel, queue, kernel, (64,), (64,))) for kernel in spins.kernels
    ]
    queue.finish()
    return 1e6 * statistics.median(taken)


def migrated_rate(devices: list[cl.Device], repeats: int) -> float:
    """A buffer that one device has written is written by the other, and so on."""
    context = cl.Context(devices)
    touch = cl.Kernel(cl.Program(context, SOURCE).build(), "touch")
    queues = [cl.CommandQueue(context, device) for device in devices]
    buffer = cl.Buffer(
        context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=np.zeros(NBYTES, np.uint8)
    )
    touch.set_args(buffer)

    def use(queue: cl.CommandQueue) -> None:
        cl.enqueue_nd_range_kernel(queue, touch, (1,), (1,)).wait()

    taken = [common.seconds(partial(use, queues[turn % 2])) for turn in range(2 + repeats)]
    return NBYTES / 1e9 / statistics.median(taken[2:])  # the first ones allocate


def main() -> None:
    args = common.parse(__doc__)
    kind = "gpu" if any(d.kind == "gpu" for d in mc.devices()) else "opencl/2"
    with mc.Queue(kind) as queue:
        drivers = [d for d in queue.session.backend.drivers if isinstance(d, OpenCLDriver)]
        driver, spins = drivers[0], Spins(drivers[0])
        out_of_order = cl.CommandQueue(
            driver.context, driver.cl, properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        )
        ways = {
            1: [driver.queue(timed=True)],
            QUEUES: [driver.queue(timed=True) for _ in range(QUEUES)],
            0: [out_of_order],
        }
        spins.seconds(ways[1])
        taken: dict[int, list[float]] = {way: [] for way in ways}
        looks = {"polled_us": polled, "waited_us": waited, "callback_us": by_callback}
        late: dict[str, list[float]] = {name: [] for name in looks}
        for _ in range(args.repeats):
            for way, queues in ways.items():
                taken[way].append(spins.seconds(queues))
            for name, look in looks.items():
                late[name].append(late_us(driver, spins, look))
        alone = statistics.median(taken[1])
        own = [d.cl for d in drivers if d.device.memory != HOST and d.cl.platform == driver.cl.platform]
        figures = {
            "queues_8_speedup": alone / statistics.median(taken[QUEUES]),
            "out_of_order_speedup": alone / statistics.median(taken[0]),
            **{name: statistics.median(times) for name, times in late.items()},
            "pinned_gb_per_s": common.median(lambda: pinned_rate(driver), args.repeats),
            "result_beside_us": common.median(lambda: result_us(driver, spins, own=False), args.repeats),
            "result_behind_us": common.median(lambda: result_us(driver, spins, own=True), args.repeats),
            "small_pinned_us": common.median(lambda: small_us(driver, is_pinned=True), args.repeats),
            "small_copied_us": common.median(lambda: small_us(driver, is_pinned=False), args.repeats),
            "marker_us": common.median(lambda: marked_us(driver, spins, cl.enqueue_marker)[0], args.repeats),
            "barrier_us": common.median(lambda: marked_us(driver, spins, cl.enqueue_barrier)[0], args.repeats),
            "kernel_ms": 1e3 * marked_us(driver, spins, cl.enqueue_barrier)[1],
            "enqueued_us": common.median(lambda: enqueued_us(driver, spins, profile=True), args.repeats),
            "enqueued_untimed_us": common.median(lambda: enqueued_us(driver, spins, profile=False), args.repeats),
            **({"migrated_gb_per_s": migrated_rate(own[:2], args.repeats)} if len(own) > 1 else {}),
            "device": driver.device.model,
        }
    common.report(args, figures)
