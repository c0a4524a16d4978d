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
    """Tiles of ``across`` x ``down`` work-items, which a block has some of; ``kept``: bytes that each needs of the
    frame; ``threads`` run them."""

    across: int
    down: int
    kept: int
    threads: int

    def block(self, global_size: tuple[int, int, int]) -> tuple[int, int, int]:
        """The work-items of a block of an NDRange: smaller ones where there are few, first in dimension 0."""
        across = _up(min(ACROSS, global_size[0]), self.across)
        down = _up(min(DOWN, global_size[1]), self.down)
        while self._blocks(global_size, across, down) < _EACH * self.threads:
            if across > self.across:
                across = _up(across // 2, self.across)
            elif down > self.down:
                down = _up(down // 2, self.down)
            else:
                break
        return across, down, 1

    def frame(self, block: tuple[int, int, int]) -> int:
        """Bytes."""
        return block[0] // self.across * (block[1] // self.down) * self.kept

    def _blocks(self, global_size: tuple[int, int, int], across: int, down: int) -> int:
        return -(-global_size[0] // across) * -(-global_size[1] // down) * global_size[2]


def tiles_of(library: ctypes.CDLL, threads: int) -> Tiles | None:
    """Those of a compiled kernel, if it has any."""
    try:
        across, down, kept = (ctypes.c_uint * 3).in_dll(library, "manycl_tile")
    except ValueError:
        return None
    return Tiles(across, down, kept, threads)


def _up(items: int, of: int) -> int:
    return -(-items // of) * of
