"""The one loop that acts: reports of the back end go to the playback of a command graph, its commands back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from manycl import flags
from manycl.errors import ManyclError, RunError
from manycl.graph.graph import Graph, Launch
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy, is_static, learns
from manycl.plan.problem import Problem
from manycl.plan.tuning import PLANNING
from manycl.run.commands.backend import Backend, Command, Evict, Failed, HostCall, Record, Report
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.asking_policies import careful
from manycl.run.engine.observers import Observer
from manycl.run.engine.playback import Changed, Playback, leave
from manycl.run.engine.result import Result
from manycl.run.engine.run_history import RunHistory
from manycl.run.engine.setup import PLAIN, Begun, Setup, begin, begin_rest
from manycl.run.engine.trial import Fallback, TrialProgress, part_of
from manycl.run.lowering.overwritten import Overwritten
from manycl.run.recovery.device_events import EventMonitor
from manycl.run.recovery.history import Stopped
from manycl.run.recovery.idempotence import repeatable
from manycl.run.recovery.lineage import Unrecoverable, rest_of
from manycl.run.recovery.replanning import Outlook, buffer_names, graph_of, is_whole, not_begun, rescheduled
from manycl.run.recovery.stragglers import StragglerDetection
from manycl.run.stealing.player import MovingPlayer
from manycl.trace import FailureEvent, Trace
from manycl.utilities.interrupts import interruptible
from manycl.utilities.logs import logger
from manycl.utilities.unforeseen import told

log = logger(__name__)


CRASHED = "what ends a device's process is not run again on another one"


class RunFailure(RunError):
    """The error of a run that failed. ``result`` and its ``trace`` have what was done before and the failure itself."""

    def __init__(self, message: str, result: Result, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.result = result

    @property
    def trace(self) -> Trace:
        return self.result.trace


def execute(
    problem: Problem,
    policy: StaticPolicy | DynamicPolicy | Plan,
    backend: Backend,
    directory: Directory,
    *,
    name: str = "",
    setup: Setup = PLAIN,
    observers: Sequence[Observer] = (),
    watch: EventMonitor | None = None,
) -> Result:
    """Run a problem's graph to its end on a back end. ``name``: the policy's; ``watch``: the monitor of devices that
    leave and come. Raises :class:`RunFailure` when a node fails; whatever happens, nothing is left running."""
    policy = careful(policy)
    begun = begin(problem, policy, directory, setup)
    rest = None
    if setup.rest is not None and not isinstance(policy, Plan) and is_static(policy) and not learns(policy):
        rest = partial(begin_rest, policy, directory, setup)
    fallback, followed = setup.trial.fallback, begun.subject.lowered.plan
    if fallback is not None and followed is not None and fallback.plan.in_units != followed.in_units:
        fallback = None  # it has other nodes
    return _Play(*begun, backend, name, observers, watch, rest, fallback).closed(directory)


def again(
    command_graph: CommandGraph,
    backend: Backend,
    directory: Directory,
    *,
    setup: Setup = PLAIN,
    observers: Sequence[Observer] = (),
    watch: EventMonitor | None = None,
    shortest: Callable[[Playback], Result | None] | None = None,
) -> Result | None:
    """Play a command graph compiled before. Return None if buffers are not where it needs them. ``shortest``: plays it
    in a shorter way than command by command, or returns None. For the rest, see ``execute``."""
    directory.open(command_graph.lowered.cut, command_graph.lowered.lies)
    try:
        if not command_graph.fits(directory):
            return None
        playback = Playback(command_graph, directory)
        if setup is not PLAIN:
            setup.prepare(command_graph.lowered, playback)
            if not command_graph.fits(directory):
                return None
        result = shortest(playback) if shortest is not None else None
        if result is None:
            subject = Subject(command_graph.problem, command_graph.lowered, directory.valid)
            result = _Play(subject, playback, backend, command_graph.plan.policy, observers, watch).result()
        return result
    finally:
        directory.close(command_graph.lowered.cut, command_graph.lowered.joined, command_graph.lowered.own)


def moved_again(
    subject: Subject,
    plan: Plan,
    backend: Backend,
    directory: Directory,
    observers: Sequence[Observer],
    watch: EventMonitor,
) -> Result:
    """Follow a plan whose launches may move, from steps made before; where ``subject`` says, buffers are. For the rest,
    see ``execute``."""
    directory.open(subject.lowered.cut, subject.lowered.lies)
    playback = MovingPlayer.following(subject, plan, directory)
    return _Play(subject, playback, backend, plan.policy, observers, watch).closed(directory)


def resumed(subject: Subject, playback: Playback, backend: Backend, name: str, watch: EventMonitor | None) -> Result:
    """Resume a run that was played elsewhere and has failed, without the devices that are lost. The run may end with
    that failure. The other arguments are those of ``execute``."""
    return _Play(subject, playback, backend, name, (), watch).result(has_failed=True)


class Liveness:
    """The commands in flight whose reports are still to come: the engine waits only while there are some."""

    def __init__(self) -> None:
        self._due: dict[int, DeviceIndex] = {}  # with their devices

    def issued(self, commands: Sequence[Command]) -> None:
        """Note commands that were given to devices."""
        for command in commands:
            if isinstance(command, HostCall):
                self._due[command.token] = ON_HOST
            elif not isinstance(command, Evict) and command.notify:
                self._due[command.token] = command.device

    def heard(self, reports: Sequence[Report]) -> None:
        """Note reports of commands."""
        for report in reports:
            self._due.pop(report.token, None)

    def is_over_on(self, devices: Collection[DeviceIndex]) -> bool:
        """Return whether all of those of some devices have been reported, or all others."""
        return not {*devices}.intersection(self._due.values()) or {*self._due.values()}.issubset(devices)

    @property
    def is_over(self) -> bool:
        """True if all of them have been reported."""
        return not self._due

    def check(self, playback: Playback) -> None:
        """Raise RunError where a wait would never end: no command in flight will be reported."""
        if not self._due:
            raise RunError(
                f"manycl itself is at fault: the run is not complete, but nothing is under way. {playback.held_up()}",
                hint="please report this, with what MANYCL_DEBUG=4 prints; another policy may run it",
            )


class _Play:
    """A run, which may be stopped and resumed. ``rest`` plans what is left of it then, as ``begin_rest`` does (None:
    nothing is planned anew). ``fallback``: what is left follows it if it is faster than the plan of the run."""

    def __init__(
        self,
        subject: Subject,
        playback: Playback,
        backend: Backend,
        name: str,
        observers: Sequence[Observer],
        watch: EventMonitor | None,
        rest: Callable[[Graph, EventMonitor, Plan | None], Begun] | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        self._subject, self._playback, self._backend = subject, playback, backend
        self._name, self._observers, self._watch = name, observers, watch
        self._history = RunHistory(subject.problem.graph)
        self._why = ""  # the reason why the run cannot go on without a lost device
        self._rest, self._fallback = rest, fallback
        self._is_given_up = False  # whether what has not begun follows the fallback
        self._slowdowns: Mapping[DeviceIndex, float] = {}  # of devices then
        self._postponed: tuple[int, ...] = ()  # nodes that are planned when what was begun has run
        self._changed = ""  # the event for which the run was stopped
        self._is_open = True  # whether the directory is open for the present steps

    def closed(self, directory: Directory) -> Result:
        """Return the result. In any case the directory describes buffers again, not pieces of steps."""
        try:
            return self.result()
        finally:
            if self._is_open:
                directory.close(self._subject.lowered.cut, self._subject.lowered.joined, self._subject.lowered.own)

    def result(self, has_failed: bool = False) -> Result:
        """Play to the end and return the result. ``has_failed``: the playback has already failed."""
        for observer in self._observers:
            observer.begun(self._playback, self._name, 0.0)
        while True:
            try:
                if not has_failed:
                    self._until_it_stops()
                has_failed = False
                found = self._ended()
            except BaseException as error:
                if self._is_open:
                    self._playback.lose(f"the run was stopped by {type(error).__name__}")
                self._backend.abort()
                raise
            if found is not None:
                break
        if self._playback.failed is not None:
            raise failure(self._playback, self._playback.failed, found, self._why, self._history.first)
        return found

    def _until_it_stops(self) -> None:
        """Play until all is complete, something has failed, or the run has to be stopped and decided anew."""
        playback, backend, watch = self._playback, self._backend, self._watch
        awaited, lag = Liveness(), self._lag()
        trial = None
        if lag is not None and self._fallback is not None and not self._history.was_stopped:
            trial = TrialProgress(self._fallback, playback.command_graph)
        run = backend.begin(playback.graph, playback.queues, self._history.was_stopped)
        issue = self._issuing(awaited)
        issue(playback.start(backend.now()))
        if not playback.finished:
            issue(playback.handle())
        while not playback.finished:
            if watch is not None and (news := watch.news()) and playback.command_graph.lowered.room is None:
                commands = playback.react(news, backend.now())
                if commands is None or self._is_planned_anew(news):
                    self._changed = watch.told(news)
                    return
                issue(commands)
            if playback.is_paused and watch is not None and awaited.is_over:
                watch.look(playback)
                with interruptible:
                    watch.wait()
                continue
            awaited.check(playback)
            alarm = playback.alarm
            with interruptible:
                reports = [report for report in backend.wait(alarm) if report.run == run]
            if alarm is not None and not reports and backend.now() >= alarm:
                issue(playback.late(backend.now()))
            awaited.heard(reports)
            for observer in self._observers:
                observer.heard(playback, reports, backend.now())
            issue(playback.handle(*reports))
            if playback.failed is not None:
                return
            for observer in self._observers:
                observer.advanced(playback, backend.now())
            if watch is not None:
                watch.look(playback)
            if lag is not None and not playback.frozen:
                playback.frozen = self._lagging(lag, reports)
            if playback.frozen and awaited.is_over_on(playback.frozen):
                return
            if trial is not None and not playback.finished and trial.is_losing(reports, backend.now()):
                self._is_given_up, self._slowdowns = True, trial.slowdowns
                self._changed = f"it would take {trial.ratio:.3g} times as long as by the fastest plan so far"
                return

    def _issuing(self, awaited: Liveness) -> Callable[[list[Command]], None]:
        """Return the function that gives commands to devices, and makes launches end early. Packets may be begun anew
        from now on."""
        playback, backend = self._playback, self._backend
        if isinstance(playback, MovingPlayer) and playback.drops:
            playback.restarts(repeatable(self._subject.problem, self._subject.lowered))

        def give(commands: list[Command]) -> None:
            if commands:
                awaited.issued(commands)
                for observer in self._observers:
                    observer.issued(playback, commands, backend.now())
                backend.perform(commands)

        def issue(commands: list[Command]) -> None:
            give(commands)
            while shortening := playback.shortening():
                for command in shortening:
                    give(playback.shortened(command, backend.shorten(command), backend.now()))

        return issue

    def _is_planned_anew(self, news: Sequence[Changed]) -> bool:
        """Return whether a run that could go on as it is, is stopped for devices that have come or become slower."""
        playback, watch = self._playback, self._watch
        if watch is None or not self._may_replan or not any(event.comes or event.factor for event in news):
            return False
        return bool(self._foreseen(lambda outlook: outlook.gain(playback), watch.slower))

    @property
    def _may_replan(self) -> bool:
        return self._rest is not None and self._playback.is_fixed

    def _lag(self) -> StragglerDetection | None:
        """Return the detection of devices that have become slower, if the rest could be planned anew for it."""
        if self._watch is None or not self._may_replan:
            return None
        is_strict = flags.deterministic() if self._subject.problem.repeated else flags.strict()
        lag = StragglerDetection(self._subject, self._playback, self._backend.took, self._watch.found, is_strict)
        return lag if lag.is_possible else None

    def _lagging(self, lag: StragglerDetection, reports: Sequence[Report]) -> Collection[DeviceIndex]:
        """Return the devices that the run's own kernels show to be slower, or faster again, if the run is stopped for
        that. It is when these have ended what they were given: the others go on until then."""
        playback, watch = self._playback, self._watch
        if playback.finished or watch is None or not (found := lag.heard(reports)):
            return ()
        gain = self._foreseen(lambda outlook: outlook.gain(playback), {**watch.slower, **found})
        if gain < PLANNING.gain:
            lag.refused()
            return ()
        watch.find(found)
        self._changed = lag.told(found, gain)
        return lag.lagging

    def _foreseen(self, ask: Callable[[Outlook], float], slower: Mapping[DeviceIndex, float]) -> float:
        """Return the predicted gain of planning anew, as ``ask`` gives it; 0 where the prediction fails."""
        assert self._watch is not None
        try:
            return ask(Outlook(self._subject, self._watch.away, slower))
        except Exception as error:
            told(error, "finding out whether to plan anew what is left of a run")
            return 0.0

    def _ended(self) -> Result | None:
        """Return the result of the run; None where it goes on."""
        playback, backend = self._playback, self._backend
        stopped = not playback.finished and playback.failed is None
        seconds = backend.now()
        record = backend.abort() if playback.failed else backend.finish()
        failed = record.failure or record.failed_transfer
        if failed is None and stopped:
            self._go_on(record, None)
            return None
        if (playback.failed or failed) is not None and self._without(record):
            return None
        if self._postponed and (playback.failed or failed) is None:
            self._plan_rest(record)
            return None
        if record.failed_transfer is not None:
            playback.fail(record.failed_transfer)
        if record.failure is not None and (playback.failed is None or record.failure.token < playback.failed.token):
            playback.fail(record.failure)  # no command waited for it, or one that did has failed, too
        for observer in self._observers:
            observer.ended(playback, seconds)
        history, machine = self._history, playback.command_graph.problem.machine
        lost = {machine.devices[d].name: why for d, why in self._watch.lost.items()} if self._watch else {}
        return Result(
            graph=history.graph,
            machine=machine,
            policy=self._name,
            seconds=history.seconds(record, seconds),
            record=history.record(record),
            decisions=tuple(playback.decisions),
            plan=history.plan or playback.plan(self._name),
            lowered=history.steps(playback.ran),
            playback=playback,
            lost=lost,
            details=history.details,
        )

    def _without(self, record: Record) -> bool:
        """Return whether a failure is due to lost devices, and the run goes on without them."""
        playback, backend, watch = self._playback, self._backend, self._watch
        if watch is None or playback.command_graph.lowered.room is not None:
            return False
        found = [f for f in (playback.failed, record.failure, record.failed_transfer) if f is not None]
        where = {playback.where(f.token, -1)[0] for f in found}
        if ON_HOST in where:
            return False
        # (a device that runs nothing may hold contents that are needed)
        devices = playback.command_graph.problem.machine.indices
        used = [d for d in devices if (playback.queues[d] or d in where) and d not in watch.lost]
        with interruptible:
            lost = {d: reason for d in used if (reason := backend.lost(d))}
        left = set(devices) - lost.keys() - watch.away
        if not where <= lost.keys() or not left:
            return False
        watch.lost |= lost
        self._changed = ", ".join(f"{playback.command_graph.problem.machine.devices[d].name} was lost" for d in lost)
        if any(backend.has_crashed(d) for d in lost):
            self._why = CRASHED
            return False
        try:
            self._go_on(record, found)
        except Unrecoverable as error:
            self._why = f"it cannot go on without: {buffer_names(error.keys, self._subject)}: {error.reason}"
            return False
        names = ", ".join(playback.command_graph.problem.machine.devices[d].name for d in lost)
        log.warning("%s does not work any more; the run goes on without", names)
        return True

    def _go_on(self, record: Record, failed: Sequence[Failed] | None) -> None:
        """Decide anew what is left of the run. Raises Unrecoverable."""
        subject, playback, watch, backend = self._subject, self._playback, self._watch, self._backend
        assert watch is not None
        lost, directory = watch.lost.keys(), playback.directory
        begun: Set[int] = frozenset()
        if failed is None:  # all that was given has ended
            tokens = {command.token for command, _ in playback.given if not isinstance(command, Evict)}
            stopped = Stopped(tokens, tokens, lost=lost)
        else:
            unsound = playback.unsound(failed)
            ended, begun = backend.ends({f.token for f in failed})
            if all(backend.is_cut_off(d) for d in lost):
                unsound -= ended  # nothing has run after the commands that were lost
            stopped = Stopped(ended, begun, unsound, lost)
        overwritten = Overwritten(subject.lowered, subject.problem.graph, repeated=True, questions=0)
        repeats = repeatable(subject.problem, subject.lowered)
        history = playback.history(stopped)
        rest = rest_of(history, repeats, overwritten.find)
        leave(rest.valid, directory)
        for key in rest.lost:
            directory.lose(key, "they were only on a device that has failed")
        watch.look()
        postponed: tuple[int, ...] = ()
        plans = self._rest is not None and not watch.is_deserted
        if plans and (self._postponed or playback.is_fixed):
            postponed = not_begun(subject.lowered, rest.done | {t for t in begun if t < len(playback.graph)})
            is_known = directory.lost.keys().isdisjoint(subject.lowered.graph.buffers)
            is_possible = bool(postponed) and is_known and is_whole(rest, history)
            is_worth = self._is_given_up or self._foreseen(lambda outlook: outlook.is_worth(postponed), watch.slower)
            postponed = postponed if is_possible and is_worth else ()
        self._is_given_up &= bool(postponed)
        later = frozenset(t for t in range(len(playback.graph)) if subject.lowered.step(t).node in {*postponed})
        slower = {**watch.slower, **self._slowdowns} if self._is_given_up else watch.slower
        now = rescheduled(subject, playback, rest, watch.away, lost, slower, later)
        now[1].awaits(watch.returning)
        if rest.restored:
            backend.restore(playback.graph, rest.restored)
        nodes = range(len(playback.graph.nodes))
        void = frozenset(n for n in nodes if n not in rest.done)
        self._subject, self._playback, self._postponed = *now, postponed
        if postponed and len(rest.done) + len(later) == len(nodes):
            self._plan_rest(record, void)
        else:
            self._history.stopped(record, void)
            if not postponed and failed is None:
                self._history.tell(self._changed, 0, backend.now())

    def _plan_rest(self, record: Record, void: Collection[int] = ()) -> None:
        """Plan the rest for the devices that there are now, as all that was begun has run. Raises what planning raises;
        all that has run counts."""
        playback, watch, rest = self._playback, self._watch, self._rest
        assert watch is not None
        assert rest is not None
        self._history.stopped(record, void)
        nodes, self._postponed = self._postponed, ()
        lowered = self._subject.lowered
        playback.directory.close(lowered.cut, lowered.joined, lowered.own)
        self._is_open = False
        watch.look()
        watch.planned()
        follows = part_of(self._fallback.plan, nodes) if self._fallback is not None and self._is_given_up else None
        self._is_given_up = False
        self._subject, self._playback = rest(graph_of(playback.command_graph.problem.graph, nodes), watch, follows)
        self._is_open = True
        self._history.replaced(playback.ran, playback.plan(self._name), nodes)
        self._history.tell(self._changed, len(nodes), self._backend.now())
        log.info("%s: %d nodes that had not begun are planned anew", self._changed, len(nodes))


def failure(playback: Playback, failed: Failed, result: Result, why: str = "", first: int = 0) -> ManyclError:
    """Return the error that tells which kernel failed, where, with which sizes, what was done before, and ``why`` no
    other device goes on. ``first``: the number of steps before those of the playback."""
    graph, machine = playback.graph, result.machine
    assert result.lowered is not None
    number = result.lowered.step(first + failed.token).node if failed.token < len(graph) else -1
    device, node, what = playback.where(failed.token, number)
    on = machine.devices[device].name if device != ON_HOST else "host"
    sizes = ""
    if node is not None and isinstance(task := graph.nodes[node], Launch):
        sizes = f" with NDRange {task.global_size}, work-groups {task.local_size or 'chosen by the driver'}"
    lost = buffer_names(playback.lose(f"{what} failed on {on}"), playback.command_graph)
    event = FailureEvent(failed.time, number, what, on, failed.message)
    result = replace(result, failures=(event,))
    kernels = sum(1 for _ in result.trace.kernels())
    message = (
        f"{what} failed on {on}{sizes}: {failed.message}\n"
        f"  done before: {playback.complete} of {len(graph.nodes)} nodes ({kernels} kernels ended on the devices)"
        + (f"\n  {why}" if why else "")
    )
    hint = "arrays that unfinished kernels write have unknown contents now" + (f": {lost}" if lost else "")
    return RunFailure(message, result, hint=hint)
