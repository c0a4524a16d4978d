"""The devices of a session: which were opened and which are used, and what is under way on them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from manycl.drivers.choice import OpenDevice
from manycl.drivers.survey import in_use, refuse_forked
from manycl.errors import DeviceError, RunError
from manycl.graph.graph import BufferKey, Launch
from manycl.graph.versions.host_version import calling
from manycl.machine import DeviceIndex, Machine
from manycl.run.executor.building import Builder
from manycl.run.executor.executor import Executor
from manycl.run.recovery.device_events import DeviceEvents, DevicesInUse
from manycl.run.session.models import MeasuredRun, Models
from manycl.run.session.pauses import PauseMeasurement

NOBODY: frozenset[DeviceIndex] = frozenset()

Profile = bool | Literal["learning"] | None
"""The times at which the devices' clocks time commands: always, never, or as long as a run's times are learned from
("learning"). None: "learning" where timing makes commands slower, as on GPUs, else always."""


class OpenStream(Protocol):
    """An eager stream whose commands have not been waited for."""

    lock: threading.RLock
    """Held by a thread that gives it a command."""

    @property
    def device(self) -> DeviceIndex:
        """The device that is given its commands."""

    @property
    def has_batch(self) -> bool:
        """True if it was given anything since the last wait for all."""

    def has_brought(self, key: BufferKey, low: int, nbytes: int) -> bool:
        """Return whether some bytes of a buffer are in the host's copy of it though the directory does not know."""

    def close(self) -> None:
        """Give nothing more."""

    def end(self) -> object:
        """Wait for all that was given."""


