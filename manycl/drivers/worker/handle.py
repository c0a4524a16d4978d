"""Devices that a process of their own opens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from manycl.drivers.driver import Driver, DriverError, Handle
from manycl.drivers.worker.driver import WorkerDriver
from manycl.drivers.worker.link import Ending
from manycl.drivers.worker.messages import Channel
from manycl.machine import Device

_START = """\
import json, sys; sys.path[:] = json.loads(sys.argv[1])
from manycl.drivers.worker.process import {0}; {0}({1})"""
_OTHERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that somebody else sends."""


class ProcessHandle(Handle, Protocol):
    """A device that another process opens."""

    def divide(self, division: tuple[int, ...]) -> Sequence[Handle]:
        raise DriverError("a device is divided before it is given to a process")


class WorkerHandle(ProcessHandle):
    """The device that ``handle`` is of here, and that ``selection`` means to another process."""

    def __init__(self, handle: Handle, selection: str) -> None:
        self._handle, self._selection = handle, selection

    @property
    def compute_units(self) -> int:
        return self._handle.compute_units

    @property
    def resources(self) -> frozenset[str]:
        return self._handle.resources

    @property
    def cl(self) -> Any:
        """PyOpenCL's device in this process, for what is only asked about it."""
        return self._handle.cl  # type: ignore[attr-defined]

    def shares_host_memory(self) -> bool:
        return self._handle.shares_host_memory()

    def open(self, device: Device) -> Driver:
        try:
            process, here = started("main")
        except OSError as error:
            raise DriverError(f"no process can be started for {device.name}: {error}") from None
        return WorkerDriver(
            device, self._selection, Channel(here), lambda expected: how_it_ended(process, expected), process.pid
        )


def started(function: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a process of Python that finds manycl where this one does, and calls a function of
    :mod:`manycl.drivers.worker.process`. Return it, and the connection to it. Raises OSError."""
    path = json.dumps([entry or os.getcwd() for entry in sys.path])
    here, there = socket.socketpair()
    with there:
        words = [sys.executable, "-c", _START.format(function, there.fileno()), path]
        try:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=(there.fileno(),)), here
        except OSError:
            here.close()
            raise


def how_it_ended(process: subprocess.Popen[bytes], is_expected: bool) -> Ending:
    """Return the end of a process that is not heard any more; it is over then. ``is_expected``: it will end by
    itself."""
    if not is_expected:
        process.kill()  # of one that has begun to end, this does not change how
    code = process.wait()
    if code >= 0:
        return Ending(f"its process {process.pid} has ended with status {code}", True)
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return Ending(f"its process {process.pid} was ended by {name}", -code not in _OTHERS)
