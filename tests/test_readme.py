"""The README's examples do what it says: every Python block and every command line is run."""

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
QUICK_START = re.findall(r"\.venv/bin/manycl ([^&\n]*)", next(body for kind, body in BLOCKS if kind == "sh"))
WRITTEN = next(line for line in COMMANDS if line.startswith("manycl examples "))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's own command writes."""
    place = tmp_path_factory.mktemp("written")
    run([sys.executable, "-m", "manycl", *WRITTEN.split()[1:]], place)
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


def test_there_are_examples() -> None:
    assert PYTHON
    assert len(COMMANDS) >= 6
    assert len(QUICK_START) == 2


def test_the_first_block_is_an_example() -> None:
    code = (ROOT / "manycl" / "examples" / "saxpy" / "saxpy.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    shown = PYTHON[0].replace('mc.Queue("cpu/2")  # or mc.Queue(): every', "mc.Queue()  # every")
    assert [line for line in code.splitlines() if line] == [line for line in shown.splitlines() if line]


@pytest.mark.parametrize("source", PYTHON)
def test_python(source: str, tmp_path: Path) -> None:
    done = run([sys.executable, "-W", "error", "-c", source], tmp_path)
    assert "makespan" in done.stdout
    assert (tmp_path / "saxpy.html").stat().st_size > 1000


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line: str, folder: Path) -> None:
    for part in line.split("&&"):
        program, *words = part.split()
        assert program == "manycl"
        done = run([sys.executable, "-m", "manycl", *words], folder)
        assert (done.stdout + done.stderr).strip()


def test_quick_start(tmp_path: Path) -> None:
    for words in QUICK_START:
        done = run([sys.executable, "-m", "manycl", *words.split()], tmp_path)
    assert "check against reference: equal" in done.stdout
    assert "check against one device: identical" in done.stdout
    assert "<html" in (tmp_path / "run.html").read_text(encoding="utf-8")
