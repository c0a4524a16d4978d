"""Kernels: their arguments, their launches, and what is told of them."""

from __future__ import annotations

import ctypes
import struct
from typing import Any
from weakref import WeakSet

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.contexts import CommandQueue, Device
from manycl.stand_in.objects.events import Event
from manycl.stand_in.objects.images import Image, Sampler
from manycl.stand_in.objects.kernels import Kernel, enqueue_nd_range_kernel
from manycl.stand_in.objects.memory import Buffer, MemoryObject
from manycl_c import raw
from manycl_c.calls import counted, does, enqueues, makes, same_context, tells
from manycl_c.handles import handles
from manycl_c.host import Address, put, put_words, text, words
from manycl_c.objects.platforms import device_of
from manycl_c.objects.programs import kernels_of, program_of
from manycl_c.objects.transfers import WaitFor

_INFO, _GROUP = compiled.kernel_info, compiled.kernel_work_group_info
_CODE = "INVALID_KERNEL"
_QUALIFIER, _TYPE_NAME = 0x1196, 0x1198  # CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME
_PLACES = {0x119B: "buffer", 0x119C: "local", 0x119D: "buffer", 0x119E: "scalar"}
_MANY = 1 << 40
"""Work-items along a dimension, beyond what any launch has."""

kernel_of = handles.finder(Kernel, _CODE)


def _note(kernel: Kernel) -> Kernel:
    kernels_of.setdefault(kernel.owner, WeakSet()).add(kernel)
    return kernel


@makes("clCreateKernel")
def create_kernel(program: Address, name: Address) -> Kernel:
    found = program_of(program)
    if not name:
        raise error("INVALID_VALUE", "")
    return _note(Kernel(found, text(name).decode(errors="replace")))


@does("clCreateKernelsInProgram")
def create_kernels_in_program(program: Address, most: int, kernels: Address, count: Address) -> None:
    found = program_of(program)
    names = str(found.get_info(compiled.program_info.KERNEL_NAMES)).split(";")
    made = [name for name in names if name]
    refuse("INVALID_VALUE", kernels and most < len(made))
    if kernels:
        put_words(kernels, [handles.give(_note(Kernel(found, name))) for name in made])
    put(count, "I", len(made))


@makes("clCloneKernel")
def clone_kernel(kernel: Address) -> Kernel:
    return _note(kernel_of(kernel).clone())


counted("Kernel", Kernel, _CODE)


# arguments


@does("clSetKernelArg")
def set_kernel_arg(kernel: Address, index: int, size: int, value: Address) -> None:
    found = kernel_of(kernel)
    refuse("INVALID_ARG_INDEX", index >= len(found.given))
    fact = found._arguments[index]
    kind = fact.kind if fact is not None else _kind(found, index, size, value)
    if kind == "scalar" or kind == "other":
        if not value:
            raise error("INVALID_ARG_VALUE", "")
        refuse("INVALID_ARG_SIZE", fact is not None and fact.size and fact.size != size)
        found._set_bytes(index, ctypes.string_at(value, size))
    elif kind == "local":
        refuse("INVALID_ARG_VALUE", value)
        refuse("INVALID_ARG_SIZE", not size)
        found.set_arg(index, compiled.LocalMemory(size))
    else:
        found.set_arg(index, _object(kind, size, value))


def _object(kind: str, size: int, value: Address) -> Any:
    """The memory object or the sampler that an argument is; None for NULL."""
    refuse("INVALID_ARG_SIZE", size != 8)
    address = words(value, 1)[0] if value else 0
    if kind == "sampler":
        return handles.find(address, Sampler, "INVALID_SAMPLER")
    wanted: type[Any] = Image if kind == "image" else Buffer if kind == "buffer" else MemoryObject
    return handles.find(address, wanted, "INVALID_MEM_OBJECT") if address else None


def _kind(kernel: Kernel, index: int, size: int, value: Address) -> str:
    """What an argument is that the analysis knows nothing of: as the real device says, or else as it looks."""
    real = kernel.real.int_ptr
    try:
        place = raw.ask("clGetKernelArgInfo", real, index, _QUALIFIER)
        name = raw.ask("clGetKernelArgInfo", real, index, _TYPE_NAME)
    except compiled.Error:
        if not value:
            return "local"
        known = handles.known(words(value, 1)[0]) if size == 8 else None
        if known is None:
            return "scalar"
        return "sampler" if isinstance(known.kept, Sampler) else "memory"
    if name.rstrip(b"\0") == b"sampler_t":
        return "sampler"
    if name.startswith(b"image"):
        return "image"
    return _PLACES.get(int.from_bytes(place, "little"), "scalar")


