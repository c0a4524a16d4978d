"""The files of reservations: one each, in the user's runtime folder, locked by its process for as long as that lives.

A file that nobody has locked belongs to a process that is gone, whatever ended it: who finds one removes it. So nothing
that a process left behind counts, and nobody has to be asked whether it is still there. A file appears under its name
when it is whole and locked, while the folder is locked: the order of their tickets is the order in which they appear.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from manycl.errors import ManyclError
from manycl.reservations.records import (
    UNFINISHED,
    Reservation,
    closed_in_children,
    in_order,
    locked,
    parse,
    process,
    under,
    unexpired,
)
from manycl.utilities.runtime_folder import existing

ENDING = ".reservation"
LOOK_AGAIN = 0.05
"""Seconds until who waits looks by itself: processes that are killed tell nobody."""
_MOST = 1 << 20  # bytes of a file that are read


def reservations(folder: str | None = None) -> list[Reservation]:
    """Return all reservations that are there and not over, in their order (None: of the user's runtime folder, if there
    is one)."""
    folder = existing() if folder is None else folder
    if folder is None:
        return []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(ENDING)]
    except OSError:
        return []
    return in_order(unexpired(r for r in [read(os.path.join(folder, name)) for name in names] if r is not None))


def read(path: str) -> Reservation | None:
    """Return the reservation in a file, if somebody has it locked; remove a file that nobody has."""
    while True:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.stat(path).st_ino == os.fstat(handle).st_ino:
                os.unlink(path)  # its owner has gone
                return None
            # its owner has put a new one in its place meanwhile
        except BlockingIOError:
            return parse(os.read(handle, _MOST), os.path.basename(path))
        except OSError:
            return None
        finally:
            os.close(handle)


class ReservationFile:
    """The file of a reservation of this process, from ``enter`` to ``remove``; ``reservation`` is what it says."""

    def __init__(self, folder: Path, asked: Reservation) -> None:
        """Enter it, as this process's and the last of its priority. Raises ManyclError where that cannot be written."""
        self._folder = folder
        self._handle = -1
        try:
            with locked(folder):
                ticket = max([time.monotonic_ns(), *(int(n.split("-")[0]) + 1 for n in _named(folder))])
                name = f"{ticket}-{process()}{ENDING}"
                mine = replace(asked, process=process(), pid=os.getpid(), under=under())
                self.reservation = replace(mine, name=name, ticket=ticket)
                self._write()
        except OSError as error:
            raise ManyclError(f"nothing can be reserved: {folder}: {error.strerror}") from None

    def hold(self) -> None:
        """Note that it is in force from now on."""
        r, now = self.reservation, time.monotonic()
        until = None if r.seconds is None else now + r.seconds
        self.reservation = replace(r, since=time.time(), until=until)
        try:
            with locked(self._folder):
                self._write()
        except OSError as error:
            raise ManyclError(f"nothing can be reserved: {self._folder}: {error.strerror}") from None

    def remove(self) -> None:
        """Remove the file: the reservation is over."""
        if self._handle >= 0:
            with suppress(OSError):
                os.unlink(self._folder / self.reservation.name)
            self.close()

    def close(self) -> None:
        """Forget the file (in a process that was forked: it is another one's)."""
        handle, self._handle = self._handle, -1
        closed_in_children.discard(self)
        if handle >= 0:
            os.close(handle)

    def _write(self) -> None:
        """Write a new file in place of the one before, locked before it is seen; with the folder's lock."""
        path = self._folder / self.reservation.name
        unfinished = self._folder / f"{self.reservation.name}{UNFINISHED}"
        handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, self.reservation.format())
            os.rename(unfinished, path)
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                os.unlink(unfinished)
            raise
        before, self._handle = self._handle, handle
        closed_in_children.add(self)
        if before >= 0:
            os.close(before)


def _named(folder: Path) -> list[str]:
    return [n for n in os.listdir(folder) if n.endswith(ENDING) and n.split("-")[0].isdigit()]
