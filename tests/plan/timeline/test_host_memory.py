"""Plans on machines whose host memory carries only so much draw no more."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.plan.timeline.operations import Bandwidth, BusyIntervals
from manycl.plan.verification.verify import verify
from manycl.plan.verification.verify_memory import check_host_memory
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import plan_with, simulate
from manycl.trace import KernelEvent, TransferEvent
from tests.plan.plan_cases import Table, launch, problem, problems
from tests.plan.split_cases import Affine, split_problems

STATIC = ("in_order", "auto", "portfolio", "cpop", "peft", "mkmd_coarse", "mkmd", "balance")


LITTLE = {"auto": {"budget": "0.02"}, "portfolio": {"effort": "300"}}
"""Options that keep searches short."""


class Drawing(Affine):
    """A kernel moves so many bytes, wherever it runs."""

    nbytes = 0.0

    def traffic(self, node: int, device: int) -> float:
        return self.nbytes


@st.composite
def limited(draw: Any, problems: st.SearchStrategy[Problem]) -> Problem:
    """The same problems, where transfers and kernels draw several times what the host's memory carries."""
    p = draw(problems)
    known = p.estimates
    assert isinstance(known, Table)
    estimates = Drawing(known.seconds, known.latency, known.per_byte or 0.01)
    estimates.once = getattr(known, "once", 0.0)
    estimates.nbytes = draw(st.floats(0.0, 2000.0))
    where = replace(p.machine, host_bandwidth=draw(st.floats(20.0, 400.0)))
    return replace(p, machine=where, estimates=estimates)


@pytest.mark.parametrize("name", STATIC)
@settings(max_examples=12, deadline=None)
@given(p=limited(st.one_of(problems(), split_problems())))
def test_plans_draw_no_more_than_there_is(name: str, p: Problem) -> None:
    p = replace(p, queues=(1,) * len(p.queues), options=LITTLE.get(name, {}))
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    plan = policy.plan(p)
    verify(plan, p.graph, p.machine, p)
    verify(with_times(p, plan, simulate(p, plan)), p.graph, p.machine, p)


@settings(max_examples=30, deadline=None)
@given(p=limited(problems()))
def test_a_limit_never_makes_a_machine_faster(p: Problem) -> None:
    free = replace(p, machine=replace(p.machine, host_bandwidth=math.inf))
    plan = plan_with("in_order", free)
    assert simulate(p, plan).makespan >= plan.makespan * (1 - 1e-9)


def two_uploads(bandwidth: float) -> Problem:
    """Two GPUs, to each of which 100 bytes go in a second; a kernel of the CPU that draws 100 bytes in a second."""
    builder = GraphBuilder()
    a, b = builder.buffer(100), builder.buffer(100)
    for name, key in (("a", a), ("b", b)):
        builder.add(launch(name, (key,), ()))
    builder.add(launch("c", (), ()))
    gpus = tuple(Device(f"gpu{m}", "gpu", memory=m) for m in (1, 2))
    where = Machine((Device("cpu0", "cpu"), *gpus), host_bandwidth=bandwidth)
    known = frozenset({HOST})
    p = problem(builder.build(), [1.0], where, valid={a: known, b: known})
    estimates = Drawing([[9.0, 1.0, 1.0], [9.0, 1.0, 1.0], [1.0, 9.0, 9.0]], 0.0, 0.01)
    estimates.nbytes = 100.0
    return replace(p, estimates=estimates)


@pytest.mark.parametrize(("bandwidth", "makespan"), [(math.inf, 2.0), (300.0, 2.0), (150.0, 3.0), (100.0, 4.0)])
def test_all_that_uses_the_hosts_memory_shares_it(bandwidth: float, makespan: float) -> None:
    """300 bytes are to be moved, and a GPU's second follows."""
    p = two_uploads(bandwidth)
    where = (Assignment(node, device, 0, 0.0, 0.0) for node, device in ((0, 1), (1, 2), (2, 0)))
    plan = Plan(tuple(where), "by hand", ("cpu0", "gpu1", "gpu2"), 0.0)
    assert simulate(p, plan).makespan == pytest.approx(makespan)


def judged(bandwidth: float, *, second: float, longer: float = 1.0) -> None:
    """A plan of both uploads, the second of which begins then; each takes so many seconds."""
    p = two_uploads(bandwidth)
    names = ("cpu0", "gpu1", "gpu2")
    sent = [(0, 1, 0.0), (1, 2, second)]  # node, device, begin
    moved = [TransferEvent(n, "", "host", names[d], 100, begin, begin + longer) for n, d, begin in sent]
    ran = [Assignment(n, d, 0, begin + longer, begin + longer + 1.0) for n, d, begin in sent]
    late = second + longer + 1.0
    ran.append(Assignment(2, 0, 0, late, late + 1.0))
    ended = [KernelEvent(a.node, "", names[a.device], 0, a.start, a.end, (), None) for a in ran]
    plan = Plan(tuple(ran), "by hand", names, late + 1.0, (*moved, *ended), foreseen=True)
    verify(plan, p.graph, p.machine, p)


