"""What a policy is asked: which graph, on which machine, with which estimates, from which state on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from manycl.graph.graph import Graph, HostTask
from manycl.machine import Device, Machine


class Estimates(Protocol):
    """Predicted times in seconds (``manycl.model`` provides them)."""

    def launch(self, node: int, device: int) -> float:
        """Seconds of node ``node`` of the graph on device ``device`` of the machine, without transfers."""

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        """Seconds to move ``nbytes`` between two memories (0 when they are the same)."""


@dataclass(frozen=True)
class Problem:
    """``valid[b]`` is the set of memories where buffer b holds its contents at the start (absent or empty:
    nowhere; its contents are undefined and need no copy). ``queues[d]`` is the number of in-order queues of
    device d. ``options`` are the policy's own, as strings. ``not_before`` is the earliest time in seconds
    anything may start. ``handover`` is what a dependence between two devices costs in seconds beside its
    transfers: a waiting thread wakes, the engine hears of it and enqueues (36-52 us measured with PoCL on two
    cores).
    """

    graph: Graph
    machine: Machine
    estimates: Estimates
    queues: tuple[int, ...]
    valid: Mapping[int, frozenset[int]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    not_before: float = 0.0
    handover: float = 50e-6

    def allowed(self, node: int) -> tuple[int, ...]:
        """Indices of the devices that may run the node: its preference where some device matches, else all.

        A host task has none (it runs on the host).
        """
        task = self.graph.nodes[node]
        if isinstance(task, HostTask):
            return ()
        devices = self.machine.devices
        if task.device:
            chosen = tuple(i for i, d in enumerate(devices) if matches(d, task.device))
            if chosen:
                return chosen
        return tuple(range(len(devices)))


def matches(device: Device, preference: str) -> bool:
    """Whether a device meets a preference: its kind, its name, or the name of the device it is a part of."""
    return preference in (device.kind, device.name) or device.name.startswith(f"{preference}.")


def queue_counts(machine: Machine, wanted: Mapping[str, int]) -> tuple[int, ...]:
    """In-order queues per device: ``wanted`` by the device's name, the name of what it is a part of, or its kind; else
    the device's own number."""
    return tuple(
        wanted.get(d.name, wanted.get(d.name.split(".")[0], wanted.get(d.kind, d.queues))) for d in machine.devices
    )
