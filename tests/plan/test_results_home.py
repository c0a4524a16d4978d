"""What the host reads afterwards is a part of the graph: every policy plans, shows and counts its way to the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.graph.dependences import GraphBuilder, with_results
from manycl.graph.graph import BufferArg, Graph, Launch, ResultTask
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.model.transfer import SMALL
from manycl.plan.plan import fitted
from manycl.plan.policy import find, is_static, names
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.run.simulation.simulate import plan_of, plan_with, simulate
from manycl.trace import HostEvent, Trace, TransferEvent
from tests.plan.plan_cases import FACTS, PROGRAM, Table, launch, machine, problem

MS = 1e-3  # the engine gives a queue no more than a second of work ahead
OPTIONS = {"optimal": {"effort": "0.1"}, "portfolio": {"effort": "300"}}
POLICIES = [name for name in names() if name != "optimal"]


class Case:
    """Kernels that wait for nothing, each with an array of its own, on devices of which all but the first have memories
    of their own; the host reads some of the arrays. ``sizes``: bytes; a byte takes ``per_byte`` seconds to move."""

    def __init__(
        self, seconds: list[list[float]], sizes: list[int], wanted: list[bool], per_byte: float, handover: float
    ) -> None:
        self.seconds, self.sizes, self.wanted = seconds, sizes, wanted
        self.per_byte, self.handover = per_byte, handover
        builder = GraphBuilder()
        keys = [builder.buffer(size, f"b{i}") for i, size in enumerate(sizes)]
        for i, key in enumerate(keys):
            builder.add(launch(f"k{i}", (), (key,), overwrites=(key,)))
        results = [key for key, is_wanted in zip(keys, wanted, strict=True) if is_wanted]
        rows = seconds + [[0.0 for _ in seconds[0]]] * bool(results)
        self.problem = problem(
            with_results(builder.build(), results),
            rows,
            machine(range(len(seconds[0]))),
            per_byte=per_byte,
            handover=handover,
        )

    def makespan(self, order: list[tuple[int, int]], begun: Mapping[int, float] | None = None) -> float:
        """The end of kernels that run one after another on each device (kernel, device), and of what is then sent home,
        one transfer after another on each device's link. ``begun``: when a policy that decides at run time had kernels
        begin."""
        free, link = [0.0] * len(self.seconds[0]), [0.0] * len(self.seconds[0])
        known = 0.0
        for kernel, device in order:
            start = free[device] if begun is None else begun[kernel]
            assert start >= free[device]
            free[device] = end = start + self.seconds[kernel][device]
            if self.wanted[kernel]:
                if device:
                    end = link[device] = max(end, link[device]) + self.sizes[kernel] * self.per_byte
                known = max(known, end + self.handover)
        return max(*free, *link, known)

    def best(self) -> float:
        """The least makespan of all orders and devices."""
        count, devices = len(self.seconds), range(len(self.seconds[0]))
        every = product(permutations(range(count)), product(devices, repeat=count))
        return min(self.makespan([(k, where[k]) for k in order]) for order, where in every)


@st.composite
def cases(draw: Any, most: int = 4) -> Case:
    count, devices = draw(st.integers(1, most)), draw(st.integers(2, 3))
    times = st.integers(1, 20).map(lambda t: t * MS)
    return Case(
        [[draw(times) for _ in range(devices)] for _ in range(count)],
        [SMALL * draw(st.integers(1, 20)) for _ in range(count)],
        [draw(st.booleans()) for _ in range(count)],
        MS / SMALL,
        draw(st.sampled_from([0.0, 0.5 * MS])),
    )


def judged(case: Case, trace: Trace, is_planned: bool) -> None:
    """What ran where is told; that it took so long, and what came home, is found anew."""
    devices = {name: d for d, name in enumerate(trace.devices)}
    order = [(e.node, devices[e.device]) for e in sorted(trace.kernels(), key=lambda e: (e.start, e.node))]
    begun = None if is_planned else {e.node: e.start for e in trace.kernels()}
    assert trace.makespan == pytest.approx(case.makespan(order, begun), rel=1e-9)
    home = sorted(e.buffer for e in trace.events if isinstance(e, TransferEvent))
    assert home == sorted(kernel for kernel, device in order if device and case.wanted[kernel])
    called = [e for e in trace.events if isinstance(e, HostEvent)]
    assert [e.name for e in called] == ["results"] * any(case.wanted)
    assert all(e.start >= t.end for e in called for t in trace.events if isinstance(t, TransferEvent))


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=15, deadline=None)
@given(case=cases())
def test_every_policys_makespan_has_the_way_home(name: str, case: Case) -> None:
    asked = replace(case.problem, options=OPTIONS.get(name, {}))
    trace = simulate(asked, name)
    judged(case, trace, is_static(find(name)))
    assert trace.makespan >= case.best() * (1 - 1e-9)
    if is_static(find(name)):
        foreseen = plan_with(name, asked)
        assert foreseen.makespan == pytest.approx(trace.makespan, rel=1e-9)
        assert any(isinstance(e, TransferEvent) for e in foreseen.events) == any(
            isinstance(e, TransferEvent) for e in trace.events
        )
    else:
        assert plan_of(trace).makespan == pytest.approx(trace.makespan, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(case=cases(3))
def test_searching_policies_find_the_least(case: Case) -> None:
    """``portfolio`` of what list scheduling in any order can reach, which is at least what ``heft`` does."""
    found = simulate(replace(case.problem, options=OPTIONS["portfolio"]), "portfolio").makespan
    assert found <= simulate(case.problem, "heft").makespan * (1 + 1e-9)
    pytest.importorskip("ortools")
    found = simulate(replace(case.problem, options=OPTIONS["optimal"]), "optimal").makespan
    assert found == pytest.approx(case.best(), rel=1e-4)


# these take the first free device, or the one that is meant; or count mean times, as their papers have it
WITHOUT = ("eager", "fcfs", "tenths", "cpop", "peft")


@pytest.mark.parametrize("name", [n for n in POLICIES if n not in WITHOUT])
@settings(max_examples=10, deadline=None)
@given(slow=st.integers(30, 60), fast=st.integers(1, 29), link=st.integers(1, 90), handover=st.sampled_from([0.0, 0.5]))
def test_one_kernel_goes_where_its_result_is_on_the_host_first(
    name: str, slow: int, fast: int, link: int, handover: float
) -> None:
    case = Case([[slow * MS, fast * MS]], [link * SMALL], [True], MS / SMALL, handover * MS)
    assert simulate(case.problem, name).makespan == pytest.approx(case.best(), rel=1e-9)


GROUPS = 64


def divisible(slow: float, fast: float, nbytes: int, per_byte: float) -> Problem:
    """A kernel of which each work-group writes bytes of its own, all of which the host reads."""
    builder = GraphBuilder()
    key = builder.buffer(nbytes, "out")
    builder.add(Launch("big", PROGRAM, FACTS, (GROUPS * 16,), (16,), (BufferArg(key),), (), (key,), overwrites=(key,)))
    p = problem(with_results(builder.build(), [key]), [[slow, fast], [0.0, 0.0]], machine((HOST, 1)))
    estimates = Table([[slow, fast], [0.0, 0.0]], 0.0, per_byte)
    where = tuple(replace(d, launch_overhead=0.0) for d in p.machine.devices)
    split = {0: Split(0, GROUPS, {key: LinearRegion(nbytes // GROUPS)})}
    return replace(p, estimates=estimates, machine=replace(p.machine, devices=where), splits=split)


@pytest.mark.parametrize("name", ["mkmd", "balance", "repara"])
@pytest.mark.parametrize("fast", [1.0, 7.0, 20.0])
@pytest.mark.parametrize("home", [0.0, 10.0, 33.6, 80.0])
def test_divided_kernels_have_their_results_on_the_host_together(name: str, fast: float, home: float) -> None:
    """No worse than the best division with the way home behind the kernel (the engine may begin it before), but for
    steps of a sixteenth in REPARA's plans."""
    slow, nbytes = 39.3, GROUPS * 1000
    p = divisible(slow * MS, fast * MS, nbytes, home * MS / nbytes)
    ends = [max(slow * n, (fast + home) * (GROUPS - n)) / GROUPS for n in range(GROUPS + 1)]
    found = simulate(p, name)
    assert found.makespan <= (min(ends) + (slow / 16 if name == "repara" else slow / 50)) * MS
    assert found.makespan == plan_with(name, p).makespan


