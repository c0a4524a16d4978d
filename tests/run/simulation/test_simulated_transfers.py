"""Transfers at the same time on the simulated machine, against a hand calculation of fair sharing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch
from manycl.machine import HOST, Device, Link, Machine, Sharing
from manycl.model.estimate import ModelEstimates
from manycl.model.history.history import History, Shape, identity, kernel_key
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.run.simulation.simulate import simulate
from manycl.trace import Trace

RATE = 1e9  # bytes per second, each way
MACHINE = Machine(
    tuple(Device(f"gpu{i}", "gpu", memory=i + 1) for i in range(2)),
    tuple(Link(a, b, RATE, 0.0) for m in (1, 2) for a, b in ((HOST, m), (m, HOST))),
)
FACTS = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("", (), {"k": FACTS})
KERNEL_SECONDS = 1e-6


def launch(reads: tuple[int, ...], writes: tuple[int, ...] = ()) -> Launch:
    args = tuple(BufferArg(k) for k in dict.fromkeys((*reads, *writes)))
    return Launch("k", PROGRAM, FACTS, (64,), None, args, reads, writes)


def simulated(graph: Graph, where: list[int], sharing: Sharing) -> Trace:
    """Kernels of no length to speak of on these devices; all buffers are on the host at the start."""
    history = History()
    for device in MACHINE.devices:
        for _ in range(2):
            history.observe(kernel_key(launch(())), Shape((64,), 1.0), identity(device), KERNEL_SECONDS)
    machine = replace(MACHINE, sharing=sharing)
    estimates = ModelEstimates(graph, machine, history)
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    problem = Problem(graph, machine, estimates, (1, 1), valid, handover=0.0)
    order = tuple(Assignment(n, d, 0, 0.0, 0.0) for n, d in enumerate(where))
    return simulate(problem, Plan(order, "by hand", tuple(d.name for d in MACHINE.devices), 0.0))


def two_uploads(first: int, second: int) -> Graph:
    builder = GraphBuilder()
    builder.add(launch((builder.buffer(first),)))
    builder.add(launch((builder.buffer(second),)))
    return builder.build()


def ends(trace: Trace) -> dict[str, float]:
    return {t.target: t.end for t in trace.transfers()}


def test_two_links_that_nothing_limits_do_not_meet() -> None:
    found = ends(simulated(two_uploads(10**9, 10**9), [0, 1], Sharing()))
    assert found == {"gpu0": pytest.approx(1.0), "gpu1": pytest.approx(1.0)}


def test_the_hosts_memory_is_shared_until_the_shorter_one_ends() -> None:
    found = ends(simulated(two_uploads(10**9, 4 * 10**8), [0, 1], Sharing(sends={HOST: 1e9})))
    # half the rate each until 0.4 GB are there at 0.8 s; the other has 0.6 GB left, and all of the rate
    assert found == {"gpu1": pytest.approx(0.8), "gpu0": pytest.approx(1.4)}


def test_a_limit_above_one_link_only_slows_both() -> None:
    found = ends(simulated(two_uploads(10**9, 10**9), [0, 1], Sharing(sends={HOST: 1.5e9})))
    assert found == {"gpu0": pytest.approx(4 / 3), "gpu1": pytest.approx(4 / 3)}


def both_ways() -> Graph:
    """gpu1 needs what gpu0 has written, while gpu0 is sent more for its second kernel."""
    builder = GraphBuilder()
    a, b, c = (builder.buffer(10**9) for _ in range(3))
    builder.add(launch((), (a,)))
    builder.add(launch((a,)))
    builder.add(launch((b,)))
    builder.add(launch((c,)))
    return builder.build()


@pytest.mark.parametrize(("half", "seconds"), [(False, 3.0), (True, 4.0)])
def test_half_duplex(half: bool, seconds: float) -> None:
    sharing = Sharing(half_duplex=frozenset({1})) if half else Sharing()
    trace = simulated(both_ways(), [0, 1, 0, 0], sharing)
    # gpu0: a up (1 s); then a down beside b up, and c up: 2 s at full duplex, 3 s where both ways share a link
    assert max(t.end for t in trace.transfers() if t.target == "gpu0" or t.source == "gpu0") == pytest.approx(
        seconds, rel=1e-4
    )


@st.composite
def contended_problems(draw: Any) -> Problem:
    """Random kernels on the two devices, whose transfers meet."""
    builder = GraphBuilder()
    buffers = [builder.buffer(draw(st.integers(1, 9)) * 10**6) for _ in range(draw(st.integers(2, 4)))]
    some = st.lists(st.sampled_from(buffers), max_size=2, unique=True).map(tuple)
    for _ in range(draw(st.integers(1, 8))):
        builder.add(launch(draw(some), draw(some)))
    graph = builder.build()
    sharing = Sharing(
        draw(st.frozensets(st.sampled_from([1, 2]))), {HOST: draw(st.floats(0.5, 3)) * RATE}, {HOST: 1.2 * RATE}
    )
    history = History()
    for device in MACHINE.devices:
        for _ in range(2):
            history.observe(kernel_key(launch(())), Shape((64,), 1.0), identity(device), draw(st.floats(1e-4, 1e-2)))
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    machine = replace(MACHINE, sharing=sharing)
    return Problem(graph, machine, ModelEstimates(graph, machine, history), (1, 1), valid, handover=1e-4)


@given(contended_problems())
@settings(max_examples=40)
def test_estimates_of_plans_whose_transfers_meet(p: Problem) -> None:
    """The engine may begin them in another order."""
    for policy in ("in_order", "auto"):
        asked = replace(p, options={"budget": "0.05"} if policy == "auto" else {})
        plan = find(policy).plan(asked)  # type: ignore[union-attr]
        assert simulate(p, plan).makespan == pytest.approx(plan.makespan, rel=0.5)  # 30 % was seen, twice


@given(st.lists(st.integers(1, 1 << 17), min_size=1, max_size=12), st.integers(1 << 16, 1 << 24), st.booleans())
@settings(max_examples=60)
def test_a_link_carries_no_more_than_its_bandwidth(sizes: list[int], large: int, limited: bool) -> None:
    """Also where small inputs of kernels do not wait for a large one: no span has more bytes of transfers that begin
    and end in it than the link carries in that time."""
    builder, made = GraphBuilder(), 0
    for size in sizes:  # a chain: each kernel needs an input of its own
        read = builder.buffer(size)
        before, made = made, builder.buffer(64)
        builder.add(launch((before, read) if before else (read,), (made,)))
    builder.add(launch((made, builder.buffer(large))))
    trace = simulated(builder.build(), [0] * (len(sizes) + 1), Sharing(sends={HOST: 2 * RATE} if limited else {}))
    found = [t for t in trace.transfers() if t.target == "gpu0"]
    for low in (t.start for t in found):
        for high in (t.end for t in found):
            inside = sum(t.nbytes for t in found if t.start >= low and t.end <= high)
            assert inside <= RATE * (high - low) * (1 + 1e-6) or high < low
