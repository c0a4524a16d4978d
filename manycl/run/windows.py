"""Data larger than a device's memory: launches are cut into ranges that each need only *windows* of the buffers. Pure.

A window is a device allocation of some bytes of a buffer, [low, low + nbytes). Whatever a range of work-groups touches
of a buffer lies in an interval that the analysis knows; where that is much less than the buffer, the range gets a
window for it, and the kernel's pointer is moved (:mod:`manycl.analysis.windows`). How launches are cut into ranges is
decided in :mod:`manycl.run.fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from manycl.errors import RunError
from manycl.graph.division import Division
from manycl.graph.graph import BufferArg, Graph, Launch, Node, Window
from manycl.group_range import GroupRange
from manycl.machine import HOST, Device
from manycl.plan.plan import Plan
from manycl.plan.problem import Problem

ALIGNED = 4096  # bytes; windows begin at multiples, so pointers are aligned as those of whole buffers are
ELEMENT = 128  # bytes; who touches a part of a vector, or of a struct, may load all of it: none is aligned to more
SMALL = 1 << 16  # bytes; smaller buffers are kept whole
_NEARLY_ALL = 0.9  # of a buffer; no window is worth that
_ALIKE = 0.75  # windows that have so much in common are made one, so that the contents of one need no copy in the other
_STEPS = 16  # sizes of windows between two powers of two: those of few sizes can take one another's place


class Spill(NamedTuple):
    """What a device (index) is predicted to move because its ``limit`` is less than the ``needed`` bytes of buffers:
    bytes that come again, and that leave to make room or when the run ends; seconds of both."""

    device: int
    limit: int
    needed: int
    up: int
    down: int
    seconds: float


@dataclass(frozen=True)
class Room:
    """What a run that does not fit has to do with. ``limits``: bytes that the stores (windows and whole buffers) of a
    device may have, for the devices that do not hold all of the run. ``windows`` by key. ``using[step]``: the windows
    that a step works on instead of buffers, by buffer. ``sizes``: bytes of all stores by key. ``spills``: what that is
    predicted to cost (nothing, where it is decided while the run goes on)."""

    limits: Mapping[int, int]
    windows: Mapping[int, Window]
    using: Sequence[Mapping[int, int]]
    sizes: Mapping[int, int]
    spills: tuple[Spill, ...] = ()


def limited(problem: Problem, plan: Plan | None) -> dict[int, int]:
    """The devices that do not hold all buffers that a plan uses there (any that a graph uses, without one), and how
    much they hold. Nobody, nearly always."""
    if problem.roomy:
        return {}
    nodes, buffers = problem.graph.nodes, problem.graph.buffers
    found: dict[int, int] = {}
    for index, device in enumerate(problem.machine.devices):
        if device.memory == HOST:
            continue
        mine = range(len(nodes)) if plan is None else (a.node for a in plan.assignments if a.device == index)
        keys = {key for n in mine if isinstance(task := nodes[n], Launch) for key in stores(task)}
        sizes = [buffers[key].nbytes for key in keys]
        if sum(sizes) > device.global_memory or max(sizes, default=0) > device.max_allocation:
            found[index] = device.global_memory
    return found


def stores(task: Launch) -> set[int]:
    """The keys of what a launch needs in its device's memory."""
    return {a.key for a in task.args if isinstance(a, BufferArg)}


def too_large(name: str, node: int, nbytes: int, device: Device, reason: str = "") -> RunError:
    """A launch does not fit into a device's memory."""
    return RunError(
        f"the run needs {nbytes:,} bytes of buffers on {device.name} at once, which has {device.global_memory:,}"
        f" ({device.max_allocation:,} for one): kernel {name} (node {node}) does not run in ranges there"
        + (f": {reason}" if reason else ""),
        hint="choose devices with more memory, smaller arrays, or a static policy (auto), which can choose the device",
    )


