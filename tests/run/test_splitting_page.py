"""The examples of docs/splitting.md run."""

from __future__ import annotations

import re

from tests import ROOT

PAGE = ROOT / "docs" / "splitting.md"


def test_the_examples_of_the_page() -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    for code in examples:
        exec(compile(code, str(PAGE), "exec"), names)
    assert len(examples) == 2