def test_the_judge_counts_what_is_drawn_at_the_same_time() -> None:
    judged(200.0, second=0.0)
    judged(100.0, second=1.0)
    judged(100.0, second=0.0, longer=2.0)
    judged(100.0, second=0.5, longer=1.5)  # one after the other in the middle
    for second, longer in ((0.0, 1.0), (0.5, 1.0), (0.5, 1.2), (0.0, 1.9)):
        with pytest.raises(PolicyError, match=r"draws .* GB/s of the host's memory, which carries"):
            judged(100.0, second=second, longer=longer)


def test_the_judge_knows_that_a_link_is_no_faster_later() -> None:
    """Two transfers at 60 % of the memory each: 150 bytes fit into a second and a half, but not when both must go on in
    the middle."""
    with pytest.raises(PolicyError, match="draws"):
        judged(150.0, second=0.5, longer=1.0)
    judged(150.0, second=0.5, longer=1.25)


PIECE, OTHER = 0, 1  # buffers
BEGUN = (PIECE, "host", 0.0, 1.25)


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        ([BEGUN, (PIECE, "host", 1.25, 2.0)], True),
        ([BEGUN, (PIECE, "host", 1.25, 1.9)], False),  # too fast even so
        ([BEGUN, (OTHER, "host", 1.25, 2.0)], False),
        ([BEGUN, (PIECE, "gpu1", 1.25, 2.0)], False),  # back again
        ([BEGUN, (PIECE, "host", 1.35, 2.1)], False),  # the link has rested: another transfer
        ([BEGUN, (OTHER, "host", 1.25, 2.5), (PIECE, "host", 2.5, 3.25)], True),  # the link was given others between
    ],
)
def test_the_judge_knows_that_pieces_of_a_buffer_may_be_one_transfer(
    sent: list[tuple[int, str, float, float]], right: bool
) -> None:
    """Pieces of 50 bytes, of which each takes a second, but the second one of a transfer only half of one; beside a
    kernel of 4 seconds that draws 20 bytes in each. The host's memory carries 60."""
    estimates = Drawing([[4.0] * 3] * 3, 0.5, 0.01)
    estimates.nbytes = 80.0
    p = replace(two_uploads(60.0), estimates=estimates)
    moved = [
        TransferEvent(key, "", source, "gpu1" if source == "host" else "host", 50, start, end)
        for key, source, start, end in sent
    ]
    kernel = Assignment(2, 0, 0, 0.0, 4.0)
    plan = Plan((kernel,), "by hand", ("cpu0", "gpu1", "gpu2"), 4.0, tuple(moved), foreseen=True)
    assert (not list(check_host_memory(plan, p))) == right


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6))
def test_what_is_left_of_the_bandwidth(seed: int) -> None:
    """Reservations, some taken back, against sums; what is placed gets what is left."""
    chance = random.Random(seed)
    available, kept = Bandwidth(10.0), []
    for _ in range(chance.randint(1, 12)):
        start, seconds, draws = chance.uniform(0, 5), chance.uniform(0.1, 2), chance.choice([0.0, 2.0, 7.0, 10.0])
        end = available.end(start, seconds, draws)
        assert end >= start + seconds - 1e-9
        moved = sum(
            min(draws, max(0.0, 10.0 - sum(d for a, b, d in kept if a <= t < b))) * 1e-3
            for t in (start + 1e-3 * i + 5e-4 for i in range(round((end - start) / 1e-3)))
        )
        assert moved == pytest.approx(draws * seconds, abs=0.1)
        rates = [0.0]
        if draws:
            # what it gets is no rectangle: note it piece by piece, as the reservation does
            times = sorted({start, end, *(t for a, b, _ in kept for t in (a, b) if start < t < end)})
            for a, b in pairwise(times):
                left = 10.0 - sum(d for x, y, d in kept if x <= a < y)
                rates.append(min(draws, max(0.0, left)))
                kept.append((a, b, rates[-1]))
        available.take(start, end, draws)
        if chance.random() < 0.3:
            before = (list(available._times), list(available._left))
            count = len(available._before)
            available.take(chance.uniform(0, 5), chance.uniform(5, 9), 5.0)
            available.take(chance.uniform(0, 5), chance.uniform(5, 9), 3.0)
            available.back(count)
            assert (available._times, available._left) == before
    assert all(0.0 <= left <= 10.0 for left in available._left)


def test_the_first_room_depends_on_what_is_left() -> None:
    slots, available = BusyIntervals(), Bandwidth(10.0)
    slots.take(2.0, 3.0)
    available.take(0.0, 2.0, 5.0)
    assert available.first(slots, 0.0, 1.0, 5.0) == (0.0, 1.0)
    # alone it would fit before what is there; with half of what it draws it does not
    assert available.first(slots, 0.5, 1.0, 10.0) == (3.0, 4.0)
