"""Shares that move while launches run, under chaos: real kernels and their regions, any shares on any machine, any
legal order of events."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from manycl.errors import ResultError
from manycl.graph.graph import Graph, Launch
from manycl.machine import HOST, DeviceIndex, Machine
from manycl.plan.merging import Merging
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.region import Region
from manycl.run.commands.backend import Run, TransferQueue
from manycl.run.commands.chunk_commands import PacketEmitter
from manycl.run.data.coherence import Directory
from manycl.run.engine.engine import RunFailure, execute
from manycl.run.engine.setup import Setup
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.stealing.player import MovingPlayer
from manycl.run.stealing.work_stealing import Foreseen, WorkStealing
from manycl.run.stealing.worker import Packet
from tests.run.chaos.chaos import ChaosBackend
from tests.run.chaos.test_divided_chaos import (
    GROUP,
    ITEMS,
    NBYTES,
    Values,
    check_valid,
    graphs,
    one_run,
    plans,
    small_chunks,
)
from tests.run.chaos.test_state import machine, machines, unit
from tests.run.chaos.transitions import validated

GROUPS = ITEMS // GROUP
SHORTENED: list[int] = []
"""How many launches have ended early, of runs."""
BROUGHT: list[int] = []
"""How many pieces came to devices ahead, each time."""
__all__ = ["small_chunks", "validated"]  # fixtures of the module


@st.composite
def shares(draw: Any, graph: Graph, where: Machine) -> Plan:
    """Any plan in which devices have one share each of most launches, which may move; some are on one device at a
    time, some stay where they are until devices leave or come."""
    plan: Plan = draw(plans(graph, where))
    out: list[Assignment] = []
    whole = {a.node: a for a in plan.assignments}
    for n, task in enumerate(graph.nodes):
        if not isinstance(task, Launch) or task.name == "part" or draw(st.integers(0, 5)) == 0:
            out += [a for a in plan.assignments if a.node == n]
            continue
        places = draw(st.permutations(range(len(where.devices))))
        cuts = sorted(draw(st.sets(st.integers(1, GROUPS - 1), max_size=len(places) - 1)))
        for d, (low, high) in zip(places, itertools.pairwise([0, *cuts, GROUPS]), strict=False):
            queue = draw(st.integers(0, 1))
            out.append(Assignment(n, DeviceIndex(d), queue, 0.0, 0.0, 0, low, high - low))
    assert whole.keys() == {a.node for a in out}
    movable = sorted({a.node for a in out if a.is_range})
    in_turn = [n for n in movable if draw(st.integers(0, 3)) == 0]
    still = tuple(n for n in movable if draw(st.integers(0, 2)) == 0)
    return replace(plan, assignments=tuple(out), movable=tuple(movable), in_turn=tuple(in_turn), still=still)


class StolenAnyhow(WorkStealing):
    """Takes of any size, and anybody steals anything: the same for the same launch, whatever ran before."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._random = random.Random(1)

    def _end_of_packet(self, member: Any, first: int, end: int, now: float) -> int:
        return self._random.randint(first if member.given else first + 1, end)

    def _steal(self, thief: Any, now: float) -> DeviceIndex | None:
        deques = [(d, *w.rest) for d, w in self.workers.items() if w.rest[0] < w.rest[1]]
        if not deques:
            return None
        victim, low, high = self._random.choice(deques)
        cut = self._random.randint(low, high - 1)
        thief.rest, self.workers[victim].rest = (cut, high), (low, cut)
        return victim

    def _divide(self, thief: Any, victim: Any, chunks: tuple[int, int], *given: Any) -> int:
        return self._random.randint(*chunks)

    def wanted(self, device: DeviceIndex, now: float) -> Packet | None:
        thief = self.workers.get(device)
        if thief is None or not thief.is_idle:
            return None
        ending = [w for w in self.workers.values() if w is not thief and w.shortens and not w.is_near]
        packets = [packet for w in ending for packet, _, _ in w.given if not packet.again]
        return self._random.choice(packets) if packets else None

    def restart(self, device: DeviceIndex, now: float, may: Any) -> tuple[float, Packet] | None:
        """Any packet that may be is begun anew, or none."""
        thief = self.workers[device]
        if not thief.is_idle or self.still or self._random.random() < 0.5:
            return None
        others = [w for w in self.workers.values() if w is not thief and not w.shortens]
        given = [p for w in others for p, _, _ in w.given if p.last - p.first > p.again + 1]
        packets = [p for p in given if may(p)]
        return (now, self._random.choice(packets)) if packets else None

    def foreseen(self, device: DeviceIndex, free: float, now: float) -> Foreseen:
        """Any device takes any chunks, whatever it has run: the same where all else is the same."""
        chance = random.Random(repr((device, free, now, [(w.rest, w.until) for w in self.workers.values()])))
        count = len(self.chunks.steps)
        first = chance.randrange(count)
        return Foreseen(first, chance.randint(first, count), None)


