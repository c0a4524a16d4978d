"""The interface between the engine and a back end: real devices, or a simulated machine on a virtual clock.

Every back end passes the same conformance suite (tests/run/commands/test_backend_conformance.py). A *token* names a
command: node indices for launches and host tasks, higher numbers for transfers. Commands on one (device, queue) run in
order; a command waits also for its ``after`` tokens, all of which are on the same device. Only commands with ``notify``
are reported back; host calls always are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from enum import IntEnum
from typing import NamedTuple, Protocol

from manycl.graph.graph import BufferKey, Graph, Launch, Piece
from manycl.group_range import RangeParts
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.model.transfer import LARGE, TINY
from manycl.plan.plan import ON_HOST
from manycl.trace import Event


class TransferQueue(IntEnum):
    """The queues of a device for its transfers, beside its kernel queues (0, 1, …). PREFETCH is for uploads before
    their turn, EARLY for downloads of what was just written, so that transfers that are due do not wait behind them.
    Small transfers may also be in a kernel queue."""

    UPLOAD = -1
    DOWNLOAD = -2
    PREFETCH = -3
    EARLY = -4


UPLOADS = TransferQueue.UPLOAD, TransferQueue.PREFETCH
"""The queues of transfers to a device; the other ones are for transfers from it."""


class Run(NamedTuple):
    """A command that runs node ``token`` on a device; or the nodes ``chunks``, of which the first is ``token``, as the
    one launch ``task``. ``parts``: the part of each of these in the launch, if it may be shortened. ``beside``: it need
    not come after the previous command of its queue. ``undo``: buffers whose contents are copied beforehand in the same
    queue, so that they can be put back if the device is lost meanwhile (``Backend.ends``); such a command comes after
    the previous ones of its queue."""

    token: int
    device: DeviceIndex
    queue: int
    after: Sequence[int]
    notify: bool
    chunks: tuple[int, ...] = ()
    task: Launch | None = None
    beside: bool = False
    undo: tuple[BufferKey, ...] = ()
    parts: RangeParts | None = None


FIRST = -1
"""The memory that stands for the copies, beside the host's own, of contents from the run's beginning."""
ASIDE = (-2, -3)
"""The memories that stand for the copies, beside the host's own, to which checkpoints go, in turns."""


class Copy(NamedTuple):
    """A command that copies a buffer from the memory ``source`` to ``target``, to which the machine has a link, by the
    driver of ``device``; or, where both are that device's, between two of its stores. ``source_store``,
    ``target_store``: the keys of a device's windows of the buffer, or of the whole (None: the whole). ``target`` may be
    one of ASIDE. ``queue``: one of the device's for transfers, or a kernel queue. ``saves``: the host's own copy, which
    is unchanged in the run, is copied to FIRST before it is overwritten."""

    token: int
    buffer: BufferKey
    device: DeviceIndex
    queue: int
    after: Sequence[int]
    notify: bool
    source: int
    target: int
    source_store: BufferKey | None = None
    target_store: BufferKey | None = None
    saves: bool = False

    @property
    def is_upload(self) -> bool:
        """True if it brings a buffer to a device from another memory."""
        return HOST < self.target != self.source

    @property
    def is_download(self) -> bool:
        """True if it brings a buffer from a device to the host, or to a copy beside the host's own."""
        return self.source > HOST >= self.target

    @property
    def ends(self) -> tuple[int, int]:
        """The memories of the machine: copies that are kept beside the host's own are in the host's."""
        return self.source, max(self.target, HOST)


def continues(graph: Graph, transfer: Copy, command: Command) -> bool:
    """Return whether a command moves more of the same buffer in the same way as a transfer, so that one transfer can do
    both: bytes that follow, bytes for the same window, or so few bytes that a transfer of their own does not pay. Large
    pieces that are downloaded for other devices stay apart: these get one while the next one is on its way. Copies
    within a memory may wait for different commands; the joined one waits for all of them."""
    if not isinstance(command, Copy) or command[2:4] != transfer[2:4] or command[5:] != transfer[5:]:
        return False
    first, second = graph.buffers[transfer.buffer], graph.buffers[command.buffer]
    if not isinstance(first, Piece) or not isinstance(second, Piece) or first.whole != second.whole:
        return False
    if transfer.source == transfer.target:
        return True
    if command.after != transfer.after:
        return False
    is_for_others = transfer.is_download and not graph.brought_home.issuperset((first.key, second.key))
    if is_for_others and min(first.nbytes, second.nbytes) >= LARGE:
        return False
    is_window = transfer.source_store is not None or transfer.target_store is not None
    if is_window or max(first.nbytes, second.nbytes) <= TINY:
        return True
    mine, theirs = first.region.rectangles[-1], second.region.rectangles[0]
    return mine.rows == theirs.rows == 1 and mine.end == theirs.offset


class Evict(NamedTuple):
    """A command that frees a device's memory of a store (the key of a window or buffer): it is used no more. Or, with
    ``pieces``, what is left in place of a packet that was dropped and is never given to the device: what the packet
    writes in the device's memory does not count."""

    device: DeviceIndex
    store: BufferKey
    pieces: tuple[BufferKey, ...] = ()


