"""The first guess for a kernel that never ran: a roofline.

    launch overhead + max(operations / usable operations per second, bytes / bandwidth) x slow-down

*usable* is the share of the device that so few work-items can fill (:mod:`manycl.model.occupancy`). Operations are
counted by the analysis (:mod:`manycl.model.counts`) and weighted by kind, in multiplications of single precision. Where
it cannot count them, a work-item is taken to have 64 a step of its loops: an assumption, good for comparing devices and
not for predicting seconds, and the error bar says so. Device numbers that were not measured
(``manycl devices --measure``) widen it as well. The measured times of other kernels on a device, compared with their
first guesses, correct the next guess (``Correction``).
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

OPERATIONS_PER_ITEM = 64.0  # operations assumed for a step of a work-item's loops; our own choice
MEASURED = ("flops", "bandwidth", "launch_overhead")
"""The device's numbers that the guess rests on; ``Machine.notes`` has their sources."""

_WEIGHTS = {
    # CPU: what fits the seven kernels of MKMD's Table 1 on PoCL; addresses are mostly computed outside of
    # the loops. Others: lanes a clock of one of NVIDIA's multiprocessors (CUDA C++ Programming Guide, throughput of
    # native arithmetic instructions): 128 multiply-adds (256 operations), 64 integers, 32 loads, 16 special functions
    "cpu": {"int": 0.125, "compare": 0.125, "convert": 0.125, "load": 0.5, "store": 0.5, "special": 8.0, "atomic": 8.0},
    # compiled to vectors of work-items, one a clock and core; what fits the kernels of benchmarks/stages.py
    # first_guesses. Arithmetic of addresses is mostly done once for a vector, or once for a loop
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
"""The operations of a step of a naive matrix product, whose rate is often given for a device."""
_SCATTERED = 1.25
"""Clocks of a native device's core for an access at which the work-items of a vector touch elements apart; our own
choice, judged by ``benchmarks/stages.py first_guesses``."""
_CACHED = 1 << 20
"""Bytes a core that stay in its caches from one launch to the next; our own choice."""
_FASTER = 2.0
"""The factor by which bytes in a cache are faster than those of memory; our own choice."""
_DOUBLE = 2.0  # plain operations that one of double precision is worth; our own choice
_DIVISION = 4.0  # plain operations that a division is worth; our own choice
_COUNTED = 4.0
"""Factor by which a roofline of counted operations may be off: caches, latencies, vector units; our own choice."""
_ASSUMED = 30.0  # factor where all operations are assumed; our own choice
ESTIMATED = 3.0
"""Factor that a device's estimated numbers add to any of them, and scaling by another size or device; our own
choice."""
_ENOUGH = 5  # kernels from which earlier comparisons replace these factors; our own choice
FACTOR_LIMIT = 1000.0  # the largest factor by which a guess is scaled or corrected, up or down; our own choice


@dataclass(frozen=True, slots=True)
class Correction:
    """The comparison of first guesses with measurements on a device: their median ratio, and the ratios within which
    nine of ten lie; ``kernels`` compared (0: none)."""

    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    kernels: int = 0


NO_CORRECTION = Correction()


def correction(ratios: Collection[float]) -> Correction:
    """Return the correction by measured over guessed times, one a kernel; none before there are five kernels."""
    seen = [min(FACTOR_LIMIT, max(1 / FACTOR_LIMIT, r)) for r in ratios if r > 0 and math.isfinite(r)]
    if len(seen) < _ENOUGH:
        return NO_CORRECTION
    tenths = quantiles(seen, n=20, method="inclusive")
    return Correction(median(seen), tenths[0], tenths[-1], len(seen))


def prior(
    work: Work, device: Device, *, measured: bool = False, plain: bool = False, seen: Correction = NO_CORRECTION
) -> Estimate:
    """Return the first guess. ``measured``: the device's numbers are measurements. ``plain``: its ``flops`` are those
    that a plain kernel reaches, a naive matrix product, and not those of multiply-adds alone."""
    usable = device.flops * share_of(work.work_items, work.work_groups, device)
    how = NATIVE if device.platform == NATIVE else device.kind
    operations = _weighed(work.operations, how)
    bandwidth = device.bandwidth
    if how == NATIVE:
        bandwidth *= _FASTER if work.global_bytes <= _CACHED * device.compute_units else 1.0
        operations = max(0.0, operations - work.shared * weight("load.global", how))  # shared loads stay in registers
        operations += work.scattered * _SCATTERED * device.flops / (device.compute_units * device.clock)
    if plain:
        operations *= 2.0 / _weighed(_PRODUCT, how)
    words, reach = ("counted", _COUNTED) if work.exact else ("partly counted", 2 * _COUNTED)
    if not operations:
        operations, words, reach = OPERATIONS_PER_ITEM * work.cost, "assumed", _ASSUMED
    body = max(operations / usable, work.global_bytes / bandwidth) * device.slowdown
    seconds = device.launch_overhead + body * seen.ratio
    source = f"prior ({words} operations, {'measured' if measured else 'estimated'} device)"
    if seen.kernels:
        low, high = seen.low / seen.ratio, seen.high / seen.ratio
        percent = 50.0 * (high - low)
        return Estimate(seconds, seconds * low, seconds * high, f"{source}, corrected", percent, seen.kernels)
    reach *= 1.0 if measured else ESTIMATED
    return Estimate(seconds, seconds / reach, seconds * reach, source)


def _weighed(operations: Mapping[str, float], device: str) -> float:
    return sum(n * weight(kind, device) for kind, n in operations.items())


def weight(operation: str, device: str) -> float:
    """Return how many plain operations one of a kind (as ``Work.operations`` names them) is worth on a kind of device,
    or on native ones (``NATIVE``)."""
    weights = _WEIGHTS.get(device, _WEIGHTS[""])
    if operation in weights:
        return weights[operation]
    family, _, what = operation.partition(".")
    found = _DOUBLE if family == "double" else weights.get(family, 1.0)
    if what == "fma":
        return 2.0 * found
    return max(1.0, found) * _DIVISION if what == "div" else found


def scaled(guess: Estimate, device: Device, ratios: Sequence[float], source: str) -> Estimate:
    """Return a guess multiplied by the same kernel's ratio of measured to guessed time elsewhere (the ratios' median,
    within 1/1000 to 1000); the launch overhead is left as it is."""
    factor = min(FACTOR_LIMIT, max(1.0 / FACTOR_LIMIT, median(ratios)))
    overhead = min(device.launch_overhead, guess.seconds)
    seconds = overhead + (guess.seconds - overhead) * factor
    return Estimate(seconds, seconds / ESTIMATED, seconds * ESTIMATED, source, None, len(ratios))


def ratio(measured: float, guess: Estimate, device: Device) -> float | None:
    """Return measured over guessed time without the launch overhead; None where the guess is nothing but overhead."""
    body = guess.seconds - device.launch_overhead
    if body <= 0:
        return None
    return max(measured - device.launch_overhead, measured * 0.5) / body
