"""Disturbances of a simulated machine that its models do not know: noise, drift, interference and faults. Pure and
reproducible: the disturbance of a command depends on the seed, the command and the time, not on other commands, so two
policies meet the same noise. Policies still plan with the models."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from manycl.machine import DeviceIndex

_NOTHING: Mapping[int, float] = {}
_NO_MESSAGES: Mapping[int, str] = {}
_AS_THEY_ARE: Mapping[int, int] = {}
_STEPS = 64  # steps of the staircase that stands for a drift; our own choice


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A time from ``start`` to ``end`` (seconds) in which a device (index) takes ``factor`` times as long."""

    device: DeviceIndex
    factor: float
    start: float
    end: float


def drift(device: DeviceIndex, factor: float, until: float) -> list[Slowdown]:
    """Return a drift: a device is evenly slower until from second ``until`` on it takes ``factor`` times as long."""
    step = until / _STEPS
    out = [Slowdown(device, 1 + (factor - 1) * (i + 0.5) / _STEPS, i * step, (i + 1) * step) for i in range(_STEPS)]
    return [*out, Slowdown(device, factor, until, math.inf)]


@dataclass(frozen=True, slots=True)
class Disturbance:
    """The disturbances of one simulated run. ``noise``: standard deviation of a kernel's or transfer's time, as a part
    of it (log-normal, the mean stays). ``slowdowns`` are of kernels; where several overlap they multiply. ``lost[d]``:
    when device d stops answering, in seconds. ``failing[n]``: the message with which node n fails. ``nodes[t]``: the
    node of command t, where it is not node t: its noise is the node's, however the graph is run. ``happening``:
    functions that are called at given seconds, in their order, unless the run has ended."""

    noise: float = 0.0
    slowdowns: tuple[Slowdown, ...] = ()
    lost: Mapping[int, float] = field(default_factory=lambda: _NOTHING)
    failing: Mapping[int, str] = field(default_factory=lambda: _NO_MESSAGES)
    seed: int = 0
    nodes: Mapping[int, int] = field(default_factory=lambda: _AS_THEY_ARE)
    happening: tuple[tuple[float, Callable[[], object]], ...] = ()

    def noisy(self, token: int, device: DeviceIndex, seconds: float) -> float:
        """Return the seconds that a command takes instead of ``seconds``."""
        if not self.noise or not seconds:
            return seconds
        sigma = math.sqrt(math.log1p(self.noise**2))
        return seconds * random.Random(f"{self.seed} {self.nodes.get(token, token)} {device}").lognormvariate(
            -sigma * sigma / 2, sigma
        )

    def slowed(self, device: DeviceIndex, seconds: float, now: float) -> float:
        """Return how long a kernel of ``seconds`` takes from ``now`` on. Other kernels beside it are not counted."""
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
