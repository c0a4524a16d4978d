"""What a worker device's user has of it: memory, programs, kernels, queues and events, by their numbers there."""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from manycl.drivers.driver import DriverError
from manycl.drivers.worker import messages as m
from manycl.graph.graph import LocalArg

DroppedThings = deque[m.Dropped]
"""What nobody has any more, and the worker process has not been told of."""

_numbers = itertools.count(1)


class _NumberedThing:
    """It has a number, and is dropped there when it is dropped here."""

    __slots__ = ("__weakref__", "number")
    kind = ""

    def __init__(self, dropped: DroppedThings) -> None:
        self.number = next(_numbers)
        # by whichever thread, at any time: it only leaves word
        weakref.finalize(self, dropped.append, m.Dropped(self.kind, self.number)).atexit = False


class WorkerMemory(_NumberedThing):
    """``kept``: what has the memory, a host array or the whole; ``is_freed``: by ``free``."""

    __slots__ = ("is_freed", "kept", "nbytes")
    kind = "memory"

    def __init__(self, dropped: DroppedThings, nbytes: int, kept: object = None) -> None:
        super().__init__(dropped)
        self.nbytes, self.kept, self.is_freed = nbytes, kept, False


class WorkerProgram(_NumberedThing):
    __slots__ = ()
    kind = "program"


class WorkerKernel(_NumberedThing):
    """``unsent``: what arguments are set to since the last launch; ``held``: the memory that others are set to."""

    __slots__ = ("held", "most_items", "unsent")
    kind = "kernel"

    def __init__(self, dropped: DroppedThings) -> None:
        super().__init__(dropped)
        self.most_items = 0
        self.unsent: dict[int, m.Value] = {}
        self.held: dict[int, WorkerMemory] = {}

    def set(self, index: int, value: Any) -> None:
        """As DeviceKernel.set."""
        if type(value) is WorkerMemory:
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
        self.number = next(_numbers)
        self.progress = progress
        self.given = 0
        self.pending: deque[WorkerEvent] = deque()

    @property
    def ended(self) -> int:
        """The last command that has."""
        return self.pending[0].number - 1 if self.pending else self.given


class WorkerEvent:
    """A command. ``fault``: why it has failed, "" if it has not. ``uses``: host memory that is kept for it; ``finish``:
    what is left to do here when it is complete there; ``waits``: for which commands it waits, until it is over.
    ``span``: when it ran."""

    __slots__ = ("fault", "finish", "is_over", "number", "queue", "span", "uses", "waits")

    def __init__(self, queue: WorkerQueue, number: int, uses: object, finish: Callable[[], None] | None) -> None:
        self.queue, self.number = queue, number
        self.uses, self.finish = uses, finish
        self.waits: m.Waits = ()
        self.is_over = False
        self.fault: DriverError | None = None
        self.span: tuple[float, float] | None = None

    def end(self, fault: DriverError | None, span: tuple[float, float] | None) -> None:
        """It is over, as the worker process says."""
        if fault is None and self.finish is not None:
            self.finish()
        self.fault, self.span = fault, span
        self.uses = self.finish = None
        self.waits = ()
        self.is_over = True
