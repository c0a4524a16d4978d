"""The platform and the device that programs see: what all real devices can do, and the least of their limits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from operator import and_, or_
from typing import Any

from manycl.drivers.driver import DriverError
from manycl.drivers.opencl.real import cl, compiled
from manycl.stand_in.errors import error
from manycl.stand_in.objects.objects import OpenCLObject
from manycl.stand_in.runtime import Runtime, runtime
from manycl.version import __version__

_P = compiled.platform_info
_D = compiled.device_info
_ALL = 0xFFFFFFFF
_NAME = "manycl"


class Platform(OpenCLObject):
    """All chosen devices as one (``real`` None), or what a real platform has, each device by itself."""

    def __init__(self, devices: str | None, policy: str | None, real: Any = None) -> None:
        self._real = real
        self._kept: dict[int, Any] = {}  # answers: they stay the same
        specs = [devices] if real is None else _names_of(real)
        self._devices = tuple([Device(self, spec, policy) for spec in specs])

    def get_info(self, param: int) -> Any:
        answer = self._kept.get(param)
        if answer is None:
            answer = self._kept[param] = self._asked(param)
        return answer

    def _asked(self, param: int) -> Any:
        source = self._real if self._real is not None else self._devices[0].runtime.one.device.platform
        answer = source.get_info(param)
        if self._real is not None:
            return answer
        if param == _P.VERSION:
            return _with_version(answer, _VERSIONS[_D.VERSION])
        return _NAME if param in (_P.NAME, _P.VENDOR) else "cl_khr_icd" if param == _P.EXTENSIONS else answer

    def get_devices(self, device_type: int = _ALL) -> list[Device]:
        """Those of the type. Raises LogicError where there is none, as OpenCL does."""
        kinds = compiled.device_type
        wanted = int(device_type)
        return [d for d in self._devices if wanted in (_ALL, kinds.DEFAULT) or d.get_info(_D.TYPE) & wanted]


class Device(OpenCLObject):
    """``spec``: what ``--devices`` takes; they are opened when somebody asks what they are like."""

    def __init__(self, platform: Platform, spec: str | None, policy: str | None) -> None:
        self._platform = platform
        self._chosen = spec, policy
        self._kept: dict[int, Any] = {}  # answers that stay the same

    @cached_property
    def runtime(self) -> Runtime:
        return runtime(*self._chosen)

    @property
    def model(self) -> Any:
        """The real device of the one-device way, which answers what nobody else does."""
        return self.runtime.one.device

    def get_info(self, param: int) -> Any:
        if param == _D.PLATFORM:
            return self._platform
        if param == _D.NAME:
            return f"{_NAME}: {', '.join(self.runtime.queue.devices)}"
        answer = self._kept.get(param)
        if answer is None:
            answer = self._asked(param)
            if param != _D.AVAILABLE:
                self._kept[param] = answer
        return answer.copy() if isinstance(answer, list) else answer

    def _asked(self, param: int) -> Any:
        if param in _OWN:
            return _OWN[param]
        answer = self.model.get_info(param)
        handles = self.runtime.handles
        if param in _VERSIONS:
            return _with_version(_least_version(handles, param), _VERSIONS[param])
        if param in _MERGED and len(handles) > 1:
            return _MERGED[param]([handle.get_info(param) for handle in handles])
        return answer

    def create_sub_devices(self, properties: Sequence[int]) -> list[Device]:
        raise error("DEVICE_PARTITION_FAILED", "clCreateSubDevices", "manycl divides devices itself (--devices cpu/2)")

    def device_and_host_timer(self) -> tuple[int, int]:
        found: tuple[int, int] = self.model.device_and_host_timer()
        return found

    def host_timer(self) -> int:
        return int(self.model.host_timer())


def _common(answers: Sequence[str]) -> str:
    """The words that all have, in the order of the first."""
    sets = [set(answer.split()) for answer in answers[1:]]
    return " ".join(word for word in answers[0].split() if all(word in other for other in sets))


def _by_name(names: str, how: Callable[[Sequence[Any]], Any]) -> dict[int, Callable[[Sequence[Any]], Any]]:
    return {getattr(_D, name): how for name in names.split() if hasattr(_D, name)}


_MERGED: dict[int, Callable[[Sequence[Any]], Any]] = {
    **_by_name("MAX_COMPUTE_UNITS", sum),
    **_by_name(
        "MAX_WORK_GROUP_SIZE LOCAL_MEM_SIZE MAX_MEM_ALLOC_SIZE GLOBAL_MEM_SIZE MAX_CONSTANT_BUFFER_SIZE"
        " MAX_CONSTANT_ARGS MAX_PARAMETER_SIZE MAX_CLOCK_FREQUENCY ADDRESS_BITS PRINTF_BUFFER_SIZE",
        min,
    ),
    **_by_name("MEM_BASE_ADDR_ALIGN MIN_DATA_TYPE_ALIGN_SIZE PROFILING_TIMER_RESOLUTION", max),
    **_by_name("MAX_WORK_ITEM_SIZES", lambda answers: [min(sizes) for sizes in zip(*answers, strict=False)]),
    **_by_name("SINGLE_FP_CONFIG DOUBLE_FP_CONFIG HALF_FP_CONFIG", lambda answers: reduce(and_, map(int, answers))),
    **_by_name("TYPE", lambda answers: reduce(or_, map(int, answers))),
    **_by_name("EXTENSIONS", _common),
    **_by_name("AVAILABLE COMPILER_AVAILABLE LINKER_AVAILABLE ENDIAN_LITTLE HOST_UNIFIED_MEMORY", all),
}
_OWN = {
    _D.DRIVER_VERSION: __version__,
    **{getattr(_D, name): 0 for name in ("PARTITION_MAX_SUB_DEVICES",) if hasattr(_D, name)},
}
_VERSIONS = {_D.VERSION: r"OpenCL \d+\.\d+", _D.OPENCL_C_VERSION: r"OpenCL C \d+\.\d+"}


def _least_version(handles: Sequence[Any], param: int) -> str:
    """The lowest that a device has."""

    def number(text: str) -> tuple[int, ...]:
        found = re.search(r"(\d+)\.(\d+)", text)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    return min((str(handle.get_info(param)) for handle in handles), key=number)


def _with_version(answer: str, pattern: str) -> str:
    found = re.match(pattern, answer)
    return f"{found[0] if found else answer} {_NAME} {__version__}"


def _names_of(platform: Any) -> list[str]:
    """What manycl calls the devices of a real platform."""
    from manycl.drivers.survey import survey

    handles = {}
    for root in survey().roots:
        with suppress(DriverError):  # no OpenCL driver shows it
            handles[root.handle.cl.int_ptr] = root.device.name  # type: ignore[attr-defined]
    return [handles[d.int_ptr] for d in platform.get_devices() if d.int_ptr in handles]


class Platforms:
    """What ``get_platforms`` answers, made once."""

    def __init__(self, devices: str | None, policy: str | None, *, real_too: bool) -> None:
        self._settings = devices, policy
        self._real_too = real_too

    @cached_property
    def all(self) -> list[Platform]:
        found = [Platform(*self._settings)]
        if self._real_too:
            found[0].get_devices()[0].runtime  # noqa: B018  (drivers are found)
            found += [Platform(None, self._settings[1], real) for real in cl.get_platforms() if _names_of(real)]
        return found

    def get_platforms(self) -> list[Platform]:
        return list(self.all)


def unload_platform_compiler(platform: Platform) -> None:
    """Nothing is kept for it."""
