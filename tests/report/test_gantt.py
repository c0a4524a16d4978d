"""Charts: complete, escaped, self-contained, and the same bytes for the same trace."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from matplotlib.image import imread

from manycl.errors import ManyclError
from manycl.report.charts.gantt import write_gantt
from manycl.report.charts.html import page
from manycl.report.charts.lanes import COLOURS, FAILURE_COLOUR, MOST_ROWS, TRANSFER_COLOUR, lanes, styles
from manycl.report.words import printable
from manycl.trace import DecisionEvent, FailureEvent, KernelEvent, Trace, TransferEvent
from tests.report.report_cases import NASTY, nasty, traces, transformer

EMPTY = Trace((), (), "", 0.0)
VOID = {"meta", "img", "br", "link", "input"}


class Page(HTMLParser):
    """The elements of a page, its scripts by id, and its text; tags must nest."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.scripts: dict[str | None, str] = {}
        self.text = ""
        self.script: str | None = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.script = dict(attrs).get("id")
            assert self.script not in self.scripts
            self.scripts[self.script] = ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[self.script] += data
        elif not self.open or self.open[-1] != "style":
            self.text += data


def drawn(trace: Trace):
    """The data that a page embeds."""
    return json.loads(Page(page(trace)).scripts["data"])


@given(traces())
def test_the_page_holds_every_bar_once(trace):
    data = drawn(trace)
    bars = sorted(
        (round(e.start * 1e9), round(e.end * 1e9) - round(e.start * 1e9))
        for e in trace.events
        if not isinstance(e, DecisionEvent | FailureEvent)
    )
    shown = [pair for lane in data["lanes"] for pair in zip(lane["start"], lane["length"], strict=True)]
    assert sorted(map(tuple, shown)) == bars
    assert sum(look["count"] for look in data["looks"]) == len(bars)
    for lane in data["lanes"]:
        fields = [v for v in lane.values() if isinstance(v, list)]
        assert len({len(v) for v in fields}) == 1, "one entry per bar in every field"
        assert lane["start"] == sorted(lane["start"])
        assert all(0 <= row < lane["rows"] for row in lane["row"])
        assert all(0 <= look < len(data["looks"]) for look in lane["look"])


def test_the_page_says_what_ran_where():
    trace = transformer()
    data = drawn(trace)
    assert [lane["label"] for lane in data["lanes"]] == [
        *("cpu0.0", "cpu0.1", "gpu0 q0", "gpu0 q1", "gpu0 q2", "gpu0 q3"),
        *("gpu0 -> host", "host -> gpu0", "host functions"),
    ]
    lane = data["lanes"][2]
    kernel = next(e for e in trace.kernels() if e.device == "gpu0" and e.queue == 0)
    assert lane["node"][0] == kernel.node
    assert data["looks"][lane["look"][0]]["name"] == kernel.name
    assert data["strings"][lane["sizes"][0]] == "NDRange 256 x 256, work-groups 16 x 16"
    assert lane["component"][0] == kernel.component
    assert data["edges"] == [node for edge in trace.edges for node in edge]


def test_colours_tell_functions_apart_and_bars_keep_their_own_names():
    events = [
        KernelEvent(0, "q0", "d", 0, 0.0, 1.0, (1,), None, kernel="gemm"),
        KernelEvent(1, "q1", "d", 0, 1.0, 2.0, (1,), None, kernel="gemm"),
        KernelEvent(2, "scale", "d", 0, 2.0, 3.0, (1,), None),
    ]
    data = drawn(Trace(tuple(events), ("d",), "p", 3.0))
    (lane,) = data["lanes"]
    assert [data["looks"][look]["name"] for look in lane["look"]] == ["gemm", "gemm", "scale"]
    assert [data["strings"][name] for name in lane["name"]] == ["q0", "q1", "scale"]


def test_nothing_in_a_trace_breaks_the_page():
    text = page(nasty())
    parsed = Page(text)
    assert set(parsed.scripts) == {"data", None}
    data = json.loads(parsed.scripts["data"])
    assert data["looks"][0]["name"] == printable(NASTY)
    assert not any(tag == "img" for tag, _ in parsed.tags)
    assert printable(NASTY) in parsed.text
    assert text.encode("utf-8"), "no lone surrogate is left"


