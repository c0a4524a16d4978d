"""Reservations of devices from Python: a context manager."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress

from manycl import flags
from manycl.drivers.choice import chosen_devices
from manycl.errors import ManyclError
from manycl.reservations.hold import Hold, check
from manycl.reservations.records import Reservation, for_children

_LONGEST = 200  # characters of a command line; our own choice


class Reserved:
    """Devices that no other process of this user uses from the beginning to the end of the ``with`` block
    (:func:`reserve` makes it)."""

    def __init__(self, wanted: Reservation, wait: bool, timeout: float | None) -> None:
        self._wanted, self._wait, self._timeout = wanted, wait, timeout
        self._hold: Hold | None = None

    def __enter__(self) -> Reserved:
        if self._hold is not None:
            raise ManyclError("devices are reserved already", hint="another reserve(...) reserves them again")
        hold = Hold(self._wanted)
        hold.begin(_tell, self._wait, self._timeout)
        self._hold = hold
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Give the devices back before the block ends."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.end()

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that let another process use the devices, too."""
        return {flags.RESERVATION: for_children()}

    @property
    def in_force(self) -> bool:
        """True if the devices are this process's now: inside the block, unless the time is over, or a process with a
        higher priority has reserved them."""
        return self._hold is not None and self._hold.is_in_force

    @property
    def is_free(self) -> bool:
        """True if the queues of all other processes have left the devices (as they have with ``wait=True``)."""
        return self._hold is not None and self._hold.has_left()

    def __repr__(self) -> str:
        state = "not reserved" if self._hold is None else "in force" if self.in_force else "not in force"
        return f"<manycl.reserve {self._wanted.device}, {state}>"


def reserve(
    devices: str | Sequence[str],
    *,
    seconds: float | None = None,
    priority: int = 0,
    wait: bool = True,
    timeout: float | None = None,
) -> Reserved:
    """Reserve devices (the syntax of ``--devices``) for this process, as a context manager::

        with mc.reserve("gpu0", seconds=60):
            ...

    Inside, queues of this user's other processes do not use them, nor any device that computes on the same cores or
    the same GPU. Reservations are served in their order, those with a higher ``priority`` before all others, also where
    these have begun: then ``in_force`` is false until they have ended. The block begins when the devices are this
    process's, and, with ``wait``, when nothing of the other queues runs there any more. After ``seconds`` (None: at the
    end of the block) other processes may use them again, and the block goes on. Ctrl-C ends the waiting, and so do
    ``timeout`` seconds of it (ManyclError, which says for whom it waited).

    Raises DeviceError for devices that are not here, ManyclError where the user has no runtime folder.
    """
    return Reserved(wanted(devices, seconds, priority, " ".join(sys.orig_argv) or "Python"), wait, timeout)


def wanted(devices: str | Sequence[str], seconds: float | None, priority: int, command: str) -> Reservation:
    """Return the request of a reservation. Raises as :func:`reserve`."""
    words = devices if isinstance(devices, str) else ",".join(devices)
    resources = frozenset[str]().union(*(chosen.handle.resources for chosen in chosen_devices(devices)))
    made = Reservation(words, resources, seconds, priority, command[:_LONGEST])
    check(made)
    return made


def _tell(others: Sequence[Reservation]) -> None:
    for other in others:
        with suppress(RuntimeWarning):  # where warnings are errors
            warnings.warn(f"waiting for {other}", RuntimeWarning, stacklevel=4)
