"""docs/analysis.md: its examples print what it shows, and it speaks of every key of the JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from tests import ROOT

PAGE = (ROOT / "docs" / "analysis.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```console\n\$ manycl (.*?)\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize(("words", "shown"), EXAMPLES)
def test_an_example_prints_what_the_page_shows(
    words: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    assert main(["examples", "transformer"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    assert main(words.split()) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()] == shown.splitlines()


def keys(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if isinstance(value, dict):
        named = {"scalars", "merges", "unknowns", "operations"}  # their keys are names of the kernel's
        return set(value).union(*(keys(v) for k, v in value.items() if k not in named))
    return set()


def test_every_key_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(ROOT / "manycl" / "examples" / "transformer" / "transformer.cl")
    words = [
        path,
        "gemm",
        *["--global", "32,32", "--local", "8,8", "--arg", "m=32", "--arg", "n=32", "--arg", "k=32", "--json"],
    ]
    assert main(["analyze", *words]) == 0
    told = set(re.findall(r"`(\w+)`", PAGE))
    assert keys(json.loads(capsys.readouterr().out)) <= told
