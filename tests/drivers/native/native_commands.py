"""For tests of native devices: kernels, memory and commands of theirs, by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from manycl.drivers.driver import End
from manycl.drivers.native.driver import NativeDriver
from manycl.drivers.native.queue import GIVEN
from manycl.group_range import RangeParts
from manycl.region import Rectangle
from tests.drivers.native import native_entries

Open = Callable[[int], NativeDriver]
"""A device of so many threads."""


def uint(value: int) -> bytes:
    return value.to_bytes(4, "little")


def kernel(driver: NativeDriver, name: str, *args: Any) -> Any:
    made = driver.kernel(driver.build(native_entries.ALL), name)
    for index, value in enumerate(args):
        made.set(index, uint(value) if isinstance(value, int) else value)
    return made


def shared(driver: NativeDriver, values: Any) -> Any:
    """The array as the device's memory: both see what either writes."""
    data = values.reshape(-1).view(np.uint8)
    return driver.allocate(data.nbytes, data)


class Flag:
    """A kernel that runs until it is let go."""

    def __init__(self, driver: NativeDriver, queue: Any, after: Sequence[Any] = ()) -> None:
        self.word = np.zeros(1, np.uint32)
        self.event = driver.launch(
            queue, kernel(driver, "flag", shared(driver, self.word)), (1,), (1,), None, list(after) or None
        )

    def let_go(self) -> None:
        self.word[0] = 1


def enqueue_randomly(driver: NativeDriver, seed: int, commands: int, *others: NativeDriver) -> Callable[[], None]:
    """Commands on four buffers in three queues, or of several devices in three of each, of which each waits for those
    that it must come after, and for others; some launches may run beside the command before them. The result is
    compared with that of one after another."""
    choose = random.Random(seed)
    sizes = [choose.choice((1, 5, 64, 3000)) for _ in range(3)] + [40_000]
    arrays = [np.arange(n, dtype=np.uint32) + i for i, n in enumerate(sizes)]
    wanted = [a.copy() for a in arrays]
    memories = [shared(driver, a) for a in arrays]
    drivers = (driver, *others)
    queues = [(d, driver.queue(timed=True)) for d, driver in enumerate(drivers) for _ in range(3)]
    events: list[list[Any]] = [[] for _ in sizes]  # since the last command that wrote to each
    everything: list[Any] = []
    beside = set[Any]()
    kernels = [(kernel(driver, "crossed"), kernel(driver, "add")) for driver in drivers]
    for _ in range(commands):
        to, of = choose.sample(range(len(sizes)), 2)
        if sizes[to] > sizes[of]:
            to, of = of, to
        (d, queue), n = choose.choice(queues), sizes[to]
        driver, (crossed, added) = drivers[d], kernels[d]
        after = events[to] + events[of][:1] + choose.sample(everything, min(len(everything), choose.randrange(3)))
        kind, by = choose.randrange(8), choose.randrange(1000)
        is_beside = kind < 6 and choose.random() < 0.3
        launch = (
            partial(driver.launch_in_parts, parts=RangeParts(0, (n,)), is_beside=True) if is_beside else driver.launch
        )
        if kind < 4:
            crossed.set(0, memories[to])
            crossed.set(1, memories[of])
            event = launch(queue, crossed, (n,), (1,), None, after or None)
            wanted[to] = wanted[to] * np.uint32(3) + wanted[of][:n]
        elif kind < 6:
            added.set(0, memories[to])
            added.set(1, uint(by))
            event = launch(queue, added, (n,), (1,), None, after or None)
            wanted[to] += np.uint32(by)
        elif kind < 7:
            event = driver.copy(queue, End(memories[to]), End(memories[of]), (Rectangle(0, 4 * n),), after)[-1]
            wanted[to][:] = wanted[of][:n]
        else:
            event = driver.fill(queue, memories[to], uint(by), 0, 4 * n, after)
            wanted[to][:] = by
        if kind < 4 or kind == 6:
            events[of].append(event)
        events[to] = [event]
        everything.append(event)
        if is_beside:
            beside.add(event[:2])

    def check() -> None:
        for event in everything[:: choose.randint(1, 50)]:
            driver.wait(event)
        for queue_events in events:
            for event in queue_events:
                driver.wait(event)
        for _, queue in queues:
            driver.wait((queue, queue.state[GIVEN], None))
        assert all((a == w).all() for a, w in zip(arrays, wanted, strict=True))
        assert driver.succeeded(everything)
        spans: dict[int, list[tuple[float, float, bool]]] = {}
        for event in everything:
            spans.setdefault(id(event[0]), []).append((*driver.times(event), event[:2] in beside))
        for found in spans.values():
            assert all(start < end for start, end, _ in found)
            ends = itertools.accumulate((end for _, end, _ in found), max)
            assert all(
                is_beside or last <= start + 2e-9 for last, (start, _, is_beside) in zip(ends, found[1:], strict=False)
            )
            begins = [start for start, _, _ in found]
            assert begins == sorted(begins)

    return check
