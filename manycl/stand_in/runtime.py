"""The runtime that runs a program's commands: a queue of manycl's, and one real device for what that does not know. All
queues of all contexts of a device are one queue here: the order in which a program enqueues is one that OpenCL allows
for them, too. What waits for a user event is enqueued later (:mod:`manycl.stand_in.objects.events`)."""

from __future__ import annotations

import atexit
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from manycl import flags
from manycl.api.arrays.arrays import Array
from manycl.api.events import Event
from manycl.api.queue import Queue
from manycl.cluster.dask_client import DaskClient
from manycl.drivers.driver import Bytes, DriverError
from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError, anew
from manycl.graph.copies import Place
from manycl.graph.graph import BufferKey
from manycl.run.data.host_memory import copy_bytes
from manycl.stand_in.errors import error, translated
from manycl.stand_in.native_model import NativeModel
from manycl.utilities.interrupts import is_failing
from manycl.utilities.kept import Kept

if TYPE_CHECKING:
    from manycl.drivers.choice import OpenDevice


_FLAGS = compiled.mem_flags
_ROUTES = {"gpu": 2, "accelerator": 1, "cpu": 0}


def best(opened: Sequence[OpenDevice]) -> Any:
    """The real device that does most: a GPU before others, the one with the most operations per second. Parts count as
    the device that they are parts of, which does it, as PoCL's parts end the process where images are read. Where there
    are only native devices, and no OpenCL driver beside them, what answers for these."""
    groups: dict[int, list[OpenDevice]] = {}
    for one in opened:
        handle = handle_of(one)
        parent = _parent(handle)
        number = 0 if isinstance(handle, NativeModel) else handle.int_ptr if parent is None else parent.int_ptr
        groups.setdefault(number, []).append(one)

    def power(group: list[OpenDevice]) -> tuple[bool, bool, int, float]:
        device, is_real = group[0].device, not isinstance(handle_of(group[0]), NativeModel)
        return is_real, not device.simulator, _ROUTES.get(device.kind, 0), sum(one.device.flops for one in group)

    chosen = max(groups.values(), key=power)
    handle = handle_of(chosen[0])
    parent = _parent(handle)
    return handle if parent is None else parent


def handle_of(one: OpenDevice) -> Any:
    """PyOpenCL's device for one of manycl's; what answers for a native one that no OpenCL driver shows."""
    try:
        return one.handle.cl  # type: ignore[attr-defined]  # (native devices have it, too)
    except DriverError:
        return NativeModel(one.device)


def _parent(device: Any) -> Any:
    try:
        return None if isinstance(device, NativeModel) else device.parent_device
    except compiled.Error:
        return None


