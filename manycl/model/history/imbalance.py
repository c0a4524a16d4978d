"""Imbalance: how far shares of divided launches were from the plan. It is not their time, but by how much one device
took longer than another, relative to the plan. Models do not see this for devices that are alike: a measurement of one
of them counts for all, so one that another process slows down is planned like the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from itertools import permutations

from manycl.machine import DeviceIndex
from manycl.utilities.kept import ENOUGH, MANY


class Imbalances:
    """The imbalances of the last runs of divided launches, by what identifies these (``key``)."""

    def __init__(self) -> None:
        self._runs: dict[Hashable, deque[dict[DeviceIndex, float]]] = {}

    def note(self, key: Hashable, took: Mapping[DeviceIndex, float]) -> None:
        """Note that a launch was divided among devices; ``took``: the seconds of each, as a part of those planned for
        as many work-groups."""
        if len(took) < 2 or min(took.values()) <= 0.0:
            return
        runs = self._runs.pop(key, None)
        if runs is None:
            runs = deque(maxlen=ENOUGH)
            while len(self._runs) >= MANY:
                del self._runs[next(iter(self._runs))]
        runs.append(dict(took))
        self._runs[key] = runs  # moved to the end: forgotten last

    def of(self, key: Hashable, devices: Sequence[DeviceIndex]) -> float:
        """Return the part by which one of some devices took longer than another one in each of the last runs, at least;
        0 where they have not all taken part in so many."""
        runs = self._runs.get(key, ())
        if len(runs) < ENOUGH or any(d not in took for took in runs for d in devices):
            return 0.0
        pairs = permutations(devices, 2)
        return max([0.0, *(min(took[a] / took[b] - 1.0 for took in runs) for a, b in pairs)])
