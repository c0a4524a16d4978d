"""Macro and include expansion with pcpp, so that what the parser sees has one text and plain byte extents.

Positions: whitespace is kept as it stands (comments become blanks), so a line without macros keeps its
columns; the table of lines maps each line of the result to the user's file.
"""

from __future__ import annotations

import os
import re
import stat
import types
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import IO, Any

import pcpp
from pcpp import parser as pcpp_parser
from pcpp.ply.ply import lex

from manycl.analysis.options import BuildOptions
from manycl.analysis.plain_lines import shorten
from manycl.errors import Diagnostic, SourceError

MAX_DEPTH = 200  # nested includes, as in clang
MAX_FILES = 2000
MAX_BYTES = 16 << 20  # of one include file and of the whole result


@dataclass(frozen=True, slots=True)
class Expanded:
    """The expanded source, the (file, line) that each of its lines came from, ``#warning`` messages, and the files that
    it includes."""

    text: str
    lines: tuple[tuple[str, int], ...]
    warnings: tuple[Diagnostic, ...]
    files: tuple[str, ...] = ()


_NUMBER = r"(0[xX][\da-fA-F]*\.?[\da-fA-F]*[pP][+-]?\d+|(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+)[fFlLhH]?"


def _make_lexer() -> Any:
    """pcpp's lexer, but with C's whole syntax of floating constants (pcpp splits ``1.f``, ``.5f`` and
    ``0x1p3``, whose letters could then be taken for macros)."""
    rules = types.ModuleType("manycl_opencl_lexer")
    rules.__file__ = __file__
    names = ("tokens", "literals", "_string_literal_linecont_pat")
    for name, value in vars(pcpp_parser).items():
        if name.startswith("t_") or name in names:
            setattr(rules, name, value)

    def floating(token: Any) -> Any:
        return token

    floating.__doc__ = _NUMBER
    rules.t_CPP_FLOAT = floating  # type: ignore[attr-defined]
    # functions' rules are tried in the order of their lines: this one must come before that of integers
    floating.__code__ = floating.__code__.replace(co_firstlineno=1)
    return lex.lex(module=rules, optimize=True, lextab="", errorlog=lex.NullLogger())


class _Preprocessor(pcpp.Preprocessor):  # type: ignore[misc]
    def __init__(self, lexer: Any, header: Mapping[str, str], display: dict[str, str]) -> None:
        super().__init__(lexer)
        self.header = header
        self.display = display
        self.rewrite_paths: list[tuple[str, str]] = []
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.files: list[str] = []

    def shown(self, path: str | None) -> str:
        return self.display.get(path or "", path or "")

    def on_error(self, file: str, line: int, message: str) -> None:
        words = message if len(message) <= 300 else message[:300] + " ..."
        self.errors.append(Diagnostic(self.shown(file), line, 0, "error", words))

    def on_directive_handle(self, directive: Any, tokens: Any, passing: bool, before: Any) -> bool | None:
        if directive.value == "pragma" and not tokens:
            raise pcpp.OutputDirective(pcpp.Action.IgnoreAndRemove)
        result: bool | None = super().on_directive_handle(directive, tokens, passing, before)
        return result

    def include(self, tokens: Any, original_line: Any) -> Any:
        if not tokens:
            self.on_error(self.lastdirective.source, self.lastdirective.lineno, "#include without a file name")
        return super().include(tokens, original_line)

    def define(self, tokens: Any) -> None:
        if not isinstance(tokens, str) and tokens and tokens[0].type != self.t_ID:
            self.on_error(tokens[0].source, tokens[0].lineno, "macro name must be an identifier")
        super().define(tokens)

    def on_file_open(self, is_system_include: bool, path: str) -> IO[str]:
        self.files.append(os.path.abspath(path))
        if self.include_depth >= MAX_DEPTH or len(self.files) > MAX_FILES:
            here = self.lastdirective
            problem = f"#include of {path!r} is nested too deeply (does a file include itself?)"
            raise SourceError(
                "the source cannot be preprocessed",
                (Diagnostic(self.shown(here.source), here.lineno, 0, "error", problem),),
            )
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode) or info.st_size > MAX_BYTES:
            raise OSError(f"{path} is no ordinary source file")
        return open(path, encoding="utf-8-sig", errors="replace")

    def on_include_not_found(self, malformed: bool, system: bool, folder: str, path: str) -> None:
        here = self.lastdirective
        text = f"malformed #include: {path}" if malformed else f"'{path}' file not found"
        self.on_error(here.source, here.lineno, text)
        raise pcpp.OutputDirective(pcpp.Action.IgnoreAndRemove)

    def on_unknown_macro_in_defined_expr(self, token: Any) -> bool:
        return token.value in self.header

    def on_unknown_macro_in_expr(self, name: str) -> int:
        try:
            return int(self.header.get(name, "0"), 0)
        except ValueError:
            return 0

    def on_directive_unknown(self, directive: Any, tokens: Any, passing: bool, before: Any) -> bool | None:
        text = "".join(token.value for token in tokens).strip()
        if directive.value == "pragma":
            self.expand_pragma(tokens)
            return None  # passes through
        if directive.value == "warning":
            place = (self.shown(directive.source), directive.lineno, 0)
            self.warnings.append(Diagnostic(*place, "warning", f"#warning {text}"))
        elif directive.value == "error":
            self.on_error(directive.source, directive.lineno, f"#error {text}".strip())
        elif directive.value not in ("line", "ident", "sccs") and not directive.value.isdecimal():  # # 1 "file.cl" 2
            self.on_error(directive.source, directive.lineno, f"invalid directive #{directive.value}")
        return True

    def expand_pragma(self, tokens: list[Any]) -> None:
        """Expand the macros of a pragma in place, as compilers do but for those whose words are their own."""
        if not tokens or tokens[0].value in ("OPENCL", "STDC"):
            return
        expanded = "".join(token.value for token in self.expand_macros([copy(token) for token in tokens]))
        tokens[0].value = expanded
        for token in tokens[1:]:
            token.value = ""

    def on_comment(self, token: Any) -> bool:
        token.value = re.sub(r"[^\n]", " ", token.value)
        token.type = self.t_SPACE
        return True