@does("clSetKernelArgSVMPointer")
def set_kernel_arg_svm_pointer(kernel: Address, index: int, value: Address) -> None:
    """(Of which manycl's device has none.)"""
    kernel_of(kernel)
    raise error("INVALID_OPERATION", "")


@does("clSetKernelExecInfo")
def set_kernel_exec_info(kernel: Address, param: int, size: int, value: Address) -> None:
    kernel_of(kernel)
    raise error("INVALID_OPERATION", "")


# launches


@enqueues("clEnqueueNDRangeKernel")
def launch(
    queue: CommandQueue,
    kernel: Address,
    dimensions: int,
    offset: Address,
    size: Address,
    local: Address,
    waits: WaitFor,
) -> Event:
    found = kernel_of(kernel)
    refuse("INVALID_CONTEXT", found.owner.own_context is not queue.own_context)
    refuse("INVALID_WORK_DIMENSION", not 1 <= dimensions <= 3)
    extents = tuple(words(size, dimensions)) if size else (0,) * dimensions
    groups = tuple(words(local, dimensions)) if local else None
    if 0 in extents:
        return _nothing(queue, found, waits)
    first = tuple(words(offset, dimensions)) if offset else None
    if first is not None and not any(first):
        first = None
    refuse("INVALID_GLOBAL_WORK_SIZE", any(extent > _MANY for extent in extents))
    if first is not None and any(start + extent >= 1 << 64 for start, extent in zip(first, extents, strict=True)):
        raise error("INVALID_GLOBAL_OFFSET", "")
    return enqueue_nd_range_kernel(queue, found, extents, groups, first, waits)


def _nothing(queue: CommandQueue, kernel: Kernel, waits: WaitFor) -> Event:
    """A launch without work-items, which OpenCL has since 2.1."""
    device = queue.get_info(compiled.command_queue_info.DEVICE)
    version = str(device.get_info(compiled.device_info.VERSION)).split()[1]
    refuse("INVALID_GLOBAL_WORK_SIZE", tuple(map(int, version.split("."))) < (2, 1))
    kernel.arguments()
    return enqueue_nd_range_kernel(queue, kernel, (0,), None, None, waits, allow_empty_ndrange=True)


@enqueues("clEnqueueTask")
def enqueue_task(queue: CommandQueue, kernel: Address, waits: WaitFor) -> Event:
    found = kernel_of(kernel)
    same_context(queue, found.owner)
    event = enqueue_nd_range_kernel(queue, found, (1,), (1,), None, waits)
    event.kind = compiled.command_type.TASK
    return event


# information


@tells("clGetKernelInfo")
def get_kernel_info(address: Address, param: int) -> bytes:
    kernel = kernel_of(address)
    answers = {
        int(_INFO.REFERENCE_COUNT): struct.pack("=I", handles.of(kernel).count),
        int(_INFO.CONTEXT): struct.pack("=Q", handles.of(kernel.owner.own_context).address),
        int(_INFO.PROGRAM): struct.pack("=Q", handles.of(kernel.owner).address),
        int(_INFO.FUNCTION_NAME): kernel.name.encode() + b"\0",
        int(_INFO.NUM_ARGS): struct.pack("=I", len(kernel.given)),
    }
    return answers[param] if param in answers else raw.ask("clGetKernelInfo", kernel.real.int_ptr, param)


def _device_of(kernel: Kernel, device: Address) -> Device:
    devices = kernel.owner.own_context.get_info(compiled.context_info.DEVICES)
    found: Device = device_of(device) if device or len(devices) != 1 else devices[0]
    refuse("INVALID_DEVICE", found not in devices)
    return found


@tells("clGetKernelWorkGroupInfo")
def get_kernel_work_group_info(kernel: Address, device: Address, param: int) -> bytes:
    found = kernel_of(kernel)
    on = _device_of(found, device)
    own = found.own_group_info(on)
    if param in own:
        numbers = own[param] if isinstance(own[param], list) else [own[param]]
        return struct.pack(f"={len(numbers)}Q", *numbers)
    told = raw.ask("clGetKernelWorkGroupInfo", found.real.int_ptr, on.model.int_ptr, param)
    merged = found.get_work_group_info(param, on) if len(on.runtime.handles) > 1 and len(told) == 8 else None
    return told if merged is None else struct.pack("=Q", int(merged))


@tells("clGetKernelSubGroupInfo")
def get_kernel_sub_group_info(kernel: Address, device: Address, param: int, *given: Address) -> bytes:
    found = kernel_of(kernel)
    return raw.ask(
        "clGetKernelSubGroupInfo", found.real.int_ptr, _device_of(found, device).model.int_ptr, param, *given
    )


@tells("clGetKernelArgInfo")
def get_kernel_arg_info(kernel: Address, index: int, param: int) -> bytes:
    return raw.ask("clGetKernelArgInfo", kernel_of(kernel).real.int_ptr, index, param)
