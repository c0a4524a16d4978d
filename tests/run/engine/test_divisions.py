"""Why launches were divided, or not, in traces and summaries: on described GPUs, and in loops on two parts of a CPU."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.analysis import parse_program
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Launch
from manycl.machine import HOST, Device, Machine
from manycl.model.estimate import ModelEstimates
from manycl.model.history.history import History, Shape, identity, kernel_key
from manycl.model.work import work_of
from manycl.plan.plan import COMPARED, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.plan.splitting import Splits
from manycl.report.summary import summarise
from manycl.run.engine import divisions
from manycl.run.graph_cache.recurring_graph import RecurringGraph
from manycl.run.simulation.simulate import simulate
from manycl.run.streams.eager_rule import MeasuredGraph
from manycl.trace import Trace
from manycl.utilities.unforeseen import UnforeseenWarning

BODIES = """
kernel void forces(global const float4 *p, global float4 *f, int n) {
    int i = get_global_id(0);
    float4 a = (float4)(0);
    for (int j = 0; j < n; j++) { float4 d = p[j] - p[i]; a += d * rsqrt(dot(d, d) + 1e-6f); }
    f[i] = a;
}
"""
H200 = Device(
    "gpu0",
    "gpu",
    model="H200",
    memory=1,
    compute_units=132,
    clock=1.98e9,
    flops=132 * 1.98e9 * 2 * 128,
    bandwidth=500e9,
    global_memory=140 << 30,
    max_allocation=35 << 30,
    local_memory=48 << 10,
)
PROGRAM = mc.Program("""
kernel void spin(global int *x, int n) {
    int i = get_global_id(0), v = x[i];
    for (int k = 0; k < n; k++) v = v * 3 + k;
    x[i] = v;
}
kernel void total(global const int *x, global float *y, int n) {
    int v = x[get_global_id(0)];
    for (int k = 0; k < n; k++) v = v * 3 + k;
    y[0] = y[0] * 0.5f + v;
}
kernel void least(global int *x) { x[get_global_id(0)] += 1; }
""")
COUNT, GROUP, LONG = 1 << 12, 64, 100_000


def bodies(count: int, seconds: float) -> Trace:
    """The simulated run of a launch that was measured to take so long on one of two devices that are alike."""
    program, builder = parse_program(BODIES), GraphBuilder()
    places, forces = (builder.buffer(16 * count) for _ in range(2))
    args = BufferArg(places), BufferArg(forces), struct.pack("=i", count)
    launch = Launch("forces", program, program.kernels["forces"], (count,), (256,), args, (places,), (forces,))
    builder.add(launch)
    graph, history = builder.build(), History()
    for _ in range(2):
        history.next_run()
        history.observe(kernel_key(launch), Shape((count,), work_of(launch, launch).f), identity(H200), seconds)
    machine = Machine((H200, replace(H200, name="gpu1", memory=2)))
    valid = {key: frozenset({HOST}) for key in graph.buffers}
    estimates = ModelEstimates(graph, machine, history)
    return simulate(Problem(graph, machine, estimates, (1, 1), valid, splits=Splits(graph), repeated=2), "auto")


def test_half_of_a_launch_below_a_wave_takes_as_long() -> None:
    """65,536 bodies: two of 2,048 work-items / 256 = 8 groups that a unit has room for, on 132 units."""
    found = summarise(bodies(65_536, 6.75e-3))
    (line,) = (line for line in found.text().splitlines() if line.startswith("forces  whole"))
    assert "half of it takes as long: 256 work-groups are 0.24 waves of gpu0 (predicted gain " in line
    (division,) = found.divisions
    whole, half = division.numbers["launch"]
    assert whole == pytest.approx(6.75e-3, rel=0.01)
    assert 0.9 * whole < half <= whole
    assert division.numbers["waves"] == pytest.approx(256 / (132 * 8))


def test_a_launch_of_many_waves_is_divided_and_its_gain_is_that_of_the_plans() -> None:
    trace = bodies(1 << 20, 1.2)
    (division,) = summarise(Trace.parse(trace.lines())).divisions
    assert division.divided
    whole, divided = division.numbers["predicted"]
    assert divided == pytest.approx(trace.makespan, rel=0.05)
    assert whole == pytest.approx(1.2, rel=0.05)
    assert division.reason.startswith("gpu0 50 %, gpu1 50 %: predicted ")
    assert f" {whole / divided:.2f} times as fast as whole" in division.reason


def loop(queue: mc.Queue, launch: Callable[[Any, Any], object], runs: int) -> Trace:
    x, y = queue.zeros(COUNT, np.int32), queue.zeros(1, np.float32)
    for _ in range(runs):
        launch(x, y)
        queue.finish()
    return queue.trace


def division(trace: Trace) -> dict[str, Any]:
    """What JSON has of the only kind of launch."""
    (found,) = json.loads(json.dumps(summarise(Trace.parse(trace.lines())).to_dict()))["divisions"]
    return dict(found)


def test_a_loop_that_is_divided_tells_what_was_predicted_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[RecurringGraph] = []
    took = RecurringGraph.took
    monkeypatch.setattr(RecurringGraph, "took", lambda self, seconds: (known.append(self), took(self, seconds))[1])
    with mc.Queue("cpu/2") as queue:
        x = queue.zeros(COUNT, np.int32)
        for _ in range(60):
            PROGRAM.spin(queue, (COUNT,), (GROUP,), x, LONG)
            queue.finish()
            ran, kept = queue.result.plan, known[-1].plan if known else None
            if ran is not None and kept is not None and ran.is_split and kept.is_split:
                break
        else:
            pytest.skip("no run was divided, as the machine was too busy")
        found = division(queue.trace)
        assert found["divided"]
        assert found["launches"] == 1
        assert re.match(r"cpu0\.0 \d+ %, cpu0\.1 \d+ %: predicted \d", found["reason"])
        measured, compared = known[-1].measured, ran.details["compared"]
        assert found["numbers"]["predicted"] == [compared["whole"], compared["divided"]]
        both = [measured.eager, measured.planned]
        assert found["numbers"].get("measured") == (both if max(both) < inf else None)
        if max(both) < inf:
            assert f"measured {both[0] / both[1]:.2f} times as fast as whole" in found["reason"]


def test_a_loop_that_cannot_be_divided_says_why() -> None:
    with mc.Queue("cpu/2") as queue:
        trace = loop(queue, lambda x, y: PROGRAM.total(queue, (COUNT,), (GROUP,), x, y, LONG), 6)
        found = division(trace)
        assert not found["divided"]
        assert "writes elements that other groups write too" in found["reason"] or "being analysed" in found["reason"]
        text = str(summarise(trace).text())
        assert "total  whole  " in text
        assert "not divided:" not in text


def test_a_short_loop_says_how_short_it_is() -> None:
    with mc.Queue("cpu/2") as queue:
        trace = loop(queue, lambda x, _: PROGRAM.spin(queue, (COUNT,), (GROUP,), x, 1), 40)
        found = division(trace)
        assert not found["divided"]
        assert found["reason"].endswith("ms: too short to gain from dividing")
        assert 0.0 < found["numbers"]["run"] < 1e-3


def test_a_policy_that_was_named_says_that_it_runs_launches_whole() -> None:
    with mc.Queue("cpu/2", policy="heft") as queue:
        with queue.prepare() as prepared:
            PROGRAM.spin(queue, (COUNT,), (GROUP,), queue.zeros(COUNT, np.int32), LONG)
        for _ in range(3):
            prepared.run()
        assert division(queue.trace)["reason"] == "policy heft runs it whole"


def test_a_short_launch_in_a_long_run_says_how_short_it_is() -> None:
    with mc.Queue("cpu/2", policy="balance") as queue:
        with queue.prepare() as prepared:
            PROGRAM.spin(queue, (COUNT,), (GROUP,), queue.zeros(COUNT, np.int32), LONG)
            for _ in range(2):
                PROGRAM.least(queue, (COUNT,), (GROUP,), queue.zeros(COUNT, np.int32))
        for _ in range(4):
            prepared.run()
        (found,) = (d for d in summarise(queue.trace).divisions if d.kernel == "least")
        assert found.launches == 2
        assert re.fullmatch(r"its 2 launches take [\d.e-]+ ms: too short to gain from dividing", found.reason)


@pytest.mark.parametrize(
    ("gains", "runs", "is_split", "why"),
    [
        (True, None, True, "whole beside others that are divided"),
        (False, None, False, "dividing gains too little"),
        (True, None, False, "not divided so far"),
        (True, (0.9, 1.0), False, "dividing was slower"),
        (True, (1.0, 0.6), False, "in other runs divided"),
    ],
)
def test_why_a_launch_ran_whole_whose_division_was_compared(
    gains: bool, runs: tuple[float, float] | None, is_split: bool, why: str
) -> None:
    kinds = (Assignment(0, 0, 0, 0.0, 1.0, 0, 0, 1), Assignment(0, 1, 0, 0.0, 1.0, 0, 1, 1))
    divided = Plan(kinds, "auto", ("a", "b"), 1.0, details={COMPARED: {"whole": 2.0, "divided": 1.0, "gains": gains}})
    measured = MeasuredGraph() if runs is None else MeasuredGraph(eager=runs[0], planned=runs[1])
    found = divisions._Gain(divided, measured, divided)
    assert found.why(divided if is_split else replace(divided, assignments=())) == why


def test_one_device_has_nothing_to_say() -> None:
    with mc.Queue("cpu/1") as queue:
        trace = loop(queue, lambda x, _: PROGRAM.spin(queue, (COUNT,), (GROUP,), x, 1), 2)
        assert "divisions" not in trace.details


def test_a_trace_is_made_where_that_cannot_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("deliberate")

    monkeypatch.setattr(divisions, "_reason", fails)
    with mc.Queue("cpu/2") as queue:
        PROGRAM.spin(queue, (COUNT,), (GROUP,), queue.zeros(COUNT, np.int32), 1)
        queue.finish()
        with pytest.warns(UnforeseenWarning, match="deliberate"):
            trace = queue.trace
        assert "divisions" not in trace.details
        assert len(list(trace.kernels())) == 1
