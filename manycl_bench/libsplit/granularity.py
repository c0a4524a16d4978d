"""Libsplit's Figure 1: what a range takes by how many work-groups it has, where it begins, and in which iteration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from manycl.machine import DeviceIndex, Machine
from manycl_bench.libsplit.simulated import Case

STEPS = 16
"""Granularities and offsets are so manieth parts of all work-groups."""
REGULAR = ("AESEncrypt", "EP")
"""The applications of Figure 1 a and b; c is SPMV's, d the N-body's."""
Seconds = Callable[[int, DeviceIndex, int, int], float]
"""What a range takes: the iteration, the device, its first work-group, and how many it has."""


def simulated(case: Case) -> tuple[Seconds, int]:
    """On a described machine, by the application's first kernel; and its work-groups."""
    return lambda turn, d, first, count: case.seconds(turn, 0, d, first, count), case.splits[0].groups


def figures(of: Callable[[str], tuple[Seconds, int]], machine: Machine, iterations: int) -> dict[str, Any]:
    """The curves of Figure 1, by device: microseconds of a work-group by granularity; of the first GPU (else device),
    milliseconds of a quarter by its offset, and of the four quarters in each iteration."""
    fast = next((i for i, d in machine.numbered() if d.kind == "gpu"), DeviceIndex(0))
    out: dict[str, Any] = {"fast": machine.devices[fast].name}
    unlike = {(d.model, d.slowdown): i for i, d in reversed(list(machine.numbered()))}
    for name in REGULAR:
        seconds, groups = of(name)
        sizes = [groups * i // STEPS for i in range(1, STEPS + 1)]
        out[name] = {
            machine.devices[d].name: [1e6 * seconds(0, d, 0, n) / n for n in sizes] for d in sorted(unlike.values())
        }
    seconds, groups = of("SPMV")
    offsets = [groups * i // STEPS for i in range(STEPS * 3 // 4 + 1)]
    out["SPMV"] = [1e3 * seconds(0, fast, at, groups // 4) for at in offsets]
    seconds, groups = of("NBody")
    starts = [groups * i // 4 for i in range(4)]
    out["NBody"] = [[1e3 * seconds(turn, fast, at, groups // 4) for at in starts] for turn in range(iterations)]
    return out | {"summary": summary(out)}


def summary(found: Mapping[str, Any]) -> dict[str, float]:
    """How many times as long as the shortest the longest is, in each of the four."""

    def ratio(values: Sequence[float]) -> float:
        return max(values) / min(values)

    out = {name: max(map(ratio, found[name].values())) for name in REGULAR}
    return out | {"SPMV": ratio(found["SPMV"]), "NBody": max(map(ratio, found["NBody"]))}
