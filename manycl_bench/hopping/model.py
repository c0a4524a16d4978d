"""Device-Hopping's idealised model (Section 6, Equations 5 to 16), and what it leaves out: going on with both devices.

A kernel arrives while its fast device is taken. Times are multiples of the kernel's time on the fast device: it takes 1
there and ``k`` > 1 on the slow one. The fast device becomes free after the wait W = k - 1 + delta. A scheduler that
knows W but cannot migrate (PNS) ends at min(k, W + 1): both are the same at delta = 0. With migration the slow device
works until W, and the fast one does what is left. With both, the slow device goes on beside it.

Of the text as it was extracted, the exponent in Equation 16 is a fraction: 1 1/3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

FIGURE_9A = tuple(1.0 + step / 20.0 for step in range(1, 261))
"""k along the axis of Figure 9a, from just above 1 to 14."""
FIGURE_9B = (1.5, 2.0, 3.0, 5.0, 9.0)
"""The k of the curves of Figure 9b here; the paper's text does not name its own."""
TABLE_3 = {
    "B+Tree Find K": (2.74, 3.05, 2.95),
    "B+Tree Find Range": (2.45, 2.84, 2.54),
    "Nearest Neighbor": (2.35, 2.34, 2.37),
    "MD5Hash": (12.31, 12.94, 13.02),
    "FFT": (1.32, 1.32, 1.31),
    "GEMM": (7.19, 5.54, 8.44),
    "Inverse FFT": (1.32, 1.31, 1.31),
    "Reduction": (3.19, 3.20, 3.21),
    "SPMV": (3.47, 3.36, 3.23),
}
INPUTS = ("small", "medium", "large")
"""The k that the paper measured, of inputs of these sizes."""


def wait(k: float, delta: float) -> float:
    """W: when the fast device becomes free. Raises ValueError where it would be before the kernel arrives, or the slow
    device were no slower."""
    if not k > 1.0:
        raise ValueError(f"the slow device takes longer than the fast one: k is above 1, not {k}")
    if k - 1.0 + delta < 0.0:
        raise ValueError(f"delta is at least 1 - k ({1.0 - k}), not {delta}: the kernel arrives before")
    return k - 1.0 + delta


def pns(k: float, delta: float) -> float:
    """When the perfect scheduler that cannot migrate ends: Equations 5 and 13."""
    return min(k, wait(k, delta) + 1.0)


def migrating(k: float, delta: float) -> float:
    """When a kernel that migrates ends: Equations 6 and 14. Where the fast device comes too late, on the slow one."""
    w = wait(k, delta)
    return k if w >= k else w + (1.0 - delta) / k


def both(k: float, delta: float) -> float:
    """When a kernel ends that goes on on both devices: what is left, 1 - W / k, at their speeds together."""
    w = wait(k, delta)
    return k if w >= k else w + (1.0 - w / k) / (1.0 + 1.0 / k)


def speedup(k: float, delta: float, *, together: bool = False) -> float:
    """Over the perfect scheduler: Equations 8 and 15; with ``together``, of going on on both devices."""
    return pns(k, delta) / (both if together else migrating)(k, delta)


def bound(k: float, *, together: bool = False) -> float:
    """The largest speed-up over all waits, which is at delta = 0 (Section 6.5): k / (k - 1 + 1 / k); with both devices
    1 + 1 / k. The paper's 4/3 is the first at k = 2; the second has no bound but 2."""
    return 1.0 + 1.0 / k if together else speedup(k, 0.0)


def mean(k: float, *, together: bool = False, points: int = 1000) -> float:
    """The geometric mean of speed-ups over waits from 0 to k, where the kernel ends on the slow device, that are
    equally far apart."""
    logs = [math.log(speedup(k, 1.0 - k + k * (step + 0.5) / points, together=together)) for step in range(points)]
    return math.exp(sum(logs) / points)


class Curve(NamedTuple):
    """A curve of a figure: what it is about, and its points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def figure_9a(ratios: Sequence[float] = FIGURE_9A) -> list[Curve]:
    """The largest speed-up by k, migrating (the paper's) and with both devices (ours)."""
    xs = tuple(ratios)
    return [
        Curve("migrating", xs, tuple(bound(k) for k in xs)),
        Curve("both devices", xs, tuple(bound(k, together=True) for k in xs)),
    ]


def figure_9b(ratios: Sequence[float] = FIGURE_9B, *, together: bool = False, points: int = 200) -> list[Curve]:
    """The speed-up by when the fast device becomes free, as a part of the kernel's time on the slow one."""
    xs = tuple(step / points for step in range(points + 1))
    return [
        Curve(f"k = {k:g}", xs, tuple(speedup(k, x * k - (k - 1.0), together=together) for x in xs)) for k in ratios
    ]


class Bar(NamedTuple):
    """Work of Figures 1 and 8: on which device (``slow``, ``fast``), of whom, from when to when."""

    device: str
    whose: str
    start: float
    end: float


def figure_8(k: float, delta: float, *, together: bool = False) -> list[Bar]:
    """What runs where when a kernel migrates at W; with ``together``, when both go on."""
    w = wait(k, delta)
    end = (both if together else migrating)(k, delta)
    bars = [Bar("fast", "another kernel", 0.0, w), Bar("slow", "the kernel", 0.0, end if together else min(w, end))]
    if end > w:
        bars.append(Bar("fast", "the kernel", w, end))
    return bars


def share_of_bound(measured: float, k: float, *, together: bool = False) -> float:
    """How much of what can be gained at most a measured speed-up gains, as a part: 1 at the bound, 0 where nothing is
    gained."""
    return (measured - 1.0) / (bound(k, together=together) - 1.0)
