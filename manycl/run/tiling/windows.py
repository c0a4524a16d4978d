"""Data larger than a device's memory: launches are cut into ranges that each need only *windows* of the buffers.

A window is a device allocation of some bytes of a buffer, [low, low + nbytes). What a range of work-groups touches of a
buffer lies in an interval that the analysis computes; where that is much less than the buffer, the range gets a window
for it, and the kernel's pointer is moved (:mod:`manycl.analysis.texts.rewrite`). How launches are cut into ranges is
decided in :mod:`manycl.run.tiling.tiling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from manycl.graph.division import Division
from manycl.graph.graph import BufferKey, Window
from manycl.group_range import GroupRange
from manycl.machine import DeviceIndex
from manycl.model.transfer import SMALL
from manycl.plan.tuning import PLANNING
from manycl.units import ELEMENT, PAGE

_ALIKE = 0.75
"""Windows with at least this part in common become one, so that contents need no copies between them; our own
choice."""
STEPS = 16
"""Sizes of windows between two powers of two: windows of equal size can take one another's place; our own choice."""


def size_of(low: int, high: int) -> int:
    """Return the bytes of a window for an interval: a little more, so that there are few sizes."""
    least = max(high - low // PAGE * PAGE, PAGE)
    step = max(PAGE, (1 << (least - 1).bit_length()) // (2 * STEPS))
    return -(-least // step) * step


def interval_of(low: int, high: int) -> tuple[int, int]:
    """Return the bytes (first, one past the last) of a window for what is touched from ``low`` up to ``high``."""
    return low // PAGE * PAGE, -(-high // ELEMENT) * ELEMENT


def is_window(low: int, high: int, size: int) -> bool:
    """Return whether a window is worth it instead of the whole buffer."""
    return size >= SMALL and size_of(low, high) < PLANNING.nearly_all * size


def kept_whole(division: Division) -> str:
    """Return why buffers that might be windows are none, whatever ranges touch; empty: there are no such buffers."""
    small = any(division.sizes[key] < SMALL for key in division.movable)
    return f"buffers of less than {SMALL:,} bytes are kept whole" if small else ""


def intervals(division: Division, groups: GroupRange) -> dict[BufferKey, tuple[int, int]]:
    """Return the buffers that may be windows and of which a range touches little: first byte and one past the last."""
    access = division.access(groups) if division.movable else {}
    found = {key: interval_of(*(a.reads | a.writes).hull) for key, a in access.items() if key in division.movable}
    return {key: interval for key, interval in found.items() if is_window(*interval, division.sizes[key])}


class Windows:
    """The windows of a plan's ranges. ``of(device, key, low, high)``: the window that holds an interval of a buffer."""

    def __init__(
        self,
        wanted: Iterable[tuple[DeviceIndex, BufferKey, int, int]],
        new_key: Callable[[], BufferKey],
        shared: bool = True,
    ) -> None:
        """Make windows for the intervals ``wanted``: (device, buffer, low, high). ``shared``: intervals that are nearly
        the same get one window, and all windows of a buffer have one size."""
        by_buffer: dict[tuple[DeviceIndex, BufferKey], set[tuple[int, int]]] = {}
        for device, key, low, high in wanted:
            by_buffer.setdefault((device, key), set()).add((low, high))
        self._found: dict[tuple[DeviceIndex, BufferKey, int, int], Window] = {}
        for (device, key), given in by_buffer.items():
            groups = _alike(sorted(given)) if shared else [[interval] for interval in sorted(given)]
            sizes = [size_of(min(g)[0], max(h for _, h in g)) for g in groups]
            for group, size in zip(groups, sizes, strict=True):
                window = Window(new_key(), key, min(group)[0], max(sizes) if shared else size, device)
                self._found.update(((device, key, low, high), window) for low, high in group)

    def of(self, device: DeviceIndex, key: BufferKey, low: int, high: int) -> Window:
        return self._found[device, key, low, high]


def _alike(given: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Return sorted intervals in groups, each of intervals that are nearly the same."""
    groups: list[list[tuple[int, int]]] = []
    low, high = 0, 0  # bounds of the last group
    for a, b in given:
        together = min(high, b) - a
        if groups and together >= _ALIKE * max(high - low, b - a, max(high, b) - low):
            groups[-1].append((a, b))
            high = max(high, b)
        else:
            groups.append([(a, b)])
            low, high = a, b
    return groups
