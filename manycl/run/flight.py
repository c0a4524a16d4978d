"""What a queue gives a device until somebody asks for a result, command by command."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from manycl.drivers.driver import DriverError, End, Event
from manycl.drivers.driver import Queue as DriverQueue
from manycl.drivers.survey import is_forked
from manycl.errors import RunError
from manycl.graph import bounds
from manycl.graph.graph import Buffer, BufferKey, DeviceTask, Graph, Launch
from manycl.interrupts import Uninterrupted, interruptible
from manycl.machine import HOST, DeviceIndex
from manycl.region import Box
from manycl.run.backend import Failed, Run
from manycl.run.backends.inbox import Inbox
from manycl.run.backends.record import RunRecord
from manycl.run.backends.responsive import responsive
from manycl.run.coherence import HOST_BIT
from manycl.run.health import examine
from manycl.run.pace import AHEAD
from manycl.run.unplanned import Given, UnplannedRun, launched

if TYPE_CHECKING:
    from manycl.run.session import Session

UNKNOWN = AHEAD / 64
"""Seconds that a command counts for of which nobody knows how long it takes."""
AT_ONCE = 1e-3
"""Seconds that flights may take for the driver's own wait, during which Ctrl-C is not heard."""
BESIDE = 1 << 20
"""Bytes from which on it pays to upload by another queue, which costs the command that waits for it some 40 us
(NVIDIA's driver)."""
_NOTHING = Graph((), {}, ())


class Owner(Protocol):
    """Whose memory a buffer is: an array."""

    @property
    def buffer(self) -> Buffer: ...


class Repeated(Protocol):
    """A kind of launch that comes again."""

    def landed(self, seconds: float) -> None:
        """Its flight is over: what it refers to may go. ``seconds``: of one command there."""


