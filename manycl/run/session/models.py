"""The models of a session: measured times and links, learned from its runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from typing import Protocol

from manycl import flags
from manycl.analysis.facts import ProgramFacts
from manycl.graph.graph import DeviceTask, Graph, Launch
from manycl.graph.versions.versions import run_as
from manycl.graph.work_groups import with_work_groups
from manycl.machine import Device, DeviceIndex, Machine
from manycl.model.history.history import History, Imbalances, KernelKey, Shape, identity, kernel_key, share_key, text_of
from manycl.model.history.learning import ObservedLinks, learn
from manycl.model.history.measured import Measurements, on_machine, together
from manycl.model.history.store import Store
from manycl.model.occupancy import LaunchRange
from manycl.model.work import product, work_of
from manycl.plan.analysis_budget import AnalysisBudget
from manycl.run.engine.result import Result
from manycl.run.executor.record import RunRecord
from manycl.run.graph_cache.background_analysis import BackgroundAnalysis
from manycl.run.lowering.steps import RANGE
from manycl.utilities.kept import PLANS
from manycl.utilities.unforeseen import told

SIMILAR = 16
"""The most launches of a kernel, the last ones first, by which another one's seconds are estimated; our own choice."""


class MeasuredRun(Protocol):
    """A run that models learn from: its ``record``, and the seconds of its graph's nodes on devices."""

    @property
    def record(self) -> object: ...

    def samples(self) -> tuple[Graph, Iterable[tuple[int, DeviceIndex, float]]]: ...


class Models:
    """The times that were measured in this session and, if it is to ``remember`` (None: unless MANYCL_MODELS is 0), in
    earlier ones; and how launches may be divided."""

    def __init__(self, remember: bool | None) -> None:
        self._store = Store() if (flags.learning() if remember is None else remember) else None
        self._measurements: Measurements = self._store.measurements() if self._store is not None else {}
        self._has_news = False  # whether links have been measured since the last ``learn``
        self.links = ObservedLinks()
        self.history = self._store.history() if self._store is not None else History()
        # reading thousands of times out costs more than running again
        self.unlearned: deque[MeasuredRun] = deque(maxlen=PLANS)
        """Runs to learn from when something is planned."""
        self.budget = AnalysisBudget()
        self.background = BackgroundAnalysis(self.budget)

    def on(self, machine: Machine) -> Machine:
        """Return a machine with the rates and links that were measured."""
        try:
            return on_machine(machine, self.links.added_to(self._measurements))
        except Exception as error:
            told(error, "adding what was measured of links")
            return machine

    def are_unknown(self, own: Sequence[Device]) -> bool:
        """Return whether links of devices with memory of their own are to be measured, and kept."""
        subjects = [*map(identity, own), *([together(own)] if len(own) > 1 else ())]
        known = self._measurements
        return self._store is not None and any(not {"up", "up_bandwidth"} & {*known.get(s, ())} for s in subjects)

    def measured(self, found: Measurements) -> None:
        """Use measurements of links from now on, and keep them."""
        known = self._measurements
        self._measurements = {s: {**known.get(s, {}), **found.get(s, {})} for s in {**known, **found}}
        self._has_news = True
        if self._store is not None:
            for subject, values in found.items():
                self._store.measured(subject, values)

    def recall(self, program: ProgramFacts) -> None:
        """Read what was measured of a program's kernels."""
        self.history.recall(text_of(program))

    def took(self, task: DeviceTask | None, device: Device) -> float:
        """Return the seconds that a command took on such a device, as far as was learned: it, or the same kernel with
        more work, or with less, in proportion. Infinite where that is not known."""
        if not isinstance(task, Launch) or task.versions:
            return inf
        here, work = self.history.on(kernel_key(task), identity(device)), work_of(task, task)
        if here is None:
            return inf
        series = here.series.get(Shape(task.global_size, work.f))
        if series is not None and series.count:
            return series.typical * device.slowdown
        return device.slowdown * min(
            (
                of.typical * max(1.0, work.cost / max(product(shape.global_size) * shape.f, 1.0))
                for shape, of in islice(reversed(here.series.items()), SIMILAR)
                if of.count and not shape.range
            ),
            default=inf,
        )

    def forget(self) -> None:
        """Plan from now on as if no kernel had been measured, in this session or before; the store keeps its
        measurements. For measuring how fast policies learn."""
        self.unlearned.clear()
        self.history = History()

    def learn(self, machine: Machine) -> bool:
        """Add the measurements of runs since the last call to the history; True if some are of links and host."""
        is_of_links, self._has_news = self._has_news, False
        while self.unlearned:
            try:
                is_of_links |= self._learn_from(self.unlearned.popleft(), machine)
            except Exception as error:  # the models are used without it
                told(error, "learning from a run")
        return is_of_links

    def _learn_from(self, result: MeasuredRun, machine: Machine) -> bool:
        record = result.record
        graph, durations = result.samples()
        learn(self.history, graph, machine, durations, record.versions if isinstance(record, RunRecord) else {})
        if isinstance(result, Result):
            note_shares(self.history.imbalances, result)
            note_ranges(self.history, result)
        if not isinstance(record, RunRecord):
            return False
        enqueued = record.enqueued
        for (place, is_copy), (count, seconds) in enqueued.items():
            self.links.enqueued(machine.devices[place], is_copy, seconds / count)
        if machine.memories < 2:
            return bool(enqueued)
        for device, to_device, nbytes, seconds in record.moved():
            self.links.observe(machine.devices[device], to_device, nbytes, seconds)
        self.links.handed_over(record.handovers())
        return True

    def save(self, machine: Machine) -> None:
        """Keep what was measured, also in the last runs, for later sessions, if these are to know."""
        if self._store is not None:
            with suppress(Exception):  # learning from a failed run is not worth another error
                self.learn(machine)
            self._store.save(self.history)
            for subject, values in self.links.values():
                self._store.measured(subject, values)


