"""By whom devices are opened: this process, or those of ``manycl serve``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from manycl import flags
from manycl.drivers.choice import OpenDevice, open_devices
from manycl.machine import Machine

Opener = Callable[[str | Sequence[str] | None], tuple[Machine, tuple[OpenDevice, ...]]]


def opener(serve: bool | None) -> Opener:
    """What opens devices (None: as MANYCL_SERVE says)."""
    if not (flags.serve() if serve is None else serve):
        return open_devices
    from manycl.drivers.serve.client import open_served

    return open_served
