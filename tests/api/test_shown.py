"""What interpreters and notebooks show of manycl's values: a line, or HTML that is whole and safe."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.plan.plan import MERGE, ON_HOST, Assignment, Plan
from manycl.report import notebook
from manycl.run.session.session import Session
from manycl.trace import KernelEvent, Trace

SOURCE = """
kernel void twice(global float *y, global const float *x, float a) { y[get_global_id(0)] = a * x[get_global_id(0)]; }
kernel void turn(global int *x, local int *t) { x[0] = get_num_groups(0); barrier(CLK_LOCAL_MEM_FENCE); }
"""
VOID = {"br", "meta", "i"}


class Page(HTMLParser):
    """Tags that are closed, and the texts between them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.frames: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self.frames += [value for name, value in attrs if name == "srcdoc"]
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []


@pytest.fixture(scope="module")
def queue() -> Iterator[mc.Queue]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MANYCL_ZERO_COPY", "0")
        queue = mc.Queue("cpu/2", policy="heft")
    yield queue
    queue.close()


def test_lines(queue: mc.Queue) -> None:
    program = mc.Program(SOURCE)
    a = queue.array(np.zeros(64, np.float32), name="a")
    assert repr(program) == "<manycl.Program <source>: twice, turn>"
    assert repr(mc.Program("int one() { return 1; }")) == "<manycl.Program <source>: no kernels>"
    assert repr(program.twice) == "<manycl.Kernel twice(float y written, float x read, float a scalar)>"
    assert repr(queue) == "<manycl.Queue on cpu0.0, cpu0.1 by heft, enqueued: 0>"
    assert repr(queue.session) == "<manycl.Session, devices: cpu0.0, cpu0.1>"
    event = program.twice(queue, (64,), (8,), a, a, 2.0)
    assert repr(event) == "<manycl.Event 0 (twice): QUEUED>"
    assert repr(queue) == "<manycl.Queue on cpu0.0, cpu0.1 by heft, enqueued: 1>"
    a.get()
    assert re.fullmatch(r"<manycl\.Event 0( \(twice\))?: COMPLETE>", repr(event))
    number = r"[0-9]+\.[0-9]{3} ms"
    said = rf"<manycl\.Trace run by heft, devices: cpu0\.0, cpu0\.1, kernels: 1, transfers: [0-9]+, {number}>"
    assert re.fullmatch(said, repr(queue.trace))
    assert re.fullmatch(rf"<manycl\.Result run by heft, nodes: 1, {number}>", repr(queue.result))
    assert re.fullmatch(
        rf"<manycl\.Plan by heft, nodes: 1 on cpu0\.[01](, {number} predicted)?>", repr(queue.result.plan)
    )
    with queue.prepare() as graph:
        assert repr(graph) == "<manycl.Prepared, not complete>"
        program.twice(queue, (64,), (8,), a, a, 2.0)
    assert repr(graph) == "<manycl.Prepared of 1 nodes on cpu0.0, cpu0.1>"
    with Session("cpu/2#0") as session:
        pass
    assert repr(session) == "<manycl.Session, closed>"


def test_events_that_have_failed() -> None:
    with mc.Queue("cpu/2") as queue:
        event = queue.call(lambda: 1 / 0, name="divides")
        with pytest.raises(mc.ManyclError):
            queue.finish()
        assert repr(event).startswith("<manycl.Event 0")
        assert "failed (" in repr(event)
        assert "\n" not in repr(event)


