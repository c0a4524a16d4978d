"""How long devices waited for data, by a trace."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from manycl.machine import HOST, Device, Machine
from manycl.run.graph_cache.stalls import waiting
from manycl.trace import KernelEvent, Trace, TransferEvent

MACHINE = Machine((Device("cpu", "cpu"), Device("one", "gpu", memory=1), Device("two", "gpu", memory=2)))


def kernel(device: str, node: int, start: float, end: float) -> KernelEvent:
    return KernelEvent(node, "k", device, 0, start, end, (1,), None)


def move(source: str, target: str, start: float, end: float) -> TransferEvent:
    return TransferEvent(0, "b", source, target, 1, start, end)


def waits(*events: KernelEvent | TransferEvent) -> list[list[float]]:
    """Of the first node, and of the others together: by device."""
    found = [[0.0] * 3, [0.0] * 3]
    for node, device, seconds in waiting(Trace(events, ("cpu", "one", "two"), "p", 100.0), MACHINE):
        found[min(node, 1)][device] += seconds
    return [[pytest.approx(s) for s in row] for row in found]


def test_a_device_waits_for_what_comes_to_it_before_its_kernels() -> None:
    assert waits(move("host", "one", 1.0, 3.0), kernel("one", 0, 3.0, 5.0)) == [[0.0, 2.0, 0.0], [0.0] * 3]
    # the second kernel's data come while the first one runs, but for the last of them; what is between is no transfer
    events = kernel("one", 0, 0.0, 5.0), move("host", "one", 4.0, 6.0), kernel("one", 1, 7.0, 8.0)
    assert waits(*events) == [[0.0] * 3, [0.0, 1.0, 0.0]]
    # of two at the same time each moment counts once
    both = move("host", "one", 1.0, 3.0), move("host", "one", 2.0, 4.0)
    assert waits(*both, kernel("one", 2, 4.0, 5.0)) == [[0.0] * 3, [0.0, 3.0, 0.0]]


def test_what_goes_elsewhere_costs_a_device_nothing() -> None:
    events = kernel("one", 0, 0.0, 1.0), move("one", "host", 1.0, 3.0), kernel("cpu", 1, 3.0, 4.0)
    assert waits(*events) == [[0.0] * 3, [2.0, 0.0, 0.0]]  # the CPU waits
    ahead = kernel("one", 1, 1.0, 2.0)
    assert waits(*events, ahead) == [[0.0] * 3, [2.0, 0.0, 0.0]]
    away = kernel("one", 0, 0.0, 1.0), move("host", "two", 1.0, 3.0), kernel("one", 1, 4.0, 5.0)
    assert waits(*away) == [[0.0] * 3, [0.0] * 3]


def test_from_device_to_device_both_ways_count() -> None:
    events = kernel("one", 0, 0.0, 1.0), move("one", "host", 1.0, 3.0), move("host", "two", 2.0, 4.0)
    assert waits(*events, kernel("two", 1, 4.0, 5.0)) == [[0.0] * 3, [0.0, 0.0, 3.0]]


def test_waiting_for_a_kernel_of_another_device_is_no_waiting_for_data() -> None:
    """The first part has been brought while the other device still computed; that is its family's time."""
    first = kernel("one", 0, 0.0, 1.0), kernel("two", 0, 0.0, 6.0)
    early, late = move("host", "one", 2.0, 4.0), move("two", "host", 6.0, 6.5)
    assert waits(*first, early, late, kernel("one", 1, 7.0, 8.0)) == [[0.0] * 3, [0.0, 0.5, 0.0]]


def by_ticks(events: list[KernelEvent | TransferEvent]) -> dict[tuple[int, int], float]:
    """The same, tick by tick: of each that is between the end of what ran before and a kernel's start, whether
    something comes."""
    found: dict[tuple[int, int], float] = {}
    kernels = [e for e in events if isinstance(e, KernelEvent)]
    for k in kernels:
        device = next(i for i, d in enumerate(MACHINE.devices) if d.name == k.device)
        name = "host" if MACHINE.devices[device].memory == HOST else k.device
        before = [o.end for o in kernels if o.end <= k.start and (o.device == k.device or o.node != k.node)]
        ticks = 0
        for tick in range(int(max(before, default=0.0)), int(k.start)):
            ticks += any(
                isinstance(e, TransferEvent) and e.target in (name, "host") and e.start <= tick and tick + 1 <= e.end
                for e in events
            )
        if ticks:
            found[k.node, device] = found.get((k.node, device), 0.0) + ticks
    return found


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_each_moment_of_waiting_counts_once(seed: int) -> None:
    chance = random.Random(seed)
    events: list[KernelEvent | TransferEvent] = []
    for node in range(6):
        for name in chance.sample(["cpu", "one", "two"], chance.randint(1, 3)):
            at = sorted(chance.sample(range(60), 2))
            if all(
                e.end <= at[0] or at[1] <= e.start for e in events if isinstance(e, KernelEvent) and e.device == name
            ):
                events.append(kernel(name, node, float(at[0]), float(at[1])))
    for _ in range(chance.randint(0, 12)):
        start, end = sorted(chance.sample(range(60), 2))
        source, target = next(pairwise(chance.sample(["host", "one", "two"], 2)))
        events.append(move(source, target, float(start), float(end)))
    found: dict[tuple[int, int], float] = {}
    for node, device, seconds in waiting(Trace(tuple(events), ("cpu", "one", "two"), "p", 100.0), MACHINE):
        found[node, device] = found.get((node, device), 0.0) + seconds
    assert found == pytest.approx(by_ticks(events))
