"""The half of a queue that runs what was enqueued, in its order: when a result is asked for, or in the background."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from sys import getrefcount
from time import perf_counter
from typing import TYPE_CHECKING

from manycl import flags
from manycl.api.background import Background
from manycl.api.recording import record, underway
from manycl.api.run_trace import RunTrace, showable
from manycl.api.submission import Submission
from manycl.api.waits import Waits
from manycl.errors import LaunchError, ManyclError, RunError, anew
from manycl.graph.copies import Place
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy, learns
from manycl.run.graph_cache.learners import Learners, told
from manycl.utilities.interrupts import Uninterrupted
from manycl.utilities.logs import logger

if TYPE_CHECKING:  # what runs loads drivers: it is imported when a queue opens devices
    from manycl.api.dispatch.copy_cache import CachedCopy, MoveKey
    from manycl.api.dispatch.launch_cache import CachedLaunch
    from manycl.run.engine.result import Result
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_result import EagerResult
    from manycl.run.streams.eager_stream import EagerStream

log = logger(__name__)

ROOM = 256 << 20
"""Bytes of arrays that are made until it is looked whether most of them are kept by nothing but what is enqueued."""
_ONLY_HERE = 4  # references to an array by what is enqueued, and by who counts
STRETCHES = 64
"""Stretches of a program that the trace has of what ran before its last one."""


class RunningQueue(Waits):
    """Of a queue; ``policy``, ``queues`` and ``options`` are its own."""

    __slots__ = ("enqueued", "forms", "preparing", "session")  # what compiled code reads, too (api/dispatch/native)

    def __init__(
        self,
        session: Session,
        policy: str | Policy | Plan | None,
        learners: Learners,
        queues: Mapping[str, int],
        options: Mapping[str, str],
    ) -> None:
        with Uninterrupted():  # they import drivers
            from manycl.run.graph_cache.graph_cache import GraphCache
            from manycl.run.streams.eager_policy import is_possible

        self.session = session
        self.policy = policy
        self._default = flags.policy()
        self.learners = learners
        self.queues = queues
        self.options = options
        self._recurring = GraphCache(session)
        self._is_immediate = is_possible(session, queues)
        if self._is_immediate and len(session.backend.lanes) == 1:
            session.backend.lanes[0].warm()
        self.enqueued = Submission(not self._is_immediate)
        self._taken: deque[Submission] = deque()  # what was enqueued before that and has not run, or runs
        self._failure: BaseException | None = None  # of what ran in the background, to be told to who asks next
        self.background = Background()
        self.forms: dict[object, CachedLaunch] = {}  # launches that are known, by who makes them and their sizes
        self.roomy: set[tuple[object, tuple[int, ...] | None]] = set()  # kernels and work-groups known to fit a device
        self._made_bytes = 0  # of arrays, since the last look at whether some are only kept here
        self.moves: dict[MoveKey, CachedCopy] = {}  # copies and fills that are known
        self._is_known, self._news = False, 0  # whether the last flight had nothing new; how many in a row had
        self._changes = session.changes
        self.preparing: dict[int, Submission] = {}  # what threads enqueue inside `with queue.prepare()`
        self._result: Callable[[], Result] | None = None
        self._past: tuple[Callable[[], Result], ...] = ()  # of what ran before it, since the last time
        self._is_followed = False  # whether what runs next belongs to it
        self._ended = 0.0  # when something ran last, by time.perf_counter
        self._trace: RunTrace | None = None
        self.lock = threading.RLock()  # of what is enqueued
        self._running = threading.RLock()  # held by the thread whose run it is
        self._runner = 0  # that thread

    def __len__(self) -> int:
        """How many nodes are enqueued and have not run."""
        with self.lock:
            flight = self.enqueued.flight
            waited = flight.waited if flight is not None else 0
            return sum(map(len, (*self._taken, self.enqueued))) - waited

    def flush(self) -> None:
        """Give the devices all that is enqueued, and return without waiting for it. What has to be planned, such as
        what several devices share or what has host functions, runs in the background, by a thread of the queue's:
        more may be enqueued meanwhile, which runs behind it, but new contents for arrays wait for it. What goes wrong
        there is told to who asks for a result next, and what was enqueued by then does not run. Ctrl-C ends the waiting
        for a run in the background, but not the run."""
        self.session.check_open()
        self.refuse_while_preparing()
        with self.lock:
            enqueued = self.enqueued
            if enqueued.flight is not None:
                enqueued.flight.flush()
            if not enqueued.builder.nodes and not enqueued.reads:
                return
            self._take()
        self.background.submit(self._run_in_background)

    def reach_horizon(self, enqueued: Submission) -> None:
        """So much is enqueued that it runs while more comes, unless somebody wants to plan all of it."""
        if enqueued is self.enqueued and (self.policy or self._default) == "auto" and not self.options:
            enqueued.is_stretch = True
            self.flush()

    def make_room(self, nbytes: int) -> None:
        """So many bytes more are about to be used. Where much of what was made since the last time is kept only by what
        is enqueued, that is waited for, so that it goes: a program may drop arrays in a loop that waits for nothing.
        Raises what went wrong."""
        self._made_bytes += nbytes
        if self._made_bytes < ROOM:
            return
        made, self._made_bytes = self._made_bytes, 0
        if (self.policy or self._default) != "auto" or self.options or self.preparing or self.is_running_here:
            return
        with self.lock:
            flight = self.enqueued.flight
            held = [*self.enqueued.arrays.values(), *(flight.arrays.values() if flight is not None else ())]
            dropped = sum([array.buffer.nbytes for array in held if getrefcount(array) <= _ONLY_HERE])
        if 2 * dropped >= made:
            self.finish()

    def _take(self) -> None:
        """What is enqueued is to run: what comes now comes behind it."""
        with self.lock:
            if len(self.enqueued):
                self._taken.append(self.enqueued)
                self.enqueued = self.enqueued.take(not self._is_immediate)

    def _run_in_background(self) -> None:
        while True:
            with self._running:  # whoever waits for a result may be quicker
                if not self._taken or self._failure is not None:
                    return
                try:
                    self._run_next()
                except BaseException as error:
                    self._failure = error

    def finish(self) -> None:
        """Run everything that is enqueued and wait for it. Raises what went wrong (RunError tells where)."""
        if not self._look(None):
            self._complete(None)

    def finish_for(self, wanted: Place) -> None:
        """As ``finish``, when the host is about to look at some bytes of a buffer."""
        if not self._look(wanted):
            self._complete(None, wanted)

    def _look(self, wanted: Place | None) -> bool:
        """Wait for what the device has been given, where that is all that is enqueued, and where more of the same is
        expected to follow: its flight goes on. False where what is enqueued has to be ended instead. ``wanted``: what
        the host is about to look at."""
        flight = self.enqueued.flight
        if flight is None or underway or self.preparing or self._taken or self.session.closed:
            return False
        self.session.refuse_host_functions()
        with self._running:
            enqueued = self.enqueued
            if enqueued.flight is not flight or enqueued.builder.nodes or self._taken or self._failure is not None:
                return False
            is_joined = flight.is_joined
            try:
                run = flight.look(wanted)
            except BaseException:  # Ctrl-C was pressed twice
                self._complete(None)
                raise
            if run is None:
                return False
            if not run.given:
                return True
            self._begin()
            self._result, self._is_known = lambda: run.result, flight.is_known
            if not is_joined:
                self._follow(run, run.seconds)
            return flight.is_quick and self._recurring.goes_on(flight.device)

    def airborne(self) -> tuple[Submission, EagerStream | None]:
        """What is being enqueued, and its flight, if commands may be given to a device at once."""
        enqueued = self.enqueued
        flight = enqueued.flight or enqueued.open_flight(self._own)
        if flight is not None and flight.is_spent:
            enqueued = self.renew()
            flight = enqueued.flight or enqueued.open_flight(self._own)
        return enqueued, flight

    def renew(self) -> Submission:
        """What is enqueued from now on, where somebody else has ended a flight of which nothing was under way."""
        with self.lock:
            former = self.enqueued
            if former.flight is not None and former.flight.is_spent and not former.builder.nodes:
                self.enqueued = former.take(not self._is_immediate)
                former.ended(self)
            return self.enqueued

    def _follow(self, run: EagerResult, seconds: float) -> None:
        """A flight, or a leg of one, took so long from the first command on."""
        self._recurring.flew(run, seconds, str(self.policy or self._default), self.queues, self.options)

    def _complete(self, last: Submission | None, wanted: Place | None = None) -> None:
        """Run what is enqueued, up to the ``last`` (None: all), and wait for it, and for what is ``wanted`` on
        the host. Raises what went wrong."""
        self.session.refuse_host_functions()  # the run that they are part of would be waited for
        self.refuse_while_preparing()
        with self._running:
            if last is None or last is self.enqueued:
                self._take()
            if self._failure is not None:
                error, self._failure = self._failure, None
                self._take()
                self._fail_all(error)
                raise error
            while self._taken and not (last is not None and last.is_over):
                self._run_next(wanted)

    def _run_next(self, wanted: Place | None = None) -> None:
        """Run what was taken first. Where that fails, nothing that was taken behind it runs."""
        enqueued, self._runner = self._taken[0], threading.get_ident()
        try:
            if not enqueued.is_over:  # else Ctrl-C came when it had just run
                self._run(enqueued, wanted)
        except BaseException as error:
            if not enqueued.is_over:
                enqueued.ended(self, error=_as_told(error))
            self._taken.popleft()
            self._fail_all(error)
            raise
        finally:
            self._runner = 0
        self._taken.popleft()

    @property
    def is_running_here(self) -> bool:
        """Whether the calling thread is about to do a run, which it cannot wait for."""
        return self._runner == threading.get_ident()

    def _run(self, enqueued: Submission, wanted: Place | None) -> None:
        """What has been given to the device is waited for; the rest runs."""
        before = None
        if enqueued.flight is not None and not enqueued.flight.has_leg:
            enqueued.flight.end()  # what came of it has been waited for
        elif enqueued.flight is not None:
            try:
                is_last = not enqueued.builder.nodes and len(self._taken) == 1
                before = self._land(enqueued, wanted if is_last else None)
            except BaseException:
                self._lose(enqueued)
                raise
        if not enqueued.builder.nodes:
            enqueued.read(self.session.buffers)
            enqueued.ended(self)
            return
        batch, policy = enqueued.batch(), self.learners.find(self.policy)

        def run() -> Result:
            if policy is None or isinstance(policy, str):
                result = self._recurring.run(batch, policy or self._default, self.queues, self.options)
                if before is None:
                    self._recurring.took(perf_counter() - max(enqueued.began, self._ended))
                return result
            result = self.session.run(batch.graph(), policy, queues=self.queues, options=self.options)
            return told(policy, result) if learns(policy) else result

        def run_and_read() -> Result:
            result = run()
            enqueued.read(self.session.buffers)
            return result

        self.keep(run_and_read, enqueued)
        self._is_followed, self._ended = enqueued.is_stretch, perf_counter()

    def _fail_all(self, error: BaseException) -> None:
        """What was taken does not run: what was enqueued before it has failed."""
        while self._taken:
            enqueued = self._taken[0]
            if enqueued.flight is not None:  # that has run
                with suppress(ManyclError):
                    enqueued.flight.end()
            self._lose(enqueued)
            self._taken.popleft()
            enqueued.ended(self, error=_as_told(error))

    def _lose(self, enqueued: Submission) -> None:
        """What no device was given does not run."""
        for node in enqueued.batch().nodes:
            for key in node.writes:
                self.session.directory.lose(key, f"{node.name} did not run: what was enqueued before it has failed")

    def _leave(self) -> None:
        """Nobody asks for what is enqueued, which runs no more than it does already."""
        self.session.refuse_host_functions()
        with self._running:
            with self.lock:
                left = [*self._taken, self.enqueued]
                self._taken.clear()
                self.enqueued = self.enqueued.take(not self._is_immediate)
            for enqueued in left:
                if enqueued.flight is not None:
                    with suppress(ManyclError):
                        enqueued.flight.end()
                enqueued.ended(self, error=RunError("it did not run: its queue has been closed"))

    def take_off(self) -> EagerStream | None:
        """What the device is given before anybody asks for results, where there is nothing to plan, and nothing that
        was enqueued before has yet to run. (The caller holds the lock.)"""
        if self._taken:
            return None
        from manycl.run.streams.eager_policy import POLICIES, begun  # what runs is imported with the first queue

        if (self.policy or self._default) not in POLICIES or self.options:
            return None
        device = self._recurring.expect()
        if device is None:
            return None
        if self._changes != self.session.changes:
            for form in self.forms.values():  # they know kernels of devices that are gone
                form.retire()
            self.moves.clear()
            self.forms.clear()
            self._changes = self.session.changes
        return begun(self.session, device, not self._is_known, self._news)

    def _land(self, enqueued: Submission, wanted: Place | None) -> EagerResult:
        """Wait for what the device has been given. Raises what went wrong with it."""
        assert enqueued.flight is not None
        self._begin()
        is_joined = enqueued.flight.is_joined
        run = enqueued.flight.end(wanted)
        if run.error is not None:
            self._fail(run.error)
            raise anew(run.error)
        self._result, self._is_known = lambda: run.result, enqueued.flight.is_known
        self._news = 0 if self._is_known else self._news + 1
        log.debug("ran as they were enqueued: %d commands", len(run.given))
        self._is_followed = bool(enqueued.builder.nodes)
        if self._is_followed:
            self._recurring.stayed()
        elif not is_joined:
            self._follow(run, perf_counter() - enqueued.flight.leg.began)
        if underway:
            record(self, self._result)
        return run

    def _fail(self, error: ManyclError) -> None:
        from manycl.run.engine.engine import RunFailure  # what runs is imported with the first queue

        if isinstance(error, RunFailure):
            self._trace = showable(error.trace)
            if underway:
                record(self, lambda: error.result)

    def keep(self, run: Callable[[], Result], enqueued: Submission | None) -> Result:
        """Do a run and make it the last one, also when it fails (its trace shows how far it came), but not where what
        was to run is refused; tell events of what it is of."""
        with self._running:
            former = self._result, self._trace, self._past
            self._begin()
            try:
                result = run()
            except BaseException as error:
                if isinstance(error, LaunchError):
                    self._result, self._trace, self._past = former
                if isinstance(error, ManyclError):
                    self._fail(error)
                if enqueued is not None:
                    enqueued.ended(self, error=_as_told(error))
                raise
            self._result = lambda: result
            if underway:
                record(self, self._result)
            if enqueued is not None:
                enqueued.ended(self, result)
            return result

    def _begin(self) -> None:
        """A run begins."""
        is_followed, self._is_followed = self._is_followed, False
        self._past = (*self._past, self._result)[-STRETCHES:] if is_followed and self._result is not None else ()
        self._result = self._trace = None

    def _land_waited(self) -> None:
        """What has been waited for, command by command, is a run as well."""
        flight = self.enqueued.flight
        is_over = flight is not None and flight.has_leg and flight.is_waited
        if is_over and not self.enqueued.builder.nodes and not self.preparing:
            self._complete(None)

    @property
    def result(self) -> Result:
        """The last run: its seconds, plan and record."""
        self._land_waited()
        if self._result is None:
            raise ManyclError("nothing has run on this queue yet")
        return self._result()

    @property
    def trace(self) -> RunTrace:
        """The trace of what ran when a result was asked for last."""
        self._land_waited()
        if self._trace is None:
            from manycl.run.engine.merged_traces import joined, past_run  # what runs is imported with the first queue

            trace = self.result.trace
            if self._past:
                trace = joined([past_run(run()) for run in (*self._past, self._result) if run is not None])
            self._trace = showable(trace)
        return self._trace


def _as_told(error: BaseException) -> ManyclError:
    return error if isinstance(error, ManyclError) else RunError(f"the run was stopped by {type(error).__name__}")
