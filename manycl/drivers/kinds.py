"""The kinds of drivers that there are: all that the rest of the package knows of any of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from manycl.drivers.driver import Found
from manycl.interrupts import Uninterrupted

Look = Callable[[list[str]], list[Found]]
"""The devices that a kind of driver shows; notes are added of what was found and cannot be used as it is."""


class Kind(NamedTuple):
    """``look`` is called once a process. ``install``: what gives devices of this kind to a machine without."""

    name: str
    look: Look
    install: str


def kinds() -> tuple[Kind, ...]:
    """Imported when they are first asked for: libraries of drivers take long to load."""
    with Uninterrupted():  # extension modules cannot be imported again once that was interrupted
        from manycl.drivers.native import devices as native
        from manycl.drivers.opencl import devices as opencl
    return Kind("OpenCL", opencl.look, opencl.INSTALL), Kind("native", native.look, native.INSTALL)
