"""REPARA's policy: its pruned search against the whole tree, its units and partitions, and its plans."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask, Launch
from manycl.graph.reduction import Reduction
from manycl.machine import HOST, Device, Link, Machine
from manycl.plan.plan import Plan
from manycl.plan.policies.balance import Balance
from manycl.plan.policies.papers.mkmd import Mkmd
from manycl.plan.policies.papers.repara import Repara
from manycl.plan.problem import Problem
from manycl.plan.search.execution_units import ExecutionUnit, Partition, execution_units, ways
from manycl.plan.split import LinearRegion, Split
from manycl.plan.verification.verify import verify
from manycl.run.simulation.foresee import with_times
from manycl.run.simulation.simulate import simulate
from tests.plan.plan_cases import problem
from tests.plan.split_cases import GROUPS, ROW, Affine, rows, split_problems

# the whole tree


class Everything:
    """REPARA's exhaustive search, from its text, for few nodes: every choice of partitions in every order, as far as
    it may be better than the best so far."""

    def __init__(self, p: Problem, rates: int, goal: Callable[[float, float], float] = lambda t, _: t) -> None:
        self.p, self.rates, self.goal = p, rates, goal
        self.joules = 0.0
        self.best = math.inf
        self.steps = 0
        self.done: dict[int, float] = {}
        self.devices: dict[int, float] = {}
        where = {k: set(m) for k, m in p.valid.items() if m}
        if all(any(True for _ in self.ways(n)) for n in range(len(p.graph))):
            self.go(where, {}, {})

    def memory(self, device: int) -> int:
        return HOST if device < 0 else self.p.machine.devices[device].memory

    def ways(self, node: int) -> Iterator[list[tuple[int, int, int]]]:
        """Partitions (device, first group, groups; no groups: the whole) that together are a node."""
        p = self.p
        if isinstance(p.graph.nodes[node], HostTask):
            yield [(-1, 0, 0)]
            return
        able = [d for d in p.preferred(node) if p.estimates.launch(node, d) < math.inf]
        whole = [[(d, 0, 0)] for d in able if p.fits(node, d)]
        yield from whole
        if node not in p.splits:
            return
        rates, found = self.rates, list(self.divided(node, able, self.rates))
        while not whole and not found and rates < p.splits[node].groups:
            rates *= 2
            found = list(self.divided(node, able, rates))
        yield from found

    def divided(self, node: int, able: list[int], rates: int) -> Iterator[list[tuple[int, int, int]]]:
        p = self.p
        n = min(rates, p.splits[node].groups)
        cut = [p.splits[node].groups * i // n for i in range(n + 1)]
        for shares in product(range(n + 1), repeat=len(able)):
            used = [(d, s) for d, s in zip(able, shares, strict=True) if s]
            small = any(p.machine.devices[d].kind != "cpu" and s / n < 0.1 for d, s in used)
            if sum(shares) != n or small or (p.splits[node].merge != "none" and len(used) > 1):
                continue
            way, at = [], 0
            for d, s in used:
                while s:
                    room = max((m for m in range(s + 1) if self.fits(node, d, m, n)), default=0)
                    if room == 0:
                        break
                    way.append((d, cut[at], cut[at + room] - cut[at]))
                    at, s = at + room, s - room
            if at == n and len(way) > 1:
                yield way

    def fits(self, node: int, device: int, parts: int, n: int) -> bool:
        """Whether as many groups as any such run of parts has fit, wherever they are."""
        groups = self.p.splits[node].groups
        most = -(-groups * parts // n)
        return all(self.p.fits(node, device, f, most) for f in range(groups - most + 1)) if parts else True

    def go(
        self, where: dict[int, set[int]], left: dict[int, list[tuple[int, int, int]]], ended: dict[int, float]
    ) -> None:
        """``left``: of the nodes begun, the partitions that are not placed; ``ended``: when those that are end."""
        p = self.p
        self.steps += 1
        end = max(self.devices.values(), default=p.not_before)
        spent = self.goal(end, self.joules + sum(d.idle_power for d in p.machine.devices) * end)
        if spent >= self.best:  # what follows takes no less
            return
        if len(self.done) == len(p.graph):
            self.best = spent
            return
        for node in range(len(p.graph)):
            if node in self.done or any(q not in self.done for q in p.graph.predecessors[node]):
                continue
            for way in [left[node]] if node in left else self.ways(node):
                for part in way:
                    if self.steps >= STEPS:
                        return
                    self.place(node, part, [x for x in way if x != part], where, left, ended)

    def place(
        self,
        node: int,
        part: tuple[int, int, int],
        rest: list[tuple[int, int, int]],
        where: dict[int, set[int]],
        left: dict[int, list[tuple[int, int, int]]],
        ended: dict[int, float],
    ) -> None:
        p, (device, first, groups) = self.p, part
        task, memory, transfer = p.graph.nodes[node], self.memory(device), p.estimates.transfer
        linear = p.splits[node].regions if groups else {}
        now = {k: set(m) for k, m in where.items()}
        seconds, before_it = 0.0, self.joules
        energy = {(x.source, x.target): x.energy for x in p.machine.links}
        gone = () if isinstance(task, HostTask) or (groups and p.splits[node].merge != "none") else task.overwrites
        for key in dict.fromkeys((*task.reads, *task.writes)):
            size = p.graph.buffers[key].nbytes
            part_of = size
            if key in linear:
                low, high = linear[key].bounds(first, groups, size)
                part_of = high - low
                if key in task.writes:
                    seconds += transfer(part_of, memory, HOST)  # a partial result
                    self.joules += part_of * energy.get((memory, HOST), 0.0)
            if key not in where or memory in where[key] or (key in gone and key not in task.reads):
                continue
            if HOST not in where[key]:
                seconds += min(transfer(size, m, HOST) for m in where[key])
                self.joules += size * energy.get((min(where[key], key=lambda m: transfer(size, m, HOST)), HOST), 0.0)
                now[key].add(HOST)
            seconds += transfer(part_of, HOST, memory)
            self.joules += part_of * energy.get((HOST, memory), 0.0)
            if key not in linear:
                now[key].add(memory)
        if device >= 0:
            seconds += p.range_seconds(node, device, groups)
            draws = p.machine.devices[device]
            self.joules += p.range_seconds(node, device, groups) * (draws.power - draws.idle_power)
        ready = max((self.done[q] for q in p.graph.predecessors[node]), default=p.not_before)
        before = self.devices.get(device)
        end = max(ready, p.not_before if before is None else before) + seconds
        self.devices[device] = end
        last = max(end, ended.get(node, end))
        if rest:
            self.go(now, {**left, node: rest}, {**ended, node: last})
        else:
            for key in task.writes:
                now[key] = {HOST} if groups and key in linear else {memory}
            self.done[node] = last
            self.go(now, {k: v for k, v in left.items() if k != node}, ended)
            del self.done[node]
        self.joules = before_it
        if before is None:
            del self.devices[device]
        else:
            self.devices[device] = before


STEPS = 20_000


@st.composite
def small_problems(draw: st.DrawFn) -> tuple[Problem, int]:
    """Few enough partitions for the whole tree, and the rates; memories that hold everything or less."""
    p = draw(split_problems(most=3, devices=3))
    few = dict(list(p.splits.items())[:2])
    for n, task in enumerate(p.graph.nodes):
        if n not in few and isinstance(task, Launch) and draw(st.booleans()):
            task.overwrites = tuple(k for k in task.writes if k not in task.reads)
    room = draw(st.sampled_from([1 << 20, 1 << 20, (GROUPS + 2) * ROW * 2]))
    where = replace(
        p.machine,
        devices=tuple(
            replace(d, global_memory=room, max_allocation=room) if d.memory else d for d in p.machine.devices
        ),
    )
    return replace(p, splits=few, machine=where), draw(st.sampled_from([2, 3, 4]))


@settings(max_examples=120, deadline=None)
@given(case=small_problems())
def test_the_pruned_search_finds_what_the_whole_tree_has(case: tuple[Problem, int]) -> None:
    p, rates = case
    whole = Everything(p, rates)
    assume(whole.steps < STEPS)
    wanted = replace(p, options={"rates": str(rates), "effort": "5000000"})
    if whole.best == math.inf:
        with pytest.raises(PolicyError, match="no device can run node"):
            Repara().plan(wanted)
        return
    plan = Repara().plan(wanted)
    assert plan.details["complete"]
    assert plan.details["model_seconds"] == pytest.approx(whole.best, rel=1e-9, abs=1e-12)
    verify(plan, p.graph, p.machine, p)
    early = Repara().plan(replace(wanted, options={"rates": str(rates), "effort": "1"})).details
    assert early["bound"] <= whole.best * (1 + 1e-9) + 1e-12
    assert whole.best <= early["model_seconds"] * (1 + 1e-9) + 1e-12


def who_brings(chance: random.Random) -> tuple[Problem, int]:
    """Two or three nodes that find the same contents, whole or in linear regions, in memories that hold few buffers:
    what one of them has brought, another need not bring."""
    builder = GraphBuilder()
    buffers = [builder.buffer((GROUPS + 2) * ROW) for _ in range(chance.randint(2, 4))]
    splits, count = {}, chance.randint(2, 3)
    for n in range(count):
        reads, writes = (tuple(chance.sample(buffers, chance.randint(*few))) for few in ((1, 2), (0, 1)))
        builder.add(rows(f"n{n}", reads, writes, chance.choice(["", "", "gpu"])))
        if chance.random() < 0.7 and n < 2:
            found = {
                key: chance.choice([LinearRegion(ROW), LinearRegion(ROW, 3 * ROW, -ROW)])
                for key in reads
                if key not in writes
            }
            splits[n] = Split(0, GROUPS, {**{key: LinearRegion(ROW) for key in writes}, **found})
    room = chance.choice([1 << 20, (GROUPS + 2) * ROW * 2])
    memories = chance.choice([(1,), (0, 1), (1, 1), (1, 2)])
    devices = [
        Device(f"d{i}", "gpu", memory=m, global_memory=room, max_allocation=room) for i, m in enumerate(memories)
    ]
    seconds = [[chance.choice([0.1, 0.5, 1.0, 2.7]) for _ in memories] for _ in range(count)]
    valid = {key: frozenset({chance.choice([HOST, HOST, 1])}) for key in buffers}
    p = problem(builder.build(), seconds, Machine(tuple(devices)), valid=valid)
    estimates = Affine(seconds, chance.choice([0.0, 0.1, 0.5]), chance.choice([0.0, 0.001, 0.01]))
    return replace(p, estimates=estimates, splits=splits), chance.choice([2, 3])


@pytest.mark.parametrize("seed", [84, 142, 187, 259, 297, 418, 451])  # a bound, or a plan, was wrong
def test_what_one_node_brings_another_finds(seed: int) -> None:
    p, rates = who_brings(random.Random(seed))
    whole = Everything(p, rates)
    plan = Repara().plan(replace(p, options={"rates": str(rates), "effort": "5000000"}))
    assert plan.details["complete"]
    assert plan.details["model_seconds"] == pytest.approx(whole.best, rel=1e-9)
    early = Repara().plan(replace(p, options={"rates": str(rates), "effort": "1"})).details
    assert early["bound"] <= whole.best * (1 + 1e-9)


@st.composite
def apart(draw: st.DrawFn) -> tuple[Problem, int]:
    """Nodes that do not depend on each other, some of them alike; they share data, whole or in linear regions, or do
    not; the host may read all results in the end."""
    builder = GraphBuilder()
    shared = [builder.buffer(GROUPS * ROW) for _ in range(2)]
    count = draw(st.integers(2, 3))
    splits, outs = {}, []
    kinds = [(draw(st.sampled_from(["whole", "sliced", "both", "none"])), draw(st.integers(0, 1))) for _ in range(2)]
    for n in range(count):
        kind, which = kinds[draw(st.integers(0, 1))]
        own, out = builder.buffer(GROUPS * ROW), builder.buffer(GROUPS * ROW)
        reads = {"none": (own,), "both": (own, *shared)}.get(kind, (own, shared[which]))
        builder.add(rows(f"n{n}", reads, (out,)))
        outs.append(out)
        cut = {"none": (own,), "both": (own, shared[0]), "sliced": reads}.get(kind, (own,))
        splits[n] = Split(0, GROUPS, {key: LinearRegion(ROW) for key in (*cut, out)})
    if draw(st.booleans()):
        builder.add(HostTask("results", print, (), tuple(outs), ()))
    memories = draw(st.sampled_from([(0, 1), (1, 2), (1, 1), (0, 0), (0, 1, 2)]))
    where = Machine(tuple(Device(f"d{i}", "gpu" if m else "cpu", memory=m) for i, m in enumerate(memories)))
    graph, times = builder.build(), st.sampled_from([1.0, 2.0, 2.7])
    of = {kind: [draw(times) for _ in memories] for kind in kinds}
    seconds = [of[kinds[draw(st.integers(0, 1))]] for _ in graph.nodes]
    p = problem(graph, seconds, where, valid={k: frozenset({HOST}) for k in graph.buffers if k not in outs})
    per_byte = draw(st.sampled_from([0.0, 0.001, 0.01]))
    return replace(p, splits=splits, estimates=Affine(seconds, draw(st.sampled_from([0.0, 0.1])), per_byte)), draw(
        st.sampled_from([2, 3, 4])
    )


@settings(max_examples=60, deadline=None)
@given(case=apart())
def test_fewer_orders_of_nodes_apart_are_enough(case: tuple[Problem, int]) -> None:
    p, rates = case
    whole = Everything(p, rates)
    assume(whole.steps < STEPS)
    plan = Repara().plan(replace(p, options={"rates": str(rates), "effort": "5000000"}))
    assert plan.details["complete"]
    assert plan.details["model_seconds"] == pytest.approx(whole.best, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(case=small_problems() | apart(), data=st.data())
def test_the_pruned_search_finds_the_least_energy(case: tuple[Problem, int], data: st.DataObject) -> None:
    """As the whole tree has it; likewise the least product of energy and time, and the least energy in a time."""
    p, rates = case
    watts = st.floats(0.0, 50.0)
    devices = tuple(
        replace(d, idle_power=idle, power=idle + data.draw(watts))
        for d, idle in [(d, data.draw(watts)) for d in p.machine.devices]
    )
    memories = sorted({d.memory for d in devices} - {HOST})
    links = [Link(*e, 1e9, 0.0, 0, data.draw(st.floats(0.0, 5.0))) for m in memories for e in ((HOST, m), (m, HOST))]
    p = replace(
        p, machine=replace(p.machine, devices=(*devices[:-1], replace(devices[-1], power=99.0)), links=tuple(links))
    )
    fastest = Everything(p, rates)
    assume(fastest.steps < STEPS and fastest.best < math.inf)
    late = fastest.best * data.draw(st.sampled_from([1.05, 1.5]))
    for goal, of in {
        "energy": lambda t, joules: joules,
        "edp": lambda t, joules: t * joules,
        "deadline": lambda t, joules: joules if t <= late * (1.0 + 1e-9) else math.inf,
    }.items():
        options = {"deadline": f"{late!r} s"} if goal == "deadline" else {"objective": goal}
        plan = Repara().plan(replace(p, options={"rates": str(rates), "effort": "5000000", **options}))
        assert plan.details["complete"]
        wanted = Everything(p, rates, of).best
        assert plan.details["model_seconds"] == pytest.approx(wanted, rel=1e-6, abs=1e-9)
        verify(plan, p.graph, p.machine, p)


def planned(p: Problem, **options: str) -> Plan:
    return Repara().plan(replace(p, options=options))


def pair(count: int = 1, seconds: tuple[float, ...] = (10.0, 5.0), memory: int = 1 << 30) -> Problem:
    """Launches that do not depend on one another, on a CPU and a GPU, whose transfers cost little."""
    builder = GraphBuilder()
    buffers = [(builder.buffer(GROUPS * ROW), builder.buffer(GROUPS * ROW)) for _ in range(count)]
    for n, (a, b) in enumerate(buffers):
        builder.add(rows(f"n{n}", (a,), (b,)))
    where = Machine((Device("cpu0", "cpu"), Device("gpu0", "gpu", memory=1, global_memory=memory)))
    p = problem(builder.build(), seconds, where, valid={a: frozenset({HOST}) for a, _ in buffers})
    row = LinearRegion(ROW)
    splits = {n: Split(0, GROUPS, {a: row, b: row}) for n, (a, b) in enumerate(buffers)}
    return replace(p, estimates=Affine([seconds] * count, 0.0, 0.0005), splits=splits)


# units and partitions


class TwoVersions(Affine):
    """The GPU runs the second version."""

    def version(self, node: int, device: int) -> int:
        return device


def test_a_node_has_a_unit_for_each_version_and_one_that_is_divided() -> None:
    builder = GraphBuilder()
    a, b, c = (builder.buffer(GROUPS * ROW) for _ in range(3))
    builder.add(rows("first", (a,), (b,)))
    builder.add(rows("second", (b,), (c,)))
    builder.add(HostTask("read", print, (), (c,), ()))
    where = Machine((Device("cpu0", "cpu"), Device("gpu0", "gpu", memory=1)))
    row = LinearRegion(ROW)
    p = problem(builder.build(), (4.0, 2.0), where)
    p = replace(p, estimates=TwoVersions([(4.0, 2.0)] * 3), splits={0: Split(0, GROUPS, {a: row, b: row})})
    units = ((0, 0, False), (0, 1, False), (0, 0, True), (1, 0, False), (1, 1, False), (2, 0, False))
    feasible = ((0,), (1,), (0, 1), (0,), (1,), (-1,))
    assert [*execution_units(p)] == [(ExecutionUnit(*u), f) for u, f in zip(units, feasible, strict=True)]


def test_rates_are_sixteenths_and_less_than_a_tenth_is_not_worth_it() -> None:
    p = pair()
    p = replace(p, splits={0: Split(0, 160, {0: LinearRegion(1), 1: LinearRegion(1)})})
    found = ways(p, ExecutionUnit(0, 0, True), (0, 1))
    # the GPU has two sixteenths at least, the CPU any
    assert sorted(way[1].groups for way in found) == [10 * n for n in range(2, 16)]
    for way in found:
        assert way == (Partition(0, 0, way[0].groups), Partition(1, way[0].groups, 160 - way[0].groups))


def test_what_a_device_cannot_hold_at_once_is_in_ranges() -> None:
    """Of twelve groups the GPU holds five: two full ranges and the rest."""
    p = pair(memory=5 * 2 * ROW)
    found = ways(p, ExecutionUnit(0, 0, True), (0, 1))
    assert (Partition(1, 0, 5), Partition(1, 5, 5), Partition(1, 10, 2)) in found
    assert (Partition(0, 0, 5), Partition(1, 5, 5), Partition(1, 10, 2)) in found
    assert all(part.groups <= 5 for way in found for part in way if part.device == 1)
    plan = planned(replace(p, estimates=Affine([(1000.0, 5.0)], 0.0, 0.0005)), beside="no")
    verify(plan, p.graph, p.machine, replace(p, estimates=Affine([(1000.0, 5.0)], 0.0, 0.0005)))
    assert [a.groups for a in plan.assignments if a.device == 1] == [5, 5, 2]


@settings(max_examples=25, deadline=None)
@given(p=split_problems(most=4, devices=3))
def test_no_plan_is_longer_than_those_of_policies_that_it_begins_with(p: Problem) -> None:
    plan = planned(p, effort="50")
    verify(plan, p.graph, p.machine, p)
    plain = replace(p, options={})
    assert plan.makespan <= min(Mkmd().plan(plain).makespan, Balance().plan(plain).makespan)


@pytest.mark.parametrize("order", ["one after another", "apart", "apart, all different"])
def test_bounds_of_eight_divisible_kernels_are_tight(order: str) -> None:
    """On three devices: the best plan is known with little effort."""
    is_chain, chance = order == "one after another", random.Random(1)
    builder = GraphBuilder()
    buffers = [builder.buffer(GROUPS * ROW) for _ in range(9)]
    reads = [buffers[n if is_chain else 0] for n in range(8)]
    for n, key in enumerate(reads):
        builder.add(rows(f"n{n}", (key,), (buffers[n + 1],)))
    kinds = ("cpu", "gpu", "gpu")
    where = Machine(tuple(Device(f"{kind}{n}", kind, memory=n) for n, kind in enumerate(kinds)))
    seconds = (9.6, 1.7, 1.8)
    p = problem(builder.build(), seconds, where, valid={buffers[0]: frozenset({HOST})})
    row = LinearRegion(ROW)
    splits = {n: Split(0, GROUPS, {key: row, buffers[n + 1]: row}) for n, key in enumerate(reads)}
    rows_of = [seconds] * 8
    if order.endswith("different"):
        rows_of = [(chance.uniform(5, 15), chance.uniform(1, 3), chance.uniform(1, 3)) for _ in range(8)]
    p = replace(p, estimates=Affine(rows_of, 0.0, 0.0005), splits=splits)
    assert planned(p, effort="40000").details["complete"]


def test_rates_get_smaller_where_not_one_of_them_fits() -> None:
    p = pair(memory=2 * ROW)  # one group of twelve
    p = replace(p, estimates=Affine([(math.inf, 5.0)], 0.0, 0.0005))
    plan = planned(p, rates="2")
    verify(plan, p.graph, p.machine, p)
    assert [a.groups for a in plan.assignments] == [1] * GROUPS


def test_results_that_need_merging_stay_whole() -> None:
    p = pair()
    p = replace(p, splits={0: Split(0, GROUPS, {0: LinearRegion(ROW)}, Reduction.SCATTER, (0.0, 0.0))})
    assert not planned(p, beside="no").is_split


# plans


def test_a_kernel_is_shared_by_two_devices() -> None:
    """10 s on the CPU, 5 s and 0.06 s of transfers each way on the GPU, which gets eight groups of twelve."""
    plan = planned(pair())
    assert {(a.device, a.groups) for a in plan.assignments} == {(0, 4), (1, 8)}
    assert plan.details["complete"]
    assert plan.details["model_seconds"] == pytest.approx(8 / 12 * (5.0 + 2 * 120 * 0.0005))
    assert plan.details["bound"] == plan.details["model_seconds"] >= plan.makespan


def test_a_search_that_was_cut_off_says_so() -> None:
    p = pair(count=8)
    plan = planned(p, effort="30")
    verify(plan, p.graph, p.machine, p)
    assert plan.details["complete"] is False
    assert 0 < plan.details["bound"] < plan.details["model_seconds"]
    assert plan.details["rates"] == 16


def test_large_graphs_have_fewer_rates() -> None:
    p = pair(count=300)
    machine = replace(p.machine, devices=(*p.machine.devices, Device("gpu1", "gpu", memory=2)))
    p = replace(p, machine=machine, queues=(1, 1, 1), estimates=Affine([(10.0, 5.0, 4.0)] * 300, 0.0, 0.0005))
    plan = planned(p, effort="30")
    verify(plan, p.graph, p.machine, p)
    assert 1 < plan.details["rates"] < 16


@settings(max_examples=25, deadline=None)
@given(p=split_problems())
def test_plans_are_valid_and_can_be_followed(p: Problem) -> None:
    plan = planned(p, effort="300", rates="3")
    verify(plan, p.graph, p.machine, p)
    verify(with_times(p, plan, simulate(p, plan)), p.graph, p.machine, p)


@settings(max_examples=25, deadline=None)
@given(p=split_problems(), when=st.floats(0.0, 1.0))
def test_planning_goes_on_from_a_partial_schedule(p: Problem, when: float) -> None:
    first = planned(p, effort="300", rates="3")
    now = p.not_before + when * (first.makespan - p.not_before)
    starts: dict[int, float] = {}
    for a in first.assignments:
        starts[a.node] = max(starts.get(a.node, a.start), a.start)
    begun: set[int] = set()
    for n in range(len(p.graph)):
        if starts[n] < now and begun.issuperset(p.graph.predecessors[n]):
            begun.add(n)
    later = replace(p, fixed=tuple(a for a in first.assignments if a.node in begun), not_before=now)
    plan = planned(later, effort="300", rates="3")
    verify(plan, p.graph, p.machine, later)
    assert set(later.fixed) <= set(plan.assignments)


def test_options() -> None:
    for name, value in (("rates", "0"), ("rates", "x"), ("effort", "0"), ("effort", "x"), ("time_limit", "1")):
        with pytest.raises(PolicyError, match=name):
            planned(pair(), **{name: value})
