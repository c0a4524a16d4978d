"""How the end of a range of work-groups depends on how many they are, and the inverse."""

from __future__ import annotations

from typing import NamedTuple

from manycl.machine import DeviceIndex


class Reach(NamedTuple):
    """When a range of work-groups can end on a device: data arrive at ``base`` and ``per`` seconds a group beyond
    the ``here`` whose data are there; it runs from ``ready`` on, for ``once`` and ``each`` seconds a group; at most
    ``most`` fit at a time. An estimate: which groups they are is not known yet."""

    device: DeviceIndex
    ready: float
    base: float
    per: float
    here: float
    once: float
    each: float
    most: int

    def end(self, groups: int, low: float) -> float:
        """When that many groups end in a slot from ``low`` on."""
        start = max(low, self.ready)
        if groups > self.here:
            start = max(start, self.base + self.per * (groups - self.here))
        return start + self.once + self.each * groups

    def slope(self, groups: float) -> float:
        """Groups a second that more time brings, about that many groups."""
        seconds = self.each + (self.per if groups > self.here else 0.0)
        return 1.0 / seconds if seconds > 0.0 else 0.0

    def groups(self, end: float, low: float) -> float:
        """How many groups can have ended by then in a slot from ``low`` on: the inverse of :meth:`end`."""
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
