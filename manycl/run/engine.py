"""The one loop that acts: reports from the back end go to the player of a script, its commands go back out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

from manycl.errors import ManyclError, RunError
from manycl.graph.graph import Launch
from manycl.interrupts import interruptible
from manycl.logs import logger
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.awaited import Awaited
from manycl.run.backend import Backend, Command, Failed
from manycl.run.coherence import Directory
from manycl.run.compiler import compiled
from manycl.run.dynamic import Dynamic
from manycl.run.emit_copies import Subject
from manycl.run.lower import lower
from manycl.run.moving import Moving
from manycl.run.observers import Observer
from manycl.run.overwritten import Overwritten, brought_to_be_overwritten
from manycl.run.planning import Lowering, careful, decided
from manycl.run.playback import Playback
from manycl.run.result import Result
from manycl.run.script import Script
from manycl.run.steps import Lowered
from manycl.trace import FailureEvent, Trace

log = logger(__name__)


class RunFailure(RunError):
    """A run that failed; ``result`` and its ``trace`` have what was done before and the failure itself."""

    def __init__(self, message: str, result: Result, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.result = result

    @property
    def trace(self) -> Trace:
        return self.result.trace


def _nothing(lowered: Lowered, playback: Playback) -> None:
    """For back ends that need no preparation."""


class Setup(NamedTuple):
    """What is done between deciding and running: ``lower`` gives the steps of a plan (None: of a policy that decides
    while the run goes on); ``prepare`` is called when it is known what will run on which devices
    (``playback.queues``), before time starts."""

    lower: Lowering = lower
    prepare: Callable[[Lowered, Playback], None] = _nothing


PLAIN = Setup()


def execute(
    problem: Problem,
    policy: StaticPolicy | DynamicPolicy | Plan,
    backend: Backend,
    directory: Directory,
    *,
    name: str = "",
    setup: Setup = PLAIN,
    observers: Sequence[Observer] = (),
) -> Result:
    """Run a problem's graph to its end on a back end. ``name``: of the policy. Raises :class:`RunFailure` when a node
    fails; whatever happens, nothing is left running."""
    policy = careful(policy)
    with interruptible:
        plan, lowered = decided(problem, policy, directory, setup.lower)
    if plan is not None:
        log.debug("plan: %r", plan)
    lowered.open(directory)
    try:
        overwritten = Overwritten(lowered, problem.graph, problem.repeated > 0)
        if problem.machine.memories > 1:
            with interruptible:
                where = problem.machine, directory.valid, problem.repeated > 0
                overwritten.ask(brought_to_be_overwritten(lowered, *where))
        subject = Subject(problem, lowered, directory.valid, overwritten)
        playback = _player(subject, policy, plan, directory)
        setup.prepare(lowered, playback)
        if not playback.script.fits(directory):  # something made way
            playback = _player(subject, policy, plan, directory)
        return _play(playback, backend, name, observers)
    finally:
        lowered.close(directory)


def again(
    script: Script,
    backend: Backend,
    directory: Directory,
    *,
    name: str = "",
    setup: Setup = PLAIN,
    observers: Sequence[Observer] = (),
) -> Result | None:
    """Play a script; None if buffers are not where it needs them. The rest: as ``execute``."""

    def play(playback: Playback) -> Result | None:
        setup.prepare(script.lowered, playback)
        return _play(playback, backend, name, observers) if script.fits(directory) else None

    return fitting(script, directory, play)


def fitting(script: Script, directory: Directory, play: Callable[[Playback], Result | None]) -> Result | None:
    """What ``play`` makes of a script; None if buffers are not where it needs them."""
    script.lowered.open(directory)
    try:
        return play(Playback(script, directory)) if script.fits(directory) else None
    finally:
        script.lowered.close(directory)


def _player(
    subject: Subject, policy: StaticPolicy | DynamicPolicy | Plan, plan: Plan | None, directory: Directory
) -> Playback:
    """Who plays a plan, or what a policy decides while it goes on."""
    if plan is None:
        return Dynamic.of(subject, cast("DynamicPolicy", policy), directory)
    if subject.lowered.cells:
        return Moving.following(subject, plan, directory)
    return Playback(compiled(subject, plan), directory)


def _play(playback: Playback, backend: Backend, name: str, observers: Sequence[Observer]) -> Result:
    problem, graph = playback.script.problem, playback.graph
    run = backend.begin(graph, playback.queues)
    awaited = Awaited()

    def issue(commands: list[Command]) -> None:
        if commands:
            for observer in observers:
                observer.issued(playback, commands, backend.now())
            backend.perform(commands)
            awaited.given(commands)

    for observer in observers:
        observer.begun(playback, name, backend.now())
    try:
        issue(playback.start(backend.now()))
        if not playback.finished:
            issue(playback.handle())
        while not playback.finished:
            awaited.check(playback)
            with interruptible:
                reports = [report for report in backend.wait() if report.run == run]
            awaited.heard(reports)
            for observer in observers:
                observer.heard(playback, reports, backend.now())
            issue(playback.handle(*reports))
            if playback.failed is not None:
                break
            for observer in observers:
                observer.advanced(playback, backend.now())
        seconds = backend.now()
        record = backend.abort() if playback.failed else backend.finish()
        if record.failed_transfer is not None:
            playback.fail(record.failed_transfer)
        if record.failure is not None and (playback.failed is None or record.failure.token < playback.failed.token):
            playback.fail(record.failure)  # nobody waited for it, or what waited for it has failed, too
        for observer in observers:
            observer.ended(playback, seconds)
    except BaseException as error:
        playback.lose(f"the run was stopped by {type(error).__name__}")
        backend.abort()
        raise
    result = Result(
        graph=problem.graph,
        machine=problem.machine,
        policy=name,
        seconds=seconds,
        record=record,
        decisions=tuple(playback.decisions),
        plan=playback.plan(name),
        lowered=playback.ran,
        playback=playback,
    )
    if playback.failed is not None:
        raise failure(playback, playback.failed, result)
    return result


def failure(playback: Playback, failed: Failed, result: Result) -> ManyclError:
    """Tell the story: which kernel, where, with which sizes, and what was done before."""
    graph, machine = playback.graph, result.machine
    assert result.lowered is not None
    number = result.lowered.step(failed.token).node if failed.token < len(graph) else -1
    device, node, what = playback.where(failed.token, number)
    on = machine.devices[device].name if device != ON_HOST else "host"
    sizes = ""
    if node is not None and isinstance(task := graph.nodes[node], Launch):
        sizes = f" with NDRange {task.global_size}, work-groups {task.local_size or 'chosen by the driver'}"
    playback.lose(f"{what} failed on {on}")
    event = FailureEvent(failed.time, number, what, on, failed.message)
    result = replace(result, failures=(event,))
    kernels = sum(1 for _ in result.trace.kernels())
    message = (
        f"{what} failed on {on}{sizes}: {failed.message}\n"
        f"  done before: {playback.complete} of {len(graph.nodes)} nodes ({kernels} kernels ended on the devices)"
    )
    return RunFailure(message, result, hint="arrays that unfinished kernels write have unknown contents now")
