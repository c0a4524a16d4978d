"""Runs whose rest is planned anew on the way: which nodes that is, when it pays, when they end, and that bits stay."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, Launch, Version
from manycl.machine import HOST, Device, DeviceIndex, Machine
from manycl.model.estimates import Estimates
from manycl.plan import preemptible
from manycl.plan.plan import ON_HOST, Assignment, Plan
from manycl.plan.policy import find
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion, Split
from manycl.plan.tuning import PLANNING
from manycl.report.summary import summarise
from manycl.run.data.coherence import Directory
from manycl.run.engine import run_history
from manycl.run.engine.engine import execute
from manycl.run.engine.result import Result
from manycl.run.engine.setup import Setup
from manycl.run.engine.trial import Fallback, Trial
from manycl.run.executor.run_state import RunState
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.recovery import replanning, stragglers
from manycl.run.recovery.device_events import DeviceComes, DeviceEvents, DeviceLeaves, DeviceSlows, EventMonitor
from manycl.run.recovery.replanning import graph_of, in_order, not_begun
from manycl.run.simulation.disturbance import UNDISTURBED, Disturbance, Slowdown
from manycl.run.simulation.simulator import SimBackend
from tests.run.recovery.test_events_real import PROGRAM, N
from tests.run.simulation.hopping_times import GROUPS, HoppingTruth

FACTS = KernelFacts("k", 1, ())
BYTES = 64
"""That each work-group changes."""


def chain(count: int) -> Graph:
    """Launches, each of which changes what the one before has changed."""
    builder = GraphBuilder()
    key = builder.buffer(GROUPS * BYTES)
    for _ in range(count):
        args = (BufferArg(key),)
        builder.add(Launch("k", ProgramFacts("", (), {"k": FACTS}), FACTS, (GROUPS,), (1,), args, (key,), (key,)))
    return builder.build()


def to_and_fro(count: int) -> Graph:
    """Launches, each of which overwrites what the one before has read."""
    builder = GraphBuilder()
    x, y = builder.buffer(GROUPS * BYTES), builder.buffer(GROUPS * BYTES)
    for _ in range(count):
        args, program = (BufferArg(x), BufferArg(y)), ProgramFacts("", (), {"k": FACTS})
        builder.add(Launch("k", program, FACTS, (GROUPS,), (1,), args, (x,), (y,), overwrites=(y,)))
        x, y = y, x
    return builder.build()


@given(st.data(), st.integers(1, 12))
def test_what_is_left_keeps_the_order_that_it_had(data: Any, count: int) -> None:
    """By walking the graph from each node."""
    nodes = chain(1).nodes * count
    before = tuple(
        tuple(sorted(data.draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else ())) for n in range(count)
    )
    graph = Graph(nodes, chain(1).buffers, before)
    begun = data.draw(st.sets(st.integers(0, count - 1)))

    def reach(predecessors: Any, node: int) -> set[int]:
        return set(predecessors[node]).union(*(reach(predecessors, p) for p in predecessors[node]))

    left = not_begun(Lowered(graph), begun)
    ended = begun.union(*(reach(before, n) for n in begun))
    assert left == tuple(n for n in range(count) if n not in ended)
    found = graph_of(graph, left)
    for n, node in enumerate(left):
        assert {left[p] for p in reach(found.predecessors, n)} == reach(before, node) & {*left}
    again, run = in_order(graph, begun).predecessors, {*range(count)} - begun
    alone = [{*again[n]} & run for n in range(count)]  # what is done holds nobody back
    assert all(reach(alone, n) == reach(before, n) & run for n in run)


@pytest.fixture(autouse=True)
def wholes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches run as wholes on devices that are alike: where they run in packets, these go to other devices, and
    nothing is planned anew."""
    monkeypatch.setattr(preemptible, "endings", lambda problem, share, others: 3 if others else 1)


