"""Loops whose launches are looked at beside their runs, and divided then."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.graph.graph import Launch
from manycl.plan import splitting
from manycl.plan.problem import Looks
from manycl.plan.tuning import PLANNING
from manycl.run.graph_cache import background_analysis
from manycl.run.graph_cache.autotuner import RIVAL
from manycl.run.graph_cache.background_analysis import BackgroundAnalysis, Interest
from manycl.run.graph_cache.recurring_graph import RecurringGraph

PATIENCE = 60  # seconds, after which something hangs
PROGRAM = mc.Program("""
kernel void add(global int *x, int n) { x[get_global_id(0)] += n; }
kernel void sum(global const int *x, global int *y) {
    if (get_global_id(0) == 0) for (int i = 0; i < 8; i++) y[0] += x[i];
}
kernel void spin(global int *x, int n) {
    int v = x[get_global_id(0)];
    for (int i = 0; i < n; i++) v = v * 3 + i;
    x[get_global_id(0)] = v;
}
""")


def until(condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)


def batch() -> Any:
    with mc.Queue("cpu/1") as queue:
        x, y = queue.zeros(256, np.int32), queue.zeros(1, np.int32)
        with queue.prepare() as prepared:
            PROGRAM.add(queue, (256,), (16,), x, 3)
            PROGRAM.add(queue, (256,), (16,), x, 3)
            PROGRAM.sum(queue, (256,), (16,), x, y)
        return prepared.graph


def test_what_it_costs_decides_when_it_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, looks = batch(), Looks()
    asked: list[str] = []
    split_of = splitting.split_of

    def noted(launch: Launch, sizes: Any) -> Any:
        asked.append(launch.name)
        return split_of(launch, sizes)

    monkeypatch.setattr(background_analysis, "split_of", noted)
    monkeypatch.setattr(background_analysis, "is_known", lambda launch, sizes: launch.name == "add")
    work, interest = BackgroundAnalysis(looks), Interest()
    work.ran(interest, 1.0, 2, lambda: graph)
    assert not interest.is_asked, "who knows whether it comes again"
    work.ran(interest, 1e-6, 2, lambda: graph)
    until(lambda: interest.price is not None and not interest.is_asked)
    assert interest.price is not None
    interest.seconds = interest.price / 2
    work.ran(interest, 1e-6, 2, lambda: graph)
    assert not interest.is_asked
    assert not asked
    work.ran(interest, interest.price, 2, lambda: graph)
    until(lambda: interest.is_done)
    assert asked == ["add", "sum"], "each kind once"
    assert len(looks.kinds) == 2
    assert looks.afford([n for n in graph.nodes if isinstance(n, Launch)], 1e-3, None, 0.0)
    work.close()


def test_a_loop_is_divided_when_it_has_been_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is found when, results are right; and what was found is planned with."""
    split: list[bool] = []
    with mc.Queue("cpu/2") as queue, monkeypatch.context() as patch:
        took, ran_eagerly = RecurringGraph.took, RecurringGraph.ran_eagerly

        def took_so(known: RecurringGraph, seconds: float) -> None:
            known.ran = known.ran and 0.5
            took(known, 0.5)

        patch.setattr(RecurringGraph, "took", took_so)
        patch.setattr(RecurringGraph, "ran_eagerly", lambda known, run, seconds: ran_eagerly(known, run, 1.0))
        patch.setattr(background_analysis, "PLANNING", PLANNING._replace(looking=1e9, beside=1e9))
        expected = np.arange(1 << 14, dtype=np.int32)
        for i in range(500):
            expected = expected * np.int32(3) + np.int32(i)
        for _ in range(208):
            x = queue.array(np.arange(1 << 14, dtype=np.int32))
            PROGRAM.spin(queue, x.shape, (64,), x, 500)
            assert (x.get() == expected).all()
            split.append(queue.result.plan is not None and queue.result.plan.is_split)
            known = next(iter(queue._recurring._known.values()))
            if known.is_looked_at and known._tuner.planned >= RIVAL:
                break
            time.sleep(1e-3)
        assert not any(split[:2]), "who had looked?"
        assert any(split), "the policy was asked for what it does not take for the fastest, too"