class OneDevice:
    """A real device, which does alone what manycl does not know, or cannot divide: images, shared virtual memory,
    binaries, kernels that the analysis cannot read. A command is done at once, when all that was enqueued before it has
    ended, and waited for; buffers lend it the host's copy of their contents. Its context and queue are made when first
    needed. Who gives it commands holds the ``lock``."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.lock = threading.RLock()

    @cached_property
    def context(self) -> Any:
        """Raises RuntimeError (PyOpenCL's) where there is no real device."""
        if isinstance(self.device, NativeModel):
            raise error("INVALID_OPERATION", "manycl", self.device.missing)
        return compiled.Context([self.device])

    @cached_property
    def queue(self) -> Any:
        return compiled.CommandQueue(self.context, self.device)

    def lend(self, memory: Iterable[Any]) -> Loan:
        """Memory of the device for buffers and what is made of them, with the contents; ``Loan.end`` when the command
        has ended. The caller holds the lock."""
        return Loan(self, memory)


class Loan:
    """``real``: by the stand-in's memory objects, real ones; ``returns``: what brings contents back that are not the
    host's memory."""

    def __init__(self, one: OneDevice, memory: Iterable[Any]) -> None:
        self._one, self._queue = one, one.queue
        self._wholes: dict[Any, Any] = {}
        self.returns: list[Callable[[Any], Any]] = []
        self.real: dict[Any, Any] = {target: target.lent(self) for target in memory}

    def buffer(self, buffer: Any) -> Any:
        """A real buffer, the same memory for all parts of a whole."""
        whole = buffer.whole
        if whole not in self._wholes:
            flags = _FLAGS.READ_WRITE | _FLAGS.USE_HOST_PTR
            self._wholes[whole] = compiled.Buffer(self._one.context, flags, 0, whole.in_place())
        lent = self._wholes[whole]
        return lent if buffer is whole else lent.get_sub_region(buffer.low, buffer.nbytes, 0)

    def end(self) -> None:
        """Put what the device has written into the buffers."""
        for bring in self.returns:
            bring(self._queue)
        for whole, lent in self._wholes.items():
            size = (whole.nbytes,)
            mapped, _ = compiled.enqueue_map_buffer(self._queue, lent, compiled.map_flags.READ, 0, size, np.uint8)
            mapped.base.release(self._queue)
        self._queue.finish()


class _Arrival(NamedTuple):
    event: Event
    memory: Bytes
    deliver: Callable[[], None] | None


class Arrivals:
    """Reads that are under way while the program goes on: the host's memory that they write to, and what is left to do
    with it when they have ended. ``under_way``: in the order in which they end, which is that of the program's calls.
    ``lost``: those that have failed, and nobody was told; others may have done all else of a lost device."""

    def __init__(self) -> None:
        self.under_way: deque[_Arrival] = deque()
        self.lost: list[tuple[Event, ManyclError]] = []
        self._lock = threading.RLock()

    def add(self, event: Event, memory: Bytes, deliver: Callable[[], None] | None = None) -> None:
        """A read to some memory; ``deliver``: what puts there what has come elsewhere."""
        with self._lock:
            self.look()
            self.under_way.append(_Arrival(event, memory, deliver))

    def look(self) -> None:
        """Somebody has learned how far commands are: what has ended is in its place."""
        with self._lock:
            while self.under_way:
                event, _, deliver = self.under_way[0]
                status = event.status
                if isinstance(status, ManyclError):
                    self.lost.append((event, status))
                elif status > 0:
                    return
                self.under_way.popleft()
                if deliver is not None and status == 0:
                    deliver()

    def was_told(self, event: Event) -> None:
        """Note that who waits for a read knows that it has failed."""
        with self._lock:
            self.look()
            self.lost = [lost for lost in self.lost if lost[0] is not event]

    def tell(self) -> None:
        """Raise what has become of reads that somebody counts upon, who has waited for what is behind them; once."""
        with self._lock:
            lost, self.lost = self.lost, []
        if lost:
            raise anew(lost[0][1])

    def wait_for(self, data: Bytes) -> None:
        """Wait until what some memory is about to be asked for is there. (What goes wrong is told to who waits for
        it.)"""
        with self._lock:
            coming = [arrival for arrival in self.under_way if np.may_share_memory(arrival.memory, data)]
        for arrival in coming:
            with suppress(ManyclError):
                arrival.event.wait()
        self.look()


class SharedMemory:
    """Buffers on the host's own memory (USE_HOST_PTR), which programs look at, and change, as if it were the buffers'.
    Drivers of devices that compute in the host's memory make it so, and programs count on that. Here such a buffer has
    what the memory has when it is first used after somebody waited, and the memory has what is in the buffer when
    somebody waits. ``used``: those that commands have used since somebody waited, with their memory."""

    def __init__(self) -> None:
        self.used: dict[BufferKey, tuple[Array, Bytes]] = {}
        self._lock = threading.RLock()

    def use(self, runtime: Runtime, array: Array, memory: Bytes) -> None:
        """A command is about to use a whole buffer that lies on ``memory``."""
        with self._lock:
            if array.buffer.key not in self.used:
                runtime.store(array, 0, memory)
                self.used[array.buffer.key] = array, memory

    def show(self, runtime: Runtime) -> None:
        """Somebody has waited."""
        with self._lock:
            used, self.used = self.used, {}
            for array, memory in used.values():
                if memory.flags.writeable:
                    runtime.load(array, 0, memory)

    def leave(self, runtime: Runtime, array: Array | None) -> None:
        """A whole buffer is needed no more, and its memory is soon the program's own again."""
        with self._lock:
            found = self.used.pop(array.buffer.key, None) if array is not None else None
        if found is not None and found[1].flags.writeable:
            runtime.load(found[0], 0, found[1])


class Runtime:
    """``devices``, ``policy``: as of a queue. ``whole``: how often kernels were launched on one device alone without
    manycl's doing, by their names, lines and the reasons. ``builds``: by what decides a binary: the one device's
    program, what is known of it, and its kernels."""

    def __init__(self, devices: str | None = None, policy: str | None = None) -> None:
        self._stack = ExitStack()
        of_cluster = flags.cluster() if devices is None else ""
        found = self._stack.enter_context(_client(of_cluster)) if of_cluster else devices
        self.queue = self._stack.enter_context(
            closing(Queue(found, policy=policy, serve=None if of_cluster else False))
        )
        self.session = self.queue.session
        self.one = OneDevice(best(self.session.devices.opened))
        self.handles: tuple[Any, ...] = tuple([handle_of(one) for one in self.session.devices.opened])
        self.shared = SharedMemory()
        self.arrivals = Arrivals()
        self.whole: Counter[tuple[str, int, str]] = Counter()
        self.builds: Kept[tuple[object, ...], tuple[Any, Any, dict[str, Any]]] = Kept(64)
        self._shares = self.session.machine.memories == 1
        self._lock = threading.Lock()
        atexit.register(self.end)

    def end(self) -> None:
        """Run what the program has enqueued and not waited for. (RuntimeError: while the interpreter ends, from Python
        3.12 on, there are no new threads, which what is still to be planned may need. Nobody has waited for it.)"""
        with suppress(ManyclError, RuntimeError):
            if not is_failing():
                self.queue.finish()
                if flags.cluster():
                    self._stack.close()  # while Dask can still be heard

    def finish(self) -> None:
        """Wait until all that was enqueued has ended."""
        with translated("clFinish"):
            try:
                self.queue.catch_up()
            except ManyclError:  # which tells of reads, too
                self.arrivals.look()
                self.arrivals.lost.clear()
                raise
        self.waited()

    def waited(self) -> None:
        """Somebody has waited, and may look at memory of buffers, or that reads wrote to. Raises their errors."""
        arrivals = self.arrivals
        if arrivals.under_way:
            arrivals.look()
        if arrivals.lost:
            with translated("clWaitForEvents"):
                arrivals.tell()
        if self.shared.used:
            self.shared.show(self)

    # contents of arrays

    def load(self, array: Array, offset: int, out: Bytes) -> None:
        """Bytes of an array, from ``offset`` on, once what was enqueued has run."""
        with translated("clEnqueueReadBuffer"):
            if self._shares:
                self.queue.catch_up()
            else:
                wanted = Place(array.buffer, array.offset + offset, len(out))
                if self.queue.read_ahead(wanted, out):
                    return
                self.queue.finish_for(wanted)
            copy_bytes(out, self.session.buffers.host(array.buffer.key, array.offset + offset, len(out)))

    def fetch(
        self, array: Array, offset: int, out: Bytes, to: Bytes, deliver: Callable[[], None] | None = None
    ) -> Event | None:
        """Bytes of an array, from ``offset`` on, once what was enqueued has run, while the program goes on: what tells
        of it, or None if done. ``deliver`` brings them from ``out`` to the program's memory ``to``, if another."""
        with translated("clEnqueueReadBuffer"):
            wanted = Place(array.buffer, array.offset + offset, len(out))
            event = self.queue.read_behind(array.owner, wanted, out)
        if event is not None:
            self.arrivals.add(event, to, deliver)
            return event
        self.load(array, offset, out)
        if deliver is not None:
            deliver()
        return None

    def store(self, array: Array, offset: int, data: Bytes) -> Event | None:
        """Bytes of the host, as they are now, to an array from ``offset`` on, behind what was enqueued."""
        if self.arrivals.under_way:
            self.arrivals.wait_for(data)
        with translated("clEnqueueWriteBuffer"):
            key, low = array.buffer.key, array.offset + offset
            if not (self._shares and self.queue.is_caught_up):
                if not self._shares and self.queue.write_ahead(Place(array.buffer, low, len(data)), data):
                    return None
                if self.queue.uses(array):
                    staged = self.queue.empty(len(data), np.uint8, name="written")
                    copy_bytes(self.session.buffers.overwrite(staged.buffer.key), data)
                    return self.queue.copy(array, staged, byte_count=len(data), dst_offset=offset, name="write")
            if len(data) == array.buffer.nbytes:
                self.session.buffers.copy_in(key, data, self.queue.first_reads)
            else:
                copy_bytes(self.session.buffers.overwrite(key, low, len(data)), data)
            return None

    def common(self, array: Array, offset: int, nbytes: int, *, reads: bool, writes: bool) -> Bytes | None:
        """Bytes of an array, from ``offset`` on, where the host and all devices have them, once what was enqueued has
        run; None where some device has memory of its own."""
        if not self._shares:
            return None
        with translated("clEnqueueMapBuffer"):
            self.queue.catch_up()
            low = array.offset + offset
            buffers, key = self.session.buffers, array.buffer.key
            found = buffers.host(key, low, nbytes) if reads else None
            return buffers.overwrite(key, low, nbytes) if writes else found

    def in_place(self, array: Array) -> Bytes:
        """Return all bytes of a whole array where the host has them, for reading and writing, once what was enqueued
        has run: there are no other copies any more."""
        with translated("clEnqueueMapBuffer"):
            self.queue.finish_for(Place.of(array.buffer))
            return self.session.buffers.overwrite(array.buffer.key, keeps=True)


def _client(address: str) -> AbstractContextManager[DaskClient]:
    from manycl.cluster.opening import connected  # it imports Dask

    return connected(address)


_runtimes: dict[tuple[str | None, str | None], Runtime] = {}
_opening = threading.Lock()


def runtime(devices: str | None = None, policy: str | None = None) -> Runtime:
    """The one of these devices, which are opened when it is first asked for."""
    with _opening:
        found = _runtimes.get((devices, policy))
        if found is None:
            found = _runtimes[devices, policy] = Runtime(devices, policy)
        return found


def runtimes() -> tuple[Runtime, ...]:
    """Return all that have been opened."""
    return tuple(_runtimes.values())
