"""The queue: what is enqueued becomes a graph, which runs on all devices when a result is asked for."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from manycl import flags
from manycl.errors import DeviceError, LaunchError, ManyclError, ResultError
from manycl.front.arrays import AnyArray, Array, as_bytes, fits
from manycl.graph.copies import copy_task, fill_task, host_task, read_task, write_task
from manycl.graph.dependences import Batch, GraphBuilder
from manycl.graph.graph import BufferArg, CopyTask, FillTask, Graph, HostTask, Node
from manycl.graph.rename import renamed
from manycl.interrupts import Uninterrupted
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy, learns
from manycl.run.learners import Learners, told
from manycl.trace import Trace

if TYPE_CHECKING:  # what runs loads drivers: it is imported when a queue opens devices
    from manycl.run.prepared import PreparedGraph
    from manycl.run.result import Result
    from manycl.run.session import Profile, Session


class RunTrace(Trace):
    """A trace that can show itself."""

    def gantt(self, path: str | Path) -> None:
        """Write a Gantt chart: .html (self-contained), .png, .svg or .pdf."""
        from manycl.report.gantt import write_gantt

        write_gantt(self, path)

    def perfetto(self, path: str | Path) -> None:
        """Write a file for ui.perfetto.dev or chrome://tracing."""
        from manycl.report.perfetto import write_perfetto

        write_perfetto(self, path)

    def summary(self) -> str:
        """Makespan, busy share per device, bytes per link, longest path."""
        from manycl.report.summary import summarise

        return summarise(self).text()


class Event:
    """What enqueueing returns: a node of the graph. ``wait`` runs everything that is enqueued."""

    __slots__ = ("batch", "node", "queue")

    def __init__(self, queue: Queue, batch: int, node: int) -> None:
        self.queue = queue
        self.batch = batch
        self.node = node

    def wait(self) -> None:
        if self.batch == self.queue.batch:
            self.queue.finish()


class ReadEvent(Event):
    """A read (``Queue.read``): ``out`` has the contents when it is complete."""

    __slots__ = ("out",)

    def __init__(self, queue: Queue, batch: int, node: int, out: AnyArray) -> None:
        super().__init__(queue, batch, node)
        self.out = out


