"""Answers to what OpenCL asks of devices, for native ones: where nobody else can, or would have to build a program
first. Versions and limits are those of OpenCL C 1.2 on native devices (``drivers/native``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from manycl.analysis import KernelFacts, ProgramFacts
from manycl.api.program import LocalMemory
from manycl.drivers.driver import DriverError, Source
from manycl.drivers.native import program as native
from manycl.drivers.native.devices import NativeHandle
from manycl.drivers.opencl.icd import INSTALL
from manycl.drivers.opencl.real import compiled
from manycl.machine import Device
from manycl.run.session.session import Session
from manycl.stand_in.errors import error, refuse
from manycl.version import __version__

_P, _D = compiled.platform_info, compiled.device_info
_BUILD, _GROUP = compiled.program_build_info, compiled.kernel_work_group_info
_FLOATS = compiled.device_fp_config
_SINGLE = int(_FLOATS.DENORM | _FLOATS.INF_NAN | _FLOATS.ROUND_TO_NEAREST | _FLOATS.FMA)
_MULTIPLE = 8
"""Of work-items: 4-byte values in a vector of most processors."""
_STRICT = "-Werror"
"""With this, what the real compiler warns of is an error."""
_VERSION, _LANGUAGE = "OpenCL 1.2", "OpenCL C 1.2"
_EXTENSIONS = (
    "cl_khr_byte_addressable_store cl_khr_global_int32_base_atomics cl_khr_global_int32_extended_atomics"
    " cl_khr_local_int32_base_atomics cl_khr_local_int32_extended_atomics cl_khr_fp64"
)


def compiles(session: Session, facts: ProgramFacts) -> bool:
    """Return whether all devices of a session are native, and can compile all kernels of a program, as far as that is
    known before they are launched: then no other driver has to build it."""
    if not all(isinstance(one.handle, NativeHandle) for one in session.devices.opened):
        return False
    if _STRICT in facts.options:
        return False
    try:
        source = Source(facts.source, facts.options)
        program = native.build(source, session.machine.devices[0])
        for name in facts.kernels:
            program.function(name, facts.kernels[name].required_work_group or (64, 1, 1), False)
    except DriverError:
        return False
    return True


_SUCCESS, _ERROR = 0, -2  # cl_build_status


def build_info(is_built: bool, options: str, words: str) -> dict[int, Any]:
    """Return what is told of a program that no other driver has built: its words are those of manycl's analysis."""
    return {
        _BUILD.STATUS: _SUCCESS if is_built else _ERROR,
        _BUILD.OPTIONS: options,
        _BUILD.LOG: words,
        _BUILD.BINARY_TYPE: int(compiled.program_binary_type.EXECUTABLE if is_built else 0),
    }


def group_info(facts: KernelFacts, session: Session, given: Sequence[Any]) -> dict[int, Any]:
    """Return what native devices tell of a kernel's work-groups, by the names of OpenCL's questions."""
    most = min(device.max_work_group for device in session.machine.devices)
    local = facts.local_bytes + sum(value.size for value in given if isinstance(value, LocalMemory))
    return {
        _GROUP.WORK_GROUP_SIZE: most,
        _GROUP.COMPILE_WORK_GROUP_SIZE: list(facts.required_work_group or (0, 0, 0)),
        _GROUP.LOCAL_MEM_SIZE: local,
        _GROUP.PREFERRED_WORK_GROUP_SIZE_MULTIPLE: _MULTIPLE,
        _GROUP.PRIVATE_MEM_SIZE: 0,
    }


class NativePlatform:
    """The platform of native devices."""

    def get_info(self, param: int) -> Any:
        answers = {_P.PROFILE: "FULL_PROFILE", _P.VERSION: _VERSION, _P.NAME: "native", _P.VENDOR: "manycl"}
        if param == _P.EXTENSIONS:
            return ""
        refuse("INVALID_VALUE", param not in answers, "clGetPlatformInfo")
        return answers[param]


class NativeModel:
    """Stands for PyOpenCL's device where no OpenCL driver shows one. ``missing``: said where a driver is needed."""

    platform = NativePlatform()

    def __init__(self, device: Device) -> None:
        self.missing = "nodes of a cluster cannot do this"
        if device.kind != "node":
            self.missing = f"no OpenCL driver shows this processor, and native devices cannot do this; {INSTALL}"
        self._answers = {**_USUAL, **_answers(device)}

    @property
    def int_ptr(self) -> int:
        """There is none. Raises LogicError."""
        raise error("INVALID_OPERATION", "manycl", self.missing)

    def get_info(self, param: int) -> Any:
        refuse("INVALID_VALUE", param not in self._answers, "clGetDeviceInfo")
        return self._answers[param]

    @property
    def max_compute_units(self) -> int:
        return int(self._answers[_D.MAX_COMPUTE_UNITS])

    def device_and_host_timer(self) -> tuple[int, int]:
        raise error("INVALID_OPERATION", "clGetDeviceAndHostTimer", self.missing)

    def host_timer(self) -> int:
        raise error("INVALID_OPERATION", "clGetHostTimer", self.missing)


