"""A node: a Dask worker that computes with its own devices what a client's session gives it, command by command, and
exchanges bytes with other nodes. All of a session is one call of the client, which ends with the session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import numpy as np
from distributed import WorkerPlugin

from manycl.cluster.commands import NodeCommands, NodeDevices
from manycl.cluster.exchange import Delivery, Outbox, ReceiveArbiter
from manycl.cluster.rows import PLAIN
from manycl.drivers.driver import DriverError
from manycl.drivers.worker.things import words
from manycl.utilities.prompt import be_prompt
from manycl.version import __version__

SESSION, DATA = "manycl_session", "manycl_data"
"""The names of the handlers."""


def _session(dask_worker: Any, session: str) -> NodeSession:
    found: dict[str, NodeSession] = dask_worker.plugins[NodePlugin.name].sessions
    if session not in found:
        raise DriverError(f"the worker at {dask_worker.address} has no such session")
    return found[session]


async def give_chunks(session: str, chunks: Mapping[str, Sequence[Any]], dask_worker: Any) -> None:
    """Give data that this worker has to a session, as they are. ``chunks``, by address: this node's number, the tag of
    the exchange, the key of the data, their type and bytes. Raises DriverError for others."""
    found = _session(dask_worker, session)
    for place, tag, key, dtype, nbytes in chunks[dask_worker.address]:
        data = np.asarray(dask_worker.data[key])
        if data.dtype.str != dtype or data.nbytes != nbytes:
            raise DriverError(f"a chunk is {data.nbytes} bytes of {data.dtype}, and {nbytes} of {dtype} are expected")
        found.arbiter.offer(place, tag, np.ascontiguousarray(data).reshape(-1).view(np.uint8))


async def take_chunks(session: str, chunks: Mapping[str, Sequence[Any]], dask_worker: Any) -> dict[Any, int]:
    """Make what a session has lent data of this worker's. ``chunks``: as above, with their type and shape; all of them
    are there. Return the bytes by key."""
    found = _session(dask_worker, session)
    data = {
        key: found.arbiter.take(place, tag).view(dtype).reshape(shape)
        for place, tag, key, dtype, shape in chunks[dask_worker.address]
    }
    dask_worker.update_data(data)
    return {key: array.nbytes for key, array in data.items()}


class NodePlugin(WorkerPlugin):  # type: ignore[misc]  # (of a package without types)
    """The handlers of every worker of a cluster. ``make``: opens the worker's devices."""

    name = "manycl"
    idempotent = True  # a second client's is the same, and the sessions of the first one go on

    def __init__(self, make: Callable[[], NodeDevices]) -> None:
        self._make = make

    def setup(self, worker: Any) -> None:
        self._worker, self.sessions = worker, dict[str, NodeSession]()
        worker.handlers[SESSION], worker.handlers[DATA] = self._serve, self._data

    def teardown(self, worker: Any) -> None:
        for name in (SESSION, DATA):
            worker.handlers.pop(name, None)
        for session in self.sessions.values():
            session.close("the worker has ended")

    async def _serve(self, comm: Any, session: str, place: int, addresses: Sequence[str]) -> None:
        """Do what comes by a connection until it ends. ``session``: which one it is; ``addresses``: of its nodes, of
        which this is number ``place``."""

        async def send(target: int, deliveries: list[dict[str, Any]]) -> None:
            peer = getattr(self._worker.rpc(addresses[target]), DATA)
            of = {"session": session, "source": place, "serializers": PLAIN, "deserializers": PLAIN}
            if await peer(deliveries=deliveries, **of) != "taken":
                raise DriverError("it has no such session")

        if session in self.sessions:
            await comm.close()
            return
        try:
            self.sessions[session] = found = NodeSession(self._make, send, len(addresses))
            await found.serve(comm)
        finally:
            del self.sessions[session]
            await comm.close()

    async def _data(self, session: str, source: int, deliveries: Sequence[Mapping[str, Any]]) -> str:
        """Take what another node of a session has sent to this one. What belongs to no session is dropped."""
        found = self.sessions.get(session)
        if found is None or source not in range(found.nodes):
            return "refused"
        await found.arbiter.put(source, [Delivery(**delivery) for delivery in deliveries])
        return "taken"


class NodeSession:
    """A client's session on a node. The worker's event loop hears the client and the other nodes; one thread does the
    commands."""

    def __init__(
        self,
        make: Callable[[], NodeDevices],
        send: Callable[[int, list[dict[str, Any]]], Any],
        nodes: int,
    ) -> None:
        """``nodes``: the number of the session's nodes; ``send``: as of an :class:`Outbox`."""
        self.nodes = nodes
        self.arbiter = ReceiveArbiter()
        self._outbox = Outbox(send, self._cannot_reach)
        self._loop, self._answers = asyncio.get_running_loop(), asyncio.Queue[dict[str, Any]]()
        self._given: SimpleQueue[Mapping[str, Any] | None] = SimpleQueue()
        self._make = make
        self._thread = threading.Thread(target=self._work, name="manycl-node", daemon=True)

    async def serve(self, comm: Any) -> None:
        """Hear the client until it has ended the session, or is gone."""
        self._end = comm.abort  # called when the thread has ended, of which nothing more can come
        self._thread.start()
        writer = self._loop.create_task(self._write(comm))
        try:
            while "bye" not in (message := await comm.read(deserializers=PLAIN)):
                for place, why in message.get("lost", ()):
                    self._lose(place, why)
                if "commands" in message:
                    self._given.put(message)
        except OSError:  # it is closed
            pass
        finally:
            writer.cancel()
            self.close("the session has ended")
            await asyncio.to_thread(self._thread.join)

    async def _write(self, comm: Any) -> None:
        with suppress(OSError):  # it is closed, which the reader hears
            while True:
                await comm.write(await self._answers.get(), serializers=PLAIN)

    def close(self, why: str) -> None:
        """End the thread behind what it does now; nothing is waited for that others would have to send."""
        for place in range(self.nodes):
            self._lose(place, why)
        self._outbox.close()
        self._given.put(None)

    def _lose(self, place: int, why: str) -> None:
        self.arbiter.lose(place, why)
        self._outbox.lose(place)

    def _cannot_reach(self, place: int, why: str) -> None:
        """The client ends waiting on both sides."""
        self._lose(place, why)
        self._tell(unreachable=[place, why])

    def _tell(self, **message: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._answers.put_nowait, message)

    # the thread

    def _work(self) -> None:
        be_prompt()
        try:
            devices = self._make()
        except Exception as error:
            self._tell(refused=words(error))
            return
        try:
            self._tell(opened=dict(devices.description), version=__version__)
            commands = NodeCommands(devices, self.arbiter, self._outbox, self._tell)
            while (message := self._given.get()) is not None:
                commands.do_all(message)
                if self._given.empty():
                    commands.report()
        finally:
            devices.close()
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._end)
