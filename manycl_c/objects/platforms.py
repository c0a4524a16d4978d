"""Platforms and devices: what the stand-in's are said to be, in OpenCL's own form."""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from manycl import flags
from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.native_model import NativeModel
from manycl.stand_in.objects.contexts import Device, Platform, Platforms
from manycl_c import raw
from manycl_c.calls import does, tells
from manycl_c.handles import handles
from manycl_c.host import Address, put, put_words

_P, _D = compiled.platform_info, compiled.device_info
_APART = re.compile(
    r"cl_(\w+_)?(gl|egl|d3d\d*|dx9|va_api|command_buffer|semaphore|external_memory|device_fission|il_program"
    r"|unified_shared_memory|terminate_context|create_command_queue|suggested_local_work_size|image2d_from_buffer"
    r"|image2d_buffer|accelerator|motion_estimation|buffer_device_address|import_memory|icd|spir|svm\w*|mem_channel"
    r"|create_buffer|job_slot|simultaneous_sharing|content_size|priority_hints|throttle_hints)(_\w+)?\Z"
)
"""Extensions of drivers with functions, flags or objects of their own, which programs would miss here."""
_NAMED = 68  # bytes of a cl_name_version: a version, and a text of 64


_NOTHING: dict[int, bytes] = {
    **dict.fromkeys((0x1042, 0x1044, 0x1045, 0x1046), bytes(8)),  # CL_DEVICE_PARENT_DEVICE, CL_DEVICE_PARTITION_…
    0x1043: struct.pack("=I", 0),  # CL_DEVICE_PARTITION_MAX_SUB_DEVICES
    0x1047: struct.pack("=I", 1),  # CL_DEVICE_REFERENCE_COUNT
    0x1029: struct.pack("=Q", 1),  # CL_DEVICE_EXECUTION_CAPABILITIES: kernels of OpenCL C
    0x103F: b"\0",  # CL_DEVICE_BUILT_IN_KERNELS
    0x1062: b"",
    0x104E: bytes(8),  # CL_DEVICE_QUEUE_ON_DEVICE_…
    **dict.fromkeys((0x104F, 0x1050, 0x1051, 0x1052), bytes(4)),
    0x1053: bytes(8),  # CL_DEVICE_SVM_CAPABILITIES
    **dict.fromkeys((0x1055, 0x1056, 0x1057), bytes(4)),  # CL_DEVICE_MAX_PIPE_ARGS, and so on
    0x1070: bytes(8),  # CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES
    0x1071: bytes(4),  # CL_DEVICE_PIPE_SUPPORT
}
"""What manycl's device does not have, as OpenCL says so."""
_NUMERIC, _C_NUMERIC, _WITH_VERSION = 0x105E, 0x105F, 0x1060
_C_VERSIONS, _FEATURES = 0x1066, 0x106F
_ABSENT_FEATURES = (b"__opencl_c_device_enqueue", b"__opencl_c_pipes", b"__opencl_c_program_scope_global_variables")
_LARGE = (
    "TYPE MAX_WORK_GROUP_SIZE IMAGE2D_MAX_WIDTH IMAGE2D_MAX_HEIGHT IMAGE3D_MAX_WIDTH IMAGE3D_MAX_HEIGHT"
    " IMAGE3D_MAX_DEPTH IMAGE_MAX_BUFFER_SIZE IMAGE_MAX_ARRAY_SIZE MAX_PARAMETER_SIZE MAX_MEM_ALLOC_SIZE"
    " GLOBAL_MEM_SIZE GLOBAL_MEM_CACHE_SIZE MAX_CONSTANT_BUFFER_SIZE LOCAL_MEM_SIZE PROFILING_TIMER_RESOLUTION"
    " PRINTF_BUFFER_SIZE SINGLE_FP_CONFIG DOUBLE_FP_CONFIG HALF_FP_CONFIG EXECUTION_CAPABILITIES QUEUE_PROPERTIES"
)
_EIGHT_BYTES = {int(getattr(_D, name)) for name in _LARGE.split()}
"""Answers that are size_t, cl_ulong or bits, where most numbers are cl_uint."""
_KNOWN_TYPES = 0x1F  # default, CPU, GPU, accelerator, custom
_opened: list[Callable[[], None]] = []


def when_opened(function: Callable[[], None]) -> None:
    """Have it called when devices have been opened."""
    _opened.append(function)


@cache
def _shown() -> Platforms:
    return Platforms(None, None, real_too=flags.real_platforms())


def platform_of(address: Address) -> Platform:
    """NULL is the first."""
    if not address:
        return _shown().get_platforms()[0]
    return handles.find(address, Platform, "INVALID_PLATFORM")


device_of = handles.finder(Device, "INVALID_DEVICE")


def open_device(device: Device) -> Device:
    """Its drivers are loaded, if they were not."""
    device.runtime  # noqa: B018
    while _opened:
        _opened.pop()()
    return device


@does("clGetPlatformIDs")
def get_platform_ids(most: int, platforms: Address, count: Address) -> None:
    refuse("INVALID_VALUE", (platforms and not most) or not (platforms or count))
    found = _shown().get_platforms()
    put_words(platforms, [handles.give(platform) for platform in found[:most]] if platforms else [])
    put(count, "I", len(found))
    _stay()


