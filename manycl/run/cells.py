"""A share of a launch that may move while it runs, cut into cells. Pure."""

from __future__ import annotations

import heapq

MOST = 64
"""Cells of a launch: cutting its buffers along them takes some tenth of a millisecond a cell."""
PART = 3
"""A cell is at most this part of what is behind it in its share: what is left last, and what is stolen, is at the
end, …"""
FINEST = 300
"""… but no less than this part of the launch, as long as all of it counts: a part of a percent decides nothing."""


def cut(groups: int, most: int, least: int) -> list[int]:
    """So many work-groups in at most ``most`` cells of about ``least`` or more, which become ever smaller."""
    sizes: list[int] = []
    rest = groups
    while rest > 0:
        size = max(least, -(-rest // PART))
        if len(sizes) == most - 1 or rest - size < least:
            size = rest
        sizes.append(size)
        rest -= size
    # the cells that are left make the largest ones smaller, in their places
    halves = [[size] for size in sizes]
    largest = [(-size, place) for place, size in enumerate(sizes)]
    heapq.heapify(largest)
    for _ in range(most - len(sizes)):
        size, place = -largest[0][0], largest[0][1]
        if size < 2 * least:
            break
        at = max(range(len(halves[place])), key=halves[place].__getitem__)
        halves[place][at : at + 1] = [size - size // 2, size // 2]
        heapq.heapreplace(largest, (-max(halves[place]), place))
    return [size for cells in halves for size in cells]