def test_a_plan_without_times_or_with_ranges() -> None:
    ranges = [Assignment(1, 0, 0, 0, 1e-3, 0, 0, 3), Assignment(1, 1, 0, 0, 1e-3, 0, 3, 1)]  # type: ignore[arg-type]
    rest = [Assignment(1, 0, 0, 1e-3, 2e-3, MERGE), Assignment(2, ON_HOST, 0, 2e-3, 3e-3)]  # type: ignore[arg-type]
    plan = Plan((*ranges, *rest), "mine", ("a<b>", "b"), 3e-3)
    assert repr(plan) == "<manycl.Plan by mine, nodes: 1 on a<b>, 1 on b, 1 on host, divided: 1, 3.000 ms predicted>"
    page = Page(plan._repr_html_())
    assert page.texts[1:] == [
        *("device", "nodes", "which", "ranges", "from", "to"),
        *("a<b>", "1", "1", "1", "0 s", "2.00 ms"),
        *("b", "1", "1", "1", "0 s", "1.00 ms"),
        *("host", "1", "2", "0", "2.00 ms", "3.00 ms"),
    ]
    assert repr(Plan((), "mine", ("b",), 0.0)) == "<manycl.Plan by mine, nodes: none>"


def test_a_queue_shows_its_devices(queue: mc.Queue) -> None:
    texts = Page(queue._repr_html_()).texts
    assert texts[0] == repr(queue)
    assert texts[1:8] == ["device", "kind", "model", "platform", "units", "memory", "which is"]
    assert texts[8:10] == ["cpu0.0", "cpu"]
    assert texts[14] == "own"
    assert texts[15:17] == ["cpu0.1", "cpu"]
    html = notebook.devices("q", queue.session.machine, {"gpu0": "it <died>"})
    assert Page(html).texts[-1] == "left out: gpu0: it <died>"


def test_a_program_shows_what_its_kernels_touch(queue: mc.Queue) -> None:
    program = mc.Program(SOURCE)
    whole = Page(program._repr_html_())
    text = "\n".join(whole.texts)
    assert "reads   x[gid0]  (line 2)" in text
    assert "writes  y[gid0]  (line 2)" in text
    assert "can be divided over devices, unless a launch's own accesses forbid it" in text
    assert "(<source>:3): 1 dimension, barriers" in text
    one = Page(program.twice._repr_html_())
    assert "\n".join(one.texts).endswith("forbid it")
    assert "turn" not in "\n".join(one.texts)
    assert [t for t in one.texts if t in ("const float*", "float*", "float")] == ["float*", "const float*", "float"]
    assert {"script", "img"}.isdisjoint(whole.tags)


def test_an_array_shows_where_it_is_and_runs_nothing(queue: mc.Queue) -> None:
    a = queue.array(np.zeros((4, 8), np.int16), name="<b>a</b>")
    mc.Program("kernel void inc(global short *x) { x[get_global_id(0)]++; }").inc(queue, (32,), (8,), a)
    before = len(queue)
    page = Page(a[1:3]._repr_html_())
    assert len(queue) == before == 1
    told = dict(zip(page.texts[1::2], page.texts[2::2], strict=True))
    assert told == {
        "shape": "2 x 8",
        "type": "int16",
        "bytes": "32 B",
        "contents, after the last run": "in the memory of host",
        "begins": "at byte 16 of <manycl.Array <b>a</b> (4, 8) int16>",
    }
    assert "b" not in page.tags
    queue.finish()
    assert re.search(r"in the memory of cpu0\.[01]", a._repr_html_())
    assert "undefined" in queue.empty(3)._repr_html_()


def test_traces_and_plans_are_charts(queue: mc.Queue, tmp_path: Path) -> None:
    a = queue.array(np.zeros(64, np.float32))
    (-a).get()
    page = Page(queue.trace._repr_html_())
    (chart,) = page.frames
    queue.trace.gantt(tmp_path / "run.html")
    assert chart == (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "script" not in page.tags  # it is the frame's
    loaded = Trace.parse(queue.trace.lines())
    assert Page(loaded._repr_html_()).frames == [chart]
    event = KernelEvent(0, "k", "d", 0, 0.0, 1.0, (1,), None)
    assert Page(Plan((), "p", ("d",), 1.0, events=(event,))._repr_html_()).frames


def test_long_traces_are_tables() -> None:
    event = KernelEvent(0, "k", "d", 0, 0.0, 1.0, (1,), None)
    page = Page(Trace((event,) * (notebook.MOST + 1), ("d",), "p", 1.0)._repr_html_())
    assert page.frames == []
    assert 'trace.gantt("run.html")' in page.texts
    assert "20001" in page.texts