class Queue:
    """One in-order view of all devices: launches behave as if they ran one after another, in the order of the calls.

    ``devices``: the syntax of ``--devices`` (default: MANYCL_DEVICES, else all); ``policy``: a name, a policy object or
    a plan (default: MANYCL_POLICY, else ``auto``); ``queues``: command queues per device name or kind; ``options``: the
    policy's. ``session`` shares the devices and arrays of another queue, which closes them. ``profile=False`` gives up
    kernel times in traces for less overhead per kernel and transfer (GPUs); ``"learning"`` does so only for the
    repetitions of prepared graphs whose plan is kept.

    Several threads may use one queue, as they may one of OpenCL's: each of their calls is one step, so a thread's own
    launches stay in its order, and a thread that asks for a result waits for a run that another one has begun. What
    lies between several calls (``component``, an array that another thread changes) is for the threads to agree upon.
    """

    def __init__(
        self,
        devices: str | Sequence[str] | None = None,
        *,
        policy: str | Policy | Plan | None = None,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, Any] | None = None,
        session: Session | None = None,
        profile: Profile = True,
    ) -> None:
        self.learners = Learners()
        self.options = {k: str(v) for k, v in (options or {}).items()}
        self.learners.find(policy, self.options)  # what there is not is told here, before devices are opened
        own = session is None
        with Uninterrupted():  # they import drivers
            from manycl.run.recurring import Recurring
            from manycl.run.session import Session

        if session is None:
            session = Session(devices, profile=profile)
        self._owns_session = own
        self.session = session
        self.policy = policy
        self.queues = dict(queues or {})
        self.hold: dict[int, Array] = {}  # arrays that enqueued nodes use
        self.mapped: set[int] = set()
        self.batch = 0
        self._recurring = Recurring(self.session)
        self._builder = GraphBuilder()
        self._component: int | None = None
        self._inside = 0  # the thread whose component it is
        self._components: list[list[int]] = []
        self._result: Result | None = None
        self._trace: RunTrace | None = None
        self._lock = threading.RLock()  # of what is enqueued
        self._running = threading.RLock()  # held by the thread whose run it is

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Give the devices back, unless they are another queue's (``session``); what is enqueued does not run."""
        with self._lock:
            self.take()
            self.hold = {}
        if self._owns_session:
            self.session.close()

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices."""
        return tuple(d.name for d in self.session.machine.devices)

    @property
    def excluded(self) -> dict[str, str]:
        """Devices that have failed for good and are left out, and what was wrong with each."""
        return dict(self.session.excluded)

    def admit(self, name: str) -> None:
        """Use a device again that was left out. Raises DeviceError if it still does not work."""
        self.session.admit(name)

    # arrays

    def array(self, contents: npt.ArrayLike, *, copy: bool = True, name: str = "") -> Array:
        """An array with the contents, shape and type of a NumPy array (or anything that becomes one).

        With ``copy=False`` the memory of ``contents`` is read in place when a device needs it: do not change it until
        the array has got other contents. It is never written to.
        """
        data: AnyArray = np.asarray(contents, order="C")
        array = Array(self, data.shape, data.dtype, name)
        if copy:
            from manycl.run.backends.memory import copy_bytes

            copy_bytes(self.session.buffers.overwrite(array.buffer.key), as_bytes(data))
        else:
            self.session.buffers.borrow(array.buffer.key, as_bytes(data))
        return array

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, name: str = "") -> Array:
        """An array with undefined contents: for results; costs no transfer."""
        return Array(self, _shape(shape), np.dtype(dtype), name)

    def zeros(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, name: str = "") -> Array:
        """An array of zeros."""
        array = Array(self, _shape(shape), np.dtype(dtype), name)
        self.session.buffers.overwrite(array.buffer.key).fill(0)
        return array

    # enqueueing

    def add(self, node: Node, wait_for: Sequence[Event] | None = None, arrays: Sequence[Array] = ()) -> Event:
        """Append a node that uses some arrays (kernels and ``call`` do this). Raises DeviceError where the session is
        closed."""
        if self.session.closed:
            raise DeviceError("the session is closed: nothing can be enqueued", hint="make a new Queue")
        if wait_for:
            for event in wait_for:
                if event.queue is not self:
                    event.wait()  # graphs of different queues know nothing of one another
        while True:
            with self._lock:
                hold = self.hold
                for array in arrays:
                    if array.queue is not self:
                        break
                    hold[array.buffer.key] = array
                else:
                    after = [e.node for e in wait_for if e.queue is self and e.batch == self.batch] if wait_for else ()
                    index = self._builder.add(node, after)
                    if self._component is not None and self._inside == threading.get_ident():
                        self._components[self._component].append(index)
                    return Event(self, self.batch, index)
            for array in arrays:  # another thread has used it elsewhere
                array.use(self)

    def give(self, array: Array, queue: Queue) -> bool:
        """An array is another queue's from now on; not while what is enqueued here uses it."""
        with self._lock:
            free = array.buffer.key not in self.hold
            if free and array.queue is self:
                array.queue = queue
        return free

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        writes: Sequence[Array] | None = None,
        rank: float | None = None,
        name: str = "",
        wait_for: Sequence[Event] | None = None,
    ) -> Event:
        """Enqueue a host function: called as ``function(*args)`` when its turn comes, arrays as NumPy arrays in place.

        Arrays named in ``writes`` may be changed, the others are read-only; without ``writes`` every array counts as
        read and written. The return value is ignored.
        """
        task_name = name or getattr(function, "__name__", "host function")
        given = [a for a in args if isinstance(a, Array)]
        arrays = {a.buffer.key: a.owner for a in given}
        written = {a.argument for a in (given if writes is None else writes)}
        if not written <= {a.argument for a in given}:
            raise LaunchError(f"{task_name}: an array in writes is not among the arguments")
        for array in arrays.values():
            self._use(array, task_name)
        shapes = [(a.shape, a.dtype, a.argument) if isinstance(a, Array) else None for a in args]

        def called(*values: Any) -> None:
            function(*(_view(v, s, written) if s else v for v, s in zip(values, shapes, strict=True)))

        task = HostTask(
            task_name,
            called,
            tuple(a.argument if isinstance(a, Array) else a for a in args),
            tuple(arrays),
            tuple(dict.fromkeys(a.key for a in written)),
            rank,
        )
        return self.add(task, wait_for, list(arrays.values()))

    def copy(
        self,
        target: Array,
        source: Array,
        *,
        byte_count: int | None = None,
        src_offset: int = 0,
        dst_offset: int = 0,
        name: str = "copy",
        wait_for: Sequence[Event] | None = None,
    ) -> Event:
        """Enqueue a copy from an array to another one, by no kernel, on whatever device suits (PyOpenCL's
        ``enqueue_copy`` of two buffers). Sizes and offsets are in bytes; without ``byte_count`` all that is behind the
        offsets is copied, of which both must have equally much. Within one array source and target may not overlap.
        Raises LaunchError for what does not fit."""
        for array in (target, source):
            self._use(array, name)
        nbytes = None if byte_count is None else operator.index(byte_count)
        to, of = operator.index(dst_offset), operator.index(src_offset)
        task = copy_task(target.place, source.place, nbytes, target_offset=to, source_offset=of, name=name)
        return self._moved(task, wait_for, (target.owner, source.owner))

    def read(
        self,
        array: Array,
        out: AnyArray | None = None,
        *,
        name: str = "read",
        wait_for: Sequence[Event] | None = None,
    ) -> ReadEvent:
        """Enqueue a copy of an array's contents to the host (clEnqueueReadBuffer, not blocking): to ``out``, a
        C-contiguous NumPy array of its shape and type (else ResultError), or to a new one, the event's ``out``. They
        are there when the run that the event is part of is complete; each run of a prepared graph reads anew, into the
        same memory. ``Array.get`` runs what is enqueued instead and reads then."""
        self._use(array, name)
        if out is None:
            out = np.empty(array.shape, array.dtype)
        array.check_out(out)
        if not out.flags.writeable:
            raise ResultError(f"{name}: out is read-only")
        event = self.add(read_task(array.argument, as_bytes(out), name), wait_for, (array.owner,))
        return ReadEvent(event.queue, event.batch, event.node, out)

    def write(
        self,
        array: Array,
        contents: npt.ArrayLike,
        *,
        copy: bool = True,
        name: str = "write",
        wait_for: Sequence[Event] | None = None,
    ) -> Event:
        """Enqueue new contents of an array (clEnqueueWriteBuffer, not blocking), of its shape, and of a type that fits
        (as for ``Array.set``, else ResultError). They are what ``contents`` has now. With ``copy=False`` they are
        what it has when the turn of the write comes, in each run of a prepared graph: its memory (same type,
        C-contiguous) is not to be changed meanwhile. ``Array.set`` runs what is enqueued first and writes at once."""
        self._use(array, name)
        data = array.checked(contents, copy=copy)
        if copy:
            data = np.array(data, array.dtype, order="C")
        return self.add(write_task(array.argument, as_bytes(data), name), wait_for, (array.owner,))

    def fill(
        self,
        array: Array,
        value: npt.ArrayLike,
        *,
        offset: int = 0,
        size: int | None = None,
        name: str = "fill",
        wait_for: Sequence[Event] | None = None,
    ) -> Event:
        """Enqueue the filling of an array with a value of its type (as for ``Array.set``), by no kernel, on whatever
        device suits (PyOpenCL's ``enqueue_fill_buffer``): of ``size`` bytes from byte ``offset`` on, both multiples of
        the type's; without ``size`` all that is behind the offset. Raises LaunchError for what does not fit, and for
        types of a size that OpenCL has no patterns of (1, 2, 4, … 128 bytes)."""
        self._use(array, name)
        pattern = np.asarray(value)
        if pattern.shape or not fits(pattern, array.dtype):
            raise LaunchError(f"{name}: {value!r} is no value of an array of {array.dtype}")
        pattern = pattern.astype(array.dtype)
        nbytes = None if size is None else operator.index(size)
        task = fill_task(array.place, pattern.tobytes(), nbytes, target_offset=operator.index(offset), name=name)
        return self._moved(task, wait_for, (array.owner,))

    def _moved(self, task: CopyTask | FillTask, wait_for: Sequence[Event] | None, arrays: tuple[Array, ...]) -> Event:
        """Enqueue a copy or fill; the host makes what no device has room for, as a whole: it knows no ranges."""
        sizes = [buffer.nbytes for buffer in {array.buffer.key: array.buffer for array in arrays}.values()]
        able = any(device.holds(sizes) for device in self.session.machine.devices)
        return self.add(task if able else host_task(task), wait_for, arrays)

    def _use(self, array: object, name: str) -> None:
        """An array is about to be enqueued by something of a name."""
        if not isinstance(array, Array):
            hint = "Array.set and Array.get copy from and to NumPy's arrays"
            raise LaunchError(f"{name}: {type(array).__name__} is no array of a queue", hint=hint)
        try:
            array.use(self)
        except LaunchError as error:
            raise LaunchError(f"{name}: {error.message}") from None

    @contextmanager
    def component(self) -> Iterator[None]:
        """What is enqueued inside belongs to one task component (PySchedCL): policies such as ``clustering`` keep it on
        one device."""
        with self._lock:
            if self._component is not None:
                raise LaunchError("task components do not nest")
            self._inside = threading.get_ident()
            self._component = len(self._components)
            self._components.append([])
        try:
            yield
        finally:
            self._component = None

    # running

    def __len__(self) -> int:
        """How many nodes are enqueued and have not run."""
        return len(self._builder)

    def finish(self) -> None:
        """Run everything that is enqueued and wait for it. Raises what went wrong (RunError tells where)."""
        self.session.refuse_host_functions()  # the run that they are part of would be waited for
        with self._running:
            with self._lock:
                if not len(self._builder):
                    return
                hold = self.hold  # arrays that only enqueued nodes still refer to must live until those have run
                batch = self._taken()
                self.hold = {}
            policy = self.learners.find(self.policy)

            def run() -> Result:
                if policy is None or isinstance(policy, str):
                    return self._recurring.run(batch, policy or flags.policy(), self.queues, self.options)
                result = self.session.run(batch.graph(), policy, queues=self.queues, options=self.options)
                return told(policy, result) if learns(policy) else result

            self.keep(run)
            hold.clear()

    def prepare(self) -> Prepared:
        """Take what is enqueued as a graph that can be run again and again, without planning it anew."""
        with self._lock:
            hold = self.hold
            graph = self.take()
            self.hold = {}
        return Prepared(self, graph, hold)

    def take(self) -> Graph:
        """The graph of what is enqueued; the queue is empty afterwards (``hold`` stays the caller's business)."""
        return self._taken().graph()

    def _taken(self) -> Batch:
        with self._lock:
            builder, self._builder = self._builder, GraphBuilder()
            for array in self.hold.values():
                builder.adopt(array.buffer)
            components: tuple[tuple[int, ...], ...] = ()
            if self._components:
                inside = {n for c in self._components for n in c}
                rest = [(n,) for n in range(len(builder)) if n not in inside]
                components = (*(tuple(c) for c in self._components if c), *rest) if inside else ()
            # the rest of a component that a result was asked for in is a component of the next graph
            self._components = [] if self._component is None else [[]]
            self._component = None if self._component is None else 0
            self.batch += 1
            return builder.batch(components)

    def keep(self, run: Callable[[], Result]) -> Result:
        """Do a run and make it the last one, also when it fails (its trace shows how far it came)."""
        with self._running:
            self._result = self._trace = None
            try:
                self._result = run()
            except ManyclError as failure:
                from manycl.run.engine import RunFailure  # what runs is imported with the first queue

                if isinstance(failure, RunFailure):
                    self._trace = _showable(failure.trace)
                raise
            return self._result

    @property
    def result(self) -> Result:
        """The last run: its seconds, plan and record."""
        if self._result is None:
            raise ManyclError("nothing has run on this queue yet")
        return self._result

    @property
    def trace(self) -> RunTrace:
        """The last run's trace."""
        if self._trace is None:
            self._trace = _showable(self.result.trace)
        return self._trace


