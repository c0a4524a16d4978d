"""What the engine makes of static plans on the simulated machine, beside what they say: random graphs and machines."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, Machine
from manycl.model.estimates import Estimates
from manycl.plan.problem import Problem
from manycl.run.engine import result
from manycl.run.lowering.steps import RANGE, Lowered, Step
from manycl.run.simulation.foresee import foresee
from manycl.run.simulation.simulate import plan_with
from manycl.trace import HostEvent, KernelEvent, TransferEvent

FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("", (), {"k": FACTS})
INPUTS = [1 << 12, 1 << 18, 1 << 20, 1 << 22, 1 << 24]  # bytes: small, in between and large, as the engine has it
RESULTS = INPUTS[:4]
LATENCY = 10e-6


class Times(Estimates):
    """Seconds by node and device, and a bandwidth."""

    def __init__(self, rows: list[list[float]], bandwidth: float) -> None:
        self._rows, self._bandwidth = rows, bandwidth

    def launch(self, node: int, device: int) -> float:
        return self._rows[node][device]

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0 if source == target else LATENCY + nbytes / self._bandwidth


def random_graph(chance: random.Random) -> tuple[Graph, set[int]]:
    """Kernels that read a few of the buffers and write one, host functions among them; and the inputs."""
    builder = GraphBuilder()
    known = [builder.buffer(chance.choice(INPUTS)) for _ in range(chance.randint(2, 10))]
    inputs = set(known)
    for i in range(chance.randint(3, 40)):
        reads = tuple(sorted(set(chance.choices(known, k=chance.randint(1, 3)))))
        if chance.random() < 0.05:
            builder.add(HostTask(f"h{i}", print, (), reads, ()))
            continue
        fresh = chance.random() < 0.6
        made = builder.buffer(chance.choice(RESULTS)) if fresh else chance.choice(known)
        known += [made] if fresh else []
        args = tuple(BufferArg(key) for key in dict.fromkeys((*reads, made)))
        overwrites = () if made in reads else (made,)
        size = ((1 << 20,), None)
        builder.add(Launch(f"n{i}", PROGRAM, FACTS, *size, args, reads, (made,), overwrites=overwrites))
    return builder.build(), inputs


def random_problem(seed: int, devices: int) -> Problem:
    chance = random.Random(seed)
    graph, inputs = random_graph(chance)
    own = itertools.count(1)
    memories = [next(own) if devices == 1 or chance.random() < 0.7 else HOST for _ in range(devices)]
    where = Machine(tuple(Device(f"d{i}", "gpu" if m else "cpu", memory=m) for i, m in enumerate(memories)))
    typical = chance.choice([1e-4, 1e-3, 5e-3])
    seconds = [typical * chance.uniform(0.2, 2.0) for _ in graph.nodes]
    rows = [[s * chance.uniform(0.5, 2.0) for _ in memories] for s in seconds]
    times = Times(rows, chance.choice([4e9, 10e9]))
    valid = {key: frozenset({HOST}) for key in inputs}
    return Problem(graph, where, times, (1,) * devices, valid, handover=chance.choice([0.0, 5e-5]))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_one_device_in_order_takes_what_its_plan_says(seed: int) -> None:
    """Data come in the order in which they are needed, whenever they are enqueued and by whatever queue; small ones
    come in the kernels' own queue, which the plan does not know."""
    p = random_problem(seed, 1)
    plan = plan_with("in_order", p)
    assert 0.9 * plan.makespan <= foresee(p, plan).makespan <= 1.15 * plan.makespan


@pytest.mark.parametrize("policy", ["in_order", "cpop", "mkmd_coarse"])
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), devices=st.integers(2, 3))
def test_no_plan_takes_the_engine_far_longer_than_it_says(policy: str, seed: int, devices: int) -> None:
    """The engine moves what is missing as early as it may, and so not always first what is needed first."""
    p = random_problem(seed, devices)
    plan = plan_with(policy, p)
    trace = foresee(p, plan)
    assert trace.makespan <= 2.0 * plan.makespan
    # whatever the graph: before its end there is no time at which nothing goes on and nobody is to hear of anything
    heard = [
        (e.start, e.end + p.handover) for e in trace.events if isinstance(e, KernelEvent | TransferEvent | HostEvent)
    ]
    at = 0.0
    for start, end in sorted(heard):
        assert start <= at + 1e-9, "the engine stands still"
        at = max(at, end)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(1, 3)), max_size=30))
def test_of_many_ranges_a_few_of_the_usual_size_are_learned_from(ranges: list[tuple[int, int, int]]) -> None:
    """(node, device, groups) of each range that ran."""
    steps = tuple(Step(node, RANGE, 0, 0, groups) for node, _, groups in ranges)
    ran = [(token, device, float(token)) for token, (_, device, _) in enumerate(ranges)]
    found = result._typical(Lowered(Graph((), {}, ()), None, steps), ran)
    assert found == [r for r in ran if r in found], "in the order in which they ran"
    for place in {r[:2] for r in ranges}:
        groups = [r[2] for r in ranges if r[:2] == place]
        learned = [ranges[token][2] for token, *_ in found if ranges[token][:2] == place]
        most = max(map(groups.count, groups))
        assert len(learned) == min(most, result.TYPICAL)
        assert len(set(learned)) == 1
        assert groups.count(learned[0]) == most
