"""Images, samplers and pipes: real ones of the best real device."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error
from manycl.stand_in.objects.contexts import CommandQueue, Context
from manycl.stand_in.objects.events import Command, Event, submit
from manycl.stand_in.objects.maps import MemoryMap
from manycl.stand_in.objects.memory import Buffer, MemoryObject, MemoryObjectHolder
from manycl.stand_in.objects.transfers import WaitFor, buffer_of, complete

_TYPE = compiled.command_type
_INFO = compiled.mem_info


class _RealObject(MemoryObject):
    """What only the real device has."""

    def _information(self, param: int) -> Any:
        if param == _INFO.CONTEXT:
            return self.own_context
        return None if param == _INFO.ASSOCIATED_MEMOBJECT else self.real.get_info(param)

    def release(self) -> None:
        self.real.release()

    def _begin(self, context: Context, real: Any, hostbuf: Any = None) -> None:
        self.own_context, self.runtime, self.real, self.hostbuf = context, context.runtime, real, hostbuf


class Image(_RealObject):
    """(PyOpenCL's Python layer has its ``__init__``.)"""

    @staticmethod
    def _custom_init(image: Image, context: Context, flags: int, format: Any, *how: Any, **named: Any) -> None:  # noqa: A002
        """``how``: a descriptor and the host's memory, or (OpenCL 1.1) shape, pitches and that."""
        real = compiled.Image.__new__(compiled.Image)
        compiled.Image._custom_init(real, context.real, int(flags), format, *how, **named)
        image._begin(context, real, real.hostbuf)

    def get_image_info(self, param: int) -> Any:
        return self.real.get_image_info(param)


class ImageDescriptor(compiled.ImageDescriptor):  # type: ignore[misc]
    """As PyOpenCL's; images made of buffers are not shared with these."""

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
    """As PyOpenCL's."""

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
    """As PyOpenCL's."""

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


def _image(memory: MemoryObjectHolder, routine: str) -> Any:
    if not isinstance(memory, Image):
        raise error("INVALID_MEM_OBJECT", routine)
    return memory.real


def as_command(queue: CommandQueue, function: Callable[..., Any], *how: Any) -> Command:
    """A command of the real device's: ``function(queue, *how)``, with real buffers in place of those among ``how``."""
    buffers = [one for one in how if isinstance(one, Buffer)]

    def enqueue() -> None:
        def command(own: Any, *real: Any) -> Any:
            left = iter(real)
            return function(own, *(next(left) if isinstance(one, Buffer) else one for one in how))

        at_once(queue, buffers, command)

    return enqueue


def _host_command(routine: str, kind: int, function: Callable[..., Any]) -> Callable[..., Event]:
    """What enqueues a command between an image and the host."""

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
        how = _image(mem, routine), origin, region, hostbuf, row_pitch, slice_pitch
        return complete(submit(queue, kind, wait_for, as_command(queue, function, *how), hostbuf), is_blocking)

    return enqueue


_enqueue_read_image = _host_command("clEnqueueReadImage", _TYPE.READ_IMAGE, compiled._enqueue_read_image)
_enqueue_write_image = _host_command("clEnqueueWriteImage", _TYPE.WRITE_IMAGE, compiled._enqueue_write_image)


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
    """The real device's memory: it is unmapped when the array goes, or by ``array.base.release()``."""
    real, found = _image(img, "clEnqueueMapImage"), list[Any]()

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
