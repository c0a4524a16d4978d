"""The README: a first screen, whose commands fit on it, and whose examples do what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S)
PYTHON = [body for kind, body in BLOCKS if kind == "python"]
# command lines of the shell blocks, without those that install (CI runs them as they are)
COMMANDS = [
    line.split("  #")[0].strip()
    for kind, body in BLOCKS
    if kind == "sh"
    for line in body.splitlines()
    if line.startswith("manycl ")
]
QUICK_START = next(body for kind, body in BLOCKS if kind == "sh").splitlines()
WRITTEN = [line for line in COMMANDS if line.startswith("manycl examples ")]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's own commands write."""
    place = tmp_path_factory.mktemp("written")
    for line in WRITTEN:
        run([sys.executable, "-m", "manycl", *line.split()[1:]], place)
    return place


@pytest.fixture
def folder(tmp_path: Path, written: Path) -> Path:
    """A place to work in that has what the README's commands name."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # what a command reserves is nobody else's
    env = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": tempfile.mkdtemp(dir=folder)}
    done = subprocess.run(arguments, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_it_is_a_first_screen() -> None:
    assert len(TEXT.split()) <= 900
    assert len(QUICK_START) == 2
    assert [line for line in (*QUICK_START, *COMMANDS) if len(line) > 80] == []
    assert len(COMMANDS) >= 6
    assert len(PYTHON) == 1


def test_the_program_is_the_example_that_it_names() -> None:
    code = (ROOT / "manycl" / "examples" / "first" / "first.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert PYTHON[0].strip() == code.strip()


@pytest.mark.parametrize("cores", [1, 2])
def test_quick_start(cores: int, tmp_path: Path) -> None:
    """The second command does what the README says, on one core, too."""
    here = sorted(os.sched_getaffinity(0))[:cores]
    if len(here) < cores:
        pytest.skip(f"{len(here)} cores")
    program = (
        f"import os, runpy; os.sched_setaffinity(0, {here}); import warnings; warnings.simplefilter('error');"
        "runpy.run_path('first.py')"
    )
    write, then = QUICK_START[1].split(" && ")
    assert then == ".venv/bin/python first.py"
    run([sys.executable, "-m", "manycl", *write.split()[1:]], tmp_path)
    done = run([sys.executable, "-c", program], tmp_path)
    assert "makespan" in done.stdout
    assert re.search(rf"^one core: [\d.]+ ms; {cores} cores: [\d.]+ ms$", done.stdout, re.MULTILINE)
    assert (tmp_path / "mandelbrot.html").stat().st_size > 1000


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line: str, folder: Path) -> None:
    for part in line.split("&&"):
        program, *words = part.split()
        assert program == "manycl"
        done = run([sys.executable, "-m", "manycl", *words], folder)
        assert (done.stdout + done.stderr).strip()
