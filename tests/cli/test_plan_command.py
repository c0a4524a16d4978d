"""``manycl plan`` from the command line: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from manycl.cli import main
from manycl.plan.plan import Plan
from tests import ROOT

APP = str(ROOT / "manycl" / "examples" / "transformer" / "transformer.json")
PAIR = str(ROOT / "manycl" / "machines" / "cpu_pair.toml")


def command(*words: str) -> int:
    return main(["plan", APP, "-D", "H=4", *words])


@pytest.mark.parametrize("policy", ["auto", "clustering", "eager", "heft", "in_order"])
def test_json_holds_a_complete_plan(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--machine", PAIR, "--policy", policy, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    plan = Plan.from_json(json.dumps(record["plan"]))
    assert plan.policy == policy
    assert sorted(a.node for a in plan.assignments) == list(range(32))
    assert record["summary"]["makespan"] == pytest.approx(max(a.end for a in plan.assignments))


def test_text_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, chart = tmp_path / "plan.json", tmp_path / "plan.html"
    assert command("--machine", PAIR, "--save", str(plan), "--gantt", str(chart)) == 0
    out = capsys.readouterr().out
    assert "cpu0.0" in out
    assert "cpu0.1" in out
    assert "planned 32 nodes in" in out
    assert len(Plan.from_json(plan.read_text()).assignments) == 32
    assert "cpu0.1" in chart.read_text()


@pytest.mark.parametrize("suffix", ["dot", "svg"])
def test_the_graph_is_drawn(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"graph.{suffix}"
    assert command("--machine", PAIR, "--policy", "in_order", "--graph", str(file)) == 0
    text = file.read_text()
    assert text.startswith("digraph" if suffix == "dot" else "<?xml")
    if suffix == "dot":
        assert text.count("shape=ellipse") == 32
        assert text.count("cpu0.") == 32


def test_options_and_queues_reach_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machine", PAIR, "--policy", "clustering", "--json")
    assert command(*words, "--queues", "cpu0.1=3", "--option", "resident=1") == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert {a["queue"] for a in plan["assignments"] if a["device"] == 1} == {0, 1, 2}
    assert {a["queue"] for a in plan["assignments"] if a["device"] == 0} <= {0}


def test_a_policy_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import manycl as mc\n"
        "@mc.policy('test_second_only')\n"
        "def second_only(frontier, devices, now):\n"
        "    return mc.Choice(frontier[0].index, 1) if devices[1].free else None\n"
    )
    assert command("--machine", PAIR, "--policy", f"{file}:test_second_only", "--json") == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert {a["device"] for a in plan["assignments"]} == {1}


def test_on_the_devices_that_are_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--devices", "cpu", "--policy", "in_order", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["plan"]["assignments"]) == 32


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", PAIR, "--policy", "nonsense"], "no policy is called 'nonsense'"),
        (["--machine", "none.toml"], "none.toml"),
        (["--machine", PAIR, "--policy", "clustering", "--option", "queues=0"], "option queues=0"),
        (["--machine", PAIR, "--option", "x"], "--option x: expected NAME=VALUE"),
        (["--machine", PAIR, "--queues", "cpu=0"], "--queues cpu=0"),
        (["--machine", PAIR, "--save", "/no/such/folder/p.json"], "there is no folder"),
        (["--machine", PAIR, "--gantt", "chart.gif"], "chart.gif"),
        (["--machine", PAIR, "--graph", "graph.html"], "graph.html: not a known kind of drawing"),
        (["--devices", "no_such_device"], "no_such_device"),
    ],
)
def test_bad_input_is_one_message(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert "Traceback" not in captured.err


def test_a_bad_plan_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, target = tmp_path / "bad.py", tmp_path / "plan.json"
    file.write_text("import manycl as mc\n@mc.policy('test_bad')\ndef bad(frontier, devices, now):\n    return None\n")
    assert command("--machine", PAIR, "--policy", f"{file}:test_bad", "--save", str(target)) == 2
    assert "every device is idle" in capsys.readouterr().err
    assert not target.exists()
