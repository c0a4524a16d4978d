"""Events: what is told of them, callbacks, and events of the program's own."""

from __future__ import annotations

import ctypes
import struct

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.events import Event, UserEvent
from manycl_c.calls import counted, does, makes, tells
from manycl_c.handles import handles
from manycl_c.host import Address, words
from manycl_c.objects.contexts import context_of

_INFO, _PROFILE = compiled.event_info, compiled.profiling_info
_CODE = "INVALID_EVENT"
_Called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
_SUBMITTED = 2
_NAMES = ("QUEUED", "SUBMIT", "START", "END", "COMPLETE")
_PROFILES = tuple([int(getattr(_PROFILE, name)) for name in _NAMES if hasattr(_PROFILE, name)])

event_of = handles.finder(Event, _CODE)


@does("clWaitForEvents")
def wait_for_events(count: int, events: Address) -> None:
    refuse("INVALID_VALUE", not count or not events)
    found = [event_of(one) for one in words(events, count)]
    refuse("INVALID_CONTEXT", count > 1 and any(event.own_context() is not found[0].own_context() for event in found))
    failed = False
    for event in found:
        try:
            event.wait()
        except compiled.Error:
            failed = True
    refuse("EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", failed or any(event.failed for event in found))


@makes("clCreateUserEvent")
def create_user_event(context: Address) -> Event:
    return UserEvent(context_of(context))


@does("clSetUserEventStatus")
def set_user_event_status(event: Address, status: int) -> None:
    handles.find(event, UserEvent, _CODE).set_status(status)


counted("Event", Event, _CODE)


@tells("clGetEventInfo")
def get_event_info(address: Address, param: int) -> bytes:
    event = event_of(address)
    if param == _INFO.COMMAND_EXECUTION_STATUS:
        return struct.pack("=i", _status(event))
    if param == _INFO.COMMAND_TYPE:
        return struct.pack("=I", event.kind)
    if param == _INFO.REFERENCE_COUNT:
        return struct.pack("=I", handles.of(event).count)
    if param == _INFO.COMMAND_QUEUE:
        return struct.pack("=Q", handles.of(event.queue).address if event.queue is not None else 0)
    if param == _INFO.CONTEXT:
        return struct.pack("=Q", handles.of(event.own_context()).address)
    raise error("INVALID_VALUE", "")


def _status(event: Event) -> int:
    """Who is told that it has ended may look at memory that buffers lie on, or give that away."""
    status = event.status
    if status <= 0 and event.queue is not None:
        event.queue.runtime.waited()
    return status


@does("clSetEventCallback")
def set_event_callback(event: Address, kind: int, function: Address, data: Address) -> None:
    found = event_of(event)
    if not function or not 0 <= kind <= _SUBMITTED:
        raise error("INVALID_VALUE", "")
    call, handle = _Called(function), handles.of(found)

    def called(status: int) -> None:
        _status(found)
        call(handle.address, status if status < 0 else kind, data)

    found.set_callback(kind, called)


@tells("clGetEventProfilingInfo")
def get_event_profiling_info(event: Address, param: int) -> bytes:
    found = event_of(event)
    refuse("PROFILING_INFO_NOT_AVAILABLE", found.queue is None or not found.queue.is_profiling or found.status != 0)
    refuse("INVALID_VALUE", param not in _PROFILES)
    return struct.pack("=Q", found.get_profiling_info(param))
