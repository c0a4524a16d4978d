"""How long the pieces of a launch are on a device that other processes ask for. Pure.

They are to be short, but too few work-groups do not fill a device: as long as twice as many run faster by more than a
few percent, pieces are twice as long, up to a part of the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan

SETTLED = "pieces"
"""The entry of a plan with the seconds of pieces that a run of it has settled on: of a launch (node) on a device."""
PROBED = 4
"""Pieces of each length that tell how fast they run."""
BETTER = 1.1
"""How many times as fast longer ones have to run."""
PART = 1 / 16
"""Of a launch, all pieces that the device has at a time at most, unless that is less than it may have anyway."""


@dataclass(slots=True)
class PieceLength:
    """``seconds``: of a piece, at first and then as it pays; ``at_a_time``: how many a device has; ``total``: groups of
    the launch. ``is_settled``: whether longer pieces do not pay, as far as that is known."""

    seconds: float
    at_a_time: int
    total: int
    is_settled: bool = False
    _ended: int = 0
    _groups: int = 0
    _since: float = 0.0
    _before: float = 0.0  # groups a second of pieces half as long

    def end(self, groups: int, now: float) -> None:
        """A piece of so many groups has ended."""
        if self.is_settled:
            return
        self._ended += 1
        if self._ended <= PROBED:  # (those that were given before are of another length)
            self._groups, self._since = 0, now
            return
        self._groups += groups
        if self._ended < 2 * PROBED or now <= self._since:
            return
        rate = self._groups / (now - self._since)
        # (cells may be longer)
        self.seconds = max(self.seconds, self._groups / (self._ended - PROBED) / rate)
        if rate < self._before * BETTER:
            self.seconds /= 2.0
            self.is_settled = True
        elif 2.0 * self.seconds * self.at_a_time > self.total / rate * PART:
            self.is_settled = True
        else:
            self._before, self._ended = rate, 0
            self.seconds *= 2.0


def settled_pieces(plan: Plan) -> Mapping[tuple[int, DeviceIndex], float]:
    """By launch and device, the seconds of pieces that a plan has from a run before."""
    found = plan.details.get(SETTLED, ())
    assert isinstance(found, tuple | list)
    return {(node, device): seconds for node, device, seconds in found}
