"""Lifetimes of contents: which contents a later step, or the user, may still need. Pure.

The contents of a piece belong to its readers until the next step writes it. They are dead once all these readers have
been issued, if that step overwrites all of the piece without reading it: then they need not be saved when their store
is evicted. Contents that no further step overwrites are the user's, who may read them after the run. At the end of a
run the contents of its own buffers are dead.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from manycl.graph.graph import BufferKey, Graph, HostTask


class Lifetimes:
    """The lifetimes of the pieces of one run. ``issued(step)``: whether a step has been given to a device, for good, in
    an order that keeps to the graph. ``own``: buffers and pieces that only this run needs. ``overwritten(step, key)``:
    whether a step is known to write all of a piece although ``Launch.overwrites`` does not say so."""

    def __init__(
        self,
        graph: Graph,
        issued: Callable[[int], bool],
        own: Container[BufferKey] = (),
        overwritten: Callable[[int, BufferKey], bool] = lambda step, key: False,
    ) -> None:
        self._graph = graph
        self._issued = issued
        self._own = own
        self._overwritten = overwritten
        self._together = graph.written_together
        self._touching: dict[BufferKey, list[int]] = {}  # steps by piece, in the graph's order
        self._passed: dict[BufferKey, int] = {}  # how many of these are known to have been issued
        touched: dict[tuple[int, int], tuple[BufferKey, ...]] = {}  # ranges of many launches share keys
        for step, task in enumerate(graph.nodes):
            name = id(task.reads), id(task.writes)
            keys = touched.get(name)
            if keys is None:
                keys = touched[name] = tuple({*task.reads, *task.writes})
            for key in keys:
                self._touching.setdefault(key, []).append(step)

    def counts(self) -> dict[BufferKey, int]:
        """Return how many steps touch each piece."""
        return {key: len(steps) for key, steps in self._touching.items()}

    def over(self, key: BufferKey) -> bool:
        """Return whether no step that has not been issued touches a piece."""
        steps = self._touching.get(key, ())
        at = self._passed.get(key, 0)
        while at < len(steps) and self._issued(steps[at]):
            at += 1
        self._passed[key] = at
        return at == len(steps)

    def lives(self, key: BufferKey) -> bool:
        """Return whether the present contents of a piece may be needed by a step not issued, or after the run."""
        if self.over(key):
            return key not in self._own
        steps, at = self._touching[key], self._passed[key]
        following = steps[at]
        task = self._graph.nodes[following]
        if isinstance(task, HostTask) or key in task.reads or key in self._together:
            return True
        if key not in task.overwrites and not self._overwritten(following, key):
            return True
        # a step that does not wait for the overwriting one may run beside it, and has to read the contents before it
        for i in range(at + 1, len(steps)):
            if following in self._graph.predecessors[steps[i]]:
                break
            if key in self._graph.nodes[steps[i]].reads:
                return True
        return False
