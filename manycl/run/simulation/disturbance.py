"""What a simulated machine does that its models do not know: noise, drift, interference and faults.

Pure and reproducible: what befalls a command depends on the seed, the command and the time, not on what else there
is, so two policies meet the same noise. Whoever plans still plans with the models.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from manycl.machine import DeviceIndex

_NOTHING: Mapping[int, float] = {}
_NO_MESSAGES: Mapping[int, str] = {}
_AS_THEY_ARE: Mapping[int, int] = {}
_STEPS = 64  # a drift is a staircase of so many steps


@dataclass(frozen=True, slots=True)
class Slowdown:
    """From ``start`` to ``end`` (seconds) a device (index) takes ``factor`` times as long; less than 1: faster."""

    device: DeviceIndex
    factor: float
    start: float
    end: float


def drift(device: DeviceIndex, factor: float, until: float) -> list[Slowdown]:
    """A device that becomes evenly slower until it takes ``factor`` times as long, from second ``until`` on."""
    step = until / _STEPS
    out = [Slowdown(device, 1 + (factor - 1) * (i + 0.5) / _STEPS, i * step, (i + 1) * step) for i in range(_STEPS)]
    return [*out, Slowdown(device, factor, until, math.inf)]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """``noise``: standard deviation of a kernel's or transfer's time, as a part of it (log-normal, the mean stays).
    ``slowdowns`` are of kernels; where several overlap they multiply. ``lost[d]``: when device d stops answering, in
    seconds. ``failing[n]``: node n fails, with this message. ``nodes[t]``: the node that the command t is, where it is
    not node t: its noise is the node's, however the graph is run. ``happening``: what is called at which second, in
    their order, unless all is over by then."""

    noise: float = 0.0
    slowdowns: tuple[Slowdown, ...] = ()
    lost: Mapping[int, float] = field(default_factory=lambda: _NOTHING)
    failing: Mapping[int, str] = field(default_factory=lambda: _NO_MESSAGES)
    seed: int = 0
    nodes: Mapping[int, int] = field(default_factory=lambda: _AS_THEY_ARE)
    happening: tuple[tuple[float, Callable[[], object]], ...] = ()

    @property
    def faults(self) -> bool:
        return bool(self.lost or self.failing)

    def noisy(self, token: int, device: DeviceIndex, seconds: float) -> float:
        """What a command takes instead of ``seconds``."""
        if not self.noise or not seconds:
            return seconds
        sigma = math.sqrt(math.log1p(self.noise**2))
        return seconds * random.Random(f"{self.seed} {self.nodes.get(token, token)} {device}").lognormvariate(
            -sigma * sigma / 2, sigma
        )

    def slowed(self, device: DeviceIndex, seconds: float, now: float) -> float:
        """How long a kernel of that many seconds takes from ``now`` on. What runs beside it is not counted."""
        mine = [s for s in self.slowdowns if s.device == device and s.end > now]
        left, at = seconds, now
        for until in sorted({t for s in mine for t in (s.start, s.end) if t > now}):
            factor = _factor(mine, at)
            if until >= at + left * factor:
                break
            left -= (until - at) / factor
            at = until
        return at + left * _factor(mine, at) - now if mine else seconds


UNDISTURBED = Disturbance()


def _factor(slowdowns: Iterable[Slowdown], now: float) -> float:
    return math.prod(s.factor for s in slowdowns if s.start <= now < s.end)
