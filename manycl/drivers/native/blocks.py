"""Blocks of an NDRange: what a thread runs at once of a kernel to which work-groups are nothing, and which takes
some of its work-items, a tile, through its loops together."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

ACROSS, DOWN = 256, 96
"""Work-items of a block whose tiles are run strip by strip (``analysis/work_group/emit.py``): what its tiles keep,
and what they read in a strip, is in the second cache, and what comes from farther away is used so many times."""
_ROWS = 2048
"""Work-items of a block of other tiles at most, unless a work-group or a tile has more: what rows of a group read alike
stays in the cache, and a block that takes long does not take much longer than a group."""
_EACH, _STRIPS_EACH = 8, 32
"""Blocks for each thread, where there are enough work-items: so that all end at about the same time. Those whose
tiles are run strip by strip may take long, and who wants the end of a launch waits for those that have begun."""
Size = tuple[int, int, int]


class Tiles(NamedTuple):
    """Tiles of so many work-items in dimensions 0 and 1, which a block has some of; ``kept``: bytes that each needs of
    the frame, 0 where they are not run strip by strip; ``dimension``: 0 or 1, along which vectors run, of so many
    ``lanes``; ``threads`` run them."""

    items: tuple[int, int]
    kept: int
    dimension: int
    lanes: int
    threads: int

    def block(self, global_size: Size, local_size: Size) -> Size:
        """The work-items of a block of an NDRange: smaller ones where there are few, first along vectors."""
        first = self.dimension
        found = self._strips(global_size) if self.kept else self._beside(global_size, local_size)
        least = (*self.items, 1)
        each = _STRIPS_EACH if self.kept else _EACH
        while _count(global_size, found) < each * self.threads:
            larger = [d for d in (first, 1 - first, 2) if found[d] > least[d]]
            if not larger:
                break
            found[larger[0]] = _up(found[larger[0]] // 2, least[larger[0]])
        while not self.kept and found[first] > self.lanes and _count(global_size, found) < self.threads:
            found[first] = _up(found[first] // 2, self.lanes)  # slower than a tile for each item, but on more threads
        return found[0], found[1], found[2]

    def _strips(self, global_size: Size) -> list[int]:
        most = (DOWN, ACROSS) if self.dimension else (ACROSS, DOWN)
        return [*(_up(min(most[d], global_size[d]), self.items[d]) for d in (0, 1)), 1]

    def _beside(self, global_size: Size, local_size: Size) -> list[int]:
        """Work-groups beside one another, as many as make tiles full."""
        first = self.dimension
        least = (*self.items, 1)
        found = [min(-(-a // b) * b, whole) for a, b, whole in zip(local_size, least, global_size, strict=True)]
        most = max(_ROWS, math.prod(self.items), math.prod(local_size))
        while math.prod(found) > most:
            larger = [d for d in (2, 1 - first) if found[d] > least[d]]
            if not larger:
                break
            found[larger[0]] = _up(found[larger[0]] // 2, least[larger[0]])
        return found

    def frame(self, block: Size) -> int:
        """Bytes."""
        return block[0] // self.items[0] * (block[1] // self.items[1]) * self.kept


def tiles_of(library: ctypes.CDLL, threads: int) -> Tiles | None:
    """Return the blocks of a compiled kernel, if it has any."""
    try:
        x, y, kept, dimension, lanes = (ctypes.c_uint * 5).in_dll(library, "manycl_tile")
    except ValueError:
        return None
    return Tiles((x, y), kept, dimension, lanes, threads)


def _count(global_size: Size, block: list[int]) -> int:
    (x, y, z), (a, b, c) = global_size, block
    return -(-x // a) * -(-y // b) * -(-z // c)


def _up(items: int, of: int) -> int:
    return -(-items // of) * of
