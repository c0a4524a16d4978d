"""A link between two devices' memories, which a machine file describes, is used by all who plan, simulate and judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manycl.errors import MachineError, PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, Device, Link, Machine
from manycl.machine_file import format_machine, parse_machine
from manycl.model.estimates import Estimates
from manycl.model.transfer import TransferModel
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.timeline.writer_intervals import Move
from manycl.plan.verification.verify import verify
from manycl.run.commands.backend import Copy
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.data.coherence import Directory
from manycl.run.lowering.lower import lower
from manycl.run.simulation.foresee import foresee
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import estimated, launch
from tests.run.commands.verify_commands import CommandGraphError, verify_commands

NBYTES = 50_000_000
KERNEL = 1e-3
BY_LINK = 1e-3 + 1e-5
HANDOVER = 1e-5

GPU = """
[[device]]
name = "{name}"
kind = "gpu"
memory = "own"
compute_units = 16
clock = "1 GHz"
flops = "1 TFLOP/s"
bandwidth = "500 GB/s"
global_memory = "{memory}"
max_allocation = "{memory}"
launch_overhead = "5 us"
[[link]]
from = "host"
to = "{name}"
both_ways = true
bandwidth = "5 GB/s"
latency = "20 us"
"""
BETWEEN = """
[[link]]
from = "gpu0"
to = "gpu1"
both_ways = true
bandwidth = "50 GB/s"
latency = "10 us"
"""

TWO_NODES = """
name = "two nodes"
[[memory]]
name = "node1"
[[device]]
name = "cpu1"
kind = "cpu"
memory = "node1"
compute_units = 8
clock = "1 GHz"
flops = "100 GFLOP/s"
bandwidth = "50 GB/s"
global_memory = "64 GiB"
max_allocation = "64 GiB"
"""
NODES = """
[[link]]
from = "host"
to = "node1"
both_ways = true
bandwidth = "10 GB/s"
latency = "30 us"
"""


def machine(between: str = BETWEEN, memory: str = "8 GiB") -> Machine:
    gpus = "".join(GPU.format(name=f"gpu{i}", memory=memory) for i in range(2))
    return parse_machine(f'name = "two"\n[host]\nbandwidth = "10 GB/s"\n{gpus}{between}')


def two_nodes(gpus: int = 1) -> Machine:
    """``gpus`` of each node are linked to their node's memory alone, and the nodes' memories to each other."""
    text = TWO_NODES
    for node, home in enumerate(("host", "node1")):
        for i in range(gpus):
            gpu = GPU.format(name=f"gpu{node}{i}", memory="8 GiB")
            text += gpu.replace('from = "host"', f'from = "{home}"')
    return parse_machine(text + NODES)


class Links(Estimates):
    """Every kernel takes as long; transfers what the machine's links say."""

    def __init__(self, where: Machine) -> None:
        self._transfers = TransferModel(where)

    def launch(self, node: int, device: int) -> float:
        return KERNEL

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return self._transfers.seconds(nbytes, source, target)


def handed_on(*, last: bool = False) -> Graph:
    """The second GPU reads what the first has made (and a host function what that has made)."""
    builder = GraphBuilder()
    x, y = builder.buffer(NBYTES, "x"), builder.buffer(NBYTES, "y")
    builder.add(launch("make", (), (x,), device="gpu0", overwrites=(x,)))
    builder.add(launch("take", (x,), (y,), device="gpu1", overwrites=(y,)))
    if last:
        builder.add(HostTask("look", print, (), (y,), ()))
    return builder.build()


def problem(where: Machine, graph: Graph, **options: str) -> Problem:
    return Problem(graph, where, Links(where), (1, 1), handover=HANDOVER, options=options)


def ways(p: Problem, policy: str) -> list[tuple[str, str]]:
    return [(e.source, e.target) for e in simulate(p, policy).transfers()]


@pytest.mark.parametrize("policy", ["heft", "clustering", "mkmd_coarse", "mkmd", "balance", "portfolio", "auto"])
def test_data_go_by_the_link_of_two_devices(policy: str) -> None:
    with_link, without = (problem(machine(between), handed_on(last=True)) for between in (BETWEEN, ""))
    assert ways(with_link, policy) == [("gpu0", "gpu1"), ("gpu1", "host")]
    assert ways(without, policy) == [("gpu0", "host"), ("host", "gpu1"), ("gpu1", "host")]


