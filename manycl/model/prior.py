"""The first guess for a kernel that never ran: a roofline.

    launch overhead + max(operations / usable operations per second, bytes / bandwidth) x slow-down

*usable* is the share of the device that so few work-items can fill (:mod:`manycl.model.occupancy`). Operations are
counted by the analysis (:mod:`manycl.model.counts`) and weighed by kind: how many multiplications of single precision
one of them takes. Where it cannot count them, a work-item is taken to have 64 a step of its loops: an assumption, good
for comparing devices and not for predicting seconds, and the error bar says so. Device numbers that nobody measured
(``manycl devices --measure``) widen it as well. What other kernels took on a device, compared with their first guesses,
corrects the next one's (``Correction``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from manycl.analysis.costs.cost import Work
from manycl.machine import NATIVE, Device
from manycl.model.occupancy import share_of
from manycl.model.work import Estimate

OPERATIONS_PER_ITEM = 64.0
MEASURED = ("flops", "bandwidth", "launch_overhead")
"""The device's numbers that the guess rests on; where each comes from stands in ``Machine.notes``."""

_WEIGHTS = {
    # CPU: what fits the seven kernels of MKMD's Table 1 on PoCL; addresses are mostly computed outside of
    # the loops. Others: lanes a clock of one of NVIDIA's multiprocessors (CUDA C++ Programming Guide, throughput of
    # native arithmetic instructions): 128 multiply-adds (256 operations), 64 integers, 32 loads, 16 special functions
    "cpu": {"int": 0.125, "compare": 0.125, "convert": 0.125, "load": 0.5, "store": 0.5, "special": 8.0, "atomic": 8.0},
    # compiled to vectors of work-items, one a clock and core; what fits the kernels of benchmarks/first_guesses.py.
    # Arithmetic of addresses is mostly done once for a vector, or once for a loop
    NATIVE: {
        "float": 0.5,
        "float.fma": 0.5,
        "int": 0.0625,
        "int.logic": 2.0,
        "int.shift": 2.0,
        "compare": 0.0625,
        "convert": 2.0,
        "load": 0.75,
        "store": 0.75,
        "load.local": 0.125,
        "store.local": 0.125,
        "special": 8.0,
        "atomic": 32.0,
    },
    "": {"int": 0.5, "compare": 0.5, "convert": 1.0, "load": 8.0, "store": 8.0, "special": 16.0, "atomic": 16.0},
}
_PRODUCT = {"float.mul": 1, "float.add": 1, "load.global": 2, "int.mul": 2, "int.add": 3, "compare.int": 1}
"""A step of a naive matrix product: two operations, for people who tell what it reaches."""
_SCATTERED = 1.25
"""Clocks of a core that a native device takes for an access at which the work-items of a vector touch elements that lie
apart: one after another."""
_CACHED, _FASTER = 1 << 20, 2.0
"""Bytes a core that are in its caches from one launch to the next, and how many times as fast they then are."""
_DOUBLE = 2.0
_DIVISION = 4.0
_COUNTED = 4.0  # how many times off a roofline of counted operations may be: caches, latencies, vector units
_PARTLY = 8.0  # where counts rest on an assumption: branches and loops that data decide
_ASSUMED = 30.0  # and where all operations are assumed
_ESTIMATED = 3.0  # what a device's estimated numbers add to any of them
_ENOUGH = 5  # kernels after which what was seen replaces these factors
_MOST_CORRECTION = 1000.0


@dataclass(frozen=True, slots=True)
class Correction:
    """How first guesses have compared with measurements on a device: their median ratio, and the ratios within which
    nine of ten lie; ``kernels`` compared (0: none)."""

    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    kernels: int = 0


NO_CORRECTION = Correction()


def correction(ratios: Collection[float]) -> Correction:
    """Of measured over guessed times, one a kernel; none before there are five kernels."""
    seen = [min(_MOST_CORRECTION, max(1 / _MOST_CORRECTION, r)) for r in ratios if r > 0 and math.isfinite(r)]
    if len(seen) < _ENOUGH:
        return NO_CORRECTION
    tenths = quantiles(seen, n=20, method="inclusive")
    return Correction(median(seen), tenths[0], tenths[-1], len(seen))


def prior(
    work: Work, device: Device, *, measured: bool = False, plain: bool = False, seen: Correction = NO_CORRECTION
) -> Estimate:
    """The first guess. ``measured``: the device's numbers are measurements. ``plain``: its ``flops`` are those that a
    plain kernel reaches, a naive matrix product, and not those of multiply-adds alone."""
    usable = device.flops * share_of(work.work_items, work.work_groups, device)
    how = NATIVE if device.platform == NATIVE else device.kind
    operations = _weighed(work.operations, how)
    bandwidth = device.bandwidth
    if how == NATIVE:
        bandwidth *= _FASTER if work.global_bytes <= _CACHED * device.compute_units else 1.0
        operations = max(0.0, operations - work.shared * weight("load.global", how))  # they stay in registers
        operations += work.scattered * _SCATTERED * device.flops / (device.compute_units * device.clock)
    if plain:
        operations *= 2.0 / _weighed(_PRODUCT, how)
    words, reach = ("counted", _COUNTED) if work.exact else ("partly counted", _PARTLY)
    if not operations:
        operations, words, reach = OPERATIONS_PER_ITEM * work.cost, "assumed", _ASSUMED
    body = max(operations / usable, work.global_bytes / bandwidth) * device.slowdown
    seconds = device.launch_overhead + body * seen.ratio
    source = f"prior ({words} operations, {'measured' if measured else 'estimated'} device)"
    if seen.kernels:
        low, high = seen.low / seen.ratio, seen.high / seen.ratio
        percent = 50.0 * (high - low)
        return Estimate(seconds, seconds * low, seconds * high, f"{source}, corrected", percent, seen.kernels)
    reach *= 1.0 if measured else _ESTIMATED
    return Estimate(seconds, seconds / reach, seconds * reach, source)


def _weighed(operations: Mapping[str, float], device: str) -> float:
    return sum(n * weight(kind, device) for kind, n in operations.items())


def weight(operation: str, device: str) -> float:
    """How many plain operations one of a kind (as ``Work.operations`` names them) is worth on a kind of device, or on
    native ones (``NATIVE``)."""
    weights = _WEIGHTS.get(device, _WEIGHTS[""])
    if operation in weights:
        return weights[operation]
    family, _, what = operation.partition(".")
    found = _DOUBLE if family == "double" else weights.get(family, 1.0)
    if what == "fma":
        return 2.0 * found
    return max(1.0, found) * _DIVISION if what == "div" else found


FACTOR_LIMIT = 1000.0
_SCALED = 3.0  # how many times off a guess may be that was scaled by another size's or device's measurement


def scaled(guess: Estimate, device: Device, ratios: Sequence[float], source: str) -> Estimate:
    """A guess multiplied by what the same kernel took elsewhere over the guess for there (the ratios' median, within
    1/1000 to 1000); the launch overhead is left as it is."""
    factor = min(FACTOR_LIMIT, max(1.0 / FACTOR_LIMIT, median(ratios)))
    overhead = min(device.launch_overhead, guess.seconds)
    seconds = overhead + (guess.seconds - overhead) * factor
    return Estimate(seconds, seconds / _SCALED, seconds * _SCALED, source, None, len(ratios))


def ratio(measured: float, guess: Estimate, device: Device) -> float | None:
    """Measured over guessed time without the launch overhead; None where the guess is nothing but overhead."""
    body = guess.seconds - device.launch_overhead
    if body <= 0:
        return None
    return max(measured - device.launch_overhead, measured * 0.5) / body
