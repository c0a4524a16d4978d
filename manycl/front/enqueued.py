"""What is enqueued and has not run: nodes in the order of the calls, the arrays they use, their task components."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from manycl.errors import LaunchError
from manycl.front.arrays import AnyArray, Array
from manycl.graph.dependences import Batch, GraphBuilder
from manycl.graph.graph import BufferKey, Node

if TYPE_CHECKING:
    from manycl.front.queue import Queue


class Enqueued:
    """Nodes of one graph to be. ``number`` tells it from all others of its queue."""

    __slots__ = ("_component", "_components", "_thread", "arrays", "builder", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.arrays: dict[BufferKey, Array] = {}  # by the buffer that they had when they were used; they live as long
        self.builder = GraphBuilder()
        self._components: list[list[int]] = []
        self._component: list[int] | None = None  # the one that is open
        self._thread = 0  # whose component it is

    def __len__(self) -> int:
        return len(self.builder)

    def add(self, node: Node, after: Sequence[int], arrays: Sequence[Array]) -> int:
        """Append a node that uses some arrays, and tell its index."""
        for array in arrays:
            key = array.buffer.key
            if key not in self.arrays:
                self.builder.adopt(array.buffer)
                self.arrays[key] = array
        index = self.builder.add(node, after)
        if self._component is not None and self._thread == threading.get_ident():
            self._component.append(index)
        return index

    def open_component(self) -> None:
        """What this thread adds belongs to one task component. Raises LaunchError inside another one."""
        if self._component is not None:
            raise LaunchError("task components do not nest")
        self._thread = threading.get_ident()
        self._component = []
        self._components.append(self._component)

    def close_component(self) -> None:
        self._component = None

    def next(self, number: int) -> Enqueued:
        """What is enqueued when this one has been taken: nothing, but a component that is open goes on."""
        following = Enqueued(number)
        if self._component is not None:
            following.open_component()
            following._thread = self._thread
        return following

    def batch(self) -> Batch:
        """All of it."""
        inside = {n for c in self._components for n in c}
        rest = [(n,) for n in range(len(self)) if n not in inside] if inside else ()
        return self.builder.batch((*(tuple(c) for c in self._components if c), *rest))


class Event:
    """What enqueueing returns: a node of the graph. Of a graph that is being prepared (``Queue.prepare``) it orders the
    nodes of the same ``with`` block. Elsewhere, and when the graph runs, there is nothing to wait for: a prepared graph
    runs as a whole, after what was enqueued before ``run`` and before what is enqueued afterwards."""

    __slots__ = ("batch", "node", "queue")

    def __init__(self, queue: Queue, batch: int, node: int) -> None:
        self.queue = queue
        self.batch = batch
        self.node = node

    def wait(self) -> None:
        """Run everything that is enqueued, if this is part of it. Raises what that raises."""
        self.queue.refuse_while_preparing()
        if self.batch == self.queue.batch:
            self.queue.finish()


class ReadEvent(Event):
    """A read (``Queue.read``): ``out`` has the contents when it is complete."""

    __slots__ = ("out",)

    def __init__(self, queue: Queue, batch: int, node: int, out: AnyArray) -> None:
        super().__init__(queue, batch, node)
        self.out = out
