"""What experiments leave behind: their figures as JSON, and a page of them in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table, and an empty one behind it."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def write(folder: Path, name: str, figures: Mapping[str, Any], page: Iterable[str] = ()) -> None:
    """``name.json``, and the lines of a page as ``name.md`` where there are any, in a folder made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(page).rstrip("\n")
    if text:
        (folder / f"{name}.md").write_text(text + "\n", encoding="utf-8")
