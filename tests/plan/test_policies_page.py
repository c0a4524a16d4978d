"""The page about policies: its examples run, and it speaks of every policy and option there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from manycl.plan.policy import names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text()


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = names()
    monkeypatch.chdir(ROOT)
    space: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/policies.md", "exec"), space)
    makespans = space["makespans"]
    assert makespans.keys() == {*built_in, "least_loaded", "two_at_a_time", "round_robin"}
    assert all(seconds > 0 for seconds in makespans.values())
    assert makespans["auto"] <= makespans["in_order"]


def test_every_built_in_policy_has_its_part() -> None:
    assert set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == set(names())
