"""How long launches and transfers will take: measured where they have been measured, else an honest first
guess.

A launch that was measured on a device takes the median of its measurements there (the first one, which may
hold compilation and page faults, only counts while it is alone), so one bad sample cannot idle a device. A
launch that was never measured takes

    launch_overhead + max(64 operations x work-items / flops usable, bytes / bandwidth) x slowdown

where *usable* is the share of the device that so few work-items can fill (:mod:`manycl.model.occupancy`) and
every byte of a buffer counts once where it is read and once where it is written. 64 operations per work-item
is an assumption, not a finding: it is good for comparing devices, not for predicting seconds. As soon as one
device has measured the launch, the guesses for the others are scaled by the same factor (measured over
guessed, within 1/1000 to 1000), so a kernel that does much more work than assumed looks expensive everywhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import cached_property
from statistics import median
from typing import NamedTuple

from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, Device, Link, Machine
from manycl.model.occupancy import share

OPERATIONS_PER_ITEM = 64.0
KEEP = 31  # measurements per launch and device; older ones are forgotten
FACTOR_LIMIT = 1000.0
DEFAULT_LINK = Link(HOST, HOST, bandwidth=10e9, latency=10e-6)
"""What a link is taken to be where the machine does not describe it: 10 GB/s, 10 us."""


class KernelKey(NamedTuple):
    """What makes two launches alike for the history: program, build options, kernel and NDRange (not the
    arguments)."""

    source: str
    options: tuple[str, ...]
    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None


def kernel_key(launch: Launch) -> KernelKey:
    program = launch.program
    return KernelKey(program.source, program.options, launch.kernel.name, launch.global_size, launch.local_size)


class _Series:
    """Measurements of one launch on one device."""

    __slots__ = ("first", "median", "rest")

    def __init__(self, first: float) -> None:
        self.first = first
        self.rest: deque[float] = deque(maxlen=KEEP)
        self.median: float | None = first


class History:
    """Measured durations, in memory. Keys: :func:`kernel_key` and the device's name."""

    def __init__(self) -> None:
        self._series: dict[KernelKey, dict[str, _Series]] = {}

    def observe(self, key: KernelKey, device: str, seconds: float) -> None:
        """Take note of one run. What is no positive finite time (a driver without profiling) is ignored."""
        if not 0.0 < seconds < math.inf:
            return
        of_key = self._series.get(key)
        if of_key is None:
            of_key = self._series[key] = {}
        series = of_key.get(device)
        if series is None:
            of_key[device] = _Series(seconds)
        else:
            series.rest.append(seconds)
            series.median = None

    def median(self, key: KernelKey, device: str) -> float | None:
        """Seconds of this launch on this device, or None when it never ran there."""
        series = self._series.get(key, {}).get(device)
        if series is None:
            return None
        if series.median is None:
            series.median = median(series.rest)
        return series.median

    def count(self, key: KernelKey, device: str) -> int:
        """How many measurements :meth:`median` rests on."""
        series = self._series.get(key, {}).get(device)
        return 0 if series is None else max(1, len(series.rest))


def prior(launch: Launch, device: Device, nbytes: int) -> float:
    """The first guess in seconds; ``nbytes`` of buffers are read and written. See the module's text."""
    usable = device.flops * share(launch, device)
    body = max(OPERATIONS_PER_ITEM * launch.work_items / usable, nbytes / device.bandwidth)
    return device.launch_overhead + body * device.slowdown


class ModelEstimates:
    """Estimates for one graph on one machine; implements ``plan.problem.Estimates``.

    The history is read once, when the first launch is asked for. Measurements of a slowed-down device include
    its slow-down already; guesses are multiplied by it.
    """

    def __init__(self, graph: Graph, machine: Machine, history: History | None = None) -> None:
        self._graph = graph
        self._machine = machine
        self._history = history or History()

    def launch(self, node: int, device: int) -> float:
        return self._rows[node][device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        if source == target:
            return 0.0
        route = self._routes.get((source, target))
        if route is None:
            route = self._routes[source, target] = self._route(source, target)
        latency, per_byte = route
        return latency + nbytes * per_byte

    @cached_property
    def _routes(self) -> dict[tuple[int, int], tuple[float, float]]:
        return {}

    def _route(self, source: int, target: int) -> tuple[float, float]:
        """Latency and seconds per byte of the direct link, else of the way through the host."""
        direct = self._machine.link(source, target)
        if direct is not None:
            return direct.latency, 1.0 / direct.bandwidth
        if HOST in (source, target):
            return DEFAULT_LINK.latency, 1.0 / DEFAULT_LINK.bandwidth
        up, down = self._route(source, HOST), self._route(HOST, target)
        return up[0] + down[0], up[1] + down[1]

    @cached_property
    def _rows(self) -> list[tuple[float, ...]]:
        """Per node, the seconds on each device; computed once per kind of launch."""
        size = {key: buffer.nbytes for key, buffer in self._graph.buffers.items()}
        kinds: dict[object, tuple[float, ...]] = {}
        nothing = (0.0,) * len(self._machine.devices)
        rows: list[tuple[float, ...]] = []
        for node in self._graph.nodes:
            if not isinstance(node, Launch):
                rows.append(nothing)
                continue
            nbytes = 0
            for key in node.reads:
                nbytes += size[key]
            for key in node.writes:
                nbytes += size[key]
            kind = (id(node.program), node.kernel.name, node.global_size, node.local_size, nbytes)
            row = kinds.get(kind)
            if row is None:
                row = kinds[kind] = self._row(node, nbytes)
            rows.append(row)
        return rows

    def _row(self, launch: Launch, nbytes: int) -> tuple[float, ...]:
        devices = self._machine.devices
        key = kernel_key(launch)
        measured = [self._history.median(key, d.name) for d in devices]
        guessed = [prior(launch, d, nbytes) for d in devices]
        factor = _factor(measured, guessed, devices)
        return tuple(
            m if m is not None else d.launch_overhead + (g - d.launch_overhead) * factor
            for m, g, d in zip(measured, guessed, devices, strict=True)
        )


def _factor(measured: Sequence[float | None], guessed: Sequence[float], devices: Sequence[Device]) -> float:
    """How many times longer than guessed the launch took where it was measured (median over devices; 1:
    nowhere)."""
    ratios = [
        max(m - d.launch_overhead, m * 0.5) / (g - d.launch_overhead)
        for m, g, d in zip(measured, guessed, devices, strict=True)
        if m is not None and g > d.launch_overhead
    ]
    if not ratios:
        return 1.0
    return min(FACTOR_LIMIT, max(1.0 / FACTOR_LIMIT, median(ratios)))
