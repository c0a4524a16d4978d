"""The seam between the engine and what really runs: real devices, or a simulated machine on a virtual clock.

Every back end passes the same conformance suite (tests/run/test_backend_conformance.py). A *token* names a command:
node indices for launches and host tasks, higher numbers for transfers. Commands on one (device, queue) run in order; a
command waits also for its ``after`` tokens, all of which are on the same device. Only commands with ``notify`` are
reported back; host calls always are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import IntEnum
from typing import NamedTuple, Protocol

from manycl.graph.graph import BufferKey, Graph, Launch, Piece
from manycl.group_range import RangeParts
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.plan import ON_HOST
from manycl.trace import Event


class TransferQueue(IntEnum):
    """The queues of a device that its transfers use, beside its kernel queues (0, 1, …). What is brought before its
    turn is uploaded in one of its own, and what leaves as soon as it is made is downloaded in one of its own, so that
    nothing that is due waits behind them. Small transfers may also be in a kernel queue."""

    UPLOAD = -1
    DOWNLOAD = -2
    AHEAD = -3
    EARLY = -4


APART = 1 << 20
"""Bytes of a piece that leaves a device in a transfer of its own: others that are brought behind it need not wait."""

TINY = 1 << 14
"""Bytes of a piece that takes longer to enqueue than to move (30 us, at 6 GB/s: twelve times as many)."""


class Run(NamedTuple):
    """Run node ``token`` on a device; or, as the one launch ``task``, all of the nodes ``cells``, of which the first is
    ``token``. ``parts``: how it falls into theirs, if it may be shortened. ``beside``: it need not come after the
    command that its queue has been given before. ``undo``: buffers whose contents are copied beside before, in the same
    queue, so that they can be put back if the device is lost meanwhile (``Backend.begun``): it comes after what the
    queue has been given before."""

    token: int
    device: DeviceIndex
    queue: int
    after: Sequence[int]
    notify: bool
    cells: tuple[int, ...] = ()
    task: Launch | None = None
    beside: bool = False
    undo: tuple[BufferKey, ...] = ()
    parts: RangeParts | None = None


class Upload(NamedTuple):
    """Copy a buffer from the host's memory to the device's, or (``source``) from one to which the machine has a link.
    ``store``: to this window of it (None: to the whole). ``queue``: UPLOAD, AHEAD or a kernel queue."""

    token: int
    buffer: BufferKey
    device: DeviceIndex
    after: Sequence[int]
    notify: bool
    store: BufferKey | None = None
    queue: int = TransferQueue.UPLOAD
    source: int = HOST


FIRST = 0
"""Of the copies that the host keeps beside: of what its own copy was when the run began."""
ASIDE = (1, 2)
"""Those that checkpoints go to, in turns."""


class Download(NamedTuple):
    """Copy a buffer from the device's memory to the host's. ``store``: from this window of it (None: from the whole).
    ``queue``: DOWNLOAD, EARLY or a kernel queue. ``aside``: to this one of the copies that the host keeps beside (None:
    to its own). ``saves``: the host's own copy, which nobody has changed in the run, is copied to FIRST of these
    before."""

    token: int
    buffer: BufferKey
    device: DeviceIndex
    after: Sequence[int]
    notify: bool
    store: BufferKey | None = None
    queue: int = TransferQueue.DOWNLOAD
    aside: int | None = None
    saves: bool = False


class Copy(NamedTuple):
    """Copy a buffer from one store of a device to another, in one of its kernel queues: from a window of it, or the
    whole, to another one (keys)."""

    token: int
    buffer: BufferKey
    device: DeviceIndex
    queue: int
    after: Sequence[int]
    notify: bool
    source: BufferKey
    target: BufferKey


def continues(graph: Graph, transfer: Upload | Download | Copy, command: Command) -> bool:
    """Whether a command moves more of a buffer in the way in which another one does, so that one transfer does for
    both: the bytes behind, what the same window is to hold, or what is so little that it is not worth a transfer of its
    own. What leaves in large parts goes on in them. Copies
    within a device may wait for different commands: all of them are waited for."""
    if type(command) is not type(transfer) or (isinstance(transfer, Upload) and transfer.after):
        return False
    if isinstance(transfer, Copy) and isinstance(command, Copy):
        alike = (command[2:4], command[5:]) == (transfer[2:4], transfer[5:])
    else:
        alike = command[2:] == transfer[2:]
    assert isinstance(command, Upload | Download | Copy)
    first, second = graph.buffers[transfer.buffer], graph.buffers[command.buffer]
    if not alike or not isinstance(first, Piece) or not isinstance(second, Piece) or first.whole != second.whole:
        return False
    if isinstance(transfer, Download) and min(first.nbytes, second.nbytes) >= APART:
        return False
    if isinstance(transfer, Copy) or transfer.store is not None or max(first.nbytes, second.nbytes) <= TINY:
        return True
    mine, theirs = first.region.boxes[-1], second.region.boxes[0]
    return mine.rows == theirs.rows == 1 and mine.end == theirs.offset


class Evict(NamedTuple):
    """A device's memory of a store (the key of a window or buffer) is free again: all that used it has completed."""

    device: DeviceIndex
    store: BufferKey


