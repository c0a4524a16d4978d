"""Events: enqueueing returns one for each command, to order commands, to wait for one, and to learn when it ran."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from manycl.api.arrays.host_arrays import AnyArray
from manycl.errors import ManyclError, anew
from manycl.utilities.checked import checked

if TYPE_CHECKING:
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_stream import EagerStream


class Background:
    """A thread that does one job after another. It starts with the first job; the process ends when all are done."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], Any]) -> None:
        """Have a job done later; at once, by the caller's thread, where no thread can start any more. An exception is
        reported as any thread's is (``threading.excepthook``)."""
        with self._lock:
            if not self._is_closed:
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(1, "manycl-queue", initializer=self._begin)
                with suppress(RuntimeError):  # the interpreter begins no threads when it ends
                    self._pool.submit(_reported, job)
                    return
        _reported(job)

    def close(self) -> None:
        """Take no more jobs, and wait for those that there are, unless one of them is the caller."""
        with self._lock:
            self._is_closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=threading.get_ident() != self._thread)

    def _begin(self) -> None:
        self._thread = threading.get_ident()


def _reported(job: Callable[[], Any]) -> None:
    try:
        job()
    except BaseException:  # also SystemExit, which ends no process from a thread
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


class CommandStatus(IntEnum):
    """The state of a command, with OpenCL's names and numbers. QUEUED: it has been given to no device. SUBMITTED: it is
    part of the run that goes on, or behind other commands in the queue of its device. RUNNING: its device has nothing
    to do before it."""

    COMPLETE = 0
    RUNNING = 1
    SUBMITTED = 2
    QUEUED = 3


class Commands(Protocol):
    """The part of a submission (:class:`manycl.api.submission.Submission`) that the events of its commands use."""

    is_taken: bool
    is_over: bool
    stream: EagerStream | None

    def __len__(self) -> int: ...
    def name(self, node: int) -> str: ...
    def status(self, node: int) -> CommandStatus | ManyclError: ...
    def is_complete(self, node: int) -> bool: ...
    def times(self, node: int) -> tuple[float, float]: ...
    def times_of(self, status: CommandStatus | ManyclError, event: Any) -> tuple[float, float]: ...
    def call_back(self, queue: EventQueue, node: int, function: Callable[[], Any]) -> None: ...
    def call_behind(self, queue: EventQueue, event: Any, function: Callable[[], Any]) -> None: ...


class EventQueue(Protocol):
    """The part of a queue that the events of its commands use."""

    session: Session
    background: Background

    @property
    def is_running_here(self) -> bool: ...
    def refuse_while_preparing(self) -> None: ...
    def wait_for(self, enqueued: Commands, node: int) -> bool: ...


@checked("__init__")
class Event:
    """A node of the graph that was enqueued. The event of a graph that is being prepared (``Queue.prepare``) orders the
    nodes of the same ``with`` block. Elsewhere, and when the graph runs, there is nothing to wait for: a prepared graph
    runs as a whole, after what was enqueued before ``run`` and before what is enqueued afterwards; status and times are
    those of its last run."""

    __slots__ = ("enqueued", "node", "queue")

    def __init__(self, queue: EventQueue, enqueued: Commands, node: int) -> None:
        self.queue = queue
        self.enqueued = enqueued
        self.node = node

    def __repr__(self) -> str:
        status, name = self.status, self.enqueued.name(self.node)
        said = status.name if isinstance(status, CommandStatus) else f"failed ({str(status).partition(chr(10))[0]})"
        return f"<manycl.{type(self).__name__} {self.node}{f' ({name})' if name else ''}: {said}>"

    def wait(self) -> None:
        """Wait until the command has ended. If its device has been given it already, only this command is waited for,
        unless it is the last one; else all commands that were collected with it run. Raises what went wrong with it, or
        before it."""
        self.queue.refuse_while_preparing()
        if self.queue.wait_for(self.enqueued, self.node):
            return
        status = self.status
        if isinstance(status, ManyclError):
            raise anew(status)

    @property
    def status(self) -> CommandStatus | ManyclError:
        """The state of the command, or the error of the command or of one before it; nothing is waited for."""
        return self.enqueued.status(self.node)

    @property
    def is_complete(self) -> bool:
        """True if the command is known to have succeeded: takes less time than ``status``."""
        return self.enqueued.is_complete(self.node)

    @property
    def command_execution_status(self) -> int:
        """The state as OpenCL has it: a number, less than 0 where something went wrong."""
        status = self.status
        return status.value if isinstance(status, CommandStatus) else -1

    @property
    def start(self) -> int:
        """The beginning of the command, by its device's clock: in ns, as of ``time.perf_counter_ns``. Raises
        ResultError where that is not known: it has not ended, or was not timed (``mc.Queue(profile=True)`` has all
        timed)."""
        return round(self._times()[0] * 1e9)

    @property
    def end(self) -> int:
        """The end of the command; as ``start``."""
        return round(self._times()[1] * 1e9)

    def _times(self) -> tuple[float, float]:
        return self.enqueued.times(self.node)

    @property
    def profile(self) -> Event:
        """The event itself: PyOpenCL's way to ``start`` and ``end``."""
        return self

    def add_callback(self, function: Callable[[Event], Any]) -> None:
        """Have ``function(event)`` called once, when the command has ended, well or not (``status`` tells), by a thread
        of the queue's, which makes one call after another. An exception of the function is reported there
        (``threading.excepthook``) and has no other effect. The function may ask for results. Commands that are only
        collected end when a result is asked for, or after ``Queue.flush``. Raises ManyclError for no function."""
        self.enqueued.call_back(self.queue, self.node, lambda: function(self))


class ReadEvent(Event):
    """The event of a read (``Queue.read``): ``out`` has the contents when it is complete."""

    __slots__ = ("out",)

    def __init__(self, queue: EventQueue, enqueued: Commands, node: int, out: AnyArray) -> None:
        super().__init__(queue, enqueued, node)
        self.out = out


@checked("__init__")
class MoveEvent(Event):
    """The event of a copy between the host and a device, behind the device's other commands. ``moved``: its driver's
    event; ``node``: the command that it comes behind."""

    __slots__ = ("moved",)

    def __init__(self, queue: EventQueue, enqueued: Commands, node: int, moved: Any) -> None:
        super().__init__(queue, enqueued, node)
        self.moved = moved

    @property
    def is_complete(self) -> bool:
        return self.status == CommandStatus.COMPLETE

    def wait(self) -> None:
        status = self.status
        if status != CommandStatus.COMPLETE:
            self.queue.refuse_while_preparing()
            self.queue.session.devices.refuse_host_functions()
            assert self.enqueued.stream is not None
            self.enqueued.stream.wait_for_move(self.moved)
            status = self.status
        if isinstance(status, ManyclError):
            raise anew(status)

    @property
    def status(self) -> CommandStatus | ManyclError:
        assert self.enqueued.stream is not None
        try:
            return (
                CommandStatus.COMPLETE
                if self.enqueued.stream.has_moved(self.moved, self.node)
                else CommandStatus.SUBMITTED
            )
        except ManyclError as error:
            return error

    def _times(self) -> tuple[float, float]:
        return self.enqueued.times_of(self.status, self.moved)

    def add_callback(self, function: Callable[[Event], Any]) -> None:
        self.enqueued.call_behind(self.queue, self.moved, lambda: function(self))
