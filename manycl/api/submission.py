"""A submission: the commands that are enqueued until a result is asked for. First come those that an eager stream has
given to the device already, then nodes that have to be planned, in the order of the calls, with the arrays that they
use and their task components."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from manycl.api.arrays.arrays import Array
from manycl.api.events import CommandStatus, EventQueue
from manycl.errors import LaunchError, ManyclError, ResultError, anew
from manycl.graph.dependences import Batch, GraphBuilder
from manycl.graph.graph import BufferKey, DeviceTask, HostTask, Launch, Node
from manycl.graph.horizon import HORIZON, missing
from manycl.graph.versions.sequence import is_sequence
from manycl.run.streams.eager_rule import Decision, Facts, Need, decide

if TYPE_CHECKING:
    from manycl.drivers.driver import Bytes
    from manycl.graph.copies import Place
    from manycl.run.data.buffers import Buffers
    from manycl.run.engine.result import Result
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_stream import EagerStream

PREPARED = decide(Facts(need=Need.PREPARED))
"""The decision about commands of graphs that are prepared."""


class SubmissionQueue(EventQueue, Protocol):
    """The part of a queue that a submission uses."""

    lock: threading.RLock
    use_log: Callable[[Session, EagerStream], None]

    def begin_stream(self, first: DeviceTask) -> tuple[EagerStream, None] | tuple[None, Decision]: ...
    def reach_horizon(self, enqueued: Submission) -> None: ...


class Submission:
    """The commands of a queue until a result is asked for. ``stream``: the eager stream with what the device has been
    given, unless all has to be planned. Everything that comes after it is collected for one graph; ``decision``: why.
    ``is_taken``: nothing more is added, and it is about to run. ``is_over``: it has run, or ``error`` is what went
    wrong, there or before. ``is_followed``: more commands of the same program follow before anybody has asked for a
    result. (A prepared graph runs more than once.)"""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_component",
        "_components",
        "_planned",
        "_result",
        "_spans",
        "_thread",
        "_until",
        "arrays",
        "began",
        "builder",
        "decision",
        "error",
        "is_followed",
        "is_over",
        "is_taken",
        "reads",
        "stream",
    )

    def __init__(self, why: Decision | None) -> None:
        self.is_taken = self.is_over = self.is_followed = False
        self._until = HORIZON
        self.error: ManyclError | None = None
        self._result: Result | None = None  # of the planned nodes
        self._callbacks: deque[Callable[[], Any]] = deque()
        self.stream: EagerStream | None = None
        self.began = 0.0  # when the first planned node was added, by time.perf_counter; 0: there is none
        self._planned = why is not None
        self.decision = why
        self.arrays: dict[BufferKey, Array] = {}  # kept alive, by the buffers that they had when used
        self.builder = GraphBuilder()
        self._components: list[list[int]] = []
        self._component: list[int] | None = None  # the one that is open
        self._thread = 0  # the thread whose component is open
        self.reads: list[tuple[Place, Bytes]] = []  # copies to the host behind all nodes
        self._spans: dict[int, tuple[float, float]] = {}  # when these copies began and ended, by index

    def __len__(self) -> int:
        return self._given + len(self.builder.nodes) + len(self.reads)

    @property
    def _given(self) -> int:
        return len(self.stream.given) if self.stream is not None else 0

    @property
    def is_waited(self) -> bool:
        """True if all of it has been waited for, and more may come."""
        stream = self.stream
        return stream is not None and not stream.has_batch and not self.builder.nodes

    @property
    def moving(self) -> Any:
        """The driver's event of a copy that is enqueued behind all commands, if the eager stream has one that is still
        to be waited for."""
        return self.stream.moving if self.stream is not None and not self.builder.nodes and not self.reads else None

    def open_stream(self, queue: SubmissionQueue, first: DeviceTask) -> EagerStream | None:
        """Return the eager stream that takes commands now, or None where they have to be planned. ``first``: the one
        that comes now."""
        if self.stream is None and not self._planned:
            with queue.lock:
                if self.stream is None and not self.builder.nodes and self._component is None:
                    self.stream, self.decision = queue.begin_stream(first)
                    if self.stream is not None:
                        queue.use_log(queue.session, self.stream)
                    self._planned = self.stream is None
        return self.stream

    def add(self, queue: SubmissionQueue, node: Node, after: Sequence[int], arrays: Sequence[Array]) -> int:
        """Append a node that uses some arrays, and return its index. Raises ManyclError for what the device refuses."""
        if self._give(queue, node, after, arrays):
            return self._given - 1
        for array in arrays:
            key = array.buffer.key
            if key not in self.arrays:
                self.builder.adopt(array.buffer)
                self.arrays[key] = array
        if not self.builder.nodes:
            self.began = perf_counter()
        before = self._given
        index = self.builder.add(node, [n - before for n in after if n >= before] if after else ())
        if self._component is not None and self._thread == threading.get_ident():
            self._component.append(index)
        elif index + 1 >= self._until:
            self._until += missing(self.builder.nodes)
            if index + 1 >= self._until:
                queue.reach_horizon(self)
        return before + index

    def _give(self, queue: SubmissionQueue, node: Node, after: Sequence[int], arrays: Sequence[Array]) -> bool:
        """Try to give a node to the device at once, and return True if that was done. A node that follows one which was
        not given waits, too."""
        need = _need(node) if self._component is None else Need.COMPONENT
        if need is not None or isinstance(node, HostTask):
            self._planned = True
        elif (stream := self.open_stream(queue, node)) is not None:
            with stream.lock:
                if stream.is_open and stream.give(node, arrays, after):
                    return True
            need = Need.REFUSED
        if self.stream is not None:
            self.stream.close()
        if need is not None and self.decision is None:
            self.decision = decide(Facts(need=need))
        return False

    def uses(self, key: BufferKey) -> bool:
        """Return True if a node uses a buffer and has not been waited for."""
        return key in self.arrays or (self.stream is not None and key in self.stream.arrays)

    @property
    def is_in_component(self) -> bool:
        return self._component is not None

    def open_component(self) -> None:
        """Begin a task component: it gets the nodes that this thread adds. Raises LaunchError inside another one."""
        if self._component is not None:
            raise LaunchError("task components do not nest")
        self._thread = threading.get_ident()
        self._component = []
        self._components.append(self._component)

    def close_component(self) -> None:
        self._component = None

    def take(self, why: Decision | None) -> Submission:
        """Close it for further nodes, and return the submission that follows: empty, but for an open component."""
        self.is_taken = True
        following = Submission(why)
        if self._component is not None:
            following.open_component()
            following._thread = self._thread
        return following

    def batch(self) -> Batch:
        """Return all nodes that the device has not been given."""
        components = [*map(tuple, filter(None, self._components))]
        inside = {*chain.from_iterable(components)}
        rest = [(n,) for n in range(len(self.builder)) if n not in inside] if inside else ()
        return self.builder.batch((*components, *rest))

    # status and times

    def ended(self, queue: EventQueue, result: Result | None = None, error: ManyclError | None = None) -> None:
        """Note that it has run, or that it ended with ``error``, and call the callbacks."""
        self._result, self.error, self._planned = result, anew(error) if error is not None else None, True
        self.is_over = True
        if self.began:  # something was planned
            self.arrays, self.builder, self._components, self.reads = {}, GraphBuilder(), [], []
        if self._callbacks:
            self._submit(queue)

    def name(self, node: int) -> str:
        """Return the name of a node; empty where it is not known any more."""
        given = self._given
        if self.stream is not None and node < given:
            return self.stream.given[node][0].name
        nodes = self.builder.nodes
        return nodes[node - given].name if node - given < len(nodes) else ""

    def status(self, node: int) -> CommandStatus | ManyclError:
        """Return how far a node is, or the error that it ended with. Planned nodes fail together."""
        stream = self.stream
        if stream is None or node >= len(stream.given):
            if self.error is not None:
                return self.error
            if self.is_over:
                return CommandStatus.COMPLETE
            return CommandStatus.SUBMITTED if self.is_taken else CommandStatus.QUEUED
        try:
            if stream.is_complete(node):
                return CommandStatus.COMPLETE
            is_next = node == 0 or stream.is_complete(node - 1)
        except ManyclError as error:
            return error
        return CommandStatus.RUNNING if is_next else CommandStatus.SUBMITTED

    def is_complete(self, node: int) -> bool:
        """Return True if a node is known to have succeeded."""
        stream = self.stream
        if stream is None or node >= len(stream.given):
            return self.is_over and self.error is None
        try:
            return stream.is_complete(node)
        except ManyclError:
            return False

    def times(self, node: int) -> tuple[float, float]:
        """Return when a node began and ended, by ``time.perf_counter``. Raises ResultError where that is not known, and
        the error of a node that failed."""
        if self.stream is not None and node < self._given:
            return self.times_of(self.status(node), self.stream.given[node][2])
        found = self._spans.get(node)
        if found is None and self._result is not None:
            found = self._result.times.get(node - self._given)
        return _known(self.status(node), found)

    def times_of(self, status: CommandStatus | ManyclError, event: Any) -> tuple[float, float]:
        """Return when a command of the eager stream began and ended, given its status and its driver's event. Raises as
        ``times``."""
        assert self.stream is not None
        return _known(status, self.stream.times_of(event) if status == CommandStatus.COMPLETE else None)

    def call_back(self, queue: EventQueue, node: int, function: Callable[[], Any]) -> None:
        """Call a function when a node has ended, in the queue's own thread."""
        stream = self.stream
        if stream is not None and node < len(stream.given):
            stream.flush()

            self.call_behind(queue, stream.given[node][2], function)
            return
        self._callbacks.append(function)
        if self.is_over:
            self._submit(queue)

    def call_behind(self, queue: EventQueue, event: Any, function: Callable[[], Any]) -> None:
        """Call a function when a command of the eager stream, or a copy, has ended, given its driver's event; in the
        queue's own thread."""
        stream = self.stream
        assert stream is not None

        def wait_and_call() -> None:
            stream.wait_beside(event)
            function()

        queue.background.submit(wait_and_call)

    def read_last(self, array: Array, wanted: Place, out: Bytes) -> int:
        """Have bytes of a buffer copied to the host behind all nodes, of which no more are added; return its index."""
        self.arrays.setdefault(array.buffer.key, array)
        if not self.began:
            self.began = perf_counter()
        self.reads.append((wanted, out))
        return len(self) - 1

    def read(self, buffers: Buffers) -> None:
        """Do the copies of ``read_last``, now that all nodes have run. Raises what ``Buffers.host`` raises."""
        if not self.reads:
            return
        from manycl.run.data.host_memory import copy_bytes  # run/ is imported when a queue opens devices

        first = len(self) - len(self.reads)
        for index, (wanted, out) in enumerate(self.reads, first):
            start = perf_counter()
            copy_bytes(out, buffers.host(wanted.buffer.key, wanted.low, wanted.nbytes))
            self._spans[index] = start, perf_counter()

    def _submit(self, queue: EventQueue) -> None:
        """Have the callbacks called, each once, although two threads may try at the same time."""
        with suppress(IndexError):
            while True:
                queue.background.submit(self._callbacks.popleft())


def _known(status: CommandStatus | ManyclError, times: tuple[float, float] | None) -> tuple[float, float]:
    """Return the times of a node with such a status. Raises ResultError where there are none, and a node's error."""
    if isinstance(status, ManyclError):
        raise anew(status)
    if status != CommandStatus.COMPLETE:
        raise ResultError("the command has not ended: when it ran is not known yet", hint="event.wait()")
    if times is None:
        hint = "mc.Queue(profile=True) has all commands timed"
        raise ResultError("the command was not timed: nobody knows when it ran", hint=hint)
    return times


def _need(node: Node) -> Need | None:
    """Return why a node has to be planned, whatever the device, or None. (Of several launches, several events tell.)"""
    if not isinstance(node, Launch):
        return Need.HOST if isinstance(node, HostTask) else None
    if node.device:
        return Need.PREFERENCE
    return Need.SEQUENCE if node.versions and any(map(is_sequence, node.versions)) else None
