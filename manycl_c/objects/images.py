"""Images and samplers. Two-dimensional images of usual pixels are buffers of these, as in the stand-in; what is done
with all others the best real device does (the one-device way)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.contexts import CommandQueue, Context
from manycl.stand_in.objects.events import Event, submit
from manycl.stand_in.objects.images import Image, ImageDescriptor, Sampler, at_once
from manycl.stand_in.objects.memory import Buffer, MemoryObject
from manycl.stand_in.objects.transfers import _enqueue_read_buffer_rect, _enqueue_write_buffer_rect
from manycl.stand_in.runtime import Loan
from manycl_c import raw
from manycl_c.calls import counted, does, enqueues, invalid_property, makes, same_context, tells
from manycl_c.handles import handles
from manycl_c.host import Address, memory, until_zero, words
from manycl_c.objects.contexts import context_of
from manycl_c.objects.memory import CODE, buffer_of, check_access, check_flags, check_part, with_properties
from manycl_c.objects.transfers import own_buffer

_TYPE = compiled.command_type
_KIND_2D, _KIND_3D, _KIND_OF_BUFFER = 0x10F1, 0x10F2, 0x10F6
_HOST = int(compiled.mem_flags.USE_HOST_PTR | compiled.mem_flags.COPY_HOST_PTR | compiled.mem_flags.ALLOC_HOST_PTR)
_BUFFER, _ELEMENT_SIZE = 0x1118, 0x1111  # CL_IMAGE_BUFFER, CL_IMAGE_ELEMENT_SIZE
_MADE_OF = 64
"""Where a cl_image_desc has the memory object that an image is made of."""


class BufferImage(Image):
    """An image whose elements are those of ``made_of``. Each command has an image of its own, of the memory that the
    real device is lent for the buffer; ``real``, of a buffer that nobody uses, is only asked what images are like."""

    made_of: Buffer

    def __init__(self, made_of: Buffer, flags: int, form: Address, described: bytes) -> None:
        self.made_of, self._flags, self._described = made_of, flags, described
        self._form = ctypes.string_at(form, 8) if form else None
        context, access = made_of.own_context, made_of.own_flags & ~_HOST
        like = compiled.Buffer(context.real, access, made_of.whole.nbytes)
        if made_of.whole is not made_of:  # (of which not all drivers make images)
            like = like.get_sub_region(made_of.low, made_of.nbytes, 0)
        self._begin(context, self._of(like))

    def _of(self, buffer: Any) -> Any:
        described = self._described[:_MADE_OF] + struct.pack("=Q", buffer.int_ptr)
        given = self.made_of.own_context.real.int_ptr, self._flags, self._form, described, None
        return compiled.Image.from_int_ptr(raw.make("clCreateImage", *given), False)

    def lent(self, loan: Loan) -> Any:
        return self._of(loan.buffer(self.made_of))


def image_of(queue: CommandQueue, address: Address) -> Image:
    found = handles.find(address, Image, CODE)
    same_context(queue, found)
    return found


@makes("clCreateImage")
def create_image(context: Address, flags: int, form: Address, described: Address, host: Address) -> Image:
    of = context_of(context)
    if not described:
        raise error("INVALID_IMAGE_DESCRIPTOR", "")
    check_flags(flags)
    made_of = words(described + _MADE_OF, 1)[0]
    if made_of:
        if ctypes.string_at(described, 4) != struct.pack("=I", _KIND_OF_BUFFER):
            raise error("INVALID_OPERATION", "")  # manycl makes no images on top of others, nor planes of buffers
        buffer = buffer_of(made_of)
        check_part(flags, buffer.own_flags)
        return BufferImage(buffer, flags, form, ctypes.string_at(described, _MADE_OF))
    real = compiled.Image.from_int_ptr(raw.make("clCreateImage", of.real.int_ptr, flags, form, described, host), False)
    image = Image.__new__(Image)
    if _is_array(image, of, flags, form, described, host, real):
        image.real = real  # which is only asked what images are like
    else:
        image._begin(of, real)
    return image


def _is_array(
    image: Image, context: Context, flags: int, form: Address, described: Address, host: Address, real: Any
) -> bool:
    """Whether a new image is made of a buffer, as it was asked for, and as there is a ``real`` one."""
    if not (form and described):  # (else there would be no real one)
        return False
    kind, width, height, _, _, row, *_ = struct.unpack("=I4x6QII", ctypes.string_at(described, _MADE_OF))
    if kind != _KIND_2D:
        return False
    how, copies = ImageDescriptor(), flags & int(compiled.mem_flags.COPY_HOST_PTR)
    how.image_type, how.shape, how.pitches = kind, (width, height), (row, 0)
    least = width * int.from_bytes(raw.ask("clGetImageInfo", real.int_ptr, _ELEMENT_SIZE), "little")
    hostbuf = memory(host, (row or least) * (height - 1) + least) if copies and host else None
    usual = compiled.ImageFormat(*struct.unpack("=2I", ctypes.string_at(form, 8)))
    return image._is_array(context, flags, usual, how, hostbuf)


@makes("clCreateImageWithProperties")
def create_image_with_properties(
    context: Address, properties: Address, flags: int, form: Address, described: Address, host: Address
) -> Image:
    context_of(context)
    if until_zero(properties):
        raise invalid_property()
    image: Image = create_image(context, flags, form, described, host)
    if properties:
        with_properties.add(image)
    return image


def _described(kind: int, extents: Sequence[int], row: int, depth: int) -> Any:
    """A cl_image_desc."""
    width, height, slices = extents
    return ctypes.create_string_buffer(struct.pack("=I4x6QII8x", kind, width, height, slices, 0, row, depth, 0, 0))


@makes("clCreateImage2D")
def create_image_2d(
    context: Address, flags: int, form: Address, width: int, height: int, row: int, host: Address
) -> Any:
    found = _described(_KIND_2D, (width, height, 0), row, 0)
    return create_image(context, flags, form, ctypes.addressof(found), host)


@makes("clCreateImage3D")
def create_image_3d(
    context: Address,
    flags: int,
    form: Address,
    width: int,
    height: int,
    slices: int,
    row: int,
    depth: int,
    host: Address,
) -> Any:
    found = _described(_KIND_3D, (width, height, slices), row, depth)
    return create_image(context, flags, form, ctypes.addressof(found), host)


@does("clGetSupportedImageFormats")
def get_supported_image_formats(
    context: Address, flags: int, kind: int, most: int, formats: Address, count: Address
) -> None:
    real = context_of(context).real.int_ptr
    raw.do("clGetSupportedImageFormats", real, flags, kind, most, formats, count)


@tells("clGetImageInfo")
def get_image_info(image: Address, param: int) -> bytes:
    found = handles.find(image, Image, CODE)
    if param == _BUFFER and isinstance(found, BufferImage):
        return struct.pack("=Q", handles.of(found.made_of).address)
    return raw.ask("clGetImageInfo", found.real.int_ptr, param)


# commands


class _Done:
    """(What stands for an event of a command that has ended.)"""

    def wait(self) -> None:
        """It has."""


def command_of(queue: CommandQueue, name: str, *given: Any) -> Callable[[], None]:
    """Return what enqueues one of the real device's; ``given``: its arguments between queue and events, memory objects
    in the places of real ones."""

    def do(own: Any, *real: Any) -> _Done:
        left = iter(real)
        taken = (next(left).int_ptr if isinstance(one, MemoryObject) else one for one in given)
        raw.do(name, own.int_ptr, *taken, 0, None, None)
        raw.do("clFinish", own.int_ptr)
        return _Done()

    return lambda: at_once(queue, [one for one in given if isinstance(one, MemoryObject)], do)


def _copied(address: Address, count: int) -> Any:
    """Numbers that the program may have thrown away when they are needed."""
    refuse("INVALID_VALUE", not address)
    return (ctypes.c_size_t * count)(*words(address, count))


def _color(address: Address) -> Any:
    refuse("INVALID_VALUE", not address)
    return ctypes.create_string_buffer(ctypes.string_at(address or 0, 16), 16)


def _host(address: Address) -> Address:
    refuse("INVALID_VALUE", not address)
    return address


_TAKEN: dict[str, Callable[[CommandQueue, Any], Any]] = {
    "i": image_of,
    "b": own_buffer,
    "3": lambda queue, address: _copied(address, 3),
    "c": lambda queue, address: _color(address),
    "h": lambda queue, address: _host(address),
    "w": lambda queue, blocking: 1,
    "n": lambda queue, number: number,
}
"""What is made of a command's arguments: an image, a buffer, three sizes, a colour, the host's memory, whether to wait
(the real device's queue always is waited for), a number."""
_COMMANDS = {
    "READ_IMAGE": ("clEnqueueReadImage", "iw33nnh"),
    "WRITE_IMAGE": ("clEnqueueWriteImage", "iw33nnh"),
    "FILL_IMAGE": ("clEnqueueFillImage", "ic33"),
    "COPY_IMAGE": ("clEnqueueCopyImage", "ii333"),
    "COPY_IMAGE_TO_BUFFER": ("clEnqueueCopyImageToBuffer", "ib33n"),
    "COPY_BUFFER_TO_IMAGE": ("clEnqueueCopyBufferToImage", "bin33"),
}
"""Commands on images, by their kinds, with their arguments between queue and events."""


def _of_pixels(queue: CommandQueue, kind: int, blocking: bool, taken: Sequence[Any], waits: Any) -> Event:
    """A command between the host and an image that is a buffer."""
    (image, _, origin, region, row, _, address), reads = taken, kind == _TYPE.READ_IMAGE
    check_access(image, int(image.real.get_info(compiled.mem_info.FLAGS)), reads=reads, writes=not reads)
    start, extents, pitches = image.place(list(origin), list(region), "")
    data = memory(address, (row or extents[0]) * (extents[1] - 1) + extents[0], writable=reads)
    how = queue, image.pixels, data, start, (0, 0, 0), extents, pitches, (row,), waits, blocking
    event = _enqueue_read_buffer_rect(*how, is_kept=False) if reads else _enqueue_write_buffer_rect(*how)
    event.kind = kind
    return event


def _register(kind: int, name: str, letters: str) -> None:
    @enqueues(name)
    def enqueue(queue: CommandQueue, *given: Any) -> Event:
        *values, waits = given
        taken = [_TAKEN[letter](queue, value) for letter, value in zip(letters, values, strict=True)]
        if letters[1] == "w" and taken[0].pixels is not None:
            return _of_pixels(queue, kind, bool(values[1]), taken, waits)
        event = submit(queue, kind, waits, command_of(queue, name, *taken))
        if "w" in letters and values[letters.index("w")]:
            event.wait()
        return event


for _kind, _command in _COMMANDS.items():
    _register(getattr(_TYPE, _kind), *_command)


# pipes, of which manycl's device has none


@makes("clCreatePipe")
def create_pipe(context: Address, flags: int, packet: int, most: int, properties: Address) -> Any:
    context_of(context)
    raise error("INVALID_OPERATION", "")


@tells("clGetPipeInfo")
def get_pipe_info(pipe: Address, param: int) -> bytes:
    raise error(CODE, "")


# samplers

_plain: WeakSet[Any] = WeakSet()
"""Those that were made without a list of properties."""


@makes("clCreateSampler")
def create_sampler(context: Address, normalized: int, addressing: int, filtering: int) -> Any:
    made = Sampler(context_of(context), bool(normalized), addressing, filtering)
    _plain.add(made)
    return made


@makes("clCreateSamplerWithProperties")
def create_sampler_with_properties(context: Address, properties: Address) -> Any:
    return Sampler(context_of(context), [*until_zero(properties), 0] if properties else [])


counted("Sampler", Sampler, "INVALID_SAMPLER")


@tells("clGetSamplerInfo")
def get_sampler_info(sampler: Address, param: int) -> bytes:
    found = handles.find(sampler, Sampler, "INVALID_SAMPLER")
    info = compiled.sampler_info
    if param == info.REFERENCE_COUNT:
        return struct.pack("=I", handles.of(found).count)
    if param == info.CONTEXT:
        return struct.pack("=Q", handles.of(found.own_context).address)
    if param == 0x1158 and found in _plain:  # CL_SAMPLER_PROPERTIES
        return b""
    return raw.ask("clGetSamplerInfo", found.int_ptr, param)
