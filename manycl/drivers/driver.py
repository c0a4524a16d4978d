"""The protocol of a driver: one opened device, which computes, and keeps and copies bytes.

A driver is a file of its own, and a line in the list of kinds (``kinds.py``). Of the package, only such files import a
vendor's library. Devices of different kinds run together in one run: what goes from one to another goes by the host's
memory unless ``Handle.can_copy`` says otherwise, and an event of one driver is only given to another one if
``Handle.waits_for`` says that this waits for it. Every driver passes tests/drivers/conformance.

What a driver may rely on, and what it must keep:

- *Handles* (allocations, programs, queues, events) are its own objects, never None; nobody else looks into them. An
  allocation, queue or event is only used with the driver that made it; an allocation also as the source of a copy by
  a driver whose handle ``can_copy`` from that one's, and an event where a command of a driver whose handle
  ``waits_for`` that one's comes after it.
- *Order.* The commands of a queue run in the order in which they were given to it, each once all before it are
  complete; those of different queues run in any order, also at the same time. A command waits also for the events
  in its ``after``, which may be of any queue of the device, or of one that it waits for. Nothing but ``wait``,
  ``finish``, ``build``, ``allocate`` and ``pin`` may block until something has been computed.
- *Sending.* What was given to a queue may stay with the host until ``flush`` is called for the queue, which it is, soon
  after; other threads may wait for it already.
- *Failures.* Methods raise DriverError, whose message has the library's own words, and nothing else. What fails after
  it was enqueued is raised by ``done`` and ``wait`` of its event. What comes behind a failed command, in its queue or
  by ``after``, may run or fail. After a failure a driver must still answer every call (with DriverError, if it has to):
  it is asked whether it still works, and released.
- *Threads.* One thread at a time enqueues into a queue, allocates, builds and sets arguments; others may enqueue into
  other queues, and wait, at the same time.
- *Lifetime.* What a command uses may be dropped by everybody else before it is complete: the driver keeps it, host
  arrays included. Only ``free`` says that nothing which is under way uses an allocation any more.
- Sizes and offsets are in bytes, work-sizes in work-items, times in seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from manycl.errors import DeviceError
from manycl.graph.graph import LocalArg
from manycl.group_range import RangeParts
from manycl.machine import Device
from manycl.region import Rectangle

Bytes = npt.NDArray[np.uint8]
"""Host memory: a contiguous array of bytes."""

Allocation = Any
"""Memory of a device, as its driver has it."""
Program = Any
Queue = Any
Event = Any
"""What tells of a command when it is complete, whether it failed, and when it ran."""


class DriverError(DeviceError):
    """A device, or the library that it is used by, has failed; the message has the library's own words."""


class DeviceLost(DriverError):
    """A device is gone for good: the process that had opened it has ended. What it had not completed will not be done,
    and what only its memory held is lost; it writes nothing any more. ``device``: its name. ``has_begun``: of a
    command, whether it may have begun."""

    def __init__(self, message: str, device: str, *, has_begun: bool = True, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.device, self.has_begun = device, has_begun


class BuildError(DriverError):
    """A program does not build; the message is the compiler's log."""


class Source(NamedTuple):
    """The source of a program, which is all that decides its binary: the text (OpenCL C), the compiler's options, and
    what the text is called, as what it includes is looked for beside it (``<source>``: in the working directory)."""

    text: str
    options: tuple[str, ...] = ()
    path: str = "<source>"

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path) or "."


class End(NamedTuple):
    """One end of a copy. ``memory`` has the bytes of a buffer from byte ``low`` of it on: an allocation of the driver,
    or a host array (which has all of it: ``low`` is 0). ``is_pinned``: of host memory, that it was given to ``pin`` (of
    any driver). ``owner``: of a source that is an allocation of another driver, which this one can copy from: that
    driver."""

    memory: Allocation | Bytes
    low: int = 0
    is_pinned: bool = False
    owner: Driver | None = None


class DeviceKernel(Protocol):
    """A kernel of a built program. It keeps what its arguments are set to; a launch takes them as they are then, and
    may not be changed by what they are set to later."""

    most_items: int
    """Work-items that a work-group of it may have on the device."""

    def set(self, index: int, value: Allocation | bytes | LocalArg) -> None:
        """Set an argument: to memory of the device, the bytes of a scalar or struct, or so much local memory."""


