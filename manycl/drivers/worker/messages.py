"""What a worker process and who uses its device say to one another: frozen values, as JSON, never code, over a socket
of this machine that also passes descriptors of files.

A frame is its length (4 bytes, big-endian) and a JSON array: the name of the message and its fields. Who uses the
device numbers all things (memory, programs, kernels, queues, commands) and never uses a number twice. Commands are not
answered; their queue's :class:`Ended` tells of them. Whatever has a ``reply`` is answered with it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from manycl.errors import DeviceError

VERSION = 3
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


class Hello(NamedTuple):
    """The first message. Descriptors come with it: of the memory that both share, which has ``nbytes``, and of what
    kernels print to (standard output, standard error)."""

    version: int
    nbytes: int


class OpenWorker(NamedTuple):
    """``selection`` means one device; ``own``: it is to have a memory of its own. ``name``: what messages call it."""

    reply: int
    selection: str
    name: str
    own: bool


class AskMemory(NamedTuple):
    """``offset``: of host memory that becomes the device's (None: new memory)."""

    reply: int
    memory: int
    nbytes: int
    offset: int | None


class MakePart(NamedTuple):
    memory: int
    whole: int
    offset: int
    nbytes: int


class FreeMemory(NamedTuple):
    """Of nothing that is under way."""

    memory: int


class Dropped(NamedTuple):
    """Nobody has them any more; what is under way may still use them. ``kind``: memory, program or kernel."""

    kind: str
    number: int


class AskProgram(NamedTuple):
    reply: int
    program: int
    text: str
    options: Sequence[str]
    path: str


class AskKernel(NamedTuple):
    """Answered with the work-items that a work-group of it may have."""

    reply: int
    kernel: int
    program: int
    name: str


class AskQueue(NamedTuple):
    """``progress``: where in host memory the queue's progress is (:mod:`manycl.drivers.worker.progress`)."""

    reply: int
    queue: int
    timed: bool
    progress: int


class AskClock(NamedTuple):
    """Answered with seconds, or None."""

    reply: int


class GiveLaunch(NamedTuple):
    """``sets``: arguments that have changed since the last launch of the kernel, and their values."""

    queue: int
    number: int
    kernel: int
    sets: Sequence[tuple[int, Value]]
    global_size: Sequence[int]
    local_size: Sequence[int] | None
    offset: Sequence[int] | None
    after: Waits


class GiveCopy(NamedTuple):
    queue: int
    number: int
    target: Place
    source: Place
    boxes: Sequence[Sequence[int]]
    after: Waits


class GiveFill(NamedTuple):
    """``pattern`` in hexadecimal digits."""

    queue: int
    number: int
    memory: int
    pattern: str
    offset: int
    nbytes: int
    after: Waits


class Bye(NamedTuple):
    """Nothing more will be asked, and nothing is under way."""


class TakeClient(NamedTuple):
    """To a process of the service: who is at the connection that comes with it is its client until that is gone."""


class Idle(NamedTuple):
    """From a process of the service: it has no client. ``devices``: that it has open."""

    devices: Sequence[str]


class AskMachine(NamedTuple):
    """The service asks a process which devices a selection means. The answer: :data:`Described`, in a list."""

    reply: int
    version: int
    selection: str


class AskWorker(NamedTuple):
    """Of the service: a process for a device. Answered with its id, and a connection to it."""

    reply: int
    version: int
    device: str


class AskStatus(NamedTuple):
    """Of the service. Answered with an object."""

    reply: int
    version: int


class AskStop(NamedTuple):
    """Of the service: to end. Its processes that have clients end with these."""

    reply: int
    version: int


Described = Sequence[Any]
"""A device: its fields, the selection that means it, and whether it computes in the host's memory."""


class Reply(NamedTuple):
    """``error``: why it failed (None: it did not); ``of_build``: it is a compiler's log."""

    reply: int
    value: Any
    error: str | None
    of_build: bool = False


class Ended(NamedTuple):
    """All commands of a queue up to a number are complete. ``failed``: numbers and words. ``times``: when those ran
    that this is the first to tell of, by the device's clock, in order (None: nobody knows)."""

    queue: int
    number: int
    failed: Sequence[tuple[int, str]]
    times: Sequence[tuple[float, float] | None]


Message = Any
"""One of these."""

_MESSAGES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Hello, OpenWorker, AskMemory, MakePart, FreeMemory, Dropped, AskProgram, AskKernel, AskQueue, AskClock),
        *(GiveLaunch, GiveCopy, GiveFill, Bye, Reply, Ended),
        *(TakeClient, Idle, AskMachine, AskWorker, AskStatus, AskStop),
    )
}


class ProtocolError(DeviceError):
    """The other end says what this one does not understand."""


def encode(message: Message) -> bytes:
    """As a frame."""
    data = json.dumps((type(message).__name__, *message), separators=(",", ":")).encode()
    return HEAD.pack(len(data)) + data


def decode(data: bytes, kinds: dict[str, type[Any]] = _MESSAGES) -> Message:
    """The message of a frame without its length. Raises ProtocolError."""
    try:
        name, *fields = json.loads(data)
        return kinds[name](*fields)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ProtocolError(f"{data[:80]!r} is no message of version {VERSION}") from None


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
