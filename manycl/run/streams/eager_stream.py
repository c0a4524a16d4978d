"""Eager streams: commands that a queue gives a device one by one, until a result is asked for. They are one run,
without a graph and a plan unless its trace or result is looked at. Other uses of the devices wait for its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from manycl.drivers import last_words
from manycl.drivers.driver import DeviceLost, DriverError, Event
from manycl.drivers.survey import is_forked
from manycl.errors import ManyclError, RunError, anew
from manycl.graph import bounds
from manycl.graph.copies import Place
from manycl.graph.graph import DeviceTask, Graph, Launch
from manycl.run.commands.backend import Failed, Run
from manycl.run.recovery.device_events import DevicesInUse, EventMonitor
from manycl.run.recovery.health import examine
from manycl.run.session.device_set import DeviceSet
from manycl.run.session.session_data import SessionData
from manycl.run.streams.eager_result import EagerResult, launched
from manycl.run.streams.eager_rule import Decision, Need, is_light
from manycl.run.streams.host_access import HostAccess
from manycl.run.streams.stream_state import UNKNOWN, CommandBatch, CommandLog, Owner
from manycl.utilities.interrupts import Uninterrupted

_NOTHING = Graph((), {}, ())


class Repeated(Protocol):
    """A launch or copy that is repeated."""

    def ended(self, seconds: float) -> None:
        """Note that a batch with it is over: what it refers to may go. ``seconds``: of one command there."""

    @property
    def is_settled(self) -> bool:
        """True if the ends of more batches would tell nothing about it."""


class EagerStream(HostAccess):
    """The commands that a queue gives a device as they are enqueued. ``given``: for each command its node (for a cached
    launch, the one for which that was made), its own arguments where they may differ from the node's, and its event.
    ``batch``: the batch of those since the last wait for all (``look``), which is a run of its own. ``is_known``: all
    its commands are like earlier ones. ``why``: the decision that it follows."""

    def __init__(self, devices: DeviceSet, data: SessionData, why: Decision) -> None:
        executor, device = devices.backend, why.device
        assert device is not None, "the decision is to go on eagerly"
        super().__init__(devices, data, device, executor.underway(_NOTHING, (device,) if executor.profile else ()))
        self.log_in(CommandLog())
        self._stopped: BaseException | None = None  # the exception that has ended a wait for a batch
        self._weighed = -1  # the number of arrays for which ``_is_light`` holds
        self._is_light = False
        self._used = DevicesInUse(devices.events, (devices.machine.devices[device].name,))
        self.is_known = True
        self.why = why
        self.after: dict[int, tuple[int, ...]] = {}
        self.repeated: dict[Repeated, None] = {}  # in the batch
        self.is_settled = True  # whether all of these are
        self.is_quick = True  # whether the last batch took so little that going on saves time
        self.launch = self._lanes.launch  # (for cached launches)

    def log_in(self, log: CommandLog) -> None:
        """Note all commands in a log."""
        with self.lock:
            log.is_open = self.given.is_open  # another thread may have ended the stream by now
            self.given, device = log, self.device
            self._run.launched = lambda: [(node.name, device, 0, event) for node, _, event in log]

    def __del__(self) -> None:
        if self._over is None and not self.is_waited and not is_forked():
            # its commands may run still, and its arrays go now
            self._lanes.driver.finish()

    @property
    def began(self) -> float:
        """The time of its beginning by ``time.perf_counter``."""
        return self._run.began

    # giving

    def flush(self) -> None:
        """Send the given commands to the device."""
        with self.lock:
            if self.given and self._over is None:
                self._flush(self.queue)

    def was_given(self, task: DeviceTask) -> bool:
        """Return whether this is the last command that the device was given, and more may come."""
        return self.is_open and bool(self.given) and self.given[-1][0] is task

    def give(self, task: DeviceTask, arrays: Sequence[Owner], after: Sequence[int] = ()) -> bool:
        """Enqueue a command. Return False where it has to be planned. Raises ManyclError where it was not enqueued."""
        if isinstance(task, Launch):  # (first, as a refused launch must keep no arrays)
            bounds.check_launch(task, {array.buffer.key: array.buffer for array in arrays})
        for array in arrays:
            if array.buffer.key not in self.arrays and not self.adopt(array):
                return False
        index, lanes = len(self.given), self._lanes
        self.join()
        with Uninterrupted():
            try:
                event = self.devices.backend.give(self._run, task, Run(index, self.device, 0, (), False), self.uploads)
            except DriverError as error:
                sizes = (
                    f" with NDRange {task.global_size}, work-groups {task.local_size or 'chosen by the driver'}"
                    if isinstance(task, Launch)
                    else ""
                )
                what = f"kernel {task.name}" if isinstance(task, Launch) else f"{task.function} {task.name}"
                words = f"{what} failed on {lanes.device.name}{sizes}: {error.message}"
                self._refused()
                if isinstance(error, DeviceLost) and self._is_carried_on:
                    return False
                before = None if self._over is None else self._over.error  # what was given tells what is lost with it
                raise (RunError(words, hint=error.hint) if before is None else anew(before)) from None
            except ManyclError:  # its kernel does not build there, or there is no room
                if len(self.devices.machine.devices) > 1:
                    return False  # by a plan, another device runs it, or the error is raised
                raise
            self.given.append((task, None, event))
            self.uploads, self.is_known = [], False
            if after:
                self.after[index] = tuple(sorted(set(after)))
            self.batch.written.update(task.writes)
            self._flush(self.queue)
        self.count(UNKNOWN)
        return True

    def join(self, repeated: Repeated | None = None) -> None:
        """Note a command that is about to be given and is new in the batch. Raises DeviceError if none may."""
        if not self.batch.began:
            self._begin()
        if repeated is not None:
            self.repeated[repeated] = None
            self.is_settled = self.is_settled and repeated.is_settled

    @property
    def _is_carried_on(self) -> bool:
        """True if it has been ended, and other devices do its work instead of this one."""
        return self._over is not None and self._over.error is None and bool(self.devices.machine.devices)

    def _refused(self) -> None:
        """End the stream and examine the devices, as the device did not take a command."""
        lock = self.devices.lock
        if lock.acquire(blocking=False):  # else the thread that has it waits for this stream's lock
            try:
                self.end()
                examine(self.devices, self._directory)
            finally:
                lock.release()

    # of single commands

    def is_complete(self, index: int) -> bool:
        """Return whether a command is complete. Raises ManyclError where it has failed, or one before it."""
        over = self._over
        if over is not None and over.error is not None and index - self.batch.first >= over.failed:
            raise anew(over.error)
        if over is not None and over.went_on:
            return True
        return index < self.waited or self._lanes.driver.done(self.given[index][2])

    def times_of(self, event: Event) -> tuple[float, float] | None:
        """Return when a complete command or copy began and ended, by ``time.perf_counter``; None: not timed."""
        offset = self.record.offsets[self.device]
        if offset is None:
            return None
        try:
            start, end = self._lanes.driver.times(event)
        except DriverError:
            return None
        began = max(start + offset, self.began)
        return began, began + end - start

    def wait_for(self, index: int) -> bool:
        """Wait until a command is complete. Return False where the stream has to be ended instead: the command has
        failed, or nothing more is given in any case. Ctrl-C ends the waiting."""
        with self.lock:
            if not self.is_open:
                return False
            if index < self.waited:
                return True
            event = self.given[index][2]
            if index == len(self.given) - 1:
                return self._sees_end(self._last)
            try:
                self._wait_soon(event)
            except DriverError:
                return False
            return True

    def wait_for_all(self) -> bool:
        """Wait until all that was given, also copies at the end, is complete. Return False as ``wait_for`` does."""
        with self.lock:
            return self.is_open and (self.is_waited or self._sees_end(self._last))

    def _sees_end(self, last: Event | None) -> bool:
        """Wait for the last event (None: complete) of all that was given. Return False where one has failed."""
        try:
            if last is not None:
                self._wait_soon(last)  # which raises where that has failed
            is_one = len(self.given) == self.waited + 1 and self._seen == len(self.record.transfers)
            if not (is_one or self._lanes.driver.succeeded(self._ends(self.waited))):
                return False
        except DriverError:
            return False
        self._caught_up()
        return True

    # ending, and going on

    @property
    def is_spent(self) -> bool:
        """True if another caller has ended it when there was nothing to wait for."""
        over = self._over
        return over is not None and over.error is None and not over.given

    @property
    def is_young(self) -> bool:
        """True if it may go on when all that was given has been waited for: at some time it has to end."""
        return len(self.given) <= self.why.until and len(self.record.transfers) <= self.why.until

    @property
    def is_light(self) -> bool:
        """True if a batch may go on after a wait: that took little, and keeps few arrays that may be dropped."""
        count = len(self.arrays)
        if count != self._weighed:
            self._weighed = count
            self._is_light = is_light(count, sum([a.buffer.nbytes for a in self.arrays.values()]))
        return self._is_light and self.is_short and self.has_batch and self.is_young and not self.is_giving

    @property
    def _is_usual(self) -> bool:
        """True if it may go on with another batch when its present one is over. (New commands are timed in streams of
        their own, unless their times are learned from in any case.)"""
        return self.is_young and ((self.is_known and self.is_settled) or self.devices.is_timed(True))

    def look(self, wanted: Place | None = None) -> EagerResult | None:
        """Wait for all that was given, and go on from here. Return the batch that is over, as a run. ``wanted``: what
        the host will read. Return None where the stream has to be ended instead: a command has failed, Ctrl-C has ended
        the waiting, or the end would tell more about the commands."""
        devices = self.devices
        with devices.lock, self.lock, Uninterrupted():
            is_busy = self.uploads or self.is_giving
            if is_busy or not (self.given.is_open and self._is_usual and devices.is_timed(False)):
                return None
            over = EagerResult(self, self.after)
            if not over.given:
                return over
            asked = self._ask_for(wanted) if wanted is not None else None
            if asked is None and not self.is_waited:
                asked = self._last
            foreseen = self.given.ahead
            try:
                if not self._sees_end(asked):
                    return None
            except BaseException as error:
                self._stopped = error
                return None
            over.close()
            self.is_quick = over.seconds <= self.why.within
            self._arrived()
            devices.learn_from(over)
            if not self.is_settled or over.seconds < foreseen / 2:  # (what was told was of a cold batch)
                self._tell_repeated(over)
            self._go_on()
            return over

    def _go_on(self) -> None:
        """Begin a new batch and forget all arrays: the host may change them, and they may go."""
        self._wanted = None
        self._brought.clear()
        self._regions_before.clear()
        self._writes.clear()
        self._asked.clear()
        self._bytes = 0
        self._weighed = -1
        self.arrays = {}
        self.is_joined = False
        self.is_known = self.is_settled = True
        self.repeated = {}
        self.batch = CommandBatch(len(self.given), len(self.record.transfers))
        self.given.begin(self.batch.written)

    def close(self) -> None:
        """Give nothing more."""
        with self.lock:
            self.given.is_open = False

    def end(self, wanted: Place | None = None) -> EagerResult:
        """Wait for all that was given, while nothing else runs, and return the run; a failure is its ``error``. Ctrl-C
        ends the waiting, and then all that is written is unknown. ``wanted``: what the host will read next."""
        self.close()
        with self.devices.lock, Uninterrupted():
            if self._over is None:  # else another thread has waited
                self.devices.stream = None
                self._over = EagerResult(self, self.after)
                try:
                    if self._over.given:
                        self._end_batch(self._over, self._ask_for(wanted) if wanted is not None else None)
                    elif self._brought or self.is_giving:
                        self._lanes.driver.finish()
                    self._tell_repeated(self._over)
                finally:
                    self.arrays, self.repeated = {}, {}
                    self.given.begin(set())
                    self._used.become(())
        return self._over

    def _tell_repeated(self, over: EagerResult) -> None:
        """Pass the seconds of one command of a batch to the cached launches and copies in it, where all went well."""
        if over.error is None and over.given:
            each = over.seconds / len(over.given)
            for repeated in self.repeated:
                repeated.ended(each)

    def _end_batch(self, over: EagerResult, asked: Event | None) -> None:
        devices, run, executor = self.devices, self._run, self.devices.backend
        executor.adopt(run)
        failed = None
        last = asked if asked is not None else self._last
        try:
            if self._stopped is not None:
                raise self._stopped
            self._wait_soon(last)
            if self.is_giving:  # Ctrl-C came before the last command was noted
                self._lanes.driver.finish()
        except DriverError as error:
            failed = Failed(len(self.given) - 1, run.now(), error.message, run.number)
        except BaseException as error:
            reason = f"the run was stopped by {type(error).__name__}"
            self._take_back()
            for key in self.batch.written:
                self._directory.lose(key, reason)
            over.error = RunError(reason)
            executor.abort()
            raise
        found = self._failure(failed)
        over.close()
        if found is not None:
            self._take_back()
            first, last = self.batch.first, len(self.given) - 1
            watch = None if self.is_joined else EventMonitor(devices.events, devices.machine, self._used)
            over.resume(
                Failed(
                    min(max(found.token, first), last) - first, found.time - (self.batch.began - run.began), *found[2:]
                ),
                watch,
            )
            self._lose_writes(found)
            examine(devices, self._directory)
            return
        executor.ended(run)
        self._arrived()
        devices.learn_from(over)

    def _failure(self, failed: Failed | None) -> Failed | None:
        """Return the first command that has failed, if any, when all have ended. ``failed``: what was found before."""
        record = self.record
        if failed is None and self._lanes.driver.succeeded(self._ends(self.batch.first)):
            return None
        record.kernels = launched(self.given, self.device)
        self.devices.backend.abort()
        # (the failed copy comes before the command that needs it)
        found = [f for f in (record.failed_transfer, record.failure) if f is not None]
        return min(found, key=lambda f: f.token, default=failed)


def always_planned(devices: DeviceSet, queues: Mapping[str, int]) -> Need | None:
    """Return why devices cannot be given any commands without a plan, or None. ``queues``: by device name or kind."""
    if devices.backend.memory.guarded:
        return Need.GUARDED
    if devices.rolls_back:
        return Need.CHECKPOINTS
    if any(count != 1 for count in queues.values()):
        return Need.QUEUES
    return Need.SLOWED if any(opened.device.slowdown != 1.0 for opened in devices.opened) else None


def begun(devices: DeviceSet, data: SessionData, learning: bool, why: Decision) -> EagerStream | Need:
    """Return a new eager stream to the device of a decision, or why there can be none now. ``learning``: whether models
    learn from it."""
    if last_words.note is not None:
        return Need.OBSERVED
    if devices.closed or (devices.stream is not None and devices.stream.has_batch):
        return Need.BUSY
    if not devices.lock.acquire(blocking=False):
        return Need.BUSY
    try:
        with Uninterrupted():
            if devices.stream is not None:
                if devices.stream.has_batch:
                    return Need.BUSY
                devices.end_stream()  # another queue's stream, with nothing in flight
            if not devices.machine.devices or not devices.backend.is_idle:
                return Need.BUSY
            devices.check_open()
            data.buffers.collect()
            devices.use_clocks(learning)
            data.directory.unchanged.clear()  # (what its commands write, nobody notes)
            devices.stream = stream = EagerStream(devices, data, why)
            return stream
    finally:
        devices.lock.release()
