"""Commands that go to a device as they are enqueued, where there is nothing to decide: it is the only one.

What a queue gives it until somebody asks for a result is a *flight*: one run, of which no graph is made and nothing is
planned unless somebody wants to see what it did. Whatever else wants the devices of the session lets it end first.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

from manycl import flags
from manycl.drivers.driver import DriverError, End, Event
from manycl.drivers.survey import is_forked
from manycl.errors import ManyclError, RunError
from manycl.graph import bounds
from manycl.graph.dependences import Batch
from manycl.graph.graph import Argument, Buffer, BufferKey, DeviceTask, Graph, Launch
from manycl.graph.launch import with_arguments
from manycl.interrupts import Uninterrupted, interruptible
from manycl.machine import DeviceIndex
from manycl.plan.policies.in_order import InOrder
from manycl.region import Box
from manycl.run.backend import Done, Failed, Run
from manycl.run.backends import last_words
from manycl.run.backends.record import RunRecord
from manycl.run.backends.responsive import responsive
from manycl.run.coherence import Directory
from manycl.run.compiler import compiled
from manycl.run.emit_copies import Subject
from manycl.run.engine import failure
from manycl.run.health import examine
from manycl.run.lower import lower
from manycl.run.pace import AHEAD
from manycl.run.planning import decided
from manycl.run.playback import Playback
from manycl.run.result import Result

if TYPE_CHECKING:
    from manycl.run.session import Session

Value = TypeVar("Value")
Given = tuple[DeviceTask, Sequence[Argument] | None, Event]

ONLY = DeviceIndex(0)
"""The device that there is."""
POLICIES = (None, "auto", "in_order")
"""Those that do what is done here where nothing can be chosen."""
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
    """What a queue has given the device since a result was asked for last. ``given``: of each command its node (of a
    launch that has a form, the one that the form was made for), its own arguments where they may differ from the
    node's, and its event. ``arrays``: by the keys of their buffers, all that it uses; ``written``: keys of those that
    it writes. ``ahead``: the foreseen seconds of what is not known to be complete; beyond ``limit`` somebody has to
    look (``pace``). Whoever gives it something holds the ``lock``, while it ``is_open``. ``uploads``: what the next
    command has to wait for."""

    def __init__(self, session: Session, lock: threading.RLock) -> None:
        executor = session.backend
        self._session: Session = weakref.proxy(session)
        self._lanes = lanes = executor.lanes[ONLY]
        self._run = executor.underway(_NOTHING, [lanes.driver.clock()])
        self._mark: tuple[Event, float] | None = None
        self._bit = 1 << lanes.device.memory
        self._bytes = 0  # of what the device holds
        self._brought: list[BufferKey] = []  # keys of what came to its memory
        self._token = 0
        self._unplanned: UnplannedRun | None = None
        self.lock = lock
        self.is_open = True
        self.given = given = list[Given]()
        self._run.launched = lambda: [(node.name, ONLY, 0, event) for node, _, event in given]
        self.after: dict[int, tuple[int, ...]] = {}
        self.arrays: dict[BufferKey, Owner] = {}
        self.written: set[BufferKey] = set()
        self.forms: list[Repeated] = []
        self.uploads: list[Event] = []
        self.ahead = 0.0
        self.limit = AHEAD / 2
        # for launches that have a form
        self.allocations = executor.memory.buffers(ONLY)
        self.queue = lanes.queues[0]
        self.launch = lanes.launch

    def __del__(self) -> None:
        if self._unplanned is None and self.given and not is_forked():  # nobody has waited, and its arrays go now
            self._lanes.driver.finish()

    # giving

    def adopt(self, array: Owner) -> bool:
        """An array is used from now on; False where there may be no room for it. Raises ResultError for one whose
        contents a failed run has left unknown."""
        session, key, nbytes = self._session, array.buffer.key, array.buffer.nbytes
        session.directory.check(key)
        if key in session.directory.parts:
            return False
        if key not in self.allocations:
            device = self._lanes.device
            self._bytes = self._bytes or sum(session.memory.allocated(ONLY).values())
            if nbytes > device.max_allocation or self._bytes + nbytes > device.global_memory:
                return False
            self._bytes += nbytes
        with Uninterrupted():
            session.memory.on_device(key, ONLY)
            valid = session.directory.valid.get(key, 0)
            if valid and not valid & self._bit:
                self._bring(key, nbytes)
                session.directory.copied(key, self._lanes.device.memory)
            self.arrays[key] = array
        return True

    def _bring(self, key: BufferKey, nbytes: int) -> None:
        """Upload a buffer: a large one beside what the device computes."""
        memory, lanes, run = self._session.memory, self._lanes, self._run
        is_beside = nbytes >= BESIDE
        queue = lanes.uploads if is_beside else self.queue
        target = End(memory.on_device(key, ONLY))
        try:
            events = lanes.driver.copy(queue, target, memory.upload_source(key), (Box(0, nbytes),), ())
            if is_beside:
                lanes.flush(queue)
        except DriverError as error:
            raise RunError(f"{memory.name(key)} cannot be brought to {lanes.device.name}: {error.message}") from None
        run.record.transfers.append(((key,), ONLY, True, events, len(self.given)))
        self._brought.append(key)
        if is_beside:
            self.uploads.append(events[-1])

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
                event = self._session.backend.give(self._run, task, Run(index, ONLY, 0, (), False), self.uploads)
                lanes.flush(self.queue)
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
            self.uploads = []
            if after:
                self.after[index] = tuple(sorted(set(after)))
            self.written.update(task.writes)
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
            self._wait_for(before)
            self.ahead -= ahead
        self._mark = event, self.ahead
        self.limit = self.ahead + AHEAD / 2

    # ending

    def close(self) -> None:
        """Nothing more is given."""
        with self.lock:
            self.is_open = False

    def end(self) -> UnplannedRun:
        """Wait for all that was given, while nothing else runs; what has gone wrong is the unplanned's. Ctrl-C ends the
        waiting, and all that is written is unknown then."""
        self.close()
        if self._unplanned is None:
            with self._session.lock, Uninterrupted():
                self._session.flight = None
                self._unplanned = UnplannedRun(self._session, self.given, self.after, self.arrays, self._run.record)
                try:
                    if self.given:
                        self._land(self._unplanned)
                    elif self._brought:
                        self._lanes.driver.finish()
                finally:
                    self.arrays, self.forms = {}, []
        return self._unplanned

    def _land(self, unplanned: UnplannedRun) -> None:
        session, run, executor = self._session, self._run, self._session.backend
        executor.adopt(run)
        failed = None
        last = self.given[-1][2]
        try:
            if self.ahead <= AT_ONCE:
                self._lanes.flush(self.queue)
                self._lanes.driver.wait(last)
            else:
                responsive.enter(executor)
                self._wait_for(last)
            self._lanes.driver.finish()  # Ctrl-C may have come before what was enqueued last was noted
        except DriverError as error:
            failed = Failed(len(self.given) - 1, run.now(), error.message, run.number)
        except BaseException as error:
            reason = f"the run was stopped by {type(error).__name__}"
            for key in {*self.written, *self._brought}:
                session.directory.lose(key, reason)
            unplanned.error = RunError(reason)
            executor.abort()
            raise
        unplanned.seconds = run.now()
        ends = [event for _, _, event in self.given]
        ends += [events[-1] for _, _, _, events, _ in run.record.transfers]
        if failed is not None or not self._lanes.driver.succeeded(ends):
            run.record.kernels = [(i, ONLY, 0, event) for i, (_, _, event) in enumerate(self.given)]
            record = executor.abort()
            record.failure = record.failure or failed
            lost = record.failed_transfer
            if lost is not None and (record.failure is None or lost.token <= record.failure.token):
                record.failure = lost  # the command that it was for
            assert record.failure is not None
            for key in self._brought:
                session.directory.drop(key, self._lanes.device.memory)
            unplanned.fail(record.failure)
            examine(session)
            return
        executor.ended(run)
        session.directory.valid.update(dict.fromkeys(self.written, self._bit))
        session.learn_from(unplanned)
        each = unplanned.seconds / len(self.given)
        for form in self.forms:
            form.landed(each)

    def _wait_for(self, event: Event) -> None:
        """Until an event is complete, by the thread that waits for the queue. Raises DriverError if it has failed."""
        run = self._run
        self._lanes.flush(self.queue)
        self._token += 1
        run.watch(ONLY, 0, [self._token], event)
        while True:  # Ctrl-C may have ended a waiting before, of which is heard now
            with interruptible:
                reports = run.inbox.wait()
            for report in reports:
                if report.token == self._token:
                    if isinstance(report, Failed):
                        raise DriverError(report.message)
                    return


class UnplannedRun:
    """A flight that is over. ``error``: what went wrong with it."""

    def __init__(
        self,
        session: Session,
        given: Sequence[Given],
        after: Mapping[int, tuple[int, ...]],
        arrays: Mapping[BufferKey, Owner],
        record: RunRecord,
    ) -> None:
        self._session = session
        self._given = given
        self._after = after
        self._buffers = {key: array.buffer for key, array in arrays.items()}
        self._record = record
        self.seconds = 0.0
        self.error: ManyclError | None = None

    def __len__(self) -> int:
        return len(self._given)

    @cached_property
    def graph(self) -> Graph:
        nodes = tuple(
            [
                with_arguments(node, tuple(args)) if args is not None and isinstance(node, Launch) else node
                for node, args, _ in self._given
            ]
        )
        return Batch(nodes, self._buffers, self._after).graph()

    @cached_property
    def record(self) -> RunRecord:
        """When its commands ran."""
        self._record.graph = self.graph
        self._record.kernels = [(i, ONLY, 0, event) for i, (_, _, event) in enumerate(self._given)]
        return self._record

    def samples(self) -> tuple[Graph, Iterable[tuple[int, DeviceIndex, float]]]:
        """What models learn from, as of a result."""
        return self.graph, self.record.durations()

    @cached_property
    def result(self) -> Result:
        """What it would have been as a run of a plan."""

        def ended(playback: Playback) -> Result:
            playback.end()
            return self._result(playback)

        with self._session.lock:
            return self._played(self._session.directory.copy(), ended)

    def fail(self, failed: Failed) -> None:
        """A command has failed: the story is the ``error``, and what may be half written is unknown from now on."""

        def told(playback: Playback) -> ManyclError:
            playback.start(0.0)
            playback.handle()
            if failed.token:  # what came before it in the queue is complete
                playback.handle(Done(failed.token - 1, failed.time, failed.run))
            playback.fail(failed)
            return failure(playback, failed, self._result(playback))

        self.error = self._played(self._session.directory, told)

    def _played(self, directory: Directory, ended: Callable[[Playback], Value]) -> Value:
        """What ``ended`` makes of the player of the script that it has followed."""
        problem = self._session.problem_of(self.graph, (1,), {})
        plan, lowered = decided(problem, InOrder(), directory, lower)
        assert plan is not None
        lowered.open(directory)
        try:
            return ended(Playback(compiled(Subject(problem, lowered, directory.valid), plan), directory))
        finally:
            lowered.close(directory)

    def _result(self, playback: Playback) -> Result:
        script = playback.script
        return Result(
            self.graph,
            self._session.machine,
            script.plan.policy,
            self.seconds,
            self.record,
            plan=script.plan,
            lowered=script.lowered,
            playback=playback,
        )


def is_possible(session: Session, queues: Mapping[str, int]) -> bool:
    """Whether nothing can be decided on the devices of a session."""
    if len(session.opened) != 1 or any(count != 1 for count in queues.values()):
        return False
    return session.opened[0].device.slowdown == 1.0 and not session.memory.guarded


def begun(session: Session, lock: threading.RLock) -> Flight | None:
    """A new flight; None where something else is under way, or somebody wants to look on."""
    if session.closed or session.flight is not None or flags.debug() or last_words.keeping():
        return None
    if not session.lock.acquire(blocking=False):
        return None
    try:
        with Uninterrupted():
            if not session.machine.devices or not session.backend.is_idle:
                return None
            session.check_open()
            session.buffers.collect()
            session.use_clocks(True)
            flight = session.flight = Flight(session, lock)
            return flight
    finally:
        session.lock.release()