def test_plans_fit_graphs_with_and_without_results() -> None:
    """A plan that was saved of a graph that was not read is followed where it is read, and the other way round."""
    case = Case([[3 * MS, 1 * MS]], [5 * SMALL], [True], MS / SMALL, 0.0)
    graph = case.problem.graph
    without = replace(case.problem, graph=Graph(graph.nodes[:1], graph.buffers, graph.predecessors[:1]))
    there, read = plan_with("in_order", without), plan_with("in_order", case.problem)
    assert (there.makespan, read.makespan) == (1 * MS, 3 * MS)
    assert simulate(case.problem, there).makespan == pytest.approx(6 * MS)
    assert simulate(without, read).makespan == pytest.approx(3 * MS)
    assert fitted(there, without.graph) is there
    assert fitted(read, graph) is read


def test_nodes_are_added_only_for_what_is_written() -> None:
    builder = GraphBuilder()
    a, b = builder.buffer(4, "a"), builder.buffer(4, "b")
    builder.add(launch("k", (a,), (b,)))
    graph = builder.build(components=((0,),))
    assert with_results(graph, [a]).nodes == graph.nodes
    found = with_results(graph, [b, a, b])
    assert isinstance(found.nodes[1], ResultTask)
    assert found.nodes[1].reads == (b,)
    assert (found.predecessors, found.components) == (((), (0,)), ((0,), (1,)))
    where = Machine((Device("cpu0", "cpu"), Device("gpu0", "gpu", memory=1)))
    p = problem(found, [[1.0, 1.0]] * 2, where, per_byte=0.5)
    assert [p.home_seconds(0, DeviceIndex(d)) for d in (0, 1)] == [0.0, 2.0]
    assert problem(graph, [1.0, 1.0], where, per_byte=0.5).home_seconds(0, DeviceIndex(1)) == 0.0
