"""Samples for predictors of slice sizes: for each benchmark the smallest slices that cost little (Section 4.1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from manycl.analysis import service
from manycl.graph.graph import Graph, Launch
from manycl.graph.known import known_launch
from manycl.model.slice_training import SliceSample, search_target
from manycl.model.slices import OVERHEADS
from manycl.plan.split import Split


def sample(name: str, kind: str, graph: Graph, split: Split, seconds: Callable[[int], float]) -> SliceSample | None:
    """The sample of the first launch of a graph, on a kind of device; ``seconds(n)``: what the graph takes there in n
    ranges. None where there is no target: slices of half of it cost too much."""
    launch = graph.nodes[0]
    if not isinstance(launch, Launch) or launch.local_size is None or kind not in OVERHEADS:
        return None
    sizes = {key: buffer.nbytes for key, buffer in graph.buffers.items()}
    facts = service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes))

    def taken(groups: int | None) -> float:
        return seconds(1 if groups is None else -(-split.groups // groups))

    target = search_target(taken, split.groups, OVERHEADS[kind], step=2.0)
    if target is None:
        return None
    items = target * (math.prod(launch.global_size) // split.groups)
    return SliceSample(name, kind, facts.features.logarithms(kind), float(items))


def as_json(found: SliceSample) -> dict[str, Any]:
    """As ``manycl train`` reads it."""
    return {**found._asdict(), "logarithms": list(found.logarithms)}
