"""The part of a queue that runs what is enqueued, in its order: when a result is asked for, or in the background."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import itemgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

from manycl import flags
from manycl.api.events import Background, Commands
from manycl.api.recording import RunTrace, record, showable, underway
from manycl.api.submission import Submission
from manycl.errors import LaunchError, ManyclError, RunError, anew
from manycl.graph.copies import Place
from manycl.graph.graph import DeviceTask
from manycl.graph.horizon import HORIZON
from manycl.plan.plan import Plan
from manycl.plan.policy import Policy, learns
from manycl.run.graph_cache.learners import Learners, told
from manycl.run.recovery.device_events import DeviceEvents, DeviceLeaves
from manycl.run.streams.eager_rule import SUBMITTED, Decision, Facts, Need, decide
from manycl.utilities.interrupts import Uninterrupted
from manycl.utilities.kept import FEW
from manycl.utilities.logs import logger

if TYPE_CHECKING:  # run/ loads drivers: it is imported when a queue opens devices
    from manycl.api.dispatch.copy_cache import CachedCopy, MoveKey
    from manycl.run.engine.result import Result
    from manycl.run.session.session import Session
    from manycl.run.streams.eager_result import EagerResult
    from manycl.run.streams.eager_stream import EagerStream

log = logger(__name__)

_PLACE = itemgetter(0)  # of a read


class RunningQueue:
    """The part of a queue that runs commands. ``policy``, ``queues`` and ``options`` are the queue's."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "enqueued",
        "launches",
        "mapped",
        "preparing",
        "session",
    )  # compiled code reads them, too (api/dispatch/compiled)
    use_log: Callable[[Session, EagerStream], None]

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
            from manycl.run.streams.eager_stream import always_planned

        self.session = session
        self._default = flags.policy()
        self._policy, self._named = policy, _named(policy or self._default)
        self.learners = learners
        self._recurring = GraphCache(session, queues, options)
        need = always_planned(session.devices, queues) or (Need.OPTIONS if options else None)
        self._always = decide(Facts(need=need)) if need is not None else None  # how all of its commands run
        if self._always is None and len(session.backend.lanes) == 1:
            session.backend.lanes[0].warm()
        self.enqueued = Submission(self._always)
        self._taken: deque[Submission] = deque()  # closed submissions, which wait or run
        self._failure: BaseException | None = (
            None  # of a run in the background, raised by the next call that asks for a result
        )
        self.background = Background()
        self.launches: dict[object, Any] = {}  # the launch cache: compiled code's entries, by kernel and sizes
        self.mapped: set[int] = set()  # buffers of arrays that are mapped
        self.roomy: set[tuple[object, tuple[int, ...] | None]] = set()  # kernels and work-groups known to fit a device
        self._made_bytes = 0  # of new arrays, since the last wait or check in make_room
        self.moves: dict[MoveKey, CachedCopy] = {}  # the copy cache
        self._is_known = False  # whether the last eager stream had nothing new
        self._changes = session.devices.changes
        self.preparing: dict[int, Submission] = {}  # submissions of threads inside `with queue.prepare()`
        self._result: Callable[[], Result] | None = None
        self._past: tuple[Callable[[], Result], ...] = ()  # earlier runs since a result was last asked for
        self._is_followed = False  # whether the next run belongs to the same trace
        self._ended = 0.0  # when the last run ended, by time.perf_counter
        self._trace: RunTrace | None = None
        self.lock = threading.RLock()  # of the submissions
        self._running = threading.RLock()  # held by the thread whose run it is
        self._runner = 0  # the id of that thread

    @property
    def queues(self) -> Mapping[str, int]:
        """Command queues per device name or kind."""
        return self._recurring.queues

    @queues.setter
    def queues(self, queues: Mapping[str, int]) -> None:
        self._recurring.queues = queues

    @property
    def options(self) -> Mapping[str, str]:
        """The options of the policy."""
        return self._recurring.options

    @options.setter
    def options(self, options: Mapping[str, str]) -> None:
        self._recurring.options = options

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices."""
        return tuple(d.name for d in self.session.machine.devices)

    @property
    def excluded(self) -> dict[str, str]:
        """The devices that have failed for good and are left out, and what was wrong with each."""
        return dict(self.session.devices.excluded)

    @property
    def device_events(self) -> DeviceEvents:
        """The session's device events, by which any thread reports devices that leave and come."""
        return self.session.devices.events

    @property
    def away(self) -> Mapping[str, DeviceLeaves]:
        """The devices that have left, and how."""
        return self.session.devices.events.away

    @property
    def policy(self) -> str | Policy | Plan | None:
        """The policy by which commands run that have not been given to a device; None: MANYCL_POLICY's."""
        return self._policy

    @policy.setter
    def policy(self, policy: str | Policy | Plan | None) -> None:
        with self.lock:
            self._policy, self._named = policy, _named(policy or self._default)
            stream = self.enqueued.stream
            if stream is not None or self.enqueued.builder.nodes:  # what comes now is the new policy's
                self.enqueued.decision = decide(Facts(self._named, Need.RENAMED))
        if stream is not None:
            stream.close()

    def __len__(self) -> int:
        """Return how many nodes are enqueued and have not run."""
        with self.lock:
            stream = self.enqueued.stream
            waited = stream.waited if stream is not None else 0
            return sum(map(len, (*self._taken, self.enqueued))) - waited

    def flush(self) -> None:
        """Give the devices all that is enqueued, and return without waiting for it. Commands that have to be planned,
        such as those that several devices share or that are host functions, run in the background, in a thread of the
        queue's. More may be enqueued meanwhile, which runs behind them, but new contents for arrays wait for them. An
        error there is raised by the next call that asks for a result, and what was enqueued by then does not run.
        Ctrl-C ends the waiting for a run in the background, but not the run."""
        self.session.check_open()
        self.refuse_while_preparing()
        with self.lock:
            enqueued = self.enqueued
            if enqueued.stream is not None:
                enqueued.stream.flush()
            if not enqueued.builder.nodes and not enqueued.reads:
                return
            self._take()
        self.background.submit(self._run_in_background)

    def reach_horizon(self, enqueued: Submission) -> None:
        """Run what is enqueued while more comes, as it is so much, unless the policy plans all commands together."""
        if enqueued is self.enqueued and (self.policy or self._default) == "auto" and not self.options:
            enqueued.is_followed = True
            self.flush()

    def _take(self) -> None:
        """Close the submission so that it runs: commands from now on follow it."""
        with self.lock:
            if len(self.enqueued):
                self._taken.append(self.enqueued)
                self.enqueued = self.enqueued.take(self._always)

    def _run_in_background(self) -> None:
        while True:
            with self._running:  # a thread that waits for a result may have run it already
                if not self._taken or self._failure is not None:
                    return
                with suppress(BaseException):  # which is kept
                    self._run_next(keeps=True)

    def finish(self) -> None:
        """Run everything that is enqueued and wait for it. Raises what went wrong (RunError tells where)."""
        if not self._look(None):
            self._complete(None)
        self._made_bytes = 0

    def finish_for(self, wanted: Place) -> None:
        """Run everything that is enqueued and wait for it, as the host is about to read some bytes of a buffer."""
        if not self._look(wanted):
            self._complete(None, wanted)
        self._made_bytes = 0

    def wait_for(self, enqueued: Commands, node: int) -> bool:
        """Wait until a node has ended. Returns True if it is known to have succeeded, else False, whatever has become
        of it. Raises what went wrong with the commands that had to run for it."""
        with self.lock:
            if enqueued.is_over or not (enqueued.is_taken or enqueued is self.enqueued):
                return False
        stream, is_last = enqueued.stream, node == len(enqueued) - 1
        if stream is not None and node < stream.waited:
            return False
        # (a part of a program ends at the horizon, and an eager stream has to end some time)
        if (
            stream is not None
            and node < min(len(stream.given), HORIZON)
            and (not is_last or (stream.is_short and stream.is_young and not underway))
        ):
            self.session.devices.refuse_host_functions()
            if stream.wait_for(node):
                return True
        if not (is_last and enqueued is self.enqueued and self._look(None)):
            self._complete(enqueued)
        return False

    def _look(self, wanted: Place | None) -> bool:
        """Wait for what the eager stream has been given, where that is all that is enqueued, and more commands of that
        kind are expected: the stream goes on. Returns False where the stream has to be ended instead. ``wanted``: the
        bytes that the host is about to read."""
        stream = self.enqueued.stream
        if stream is None or underway or self.preparing or self._taken or self.session.devices.closed:
            return False
        self.session.devices.refuse_host_functions()
        with self._running:
            enqueued = self.enqueued
            if enqueued.stream is not stream or enqueued.builder.nodes or self._taken or self._failure is not None:
                return False
            log = stream.given
            if log.is_open and len(log) == stream.batch.first and not (stream.uploads or stream.is_giving):
                return True
            is_joined, is_known, why = stream.is_joined, stream.is_known, stream.why
            try:
                run = stream.look(wanted)
            except BaseException:  # Ctrl-C was pressed twice
                self._complete(None)
                raise
            if run is None:
                return False
            if not run.given:
                return True
            self._begin()
            self._result, self._is_known = lambda: _explained(run.result, why), is_known
            if not is_joined:
                self._follow(run, run.seconds)
            return stream.is_quick and self._recurring.goes_on(stream, self._named)

    def submitting(self, task: DeviceTask) -> tuple[Submission, EagerStream | None]:
        """Return the submission that takes commands, and its eager stream, if commands may be given to a device at
        once. ``task``: one like the command that comes now."""
        enqueued = self.enqueued
        stream = enqueued.stream or enqueued.open_stream(self, task)
        if stream is not None and stream.is_spent:
            enqueued = self.renew()
            stream = enqueued.stream or enqueued.open_stream(self, task)
        return enqueued, stream

    def renew(self) -> Submission:
        """Return the submission that takes commands from now on, where another thread has ended an eager stream that
        had nothing unfinished."""
        with self.lock:
            former = self.enqueued
            if former.stream is not None and former.stream.is_spent and not former.builder.nodes:
                self.enqueued = former.take(self._always)
                former.ended(self)
            return self.enqueued

    def _follow(self, run: EagerResult, seconds: float) -> None:
        """Tell the graph cache how long an eager stream, or a batch of one, took from its first command on."""
        self._recurring.ran_eagerly(run, seconds)

    def _complete(self, last: Commands | None, wanted: Place | None = None) -> None:
        """Run what is enqueued, up to the ``last`` submission (None: all), and wait for it, and for the bytes that are
        ``wanted`` on the host. Raises what went wrong."""
        self.session.devices.refuse_host_functions()  # the run that they are part of would be waited for
        if self.preparing:
            self.refuse_while_preparing()
        if self._runner and self.is_running_here:
            raise RunError(
                "a result is asked for in the middle of a run, by the thread whose run it is: by a policy, a signal"
                " handler, or a finalizer that garbage collection has called",
                hint="ask for it when the run has ended",
            )
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

    def _run_next(self, wanted: Place | None = None, keeps: bool = False) -> None:
        """Run the submission that was taken first. If it fails, none that was taken behind it runs. ``keeps``: the
        failure is raised by the next call that asks for a result; nothing is given to a device until then."""
        enqueued, self._runner = self._taken[0], threading.get_ident()
        try:
            if not enqueued.is_over:  # else Ctrl-C came when it had just run
                self._run(enqueued, wanted)
        except BaseException as error:
            if not enqueued.is_over:
                enqueued.ended(self, error=_as_told(error))
            if keeps:
                self._failure = error  # before nothing is taken any more (``begin_stream``)
            self._taken.popleft()
            self._fail_all(error)
            raise
        finally:
            self._runner = 0
        self._taken.popleft()

    @property
    def is_running_here(self) -> bool:
        """True if the calling thread is about to do a run, which it cannot wait for."""
        return self._runner == threading.get_ident()

    def _run(self, enqueued: Submission, wanted: Place | None) -> None:
        """Wait for the commands that the device has been given, and run the other ones."""
        before, wanted = None, wanted if len(self._taken) == 1 else None
        if enqueued.stream is not None and not enqueued.stream.has_batch:
            enqueued.stream.end()  # its commands have been waited for
        elif enqueued.stream is not None:
            try:
                before = self._end_stream(enqueued, None if enqueued.builder.nodes else wanted)
            except BaseException:
                self._lose(enqueued)
                raise
        if not enqueued.builder.nodes:
            enqueued.read(self.session.buffers)
            enqueued.ended(self)
            return
        batch, policy = enqueued.batch(), self.learners.find(self._policy)
        read = wanted, *map(_PLACE, enqueued.reads)

        def run() -> Result:
            if policy is None or isinstance(policy, str):
                result = self._recurring.run(batch, policy or self._default, read)
                if before is None:
                    self._recurring.took(perf_counter() - max(enqueued.began, self._ended))
            else:
                graph = batch.with_results(self._recurring.results(read)).graph()
                result = self.session.run(graph, policy, queues=self.queues, options=self.options)
                result = told(policy, result) if learns(policy) else result
            enqueued.read(self.session.buffers)
            return result if enqueued.decision is None else _explained(result, enqueued.decision)

        self.keep(run, enqueued)
        self._is_followed, self._ended = enqueued.is_followed, perf_counter()

    def refuse_while_preparing(self) -> None:
        """Raise LaunchError if the calling thread is preparing a graph of this queue."""
        if self.preparing and threading.get_ident() in self.preparing:
            raise LaunchError(
                "a graph is being prepared: results can be asked for when its `with` block has ended",
                hint="Queue.read and Queue.write enqueue copies that are part of the graph",
            )

    def _fail_all(self, error: BaseException) -> None:
        """Mark all submissions that were taken as failed, as what was enqueued before them has failed."""
        while self._taken:
            enqueued = self._taken[0]
            if enqueued.stream is not None:  # its commands have run
                with suppress(ManyclError):
                    enqueued.stream.end()
            self._lose(enqueued)
            self._taken.popleft()
            enqueued.ended(self, error=_as_told(error))

    def _lose(self, enqueued: Submission) -> None:
        """Mark contents as unknown that the commands would have written which no device was given."""
        for node in enqueued.batch().nodes:
            for key in node.writes:
                self.session.directory.lose(key, f"{node.name} did not run: what was enqueued before it has failed")

    def _leave(self) -> None:
        """Drop what is enqueued, as the queue closes: only commands that devices have already still end."""
        self.session.devices.refuse_host_functions()
        with self._running:
            with self.lock:
                left = [*self._taken, self.enqueued]
                self._taken.clear()
                self.enqueued = self.enqueued.take(self._always)
            for enqueued in left:
                if enqueued.stream is not None:
                    with suppress(ManyclError):
                        enqueued.stream.end()
                enqueued.ended(self, error=RunError("it did not run: its queue has been closed"))

    def begin_stream(self, first: DeviceTask) -> tuple[EagerStream, None] | tuple[None, Decision]:
        """Return a new eager stream; or None, and why commands are planned. ``first``: one like the first of them. The
        caller holds the lock."""
        if self._taken or self._failure is not None:
            return None, decide(Facts(need=Need.EARLIER))
        from manycl.run.streams.eager_stream import begun  # what runs is imported with the first queue

        decision = self._recurring.next(self._named, first)
        if decision.device is None:
            return None, decision
        if self._changes != self.session.devices.changes:
            for entry in self.launches.values():  # they refer to kernels of devices that are gone
                entry.retire()
            self.moves.clear()
            self.launches.clear()
            self._changes = self.session.devices.changes
        session = self.session
        if session.debug:
            return None, decide(Facts(need=Need.OBSERVED))
        found = begun(session.devices, session.data, not self._is_known, decision)
        return (None, decide(Facts(need=found))) if isinstance(found, Need) else (found, None)

    def _end_stream(self, enqueued: Submission, wanted: Place | None) -> EagerResult:
        """End the eager stream: wait for all that the device has been given. Raises what went wrong with it."""
        assert enqueued.stream is not None
        self._begin()
        is_joined, why = enqueued.stream.is_joined, enqueued.stream.why
        run = enqueued.stream.end(wanted)
        if run.error is not None:
            self._fail(run.error)
            raise anew(run.error)
        self._result = lambda: _explained(run.result, why)
        self._is_known = enqueued.stream.is_known
        log.debug("ran as they were enqueued: %d commands", len(run.given))
        self._is_followed = bool(enqueued.builder.nodes)
        if self._is_followed:
            self._recurring.was_planned_behind()
        elif not is_joined:
            self._follow(run, perf_counter() - enqueued.stream.batch.began)
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
        """Do a run and make it the last one, also when it fails (its trace shows how far it came), but not where it is
        refused. The events of its submission, if there is one, are notified."""
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
        """Note that a run begins."""
        is_followed, self._is_followed = self._is_followed, False
        self._past = (*self._past, self._result)[-FEW:] if is_followed and self._result is not None else ()
        self._result = self._trace = None


def _named(policy: str | Policy | Plan) -> str:
    """Return what a policy is called where it is said why commands were planned."""
    return policy if isinstance(policy, str) else f"{type(policy).__name__} (an object)"


def _explained(run: Result, decision: Decision) -> Result:
    """Return the result of a run that says why it was eager, or planned."""
    way = "planned" if decision.device is None else "eager"
    run.details.setdefault(SUBMITTED, [f"{way}: {decision.reason}"])
    return run


def _as_told(error: BaseException) -> ManyclError:
    return error if isinstance(error, ManyclError) else RunError(f"the run was stopped by {type(error).__name__}")
