"""What predicted times are asked, by whatever plans or simulates with them: one class, whose defaults say what is taken
where somebody does not know."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from manycl.machine import DeviceIndex

Ends = tuple[int, int]
"""Source and target memory of a transfer."""


class Estimates(ABC):
    """Predicted times in seconds of a graph's nodes on a machine's devices, both by index. Who wraps other estimates
    derives from :class:`Wrapped`, so that nothing of them is forgotten."""

    contended: bool = False
    """Whether transfers can slow each other down at all (:meth:`slowdowns`)."""

    @abstractmethod
    def launch(self, node: int, device: DeviceIndex) -> float:
        """Seconds of a node on a device, without transfers: of its fastest version; infinite where none can run."""

    @abstractmethod
    def transfer(self, nbytes: int, source: int, target: int) -> float:
        """Seconds to move ``nbytes`` between two memories when nothing else moves (0 when they are the same)."""

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float | None:
        """Seconds of a range of ``count`` of the ``of`` work-groups along the dimension in which a node may be split.
        None: affine in their number (``Problem.range_seconds``)."""
        return None

    def together(self, nodes: Sequence[int], device: DeviceIndex) -> float:
        """Seconds of some ranges of a launch, which follow one another, as one: those of all of them."""
        return sum(self.launch(node, device) for node in nodes)

    def version(self, node: int, device: DeviceIndex) -> int:
        """Which of the launch's versions (index) the time of :meth:`launch` is for: its own."""
        return 0

    def doubt(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        """How far off the ratios of a node's times on some devices are, as a part of them: not at all."""
        return 0.0

    def is_measured(self, node: int, device: DeviceIndex) -> bool:
        """Whether a node's time on a device rests on measurements, and is no first guess: of times that are given, as
        nobody knows them better."""
        return True

    def first_slice(self, node: int, device: DeviceIndex) -> float | None:
        """Work-items of the first slices of a launch, of a kernel that nobody has measured on a device; None where
        somebody has, or nothing is known."""
        return None

    def off(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        """How far the shares of launches like a node's were from what was planned in the last runs, each time: by what
        part one of these devices took longer than another. 0 where that is not known."""
        return 0.0

    def traffic(self, node: int, device: DeviceIndex) -> float:
        """Bytes that a node as a whole reads from and writes to the memory of a device; 0 where nobody knows. Asked
        only of devices that share a memory whose bandwidth is limited (``Machine.host_bandwidth``)."""
        return 0.0

    def slowdowns(self, ends: Sequence[Ends]) -> list[float]:
        """How many times longer than alone each of several transfers between a device's memory and the host's takes
        when all of them go on at the same time: none of them does."""
        return [1.0] * len(ends)


class Wrapped(Estimates):
    """Other estimates, all of which a class that derives from this keeps but what it says itself."""

    def __init__(self, known: Estimates) -> None:
        self.known = known
        self.contended = known.contended

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.known.launch(node, device)

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self.known.transfer(nbytes, source, target)

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float | None:
        return self.known.groups(node, device, count, of)

    def together(self, nodes: Sequence[int], device: DeviceIndex) -> float:
        return self.known.together(nodes, device)

    def version(self, node: int, device: DeviceIndex) -> int:
        return self.known.version(node, device)

    def doubt(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        return self.known.doubt(node, devices)

    def is_measured(self, node: int, device: DeviceIndex) -> bool:
        return self.known.is_measured(node, device)

    def off(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        return self.known.off(node, devices)

    def first_slice(self, node: int, device: DeviceIndex) -> float | None:
        return self.known.first_slice(node, device)

    def traffic(self, node: int, device: DeviceIndex) -> float:
        return self.known.traffic(node, device)

    def slowdowns(self, ends: Sequence[Ends]) -> list[float]:
        return self.known.slowdowns(ends)


# Devices that take longer, or less long, than was measured: somebody has said so, or a run has found it.


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
