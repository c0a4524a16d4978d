"""``manycl run``: what it writes, or refuses to begin to write; user files that misbehave; runs that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from manycl.cli import main
from tests import ROOT

SOURCE = """
__kernel void twice(__global const float *a, __global float *b, int n) {
  int i = get_global_id(0);
  if (i < n) b[i] = 2 * a[i];
}
"""
NOT_HERE = "#ifdef POCL_DEVICE_ADDRESS_BITS\n#error not on this device\n#endif\n"
NOWHERE = "float nowhere(float x);\n" + SOURCE.replace("2 * a[i]", "nowhere(a[i])")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs, with the kernels in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twice.cl").write_text(SOURCE)
    return tmp_path


def write(folder: Path, **changes: Any) -> str:
    """The application: c = 2 (2 a)."""
    document: dict[str, Any] = {
        "manycl": 1,
        "parameters": {"N": 64},
        "source": "twice.cl",
        "buffers": {
            "a": {"type": "float", "shape": ["N"], "init": "random"},
            "b, c": {"type": "float", "shape": ["N"]},
        },
        "kernels": [
            {"id": "k0", "name": "twice", "global": "N", "local": 16, "args": ["a", "b", "N"]},
            {"id": "k1", "name": "twice", "global": "N", "local": 16, "args": ["b", "c", "N"]},
        ],
        "outputs": ["c", {"buffer": "b", "name": "half", "save": "half.npy"}],
        **changes,
    }
    (folder / "app.json").write_text(json.dumps(document))
    return "app.json"


def single(**fields: Any) -> dict[str, Any]:
    """The changes that make it one kernel: b = 2 a."""
    kernel = {"id": "k", "name": "twice", "global": "N", "args": ["a", "b", "N"], **fields}
    floats = {"type": "float", "shape": ["N"]}
    return {"kernels": [kernel], "outputs": ["b"], "buffers": {"a": {**floats, "init": "zeros"}, "b": floats}}


def tree(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if "__pycache__" not in p.parts)


def refused(folder: Path, words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run, expect exit status 2, one message, and no file that was not there before; the message."""
    before = tree(folder)
    assert main(["run", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("manycl: ")
    assert captured.err.count("manycl: ") == 1
    assert "Traceback" not in captured.err
    assert tree(folder) == before, "something half-written was left behind"
    return captured.err


def test_files_have_what_was_computed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "ref.py").write_text("def f(i):\n    return {'c': 4 * i['a'], 'half': 2 * i['a']}\n")
    path = write(folder, check={"file": "ref.py", "function": "f"})
    files = ["--save", "deep/out", "--perfetto", "p.json", "--gantt", "g.html"]
    words = ["--check", "--json", "--devices", "cpu/2", *files]
    assert main(["run", path, *words]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [c["against"] for c in record["checks"]] == ["reference", "one device"]
    assert record["parameters"] == {"N": 64}
    assert len(record["seconds"]) == 1
    c, half = np.load(folder / "deep/out/c.npy"), np.load(folder / "half.npy")
    assert (c == 2 * half).all()
    assert (half != 0).any()
    assert np.load(folder / "deep/out/half.npy").tobytes() == half.tobytes()
    slices = [e for e in json.loads((folder / "p.json").read_text())["traceEvents"] if e.get("ph") == "X"]
    assert sorted(e["name"] for e in slices) == ["k0", "k1"]
    assert "twice" in (folder / "g.html").read_text()


def test_several_charts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    charts = ["--gantt", "a.html", "--gantt", "b.svg"]
    assert main(["run", write(folder), "--quiet", "--devices", "cpu/2", *charts]) == 0
    assert (folder / "a.html").stat().st_size > 0
    assert (folder / "b.svg").stat().st_size > 0


def test_buffers_that_are_larger_than_memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for init in ("zeros", "random", "range", "undefined"):
        many = {"type": "float", "shape": 10**12, "init": init}
        path = write(folder, buffers={"a": many, "b, c": {"type": "float", "shape": ["N"]}})
        said = refused(folder, [path, "--devices", "cpu/2"], capsys)
        assert "buffer a of 4,000,000,000,000 bytes" in said


def test_quiet_says_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", write(folder), "--quiet", "--devices", "cpu/2"]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


TARGETS = {
    "a file where the folder should be": (["--save", "file"], {}, "file is no folder"),
    "a file above the folder": (["--save", "file/out"], {}, "file is no folder"),
    "a chart that is a folder": (["--gantt", "folder.html"], {}, "this is a folder"),
    "a trace that is a folder": (["--trace", "folder.html"], {}, "this is a folder"),
    "no such folder": (["--perfetto", "nowhere/p.json"], {}, "nowhere"),
    "two for one file": (["--perfetto", "same.json", "--trace", "./same.json"], {}, "same file"),
    "an output without a folder": ([], {"outputs": [{"buffer": "c", "save": "nowhere/c.npy"}]}, "nowhere is no folder"),
    "outputs for one file": (
        [],
        {"outputs": [{"buffer": "b", "save": "x.npy"}, {"buffer": "c", "save": "x.npy"}]},
        "same file",
    ),
    "a name that is no file name": (["--save", "out"], {"outputs": [{"buffer": "c", "name": "x/y"}]}, "no file name"),
    "a name that climbs out": (["--save", "out"], {"outputs": [{"buffer": "c", "name": "../c"}]}, "no file name"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_files_that_cannot_be_written_stop_it_before_it_begins(
    case: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, changes, expected = TARGETS[case]
    (folder / "file").touch()
    (folder / "folder.html").mkdir()
    assert expected in refused(folder, [write(folder, **changes), *words], capsys)


LIARS = {
    "wrong": ("def f(i): return {'c': 3 * i['a'], 'half': 2 * i['a']}", 1, "WRONG: c"),
    "not finite": ("def f(i): return {'c': i['a'] * float('nan'), 'half': 2 * i['a']}", 1, "WRONG: c"),
    "nothing": ("def f(i): return {}", 2, "returns no c"),
    "short": ("def f(i): return {'c': i['a'][:3], 'half': i['a']}", 2, "(3,)"),
    "no dictionary": ("def f(i): return 3", 2, "f failed: AttributeError"),
    "words": ("def f(i): return {'c': ['x'] * 64, 'half': i['a']}", 2, "not as numbers"),
    "raises": ("def f(i): raise KeyError('mine')", 2, "f failed: KeyError: 'mine'"),
    "gives up": ("def f(i): raise SystemExit(0)", 2, "f failed: SystemExit"),
    "gives up at once": ("raise SystemExit(0)", 2, "ref.py: SystemExit"),
    "no Python": ("def f(i: :", 2, "ref.py: SyntaxError"),
    "no function": ("f = 3", 2, "there is no function f"),
}


@pytest.mark.parametrize("case", LIARS)
def test_references(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, status, expected = LIARS[case]
    (folder / "ref.py").write_text(text + "\n")
    path = write(folder, check={"file": "ref.py", "function": "f"})
    words = ["--check", "--quiet", "--devices", "cpu/2"]
    if status == 2:
        assert expected in refused(folder, [path, *words, "--save", "out", "--trace", "t.jsonl"], capsys)
        return
    assert main(["run", path, *words, "--save", "out"]) == 1
    out = capsys.readouterr().out
    assert expected in out
    assert "one device: identical" in out
    assert "half" not in out
    assert (folder / "out" / "c.npy").is_file()  # for whoever looks into what is wrong


POLICY_FILES = {
    "missing.py:f": (None, "there is no such policy file"),
    "mine.py:f": ("import sys\nsys.exit(0)\n", "mine.py: SystemExit"),
    "mine.py:g": ("x = 1\n", "g"),
    "mine.py:raises": (
        "import manycl\n\n@manycl.policy('raises')\ndef raises(frontier, devices, now):\n    return 3\n",
        "not a Choice",
    ),
    "mine.py:idle": (
        "import manycl\n\n@manycl.policy('idle')\ndef idle(frontier, devices, now):\n    return None\n",
        "places nothing",
    ),
}


@pytest.mark.parametrize("case", POLICY_FILES)
def test_policy_files(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, expected = POLICY_FILES[case]
    if text is not None:
        (folder / "mine.py").write_text(text)
    words = ["--policy", case, "--devices", "cpu/2", "--quiet", "--save", "out"]
    assert expected in refused(folder, [write(folder), *words], capsys)


RUNS = {
    "does not build here": ({}, ["--devices", "opencl/2"], NOT_HERE + SOURCE, "does not build on cpu1"),
    "neither natively nor elsewhere": ({}, ["--devices", "native/2"], NOWHERE, "undefined symbol: nowhere"),
    "a built-in's name": (
        single(name="step"),
        ["--devices", "opencl/2"],
        SOURCE.replace("twice", "step"),
        "kernel step cannot be used on cpu1",
    ),
    "work-groups too large": (single(local="N"), ["-D", "N=65536"], None, "twice"),
    "no such device to give queues to": ({}, ["--queues", "gup=4"], None, "there is no such device"),
    "chosen twice": ({}, ["--devices", "cpu/2#0,cpu/2#0"], None, "chosen twice"),
    "too many parts": ({}, ["--devices", "cpu/64"], None, "compute units"),
}


@pytest.mark.parametrize("case", RUNS)
def test_runs_that_fail(case: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, words, source, expected = RUNS[case]
    if source is not None:
        (folder / "twice.cl").write_text(source)
    elsewhere = ["--devices", "cpu/2"] if "--devices" not in words else []
    words = [write(folder, **changes), *words, *elsewhere, "--quiet", "--save", "out", "--gantt", "g.html"]
    assert expected in refused(folder, words, capsys)


def test_a_failed_run_leaves_its_whole_trace_and_nothing_else(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manycl.graph.versions.feasible.beyond", lambda *_: "")  # a device that takes less than it says
    path = write(folder, **single(local="N"))
    before = tree(folder)
    words = ["-D", "N=65536", "--devices", "cpu/2", "--trace", "t.jsonl", "--save", "out", "--gantt", "g.html"]
    assert main(["run", path, *words]) == 2
    assert tree(folder) == sorted([*before, "t.jsonl"])
    capsys.readouterr()
    assert main(["report", "t.jsonl"]) == 0
    assert "failed" in capsys.readouterr().out.lower()


def test_the_command_in_a_process_of_its_own(folder: Path) -> None:
    """The exit status and both streams, as a shell sees them."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MANYCL_DEVICES": "cpu/2", "MANYCL_POLICY": "eager"}
    command = [sys.executable, "-m", "manycl", "run", write(folder), "--check", "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["policy"] == "eager"
    assert [d["name"] for d in record["devices"]] == ["cpu0.0", "cpu0.1"]
    assert done.stderr.splitlines() == ["check against one device: identical, bit for bit"]
    env["MANYCL_POLICY"] = "best"
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, cwd=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("manycl: no policy is called 'best'")