def note_ranges(history: History, result: Result) -> None:
    """Note what ranges of launches took, as parts of these: what the models say of other ranges goes by it. Not the
    first one of a kernel on a device, which may hold page faults and cold caches: nothing would be divided again after
    it, so no second measurement would correct it."""
    lowered = result.lowered
    if lowered is None or not lowered.steps or lowered.room is not None:
        return
    known: dict[tuple[int, int], tuple[KernelKey, Shape, Sequence[int]]] = {}
    for step, device, seconds in result.measured():
        launch, place, kind = result.graph.nodes[step.node], result.machine.devices[device], (step.node, step.version)
        if step.role != RANGE or step.dimension is None or not isinstance(launch, Launch):
            continue
        if kind not in known:
            ran = run_as(launch, step.version)
            shape = Shape(ran.global_size, work_of(ran, ran).f)
            known[kind] = kernel_key(ran), shape, work_groups(with_work_groups(ran))
        key, shape, of = known[kind]
        if (key, place.name) not in history.begun:
            history.begun.add((key, place.name))
            continue
        where = LaunchRange(step.first, step.groups, of[step.dimension])
        history.observe(key, shape._replace(range=where), identity(place), seconds / place.slowdown)


def work_groups(launch: Launch) -> tuple[int, ...]:
    """Return the work-groups of a launch along each dimension."""
    return tuple(-(-n // m) for n, m in zip(launch.global_size, launch.local_size or launch.global_size, strict=True))


def note_shares(imbalances: Imbalances, result: Result) -> None:
    """Note the shares of divided launches in a run that followed a plan with times, and was timed: whether one device
    took longer than another, compared with what was planned for both."""
    plan, lowered = result.plan, result.lowered
    if plan is None or not plan.is_split or lowered is None or lowered.room is not None:
        return
    planned = dict[tuple[int, DeviceIndex], float]()  # seconds of a work-group
    for a in plan.assignments:
        if a.is_range and a.end > a.start:
            planned[a.node, a.device] = (a.end - a.start) / a.groups
    took = dict[int, dict[DeviceIndex, tuple[float, int]]]()  # seconds and work-groups of devices, by node
    for step, device, seconds in result.measured():
        if step.role == RANGE and (step.node, device) in planned:
            before, groups = took.setdefault(step.node, {}).get(device, (0.0, 0))
            took[step.node][device] = before + seconds, groups + step.groups
    for node, found in took.items():
        launch = result.graph.nodes[node]
        assert isinstance(launch, Launch)
        parts = {d: seconds / groups / planned[node, d] for d, (seconds, groups) in found.items()}
        imbalances.note(share_key(launch), parts)
