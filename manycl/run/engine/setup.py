"""A problem becomes who plays it: its plan is asked for, its steps are made, and all that they need is there. Between
runs, or where one has stopped: nothing is under way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.model.estimates import Slowed
from manycl.plan.plan import Plan
from manycl.plan.policy import DynamicPolicy, StaticPolicy
from manycl.plan.problem import Problem
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.engine.asking_policies import Lowering, Policy, decided, plain
from manycl.run.engine.dynamic import Dynamic
from manycl.run.engine.playback import Playback
from manycl.run.lowering.lower import lower
from manycl.run.lowering.overwritten import Overwritten, brought_to_be_overwritten
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery.checkpoints import keeping
from manycl.run.stealing.player import MovingPlayer
from manycl.utilities.interrupts import interruptible
from manycl.utilities.logs import logger
from manycl.utilities.unforeseen import told

log = logger(__name__)


def _nothing(lowered: Lowered, playback: Playback) -> None:
    """For back ends that need no preparation."""


class Setup(NamedTuple):
    """What is done between deciding and running: ``lower`` gives the steps of a plan (None: of a policy that decides
    while the run goes on); ``prepare`` is called when it is known what will run on which devices
    (``playback.queues``), before time starts. ``rest``: the problem of a graph of the nodes that are left, where the
    rest of a run may be planned anew (None: it may not). ``mortal``: devices that may be lost, for which something is
    kept."""

    lower: Lowering = lower
    prepare: Callable[[Lowered, Playback], None] = _nothing
    rest: Callable[[Graph], Problem] | None = None
    mortal: Collection[DeviceIndex] = ()


PLAIN = Setup()


class Begun(NamedTuple):
    """What is to be played, and who plays it; the directory is open for its steps."""

    subject: Subject
    playback: Playback


def begin(problem: Problem, policy: Policy, directory: Directory, setup: Setup) -> Begun:
    """Plan a problem's graph. Raises what planning and lowering raise, and ``setup.prepare``; the directory is closed
    then."""
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
        kept = keeping(problem, lowered, plan, setup.mortal)
        subject = Subject(problem, lowered, directory.valid, overwritten, kept)
        playback = _player(subject, policy, plan, directory)
        setup.prepare(lowered, playback)
        if not playback.script.fits(directory):  # something made way
            full, playback = playback.full, _player(subject, policy, plan, directory)
            playback.full = full
    except BaseException:
        lowered.close(directory)
        raise
    return Begun(subject, playback)


class RestPlanner:
    """Plans what is left of a run, with the policy that has planned it."""

    def __init__(self, policy: StaticPolicy, directory: Directory, setup: Setup) -> None:
        self._policy, self._directory, self._setup = policy, directory, setup

    def begun(
        self,
        graph: Graph,
        away: Collection[DeviceIndex],
        lost: Collection[DeviceIndex],
        found: Mapping[DeviceIndex, float],
    ) -> Begun:
        """A graph of the nodes that are left, without the devices that are ``away``, some of which are ``lost``; those
        that were ``found`` to take longer do. What only devices that have left can run, runs there. Raises what happens
        where no device can run something."""
        assert self._setup.rest is not None
        problem = replace(self._setup.rest(graph), away=frozenset(away))
        if found:
            problem = replace(problem, estimates=Slowed(problem.estimates, found))
        try:
            return begin(problem, self._policy, self._directory, self._setup)
        except Exception as error:
            if not isinstance(error, ManyclError):
                told(error, "planning what is left of a run")
            log.warning("what is left of a run is not planned as before: %s", error)
            without = replace(problem, away=frozenset(lost))
            return begin(without, plain(without, str(error)), self._directory, self._setup)


def _player(
    subject: Subject, policy: StaticPolicy | DynamicPolicy | Plan, plan: Plan | None, directory: Directory
) -> Playback:
    """Who plays a plan, or what a policy decides while it goes on."""
    if plan is None:
        return Dynamic.of(subject, cast("DynamicPolicy", policy), directory)
    if subject.lowered.cells:
        return MovingPlayer.following(subject, plan, directory)
    return Playback(compiled(subject, plan), directory)
