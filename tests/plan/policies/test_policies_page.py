"""The page about policies: its examples run, and it speaks of every policy and option there is."""

from __future__ import annotations

import re
from typing import Any

import pytest

from manycl.plan.policy import find, names
from tests import ROOT

PAGE = (ROOT / "docs" / "policies.md").read_text()


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = names()
    monkeypatch.chdir(ROOT / "manycl" / "examples" / "transformer")
    space: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(block, "docs/policies.md", "exec"), space)
    makespans = space["makespans"]
    assert makespans.keys() == {*built_in, "least_loaded", "two_at_a_time", "round_robin", "patient"}
    assert all(seconds > 0 for seconds in makespans.values())
    assert makespans["auto"] <= makespans["in_order"]


def test_every_built_in_policy_has_its_part() -> None:
    assert set(re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)) == set(names())


@pytest.mark.parametrize("name", names())
def test_every_option_is_named(name: str) -> None:
    part = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    options = find(name).options.names  # type: ignore[union-attr]
    assert [option for option in options if f"`{option}`" not in part] == []
    assert options or re.search(r"\bNo\s+options\.", part)
