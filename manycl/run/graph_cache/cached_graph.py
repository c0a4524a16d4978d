"""A cached graph: how long a repeated graph took by a plan and without one, and how it runs next."""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Hashable, Sequence
from math import inf
from operator import is_
from statistics import median_low

from manycl.errors import PolicyError
from manycl.graph.graph import BufferKey, DeviceTask, Graph
from manycl.graph.signature import Signature
from manycl.machine import DeviceIndex, Machine
from manycl.plan.plan import ON_HOST, Plan
from manycl.plan.preemptible import is_long
from manycl.run.commands.command_graph import CommandGraph
from manycl.run.commands.flow_control import at_once
from manycl.run.engine.result import Result
from manycl.run.graph_cache.autotuner import PLANNED_RUNS, SECOND_THOUGHTS, Autotuner
from manycl.run.graph_cache.background_analysis import Interest
from manycl.run.session.session import LastTime, Session
from manycl.run.streams.eager_result import EagerResult, Given
from manycl.run.streams.eager_rule import NEWS, RECENT, Decision, MeasuredGraph

THOUGHTS = (*SECOND_THOUGHTS, *(4**n for n in range(3, 10)))
"""The numbers of runs of a plan after which the policy is asked once more: ever more rarely, as devices and links may
change."""
MOST_SEEN = 1024
"""The number of graphs that differ by their scalars and are remembered as seen."""


