"""The cells of a launch that have not run, as stocks: of the devices whose they were, and of nobody. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from manycl.machine import DeviceIndex
from manycl.run.steps import Cells


def stocks_left(
    cells: Cells, done: Collection[int]
) -> tuple[dict[DeviceIndex, tuple[int, int]], list[tuple[int, int]]]:
    """Of each device the first of the cells that neighbour each other, and others; ``done``: the steps that need not
    run."""
    own: dict[DeviceIndex, tuple[int, int]] = {}
    others: list[tuple[int, int]] = []
    for device, _, first, last in cells.stocks:
        found = list(_left(cells, done, first, last))
        if found:
            own[device] = found[0]
            others += found[1:]
    return own, others


def _left(cells: Cells, done: Collection[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    begin = first
    for cell in range(first, last + 1):
        if cell == last or cells.steps[cell] in done:
            if begin < cell:
                yield begin, cell
            begin = cell + 1
