"""Devices that leave, come and are lost under chaos: what runs keep, whom they lose, and any plan of theirs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import strategies as st

from manycl.graph.graph import CopyTask, FillTask, Graph, HostTask, Launch
from manycl.machine import DeviceIndex, Machine
from manycl.plan.merging import Merging
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import Choice
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.data.coherence import Directory
from manycl.run.engine import asking_policies
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.result import Result
from manycl.run.engine.setup import Setup
from manycl.run.engine.trial import Fallback, Trial
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import COMBINE, Lowered
from manycl.run.recovery.checkpoints import Checkpoints, undo_bytes
from manycl.run.recovery.device_events import DeviceComes, DeviceEvents, DeviceLeaves, DeviceSlows, EventMonitor
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_values import left_by, seen_by
from tests.run.chaos.test_divided_chaos import (
    GROUP,
    ITEMS,
    NBYTES,
    Values,
    check_order,
    check_valid,
    plans,
)
from tests.run.chaos.test_moving_chaos import StolenAnyhow, shares
from tests.run.chaos.test_state import Anyhow, Unit
from tests.run.chaos.transitions import DROPPED

REPEATABLE = {"map", "stencil", "reversed", "columns", "maybe", "scatter", "part"}
"""Kernels that may run on what they have left: read off their text by hand."""
OVERWRITES = {
    **dict.fromkeys(["map", "reversed", "columns"], Region.span(0, NBYTES)),
    "stencil": Region.span(4, NBYTES - 4),
    "part": Region.span(0, 4 * (ITEMS // 2 + 1)),
}
"""The bytes of their last argument that kernels write, and do not read: likewise."""


class KeptAnyhow(Checkpoints):
    """Any step is undone that can be, and anything goes to the host when the run begins and after any step."""

    chance = random.Random(1)

    def begin(self, device: DeviceIndex, costs: Mapping[int, float]) -> list[int]:
        found = [key for key in costs if self.chance.random() < 0.7]
        for key in costs.keys() - found:
            self.wrote(key, device, costs[key])
        return found

    def saves(self, cost: float) -> bool:
        return self.chance.random() < 0.8

    def is_due(self, now: float) -> bool:
        return bool(self._changed[self._turn]) and self.chance.random() < 0.4

    def last(self) -> dict[int, DeviceIndex]:
        return {key: d for d, keys in self._alone.items() for key in keys if self.chance.random() < 0.5}

    @classmethod
    def undone(cls, problem: Problem, lowered: Lowered, *given: Any) -> frozenset[int]:
        can = [n for n in range(len(lowered.graph)) if undo_bytes(lowered, n) and n not in lowered.graph.beside]
        return frozenset(n for n in can if cls.chance.random() < 0.8)


class Returning(EventMonitor):
    """Where all have left, one that was to return does."""

    def wait(self) -> None:
        SEEN["paused"] += 1
        names = sorted(name for name, left in self._events.away.items() if left.returns)
        self._events.put(DeviceComes(names[SEEN["paused"] % len(names)]))


class Loss:
    """A graph that runs under chaos on some machine, and the same one step after another. ``homes``: which memories
    have contents when it begins."""

    def __init__(
        self,
        data: Any,
        graph: Graph,
        where: Machine,
        defined: bool = False,
        homes: Mapping[int, int] | None = None,
    ) -> None:
        self.graph, self.where = graph, where
        self.left = graph  # of which the present plan is
        self.versions: list[dict[int, list[Any]]] = []  # of all bytes, as they are one after another
        self.directory, self.values = Directory(), Values(graph, where.memories)
        self.events = DeviceEvents(d.name for d in where.devices)
        self.made: list[Lowered] = []
        self.mortal: frozenset[int] = frozenset()
        self.fallback: Fallback | None = None
        self.anyhow = data is not None and data.draw(st.booleans())  # packets are of any size, and anywhere
        KeptAnyhow.chance.seed(1)
        for key in graph.buffers:
            if defined or homes is not None or data.draw(st.integers(0, 3)):
                home = homes[key] if homes is not None else data.draw(st.integers(0, where.memories - 1))
                self.directory.define(key, home)
                for m in range(-1, where.memories):
                    value = f"initial {key}" if m in (-1, home) else f"stale {m} {key}"
                    self.values.put(m, key, Region.span(0, NBYTES), value)
        asked = data.draw(st.sets(st.sampled_from(where.indices))) if data is not None else ()
        self.demanded = frozenset(asked)

    def happening(self, data: Any, count: int) -> list[tuple[int, Any]]:
        """Devices leave, come and become slower, but there is always one, or one that returns."""
        out = []
        for _ in range(count):
            device = data.draw(st.sampled_from([d.name for d in self.where.devices]))
            step = data.draw(st.integers(0, 60))
            kind = data.draw(st.sampled_from(["leaves", "comes", "leaves", "comes", "slows"]))
            if kind == "leaves":
                how, returns = data.draw(st.sampled_from(["drain", "now"])), data.draw(st.booleans())
                event: Any = DeviceLeaves(device, how, returns)
            else:
                event = DeviceComes(device) if kind == "comes" else DeviceSlows(device, 100.0)
            out.append((step, lambda event=event: self.put(event)))
        if data.draw(st.integers(0, 3)) == 0:  # somebody else has all of them for a while
            step = data.draw(st.integers(0, 20))
            everyone = [DeviceLeaves(d.name, returns=True) for d in self.where.devices]
            out += [(step, lambda event=event: self.put(event)) for event in everyone]
        return out

    def lagging(self, data: Any, backend: ChaosBackend) -> list[tuple[int, Any]]:
        """Devices become slower, and faster again, and nobody says so."""
        out: list[tuple[int, Any]] = []
        for _ in range(data.draw(st.integers(1, 4))):
            device, seconds = (
                data.draw(st.integers(0, len(self.where.devices) - 1)),
                data.draw(st.sampled_from([1.0, 9.0])),
            )
            step = data.draw(st.integers(0, 30))
            out.append((step, lambda d=device, s=seconds: backend.taking.__setitem__(d, s)))
        return out

    def put(self, event: Any) -> None:
        leaves = isinstance(event, DeviceLeaves)
        if not leaves or event.returns or len(self.events.away) + 1 < len(self.where.devices):
            self.events.put(event)

    def pieces(self, lowered: Lowered) -> Iterator[tuple[int, int, Region]]:
        for key in self.left.buffers:
            for piece, rows in lowered.cut.get(key, {key: Region.span(0, NBYTES)}).items():
                yield piece, key, rows

    def judged(self, graph: Graph) -> Graph:
        """The steps of the present plan, with what is overwritten although nothing but the kernels' text says so."""
        lowered, nodes = self.made[-1], list(graph.nodes)
        rows = {piece: rows for piece, _, rows in self.pieces(lowered)}
        for token, task in enumerate(nodes):
            if isinstance(task, Launch) and not lowered.step(token).role and task.kernel.name in OVERWRITES:
                sure = OVERWRITES[task.kernel.name]
                nodes[token] = replace(task, overwrites=tuple(k for k in task.writes if not rows[k] - sure))
        return replace(graph, nodes=tuple(nodes))

    def repeatable(self, token: int) -> bool:
        lowered = self.made[-1]
        task, step = lowered.graph.nodes[token], lowered.step(token)
        if isinstance(task, CopyTask):
            return task.args[0].key != task.args[1].key
        if isinstance(task, FillTask) or step.role == COMBINE:
            return isinstance(task, FillTask)
        of = self.left.nodes[step.node]
        return isinstance(of, Launch) and of.kernel.name in REPEATABLE

    def undefined(self, token: int, key: int) -> bool:
        """Whether nothing has defined a piece of what only the run needs before a step: what is there is anything."""
        lowered = self.made[-1]
        return key in lowered.own and not any(key in task.writes for task in lowered.graph.nodes[:token])

    def run(self, plan: Any, backend: ChaosBackend) -> Result:
        SEEN["runs"] += 1

        def lowering(*given: Any) -> Lowered:
            lowered = lower(*given)
            self.made.append(lowered)
            for m in range(self.where.memories):
                backend.values[m] = {p: self.values.piece(m, k, rows) for p, k, rows in self.pieces(lowered)}
            return lowered

        def rest(left: Graph) -> Problem:
            SEEN["plans"] += 1
            SEEN["after losses"] += bool(backend.gone)
            own = {id(task) for task in left.nodes}
            self.reckon(backend, {n for n, task in enumerate(self.left.nodes) if id(task) not in own})
            self.left = left
            return Problem(left, self.where, Unit(), queues, splits=Splits(left), merging=merging)

        backend.repeatable, backend.undefined, backend.judged = self.repeatable, self.undefined, self.judged
        has_failed = True
        self.events.listen(backend.wake)
        watch = Returning(self.events, self.where)
        queues = tuple(2 for _ in self.where.devices)
        merging, splits = get_args(Merging)[len(self.graph) % 3], Splits(self.graph)
        problem = Problem(
            self.graph,
            self.where,
            Unit(),
            queues,
            splits=splits,
            away=watch.away,
            merging=merging,
            demanded=self.demanded,
        )
        try:
            setup = Setup(lowering, rest=rest, mortal=self.mortal, trial=Trial(self.fallback))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(asking_policies, "in_advance", lambda _: getattr(plan, "cut", None))
                if self.anyhow:
                    patch.setattr("manycl.run.stealing.share_scheduler.WorkStealing", StolenAnyhow)
                before = len(DROPPED)
                result = execute(problem, plan, backend, self.directory, setup=setup, watch=watch)
            has_failed = False
            SEEN["dropped"] += len(DROPPED) - before
            SEEN["dropped in lossy runs"] += (len(DROPPED) - before) * bool(backend.faults.dies)
            return result
        except RunFailure:  # devices that do not work are left out then, with what they have
            kept = {m: m for m in range(self.where.memories) if m not in backend.gone}
            for key in self.directory.renumber(kept):
                self.directory.lose(key, "it was on a device that was lost")
            raise
        finally:
            self.directory.validate(self.where.memories)
            self.reckon(backend, set(range(len(self.left))))
            if has_failed:
                self.check_known()
            else:
                check_valid(self.graph, self.where, self.directory, self.values)
            left = {key for key in (*self.directory.valid, *self.directory.valid_regions) if key < 0}
            assert not left, "pieces are left"

    def check_known(self) -> None:
        """Every byte that counts as valid in a memory is there what it was at some time in the sequential run."""
        for key in self.graph.buffers:
            whole = (Region.span(0, NBYTES), self.directory.valid.get(key, 0))
            for rows, mask in self.directory.valid_regions.get(key, (whole,)):
                for m in range(self.where.memories):
                    for i in _bytes(rows) if mask >> m & 1 else ():
                        assert self.values.held[m, key][i] in [v[key][i] for v in self.versions], f"buffer {key}"

    def reckon(self, backend: ChaosBackend, nodes: set[int]) -> None:
        """The sequential run of some nodes of the present plan, all states of which are kept; and what memories hold
        now."""
        lowered = self.made[-1]
        check_order(self.left, lowered)
        steps = [step for step in range(len(lowered.graph)) if lowered.step(step).node in nodes]
        assert {*steps}.issuperset(p for step in steps for p in lowered.graph.predecessors[step])
        alone = {p: self.values.piece(-1, k, rows) for p, k, rows in self.pieces(lowered)}
        for p, k, rows in self.pieces(lowered):
            self.values.put(-1, k, rows, alone[p])
        self.versions.append({k: list(self.values.held[-1, k]) for k in self.graph.buffers})
        graph = self.judged(lowered.graph)
        for step in steps:
            inputs = seen_by(graph, step, alone)
            for key in graph.nodes[step].writes:
                alone[key] = left_by(graph, step, key, inputs, alone.get(key))
            for p, k, rows in self.pieces(lowered):
                if p in lowered.graph.nodes[step].writes:
                    self.values.put(-1, k, rows, alone[p])
            self.versions.append({k: list(self.values.held[-1, k]) for k in self.graph.buffers})
        for p, k, rows in self.pieces(lowered):
            self.values.put(-1, k, rows, alone[p])
            for m in range(self.where.memories):
                self.values.put(m, k, rows, backend.values[m].get(p))


