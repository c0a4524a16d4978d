"""Devices that leave, come and are lost while real kernels run in ranges, under chaos: any plan on any machine, any
legal order of events, any time of theirs. The result is the sequential one, or the run says what it has lost."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from chaos import ChaosBackend, Faults, left_by, seen_by
from hypothesis import given, settings
from hypothesis import strategies as st
from test_divided_chaos import NBYTES, Values, check_order, check_valid, graphs, plans, small_chunks
from test_moving_chaos import shares
from test_state import Anyhow, Unit, machines
from transitions import validated

from manycl.errors import ResultError
from manycl.graph.graph import CopyTask, FillTask, Graph, Launch
from manycl.machine import Machine
from manycl.plan.policy import Choice
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.coherence import Directory
from manycl.run.device_events import DeviceComes, DeviceEvents, DeviceLeaves
from manycl.run.engine import RunFailure, Setup, execute
from manycl.run.lower import lower
from manycl.run.result import Result
from manycl.run.steps import COMBINE, Lowered
from manycl.run.watch import Watch

__all__ = ["small_chunks", "validated"]  # fixtures of the module

EXAMPLES = int(os.environ.get("MANYCL_TEST_INTERLEAVINGS", "80"))
"""Of each of the five tests; 2500 are more than ten thousand in all."""
REPEATABLE = {"map", "stencil", "reversed", "columns", "maybe", "scatter", "part"}
"""Kernels that may run on what they have left: read off their text by hand."""


class Loss:
    """A graph that runs under chaos on some machine, and the same one step after another."""

    def __init__(self, data: Any, graph: Graph, where: Machine, defined: bool = False) -> None:
        self.graph, self.where = graph, where
        self.directory, self.values = Directory(), Values(graph, where.memories)
        self.events = DeviceEvents(d.name for d in where.devices)
        self.made: list[Lowered] = []
        for key in graph.buffers:
            if defined or data.draw(st.integers(0, 3)):
                home = data.draw(st.integers(0, where.memories - 1))
                self.directory.define(key, home)
                for m in range(-1, where.memories):
                    value = f"initial {key}" if m in (-1, home) else f"stale {m} {key}"
                    self.values.put(m, key, Region.span(0, NBYTES), value)

    def happening(self, data: Any, count: int) -> list[tuple[int, Any]]:
        """Devices leave and come, but there is always one."""
        out = []
        for _ in range(count):
            device = data.draw(st.sampled_from([d.name for d in self.where.devices]))
            step = data.draw(st.integers(0, 60))
            if data.draw(st.booleans()):
                how = data.draw(st.sampled_from(["drain", "now"]))
                out.append((step, lambda device=device, how=how: self.put(DeviceLeaves(device, how))))
            else:
                out.append((step, lambda device=device: self.put(DeviceComes(device))))
        return out

    def put(self, event: Any) -> None:
        if isinstance(event, DeviceComes) or len(self.events.away) + 1 < len(self.where.devices):
            self.events.put(event)

    def pieces(self, lowered: Lowered) -> Iterator[tuple[int, int, Region]]:
        for key in self.graph.buffers:
            for piece, rows in lowered.cut.get(key, {key: Region.span(0, NBYTES)}).items():
                yield piece, key, rows

    def repeatable(self, token: int) -> bool:
        lowered = self.made[0]
        task, step = lowered.graph.nodes[token], lowered.step(token)
        if isinstance(task, CopyTask):
            return task.args[0].key != task.args[1].key
        if isinstance(task, FillTask) or step.role == COMBINE:
            return isinstance(task, FillTask)
        of = self.graph.nodes[step.node]
        return isinstance(of, Launch) and of.kernel.name in REPEATABLE

    def undefined(self, token: int, key: int) -> bool:
        """Whether nothing has defined a piece of what only the run needs before a step: what is there is anything."""
        lowered = self.made[0]
        return key in lowered.own and not any(key in task.writes for task in lowered.graph.nodes[:token])

    def run(self, plan: Any, backend: ChaosBackend) -> Result:
        def lowering(*given: Any) -> Lowered:
            lowered = lower(*given)
            self.made.append(lowered)
            for m in range(self.where.memories):
                backend.values[m] = {p: self.values.piece(m, k, rows) for p, k, rows in self.pieces(lowered)}
            return lowered

        backend.repeatable, backend.undefined = self.repeatable, self.undefined
        has_failed = True
        self.events.listen(backend.wake)
        watch = Watch(self.events, self.where)
        queues = tuple(2 for _ in self.where.devices)
        problem = Problem(self.graph, self.where, Unit(), queues, splits=Splits(self.graph), away=watch.away)
        try:
            result = execute(problem, plan, backend, self.directory, setup=Setup(lowering), watch=watch)
            has_failed = False
            return result
        except RunFailure:  # devices that do not work are left out then, with what they have
            kept = {m: m for m in range(self.where.memories) if m not in backend.gone}
            for key in self.directory.renumber(kept):
                self.directory.lose(key, "it was on a device that was lost")
            raise
        finally:
            self.directory.validate(self.where.memories)
            versions = self.reckon(backend)
            if has_failed:
                self.check_known(versions)
            else:
                check_valid(self.graph, self.where, self.directory, self.values)
            left = {key for key in (*self.directory.valid, *self.directory.parts) if key < 0}
            assert not left, "pieces are left"

    def check_known(self, versions: list[dict[int, list[Any]]]) -> None:
        """Every byte that counts as valid in a memory is there what it was at some time in the sequential run."""
        for key in self.graph.buffers:
            whole = (Region.span(0, NBYTES), self.directory.valid.get(key, 0))
            for rows, mask in self.directory.parts.get(key, (whole,)):
                for m in range(self.where.memories):
                    for i in _bytes(rows) if mask >> m & 1 else ():
                        assert self.values.held[m, key][i] in [v[key][i] for v in versions], f"buffer {key}"

    def reckon(self, backend: ChaosBackend) -> list[dict[int, list[Any]]]:
        """The sequential run, of which all states are returned; and what memories hold now."""
        lowered = self.made[0]
        check_order(self.graph, lowered)
        alone = {p: self.values.piece(-1, k, rows) for p, k, rows in self.pieces(lowered)}
        for p, k, rows in self.pieces(lowered):
            self.values.put(-1, k, rows, alone[p])
        versions = [{k: list(self.values.held[-1, k]) for k in self.graph.buffers}]
        for step, task in enumerate(lowered.graph.nodes):
            inputs = seen_by(lowered.graph, step, alone)
            for key in task.writes:
                alone[key] = left_by(lowered.graph, step, key, inputs, alone.get(key))
            for p, k, rows in self.pieces(lowered):
                if p in task.writes:
                    self.values.put(-1, k, rows, alone[p])
            versions.append({k: list(self.values.held[-1, k]) for k in self.graph.buffers})
        for p, k, rows in self.pieces(lowered):
            self.values.put(-1, k, rows, alone[p])
            for m in range(self.where.memories):
                self.values.put(m, k, rows, backend.values[m].get(p))
        return versions


def _bytes(region: Region) -> set[int]:
    return {i for a, b in region.intervals for i in range(a, b)}


@pytest.mark.parametrize("moves", [False, True], ids=["static", "shares that move"])
@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(), seed=st.integers(0, 2**32))
def test_devices_that_leave_and_come_change_no_result(
    moves: bool, data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    loss = Loss(data, graph, where)
    happening = loss.happening(data, data.draw(st.integers(1, 4)))
    backend = ChaosBackend(where, seed, happening=happening)
    plan = data.draw(shares(graph, where) if moves else plans(graph, where))
    result = loss.run(plan, backend)
    assert not result.lost
    assert result.playback is not None
    assert result.playback.complete == len(result.playback.graph)


@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(), seed=st.integers(0, 2**32))
def test_policies_that_decide_while_devices_leave_and_come(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    loss = Loss(data, graph, where)
    backend = ChaosBackend(where, seed, happening=loss.happening(data, data.draw(st.integers(1, 4))))
    loss.run(AmongFree(seed), backend)


class AmongFree(Anyhow):
    """Any device that is free."""

    def __init__(self, seed: int) -> None:
        super().__init__([])
        self._random = random.Random(seed)

    def select(self, frontier: Any, devices: Any, now: float) -> Any:
        component = self._random.choice(frontier)
        free = [d for d in component.devices if devices[d].free]
        return Choice(component.index, self._random.choice(free)) if free else None


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("moves", [False, True], ids=["static", "shares that move"])
@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(), seed=st.integers(0, 2**32))
def test_devices_that_are_lost_change_no_result_or_the_run_says_what_is_lost(
    moves: bool, data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    loss = Loss(data, graph, where, defined=True)  # what runs again may find others than before where nothing is
    count = len(where.devices)
    dying = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=max(1, count - 1)))
    faults = Faults(
        dies={d: data.draw(st.integers(0, 40)) for d in dying},
        drains=data.draw(st.booleans()),
        goes_on=data.draw(st.booleans()),
    )
    happening = loss.happening(data, data.draw(st.integers(0, 2)))
    backend = ChaosBackend(where, seed, faults=faults, happening=happening)
    plan = data.draw(shares(graph, where) if moves else plans(graph, where))
    try:
        result = loss.run(plan, backend)
    except RunFailure:
        SEEN["failed"] += 1
        for key in graph.buffers:  # all was defined
            if not (loss.directory.valid.get(key) or loss.directory.parts.get(key)):
                with pytest.raises(ResultError):
                    loss.directory.check(key)
    else:
        SEEN["recovered" if result.lost else "undisturbed"] += 1


def test_runs_go_on_without_what_is_lost() -> None:
    """What precedes has seen both."""
    if SEEN.total() >= 2 * EXAMPLES:
        assert SEEN["recovered"] > SEEN["failed"] / 20 > 0, SEEN
