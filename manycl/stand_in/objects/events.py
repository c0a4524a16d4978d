"""Events, and the order of commands: what waits for a user event is held back until that has been set."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from manycl.api import events as api
from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError, anew
from manycl.stand_in.errors import error, refuse, told
from manycl.stand_in.objects.objects import OpenCLObject

if TYPE_CHECKING:
    from manycl.stand_in.objects.contexts import CommandQueue, Context

_INFO = compiled.event_info
_PROFILE = compiled.profiling_info
_PROFILING = "clGetEventProfilingInfo"
_TYPE = compiled.command_type
_SUBMITTED, _QUEUED = 2, 3
_LOOKED_AT = 1 << 10
"""Of a batch, the commands that are first looked at, whether they are complete, when they are waited for; others are
always waited for, which ends the batch some time."""
_DEPENDS_ON_FAILURE = "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"

Command = Callable[[], "api.Event | None"]
"""Enqueues what an event is of; None where it has been done already."""

_gates = threading.RLock()
"""Of all that is held back."""


class Gate:
    """The gate of an event that is held back. ``missing``: how many events; ``followers``: events that wait for this
    one; ``enqueue``: what to do when nothing is missing any more (None: a user event, somebody sets it)."""

    __slots__ = ("callbacks", "enqueue", "followers", "missing", "opened")

    def __init__(self, missing: int, enqueue: Command | None) -> None:
        self.missing = missing
        self.enqueue = enqueue
        self.followers: list[Event] = []
        self.callbacks: list[Callable[[], None]] = []
        self.opened = threading.Event()


class Event(OpenCLObject):
    """The event of a command. ``command``: manycl's event (None: it is complete); ``gate``: there while it is held
    back; ``failure``: what went wrong, ``failed`` its code; ``span``: when a command began and ended that was done at
    the call (``was_at_call``; ``command`` is what it comes behind); ``times``: what it was asked for profiles, in
    ns."""

    # (most events have nothing else to say: each command makes one)
    queued: int = 0
    gate: Gate | None = None
    failure: Exception | None = None
    failed: int = 0
    span: tuple[int, int] | None = None
    was_at_call: bool = False
    times: dict[int, int] | None = None

    def __init__(self, queue: CommandQueue | None, kind: int, command: api.Event | None) -> None:
        self.queue = queue
        self.kind = kind
        self.command = command

    # how far it is

    def wait_held(self) -> None:
        """Wait until the command is held back no longer. Raises what went wrong."""
        gate = self.gate
        if gate is not None:
            gate.opened.wait()
        if self.failure is not None:
            raise anew(self.failure)

    def wait(self) -> None:
        """Wait until the command has ended."""
        self.wait_held()
        command = self.command
        if command is not None and not (command.node < _LOOKED_AT and command.is_complete):
            try:
                command.wait()
            except ManyclError as failure:
                if self.queue is not None:
                    self.queue.runtime.arrivals.was_told(command)
                raise told(failure, "clWaitForEvents") from failure
        if self.queue is not None:
            self.queue.runtime.waited()

    @property
    def status(self) -> int:
        """The status as OpenCL has it. Whoever asks wants it to come to an end, so what was only collected is sent."""
        if self.gate is not None:
            return _QUEUED
        command = self.command
        if self.failed or command is None:
            return self.failed
        status = command.command_execution_status
        if self.queue is not None:
            runtime = self.queue.runtime
            if status == _QUEUED:
                runtime.queue.flush()
                status = command.command_execution_status
            if runtime.arrivals.under_way:
                runtime.arrivals.look()
        return status if status >= 0 else int(compiled.status_code.OUT_OF_RESOURCES)

    def get_info(self, param: int) -> Any:
        answers = {
            _INFO.COMMAND_QUEUE: self.queue,
            _INFO.COMMAND_TYPE: self.kind,
            _INFO.COMMAND_EXECUTION_STATUS: lambda: self.status,
            _INFO.REFERENCE_COUNT: 1,
            _INFO.CONTEXT: self.own_context,
        }
        return self._told(answers, param)

    def own_context(self) -> Context | None:
        return self.queue.own_context if self.queue is not None else None

    def get_profiling_info(self, param: int) -> int:
        """In ns, by one clock for all events."""
        times = self.times
        if times is None:
            times = self.times = self._profiled()
        refuse("INVALID_VALUE", param not in times, _PROFILING)
        return times[param]

    def _profiled(self) -> dict[int, int]:
        """Return what it can be asked, once it has ended."""
        if self.queue is None or not self.queue.is_profiling or self.status != 0:
            raise error("PROFILING_INFO_NOT_AVAILABLE", _PROFILING)
        if self.command is not None and not self.was_at_call:
            try:
                start, end = self.command.start, self.command.end
            except ManyclError as failure:
                raise error("PROFILING_INFO_NOT_AVAILABLE", _PROFILING, str(failure)) from None
        else:
            start, end = self.span or (self.queued, self.queued)
        queued = min(self.queued or start, start)
        times = {_PROFILE.QUEUED: queued, _PROFILE.SUBMIT: queued, _PROFILE.START: start, _PROFILE.END: end}
        return {**times, _PROFILE.COMPLETE: end}

    def set_callback(self, status: int, function: Callable[[int], Any]) -> None:
        """Have it called with the status when the command has ended, by a thread of its own. (What is behind a command
        that is only submitted has no other moment here.)"""
        with _gates:
            if self.gate is not None:
                self.gate.callbacks.append(lambda: self._call_back(function))
                return
        self._call_back(function)

    def _call_back(self, function: Callable[[int], Any]) -> None:
        command = self.command
        if command is None or self.failure is not None:
            threading.Thread(target=function, args=(self.status,), daemon=True).start()
            return
        command.add_callback(lambda event: function(self.status))
        if self.queue is not None:
            self.queue.runtime.queue.flush()


class NannyEvent(Event):
    """The event of a transfer: it keeps the host's memory until it has been waited for."""

    def __init__(self, queue: CommandQueue, kind: int, command: api.Event | None, ward: Any) -> None:
        super().__init__(queue, kind, command)
        self.ward = ward

    def get_ward(self) -> Any:
        return self.ward

    def wait(self) -> None:
        super().wait()
        self.ward = None


