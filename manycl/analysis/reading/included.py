"""Whether the files that a text includes are as they were: of every branch of its conditions, as each device's compiler
may take another."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from manycl.analysis.reading.options import read_options
from manycl.errors import ManyclError

_JOINED = re.compile(r"\\[ \t]*\r?\n")
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_DIRECTIVE = re.compile(
    r"^[ \t\v\f]*(?:#|%:)\s*(?:include(?:_next)?|import|embed)\b[ \t]*(?:[<\"]([^>\"\n]+)[>\"])?", re.M
)
_ELSEWHERE = re.compile(r"\?\?[/=]|__has_|__(?:DATE|TIME|TIMESTAMP)__")
_ANY = re.compile(r"include|import|embed|" + _ELSEWHERE.pattern)
MOST = 64
"""Files that are read; more count as unknown."""


def included(text: str, options: Sequence[str], folders: Iterable[str] = ()) -> tuple[str, ...] | None:
    """What decides, beside a text and its options, what it means: digests of the files that it, and they, may include,
    from the working directory, ``folders`` and those of the options. None: that cannot be told."""
    if any("-include" in option for option in options):
        return None
    if _ANY.search(text) is None:
        return ()
    try:
        places = [Path(p) for p in (os.getcwd(), *folders, *read_options(options).folders)]
    except (ManyclError, OSError):
        return None
    found: dict[Path, str] = {}
    todo = [(text, places[0])]
    while todo:
        words, here = todo.pop()
        names = _names(words)
        if names is None:
            return None
        for file in [place / name for name in names for place in (here, *places)]:
            if file in found or not file.is_file():
                continue
            try:
                data = file.read_bytes()
            except OSError:
                return None
            found[file] = hashlib.sha256(data).hexdigest()
            todo.append((data.decode(errors="replace"), file.parent))
        if len(found) > MOST:
            return None
    return tuple(sorted(f"{file} {digest}" for file, digest in found.items()))


def _names(text: str) -> list[str] | None:
    """Of the files in a text's directives; None where one has another form, such as a macro's name."""
    if _ANY.search(text) is None:
        return []
    bare = _COMMENT.sub(lambda match: match[1] or " ", _JOINED.sub("", text))
    if _ELSEWHERE.search(bare):
        return None
    names = [match[1] for match in _DIRECTIVE.finditer(bare)]
    return None if None in names else names
