"""Reserving: ask, wait for one's turn, have others leave, and give back."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from math import inf

from manycl.errors import ManyclError
from manycl.reservations.ear import Ear, listeners, tell
from manycl.reservations.records import Reservation, closed_in_children, in_force
from manycl.reservations.register import LOOK_AGAIN, ReservationFile, reservations
from manycl.utilities.prompt import be_prompt
from manycl.utilities.runtime_folder import runtime_folder

MOST_SECONDS = 1e9
MOST_PRIORITY = 1 << 31


def check(wanted: Reservation) -> None:
    """Raise ManyclError for a reservation that cannot be."""
    if wanted.seconds is not None and not 0 < wanted.seconds <= MOST_SECONDS:
        raise ManyclError(f"{wanted.device} cannot be reserved for {wanted.seconds:g} s", hint="a positive number")
    if not -MOST_PRIORITY < wanted.priority < MOST_PRIORITY:
        raise ManyclError(f"there is no priority {wanted.priority}", hint="whole numbers of 32 bits")


class Hold:
    """A reservation of this process. ``begin`` and ``end``, once each; whatever ends the process ends it."""

    def __init__(self, wanted: Reservation) -> None:
        check(wanted)
        self._wanted = wanted
        self._folder = runtime_folder()
        self._entry: ReservationFile | None = None
        self._leaving = _Leaving(str(self._folder))

    @property
    def name(self) -> str:
        """The name of its file, while it has one."""
        return self._entry.reservation.name if self._entry is not None else ""

    @property
    def reservation(self) -> Reservation | None:
        """The reservation as others see it; None where there is none."""
        return self._entry.reservation if self._entry is not None else None

    @property
    def is_in_force(self) -> bool:
        """True if it is this one's turn; not while one of a higher priority wants the same."""
        return self._is_among(in_force(reservations(str(self._folder))))

    def begin(
        self,
        waiting: Callable[[Sequence[Reservation]], None] = lambda others: None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Reserve, and wait until the reservation is in force, and, if it is to ``wait``, until the queues of all
        processes have left the devices. ``waiting`` is told, each time that they change, of the reservations that it
        waits for. Raises ManyclError after ``timeout`` seconds: then nothing is reserved."""
        be_prompt()
        end = inf if timeout is None else time.monotonic() + timeout
        try:
            entry = self._entry = ReservationFile(self._folder, self._wanted)
            if not self.is_in_force:  # who listens takes a while to begin
                with _Hearing(self._folder) as hearing:
                    self._wait_for_turn(hearing, waiting, end)
            # they know whose turn it is, and leave while the file is written anew
            self._leaving.begin(entry.reservation)
            entry.hold()
            while wait and not self._leaving.is_over(LOOK_AGAIN):
                self._check_time(end, "queues of other processes, which still compute there")
        except BaseException:
            self.end()
            raise

    def has_left(self, seconds: float = 0.0) -> bool:
        """Return whether the queues of all processes have left the devices; wait so many seconds for it, at most
        about."""
        return self._leaving.is_over(seconds)

    def end(self) -> None:
        """Give the devices back, and tell others so."""
        entry, self._entry = self._entry, None
        self._leaving.close()
        if entry is not None:
            entry.remove()
            tell_all(str(self._folder))

    def _check_time(self, end: float, whom: str) -> None:
        if not time.monotonic() < end:  # also of NaN
            raise ManyclError(f"{self._wanted.device} is not free in time: waited for {whom}")

    def _wait_for_turn(self, hearing: _Hearing, waiting: Callable[[Sequence[Reservation]], None], end: float) -> None:
        told: list[str] = []
        while True:
            there = reservations(str(self._folder))
            holding = in_force(there)
            if self._is_among(holding):
                return
            others = [r for r in holding if r.name != self.name and r.resources & self._wanted.resources]
            if [r.name for r in others] != told:
                told = [r.name for r in others]
                waiting(others)
            self._check_time(end, ", ".join(map(str, others)))
            hearing.wait(LOOK_AGAIN)

    def _is_among(self, holding: Sequence[Reservation]) -> bool:
        return any(r.name == self.name for r in holding)


def tell_all(folder: str) -> None:
    """Tell all who listen to look. (Who is too busy to hear it will look in any case.)"""
    tell(folder, listeners(folder))


class _Hearing:
    """The listener of a process that waits."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._ear = Ear(folder)

    def __enter__(self) -> _Hearing:
        return self

    def __exit__(self, *error: object) -> None:
        self._ear.close()

    def wait(self, seconds: float) -> None:
        """Wait until something was sent, for so many seconds at most."""
        poll = select.poll()
        poll.register(self._ear, select.POLLIN)
        poll.poll(seconds * 1e3)
        for handle in self._ear.heard() or ():
            os.close(handle)


class _Leaving:
    """The leaving of all who listen: each has an end of a pipe, until it has left, or is gone."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._read = self._write = -1
        self._untold: list[str] = []
        self._reserved: Reservation | None = None

    def begin(self, reserved: Reservation) -> None:
        """Tell listeners that what is ``reserved`` is in force now."""
        self._reserved = reserved
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        closed_in_children.add(self)
        self._untold = listeners(self._folder)
        self._tell()

    def is_over(self, seconds: float) -> bool:
        """Return whether all have left; wait so many seconds for it, at most."""
        if self._read < 0:
            return True
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            poll = select.poll()
            poll.register(self._read, 0)  # only that the other end is closed
            step = min(max(left, 0.0), LOOK_AGAIN) if self._untold else max(left, 0.0)
            if poll.poll(step * 1e3) and not self._untold:
                self.close()
                return True
            self._tell()
            if left <= 0:
                return False

    def close(self) -> None:
        read, write, self._read, self._write = self._read, self._write, -1, -1
        closed_in_children.discard(self)
        for handle in (read, write):
            if handle >= 0:
                os.close(handle)

    def _tell(self) -> None:
        if self._untold:
            self._untold = tell(self._folder, self._untold, (self._write,), self._reserved)
        if not self._untold and self._write >= 0:
            os.close(self._write)
            self._write = -1