class ArrivalEvent(NannyEvent):
    """The event of a read that does not block: who drops it waits for it, as with PyOpenCL: no one else knows its
    end."""

    def __del__(self) -> None:
        command = self.command
        if command is None or self.ward is None or self.gate is not None or self.failure is not None:
            return
        if command.command_execution_status > 0 and not command.queue.is_running_here:
            with suppress(Exception):  # it has been told to who waited
                command.wait()


class UserEvent(Event):
    """Set by the program."""

    def __init__(self, context: Context) -> None:
        super().__init__(None, _TYPE.USER, None)
        self._own_context = context
        self.gate = Gate(1, None)

    def own_context(self) -> Context:
        return self._own_context

    @property
    def status(self) -> int:
        return _SUBMITTED if self.gate is not None else super().status

    def set_status(self, status: int) -> None:
        """Complete (0), or failed (less): then what waits for it fails, too."""
        routine = "clSetUserEventStatus"
        refuse("INVALID_VALUE", status > 0, routine)
        with _gates:
            if self.gate is None:
                raise error("INVALID_OPERATION", routine)
        _open(self, int(status))


def _behind(failure: Exception | None, code: int) -> Exception:
    """Return what is told of an event that waited for one that has failed, or of a user event that was set so."""
    return error(_DEPENDS_ON_FAILURE, "clWaitForEvents", str(failure or f"a user event was set to {code}"))


def hold(event: Event, after: Iterable[Event], enqueue: Command) -> bool:
    """Hold a command back until some events are no longer held back; False where none is."""
    with _gates:
        held = [e for e in after if e.gate is not None]
        if not held:
            return False
        event.gate = Gate(len(held), enqueue)
        for other in held:
            assert other.gate is not None
            other.gate.followers.append(event)
        return True


