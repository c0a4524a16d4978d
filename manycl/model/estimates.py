"""Estimates: the interface of predicted times, for plans and simulation; its defaults stand for unknown quantities."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.model.occupancy import LaunchRange
from manycl.model.transfer import CHUNK

Ends = tuple[int, int]
"""The source and target memory of a transfer."""


class Estimates(ABC):
    """Predicted times in seconds of a graph's nodes on a machine's devices, both by index. A class that wraps other
    estimates derives from :class:`Wrapped`, so that it forgets nothing of them."""

    contended: bool = False
    """True if transfers can slow each other down at all (:meth:`slowdowns`)."""

    @abstractmethod
    def launch(self, node: int, device: DeviceIndex) -> float:
        """Return a node's seconds on a device, without transfers: of its fastest version; infinite if there is none."""

    @abstractmethod
    def transfer(self, nbytes: int, source: int, target: int) -> float:
        """Return the seconds to move ``nbytes`` between two memories when nothing else moves (0 in the same)."""

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float | None:
        """Return the seconds of a range of ``count`` of the ``of`` work-groups along the dimension in which a node may
        be split, on average over where it lies. None: affine in their number (``Problem.range_seconds``)."""
        return None

    def relative(self, node: int, device: DeviceIndex, where: LaunchRange) -> float:
        """Return how many times as long a range takes as others of as many groups on average; by default as long."""
        return 1.0

    def waves(self, node: int, device: DeviceIndex, of: int) -> float:
        """Return how many waves the work-groups of a node are, likewise; 0 where that is not known."""
        return 0.0

    def together(self, nodes: Sequence[int], device: DeviceIndex) -> float:
        """Return the seconds of some ranges of a launch, which follow one another, as one: by default their sum."""
        return sum(self.launch(node, device) for node in nodes)

    is_counted = False
    """Whether operations of kernels have been counted for them."""

    def uncounted(self) -> Estimates:
        """Return the same estimates without counting operations, which takes long: the rest is guessed roughly."""
        return self

    def for_graph(self, graph: Graph) -> Estimates | None:
        """Return the same estimates of another graph; by default None: nothing is known of others."""
        return None

    def version(self, node: int, device: DeviceIndex) -> int:
        """Return the version of a launch (index) that the time of :meth:`launch` is for; by default itself."""
        return 0

    def doubt(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        """Return how far off the ratios of a node's times on some devices are, as a part of them; by default 0."""
        return 0.0

    def is_measured(self, node: int, device: DeviceIndex) -> bool:
        """Return whether a node's time on a device is measured, no first guess; true for given times, by default."""
        return True

    def first_slice(self, node: int, device: DeviceIndex) -> float | None:
        """Return the work-items of the first slices of a launch, of a kernel that was never measured on a device; None
        where it was measured, or nothing is known."""
        return None

    def off(self, node: int, devices: Sequence[DeviceIndex]) -> float:
        """Return how far the shares of launches like a node's were from the plan in each of the last runs: by what part
        one of these devices took longer than another. 0 where that is not known."""
        return 0.0

    def traffic(self, node: int, device: DeviceIndex) -> float:
        """Return the bytes that a node as a whole reads from and writes to the memory of a device; 0 where that is not
        known. Called only for devices that share a memory whose bandwidth is limited (``Machine.host_bandwidth``)."""
        return 0.0

    def slowdowns(self, ends: Sequence[Ends], most: Sequence[float]) -> list[float]:
        """Return how many times longer than alone each of several transfers between a device's memory and the host's
        takes when all of them go on at the same time; by default no longer. ``most``: bytes per second that each
        carries at most by itself (infinite: what its link carries). Called only where they are ``contended``."""
        return [1.0] * len(ends)


class Wrapped(Estimates):
    """A wrapper of other estimates; a class that derives from it keeps all of them that it does not override."""

    def __init__(self, known: Estimates) -> None:
        self._wrap(known)

    def _wrap(self, known: Estimates) -> None:
        self.known, self.contended, self.is_counted = known, known.contended, known.is_counted
        for name, default in vars(Estimates).items():
            if callable(default) and not name.startswith("_") and getattr(type(self), name) is default:
                setattr(self, name, getattr(known, name))

    def launch(self, node: int, device: DeviceIndex) -> float:
        return self.known.launch(node, device)

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self.known.transfer(nbytes, source, target)

    def for_graph(self, graph: Graph) -> Estimates | None:
        known = self.known.for_graph(graph)
        return None if known is None else self._around(known)

    def uncounted(self) -> Estimates:
        known = self.known.uncounted()
        return self if known is self.known else self._around(known)

    def _around(self, known: Estimates) -> Wrapped:
        found = copy.copy(self)  # with all that a class that derives from this one adds
        found._wrap(known)
        return found


def for_each_byte(known: Estimates, source: int, target: int) -> float:
    """Return the seconds that each further byte of a large transfer between two memories takes."""
    nbytes = 2 * CHUNK  # of so many, latency is a small part
    return (known.transfer(2 * nbytes, source, target) - known.transfer(nbytes, source, target)) / nbytes


# Devices that take longer, or less long, than was measured, as a device event or a run has found.


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
