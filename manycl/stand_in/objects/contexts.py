"""Contexts and command queues."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from manycl.drivers.opencl.real import compiled
from manycl.stand_in.errors import error, refuse
from manycl.stand_in.objects.events import Event
from manycl.stand_in.objects.objects import OpenCLObject
from manycl.stand_in.objects.platforms import Device, Platform
from manycl.stand_in.runtime import Runtime

_INFO = compiled.context_info
_QUEUE = compiled.command_queue_info
_PROPERTIES = compiled.command_queue_properties
_TYPE = compiled.command_type
_WAITING = (_TYPE.MARKER, _TYPE.BARRIER)


class Context(OpenCLObject):
    """Of devices; of several, which only are where real platforms are shown as well, the first does the work."""

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
        """Until all that was enqueued here, and by other queues before, has ended."""
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
        """What a command of a kind waits for, of what is held back in the queue."""
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
