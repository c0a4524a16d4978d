"""``manycl simulate`` from the command line, and that simulation does what a plan says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from manycl.machine_file import load_machine, shipped_machines
from manycl.trace import Trace
from tests import ROOT

APP = [str(ROOT / "manycl" / "examples" / "transformer" / "transformer.json"), "-D", "H=4"]
PAPERS = {"mkmd", "pyschedcl", "repara", "conan", "happycl", "hopping"}
MEASURED = {"h200_x2", "h200_x4", "epyc_2"}


def command(*words: str) -> int:
    return main(["simulate", *APP, *words])


def figures(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert command("--json", *words) == 0
    record: dict[str, Any] = json.loads(capsys.readouterr().out)
    return record


def test_machines_are_listed_and_known_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", "--machines"])
    assert stopped.value.code == 0
    listed = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert listed == set(shipped_machines())
    assert listed >= PAPERS | MEASURED


@pytest.mark.parametrize("name", sorted(PAPERS | MEASURED))
def test_every_machine_says_where_its_numbers_come_from(name: str) -> None:
    machine = load_machine(name)
    keys = ("compute_units", "clock", "flops", "bandwidth", "global_memory", "launch_overhead")
    for d in machine.devices:
        said = d.name in machine.notes or name == "mkmd"  # another's file has a source for all beside those of keys
        assert said or [k for k in keys if f"{d.name}.{k}" in machine.notes or "machine" in machine.notes]
        assert d.name in machine.notes or f"{d.name}.flops" in machine.notes
    for link in machine.links:
        ends = f"{machine.memory_name(link.source)}->{machine.memory_name(link.target)}"
        back = f"{machine.memory_name(link.target)}->{machine.memory_name(link.source)}"
        assert any(key.startswith((ends, back)) for key in machine.notes)


@pytest.mark.parametrize("policy", ["in_order", "auto", "cpop", "peft", "portfolio"])
def test_exact_models_give_the_planned_makespan(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = figures(capsys, "--machine", "cpu_pair", "--policy", policy)
    assert record["simulated_s"] == pytest.approx(record["planned_s"], rel=1e-12)


def test_an_objective_is_planned_for_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Each at least as good as the others by its own measure; a policy that plans for time alone refuses."""
    found = {}
    for word in ("time", "energy", "edp"):
        record = figures(capsys, "--machine", "mkmd", "--objective", word)
        found[word] = record["simulated_s"], sum(record["summary"]["joules"].values())
    assert found["energy"][1] < found["time"][1]
    assert found["edp"][0] * found["edp"][1] <= min(t * joules for t, joules in found.values()) * 1.001
    assert command("--machine", "mkmd", "--deadline", f"{found['time'][0] * 1.05} s") == 0
    assert "\nenergy " in capsys.readouterr().out
    assert command("--machine", "mkmd", "--policy", "heft", "--objective", "energy") == 2


def test_text_trace_and_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, chart, other = tmp_path / "t.jsonl", tmp_path / "t.html", tmp_path / "other.html"
    charts = ("--gantt", str(chart), "--gantt", str(other))
    assert command("--machine", "conan", "--trace", str(trace), *charts, "--noise", "5%") == 0
    assert chart.read_text() == other.read_text()
    out = capsys.readouterr().out
    assert "transformer: simulation, policy auto" in out
    assert "planned " in out.splitlines()[-1]
    assert Trace.load(trace).kind == "simulation"
    assert "gpu2" in chart.read_text()


def test_noise_follows_the_seed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machine", "mkmd", "--noise", "10%")
    first, again, other = (figures(capsys, *words, "--seed", seed) for seed in ("1", "1", "2"))
    assert first["summary"] == again["summary"]
    assert first["simulated_s"] != other["simulated_s"]
    assert first["planned_s"] == other["planned_s"]


def test_slowdowns_make_runs_longer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machine", "cpu_pair", "--policy", "in_order")
    plain = figures(capsys, *words)["simulated_s"]
    always = figures(capsys, *words, "--interference", "cpu=2@0s-9s")["simulated_s"]
    assert always == pytest.approx(2 * plain)
    drifting = figures(capsys, *words, "--drift", f"cpu0.1=2@{plain}s")["simulated_s"]
    assert plain < drifting < always
    assert figures(capsys, *words, "--interference", "cpu0.0=2@0s-9s")["simulated_s"] == plain


