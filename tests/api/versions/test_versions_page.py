"""The examples of docs/versions.md do what the page says."""

from __future__ import annotations

import re

from tests import ROOT

PAGE = ROOT / "docs" / "versions.md"


def test_the_matrix_product_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (whole,) = [block for block in blocks if "import manycl" in block]
    names: dict[str, object] = {}
    try:
        exec(compile(whole, str(PAGE), "exec"), names)
    finally:
        if "queue" in names:
            names["queue"].close()  # type: ignore[attr-defined]