class Expander:
    """Expands sources for one language version. ``predefined`` macros are replaced, those of ``header``
    (which the parser will see anyway) are only known to be defined."""

    def __init__(self, predefined: Mapping[str, str], header: Mapping[str, str]) -> None:
        self._lexer = _make_lexer()
        self._header = header
        first = _Preprocessor(self._lexer, {}, {})
        for name in ("__PCPP__",):
            first.undef(name)
        for name, value in predefined.items():
            first.define(f"{name} {value}")
        self._macros = first.macros

    def expand(self, source: str, path: str, folder: str | None, options: BuildOptions) -> Expanded:
        """Expand ``source``, known to the user as ``path``; quoted includes are sought in ``folder`` first.

        Raises :class:`SourceError` with every problem found.
        """
        macros = self._macros.keys() | {name.partition("(")[0] for name, _ in options.macros}
        shortened = shorten(source, macros)
        if shortened is None:
            return self._expand(source, path, folder, options)
        if shortened.is_all:
            places = tuple((path, number) for number in range(1, len(shortened.rows) + 1))
            return Expanded("\n".join(shortened.rows), places, ())
        short = self._expand(shortened.text, path, folder, options)
        text = shortened.restore(short.text)
        return self._expand(source, path, folder, options) if text is None else replace(short, text=text)

    def _expand(self, source: str, path: str, folder: str | None, options: BuildOptions) -> Expanded:
        display = {path: path}
        preprocessor = _Preprocessor(self._lexer, self._header, display)
        preprocessor.macros = dict(self._macros)
        for name, value in options.macros:
            if value is None:
                preprocessor.undef(name)
            else:
                preprocessor.define(f"{name} {value}")
        for include in options.folders:
            preprocessor.add_path(include)
        if folder is not None:
            preprocessor.temp_path.insert(0, folder)
        try:
            preprocessor.ignore = frozenset()
            preprocessor.parser = preprocessor.parsegen(source, path, path)
            expanded = _write(preprocessor, path, folder)
        except SourceError:
            raise
        except (MemoryError, KeyboardInterrupt):
            raise
        except RecursionError:
            raise SourceError(f"{path}: the macros of this source are nested too deeply") from None
        except Exception as error:  # pcpp meets malformed directives with exceptions of every kind
            here = getattr(preprocessor.lastdirective, "lineno", 0)
            words = "malformed directive"
            if not isinstance(error, IndexError):
                words = f"the preprocessor cannot read this ({type(error).__name__}: {error})"
            problem = Diagnostic(path, here, 0, "error", words)
            raise _refused([*preprocessor.errors, problem], source, path) from error
        if preprocessor.errors:
            raise _refused(preprocessor.errors, source, path)
        return expanded


def _refused(problems: list[Diagnostic], source: str, path: str) -> SourceError:
    rows = source.split("\n")
    own = (replace(p, source=rows[p.line - 1]) if p.path == path and p.line <= len(rows) else p for p in problems)
    return SourceError("the source cannot be preprocessed", tuple(own))


def _write(preprocessor: _Preprocessor, path: str, folder: str | None) -> Expanded:
    parts: list[str] = []
    lines: list[tuple[str, int]] = []
    names = dict(preprocessor.display)
    place: tuple[str, int] | None = None
    before: Any = None
    size = 0
    while (token := preprocessor.token()) is not None:
        value = token.value
        if not value or token.type in preprocessor.t_LINECONT:
            continue
        if value.isspace():
            before = None
        else:
            if before is not None and _would_join(before, token):
                parts.append(" ")
            before = token
            if place is None:
                source = token.source or path
                if source not in names:
                    names[source] = _display(source, path, folder)
                place = (names[source], token.lineno)
        parts.append(value)
        size += len(value)
        if size > MAX_BYTES:
            raise SourceError(f"{path}: the source is longer than {MAX_BYTES >> 20} MiB once its macros are expanded")
        if "\n" not in value:
            continue
        for offset in range(value.count("\n")):
            here = place or ((path, token.lineno) if not lines else (lines[-1][0], lines[-1][1]))
            lines.append((here[0], here[1] + offset) if place else here)
            place = None
    lines.append(place or (path, lines[-1][1] if lines else 1))
    return Expanded("".join(parts), tuple(lines), tuple(preprocessor.warnings), tuple(preprocessor.files))


def _display(source: str, path: str, folder: str | None) -> str:
    """An included file as the user would name it: relative to the including file where it lies below it."""
    if folder is None:
        return source
    relative = os.path.relpath(source, folder)
    return source if relative.startswith("..") else os.path.join(os.path.dirname(path), relative)


_WORD = re.compile(r"[\w.]")
_PUNCTUATION = frozenset("+-&|<>=*/#!%^:")


def _would_join(before: Any, token: Any) -> bool:
    """Whether writing the two tokens side by side could read as one (``-N`` with ``N`` being ``-1``)."""
    if before.source == token.source and before.lexpos + len(before.value) == token.lexpos:
        return False  # side by side in the source already
    last, first = before.value[-1], token.value[0]
    return bool(_WORD.match(last) and _WORD.match(first)) or (last in _PUNCTUATION and first in _PUNCTUATION)
