"""Perfetto files: every event, on the right track, with flows that attach."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

from hypothesis import given

from manycl.report.charts.perfetto import trace_events, write_perfetto
from manycl.trace import DecisionEvent, FailureEvent, HostEvent, KernelEvent, Trace
from tests.report.report_cases import nasty, traces, transformer


def test_devices_are_processes_and_queues_are_threads(tmp_path):
    trace = transformer()
    write_perfetto(trace, tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    events = document["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert sorted(processes.values()) == ["cpu0.0", "cpu0.1", "gpu0", "host", "transfers"]
    slices = {e["args"]["node"]: e for e in events if e.get("cat") == "kernel"}
    for kernel in trace.kernels():
        event = slices[kernel.node]
        assert (event["ph"], event["name"]) == ("X", kernel.name)
        assert processes[event["pid"]] == kernel.device
        label = kernel.device if kernel.device.startswith("cpu") else f"gpu0 q{kernel.queue}"
        assert threads[event["pid"], event["tid"]] == label
        assert abs(event["ts"] - kernel.start * 1e6) < 1e-3
        assert abs(event["dur"] - (kernel.end - kernel.start) * 1e6) < 2e-3
        assert event["args"]["global_size"] == [256, 256]


@given(traces())
def test_every_event_once_and_every_edge_a_flow_that_attaches(trace):
    events = list(trace_events(trace))
    json.dumps(events)
    bars = [e for e in trace.events if not isinstance(e, DecisionEvent | FailureEvent)]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(bars)
    open_slices = defaultdict(list)
    for event in slices:
        open_slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in open_slices.values():  # slices of one thread overlap by at most the slack of a clock
        spans.sort()
        assert all(later[0] >= earlier[1] - 1.01 for earlier, later in pairwise(spans))
    flows = [e for e in events if e["ph"] in "sf"]
    assert len(flows) == 2 * len(trace.edges)
    for flow in flows:
        spans = open_slices[flow["pid"], flow["tid"]]
        assert any(start <= flow["ts"] <= end + 1e-3 for start, end in spans)
    assert {e["id"] for e in flows if e["ph"] == "s"} == {e["id"] for e in flows if e["ph"] == "f"}


def test_an_edge_joins_its_own_two_nodes():
    events = [
        KernelEvent(0, "a", "d", 0, 0.0, 1.0, (1,), None, kernel="gemm"),
        KernelEvent(1, "b", "d", 1, 1.0, 2.0, (1,), None),
        HostEvent(2, "c", 2.0, 3.0),
    ]
    drawn = list(trace_events(Trace(tuple(events), ("d",), "p", 3.0, edges=((0, 2), (0, 9)))))
    place = {e["name"]: (e["pid"], e["tid"]) for e in drawn if e["ph"] == "X"}
    flows = [(e["ph"], (e["pid"], e["tid"])) for e in drawn if e["ph"] in "sf"]
    assert drawn[0]["args"]["name"] == "d"
    assert [e["args"].get("kernel") for e in drawn if e["ph"] == "X"] == ["gemm", None, None]
    assert flows == [("s", place["a"]), ("f", place["c"])], "node 9 never ran: no flow"


def test_failures_and_decisions_are_instants(tmp_path):
    decision = DecisionEvent(0.5, 7, (0, 1), "gpu0")
    trace = nasty()
    events = list(trace_events(Trace((*trace.events, decision), trace.devices, trace.policy, trace.makespan)))
    instants = {e["name"].split()[0]: e for e in events if e["ph"] == "i"}
    assert instants["component"]["ts"] == 500_000
    assert instants["component"]["args"] == {"nodes": (0, 1), "device": "gpu0"}
    assert instants["failure"]["ts"] == 3000
