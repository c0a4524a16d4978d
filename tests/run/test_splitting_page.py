"""The example of docs/splitting.md runs."""

from __future__ import annotations

import re

from tests import ROOT

PAGE = ROOT / "docs" / "splitting.md"


def test_the_example_of_the_page() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(code, str(PAGE), "exec"), {})
