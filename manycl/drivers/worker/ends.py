"""Commands of one queue of a worker process: a thread waits for them, and tells of their ends."""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from manycl.drivers.driver import Countable, Driver, DriverError, Event, Queue
from manycl.drivers.worker import progress
from manycl.utilities.prompt import be_prompt


class _GivenCommand(NamedTuple):
    """A command: its number, its events or why it has failed, and commands of other queues that it waits for."""

    number: int
    events: Sequence[Event] | str
    waits: Sequence[tuple[Ends, int]] = ()


_LIBC = ctypes.PyDLL(None)
_FAILURES = 256  # commands that are remembered to have failed


class Ends:
    """The ends of queue ``number``, whose driver calls it ``queue``. ``news``: that something was told of one of the
    client's queues; ``words``: where it is kept how far this one is. Nobody is told of a command before those that it
    waits for: what is left to do for these, the client has done then."""

    def __init__(
        self,
        driver: Driver,
        queue: Queue,
        number: int,
        timed: bool,
        send: Callable[..., None],
        news: threading.Condition,
        words: Any,
    ) -> None:
        self._news = news
        self._words = words
        self._counting = driver if isinstance(driver, Countable) else None
        if self._counting is not None:
            self._counting.mirror(queue, words)
            progress.begin(words)
        self.queue, self.timed = queue, timed
        self._driver, self._number, self._send = driver, number, send
        self._given: SimpleQueue[_GivenCommand | None] = SimpleQueue()
        self._under_way: dict[int, Event] = {}
        self._failed: dict[int, str] = {}
        self._unsent = False
        self._last = self._told = self.told = 0
        self._thread = threading.Thread(target=self._work, name="manycl-ends", daemon=True)
        self._thread.start()

    def given(self, number: int, events: Sequence[Event], waits: Sequence[tuple[Ends, int]]) -> None:
        """A command is under way; it is complete when all events are."""
        if self._counting is not None:
            progress.note(self._words, number, self._counting.number(events[-1]))
        self._under_way[number] = events[-1]
        self._last, self._unsent = number, True
        self._given.put(_GivenCommand(number, events, [w for w in waits if w[0] is not self]))

    def refused(self, number: int, words: str) -> None:
        """A command has failed at once."""
        progress.spoil(self._words)
        self._failed[number] = words
        self._last = number
        self._given.put(_GivenCommand(number, words))

    def event(self, number: int) -> Event | None:
        """Return what tells of a command; None if it is complete. Raises DriverError if it has failed."""
        found = self._under_way.get(number)
        if found is None and number in self._failed:  # (it fails before it ends)
            raise DriverError(f"what it waits for has failed: {self._failed[number]}")
        return found

    def flush(self) -> None:
        if self._unsent:
            self._unsent = False
            with suppress(DriverError):  # its commands will fail
                self._driver.flush(self.queue)

    def is_settled(self) -> bool:
        """Return whether all that was given has ended."""
        return self._told == self._last

    def close(self) -> None:
        """End the thread of a queue that is settled, and to which nothing more is given."""
        self.flush()
        if self._counting is not None:
            self._counting.mirror(self.queue, None)
        self._given.put(None)
        self._thread.join()

    def _work(self) -> None:
        be_prompt()
        waiting: deque[_GivenCommand] = deque()
        while True:
            entry = self._given.get()
            with suppress(Empty):
                while entry is not None:
                    waiting.append(entry)
                    entry = self._given.get_nowait()
            while waiting:
                self._tell(waiting)
            if entry is None:
                return

    def _tell(self, waiting: deque[_GivenCommand]) -> None:
        """Tell the end of the first, when it has ended, and of those behind it that have as well."""
        failed: list[tuple[int, str]] = []
        times: list[tuple[float, float] | None] = []
        number = 0
        with self._news:
            self._news.wait_for(lambda: _are_told(waiting[0]))
        while waiting and (not number or self._is_over(waiting[0])):
            number, events, _ = waiting.popleft()
            words = events if isinstance(events, str) else self._wait(events)
            if words is not None:
                failed.append((number, words))
                self._failed[number] = words
                while len(self._failed) > _FAILURES:
                    del self._failed[next(iter(self._failed))]
            times.append(self._times(events) if self.timed and words is None else None)
            self._under_way.pop(number, None)
        _LIBC.fflush(None)  # what kernels have printed
        self._told = number  # (before: who hears of it may say goodbye)
        self._send("ended", self._number, number, failed, times if self.timed else ())
        with self._news:
            self.told = number
            self._news.notify_all()

    def _is_over(self, given: _GivenCommand) -> bool:
        return _are_told(given) and (isinstance(given.events, str) or self._driver.succeeded(given.events))

    def _wait(self, events: Sequence[Event]) -> str | None:
        """Why a command has failed; None if it has not."""
        try:
            for event in events:
                self._driver.wait(event)
        except DriverError as error:
            return error.message or "it failed"
        return None

    def _times(self, events: Sequence[Event] | str) -> tuple[float, float] | None:
        try:
            return self._driver.times(events[0])[0], self._driver.times(events[-1])[1]
        except DriverError:
            return None


def _are_told(given: _GivenCommand) -> bool:
    """Return whether all is told that a command waits for."""
    return all(queue.told >= number for queue, number in given.waits)
