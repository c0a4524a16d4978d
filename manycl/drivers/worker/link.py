"""The connection to a worker process: questions and their answers, commands and their ends, and its death; and the
kernels, queues and events of who uses it, by their numbers there."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from manycl.drivers.driver import BuildError, DeviceLost, DriverError
from manycl.drivers.worker import messages as m
from manycl.drivers.worker import progress
from manycl.drivers.worker.messages import Channel
from manycl.drivers.worker.things import DroppedThings, NumberedThing, RemoteMemory, numbers
from manycl.graph.graph import LocalArg
from manycl.utilities.prompt import be_prompt

_HELD = 1 << 15  # bytes of commands that are held back at most
_GOODBYE = 1.0  # seconds that a process has to answer it


class Ending(NamedTuple):
    """The end of a process, in ``words``. ``has_crashed``: by itself, or nobody knows."""

    words: str
    has_crashed: bool


class WorkerLink:
    """``name``: of the device; ``ended``: says, once the connection is gone (which may be expected), how the process
    has ended; it is over then. Frames are held back until they are asked for by ``flush``, or a question. A thread
    hears the process, until that is gone: it is the one that knows it first."""

    def __init__(self, channel: Channel, name: str, ended: Callable[[bool], Ending]) -> None:
        self._channel, self._name, self._ended = channel, name, ended
        self.dropped: DroppedThings = deque()
        self._held = bytearray()
        self._holding = threading.RLock()
        self._news = threading.Condition(threading.Lock())
        self._queues: dict[int, WorkerQueue] = {}
        self._replies = itertools.count(1)
        self._answers: dict[int, m.Message | None] = {}
        self._lost: DeviceLost | None = None
        self.has_crashed = False
        self._is_closing = False
        self._process = os.getpid()
        self._hearing = threading.Thread(target=self._hear, name=f"manycl-{name}-process", daemon=True)
        self._hearing.start()

    def check(self) -> None:
        """Raise DeviceLost where the process is gone, DriverError in a process that was forked."""
        if os.getpid() != self._process:
            raise DriverError(f"{self._name} is used by the process that this one was forked from")
        if self._lost is not None:
            raise DeviceLost(self._lost.message, self._name)

    def ask(self, question: str, *given: Any) -> Any:
        """The answer to a question. Raises DriverError."""
        self.check()
        reply = next(self._replies)
        self._answers[reply] = None
        self.hold(question, reply, *given)
        self.flush()
        with self._news:
            while (answer := self._answers[reply]) is None and self._lost is None:
                self._news.wait()
            del self._answers[reply]
        if answer is None:
            self.check()
        assert answer is not None
        value, error, of_build = answer
        if error is not None:
            raise (BuildError if of_build else DriverError)(error)
        return value

    def add(self, queue: WorkerQueue) -> None:
        """A queue whose commands' ends are told of."""
        self._queues[queue.number] = queue

    def give(self, event: WorkerEvent, command: str, after: m.Waits, *given: Any) -> WorkerEvent:
        """A command, the next of its queue, that comes after others."""
        with self._holding:
            self.check()
            event.waits = after
            event.queue.given = event.number
            event.queue.pending.append(event)
            self.hold(command, event.queue.number, event.number, after, *given)
        return event

    def hold(self, *message: Any) -> None:
        """Hold a message back, to be sent with the next flush."""
        with self._holding:
            self._held += m.encode(*message)
            if len(self._held) > _HELD:
                self.flush()

    def flush(self) -> None:
        """Send what is held back. Never raises: a process that is gone is heard of by all that wait for it."""
        with self._holding:
            while self.dropped:
                self._held += m.encode("drop", *self.dropped.popleft())
            if not self._held:
                return
            frames, self._held = bytes(self._held), bytearray()
            try:
                self._channel.send(frames)
            except OSError:
                self._channel.end()

    def wait(self, event: WorkerEvent) -> None:
        """Wait until a command is over."""
        with self._news:
            while not event.is_over:
                self._news.wait()

    def settle(self) -> None:
        """Wait until all that were given are over."""
        self.flush()
        for queue in list(self._queues.values()):
            while queue.pending:
                with self._news:
                    if queue.pending:
                        self._news.wait()

    def close(self, until_left: bool = False) -> None:
        """Say goodbye, once nothing is under way. ``until_left``: and wait until the process has nothing of this one
        any more, which it says by closing the connection."""
        if os.getpid() != self._process:
            return  # the connection is its parent's
        with self._holding:
            if self._is_closing:
                return
            self._is_closing = True
            is_settled = not any(queue.pending for queue in self._queues.values())
            if is_settled:
                self.hold("bye")
                self.flush()
        if until_left and is_settled and threading.current_thread() is not self._hearing:
            self._hearing.join(_GOODBYE)
        self._channel.end()

    def _hear(self) -> None:
        """By a thread of its own."""
        be_prompt()
        try:
            while True:
                for message in self._channel.receive():
                    self._take(message)
        except (EOFError, OSError, ValueError, TypeError, m.ProtocolError) as error:
            self._channel.end()
            why, crashed = self._ended(self._is_closing)
            self.has_crashed = crashed and not self._is_closing
            why = error.message if isinstance(error, m.ProtocolError) else why
        words = "it has been released" if self._is_closing else why
        with self._news:
            self._lost = DeviceLost(f"{self._name} is lost: {words}", self._name)
            self._news.notify_all()
        self._end_all()
        self._channel.close()

    def _take(self, message: m.Message) -> None:
        name, number, *given = message
        if name == "ended" and number in self._queues:
            self._ends(self._queues[number], *given)
        with self._news:
            if name == "reply" and number in self._answers:
                self._answers[number] = given
            self._news.notify_all()

    def _ends(
        self,
        queue: WorkerQueue,
        number: int,
        failed: Sequence[tuple[int, str]],
        times: Sequence[tuple[float, float] | None],
    ) -> None:
        """Note that all commands of a queue up to a number are complete. ``failed``: numbers and words. ``times``: when
        those ran that this is the first to tell of, by the device's clock, in order (None: nobody knows)."""
        words, spans = dict(failed), iter(times)
        while queue.pending and queue.pending[0].number <= number:
            event, span = queue.pending[0], next(spans, None)
            fault = words.get(event.number)
            event.end(None if fault is None else DriverError(fault), None if span is None else (span[0], span[1]))
            queue.pending.popleft()

    def _fault_of(self, event: WorkerEvent, known: Mapping[int, int | None]) -> DeviceLost | None:
        """Return what became of a command. ``known``: by queue, up to which command all are complete, if that is
        known."""
        assert self._lost is not None
        complete = known[event.queue.number]
        if complete is None or (event.number <= complete and event.finish is not None):
            return self._lost
        if event.number <= complete:
            return None
        # what one of another queue waits for is told to be complete before it begins
        is_next = event.number == complete + 1
        waits = any((of := known.get(queue)) is not None and number > of for queue, number in event.waits)
        return DeviceLost(self._lost.message, self._name, has_begun=is_next and not waits)

    def _end_all(self) -> None:
        """The process is gone, and writes nowhere any more: nothing that was under way will be done."""
        with self._holding:
            queues = list(self._queues.values())
            known = {q.number: progress.complete(q.progress, q.ended) for q in queues}
            for queue in queues:
                while queue.pending:
                    event = queue.pending[0]
                    event.end(self._fault_of(event, known), None)
                    queue.pending.popleft()
        with self._news:
            self._news.notify_all()