SEEN: Counter[str] = Counter()


class AnyPlan:
    """A static policy with any plan, each time it is asked; ``first``: at first."""

    def __init__(self, first: Plan, seed: int) -> None:
        self._first: Plan | None = first
        self._random = random.Random(seed)

    def plan(self, problem: Problem) -> Plan:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        r, count = self._random, len(problem.machine.devices)
        out: list[Assignment] = []
        for n, task in enumerate(problem.graph.nodes):
            if isinstance(task, HostTask):
                out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
            elif not isinstance(task, Launch) or task.name == "part" or r.random() < 0.2:
                out.append(Assignment(n, r.randrange(count), r.randrange(2), 0.0, 0.0))
            else:
                groups = ITEMS // GROUP
                cuts = [0, *sorted(r.sample(range(1, groups), r.randint(0, min(3, groups - 1)))), groups]
                ranges = list(pairwise(cuts))
                r.shuffle(ranges)
                out += [Assignment(n, r.randrange(count), r.randrange(2), 0.0, 0.0, 0, a, b - a) for a, b in ranges]
        return Plan(tuple(out), "any", tuple(d.name for d in problem.machine.devices), 0.0)


def _bytes(region: Region) -> set[int]:
    return {i for a, b in region.intervals for i in range(a, b)}


