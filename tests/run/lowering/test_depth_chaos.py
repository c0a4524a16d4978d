"""Launches in depth under chaos: any depth and cuts, any legal order of events, devices that leave and are lost."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.region import Region
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure
from manycl.run.lowering.depth import IN_DEPTH, _LaunchSequence
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import Faults
from tests.run.chaos.losses import AnyPlan, Loss
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES, Values, check_valid, launch, one_run, small_chunks
from tests.run.chaos.test_events_chaos import EXAMPLES, kept_anyhow
from tests.run.chaos.test_state import machine
from tests.run.chaos.transitions import validated

__all__ = ["kept_anyhow", "small_chunks", "validated"]  # fixtures of the module

KERNELS = ["stencil", "map", "change", "stencil"]
GROUPS = ITEMS // GROUP


@pytest.fixture(autouse=True)
def deep(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """As deep as the number of launches says, wherever that is possible; and how many sequences are."""
    found: Counter[str] = Counter()

    def best(self: Any) -> Any:
        deep = self._at(2 + len(self.nodes) % 3)
        found["deep" if deep is not None else "not"] += 1
        return deep

    monkeypatch.setattr(_LaunchSequence, "best", best)
    return found


@st.composite
def loops(draw: Any) -> Graph:
    """Launches on a few buffers, with a host function that reads one of them here and there."""
    builder = GraphBuilder()
    buffers = [builder.buffer(NBYTES, f"b{i}") for i in range(draw(st.integers(2, 3)))]
    for i in range(draw(st.integers(2, 10))):
        keys = draw(st.permutations(buffers))
        if draw(st.integers(0, 9)) == 0:
            builder.add(HostTask(f"h{i}", print, (), tuple(keys[:1]), ()))
        else:
            builder.add(launch(draw(st.sampled_from(KERNELS)), keys))
    return builder.build()


def shared(graph: Graph, cuts: list[int], names: tuple[str, ...]) -> Plan:
    """Every launch in one range on each device."""
    out = []
    for n, task in enumerate(graph.nodes):
        if isinstance(task, HostTask):
            out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
        else:
            ranges = enumerate(pairwise([0, *cuts, GROUPS]))
            out += [Assignment(n, DeviceIndex(d), 0, 0.0, 0.0, 0, a, b - a) for d, (a, b) in ranges]
    return Plan(tuple(out), "shared", names, 0.0)


@st.composite
def placed(draw: Any, graph: Graph) -> tuple[Machine, Plan]:
    count = draw(st.integers(2, 3))
    cuts = sorted(draw(st.sets(st.integers(1, GROUPS - 1), min_size=count - 1, max_size=count - 1)))
    where = machine(list(range(1, count + 1)), [(1, 2)] if draw(st.booleans()) else [])
    return where, shared(graph, cuts, tuple(d.name for d in where.devices))


@settings(max_examples=2 * EXAMPLES)
@given(data=st.data(), graph=loops(), seed=st.integers(0, 2**32))
def test_launches_in_depth_give_the_sequential_result(data: Any, graph: Graph, seed: int) -> None:
    """Two runs: the second finds buffers in parts."""
    where, plan = data.draw(placed(graph))
    directory, values = Directory(), Values(graph, where.memories)
    for key in graph.buffers:
        directory.define(key, home := data.draw(st.integers(0, where.memories - 1)))
        for m in range(-1, where.memories):
            values.put(m, key, Region.span(0, NBYTES), f"initial {key}" if m in (-1, home) else f"stale {m} {key}")
    for turn in range(2):
        one_run(graph, where, plan, directory, values, ChaosBackend(where, seed + turn))
        check_valid(graph, where, directory, values)


@settings(max_examples=2 * EXAMPLES)
@given(data=st.data(), graph=loops(), seed=st.integers(0, 2**32))
def test_devices_that_leave_and_are_lost_change_no_result(data: Any, graph: Graph, seed: int) -> None:
    where, plan = data.draw(placed(graph))
    loss = Loss(data, graph, where, defined=True)
    count = len(where.devices)
    dying = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    faults = Faults(
        dies={d: data.draw(st.integers(0, 60)) for d in dying},
        drains=data.draw(st.booleans()),
        goes_on=data.draw(st.booleans()),
        exact=data.draw(st.booleans()),
    )
    if data.draw(st.booleans()):
        loss.mortal = frozenset(range(count))
    backend = ChaosBackend(where, seed, faults=faults, happening=loss.happening(data, data.draw(st.integers(0, 2))))
    with suppress(RunFailure) if dying else nullcontext():
        loss.run(AnyPlan(plan, seed) if data.draw(st.booleans()) else plan, backend)


def test_no_loss_ends_a_run_in_depth() -> None:
    """A loop from one array to the other and back, whose contents are on the host: as devices work on copies, these
    stay there until the end, and wherever one of them dies, all can be made again from them."""
    builder, where, outcomes = GraphBuilder(), machine([1, 2]), Counter[str]()
    pair = [builder.buffer(NBYTES, name) for name in ("one", "other")]
    for turn in range(7):
        builder.add(launch("stencil", [pair[turn % 2], pair[1 - turn % 2]]))
    graph = builder.build()
    plan = shared(graph, [GROUPS // 2], tuple(d.name for d in where.devices))
    for dies in range(0, 120, 3):
        loss = Loss(None, graph, where, homes=dict.fromkeys(pair, HOST))
        backend = ChaosBackend(where, dies, faults=Faults(dies={dies % 2: dies}, exact=True))
        result = loss.run(plan, backend)
        assert {s.method for lowered in loss.made for s in lowered.steps} == {IN_DEPTH}
        outcomes["recovered" if result.lost else "undisturbed"] += 1
    assert outcomes["recovered"] > 10, outcomes
