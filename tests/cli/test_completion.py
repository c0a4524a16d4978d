"""Completing command lines: what a shell is told, and what it gets for what somebody has typed."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from manycl import flags
from manycl.cli import completion, main
from manycl.machine_file import shipped_machines
from manycl.plan import policy
from tests import ROOT

ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("_ARC", "COMP_"))} | {"PYTHONPATH": str(ROOT)}


def completions(action: argparse.Action, prefix: str) -> list[str]:
    return list(action.completer(prefix=prefix, action=action, parser=None, parsed_args=None))  # type: ignore[attr-defined]


def test_names_that_go_on() -> None:
    action = argparse.ArgumentParser().add_argument("--x")
    completion.completed(action, lambda: ["alpha", "beta", "al"])
    assert completions(action, "al") == ["alpha", "al"]
    assert completions(action, "alpha,al") == []
    completion.completed(action, lambda: ["alpha", "beta", "al"], listed=True)
    assert completions(action, "beta,al") == ["beta,alpha", "beta,al"]

    def broken() -> list[str]:
        raise OSError("no devices today")

    completion.completed(action, broken)
    assert completions(action, "") == []


def test_the_names_are_those_that_there_are() -> None:
    assert {"all", "cpu", "cpu0"} <= set(completion.devices())
    assert list(completion.policies()) == list(policy.names())
    assert set(completion.machines()) == set(shipped_machines())


@pytest.mark.parametrize(
    ("line", "point", "seen", "chosen"),
    [
        ("manycl ru", 9, "manycl ru", None),
        ("manycl run ", 11, "manycl run ", "run"),
        ("manycl run app.json", 10, "manycl run", None),
        ("manycl --version plan x", 23, "manycl --version plan x", "plan"),
        ("manycl run ä x", 12, "manycl run ", "run"),  # in the middle of a letter
    ],
)
def test_what_has_been_typed(
    line: str, point: int, seen: str, chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert flags.completing() == ""
    for name, value in (("_ARGCOMPLETE", "1"), ("COMP_LINE", line), ("COMP_POINT", str(point))):
        monkeypatch.setenv(name, value)
    assert flags.completing() == seen
    assert completion.chosen() == chosen


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    assert main(["completion", "bash"]) == 2
    assert "pip install argcomplete" in capsys.readouterr().err


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_scripts_for_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "manycl" in script
    assert "_ARGCOMPLETE" in script


PRESSED = """
eval "$(manycl completion bash)"
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9 COMP_WORDS=($1) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_python_argcomplete manycl
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("manycl ru", ["run"]),
        ("manycl ex", ["examples", "exec"]),
        ("manycl examples t", ["transformer"]),
        ("manycl run app.json --policy h", ["heft", "hop"]),
        ("manycl run app.json --devices cpu0,al", ["cpu0,all"]),
        ("manycl plan app.json --machine c", ["conan", "cpu_pair"]),
        ("manycl analyze --glo", ["--global"]),
    ],
)
def test_in_bash(line: str, expected: list[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    bash = shutil.which("bash") or pytest.skip("no bash")
    program = tmp_path / "manycl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m manycl "$@"\n')
    program.chmod(0o755)
    environment = ENVIRONMENT | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "-c", PRESSED, "bash", line], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert [word.strip() for word in done.stdout.split("\n") if word.strip()] == expected
