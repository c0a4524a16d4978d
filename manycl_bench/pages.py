"""What experiments leave behind: their figures as JSON, and a page of them in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def write(folder: Path, name: str, figures: Mapping[str, Any], page: Iterable[str] = ()) -> None:
    """``name.json``, and the lines of a page as ``name.md`` where there are any, in a folder made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(_json(figures) + "\n", encoding="utf-8")
    text = render(page)
    if text:
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


def render(page: Iterable[str]) -> str:
    """The text of a page."""
    text = "\n".join(page).rstrip("\n")
    return text + "\n" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table, and an empty one behind it."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def _json(value: Any, indent: int = 0) -> str:
    """JSON to be read and compared: a line for each key, and lists of numbers or words in one line."""
    inner = " " * (indent + 1)
    if isinstance(value, Mapping) and value:
        items = [f"{inner}{json.dumps(str(k))}: {_json(v, indent + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{' ' * indent}}}"
    several = isinstance(value, Sequence) and not isinstance(value, str)
    if several and any(isinstance(v, Mapping | Sequence) and not isinstance(v, str) for v in value):
        items = [f"{inner}{_json(v, indent + 1)}" for v in value]
        return "[\n" + ",\n".join(items) + f"\n{' ' * indent}]"
    return json.dumps(value)
