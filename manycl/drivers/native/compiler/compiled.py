"""The protocol of compiled programs: what the driver of native devices asks of whoever compiles OpenCL C for it.

A compiled kernel is called in this process, by the device's threads, for ranges of work-groups. What it is called with
is in ``runtime/device.h`` (``manycl_entry``): the addresses of its arguments' values, the NDRange, the first work-group
and the one behind the last, and a frame: memory of the calling thread for all that belongs to one work-group at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from manycl.drivers.driver import DriverError, Source
from manycl.drivers.native.blocks import Tiles
from manycl.machine import Device

ALIGNMENT = 128
"""Bytes: of frames, of local arguments in them, of allocations, and at most of arguments' values."""


class Parameter(NamedTuple):
    """``nbytes``: of a value (a scalar or struct); 0 for others. ``name``: where it is known."""

    kind: Literal["memory", "value", "local"]
    nbytes: int = 0
    name: str = "an argument"


class NativeEntry(NamedTuple):
    """``address`` of the function; ``frame``: bytes that it needs of one, local arguments not included. ``tiles``:
    where work-groups are nothing to a kernel, and work-items go through its loops together: its function is called for
    blocks of the NDRange instead, which are made of these."""

    address: int
    frame: int
    tiles: Tiles | None = None


class NativeKernel(Protocol):
    """A kernel of a compiled program. It keeps its code loaded as long as it is there."""

    @property
    def name(self) -> str: ...

    @property
    def most_items(self) -> int:
        """Work-items that a work-group of it may have."""

    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    @property
    def counted(self) -> tuple[int, ...]:
        """Arguments that are only counted in (``WorkGroupFunction.counted``)."""

    @property
    def refused(self) -> DriverError | None:
        """Why it cannot be compiled, as far as that is known before it is launched."""

    def entry(self, local_size: tuple[int, int, int], dims: int, wide: bool = False) -> NativeEntry:
        """The function for work-groups of a size (1 in dimensions that a launch does not have); ``wide``: global
        ids may need more than 31 bits. May compile it. Raises DriverError."""

    def choose_local(self, global_size: tuple[int, ...]) -> tuple[int, ...]:
        """A work-group's size, for launches that leave it to the device: it divides the global size."""


class NativeProgram(Protocol):
    def kernel(self, name: str) -> NativeKernel:
        """Raises DriverError if there is none, or it cannot be used."""


Compile = Callable[[Source, Device], NativeProgram]
"""Raises BuildError. Called by several threads at once."""
