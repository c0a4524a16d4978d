"""Listeners: sockets by which processes hear that reservations have changed. Each that listens has a datagram socket in
the runtime folder. What is sent says nothing but that, or what its sender has reserved: who hears it reads the files,
and may begin before. With it comes, if the sender wants to know when what it has reserved is free, one end of a pipe
(SCM_RIGHTS), which the listener closes when it has left those devices. The sender sees the other end end once all of
them have, or are gone."""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from manycl.errors import ManyclError
from manycl.reservations.records import UNFINISHED, Reservation, closed_in_children, locked, parse, process
from manycl.utilities.runtime_folder import existing

ENDING = ".listener"
_LONGEST = 100  # bytes of an address; longer ones go by the folder's descriptor
_MOST = 8  # descriptors of a message
_NOTHING, _MOST_WORDS = b"!", 1 << 12
_CREDENTIALS = struct.Struct("3i")
_SPACE = socket.CMSG_SPACE(_MOST * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
_made = 0


class Ear:
    """A listener, which hears from when it is made until it is closed. Raises ManyclError where it cannot be made."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        global _made
        _made += 1
        self._path = Path(folder) / f"{process()}-{_made}{ENDING}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            with locked(self._path.parent):
                self._bind()
        except OSError as error:
            self._socket.close()
            raise ManyclError(f"{self._path} cannot be made: {error.strerror}") from None
        self._owner = os.getpid()
        self.told: list[Reservation] = []
        """What they have reserved by their own account who were heard of last."""
        closed_in_children.add(self)

    def _bind(self) -> None:
        """A socket's file is there a moment before the socket can be reached by it, and would be taken for one that a
        killed process has left: it gets its name behind that."""
        unfinished = self._path.with_name(f"{self._path.name}{UNFINISHED}")
        with _Address(unfinished) as address:
            self._socket.bind(address)
        os.rename(unfinished, self._path)

    def fileno(self) -> int:
        return self._socket.fileno()

    def heard(self) -> list[int] | None:
        """Return the descriptors, which the caller closes, that came with what was sent since the last time, or
        None."""
        found: list[int] = []
        is_any = False
        self.told = []
        while True:
            try:
                words, ancillary, _, _ = self._socket.recvmsg(_MOST_WORDS, _SPACE, socket.MSG_CMSG_CLOEXEC)
            except OSError:  # no more, or closed
                return found if is_any else None
            came: list[int] = []
            sender = -1
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    numbers = array.array("i")
                    numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                    came += numbers
                elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                    sender = _CREDENTIALS.unpack(data)[1]
            if sender in _allowed():  # the folder keeps others out; this does not depend on it
                found += came
                is_any = True
                if words != _NOTHING and (reservation := parse(words)) is not None:
                    self.told.append(reservation)
            else:
                for handle in came:
                    os.close(handle)

    @property
    def is_there(self) -> bool:
        """True if others find it: a login's runtime folder goes with its last session, and another one comes."""
        return str(self._path.parent) == existing() and self._path.exists()

    def wake(self) -> None:
        """Hear something, as if it had been sent."""
        tell(str(self._path.parent), [self._path.name])

    def close(self) -> None:
        closed_in_children.discard(self)
        if self._socket.fileno() >= 0:
            if self._owner == os.getpid():
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # whoever polls it is to see that
            self._socket.close()
            if self._owner == os.getpid():
                with suppress(OSError):
                    os.unlink(self._path)


def _allowed() -> tuple[int, ...]:
    """Return the users who are listened to."""
    return os.geteuid(), 0


def listeners(folder: str) -> list[str]:
    """Return the names of all sockets."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.name.endswith(ENDING)]
    except OSError:
        return []


def tell(
    folder: str, names: Sequence[str], descriptors: Sequence[int] = (), reserved: Reservation | None = None
) -> list[str]:
    """Tell these listeners that something has changed, or what is ``reserved``; return the names of those who have too
    much to hear just now. Sockets of processes that are gone are removed."""
    busy, words = [], _NOTHING if reserved is None else reserved.format()
    if len(words) > _MOST_WORDS:
        words = _NOTHING
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as sender:
        for name in names:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                with _Address(Path(folder) / name) as address:
                    sender.sendmsg([words], rights, 0, address)
            except (BlockingIOError, InterruptedError):
                busy.append(name)
            except ConnectionRefusedError:
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))
            except OSError:  # it has just gone
                continue
    return busy


def sweep(folder: str) -> None:
    """Remove the sockets of processes that are gone; those of others hear nothing."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as other:
        for name in listeners(folder):
            with suppress(OSError):  # it has just gone
                try:
                    with _Address(Path(folder) / name) as address:
                        other.connect(address)
                except ConnectionRefusedError:
                    os.unlink(os.path.join(folder, name))


class _Address:
    """The address of a socket, whatever the length of its path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = -1

    def __enter__(self) -> str:
        if len(os.fsencode(self._path)) <= _LONGEST:
            return str(self._path)
        self._handle = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._handle}/{self._path.name}"

    def __exit__(self, *error: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)
