"""Stalls: how long devices waited for data before their kernels, from a trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from manycl.machine import HOST, Machine
from manycl.trace import Trace


def waiting(trace: Trace, machine: Machine) -> Iterator[tuple[int, int, float]]:
    """Yield (node, device index, seconds) for every kernel before which its device waited for data. A wait begins when
    the previous kernels have ended on all devices. It lasts while data come to the device's memory, or to the host's,
    which they pass on their way from device to device. Transfers to other places, or while the device computes, do not
    count."""
    kernels = sorted(trace.kernels(), key=lambda e: e.start)
    ended = sorted(kernels, key=lambda e: e.end)
    ends = [e.end for e in ended]
    moves = sorted(trace.transfers(), key=lambda e: e.start)
    for d, device in machine.numbered():
        name = device.name if device.memory != HOST else "host"
        coming = [e for e in moves if e.target in (name, "host")]
        starts = [e.start for e in coming]
        longest = max((e.end - e.start for e in coming), default=0.0)
        for kernel in kernels:
            if kernel.device != device.name:
                continue
            last = bisect_right(ends, kernel.start) - 1
            while last >= 0 and ended[last].device != device.name and ended[last].node == kernel.node:
                last -= 1  # another range of the same launch
            begin = at = ends[last] if last >= 0 else 0.0
            seconds = 0.0
            for move in coming[bisect_left(starts, begin - longest) : bisect_left(starts, kernel.start)]:
                start, end = max(move.start, at), min(move.end, kernel.start)
                if end > start:
                    seconds += end - start
                    at = end
            if seconds > 0.0:
                yield kernel.node, d, seconds