class DeviceSet:
    """The devices that were ``opened``: ``everything`` is the machine of all of them, ``machine`` that of those in use.
    ``events``: of devices that leave and come. ``models``: what has been measured of them. ``profile``: when their
    clocks time commands."""

    def __init__(
        self,
        everything: Machine,
        opened: tuple[OpenDevice, ...],
        events: DeviceEvents,
        models: Models,
        profile: Profile,
    ) -> None:
        self._mark = in_use()
        self.everything, self.opened = everything, opened
        self._in_use = everything  # without those that are left out, and without measurements
        self.models = models
        self.excluded: dict[str, str] = {}
        """Devices that have failed for good, by name, and why they are left out."""
        self.events = events
        self.machine = models.on(everything)
        self.measuring = PauseMeasurement()
        self._learned = 0  # runs that are over
        self.backend = Executor(self.machine, opened, profile is not False)
        if profile is None:
            profile = "learning" if any(lanes.watched for lanes in self.backend.lanes) else True
        self._profile = profile
        for learning in (False, True):  # make the queues of both kinds now, if both will be wanted
            self.use_clocks(learning)
        self.builder = Builder(self.backend.programs, models.recall)
        self.used = DevicesInUse(self.events)
        """The devices that the run under way uses."""
        self.lock = threading.RLock()
        """Held by the thread whose run uses the devices."""
        self.changes = 0
        """The number of times that the devices in use have changed."""
        self.closed = False
        """True once the devices have been released."""
        self.rolls_back = False
        """Whether the session makes checkpoints, so that no run has to keep anything in case that a device is lost."""
        self.stream: OpenStream | None = None
        """The eager stream whose commands have not been waited for, if there is one."""

    # devices that are used

    def restrict(self, names: Collection[str]) -> Machine:
        """Use only these of the opened devices from now on, and return the machine."""
        self._in_use = self.everything.only(names)
        self.machine = self.models.on(self._in_use)
        self.changes += 1
        self.events.restrict()
        self.builder = Builder(self.backend.programs, self.models.recall)
        return self.machine

    @property
    def away(self) -> frozenset[DeviceIndex]:
        """The devices that have left and are not to be used."""
        left = self.events.away
        return frozenset(i for i, d in self.machine.numbered() if d.name in left) if left else NOBODY

    @property
    def demanded(self) -> frozenset[DeviceIndex]:
        """The devices that other processes have had in the meantime, and whose launches cannot end early."""
        names = self.events.demanded
        return (
            frozenset(i for i, d in self.machine.numbered() if d.name in names and not d.shortens) if names else NOBODY
        )

    @property
    def present(self) -> tuple[str, ...]:
        """The names of the devices that may be used."""
        left = self.events.away
        return tuple([d.name for d in self.machine.devices if d.name not in left])

    @property
    def mortal(self) -> frozenset[DeviceIndex]:
        """The devices whose processes may end without this one; none if there is no other device to continue on."""
        lanes = self.backend.lanes
        if len(lanes) < 2 or self.rolls_back:
            return NOBODY
        return frozenset(d for d in self.machine.indices if lanes[d].driver.may_be_lost)

    def build(self, launch: Launch, on: Sequence[DeviceIndex] = ()) -> None:
        """Build the kernel of a launch for some devices, or (empty) for all, beside runs. Raises SourceError."""
        machine = self.backend.machine
        try:
            self.backend.programs.prepare([(launch, device) for device in on or machine.indices])
        except LookupError:
            if machine is self.backend.machine:
                raise  # else devices have changed meanwhile: runs build what they need

    # what is under way

    def use(self, queues: Sequence[int]) -> None:
        """Note how many queues of each device a run uses."""
        self.used.become([d.name for d, count in zip(self.machine.devices, queues, strict=True) if count])

    def end_stream(self) -> None:
        """Wait for the commands of the eager stream; errors are raised by the queue that they belong to."""
        if self.stream is not None:
            self.stream.end()

    def check_open(self) -> None:
        """Raise DeviceError if the devices were released; and what :meth:`refuse_host_functions` raises."""
        if self.closed:
            raise DeviceError("the session is closed", hint="make a new Queue")
        if not self._mark.page[0] or self.backend.host_calls.is_used or calling.now:
            self.refuse_host_functions()

    def refuse_host_functions(self) -> None:
        """Raise RunError if the caller is a host function of a run that is under way here, and DeviceError in a forked
        process."""
        if not self._mark.page[0]:
            refuse_forked()
        calls = self.backend.host_calls
        if calling.now or (calls.is_used and calls.are_current()):
            raise RunError(
                "a host function asked for an array, or for a run, of the devices whose run it is part of",
                hint="give the array to the function as an argument of Queue.call",
            )

    # clocks, and what is learned by them

    def time_all(self) -> None:
        """Time all commands by the devices' clocks from the next run on, as with ``profile=True``."""
        self._profile = True
        with self.lock:
            if self.stream is not None and not self.stream.has_batch:
                self.end_stream()

    def use_clocks(self, learning: bool) -> None:
        """Set whether commands are timed from now on; ``learning``: whether their times are learned from."""
        wanted = learning if self._profile == "learning" else self._profile
        if wanted != self.backend.profile:
            self.backend.use(wanted)

    def is_timed(self, learning: bool) -> bool:
        """Return whether the present setting of the clocks is the one for ``learning``."""
        return self.backend.profile == (learning if self._profile == "learning" else self._profile)

    def learn(self) -> None:
        """Add the measurements of runs since the last call to the models, and those of links to the machine."""
        if self.models.learn(self.machine):
            self.machine = self.models.on(self._in_use)

    def learn_from(self, run: MeasuredRun) -> None:
        """Have the models learn from a run, and measure links behind it. While a device takes longer than its
        measurements, nothing is learned."""
        self._learned += 1
        if not self.events.slow:
            self.models.unlearned.append(run)
            if self.measuring.thread is None and not self.measuring.over.is_set():
                self.measuring.ran(self)

    @property
    def pause(self) -> tuple[int, int] | None:
        """The number of the pause between runs: two counts that no other pause has. None while a run is under way."""
        stream = self.stream
        is_busy = self.closed or not self.backend.is_idle or (stream is not None and stream.has_batch)
        return None if is_busy else (self.backend.runs, self._learned)