def _open(event: Event, code: int) -> None:
    """An event is held back no longer, nor are those that only waited for it; what they are of is enqueued, in their
    order. ``code``: less than 0 where it has failed; then those fail, too."""
    event.failed = code
    event.failure = _behind(None, code) if code else None
    ready = [event]
    while ready:
        one = ready.pop(0)
        gate = one.gate
        assert gate is not None
        if not one.failed and gate.enqueue is not None:
            begun = perf_counter_ns()
            try:
                one.command = gate.enqueue()
                one.span = begun, perf_counter_ns()
            except Exception as raised:  # told to who waits for it
                one.failure, one.failed = anew(raised), _code(raised)
        with _gates:
            one.gate = None
            if one.queue is not None:
                one.queue.released(one)
            for follower in gate.followers:
                behind = follower.gate
                if behind is None or follower in ready:
                    continue
                behind.missing -= 1
                if one.failed:
                    follower.failure, follower.failed = _behind(one.failure, one.failed), _code(None)
                if behind.missing == 0 or one.failed:
                    ready.append(follower)
        gate.opened.set()
        for callback in gate.callbacks:
            callback()


def _code(failure: Exception | None) -> int:
    """Return the code of an error; of what waited for something that has failed (None)."""
    if failure is None:
        return int(getattr(compiled.status_code, _DEPENDS_ON_FAILURE))
    return int(getattr(failure, "code", compiled.status_code.OUT_OF_RESOURCES))


def _is_under_way(event: Event) -> bool:
    return event.command is not None and event.command.command_execution_status > 0


def submit(
    queue: CommandQueue,
    kind: int,
    wait_for: Sequence[Event] | None,
    enqueue: Command,
    ward: Any = None,
    of: type[NannyEvent] = NannyEvent,
) -> Event:
    """Enqueue a command, or hold it back; its event (``of`` such a kind) keeps a ``ward`` until it is waited for."""
    queued = perf_counter_ns() if queue.is_profiling else 0
    event = Event(queue, kind, None) if ward is None else of(queue, kind, None, ward)
    if queued:
        event.queued = queued
    if wait_for or not queue.is_usual:
        queue.check_use()
        after = checked(wait_for)
        with _gates:  # of the queue's list, too: events are set by other threads
            if hold(event, (*after, *queue.held_before(kind)), enqueue):
                queue.hold(event, kind)
                return event
        for other in after:
            if other.failure is not None:
                event.failure, event.failed = _behind(other.failure, other.failed), _code(None)
                return event
    event.command = enqueue()
    if event.command is None and wait_for and any(map(_is_under_way, after)):
        event.command, event.was_at_call = queue.runtime.queue.last, True  # it has not ended before these have
    if queued:
        event.span = queued, perf_counter_ns()
    return event


def checked(events: Iterable[Any] | None) -> tuple[Event, ...]:
    """Events that are ones. Raises TypeError."""
    found = tuple(events or ())
    for event in found:
        if not isinstance(event, Event):
            raise TypeError(f"a list of events has {type(event).__name__}")
    return found


def are_free(events: Sequence[Event] | None) -> bool:
    """Return whether events are such that what waits for them may be enqueued at once, as it comes behind them
    anyway."""
    try:
        return not events or all(event.gate is None and not event.failed for event in events)
    except AttributeError:  # they are none, which is told
        return False


# commands that only wait


def wait_for_events(events: Sequence[Event]) -> None:
    """Wait until all have ended."""
    found = checked(events)
    refuse("INVALID_VALUE", not found, "clWaitForEvents")
    for event in found:
        event.wait()


def _last(queue: CommandQueue) -> Command:
    """A marker is complete when what was enqueued before it is."""
    return lambda: queue.runtime.queue.last


def _enqueue_marker_with_wait_list(queue: CommandQueue, wait_for: Sequence[Event] | None = None) -> Event:
    return submit(queue, _TYPE.MARKER, wait_for, _last(queue))


def _enqueue_barrier_with_wait_list(queue: CommandQueue, wait_for: Sequence[Event] | None = None) -> Event:
    return submit(queue, _TYPE.BARRIER, wait_for, _last(queue))


_enqueue_marker = _enqueue_wait_for_events = _enqueue_marker_with_wait_list  # OpenCL 1.1's, where nothing is told
_enqueue_barrier = _enqueue_barrier_with_wait_list


def enqueue_migrate_mem_objects(
    queue: CommandQueue, mem_objects: Sequence[Any], flags: int = 0, wait_for: Sequence[Event] | None = None
) -> Event:
    """Enqueue nothing: where buffers are is for manycl to decide."""
    return submit(queue, _TYPE.MIGRATE_MEM_OBJECTS, wait_for, lambda: None)
