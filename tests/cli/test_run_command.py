"""``manycl run`` and ``manycl bench``: right results, and one clear message for every kind of bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.cli import main
from tests import ROOT

EXAMPLES = ROOT / "manycl" / "examples"
SOURCE = """
__kernel void twice(__global const float *a, __global float *b, int n) {
  int i = get_global_id(0);
  if (i < n) b[i] = 2 * a[i];
}
"""
POLICIES = ["auto", "in_order", "eager", "heft", "clustering"]


def specification(folder: Path, **changes: Any) -> Path:
    """b = 2 a, twice; ``changes`` replace top-level fields (None removes)."""
    (folder / "twice.cl").write_text(SOURCE, encoding="utf-8")
    document: dict[str, Any] = {
        "manycl": 1,
        "name": "twice",
        "parameters": {"N": 64},
        "source": "twice.cl",
        "buffers": {
            "a": {"type": "float", "shape": ["N"], "init": "random"},
            "b": {"type": "float", "shape": ["N"]},
            "c": {"type": "float", "shape": ["N"]},
        },
        "kernels": [
            {"id": "k0", "name": "twice", "global": "N", "local": 16, "args": ["a", "b", "N"]},
            {"id": "k1", "name": "twice", "global": "N", "local": 16, "args": ["b", "c", "N"]},
        ],
        "outputs": ["c"],
    }
    if "kernels" in changes and len(changes["kernels"]) == 1:
        document["outputs"] = ["b"]
        del document["buffers"]["c"]
    document.update(changes)
    path = folder / "app.json"
    path.write_text(json.dumps({k: v for k, v in document.items() if v is not None}), encoding="utf-8")
    return path


def kernel(**changes: Any) -> list[dict[str, Any]]:
    first = {"id": "k0", "name": "twice", "global": "N", "local": 16, "args": ["a", "b", "N"]}
    first.update(changes)
    return [first]


@pytest.mark.parametrize("chosen", POLICIES)
@pytest.mark.parametrize("example", ["transformer -D H=2 -D beta=32", "matrix_equation -D n=32 -D m=64"])
def test_the_examples_are_right(example: str, chosen: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, *words = example.split()
    status = main(
        ["run", str(EXAMPLES / name / f"{name}.json"), *words, "--policy", chosen, "--devices", "cpu/3", "--check"]
    )
    out = capsys.readouterr().out
    assert status == 0, out
    assert "check against reference: equal" in out
    assert "check against one device: identical, bit for bit" in out


@pytest.mark.parametrize("chosen", POLICIES)
def test_the_examples_are_right_with_transfers(
    chosen: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    words = ["-D", "n=32", "-D", "m=64", "--devices", "cpu/2", "--check", "--json", "--policy", chosen]
    assert main(["run", str(EXAMPLES / "matrix_equation" / "matrix_equation.json"), *words]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert [c["passed"] for c in figures["checks"]] == [True, True]
    assert sum(link["transfers"] for link in figures["links"]) > 0


def test_everything_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = specification(tmp_path)
    files = {o: tmp_path / f for o, f in (("--gantt", "g.svg"), ("--perfetto", "p.json"), ("--trace", "t.jsonl"))}
    words = [w for o, f in files.items() for w in (o, str(f))]
    assert main(["run", str(path), "--save", str(tmp_path / "out"), "--repeat", "2", *words]) == 0
    assert "runs: " in capsys.readouterr().out
    assert all(f.stat().st_size > 0 for f in files.values())
    assert np.load(tmp_path / "out" / "c.npy").shape == (64,)
    assert main(["report", str(files["--trace"]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["makespan"] > 0


def test_a_check_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "liar.py").write_text("def f(inputs):\n    return {'c': 3 * inputs['a']}\n", encoding="utf-8")
    path = specification(tmp_path, check={"file": "liar.py", "function": "f"})
    assert main(["run", str(path), "--check"]) == 1
    assert "reference: WRONG: c: relative error 0.3" in capsys.readouterr().out


def test_a_users_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = tmp_path / "mine.py"
    policies.write_text(
        "import manycl as mc\n\n@mc.policy('last')\ndef last(frontier, devices, now):\n"
        "    free = [d for d in devices if d.free]\n"
        "    return mc.Choice(frontier[-1].index, free[-1].index) if free else None\n",
        encoding="utf-8",
    )
    words = ["--policy", f"{policies}:last", "--devices", "cpu/2", "--json"]
    assert main(["run", str(specification(tmp_path)), *words]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["policy"].endswith(":last")


def test_environment_variables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MANYCL_DEVICES", "cpu/2#1")
    monkeypatch.setenv("MANYCL_POLICY", "eager")
    assert main(["run", str(specification(tmp_path)), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["policy"] == "eager"
    assert [d["name"] for d in figures["devices"]] == ["cpu0.1"]


BAD: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "missing file": ({}, ["/nowhere/app.json"], "No such file"),
    "unknown field": ({"kernel": []}, [], "kernel"),
    "unknown symbol": ({"kernels": kernel(**{"global": "M"})}, [], "M"),
    "unknown parameter": ({}, ["-D", "M=3"], "no such parameter"),
    "malformed parameter": ({}, ["-D", "N"], "NAME=VALUE"),
    "wrong type": ({"buffers": {"a": {"type": "flaot", "shape": ["N"]}}}, [], "flaot"),
    "wrong size": ({}, ["-D", "N=-4"], "-4"),
    "unknown kernel": ({"kernels": kernel(name="thrice")}, [], "thrice"),
    "missing source": ({"source": "nope.cl"}, [], "nope.cl"),
    "argument count": ({"kernels": kernel(args=["a", "b"])}, [], "3 arguments"),
    "not divisible": ({}, ["-D", "N=40"], "not divisible"),
    "cycle": (
        {"kernels": [*kernel(), *kernel(id="k1", args=["b", "c", "N"])], "edges": ["k0.1 -> k1.0", "k1.1 -> k0.0"]},
        [],
        "k0",
    ),
    "no such device": ({}, ["--devices", "gpu7"], "gpu7"),
    "malformed devices": ({}, ["--devices", "cpu//2"], "cpu//2"),
    "no such policy": ({}, ["--policy", "best"], "best"),
    "malformed option": ({}, ["--policy", "clustering", "--option", "queues=many"], "queues=many"),
    "queue count": ({}, ["--queues", "cpu=0"], "cpu=0"),
    "repeat": ({}, ["--repeat", "0"], "--repeat 0"),
    "chart suffix": ({}, ["--gantt", "run.bmp"], "run.bmp"),
    "no such folder": ({}, ["--trace", "/nowhere/t.jsonl"], "/nowhere"),
    "a folder": ({}, ["--trace", "."], "--trace .: this is a folder"),
    "a chart where nothing can be written": ({}, ["--gantt", "/proc/run.html"], "--gantt /proc/run.html: "),
    "work-group too large": (
        {"kernels": kernel(**{"global": 1 << 16, "local": 1 << 16})},
        [],
        "twice",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, words, expected = BAD[case]
    path = specification(tmp_path, **changes)
    before = sorted(p.name for p in tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    arguments = words if words and words[0].startswith("/") else [str(path), *words]
    assert main(["run", *arguments, "--save", "results"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("manycl: ")
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert sorted(p.name for p in tmp_path.iterdir()) == before, "something half-written was left behind"


def test_a_wrong_npy_and_broken_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3, np.float32))
    buffers = {
        "a": {"type": "float", "shape": ["N"], "init": {"kind": "file", "path": "a.npy"}},
        "b": {"type": "float", "shape": ["N"]},
    }
    assert main(["run", str(specification(tmp_path, buffers=buffers, kernels=kernel(), outputs=["b"]))]) == 2
    assert "a.npy" in capsys.readouterr().err
    (tmp_path / "broken.json").write_text('{\n "manycl": 1,\n', encoding="utf-8")
    assert main(["run", str(tmp_path / "broken.json")]) == 2
    assert "broken.json:3" in capsys.readouterr().err


def test_as_a_process(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "manycl", "run", str(specification(tmp_path)), "--devices", "nothing"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
