"""Red zones: a pattern before and after every buffer that kernels see, compared after each kernel (MANYCL_DEBUG=5). A
kernel that writes up to :data:`PAGE` bytes outside of a buffer changes the pattern instead of other data, and is named.
Kernels run one at a time then, so it is that kernel. Reads outside of a buffer, and writes further away, are not
seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from manycl.drivers.driver import Allocation, Bytes, Driver, End, Queue
from manycl.region import Rectangle
from manycl.units import PAGE

PATTERN: Bytes = (np.arange(PAGE) * 37 + 11).astype(np.uint8)


class Trespass(NamedTuple):
    """Bytes outside of a buffer that were written: the first, counted from the buffer's beginning, and how many."""

    first: int
    written: int


def around(whole: Bytes) -> Bytes:
    """Draw the red zones of host memory; return the bytes between them."""
    whole[:PAGE] = PATTERN
    whole[-PAGE:] = PATTERN
    return whole[PAGE:-PAGE]


def on_device(driver: Driver, queue: Queue, nbytes: int) -> tuple[Allocation, Allocation]:
    """Allocate memory of a device between red zones; return it without them, and with them."""
    whole = driver.allocate(nbytes + 2 * PAGE)
    _draw(driver, queue, whole, nbytes)
    return driver.part(whole, PAGE, nbytes), whole


def look_at_host(whole: Bytes) -> Trespass | None:
    """Return what was written into the red zones of host memory, and draw them again."""
    nbytes = len(whole) - 2 * PAGE
    found = _compare(whole[:PAGE], whole[-PAGE:], nbytes)
    if found is not None:
        around(whole)
    return found


def look_on_device(driver: Driver, queue: Queue, whole: Allocation, nbytes: int) -> Trespass | None:
    """Return what was written into the red zones around ``nbytes`` of a device's memory, and draw them again."""
    data = np.empty(nbytes + 2 * PAGE, np.uint8)
    _copy(driver, queue, End(data), End(whole), nbytes)
    found = _compare(data[:PAGE], data[-PAGE:], nbytes)
    if found is not None:
        _draw(driver, queue, whole, nbytes)
    return found


def _draw(driver: Driver, queue: Queue, whole: Allocation, nbytes: int) -> None:
    data = np.empty(nbytes + 2 * PAGE, np.uint8)
    around(data)
    _copy(driver, queue, End(whole), End(data), nbytes)


def _copy(driver: Driver, queue: Queue, target: End, source: End, nbytes: int) -> None:
    zones = (Rectangle(0, PAGE), Rectangle(PAGE + nbytes, PAGE))
    events = driver.copy(queue, target, source, zones, ())
    driver.flush(queue)
    driver.wait(events[-1])


def _compare(before: Bytes, after: Bytes, nbytes: int) -> Trespass | None:
    places = np.concatenate([np.flatnonzero(before != PATTERN) - PAGE, np.flatnonzero(after != PATTERN) + nbytes])
    return Trespass(int(places[0]), len(places)) if len(places) else None
