"""One trace of many runs: of a queue's in a block, and of the whole program's."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import manycl as mc
from manycl.api import recording
from manycl.errors import ManyclError, RunError
from manycl.run.engine import merged_traces
from manycl.run.engine.merged_traces import PastRun, joined
from manycl.trace import HostEvent, KernelEvent, Trace
from manycl.utilities.unforeseen import UnforeseenWarning

N = 64
SIZES = (N,), (16,)
SOURCE = """
kernel void inc(global int *x) { x[get_global_id(0)] += 1; }
kernel void add(global const int *x, global int *y) { y[get_global_id(0)] += x[get_global_id(0)]; }
"""
PROGRAM = mc.Program(SOURCE)


@pytest.fixture(params=["cpu/2#0", "cpu/2"])
def queue(request: pytest.FixtureRequest) -> Iterator[mc.Queue]:
    with mc.Queue(request.param, profile=True) as queue:
        yield queue
    assert not recording.underway


def test_all_runs_of_a_block_are_in_one_file_in_their_order(queue: mc.Queue, tmp_path: Path) -> None:
    a, b, path = queue.zeros(N, np.int32), queue.zeros(N, np.int32), tmp_path / "runs.jsonl"
    queue.fill(a, 3)  # before
    with queue.prepare() as graph:
        PROGRAM.inc(queue, *SIZES, b)
    with queue.report(path):
        events = []
        for _ in range(3):
            events.append(PROGRAM.inc(queue, *SIZES, a))
            events.append(PROGRAM.add(queue, *SIZES, a, b))
            queue.finish()
            time.sleep(0.02)
        graph.run()
        events.append(queue.call(lambda x: None, a))
        events.append(PROGRAM.add(queue, *SIZES, a, b))  # runs at the end of the block
    PROGRAM.inc(queue, *SIZES, a)  # afterwards
    queue.finish()
    trace = Trace.load(path)
    names = [e.name for e in sorted(trace.kernels(), key=lambda e: e.node)]
    assert names == ["inc", "add"] * 3 + ["inc", "add"]
    assert {(0, 1), (2, 3), (4, 5)} <= set(trace.edges)
    assert all(a < b and (a, b) != (1, 2) for a, b in trace.edges)
    spans = {e.node: (e.start, e.end) for e in trace.events if isinstance(e, KernelEvent | HostEvent)}
    numbers = [0, 1, 2, 3, 4, 5, 7, 8]
    assert sorted(spans) == [*range(9)]
    compiled = trace.details.get("compiled", 0.0)
    for (n, event), (later, following) in zip(
        zip(numbers, events, strict=True), list(zip(numbers, events, strict=True))[1:], strict=False
    ):
        apart = (following.start - event.start) / 1e9
        assert spans[later][0] - spans[n][0] == pytest.approx(apart, abs=compiled + 1e-5)
    assert spans[2][0] - spans[1][1] >= 0.019
    assert max(end for _, end in spans.values()) <= trace.makespan
    assert trace.devices == queue.devices


@pytest.mark.parametrize(
    ("suffix", "begins"), [("html", "<!doctype html>"), ("svg", "<?xml"), ("json", '{"traceEvents"'), ("txt", "")]
)
def test_the_suffix_tells_the_kind_of_file(suffix: str, begins: str, queue: mc.Queue, tmp_path: Path) -> None:
    path = tmp_path / f"runs.{suffix}"
    with queue.report(path) as report:
        for _ in range(2):
            PROGRAM.inc(queue, *SIZES, queue.zeros(N, np.int32))
            queue.finish()
        assert [e.name for e in report.trace.kernels()] == ["inc", "inc"]
    text = path.read_text()
    assert text.lower().startswith(begins.lower())
    assert "inc" in text or suffix == "svg"
    if suffix == "json":
        drawn = [e for e in json.loads(text)["traceEvents"] if e["ph"] == "X" and e["name"] == "inc"]
        assert {e["args"]["node"] for e in drawn} == {0, 1}


def test_a_kind_that_nobody_can_write_is_told_at_once(queue: mc.Queue, tmp_path: Path) -> None:
    with pytest.raises(ManyclError, match=r"\.doc: not a known kind[\s\S]*\.html"), queue.report(tmp_path / "runs.doc"):
        raise AssertionError("the block is not entered")
    with pytest.raises(ManyclError, match="not a known kind"):
        mc.trace_all(tmp_path / "runs")
    (tmp_path / "folder.html").mkdir()
    for path, words in (("/nowhere/runs.html", "there is no folder /nowhere"), ("folder.html", "this is a folder")):
        with pytest.raises(ManyclError, match=words):
            mc.trace_all(tmp_path / path)
        with pytest.raises(ManyclError, match=words), queue.report(tmp_path / path):
            raise AssertionError("the block is not entered")


def test_what_failed_is_in_it_and_a_block_that_raises_has_what_ran(queue: mc.Queue, tmp_path: Path) -> None:
    a, path = queue.zeros(N, np.int32), tmp_path / "runs.jsonl"

    def broken(x: object) -> None:
        raise ValueError("no such luck")

    def run(*functions: Callable[[], object]) -> None:
        with queue.report(path):
            for function in functions:
                function()
                queue.finish()

    with pytest.raises(RunError, match="no such luck"):
        run(lambda: PROGRAM.inc(queue, *SIZES, a), lambda: queue.call(broken, a))
    trace = Trace.load(path)
    assert [(e.event, e.node) for e in trace.events if e.event in ("kernel", "failure")] == [
        ("kernel", 0),
        ("failure", 1),
    ]
    b = queue.zeros(N, np.int32)
    with pytest.raises(ZeroDivisionError):
        run(lambda: PROGRAM.add(queue, *SIZES, b, b), lambda: 1 // 0)
    assert [e.name for e in Trace.load(path).kernels()] == ["add"]


def test_a_queue_reports_its_own_runs_and_trace_all_those_of_all(queue: mc.Queue, tmp_path: Path) -> None:
    with mc.Queue("cpu/2#1", profile=True) as other:
        with mc.trace_all(tmp_path / "all.jsonl"), queue.report(tmp_path / "mine.jsonl"):
            for q in (queue, other, queue):
                PROGRAM.inc(q, *SIZES, q.zeros(N, np.int32))
                q.finish()
        PROGRAM.inc(other, *SIZES, other.zeros(N, np.int32))
        other.finish()
        mine, both = Trace.load(tmp_path / "mine.jsonl"), Trace.load(tmp_path / "all.jsonl")
        assert {e.node for e in mine.kernels()} == {0, 1}
        assert {e.node for e in both.kernels()} == {0, 1, 2}
        assert set(both.devices) == {*queue.devices, *other.devices}
        assert {e.device for e in both.kernels() if e.node == 1} == set(other.devices)
        starts = [min(e.start for e in both.kernels() if e.node == n) for n in range(3)]
        assert starts == sorted(starts)


def test_the_program_s_end_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    code = f"""
import numpy as np, manycl as mc
mc.trace_all({str(path)!r})
program = mc.Program({SOURCE!r})
queue = mc.Queue("cpu/2", profile=True)
a = queue.zeros({N}, np.int32)
for _ in range(3):
    program.inc(queue, ({N},), (16,), a)
    queue.finish()
