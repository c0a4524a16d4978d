"""Prepared graphs: collected once, run again and again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from manycl.api.arrays.array_queue import ArrayQueue
from manycl.api.arrays.arrays import Array
from manycl.api.events import Event, MoveEvent
from manycl.api.recording import RunTrace, showable, underway
from manycl.api.running import RunningQueue
from manycl.api.submission import PREPARED, Submission
from manycl.drivers.driver import Bytes
from manycl.errors import LaunchError, ManyclError
from manycl.graph.copies import Place
from manycl.graph.graph import BufferKey, Graph, Node
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.utilities.checked import checked

if TYPE_CHECKING:
    from manycl.run.data.coherence import ValidRegion
    from manycl.run.engine.result import Result
    from manycl.run.graph_cache.cached_graph import CachedGraph
    from manycl.run.graph_cache.learners import Learners
    from manycl.run.streams.eager_stream import EagerStream

ROOM = 256 << 20
"""Bytes of new arrays since the queue was last waited for, after which it checks whether most of them are kept alive
only by commands that are enqueued; our own choice, and more where all memories are large."""
_ONLY_HERE = 4  # references to an array by the submission, and by the code that counts them; our own choice


class WaitingQueue(RunningQueue):
    """The part of a queue that waits without ending the eager stream, and tells of the last run."""

    def make_room(self, nbytes: int) -> None:
        """Count bytes that are about to be allocated. Where at least half of the arrays made since the last check are
        kept alive only by what is enqueued, wait for that, so that they are freed: a program may drop arrays in a loop
        that waits for nothing. Raises what went wrong."""
        self._made_bytes += nbytes
        if self._made_bytes < ROOM or self._made_bytes < self.session.backend.memory.roomy:
            return
        made, self._made_bytes = self._made_bytes, 0
        if (self.policy or self._default) != "auto" or self.options or self.preparing or self.is_running_here:
            return
        with self.lock:
            stream = self.enqueued.stream
            held = [*self.enqueued.arrays.values(), *(stream.arrays.values() if stream is not None else ())]
            dropped = sum([array.buffer.nbytes for array in held if getrefcount(array) <= _ONLY_HERE])
        if 2 * dropped >= made:
            self.finish()

    def first_reads(self, key: BufferKey) -> Sequence[ValidRegion]:
        """Return the regions of a buffer that devices are expected to need first, with the masks of their memories;
        empty: that is not known, or a run is under way."""
        with self.lock:
            return () if self._taken else self._recurring.first_reads(key)

    def catch_up(self) -> bool:
        """Run all that is enqueued and wait for it, as ``finish``, for callers that do not look at runs. Where a device
        has been given little, and is given what comes next, too, the batch goes on: then it returns True, and no run
        was noted."""
        self.settle()
        stream = self._light()
        if stream is not None and stream.wait_for_all():
            stream.is_joined = True
            return True
        self.finish()
        return False

    def read_ahead(self, wanted: Place, out: Bytes) -> bool:
        """Copy bytes of a buffer to the host behind all that was enqueued, while the batch goes on, as in ``catch_up``.
        Returns False if that cannot be done here. For devices with memory of their own."""
        stream = self._light()
        return stream is not None and stream.read(wanted, out)

    def read_behind(self, array: Array, wanted: Place, out: Bytes) -> Event | None:
        """Have bytes of an array copied to the host when all that was enqueued has run, while more is enqueued, and
        return the event of the copy. Returns None if that was not done, as nothing is under way, or it has to be waited
        for. Commands that have to be planned run in the background."""
        with self.lock:
            enqueued = self.enqueued
            if self.preparing or self.session.closed or self._failure is not None:
                return None
            if self._taken or enqueued.builder.nodes:
                node = enqueued.read_last(array, wanted, out)
                self.flush()
                return Event(self, enqueued, node)
            stream = enqueued.stream
            moved = stream.read_behind(array, wanted, out) if stream is not None else None
            if stream is None or moved is None:
                return None
            return MoveEvent(self, enqueued, len(stream.given) - 1, moved)

    def write_ahead(self, place: Place, data: Bytes) -> bool:
        """Copy bytes of the host, as they are now, to a buffer; otherwise as ``read_ahead``."""
        stream = self._light()
        return stream is not None and stream.write(place, data)

    def _light(self) -> EagerStream | None:
        """Return the eager stream whose device is given the next commands, too, if nothing else is enqueued and the
        stream has little; else None."""
        enqueued = self.enqueued
        stream = enqueued.stream
        if stream is None or not stream.is_light or underway or not self._recurring.rests(stream.device):
            return None
        self.session.devices.refuse_host_functions()
        if self._taken or self.preparing or enqueued.builder.nodes or self._failure is not None:
            return None
        return stream

    @property
    def is_caught_up(self) -> bool:
        """True if nothing is under way: all that was enqueued is one device's and waited for, and the batch goes on."""
        with self.lock:
            enqueued = self.enqueued
            stream = enqueued.stream
            if stream is None or self._taken or enqueued.builder.nodes or self.preparing:
                return False
            return stream.is_open and stream.is_waited and self._recurring.rests(stream.device)

    def _end_waited(self) -> None:
        """Make a run of commands that have been waited for one by one."""
        stream = self.enqueued.stream
        is_over = stream is not None and stream.has_batch and stream.is_waited
        if is_over and not self.enqueued.builder.nodes and not self.preparing:
            self._complete(None)

    @property
    def result(self) -> Result:
        """The last run: its seconds, plan and record."""
        self._end_waited()
        if self._result is None:
            raise ManyclError("nothing has run on this queue yet")
        return self._result()

    @property
    def trace(self) -> RunTrace:
        """The trace of the runs since a result was last asked for."""
        self._end_waited()
        if self._trace is None:
            from manycl.run.engine.merged_traces import joined, past_run  # what runs is imported with the first queue

            trace = self.result.trace
            if self._past:
                trace = joined([past_run(run()) for run in (*self._past, self._result) if run is not None])
            self._trace = showable(trace)
        return self._trace


