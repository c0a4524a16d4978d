"""Devices that leave, come and are lost while real kernels run in ranges, under chaos: any plan on any machine, any
legal order of events, any time of theirs. The result is the sequential one, or the run says what it has lost."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import ResultError
from manycl.graph.copies import copy_task
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, Graph, HostTask
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.tuning import PLANNING
from manycl.run.commands import checkpoint_commands
from manycl.run.engine.engine import RunFailure
from manycl.run.engine.run_history import REPLANNED
from manycl.run.recovery import checkpoints
from manycl.run.recovery.checkpoints import Checkpoints
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.chaos_parts import Faults
from tests.run.chaos.losses import SEEN, KeptAnyhow, Loss, way
from tests.run.chaos.test_divided_chaos import (
    GROUP,
    ITEMS,
    NBYTES,
    graphs,
    launch,
    small_chunks,
)
from tests.run.chaos.test_state import machine, machines
from tests.run.chaos.transitions import validated

__all__ = ["small_chunks", "validated"]  # fixtures of the module

EXAMPLES = int(os.environ.get("MANYCL_TEST_INTERLEAVINGS", "30"))
"""Of each of the eight tests; 2500 are more than ten thousand in all."""


@pytest.fixture(scope="module", autouse=True)
def kept_anyhow() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "_undone", KeptAnyhow.undone)
        patch.setattr(checkpoint_commands, "Checkpoints", KeptAnyhow)
        yield


KINDS = ["static", "shares that move", "asked again", "asked while it runs"]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(), seed=st.integers(0, 2**32))
def test_devices_that_leave_and_come_change_no_result(
    kind: str, data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    loss = Loss(data, graph, where)
    happening = loss.happening(data, data.draw(st.integers(1, 4)))
    backend = ChaosBackend(where, seed, happening=happening)
    plan = way(kind, data, graph, where, seed)
    result = loss.run(plan, backend)
    assert not result.lost
    assert result.playback is not None
    assert result.playback.complete == len(result.playback.graph)


@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(), seed=st.integers(0, 2**32))
def test_runs_that_find_slower_devices_by_themselves(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    loss = Loss(data, graph, where)
    backend = ChaosBackend(where, seed)
    backend.taking = {d: data.draw(st.sampled_from([9.0, 1.0])) for d in where.indices}
    backend._happening = sorted([*loss.lagging(data, backend), *loss.happening(data, 1)], key=lambda h: h[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_DETERMINISTIC", "0")
        patch.setattr("manycl.run.recovery.stragglers.ENOUGH", 1)
        patch.setattr("manycl.run.recovery.stragglers.WORK", 0.0)
        patch.setattr("manycl.run.engine.engine.PLANNING", PLANNING._replace(gain=0.0))
        patch.setattr("manycl.run.recovery.stragglers.StragglerDetection._others_will_tell", lambda _: False)
        if data.draw(st.booleans()):  # others go on as long as they can
            patch.setattr("manycl.run.engine.engine.Liveness.is_over_on", lambda awaited, devices: awaited.is_over)
        result = loss.run(way("asked again", data, graph, where, seed), backend)
    assert not result.lost
    assert result.playback is not None
    assert result.playback.complete == len(result.playback.graph)
    SEEN["may lag"] += 1
    SEEN["lagging"] += any("as foreseen" in t["changed"] for t in result.details.get(REPLANNED, ()))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=EXAMPLES)
@given(data=st.data(), graph=graphs(), where=machines(domains=False), seed=st.integers(0, 2**32))
def test_devices_that_are_lost_change_no_result_or_the_run_says_what_is_lost(
    kind: str, data: Any, graph: Graph, where: Machine, seed: int
) -> None:
    loss = Loss(data, graph, where, defined=True)  # what runs again may find others than before where nothing is
    count = len(where.devices)
    dying = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=max(1, count - 1)))
    faults = Faults(
        dies={d: data.draw(st.integers(0, 40)) for d in dying},
        drains=data.draw(st.booleans()),
        goes_on=data.draw(st.booleans()),
        exact=data.draw(st.booleans()),
    )
    if data.draw(st.booleans()):
        loss.mortal = frozenset(range(count))
    happening = loss.happening(data, data.draw(st.integers(0, 2)))
    backend = ChaosBackend(where, seed, faults=faults, happening=happening)
    plan = way(kind, data, graph, where, seed)
    said = ""
    try:
        result = loss.run(plan, backend)
    except RunFailure as error:
        said = str(error)
        for key in graph.buffers:  # all was defined
            if not (loss.directory.valid.get(key) or loss.directory.valid_regions.get(key)):
                with pytest.raises(ResultError):
                    loss.directory.check(key)
    else:
        SEEN["recovered" if result.lost else "undisturbed"] += 1
    if said and len(dying) < count and not happening:  # there was always a device to go on
        SEEN["failed"] += 1
        assert "it cannot go on without: " in said


def overwritten_twice() -> Graph:
    """A kernel and, behind a host function, a copy write the same bytes; what changes them comes last."""
    builder = GraphBuilder()
    one, other, count = (builder.buffer(NBYTES, name) for name in ("one", "other", "count"))
    builder.add(launch("map", [one, other]))
    builder.add(HostTask("counts", print, (), (other, count), (count,)))
    builder.add(copy_task(Buffer(other, NBYTES), Buffer(one, NBYTES), 4, target_offset=0, source_offset=0))
    builder.add(launch("change", [other]))
    return builder.build()


@settings(max_examples=20)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_steps_that_run_again_keep_an_order_that_they_had_by_way_of_others(data: Any, seed: int) -> None:
    """The kernel and the copy run again, the host function between them does not."""
    graph, where = overwritten_twice(), machine([HOST, 1, HOST])
    loss = Loss(data, graph, where, defined=True)
    ranges = [Assignment(0, DeviceIndex(0), 0, 0.0, 0.0, 0, first, groups) for first, groups in ((1, 7), (0, 1))]
    whole = [Assignment(n, DeviceIndex(d), q, 0.0, 0.0) for n, d, q in ((1, ON_HOST, 0), (2, 0, 1), (3, 2, 0))]
    plan = Plan((*ranges, *whole), "fixed", tuple(d.name for d in where.devices), 0.0)
    result = loss.run(plan, ChaosBackend(where, seed, faults=Faults(dies={2: 0})))
    assert result.lost


def test_what_a_device_alone_had_when_the_run_began_is_no_loss_once_a_step_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was copied to the host before the first step changed it, and nothing is copied later."""
    monkeypatch.setattr(KeptAnyhow, "begin", lambda _, device, costs: list(costs))
    monkeypatch.setattr(KeptAnyhow, "is_due", lambda *given: False)
    monkeypatch.setattr(KeptAnyhow, "last", lambda _: {})
    builder, where, outcomes = GraphBuilder(), machine([1, HOST]), Counter[str]()
    key = builder.buffer(NBYTES, "one")
    for _ in range(4):
        builder.add(launch("change", [key]))
    graph = builder.build()
    steps = tuple(Assignment(n, DeviceIndex(0), 0, 0.0, 0.0) for n in range(4))
    plan = Plan(steps, "fixed", tuple(d.name for d in where.devices), 0.0)
    for seed, dies in product(range(8), range(24)):
        loss = Loss(None, graph, where, homes={key: 1})
        loss.mortal = frozenset({0})
        backend = ChaosBackend(where, seed, faults=Faults(dies={0: dies}))
        try:
            outcomes["recovered" if loss.run(plan, backend).lost else "undisturbed"] += 1
        except RunFailure:
            outcomes["failed"] += 1
            assert 0 not in backend.ends(set())[0]
    assert outcomes["recovered"] > outcomes["failed"], outcomes


