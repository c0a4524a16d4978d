"""Packet sizes of a launch on a preemptible device, for which other processes ask. Pure. Packets are to be short, but
too few work-groups do not fill a device. As long as packets of twice the size run faster by more than a few percent,
packets become twice as large, up to a part of the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan

SETTLED = "packet sizes"
"""The key in a plan's details of the packet sizes, in work-groups, on which a run has settled, by launch and device."""
PROBED = 4
"""The number of packets of each size from which their speed is measured."""
BETTER = 1.1
"""The speed-up that larger packets need to be used; our own choice."""
PART = 1 / 8
"""The largest part of a launch that all packets of a device together may have once they grow; our own choice."""


@dataclass(slots=True)
class PacketSize:
    """The packet size of a launch on a device. ``seconds``: a packet's length at first; ``groups``: its work-groups
    then (0: not measured yet). ``at_a_time``: the number of packets that a device has; ``total``: groups of the launch.
    ``is_settled``: whether larger packets are known not to pay."""

    seconds: float
    at_a_time: int
    total: int
    groups: float = 0.0
    is_settled: bool = False
    _ended: int = 0
    _probed: int = 0
    _since: float = 0.0
    _before: float = 0.0  # work-groups per second with packets half as large

    def end(self, groups: int, now: float) -> None:
        """Note that a packet of so many groups has ended."""
        if self.is_settled:
            return
        self._ended += 1
        if self._ended <= PROBED:  # (packets given before have another size)
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
    """Return the packet sizes, in work-groups, that a plan has from an earlier run, by launch and device."""
    found = plan.details.get(SETTLED, ())
    assert isinstance(found, tuple | list)
    return {(node, device): groups for node, device, groups in found}