class WorkerKernel(NumberedThing):
    """``unsent``: what arguments are set to since the last launch; ``held``: the memory that others are set to."""

    __slots__ = ("held", "most_items", "unsent")
    kind = "kernel"

    def __init__(self, dropped: DroppedThings) -> None:
        super().__init__(dropped)
        self.most_items = 0
        self.unsent: dict[int, m.Value] = {}
        self.held: dict[int, RemoteMemory] = {}

    def set(self, index: int, value: Any) -> None:
        """Set an argument, as DeviceKernel.set."""
        if type(value) is RemoteMemory:
            self.unsent[index] = value.number
            self.held[index] = value
        elif type(value) is bytes:
            self.unsent[index] = (value.hex(),)
        elif type(value) is LocalArg:
            self.unsent[index] = {"local": value.nbytes}
        else:
            raise DriverError(f"argument {index} is not set to {type(value).__name__}")


class WorkerQueue:
    """``given``: how many commands it was; ``pending``: those that have not ended. ``progress``: words that tell how
    far it is. It stays as long as the device."""

    __slots__ = ("given", "number", "pending", "progress")

    def __init__(self, progress: Any = None) -> None:
        self.number = next(numbers)
        self.progress = progress
        self.given = 0
        self.pending: deque[WorkerEvent] = deque()

    @property
    def ended(self) -> int:
        """The last command that has."""
        return self.pending[0].number - 1 if self.pending else self.given


class WorkerEvent:
    """A command. ``fault``: why it has failed, or "". ``uses``: host memory kept for it; ``finish``: what is left to do
    here when it is complete there; ``waits``: the commands that it waits for. ``span``: when it ran."""

    __slots__ = ("fault", "finish", "is_over", "number", "queue", "span", "uses", "waits")

    def __init__(self, queue: WorkerQueue, number: int, uses: object, finish: Callable[[], None] | None) -> None:
        self.queue, self.number = queue, number
        self.uses, self.finish = uses, finish
        self.waits: m.Waits = ()
        self.is_over = False
        self.fault: DriverError | None = None
        self.span: tuple[float, float] | None = None

    def end(self, fault: DriverError | None, span: tuple[float, float] | None) -> None:
        """Note that it is over, as the worker process says."""
        if fault is None and self.finish is not None:
            self.finish()
        self.fault, self.span = fault, span
        self.uses = self.finish = None
        self.waits = ()
        self.is_over = True