def test_the_page_needs_no_other_file():
    parsed = Page(page(transformer()))
    assert not [a for _, a in parsed.tags if {"src", "href", "srcset", "action"} & a.keys()]
    assert not any(word in page(transformer()) for word in ("http://", "https://", "@import", "url(", "fetch("))
    policy = next(a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")


def test_the_script_cannot_end_its_element():
    assert "</script" not in Page(page(EMPTY)).scripts[None]
    assert page(EMPTY).rstrip().endswith("</html>")


@settings(max_examples=200)
@given(traces())
def test_bars_of_a_row_do_not_overlap(trace):
    for lane in lanes(trace):
        rows: dict[int, float] = {}
        for bar, row in zip(lane.bars, lane.row_of, strict=True):
            assert bar.start >= rows.get(row, -1.0) - 1e-6
            rows[row] = bar.end
        assert lane.rows == max(lane.row_of, default=0) + 1


def test_very_many_bars_at_once_share_rows():
    events = tuple(KernelEvent(i, "k", "d", 0, 0.0, 1.0, (1,), None) for i in range(100))
    (lane,) = lanes(Trace(events, ("d",), "p", 1.0))
    assert lane.rows == MOST_ROWS


def test_names_keep_their_look_and_looks_differ():
    names = [f"kernel_{i}" for i in range(30)]
    looks = styles(names)
    assert looks == styles(reversed(names * 2))
    assert list(looks) == names, "kernel_2 stands before kernel_10"
    assert len({(s.colour, s.pattern) for s in looks.values()}) == len(names)
    assert all(s.pattern == 0 for s in list(looks.values())[: len(COLOURS)])


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html", ".SVG"])
@pytest.mark.parametrize("make", [transformer, nasty, lambda: EMPTY], ids=["transformer", "nasty", "empty"])
def test_the_same_trace_gives_the_same_file(tmp_path, suffix, make):
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    write_gantt(make(), one)
    write_gantt(make(), str(other))
    assert one.read_bytes() == other.read_bytes()
    signature = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".html": b"<!DOCTYPE html>"}
    assert one.read_bytes().startswith(signature[suffix.lower()])


def test_the_svg_is_well_formed_and_undated(tmp_path):
    write_gantt(nasty(), tmp_path / "a.svg")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_bytes())
    assert root.tag.endswith("svg")
    assert not [e for e in root.iter() if e.tag.endswith("}date")]


def test_pictures_draw_all_kernels(tmp_path):
    """Without its kernels the picture of a trace is another one: also those whose name begins with _ or $."""
    trace = nasty()
    write_gantt(trace, tmp_path / "all.svg")
    for left_out in trace.kernels():
        rest = tuple(e for e in trace.events if e is not left_out)
        write_gantt(Trace(rest, trace.devices, trace.policy, trace.makespan), tmp_path / "rest.svg")
        paths = [(tmp_path / f"{n}.svg").read_text(encoding="utf-8").count("<path") for n in ("all", "rest")]
        assert paths[0] > paths[1]


def columns(trace: Trace, path: Path, colour: str) -> int:
    """Columns of pixels that hold a colour, outside of the legend (the left 80 % of the picture)."""
    write_gantt(trace, path)
    pixels = imread(path)[..., :3]
    wanted = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    found = (abs(pixels - wanted).max(axis=2) < 0.01).any(axis=0)
    return int(found[: int(0.8 * len(found))].sum())


@pytest.mark.parametrize("count", [40, 800])
def test_bars_narrower_than_a_pixel_are_seen(tmp_path, count):
    """However many there are: the figure is wide enough for a column of pixels each."""
    events = tuple(TransferEvent(0, "b", "host", "d", 4, i / count, i / count + 1e-7) for i in range(count))
    assert columns(Trace(events, ("d",), "p", 1.0), tmp_path / "a.png", TRANSFER_COLOUR) >= 0.8 * count


def test_narrow_bars_hide_no_neighbour(tmp_path):
    """A kernel of less than a pixel is widened only up to the start of the next one in its row."""
    events = tuple(KernelEvent(i, "ab"[i % 2], "d", 0, i * 1e-4, (i + 1) * 1e-4, (1,), None) for i in range(2000))
    trace = Trace(events, ("d",), "p", 1.0)
    assert all(columns(trace, tmp_path / "a.png", colour) > 50 for colour in COLOURS[:2])


@pytest.mark.parametrize("time", [-1e6, 1.0, 1e6])
def test_a_failure_is_seen_whenever_it_was_and_does_not_stretch_the_picture(tmp_path, time):
    trace = Trace((FailureEvent(time, 0, "k", "d", "out of resources"),), ("d",), "p", 1.0)
    write_gantt(trace, tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")[..., :3]
    red = [int(FAILURE_COLOUR[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    assert (abs(pixels - red).max(axis=2) < 0.01).any()
    assert pixels.shape[1] < 2000


def test_letters_that_the_font_does_not_have(tmp_path):
    trace = Trace((KernelEvent(0, "核", "d", 0, 0.0, 1.0, (1,), None),), ("d",), "p", 1.0)
    write_gantt(trace, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(trace=traces())
def test_any_trace_can_be_drawn(tmp_path, trace):
    write_gantt(trace, tmp_path / "a.svg")
    ElementTree.parse(tmp_path / "a.svg")


@pytest.mark.parametrize("name", ["a.txt", "a", "a.jpeg", ".html"])
def test_an_unknown_suffix_names_the_known_ones(tmp_path, name):
    with pytest.raises(ManyclError, match=r"\.html, \.png, \.svg, \.pdf"):
        write_gantt(transformer(), tmp_path / name)
    assert not list(tmp_path.iterdir())
