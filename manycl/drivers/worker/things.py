"""The memory, programs and kernels that a client has of a device in another process, by their numbers, at both ends."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from manycl.drivers.driver import DriverError
from manycl.errors import ManyclError, anew
from manycl.machine import Device

DroppedThings = deque[tuple[str, int]]
"""Numbers of things that nobody has any more, of which the other process has not been told."""

numbers = itertools.count(1)
"""The numbers of things."""


class NumberedThing:
    """A thing with a number, which is dropped there when it is dropped here."""

    __slots__ = ("__weakref__", "number")
    kind = ""

    def __init__(self, dropped: DroppedThings) -> None:
        self.number = next(numbers)
        # by whichever thread, at any time: it only leaves word
        weakref.finalize(self, dropped.append, (self.kind, self.number)).atexit = False


class RemoteMemory(NumberedThing):
    """``kept``: what has the memory, a host array or the whole; ``is_freed``: by ``free``."""

    __slots__ = ("is_freed", "kept", "nbytes")
    kind = "memory"

    def __init__(self, dropped: DroppedThings, nbytes: int, kept: object = None) -> None:
        super().__init__(dropped)
        self.nbytes, self.kept, self.is_freed = nbytes, kept, False

    def part(self, dropped: DroppedThings, offset: int, nbytes: int, device: Device) -> RemoteMemory:
        """Return a part of it. Raises DriverError for bytes that are none."""
        if offset < 0 or offset + nbytes > self.nbytes or offset % device.alignment:
            raise DriverError(f"{nbytes} bytes from {offset} on are no part of {self.nbytes} bytes")
        return RemoteMemory(dropped, nbytes, self)


class RemoteProgram(NumberedThing):
    __slots__ = ()
    kind = "program"


class HostedThings:
    """The things of a client, in the process that has the device. ``device``: its driver, or one like it."""

    device: Any

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}
        self._programs: dict[int, Any] = {}
        self._kernels: dict[int, Any] = {}

    def part(self, number: int, whole: int, offset: int, nbytes: int) -> None:
        self.keep(number, lambda: self.device.part(self.of(whole), offset, nbytes))

    def drop(self, kind: str, number: int) -> None:
        """Forget a thing that nobody has any more; what is under way may still use it."""
        {"memory": self._memory, "program": self._programs, "kernel": self._kernels}[kind].pop(number, None)

    def keep(self, number: int, make: Callable[[], Any]) -> None:
        """Keep memory, or why there is none, for who uses it."""
        try:
            self._memory[number] = make()
        except ManyclError as error:
            self._memory[number] = error

    def of(self, number: int) -> Any:
        """Return memory. Raises ManyclError where there is none."""
        found = self._memory.get(number)
        if found is None:
            raise DriverError("the memory has been freed")
        if isinstance(found, ManyclError):
            raise anew(found)
        return found


def words(error: Exception) -> str:
    """Return what an error says, for the other end."""
    return (error.message if isinstance(error, ManyclError) else f"{type(error).__name__}: {error}") or "it failed"