@tells("clGetPlatformInfo")
def get_platform_info(address: Address, param: int) -> bytes:
    platform = platform_of(address)
    first = open_device(platform.get_devices()[0])
    if param == 0x0920:  # CL_PLATFORM_ICD_SUFFIX_KHR
        return b"MANYCL\0"
    if param == 0x0906:  # CL_PLATFORM_NUMERIC_VERSION
        return _version_number(str(platform.get_info(_P.VERSION)))
    if param == 0x0907:  # CL_PLATFORM_EXTENSIONS_WITH_VERSION
        return struct.pack("=I64s", 1 << 22, b"cl_khr_icd")
    if param in (_P.PROFILE, _P.VERSION, _P.NAME, _P.VENDOR, _P.EXTENSIONS):
        found = "cl_khr_icd" if param == _P.EXTENSIONS else str(platform.get_info(param))
        return found.encode() + b"\0"
    return raw.ask("clGetPlatformInfo", first.model.platform.int_ptr, param)


def _version_number(version: str) -> bytes:
    """A cl_version of a text with one."""
    found = re.search(r"(\d+)\.(\d+)", version)
    major, minor = (int(found[1]), int(found[2])) if found else (0, 0)
    return struct.pack("=I", major << 22 | minor << 12)


@does("clGetDeviceIDs")
def get_device_ids(platform: Address, kinds: int, most: int, devices: Address, count: Address) -> None:
    shown = platform_of(platform)
    refuse("INVALID_VALUE", (devices and not most) or not (devices or count))
    refuse("INVALID_DEVICE_TYPE", kinds != 0xFFFFFFFF and (not kinds or kinds & ~_KNOWN_TYPES))
    found = shown.get_devices(kinds)
    refuse("DEVICE_NOT_FOUND", not found)
    open_device(found[0])
    put_words(devices, [handles.give(device) for device in found[:most]] if devices else [])
    put(count, "I", len(found))


@tells("clGetDeviceInfo")
def get_device_info(device: Address, param: int) -> bytes:
    return _device_answer(open_device(device_of(device)), param)


@cache
def _device_answer(device: Device, param: int) -> bytes:
    if param == _D.PLATFORM:
        return struct.pack("=Q", handles.of(device.get_info(param)).address)
    if param in _NOTHING:
        return _NOTHING[param]
    if isinstance(device.model, NativeModel):
        return _without_driver(device, param)
    told = raw.ask("clGetDeviceInfo", device.model.int_ptr, param)
    if param == _NUMERIC:
        return _version_number(str(device.get_info(_D.VERSION)))
    if param == _C_NUMERIC:
        return _version_number(str(device.get_info(_D.OPENCL_C_VERSION)))
    if param == _D.EXTENSIONS:
        words = [word for word in str(device.get_info(param)).split() if not _APART.match(word)]
        return " ".join(words).encode() + b"\0"
    if param in (_WITH_VERSION, _FEATURES, _C_VERSIONS):
        return _named_in_common(device, param)
    try:
        return _as_told(device.get_info(param), told)
    except (compiled.Error, TypeError, ValueError, NotImplementedError):  # PyOpenCL does not know it
        return told


def _without_driver(device: Device, param: int) -> bytes:
    """Where no OpenCL driver is asked: that has versions below 3.0, so each answer is of a type of OpenCL 1.2."""
    value = device.get_info(param)
    if isinstance(value, str):
        return value.encode() + b"\0"
    if isinstance(value, list):
        return struct.pack(f"={len(value)}Q", *value)
    return struct.pack("=Q" if param in _EIGHT_BYTES else "=I", value or 0)


def _as_told(value: Any, told: bytes) -> bytes:
    """An answer of Python's in the form that the driver has: the stand-in's own where it differs."""
    if isinstance(value, str):
        return value.encode() + b"\0"
    if isinstance(value, list | tuple) and value and isinstance(value[0], int) and len(told) == 8 * len(value):
        return struct.pack(f"={len(value)}Q", *value)
    if isinstance(value, int) and len(told) in (4, 8):
        return int(value).to_bytes(len(told), "little", signed=value < 0)
    return told


def _named_in_common(device: Device, param: int) -> bytes:
    """Names with versions that all devices have, without those that are not for programs here."""
    each = [_named(raw.ask("clGetDeviceInfo", handle.int_ptr, param)) for handle in device.runtime.handles]
    kept = [entry for entry in each[0] if all(entry in other for other in each[1:])]
    if param == _WITH_VERSION:
        kept = [entry for entry in kept if not _APART.match(_name_in(entry).decode())]
    if param == _FEATURES:
        kept = [entry for entry in kept if _name_in(entry) not in _ABSENT_FEATURES]
    return b"".join(kept)


def _named(data: bytes) -> list[bytes]:
    return [data[start : start + _NAMED] for start in range(0, len(data), _NAMED)]


def _name_in(entry: bytes) -> bytes:
    return entry[4:].split(b"\0", 1)[0]


@does("clCreateSubDevices")
def create_sub_devices(device: Address, properties: Address, most: int, devices: Address, count: Address) -> None:
    device_of(device)
    refuse("INVALID_VALUE", not properties)
    raise error("DEVICE_PARTITION_FAILED", "")


@does("clRetainDevice")
@does("clReleaseDevice")
def keep_device(device: Address) -> None:
    device_of(device)


@does("clUnloadPlatformCompiler")
def unload_platform_compiler(platform: Address) -> None:
    handles.find(platform, Platform, "INVALID_PLATFORM")


@does("clUnloadCompiler")
def unload_compiler() -> None:
    """Nothing is kept for it."""


@does("clGetHostTimer")
def get_host_timer(device: Address, host: Address) -> None:
    raw.do("clGetHostTimer", open_device(device_of(device)).model.int_ptr, host)


@does("clGetDeviceAndHostTimer")
def get_device_and_host_timer(device: Address, on_device: Address, host: Address) -> None:
    raw.do("clGetDeviceAndHostTimer", open_device(device_of(device)).model.int_ptr, on_device, host)


def _stay() -> None:
    """Keep what Python has of this thread: else it is made and thrown away with each call."""
    ctypes.pythonapi.PyGILState_Ensure()