class Times(Estimates):
    """Seconds of the kernel as a whole, on each device."""

    def __init__(self, seconds: tuple[float, ...]) -> None:
        self.seconds = seconds

    def launch(self, node: int, device: int) -> float:
        return self.seconds[device]

    def groups(self, node: int, device: int, count: int, of: int) -> float:
        return self.seconds[device] * count / of

    def transfer(self, nbytes: int, source: int, target: int) -> float:
        return 0.0


class Simulated:
    """A chain of launches on a simulated machine, to the second device of which something happens."""

    def __init__(self, seconds: tuple[float, ...], count: int) -> None:
        self.times, self.truth = Times(seconds), Times(seconds)
        self.machine = Machine(tuple(Device(f"d{n}", "cpu", memory=HOST, model="m") for n in range(len(seconds))))
        self.graph = chain(count)
        self.events = DeviceEvents(d.name for d in self.machine.devices)
        self.asked: list[int] = []

    def problem(self, graph: Graph) -> Problem:
        self.asked.append(len(graph))
        splits = {
            n: Split(0, GROUPS, regions=dict.fromkeys((*task.reads, *task.writes), LinearRegion(BYTES)))
            for n, task in enumerate(graph.nodes)
        }
        watch = EventMonitor(self.events, self.machine)
        return Problem(
            graph, self.machine, self.times, (1,) * len(self.machine.devices), splits=splits, away=watch.away
        )

    def run(
        self,
        happening: tuple[tuple[float, Callable[[], object]], ...] = (),
        disturbance: Disturbance = UNDISTURBED,
        *,
        is_planned_anew: bool = True,
        fallback: Fallback | None = None,
        as_planned: bool = False,
        policy: str = "balance",
    ) -> Result:
        problem = replace(self.problem(self.graph), as_planned=as_planned)
        watch = EventMonitor(self.events, self.machine)
        backend: list[SimBackend] = []

        def lowering(given: Problem, plan: Plan | None, directory: Directory) -> Lowered:
            lowered = lower(given, plan, directory)
            truth = HoppingTruth(given, lowered, self.truth)
            if backend:
                backend[0]._estimates = truth
            else:
                by = replace(disturbance, happening=happening)
                backend.append(SimBackend(self.machine, truth, disturbance=by))
                self.events.listen(backend[0].wake)
            return lowered

        lowering(problem, None, Directory())
        setup = Setup(lowering, rest=self.problem if is_planned_anew else None, trial=Trial(fallback))
        return execute(problem, find(policy), backend[0], Directory(), setup=setup, watch=watch)


@pytest.mark.parametrize("speed", [1.0, 3.0])
@pytest.mark.parametrize("part", [0.1, 0.5, 0.8])
def test_a_device_that_comes_has_its_share_of_what_is_left(speed: float, part: float) -> None:
    """Launches divide evenly: what is not enqueued by then ends ``1 + speed`` times as fast."""
    each, count = 0.1, 30
    run = Simulated((each, each / speed), count)
    run.events.put(DeviceLeaves("d1"))
    moment = part * count * each
    result = run.run(((moment, lambda: run.events.put(DeviceComes("d1"))),))
    enqueued = 0.1 + 2 * each  # is not taken back
    least = moment + (count * each - moment) / (1.0 + speed)
    most = moment + enqueued + (count * each - moment - enqueued) / (1.0 + speed)
    assert 0.999 * least <= result.seconds <= 1.01 * most
    assert {e.device for e in result.trace.kernels()} == {"d0", "d1"}
    per = [sum(e.groups or GROUPS for e in result.trace.kernels() if e.node == n) for n in range(count)]
    assert per == [GROUPS] * count
    (told,) = result.details[run_history.REPLANNED]
    assert told["changed"] == "d1 came"
    assert told["nodes"] == run.asked[-1]
    assert re.search(r"\nplanned anew after .*: d1 came; \d+ nodes left\n", summarise(result.trace).text())
    assert result.command_graph is None
    assert result.settled is None