@pytest.mark.parametrize("policy", ["mkmd_coarse", "mkmd", "balance"])
def test_a_plan_is_what_the_machine_then_takes(policy: str) -> None:
    p = problem(machine(), handed_on())
    plan = estimated(policy, p)
    assert plan.makespan == pytest.approx(2 * KERNEL + BY_LINK + HANDOVER)
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan)


def test_the_search_for_the_best_plan_knows_it_too() -> None:
    pytest.importorskip("ortools")
    builder = GraphBuilder()
    x, y, z = (builder.buffer(NBYTES, name) for name in "xyz")
    for key in (x, y):
        builder.add(launch("make", (), (key,), device="gpu0", overwrites=(key,)))
    builder.add(launch("take", (x, y), (z,), device="gpu1", overwrites=(z,)))
    plan = estimated("optimal", problem(machine(), builder.build()))
    # the second one waits for the first on the link
    assert plan.makespan == pytest.approx(2 * KERNEL + 2 * BY_LINK + HANDOVER)
    assert plan.details["status"] == "optimal"


def test_the_judge_knows_that_data_cannot_have_come_sooner() -> None:
    p = problem(machine(), handed_on())
    plan = estimated("mkmd_coarse", p)
    first, second = plan.assignments
    early = second.at(first.end + 0.9 * BY_LINK, first.end + 0.9 * BY_LINK + KERNEL)
    with pytest.raises(PolicyError, match="node 1 starts before buffer 0 of node 0 can have arrived"):
        verify(replace(plan, assignments=(first, early)), p.graph, p.machine, p)


def test_what_a_link_between_devices_carries_is_not_drawn_of_the_host_s_memory() -> None:
    """Its 50 GB/s are more than the 10 GB/s of the host."""
    p = problem(machine(), handed_on())
    plan = foresee(p, estimated("mkmd_coarse", p))
    moved = next(plan.transfers())
    assert moved.end - moved.start == pytest.approx(BY_LINK)
    verify(replace(estimated("mkmd_coarse", p), events=plan.events), p.graph, p.machine, p)


def test_partial_results_are_merged_by_the_link() -> None:
    where = machine()
    builder = GraphBuilder()
    x = builder.buffer(NBYTES, "x")
    builder.add(launch("sum", (), (x,), overwrites=(x,)))
    p = replace(problem(where, builder.build()), splits={0: Split(0, 100, merge=Reduction.DIFFERENCE)})
    timeline = Timeline(p, [[KERNEL, KERNEL]])
    timeline.complete(0, [timeline.take(timeline.fit(0, d, 50 * d, 50)) for d in range(2)])
    assert [(m.source, m.target) for m in timeline.what if isinstance(m, Move)] == [(2, 1)]


def test_the_command_graph_says_so_and_its_judge_finds_what_waits_for_less() -> None:
    p = problem(machine(), handed_on())
    plan, directory = estimated("mkmd_coarse", p), Directory()
    lowered = lower(p, plan, directory)
    directory.open(lowered.cut, lowered.lies)
    command_graph = compiled(Subject(p, lowered, directory.valid), plan)
    verify_commands(command_graph)
    (upload,) = (c for c in command_graph.commands if isinstance(c, Copy))
    at = command_graph.commands.index(upload)
    assert command_graph.hears[0] == [at]
    assert (upload.buffer, upload.device, upload.source, upload.target) == (0, 1, 1, 2)
    with pytest.raises(CommandGraphError, match="at the same time"):
        verify_commands(
            replace(
                command_graph,
                hears={**command_graph.hears, 0: []},
                waits={i: n for i, n in command_graph.waits.items() if i != at},
            )
        )


def test_nothing_goes_by_it_where_the_host_has_the_contents() -> None:
    def nearest(memories: set[int], *peers: tuple[int, int]) -> int:
        links = tuple(Link(*ends, 1e9, 0.0) for ends in peers)
        return Machine(tuple(Device(f"d{m}", "gpu", memory=m) for m in range(1, 5)), links).routes.nearest(memories, 3)

    assert nearest({HOST, 1, 2}, (1, 3)) == HOST
    assert nearest({1, 2, 4}, (2, 3), (4, 3)) == 2
    assert nearest({2, 4}, (3, 2)) == 2


