"""The client's connection to a node: commands and their ends, questions and their answers, and the node's loss."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

from distributed.comm import connect
from distributed.protocol import to_serialize

from manycl.cluster.dask_client import DaskClient
from manycl.cluster.node import SESSION
from manycl.cluster.rows import PLAIN
from manycl.drivers.driver import BuildError, Bytes, DeviceLost, DriverError
from manycl.errors import DeviceError
from manycl.version import __version__

_GOODBYE = 10.0
"""Seconds that a node has to end what it does when its session is closed."""


class NodeEvent:
    """A command of a node, by its ``number`` there. ``finish`` takes the frame of what it has read; ``kept``: what has
    to live until it is over; ``span``: when it ran, by the node's clock."""

    __slots__ = ("fault", "finish", "is_over", "kept", "number", "span")

    def __init__(self, number: int, kept: object = None, finish: Callable[[Bytes], None] | None = None) -> None:
        self.number, self.kept, self.finish = number, kept, finish
        self.is_over = False
        self.fault: DriverError | None = None
        self.span: tuple[float, float] | None = None


class NodeLink:
    """``name``: of the device. Commands are held back until ``flush``. The client's event loop hears the node; ``lost``
    is called by it when the node is gone, with words that say so, and ``unreachable`` with the place of another node
    that this one cannot reach."""

    def __init__(
        self,
        client: DaskClient,
        address: str,
        name: str,
        lost: Callable[[str], None],
        unreachable: Callable[[int, str], None],
    ) -> None:
        self.name, self.address = name, address
        self._client, self._lost_words, self._unreachable = client, lost, unreachable
        self._process = os.getpid()
        self._holding = threading.RLock()
        self._commands: list[Sequence[Any]] = []
        self._frames: list[Bytes] = []
        self._given = itertools.count(1)
        self._replies = itertools.count(1)
        self._answers: dict[int, dict[str, Any] | None] = {}
        self._news = threading.Condition()
        self._under_way: dict[int, NodeEvent] = {}
        self._lost = ""
        self._is_closing = False
        self._outgoing = asyncio.Queue[dict[str, Any] | None]()
        self.clock = 0.0
        """Seconds to add to the node's clock to get this process's ``perf_counter``."""
        self.latency = 0.0
        """Seconds from here to there, or back."""

    # opening; in the client's event loop

    async def open(self, session: str, place: int, addresses: Sequence[str]) -> dict[str, Any]:
        """Return what the node says that it is. Raises DeviceError."""
        self._loop_thread = threading.get_ident()
        try:
            self._comm = await connect(self.address, **self._client.security.get_connection_args("client"))
            await self._comm.write(
                {"op": SESSION, "reply": False, "session": session, "place": place, "addresses": list(addresses)}
            )
            answer: dict[str, Any] = await self._comm.read(deserializers=PLAIN)
        except OSError as error:
            raise DeviceError(
                f"{self.name} (the Dask worker at {self.address}) cannot be reached from here: {error}",
                hint="the client needs a connection to each worker, beside that to the scheduler",
            ) from None
        if "opened" not in answer or answer["version"] != __version__:
            why = answer.get("refused") or f"it has manycl {answer.get('version')}, and the client has {__version__}"
            await self._comm.close()
            raise DeviceError(f"{self.name} (the Dask worker at {self.address}) cannot be used: {why}")
        self._tasks = [asyncio.ensure_future(work) for work in (self._hear(), self._speak())]
        described: dict[str, Any] = answer["opened"]
        return described

    def measure(self, rounds: int) -> None:
        """Measure the latency and the difference of the clocks: those of the quickest of some questions."""
        found = []
        for _ in range(rounds):
            begin = perf_counter()
            there = self.ask("clock")
            end = perf_counter()
            found.append((end - begin, (begin + end) / 2 - there))
        took, self.clock = min(found)
        self.latency = took / 2

    async def _hear(self) -> None:
        words = "its Dask client has been closed"
        try:
            while True:
                self._heard(await self._comm.read(deserializers=PLAIN))
        except OSError:
            words = "its connection has ended"
        finally:
            self._end(words)

    async def _speak(self) -> None:
        with suppress(OSError):  # the reader hears of it
            while (message := await self._outgoing.get()) is not None:
                await self._comm.write(message, serializers=PLAIN)
                del message  # and with it the host's memory
        await self._comm.close()

    def _heard(self, message: dict[str, Any]) -> None:
        with self._news:
            if "reply" in message:
                self._answers[message["reply"]] = message
            for number in message.get("failed", ()):
                if number in self._under_way:
                    self._under_way[number].fault = DriverError(message["fault"])
            for number, begin, end in message.get("spans", ()):
                if number in self._under_way:
                    self._under_way[number].span = begin, end
            if "data" in message and (event := self._under_way.get(message["data"])) and event.finish is not None:
                try:
                    event.finish(message["frame"])
                    event.span = message["begun"], perf_counter() - self.clock
                except ValueError as error:
                    event.fault = DriverError(str(error))
            if "ended" in message:
                for number in [n for n in self._under_way if n <= message["ended"]]:
                    self._over(self._under_way.pop(number))
            self._news.notify_all()
        if "unreachable" in message:
            self._unreachable(*message["unreachable"])

    def _end(self, words: str) -> None:
        with self._news:
            self._lost = words
            for event in self._under_way.values():
                event.fault = event.fault or DeviceLost(self._said(), self.name)
                self._over(event)
            self._under_way.clear()
            self._news.notify_all()
        self._outgoing.put_nowait(None)
        if not self._is_closing:
            self._lost_words(self._said())

    @staticmethod
    def _over(event: NodeEvent) -> None:
        event.kept = event.finish = None
        event.is_over = True

    def _said(self) -> str:
        return f"{self.name} (the Dask worker at {self.address}) is lost: {self._lost}"

    # by any thread

    def check(self) -> None:
        """Raise DeviceLost where the node is gone, DriverError in a process that was forked."""
        if os.getpid() != self._process:
            raise DriverError(f"{self.name} is used by the process that this one was forked from")
        if self._lost:
            raise DeviceLost(self._said(), self.name)

    def ask(self, question: str, *given: Any) -> Any:
        """Return the answer to a question. Raises DriverError, for a program BuildError."""
        self.check()
        reply = next(self._replies)
        self._answers[reply] = None
        self.note(question, reply, *given)
        self.flush()
        with self._news:
            while (answer := self._answers[reply]) is None and not self._lost:
                self._news.wait()
            del self._answers[reply]
        if answer is None:
            self.check()
        assert answer is not None
        if "fault" in answer:
            raise (BuildError if question == "program" else DriverError)(answer["fault"])
        return answer["value"]

    def note(self, name: str, *given: Any) -> None:
        """Say something that has no end to be told of; to be sent with the next flush."""
        with self._holding:
            self._commands.append((name, *given))

    def give(
        self,
        name: str,
        *given: Any,
        frame: Bytes | None = None,
        kept: object = None,
        finish: Callable[[Bytes], None] | None = None,
    ) -> NodeEvent:
        """Give the node a command, with a frame of bytes, which stay as they are until it is over."""
        with self._holding:
            event = NodeEvent(next(self._given), kept, finish)
            with self._news:
                self.check()  # (it may be lost at any time, and nobody would end the event)
                self._under_way[event.number] = event
            if frame is not None:
                given = (*given, len(self._frames))
                self._frames.append(frame)
            self._commands.append((name, event.number, *given))
        return event

    def flush(self) -> None:
        """Send what is held back. Never raises: all that wait hear of a node that is gone."""
        with self._holding:
            if not self._commands:
                return
            commands, self._commands = self._commands, []
            frames, self._frames = self._frames, []
            sent = perf_counter() - self.clock
            self._post({"commands": commands, "frames": [to_serialize(frame) for frame in frames], "sent": sent})

    def lose(self, place: int, words: str) -> None:
        """Tell the node that another one is gone."""
        self._post({"lost": [(place, words)]})

    def _post(self, message: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the client's loop has ended
            self._client.loop.add_callback(self._outgoing.put_nowait, message)

    def wait(self, event: NodeEvent) -> None:
        """Wait until a command is over."""
        with self._news:
            while not event.is_over:
                self._news.wait()

    def settle(self) -> None:
        """Wait until all are that were given."""
        self.flush()
        with self._news:
            while self._under_way:
                self._news.wait()

    def end(self) -> None:
        """End the session there; called in the client's event loop."""
        self._is_closing = True
        self._outgoing.put_nowait({"bye": True})

    def close(self) -> None:
        """End the session there, and wait a while until nothing is left of it."""
        with suppress(RuntimeError):  # the client's loop has ended
            self._client.loop.add_callback(self.end)
        if threading.get_ident() == self._loop_thread:
            return  # nobody else would hear the end (a garbage collection is anywhere)
        with self._news:
            is_over = self._news.wait_for(lambda: self._lost, _GOODBYE)
        if not is_over:
            self._client.loop.add_callback(self._comm.abort)