class CachedGraph:
    """A graph in the cache. ``thoughts``: as of the autotuner; empty where there is nothing to choose."""

    def __init__(self, nodes: int, of: Signature, thoughts: Sequence[int]) -> None:
        self.nodes = nodes
        self.graph: Graph | None = None  # with its edges, once they were needed
        self.signature = of
        self.then: weakref.ref[CachedGraph] | None = None  # the graph that came next
        self.stays = False  # whether no device can be given all of it
        self._device: DeviceIndex | None = None  # the device that can run all of it eagerly
        self._given: list[DeviceTask] = []  # the commands of its last eager run
        self._flights = self._planned = self._runs = 0
        self._plan = self._planning = inf  # least seconds of a run that was planned, planning apart or included
        # seconds of the last eager runs, and of the last runs of the kept plan
        self._flown, self._played = deque[float](maxlen=RECENT), deque[float](maxlen=RECENT)
        self._thoughts = thoughts
        self._trials = Autotuner(thoughts=thoughts)
        self._since = self._retries = 0  # the runs since the other way was tried again, and how often it was
        self.latest = 0.0  # seconds of the last run
        self._answer: Plan | None = None  # the policy's last plan
        self._was_other = False  # whether the last run was not of the kept plan
        self.interest = Interest()
        self.is_looked_at = False
        self._forget()

    @property
    def is_new(self) -> bool:
        """True if it has not run before."""
        return not self._runs

    def is_awaited(self, machine: Machine) -> bool:
        """Return whether its last run took so long that other processes, which ask for one of the devices, would have
        to wait."""
        return any(is_long(device, self.latest) for device in machine.devices)

    @property
    def thinks(self) -> bool:
        """True if there is anything to choose."""
        return bool(self._thoughts)

    def asking(self) -> tuple[int, bool]:
        """Return ``repeated`` and ``rival`` of the problem for the policy."""
        return (self._trials.planned + 1, self._trials.rival) if self.is_looked_at else (0, False)

    def look_again(self) -> None:
        """Begin tuning anew, as more is known now of how the graph may be divided."""
        self.is_looked_at = True
        self._planned, self._plan, self._planning = 0, inf, inf
        self._played.clear()
        self._trials = Autotuner(thoughts=self._thoughts)
        self._forget()

    def _forget(self) -> None:
        self._script: CommandGraph | None = None
        self._keys: tuple[BufferKey, ...] = ()
        self._last = LastTime()

    def took(self, seconds: float, ran: float | None) -> None:
        """Note the seconds of a planned run. ``ran``: of the run alone, after planning (infinite: it will be planned
        again); None: the kept plan was played."""
        self._runs += 1
        self.latest = seconds
        if ran is not None:
            self._planned += 1
            self._plan, self._planning = min(self._plan, seconds, ran), min(self._planning, seconds)
        elif not self._was_other:
            self._played.append(seconds)
        if self._device is None and self._answer is not None and self._planned >= PLANNED_RUNS:
            used = Counter(a.device for a in self._answer.assignments if a.device != ON_HOST)
            self._device = used.most_common(1)[0][0] if used else None

    def flew(self, run: EagerResult, seconds: float) -> None:
        """Note an eager run."""
        self._runs += 1
        self._flights += 1
        self._flown.append(seconds)
        self.latest = seconds
        self._device, self._given = run.device, [task for task, _, _ in run.given]

    def is_like(self, given: Sequence[Given]) -> bool:
        """Return whether commands are those of its last eager run, on any buffers."""
        return len(given) == len(self._given) and all(map(is_, self._given, [task for task, _, _ in given]))

    @property
    def measured(self) -> MeasuredGraph:
        """The measurements of it that the eager rule asks for."""
        return MeasuredGraph(
            self.nodes,
            self._device,
            self.stays,
            self.then is not None and self.then() is self,
            self._runs,
            self.latest,
            median_low(self._flown) if self._flown else inf,
            self._flights,
            median_low(self._played) if self._played else self._plan,
            self._planned,
            self._planning,
            self._since,
            self._retries,
        )

    def obey(self, decision: Decision) -> None:
        """Note how it runs next."""
        self._since = self._since + 1 if decision.is_compared else 0
        if decision.is_trial:
            self._since, self._retries = 0, self._retries + 1
            (self._flown if decision.device is not None else self._played).clear()  # only its present times count

    def answered(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        """Note the run of a plan for which the policy was asked."""
        plan = self._answer = result.settled
        if self._thoughts:
            self._trials.answered(result.seconds, plan)
        else:
            self._trials = Autotuner(plan, thoughts=())
        if self._trials.plan is not None and self._trials.plan is plan:
            self._remember(result, keys)

    def again(self, session: Session, graph: Graph, of: Signature) -> Result | None:
        """Run the kept plan. Return None where the policy is to be asked."""
        plan, keys = self._trials.plan, of.keys
        if plan is None:
            return None
        self._was_other = self._trials.is_comparing
        result = None
        if self._script is not None and self._script.plan is plan:
            script = self._script.on(graph, dict(zip(self._keys, keys, strict=True)))
            result = session.on_others(script, self._last, keys, of.scalars)
        if result is None:
            result = self._follow(session, graph, keys, plan)
        if result is None:
            self._trials = Autotuner(thoughts=self._thoughts)
        else:
            self._trials.repeated(result.seconds)
        return result

    def _follow(self, session: Session, graph: Graph, keys: tuple[BufferKey, ...], plan: Plan) -> Result | None:
        try:
            result = session.run(graph, plan)
        except PolicyError:  # the plan cannot be followed any more
            return None
        self._remember(result, keys)
        return result

    def _remember(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        """Keep a plan's command graph, unless the run was long: it will be enqueued at once, and Ctrl-C would have to
        wait for it."""
        self._forget()
        script = result.script
        if script is not None and script.is_plain and result.seconds <= at_once(script.problem):
            self._script, self._keys = script, keys


class Varied(CachedGraph):
    """The cached graphs that differ only by scalars which decide what is touched, such as a loop's counter. The first
    ones are cached one by one. Later ones that have not been seen before are cached together: planned anew each time,
    or run eagerly, whichever takes less."""

    def __init__(self, nodes: int, of: Signature, thoughts: Sequence[int]) -> None:
        super().__init__(nodes, of, thoughts)
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def is_first(self, scalars: Hashable) -> bool:
        """Return whether a graph with these scalars is cached together with the others, as it was not seen before."""
        if scalars in self._seen:
            return False
        self._seen[scalars] = None
        if len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return len(self._seen) > NEWS

    def took(self, seconds: float, ran: float | None) -> None:
        """Note the seconds of a run, planning included, as it is planned each time."""
        super().took(seconds, ran)
        self._played.append(seconds)

    def answered(self, result: Result, keys: tuple[BufferKey, ...]) -> None:
        self._answer = result.settled
