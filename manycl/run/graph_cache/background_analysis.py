"""Background analysis: how the launches of repeated graphs may be split is analysed while devices compute, and plans of
long graphs are made. The analysis takes some 0.1 s a kernel, for which no run of a loop should wait. It begins with the
first run that takes so long that dividing may gain anything. Then plans that divide are tried
(:mod:`manycl.run.graph_cache.graph_cache`)."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING
from weakref import WeakSet

from manycl.analysis import service
from manycl.errors import ManyclError
from manycl.graph.dependences import Batch
from manycl.graph.division import divide
from manycl.graph.graph import BufferArg, BufferKey, Graph, Launch
from manycl.graph.versions.versions import run_as
from manycl.graph.work_groups import with_work_groups
from manycl.machine import DeviceIndex
from manycl.model.estimates import Estimates, Wrapped
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.plan.plan import Plan
from manycl.plan.policy import StaticPolicy
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.plan.splitting import split_of
from manycl.plan.tuning import PLANNING
from manycl.run.engine.asking_policies import completed
from manycl.run.executor.lanes import Worker
from manycl.run.executor.waits import responsive
from manycl.run.lowering.ranges import launches_of
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:  # it is imported as the analysis begins
    from manycl.analysis.launched import LaunchFacts

LOADED = (
    "manycl.analysis.launched",
    "manycl.analysis.parametric",
    "manycl.analysis.symbolic.counting",
    "manycl.analysis.texts.rewrite",
    "manycl.plan.policies.balance",
    "manycl.plan.policies.papers.mkmd",
)
"""The modules that the analysis, and plans that divide, need beside those that are imported with a session."""

Build = Callable[[Launch], None]

_Sized = tuple[Launch, Mapping[BufferKey, int]]
"""A launch, and the bytes of its buffers."""

_workers: WeakSet[Worker] = WeakSet()
"""The threads of this process."""


class Interest:
    """The state of a graph's analysis. ``is_asked``: somebody wants it; ``is_begun``: it is under way, or has ended;
    ``seconds``: that it is predicted to take."""

    def __init__(self) -> None:
        self.is_asked = self.is_begun = False
        self.seconds = 0.0
        self._ended = threading.Event()
        self.wait, self.end = self._ended.wait, self._ended.set

    @property
    def is_done(self) -> bool:
        """True if it has ended."""
        return self._ended.is_set()


class _Asking(Wrapped):
    """Other estimates; whether they are still wanted is asked each time, by a function that raises an error if not."""

    def __init__(self, known: Estimates, ask: Callable[[], None]) -> None:
        super().__init__(known)
        self._ask = ask

    def launch(self, node: int, device: DeviceIndex) -> float:
        self._ask()
        return self.known.launch(node, device)


class BackgroundAnalysis:
    """The background analysis and planning of a session, by a thread of its own, which ends with the process."""

    def __init__(self, budget: AnalysisBudget) -> None:
        self._budget = budget
        self._worker: Worker | None = None
        self._is_closed = False

    def load(self) -> None:
        """Import what the analysis and plans that divide need: the first runs neither wait for it, nor share Python's
        lock with a thread that imports it."""
        service.expect_launches()
        for name in LOADED:
            import_module(name)

    def begin(self, interest: Interest, graph: Callable[[], Batch | Graph | None], build: Build) -> None:
        """Begin the analysis of a graph, if that has not been done (``graph`` may return None: later). ``build`` builds
        the kernel of a range for all devices."""
        if interest.is_asked or (found := graph()) is None:
            return
        interest.is_asked = True
        self._submit(lambda: self._look(interest, found, build))

    def plan(
        self,
        problem: Problem,
        policy: StaticPolicy,
        prepare: Callable[[Plan], None],
        then: Callable[[Plan | None], None],
        gained: float = 0.0,
    ) -> None:
        """Have a policy solve a problem, and its plan prepared; ``then`` gets it (None: there is none, or none
        can have ``gained`` so many seconds)."""
        foresee = problem.foresee

        def foreseen(plan: Plan, *of: Problem) -> Plan:
            self._ask()
            return foresee(plan, *of) if foresee is not None else plan

        asked = replace(
            problem, estimates=_Asking(problem.estimates, self._ask), foresee=foreseen if foresee is not None else None
        )

        def work() -> None:
            plan = None
            try:
                plan = completed(asked, policy) if asked.may_gain(gained) else None
                if plan is not None:
                    self._ask()
                    prepare(plan)
            except ManyclError:  # a run that is planned says what is wrong
                pass
            except Exception as error:
                told(error, "planning in the background")
            then(plan)

        self._submit(work)

    def _ask(self) -> None:
        """Raise ManyclError where nobody wants the results any more."""
        if self._is_closed:
            raise ManyclError("the session is closed")

    def _submit(self, work: Callable[[], object]) -> None:
        """Have the thread do some work, in short turns at Python's lock, so that runs do not wait for it."""

        def work_in_turns() -> None:
            if self._is_closed:
                return
            responsive.enter(self)
            try:
                work()
            finally:
                responsive.leave(self)

        if self._worker is None:
            self._worker = Worker("manycl-look")
            _workers.add(self._worker)
        self._worker.submit(work_in_turns)

    def close(self) -> None:
        """Let the thread end soon: nobody wants what it has begun, and others would share Python's lock with it."""
        self._is_closed = True
        if self._worker is not None:
            self._worker.release()

    def _look(self, interest: Interest, graph: Batch | Graph, build: Build) -> None:
        launches = _launches(graph)
        kernels = len({(launch.program.tree, launch.kernel.name) for launch, _ in launches})
        interest.seconds = PLANNING.kernel_look * kernels + PLANNING.launch_look * len(launches)
        interest.is_begun = True
        foreseen: set[LaunchFacts] = set()
        try:
            for launch, sizes in launches:
                if self._is_closed:
                    return
                split = split_of(launch, sizes)
                if isinstance(split, Split):
                    _foresee_ranges(launch, sizes, split, build, foreseen)
            self._budget.know([launch for launch, _ in launches])
        finally:
            interest.end()