Value = TypeVar("Value")
MOST_TIMES = 10**9
"""Repetitions of a graph, at most: even the shortest graph takes hours for so many (our own choice)."""


@dataclass(frozen=True, slots=True)
class Repetitions:
    """The result of :meth:`Prepared.repeat`: the seconds of every repetition, and whether the condition held."""

    seconds: tuple[float, ...]
    reached: bool

    @property
    def times(self) -> int:
        return len(self.seconds)


class PlanningQueue(ArrayQueue, Protocol):
    """The part of a queue that a prepared graph uses."""

    learners: Learners
    queues: Mapping[str, int]
    options: Mapping[str, str]

    @property
    def policy(self) -> str | Policy | Plan | None: ...
    @property
    def devices(self) -> tuple[str, ...]: ...
    def keep(self, run: Callable[[], Result], enqueued: Submission | None) -> Result: ...


@checked("__init__", "complete")
class Prepared:
    """A graph that runs again and again (``Queue.prepare``). Its first four runs are each planned (every one knows
    better how long kernels take); the fastest of these plans, ``plan``, is then kept. Where devices have memories of
    their own, three more plans are tried, ever later (:mod:`manycl.run.graph_cache.autotuner`). A policy that learns
    (``adaptive``) plans again when it has learned."""

    def __init__(self, queue: PlanningQueue) -> None:
        self.queue = queue
        self._graph: Graph | None = None
        self._arrays: dict[BufferKey, Array] = {}  # kept alive as long as the graph may run
        self._policy: str | Policy | Plan | None = None
        self._cached: CachedGraph | None = None
        self._enqueued: weakref.ref[Submission] | None = None  # lives as long as its events

    def complete(self, enqueued: Submission) -> None:
        """Make the graph of what was enqueued inside the block, which has ended. Raises PolicyError for the queue's
        policy, and LaunchError where it is not clear which contents are meant."""
        if any(array.buffer.key != key for key, array in enqueued.arrays.items()):
            raise LaunchError("an array has exchanged contents while a graph was being prepared that uses it")
        self._policy = self.queue.learners.find(self.queue.policy)
        self._arrays = enqueued.arrays
        self._graph = enqueued.batch().graph()
        self._enqueued = weakref.ref(enqueued)

    def __repr__(self) -> str:
        if self._graph is None:
            return "<manycl.Prepared, not complete>"
        return f"<manycl.Prepared of {len(self._graph)} nodes on {', '.join(self.queue.devices)}>"

    @property
    def graph(self) -> Graph:
        """The whole graph. Raises LaunchError while there is none."""
        if self._graph is None:
            raise LaunchError("the graph is not complete: its `with` block has not ended, or it has raised")
        return self._graph

    @property
    def arrays(self) -> Mapping[BufferKey, Array]:
        """The arrays that the graph uses, by the buffers that they had when it was enqueued."""
        return self._arrays

    @property
    def plan(self) -> Plan | None:
        """The plan that is kept; None until there is one."""
        return self._prepared.plan

    @property
    def _prepared(self) -> CachedGraph:
        from manycl.run.graph_cache.cached_graph import CachedGraph

        if self._cached is None:
            queue, graph = self.queue, self.graph
            self._cached = CachedGraph(queue.session, graph, self._policy, queues=queue.queues, options=queue.options)
        return self._cached

    def _run(self) -> Result:
        """Run on the buffers that the arrays have now: they may have exchanged them."""
        instead = {old: array.buffer.key for old, array in self._arrays.items() if array.buffer.key != old}
        if instead:
            instead = {old: new for old, new in instead.items() if old in self.graph.buffers}
            if set(instead.values()) != set(instead):
                raise LaunchError("an array of a prepared graph has exchanged contents with one that is not in it")
        return self._prepared.run(instead)

    def run(self) -> Result:
        """Run the graph on the arrays' present contents. What is enqueued on the queue, or on another one with these
        arrays, runs first. Raises what a run raises, and LaunchError while one of the arrays is mapped, or where a
        graph is being prepared."""
        if self._cached is not None:
            self._cached.expect_results()
        self.queue.finish()
        for array in self._arrays.values():
            if array.queue is not self.queue or array.buffer.key in self.queue.mapped:
                array.use(self.queue)
        enqueued = self._enqueued() if self._enqueued is not None else None
        return self.queue.keep(self._run, enqueued)

    def repeat(
        self,
        times: int,
        *,
        swap: Sequence[tuple[Array, Array]] = (),
        until: Callable[[], Any] | None = None,
        every: int = 1,
    ) -> Repetitions:
        """Run the graph ``times`` times, or until a condition holds. Data stay where they are. ``swap``: pairs of
        arrays that exchange their contents after each repetition (nothing is copied). ``until()`` is called after every
        ``every`` repetitions, and ends them when it is true; whatever arrays it asks for are brought to the host.
        Raises what :meth:`run` and :meth:`Array.exchange` raise."""
        if not 0 <= times <= MOST_TIMES or every < 1:
            raise LaunchError(f"a graph cannot be repeated {times} times, with a condition every {every}")
        seconds: list[float] = []
        for turn in range(1, times + 1):
            seconds.append(self.run().seconds)
            for a, b in swap:
                a.exchange(b)
            if until is not None and turn % every == 0 and until():
                return Repetitions(tuple(seconds), True)
        return Repetitions(tuple(seconds), False)


