"""Messages over a socket of this machine, with descriptors of files."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from manycl.drivers.worker.messages import HEAD, MOST, Message, ProtocolError, decode

_AT_ONCE = 1 << 16  # bytes that are read at once
_CLOSING = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # programs that are started do not get them
_DESCRIPTORS = 8  # that come with a frame, at most


class Channel:
    """Threads may send; one at a time may receive. ``descriptors``: those that have come and that nobody has taken."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.descriptors: list[int] = []
        self._come = bytearray()
        self._sending = threading.Lock()

    def send(self, frames: bytes, descriptors: Sequence[int] = ()) -> None:
        """Some frames, and descriptors with the first of them. Raises OSError where nobody is there any more."""
        with self._sending:
            if descriptors:
                frames = frames[socket.send_fds(self.connection, [frames], list(descriptors)) :]
            self.connection.sendall(frames)

    def receive(self) -> list[Message]:
        """Wait for messages. Raises EOFError when there is nobody to send any, OSError, ProtocolError."""
        while True:
            found = self.read()
            if found:
                return found

    def read(self) -> list[Message]:
        """The messages that are complete when something has come. Raises as ``receive``."""
        data, descriptors, _, _ = socket.recv_fds(self.connection, _AT_ONCE, _DESCRIPTORS, _CLOSING)
        self.descriptors += descriptors
        if not data:
            raise EOFError
        self._come += data
        return self._frames()

    def _frames(self) -> list[Message]:
        found, at, come = [], 0, self._come
        while len(come) - at >= HEAD.size:
            (nbytes,) = HEAD.unpack_from(come, at)
            if nbytes > MOST:
                raise ProtocolError(f"a message of {nbytes} bytes is too long")
            end = at + HEAD.size + nbytes
            if len(come) < end:
                break
            found.append(decode(bytes(come[at + HEAD.size : end])))
            at = end
        del come[:at]
        return found

    def end(self) -> None:
        """Whoever waits for messages, at either end, hears that there are no more."""
        with suppress(OSError):  # it has ended
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.connection.close()
        while self.descriptors:
            os.close(self.descriptors.pop())
