"""The copy cache: copies and fills of the same bytes of the same buffers as before, enqueued without checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from manycl.api.arrays.array_queue import ArrayQueue
from manycl.api.events import Commands
from manycl.api.events import Event as QueueEvent
from manycl.drivers.driver import Allocation, DriverError, Event, Queue
from manycl.graph.graph import BufferKey, CopyTask, DeviceTask, FillTask
from manycl.run.executor.transfers import within
from manycl.run.streams.eager_stream import EagerStream
from manycl.run.streams.stream_state import UNKNOWN, CommandBatch
from manycl.utilities.kept import MANY

if TYPE_CHECKING:
    from manycl.api.arrays.arrays import Array

MoveKey = tuple[BufferKey, BufferKey | bytes, int, int, int, str]
"""The key of a copy or fill: the buffer that is written; the buffer that is read, or the pattern; bytes; first byte
written; first byte read; the name."""


class CopyQueue(ArrayQueue, Protocol):
    """The part of a queue that the copy cache uses."""

    moves: dict[MoveKey, CachedCopy]

    @property
    def preparing(self) -> Mapping[int, Commands]: ...
    def submitting(self, task: DeviceTask) -> tuple[Commands, EagerStream | None]: ...


class CachedCopy:
    """A copy or fill on the device of an eager stream."""

    __slots__ = ("_batch", "_device", "_enqueue", "_held", "_is_told", "_seconds", "_task")

    def __init__(self, task: CopyTask | FillTask, stream: EagerStream) -> None:
        self._task = task
        self._device = stream.device
        self._batch: CommandBatch | None = None  # the batch that has it in its list
        self._is_told = False
        self._seconds = UNKNOWN
        self._held: tuple[Allocation, ...] = ()
        self._enqueue: Callable[[Queue, Sequence[Event]], Event] | None = None

    def ended(self, seconds: float) -> None:
        """Note that a batch with it is over. ``seconds``: of a command there; it takes as long each time."""
        self._batch = None
        self._held, self._enqueue = (), None
        self._is_told = True
        self._seconds = seconds

    @property
    def is_settled(self) -> bool:
        """True if the ends of more batches would tell nothing new about it."""
        return self._is_told

    def again(self, queue: CopyQueue, stream: EagerStream, arrays: Sequence[Array]) -> bool:
        """Enqueue it once more, with arrays whose buffers are those of the first time. Returns False where it has to be
        checked first: then nothing was done."""
        with stream.lock:
            if not stream.is_open or (self._batch is not stream.batch and not self._join(queue, stream, arrays)):
                return False
            assert self._enqueue is not None
            stream.is_giving = True
            try:
                event = self._enqueue(stream.queue, stream.uploads)
            except DriverError:
                stream.is_giving = False
                return False  # the usual way tries again, and raises the error
            if stream.uploads:
                stream.uploads = []
            stream.given.append((self._task, None, event))
            stream.is_giving = False
            stream.count(self._seconds)
            return True

    def _join(self, queue: CopyQueue, stream: EagerStream, arrays: Sequence[Array]) -> bool:
        """Make it part of the current batch of the eager stream; return False where it cannot be."""
        if stream.device != self._device:
            return False
        used, allocations = stream.arrays, stream.allocations
        for array in arrays:
            key = array.buffer.key
            if array.queue is not queue or key in queue.mapped or (key not in used and not stream.adopt(array)):
                return False
        held = tuple([allocations[arg.key] for arg in self._task.args])
        if self._enqueue is None or held != self._held:
            backend = queue.session.backend
            self._enqueue = within(backend.drivers[self._device], backend.memory, self._task, self._device)
            self._held = held
        stream.join(self)
        self._batch = stream.batch
        stream.batch.written.update(self._task.writes)
        return True


def again(queue: CopyQueue, key: MoveKey, arrays: Sequence[Array]) -> QueueEvent | None:
    """Enqueue a copy or fill that was done before, with arrays whose buffers are those of the ``key``, and return its
    event. Returns None where it was not done before, or has to be planned."""
    copy = queue.moves.get(key)
    if copy is None or queue.preparing:
        return None
    enqueued, stream = queue.submitting(copy._task)
    if stream is None or not copy.again(queue, stream, arrays):
        return None
    return QueueEvent(queue, enqueued, len(stream.given) - 1)


def remember(queue: CopyQueue, key: MoveKey, task: CopyTask | FillTask) -> None:
    """Put a copy or fill that was enqueued into the cache, if the device was given it at once."""
    stream = queue.enqueued.stream
    if stream is not None and stream.was_given(task):
        if len(queue.moves) >= MANY:
            queue.moves.clear()
        queue.moves[key] = CachedCopy(task, stream)
