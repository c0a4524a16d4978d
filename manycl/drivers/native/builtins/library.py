"""The functions of ``*.cl``, by name: definitions stand between blank lines, each with one name. A definition that
begins with a comment has it above its first line, without a blank line between."""

from __future__ import annotations

import functools
import re
from importlib.resources import files

_MACRO = re.compile(r"^#define (\w+)", re.MULTILINE)
_FUNCTION = re.compile(r"(\w+)\(")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)


@functools.cache
def _all() -> dict[str, str]:
    known: dict[str, str] = {}
    for file in sorted(files(__package__).iterdir(), key=lambda f: f.name):
        if not file.name.endswith(".cl"):
            continue
        for part in file.read_text(encoding="utf-8").split("\n\n"):
            text = _COMMENT.sub("", part).strip()
            match = _MACRO.search(text) or _FUNCTION.search(text)
            if match is None:
                continue
            name = match[1]
            assert name not in known, f"{file.name} defines {name} again"
            known[name] = text
    return known


def source(name: str) -> str | None:
    """The definition of a function, a macro or a constant of the library."""
    return _all().get(name)
