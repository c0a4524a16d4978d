"""What is enqueued until a result is asked for: what the device has been given already, where there is nothing to
decide; then nodes in the order of the calls, the arrays they use, their task components."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from manycl.errors import LaunchError
from manycl.front.arrays import AnyArray, Array
from manycl.graph.dependences import Batch, GraphBuilder
from manycl.graph.graph import BufferKey, HostTask, Launch, Node

if TYPE_CHECKING:
    from manycl.front.queue import Queue
    from manycl.run.flight import Flight


class Enqueued:
    """``number`` tells it from all others of its queue. ``flight``: what the device has been given, unless all has to
    be planned (``planned``); all else, which comes after that, is one graph to be."""

    __slots__ = ("_component", "_components", "_planned", "_thread", "arrays", "began", "builder", "flight", "number")

    def __init__(self, number: int, planned: bool) -> None:
        self.number = number
        self.flight: Flight | None = None
        self.began = 0.0  # by time.perf_counter, of what has to be planned
        self._planned = planned
        self.arrays: dict[BufferKey, Array] = {}  # by the buffer that they had when they were used; they live as long
        self.builder = GraphBuilder()
        self._components: list[list[int]] = []
        self._component: list[int] | None = None  # the one that is open
        self._thread = 0  # whose component it is

    def __len__(self) -> int:
        return self._given + len(self.builder)

    @property
    def _given(self) -> int:
        return len(self.flight.given) if self.flight is not None else 0

    def open_flight(self, queue: Queue) -> Flight | None:
        """What commands may be given to at once, if nothing is in their way."""
        if self.flight is None and not self._planned:
            with queue.lock:
                if self.flight is None and not len(self.builder) and self._component is None:
                    self.flight = queue.take_off()
                    self._planned = self.flight is None
        return self.flight

    def add(self, queue: Queue, node: Node, after: Sequence[int], arrays: Sequence[Array]) -> int:
        """Append a node that uses some arrays, and tell its index. Raises ManyclError for what the device refuses."""
        if self._give(queue, node, after, arrays):
            return self._given - 1
        for array in arrays:
            key = array.buffer.key
            if key not in self.arrays:
                self.builder.adopt(array.buffer)
                self.arrays[key] = array
        if not len(self.builder):
            self.began = perf_counter()
        before = self._given
        index = self.builder.add(node, [n - before for n in after if n >= before])
        if self._component is not None and self._thread == threading.get_ident():
            self._component.append(index)
        return before + index

    def _give(self, queue: Queue, node: Node, after: Sequence[int], arrays: Sequence[Array]) -> bool:
        """Whether the device has it now; what comes behind what it has not waits, too."""
        if isinstance(node, HostTask) or (isinstance(node, Launch) and node.device) or self._component is not None:
            self._planned = True
        elif (flight := self.open_flight(queue)) is not None:
            with flight.lock:
                if flight.is_open and flight.give(node, arrays, after):
                    return True
        if self.flight is not None:
            self.flight.close()
        return False

    def uses(self, key: BufferKey) -> bool:
        """Whether some node uses a buffer."""
        return key in self.arrays or (self.flight is not None and key in self.flight.arrays)

    def open_component(self) -> None:
        """What this thread adds belongs to one task component. Raises LaunchError inside another one."""
        if self._component is not None:
            raise LaunchError("task components do not nest")
        self._thread = threading.get_ident()
        self._component = []
        self._components.append(self._component)

    def close_component(self) -> None:
        self._component = None

    def next(self, number: int, planned: bool) -> Enqueued:
        """What is enqueued when this one has been taken: nothing, but a component that is open goes on."""
        following = Enqueued(number, planned)
        if self._component is not None:
            following.open_component()
            following._thread = self._thread
        return following

    def batch(self) -> Batch:
        """All that the device has not been given."""
        inside = {n for c in self._components for n in c}
        rest = [(n,) for n in range(len(self.builder)) if n not in inside] if inside else ()
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
