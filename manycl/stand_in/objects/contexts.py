"""Contexts and command queues."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, reduce
from operator import and_, or_
from typing import Any

from manycl.drivers.driver import DriverError
from manycl.drivers.opencl.real import cl, compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.events import Event
from manycl.stand_in.objects.objects import OpenCLObject
from manycl.stand_in.runtime import Runtime, runtime
from manycl.version import __version__

_P = compiled.platform_info
_D = compiled.device_info
_ALL = 0xFFFFFFFF
_NAME = "manycl"


class Platform(OpenCLObject):
    """A platform: all chosen devices as one (``real`` None), or what a real platform has, each device by itself."""

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
        """Return the devices of the type. Raises LogicError where there is none, as OpenCL does."""
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
    """Return what manycl calls the devices of a real platform."""
    from manycl.drivers.survey import survey

    handles = {}
    for root in survey().roots:
        with suppress(DriverError):  # no OpenCL driver shows it
            handles[root.handle.cl.int_ptr] = root.device.name  # type: ignore[attr-defined]
    return [handles[d.int_ptr] for d in platform.get_devices() if d.int_ptr in handles]


class Platforms:
    """The platforms that ``get_platforms`` returns, made once."""

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
    """Do nothing: nothing is kept for it."""


_INFO = compiled.context_info
_QUEUE = compiled.command_queue_info
_PROPERTIES = compiled.command_queue_properties
_TYPE = compiled.command_type
_WAITING = (_TYPE.MARKER, _TYPE.BARRIER)


class Context(OpenCLObject):
    """A context of devices; of several, which only are where real platforms are shown as well, the first does the
    work."""

    def __init__(
        self,
        devices: Sequence[Device] | None = None,
        properties: Sequence[tuple[int, Any]] | None = None,
        dev_type: int | None = None,
    ) -> None:
        if devices is not None and dev_type is not None:
            raise error("INVALID_VALUE", "Context", "one of 'devices' or 'dev_type' must be None")
        self._properties = [(int(key), value) for key, value in properties or ()]
        if devices is None:
            devices = self._of_type(dev_type)
        self._devices = list(devices)
        refuse("INVALID_VALUE", not self._devices, "Context")
        for device in self._devices:
            if not isinstance(device, Device):
                raise TypeError(f"a context is of devices, not of {type(device).__name__}")

    def _of_type(self, dev_type: int | None) -> list[Device]:
        platforms = [value for key, value in self._properties if key == compiled.context_properties.PLATFORM]
        platform = platforms[0] if platforms else sys.modules["pyopencl._cl"].get_platforms()[0]
        assert isinstance(platform, Platform)
        found = platform.get_devices(compiled.device_type.DEFAULT if dev_type is None else dev_type)
        refuse("DEVICE_NOT_FOUND", not found, "Context")
        return found

    @property
    def runtime(self) -> Runtime:
        return self._devices[0].runtime

    @property
    def real(self) -> Any:
        """The real context of the one-device way."""
        return self.runtime.one.context

    def get_info(self, param: int) -> Any:
        answers = {
            _INFO.REFERENCE_COUNT: 1,
            _INFO.DEVICES: lambda: list(self._devices),
            _INFO.NUM_DEVICES: len(self._devices),
            _INFO.PROPERTIES: lambda: list(self._properties),
        }
        return self._told(answers, param)

    def set_default_device_command_queue(self, device: Device, queue: CommandQueue) -> None:
        self.real.set_default_device_command_queue(self.runtime.one.device, self.runtime.one.queue)


class CommandQueue(OpenCLObject):
    """``is_usual``: nothing of it is held back, and it may be used."""

    def __init__(self, context: Context, device: Device | None = None, properties: Any = None) -> None:
        self.own_context = context
        devices = context.get_info(_INFO.DEVICES)
        refuse("INVALID_DEVICE", device is not None and device not in devices, "CommandQueue")
        self._device = device if device is not None else devices[0]
        self.runtime = self._device.runtime
        self._properties = _number(properties)
        if self._properties & ~(int(_PROPERTIES.PROFILING_ENABLE) | int(_PROPERTIES.OUT_OF_ORDER_EXEC_MODE_ENABLE)):
            is_property = self._properties < 1 << 4  # also of queues on devices
            raise error("INVALID_QUEUE_PROPERTIES" if is_property else "INVALID_VALUE", "CommandQueue")
        self.is_profiling = bool(self._properties & _PROPERTIES.PROFILING_ENABLE)
        self._is_in_order = not self._properties & _PROPERTIES.OUT_OF_ORDER_EXEC_MODE_ENABLE
        if self.is_profiling:
            self.runtime.session.devices.time_all()
        self.manycl = self.runtime.queue
        self.is_usual = True
        self._is_over = False
        self._held: list[tuple[Event, int]] = []

    def get_info(self, param: int) -> Any:
        answers = {
            _QUEUE.CONTEXT: self.own_context,
            _QUEUE.DEVICE: self._device,
            _QUEUE.REFERENCE_COUNT: 1,
            _QUEUE.PROPERTIES: self._properties,
        }
        if hasattr(_QUEUE, "PROPERTIES_ARRAY"):
            answers[_QUEUE.PROPERTIES_ARRAY] = [int(_QUEUE.PROPERTIES), self._properties, 0]
        return self._told(answers, param)

    def flush(self) -> None:
        self.check_use()
        self.runtime.queue.flush()

    def finish(self) -> None:
        """Wait until all that was enqueued here, and by other queues before, has ended."""
        if not self.is_usual:
            self.check_use()
            for event, _ in tuple(self._held):
                gate = event.gate
                if gate is not None:
                    gate.opened.wait()
        self.runtime.finish()

    def _finalize(self) -> None:
        self._is_over = True
        self._look()

    def check_use(self) -> None:
        """Warn as PyOpenCL does of a queue whose ``with`` block has ended."""
        if self._is_over:
            warnings.warn(
                "Command queue used after exit of context manager. This is deprecated and will stop working in 2023.",
                sys.modules["pyopencl"].CommandQueueUsedAfterExit,
                stacklevel=3,
            )

    # what is held back

    def held_before(self, kind: int) -> Sequence[Event]:
        """Return what a command of a kind waits for, of what is held back in the queue."""
        if self._is_in_order:
            return [event for event, _ in self._held[-1:]]
        return [event for event, held in self._held if kind in _WAITING or held in _WAITING]

    def hold(self, event: Event, kind: int) -> None:
        """(As ``released``, with the lock of all that is held back.)"""
        self._held.append((event, kind))
        self._look()

    def released(self, event: Event) -> None:
        self._held = [held for held in self._held if held[0] is not event]
        self._look()

    def _look(self) -> None:
        self.is_usual = not self._held and not self._is_over


def _number(properties: Any) -> int:
    """Queue properties are a number, or a list of names and values (OpenCL 2.0)."""
    if properties is None:
        return 0
    if hasattr(properties, "__index__"):
        return int(properties)
    words = list(properties)
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return int(pairs.get(int(_QUEUE.PROPERTIES), 0))
