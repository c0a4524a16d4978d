"""How large the packets of a launch are on a device that other processes ask for. Pure.

They are to be short, but too few work-groups do not fill a device: as long as twice as many run faster by more than a
few percent, packets are twice as large, up to a part of the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan

SETTLED = "packet sizes"
"""The entry of a plan with the groups of packets that a run of it has settled on: of a launch (node) on a device."""
PROBED = 4
"""Packets of each size that tell how fast they run."""
BETTER = 1.1
"""How many times as fast larger ones have to run."""
PART = 1 / 8
"""Of a launch, all packets that the device has at a time at most, once they become larger."""


@dataclass(slots=True)
class PacketSize:
    """``seconds``: of a packet, at first; ``groups``: of one then (0: not yet). ``at_a_time``: how many a device has;
    ``total``: groups of the launch. ``is_settled``: whether larger packets do not pay, as far as that is known."""

    seconds: float
    at_a_time: int
    total: int
    groups: float = 0.0
    is_settled: bool = False
    _ended: int = 0
    _probed: int = 0
    _since: float = 0.0
    _before: float = 0.0  # groups a second of packets half as large

    def end(self, groups: int, now: float) -> None:
        """A packet of so many groups has ended."""
        if self.is_settled:
            return
        self._ended += 1
        if self._ended <= PROBED:  # (those that were given before are of another size)
            self._probed, self._since = 0, now
            return
        self._probed += groups
        if self._ended < 2 * PROBED or now <= self._since:
            return
        rate, each = self._probed / (now - self._since), self._probed / (self._ended - PROBED)
        if rate < self._before * BETTER:
            self.groups, self.is_settled = each / 2.0, True
        elif 2.0 * each * self.at_a_time > self.total * PART:
            self.groups, self.is_settled = each, True
        else:
            self._before, self._ended = rate, 0
            self.groups = 2.0 * each


def settled_packets(plan: Plan) -> Mapping[tuple[int, DeviceIndex], float]:
    """By launch and device, the groups of packets that a plan has from a run before."""
    found = plan.details.get(SETTLED, ())
    assert isinstance(found, tuple | list)
    return {(node, device): groups for node, device, groups in found}
