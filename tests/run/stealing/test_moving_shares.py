"""Shares that move on real devices: whatever the plan says and whoever ends first, results are those of one device, bit
for bit; and on the simulated machine, what moving them gains."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import RunError
from manycl.graph.graph import Graph, Launch
from manycl.machine import DeviceIndex
from manycl.model.estimates import Wrapped
from manycl.model.history.history import Shape, identity, kernel_key
from manycl.model.work import work_of
from manycl.plan.movable import with_moving_shares
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.commands.backend import Command
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.session.models import note_shares
from manycl.run.simulation.disturbance import Disturbance, Slowdown
from manycl.run.simulation.foresee import foresee
from manycl.run.stealing.player import MovingPlayer
from manycl.trace import KernelEvent
from manycl.utilities.kept import ENOUGH

SOURCE = """
kernel void iterate(global const float *x, global float *y, int rounds) {
    int i = get_global_id(0);
    float v = x[i];
    for (int k = 0; k < rounds; k++) v = v * 0.999f + 0.5f;
    y[i] = v;
}
kernel void change(global float *y) { int i = get_global_id(0); y[i] = y[i] * 1.5f + 1.0f; }
kernel void blur(global const float *a, global float *b, int n) {
    int i = get_global_id(0);
    b[i] = i > 0 && i < n - 1 ? 0.25f * a[i - 1] + 0.5f * a[i] + 0.25f * a[i + 1] : a[i];
}
kernel void count(global const float *a, global int *bins) { atomic_inc(&bins[(int)a[get_global_id(0)] & 15]); }
"""
ITEMS, LOCAL = 1 << 14, 64
GROUPS = ITEMS // LOCAL
KERNELS = ("iterate", "change", "blur", "blur", "count")


class MovingChain:
    """A chain of kernels on some devices."""

    def __init__(self, devices: str) -> None:
        self.queue = mc.Queue(devices)
        program = mc.Program(SOURCE)
        data = np.random.default_rng(1).random(ITEMS, np.float32) * 16
        self.x = self.queue.array(data)
        self.y, self.z = (self.queue.zeros(ITEMS, np.float32) for _ in range(2))
        self.bins = self.queue.zeros(16, np.int32)
        with self.queue.prepare() as enqueued:
            program.iterate(self.queue, (ITEMS,), (LOCAL,), self.x, self.y, 50)
            program.change(self.queue, (ITEMS,), (LOCAL,), self.y)
            program.blur(self.queue, (ITEMS,), (LOCAL,), self.y, self.z, ITEMS)
            program.blur(self.queue, (ITEMS,), (LOCAL,), self.z, self.y, ITEMS)
            program.count(self.queue, (ITEMS,), (LOCAL,), self.y, self.bins)
        self.graph: Graph = enqueued.graph
        assert [task.kernel.name for task in self.graph.nodes if isinstance(task, Launch)] == list(KERNELS)

    def results(self, plan: Plan) -> tuple[bytes, ...]:
        for array in (self.y, self.z, self.bins):
            array.set(np.zeros(array.shape, array.dtype))
        self.queue.session.run(self.graph, plan)
        return tuple(a.get().tobytes() for a in (self.y, self.z, self.bins))

    def plan(self, shares: Sequence[Sequence[int]], movable: Sequence[int] = ()) -> Plan:
        """``shares``: of each node, up to which group each device has it (none: the first has all of it)."""
        out: list[Assignment] = []
        for node, ends in enumerate(shares):
            if not ends:
                out.append(Assignment(node, DeviceIndex(0), 0, 0.0, 0.0))
            for d, (low, high) in enumerate(itertools.pairwise([0, *ends])):
                if low < high:
                    out.append(Assignment(node, DeviceIndex(d), 0, 0.0, 0.0, 0, low, high - low))
        return Plan(tuple(out), "by hand", self.queue.devices, 0.0, movable=tuple(movable))


@pytest.fixture(params=["native/2", "cpu1/2", "cpu0,cpu1", "native/2 apart", "cpu1/2 apart"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MovingChain]:
    """Devices of one memory, of one kind and of several; and such with memories of their own."""
    devices, _, apart = request.param.partition(" ")
    if apart:
        monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    made = MovingChain(devices)
    yield made
    made.queue.session.close()


def test_results_are_those_of_one_device(run: MovingChain, played: list[MovingPlayer]) -> None:
    count = len(run.queue.devices)
    whole = run.results(run.plan([()] * len(KERNELS)))
    one_kind = len({d.model for d in run.queue.session.machine.devices}) == 1
    shares = ([GROUPS // 2, GROUPS], [GROUPS - 1, GROUPS], [3, GROUPS])
    for ends in shares:
        plan = run.plan([ends[-count:]] * len(KERNELS), range(len(KERNELS)))
        found = run.results(plan)
        if one_kind:
            assert found == whole
        else:
            for mine, theirs in zip(found[:2], whole[:2], strict=True):
                np.testing.assert_allclose(np.frombuffer(mine, np.float32), np.frombuffer(theirs, np.float32), 1e-5)
    assert len(played) == len(shares)
    for player in played:
        ran = player.ran
        apart = run.queue.session.machine.memories > 1
        assert ran.chunks.keys() == (set(range(4)) if apart else set(range(5)))  # counts are merged between memories


def test_launches_are_cut_once_whoever_had_their_chunks_before(
    run: MovingChain, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowered: list[Plan | None] = []

    def counted(problem: Problem, plan: Plan | None, *others: Any, **options: Any) -> Lowered:
        lowered.append(plan)
        return lower(problem, plan, *others, **options)

    monkeypatch.setattr("manycl.run.graph_cache.lowering_cache.lower", counted)
    ends = [GROUPS // 3, GROUPS // 2, GROUPS][-len(run.queue.devices) :]
    moving, fixed = (run.plan([ends, ends, (), (), ()], nodes) for nodes in ((0, 1), ()))
    first = run.results(moving)
    one_kind = len({d.model for d in run.queue.session.machine.devices}) == 1
    for plan in (moving, fixed, moving, moving, fixed):
        assert run.results(plan) == first or not one_kind
    assert lowered.count(moving) == 1


def test_whole_kernels_and_host_functions_stand_between(run: MovingChain) -> None:
    whole = run.results(run.plan([()] * len(KERNELS)))
    ends = [GROUPS // 3, GROUPS]
    plan = run.plan([ends, (), ends, (), ends], (0, 2, 4))
    if len({d.model for d in run.queue.session.machine.devices}) == 1:
        assert run.results(plan) == whole
        assert run.results(replace(plan, movable=(2,))) == whole
        assert run.results(replace(plan, movable=range(5))) == whole, "what has no ranges has no shares"


def test_a_run_that_failed_leaves_nothing_behind(run: MovingChain, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = run.plan([[GROUPS // 2, GROUPS]] * len(KERNELS), range(len(KERNELS)))
    backend = run.queue.session.backend
    perform, calls = backend.perform, itertools.count()

    def failing(commands: Sequence[Command]) -> None:
        if next(calls) == 1:  # what the first reports let in
            raise RunError("made to fail")
        perform(commands)

    whole = run.results(run.plan([()] * len(KERNELS)))
    with monkeypatch.context() as patch:
        patch.setattr(backend, "perform", failing)
        with pytest.raises(RunError, match="made to fail"):
            run.queue.session.run(run.graph, plan)
    for array in (run.y, run.z, run.bins):
        array.set(np.zeros(array.shape, array.dtype))
    run.queue.session.run(run.graph, plan)
    if len({d.model for d in run.queue.session.machine.devices}) == 1:
        assert tuple(a.get().tobytes() for a in (run.y, run.z, run.bins)) == whole


def test_the_trace_tells_packets_with_their_work_groups(played: list[MovingPlayer]) -> None:
    run = MovingChain("native/2")
    with run.queue.session:
        plan = run.plan([[GROUPS - 9, GROUPS]] * len(KERNELS), range(len(KERNELS)))
        first, result = (run.queue.session.run(run.graph, plan) for _ in range(2))
        events = [e for e in result.trace.events if isinstance(e, KernelEvent)]
        for node in range(len(KERNELS)):
            mine = sorted((e for e in events if e.node == node), key=lambda e: e.first)
            assert [e.first for e in mine] == [sum(e.groups for e in mine[:i]) for i in range(len(mine))]
            assert sum(e.groups for e in mine) == GROUPS
            assert all(e.global_size[0] == e.groups * LOCAL for e in mine)
        story = result.story("iterate")
        told = [line for line in story.splitlines() if line.startswith("kernel iterate")]
        assert len(told) == len([e for e in events if e.node == 0])
        assert f"to {GROUPS - 1}) on" in story
        graph, samples = result.samples()
        groups = sum(graph.nodes[n].global_size[0] for n, _, _ in samples)  # type: ignore[union-attr]
        assert groups == len(KERNELS) * ITEMS
        models = run.queue.session.models
        models.learn(run.queue.session.machine)
        launch, device = run.graph.nodes[0], run.queue.session.machine.devices[0]
        assert isinstance(launch, Launch)
        here = models.history.on(kernel_key(launch), identity(device))
        assert here is not None
        both = (*first.trace.events, *events)
        mine = {(e.first, e.groups) for e in both if isinstance(e, KernelEvent) and e.node == 0}
        learned = dict(here.ranges(Shape(launch.global_size, work_of(launch, launch).f)))
        assert {(where.first, where.groups) for where in learned} <= mine
        assert learned
        assert all(where.of == GROUPS for where in learned)


def test_a_plan_is_kept_with_the_shares_as_they_have_become(run: MovingChain) -> None:
    result = run.queue.session.run(run.graph, run.plan([[3, GROUPS]] * len(KERNELS), range(len(KERNELS))))
    kept = result.settled
    assert kept is not None
    assert kept.movable == ()
    ran: dict[tuple[int, str], int] = {}
    for e in result.trace.events:
        if isinstance(e, KernelEvent) and e.role == "range":
            ran[e.node, e.device] = ran.get((e.node, e.device), 0) + e.groups
    for node in range(len(KERNELS)):
        mine = sorted((a for a in kept.assignments if a.node == node), key=lambda a: a.first)
        assert [a.first for a in mine] == [sum(a.groups for a in mine[:i]) for i in range(len(mine))]
        assert {(node, kept.devices[a.device]): a.groups for a in mine} == {
            k: g for k, g in ran.items() if k[0] == node
        }
    again = run.queue.session.run(run.graph, kept)
    assert again.command_graph is not None, "it is played without deciding anything"


class TimedOtherwise:
    """A run's record, of which the clocks say something else."""

    def __init__(self, times: Sequence[tuple[int, DeviceIndex, float]]) -> None:
        self._times = times

    def durations(self, nodes: Set[int] | None = None) -> Sequence[tuple[int, DeviceIndex, float]]:
        return [time for time in self._times if nodes is None or time[0] in nodes]


