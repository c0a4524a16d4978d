"""Mapped memory: addresses that the program has until it unmaps them."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from manycl.c_programs import raw
from manycl.c_programs.calls import FUNCTIONS, Function, enqueues, put_event, same_context, status_of, wait_list
from manycl.c_programs.contexts import queue_of
from manycl.c_programs.handles import handles
from manycl.c_programs.host import put
from manycl.c_programs.memory import CODE, check_access
from manycl.c_programs.transfers import WaitFor, check_range, own_buffer
from manycl.drivers.opencl.real import compiled
from manycl.stand_in import maps
from manycl.stand_in.contexts import CommandQueue
from manycl.stand_in.errors import error
from manycl.stand_in.events import Event, submit
from manycl.stand_in.images import Image
from manycl.stand_in.memory import MemoryObject

_FLAGS, _TYPE = compiled.map_flags, compiled.command_type
_READ, _WRITE, _ANEW = int(_FLAGS.READ), int(_FLAGS.WRITE), int(_FLAGS.WRITE_INVALIDATE_REGION)
_mapped: dict[tuple[int, int], list[Any]] = {}
"""By object and address: what keeps it mapped, once for each time that it was."""
_lock = threading.Lock()


def _maps(name: str, function: Function) -> None:
    """Register a function that returns an address and an event: ``function(queue, …, waits)``."""

    def guarded(*given: Any) -> int | None:
        address, status = None, 0
        try:
            queue = queue_of(given[0])
            count, events, out = given[-4:-1]
            waits = wait_list(queue, count, events) if count or events else None
            address, event = function(queue, *given[1:-4], waits)
            put_event(out, event)
        except Exception as raised:  # nothing may leave a callback
            status = status_of(name, raised)
        put(given[-1], "i", status)
        return address

    FUNCTIONS[name] = guarded


def _check_flags(target: MemoryObject, flags: int, own: int) -> None:
    if flags & ~(_READ | _WRITE | _ANEW) or (flags & _ANEW and flags & (_READ | _WRITE)):
        raise error("INVALID_VALUE", "")
    check_access(target, own, reads=bool(flags & _READ), writes=bool(flags & (_WRITE | _ANEW)))


def _keep(target: MemoryObject, address: int, kept: Any) -> None:
    with _lock:
        _mapped.setdefault((id(target), address), []).append((target, kept))


def _map_buffer(
    queue: CommandQueue, buffer: int | None, blocking: int, flags: int, offset: int, size: int, waits: WaitFor
) -> tuple[int, Event]:
    found = own_buffer(queue, buffer)
    check_range(found, offset, size)
    _check_flags(found, flags, found.own_flags)
    array, event = maps.enqueue_map_buffer(
        queue, found, flags, offset, (size,), np.uint8, wait_for=waits, is_blocking=False
    )
    if blocking:
        event.wait()
    address = int(array.ctypes.data)
    _keep(found, address, array.base)
    return address, event


_maps("clEnqueueMapBuffer", _map_buffer)


class _MappedImage:
    """An image that the real device has mapped."""

    def __init__(self, image: Image, address: int) -> None:
        self._image, self._address = image, address

    def release(self, queue: CommandQueue, wait_for: WaitFor = None) -> Event:
        def enqueue() -> None:
            one = queue.runtime.one
            queue.runtime.finish()
            with one.lock:
                raw.do(
                    "clEnqueueUnmapMemObject",
                    one.queue.int_ptr,
                    self._image.real.int_ptr,
                    self._address,
                    0,
                    None,
                    None,
                )
                one.queue.finish()

        return submit(queue, _TYPE.UNMAP_MEM_OBJECT, wait_for, enqueue)


def _map_image(
    queue: CommandQueue,
    image: int | None,
    blocking: int,
    flags: int,
    origin: int | None,
    region: int | None,
    row: int | None,
    depth: int | None,
    waits: WaitFor,
) -> tuple[int, Event]:
    """The real device's memory, so what it waits for is waited for here."""
    found = handles.find(image, Image, CODE)
    same_context(queue, found)
    _check_flags(found, flags, int(found.real.get_info(compiled.mem_info.FLAGS)))
    addresses: list[int] = []

    def enqueue() -> None:
        one = queue.runtime.one
        queue.runtime.finish()
        with one.lock:
            given = (one.queue.int_ptr, found.real.int_ptr, 1, flags, origin, region, row, depth, 0, None, None)
            addresses.append(raw.make("clEnqueueMapImage", *given))

    event = submit(queue, _TYPE.MAP_IMAGE, waits, enqueue)
    event.wait()
    _keep(found, addresses[0], _MappedImage(found, addresses[0]))
    return addresses[0], event


_maps("clEnqueueMapImage", _map_image)


@enqueues("clEnqueueUnmapMemObject")
def enqueue_unmap_mem_object(queue: CommandQueue, target: int | None, address: int | None, waits: WaitFor) -> Event:
    found = handles.find(target, MemoryObject, CODE)
    same_context(queue, found)
    with _lock:
        kept = _mapped.get((id(found), address or 0), [])
        if not kept:
            raise error("INVALID_VALUE", "")
        _, one = kept.pop()
        if not kept:
            del _mapped[id(found), address or 0]
    event: Event = one.release(queue, waits)
    return event
