"""Trace files: what is saved is loaded; whatever else a file holds gives one message."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.cli import main
from manycl.errors import ManyclError
from manycl.report.charts.gantt import write_gantt
from manycl.report.summary import summarise
from manycl.trace import DecisionEvent, Trace
from tests.report.report_cases import nasty, traces, transformer

HEADER = next(iter(transformer().lines()))
_LINE = (
    '{"event": "kernel", "node": 0, "name": "k", "device": "d", "queue": 0, "start": 0.0, "end": 1.0, '
    '"global_size": [64], "local_size": null}'
)
KERNEL = json.loads(_LINE)


@given(traces())
def test_saved_is_loaded(trace):
    assert Trace.parse(trace.lines()) == trace


def test_all_kinds_of_events_come_back(tmp_path):
    trace = nasty()
    trace = Trace((*trace.events, DecisionEvent(0.0, 1, (0, 2), "d")), trace.devices, "p", 1.0, details={"a": [1]})
    trace.save(tmp_path / "a.jsonl")
    assert Trace.load(tmp_path / "a.jsonl") == trace


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "empty"),
        ([""], "empty"),
        (["garbage"], ":1: .*Expecting value"),
        (["[1]"], ":1: .*not a JSON object"),
        ([json.dumps(KERNEL)], ":1: .*not a trace of format 2"),
        (['{"event": "trace", "format": 1}'], ":1: .*not a trace of format 2"),
        (['{"event": "trace", "format": 2}'], ":1: .*'application' is missing"),
        ([json.dumps({**json.loads(HEADER), "edges": [[1]]})], "'edges' cannot be"),
        ([json.dumps({**json.loads(HEADER), "makespan": "1"})], "'makespan' cannot be '1'"),
        ([HEADER, "", HEADER], ":3: .*no event is called 'trace'"),
        ([HEADER, "[" * 100_000], ":2: "),
        ([HEADER, json.dumps({**KERNEL, "event": ["kernel"]})], ":2: "),
        ([HEADER, json.dumps({**KERNEL, "event": "kernal"})], "no event is called 'kernal'"),
        ([HEADER, json.dumps({**KERNEL, "start": float("nan")})], "'start' cannot be nan"),
        ([HEADER, json.dumps({**KERNEL, "end": float("inf")})], "'end' cannot be inf"),
        ([HEADER, json.dumps({**KERNEL, "end": 1e300})], "'end' cannot be 1e\\+300"),
        ([HEADER, json.dumps({**KERNEL, "name": 5})], "'name' cannot be 5"),
        ([HEADER, json.dumps({**KERNEL, "global_size": 5})], ":2: "),
        ([HEADER, json.dumps({**KERNEL, "global_size": None})], "'global_size' cannot be None"),
        ([HEADER, json.dumps({**KERNEL, "queue": 10**30})], "'queue' cannot be"),
        ([HEADER, json.dumps({**KERNEL, "colour": "red"})], "colour"),
        ([HEADER, '{"event": "kernel"}'], ":2: .*missing"),
    ],
)
def test_a_garbled_trace_names_the_line(lines, words):
    with pytest.raises(ManyclError, match=f"run.jsonl{words}" if words.startswith(":") else words):
        Trace.parse(lines, "run.jsonl")


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(KERNEL)), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([HEADER, json.dumps(KERNEL)]), st.data())
def test_any_change_of_a_field_is_refused_or_can_be_reported(line, data):
    record = json.loads(line)
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(_values)
    lines = [json.dumps(record)] if line == HEADER else [HEADER, json.dumps(record)]
    try:
        trace = Trace.parse(lines)
    except ManyclError:
        return
    assert summarise(trace).text()
    assert json.dumps(summarise(trace).to_dict(), allow_nan=False)


DETAILS = {
    "planned": {"makespan": 1.0, "seconds": [[0, 0.5], [1, 0.25]]},
    "memory": [{"name": "gpu0", "limit": 5, "needed": 9, "again": 1, "leave": 2, "seconds": 0.5}],
    "compiled": 0.25,
    "divisions": [{"kernel": "k", "launches": 2, "divided": False, "reason": "r", "numbers": {"run": 1.0}}],
    "unforeseen": ["x failed"],
    "chosen": "heft",
}


def _places(value, path=()):
    """The paths of all values within a JSON value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from _places(value[key], (*path, key))


