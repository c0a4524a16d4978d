"""Machines with a network: they are planned for and simulated as those with a link for each pair of memories."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import HOST, Device, DeviceIndex, Link, Machine, Network
from manycl.model.estimates import Estimates
from manycl.model.transfer import TransferModel
from manycl.plan.adapt import loops
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify import verify
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import FACTS, PROGRAM

NETWORK = Network(1e9, 1e-4)
GROUPS, ROW = 64, 1 << 12


class Rates(Estimates):
    """A launch takes its work over the rate of a device."""

    def __init__(self, machine: Machine) -> None:
        self._transfers = TransferModel(machine)
        self._rates = [d.flops for d in machine.devices]

    def launch(self, node: int, device: int) -> float:
        return 1e-2 / self._rates[device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self._transfers.seconds(nbytes, source, target)


def cluster(rates: list[float], network: Network | None = NETWORK) -> Machine:
    """Nodes with such rates: on a network, or with a link for each pair."""
    devices = tuple(
        Device(f"node{i}", "node", memory=1 + i, flops=rate, event_domain="all") for i, rate in enumerate(rates)
    )
    pairs = permutations(range(1 + len(rates)), 2)
    links = () if network else tuple(Link(a, b, NETWORK.bandwidth, NETWORK.latency) for a, b in pairs)
    return Machine(devices, links, network=network)


def problem(machine: Machine, steps: int) -> Problem:
    """Sweeps over rows, of which each reads a row more on both sides."""
    builder = GraphBuilder()
    u, v = (builder.buffer(GROUPS * ROW) for _ in range(2))
    splits: dict[int, Split] = {}
    for step in range(steps):
        a, b = (u, v) if step % 2 == 0 else (v, u)
        builder.add(Launch(f"sweep{step}", PROGRAM, FACTS, (GROUPS,), (1,), (BufferArg(a), BufferArg(b)), (a,), (b,)))
        splits[step] = Split(0, GROUPS, {a: LinearRegion(ROW, 3 * ROW, -ROW), b: LinearRegion(ROW)})
    graph: Graph = builder.build()
    valid = {u: frozenset({HOST}), v: frozenset({HOST})}
    return Problem(graph, machine, Rates(machine), (1,) * len(machine.devices), valid, splits=splits)


def planned(of: Problem, name: str = "balance") -> Any:
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    plan = policy.plan(of)
    verify(plan, of.graph, of.machine, of)
    return plan


@pytest.mark.parametrize("rates", [[1.0] * 4, [1.0, 2.0, 3.0], [1.0, 5.0, 1.0, 1.0, 2.0, 1.0, 3.0]])
@pytest.mark.parametrize("name", ["balance", "mkmd", "mkmd_coarse"])
def test_a_network_is_planned_for_as_links_are(rates: list[float], name: str) -> None:
    joined, linked = (planned(problem(cluster(rates, network), 5), name) for network in (NETWORK, None))
    assert [a[:3] + a[5:] for a in joined.assignments] == [a[:3] + a[5:] for a in linked.assignments]
    assert [a.start for a in joined.assignments] == pytest.approx([a.start for a in linked.assignments])


def test_a_loop_is_planned_once_and_extended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each work-group of each repetition runs once, and everything is where it is read: the judge says so."""
    of = problem(cluster([1.0, 2.0, 1.0, 1.0]), 60)
    asked: list[int] = []
    plain = planned(of)
    monkeypatch.setattr(loops, "MANY", 100)
    monkeypatch.setattr(loops.RepeatedLaunches, "extended", _noting(loops.RepeatedLaunches.extended, asked))
    plan = planned(of)
    assert asked
    assert asked[-1] <= 4 * 12, "few of the sixty launches were planned"
    shares = {(a.node, a.device, a.groups) for a in plan.assignments if a.node > 10}
    assert shares == {(a.node, a.device, a.groups) for a in plain.assignments if a.node > 10}
    assert plan.makespan == pytest.approx(plain.makespan, rel=0.05)


def _noting(extended: Any, asked: list[int]) -> Any:
    def noting(self: Any, plan: Any) -> Any:
        asked.append(len(plan.assignments))
        return extended(self, plan)

    return noting


@pytest.mark.parametrize(
    ("moves", "rack", "expected"),
    [
        ([(1, 3), (2, 4)], 0, [1.0, 1.0]),  # each its own connections
        ([(1, 3), (1, 4)], 0, [2.0, 2.0]),  # what one sends
        ([(1, 3), (2, 3)], 0, [2.0, 2.0]),  # what one receives
        ([(1, 3), (2, 4)], 2, [2.0, 2.0]),  # half of a rack's connections lead out of it
        ([(1, 2), (3, 4)], 2, [1.0, 1.0]),  # within racks
        ([(HOST, 1), (HOST, 3), (2, 4)], 2, [2.0, 2.0, 2.0]),  # the host is in no rack; its rack's way in is shared
    ],
)
def test_transfers_share_connections(moves: list[tuple[int, int]], rack: int, expected: list[float]) -> None:
    machine = cluster([1.0] * 4, Network(1e9, 0.0, rack, 2.0))
    assert TransferModel(machine).slowdowns(moves) == pytest.approx(expected)


def test_simulated_transfers_share_connections() -> None:
    """Two nodes that get what a third one has wait for its connection: with links for each pair they do not."""
    builder = GraphBuilder()
    a, b, c = (builder.buffer(10**8) for _ in range(3))
    for name, target in (("make", a), ("left", b), ("right", c)):
        reads = () if target == a else (a,)
        args = tuple(map(BufferArg, (*reads, target)))
        builder.add(Launch(name, PROGRAM, FACTS, (64,), (64,), args, reads, (target,), overwrites=(target,)))
    graph, ends = builder.build(), []
    for network in (NETWORK, None):
        machine = cluster([1.0] * 3, network)
        of = Problem(graph, machine, Rates(machine), (1, 1, 1))
        placed = tuple(Assignment(i, DeviceIndex(i), 0, 0.0, 0.0) for i in range(3))
        ends.append(simulate(of, Plan(placed, "", tuple(d.name for d in machine.devices), 0.0)).makespan)
    assert ends[0] - ends[1] == pytest.approx(0.1, rel=0.01)
