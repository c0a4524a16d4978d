"""The kinds of drivers that there are: all that the rest of the package knows of any of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import PyDLL
from pathlib import Path
from typing import NamedTuple

from manycl.drivers.driver import Advice, Found
from manycl.machine import Device
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.interrupts import Uninterrupted

Look = Callable[[list[str]], list[Found]]
"""The devices that a kind of driver shows; notes are added of what was found and cannot be used as it is."""


Advise = Callable[[Sequence[Device], Sequence[Device]], list[Advice]]
"""What would be faster, or is known to be wrong, on a machine with these devices, of which those are chosen."""


class Kind(NamedTuple):
    """``look`` is called once a process. ``install``: what gives devices of this kind to a machine without. ``first``:
    its processor comes before all others', and looking for it loads no library. ``only_processors``: whether this kind
    can show nothing here but processors and simulators, told without loading a library; False where that is not
    sure."""

    name: str
    look: Look
    install: str
    first: bool = False
    only_processors: Callable[[], bool] = lambda: False
    advise: Advise = lambda devices, chosen: []


def kinds() -> tuple[Kind, ...]:
    """The libraries of drivers are loaded when a kind is looked at: that takes long."""
    from manycl.drivers.native import devices as native
    from manycl.drivers.opencl import advice, icd

    return (
        Kind("OpenCL", _look_for_opencl, icd.INSTALL, only_processors=icd.only_processors, advise=advice.advise),
        Kind("native", native.look, native.INSTALL, first=True, advise=native.advise),
    )


def load(source: Path, kept_in: DiskCache, compiles: bool) -> PyDLL:
    """Return a file of C as a library, compiled by the compiler of native devices once, and kept. Raises DriverError;
    without ``compiles`` also where it has not been compiled yet."""
    from manycl.drivers.native.compiler.library import load

    return load(source, kept_in, PyDLL, compiles)


def _look_for_opencl(notes: list[str]) -> list[Found]:
    with Uninterrupted():  # extension modules cannot be imported again once that was interrupted
        from manycl.drivers.opencl import devices
    return devices.look(notes)
