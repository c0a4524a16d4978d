"""Runs that try a plan and go on by another one: when they do so, and that results stay what they are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.graph.graph import Graph
from manycl.machine import DeviceIndex, Machine
from manycl.plan.plan import alone
from manycl.run.commands.backend import Report
from manycl.run.engine import run_history
from manycl.run.engine.trial import LOSING, Fallback, TrialProgress, part_of
from manycl.run.graph_cache import autotuner
from manycl.run.simulation.disturbance import Disturbance, Slowdown
from tests.run.chaos.test_divided_chaos import graphs, plans
from tests.run.chaos.test_state import machines
from tests.run.recovery.test_replanning import AsManyAsThereAre, N, Simulated, enqueue, wholes

__all__ = ["wholes"]  # a fixture of the module


def tried(factor: float, count: int = 200, each: float = 0.04) -> tuple[float, list[dict[str, Any]], float]:
    """A chain that one of two devices alone runs in ``count * each`` seconds, divided although the other one takes
    ``factor`` times as long, which nobody has measured: the seconds, what was planned anew, and those of one device."""
    run = Simulated((each, each), count)
    run.times.is_measured = lambda *_: False  # type: ignore[method-assign]
    fallback = Fallback(alone(run.graph, DeviceIndex(0), run.machine), count * each)
    slow = Disturbance(slowdowns=(Slowdown(DeviceIndex(1), factor, 0.0, math.inf),))
    result = run.run(disturbance=slow, fallback=fallback)
    return result.seconds, result.details.get(run_history.REPLANNED, []), count * each


@pytest.mark.parametrize("factor", [4.0, 8.0, 40.0])
def test_a_plan_that_loses_is_given_up_on_its_way(factor: float) -> None:
    seconds, (told,), alone_seconds = tried(factor)
    assert told["changed"].startswith("it would take ")
    assert told["nodes"] > 30
    assert seconds < (LOSING if factor < 10.0 else 2.2) * alone_seconds < factor / 2.0 * alone_seconds


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.5])
def test_a_plan_that_does_not_lose_is_followed_to_its_end(factor: float) -> None:
    seconds, told, alone_seconds = tried(factor)
    assert not told
    assert seconds == pytest.approx(max(factor, 1.0) / 2.0 * alone_seconds, rel=0.01)


@given(data=st.data(), graph=graphs(), where=machines())
def test_part_of_a_plan_is_that_of_its_nodes(data: Any, graph: Graph, where: Machine) -> None:
    plan = data.draw(plans(graph, where))
    nodes = sorted(data.draw(st.sets(st.sampled_from(range(len(graph))))) if len(graph) else ())
    part = part_of(plan, nodes)
    assert [(nodes[a.node], *a[1:]) for a in part.assignments] == [
        tuple(a) for a in plan.assignments if a.node in nodes
    ]


def test_bits_stay_and_the_plan_that_was_given_up_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared graph on two devices with memories of their own. Each trial is given up after some reports."""
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(autotuner, "TRIAL_SHARE", 100.0)
    reported: Counter[int] = Counter()

    def is_losing(progress: TrialProgress, reports: Sequence[Report], _: float) -> bool:
        reported[id(progress)] += len(reports)
        return reported[id(progress)] > 4

    monkeypatch.setattr(TrialProgress, "is_losing", is_losing)
    told, start = list[str](), np.arange(N, dtype=np.float32)
    with mc.Queue("native/2", policy=AsManyAsThereAre(1)) as queue, mc.Queue("native", policy="in_order") as one:
        x, expected = queue.array(start), one.array(start)
        with queue.prepare() as prepared:
            enqueue(queue, x, queue.zeros(N, np.float32), [lambda: None] * 5)
        for turn in range(40):
            x.set(start + turn)
            expected.set(start + turn)
            prepared.run()
            enqueue(one, expected, one.zeros(N, np.float32), [lambda: None] * 5)
            assert x.get().tobytes() == expected.get().tobytes()
            told += [t["changed"] for t in queue.trace.details.get(run_history.REPLANNED, ())]
            assert prepared.plan is None or all(a.start == a.end == 0.0 for a in prepared.plan.assignments)
    assert told
    assert all(text.startswith("it would take ") for text in told)
