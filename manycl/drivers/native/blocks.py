"""Blocks of an NDRange: what a thread runs at once of a kernel whose tiles are run strip by strip
(``analysis/work_group/blocking.py``)."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

ACROSS, DOWN = 256, 96
"""Work-items of a block: what its tiles keep, and what they read in a strip, is in the second cache, and what comes
from farther away is used so many times."""
_EACH = 8
"""Blocks for each thread, where there are enough work-items: so that all of them end at about the same time."""


class Tiles(NamedTuple):
    """Tiles of so many work-items in dimensions 0 and 1, which a block has some of; ``kept``: bytes that each needs of
    the frame; ``dimension``: 0 or 1, along which vectors run; ``threads`` run them."""

    items: tuple[int, int]
    kept: int
    dimension: int
    threads: int

    def block(self, global_size: tuple[int, int, int]) -> tuple[int, int, int]:
        """The work-items of a block of an NDRange: smaller ones where there are few, first along vectors."""
        first = self.dimension
        most = (DOWN, ACROSS) if first else (ACROSS, DOWN)
        found = [_up(min(most[d], global_size[d]), self.items[d]) for d in (0, 1)]
        while -(-global_size[0] // found[0]) * -(-global_size[1] // found[1]) * global_size[2] < _EACH * self.threads:
            larger = [d for d in (first, 1 - first) if found[d] > self.items[d]]
            if not larger:
                break
            found[larger[0]] = _up(found[larger[0]] // 2, self.items[larger[0]])
        return found[0], found[1], 1

    def frame(self, block: tuple[int, int, int]) -> int:
        """Bytes."""
        return block[0] // self.items[0] * (block[1] // self.items[1]) * self.kept


def tiles_of(library: ctypes.CDLL, threads: int) -> Tiles | None:
    """Those of a compiled kernel, if it has any."""
    try:
        x, y, kept, dimension = (ctypes.c_uint * 4).in_dll(library, "manycl_tile")
    except ValueError:
        return None
    return Tiles((x, y), kept, dimension, threads)


def _up(items: int, of: int) -> int:
    return -(-items // of) * of
