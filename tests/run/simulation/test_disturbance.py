"""Noise, drift, interference and faults: by hand, against numerical integration, and through the engine."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.applications.load import load_application
from manycl.applications.planning import described_machine, problem_of
from manycl.machine import HOST, Device, DeviceIndex
from manycl.plan.policy import StaticPolicy, find
from manycl.plan.problem import Problem
from manycl.run.engine import run_history
from manycl.run.engine.asking_policies import moving
from manycl.run.engine.engine import RunFailure
from manycl.run.simulation.disturbance import Disturbance, Slowdown, drift
from manycl.run.simulation.simulate import plan_with, simulate
from manycl.trace import FailureEvent
from tests import ROOT
from tests.run.simulation.test_sim import CPU, GPU, apart, chain_of_three, follow, spans

OTHER = Device("cpu1", "cpu")


def test_without_disturbance_nothing_changes() -> None:
    plain = follow(apart(3), [CPU, OTHER], [(0, 0), (1, 0), (0, 0)], [1.0, 2.0, 3.0])
    assert follow(apart(3), [CPU, OTHER], [(0, 0), (1, 0), (0, 0)], [1.0, 2.0, 3.0], disturbance=Disturbance()) == plain


def test_noise_has_its_mean_and_deviation_and_follows_the_seed() -> None:
    by = Disturbance(noise=0.05)
    times = [by.noisy(token, 0, 2.0) for token in range(4000)]
    assert statistics.mean(times) == pytest.approx(2.0, rel=0.005)
    assert statistics.stdev(times) == pytest.approx(0.1, rel=0.05)
    assert times == [by.noisy(token, 0, 2.0) for token in range(4000)]
    assert by.noisy(7, 0, 2.0) != replace(by, seed=1).noisy(7, 0, 2.0)
    assert by.noisy(7, 0, 2.0) != by.noisy(7, 1, 2.0)


def test_the_mean_stays_however_large_the_noise() -> None:
    by = Disturbance(noise=0.6)
    times = [by.noisy(token, 0, 2.0) for token in range(20000)]
    assert statistics.mean(times) == pytest.approx(2.0, rel=0.015)
    assert statistics.stdev(times) == pytest.approx(1.2, rel=0.05)


def test_noise_of_a_kernel_does_not_depend_on_what_else_runs() -> None:
    by = Disturbance(noise=0.2, seed=5)
    alone = follow(apart(1), [CPU], [(0, 0)], [1.0], disturbance=by)
    third = follow(apart(3), [CPU], [(0, 0)] * 3, [1.0] * 3, disturbance=by)
    assert spans(third)[0] == spans(alone)[0]
    lengths = {round(end - start, 9) for start, end in spans(third).values()}
    assert len(lengths) == 3


def test_transfers_are_noisy_too() -> None:
    valid = {0: frozenset({HOST})}
    plain = follow(apart(1), [GPU], [(0, 0)], [1.0], valid=valid)
    noisy = follow(apart(1), [GPU], [(0, 0)], [1.0], valid=valid, disturbance=Disturbance(noise=0.1))
    lengths = [next(t.end - t.start for t in trace.transfers()) for trace in (plain, noisy)]
    assert lengths[0] == 1.0
    assert lengths[1] != 1.0


def test_interference_slows_down_what_runs_meanwhile() -> None:
    # 2 s at full speed, then 3 times slower until 8 s: 2 of 6 s done; 3 more kernels' seconds follow at full speed
    by = Disturbance(slowdowns=(Slowdown(0, 3.0, 2.0, 8.0),))
    trace = follow(apart(3), [CPU, OTHER], [(0, 0), (0, 0), (1, 0)], [3.0, 2.0, 3.0], disturbance=by)
    assert spans(trace) == {0: (0, 5.0), 1: (5.0, 9.0), 2: (0, 3.0)}


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.floats(0.01, 5),
    now=st.floats(0, 4),
    slow=st.lists(st.tuples(st.floats(0.2, 5), st.floats(0, 5), st.floats(0.1, 5)), max_size=4),
)
def test_slowed_time_is_the_integral_of_the_speed(
    seconds: float, now: float, slow: list[tuple[float, float, float]]
) -> None:
    by = Disturbance(slowdowns=tuple(Slowdown(0, f, start, start + length) for f, start, length in slow))
    took = by.slowed(0, seconds, now)
    steps = 4000
    done = 0.0
    for i in range(steps):
        t = now + (i + 0.5) * took / steps
        done += took / steps / math.prod(f for f, start, length in slow if start <= t < start + length)
    assert done == pytest.approx(seconds, rel=0.02)
    assert by.slowed(1, seconds, now) == seconds


def test_drift_is_even_and_stays() -> None:
    by = Disturbance(slowdowns=tuple(drift(0, 3.0, 10.0)))
    # from 0 to 10 s the slow-down goes from 1 to 3: (10 / 2) ln 3 s of work are done
    assert by.slowed(0, 5 * math.log(3), 0.0) == pytest.approx(10.0, rel=1e-3)
    assert by.slowed(0, 1.0, 10.0) == pytest.approx(3.0)
    assert by.slowed(0, 1.0, 1e6) == pytest.approx(3.0)


def test_a_device_that_is_lost_ends_the_run_when_it_is_lost() -> None:
    by = Disturbance(lost={0: 1.5})
    with pytest.raises(RunFailure, match=r"kernel k \(b, node 1\) failed on cpu0.*the device was lost") as caught:
        follow(chain_of_three(), [CPU, OTHER], [(0, 0)] * 3, [1.0] * 3, disturbance=by)
    assert spans(caught.value.trace) == {0: (0, 1)}
    # nothing runs there any more when it is lost: nothing happens
    assert follow(apart(1), [CPU], [(0, 0)], [1.0], disturbance=Disturbance(lost={0: 1.5})).makespan == 1.0


def test_a_copy_from_a_lost_device_fails() -> None:
    graph = chain_of_three()
    with pytest.raises(RunFailure, match="a transfer failed on gpu0: the device was lost"):
        follow(graph, [CPU, GPU], [(1, 0), (0, 0), (0, 0)], [1.0] * 3, disturbance=Disturbance(lost={1: 1.5}))


def test_a_node_fails_when_it_would_end() -> None:
    by = Disturbance(failing={2: "worn out"})
    with pytest.raises(RunFailure, match="worn out") as caught:
        follow(apart(3), [CPU], [(0, 0)] * 3, [1.0] * 3, disturbance=by)
    failure = caught.value.trace.events[-1]
    assert isinstance(failure, FailureEvent)
    assert (failure.node, failure.time) == (2, 3.0)


@pytest.mark.parametrize("policy", ["mkmd", "balance", "auto"])
def test_others_take_over_from_a_gpu_that_becomes_four_times_slower(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, chosen = of_example("matrix_equation", n="1024", m="8192"), find(policy)
    assert isinstance(chosen, StaticPolicy)
    plan = plan_with(chosen, problem)
    disturbed = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), 4.0, 0.1 * plan.makespan, math.inf),))
    packets = moving(problem, chosen, plan)
    assert simulate(problem, packets).makespan < 1.01 * plan.makespan
    assert simulate(problem, packets, disturbance=disturbed).makespan < 1.6 * plan.makespan
    again = replace(problem, repeated=1)
    repeated = simulate(again, moving(again, chosen, plan), disturbance=disturbed)
    monkeypatch.setenv("MANYCL_DETERMINISTIC", "1")  # no result may depend on time, as in graphs that run again
    packets = moving(problem, chosen, plan)
    assert simulate(problem, packets).makespan < 1.01 * plan.makespan
    for found in (repeated, simulate(problem, packets, disturbance=disturbed)):
        assert found.makespan > 3.0 * plan.makespan


def of_example(name: str, **sizes: str) -> Problem:
    application = load_application(ROOT / f"manycl/examples/{name}/{name}.json", sizes)
    return problem_of(application, described_machine("mkmd"), {}, {})[0]


@pytest.mark.parametrize("policy", ["mkmd", "auto"])
def test_what_is_left_of_many_launches_of_few_ms_goes_to_others_as_well(policy: str) -> None:
    """257 launches, whose ranges take 1 to 3 ms; 1.54 times as long is the least."""
    problem, chosen = of_example("transformer", H="32", beta="512"), find(policy)
    assert isinstance(chosen, StaticPolicy)
    plan = moving(problem, chosen, plan_with(chosen, problem))
    calm = simulate(problem, plan).makespan
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), 4.0, 0.1 * calm, math.inf),))
    trace = simulate(problem, plan, disturbance=slow, anew=chosen)
    assert trace.makespan < 1.6 * calm
    (told,) = trace.details[run_history.REPLANNED]
    assert told["changed"].startswith("gpu0 takes 4 times as long")
    groups = dict[int, int]()
    for e in trace.kernels():
        groups[e.node] = groups.get(e.node, 0) + (e.groups or problem.splits[e.node].groups)
    assert all(count == problem.splits[node].groups for node, count in groups.items())
    kept = simulate(replace(problem, as_planned=True), plan, disturbance=slow, anew=chosen)
    assert kept.makespan > 3.0 * calm, "a plan that runs as it is"


def test_whole_kernels_leave_a_late_device_before_others_are_idle() -> None:
    problem, chosen = of_example("matrix_equation", n="512", m="4096"), find("balance")
    assert isinstance(chosen, StaticPolicy)
    plan = moving(problem, chosen, plan_with(chosen, problem))
    calm = simulate(problem, plan).makespan
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), 4.0, 0.1 * calm, math.inf),))
    assert simulate(problem, plan, disturbance=slow).makespan < 2.0 * calm
