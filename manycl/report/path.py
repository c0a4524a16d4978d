"""The longest path through a trace's edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from manycl.errors import ManyclError


def longest_path(durations: Mapping[int, float], edges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Nodes of a path with the largest sum of ``durations`` (node to seconds, none negative), first to last.

    Nodes without a duration (never run) end a path: they are left out with their edges. Ties go to the lowest
    node. One pass in topological order: O(nodes + edges). Raises :class:`ManyclError` for a cycle.
    """
    successors: dict[int, list[int]] = {node: [] for node in durations}
    missing = dict.fromkeys(durations, 0)
    for before, after in edges:
        if before in missing and after in missing:
            successors[before].append(after)
            missing[after] += 1
    # length of the longest path that ends before a node, and the node that it comes from
    best = dict.fromkeys(durations, 0.0)
    origin: dict[int, int] = {}
    ready = sorted(node for node, count in missing.items() if not count)
    done = 0
    while done < len(ready):
        node = ready[done]
        done += 1
        best[node] += durations[node]
        for after in successors[node]:
            if best[node] > best[after] or (best[node] == best[after] and node < origin.get(after, node + 1)):
                best[after] = best[node]
                origin[after] = node
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    if done < len(durations):
        raise ManyclError("the edges of the trace form a cycle: it is not the trace of a run")
    if not best:
        return ()
    node = max(best, key=lambda n: (best[n], -n))
    path = [node]
    while node in origin:
        node = origin[node]
        path.append(node)
    return tuple(reversed(path))
