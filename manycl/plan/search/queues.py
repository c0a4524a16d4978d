"""PySchedCL's assignment of a task component's kernels to command queues (``setup_cq`` of Algorithm 1). The structure
<Q, E_Q> of its Definition 4, the copies in each queue and the pairs of commands that wait for each other, is the
engine's: only its coherence directory knows where contents are valid."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from manycl.errors import PolicyError
from manycl.graph.graph import Graph, HostTask


def setup_cq(graph: Graph, component: Sequence[int], r: int, first_queue: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the kernels (and host tasks) of a component in the order of dispatch, each with its queue number: kernels
    are given to ``r`` queues from ``first_queue`` on, round-robin, beginning with those all of whose predecessors are
    outside of the component (Algorithm 1, ``setup_cq``). A kernel joins ``unprocessed`` once all its predecessors in T
    are processed, so the order is topological (the paper adds successors at once, which is only right for trees). Host
    tasks keep their place in the order and take no turn."""
    if r < 1:
        raise PolicyError(f"a task component needs at least one queue, not {r}")
    if len(component) == 1:
        return ((component[0], first_queue),)
    inside = frozenset(component)
    missing = {n: sum(p in inside for p in graph.predecessors[n]) for n in component}
    unprocessed = deque(n for n in sorted(component) if missing[n] == 0)
    order: list[tuple[int, int]] = []
    turn = 0
    while unprocessed:
        node = unprocessed.popleft()
        order.append((node, first_queue + turn))
        if not isinstance(graph.nodes[node], HostTask):
            turn = (turn + 1) % r
        for s in graph.successors[node]:
            if s in inside:
                missing[s] -= 1
                if missing[s] == 0:
                    unprocessed.append(s)
    return tuple(order)
