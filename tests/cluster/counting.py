"""Oracles of cluster tests: what launches touch, told by hand, and what has travelled, counted in the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from manycl.graph.graph import HostTask
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.problem import Problem

Mask = npt.NDArray[np.bool_]
"""Of the bytes of a buffer."""
HOST = -1


class Even:
    """A policy that divides each launch evenly where it may be divided, and runs all others on the first device."""

    def plan(self, problem: Problem) -> Plan:
        found = []
        count = len(problem.machine.devices)
        for node in range(len(problem.graph)):
            split = problem.splits.get(node)
            if split is None:
                device = ON_HOST if isinstance(problem.graph.nodes[node], HostTask) else DeviceIndex(0)
                found.append(Assignment(node, device, 0, 0.0, 0.0))
                continue
            cuts = [split.groups * device // count for device in range(count + 1)]
            ranges = [(first, end - first) for first, end in pairwise(cuts)]
            found += [
                Assignment(node, device, 0, 0.0, 0.0, split.dimension, *groups)
                for device, groups in enumerate(ranges)
                if groups[1]
            ]
        return Plan(tuple(found), "even", tuple(d.name for d in problem.machine.devices), 0.0)


class Touched(NamedTuple):
    """What a launch reads and writes in the rows from one to another, by buffer: masks of bytes."""

    reads: Callable[[int, int], Mapping[str, Mask]]
    writes: Callable[[int, int], Mapping[str, Mask]]


def missing(
    sizes: Mapping[str, int], launches: Sequence[tuple[Touched, Sequence[tuple[int, int, int]]]], asked: str
) -> tuple[int, int, int]:
    """Return the bytes that have to go from the host to nodes, from node to node, and from nodes to the host, when
    launches run in parts (node, first row, end) and the host then asks for a buffer."""
    nodes = {node for _, parts in launches for node, *_ in parts}
    valid = {(place, name): np.zeros(n, bool) for place in (HOST, *nodes) for name, n in sizes.items()}
    for name in sizes:
        valid[HOST, name][:] = True
    up = across = 0
    for touched, parts in launches:
        for node, first, end in parts:
            for name, mask in touched.reads(first, end).items():
                lacks = mask & ~valid[node, name]
                up += int((lacks & valid[HOST, name]).sum())
                across += int((lacks & ~valid[HOST, name]).sum())
                valid[node, name] |= mask
        for node, first, end in parts:
            for name, mask in touched.writes(first, end).items():
                for place in (HOST, *nodes):
                    valid[place, name] &= ~mask
                valid[node, name] |= mask
    return up, across, int((~valid[HOST, asked]).sum())


def count_from_now_on() -> None:
    """Have this worker count the bytes that it gets from the client and other nodes, and sends to the client."""
    from manycl.cluster.commands import NodeCommands
    from manycl.cluster.exchange import ReceiveArbiter

    if not hasattr(NodeCommands, "counted"):
        put, got, take = NodeCommands._put, NodeCommands._got, ReceiveArbiter.take

        def counted_put(self: Any, memory: Any, low: int, rectangles: Any, frame: Any) -> None:
            NodeCommands.counted["in"] += len(frame)  # type: ignore[attr-defined]
            put(self, memory, low, rectangles, frame)

        def counted_got(self: Any, *given: Any) -> Any:
            frame = got(self, *given)
            NodeCommands.counted["out"] += len(frame)  # type: ignore[attr-defined]
            return frame

        def counted_take(self: Any, *given: Any) -> Any:
            frame = take(self, *given)
            NodeCommands.counted["across"] += len(frame)  # type: ignore[attr-defined]
            return frame

        NodeCommands._put, NodeCommands._got = counted_put, counted_got  # type: ignore[method-assign]
        ReceiveArbiter.take = counted_take  # type: ignore[method-assign]
    NodeCommands.counted = dict.fromkeys(("in", "out", "across"), 0)  # type: ignore[attr-defined]


def counts() -> dict[str, int]:
    """Return what this worker has counted."""
    from manycl.cluster.commands import NodeCommands

    found: dict[str, int] = NodeCommands.counted  # type: ignore[attr-defined]
    return found


def counted(client: Any) -> tuple[int, int, int]:
    """Return the bytes that have gone from the client to nodes, from node to node, and from nodes to the client."""
    found = client.run(counts).values()
    across = sum(c["across"] for c in found)
    return sum(c["in"] for c in found) - across, across, sum(c["out"] for c in found) - across
