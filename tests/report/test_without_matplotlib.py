"""A plain install has no matplotlib: what draws pictures says so before any work is done, and all else goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
for name in ("matplotlib", "PIL", "fontTools", "kiwisolver", "contourpy"):
    sys.modules[name] = None  # as if it were not installed
"""
MAIN = """
from manycl import cli
raise SystemExit(cli.main(sys.argv[1:]))
"""
KERNEL = "kernel void twice(global float *x) { x[get_global_id(0)] *= 2; }"
LAUNCH = ["analyze", "twice.cl", "twice", "--global", "64", "--local", "8"]
PLAN = ["plan", "transformer.json", "-D", "H=2", "--machine", "pyschedcl"]
RECORD = """
import manycl
try:
    manycl.trace_all("runs.png")
except manycl.ManyclError as error:
    print(error)
manycl.trace_all("runs.html")
"""


def run(code: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT + code, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "twice.cl").write_text(KERNEL)
    assert run(MAIN, tmp_path, "examples", "transformer").returncode == 0
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        [*LAUNCH, "--picture", "x.png"],
        [*PLAN, "--gantt", "x.svg"],
        [*PLAN, "--graph", "x.pdf"],
        ["run", "transformer.json", "--gantt", "x.html", "--gantt", "x.png"],
        ["exec", "--gantt", "x.png", "--", "-c", "print('has run')"],
        ["bench", "mkmd", "--quick", "--output", "results"],
    ],
    ids=["analyze", "gantt", "graph", "run", "exec", "bench"],
)
def test_a_picture_is_refused_before_the_work(words: list[str], folder: Path) -> None:
    before = sorted(folder.iterdir())
    done = run(MAIN, folder, *words)
    assert done.returncode != 0
    assert "matplotlib, which is not installed" in done.stderr
    assert "pip install -e '.[plot]' in the checkout" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "written", "begins"),
    [(LAUNCH, None, ""), ([*PLAN, "--gantt", "x.html"], "x.html", "<!"), ([*PLAN, "--graph", "x.dot"], "x.dot", "dig")],
    ids=["analyze", "gantt", "graph"],
)
def test_all_else_goes_on(words: list[str], written: str | None, begins: str, folder: Path) -> None:
    done = run(MAIN, folder, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if written is not None:
        assert (folder / written).read_text().startswith(begins)


def test_a_recording_is_refused_when_it_begins(tmp_path: Path) -> None:
    done = run(RECORD, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("runs.png: pictures are drawn by matplotlib")