class HostCall(NamedTuple):
    """A command that calls the function of host task ``token``; always reported back."""

    token: int


Queued = Run | Copy | HostCall
"""A command that waits in a queue and takes time."""
Command = Queued | Evict


Lane = tuple[DeviceIndex, int]
"""A queue of a device. Host functions are called in one of the host's, (``ON_HOST``, 0)."""


def lane_of(command: Queued) -> Lane:
    return (ON_HOST, 0) if isinstance(command, HostCall) else (command.device, command.queue)


def nodes_of(command: Run | HostCall) -> tuple[int, ...]:
    """Return the nodes that a command runs."""
    return command.chunks if isinstance(command, Run) and command.chunks else (command.token,)


class Done(NamedTuple):
    """The report that command ``token`` of run ``run`` has completed, and so has all that its queue held before it."""

    token: int
    time: float
    run: int = 0


class Failed(NamedTuple):
    """The report that command ``token`` of run ``run`` has failed; ``message``: the driver's or function's words."""

    token: int
    time: float
    message: str
    run: int = 0


Report = Done | Failed


class Shorten(NamedTuple):
    """A request that the launch of several nodes, ``token``, on a device ends after the node that it is at, or after
    the first. ``launch(n)``: the first n nodes as one launch."""

    token: int
    device: DeviceIndex
    launch: Callable[[int], Launch]


class EndsEarly(NamedTuple):
    """The answer that a launch runs only the first ``nodes`` of its nodes. ``begun``: the part of the whole launch,
    from 0 to 1, that has begun."""

    nodes: int
    begun: float


class Record(Protocol):
    """The record of a run, read after it has ended (building events costs time that a run need not spend)."""

    begin: float
    """The beginning of the run by the host's ``perf_counter``; in simulated time 0."""
    failure: Failed | None
    """A launch that failed although no command waited for it; found when the run is finished."""
    failed_transfer: Failed | None
    """A transfer that failed although no command waited for it; found when the run is finished."""

    def events(self) -> Sequence[Event]:
        """Return kernel, transfer and host events of everything that completed, sorted by start."""

    def durations(self, nodes: Set[int] | None = None) -> Iterable[tuple[int, DeviceIndex, float]]:
        """Return (node, device, seconds) of every launch that completed; ``nodes``: of these only."""

    def waited(self) -> Iterable[tuple[float, float]]:
        """Return the intervals, in seconds since the run began, in which launches waited to start that a driver may
        have had to compile first."""


class Backend(Protocol):
    machine: Machine

    def begin(self, graph: Graph, queues: Sequence[int], goes_on: bool = False) -> int:
        """Begin a run of ``graph`` and return its number, which its reports carry. ``queues[d]``: the number of kernel
        queues of device d that will be used (0: the device is not). Wait for what an interrupted run has left.
        ``goes_on``: this run resumes the one before, which was stopped."""

    def perform(self, commands: Sequence[Command]) -> None:
        """Enqueue the commands, in order, and return without waiting for them."""

    def shorten(self, command: Shorten) -> EndsEarly | None:
        """Make a launch end early. Return None where it runs to its full length, or was not given."""

    def wait(self, until: float | None = None) -> list[Report]:
        """Block until a command with ``notify`` has completed or failed; return all that have. There may be late
        reports of an earlier run that was interrupted, and none after a call of ``wake``, or once ``now()`` has come to
        ``until``."""

    def wake(self) -> None:
        """Make ``wait`` return, now or when it is called next. Any thread may call this."""

    def now(self) -> float:
        """Return the seconds since ``begin``."""

    def took(self, token: int, device: DeviceIndex) -> float | None:
        """Return the seconds that a launch took on its device, given that it was reported complete; None where that is
        unknown, as the devices' clocks are off."""

    def finish(self) -> Record:
        """Wait until all that was enqueued has ended."""

    def abort(self) -> Record:
        """Do as ``finish``, after a failure: stop what can be stopped and never raise. Only Ctrl-C ends the waiting:
        then devices may still be busy, and the next run waits for them."""

    def ends(self, failed: Set[int]) -> tuple[Set[int], Set[int]]:
        """Return the tokens of the commands that have ended without error, and of those that may have begun; to be
        called after ``abort``. Commands that have ``failed`` count as begun unless it is known that they have not. A
        command that had begun and did not end is undone where its ``undo`` copies have the contents from before, and
        then does not count as begun."""

    def restore(self, graph: Graph, copies: Mapping[BufferKey, int]) -> None:
        """Restore the host's own copies of buffers of the run's graph from these numbers of the copies kept beside
        them; to be called after ``abort``."""

    def lost(self, device: DeviceIndex) -> str:
        """Return why a device does not work any more; empty where it works. To be called after a failure."""

    def has_crashed(self, device: DeviceIndex) -> bool:
        """Return whether the commands of a lost device may have ended its process."""

    def is_cut_off(self, device: DeviceIndex) -> bool:
        """Return whether it is known for each command of a lost device whether it has ended, and all that have ended
        did so without error."""
