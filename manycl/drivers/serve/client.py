"""Devices of ``manycl serve``: what a client asks the service, and how it opens what it gets."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from manycl import flags
from manycl.device_syntax import parse
from manycl.drivers.choice import OpenDevice, Opened, arranged
from manycl.drivers.driver import Driver, DriverError
from manycl.drivers.serve.place import START, connected
from manycl.drivers.survey import in_use, refuse_forked
from manycl.drivers.worker import messages as m
from manycl.drivers.worker.driver import WorkerDriver
from manycl.drivers.worker.handle import ProcessHandle
from manycl.drivers.worker.link import Ending
from manycl.drivers.worker.messages import Channel
from manycl.errors import DeviceError
from manycl.machine import Device


class ServedHandle(ProcessHandle):
    """The device that ``selection`` means to the service's processes; ``resources``: as of a driver's ``Handle``."""

    compute_units = 1
    resources = frozenset[str]()

    def __init__(self, selection: str, compute_units: int, shares: bool, resources: frozenset[str]) -> None:
        self._selection, self._shares = selection, shares
        self.compute_units, self.resources = compute_units, resources

    def shares_host_memory(self) -> bool:
        return self._shares

    def open(self, device: Device) -> Driver:
        key = self._selection if self._shares and flags.zero_copy() else f"{self._selection} own"
        try:
            pid, connection = _asked("worker", key, with_connection=True)
        except DeviceError as error:
            raise DriverError(f"{device.name} cannot be opened: {error.message}", hint=error.hint) from None
        assert connection is not None
        ending = Ending(f"its process {pid}, of manycl serve, has ended", True)
        return WorkerDriver(device, self._selection, Channel(connection), lambda _: ending, pid, is_shared=True)


def open_served(selection: str | Sequence[str] | None = None) -> Opened:
    """Open devices as :func:`manycl.drivers.choice.open_devices` does, of the user's service. Raises DeviceError."""
    items = parse(flags.devices() if selection is None else selection)
    refuse_forked()
    text = ",".join(map(str, items))
    described, _ = _asked("machine", text)
    in_use()
    chosen = []
    for fields, what, shares, resources in described:
        device = Device(**fields)
        chosen.append(OpenDevice(device, ServedHandle(what, device.compute_units, shares, frozenset(resources)), what))
    return arranged(chosen)


def status() -> dict[str, Any]:
    """Return what the service does. Raises DeviceError where none runs."""
    found: dict[str, Any] = _asked("status")[0]
    return found


def stop() -> int:
    """The service ends; its processes that have clients end with these. The id of its process."""
    found: int = _asked("stop")[0]
    return found


def _asked(question: str, *given: Any, with_connection: bool = False) -> tuple[Any, socket.socket | None]:
    """Return what the service answers, and a connection that comes with it. Raises DeviceError."""
    channel = Channel(connected())
    try:
        channel.call(question, 0, m.VERSION, *given)
        _, _, value, error, _ = channel.receive()[0]
        if error is not None:
            raise DeviceError(error, hint=value or "")
        return value, socket.socket(fileno=channel.descriptors.pop(0)) if with_connection else None
    except (EOFError, OSError, ValueError, IndexError):
        raise DeviceError("the service of manycl's has ended", hint=START) from None
    finally:
        channel.close()