@atexit.register  # after those of sessions, which import this module
def _end_threads() -> None:
    """End the threads, and wait for that: the C++ of islpy aborts a process in which it runs when Python ends its
    threads. An analysis takes 0.1 s, a plan may take many seconds."""
    for worker in list(_workers):
        worker.stop()


def _launches(graph: Batch | Graph) -> list[_Sized]:
    """Return the launches of a graph, each kind once, on any buffers of its sizes."""
    found: dict[object, _Sized] = {}
    for node in graph.nodes:
        if isinstance(node, Launch):
            sizes = {a.key: graph.buffers[a.key].nbytes for a in node.args if isinstance(a, BufferArg)}
            places = {key: BufferKey(place) for place, key in enumerate(sizes)}
            args = tuple([a.of(places[a.key]) if isinstance(a, BufferArg) else a for a in node.args])
            shape = node.global_size, node.local_size, node.global_offset, args, tuple(sizes.values())
            kind = node.program.tree, node.kernel.name, *shape
            found.setdefault(kind, (node, sizes))
    return list(found.values())


def _foresee_ranges(
    launch: Launch, sizes: Mapping[BufferKey, int], split: Split, build: Build, foreseen: set[LaunchFacts]
) -> None:
    """Compute what ranges of a launch touch, for which plans that divide it will ask, and build their kernels; once of
    launches that touch the same, moved."""
    try:
        division = divide(with_work_groups(run_as(launch, 0)), split.dimension, sizes)
        if division.facts in foreseen:
            return
        foreseen.add(division.facts)
        half = -(-split.groups // 2)
        ranges = [division.range(f, count) for f, count in ((0, half), (half, split.groups - half)) if count]
        division.expect(ranges)
        for groups in ranges:
            division.access(groups)
        if not launch.versions:
            build(launches_of(division).range(division.range(0, half), {}))
    except ManyclError:  # a run that needs it says what is wrong
        return
    except Exception as error:
        told(error, f"finding out what ranges of {launch.name} touch")
