"""Images, samplers and pipes. Two-dimensional images of usual pixels are buffers of these, row after row, which kernels
have as arrays (:mod:`manycl.analysis.texts.images`); a command of the real device's has a real one for its time. All
others are real ones of the best real device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from manycl.api.versions.images import Pixels
from manycl.drivers.opencl.real import compiled
from manycl.graph.versions.images import image_of
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.contexts import CommandQueue, Context
from manycl.stand_in.objects.events import Command, Event, submit
from manycl.stand_in.objects.memory import Buffer, MemoryObject, MemoryObjectHolder, as_bytes
from manycl.stand_in.objects.transfers import (
    MemoryMap,
    WaitFor,
    _enqueue_read_buffer_rect,
    _enqueue_write_buffer_rect,
    _triple,
    buffer_of,
    complete,
    enqueue_map_buffer,
)
from manycl.stand_in.runtime import Loan

_TYPE = compiled.command_type
_INFO = compiled.mem_info


class _RealObject(MemoryObject):
    """An object that only the real device has."""

    def _information(self, param: int) -> Any:
        if param == _INFO.CONTEXT:
            return self.own_context
        return None if param == _INFO.ASSOCIATED_MEMOBJECT else self.real.get_info(param)

    def release(self) -> None:
        self.real.release()

    def _begin(self, context: Context, real: Any, hostbuf: Any = None) -> None:
        self.own_context, self.runtime, self.real, self.hostbuf = context, context.runtime, real, hostbuf


_ORDERS = {int(getattr(compiled.channel_order, name)): n for name, n in (("R", 1), ("RG", 2), ("RGBA", 4))}
_CHANNELS = {
    int(getattr(compiled.channel_type, kind + name)): np.dtype(type_)
    for kind, name, type_ in (
        *((kind, f"_INT{bits}", f"i{bits // 8}") for kind in ("SNORM", "SIGNED") for bits in (8, 16)),
        *((kind, f"_INT{bits}", f"u{bits // 8}") for kind in ("UNORM", "UNSIGNED") for bits in (8, 16)),
        *(("SIGNED", "_INT32", "i4"), ("UNSIGNED", "_INT32", "u4"), ("HALF", "_FLOAT", "f2"), ("", "FLOAT", "f4")),
    )
}
"""Of pixels that kernels can have in arrays: how many channels there are, and what they are."""
_FLAGS = compiled.mem_flags
_COPY, _USE = int(_FLAGS.COPY_HOST_PTR), int(_FLAGS.USE_HOST_PTR)
_ACCESS = int(_FLAGS.READ_WRITE | _FLAGS.READ_ONLY | _FLAGS.WRITE_ONLY)
Place = tuple[tuple[int, int, int], tuple[int, int, int], tuple[int]]


class Image(_RealObject):
    """``pixels``: the contents, if it is one of these, else None. (PyOpenCL's Python layer has its ``__init__``.)"""

    pixels: Buffer | None = None

    @staticmethod
    def _custom_init(image: Image, context: Context, flags: int, format: Any, *how: Any, **named: Any) -> None:  # noqa: A002
        """``how``: a descriptor and the host's memory, or (OpenCL 1.1) shape, pitches and that."""
        if isinstance(how[0], ImageDescriptor) and image._is_array(context, int(flags), format, *how):
            return
        real = compiled.Image.__new__(compiled.Image)
        compiled.Image._custom_init(real, context.real, int(flags), format, *how, **named)
        image._begin(context, real, real.hostbuf)

    def _is_array(self, context: Context, flags: int, format_: Any, how: ImageDescriptor, hostbuf: Any) -> bool:
        """Return whether it is made of a buffer: what is not usual is for the real device, also to say what is
        wrong."""
        channels, lanes = _CHANNELS.get(format_.channel_data_type), _ORDERS.get(format_.channel_order)
        shape = how.shape
        usual = how.image_type == compiled.mem_object_type.IMAGE2D and not flags & _USE and len(shape) == 2
        if not usual or channels is None or lanes is None or min(shape) < 1 or shape[0] * shape[1] >> 31:
            return False
        self.extents = width, height = shape[0], shape[1]
        self.pixel_size = channels.itemsize * lanes
        row = width * self.pixel_size
        pitch = int(how.pitches[0]) if how.pitches else 0
        host = None if hostbuf is None else as_bytes(hostbuf)
        is_short = host is not None and len(host) < (pitch or row) * (height - 1) + row
        if (host is None) == bool(flags & _COPY) or is_short or 0 < pitch < row:
            return False
        self.form = flags & ~_COPY, format_
        self.kind = image_of((height, width, lanes), channels)
        self._begin(context, None)
        rows = None if host is None else np.lib.stride_tricks.as_strided(host, (height, row), (pitch or row, 1))
        self.pixels = Buffer(context, flags, row * height, None if rows is None else rows.reshape(-1))
        return True

    def argument(self) -> Pixels:
        """Return the argument that manycl's kernels are given."""
        assert self.pixels is not None
        return Pixels(self.pixels.live(), self.kind)

    def lent(self, loan: Loan) -> Any:
        """A real image of the contents, which come back when the command has ended."""
        if self.pixels is None:
            return self.real
        context, memory, (flags, format_) = self.own_context.real, self.pixels.in_place(), self.form
        real = compiled.Image.__new__(compiled.Image)
        how = compiled.ImageDescriptor()
        how.image_type, how.shape, how.pitches = compiled.mem_object_type.IMAGE2D, self.extents, (0, 0)
        compiled.Image._custom_init(real, context, flags & _ACCESS | _COPY, format_, how, memory)
        loan.returns.append(
            lambda queue: compiled._enqueue_read_image(queue, real, (0, 0), self.extents, memory, 0, 0, None, True)
        )
        return real

    def place(self, origin: Any, region: Any, routine: str) -> Place:
        """A rectangle of pixels, in bytes: where it begins, its extents, and the bytes from row to row."""
        (x, y, z), (w, h, depth) = _triple(origin, 0, "origin", routine), _triple(region, 1, "region", routine)
        is_outside = min(x, y, z) < 0 or min(w, h, depth) < 1 or x + w > self.extents[0] or y + h > self.extents[1]
        refuse("INVALID_VALUE", is_outside or z + depth != 1, routine)
        size = self.pixel_size
        return (x * size, y, 0), (w * size, h, 1), (self.extents[0] * size,)

    def release(self) -> None:
        (self.real if self.pixels is None else self.pixels).release()

    def _information(self, param: int) -> Any:
        if self.pixels is None:
            return super()._information(param)
        return compiled.mem_object_type.IMAGE2D if param == _INFO.TYPE else self.pixels.get_info(param)

    def get_image_info(self, param: int) -> Any:
        if self.pixels is None:
            return self.real.get_image_info(param)
        (width, height), size = self.extents, self.pixel_size
        known = {"FORMAT": self.form[1], "ELEMENT_SIZE": size, "ROW_PITCH": size * width, "BUFFER": None}
        known |= {"WIDTH": width, "HEIGHT": height}
        answers = {
            int(value): known.get(name, 0) for name, value in vars(compiled.image_info).items() if name.isupper()
        }
        return self._told(answers, param)


class ImageDescriptor(compiled.ImageDescriptor):  # type: ignore[misc]
    """An image's descriptor, as PyOpenCL's, whose ``shape`` and ``pitches`` can only be set; images made of buffers are
    not shared with these."""

    shape: Any = ()
    pitches: Any = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("shape", "pitches"):
            getattr(compiled.ImageDescriptor, name).__set__(self, value)
            self.__dict__[name] = () if value is None else tuple(map(int, value))
        else:
            super().__setattr__(name, value)

    @property
    def buffer(self) -> Any:
        return None

    @buffer.setter
    def buffer(self, buffer: MemoryObject | None) -> None:
        if buffer is not None:
            raise error("INVALID_OPERATION", "clCreateImage", "manycl makes no images on top of buffers")


_SAMPLER = compiled.sampler_info
_USUAL = {
    getattr(_SAMPLER, name): value
    for names, value in (
        (("LOD_MIN", "LOD_MIN_KHR"), 0.0),
        (("LOD_MAX", "LOD_MAX_KHR"), float(np.finfo(np.float32).max)),
        (("MIP_FILTER_MODE", "MIP_FILTER_MODE_KHR"), int(compiled.filter_mode.NEAREST)),
    )
    for name in names
    if hasattr(_SAMPLER, name)
}
"""What samplers have that were made without them, where the driver does not tell."""


class Sampler(compiled.Sampler):  # type: ignore[misc]
    """A sampler, as PyOpenCL's."""

    _made: ClassVar[weakref.WeakValueDictionary[int, Sampler]] = weakref.WeakValueDictionary()

    def __init__(self, context: Context, *how: Any) -> None:
        super().__init__(context.real, *how)
        self.own_context = context
        self._made[self.int_ptr] = self

    @classmethod
    def from_int_ptr(cls, int_ptr_value: int, retain: bool = True) -> Sampler:
        found = cls._made.get(int_ptr_value)
        if found is None:
            raise error("INVALID_VALUE", "from_int_ptr", "manycl knows no such object")
        return found

    @property
    def number(self) -> int:
        """The number that manycl's kernels are given."""
        addressing = self.get_info(_SAMPLER.ADDRESSING_MODE) - int(compiled.addressing_mode.NONE)
        filtering = self.get_info(_SAMPLER.FILTER_MODE) - int(compiled.filter_mode.NEAREST)
        return int(2 * addressing + 16 * (1 + filtering) + bool(self.get_info(_SAMPLER.NORMALIZED_COORDS)))

    def get_info(self, param: int) -> Any:
        if param == compiled.sampler_info.CONTEXT:
            return self.own_context
        try:
            return super().get_info(param)
        except compiled.LogicError:
            if param not in _USUAL:
                raise
            return _USUAL[param]


class Pipe(_RealObject):
    """A pipe, as PyOpenCL's."""

    def __init__(
        self, context: Context, flags: int, packet_size: int, max_packets: int, properties: Sequence[Any] = ()
    ) -> None:
        self._begin(context, compiled.Pipe(context.real, int(flags), packet_size, max_packets, properties))

    def get_pipe_info(self, param: int) -> Any:
        return self.real.get_pipe_info(param)


def get_supported_image_formats(context: Context, flags: int, kind: int) -> Any:
    return compiled.get_supported_image_formats(context.real, flags, kind)


def at_once(queue: CommandQueue, memory: Sequence[MemoryObject], command: Callable[..., Any]) -> None:
    """Have the real device do a command behind all that was enqueued, and wait: ``command(queue, *real_memory)``."""
    runtime = queue.runtime
    runtime.finish()
    with runtime.one.lock:
        loan = runtime.one.lend(memory)
        try:
            command(runtime.one.queue, *(loan.real[target] for target in memory)).wait()
        finally:
            loan.end()


def _image(memory: MemoryObjectHolder, routine: str) -> Image:
    if not isinstance(memory, Image):
        raise error("INVALID_MEM_OBJECT", routine)
    return memory


def as_command(queue: CommandQueue, function: Callable[..., Any], *how: Any) -> Command:
    """A command of the real device's: ``function(queue, *how)``, with real memory objects in place of those among
    ``how``."""
    memory = [one for one in how if isinstance(one, MemoryObject)]

    def enqueue() -> None:
        def command(own: Any, *real: Any) -> Any:
            left = iter(real)
            return function(own, *(next(left) if isinstance(one, MemoryObject) else one for one in how))

        at_once(queue, memory, command)

    return enqueue


def _told(event: Event, kind: int) -> Event:
    """Return what a command of a buffer's is to those who enqueued one of an image's."""
    event.kind = kind
    return event


def _host_command(
    routine: str, kind: int, function: Callable[..., Any], of_buffer: Callable[..., Event]
) -> Callable[..., Event]:
    """Return what enqueues a command between an image and the host; ``of_buffer``: between a rectangle of a buffer and
    it."""

    def enqueue(
        queue: CommandQueue,
        mem: Image,
        origin: Any,
        region: Any,
        hostbuf: Any,
        row_pitch: int = 0,
        slice_pitch: int = 0,
        wait_for: WaitFor = None,
        is_blocking: bool = True,
    ) -> Event:
        image = _image(mem, routine)
        if image.pixels is not None:
            start, extents, pitches = image.place(origin, region, routine)
            places = start, (0, 0, 0), extents, pitches, (row_pitch,)
            return _told(of_buffer(queue, image.pixels, hostbuf, *places, wait_for, is_blocking), kind)
        how = image, origin, region, hostbuf, row_pitch, slice_pitch
        return complete(submit(queue, kind, wait_for, as_command(queue, function, *how), hostbuf), is_blocking)

    return enqueue


_enqueue_read_image = _host_command(
    "clEnqueueReadImage", _TYPE.READ_IMAGE, compiled._enqueue_read_image, _enqueue_read_buffer_rect
)
_enqueue_write_image = _host_command(
    "clEnqueueWriteImage", _TYPE.WRITE_IMAGE, compiled._enqueue_write_image, _enqueue_write_buffer_rect
)


def _enqueue_copy_image(
    queue: CommandQueue, src: Any, dest: Any, src_origin: Any, dest_origin: Any, region: Any, wait_for: WaitFor = None
) -> Event:
    routine = "clEnqueueCopyImage"
    how = _image(src, routine), _image(dest, routine), src_origin, dest_origin, region
    return submit(queue, _TYPE.COPY_IMAGE, wait_for, as_command(queue, compiled._enqueue_copy_image, *how))


def _enqueue_copy_image_to_buffer(
    queue: CommandQueue, src: Any, dest: Any, origin: Any, region: Any, offset: int, wait_for: WaitFor = None
) -> Event:
    routine = "clEnqueueCopyImageToBuffer"
    how = _image(src, routine), buffer_of(dest, routine), origin, region, offset
    command = as_command(queue, compiled._enqueue_copy_image_to_buffer, *how)
    return submit(queue, _TYPE.COPY_IMAGE_TO_BUFFER, wait_for, command)


def _enqueue_copy_buffer_to_image(
    queue: CommandQueue, src: Any, dest: Any, offset: int, origin: Any, region: Any, wait_for: WaitFor = None
) -> Event:
    routine = "clEnqueueCopyBufferToImage"
    how = buffer_of(src, routine), _image(dest, routine), offset, origin, region
    command = as_command(queue, compiled._enqueue_copy_buffer_to_image, *how)
    return submit(queue, _TYPE.COPY_BUFFER_TO_IMAGE, wait_for, command)


def enqueue_fill_image(
    queue: CommandQueue, mem: Any, color: Any, origin: Any, region: Any, wait_for: WaitFor = None
) -> Event:
    how = _image(mem, "clEnqueueFillImage"), color, origin, region
    return submit(queue, _TYPE.FILL_IMAGE, wait_for, as_command(queue, compiled.enqueue_fill_image, *how))


def enqueue_map_image(
    queue: CommandQueue,
    img: Any,
    flags: int,
    origin: Any,
    region: Any,
    shape: Any,
    dtype: Any,
    order: str = "C",
    strides: Any = None,
    wait_for: WaitFor = None,
    is_blocking: bool = True,
) -> tuple[np.ndarray[Any, Any], Event, int, int]:
    """The real device's memory, or the buffer's: it is unmapped when the array goes, or by ``array.base.release()``."""
    image, found = _image(img, "clEnqueueMapImage"), list[Any]()
    if image.pixels is not None:
        (x, y, _), (width, rows, _), (row,) = image.place(origin, region, "clEnqueueMapImage")
        nbytes = (rows - 1) * row + width
        how = flags, y * row + x, (nbytes,), np.uint8, "C", None, wait_for, is_blocking
        memory, event = enqueue_map_buffer(queue, image.pixels, *how)
        mapped = cast(Any, memory.base)
        mapped.__array_interface__ = np.ndarray(shape, dtype, memory, 0, strides, cast(Any, order)).__array_interface__
        return np.asarray(mapped), _told(event, _TYPE.MAP_IMAGE), row, 0
    real = image.real

    def enqueue() -> None:
        queue.runtime.finish()
        with queue.runtime.one.lock:
            found.extend(
                compiled.enqueue_map_image(
                    queue.runtime.one.queue, real, int(flags), origin, region, shape, dtype, order, strides
                )
            )

    event = complete(submit(queue, _TYPE.MAP_IMAGE, wait_for, enqueue), True)
    array, _, row_pitch, slice_pitch = found
    return np.asarray(_MappedImage(queue, array)), event, row_pitch, slice_pitch


class _MappedImage(MemoryMap):
    """``array``: of the real device's memory."""

    def __init__(self, queue: CommandQueue, array: np.ndarray[Any, Any]) -> None:
        self._queue = queue
        self._array: np.ndarray[Any, Any] | None = array
        self.__array_interface__ = array.__array_interface__

    def release(self, queue: CommandQueue | None = None, wait_for: WaitFor = None) -> Event:
        array, self._array = self._array, None
        if array is None:
            raise error("INVALID_VALUE", "clEnqueueUnmapMemObject")
        own, mapped = queue or self._queue, cast(Any, array.base)
        return submit(own, _TYPE.UNMAP_MEM_OBJECT, wait_for, as_command(own, mapped.release))

    def __del__(self) -> None:
        if getattr(self, "_array", None) is not None:
            self.release()
