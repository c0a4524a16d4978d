"""Which contents somebody may still need. Pure.

Contents of a piece are its readers' until the next step writes it. So they are of no use to anybody once all of these
have been issued, if that step overwrites all of the piece without reading it: they need not be kept when their store
makes way. What no further step overwrites is the user's, who may look when the run has ended; the contents of a
buffer of the run's own are nobody's then.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from manycl.graph.graph import BufferKey, Graph, HostTask


class Lifetimes:
    """``issued(step)``: whether a step has been given to a device (what was, stays so), in an order that keeps to the
    graph. ``own``: buffers and pieces that only this run needs. ``overwritten(step, key)``: whether a step is known to
    write all of a piece although ``Launch.overwrites`` does not say so."""

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
        self._passed: dict[BufferKey, int] = {}  # how many of these have been issued, as far as they were looked at
        touched: dict[tuple[int, int], tuple[BufferKey, ...]] = {}  # ranges of many launches have it in common
        for step, task in enumerate(graph.nodes):
            name = id(task.reads), id(task.writes)
            keys = touched.get(name)
            if keys is None:
                keys = touched[name] = tuple({*task.reads, *task.writes})
            for key in keys:
                self._touching.setdefault(key, []).append(step)

    def counts(self) -> dict[BufferKey, int]:
        """How many steps touch each piece."""
        return {key: len(steps) for key, steps in self._touching.items()}

    def over(self, key: BufferKey) -> bool:
        """Whether no step that has not been issued touches a piece."""
        steps = self._touching.get(key, ())
        at = self._passed.get(key, 0)
        while at < len(steps) and self._issued(steps[at]):
            at += 1
        self._passed[key] = at
        return at == len(steps)

    def lives(self, key: BufferKey) -> bool:
        """Whether the present contents of a piece may be needed by a step that has not been issued, or after the
        run."""
        if self.over(key):
            return key not in self._own
        steps, at = self._touching[key], self._passed[key]
        following = steps[at]
        task = self._graph.nodes[following]
        if isinstance(task, HostTask) or key in task.reads or key in self._together:
            return True
        if key not in task.overwrites and not self._overwritten(following, key):
            return True
        # who does not wait for it runs beside it, and has read what was there before
        for i in range(at + 1, len(steps)):
            if following in self._graph.predecessors[steps[i]]:
                break
            if key in self._graph.nodes[steps[i]].reads:
                return True
        return False
