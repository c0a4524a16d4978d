"""Contexts and command queues."""

from __future__ import annotations

import struct
from typing import Any

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.contexts import CommandQueue, Context, Device, Platform
from manycl_c.calls import counted, does, invalid_property, makes, tells, told_when_gone
from manycl_c.handles import handles
from manycl_c.host import Address, put, until_zero, words
from manycl_c.objects.platforms import device_of, open_device, platform_of

_INFO = compiled.context_info
_QUEUE = compiled.command_queue_info
_PLATFORM, _USER_SYNC = 0x1084, 0x1085
_CONTEXT_CODE, _QUEUE_CODE = "INVALID_CONTEXT", "INVALID_COMMAND_QUEUE"


class OwnContext(Context):
    """``given``: the properties that it was made with, as they are told."""

    given: tuple[int, ...] = ()


class OwnQueue(CommandQueue):
    """``given``: as of a context; None where it was made without a list."""

    given: tuple[int, ...] | None = None


context_of = handles.finder(Context, _CONTEXT_CODE)

queue_of = handles.finder(CommandQueue, _QUEUE_CODE)


def devices_in(address: Address, count: int, context: Context) -> list[Device]:
    """Devices of a context that a function is given, all of them by default."""
    refuse("INVALID_VALUE", bool(address) != bool(count))
    own: list[Device] = context.get_info(_INFO.DEVICES)
    found = [device_of(one) for one in words(address, count)] or own
    refuse("INVALID_DEVICE", any(device not in own for device in found))
    return found


def _properties(address: Address) -> tuple[list[int], Platform]:
    found = until_zero(address)
    pairs = dict(zip(found[::2], found[1::2], strict=True))
    is_known = all(name == _PLATFORM or (name == _USER_SYNC and value in (0, 1)) for name, value in pairs.items())
    if not is_known or len(pairs) * 2 != len(found):  # (none may be there twice)
        raise invalid_property()
    if _PLATFORM in pairs:
        return found, handles.find(pairs[_PLATFORM], Platform, "INVALID_PLATFORM")
    return found, platform_of(None)


def _context(given: Address, found: list[int], devices: list[Device]) -> Context:
    context = OwnContext([open_device(device) for device in devices])
    context.given = (*found, 0) if given else ()
    return context


@makes("clCreateContext")
def create_context(properties: Address, count: int, devices: Address, notify: Address, data: Address) -> Context:
    found, _ = _properties(properties)
    refuse("INVALID_VALUE", not count or not devices or (data and not notify))
    return _context(properties, found, list(dict.fromkeys(device_of(one) for one in words(devices, count))))


@makes("clCreateContextFromType")
def create_context_from_type(properties: Address, kinds: int, notify: Address, data: Address) -> Context:
    found, platform = _properties(properties)
    refuse("INVALID_VALUE", data and not notify)
    refuse("INVALID_DEVICE_TYPE", kinds != 0xFFFFFFFF and (not kinds or kinds & ~0x1F))
    devices = platform.get_devices(kinds)
    refuse("DEVICE_NOT_FOUND", not devices)
    return _context(properties, found, devices)


counted("Context", Context, _CONTEXT_CODE)
told_when_gone("clSetContextDestructorCallback", Context, _CONTEXT_CODE)


@tells("clGetContextInfo")
def get_context_info(context: Address, param: int) -> bytes:
    found = context_of(context)
    devices = found.get_info(_INFO.DEVICES)
    given = found.given if isinstance(found, OwnContext) else ()
    answers = {
        int(_INFO.REFERENCE_COUNT): struct.pack("=I", handles.of(found).count),
        int(_INFO.NUM_DEVICES): struct.pack("=I", len(devices)),
        int(_INFO.DEVICES): struct.pack(f"={len(devices)}Q", *(handles.of(device).address for device in devices)),
        int(_INFO.PROPERTIES): struct.pack(f"={len(given)}Q", *given),
    }
    refuse("INVALID_VALUE", param not in answers)
    return answers[param]


# queues


def _queue(context: Address, device: Address, properties: int, given: tuple[int, ...] | None) -> CommandQueue:
    found = context_of(context)
    queue = OwnQueue(found, device_of(device), properties)
    queue.given = given
    return queue


@makes("clCreateCommandQueue")
def create_command_queue(context: Address, device: Address, properties: int) -> CommandQueue:
    found, one = context_of(context), device_of(device)
    refuse("INVALID_DEVICE", one not in found.get_info(_INFO.DEVICES))
    refuse("INVALID_VALUE", properties & ~0xF)
    return _queue(context, device, properties, None)


@makes("clCreateCommandQueueWithProperties")
def create_command_queue_with_properties(context: Address, device: Address, properties: Address) -> CommandQueue:
    context_of(context)
    device_of(device)
    found = until_zero(properties)
    pairs = dict(zip(found[::2], found[1::2], strict=True))
    names = {int(_QUEUE.PROPERTIES)}
    wanted = pairs.get(int(_QUEUE.PROPERTIES), 0)
    refuse("INVALID_VALUE", not pairs.keys() <= names or wanted & ~0xF)
    return _queue(context, device, wanted, (*found, 0) if properties else ())


counted("CommandQueue", CommandQueue, _QUEUE_CODE, CommandQueue.flush)


@tells("clGetCommandQueueInfo")
def get_command_queue_info(address: Address, param: int) -> bytes:
    queue = queue_of(address)
    if param in (_QUEUE.CONTEXT, _QUEUE.DEVICE):
        return struct.pack("=Q", handles.of(queue.get_info(param)).address)
    if param == _QUEUE.REFERENCE_COUNT:
        return struct.pack("=I", handles.of(queue).count)
    if param == _QUEUE.PROPERTIES:
        return struct.pack("=Q", queue.get_info(param))
    if param == 0x1094:  # CL_QUEUE_SIZE, of queues on devices
        raise error(_QUEUE_CODE, "")
    if param == 0x1095:  # CL_QUEUE_DEVICE_DEFAULT
        return bytes(8)
    if param == 0x1098:  # CL_QUEUE_PROPERTIES_ARRAY
        given: Any = queue.given if isinstance(queue, OwnQueue) else None
        return struct.pack(f"={len(given or ())}Q", *(given or ()))
    raise error("INVALID_VALUE", "")


@does("clSetCommandQueueProperty")
def set_command_queue_property(queue: Address, properties: int, enable: int, before: Address) -> None:
    """(Which OpenCL has not had since 1.1.)"""
    put(before, "Q", queue_of(queue).get_info(_QUEUE.PROPERTIES))
    raise error("INVALID_OPERATION", "")


@does("clSetDefaultDeviceCommandQueue")
def set_default_device_command_queue(context: Address, device: Address, queue: Address) -> None:
    raise error("INVALID_OPERATION", "")


@does("clFlush")
def flush(queue: Address) -> None:
    queue_of(queue).flush()


@does("clFinish")
def finish(queue: Address) -> None:
    queue_of(queue).finish()