class CollectingQueue(WaitingQueue):
    """The part of a queue that collects what a thread enqueues, without running it."""

    __slots__ = ("_made",)  # compiled code reads it
    _made: dict[int, list[Array]]  # arrays that were made, for the threads that collect them

    @contextmanager
    def component(self) -> Iterator[None]:
        """Put the commands that are enqueued inside into one task component (PySchedCL): policies such as
        ``clustering`` keep it on one device."""
        self.settle()
        with self.lock:
            self._mine().open_component()
        try:
            yield
        finally:
            with self.lock:
                self._mine().close_component()

    def collected(self, enqueue: Callable[[], Any]) -> tuple[list[Node], Mapping[BufferKey, Array], list[Array]]:
        """Return what a function enqueues, without running it: the nodes, their arrays by their buffers, and the arrays
        that the function has made, without contents."""
        self.settle()
        thread, enqueued = threading.get_ident(), Submission(PREPARED)
        made: list[Array] = []
        preparing, making = self.preparing.get(thread), self._made.get(thread)
        self.preparing[thread], self._made[thread] = enqueued, made
        try:
            enqueue()
        finally:
            _restore(self.preparing, thread, preparing)
            _restore(self._made, thread, making)
        return list(enqueued.builder.nodes), enqueued.arrays, made

    def _mine(self) -> Submission:
        """Return the submission that the calling thread adds to."""
        return self.preparing.get(threading.get_ident(), self.enqueued)


def _restore(of_thread: dict[int, Value], thread: int, before: Value | None) -> None:
    """Set a thread's entry back to what it was before (None: there was none)."""
    if before is None:
        del of_thread[thread]
    else:
        of_thread[thread] = before
