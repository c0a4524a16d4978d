"""The queue: what is enqueued becomes a graph, which runs on all devices when a result is asked for."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from manycl.api.arrays.arrays import Array, Extents, size_of
from manycl.api.arrays.host_arrays import AnyArray, as_array, as_bytes, fits, view_of
from manycl.api.arrays.interchange import are_chunks, from_others
from manycl.api.events import Event, MoveEvent, ReadEvent
from manycl.api.prepared import CollectingQueue, Prepared
from manycl.api.recording import Recording
from manycl.api.submission import PREPARED, Submission
from manycl.cluster.dask_client import DaskClient
from manycl.errors import DeviceError, LaunchError, ManyclError, ResultError
from manycl.graph.copies import copy_task, fill_task, host_task, read_task, write_task
from manycl.graph.graph import CopyTask, FillTask, HostTask, Node
from manycl.machine import known_counts
from manycl.plan.merging import Merging
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy
from manycl.run.graph_cache.learners import Learners
from manycl.run.recovery.device_events import DeviceComes, DeviceLeaves, DeviceSlows, How
from manycl.utilities.checked import checked
from manycl.utilities.interrupts import Uninterrupted, uncollected
from manycl.utilities.kept import FEW

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.api.arrays.array_queue import ArrayQueue
    from manycl.api.dispatch.copy_cache import MoveKey
    from manycl.api.program import Kernel
    from manycl.api.versions.check import CheckedVersion
    from manycl.run.session.session import Session

Value = TypeVar("Value")


@checked("add", "empty", "give", "move", "uses")
class Queue(CollectingQueue):
    """One in-order view of all devices: launches behave as if they ran one after another, in the order of the calls.

    ``devices``: the syntax of ``--devices`` (default: MANYCL_DEVICES, else all), or a client of a Dask
    cluster, whose workers are the devices then (docs/clusters.md); ``policy``: a name, a policy object or
    a plan (default: MANYCL_POLICY, else ``auto``); ``queues``: command queues per device name or kind; ``options``: the
    policy's. ``session`` shares the devices and arrays of another queue, which closes them. ``profile=False`` gives up
    kernel times in traces for less overhead per kernel and transfer (GPUs); ``"learning"`` does so only for
    repetitions that nobody learns from any more, as is done by default where there are GPUs: with ``True``, traces of
    these have all kernels, too. ``serve``: the devices are those of ``manycl serve`` (default: if MANYCL_SERVE is 1).
    ``merging``: when what parts of a divided launch write goes to the host, ``"each"`` as it has ended or ``"last"``,
    when somebody needs it (default: MANYCL_MERGING, else by itself; docs/splitting.md). ``as_planned``: a plan
    runs as a static policy has made it, or as it is given; by default ranges are cut further where it hides transfers.
    ``checkpoint``: after how many runs contents are copied, in case that a device is lost (docs/clusters.md).

    Several threads may use one queue, as they may one of OpenCL's: each of their calls is one step, so a thread's own
    launches stay in its order, and a thread that asks for a result waits for a run that another one has begun. What
    lies between several calls (``component``, an array that another thread changes) is for the threads to agree upon.
    """

    __slots__ = ("_buffers", "_extents")  # beside those of the classes that it is made of

    @uncollected()
    def __init__(  # noqa: PLR0913 (all that can be said of a queue)
        self,
        devices: str | Sequence[str] | DaskClient | None = None,
        *,
        policy: str | Policy | Plan | None = None,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, Any] | None = None,
        session: Session | None = None,
        profile: bool | Literal["learning"] | None = None,
        serve: bool | None = None,
        merging: Merging | None = None,
        as_planned: bool | None = None,
        checkpoint: int | None = None,
    ) -> None:
        learners, settings = Learners(), {k: str(v) for k, v in (options or {}).items()}
        learners.find(policy, settings)  # a policy that does not exist is refused before devices are opened
        self._owns_session = session is None
        if session is None:
            with Uninterrupted():  # it imports drivers
                from manycl.run.session.session import Session
            found: Any = devices
            if isinstance(devices, DaskClient):
                from manycl.api.node import workers

                found = workers(devices, Queue)
            session = Session(
                found, profile=profile, serve=serve, merging=merging, as_planned=bool(as_planned), checkpoint=checkpoint
            )
        else:
            for word, value in (("merging", merging), ("as_planned", as_planned), ("checkpoint", checkpoint)):
                if value is not None and value != (there := getattr(session.data, word)):
                    raise DeviceError(f"{word}={value!r}", hint=f"the session that is given has {there!r}")
        super().__init__(session, policy, learners, dict(known_counts(session.machine, queues or {})), settings)
        with Uninterrupted():
            from manycl.api.dispatch import compiled, copy_cache, launch_cache

            compiled.seek()
        self._made = {}
        self._extents: dict[int, Extents] = {}  # by the identity of the shape
        self._buffers = session.buffers
        self.remember, self.use_log = launch_cache.remember, compiled.use_log
        self.moved_again, self._remember_move = copy_cache.again, copy_cache.remember

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self.close()

    def close(self) -> None:
        """Close the devices, unless they belong to another queue (``session``). Commands that were enqueued and not
        given to a device yet do not run. Callbacks are waited for."""
        with suppress(ManyclError):  # there is nobody left to tell
            self._leave()
        self.background.close()
        if self._owns_session:
            self.session.close()

    def __repr__(self) -> str:
        policy = self.policy or self._default
        name = (
            policy if isinstance(policy, str) else policy.policy if isinstance(policy, Plan) else type(policy).__name__
        )
        state = "closed" if self.session.closed else f"enqueued: {len(self)}"
        left = f", left out: {', '.join(self.excluded)}" if self.excluded else ""
        return f"<manycl.Queue on {', '.join(self.devices)} by {name}, {state}{left}>"

    def _repr_html_(self) -> str:
        from manycl.report.notebook import devices  # only notebooks need it

        return devices(repr(self), self.session.machine, self.excluded)

    def admit(self, name: str) -> None:
        """Use a device again that was left out. Raises DeviceError if it still does not work."""
        self.session.admit(name)

    def leave(self, device: str, how: How = "drain", *, returns: bool = False) -> None:
        """Give a device (its name, or that of the device that it is a part of) no more commands until ``come``; the
        other devices take over. Commands that it has been given end there. Data that only its memory holds are brought
        to the host. Returns at once, from any thread: ``device_events.wait_until_free(device)`` waits until the device
        has nothing to do any more. ``returns``: ``come`` will be called, so commands that no other device can run wait
        for that; else such a call is refused (DeviceError). Raises DeviceError for a device that there is not."""
        self.session.devices.events.put(DeviceLeaves(device, how, returns))

    def come(self, device: str) -> None:
        """Use a device again that has left. Raises DeviceError for one that there is not."""
        self.session.devices.events.put(DeviceComes(device))

    def slow(self, device: str, factor: float) -> None:
        """Count on a device (its name, or that of the device that it is a part of) taking ``factor`` times as long for
        kernels as was measured, until the next call (1: as long as measured). Launches are divided accordingly, and the
        rest of a run that is under way is planned anew where that pays. Returns at once, from any thread. Raises
        DeviceError for a device that there is not, or a factor that is not positive."""
        self.session.devices.events.put(DeviceSlows(device, factor))

    # arrays

    @property
    def operations(self) -> Any:
        """The operations on arrays that are kernels (:mod:`manycl.api.arrays.arithmetic`), imported with the first."""
        from manycl.api.arrays import arithmetic

        return arithmetic

    def array(self, contents: npt.ArrayLike, *, copy: bool = True, name: str = "") -> Array:
        """Return an array with the contents, shape and type of a NumPy array, or of anything that becomes one or
        exports DLPack from the host's memory. Chunks of Dask's arrays stay on their workers (docs/clusters.md). With
        ``copy=False`` the memory of ``contents`` is read in place when a device needs it: do not change it until the
        array has got other contents. It is never written to."""
        if are_chunks(contents) and any(device.kind == "node" for device in self.session.machine.devices):
            from manycl.api.node import of_chunks

            return of_chunks(self, contents, name)
        data = from_others(contents)
        array = Array(self, data.shape, data.dtype, name, copy)
        buffers = self.session.buffers
        if copy:
            buffers.copy_in(array.buffer.key, as_bytes(data), self.first_reads)
        else:
            buffers.borrow(array.buffer.key, as_bytes(data))
        return array

    def from_dlpack(self, producer: Any, *, copy: bool = True, name: str = "") -> Array:
        """Return an array with the contents of an object that exports DLPack from the host's memory (an array of
        PyTorch's, JAX's, …); ``copy`` as of ``array``. Raises ResultError for contents elsewhere, or of a type that
        NumPy lacks."""
        try:
            data = np.from_dlpack(producer)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ResultError(f"{type(producer).__name__} gives no contents by DLPack: {error}") from None
        return self.array(data, copy=copy, name=name)

    def empty(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, name: str = "") -> Array:
        """Return an array with undefined contents: for results; costs no transfer."""
        extents = self._extents.get(id(shape))
        if extents is None or extents[0] is not shape or extents[1] is not dtype or name.__class__ is not str:
            extents = self._look_at(shape, dtype, name)
        array = Array.new(self, extents, name)
        if self._made and (made := self._made.get(threading.get_ident())) is not None:
            made.append(array)
        return array

    @checked()
    def _look_at(self, shape: int | Sequence[int], dtype: npt.DTypeLike, name: str) -> Extents:
        """Return what a shape and a type are, and remember it if they cannot change."""
        wanted, of = _shape(shape), np.dtype(dtype)
        extents = shape, dtype, wanted, of, size_of(wanted, of)
        is_fixed = type(shape) is int or (type(shape) is tuple and all(type(extent) is int for extent in shape))
        if is_fixed and isinstance(dtype, (type, np.dtype, str)):
            if len(self._extents) >= FEW:
                self._extents.clear()
            self._extents[id(shape)] = extents
        return extents

    def zeros(self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.float32, *, name: str = "") -> Array:
        """Return an array of zeros."""
        from manycl.run.data.host_memory import clear_bytes  # run/ is imported when a queue opens devices

        array = Array(self, _shape(shape), np.dtype(dtype), name, True)
        clear_bytes(self.session.buffers.overwrite(array.buffer.key))
        return array

    # enqueueing

    def add(self, node: Node, wait_for: Sequence[Event] | None = None, arrays: Sequence[Array] = ()) -> Event:
        """Append a node that uses some arrays (kernels and ``call`` do this). Raises DeviceError if it is closed."""
        if self.session.devices.closed:
            raise DeviceError("the session is closed: nothing can be enqueued", hint="make a new Queue")
        if wait_for:
            for event in wait_for:
                if event.queue is not self:
                    event.wait()  # graphs of different queues have no common order
        while True:
            with self.lock:
                for array in arrays:
                    if array.queue is not self:
                        break
                else:
                    enqueued = self._mine() if self.preparing else self.enqueued
                    if enqueued.stream is not None and enqueued.stream.is_spent:
                        enqueued = self.renew()
                    after = [e.node for e in wait_for if e.enqueued is enqueued] if wait_for else ()
                    return Event(self, enqueued, enqueued.add(self, node, after, arrays))
            for array in arrays:  # another thread has used it elsewhere
                array.use(self)

    @property
    def last(self) -> Event | None:
        """The event of the last command that was enqueued: it has ended when all before it have. None where nothing is
        left to wait for."""
        with self.lock:
            for enqueued in (self.enqueued, *reversed(self._taken)):
                if len(enqueued) and not enqueued.is_waited:
                    moved = enqueued.moving
                    node = len(enqueued) - 1
                    return Event(self, enqueued, node) if moved is None else MoveEvent(self, enqueued, node, moved)
        return None

    def uses(self, array: Array) -> bool:
        """Return True if a command that is enqueued, and not known to have run, uses an array (graphs that are being
        prepared ask for their arrays when they run)."""
        with self.lock:
            return any(enqueued.uses(array.buffer.key) for enqueued in (*self._taken, self.enqueued))

    def give(self, array: Array, queue: ArrayQueue) -> bool:
        """Hand an array over to another queue, unless a command that is enqueued here uses it; return whether that was
        done."""
        with self.lock:
            free = not self.uses(array)
            if free and array.queue is self:
                array.queue = queue
        return free

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        writes: Sequence[Array] | None = None,
        overwrites: Sequence[Array] | None = None,
        rank: float | None = None,
        name: str = "",
        wait_for: Sequence[Event] | None = None,
    ) -> Event:
        """Enqueue a host function: called as ``function(*args)`` when its turn comes, arrays as NumPy arrays in place.
        Arrays named in ``writes`` may be changed; of those in ``overwrites`` all elements are written and none is
        looked at, so that it does not matter what they have before; the others are read-only. Without either, every
        array counts as read and written. The return value is ignored."""
        task_name = name or getattr(function, "__name__", "host function")
        given = [a for a in args if isinstance(a, Array)]
        arrays = {a.buffer.key: a.owner for a in given}
        whole = {a.argument for a in overwrites or ()}
        changed = given if writes is None and overwrites is None else (*(writes or ()), *(overwrites or ()))
        written = {a.argument for a in changed}
        if not written <= {a.argument for a in given}:
            raise LaunchError(f"{task_name}: an array in writes or overwrites is not among the arguments")
        for array in arrays.values():
            self._use(array, task_name)
        reads = tuple(dict.fromkeys(a.buffer.key for a in given if a.argument not in whole))
        shapes = [(a.shape, a.dtype, a.argument) if isinstance(a, Array) else None for a in args]

        def called(*values: Any) -> None:
            function(*(view_of(v, s, written) if s else v for v, s in zip(values, shapes, strict=True)))

        task = HostTask(
            task_name,
            called,
            tuple(a.argument if isinstance(a, Array) else a for a in args),
            reads,
            tuple(dict.fromkeys(a.key for a in written)),
            rank,
            tuple(key for key in arrays if key not in reads),
        )
        return self.add(task, wait_for, list(arrays.values()))

    def check_versions(
        self,
        kernel: Kernel,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        *args: Any,
        rtol: float = 0.0,
        atol: float = 0.0,
        global_offset: Sequence[int] | None = None,
    ) -> list[CheckedVersion]:
        """Check that all versions of a kernel leave what it leaves itself, when it is called like this: on each device
        that can run them, as a whole and each half of the work-groups alone. Commands that are enqueued run first; the
        arrays stay as they are, the versions work on copies. Elements that the kernel writes may differ by a tolerance
        (as for ``numpy.isclose``; by default by no bit), all other bytes by none. Returns what was checked; raises
        VersionError for the first version that does something else, and what a run raises."""
        from manycl.api.versions.check import Tolerance, check_versions  # only tests of programs need it

        self.finish()
        with self.prepare() as prepared:
            kernel(self, global_size, local_size, *args, global_offset=global_offset)
        return check_versions(self, prepared.graph, prepared.arrays, Tolerance(rtol, atol))

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
        ``enqueue_copy`` of two buffers). Sizes and offsets are in bytes; without ``byte_count`` all bytes behind the
        offsets are copied, of which both arrays must have equally many. Within one array source and target may not
        overlap. Raises LaunchError for sizes and offsets that do not fit."""
        for array in (target, source):
            self._use(array, name)
        nbytes = None if byte_count is None else int(byte_count)
        to, of = int(dst_offset), int(src_offset)
        task = copy_task(target.place, source.place, nbytes, target_offset=to, source_offset=of, name=name)
        return self.move(task, wait_for, (target.owner, source.owner))

    def read(
        self, array: Array, out: AnyArray | None = None, *, name: str = "read", wait_for: Sequence[Event] | None = None
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
        return ReadEvent(event.queue, event.enqueued, event.node, out)

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
        return self.add(write_task(array.argument, as_bytes(data), name, copy), wait_for, (array.owner,))

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
        the type's; without ``size`` all bytes behind the offset. Raises LaunchError for sizes, offsets and values that
        do not fit, and for types of a size that OpenCL has no patterns of (1, 2, 4, … 128 bytes)."""
        self._use(array, name)
        pattern = as_array(value)
        if pattern.shape or not fits(pattern, array.dtype):
            raise LaunchError(f"{name}: {value!r} is no value of an array of {array.dtype}")
        pattern = pattern.astype(array.dtype)
        nbytes = None if size is None else int(size)
        task = fill_task(array.place, pattern.tobytes(), nbytes, target_offset=int(offset), name=name)
        return self.move(task, wait_for, (array.owner,))

    def move(self, task: CopyTask | FillTask, wait_for: Sequence[Event] | None, arrays: tuple[Array, ...]) -> Event:
        """Enqueue a copy or fill (:mod:`manycl.graph.copies` makes them) of some arrays of this queue. One that no
        device has room for is done by the host, as a whole: it is not divided into ranges."""
        key = _key(task)
        found = self.moved_again(self, key, arrays) if not wait_for else None
        if found is not None:
            return found
        sizes = [buffer.nbytes for buffer in {array.buffer.key: array.buffer for array in arrays}.values()]
        able = any(device.holds(sizes) for device in self.session.machine.devices)
        event = self.add(task if able else host_task(task), wait_for, arrays)
        if able and not wait_for:
            self._remember_move(self, key, task)
        return event

    def _use(self, array: Array, name: str) -> None:
        """Have an array used on this queue by a command of some name, which errors mention."""
        try:
            array.use(self)
        except LaunchError as error:
            raise LaunchError(f"{name}: {error.message}") from None

    @contextmanager
    def prepare(self) -> Iterator[Prepared]:
        """Collect the commands that the calling thread enqueues inside, which do not run: they become a graph that can
        be run again and again, without being planned anew::

            with queue.prepare() as graph:
                kernel(queue, ...)
            graph.run()

        What was enqueued before stays enqueued, and other threads enqueue as always. Results of this queue can be asked
        for when the block has ended (else LaunchError), and blocks do not nest (LaunchError). If the block raises, what
        was enqueued inside is dropped. The graph runs by the policy that the queue has at the end of the block.

        Nodes of the block wait for events of the block. Other events of this queue are nothing to wait for there, as
        the graph runs after what is enqueued by then; nor are the block's elsewhere.
        """
        thread, enqueued, prepared = threading.get_ident(), Submission(PREPARED), Prepared(self)
        if thread in self.preparing:
            raise LaunchError("a graph is being prepared: what is prepared does not nest")
        try:
            self.preparing[thread] = enqueued
            yield prepared
        finally:
            self.preparing.pop(thread, None)
        prepared.complete(enqueued)

    @contextmanager
    def report(self, path: str | Path) -> Iterator[Recording]:
        """Write all runs of the commands that are enqueued inside to one file, when the block ends, which runs what is
        left::

            with queue.report("run.html"):
                ...

        Kinds of files: as of ``mc.trace_all``, which does that for the runs of all queues. What was enqueued before
        runs first. If the block raises, the file has what has run."""
        self.finish()
        with Recording(path, self) as recording:
            yield recording
            self.finish()


def _key(task: CopyTask | FillTask) -> MoveKey:
    """Return the key of a copy or fill in the copy cache."""
    of, begin = (task.args[1].key, task.source_offset) if isinstance(task, CopyTask) else (task.pattern, 0)
    return task.args[0].key, of, task.nbytes, task.target_offset, begin, task.name


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(operator.index, shape))