def test_shares_of_alike_devices_move_after_runs_that_were_off() -> None:
    """One device has three quarters, and both were planned to take as long: nobody needs to ask for it."""
    run = MovingChain("native/2")
    with run.queue.session as session:
        whole = run.results(run.plan([()] * len(KERNELS)))
        ends: list[Sequence[int]] = [[GROUPS // 4, GROUPS], *[()] * 4]
        plan = run.plan(ends)
        plan = replace(plan, assignments=tuple(a._replace(end=0.1) for a in plan.assignments))
        assert with_moving_shares(session.problem(run.graph), plan, deterministic=True) is plan
        result = session.run(run.graph, plan)
        ran = zip(result.record.durations(), result.measured(), strict=True)
        times = [(token, device, 1e-3 * measured.step.groups) for (token, device, _), measured in ran]
        told = replace(result, record=TimedOtherwise(times))  # type: ignore[arg-type]
        session.models.forget()
        for _ in range(ENOUGH):
            note_shares(session.models.history.imbalances, told)
        problem = session.problem(run.graph)
        assert problem.estimates.off(0, problem.machine.indices) == pytest.approx(2.0)  # three times as many groups
        assert problem.estimates.off(1, problem.machine.indices) == 0.0  # it ran whole
        found = with_moving_shares(problem, plan, deterministic=True)
        assert found.movable == (0,)
        assert run.results(found) == whole


class TenthOfASecond(Wrapped):
    """Every kernel takes a tenth of a second, everywhere."""

    def launch(self, node: int, device: DeviceIndex) -> float:
        return 0.1

    def groups(self, node: int, device: DeviceIndex, count: int, of: int) -> float:
        return 0.1 * count / of


def test_both_devices_stay_at_work_when_one_becomes_slow() -> None:
    run = MovingChain("native/2")
    with run.queue.session:
        problem = run.queue.session.problem(run.graph)
        problem = replace(problem, estimates=TenthOfASecond(problem.estimates))
        slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), 4.0, 0.01, 10.0),))

        def seconds(movable: Sequence[int]) -> float:
            plan = run.plan([[GROUPS // 2, GROUPS], (), (), (), ()], movable)
            events = foresee(problem, plan, disturbance=slow).events
            return max(e.end for e in events if isinstance(e, KernelEvent) and e.node == 0)

        assert seconds(()) == pytest.approx(0.17, rel=0.01)  # 40 ms of what it has to do take 160
        assert seconds((0,)) < 1.06 * (0.01 + 0.08 / 1.25)  # what is left after 10 ms, on both (a chunk is 3 ms)
