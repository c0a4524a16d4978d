"""Each page for newcomers runs as it says, word for word."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.people.pages import plain, play

DOCS = ROOT / "docs"
PAGES = sorted([DOCS / "ten_minutes.md", *(DOCS / "tutorials").glob("*.md"), *(DOCS / "howto").glob("*.md")])
TASKS = {
    "the port of a PyOpenCL program": DOCS / "tutorials" / "from_pyopencl.md",
    "a study of policies": DOCS / "tutorials" / "policies.md",
    "my kernel crashes": DOCS / "howto" / "memory_faults.md",
}
"""Tasks of newcomers; the quick start is the README's (tests/test_readme.py), and the notebook is ten_minutes.md."""
needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the pages divide a processor")


@needs_two_cores
@pytest.mark.parametrize("page", [p for p in PAGES if p.stem != "index"], ids=lambda p: p.stem)
def test_a_page_runs_as_it_says(page: Path, tmp_path: Path) -> None:
    played = play(page, tmp_path)
    assert played or not re.search(r"^```(?:python|sh)$", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_its_page(task: str) -> None:
    text = TASKS[task].read_text(encoding="utf-8")
    assert len(re.findall(r"^```(?:python|sh)$", text, re.MULTILINE)) >= 3
    assert "```text" in text  # what it prints is shown, and compared


def test_what_is_shown_is_compared(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint('3 of 4 ms')\n```\n\n```text\n5 of 6 s\n```\n")
    with pytest.raises(AssertionError, match="shows what is not printed"):
        play(page, tmp_path)
    assert plain("cpu0.1   12.5 %  ###") == plain("cpu0.1 3 % #")


def test_what_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nfalse\n```\n")
    with pytest.raises(AssertionError):
        play(page, tmp_path)