@pytest.fixture(autouse=True, scope="module", params=["as it pays", "anyhow"])
def stealing(request: pytest.FixtureRequest) -> Iterator[str]:
    bring = PacketEmitter.prefetch

    def noted(*given: Any) -> list[int]:
        tokens = bring(*given)
        BROUGHT.append(len(tokens))
        return tokens

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PacketEmitter, "prefetch", noted)
        if request.param == "anyhow":
            patch.setattr("manycl.run.stealing.share_scheduler.WorkStealing", StolenAnyhow)
        yield request.param


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_shares_that_move_give_the_sequential_result(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    directory, values = Directory(), Values(graph, where.memories)
    for key in graph.buffers:
        if data.draw(st.integers(0, 3)):
            home = data.draw(st.integers(0, where.memories - 1))
            directory.define(key, home)
            for m in range(-1, where.memories):
                value = f"initial {key}" if m in (-1, home) else f"stale {m} {key}"
                values.put(m, key, Region.span(0, NBYTES), value)
    for turn in range(2):
        backend = ChaosBackend(where, seed + turn)
        plan = data.draw(shares(graph, where))
        one_run(graph, where, plan, directory, values, backend)
        check_valid(graph, where, directory, values)
        assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"


@st.composite
def hosts_with_devices(draw: Any) -> Machine:
    """Some devices compute in the host's memory, others in their own."""
    memories = draw(st.permutations([HOST, *[HOST] * draw(st.integers(0, 1)), *range(1, 1 + draw(st.integers(1, 2)))]))
    memories = [memory and sorted({*memories}).index(memory) for memory in memories]
    shared = draw(st.booleans()) and [*memories, max(memories)]
    found = machine(list(shared or memories))
    domain = draw(st.sampled_from(["", "a"]))
    return replace(
        found, devices=tuple(replace(d, shortens=draw(st.booleans()), event_domain=domain) for d in found.devices)
    )


class SlowTransfers(ChaosBackend):
    """What comes to devices ahead, or to the host, begins at once, and ends after all else that can."""

    def _advance(self, at: Any) -> None:
        if len(at) == 3 and _is_slow(at):
            others = [p for p in (*self._startable(), *self._active) if len(p) == 2 or not _is_slow(p)]
            at = self._random.choice(others or [at])
        super()._advance(at)


def _is_slow(place: Sequence[int]) -> bool:
    return place[1] in (TransferQueue.PREFETCH, TransferQueue.DOWNLOAD)


@settings(max_examples=80)
@given(st.data(), graphs(), hosts_with_devices(), st.integers(0, 2**32))
def test_what_moves_in_vain_changes_nothing(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    """What the host has may come to devices that take nothing of what reads it, and what devices have to the host for
    packets that run elsewhere; others write it meanwhile."""
    directory, values = Directory(), Values(graph, where.memories)
    for key in graph.buffers:
        home = data.draw(st.just(HOST) | st.integers(0, where.memories - 1))
        directory.define(key, home)
        for m in range(-1, where.memories):
            values.put(m, key, Region.span(0, NBYTES), f"initial {key}" if m in (-1, home) else f"stale {m} {key}")
    for turn in range(2):
        backend = SlowTransfers(where, seed + turn)
        one_run(graph, where, data.draw(shares(graph, where)), directory, values, backend)
        check_valid(graph, where, directory, values)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def packets_of_a_run(played: list[MovingPlayer], data: Any, graph: Graph, where: Machine, seed: int) -> None:
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, data.draw(st.integers(0, where.memories - 1)))
    plan = data.draw(shares(graph, where))
    queues, merging = tuple(2 for _ in where.devices), get_args(Merging)[seed % 3]
    problem = Problem(graph, where, unit(seed), queues, splits=Splits(graph), merging=merging)
    before, backend = len(played), ChaosBackend(where, seed)
    result = execute(problem, plan, backend, directory)
    SHORTENED.append(backend.shortened)
    for player in played[before:]:
        assert result.plan is plan
        command_graph, lowered = player.written(), player.ran
        ran = [lowered.step(c.token) for c in command_graph.commands if isinstance(c, Run)]
        for node in lowered.chunks:
            mine = sorted((step for step in ran if step.node == node), key=lambda step: step.first)
            assert [s.first for s in mine] == [sum(s.groups for s in mine[:i]) for i in range(len(mine))]
            assert sum(s.groups for s in mine) == GROUPS
        if (kept := player.settled(plan)) is not None:  # what it is kept as runs all of each launch
            for node in lowered.chunks:
                assert sum(a.groups for a in kept.assignments if a.node == node) == GROUPS


def test_packets_are_all_of_a_launch(played: list[MovingPlayer], stealing: str) -> None:
    SHORTENED.clear()
    BROUGHT.clear()
    for number in range(20):  # graphs are few in which somebody is idle while others have deques, or packets
        hypothesis.seed(number)(packets_of_a_run)(
            played
        )  # other examples in each round, also where they are the same every time
        if stealing != "anyhow" or (any(SHORTENED) and any(any(player.stolen.values()) for player in played)):
            break
    takes = [c for player in played for c in player.written().commands if isinstance(c, Run) and c.chunks]
    assert len(takes) > 20
    assert any(len(c.chunks) > 1 for c in takes)
    assert any(c.beside for c in takes)
    assert not all(c.beside for c in takes)
    assert stealing != "anyhow" or any(any(player.stolen.values()) for player in played)
    assert stealing != "anyhow" or any(SHORTENED)
    assert any(BROUGHT)


@settings(max_examples=60)
@given(st.data(), graphs(), machines(), st.integers(0, 2**32))
def test_what_a_failed_packet_leaves_is_unknown(data: Any, graph: Graph, where: Machine, seed: int) -> None:
    directory = Directory()
    for key in graph.buffers:
        directory.define(key, data.draw(st.integers(0, where.memories - 1)))
    victim = data.draw(st.integers(0, len(graph) - 1))
    plan = data.draw(shares(graph, where))

    def lowering(*given: Any) -> Lowered:
        lowered = lower(*given)
        tokens = [t for t in range(len(lowered.graph)) if lowered.step(t).node == victim]
        backend._fail = {data.draw(st.sampled_from(tokens))}
        return lowered

    backend = ChaosBackend(where, seed)
    queues, merging = tuple(2 for _ in where.devices), get_args(Merging)[seed % 3]
    problem = Problem(graph, where, unit(seed), queues, splits=Splits(graph), merging=merging)
    with pytest.raises(RunFailure, match=rf"node {victim}\)"):
        execute(problem, plan, backend, directory, setup=Setup(lowering))
    directory.validate(where.memories)
    assert not any(key < 0 for key in (*directory.valid, *directory.valid_regions)), "pieces are left"
    for key in graph.buffers:
        if not (directory.valid.get(key) or directory.valid_regions.get(key)):
            with pytest.raises(ResultError):
                directory.check(key)