program.inc(queue, ({N},), (16,), a)
queue.call(lambda x: None, a)
queue.flush()
raise SystemExit(3)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 3
    trace = Trace.load(path)
    assert {e.node for e in trace.kernels()} == {0, 1, 2, 3}
    assert [e.node for e in trace.events if isinstance(e, HostEvent)] == [4]  # that ran in the background


def test_a_recording_that_fails_does_not_stop_a_run(
    queue: mc.Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(result: object) -> None:
        raise IndexError("mine")

    monkeypatch.setattr(merged_traces, "past_run", broken)
    a = queue.zeros(N, np.int32)
    with queue.report(tmp_path / "runs.jsonl"):
        PROGRAM.inc(queue, *SIZES, a)
        with pytest.warns(UnforeseenWarning, match="recording a run failed"):
            queue.finish()
    assert (a.get() == 1).all()
    assert Trace.load(tmp_path / "runs.jsonl").makespan == 0.0


def test_compiling_is_left_out_where_nothing_else_ran() -> None:
    """Run b, of other devices, goes on while a compiles from 1 s to 5 s; c comes later, and compiles alone."""

    def kernel(device: str, start: float, end: float) -> KernelEvent:
        return KernelEvent(0, "k", device, 0, start, end, (1,), (1,))

    def header(device: str, kernels: int) -> Trace:
        details = {"models": {device: "m"}, "planned": {"makespan": 1.0, "seconds": [[0, 0.5]]}}
        return Trace((), (device,), "auto", 0.0, edges=((0, 1),) if kernels > 1 else (), details=details)

    a = PastRun(100.0, 6.0, 2, (kernel("d0", 5.0, 6.0),), ((1.0, 5.0),), header("d0", 2))
    b = PastRun(102.0, 1.0, 1, (kernel("d1", 0.0, 1.0),), (), header("d1", 1))
    c = PastRun(110.0, 3.0, 2, (kernel("d0", 2.0, 3.0),), ((0.5, 2.0),), header("d0", 2))
    trace = joined([c, a, b], "app")
    # of a: 1 to 2 and 3 to 5 are left out, of c: 10.5 to 12
    assert [(e.node, e.device, e.start, e.end) for e in trace.kernels()] == [
        (0, "d0", 2.0, 3.0),
        (2, "d1", 1.0, 2.0),
        (3, "d0", 7.5, 8.5),
    ]
    assert trace.makespan == 8.5
    assert trace.edges == ((0, 1), (3, 4))
    assert trace.devices == ("d0", "d1")
    assert trace.policy == "auto"
    assert trace.details == {
        "models": {"d0": "m", "d1": "m"},
        "planned": {"makespan": None, "seconds": [[0, 0.5], [2, 0.5], [3, 0.5]]},
        "compiled": 4.5,
    }
    assert joined([]).makespan == 0.0
