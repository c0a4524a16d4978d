"""A recurring graph: how long a graph that was enqueued before took by a plan and without one, and how it runs next."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from math import inf
from operator import is_, itemgetter
from typing import Any

from manycl.graph import bounds
from manycl.graph.dependences import Batch
from manycl.graph.graph import BufferKey, DeviceTask, Graph, Launch, ndrange, results_of
from manycl.graph.signature import Signature, signature
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.plan import COMPARED, ON_HOST, WHOLE, Plan, alone
from manycl.plan.preemptible import is_long
from manycl.plan.tuning import PLANNING
from manycl.run.engine.compile_time import without
from manycl.run.engine.result import Result
from manycl.run.engine.trial import Fallback
from manycl.run.graph_cache.cached_graph import CachedGraph
from manycl.run.session.session import Session
from manycl.run.streams.eager_result import EagerResult
from manycl.run.streams.eager_rule import RECENT, WORTH, Decision, MeasuredGraph, gains_nothing, is_worth_planning
from manycl.run.streams.stream_state import Given
from manycl.utilities.kept import ENOUGH, MANY

_task = itemgetter(0)  # of a command that was given


class RecurringGraph(CachedGraph):
    """A graph that a queue has recognised, with the measurements by which the eager rule decides how it runs next."""

    def __init__(
        self,
        session: Session,
        nodes: int,
        of: Signature,
        policy: str,
        queues: Mapping[str, int] | None = None,
        options: Mapping[str, str] | None = None,
        thinks: bool = True,
    ) -> None:
        # of auto's plans the first that counts is made when kernels were measured, of others' the second
        free = 2 if thinks and policy != "auto" else 1
        super().__init__(session, None, policy, queues=queues, options=options, is_asked=thinks, free=free)
        self.nodes, self.thinks = nodes, thinks  # and whether there is anything to choose
        self.signature = of
        self.then: weakref.ref[RecurringGraph] | None = None  # the graph that came next
        self.stays = False  # whether no device can be given all of it
        self.latest = 0.0  # seconds of the last run
        self._device: DeviceIndex | None = None  # the device that can run all of it eagerly in the least time, so far
        self._last_device: DeviceIndex | None = None  # that of the last run on one device
        self._given_last: list[DeviceTask] = []  # the commands of its last eager run
        self.runs = 0
        """The number of times that it has run."""
        self._alone = 0  # how many of these were on one device
        self._by_device: dict[DeviceIndex, deque[float]] = {}  # seconds of the last runs on one device
        self._since = self._retries = 0  # the runs since the other way was tried again, and how often it was
        self._is_trial = False  # whether the slower way is tried again
        self.copying = self._copied = 0.0
        """Seconds in which the host copied contents that it was given for the last run."""
        self._answer: Plan | None = None  # the plan of the last planned run
        self._results = frozenset[int]()  # buffers, by place, that are results of the graph
        self.may_be_read = self.session.machine.is_spread
        """Whether it has results, or may have some once more is known of what the host reads."""

    @property
    def _eager(self) -> deque[float]:
        """The seconds of the last runs on the device that takes least, oldest first."""
        return self._by_device.get(self._device, deque()) if self._device is not None else deque()

    def _ran_on(self, device: DeviceIndex, seconds: float) -> None:
        """Note the seconds of a run on one device."""
        self._by_device.setdefault(device, deque(maxlen=RECENT)).append(seconds)
        self._alone, self._last_device = self._alone + 1, device
        self._device = device
        if len(self._by_device) > 1:
            self._device = min(self._by_device, key=lambda d: _undisturbed(self._by_device[d]))

    def _begin(self, given: Plan | None = None, former: Fallback | None = None) -> None:
        super()._begin(given, former)
        self._planned = 0  # planned runs
        self._planned_on: DeviceIndex | None = None  # the device that has all of the last plan
        self._anew = 0  # the last runs in a row that were planned or compiled anew
        self._plan_seconds = inf  # least of those that were planned anew, planning apart
        self._played = deque[float](maxlen=RECENT)  # seconds of the last runs of the kept plan

    is_lasting = False

    @property
    def is_repeated(self) -> bool:
        return self.is_looked_at

    @property
    def measured_runs(self) -> int:
        return self.runs

    def is_awaited(self, machine: Machine) -> bool:
        """Return whether its last run took so long that other processes that ask for a device would have to wait."""
        return any(is_long(device, self.latest) for device in machine.devices)

    def with_results(self, batch: Batch, of: Signature, wanted: Callable[[], Iterable[BufferKey]] = tuple) -> Batch:
        """Return the batch with the results that are expected, or, of a graph that has not run, those that are
        ``wanted``. With others than before it is another graph: tuning begins anew."""
        batch = batch.with_results(wanted() if self._read is None else [of.keys[place] for place in sorted(self._read)])
        results = frozenset(map(of.keys.index, results_of(batch.nodes)))
        if results != self._results:
            self.graph, self._results = None, results
            self._begin()
        self._runs_on(batch.nodes, of.keys)
        self.may_be_read = self._read is None or bool(self._read or results)
        return batch

    def run_batch(self, batch: Batch, of: Signature) -> Result:
        """Run enqueued commands, which are this graph on the buffers of a signature. Raises what a run raises."""
        if self.graph is None:
            graph = batch.graph()
            bounds.check(graph)  # later graphs are compared with this one, so it must be within bounds
            self.graph, self.signature = graph, of  # with the keys that the graph uses
        else:
            graph = batch.as_in(self.graph, dict(zip(self.signature.keys, of.keys, strict=True)))
            if of.scalars != self.signature.scalars:
                bounds.check(graph)
        self.ran = None
        if self.interest.is_begun and not self.is_looked_at:
            if not self._is_beside and self.interest.seconds <= self.budget.total + self.budget.spare:
                self.interest.wait()  # what was learned from the last run would be asked about the same
            if self.interest.is_done:
                self.examine()
        return self.run_as(graph, of)

    def _plan(self, graph: Graph) -> Result:
        if self.thinks and not self.runs:
            self.analyse(self.session.guessed(graph, WORTH), lambda: graph)
        result = super()._plan(graph)
        self._answer = result.settled
        self.ran = without(result.compiled, result.seconds)
        return result

    def fallback(self, graph: Graph) -> Fallback | None:
        found = super().fallback(graph)
        has_versions = any(isinstance(task, Launch) and task.versions for task in graph.nodes)  # a plan chooses these
        if found is None and self._eager and self._device is not None and not has_versions:
            return Fallback(alone(graph, self._device, self.session.machine), self.usual)
        return found

    def _follow(self, plan: Plan, graph: Graph, of: Signature) -> Result | None:
        self._answer = plan
        return super()._follow(plan, graph, of)

    def plan_ahead(self, run: EagerResult) -> None:
        """Have a plan made in the background where one is to be tried that takes long to make, after an eager run."""
        is_made = self._is_asked_ahead or self._tuner.plan is not None
        if self.thinks and not is_made and self._takes_long and is_worth_planning(self.measured):
            of = signature(run.enqueued) if self._read else None
            graph = run.graph if of is None else self.with_results(run.enqueued, of).graph()
            self._plan_ahead(graph, run.before, PLANNING.gained)

    def took(self, seconds: float) -> None:
        """Note the seconds of a planned run, planning included."""
        ran, self.runs, self.latest = self.ran, self.runs + 1, seconds
        alone = _only_device(self._answer)
        if alone is not None and self.thinks:
            self._ran_on(alone, seconds if ran is None else min(seconds, ran))
        elif alone is not None:
            self._device = alone
        if alone != self._planned_on:
            self._planned_on, self._plan_seconds = alone, inf
            self._played.clear()
        self._planned += 1
        self._anew = 0 if ran is None else min(self._anew + 1, ENOUGH)
        if ran is not None:
            self._plan_seconds = min(self._plan_seconds, seconds, ran)
        if self._anew in (0, ENOUGH) and not self._was_other:  # what is compiled each time is a part of each run
            self._played.append(seconds)
        if self._is_trial:
            self._charge(self._played)

    def _charge(self, runs: Collection[float]) -> None:
        """Charge the budget with the last run, one of these, which has tried the slower way again: with what that takes
        where nothing else disturbs it."""
        if runs:
            self.budget.spent += max(_undisturbed(runs) - self.budget.least, 0.0)

    def ran_eagerly(self, run: EagerResult, seconds: float) -> None:
        """Note an eager run."""
        self.budget.ran(seconds)
        if self._copied and not self.copying:
            self._by_device.pop(run.device, None)
        self._ran_on(run.device, seconds)
        if self._is_trial:
            self._charge(self._by_device[run.device])
        self.runs, self.latest, self._copied = self.runs + 1, seconds, self.copying
        self._given_last = list(map(_task, run.given))

    def read_behind(self, seconds: float) -> None:
        """Note the seconds for which the host has read results behind the last run, an eager one."""
        if seconds and self._last_device is not None and (runs := self._by_device.get(self._last_device)):
            runs[-1] += seconds
            self.latest += seconds

    def begins_with(self, first: DeviceTask | None) -> bool:
        """Return whether its runs on one device were short, and its first command is a launch like this one."""
        if not isinstance(first, Launch) or not gains_nothing(self.usual):
            return False
        own = next(iter(self._given_last or (self.graph.nodes if self.graph is not None else ())), None)
        return isinstance(own, Launch) and own.kernel is first.kernel and ndrange(own) == ndrange(first)

    def is_like(self, given: Sequence[Given]) -> bool:
        """Return whether commands are those of its last eager run, on any buffers."""
        last = self._given_last
        return len(given) == len(last) and all(map(is_, last, map(_task, given)))

    @property
    def usual(self) -> float:
        """Seconds of its last runs on one device that nothing has disturbed."""
        return _undisturbed(self._eager)

    @property
    def _planning_now(self) -> float:
        """Seconds that planning takes before the next run; infinite while a plan is made in the background."""
        tuner = self._tuner
        if tuner.plan is not None or tuner.ahead is not None or (tuner.planned and tuner.kept is not None):
            return 0.0  # (the kept plan is followed while the next one is made)
        return inf if self.thinks and self._eager and self._takes_long else self._planning

    @property
    def _is_cold(self) -> bool:
        """True if its device is about to get callers' contents straight and will then take less time, and there are
        others that have to do without that. Each array is locked in a run of its own."""
        devices, device, eager = self.session.machine.devices, self._device, self._eager
        if not eager or self._alone > ENOUGH + len(self.given) + 1 or all(d.memory != HOST for d in devices):
            return False
        is_far = device is not None and devices[device].memory != HOST
        return is_far and PLANNING.nearly * (eager[-1] - self._copied) < eager[-1]

    @property
    def measured(self) -> MeasuredGraph:
        """The measurements of it that the eager rule asks for."""
        planned = _undisturbed(self._played)
        compared = self._answer.details.get(COMPARED, {}) if self._answer is not None else {}
        return MeasuredGraph(
            self.nodes,
            self._device,
            self.stays,
            self.then is not None and self.then() is self,
            self.latest,
            self.usual,
            self._alone,
            min(planned, self._plan_seconds) if len(self._played) < ENOUGH else planned,
            self._planned,
            self.is_looked_at,
            self.budget.spare,
            self._planning_now,
            self._since,
            self._retries,
            compared.get("whole", 0.0),
            self._is_cold,
        )

    def obey(self, decision: Decision) -> None:
        """Note how it runs next."""
        self._is_trial = decision.is_trial
        self._since = self._since + 1 if decision.is_compared else 0
        if decision.is_trial:
            self._since, self._retries = 0, self._retries + 1


def _undisturbed(seconds: Collection[float]) -> float:
    """Return the seconds below which an eighth of some runs lies, as what else the machine does only makes runs longer;
    of fewer than eight runs, the least."""
    return sorted(seconds)[len(seconds) // 8] if seconds else inf


def _only_device(plan: Plan | None) -> DeviceIndex | None:
    """Return the device that has all kernels of a plan, whole; None where there is no such device."""
    found: DeviceIndex | None = None
    for a in plan.assignments if plan is not None else ():
        if a.dimension is not WHOLE or a.device not in (ON_HOST, a.device if found is None else found):
            return None
        found = found if a.device == ON_HOST else a.device
    return found


class VariedGraph(RecurringGraph):
    """The recurring graphs that differ only by scalars which decide what is touched, such as a loop's counter. The
    first ones are cached one by one. Later ones that have not been seen before are cached together: planned anew each
    time, or run eagerly, whichever takes less."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def is_first(self, scalars: Hashable) -> bool:
        """Return whether a graph with these scalars is cached together with the others, as it was not seen before."""
        if scalars in self._seen:
            return False
        self._seen[scalars] = None
        if len(self._seen) > MANY:
            self._seen.popitem(last=False)
        return len(self._seen) > ENOUGH

    def run_batch(self, batch: Batch, of: Signature) -> Result:
        return self._plan(batch.graph())

    def took(self, seconds: float) -> None:
        super().took(seconds)
        self._played.append(seconds)
