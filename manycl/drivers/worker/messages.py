"""Remote calls between a worker process and who uses its device, as JSON, never code, over a socket of this machine
that also passes descriptors of files.

A frame is its length (4 bytes, big-endian) and a JSON array: the name of a function of the other end and its arguments.
:class:`manycl.drivers.worker.process.Hosted` has those of the process, :class:`manycl.drivers.worker.link.WorkerLink`
hears ``ended`` and ``reply``, :class:`manycl.drivers.serve.server.Server` has those of the service. Who uses the device
numbers all things (memory, programs, kernels, queues, commands) and never uses a number twice. A *question* has the
number of its reply first, and is answered by ``reply(number, value, error, of_build)`` with the error's words (None:
none), which may be a compiler's log. Commands are not answered; ``ended`` tells of them.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from manycl.errors import DeviceError

VERSION = 4
"""Of the protocol: both ends must have the same."""
MOST = 1 << 28
"""Bytes that a frame may have."""
HEAD = struct.Struct(">I")

Place = Sequence[Any]
"""An end of a copy: ``[number of the memory, low]`` of the device's, ``[None, offset, nbytes]`` of the host's."""
Value = Any
"""Of a kernel's argument: the number of a memory, ``[hexadecimal digits]`` of bytes, ``{"local": bytes}``."""
Waits = Sequence[Sequence[int]]
"""Commands: their queue and number."""
Message = list[Any]
"""The name of a function, and its arguments."""


class ProtocolError(DeviceError):
    """The other end says what this one does not understand."""


def encode(*message: Any) -> bytes:
    """Return a message as a frame."""
    data = json.dumps(message, separators=(",", ":")).encode()
    return HEAD.pack(len(data)) + data


def decode(data: bytes) -> Message:
    """Return the message of a frame without its length. Raises ProtocolError."""
    with suppress(ValueError, RecursionError):
        found = json.loads(data)
        if isinstance(found, list) and found and isinstance(found[0], str):
            return found
    raise ProtocolError(f"{data[:80]!r} is no message of version {VERSION}")


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

    def call(self, *message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a message, and descriptors with it. Raises OSError where nobody is there any more."""
        self.send(encode(*message), descriptors)

    def send(self, frames: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send some frames, as ``call`` does."""
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