def test_what_several_need_comes_from_where_it_was_made() -> None:
    """And not by way of the first of them: each of three GPUs makes a part, which both others read."""
    names = [f"gpu{i}" for i in range(3)]
    pairs = [(a, b) for a in names for b in names if a < b]
    text = BETWEEN.replace("gpu0", "{}").replace("gpu1", "{}")
    between = "".join(text.format(*pair) for pair in pairs)
    gpus = "".join(GPU.format(name=name, memory="8 GiB") for name in names)
    where = parse_machine(f'name = "three"\n[host]\nbandwidth = "10 GB/s"\n{gpus}{between}')
    builder = GraphBuilder()
    parts = tuple(builder.buffer(NBYTES, name) for name in names)
    for name, part in zip(names, parts, strict=True):
        builder.add(launch("make", (), (part,), device=name, overwrites=(part,)))
    for name in names:
        result = builder.buffer(NBYTES)
        builder.add(launch("take", parts, (result,), device=name, overwrites=(result,)))
    p = problem(where, builder.build())
    p = replace(p, queues=(1, 1, 1))
    moved = [(e.name, e.source, e.target) for e in simulate(p, "mkmd_coarse").transfers()]
    assert sorted(moved) == sorted((a, a, b) for a in names for b in names if a != b)


# several hosts' memories


def test_a_route_goes_through_the_memories_of_hosts_alone() -> None:
    where = two_nodes(2)
    names = [where.memory_name(memory) for memory in range(where.memories)]
    assert names == ["host", "node1", "gpu00", "gpu01", "gpu10", "gpu11"]
    routes = where.routes
    assert routes.between(2, 4) == ((2, 0), (0, 1), (1, 4))
    assert routes.between(2, 3) == ((2, 0), (0, 3))
    assert routes.between(4, 5) == ((4, 1), (1, 5))
    assert routes.between(5, HOST) == ((5, 1), (1, HOST))
    assert routes.nearest({HOST, 1}, 4) == 1
    assert routes.nearest({2, 4}, 5) == 4
    assert parse_machine(format_machine(where)) == where


def test_of_routes_of_as_many_transfers_the_fastest_is_taken() -> None:
    pairs = [(HOST, 1, 1e9), (HOST, 2, 5e9), (1, 3, 1e9), (2, 3, 5e9)]
    links = [Link(*ends, rate, 0.0) for a, b, rate in pairs for ends in ((a, b), (b, a))]
    where = Machine((Device("gpu0", "gpu", memory=3),), tuple(links), hosts=("slow", "fast"))
    assert where.routes.between(HOST, 3) == ((HOST, 2), (2, 3))


def test_a_memory_that_no_links_lead_to_is_an_error() -> None:
    with pytest.raises(MachineError, match="node1 has a memory of its own: host to node1 is missing"):
        parse_machine(format_machine(two_nodes()).split("[[link]]")[0])


def handed_to_another_node() -> Problem:
    builder = GraphBuilder()
    x, y = builder.buffer(NBYTES, "x"), builder.buffer(NBYTES, "y")
    builder.add(launch("make", (), (x,), device="gpu00", overwrites=(x,)))
    builder.add(launch("take", (x,), (y,), device="gpu10", overwrites=(y,)))
    builder.add(HostTask("look", print, (), (y,), ()))
    return replace(problem(two_nodes(), builder.build()), queues=(1, 1, 1))


@pytest.mark.parametrize("policy", ["heft", "clustering", "mkmd_coarse", "mkmd", "balance", "portfolio", "auto"])
def test_data_go_from_node_to_node(policy: str) -> None:
    there, back = [("gpu00", "host"), ("host", "node1"), ("node1", "gpu10")], [("gpu10", "node1"), ("node1", "host")]
    assert ways(handed_to_another_node(), policy) == there + back


@pytest.mark.parametrize("policy", ["mkmd_coarse", "mkmd", "balance"])
def test_a_plan_for_two_nodes_is_what_they_then_take(policy: str) -> None:
    p = handed_to_another_node()
    plan, moving = estimated(policy, p), 3 * (NBYTES / 5e9 + 20e-6) + 2 * (NBYTES / 10e9 + 30e-6)
    assert plan.makespan >= 2 * KERNEL + moving
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan)
    verify(replace(plan, events=foresee(p, plan).events), p.graph, p.machine, p)
    first, second, last = plan.assignments
    early = second.at(first.end + 0.9 * moving / 2, first.end + 0.9 * moving / 2 + KERNEL)
    with pytest.raises(PolicyError, match="node 1 starts before buffer 0 of node 0 can have arrived"):
        verify(replace(plan, assignments=(first, early, last)), p.graph, p.machine, p)