class HostCall(NamedTuple):
    """Call the function of host task ``token``; always reported back."""

    token: int


Queued = Run | Upload | Download | Copy | HostCall
"""What waits in a queue, and takes time."""
Command = Queued | Evict


Lane = tuple[DeviceIndex, int]
"""A queue of a device. Host functions are called in one of the host's, (``ON_HOST``, 0)."""


def lane_of(command: Queued) -> Lane:
    return (ON_HOST, 0) if isinstance(command, HostCall) else (command.device, command.queue)


def nodes_of(command: Run | HostCall) -> tuple[int, ...]:
    """The nodes that a command runs."""
    return command.cells if isinstance(command, Run) and command.cells else (command.token,)


class Done(NamedTuple):
    """Command ``token`` of run ``run`` has completed; so has all that its queue held before it."""

    token: int
    time: float
    run: int = 0


class Failed(NamedTuple):
    """Command ``token`` of run ``run`` failed; ``message`` is the driver's or the function's own words."""

    token: int
    time: float
    message: str
    run: int = 0


Report = Done | Failed


class Shorten(NamedTuple):
    """The launch of several nodes, ``token``, that a device was given is to end with the node that it is at, or the
    first one; ``launch(n)``: the first n nodes as one launch."""

    token: int
    device: DeviceIndex
    launch: Callable[[int], Launch]


class EndsEarly(NamedTuple):
    """A launch runs the first ``nodes`` of its nodes alone; ``begun`` of what it was to run has, as a part of 1."""

    nodes: int
    begun: float


class Record(Protocol):
    """What a run did, read out after it has ended (building events costs time that a run need not spend)."""

    begin: float
    """When it began, by the host's ``perf_counter``; in simulated time 0."""
    failure: Failed | None
    """A launch that failed although nobody waited for it; found when the run is finished."""
    failed_transfer: Failed | None
    """A transfer of which that is true."""

    def events(self) -> Sequence[Event]:
        """Kernel, transfer and host events of everything that completed, sorted by start."""

    def durations(self) -> Iterable[tuple[int, DeviceIndex, float]]:
        """(node, device, seconds) of every launch that completed."""

    def waited(self) -> Iterable[tuple[float, float]]:
        """From when to when, in seconds since the run began, launches waited to start that a driver may have had to
        compile first."""


class Backend(Protocol):
    machine: Machine

    def begin(self, graph: Graph, queues: Sequence[int], goes_on: bool = False) -> int:
        """A run of ``graph`` starts; ``queues[d]`` kernel queues of device d will be used (0: the device is not). What
        an interrupted run has left is waited for. ``goes_on``: it is what is left of the one before, which was stopped.
        Returns the run's number, which its reports carry."""

    def perform(self, commands: Sequence[Command]) -> None:
        """Enqueue the commands, in order, and return without waiting for them."""

    def shorten(self, command: Shorten) -> EndsEarly | None:
        """Have a launch end early. None where it runs what it was to, or was not given."""

    def wait(self) -> list[Report]:
        """Block until something with ``notify`` has completed or failed; return all that has. There may be late
        reports of an earlier run, which was interrupted; and nothing, when somebody has called ``wake``."""

    def wake(self) -> None:
        """Have ``wait`` return, now or when it is called next; by any thread."""

    def now(self) -> float:
        """Seconds since ``begin``."""

    def took(self, token: int, device: DeviceIndex) -> float | None:
        """Seconds that a launch of the run took on its device, of which it was heard that it is complete; None where
        nobody knows, as the devices' clocks are off."""

    def finish(self) -> Record:
        """Wait until all that was enqueued has ended."""

    def abort(self) -> Record:
        """As ``finish``, after a failure: stop what can be stopped and never raise. Only Ctrl-C ends the waiting: then
        devices may still be busy, and the next run waits for them."""

    def completed(self) -> Set[int]:
        """The tokens of the commands that have ended well; after ``abort``."""

    def begun(self, failed: Set[int]) -> Set[int]:
        """The tokens of the commands that may have begun; after ``abort``. Those that have ``failed`` have, unless it
        is known that they have not. What had begun and did not end, and whose ``undo`` copies tell what was there, is
        undone, and has not begun."""

    def restore(self, graph: Graph, copies: Mapping[BufferKey, int]) -> None:
        """After ``abort``: the host's own copies of buffers of the run's graph become what is kept beside of them, in
        these copies."""

    def lost(self, device: DeviceIndex) -> str:
        """After a failure: why a device does not work any more; empty where it does."""

    def has_crashed(self, device: DeviceIndex) -> bool:
        """Of one that is lost: whether what it was given may have ended its process."""

    def is_cut_off(self, device: DeviceIndex) -> bool:
        """Of one that is lost: whether it is known of each of its commands whether it has ended, and all that have
        ended have done so well."""
