"""Devices that take longer, or less long, than was measured: somebody has said so, or a run has found it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from manycl.machine import DeviceIndex
from manycl.model.estimates import Estimates, Wrapped


class Slowed(Wrapped):
    """Other estimates, with times of kernels that are ``factors`` times as long, by device."""

    def __init__(self, known: Estimates, factors: Mapping[DeviceIndex, float]) -> None:
        super().__init__(known)
        self._factors = factors

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.known.launch(node, device) * self._factors.get(device, 1.0)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float | None:
        known = self.known.groups(node, device, count, of)
        return None if known is None else known * self._factors.get(device, 1.0)

    def together(self, nodes: Sequence[int], device: DeviceIndex) -> float:
        return self.known.together(nodes, device) * self._factors.get(device, 1.0)
