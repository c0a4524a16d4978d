"""The policies that split launches into ranges: valid plans that take as long as they say, on random problems."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policies.balance import short_first, split_all
from manycl.plan.policies.papers import mkmd
from manycl.plan.policies.papers.mkmd_coarse import Table, coarse, look_up, priorities, weights
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem, ValidInterval
from manycl.plan.search.rank import priority_order
from manycl.plan.split import LinearRegion, Split
from manycl.plan.timeline.timeline import Fit, Timeline
from manycl.plan.timeline.writer_intervals import WriterIntervals
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import plan_with, simulate
from tests.plan.plan_cases import begun, problem
from tests.plan.split_cases import GROUPS, ROW, Affine, alike_chains, rows, split_problems, tiny_problems

NAMES = ("mkmd_coarse", "mkmd", "balance", "tenths", "adaptive", "pns", "hop", "mig_heft")


def planned(name: str, p: Problem) -> Plan:
    policy = find(name)
    assert isinstance(policy, StaticPolicy)
    return policy.plan(p)


def chain(length: int = 2, seconds: tuple[float, ...] = (10.0, 5.0), memory: int = 1 << 30) -> Problem:
    """Launches that each read what the one before wrote, row by row, on a CPU and a GPU with little memory."""
    builder = GraphBuilder()
    buffers = [builder.buffer(GROUPS * ROW) for _ in range(length + 1)]
    for n in range(length):
        builder.add(rows(f"n{n}", (buffers[n],), (buffers[n + 1],)))
    gpu = Device("gpu1", "gpu", memory=1, global_memory=memory, max_allocation=memory)
    where = Machine((Device("cpu0", "cpu", global_memory=memory), gpu))
    p = problem(builder.build(), seconds, where, valid={buffers[0]: frozenset({HOST})})
    row = LinearRegion(ROW)
    splits = {n: Split(0, GROUPS, {buffers[n]: row, buffers[n + 1]: row}) for n in range(length)}
    return replace(p, estimates=Affine([seconds] * length, 0.0, 0.001), splits=splits)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=90, deadline=None)
@given(p=split_problems())
def test_plans_are_valid_and_can_be_followed(name: str, p: Problem) -> None:
    plan = planned(name, p)
    verify(plan, p.graph, p.machine, p)
    verify(with_times(p, plan, simulate(p, plan)), p.graph, p.machine, p)


@settings(max_examples=40, deadline=None)
@given(p=split_problems(whole=True))
def test_whole_launches_stay_whole(p: Problem) -> None:
    for name in NAMES:
        assert not planned(name, p).is_split


@settings(max_examples=90, deadline=None)
@given(p=st.one_of(split_problems(), alike_chains(), alike_chains()))
def test_dividing_never_makes_a_plan_longer(p: Problem) -> None:
    coarse_plan = planned("mkmd_coarse", p)
    for name in ("mkmd", "balance"):
        assert planned(name, p).makespan <= coarse_plan.makespan


class Watched(Timeline):
    """A timeline that is asked what its devices are busy with whenever a place is looked for: with what was placed,
    all that it waits for before it, and with ``held``."""

    held: Sequence[Assignment] = ()

    def fit(self, node: int, device: int, first: int = 0, groups: int = 0, not_before: float = 0.0) -> Fit:
        placed = [a for a in self.what if isinstance(a, Assignment)]
        assert all(self.of[p] for p in self.problem.graph.predecessors[node])
        for d, slots in enumerate(self.kernels[:-1]):
            busy = sorted((a.start, a.end) for a in (*placed, *self.held) if a.device == d)
            assert list(zip(slots.starts, slots.ends, strict=True)) == busy
        return super().fit(node, device, first, groups, not_before)


@settings(max_examples=90, deadline=None)
@given(p=st.one_of(split_problems(), alike_chains()))
def test_no_kernel_is_put_behind_what_waits_for_it(p: Problem) -> None:
    """In MKMD's fine phase, a kernel finds devices busy with what has had its turn, and with others that do not wait
    for it: where these would run by then."""
    table = look_up(p)
    first = coarse(p, table, priority_order(p.graph, priorities(p, weights(table))))
    timeline = Watched(p, table.rows)
    plain, had = mkmd._adjusted, set[int]()

    def adjusted(given: Watched, table: Table, whole: Fit, rivals: Sequence[mkmd.Turn]) -> Sequence[Assignment]:
        given.held = ()
        given.held = plain(given, table, whole, rivals)
        held = {a.node for a in given.held}
        assert held.isdisjoint(had | {whole.node})
        assert not waiting(p, whole.node) & held
        return given.held

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mkmd, "_adjusted", adjusted)
        for turn, rivals in mkmd.turns(p, table, first):
            mkmd.reschedule(timeline, table, turn, rivals)
            timeline.held = ()
            had.add(turn.node)
    assert had == set(range(len(p.graph)))


def many_devices(count: int, kernels: int = 60) -> Problem:
    """Kernels that each read all of what two of the 20 before them wrote, on devices of one kind of unlike speed."""
    some, builder = random.Random(count), GraphBuilder()
    first = builder.buffer(GROUPS * ROW)
    written = list[int]()
    for n in range(kernels):
        reads = tuple({written[some.randrange(max(0, n - 20), n)] for _ in range(min(2, n))}) or (first,)
        written.append(builder.buffer(GROUPS * ROW))
        builder.add(rows(f"n{n}", reads, (written[-1],)))
    where = Machine(tuple(Device(f"gpu{d}", "gpu", memory=1 + d) for d in range(count)))
    seconds = [[some.uniform(1.0, 20.0) for _ in range(count)] for _ in range(kernels)]
    p = problem(builder.build(), seconds, where, valid={first: frozenset({HOST})})
    splits = {n: Split(0, GROUPS, {key: LinearRegion(ROW)}) for n, key in enumerate(written)}
    return replace(p, estimates=Affine(seconds, 0.0, 0.001), splits=splits)


def test_of_many_devices_some_share_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    moves = list[int]()

    def arrived(self: WriterIntervals, *args: Any, add: Callable[..., None] = WriterIntervals.arrived) -> None:
        moves[-1] += 1
        add(self, *args)

    monkeypatch.setattr(WriterIntervals, "arrived", arrived)

    def nearest_of_all(
        timeline: Timeline,
        places: Sequence[tuple[int, int]],
        whole: Fit,
        end: float,
        _: int,
        among: Callable[..., Any] = mkmd.nearest,
    ) -> Any:
        return among(timeline, places, whole, end, len(places))

    lengths = dict[str, float]()
    for name, devices in (("few", 6), ("many", 12), ("all", 12)):
        if name == "all":  # a kernel may share all devices, as in the paper
            monkeypatch.setattr(mkmd, "nearest", nearest_of_all)
            monkeypatch.setattr(mkmd, "worth_it", lambda slots, shares: slots)
        moves.append(0)
        p = many_devices(devices)
        found = planned("mkmd", p)
        verify(found, p.graph, p.machine, p)
        lengths[name] = found.makespan
    assert lengths["many"] < lengths["all"]
    assert moves[1] < 3 * moves[0] < moves[2]


def waiting(p: Problem, node: int) -> set[int]:
    """The nodes that wait for one, directly or not."""
    found: set[int] = set()
    for n in range(node + 1, len(p.graph)):
        if not found.union({node}).isdisjoint(p.graph.predecessors[n]):
            found.add(n)
    return found


@settings(max_examples=50, deadline=None)
@given(p=split_problems())
def test_a_plan_says_the_same_as_json(p: Problem) -> None:
    plan = planned("balance", p)
    again = Plan.from_json(plan.to_json())
    assert again.assignments == plan.assignments
    verify(again, p.graph, p.machine, p)
    assert simulate(p, again) == simulate(p, plan)


@pytest.mark.parametrize("name", [*NAMES, "in_order", "auto"])
@settings(max_examples=50, deadline=None)
@given(p=split_problems(), when=st.floats(0.0, 1.0))
def test_planning_goes_on_from_a_partial_schedule(name: str, p: Problem, when: float) -> None:
    first = planned("mkmd_coarse" if name in ("in_order", "auto") else name, p)
    later = begun(p, first, p.not_before + when * (first.makespan - p.not_before))
    plan = planned(name, later)
    verify(plan, p.graph, p.machine, later)
    assert set(later.fixed) <= set(plan.assignments)


def test_what_is_fixed_must_hold_together() -> None:
    p = chain()
    with pytest.raises(PolicyError, match="node 1 is fixed, but not all that it depends on"):
        planned("balance", replace(p, fixed=(Assignment(1, 0, 0, 0.0, 1.0),)))
    fixed = Assignment(0, 0, 0, 0.0, 1.0)
    for name in ("in_order", "auto", "cpop", "portfolio", "optimal", "mkmd_coarse", "mkmd"):
        with pytest.raises(PolicyError, match="node 1 is fixed, but not all that it depends on"):
            planned(name, replace(p, fixed=(Assignment(1, 0, 0, 0.0, 1.0),)))
    for name in ("heft", "eager"):
        with pytest.raises(PolicyError, match="what has begun cannot be simulated"):
            plan_with(name, replace(p, fixed=(fixed,)))


def test_mkmd_splits_a_chain_that_coarse_leaves_on_one_device() -> None:
    # the CPU takes 10 s for a launch, the GPU 5; together 10/3, and only what moved over has to move
    p = chain()
    assert planned("mkmd_coarse", p).makespan == pytest.approx(10.12)
    for name in ("mkmd", "balance"):
        plan = planned(name, p)
        assert plan.makespan < 7.2
        assert {(a.node, a.device) for a in plan.assignments} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_neighbours_stay_where_they_are() -> None:
    """The second launch finds the rows that it reads where the first has written them."""
    trace = simulate(chain(length=6), "balance")
    assert sum(e.nbytes for e in trace.transfers()) <= 1.5 * GROUPS * ROW


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_runs_in_ranges(name: str) -> None:
    p = chain(seconds=(50.0, 5.0), memory=150)  # a launch touches 240 bytes, seven groups of it 140
    plan = planned(name, p)
    verify(plan, p.graph, p.machine, p)
    assert simulate(p, plan).makespan == pytest.approx(plan.makespan, rel=0.1)
    assert all(0 < a.groups <= 7 for a in plan.assignments)
    with pytest.raises(
        PolicyError, match=r"no device can run node 0 \(n0\) of kernel k as a whole: cpu0 has too little"
    ):
        planned("in_order", p)
    with pytest.raises(
        PolicyError, match=r"not even in ranges: cpu0 has too little memory for its \d+ bytes, gpu1 has too"
    ):
        planned(name, chain(memory=19))


@pytest.mark.parametrize("name", NAMES)
def test_the_judge_sees_what_does_not_fit(name: str) -> None:
    plan = planned(name, chain(seconds=(50.0, 5.0)))
    small = chain(seconds=(50.0, 5.0), memory=50)
    with pytest.raises(PolicyError, match="what node 0 touches does not fit into the memory of gpu1"):
        verify(plan, small.graph, small.machine, small)


class Versions(Affine):
    """The GPU runs the second version of each launch; the CPU none of the second launch."""

    def launch(self, node: int, device: int) -> float:
        return float("inf") if (node, device) == (1, 0) else self.seconds[node][device]

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.launch(node, device) * count / GROUPS

    def version(self, node: int, device: int) -> int:
        return device


@pytest.mark.parametrize("name", NAMES)
def test_each_device_runs_its_version_and_only_what_it_can(name: str) -> None:
    p = replace(chain(), estimates=Versions([(10.0, 5.0)] * 2, 0.0, 0.001))
    plan = planned(name, p)
    verify(plan, p.graph, p.machine, p)
    assert {(a.device, a.version) for a in plan.assignments if a.node == 0} <= {(0, 0), (1, 1)}
    assert {(a.device, a.version) for a in plan.assignments if a.node == 1} == {(1, 1)}
    assert planned("in_order", replace(p, splits={})).assignments[1].device == 1
    assert plan_with("eager", replace(p, splits={})).assignments[1].device == 1
    wrong = [a._replace(device=0) if a.node == 1 else a for a in planned("in_order", p).assignments]
    with pytest.raises(PolicyError, match="node 1 cannot run on cpu0"):
        verify(Plan(tuple(wrong), "x", plan.devices, plan.makespan), p.graph, p.machine, p)


def test_merged_results_are_split_only_where_it_pays() -> None:
    p = chain(length=1)
    cheap = {0: Split(0, GROUPS, {0: LinearRegion(ROW)}, Reduction.SCATTER, (0.1, 0.1))}
    dear = {0: Split(0, GROUPS, {0: LinearRegion(ROW)}, Reduction.SCATTER, (9.0, 9.0))}
    for name in ("mkmd", "balance"):
        plan = planned(name, replace(p, splits=cheap))
        assert plan.is_split
        assert plan.makespan < 4.0
        assert not planned(name, replace(p, splits=dear)).is_split


def test_options_of_balance() -> None:
    assert planned("balance", replace(chain(), options={"rounds": "1"})).is_split
    for text in ("0", "x", "-1"):
        with pytest.raises(PolicyError, match="option rounds"):
            planned("balance", replace(chain(), options={"rounds": text}))


@settings(max_examples=90, deadline=None)
@given(p=split_problems())
def test_what_is_placed_stays_where_it_was_placed(p: Problem) -> None:
    """Closing gaps at the end changes nothing where nothing was taken back; elsewhere it can only help."""
    table = look_up(p)
    order = priority_order(p.graph, priorities(p, weights(table)))
    timeline = coarse(p, table, order)
    assert sorted(timeline.finish()) == sorted(timeline.assignments())
    split = split_all(p, table, order)
    assert max(a.end for a in split.finish()) <= split.makespan


def lying(cut: int, handover: float) -> Problem:
    """A launch of a second on either of two devices; the first rows of what it reads are on one, the others on the
    other."""
    p = chain(length=1, seconds=(1.0, 1.0))
    devices = tuple(Device(f"gpu{i}", "gpu", memory=i) for i in (1, 2))
    (source,) = p.graph.nodes[0].reads
    parts = (ValidInterval(0, cut * ROW, frozenset({1})), ValidInterval(cut * ROW, GROUPS * ROW, frozenset({2})))
    return replace(p, machine=Machine(devices), valid={}, valid_intervals={source: parts}, handover=handover)


@pytest.mark.parametrize("cut", [4, 5, 7])
def test_balance_cuts_where_the_data_are_unless_that_takes_longer(cut: int) -> None:
    """The even cut would end it up to two groups earlier."""
    for handover, wanted in ((0.3, cut), (1e-6, GROUPS // 2)):
        plan = planned("balance", lying(cut, handover))
        assert sorted((a.device, a.groups) for a in plan.assignments) == [(0, wanted), (1, GROUPS - wanted)], handover


def test_short_kernels_that_wait_for_no_long_one_come_first() -> None:
    p = chain(length=4)
    assert short_first(p, [0.01, 1.0, 0.01, 0.01], [0, 1, 2, 3]) == [0, 1, 2, 3]  # 2 and 3 wait for 1
    builder = GraphBuilder()
    buffers = [builder.buffer(GROUPS * ROW) for _ in range(3)]
    for n in range(3):
        builder.add(rows(f"n{n}", (buffers[n],), (buffers[n],)))
    apart = replace(p, graph=builder.build())
    assert short_first(apart, [1.0, 0.01, 0.5], [0, 2, 1]) == [1, 0, 2]


@pytest.mark.parametrize(
    "name", [*NAMES, "auto", "in_order", "heft", "eager", "clustering", "cpop", "peft", "portfolio", "repara"]
)
@settings(max_examples=40, deadline=None)
@given(p=tiny_problems())
def test_few_groups_no_time_and_many_compute_units(name: str, p: Problem) -> None:
    given_to = replace(p, options={"effort": "500"}) if name == "portfolio" else p
    plan = plan_with(name, given_to)  # which judges it
    assert plan.foreseen
    verify(plan, p.graph, p.machine)
