"""The driver of nodes: what it is given goes to the worker in messages, a whole run of commands in one or a few.

A node does its commands in the order in which they are given here, by whatever queues. So they never wait for the
events of their ``after``: what came first has begun first, on the same node; and what crosses from node to node crosses
by an exchange, of which the sender does its half before the receiver can do the other one. Of two nodes, neither can
wait for something that the other one does behind its own half: all commands together were given one after another, and
of those that are not over, nothing holds back the first one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from manycl.cluster.link import NodeEvent, NodeLink
from manycl.cluster.rows import packed, unpack
from manycl.drivers.driver import Bytes, DriverError, End, Source
from manycl.drivers.worker.things import DroppedThings, NumberedThing, RemoteMemory, RemoteProgram
from manycl.errors import anew
from manycl.graph.graph import LocalArg
from manycl.machine import Device
from manycl.region import Rectangle

if TYPE_CHECKING:
    from manycl.cluster.opening import Nodes


class NodeQueue(NamedTuple):
    """``is_timed``: whether the node tells when its kernels ran."""

    is_timed: bool


class NodeKernel(NumberedThing):
    """A kernel of a node. ``values``: its arguments, by index."""

    kind = "kernel"

    def __init__(self, dropped: DroppedThings, most_items: int) -> None:
        super().__init__(dropped)
        self.most_items = most_items
        self.values: dict[int, Any] = {}
        self.memory: dict[int, RemoteMemory] = {}

    def set(self, index: int, value: RemoteMemory | bytes | LocalArg) -> None:
        self.memory.pop(index, None)
        if isinstance(value, RemoteMemory):
            self.memory[index] = value
            self.values[index] = value.number
        else:
            self.values[index] = [value.nbytes] if isinstance(value, LocalArg) else bytes(value)


class NodeDriver:
    """``nodes``: of which this is number ``place``."""

    is_polled = False
    is_interruptible = True
    slows_down = needs_shared_memory = tells_when_lost = False
    may_be_lost = True
    has_crashed = False

    def __init__(self, device: Device, nodes: Nodes, place: int) -> None:
        self.device, self.place = device, place
        self.link: NodeLink = nodes.links[place]
        self.nodes = nodes
        self._dropped: DroppedThings = deque()
        self.link.check()

    # memory

    def allocate(self, nbytes: int, host: Bytes | None = None) -> RemoteMemory:
        if host is not None:
            raise DriverError(f"{self.device.name} has a memory of its own")
        self.link.check()
        memory = RemoteMemory(self._dropped, nbytes)
        self.link.note("memory", memory.number, nbytes)
        return memory

    def part(self, allocation: RemoteMemory, offset: int, nbytes: int) -> RemoteMemory:
        memory = allocation.part(self._dropped, offset, nbytes, self.device)
        self.link.note("part", memory.number, allocation.number, offset, nbytes)
        return memory

    def free(self, allocation: RemoteMemory) -> None:
        self.link.note("drop", allocation.kind, allocation.number)

    def pin(self, data: Bytes) -> object:
        return None

    # programs

    def build(self, source: Source) -> RemoteProgram:
        program = RemoteProgram(self._dropped)
        self.link.ask("program", program.number, source.text, list(source.options), source.path)
        return program

    def kernel(self, program: RemoteProgram, name: str) -> NodeKernel:
        kernel = NodeKernel(self._dropped, self.device.max_work_group)
        self.link.ask("kernel", kernel.number, program.number, name)
        return kernel

    def function(self, function: Callable[..., None], arguments: int) -> NodeKernel:
        raise DriverError(f"{self.device.name} computes in another process, which calls no functions of this one")

    # commands

    def queue(self, timed: bool) -> NodeQueue:
        return NodeQueue(timed)

    def launch(
        self,
        queue: NodeQueue,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[NodeEvent] | None,
    ) -> NodeEvent:
        args = [kernel.values[index] for index in sorted(kernel.values)]
        kept = kernel, list(kernel.memory.values())
        return self.link.give(
            "launch", kernel.number, args, (global_size, local_size, offset), queue.is_timed, kept=kept
        )

    def copy(
        self, queue: NodeQueue, target: End, source: End, rectangles: Sequence[Rectangle], after: Sequence[NodeEvent]
    ) -> Sequence[NodeEvent]:
        to: Any = target.memory
        of: Any = source.memory
        rows, kept = [rect[:4] for rect in rectangles], (to, of)
        if not rows:
            return [self.link.give("copy", 0, 0, 0, 0, rows)]
        if not isinstance(to, RemoteMemory):
            return [self._download(to, target.low, source, rectangles)]
        if not isinstance(of, RemoteMemory):
            frame = packed(of, rectangles, source.low)
            return [self.link.give("write", to.number, target.low, rows, frame=frame, kept=kept)]
        owner: Any = source.owner
        if owner is not None and owner is not self:
            owner.link.check()
            tag = next(self.nodes.tags)
            owner.link.note("send", of.number, source.low, rows, self.place, tag)
            return [self.link.give("receive", to.number, target.low, rows, owner.place, tag, kept=kept)]
        return [self.link.give("copy", to.number, target.low, of.number, source.low, rows, kept=kept)]

    def take(self, target: End, rectangles: Sequence[Rectangle], tag: int) -> NodeEvent:
        """Enqueue a copy of what the node has been given by its worker's Dask."""
        rows, to = [rect[:4] for rect in rectangles], cast("RemoteMemory", target.memory)
        return self.link.give("receive", to.number, target.low, rows, self.place, tag, kept=to)

    def lend(self, source: End, rectangles: Sequence[Rectangle], tag: int) -> NodeEvent:
        """Enqueue a copy for the worker's Dask."""
        rows, of = [rect[:4] for rect in rectangles], cast("RemoteMemory", source.memory)
        return self.link.give("lend", of.number, source.low, rows, self.place, tag, kept=of)

    def _download(self, out: Bytes, low: int, source: End, rectangles: Sequence[Rectangle]) -> NodeEvent:
        rows = [rect[:4] for rect in rectangles]
        memory: Any = source.memory
        return self.link.give(
            "read",
            memory.number,
            source.low,
            rows,
            kept=memory,
            finish=lambda frame: unpack(out, rectangles, low, frame),
        )

    def read(self, queue: NodeQueue, out: Bytes, source: RemoteMemory, low: int) -> NodeEvent:
        event = self.download(queue, out, source, low)
        self.flush(queue)
        self.wait(event)
        return event

    def download(self, queue: NodeQueue, out: Bytes, source: RemoteMemory, low: int) -> NodeEvent:
        return self._download(out, 0, End(source, -low), (Rectangle(0, len(out)),))

    def write(self, queue: NodeQueue, target: RemoteMemory, data: Bytes, low: int) -> NodeEvent:
        return self.copy(queue, End(target, -low), End(data.copy()), (Rectangle(0, len(data)),), ())[0]

    def fill(
        self,
        queue: NodeQueue,
        target: RemoteMemory,
        pattern: bytes,
        offset: int,
        nbytes: int,
        after: Sequence[NodeEvent],
    ) -> NodeEvent:
        return self.link.give("fill", target.number, pattern, offset, nbytes, kept=target)

    def flush(self, queue: NodeQueue) -> None:
        """Send what is held back for any node: what this one receives, others send."""
        while self._dropped:
            self.link.note("drop", *self._dropped.popleft())
        self.nodes.flush()

    def finish(self) -> None:
        self.nodes.flush()
        self.link.settle()

    # events

    def done(self, event: NodeEvent) -> bool:
        if event.fault is not None and event.is_over:
            raise anew(event.fault)
        return event.is_over

    def succeeded(self, events: Sequence[NodeEvent]) -> bool:
        return all([event.is_over and event.fault is None for event in events])  # noqa: C419 (a third quicker)

    def wait(self, event: NodeEvent) -> None:
        self.link.wait(event)
        self.done(event)

    def times(self, event: NodeEvent) -> tuple[float, float]:
        if event.span is None:
            raise DriverError("nobody knows when it ran")
        return event.span

    def clock(self) -> float | None:
        return self.link.clock

    def release(self) -> None:
        self.link.close()