class Driver(Protocol):
    """One opened device."""

    device: Device
    """As it was opened: with its name, and its memory (``device.memory == HOST``: it computes in the host's)."""
    is_polled: bool
    """How its events are best waited for: by asking ``done`` again and again (devices with cores of their own), or by
    a thread that blocks in ``wait`` (devices that compute on the host's cores). Of a polled device, all that it is
    given behind a failed command fails, too: the last one tells of all."""
    is_interruptible: bool
    """Whether Python's signal handlers run while the main thread is in ``wait``, so that Ctrl-C is heard there."""
    slows_down: bool
    """Whether its kernels take ``device.slowdown`` times as long, times of events included. No other device can be
    opened with a slow-down."""
    needs_shared_memory: bool
    """Whether the host memory that becomes the device's (``allocate``) must be shared memory
    (:func:`manycl.drivers.shared.shared_memory`), which is also what it copies best: its process is another one."""
    may_be_lost: bool
    """Whether it may be lost while this process and its other devices go on (DeviceLost)."""
    tells_when_lost: bool
    """Whether what it says of commands is also true when it is lost: which have ended, and which may have begun."""

    @property
    def has_crashed(self) -> bool:
        """True if its process has ended by itself, so that what ran there may end others as well."""

    # memory

    def allocate(self, nbytes: int, host: Bytes | None = None) -> Allocation:
        """``nbytes`` (at least 1) of uninitialised memory of the device; or ``host``, a page-aligned array of so many
        bytes, as the device's memory (only where it computes in the host's: nothing is copied, and what either writes
        the other one sees when commands are complete)."""

    def part(self, allocation: Allocation, offset: int, nbytes: int) -> Allocation:
        """Bytes of an allocation as one; ``offset`` is a multiple of the device's ``alignment``, and the allocation is
        no part itself. The whole lives as long as the part, unless it is freed."""

    def free(self, allocation: Allocation) -> None:
        """Free memory that nobody uses any more, neither a command that is under way. Kernels may still be set to it;
        they are set anew before they are launched. (What is merely dropped is freed as well, some time.)"""

    def pin(self, data: Bytes) -> object:
        """Have the device's copies be as fast as they can be from and to host memory, which stays where it is and as it
        is, for as long as what is returned is kept: it is page-locked. A driver that gains nothing by that does
        nothing. Raises DriverError where no more can be had."""

    # programs

    def build(self, source: Source) -> Program:
        """Raises BuildError. May be called by several threads at once."""

    def kernel(self, program: Program, name: str) -> DeviceKernel:
        """A new object for a kernel, with no argument set. Raises DriverError if there is no such kernel."""

    def function(self, function: Callable[..., None], arguments: int) -> DeviceKernel:
        """A function of Python as a kernel with so many arguments, for a device that computes where Python does. When
        the turn of a launch has come it is called as ``function(values, global_size, offset)``, by any thread: with a
        list of what the arguments were set to (of memory its bytes, as an array that may be written to), and the
        NDRange. Its exception is the launch's failure, the message is ``str`` of it. ``most_items`` is as large as can
        be. Raises DriverError where the driver cannot do that."""

    # commands

    def queue(self, timed: bool) -> Queue:
        """A new in-order queue. ``timed``: when its commands run is measured."""

    def launch(
        self,
        queue: Queue,
        kernel: DeviceKernel,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[Event] | None,
    ) -> Event:
        """Enqueue a kernel on an NDRange of 1 to 3 dimensions, as for clEnqueueNDRangeKernel: ``local_size`` None is
        the driver's choice; ``offset`` is added to the global ids. ``after`` is None or not empty."""

    def copy(
        self, queue: Queue, target: End, source: End, rectangles: Sequence[Rectangle], after: Sequence[Event]
    ) -> Sequence[Event]:
        """Enqueue a copy of some bytes of a buffer from where ``source`` has them to where ``target`` has them: between
        the host and the device, or within the device (not between two host arrays). Rectangles have one slice, and are
        counted from byte 0 of the buffer; they do not overlap, and lie within both ends (none: nothing is copied).
        Returns at least one event: the first one tells when the copy began, all are complete when the last one is.
        Bytes between rows must stay as they are. Host memory is neither changed nor given away before the copy is
        complete; where it is not pinned, and the copy is large, the driver finds a way that is nearly as fast."""

    def read(self, queue: Queue, out: Bytes, source: Allocation, low: int) -> Event:
        """Copy few bytes of the device's memory, from byte ``low`` on, to the host behind all that the queue was given,
        and wait for that: the copy's event, which is complete. Raises DriverError also for what has failed before."""

    def download(self, queue: Queue, out: Bytes, source: Allocation, low: int) -> Event:
        """Enqueue the copy of bytes of the device's memory, from byte ``low`` on, to the host, which is not to look at
        them before it is complete; as ``copy`` in all else."""

    def write(self, queue: Queue, target: Allocation, data: Bytes, low: int) -> Event:
        """Enqueue the copy of few bytes of the host, as they are now, to the device's memory from byte ``low`` on."""

    def fill(
        self, queue: Queue, target: Allocation, pattern: bytes, offset: int, nbytes: int, after: Sequence[Event]
    ) -> Event:
        """Enqueue the filling of ``nbytes`` bytes of the device's memory, from byte ``offset`` on, with a pattern of 1,
        2, 4, … or 128 bytes, again and again. Both are multiples of its length, and lie within the allocation."""

    def flush(self, queue: Queue) -> None:
        """Send what was given to a queue to the device."""

    def finish(self) -> None:
        """Wait until nothing is under way on the device, whatever has failed. Never raises."""

    # events

    def done(self, event: Event) -> bool:
        """Return whether a command is complete. Raises DriverError if it has failed. Must be quick: it is asked
        often."""

    def succeeded(self, events: Sequence[Event]) -> bool:
        """Return whether all of these commands are complete and none has failed; quicker than to ask for each."""

    def wait(self, event: Event) -> None:
        """Wait until a command is complete; other threads run meanwhile. Raises DriverError if it has failed."""

    def times(self, event: Event) -> tuple[float, float]:
        """Return when a command of a timed queue began and ended, by the device's clock. Raises DriverError:
        unknown."""

    def clock(self) -> float | None:
        """Seconds to add to the device's clock to get the host's ``perf_counter``, as measured lately; None where that
        cannot be told. Asked at the beginning of a run, when the device is idle."""

    def release(self) -> None:
        """Release the device: nothing more will be asked. Threads of the driver's own end, when they have nothing to do
        any more; memory goes with its handles."""


