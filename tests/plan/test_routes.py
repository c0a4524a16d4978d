"""A link between two devices' memories, which a machine file describes, is used by all who plan, simulate and judge."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_cases import estimated, launch

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Graph, HostTask
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, Machine, nearest
from manycl.machine_file import parse_machine
from manycl.model.estimates import Estimates
from manycl.model.transfer import TransferModel
from manycl.plan.problem import Problem
from manycl.plan.split import Split
from manycl.plan.timeline.segments import Move
from manycl.plan.timeline.timeline import Timeline
from manycl.plan.verification.verify import verify
from manycl.run.commands.backend import Download, Upload
from manycl.run.commands.compiler import compiled
from manycl.run.commands.transfers import Subject
from manycl.run.commands.verify_commands import CommandGraphError, verify_script
from manycl.run.data.coherence import Directory
from manycl.run.lowering.lower import lower
from manycl.run.simulation.foresee import foresee
from manycl.run.simulation.simulate import simulate

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


def machine(between: str = BETWEEN, memory: str = "8 GiB") -> Machine:
    gpus = "".join(GPU.format(name=f"gpu{i}", memory=memory) for i in range(2))
    return parse_machine(f'name = "two"\n[host]\nbandwidth = "10 GB/s"\n{gpus}{between}')


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


def test_the_script_says_so_and_its_judge_finds_what_waits_for_less() -> None:
    p = problem(machine(), handed_on())
    plan, directory = estimated("mkmd_coarse", p), Directory()
    lowered = lower(p, plan, directory)
    lowered.open(directory)
    script = compiled(Subject(p, lowered, directory.valid), plan)
    verify_script(script)
    (upload,) = (c for c in script.commands if isinstance(c, Upload | Download))
    assert isinstance(upload, Upload)
    at = script.commands.index(upload)
    assert script.hears[0] == [at]
    assert (upload.buffer, upload.device, upload.source) == (0, 1, 1)
    with pytest.raises(CommandGraphError, match="at the same time"):
        verify_script(
            replace(script, hears={**script.hears, 0: []}, waits={i: n for i, n in script.waits.items() if i != at})
        )


def test_nothing_goes_by_it_where_the_host_has_the_contents() -> None:
    assert nearest({HOST, 1, 2}, 3, {(1, 3)}) == HOST
    assert nearest({1, 2, 4}, 3, {(2, 3), (4, 3)}) == 2
    assert nearest({2, 4}, 3, {(3, 2)}) == 2
