"""Tables: in Markdown for pages, and as text for terminals and pipes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table, and an empty one behind it."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def text_table(rows: Sequence[Mapping[str, Any]], *, keys: int = 1, width: int = 80) -> Iterator[str]:
    """The lines of a table as text, whole words and numbers in lines of so many characters: where there are too many
    columns, the others follow below, behind the first ``keys`` again. A cell that is longer than a line makes a longer
    line. All rows have the same keys; a column is named by its key, with spaces for underscores."""
    columns = [_column(key, [row[key] for row in rows]) for key in (rows[0] if rows else ())]
    first, rest = columns[:keys], columns[keys:]
    room = width - sum(_width(c) + 2 for c in first)
    while rest or first:
        taken = max(1, _fitting(rest, room))
        yield from _block([*first, *rest[:taken]])
        rest = rest[taken:]
        if not rest:
            break
        yield ""


_Column = tuple[list[str], list[str]]
"""The lines of its name, and its cells."""


def _column(key: str, values: Sequence[Any]) -> _Column:
    cells = [f"{v:.2f}" if isinstance(v, float) else "-" if v is None else str(v) for v in values]
    name = key.replace("_", " ")
    widest = max([len(word) for word in name.split()] + [len(c) for c in cells], default=1)
    return textwrap.wrap(name, max(widest, 1), break_long_words=False) or [""], cells


def _width(column: _Column) -> int:
    return max(len(text) for text in (*column[0], *column[1]))


def _fitting(columns: Sequence[_Column], room: int) -> int:
    """How many of the columns fit beside each other."""
    for count, column in enumerate(columns):
        room -= _width(column) + (2 if count else 0)
        if room < 0:
            return count
    return len(columns)


def _block(columns: Sequence[_Column]) -> Iterator[str]:
    widths = [_width(c) for c in columns]
    height = max(len(name) for name, _ in columns)
    lines = [
        [""] * (height - len(name)) + [*name, "-" * w, *cells] for (name, cells), w in zip(columns, widths, strict=True)
    ]
    for cells in zip(*lines, strict=True):
        yield "  ".join(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)).rstrip()
