"""Prepared graphs: collected once, run again and again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from manycl.api.arrays.array_queue import ArrayQueue
from manycl.api.arrays.arrays import Array
from manycl.api.submission import PREPARED, Submission
from manycl.api.waits import WaitingQueue
from manycl.errors import LaunchError
from manycl.graph.graph import BufferKey, Graph, Node
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.utilities.checked import checked

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.run.engine.result import Result
    from manycl.run.graph_cache.cached_graph import CachedGraph
    from manycl.run.graph_cache.learners import Learners

Value = TypeVar("Value")
MOST_TIMES = 10**9
"""Repetitions of a graph, at most: even the shortest graph takes hours for so many."""


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
