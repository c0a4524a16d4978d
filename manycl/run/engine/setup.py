"""Setup of a run: ask for the plan of a problem, make its steps, prepare what they need, and return the playback. Done
between runs, or where one has stopped: no command is in flight."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple, cast

from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.plan.search.alternatives import following
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.asking_policies import Lowering, Policy, decided, plain
from manycl.run.engine.dynamic import Dynamic
from manycl.run.engine.playback import Playback
from manycl.run.engine.trial import FIRST, Trial
from manycl.run.lowering.lower import lower
from manycl.run.lowering.overwritten import Overwritten, brought_to_be_overwritten
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.checkpoints import NOTHING_KEPT, keeping
from manycl.run.recovery.device_events import EventMonitor
from manycl.run.stealing.player import MovingPlayer
from manycl.utilities.interrupts import interruptible
from manycl.utilities.logs import logger
from manycl.utilities.unforeseen import told

log = logger(__name__)


def _nothing(lowered: Lowered, playback: Playback) -> None:
    """Prepare nothing, for back ends that need no preparation."""


class Setup(NamedTuple):
    """The functions that are called between deciding and running. ``lower`` returns the steps of a plan (None: of a
    policy that decides at run time). ``prepare`` is called before time starts, when it is known what will run on which
    devices (``playback.queues``). ``rest`` returns the problem of a graph of the nodes that are left, where the rest of
    a run may be planned anew (None: it may not). ``mortal``: devices that may be lost, for which checkpoints or undo
    copies are kept. ``trial``: what the run is compared with, and its plan if that has been made."""

    lower: Lowering = lower
    prepare: Callable[[Lowered, Playback], None] = _nothing
    rest: Callable[[Graph], Problem] | None = None
    mortal: Collection[DeviceIndex] = ()
    trial: Trial = FIRST


PLAIN = Setup()


class Begun(NamedTuple):
    """A run that is ready to be played; the directory is open for its steps."""

    subject: Subject
    playback: Playback


def begin(problem: Problem, policy: Policy, directory: Directory, setup: Setup) -> Begun:
    """Plan a problem's graph and return the run. Raises what planning, lowering and ``setup.prepare`` raise; then the
    directory is closed."""
    with interruptible:
        plan, lowered = decided(problem, policy, directory, setup.lower, setup.trial.ahead)
        problem = following(problem, plan)
    if plan is not None:
        log.debug("plan: %r", plan)
    directory.open(lowered.cut, lowered.lies)
    try:
        overwritten = Overwritten(lowered, problem.graph, problem.repeated > 0)
        if problem.machine.memories > 1:
            with interruptible:
                where = problem.machine, directory.valid, problem.repeated > 0
                overwritten.ask(brought_to_be_overwritten(lowered, *where))
        kept = keeping(problem, lowered, plan, setup.mortal) if setup.mortal else NOTHING_KEPT
        subject = Subject(problem, lowered, directory.valid, overwritten, kept)
        playback = _player(subject, policy, plan, directory)
        setup.prepare(lowered, playback)
        if not playback.command_graph.fits(directory):  # preparing has evicted some buffers
            full, playback = playback.full, _player(subject, policy, plan, directory)
            playback.full = full
    except BaseException:
        directory.close(lowered.cut, lowered.joined, lowered.own)
        raise
    return Begun(subject, playback)


def begin_rest(
    policy: StaticPolicy, directory: Directory, setup: Setup, graph: Graph, watch: EventMonitor, follows: Plan | None
) -> Begun:
    """Plan the nodes that are left of a run, a graph of their own, with the policy that planned the run and for the
    devices that are there now, and return the run of them. ``follows``: a plan of them that is followed instead. What
    only devices that have left can run, runs there, unless they are lost. Raises where no device can."""
    assert setup.rest is not None
    problem, setup = replace(setup.rest(graph), away=watch.away), setup._replace(trial=FIRST)
    if watch.found:
        problem = replace(problem, estimates=Slowed(problem.estimates, watch.found))
    try:
        return begin(problem, policy if follows is None else follows, directory, setup)
    except Exception as error:
        if not isinstance(error, ManyclError):
            told(error, "planning what is left of a run")
        log.warning("what is left of a run is not planned as before: %s", error)
        without = replace(problem, away=frozenset(watch.lost))
        return begin(without, plain(without, str(error)), directory, setup)


def _player(
    subject: Subject, policy: StaticPolicy | DynamicPolicy | Plan, plan: Plan | None, directory: Directory
) -> Playback:
    """Return the playback of a plan, or of what a policy decides at run time."""
    if plan is None:
        player = MovingPlayer.asked if subject.lowered.chunks else Dynamic.of
        return player(subject, cast("DynamicPolicy", policy), directory)
    if subject.lowered.chunks:
        return MovingPlayer.following(subject, plan, directory)
    return Playback(compiled(subject, plan), directory)