def _answers(device: Device) -> dict[int, Any]:
    return {
        _D.NAME: device.model,
        _D.DRIVER_VERSION: __version__,
        _D.MAX_COMPUTE_UNITS: device.compute_units,
        _D.MAX_WORK_GROUP_SIZE: device.max_work_group,
        _D.MAX_WORK_ITEM_SIZES: [device.max_work_group] * 3,
        _D.MAX_CLOCK_FREQUENCY: math.ceil(device.clock / 1e6),
        _D.MAX_MEM_ALLOC_SIZE: device.max_allocation,
        _D.GLOBAL_MEM_SIZE: device.global_memory,
        _D.MAX_CONSTANT_BUFFER_SIZE: device.max_allocation,
        _D.LOCAL_MEM_SIZE: device.local_memory,
        _D.MEM_BASE_ADDR_ALIGN: 8 * device.alignment,
        _D.MIN_DATA_TYPE_ALIGN_SIZE: device.alignment,
    }


def _named(prefix: str, values: dict[str, Any]) -> dict[int, Any]:
    return {getattr(_D, prefix + name): value for name, value in values.items() if hasattr(_D, prefix + name)}


_WIDTHS = {"CHAR": 16, "SHORT": 16, "INT": 8, "LONG": 4, "FLOAT": 8, "DOUBLE": 4, "HALF": 0}
_NONE = (
    "MAX_READ_IMAGE_ARGS MAX_WRITE_IMAGE_ARGS IMAGE2D_MAX_WIDTH IMAGE2D_MAX_HEIGHT IMAGE3D_MAX_WIDTH"
    " IMAGE3D_MAX_HEIGHT IMAGE3D_MAX_DEPTH IMAGE_MAX_BUFFER_SIZE IMAGE_MAX_ARRAY_SIZE MAX_SAMPLERS IMAGE_SUPPORT"
    " VENDOR_ID HALF_FP_CONFIG ERROR_CORRECTION_SUPPORT LINKER_AVAILABLE PARTITION_MAX_SUB_DEVICES"
)
_ONE = (
    "HOST_UNIFIED_MEMORY PROFILING_TIMER_RESOLUTION ENDIAN_LITTLE AVAILABLE COMPILER_AVAILABLE"
    " PREFERRED_INTEROP_USER_SYNC REFERENCE_COUNT"
)
_USUAL: dict[int, Any] = {
    **_named("PREFERRED_VECTOR_WIDTH_", _WIDTHS),
    **_named("NATIVE_VECTOR_WIDTH_", _WIDTHS),
    **_named("", dict.fromkeys(_NONE.split(), 0) | dict.fromkeys(_ONE.split(), 1)),
    **_named(
        "",
        {
            "TYPE": int(compiled.device_type.CPU),
            "VENDOR": "manycl",
            "PROFILE": "FULL_PROFILE",
            "VERSION": _VERSION,
            "OPENCL_C_VERSION": _LANGUAGE,
            "EXTENSIONS": _EXTENSIONS,
            "MAX_WORK_ITEM_DIMENSIONS": 3,
            "ADDRESS_BITS": 64,
            "MAX_PARAMETER_SIZE": 1024,
            "MAX_CONSTANT_ARGS": 8,
            "SINGLE_FP_CONFIG": _SINGLE,
            "DOUBLE_FP_CONFIG": _SINGLE | int(_FLOATS.ROUND_TO_ZERO | _FLOATS.ROUND_TO_INF),
            "GLOBAL_MEM_CACHE_TYPE": int(compiled.device_mem_cache_type.READ_WRITE_CACHE),
            "GLOBAL_MEM_CACHELINE_SIZE": 64,
            "GLOBAL_MEM_CACHE_SIZE": 1 << 20,
            "LOCAL_MEM_TYPE": int(compiled.device_local_mem_type.GLOBAL),
            "EXECUTION_CAPABILITIES": int(compiled.device_exec_capabilities.KERNEL),
            "QUEUE_PROPERTIES": int(
                compiled.command_queue_properties.PROFILING_ENABLE
                | compiled.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
            ),
            "BUILT_IN_KERNELS": "",
            "PRINTF_BUFFER_SIZE": 1 << 20,
            "PARENT_DEVICE": None,
            "PARTITION_PROPERTIES": [],
            "PARTITION_AFFINITY_DOMAIN": [0],
            "PARTITION_TYPE": [],
        },
    ),
}
