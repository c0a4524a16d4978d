"""``manycl serve``: hands processes that are warm to clients, and is in nobody's way then. A client asks which devices
there are, and for a process for each; all else is between these (the same messages as for any worker device). So a
kernel or driver that ends its process ends nothing else, and clients do not notice when the service goes. It is one
loop, which waits for nothing but messages."""

from __future__ import annotations

import os
import selectors
from typing import Any, NamedTuple

from manycl.drivers.serve.place import ServicePlace, is_own
from manycl.drivers.serve.pool import ProcessPool, ServedProcess
from manycl.drivers.worker import messages as m
from manycl.drivers.worker.messages import Channel
from manycl.utilities.logs import logger

log = logger(__name__)
_KNOWN = 64  # selections whose devices are remembered


class _Waiting(NamedTuple):
    """A client that waits for a process: for a device (``worker``), or to be told which there are (``machine``).
    ``reply``: the number of the answer; ``of``: the device, or selection."""

    client: Channel
    question: str
    reply: int
    of: str


class Server:
    """The service, which runs until it is asked to stop. Use as a context manager. Raises DeviceError where one runs
    already."""

    def __init__(self) -> None:
        self._place = ServicePlace()
        self._pool = ProcessPool()
        self._loop = selectors.DefaultSelector()
        self._clients: list[Channel] = []
        self._waiting: list[_Waiting] = []
        self._looking: dict[ServedProcess, _Waiting] = {}
        self._known: dict[str, Any] = {}
        self._served = 0
        self._is_stopping = self._is_closed = False

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def path(self) -> str:
        return str(self._place.path)

    def run(self) -> None:
        """Serve until somebody says stop, or the caller is interrupted; leave nothing behind."""
        try:
            self._place.listener.setblocking(False)
            self._loop.register(self._place.listener, selectors.EVENT_READ, None)
            self._more()
            while not self._is_stopping:
                for key, _ in self._loop.select(self._pool.patience()):
                    self._act(key.data)
                for member in self._pool.outstayed():
                    self._lose(member)
                self._pool.reap()
        finally:
            self._close()

    def _act(self, source: Channel | ServedProcess | None) -> None:
        if source is None:
            self._accept()
        elif isinstance(source, ServedProcess):
            if source in self._pool.members:
                self._hear_member(source)
        elif source in self._clients:
            self._hear_client(source)

    def _accept(self) -> None:
        try:
            connection, _ = self._place.listener.accept()
        except OSError as error:  # it went at once; or there are too many files, and others will close theirs
            log.warning("nobody can be answered: %s", error)
            return
        if not is_own(connection):
            connection.close()
            return
        connection.setblocking(False)
        client = Channel(connection)
        self._clients.append(client)
        self._loop.register(connection, selectors.EVENT_READ, client)

    # clients

    def _hear_client(self, client: Channel) -> None:
        try:
            for asked in client.read():
                self._ask(client, *asked)
            while client.descriptors:
                os.close(client.descriptors.pop())
        except BlockingIOError:
            return
        except (EOFError, OSError, m.ProtocolError, TypeError):
            self._drop(client)

    def _ask(self, client: Channel, question: str, reply: int, version: int, of: str = "") -> None:
        """Answer ``status()``, ``stop()``, ``machine(selection)`` or ``worker(device)``, which is asked in a version of
        the protocol; the last one by a process, and a connection to it."""
        if version != m.VERSION:
            here = f"the service speaks version {m.VERSION} of the protocol, not {version}"
            self._answer(client, reply, "stop it and start it anew: manycl serve --stop", here)
        elif question == "status":
            self._answer(client, reply, self._status())
        elif question == "stop":
            self._answer(client, reply, os.getpid())
            self._is_stopping = True
        elif question == "machine" and of in self._known:
            self._answer(client, reply, self._known[of])
        elif question in ("machine", "worker"):
            self._waiting.append(_Waiting(client, question, reply, of))
            self._more()
        else:
            raise m.ProtocolError(f"{question} is not for the service")

    def _answer(
        self, client: Channel, reply: int, value: Any, error: str | None = None, descriptors: tuple[int, ...] = ()
    ) -> None:
        try:
            client.call("reply", reply, value, error, False, descriptors=descriptors)
        except OSError:  # it is gone, or does not listen
            self._drop(client)

    def _drop(self, client: Channel) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._loop.unregister(client.connection)
            client.close()
            self._waiting = [one for one in self._waiting if one.client is not client]

    def _status(self) -> dict[str, Any]:
        members = [
            {"pid": one.process.pid, "state": one.state, "devices": list(one.devices), "clients": one.clients}
            for one in self._pool.members
        ]
        return {
            "pid": os.getpid(),
            "version": m.VERSION,
            "socket": self.path,
            "served": self._served,
            "waiting": len(self._waiting),
            "settled": self._pool.is_settled() and not self._waiting,
            "failure": self._pool.failure,
            "processes": members,
        }

    # processes

    def _more(self) -> None:
        """Give those that wait what there is, and have started what is missing."""
        for waiting in list(self._waiting):
            member = self._pool.for_device(waiting.of if waiting.question == "worker" else "")
            if member is None:
                break
            self._waiting.remove(waiting)
            self._give(member, waiting)
        for member in self._pool.start(len(self._waiting)):
            self._loop.register(member.channel.connection, selectors.EVENT_READ, member)
        if self._pool.failure and not self._pool.of("starting"):
            for waiting in self._waiting:
                self._answer(waiting.client, waiting.reply, "", self._pool.failure)
            self._waiting.clear()

    def _give(self, member: ServedProcess, waiting: _Waiting) -> None:
        """A process that waits to a client that waits."""
        try:
            if waiting.question == "machine":
                member.channel.call("machine", waiting.reply, waiting.of)
                member.state = "looking"
                self._looking[member] = waiting
                return
            with member.take() as connection:
                self._served += 1
                self._answer(waiting.client, waiting.reply, member.process.pid, None, (connection.fileno(),))
        except OSError:  # of the process
            self._waiting.insert(0, waiting)
            self._lose(member)

    def _hear_member(self, member: ServedProcess) -> None:
        try:
            for name, *given in member.channel.read():
                if name == "reply":
                    self._found(member, *given[1:3])
                elif name == "idle":
                    for other in self._pool.ready(member, *given):
                        self._lose(other)
        except BlockingIOError:
            return
        except (EOFError, OSError, m.ProtocolError):
            self._lose(member)
        self._more()

    def _found(self, member: ServedProcess, value: Any, error: str | None) -> None:
        """A process has looked for devices."""
        member.wait()
        waiting = self._looking.pop(member)
        if error is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[waiting.of] = value
        if waiting.client in self._clients:
            self._answer(waiting.client, waiting.reply, value, error)

    def _lose(self, member: ServedProcess) -> None:
        """A process has ended, or is no longer wanted."""
        self._loop.unregister(member.channel.connection)
        self._pool.gone(member)
        waiting = self._looking.pop(member, None)
        if waiting is not None and waiting.client in self._clients:
            words = f"the process that looked for devices ({member.process.pid}) has ended"
            self._answer(waiting.client, waiting.reply, "", words)

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._place.leave()
        for client in list(self._clients):
            self._drop(client)
        self._pool.close()
        self._loop.close()
