"""Compiling is a phase of its own: what is cut out of a run, and that nothing else changes."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import manycl as mc
from manycl.report.summary import summarise
from manycl.run.engine.compile_time import LEAST, moved, phases, without
from manycl.trace import DecisionEvent, HostEvent, KernelEvent, TransferEvent

TIMES = st.integers(0, 400).map(lambda n: n * LEAST / 4)
INTERVALS = st.lists(st.tuples(TIMES, TIMES).map(lambda t: (min(t), max(t))), max_size=12)


def kernel(start: float, end: float) -> KernelEvent:
    return KernelEvent(0, "k", "d", 0, start, end, (1,), None, None, "k")


@given(INTERVALS, INTERVALS)
def test_only_waiting_in_which_nothing_runs_is_cut(
    waiting: list[tuple[float, float]], busy: list[tuple[float, float]]
) -> None:
    events = [kernel(a, b) for a, b in busy]
    found = phases(waiting, events)
    assert all(a.end <= b.start for a, b in pairwise(found))
    step = LEAST / 8  # between all ends: a moment of each period
    for n in range(0, 801, 2):
        t = n * step + step
        idle = not any(a < t < b for a, b in busy)
        waits = any(a < t < b for a, b in waiting)
        cut = any(p.start < t < p.end for p in found)
        assert not cut or (idle and waits)
    for event in events:
        after = moved(found, event)
        assert isinstance(after, KernelEvent)
        assert after.end - after.start == pytest.approx(event.end - event.start, abs=1e-12)
    moments = sorted({t for pair in (*waiting, *busy) for t in pair})
    shifted = [without(found, t) for t in moments]
    assert all(a <= b + 1e-12 for a, b in pairwise(shifted))
    if moments:
        total = sum(p.end - p.start for p in found)
        assert shifted[-1] == pytest.approx(moments[-1] - total, abs=1e-12)


def test_all_kinds_of_events_move() -> None:
    found = phases([(0.0, 1.0)], [HostEvent(0, "h", 2.0, 3.0)])
    assert found == ((0.0, 1.0),)
    assert moved(found, HostEvent(0, "h", 2.0, 3.0)) == HostEvent(0, "h", 1.0, 2.0)
    transfer = TransferEvent(0, "b", "host", "d", 8, 1.5, 2.0)
    assert moved(found, transfer) == TransferEvent(0, "b", "host", "d", 8, 0.5, 1.0)
    assert moved(found, DecisionEvent(0.5, 0, (0,), "d")) == DecisionEvent(0.0, 0, (0,), "d")


def test_waits_that_handing_over_takes_are_part_of_the_run() -> None:
    assert phases([(0.0, LEAST / 2)], []) == ()


@pytest.mark.parametrize("own", [False, True])
def test_a_first_run(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0" if own else "1")
    source = f"kernel void f(global int *x) {{ x[get_global_id(0)] += {random.randrange(1 << 30)}; }}"  # new to drivers
    with mc.Queue("cpu/2", policy="in_order") as queue:
        program = mc.Program(source)
        x = queue.zeros(64, np.int32)
        for turn in range(2):
            program.f(queue, (64,), (16,), x)
            queue.finish()
            trace, result = queue.trace, queue.result
            compiled = trace.details.get("compiled", 0.0)
            assert trace.makespan + compiled == pytest.approx(result.seconds)
            assert all(0 <= e.start <= e.end <= trace.makespan + 1e-3 for e in trace.kernels())
            if turn:
                assert "compiled" not in trace.details  # not the first of its kind any more
                assert "compiled" not in trace.summary()
            elif compiled:
                assert "compiled" in summarise(trace).text()
