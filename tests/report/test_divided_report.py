"""Launches that ran in ranges, in summaries and trace files; the plan beside what happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from manycl.report.charts.lanes import lanes
from manycl.report.divided import divided, planned, spans
from manycl.report.summary import summarise
from manycl.run.engine.merged_traces import PastRun, joined
from manycl.trace import HostEvent, KernelEvent, Trace, TransferEvent


def kernel(
    node: int, name: str, device: str, start: float, end: float, *part: object, function: str = ""
) -> KernelEvent:
    return KernelEvent(node, name, device, 0, start, end, (64,), (16,), None, function, *part)  # type: ignore[arg-type]


TRACE = Trace(
    events=(
        kernel(0, "f [0:3]", "a", 0.0, 3.0, "range", 0, 0, 3, "difference add", function="f"),
        kernel(0, "f [3:4]", "b", 0.0, 2.0, "range", 0, 3, 1, "difference add", function="f"),
        kernel(0, "copy for f", "b", 2.0, 2.25, "copy", function="manycl_copy"),
        TransferEvent(0, "x", "b", "host", 64, 2.5, 2.75),
        kernel(0, "merge f (add)", "a", 3.0, 3.5, "merge", function="manycl_difference"),
        kernel(1, "g", "a", 3.5, 4.5),
    ),
    devices=("a", "b"),
    policy="by hand",
    makespan=4.5,
    edges=((0, 1),),
    details={"planned": {"makespan": 4.0, "seconds": [[0, 3.0], [0, 1.0], [1, 2.0]]}},
)


def test_shares_are_of_the_groups_and_merging_is_all_the_rest() -> None:
    (found,) = divided(TRACE)
    assert (found.name, found.launches, found.ranges) == ("f", 1, 2)
    assert found.shares == {"a": 0.75, "b": 0.25}
    assert found.methods == ("difference add",)
    assert found.merging == 0.75


def test_a_node_in_ranges_takes_its_longest_and_its_merging() -> None:
    assert spans(TRACE.events) == {0: ("f", 3.75), 1: ("g", 1.0)}
    assert summarise(TRACE).path.names == ("f", "g")
    assert summarise(TRACE).path.seconds == 4.75


def test_the_plan_stands_beside_what_happened() -> None:
    by_name = {p.name: (p.launches, p.planned, p.took) for p in planned(TRACE)}
    assert by_name == {"f": (1, 4.0, 5.75), "g": (1, 2.0, 1.0)}
    text = summarise(TRACE).text()
    assert "makespan 4.50 s (planned 4.00 s), 5 kernels" in text
    assert "a 75.0 %, b 25.0 %  difference add" in text
    assert "-30 %" in text


def test_sub_kernels_and_merges_are_bars_and_survive_a_file(tmp_path: Path) -> None:
    TRACE.save(tmp_path / "t.jsonl")
    again = Trace.load(tmp_path / "t.jsonl")
    assert again.events == TRACE.events
    assert [b.name for b in lanes(again)[0].bars] == ["f [0:3]", "merge f (add)", "g"]
    assert [b.name for b in lanes(again)[1].bars] == ["f [3:4]", "copy for f"]


@pytest.mark.parametrize("details", [{}, {"planned": {"makespan": 1.0, "seconds": []}}])
def test_nothing_is_said_where_nothing_was_planned_or_divided(details: dict[str, object]) -> None:
    plain = Trace((kernel(0, "g", "a", 0.0, 1.0),), ("a",), "by hand", 1.0, details=details)
    assert divided(plain) == planned(plain) == ()
    assert "divided" not in summarise(plain).text()


WHOLE = {"kernel": "longer", "launches": 1, "divided": False, "reason": "it is\nx", "numbers": {"run": 1e-4}}


def test_what_a_run_went_on_without_is_said() -> None:
    trace = replace(TRACE, details={"unforeseen": ["planning with policy mkmd failed"]})
    lines = summarise(Trace.parse(trace.lines())).text().splitlines()
    assert "went on without: planning with policy mkmd failed" in lines


def test_each_kind_of_launch_has_a_line_and_joined_traces_count_them() -> None:
    divided = {"kernel": "f", "launches": 2, "divided": True, "reason": "a 50 %, b 50 %", "numbers": {}}
    trace = joined(
        PastRun(begin, 1.0, 2, (), (), replace(TRACE, details={"models": {}, "divisions": [divided, WHOLE]}))
        for begin in (0.0, 1.0)
    )
    found = summarise(Trace.parse(trace.lines()))
    assert "f x4       divided  a 50 %, b 50 %\nlonger x2  whole    it is x" in found.text()
    assert found.to_dict()["divisions"][1] == {**WHOLE, "launches": 2}
    many = [{**WHOLE, "kernel": f"k{n}"} for n in range(7)]
    assert "... and 2 more kinds of launches" in summarise(replace(TRACE, details={"divisions": many})).text()


def test_how_commands_were_submitted_is_said_with_the_reason() -> None:
    said = ["eager: there is one\x1b device", "planned: r"]
    lines = summarise(Trace.parse(replace(TRACE, details={"submission": said}).lines())).text().splitlines()
    assert lines[2:4] == ["eager: there is one? device", "planned: r"]


@pytest.mark.parametrize("said", [7, "f", None, [3], [{}], [{**WHOLE, "launches": "3"}], [{**WHOLE, "x": 1}]])
def test_details_of_another_form_are_left_out(said: object) -> None:
    """Trace files come from anywhere."""
    details = {"unforeseen": said, "submission": said, "divisions": said}
    found = summarise(replace(TRACE, details=details))
    assert found.divisions == ()
    assert "whole" not in found.text()


def missed_text(took: float, *more: object, **details: object) -> str:
    events = (kernel(0, "f", "a", 0.0, 3.0), kernel(1, "g", "a", 3.5, 4.5), *more)
    foreseen = {"makespan": 2.25, "seconds": [[0, 1.0], [1, 1.0]], "computing": 2.0, **details}
    trace = Trace(events, ("a",), "by hand", took, edges=((0, 1),), details={"planned": foreseen})  # type: ignore[arg-type]
    return summarise(trace).text()


def test_a_run_that_took_longer_than_planned_is_explained() -> None:
    moved = TransferEvent(0, "x", "a", "host", 64, 2.5, 3.25)
    called = HostEvent(2, "h", 4.25, 4.75)
    text = missed_text(5.0, moved, called)
    assert "the run took 2.2 times what was planned:" in text
    assert "  kernels ran for 4.00 s, planned 2.00 s: f took 3.00 s instead of 1.00 s\n" in text
    rest = "only data moved 250 ms, only host functions ran 250 ms, nothing ran 500 ms"
    assert f"  the rest was 1.00 s, planned 250 ms: {rest}" in text


def test_a_run_that_took_about_what_was_planned_needs_no_explanation() -> None:
    assert "times what was planned" not in missed_text(4.5, makespan=4.0)
    assert "times what was planned" in missed_text(4.5, makespan=6.0), "less is wrong as well"
    assert "times what was planned" not in missed_text(4.5, computing=None), "nobody knows"


def test_a_run_whose_kernels_were_not_timed_says_so() -> None:
    trace = Trace(
        (), ("a",), "auto", 5.0, details={"planned": {"makespan": 2.0, "seconds": [[0, 2.0]], "computing": 2.0}}
    )
    assert "its kernels were not timed" in summarise(trace).text()
