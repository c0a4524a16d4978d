"""What libclang has to say about a source: its diagnostics, in the user's own lines and columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from manycl.analysis.preprocess import Expanded
from manycl.errors import Diagnostic

FILE = "/manycl/program.cl"
"""The expanded text's name, in memory only."""
ERROR = 3  # libclang's severities: 2 warning, 3 error, 4 fatal
_SEVERITIES = {2: "warning", 3: "error", 4: "fatal error"}
_REPAIRS = 4  # rounds in which what is missing is put in, to find what is wrong behind it


def diagnostics(unit: Any, expanded: Expanded) -> list[Diagnostic]:
    rows = expanded.text.split("\n")
    return [_diagnostic(d, expanded, rows) for d in unit.diagnostics if d.severity in _SEVERITIES]


def _diagnostic(found: Any, expanded: Expanded, rows: list[str], moved: int = 0) -> Diagnostic:
    """With the place in the user's file, ``moved`` bytes before the compiler's column."""
    severity, location = _SEVERITIES[found.severity], found.location
    if location.file is None or location.file.name != FILE:
        return Diagnostic("<built in>", 0, 0, severity, found.spelling)
    index = min(max(location.line - 1, 0), len(expanded.lines) - 1)
    row = rows[index]
    before = row.encode()[: max(location.column - moved - 1, 0)].decode(errors="replace")
    path, line, column, own = expanded.place(index, len(before) + 1, row)
    return Diagnostic(path, line, column, severity, found.spelling, own)


def all_errors(unit: Any, expanded: Expanded, parse: Callable[[str], Any]) -> tuple[Diagnostic, ...]:
    """All errors: the compiler skips what stands behind something missing, so that is put in and asked again
    (``parse``: a text as the compiler sees it)."""
    rows = expanded.text.split("\n")
    texts = list(rows)
    added: dict[int, list[int]] = {}  # by row, the columns before which a byte was put in, in the user's text
    errors: dict[tuple[int, int, str], Diagnostic] = {}  # by place in the expanded text
    for _ in range(_REPAIRS):
        missing = []
        for found in unit.diagnostics:
            if found.severity < ERROR:
                continue
            place = found.location
            here = added.get(place.line - 1, [])
            moved = sum(column + i < place.column for i, column in enumerate(sorted(here)))
            error = _diagnostic(found, expanded, rows, moved)
            errors.setdefault((place.line if error.line else 0, error.column, error.text), error)
            missing += [fix for fix in found.fixits if _puts_in_one(fix)]
        if not missing or not expanded.text.isascii():
            break
        for fix in sorted(missing, key=lambda fix: -fix.range.start.column):
            row, column = fix.range.start.line - 1, fix.range.start.column
            here = added.setdefault(row, [])
            texts[row] = texts[row][: column - 1] + fix.value + texts[row][column - 1 :]
            here.append(column - sum(c + i < column for i, c in enumerate(sorted(here))))
        unit = parse("\n".join(texts))
    return tuple(errors[key] for key in sorted(errors))


def _puts_in_one(fix: Any) -> bool:
    """Whether a repair only puts in a character of punctuation."""
    start, end = fix.range.start, fix.range.end
    same = (start.line, start.column) == (end.line, end.column)
    return same and fix.value in (";", ")", "]", "}") and start.file is not None and start.file.name == FILE
