"""Prepared graphs: a prepared graph runs again and again. It is planned a few times, then played; or planned anew
whenever its policy has learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manycl.errors import ManyclError
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.plan.policy import LearningPolicy, Policy, learns
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.flow_control import at_once
from manycl.run.engine.asking_policies import asked
from manycl.run.engine.engine import RunFailure
from manycl.run.engine.result import Result
from manycl.run.graph_cache.autotuner import SECOND_THOUGHTS, Autotuner
from manycl.run.graph_cache.background_analysis import Interest
from manycl.run.graph_cache.learners import Learners, told
from manycl.run.session.session import Session

SCRIPTS = 8
"""The number of command graphs kept of plans, for different places of buffers at the start."""


class PreparedGraph:
    """A graph that is prepared to run repeatedly. ``plan`` is kept after a few runs, each planned anew (a plan that was
    given is kept at once). Where there are several memories, and so more is learned, the policy is asked again later
    (``run/graph_cache/autotuner.py``). A policy that learns (``adaptive``) gets the times of every run, and is asked
    again when it would plan otherwise.

    The kept plan's command graph is kept, and played again without deciding anything.
    """

    def __init__(
        self,
        session: Session,
        graph: Graph,
        policy: str | Policy | Plan | None = None,
        *,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.session = session
        self.graph = graph
        given = policy if isinstance(policy, Plan) else None
        self._given = given
        self._interest, self._is_looked_at = Interest(), False
        self._begin()
        policy = Learners().find(policy, options)
        self._learner = policy if learns(policy) else None
        self._run: Callable[[Any], Result] = lambda chosen: session.run(
            graph,
            chosen if chosen is not None else policy,
            queues=queues,
            options=options,
            repeated=self._trials.planned + 1,
            rival=self._trials.rival,
            learning=not isinstance(chosen, Plan) or self._learner is not None,
        )

    def _begin(self) -> None:
        """Begin tuning anew, for the devices that there are."""
        self._devices, self._changes = self._there, self.session.changes
        self._trials = Autotuner(self._given, thoughts=SECOND_THOUGHTS if self.session.machine.memories > 1 else ())
        self._learned = self._given  # the learning policy's plan
        self._scripts: list[CommandGraph] = []

    @property
    def _there(self) -> tuple[tuple[str, ...], frozenset[DeviceIndex]]:
        return self.session.present, self.session.demanded

    @property
    def plan(self) -> Plan | None:
        """The kept plan (None: none yet)."""
        return self._learned if self._learner is not None else self._trials.kept

    def run(self) -> Result:
        """Run on the buffers' present contents. Raises what a run raises."""
        while True:
            if self._devices != self._there or not self._is_for_present():
                self._begin()  # a device was left out, has left or returned, or another process has asked for one
            elif self.session.demanded:
                self._look()
            changes = self.session.changes
            try:
                return self._once()
            except RunFailure:
                raise
            except ManyclError:
                if self._given is not None or self.session.changes == changes or not self.session.machine.devices:
                    raise  # otherwise a device was found lost before anything had begun

    def _is_for_present(self) -> bool:
        """Return whether the next plan is for the present devices. A plan that was made as a run began may be for
        fewer, if a device was lost then and is there again."""
        if self._changes == self.session.changes:
            return True
        self._changes = self.session.changes
        plan = self._learned if self._learner is not None else self._trials.plan
        names = tuple(d.name for d in self.session.machine.devices)
        return plan is None or plan is self._given or plan.devices == names

    def _once(self) -> Result:
        if self._learner is not None:
            return self._learning(self._learner)
        plan = self._trials.plan
        if plan is None:
            result = self._run(None)
            self._trials.answered(result.seconds, result.settled)
        else:
            result = self._follow(plan)
            self._trials.repeated(result.seconds)
        return result

    def _look(self) -> None:
        """Analyse in the background how launches may be divided, as other processes ask for devices; then begin
        anew."""
        session, interest = self.session, self._interest
        if not interest.is_done:
            interest.price = 0.0
            session.models.looking.ran(interest, 0.0, len(session.machine.devices), lambda: self.graph)
        elif not self._is_looked_at:
            self._is_looked_at = True
            self._begin()

    def _learning(self, policy: LearningPolicy) -> Result:
        if not asked(policy, "learning", lambda: policy.settled(self.graph), lambda: True):
            self._learned = None
        if self._learned is None:
            result = self._run(None)
            self._learned = result.plan
        else:  # data are now where this plan needs them
            result = self._follow(self._learned)
        return told(policy, result)

    def _follow(self, plan: Plan) -> Result:
        """Run a plan: without deciding anything, if there is a command graph that begins with buffers where they are
        now."""
        for script in self._scripts:
            if script.plan is plan:
                result = self.session.again(script, learning=self._learner is not None)
                if result is not None:
                    return result
        result = self._run(plan)
        # a command graph is enqueued at once: if the run is long, Ctrl-C would have to wait for it
        found = result.script
        if found is not None and result.seconds <= at_once(found.problem):
            self._scripts = [found, *self._scripts[: SCRIPTS - 1]]
        return result