def test_a_device_that_leaves_leaves_a_plan_for_the_others() -> None:
    """The two of three that are left share all launches evenly, as they would from the start."""
    each, count = 0.6, 20
    run = Simulated((each, each, each), count)
    moment = 0.25 * count * each / 3
    result = run.run(((moment, lambda: run.events.put(DeviceLeaves("d2"))),))
    assert result.details[run_history.REPLANNED][0]["changed"] == "d2 left"
    left = count * each - 3 * moment
    assert 0.999 * (moment + left / 3) <= result.seconds <= 1.02 * (moment + 1.1 + left / 2)


def test_a_device_that_is_lost_leaves_a_plan_for_the_others() -> None:
    """As one that leaves; what it was at is run again."""
    each, count = 0.6, 20
    run = Simulated((each, each, each), count)
    run.graph = to_and_fro(count)
    moment = 0.25 * count * each / 3
    result = run.run(disturbance=Disturbance(lost={DeviceIndex(2): moment}))
    assert result.lost == {"d2": "the device was lost"}
    (told,) = result.details[run_history.REPLANNED]
    assert told["changed"] == "d2 was lost"
    assert told["nodes"] == run.asked[-1] > count / 2
    stays = Simulated((each, each, each), count)
    stays.graph = run.graph
    alike = stays.run(disturbance=Disturbance(lost={DeviceIndex(2): moment}), is_planned_anew=False)
    assert run_history.REPLANNED not in alike.details
    assert moment + (count * each - 3 * moment) / 2 < result.seconds < 0.9 * alike.seconds
    last = [e for e in result.trace.kernels() if e.node == count - 1]
    assert sorted((e.device, e.groups) for e in last) == [("d0", GROUPS // 2), ("d1", GROUPS // 2)]


def test_a_device_that_is_said_to_be_slower_has_less_of_what_is_left() -> None:
    """The second of two devices takes three times as long from a moment on; somebody says so."""
    each, count, factor = 0.6, 20, 3.0
    run = Simulated((each, each), count)
    moment = 0.25 * count * each / 2

    def slower() -> None:
        run.times.seconds = run.truth.seconds = each, factor * each
        run.events.put(DeviceSlows("d1", factor))

    told = run.run(((moment, slower),))
    assert told.details[run_history.REPLANNED][0]["changed"] == "d1 takes 3 times as long"
    left = count * each - 2 * moment
    shared, enqueued = left / (1.0 + 1.0 / factor), 1.1  # what is enqueued is not taken back
    assert 0.999 * (moment + shared) <= told.seconds <= moment + factor * enqueued + shared
    assert told.seconds < moment + 0.8 * (factor * left / 2), "no better than shares that stay"


@pytest.mark.parametrize("factor", [2.5, 6.0])
def test_a_run_finds_by_itself_that_a_device_has_become_slower(factor: float) -> None:
    """Nobody says so. What is enqueued by then, and three kernels that tell it, are not taken back."""
    each, count = 0.04, 60
    run = Simulated((each, each), count)
    moment = 0.25 * count * each / 2
    result = run.run(disturbance=Disturbance(slowdowns=(Slowdown(DeviceIndex(1), factor, moment, inf),)))
    (told,) = result.details[run_history.REPLANNED]
    assert re.fullmatch(
        rf"d1 takes {factor:.3g} times as long as foreseen \(3 kernels in a row beyond 2 times, "
        r"and \d+ % of what is left to gain, at least 10 %\)",
        told["changed"],
    )
    left = count * each - 2 * moment
    shared = left / (1.0 + 1.0 / factor)
    reaction = factor * (0.1 + 4 * each / 2)
    assert 0.999 * (moment + shared) <= result.seconds <= moment + reaction + shared
    assert result.seconds < moment + 0.8 * factor * left / 2, "no better than shares that stay"
    assert "d1 takes" in summarise(result.trace).text()


def test_a_plan_that_is_to_run_as_it_is_stays_when_a_device_becomes_slower() -> None:
    each, count = 0.04, 30
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), 4.0, 0.1, inf),))
    result = Simulated((each, each), count).run(disturbance=slow, as_planned=True)
    assert run_history.REPLANNED not in result.details
    assert {(e.node, e.groups) for e in result.trace.kernels()} == {(n, GROUPS // 2) for n in range(count)}


def test_a_device_that_is_faster_again_has_more_again() -> None:
    each, count = 0.04, 120
    run = Simulated((each, each), count)
    slow = Slowdown(DeviceIndex(1), 5.0, 0.3, 1.2)
    result = run.run(disturbance=Disturbance(slowdowns=(slow,)))
    first, second = result.details[run_history.REPLANNED]
    assert first["changed"].startswith("d1 takes 5 times")
    assert second["changed"].startswith("d1 takes 0.2 times")
    last = [e.groups for e in result.trace.kernels() if e.node == count - 1]
    assert last == [GROUPS // 2] * 2


@pytest.mark.parametrize("seed", range(3))
def test_noise_and_machines_that_are_slower_as_a_whole_are_no_reason_to_plan_anew(seed: int) -> None:
    noisy = Simulated((0.04, 0.04), 60).run(disturbance=Disturbance(noise=0.5, seed=seed))
    assert run_history.REPLANNED not in noisy.details
    both = tuple(Slowdown(DeviceIndex(d), 4.0, 0.1 * seed, inf) for d in (0, 1))
    alike = Simulated((0.04, 0.04), 60).run(disturbance=Disturbance(slowdowns=both))
    assert run_history.REPLANNED not in alike.details


def test_guesses_are_no_reason_either_nor_are_devices_that_are_not_alike_if_results_may_not_depend_on_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), 5.0, 0.0, inf),))
    guessed = Simulated((0.04, 0.04), 60)
    guessed.times.is_measured = lambda node, device: False  # type: ignore[method-assign]
    assert run_history.REPLANNED not in guessed.run(disturbance=slow).details
    unlike = Simulated((0.04, 0.04), 60)
    unlike.machine = replace(unlike.machine, devices=(unlike.machine.devices[0], Device("d1", "cpu", memory=HOST)))
    several = Simulated((0.04, 0.04), 60)
    first, *others = several.graph.nodes
    assert isinstance(first, Launch)
    first = replace(first, versions=(Version(first.program, FACTS, (1,), None),))
    several.graph = replace(several.graph, nodes=(first, *others))
    assert run_history.REPLANNED in several.run(disturbance=slow).details
    helped = unlike.run(disturbance=slow)  # in packets: nothing has to be stopped
    assert run_history.REPLANNED not in helped.details
    monkeypatch.setenv("MANYCL_DETERMINISTIC", "1")
    assert run_history.REPLANNED not in several.run(disturbance=slow).details, "devices may choose other versions"
    stays = unlike.run(disturbance=slow)
    assert run_history.REPLANNED not in stays.details
    assert helped.seconds < 0.5 * stays.seconds