@runtime_checkable
class Holdable(Protocol):
    """A driver that can have its device stand still, also within launches that have begun. It may be told so at any
    time, by any thread."""

    def hold(self, is_held: bool) -> None:
        """Hold the device: from now on no work-group begins, and those that have begun stop, or end soon; or (not
        ``is_held``) let all go on. Commands stay where they are."""

    @property
    def is_still(self) -> bool:
        """True if nothing runs any more on a device that is held, so that others have all of it."""


class DirectQueue(NamedTuple):
    """A queue for compiled code that enqueues launches. ``launch``: the address of the function
    ``u64 launch(void *queue, void *shape, void *values, const void *waits, u64 count)``, which returns the command's
    number, 0 for a failure. ``address``: of the queue. ``memory``: the class of allocations; ``word``, ``nbytes``:
    their attributes that go into the block of values, the second one only where there is one.

    ``event(number)``: returns a command's event, which owns the number from then on; ``release``: the address of a
    function ``release(number)``, which is called for numbers that no event owns when commands are forgotten.

    Where there is no ``event``, events are tuples of the queue, the number, and what the queue's ``renew()`` has
    returned last, which is called before the first command and each that follows a multiple of 64. Then ``given``
    is the address of a 64-bit word, the number of the last command, and what a command needs is appended to ``keep``,
    behind its number."""

    launch: int
    address: int
    memory: type
    word: str
    nbytes: str | None = None
    event: Callable[[int], Event] | None = None
    release: int = 0
    given: int = 0
    keep: Any = None


class DirectLaunch(NamedTuple):
    """A kernel at an NDRange for compiled code that launches it: the addresses of the ``shape`` and of the block of
    ``values``; for each argument that is memory, its word in the block, behind which its size is if it has one there
    (else -1); what has to live until a launch is complete."""

    shape: int
    values: int
    words: tuple[int, ...]
    needs: object


@runtime_checkable
class DirectlyLaunched(Protocol):
    """A driver that hands launches over to compiled code of ours. The methods raise DriverError."""

    def direct_queue(self, queue: Queue) -> DirectQueue | None:
        """None where compiled code cannot enqueue there; so it is for all queues, or for none."""

    def direct_launch(
        self, kernel: DeviceKernel, like: DeviceKernel, global_size: tuple[int, ...], local_size: tuple[int, ...] | None
    ) -> DirectLaunch | None:
        """A kernel whose arguments are set, and another object for the same kernel that has been launched at the
        NDRange. None where the driver has to launch it itself."""


@runtime_checkable
class Shortening(Protocol):
    """A driver that can end launches early (:attr:`Device.shortens <manycl.machine.Device.shortens>`), and whose queues
    may run one beside the command before it, in the cores that this one has left."""

    def launch_in_parts(
        self,
        queue: Queue,
        kernel: DeviceKernel,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None,
        after: Sequence[Event] | None,
        parts: RangeParts,
        is_beside: bool = False,
    ) -> Event:
        """Enqueue a kernel as ``launch`` does; but its parts begin in their order, so that it can be shortened.
        ``is_beside``: it need not come after the command that the queue was given before: it may begin when all of that
        one has begun, and waits for its ``after``, be they of its queue or others. It is complete after all before it,
        as any command."""

    def shorten(self, event: Event) -> tuple[int, float] | None:
        """Have a launch in parts end with the part that it is at, or the first one: how many of its parts it runs, and
        how much of the launch, as it was, has begun, as a part of 1. None where nobody knows: it runs all of them, or
        as many as it was last said to."""


