"""A cached graph runs again and again: it is planned a few times, then the plan that ran fastest is kept, and its
commands are played. A graph that was prepared (``Queue.prepare``) is one; graphs that a queue recognises are others
(:mod:`manycl.run.graph_cache.recurring_graph`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from time import perf_counter

from manycl import flags
from manycl.errors import PolicyError
from manycl.graph.dependences import Batch, with_results
from manycl.graph.graph import BufferKey, Graph, Node, results_of
from manycl.graph.rename import renamed
from manycl.graph.signature import Signature
from manycl.plan.plan import Plan
from manycl.plan.policies import own_name
from manycl.plan.policy import Policy, find, learns
from manycl.plan.tuning import PLANNING
from manycl.run.commands.flow_control import at_once
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.engine.asking_policies import asked
from manycl.run.engine.compile_time import without
from manycl.run.engine.result import Result
from manycl.run.engine.trial import Fallback, Trial
from manycl.run.graph_cache.autotuner import PLANNED_RUNS, TRIAL_SHARE, Autotuner, TrialBudget
from manycl.run.graph_cache.background_analysis import Interest
from manycl.run.graph_cache.kept_commands import KeptCommands, KeptShares
from manycl.run.graph_cache.learners import Learners, told
from manycl.run.lowering.steps import first_reads
from manycl.run.session.problem_builder import RunRequest
from manycl.run.session.session import Session
from manycl.run.streams.eager_rule import gains_nothing
from manycl.utilities.kept import FEW, PLANS


class CachedGraph:
    """A graph that runs repeatedly. ``plan`` is the one that ran fastest so far; one that was given is kept at once.
    Where there are several memories, and so more is learned, the policy is asked again later
    (``run/graph_cache/autotuner.py``). A policy that learns (``adaptive``) gets the times of every run, and is asked
    again when it would plan otherwise. The kept plan's command graphs are kept, and played again without deciding
    anything."""

    def __init__(
        self,
        session: Session,
        graph: Graph | None,
        policy: str | Policy | Plan | None = None,
        *,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
        is_asked: bool | None = None,
        free: int = PLANNED_RUNS,
    ) -> None:
        self.session = session
        self.graph = graph
        self._whole = graph  # without results
        self.nodes = 0 if graph is None else len(graph)
        # buffers, by place, that the host read behind all runs
        self._read: frozenset[int] | None = None
        self.ran_on: tuple[BufferKey, ...] = ()
        """The buffers of the last run, in the order of their places, where it is to be noted which of them are read."""
        self._given = policy if isinstance(policy, Plan) else None
        self._policy = found = Learners().find(policy, options)
        self._learner = found if learns(found) else None
        self._queues, self._options = queues, options
        self._is_asked, self._free = is_asked, free
        self.budget = TrialBudget()
        self._arranged: dict[tuple[tuple[BufferKey, BufferKey], ...], tuple[CachedGraph, Graph, Signature]] = {}
        self.interest, self.is_looked_at = Interest(), False
        self.given: Set[BufferKey] = frozenset()
        """Large buffers that had got a caller's contents before the last run."""
        self._devices = session.devices.events.version
        self._there = session.devices.present, session.devices.demanded
        self._was_other = False  # whether the last run was of a plan that is compared with the kept one
        self.ran: float | None = None
        """Seconds of the last run without planning, compiling and reading its results, if it was planned or
        compiled anew; None: the kept commands were played."""
        self._begin(self._given)

    def _begin(self, given: Plan | None = None, former: Fallback | None = None) -> None:
        """Begin tuning anew, for the devices that there are. ``given``: the plan to keep; ``former``: that to follow
        until another one is faster."""
        is_asked, free = self._is_asked, self._free
        if is_asked is None:
            is_asked = self.session.machine.memories > 1
        if self._learner is not None or {"objective", "deadline"} & {*(self._options or ())}:
            # it says itself when it is to be asked again; the fastest plan may not be the best one
            is_asked, free = False, 1
        self._tuner = Autotuner(given, self.budget, is_asked=is_asked, free=free, former=former)
        self._commands: list[KeptCommands | KeptShares] = [] if former is None else self._commands
        self._is_asked_ahead = False  # whether that has begun

    @property
    def plan(self) -> Plan | None:
        """The kept plan (None: none yet)."""
        return self._tuner.kept

    is_lasting = True
    """Whether its buffers exist as long as it does."""

    @property
    def is_repeated(self) -> bool:
        """True if policies are told that the graph runs repeatedly."""
        return True

    @property
    def measured_runs(self) -> int:
        """The number of runs, at least, by which it is known how long its kernels take."""
        return self._tuner.planned

    def run(self, instead: Mapping[BufferKey, BufferKey] | None = None) -> Result:
        """Run on the buffers' present contents, on buffers ``instead[b]`` instead of b where buffers have been
        exchanged with one another. Raises what a run raises."""
        changes = tuple(instead.items()) if instead else ()
        found = self._arranged.get(changes)
        if found is None:
            if len(self._arranged) >= FEW:  # of n buffers, there are n! ways
                self._arranged.pop(next(iter(self._arranged)), None)
            found = self._arranged[changes] = self._on(dict(changes))
        cached, graph, of = found
        if self.session.devices.demanded:
            cached.analyse(0.0, lambda: graph, is_awaited=True)
        if self.session.machine.is_spread:
            self._runs_on(graph.nodes, of.keys)
            self.session.buffers.asked.clear()
        return cached.run_as(graph, of)

    def _runs_on(self, nodes: Sequence[Node], keys: tuple[BufferKey, ...]) -> None:
        """Note that these nodes run next, on these buffers."""
        self.session.buffers.brought, self.ran_on = {*results_of(nodes)}, keys

    def note_read(self) -> None:
        """Note the buffers that the host has read behind the last run: those that it has read behind all runs so far
        are expected to be read again."""
        if self.ran_on:
            asked = self.session.buffers.asked
            found = frozenset([place for place, key in enumerate(self.ran_on) if key in asked])
            self._read, self.ran_on = found if self._read is None else self._read & found, ()

    def expect_results(self) -> None:
        """Make what is expected to be read, by what was read behind the last run, results of the graph. With others
        than before it is another graph: tuning begins anew."""
        if self._whole is None or self._given is not None or not self.session.machine.is_spread:
            return
        before = self._read or frozenset()
        self.note_read()
        if (self._read or frozenset()) != before:
            keys = [*self._whole.buffers]
            self.graph = with_results(self._whole, [keys[place] for place in sorted(self._read or ())])
            self._arranged.clear()
            self._begin()

    def _on(self, instead: Mapping[BufferKey, BufferKey]) -> tuple[CachedGraph, Graph, Signature]:
        """Return the cached graph that runs on other buffers, with its graph and signature there. That is this one,
        unless its policy learns: to such a policy, each is a graph of its own."""
        assert self.graph is not None, "it runs on no buffers of its own"
        graph, cached = self.graph, self
        if instead:
            graph = renamed(graph, instead)
        if instead and self._learner is not None:
            cached = CachedGraph(self.session, graph, self._learner, queues=self._queues, options=self._options)
        return cached, graph, Signature((), (), tuple([instead.get(key, key) for key in self.graph.buffers]))

    def run_as(self, graph: Graph, of: Signature) -> Result:
        """Run a graph that differs from the cached one in its buffers and scalars only: those of the signature ``of``.
        Raises what a run raises."""
        if self._devices != self.session.devices.events.version:
            self._look_around()
        learner = self._learner
        if learner is not None and not asked(learner, "learning", lambda: learner.settled(graph), lambda: True):
            self._begin()
        plan, result = self._tuner.plan, None
        may_wait = plan is None and (self._tuner.kept is not None or (self._is_beside and self.is_looked_at))
        if may_wait and (former := self._tuner.fallback) is not None:
            if not self._is_asked_ahead and self._takes_long and self._is_own:
                self._plan_ahead(graph, self.session.directory.copy)
            if self._is_asked_ahead and self._tuner.ahead is None:
                plan = former.plan  # the fastest plan is followed while another one is made
        if plan is not None:
            self._was_other = self._tuner.candidate is not None
            result = self._follow(plan, graph, of)
        if result is not None:
            self._tuner.repeated(result.seconds)
        else:
            if plan is not None:  # it cannot be followed any more
                self._look_around()
                self._begin()
            began = perf_counter()
            result = self._plan(graph)
            took, ran = perf_counter() - began, without(result.compiled, result.seconds)
            self._tuner.answered(ran, result.settled, max(took - result.seconds, 0.0))
            self._keep(result, of)
            if (kept := self._tuner.kept) is not None:
                self._commands = [c for c in self._commands if c.plan is kept or c.plan is self._tuner.plan]
        return told(learner, result) if learner is not None else result

    def _look_around(self) -> None:
        """Begin anew if a device was left out, has left or returned, or another process has asked for one. A plan that
        was made as a run began may be for fewer devices, if one was lost then and is there again."""
        session = self.session
        if self._devices == session.devices.events.version:
            return
        there, plan = (session.devices.present, session.devices.demanded), self._tuner.plan
        names = tuple(d.name for d in session.machine.devices)
        is_other = plan is not None and plan is not self._given and plan.devices != names
        if self._there != there or is_other:
            self._begin(self._given)
        self._devices, self._there, self._commands = session.devices.events.version, there, []

    def _plan(self, graph: Graph) -> Result:
        """Run a graph by the policy."""
        result = self.session.run(
            graph,
            self._policy,
            queues=self._queues,
            options=self._options,
            repeated=self.measured_runs + 1 if self.is_repeated else 0,
            trial=Trial(self.fallback(graph), self._tuner.rival and self.is_repeated, self._tuner.ahead),
        )
        self._tuner.ahead, self._is_asked_ahead = None, False
        return result

    @property
    def _planning(self) -> float:
        """Seconds that planning takes, roughly."""
        return PLANNING.planned_cell * self.nodes * len(self.session.machine.devices)

    @property
    def _takes_long(self) -> bool:
        """True if planning takes long beside a run: it is done in the background, while the graph runs as before."""
        return self._is_beside or self._planning > TRIAL_SHARE * self.budget.least

    @property
    def _is_beside(self) -> bool:
        """True if the first plan that counts is made in the background, too: its planning takes longer than a run, or
        the host has time, as devices are no processors, and making its steps and kernels may take long."""
        machine = self.session.machine
        has_time = machine.is_spread and any(device.kind != "cpu" for device in machine.devices)
        return has_time or self._planning > self.budget.least

    @property
    def _is_own(self) -> bool:
        """True if its policy is manycl's own: a user's is called by the thread that runs the graph."""
        policy = self._policy or flags.policy()
        return bool(own_name(find(policy) if isinstance(policy, str) else policy))

    def _plan_ahead(self, graph: Graph, directory: Callable[[], Directory], gained: float = 0.0) -> None:
        """Have the policy's next plan made in the background, for buffers that are valid where a directory says, if
        that has not begun, and a plan may have ``gained`` so many seconds."""
        if self._is_asked_ahead:
            return
        self._is_asked_ahead, tuner = True, self._tuner
        wanted = RunRequest(self._policy, self._queues, self._options, self.measured_runs + 1, tuner.rival, gained)
        # (not to ``self``: a session that is dropped ends its planning)
        self.session.plan_ahead(graph, wanted, directory(), self.given, partial(setattr, tuner, "ahead"))

    def first_reads(self, key: BufferKey) -> Sequence[ValidRegion]:
        """Return the regions of a buffer that devices are expected to need first where a plan runs next, with the
        masks of their memories; empty: that is not known."""
        tuner, former = self._tuner, self._tuner.fallback
        plan = tuner.plan or tuner.ahead or (former and former.plan)
        if plan is None:
            return ()
        played = [c.command_graph.lowered for c in self._commands if isinstance(c, KeptCommands) and c.plan is plan]
        found = (first_reads(of, self.session.machine).get(key) for of in (*played, *self.session.data.steps.of(plan)))
        return next(filter(None, found), ())

    def fallback(self, graph: Graph) -> Fallback | None:
        """Return the fastest plan so far, if another one is tried."""
        return self._tuner.fallback

    def _follow(self, plan: Plan, graph: Graph, of: Signature) -> Result | None:
        """Run a plan: without deciding anything, if there are commands that begin with buffers where they are now.
        Return None where a plan of the policy's cannot be followed any more."""
        session, learning = self.session, self._learner is not None
        has_own = False  # where there are own commands, no others are tried
        for is_own in (True, False):
            for kept in self._commands if not has_own else ():
                is_same = kept.of.keys == of.keys and kept.of.scalars == of.scalars
                if kept.plan is not plan or is_same is not is_own:
                    continue
                has_own, commands = is_own, kept if is_own else kept.on(graph, of)
                if commands is not None and (result := commands.play(session, learning)) is not None:
                    if not is_own and self.is_lasting:
                        self._commands = [commands, *self._commands[: PLANS - 1]]
                    return result
        try:
            result = session.run(graph, plan, repeated=int(self.is_repeated), learning=learning)
        except PolicyError:
            if plan is self._given:
                raise
            return None
        self.ran = without(result.compiled, result.seconds)
        self._keep(result, of)
        return result

    def _keep(self, result: Result, of: Signature) -> None:
        """Keep the commands of a run by the kept plan, or by one that may become it, unless the run was long: they are
        enqueued at once, and Ctrl-C would have to wait for them."""
        command_graph, kept = result.command_graph, self._tuner.plan
        if kept is not None and (subject := result.moving(kept)) is not None:
            found = KeptShares(subject, kept, of, self._devices)
            self._commands = [found, *self._commands[: PLANS - 1]]
        if command_graph is None or result.seconds > at_once(command_graph.problem):
            return
        if kept is None or command_graph.plan is kept:
            self._commands = [
                KeptCommands(command_graph, of, self._devices, self.is_lasting),
                *self._commands[: PLANS - 1],
            ]

    def analyse(self, seconds: float, graph: Callable[[], Batch | Graph | None], is_awaited: bool = False) -> None:
        """Analyse in the background how launches may be divided, if a run of so many seconds may gain by that.
        ``is_awaited``: other processes would wait for its runs, however short they are."""
        if is_awaited or not gains_nothing(seconds):
            self.session.models.background.begin(self.interest, graph, self.session.devices.build)
        if self.interest.is_done:
            self.examine()

    def examine(self) -> None:
        """Begin tuning anew, as the analysis has ended and more is known; done once."""
        if not self.is_looked_at:
            self.is_looked_at = True
            # who waits for a device waits for no long launch, and no rough plan is followed for long on processors,
            # beside which planning would take ten times as long
            is_kept = (self._tuner.kept is not None or self._is_beside) and not self.session.devices.demanded
            self._begin(self._given, self._tuner.fallback if is_kept and self._given is None else None)
