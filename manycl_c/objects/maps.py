"""Mapped memory: addresses that the program has until it unmaps them."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import refuse
from manycl.stand_in.objects import transfers as maps
from manycl.stand_in.objects.contexts import CommandQueue
from manycl.stand_in.objects.events import Event, submit
from manycl.stand_in.objects.images import Image
from manycl.stand_in.objects.memory import MemoryObject
from manycl_c import raw
from manycl_c.calls import FUNCTIONS, Function, enqueues, put_event, same_context, status_of, wait_list
from manycl_c.handles import handles
from manycl_c.host import Address, put, words
from manycl_c.objects.contexts import queue_of
from manycl_c.objects.images import BufferImage, command_of
from manycl_c.objects.memory import CODE, check_access
from manycl_c.objects.transfers import WaitFor, check_range, own_buffer

_FLAGS, _TYPE = compiled.map_flags, compiled.command_type
_READ, _WRITE, _ANEW = int(_FLAGS.READ), int(_FLAGS.WRITE), int(_FLAGS.WRITE_INVALIDATE_REGION)
_KIND_3D, _KIND_2D_ARRAY, _KIND_1D_ARRAY = 0x10F2, 0x10F3, 0x10F5
_mapped: dict[tuple[int, int], list[Any]] = {}
"""By object and address: what keeps it mapped, once for each time that it was."""
_lock = threading.Lock()


def _maps(name: str, function: Function) -> None:
    """Register a function that returns an address and an event: ``function(queue, …, waits)``."""

    def guarded(*given: Any) -> Address:
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
    refuse("INVALID_VALUE", flags & ~(_READ | _WRITE | _ANEW) or (flags & _ANEW and flags & (_READ | _WRITE)))
    check_access(target, own, reads=bool(flags & _READ), writes=bool(flags & (_WRITE | _ANEW)))


def _keep(target: MemoryObject, address: int, kept: Any) -> None:
    with _lock:
        _mapped.setdefault((id(target), address), []).append((target, kept))


def _map_buffer(
    queue: CommandQueue, buffer: Address, blocking: int, flags: int, offset: int, size: int, waits: WaitFor
) -> tuple[int, Event]:
    found = own_buffer(queue, buffer)
    check_range(found, offset, size)
    _check_flags(found, flags, found.own_flags)
    array, event = maps.enqueue_map_buffer(
        queue, found, flags, offset, (size,), np.uint8, wait_for=waits, is_blocking=bool(blocking)
    )
    address = int(array.ctypes.data)
    _keep(found, address, array.base)
    return address, event


_maps("clEnqueueMapBuffer", _map_buffer)


class _RealMap:
    """An image that the real device has mapped."""

    def __init__(self, image: Image, address: int) -> None:
        self._image, self._address = image, address

    def release(self, queue: CommandQueue, wait_for: WaitFor = None) -> Event:
        def enqueue() -> None:
            one = queue.runtime.one
            queue.runtime.finish()
            with one.lock:
                given = one.queue.int_ptr, self._image.real.int_ptr, self._address
                raw.do("clEnqueueUnmapMemObject", *given, 0, None, None)
                one.queue.finish()

        return submit(queue, _TYPE.UNMAP_MEM_OBJECT, wait_for, enqueue)


class _CopiedImage:
    """A part of an image in the host's memory, which is written back when it is unmapped. ``row``, ``depth``: bytes
    from row to row, and from slice to slice (0: it has none)."""

    def __init__(self, queue: CommandQueue, image: Image, flags: int, origin: list[int], region: list[int]) -> None:
        refuse("INVALID_VALUE", len(origin) != 3 or len(region) != 3 or not all(region))
        self._queue, self._image, self._flags = queue, image, flags
        element = int.from_bytes(raw.ask("clGetImageInfo", image.real.int_ptr, 0x1111), "little")
        kind = int(image.real.get_info(compiled.mem_info.TYPE))
        self.row = region[0] * element
        layers = kind in (_KIND_3D, _KIND_2D_ARRAY)
        self.depth = self.row * region[1] if layers else self.row if kind == _KIND_1D_ARRAY else 0
        self._room = np.zeros(self.row * region[1] * region[2] + 128, np.uint8)
        start = -self._room.ctypes.data % 128
        self.address = int(self._room.ctypes.data) + start
        self._origin, self._region = (ctypes.c_size_t * 3)(*origin), (ctypes.c_size_t * 3)(*region)

    def _move(self, name: str) -> None:
        how = 1, self._origin, self._region, self.row, self.depth, self.address
        command_of(self._queue, name, self._image, *how)()

    def read(self) -> None:
        if not self._flags & _ANEW:
            self._move("clEnqueueReadImage")

    def release(self, queue: CommandQueue, wait_for: WaitFor = None) -> Event:
        def enqueue() -> None:
            if self._flags & (_WRITE | _ANEW):
                self._move("clEnqueueWriteImage")

        return submit(queue, _TYPE.UNMAP_MEM_OBJECT, wait_for, enqueue)


def _map_image(
    queue: CommandQueue,
    image: Address,
    blocking: int,
    flags: int,
    origin: Address,
    region: Address,
    row: Address,
    depth: Address,
    waits: WaitFor,
) -> tuple[int, Event]:
    """The real device's memory; of an image that is a buffer's, and where the command is held back (as the address is
    told now), memory of its own."""
    found = handles.find(image, Image, CODE)
    same_context(queue, found)
    _check_flags(found, flags, int(found.real.get_info(compiled.mem_info.FLAGS)))
    held: tuple[Event, ...] = tuple([event for event in waits or () if event.gate is not None])
    if isinstance(found, BufferImage) or found.pixels is not None or ((held or not queue.is_usual) and not blocking):
        copy = _CopiedImage(queue, found, flags, words(origin, 3), words(region, 3))
        put(row, "Q", copy.row)
        put(depth, "Q", copy.depth)
        _keep(found, copy.address, copy)
        event = submit(queue, _TYPE.MAP_IMAGE, waits, copy.read)
        if blocking:
            event.wait()
        return copy.address, event
    addresses: list[int] = []

    def enqueue() -> None:
        one = queue.runtime.one
        queue.runtime.finish()
        with one.lock:
            given = (one.queue.int_ptr, found.real.int_ptr, 1, flags, origin, region, row, depth, 0, None, None)
            addresses.append(raw.make("clEnqueueMapImage", *given))

    event = submit(queue, _TYPE.MAP_IMAGE, waits, enqueue)
    event.wait()
    _keep(found, addresses[0], _RealMap(found, addresses[0]))
    return addresses[0], event


_maps("clEnqueueMapImage", _map_image)


@enqueues("clEnqueueUnmapMemObject")
def enqueue_unmap_mem_object(queue: CommandQueue, target: Address, address: Address, waits: WaitFor) -> Event:
    found = handles.find(target, MemoryObject, CODE)
    same_context(queue, found)
    with _lock:
        kept = _mapped.get((id(found), address or 0), [])
        refuse("INVALID_VALUE", not kept)
        _, one = kept.pop()
        if not kept:
            del _mapped[id(found), address or 0]
    event: Event = one.release(queue, waits)
    return event