def test_a_dynamic_policy_takes_an_interference_into_account(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--machine", "cpu_pair", "--policy", "eager")
    kernels = []
    for more in ((), ("--interference", "cpu0.1=50@0s-9s")):
        devices = figures(capsys, *words, *more)["summary"]["devices"]
        kernels.append(next(d["kernels"] for d in devices if d["name"] == "cpu0.1"))
    assert kernels[1] < kernels[0]


def test_faults_end_the_run_with_the_story(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("--machine", "cpu_pair", "--policy", "in_order", "--fault", "5") == 1
    out = capsys.readouterr().out
    assert "transformer: simulation, policy in_order" in out
    assert "node 5) failed on cpu0.1" in out
    assert command("--machine", "cpu_pair", "--fault", "cpu0.1@0s", "--json") == 1
    assert "the device was lost" in json.loads(capsys.readouterr().out)["failure"]


def test_a_plan_runs_as_planned_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    matrices = str(ROOT / "manycl" / "examples" / "matrix_equation" / "matrix_equation.json")
    words = (matrices, "-D", "n=1024", "-D", "m=8192", "--machine", "mkmd", "--policy", "mkmd", "--json")

    def answer(*more: str) -> dict[str, Any]:
        assert main([*more[:1], *words, *more[1:]]) == 0
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    planned = answer("plan", "--as-planned")["plan"]["assignments"]
    ran = [
        sum(device["kernels"] for device in answer("simulate", *more)["summary"]["devices"])
        for more in (("--as-planned",), ())
    ]
    assert ran[0] == sum(a["device"] >= 0 for a in planned)
    assert ran[1] > ran[0], "ranges are cut further to hide transfers"


def test_a_saved_plan_is_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "plan.json")
    assert main(["plan", *APP, "--machine", "cpu_pair", "--policy", "peft", "--save", path]) == 0
    capsys.readouterr()
    record = figures(capsys, "--machine", "cpu_pair", "--plan", path)
    assert record["summary"]["policy"] == "peft"
    assert record["simulated_s"] == pytest.approx(record["planned_s"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", "nonsuch"], "neither a file nor a machine that comes with manycl"),
        (["--machine", "happycl2"], "did you mean 'happycl'?"),
        (["--machine", "conan", "--noise", "x"], "--noise x"),
        (["--machine", "conan", "--noise", "-5%"], "--noise -5%"),
        (["--machine", "conan", "--noise", "5"], "5% or 500%?"),
        (["--machine", "conan", "--gantt", "a.html", "--gantt", "b.odd"], "b.odd"),
        (["--machine", "conan", "--drift", "gpu0=2"], "--drift gpu0=2: expected DEVICE=FACTOR@TIME"),
        (["--machine", "conan", "--drift", "gpu9=2@1s"], "no device is 'gpu9'"),
        (["--machine", "conan", "--interference", "gpu0=2@5ms"], "expected DEVICE=FACTOR@TIME-TIME"),
        (["--machine", "conan", "--interference", "gpu0=2@5ms-2ms"], "ends before it begins"),
        (["--machine", "conan", "--fault", "gpu0@5"], "5' is not a number with a unit"),
        (["--machine", "conan", "--fault", "no_such"], "--fault no_such: no node is called that"),
        (["--machine", "conan", "--plan", "p.json", "--policy", "auto"], "--plan and --policy"),
        (["--machine", "conan", "--policy", "nonsense"], "no policy is called 'nonsense'"),
        (["--machine", "conan", "--trace", "/no/such/folder/t"], "there is no folder"),
    ],
)
def test_bad_input_is_one_message(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    # "-5%" would read as an option of its own
    joined = [*words[:2], f"{words[2]}={words[3]}"] if len(words) == 4 else words
    assert command(*joined) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


def test_nothing_heavy_is_imported_for_the_list() -> None:
    import subprocess

    code = (
        "import sys; from manycl.cli import main\n"
        "try: main(['simulate', '--machines'])\n"
        "except SystemExit: pass\n"
        "print('numpy' in sys.modules, 'pyopencl' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "False False"
