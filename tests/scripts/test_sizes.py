"""A plain install stays small, and consists of what the package imports without an extra's word."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache

import pytest

from tests import ROOT

SIZES = ROOT / "scripts" / "sizes"


@cache
def run(*words: str, **changes: int) -> subprocess.CompletedProcess[str]:
    """The script, with some of its limits changed."""
    text = SIZES.read_text(encoding="utf-8")
    for name, value in changes.items():
        text, count = re.subn(rf"(?m)^(.*)\b{name}\b(.*?) = (.*)$", rf"\g<0>\n{name} = {value}", text, count=1)
        assert count
    code = f"import sys; sys.path.insert(0, {str(SIZES.parent)!r}); sys.argv[1:] = {[*words]!r}\n{text}"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_a_plain_install_is_small() -> None:
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"([\d.]+) MB  installed", done.stdout)
    assert found is not None
    assert 300 < float(found[1]) <= 800  # compilers and a driver are in it: less would mean that nothing was counted


@pytest.mark.parametrize("name", ["matplotlib", "ortools", "pillow", "fonttools", "pandas", "pytest"])
def test_what_extras_need_is_none_of_it(name: str) -> None:
    assert name not in run().stdout


def test_too_large_an_install_is_told() -> None:
    done = run(MOST_INSTALLED=100)
    assert done.returncode != 0
    assert "too large" in done.stderr