@given(
    st.sampled_from([p for p in _places(DETAILS) if p]), _values | st.just(1e300) | st.lists(st.integers(), max_size=3)
)
def test_any_change_of_the_details_is_refused_or_can_be_reported(path, value):
    details = json.loads(json.dumps(DETAILS))
    inside = details
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    lines = [json.dumps({**json.loads(HEADER), "details": details}), json.dumps({**KERNEL})]
    try:
        trace = Trace.parse(lines)
    except ManyclError:
        return
    assert summarise(trace).text()
    assert json.dumps(summarise(trace).to_dict(), allow_nan=False)


@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_text_is_refused(lines):
    with pytest.raises(ManyclError):
        Trace.parse(lines)


@pytest.fixture
def saved(tmp_path):
    transformer().save(tmp_path / "run.jsonl")
    return str(tmp_path / "run.jsonl")


def test_report_prints_the_summary(saved, capsys):
    assert main(["report", saved]) == 0
    assert capsys.readouterr().out == summarise(transformer()).text() + "\n"


def test_report_writes_charts_and_json(saved, tmp_path, capsys):
    charts = [str(tmp_path / name) for name in ("a.html", "b.svg")]
    words = [w for chart in charts for w in ("--gantt", chart)]
    assert main(["report", saved, *words, "--perfetto", str(tmp_path / "p.json"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record == json.loads(json.dumps(summarise(transformer()).to_dict()))
    write_gantt(transformer(), tmp_path / "expected.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "expected.html").read_bytes()
    assert (tmp_path / "b.svg").read_bytes().startswith(b"<?xml")
    assert json.loads((tmp_path / "p.json").read_text())["otherData"]["policy"] == "clustering"


def test_report_compares(saved, tmp_path, capsys):
    transformer(heads=4).save(tmp_path / "other.jsonl")
    assert main(["report", saved, "--compare", str(tmp_path / "other.jsonl"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    makespans = [record[key]["makespan"] for key in ("first", "second")]
    assert makespans == [transformer().makespan, transformer(heads=4).makespan]
    assert record["speedup"] == makespans[0] / makespans[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{folder}/none.jsonl"], "No such file"),
        (["{folder}"], "Is a directory"),
        (["{folder}/binary"], "not text"),
        (["{folder}/garbage"], "garbage:1: not a line of a trace"),
        (["{folder}/cyclic"], "cycle"),
        (["{folder}/run.jsonl", "--gantt", "{folder}/a.bmp"], ".html, .png, .svg, .pdf"),
        (["{folder}/run.jsonl", "--gantt", "{folder}/none/a.html"], "no folder"),
        (["{folder}/run.jsonl", "--perfetto", "{folder}/none/a.json"], "no folder"),
        (["{folder}/run.jsonl", "--compare", "{folder}/none.jsonl", "--gantt", "{folder}/a.html"], "No such file"),
    ],
)
def test_bad_input_gives_one_message_and_writes_nothing(saved, tmp_path, capsys, words, message):
    (tmp_path / "binary").write_bytes(b"\x89PNG\xff\xfe")
    (tmp_path / "garbage").write_text("garbage\n")
    first, second = list(transformer().kernels())[:2]
    edges = ((first.node, second.node), (second.node, first.node))
    Trace((first, second), ("gpu0",), "p", 1.0, edges=edges).save(tmp_path / "cyclic")
    before = sorted(tmp_path.iterdir())
    assert main(["report", *(w.format(folder=tmp_path) for w in words)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("manycl: ")
    assert message in said.err
    assert "Traceback" not in said.err
    assert sorted(tmp_path.iterdir()) == before
