"""How functions of OpenCL's are written here: registered by their names; what they raise becomes a status."""

from __future__ import annotations

import ctypes
import sys
import traceback
from collections.abc import Callable
from typing import Any

from manycl import flags
from manycl.drivers.opencl.real import compiled
from manycl.errors import ManyclError
from manycl.stand_in.errors import error, numbered, refuse, told
from manycl.stand_in.objects.contexts import CommandQueue
from manycl.stand_in.objects.events import Event
from manycl_c.handles import handles
from manycl_c.host import Address, answer, put, words

Function = Callable[..., Any]
FUNCTIONS: dict[str, Function] = {}
"""By OpenCL's names: they take numbers (None for NULL), and return a status or a handle."""
_Destroyed = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_place = ctypes.c_uint64.from_address
_OUT_OF_HOST_MEMORY = int(compiled.status_code.OUT_OF_HOST_MEMORY)


def status_of(name: str, raised: Exception) -> int:
    """The code for what went wrong; what the program has no part in is told on standard error."""
    if isinstance(raised, compiled.Error):
        if isinstance(raised.__cause__, ManyclError):
            print(f"manycl: {name}: {raised.__cause__}", file=sys.stderr)
        return int(raised.code)
    if isinstance(raised, MemoryError):
        return _OUT_OF_HOST_MEMORY
    if isinstance(raised, ManyclError):
        print(f"manycl: {name}: {raised}", file=sys.stderr)
        return status_of(name, told(raised, name))
    words_ = f"{type(raised).__name__}: {raised}"
    print(f"manycl: {name}: {words_} (a defect of manycl; MANYCL_DEBUG=1 shows where)", file=sys.stderr)
    if flags.debug():
        traceback.print_exception(raised, file=sys.stderr)
    return int(compiled.status_code.OUT_OF_RESOURCES)


def does(name: str) -> Callable[[Function], Function]:
    """A function that returns a status: 0 where it returns nothing."""

    def registered(function: Function) -> Function:
        def guarded(*given: Any) -> int:
            try:
                return function(*given) or 0
            except Exception as raised:  # nothing may leave a callback
                return status_of(name, raised)

        FUNCTIONS[name] = guarded
        return function

    return registered


def tells(name: str) -> Callable[[Function], Function]:
    """A function that returns the bytes of an answer, which go where its last three arguments say."""

    def registered(function: Function) -> Function:
        does(name)(lambda *given: answer(function(*given[:-3]), *given[-3:]))
        return function

    return registered


def counted(name: str, kind: type[Any], code: str, gone: Callable[[Any], object] | None = None) -> None:
    """Register clRetain… and clRelease… for objects of a kind. ``gone`` is called with an object whose last
    reference the program has given away."""

    def release(address: Address) -> None:
        found = handles.release(address, kind, code)
        if gone is not None and found is not None:
            gone(found)

    does(f"clRetain{name}")(lambda address: handles.retain(address, kind, code))
    does(f"clRelease{name}")(release)


def told_when_gone(name: str, kind: type[Any], code: str) -> None:
    """Register a function by which programs say what to call when an object of a kind has gone."""

    def note(address: Address, function: Address, data: Address) -> None:
        handle = handles.of(handles.find(address, kind, code))
        if not function:
            raise error("INVALID_VALUE", "")
        destroyed = _Destroyed(function)
        handle.when_gone.append(lambda: destroyed(handle.address, data))

    does(name)(note)


def makes(name: str) -> Callable[[Function], Function]:
    """A function that makes an object: it is given all but the last argument, where the status goes."""

    def registered(function: Function) -> Function:
        def guarded(*given: Any) -> Address:
            found, status = None, 0
            try:
                found = handles.give(function(*given[:-1]))
            except Exception as raised:  # as above
                status = status_of(name, raised)
            put(given[-1], "i", status)
            return found

        FUNCTIONS[name] = guarded
        return function

    return registered


def enqueues(name: str) -> Callable[[Function], Function]:
    """A function that enqueues a command: its first argument is the queue, and instead of the last three there is a
    tuple of events to wait for; the command's event goes where the program wants it."""

    def registered(function: Function) -> Function:
        def guarded(*given: Any) -> int:
            try:
                queue = handles.find(given[0], CommandQueue, "INVALID_COMMAND_QUEUE")
                count, events, out = given[-3:]
                waits = wait_list(queue, count, events) if count or events else None
                event = function(queue, *given[1:-3], waits)
                if out:
                    put_event(out, event)
                return 0
            except Exception as raised:  # as above
                return status_of(name, raised)

        FUNCTIONS[name] = guarded
        return function

    return registered


def invalid_property() -> Exception:
    """CL_INVALID_PROPERTY, for which PyOpenCL has no name."""
    return numbered(-64, "")


def put_event(out: Address, event: Event) -> None:
    if out:
        _place(out).value = handles.give(event)


def wait_list(queue: CommandQueue, count: int, events: Address) -> tuple[Event, ...]:
    """Events to wait for, which are of the queue's context."""
    refuse("INVALID_EVENT_WAIT_LIST", bool(count) != bool(events))
    found = tuple([handles.find(one, Event, "INVALID_EVENT_WAIT_LIST") for one in words(events, count)])
    for event in found:
        refuse("INVALID_CONTEXT", event.own_context() is not queue.own_context)
    return found


def same_context(queue: CommandQueue, *others: Any) -> None:
    """Raise LogicError where memory, or a kernel's program, is of another context than a queue."""
    for other in others:
        refuse("INVALID_CONTEXT", other.own_context is not queue.own_context)