class AmongFree(Anyhow):
    """Any device that is free; launches may leave it that are cut in any plan ahead (None: none are)."""

    def __init__(self, data: Any, graph: Graph, where: Machine, seed: int) -> None:
        super().__init__([])
        self._random, groups = random.Random(seed), ITEMS // GROUP
        can = [n for n, task in enumerate(graph.nodes) if isinstance(task, Launch) and task.name != "part"]
        still = sorted(data.draw(st.sets(st.sampled_from(can)))) if can else []
        out = []
        for n, task in enumerate(graph.nodes):
            place = ON_HOST if isinstance(task, HostTask) else data.draw(st.sampled_from(where.indices))
            out.append(Assignment(n, place, 0, 0.0, 0.0, *((0, 0, groups) if n in still else ())))
        names = tuple(d.name for d in where.devices)
        self.cut = Plan(tuple(out), "", names, 0.0, movable=tuple(still), still=tuple(still)) if still else None

    def select(self, frontier: Any, devices: Any, now: float) -> Any:
        component = self._random.choice(frontier)
        free = [d for d in component.devices if devices[d].free]
        return Choice(component.index, self._random.choice(free)) if free else None


def way(kind: str, data: Any, graph: Graph, where: Machine, seed: int) -> Any:
    """A plan, whose shares may move while it is followed, or a policy that is asked again, or while it runs."""
    if kind == "asked while it runs":
        return AmongFree(data, graph, where, seed)
    if kind == "asked again":
        return AnyPlan(data.draw(plans(graph, where)), seed)
    return data.draw(shares(graph, where) if kind == "shares that move" else plans(graph, where))