class RecordedLaunch(NamedTuple):
    """A launch of a recorded sequence. ``args``: slots of the binding table, one for each argument; ``after``: commands
    of the sequence, by their places in it. The rest is as for ``Driver.launch``."""

    queue: Queue
    after: tuple[int, ...]
    kernel: DeviceKernel
    args: tuple[int, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    offset: tuple[int, ...] | None


class RecordedCopy(NamedTuple):
    """A copy within the device: of ``nbytes`` bytes from byte ``source_offset`` of the memory in the slot ``source``,
    to byte ``target_offset`` of that in ``target``."""

    queue: Queue
    after: tuple[int, ...]
    target: int
    source: int
    target_offset: int
    source_offset: int
    nbytes: int


class RecordedFill(NamedTuple):
    """A fill, as ``Driver.fill``, of the memory in the slot ``target``."""

    queue: Queue
    after: tuple[int, ...]
    target: int
    pattern: bytes
    offset: int
    nbytes: int


RecordedCommand = RecordedLaunch | RecordedCopy | RecordedFill
Values = Sequence[Allocation | bytes | LocalArg]
"""The values of a binding table, by slot."""


@runtime_checkable
class CommandRecorder(Protocol):
    """A driver that keeps a sequence of commands and plays it with other buffers and scalars than it was recorded with.
    All of its kernels' arguments, and the ends of copies and fills, are slots of a binding table (as of IREE's command
    buffers, or cl_khr_mutable_dispatch)."""

    def record(self, commands: Sequence[RecordedCommand], values: Values) -> Any:
        """Return the sequence in the driver's own form, or None where it cannot keep these commands. ``values``: one
        binding table; all others have values of the same kinds and sizes in the same slots, and the same local memory.
        Kernels may be left with arguments set."""

    def bind(self, recorded: Any, values: Values) -> Any:
        """Return the recorded sequence with a binding table. It may be played as long as no memory in it is freed.
        Raises DriverError where a value is not of the kind or size of its slot."""

    def play(self, bound: Any, events: list[Event]) -> None:
        """Enqueue all commands, and append their events to the empty list ``events``, in the order of the sequence.
        Where it raises DriverError, or is interrupted, those that were enqueued have their events, and what comes
        behind them was not enqueued. Kernels' arguments stay as they are."""


@runtime_checkable
class Countable(Protocol):
    """A driver whose queues complete commands one after another, and that keeps in memory how far each is, for whoever
    reads that when the process is gone."""

    def mirror(self, queue: Queue, words: Any) -> None:
        """Keep in ``words[0]`` from now on (64-bit integers; None: nowhere) the number of the last command of a queue
        that is complete, before one behind it begins; ``words[1]``: how many of them have failed."""

    def number(self, event: Event) -> int:
        """Return the number of a command among those of its queue."""


class Handle(Protocol):
    """A device, or a part of one, that can be opened."""

    @property
    def compute_units(self) -> int: ...

    @property
    def resources(self) -> frozenset[str]:
        """The resources of the machine that it computes on, in words that are the same in every process (``core 3``,
        ``pci 0000:65:00``): to who reserves devices, those that have a word in common are in one another's way."""

    def shares_host_memory(self) -> bool:
        """Return whether the device computes in the host's memory: proved by a probe, not by what it says of itself."""

    def can_copy(self, other: Handle) -> bool:
        """Return whether copies of its driver take memory of the other's driver as their source, so that bytes go from
        that device to this one without the host's memory between."""
        return False

    def waits_for(self, other: Handle) -> bool:
        """Return whether commands of its driver may come after events of the other's driver (or of another one of its
        own device's drivers), without the host between."""
        return False

    def among(self, met: dict[str, Any]) -> Handle:
        """Return the same device as one of several of a platform, with memories of their own, that are used together.
        ``met``: what the handles of these devices have in common; each may add to it."""
        return self

    def divide(self, division: tuple[int, ...]) -> Sequence[Handle]:
        """Its parts: so many equal ones (one number; units that are left over stay idle), or of so many compute units
        each; there are enough. Raises DriverError where it cannot be divided so."""

    def open(self, device: Device) -> Driver:
        """Raises DriverError."""


class Advice(NamedTuple):
    """Advice: what could be better on this machine, in words, and what to do (a command, or several to choose from)."""

    what: str
    command: str


class Found(NamedTuple):
    """A device as a kind of driver shows it. Of ``device``, ``name`` is empty and ``memory`` what it claims (HOST, or
    any other number). ``rank``: of several that show one device, the lowest is taken. ``vendor`` (0: not known)
    and ``place`` (on the PCI bus, () where nobody knows) tell which show the same device."""

    device: Device
    handle: Handle
    rank: int = 0
    vendor: int = 0
    place: tuple[int, ...] = ()
