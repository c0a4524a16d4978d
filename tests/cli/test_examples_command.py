"""``manycl examples``: lists what comes with the package, writes it, and never over what somebody has changed."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from manycl.cli import main
from manycl.cli.examples import about, names
from tests import ROOT

HOME = ROOT / "manycl" / "examples"
FILES = {folder.name: {f.name: f.read_bytes() for f in folder.iterdir() if f.is_file()} for folder in HOME.iterdir()}


def test_all_are_listed_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FILES) + 1
    for name, line in zip(sorted(FILES), lines, strict=False):
        assert line.split(maxsplit=1) == [name, about(name)]
        assert len(about(name)) > 20
    assert main(["examples", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [t["name"] for t in told] == names() == sorted(FILES)
    assert {t["name"]: t["about"] for t in told} == {n: about(n) for n in FILES}


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_is_written_runs_as_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["examples", name]) == 0
    first, then = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{name}: ")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == FILES[name]
    monkeypatch.setenv("MANYCL_DEVICES", "cpu/2")
    program, *words = shlex.split(then)
    if program == "manycl" and words[0] != "exec":
        assert main(words) == 0
        assert "check against one device: identical" in capsys.readouterr().out
    else:
        words = words if program == "python" else ["-m", program, *words]  # what it starts takes its process's place
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
        assert ("makespan" if program == "python" else "manycl: cpu0.0, cpu0.1") in ended.stdout


def test_nothing_is_replaced_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "into" / "heat.json"
    words = ["examples", "heat", "saxpy", "-o", "into"]
    assert main(words) == 0
    assert main([*words, "--json"]) == 0  # what is the same is no obstacle
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [sorted(Path(f).name for f in t["files"]) for t in told] == [sorted(FILES[n]) for n in ("heat", "saxpy")]
    mine.write_text("mine")
    (tmp_path / "into" / "saxpy.py").unlink()
    assert main(words) == 2
    assert "into/heat.json is there, and differs" in capsys.readouterr().err
    assert mine.read_text() == "mine"
    assert not (tmp_path / "into" / "saxpy.py").exists()  # nothing is done by halves
    assert main([*words, "--overwrite"]) == 0
    assert mine.read_bytes() == FILES["heat"]["heat.json"]


def test_what_there_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["examples", "transfomer", "-o", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "did you mean 'transformer'" in said
    assert ", ".join(sorted(FILES)) in said
    (tmp_path / "file").write_text("")
    assert main(["examples", "heat", "-o", str(tmp_path / "file")]) == 2
    assert "is no folder" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_python_of_examples_says_what_it_is() -> None:
    sources = sorted(HOME.glob("*/*.py"))
    assert len(sources) >= 4
    for path in sources:
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
