"""The copy cache: copies and fills like one before (of the same bytes of the same buffers), given to a device of an
eager stream without being checked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from manycl.api.events import Event as QueueEvent
from manycl.drivers.driver import Allocation, DriverError, Event, Queue
from manycl.graph.graph import BufferKey, CopyTask, FillTask
from manycl.run.executor.transfers import within
from manycl.run.streams.batch import CommandBatch
from manycl.run.streams.eager_stream import EagerStream
from manycl.run.streams.in_flight import UNKNOWN

if TYPE_CHECKING:
    from manycl.api.arrays.arrays import Array
    from manycl.api.queue import Queue as OwnQueue

MoveKey = tuple[BufferKey, BufferKey | bytes, int, int, int, str]
"""The key of a copy or fill: the buffer that is written; the buffer that is read, or the pattern; bytes; first byte
written; first byte read; the name."""
KEPT = 4096
"""Copies and fills in the cache of a queue, at most."""


class CachedCopy:
    """A copy or fill on the device of an eager stream."""

    __slots__ = ("_device", "_enqueue", "_flight", "_flights", "_held", "_leg", "_seconds", "_task")

    def __init__(self, task: CopyTask | FillTask, flight: EagerStream) -> None:
        self._task = task
        self._device = flight.device
        self._flight: EagerStream | None = None  # the one that has it in its list
        self._leg: CommandBatch | None = None  # the batch that has it in its list
        self._flights = 0
        self._seconds = UNKNOWN
        self._held: tuple[Allocation, ...] = ()
        self._enqueue: Callable[[Queue, Sequence[Event]], Event] | None = None

    def landed(self, seconds: float) -> None:
        """Note that its eager stream is over. ``seconds``: of such a command there; it takes as long each time."""
        self._flight = self._leg = None
        self._held, self._enqueue = (), None
        self._flights += 1
        self._seconds = seconds

    def looked(self) -> None:
        """Let go of the batch that it was last part of."""
        self._leg = None

    @property
    def is_settled(self) -> bool:
        """True if the ends of more eager streams would tell nothing new about it."""
        return self._flights > 0

    def again(self, queue: OwnQueue, flight: EagerStream, arrays: Sequence[Array]) -> bool:
        """Enqueue it once more, with arrays whose buffers are those of the first time. Returns False where it has to be
        checked first: then nothing was done."""
        with flight.lock:
            if not flight.is_open or (self._leg is not flight.leg and not self._join(queue, flight, arrays)):
                return False
            assert self._enqueue is not None
            flight.is_giving = True
            try:
                event = self._enqueue(flight.queue, flight.uploads)
            except DriverError:
                flight.is_giving = False
                return False  # the usual way tries again, and raises the error
            if flight.uploads:
                flight.uploads = []
            flight.given.append((self._task, None, event))
            flight.is_giving = False
            flight.ahead += self._seconds
            if flight.ahead > flight.limit:
                flight.pace()
            return True

    def _join(self, queue: OwnQueue, flight: EagerStream, arrays: Sequence[Array]) -> bool:
        """Make it part of the current batch of the eager stream; return False where it cannot be."""
        if flight.device != self._device:
            return False
        used, allocations = flight.arrays, flight.allocations
        for array in arrays:
            key = array.buffer.key
            if array.queue is not queue or key in queue.mapped or (key not in used and not flight.adopt(array)):
                return False
        held = tuple([allocations[arg.key] for arg in self._task.args])
        if self._enqueue is None or held != self._held:
            backend = queue.session.backend
            self._enqueue = within(backend.drivers[self._device], backend.memory, self._task, self._device)
            self._held = held
        if self._flight is not flight:
            flight.forms.append(self)
            flight.is_settled = flight.is_settled and self._flights > 0
            self._flight = flight
        flight.bound.append(self)
        leg = self._leg = flight.leg
        leg.begin()
        leg.written.update(self._task.writes)
        return True


def again(queue: OwnQueue, key: MoveKey, arrays: Sequence[Array]) -> QueueEvent | None:
    """Enqueue a copy or fill that was done before, with arrays whose buffers are those of the ``key``, and return its
    event. Returns None where it was not done before, or has to be planned."""
    form = queue.moves.get(key)
    if form is None or queue.preparing:
        return None
    enqueued, flight = queue.airborne()
    if flight is None or not form.again(queue, flight, arrays):
        return None
    return QueueEvent(queue, enqueued, len(flight.given) - 1)


def remember(queue: OwnQueue, key: MoveKey, task: CopyTask | FillTask) -> None:
    """Put a copy or fill that was enqueued into the cache, if the device was given it at once."""
    flight = queue.enqueued.flight
    if flight is not None and flight.was_given(task):
        if len(queue.moves) >= KEPT:
            queue.moves.clear()
        queue.moves[key] = CachedCopy(task, flight)
