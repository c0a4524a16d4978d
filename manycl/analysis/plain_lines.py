"""Lines in which a preprocessor has nothing to do, kept from it: on them it would take as long as the parser does.

A name stands for each of them while macros are expanded; afterwards they are put back. A line is plain when it mentions
no macro of any name that the source defines, and stands neither in a macro's arguments nor in a directive. Where a
source leaves any doubt (it includes others, parentheses do not balance between directives), nothing is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_DOUBT = re.compile(
    r"[\r\f\v]|%:|\?\?|\\[\"']|//[^\n]*\\\n|_Pragma|manycl_plain|__(?:LINE|FILE|DATE|TIME|COUNTER|BASE_FILE|INCLUDE_LEVEL)__"
)
_COMMENT = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
_NOT_BLANK = re.compile(r"[^\n]")
_NAME = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"\s*#\s*define\b")
_DEFINED = re.compile(r"\s*#\s*define\s+([A-Za-z_]\w*)(?![\w\\])")
_HARMLESS = re.compile(r"\s*#\s*(?:define|undef|if|ifdef|ifndef|elif|else|endif|pragma|error|warning)\b")
_STANDS_FOR = re.compile(r"[ \t]*manycl_plain_(\d+)[ \t]*")


@dataclass(frozen=True, slots=True)
class Shortened:
    """``text`` is the source with a name for each plain line, and blanks for comments; ``rows`` are all its lines
    without comments. ``is_all``: nothing is left but names."""

    text: str
    rows: list[str]
    is_all: bool

    def restore(self, text: str) -> str | None:
        """The expanded text with the plain lines back in place; None where the preprocessor has not left their names
        on lines of their own."""
        rows = text.split("\n")
        for number, row in enumerate(rows):
            if "manycl_plain_" in row:
                found = _STANDS_FOR.fullmatch(row)
                if found is None:
                    return None
                rows[number] = self.rows[int(found.group(1))]
        return "\n".join(rows)


def without_comments(source: str) -> str | None:
    """The source with blanks for its comments; None where it is not certain what is one."""
    text = _COMMENT.sub(_blank, source)
    return None if "/*" in text or "*/" in text else text


def shorten(source: str, macros: Collection[str]) -> Shortened | None:
    """Take the plain lines out of a source; ``macros`` are the names that are defined before it begins."""
    if _DOUBT.search(source) or (text := without_comments(source)) is None:
        return None
    rows = text.split("\n")
    definitions = [_DEFINED.match(row) for row in rows if _DEFINE.match(row)]
    if not all(definitions):  # a name may go on behind a backslash
        return None
    plain = _plain_rows(rows, {*macros, *(found.group(1) for found in definitions if found)})
    if plain is None:
        return None
    text = "\n".join(
        f"manycl_plain_{number}" if plain[number] and row.strip() else row for number, row in enumerate(rows)
    )
    return Shortened(text, rows, all(plain))


def _plain_rows(rows: list[str], names: set[str]) -> list[bool] | None:
    """Which rows are plain; None where parentheses are open at a directive, or for a directive like an include.

    Rows from where parentheses open to where they are closed again are plain together or not at all.
    """
    plain = [False] * len(rows)
    depth, directive, first, clean = 0, False, 0, True
    for number, row in enumerate(rows):
        if directive or "#" in row:
            if not directive and not (_HARMLESS.match(row) and depth == 0):
                return None
            depth += row.count("(") - row.count(")")
            directive = row.endswith("\\")
            if not directive and depth != 0:
                return None
            continue
        if depth == 0:
            first, clean = number, not row.lstrip().startswith("(")  # which makes a call of a macro's name before it
        clean = clean and not any(mark in row for mark in "\\'\"") and names.isdisjoint(_NAME.findall(row))
        depth += row.count("(") - row.count(")")
        if depth < 0:
            return None
        if depth == 0 and clean:
            plain[first : number + 1] = [True] * (number + 1 - first)
    return plain


def _blank(match: re.Match[str]) -> str:
    words = match.group()
    return _NOT_BLANK.sub(" ", words) if words.startswith("/") else words