class Flight:
    """What a queue has given a device since a result was asked for last. ``given``: of each command its node (of a
    launch that has a form, the one that the form was made for), its own arguments where they may differ from the
    node's, and its event. ``arrays``: by the keys of their buffers, all that it uses; ``found``: masks of the memories
    where these were valid before; ``written``: keys of those that it writes. ``ahead``: the foreseen seconds of what is
    not known to be complete; beyond ``limit`` somebody has to look (``pace``). ``waited``: how many commands there were
    when all of them were complete. Whoever gives it something holds the ``lock``, while it ``is_open``. ``uploads``:
    what the next command has to wait for. ``is_known``: all were like some that it had been given before;
    ``is_giving``: somebody is about to note what was enqueued."""

    def __init__(self, session: Session, device: DeviceIndex) -> None:
        executor = session.backend
        self.device = device
        self._session: Session = weakref.proxy(session)
        self._lanes = lanes = executor.lanes[device]
        self._run = executor.underway(_NOTHING, (device,) if executor.profile else ())
        self._mark: tuple[Event, float] | None = None
        # (not the number that its driver has: devices before it may have been left out)
        self._memory = session.machine.devices[device].memory
        self._bit = 1 << self._memory
        self._bytes = 0  # of what the device holds
        self._brought: list[BufferKey] = []  # keys of what came to its memory
        self._wanted: BufferKey | None = None  # what comes to the host behind all that was given
        self._token = 0
        self._over: UnplannedRun | None = None
        self.lock = threading.RLock()
        self.is_open = True
        self.is_giving = False
        self.is_known = True
        self.given = given = list[Given]()
        self._run.launched = lambda: [(node.name, device, 0, event) for node, _, event in given]
        self.after: dict[int, tuple[int, ...]] = {}
        self.arrays: dict[BufferKey, Owner] = {}
        self.found: dict[BufferKey, int] = {}
        self.written: set[BufferKey] = set()
        self.forms: list[Repeated] = []
        self.uploads: list[Event] = []
        self.ahead = 0.0
        self.limit = AHEAD / 2
        self.waited = 0
        # for launches that have a form
        self.allocations = executor.memory.buffers(device)
        self.queue = lanes.queues[0]
        self.launch = lanes.launch

    def __del__(self) -> None:
        if self._over is None and self.given and not is_forked():  # nobody has waited, and its arrays go now
            self._lanes.driver.finish()

    @property
    def record(self) -> RunRecord:
        """What is known of its commands."""
        return self._run.record

    @property
    def began(self) -> float:
        """By ``time.perf_counter``."""
        return self._run.began

    # giving

    def adopt(self, array: Owner) -> bool:
        """An array is used from now on; False where there may be no room for it. Raises ResultError for one whose
        contents a failed run has left unknown."""
        session, key, nbytes = self._session, array.buffer.key, array.buffer.nbytes
        session.directory.check(key)
        valid = session.directory.valid.get(key, 0)
        if key in session.directory.parts or (valid and not valid & (self._bit | HOST_BIT)):
            return False
        is_here = not valid or bool(valid & self._bit)
        if key in self.allocations and is_here:
            self.arrays[key], self.found[key] = array, valid
            return True
        if key not in self.allocations:
            device = self._lanes.device
            self._bytes = self._bytes or sum(session.backend.memory.allocated(self.device).values())
            if nbytes > device.max_allocation or self._bytes + nbytes > device.global_memory:
                return False
            self._bytes += nbytes
        with Uninterrupted():
            session.backend.memory.on_device(key, self.device)
            if not is_here:
                self._bring(key, nbytes)
                session.directory.copied(key, self._memory)
            self.arrays[key], self.found[key] = array, valid
        return True

    def _bring(self, key: BufferKey, nbytes: int) -> None:
        """Upload a buffer: a large one beside what the device computes."""
        memory, lanes, run = self._session.backend.memory, self._lanes, self._run
        is_beside = nbytes >= BESIDE
        queue = lanes.uploads if is_beside else self.queue
        target = End(memory.on_device(key, self.device))
        try:
            events = lanes.driver.copy(queue, target, memory.upload_source(key), (Box(0, nbytes),), ())
        except DriverError as error:
            raise RunError(f"{memory.name(key)} cannot be brought to {lanes.device.name}: {error.message}") from None
        run.record.transfers.append(((key,), self.device, True, events, len(self.given)))
        self._brought.append(key)
        if is_beside:
            self.uploads.append(events[-1])
            self._flush(queue)

    def flush(self) -> None:
        """Send what was given."""
        with self.lock:
            if self.given and self._over is None:
                self._flush(self.queue)

    def _flush(self, queue: DriverQueue) -> None:
        """Send what was enqueued. Where that fails, it is under way all the same, and who waits for it is told."""
        with suppress(DriverError):
            self._lanes.flush(queue)

    def give(self, task: DeviceTask, arrays: Sequence[Owner], after: Sequence[int] = ()) -> bool:
        """Enqueue a command; False where it has to be planned. Raises ManyclError for one that cannot be: then it was
        not."""
        for array in arrays:
            if array.buffer.key not in self.arrays and not self.adopt(array):
                return False
        if isinstance(task, Launch):
            bounds.check_launch(task, {array.buffer.key: array.buffer for array in arrays})
        index, lanes = len(self.given), self._lanes
        with Uninterrupted():
            try:
                event = self._session.backend.give(self._run, task, Run(index, self.device, 0, (), False), self.uploads)
            except DriverError as error:
                sizes = (
                    f" with NDRange {task.global_size}, work-groups {task.local_size or 'chosen by the driver'}"
                    if isinstance(task, Launch)
                    else ""
                )
                what = f"kernel {task.name}" if isinstance(task, Launch) else f"{task.function} {task.name}"
                words = f"{what} failed on {lanes.device.name}{sizes}: {error.message}"
                self._refused()
                raise RunError(words, hint=error.hint) from None
            self.given.append((task, None, event))
            self.uploads, self.is_known = [], False
            if after:
                self.after[index] = tuple(sorted(set(after)))
            self.written.update(task.writes)
            self._flush(self.queue)
        self.ahead += UNKNOWN
        if self.ahead > self.limit:
            self.pace()
        return True

    def _refused(self) -> None:
        """The device did not take a command: maybe it takes none any more."""
        session = self._session
        if session.lock.acquire(blocking=False):  # else somebody waits for the lock of this
            try:
                self.end()
                examine(session)
            finally:
                session.lock.release()

    def pace(self) -> None:
        """So much is ahead of the device that half of it has to be complete before there is more: what was given cannot
        be taken back, and whoever presses Ctrl-C waits for it."""
        event = self.given[-1][2]
        if self._mark is not None:
            before, ahead = self._mark
            with suppress(DriverError):  # who asks for results is told
                if not self._lanes.driver.done(before):
                    self._wait_for(before)
            self.ahead -= ahead
        self._mark = event, self.ahead
        self.limit = self.ahead + AHEAD / 2

    # of single commands

    def is_complete(self, index: int) -> bool:
        """Whether a command is. Raises ManyclError where it has failed, or one before it."""
        over = self._over
        if over is not None and over.error is not None and index >= over.failed:
            raise over.error
        return self._lanes.driver.done(self.given[index][2])

    def times(self, index: int) -> tuple[float, float] | None:
        """When a command that is complete began and ended, by ``time.perf_counter``; None where it was not timed."""
        offset = self.record.offsets[self.device]
        if offset is None:
            return None
        try:
            start, end = self._lanes.driver.times(self.given[index][2])
        except DriverError:
            return None
        began = max(start + offset, self.began)
        return began, began + end - start

    def wait_for(self, index: int) -> bool:
        """Until a command is complete; False where all has to be ended instead: it has failed, or nothing more is given
        in any case. Ctrl-C ends the waiting."""
        with self.lock:
            if not self.is_open:
                return False
            event = self.given[index][2]
            try:
                self._wait_soon(event)
            except DriverError:
                return False
            if event is self.given[-1][2]:
                if not self._lanes.driver.succeeded(self._ends(self.waited)):
                    return False
                self.waited, self.ahead, self.limit, self._mark = len(self.given), 0.0, AHEAD / 2, None
            return True

    @property
    def is_short(self) -> bool:
        """Whether what is ahead takes so little time that the driver may be waited for."""
        return self.ahead <= AT_ONCE

    def wait_beside(self, index: int) -> None:
        """Until a command has ended, well or not: for threads that the flight does not know."""
        driver, event = self._lanes.driver, self.given[index][2]
        if self._lanes.watched:
            inbox = Inbox(self._run.now)
            inbox.watch((self.device, 0), (index,), driver, event)
            inbox.wait()
        else:
            with suppress(DriverError):  # the status tells
                driver.wait(event)

    # ending

    def close(self) -> None:
        """Nothing more is given."""
        with self.lock:
            self.is_open = False

    def end(self, wanted: BufferKey | None = None) -> UnplannedRun:
        """Wait for all that was given, while nothing else runs; what has gone wrong is the run's ``error``. Ctrl-C ends
        the waiting, and all that is written is unknown then. ``wanted``: the buffer that the host will look at next."""
        self.close()
        with self._session.lock, Uninterrupted():
            if self._over is None:  # else another thread has waited
                self._session.flight = None
                self._over = UnplannedRun(self._session, self)
                try:
                    if self.given:
                        self._land(self._over, self._ask_for(wanted) if wanted is not None else None)
                    elif self._brought or self.is_giving:
                        self._lanes.driver.finish()
                finally:
                    self.arrays, self.forms = {}, []
        return self._over

    def _ask_for(self, key: BufferKey) -> Event | None:
        """Have a small buffer that was used, and that the device alone will have, come to the host behind all that was
        given: then both are waited for at once. None where it has to be brought apart."""
        if key not in self.arrays or self._bit == HOST_BIT:
            return None
        session, lanes = self._session, self._lanes
        memory, valid = session.backend.memory, session.directory.valid.get(key, 0)
        is_here = key in self.written or (valid & self._bit and not valid & HOST_BIT)
        if not is_here or key in session.directory.parts or memory.nbytes(key) >= BESIDE:
            return None
        try:
            target, source = memory.download_target(key), End(self.allocations[key])
            events = lanes.driver.copy(self.queue, target, source, (Box(0, len(target.memory)),), self.uploads)
        except (DriverError, RunError):
            return None  # it is told when it is brought apart
        self._run.record.transfers.append(((key,), self.device, False, events, len(self.given) - 1))
        self._wanted = key
        return events[-1]

    def _land(self, over: UnplannedRun, asked: Event | None) -> None:
        session, run, executor = self._session, self._run, self._session.backend
        executor.adopt(run)
        failed = None
        last = asked if asked is not None else self.given[-1][2]
        try:
            self._wait_soon(last)
            if self.is_giving:  # Ctrl-C came before what was enqueued last was noted
                self._lanes.driver.finish()
        except DriverError as error:
            failed = Failed(len(self.given) - 1, run.now(), error.message, run.number)
        except BaseException as error:
            reason = f"the run was stopped by {type(error).__name__}"
            self._take_back()
            for key in self.written:
                session.directory.lose(key, reason)
            over.error = RunError(reason)
            executor.abort()
            raise
        over.seconds = run.now()
        found = self._failure(failed)
        if found is not None:
            self._take_back()
            over.fail(found)
            examine(session)
            return
        executor.ended(run)
        session.directory.valid.update(dict.fromkeys(self.written, self._bit))
        if self._wanted is not None:
            session.directory.copied(self._wanted, HOST)
        session.learn_from(over)
        each = over.seconds / len(self.given)
        for form in self.forms:
            form.landed(each)

    def _failure(self, failed: Failed | None) -> Failed | None:
        """The first command that has failed, if one has, when all have ended. ``failed``: what was found out before."""
        record = self._run.record
        if failed is None and self._lanes.driver.succeeded(self._ends(0)):
            return None
        record.kernels = launched(self.given, self.device)
        self._session.backend.abort()
        found = [f for f in (record.failed_transfer, record.failure) if f is not None]  # the copy before what it is for
        return min(found, key=lambda f: f.token, default=failed)

    def _ends(self, first: int) -> list[Event]:
        """The events that tell whether all has succeeded, from a command on."""
        # (where one fails on a GPU, all that its context is given afterwards fails)
        given = self.given[-1:] if self._lanes.watched else self.given[first:]
        moved = [events[-1] for _, _, _, events, at in self._run.record.transfers if at >= first]
        return [event for _, _, event in given] + moved

    def _take_back(self) -> None:
        """What was to come to the device may not have come."""
        for key in self._brought:
            self._session.directory.drop(key, self._memory)

    def _wait_soon(self, event: Event) -> None:
        """Until an event is complete, by the driver's own wait where that ends soon. Raises DriverError."""
        if self.is_short:
            self._lanes.flush(self.queue)
            self._lanes.driver.wait(event)
        else:
            responsive.enter(self._session.backend)
            self._wait_for(event)

    def _wait_for(self, event: Event) -> None:
        """Until an event is complete, by the thread that waits for the queue. Raises DriverError if it has failed."""
        run = self._run
        self._lanes.flush(self.queue)
        self._token += 1
        run.watch(self.device, 0, [self._token], event)
        while True:  # Ctrl-C may have ended a waiting before, of which is heard now
            with interruptible:
                reports = run.inbox.wait()
            for report in reports:
                if report.token == self._token:
                    if isinstance(report, Failed):
                        raise DriverError(report.message)
                    return
