"""The summary against golden texts, sums over the trace, and brute force."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import ManyclError
from manycl.intervals import union_length
from manycl.report.charts.html import page
from manycl.report.charts.lanes import lanes
from manycl.report.charts.perfetto import trace_events
from manycl.report.summary import compare, longest_path, summarise
from manycl.report.words import nbytes, seconds
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent
from tests.report.report_cases import nasty, traces, transformer

GOLDEN = Path(__file__).parent / "golden"
EMPTY = Trace((), (), "", 0.0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("transformer", lambda: summarise(transformer()).text()),
        ("comparison", lambda: compare(transformer(), transformer(heads=4)).text()),
        ("failure", lambda: summarise(nasty()).text()),
        ("empty", lambda: summarise(EMPTY).text()),
        ("idle", lambda: summarise(Trace((), ("cpu0", "gpu0"), "eager", 2.5e-3)).text()),
    ],
)
def test_text_is_the_golden_one(name, text):
    assert text() + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_nothing_in_the_text_can_command_a_terminal():
    assert all(line.isprintable() for line in summarise(nasty()).text().splitlines())
    assert all(line.isprintable() for line in compare(nasty(), nasty()).text().splitlines())


def test_the_text_stays_short_whatever_the_trace():
    devices = tuple(f"gpu{i}" for i in range(40))
    events = []
    for i, device in enumerate(devices):
        events.append(KernelEvent(i, f"kernel_{i}", device, 0, 0.0, 0.1 * i, (1,), None))
        events.append(TransferEvent(0, "b", "host", device, 1000 * i, 0.0, 1.0))
    edges = tuple((i, i + 1) for i in range(39))
    text = summarise(Trace(tuple(events), devices, "p", 4.0, edges=edges)).text().splitlines()
    assert len(text) <= 25
    assert max(map(len, text)) <= 100
    assert any(line.startswith("gpu39 ") for line in text), "the busiest device is shown"
    assert not any(line.startswith("gpu0 ") for line in text), "the idlest is not"
    assert "... and 34 more links, 561 kB" in text


@given(traces())
def test_sums_and_shares(trace):
    summary = summarise(trace)
    assert [d.name for d in summary.devices] == list(trace.devices)
    assert all(0 <= d.share <= 1 and 0 <= d.busy <= trace.makespan for d in summary.devices)
    assert sum(d.kernels for d in summary.devices) == summary.kernels == len(list(trace.kernels()))
    for within, events in ((False, list(trace.transfers())), (True, list(trace.copies()))):
        links = [k for k in summary.links if (k.source == k.target) == within]
        assert sum(k.transfers for k in links) == len(events)
        assert sum(k.nbytes for k in links) == sum(t.nbytes for t in events)
    for device in summary.devices:
        alone = sum(k.end - k.start for k in trace.kernels() if k.device == device.name)
        assert device.busy <= alone + 1e-9
    for link in summary.links:
        own = [t for t in (*trace.transfers(), *trace.copies()) if (t.source, t.target) == (link.source, link.target)]
        assert max(t.end - t.start for t in own) - 1e-9 <= link.busy <= sum(t.end - t.start for t in own) + 1e-9
        assert link.rate is None or link.rate * link.busy == pytest.approx(link.nbytes)
    assert json.loads(json.dumps(summary.to_dict(), allow_nan=False))["makespan"] == trace.makespan


@given(traces())
def test_longest_path_against_every_path(trace):
    spans = {e.node: e.end - e.start for e in trace.events if isinstance(e, KernelEvent | HostEvent)}
    edges = set(trace.edges)

    def is_path(nodes):
        return all(pair in edges for pair in pairwise(nodes))

    # edges lead from low to high nodes, so every path is an ascending choice of nodes
    every = (nodes for n in range(1, len(spans) + 1) for nodes in combinations(sorted(spans), n))
    longest = max((sum(spans[n] for n in nodes) for nodes in every if is_path(nodes)), default=0.0)
    path = summarise(trace).path
    assert is_path(path.nodes)
    assert path.seconds == pytest.approx(sum(spans[n] for n in path.nodes))
    assert path.seconds == pytest.approx(longest)


def test_longest_path_in_any_numbering():
    assert longest_path({3: 1.0, 1: 2.0, 2: 4.0}, [(3, 1), (1, 2)]) == (3, 1, 2)
    assert longest_path({0: 1.0, 1: 1.0, 2: 5.0}, [(0, 1), (1, 7), (7, 2)]) == (2,), "node 7 did not run"
    assert longest_path({}, [(0, 1)]) == ()


def test_edges_in_a_circle_are_refused():
    with pytest.raises(ManyclError, match="cycle"):
        longest_path({0: 1.0, 1: 1.0}, [(0, 1), (1, 0)])


def test_a_long_chain_needs_no_recursion():
    size = 50_000
    assert len(longest_path(dict.fromkeys(range(size), 1.0), [(i, i + 1) for i in range(size - 1)])) == size


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_union_length_counts_covered_units(intervals):
    covered = {unit for start, end in intervals for unit in range(start, end)}
    assert union_length(intervals) == len(covered)


@pytest.mark.parametrize("instant", [0.0, 5e-324, 1.1125369292536007e-308])
def test_what_took_next_to_no_time_has_no_rate(instant):
    """A quotient that is no finite number is left out: ``Infinity`` is not JSON."""
    events = (TransferEvent(0, "b", "host", "gpu0", 2, 0.0, instant), HostEvent(0, "f", 0.0, 2.0))
    trace = Trace(events, ("gpu0",), "p", instant)
    summary = summarise(trace)
    assert summary.links[0].rate is None
    assert summary.path.share == 0.0
    comparison = compare(Trace((), (), "p", 2.0), trace)
    assert comparison.speedup is None
    json.dumps(comparison.to_dict(), allow_nan=False)
    assert comparison.text()
    assert summary.text()


def test_busy_counts_overlapping_queues_once_and_only_within_the_run():
    events = tuple(KernelEvent(q, "k", "d", q, -0.5 + q, 1.5 + q, (1,), None) for q in range(2))
    summary = summarise(Trace(events, ("d",), "p", 2.0))
    assert (summary.devices[0].busy, summary.devices[0].share, summary.devices[0].queues) == (2.0, 1.0, 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (1e-12, "0.001 ns"),
        (1e-9, "1.00 ns"),
        (999.4e-9, "999 ns"),
        (999.6e-9, "1.00 us"),
        (12.34e-6, "12.3 us"),
        (9.996e-3, "10.0 ms"),
        (99.96e-3, "100 ms"),
        (61.0, "61.0 s"),
    ],
)
def test_seconds_in_words(value, text):
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (999_999, "1.00 MB"), (2.5e13, "25.0 TB")]
)
def test_bytes_in_words(value, text):
    assert nbytes(value) == text


def test_copies_within_a_device_are_shown_as_such():
    events = (TransferEvent(0, "b", "host", "gpu0", 10, 0.0, 1.0), TransferEvent(0, "b", "gpu0", "gpu0", 4, 1.0, 1.5))
    trace = Trace(events, ("gpu0",), "p", 2.0)
    rows = [line.split("  ")[0] for line in summarise(trace).text().splitlines()]
    assert {"host -> gpu0", "within gpu0"} <= set(rows)
    assert "within gpu0" in compare(trace, trace).text()
    assert "within gpu0" in page(trace)
    assert [lane.label for lane in lanes(trace) if lane.group == "transfers"] == ["within gpu0", "host -> gpu0"]
    names = [e["args"]["name"] for e in trace_events(trace) if e["ph"] == "M" and e["name"] == "thread_name"]
    assert "within gpu0" in names
