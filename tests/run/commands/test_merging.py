"""What parts of divided launches write goes to the host as each has ended, or when somebody needs it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ArgumentError, DeviceError
from manycl.plan.plan import Assignment, Plan
from manycl.report.decisions import Merged, merged
from manycl.report.summary import summarise
from manycl.trace import Trace, TransferEvent

PROGRAM = mc.Program("""
kernel void twice(global float *y) { y[get_global_id(0)] *= 2.0f; }
kernel void count(global int *h, global const int *x) { atomic_add(&h[x[get_global_id(0)] & 7], 1); }
""")
N, LOCAL = 1 << 18, 64


def halves(queue: mc.Queue, launches: int, in_turn: tuple[int, ...] = ()) -> Plan:
    groups = N // LOCAL // 2
    shares = [Assignment(n, d, 0, 0.0, 1.0, 0, d * groups, groups) for n in range(launches) for d in (0, 1)]
    return Plan(tuple(shares), "halves", queue.devices, 1.0, movable=in_turn, in_turn=in_turn)


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")


@pytest.mark.parametrize("merging", [None, "each", "last"])
def test_the_last_results_of_parts_go_home_at_once_if_asked(merging: Any) -> None:
    with mc.Queue("native/2", merging=merging) as queue:
        y, session = queue.array(np.arange(N, dtype=np.float32)), queue.session
        with queue.prepare() as graph:
            for _ in range(3):
                PROGRAM.twice(queue, (N,), (LOCAL,), y)
        result = session.run(graph.graph, halves(queue, 3))
        down = [e for e in result.trace.events if isinstance(e, TransferEvent) and e.target == "host"]
        assert sum(e.nbytes for e in down) == (4 * N if merging == "each" else 0)  # what is written again stays
        at_home = all(mask & 1 for _, mask in session.directory.valid_regions[next(iter(graph.graph.buffers))])
        assert at_home == (merging == "each")
        text = summarise(result.trace).text()
        if merging == "each":
            assert result.trace.details["merging"] == {"asked": "each", "parts": 2, "nbytes": 4 * N}
            assert "merging: 2 parts of results, 1.05 MB, went to the host as soon as they were there, as asked" in text
        elif merging == "last":
            assert "merging: results of parts stayed where they were until somebody needed them, as asked for" in text
        else:
            assert "merging:" not in text
        assert (y.get() == 8.0 * np.arange(N, dtype=np.float32)).all()


def test_of_launches_on_one_device_at_a_time_they_do_by_themselves() -> None:
    with mc.Queue("native/2") as queue:
        y = queue.array(np.arange(N, dtype=np.float32))
        with queue.prepare() as graph:
            PROGRAM.twice(queue, (N,), (LOCAL,), y)
        result = queue.session.run(graph.graph, halves(queue, 1, in_turn=(0,)))
        found = merged(result.trace)
        assert found is not None
        assert found.nbytes == 4 * N
        assert re.search(r"merging: .* of launches on one device at a time", summarise(result.trace).text())
        assert (y.get() == 2.0 * np.arange(N, dtype=np.float32)).all()


def test_what_is_put_together_stays() -> None:
    x = np.arange(N, dtype=np.int32)
    with mc.Queue("native/2", merging="each") as queue:
        h, data = queue.zeros(8, np.int32), queue.array(x)
        with queue.prepare() as graph:
            PROGRAM.count(queue, (N,), (LOCAL,), h, data)
        result = queue.session.run(graph.graph, halves(queue, 1))
        assert result.trace.details["merging"]["parts"] == 0
        assert (h.get() == N // 8).all()


def test_what_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArgumentError, match="merging is 'automatic' or 'each' or 'last' or None, not 'first'"):
        mc.Queue("native", merging="first")  # type: ignore[arg-type]
    monkeypatch.setenv("MANYCL_MERGING", "last")
    with mc.Queue("native") as queue:
        assert queue.session.data.merging == "last"
        with pytest.raises(DeviceError, match="merging='each'"):
            mc.Queue(session=queue.session, merging="each")


def test_damaged_traces_say_nothing_of_it() -> None:
    right = {"asked": "each", "parts": 2, "nbytes": 8}
    assert merged(Trace((), (), "p", 0.0, details={"merging": right})) == Merged("each", 2, 8)
    damaged: list[Any] = [1, {**right, "asked": "x"}, {**right, "asked": []}, {**right, "parts": -1}, {"asked": "each"}]
    for entry in (*damaged, {**right, "nbytes": "8"}):
        assert merged(Trace((), (), "p", 0.0, details={"merging": entry})) is None
