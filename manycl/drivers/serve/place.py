"""The place where ``manycl serve`` is found: a socket in the user's runtime folder, which no other user can reach."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path

from manycl.errors import DeviceError
from manycl.utilities.runtime_folder import location, runtime_folder

_SOCKET, _LOCK = "serve.socket", "serve.lock"
_PEER = struct.Struct("3i")  # process, user, group
START = "start it: manycl serve"


class ServicePlace:
    """The place of the one service of a user, as long as it runs. ``listener``: the socket. Raises DeviceError where
    one runs already; what one that was killed has left is taken over."""

    def __init__(self) -> None:
        folder = runtime_folder()
        self._lock_path, self.path = folder / _LOCK, folder / _SOCKET
        self._lock = _locked(self._lock_path)
        self.listener = socket.socket(socket.AF_UNIX)
        try:
            self.path.unlink(missing_ok=True)
            before = os.umask(0o177)
            try:
                self.listener.bind(str(self.path))
            finally:
                os.umask(before)
            self.listener.listen(128)
        except OSError as error:
            self.leave()
            raise DeviceError(f"{self.path} cannot be listened at: {error}") from None

    def leave(self) -> None:
        """Remove all of it."""
        self.listener.close()
        for path in (self.path, self._lock_path):
            with suppress(OSError):
                path.unlink()
        os.close(self._lock)


def connected() -> socket.socket:
    """A connection to the user's service. Raises DeviceError where none runs."""
    path = os.path.join(location(), _SOCKET)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise DeviceError(f"no service of manycl's runs ({path}: {error.strerror or error})", hint=START) from None
    if not is_own(connection):
        connection.close()
        raise DeviceError(f"{path} is another user's")
    return connection


def is_own(connection: socket.socket) -> bool:
    """Return whether it is this user who is at the other end."""
    _, user, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(user == os.geteuid())


def _locked(path: Path) -> int:
    """A descriptor of the file, which is locked by this process. Raises DeviceError where another one has it."""
    while True:
        found = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(found), os.stat(path)):
                    return found
        except BlockingIOError:
            os.close(found)
            raise DeviceError("a service of this user's runs already", hint="manycl serve --status") from None
        os.close(found)  # another one has taken it away meanwhile
