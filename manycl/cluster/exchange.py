"""Exchanges between nodes, on a worker: what is sent to others, and what has come from them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from distributed.protocol import to_serialize

from manycl.drivers.driver import Bytes, DriverError

MOST_IN_FLIGHT = 1 << 26
"""Bytes that are under way from one node to another, and as many that have come and were not taken yet."""
_NOTHING = np.empty(0, np.uint8)


class Delivery(NamedTuple):
    """Bytes from another node, or (``fault``) why it has none. ``tag``: of the exchange, unique in the session."""

    tag: int
    fault: str
    frame: Bytes = _NOTHING


class ReceiveArbiter:
    """The bytes that have come from other nodes, whether or not anybody has asked for them yet. The worker's event loop
    puts them here, the session's thread takes them."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._there: dict[tuple[int, int], Delivery] = {}
        self._held: Counter[int] = Counter()  # bytes, by node
        self._room: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._gone: dict[int, str] = {}

    async def put(self, source: int, deliveries: Sequence[Delivery]) -> None:
        """Keep what a node has sent; return when there is room for more of it."""
        with self._changed:
            if source in self._gone:
                return
            for delivery in deliveries:
                self._there[source, delivery.tag] = delivery
                self._held[source] += len(delivery.frame)
            self._room[source].clear()
            is_full = self._held[source] > MOST_IN_FLIGHT
            self._changed.notify_all()
        if is_full:
            await self._room[source].wait()

    def offer(self, source: int, tag: int, frame: Bytes) -> None:
        """Keep bytes of this worker's own, which are no copy."""
        with self._changed:
            self._there[source, tag] = Delivery(tag, "", frame)
            self._held[source] += len(frame)
            self._changed.notify_all()

    def take(self, source: int, tag: int) -> Bytes:
        """Wait for the bytes of an exchange. Raises DriverError where they will not come."""
        with self._changed:
            while (found := self._there.pop((source, tag), None)) is None:
                if source in self._gone:
                    raise DriverError(self._gone[source])
                self._changed.wait()
            self._held[source] -= len(found.frame)
            has_room = self._held[source] <= MOST_IN_FLIGHT
        if has_room:
            self._loop.call_soon_threadsafe(self._room[source].set)
        if found.fault:
            raise DriverError(found.fault)
        return found.frame

    def lose(self, source: int, words: str) -> None:
        """Note that nothing more will come from a node."""
        with self._changed:
            self._gone.setdefault(source, words)
            for key in [key for key in self._there if key[0] == source]:
                del self._there[key]
            self._held[source] = 0
            self._changed.notify_all()
        self._room[source].set()


class Outbox:
    """The bytes that are sent to other nodes: ``send(node, deliveries)`` makes a message of them, and returns when it
    has arrived. While one message to a node is under way, all that follows is joined into the next one. ``lose(node,
    words)`` is called for a node that cannot be reached."""

    def __init__(self, send: Callable[[int, list[dict[str, Any]]], Any], lose: Callable[[int, str], None]) -> None:
        self._send, self._lose = send, lose
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._waiting: dict[int, list[Delivery]] = defaultdict(list)
        self._in_flight: Counter[int] = Counter()  # bytes, by node
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._gone: set[int] = set()

    def put(self, target: int, delivery: Delivery) -> None:
        """Send bytes to a node; wait while too many are under way there."""
        with self._changed:
            while self._in_flight[target] > MOST_IN_FLIGHT and target not in self._gone:
                self._changed.wait()
            if target in self._gone:
                return
            self._in_flight[target] += len(delivery.frame)
            self._waiting[target].append(delivery)
        self._loop.call_soon_threadsafe(self._begin, target)

    def lose(self, target: int) -> None:
        """Send nothing more to a node."""
        with self._changed:
            self._gone.add(target)
            self._waiting.pop(target, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Send nothing more."""
        for task in self._tasks.values():
            task.cancel()

    def _begin(self, target: int) -> None:
        if target not in self._tasks:
            self._tasks[target] = self._loop.create_task(self._work(target))

    async def _work(self, target: int) -> None:
        try:
            while together := self._waiting.pop(target, None):
                await self._send(target, [d._replace(frame=to_serialize(d.frame))._asdict() for d in together])
                with self._changed:
                    self._in_flight[target] -= sum([len(d.frame) for d in together])
                    self._changed.notify_all()
        except Exception as error:
            self.lose(target)
            self._lose(target, f"{type(error).__name__}: {error}")
        finally:
            del self._tasks[target]
