"""Memory objects: buffers and parts of them, what is told of all memory objects, and when they go."""

from __future__ import annotations

import struct
from typing import Any
from weakref import WeakSet

from manycl.drivers.driver import Bytes
from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.contexts import Context
from manycl.stand_in.objects.images import Image
from manycl.stand_in.objects.memory import Buffer, MemoryObject
from manycl_c import raw
from manycl_c.calls import counted, invalid_property, makes, tells, told_when_gone
from manycl_c.handles import handles
from manycl_c.host import Address, memory, until_zero, words
from manycl_c.objects.contexts import context_of

CODE = "INVALID_MEM_OBJECT"
_FLAGS, _INFO = compiled.mem_flags, compiled.mem_info
_USE, _COPY = int(_FLAGS.USE_HOST_PTR), int(_FLAGS.COPY_HOST_PTR)
_READ_ONLY = int(_FLAGS.READ_ONLY)
_HOST = tuple([int(getattr(_FLAGS, f"HOST_{name}")) for name in ("WRITE_ONLY", "READ_ONLY", "NO_ACCESS")])
_ACCESS = int(_FLAGS.READ_WRITE), int(_FLAGS.WRITE_ONLY), _READ_ONLY
_PROPERTIES = 0x110A  # CL_MEM_PROPERTIES
_MOST = 1 << 46
with_properties: WeakSet[Image] = WeakSet()
"""Images that were made with a list of properties, which was empty."""


class OwnBuffer(Buffer):
    """``address``: the host's memory that it lies on, or None; ``given``: the properties that it was made with."""

    address: Address = None
    given: tuple[int, ...] = ()


buffer_of = handles.finder(Buffer, CODE)


def check_access(target: MemoryObject, flags: int, *, reads: bool = False, writes: bool = False) -> None:
    """Raise LogicError where the host may not do with a memory object what it does."""
    write_only, read_only, nothing = _HOST
    if (reads and flags & (write_only | nothing)) or (writes and flags & (read_only | nothing)):
        raise error("INVALID_OPERATION", "")


@makes("clCreateBuffer")
def create_buffer(context: Address, flags: int, size: int, host: Address) -> OwnBuffer:
    found = context_of(context)
    check_flags(flags)
    refuse("INVALID_BUFFER_SIZE", not size or size > _MOST)
    refuse("INVALID_HOST_PTR", bool(host) != bool(flags & (_USE | _COPY)))
    writable = bool(flags & _USE) and not flags & _READ_ONLY
    given: Bytes | None = memory(host, size, writable=writable) if host else None
    buffer = OwnBuffer(found, flags, size, given)
    buffer.address = host if flags & _USE else None
    return buffer


def check_flags(flags: int) -> None:
    """Raise LogicError for flags of a kind that exclude one another."""
    for group in (_ACCESS, _HOST):
        refuse("INVALID_VALUE", sum(bool(flags & one) for one in group) > 1)


@makes("clCreateBufferWithProperties")
def create_buffer_with_properties(
    context: Address, properties: Address, flags: int, size: int, host: Address
) -> Buffer:
    context_of(context)
    if until_zero(properties):
        raise invalid_property()
    buffer: OwnBuffer = create_buffer(context, flags, size, host)
    buffer.given = (0,) if properties else ()
    return buffer


@makes("clCreateSubBuffer")
def create_sub_buffer(whole: Address, flags: int, kind: int, region: Address) -> Buffer:
    found = buffer_of(whole)
    if found.whole is not found:
        raise error(CODE, "")
    if kind != 0x1220 or not region:  # CL_BUFFER_CREATE_TYPE_REGION
        raise error("INVALID_VALUE", "")
    check_flags(flags)
    check_part(flags, found.own_flags)
    origin, size = words(region, 2)
    part = found.get_sub_region(origin, size, flags)
    for group in (_ACCESS, _HOST):  # what is not said of it is as with its buffer
        if not flags & sum(group):
            part.own_flags |= found.own_flags & sum(group)
    return part


def check_part(flags: int, whole: int) -> None:
    """Raise LogicError where a part may do what its buffer may not."""
    read_write, write_only, read_only = _ACCESS
    host_write, host_read, host_nothing = _HOST
    refused = (
        (whole & write_only and flags & (read_write | read_only))
        or (whole & read_only and flags & (read_write | write_only))
        or (whole & host_write and flags & host_read)
        or (whole & host_read and flags & host_write)
        or (whole & host_nothing and flags & (host_read | host_write))
        or flags & (_USE | _COPY | int(_FLAGS.ALLOC_HOST_PTR))
    )
    refuse("INVALID_VALUE", refused)


def _leave(gone: MemoryObject) -> None:
    if isinstance(gone, Buffer) and gone.hostbuf is not None:
        gone.runtime.shared.leave(gone.runtime, gone.whole.array)  # the program may do with its memory what it likes


counted("MemObject", MemoryObject, CODE, _leave)
told_when_gone("clSetMemObjectDestructorCallback", MemoryObject, CODE)


@tells("clGetMemObjectInfo")
def get_mem_object_info(target: Address, param: int) -> bytes:
    found = handles.find(target, MemoryObject, CODE)
    return _image_answer(found, param) if isinstance(found, Image) else _buffer_answer(found, param)


def _common(target: MemoryObject, param: int) -> bytes | None:
    """What is told in the same way of all memory objects."""
    handle = handles.of(target)
    context: Context = target.own_context
    if param == _INFO.REFERENCE_COUNT:
        return struct.pack("=I", handle.count)
    if param == _INFO.CONTEXT:
        return struct.pack("=Q", handles.of(context).address)
    return None


def _image_answer(image: Any, param: int) -> bytes:
    common = _common(image, param)
    made_of = getattr(image, "made_of", None)
    if common is None and param == _PROPERTIES:
        common = bytes(8) if image in with_properties else b""
    elif made_of is not None and param == _INFO.ASSOCIATED_MEMOBJECT:
        common = struct.pack("=Q", handles.of(made_of).address)
    elif made_of is not None and param == _INFO.HOST_PTR:
        common = struct.pack("=Q", _host_address(made_of))
    return common if common is not None else raw.ask("clGetMemObjectInfo", image.real.int_ptr, param)


def _buffer_answer(buffer: Any, param: int) -> bytes:
    common = _common(buffer, param)
    if common is not None:
        return common
    if param == _INFO.HOST_PTR:
        return struct.pack("=Q", _host_address(buffer))
    if param == _INFO.ASSOCIATED_MEMOBJECT:
        whole = buffer.whole
        return struct.pack("=Q", handles.of(whole).address if whole is not buffer else 0)
    if param == _PROPERTIES:
        given = buffer.given if isinstance(buffer, OwnBuffer) else ()
        return struct.pack(f"={len(given)}Q", *given)
    form = _FORMS.get(param)
    if form is None:
        raise error("INVALID_VALUE", "")
    return struct.pack("=" + form, int(buffer.get_info(param)))


_FORMS: dict[int, str] = {
    int(_INFO.TYPE): "I",
    int(_INFO.FLAGS): "Q",
    int(_INFO.SIZE): "Q",
    int(_INFO.MAP_COUNT): "I",
    int(_INFO.OFFSET): "Q",
    int(_INFO.USES_SVM_POINTER): "I",
}


def _host_address(buffer: Buffer) -> int:
    whole = buffer.whole
    address = whole.address if isinstance(whole, OwnBuffer) else None
    return address + buffer.low if address else 0