@dataclass(frozen=True, slots=True)
class Repetitions:
    """What :meth:`Prepared.repeat` did: the seconds of every repetition, and whether the condition held at the end."""

    seconds: tuple[float, ...]
    reached: bool

    @property
    def times(self) -> int:
        return len(self.seconds)


class Prepared:
    """A graph that runs again and again. Its first four runs are each planned (every one knows better how long kernels
    take); the fastest of these plans, ``plan``, is then kept, and where devices have memories of their own it is
    thought over three times more, ever later (:mod:`manycl.run.trials`). A policy that learns (``adaptive``) plans
    again when it has."""

    def __init__(self, queue: Queue, graph: Graph, arrays: dict[int, Array]) -> None:
        self.queue = queue
        self.graph = graph
        self._arrays = arrays  # kept alive as long as the graph may run
        self._policy = queue.learners.find(queue.policy)
        self._arranged: dict[tuple[int, ...], PreparedGraph] = {}

    @property
    def plan(self) -> Plan | None:
        """The plan that is kept; None until there is one."""
        return self._prepared.plan

    @property
    def _prepared(self) -> PreparedGraph:
        """The graph on the buffers that the arrays have now: they may have exchanged them."""
        from manycl.run.prepared import PreparedGraph

        now = tuple(array.buffer.key for array in self._arrays.values())
        if now not in self._arranged:
            moved = {old: new for old, new in zip(self._arrays, now, strict=True) if old != new}
            graph = self.graph
            if moved:
                inside = {old: new for old, new in moved.items() if old in graph.buffers}
                if set(inside.values()) != set(inside):
                    raise LaunchError("an array of a prepared graph has exchanged contents with one that is not in it")
                graph = renamed(graph, inside)
            queue = self.queue
            self._arranged[now] = PreparedGraph(
                queue.session, graph, self._policy, queues=queue.queues, options=queue.options
            )
        return self._arranged[now]

    def run(self) -> Result:
        """Run the graph on the arrays' present contents. What is enqueued on the queue, or on another one with these
        arrays, runs first. Raises what a run raises, and LaunchError while one of the arrays is mapped."""
        self.queue.finish()
        for array in self._arrays.values():
            if array.queue is not self.queue or array.buffer.key in self.queue.mapped:
                array.use(self.queue)
        return self.queue.keep(lambda: self._prepared.run())

    def repeat(
        self,
        times: int,
        *,
        swap: Sequence[tuple[Array, Array]] = (),
        until: Callable[[], Any] | None = None,
        every: int = 1,
    ) -> Repetitions:
        """Run the graph ``times`` times, or until a condition holds. Data stay where they are.

        ``swap``: pairs of arrays that exchange their contents after each repetition (nothing is copied).
        ``until()`` is called after every ``every`` repetitions, and ends them when it is true; whatever arrays it asks
        for are brought to the host. Raises what :meth:`run` and :meth:`Array.exchange` raise.
        """
        if times < 0 or every < 1:
            raise LaunchError(f"a graph cannot be repeated {times} times, with a condition every {every}")
        seconds: list[float] = []
        for turn in range(1, times + 1):
            seconds.append(self.run().seconds)
            for a, b in swap:
                a.exchange(b)
            if until is not None and turn % every == 0 and until():
                return Repetitions(tuple(seconds), True)
        return Repetitions(tuple(seconds), False)


def _showable(trace: Trace) -> RunTrace:
    return RunTrace(**{f.name: getattr(trace, f.name) for f in fields(trace)})


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(operator.index(s) for s in shape)


def _view(data: npt.NDArray[np.uint8], what: tuple[Any, Any, BufferArg], written: Collection[BufferArg]) -> AnyArray:
    shape, dtype, argument = what
    view: AnyArray = data.view(dtype).reshape(shape)
    if argument not in written:
        view.flags.writeable = False
    return view