@pytest.mark.parametrize("interval", [1, 2, 5])
def test_no_loss_ends_a_run_whose_devices_hand_pieces_on(monkeypatch: pytest.MonkeyPatch, interval: int) -> None:
    """Two devices go to and fro between two arrays, each with half of them in a memory of its own; what each hands on
    by way of the host is newer than what was copied there. Wherever one of them dies, all can be made again from the
    last checkpoint, or from the beginning."""
    asked = Counter[str]()

    def is_due(self: Checkpoints, now: float) -> bool:
        asked["looks"] += 1
        return bool(self._changed[self._turn]) and asked["looks"] % interval == 0

    monkeypatch.setattr(KeptAnyhow, "saves", lambda *given: True)
    monkeypatch.setattr(KeptAnyhow, "is_due", is_due)
    builder, where, groups = GraphBuilder(), machine([1, 2]), ITEMS // GROUP
    one, other = builder.buffer(NBYTES, "one"), builder.buffer(NBYTES, "other")
    for _ in range(3):
        builder.add(launch("stencil", [one, other]))
        builder.add(launch("change", [other]))
        builder.add(launch("map", [other, one]))
    graph, names, outcomes = builder.build(), tuple(d.name for d in where.devices), Counter[str]()
    halves = [(0, 0, groups // 2), (1, groups // 2, groups - groups // 2)]
    steps = tuple(Assignment(n, DeviceIndex(d), 0, 0.0, 0.0, 0, a, b) for n in range(9) for d, a, b in halves)
    for dies, victim in product(range(0, 300, 10), range(2)):
        seed = dies // 10 % 2
        loss = Loss(None, graph, where, homes=dict.fromkeys((one, other), HOST))
        loss.mortal = frozenset(where.indices)
        faults = Faults(dies={victim: dies}, exact=True, drains=seed % 2 == 0)
        backend = ChaosBackend(where, seed, faults=faults)
        outcomes["recovered" if loss.run(Plan(steps, "fixed", names, 0.0), backend).lost else "undisturbed"] += 1
        outcomes["restored"] += backend.restored
    assert outcomes["recovered"] > 25, outcomes
    assert outcomes["restored"] > 5, outcomes


def test_runs_go_on_without_what_is_lost() -> None:
    """What precedes has seen both."""
    if SEEN["recovered"] + SEEN["failed"] + SEEN["undisturbed"] >= 2 * EXAMPLES:
        assert SEEN["recovered"] > SEEN["failed"] / 2, SEEN
        assert SEEN["plans"] > 0
        assert SEEN["after losses"] > 0 or EXAMPLES < 1000, "in one of fifty examples that lose a device"
    assert SEEN["lagging"] > 0 or SEEN["may lag"] < 200, "one of some twenty"
    assert SEEN["paused"] > 0 or SEEN["runs"] < 6 * EXAMPLES, SEEN
