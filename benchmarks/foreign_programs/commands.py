"""What a stranger's program would do, kind of command by kind: the program of `commands.py`, which knows only PyOpenCL.

Prints one JSON object: for each kind how many commands a call is, and the microseconds that a call takes: by the
clock, the median of rounds of many calls each, and the least; and the least of the calling thread's processor time.
What is not waited for by its kind is waited for between rounds, untimed.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

SOURCE = """
__kernel void tick(__global int *x, int by) { if (get_global_id(0) == 0) x[0] += by; }
"""
SIZES = {"4b": 4, "4kb": 4 << 10, "1mb": 1 << 20}
KNOWN = 1 << 12  # bytes
COMMANDS = {"launch_and_read": 2, "map_unmap": 2, "write_launch_read": 3}
"""Of a call, where that is more than one."""
Once = Callable[[int], Any]


def device() -> cl.Device:
    """The first of a platform whose devices are no simulations."""
    platforms = [p for p in cl.get_platforms() if "Oclgrind" not in p.name]
    found = [d for p in platforms for d in p.get_devices()]
    return next((d for d in found if d.type & cl.device_type.GPU), found[0])


class Stranger:
    """Has one queue that times its commands and one that does not."""

    def __init__(self) -> None:
        context = cl.Context([device()])
        self.queue = cl.CommandQueue(context)
        self.timed = cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self.kernel = cl.Program(context, SOURCE).build().tick
        self.one = cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20)
        self.other = cl.Buffer(context, cl.mem_flags.READ_WRITE, 1 << 20)
        for buffer in (self.one, self.other):
            cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.int32), 0, 1 << 20)
        self.queue.finish()
        self.kernel.set_args(self.one, np.int32(1))
        self.hosts = {name: np.zeros(nbytes, np.uint8) for name, nbytes in SIZES.items()}

    def kinds(self) -> dict[str, tuple[int, Once]]:
        """By name: calls in a round, and the call."""
        queue, one, other, hosts = self.queue, self.one, self.other, self.hosts
        zero = np.zeros(1, np.int32)
        found: dict[str, tuple[int, Once]] = {
            "launch": (200, lambda i: self.launch()),
            "launch_with_set_args": (200, lambda i: self.set_and_launch(i)),
            "set_arg": (200, lambda i: self.kernel.set_arg(1, np.int32(i))),
            "copy": (200, lambda i: cl.enqueue_copy(queue, other, one, byte_count=KNOWN)),
            "fill": (200, lambda i: cl.enqueue_fill_buffer(queue, other, zero, 0, KNOWN)),
            "copy_rectangle": (
                100,
                lambda i: cl.enqueue_copy(
                    queue, other, one, src_origin=(0, 0), dst_origin=(0, 0), region=(64, 16),
                    src_pitches=(256,), dst_pitches=(256,),
                ),
            ),
            "marker": (200, lambda i: cl.enqueue_marker(queue)),
            "barrier": (200, lambda i: cl.enqueue_barrier(queue)),
            "sub_buffer": (100, lambda i: one.get_sub_region(4096 * (i % 8), 4096)),
            "buffer": (100, lambda i: cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)),
            "launch_and_wait": (50, lambda i: self.launch().wait()),
            "launch_and_finish": (50, lambda i: (self.launch(), queue.finish())),
            "launch_wait_times": (50, self.launch_and_times),
            "launch_and_read": (50, lambda i: (self.launch(), cl.enqueue_copy(queue, hosts["4b"], one))),
            "write_launch_read": (50, self.write_launch_read),
            "map_unmap": (50, self.map_and_unmap),
        }  # fmt: skip
        for name, host in hosts.items():
            count = 20 if host.nbytes > 1 << 16 else 50
            for word, is_blocking in (("", True), ("_later", False)):
                found[f"read_{name}{word}"] = count, self.reading(host, is_blocking)
                found[f"write_{name}{word}"] = count, self.writing(host, is_blocking)
        return found

    def launch(self) -> cl.Event:
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (16,), None)

    def set_and_launch(self, i: int) -> cl.Event:
        return self.kernel(self.queue, (16,), None, self.one, np.int32(i))

    def launch_and_times(self, i: int) -> int:
        event = cl.enqueue_nd_range_kernel(self.timed, self.kernel, (16,), None)
        event.wait()
        return int(event.profile.end - event.profile.start)

    def write_launch_read(self, i: int) -> None:
        host = self.hosts["4b"]
        cl.enqueue_copy(self.queue, self.one, host)
        self.launch()
        cl.enqueue_copy(self.queue, host, self.one)

    def map_and_unmap(self, i: int) -> None:
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        array, _ = cl.enqueue_map_buffer(self.queue, self.one, flags, 0, (1024,), np.int32)
        array.base.release(self.queue)

    def reading(self, host: np.ndarray[Any, Any], is_blocking: bool) -> Once:
        return lambda i: cl.enqueue_copy(self.queue, host, self.one, is_blocking=is_blocking)

    def writing(self, host: np.ndarray[Any, Any], is_blocking: bool) -> Once:
        return lambda i: cl.enqueue_copy(self.queue, self.one, host, is_blocking=is_blocking)

    def check(self) -> None:
        """What all that has left behind is what it should be. Raises AssertionError."""
        host = np.array([5], np.int32)
        cl.enqueue_copy(self.queue, self.one, host)
        for _ in range(7):
            self.launch()
        cl.enqueue_copy(self.queue, host, self.one)
        assert host[0] == 5 + 7 * self.last, host
        cl.enqueue_copy(self.queue, self.other, self.one, byte_count=4)
        host[0] = 0
        cl.enqueue_copy(self.queue, host, self.other)
        assert host[0] == 5 + 7 * self.last, host

    last = 1
    """The number that the kernel adds."""


def main() -> None:
    rounds, wanted = int(sys.argv[1]), [name for name in sys.argv[2].split(",") if name]
    stranger = Stranger()
    told: dict[str, tuple[int, float, float, float]] = {}
    for name, (count, once) in stranger.kinds().items():
        if wanted and name not in wanted:
            continue
        stranger.kernel.set_args(stranger.one, np.int32(1))
        taken: list[tuple[float, float]] = []
        for number in range(rounds + 3):
            stranger.queue.finish()
            begun, used = time.perf_counter_ns(), time.thread_time_ns()
            for i in range(count):
                once(i)
            used, begun = time.thread_time_ns() - used, time.perf_counter_ns() - begun
            if number >= 3:  # before, it is found out what comes again
                taken.append((begun / count * 1e-3, used / count * 1e-3))
        stranger.queue.finish()
        clock, thread = zip(*taken, strict=True)
        told[name] = COMMANDS.get(name, 1), statistics.median(clock), min(clock), min(thread)
    stranger.kernel.set_args(stranger.one, np.int32(1))
    stranger.check()
    print(json.dumps({"platform": stranger.queue.device.platform.name, "kinds": told}))


if __name__ == "__main__":
    main()
