"""Reach: the end of a part of a launch on a device, by the number of its work-groups."""

from __future__ import annotations

from typing import NamedTuple

from manycl.machine import DeviceIndex


class Reach(NamedTuple):
    """The end of a range of work-groups on a device, as a function of their number: data arrive at ``base`` and ``per``
    seconds a group beyond the ``here`` groups whose data are there; it runs from ``ready`` on, for ``once`` and
    ``each`` seconds a group; at most ``most`` groups fit at a time. An estimate: the groups are not known yet."""

    device: DeviceIndex
    ready: float
    base: float
    per: float
    here: float
    once: float
    each: float
    most: int

    def end(self, groups: int, low: float) -> float:
        """Return when that many groups end in a slot from ``low`` on."""
        start = max(low, self.ready)
        if groups > self.here:
            start = max(start, self.base + self.per * (groups - self.here))
        return start + self.once + self.each * groups

    def slope(self, groups: float) -> float:
        """Return the groups a second that more time allows, at about that many groups."""
        seconds = self.each + (self.per if groups > self.here else 0.0)
        return 1.0 / seconds if seconds > 0.0 else 0.0

    def groups(self, end: float, low: float) -> float:
        """Return how many groups can have ended by ``end`` in a slot from ``low`` on: the inverse of :meth:`end`."""
        left = end - self.once
        room = left - max(low, self.ready)
        if room < 0.0:
            return 0.0
        count = room / self.each if self.each > 0.0 else float(self.most)
        if count > self.here:
            slope = self.per + self.each
            if slope > 0.0:
                moved = (left - self.base + self.per * self.here) / slope
            else:
                moved = self.most if left >= self.base else self.here
            count = min(count, max(self.here, moved))
        return min(count, float(self.most))