def size_of(low: int, high: int) -> int:
    """Bytes of a window for an interval: a little more, so that there are few sizes."""
    least = max(high - low // ALIGNED * ALIGNED, ALIGNED)
    step = max(ALIGNED, (1 << (least - 1).bit_length()) // (2 * _STEPS))
    return -(-least // step) * step


def interval_of(low: int, high: int) -> tuple[int, int]:
    """Of which bytes a window is for what is touched from byte ``low`` up to byte ``high``."""
    return low // ALIGNED * ALIGNED, -(-high // ELEMENT) * ELEMENT


def is_window(low: int, high: int, size: int) -> bool:
    """Whether it is worth a window not to have all of a buffer."""
    return size >= SMALL and size_of(low, high) < _NEARLY_ALL * size


def kept_whole(division: Division) -> str:
    """Why buffers that might be windows are none, whatever ranges touch; empty: there are no such."""
    small = any(division.sizes[key] < SMALL for key in division.movable)
    return f"buffers of less than {SMALL:,} bytes are kept whole" if small else ""


def intervals(division: Division, groups: GroupRange) -> dict[int, tuple[int, int]]:
    """The buffers of which a range touches little, and which may be windows: first byte and one past the last."""
    access = division.access(groups) if division.movable else {}
    found = {key: interval_of(*(a.reads | a.writes).hull) for key, a in access.items() if key in division.movable}
    return {key: interval for key, interval in found.items() if is_window(*interval, division.sizes[key])}


class Windows:
    """The windows of a plan's ranges. ``of(device, key, low, high)``: the one that holds an interval of a buffer."""

    def __init__(
        self, wanted: Iterable[tuple[int, int, int, int]], new_key: Callable[[], int], shared: bool = True
    ) -> None:
        """``wanted``: (device, buffer, low, high). ``shared``: intervals of which nearly all is common get one window,
        and those of a buffer one size."""
        by_buffer: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for device, key, low, high in wanted:
            by_buffer.setdefault((device, key), set()).add((low, high))
        self._found: dict[tuple[int, int, int, int], Window] = {}
        for (device, key), given in by_buffer.items():
            groups = _alike(sorted(given)) if shared else [[interval] for interval in sorted(given)]
            sizes = [size_of(min(g)[0], max(h for _, h in g)) for g in groups]
            for group, size in zip(groups, sizes, strict=True):
                window = Window(new_key(), key, min(group)[0], max(sizes) if shared else size, device)
                self._found.update(((device, key, low, high), window) for low, high in group)

    def of(self, device: int, key: int, low: int, high: int) -> Window:
        return self._found[device, key, low, high]


def _alike(given: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Sorted intervals in groups of which nearly all is common to all."""
    groups: list[list[tuple[int, int]]] = []
    low, high = 0, 0  # of the last group
    for a, b in given:
        together = min(high, b) - a
        if groups and together >= _ALIKE * max(high - low, b - a, max(high, b) - low):
            groups[-1].append((a, b))
            high = max(high, b)
        else:
            groups.append([(a, b)])
            low, high = a, b
    return groups


def same_graph(one: Graph, other: Graph) -> bool:
    """Whether the steps of one graph are those of another: the same launches of the same buffers."""
    return one is other or (
        len(one) == len(other)
        and one.predecessors == other.predecessors
        and one.components == other.components
        and one.buffers == other.buffers
        and all(_same(a, b) for a, b in zip(one.nodes, other.nodes, strict=True))
    )


def _same(one: Node, other: Node) -> bool:
    return one is other or (
        isinstance(one, Launch)
        and isinstance(other, Launch)
        and all(getattr(one, name) == getattr(other, name) for name in Launch.__slots__)
    )


def same_plan(one: Plan | None, other: Plan | None) -> bool:
    """Whether two plans are the same but for their times."""
    if one is None or other is None:
        return one is other
    return len(one.assignments) == len(other.assignments) and all(
        a[:3] == b[:3] and a[5:] == b[5:] for a, b in zip(one.assignments, other.assignments, strict=True)
    )