def test_nothing_is_planned_anew_where_little_is_left() -> None:
    run = Simulated((0.1, 0.1), 30)
    run.events.put(DeviceLeaves("d1"))
    result = run.run(((2.97, lambda: run.events.put(DeviceComes("d1"))),))
    assert run_history.REPLANNED not in result.details
    assert result.seconds == pytest.approx(3.0)
    assert run.asked == [30]


# real devices


class AsManyAsThereAre:
    """Each launch on the next device of those that are there, or divided among all of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.there: list[int] = []

    def plan(self, problem: Problem) -> Plan:
        there = [d for d in problem.machine.indices if d not in problem.away]
        self.there.append(len(there))
        out: list[Assignment] = []
        for n, task in enumerate(problem.graph.nodes):
            if not isinstance(task, Launch):
                out.append(Assignment(n, ON_HOST, 0, 0.0, 0.0))
                continue
            groups = N // 64
            cuts = [groups * i // len(there) for i in range(len(there) + 1)]
            if self._random.random() < 0.5 and n in problem.splits:
                ranges = zip(there, cuts, cuts[1:], strict=False)
                out += [Assignment(n, d, 0, 0.0, 0.0, 0, a, b - a) for d, a, b in ranges]
            else:
                out.append(Assignment(n, self._random.choice(there), 0, 0.0, 0.0))
        return Plan(tuple(out), "all", tuple(d.name for d in problem.machine.devices), 0.0)


def enqueue(queue: mc.Queue, x: mc.Array, y: mc.Array, say: list[Callable[[], object]]) -> None:
    for said in say:
        for _ in range(3):
            PROGRAM.change(queue, (N,), (64,), x, 50)
            PROGRAM.blend(queue, (N,), (64,), x, y)
            PROGRAM.blend(queue, (N,), (64,), y, x)
        queue.call(lambda _, said=said: said(), x)


def alone(devices: str, data: Any) -> list[bytes]:
    """What one device gives."""
    with mc.Queue(devices.partition("/")[0], policy="in_order") as queue:
        x, y = queue.array(data), queue.zeros(N, np.float32)
        enqueue(queue, x, y, [lambda: None] * 5)
        return [x.get().tobytes(), y.get().tobytes()]


@pytest.mark.parametrize(("devices", "zero_copy"), [("native/2", "1"), ("native/2", "0"), ("opencl/2", "0")])
def test_bits_stay_and_who_comes_takes_part(devices: str, zero_copy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Host functions say that a device comes, leaves and becomes slower, where launches wait for them."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", zero_copy)
    monkeypatch.setattr(replanning, "SHORTEST", 0.0)
    monkeypatch.setattr(replanning.Outlook, "planning", lambda *_: 0.0)
    data = np.arange(N, dtype=np.float32)

    expected = alone(devices, data)
    policy = AsManyAsThereAre(1)
    with mc.Queue(devices, policy=policy) as queue:
        first, second = queue.devices
        x, y = queue.array(data), queue.zeros(N, np.float32)
        queue.leave(second)
        say: list[Callable[[], object]] = [
            lambda: queue.come(second),
            lambda: queue.leave(first),
            lambda: queue.come(first),
            lambda: queue.slow(second, 1e6),
            lambda: None,
        ]
        enqueue(queue, x, y, say)
        queue.finish()
        assert [x.get().tobytes(), y.get().tobytes()] == expected
        ran = {name: {e.node for e in queue.trace.kernels() if e.device == name} for name in (first, second)}
        told = queue.trace.details[run_history.REPLANNED]
    assert policy.there[:4] == [1, 2, 1, 2]
    changed = [f"{second} came", f"{first} left", f"{first} came", f"{second} takes 1e+06 times as long"]
    assert [t["changed"] for t in told][: len(policy.there) - 1] == changed[: len(policy.there) - 1]
    assert [t["nodes"] for t in told][:3] == [40, 30, 20]
    assert ran[first] & ran[second]
    assert not ran[first] & set(range(20, 30))


def test_bits_stay_where_a_run_takes_a_device_for_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """What kernels take on the second device's clock is told falsely, until the rest is planned anew."""
    monkeypatch.setattr(replanning, "SHORTEST", 0.0)
    monkeypatch.setattr(replanning.Outlook, "planning", lambda *_: 0.0)
    monkeypatch.setattr(stragglers, "LEAST", 0.0)
    monkeypatch.setattr(stragglers, "WORK", 0.0)
    monkeypatch.setattr("manycl.run.engine.engine.PLANNING", PLANNING._replace(gain=-1.0))
    monkeypatch.setattr("manycl.model.estimate.ModelEstimates.is_measured", lambda *_: True)
    told: list[float] = []

    def took(self: Any, token: int, device: int) -> float | None:
        told.append(really(self, token, device) or 0.0)
        return 1e6 if device == 1 else 1e-6

    really = RunState.took
    monkeypatch.setattr(RunState, "took", took)
    data, policy = np.arange(N, dtype=np.float32), AsManyAsThereAre(1)
    with mc.Queue("native/2", policy=policy) as queue:
        x, y = queue.array(data), queue.zeros(N, np.float32)
        enqueue(queue, x, y, [lambda: None] * 5)
        queue.finish()
        assert [x.get().tobytes(), y.get().tobytes()] == alone("native/2", data)
        assert f"{queue.devices[1]} takes" in queue.trace.details[run_history.REPLANNED][0]["changed"]
    assert len(policy.there) > 1
    assert min(told) > 0.0, "a kernel that took no time"
