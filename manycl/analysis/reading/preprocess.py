"""Macro and include expansion by clang, so that what the parser sees has one text and plain byte extents. Macros of
OpenCL's header are defined as their own names: conditions know them, and the text keeps them, as each driver has its
own. Those whose values are numbers are replaced, as conditions may compare them."""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clang import cindex

from manycl import flags
from manycl.analysis.reading.options import BuildOptions
from manycl.errors import Diagnostic, SourceError
from manycl.utilities import limited

MAX_BYTES = 16 << 20  # of the expanded source
COMPUTING = 20  # seconds
_PRELUDE = "<manycl's header>"
_HIDDEN = (_PRELUDE, "<built-in>", "<command line>")
_OPTIONS = (
    *("-x", "cl", "-target", "spir64", "-Wno-everything", "-W#warnings"),
    *("-fno-diagnostics-show-option", "-fno-color-diagnostics", "-fno-caret-diagnostics"),
)
_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"((?: \d)*)')
_PRAGMA = re.compile(r"#pragma (?!OPENCL|STDC)")
_OWN_PRAGMA = re.compile(r"#pragma (?:(?:push|pop)_macro\b|once$|$)")
_SAID = re.compile(
    r"(?P<path>.*?):(?P<line>\d+):(?P<column>\d+): (?P<severity>fatal error|error|warning): (?P<text>.*)"
)
_RENUMBERED = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:line\b|\d)", re.M)
_NUMBER = re.compile(r"-?(?:0[xX][\da-fA-F]+|\d+)[uUlL]*")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|/\*.*?\*/|//.*|[\w.]+|\S')


@dataclass(frozen=True, slots=True)
class Expanded:
    """An expanded source. ``lines``: the (file, line) that each row of ``text`` came from. ``warnings``: those of
    ``#warning``. ``files``: the absolute paths of the files that it includes. ``own``: the rows of the source itself,
    none where it numbers its lines differently."""

    text: str
    lines: tuple[tuple[str, int], ...]
    warnings: tuple[Diagnostic, ...]
    files: tuple[str, ...] = ()
    path: str = ""
    own: tuple[str, ...] = ()

    def place(self, index: int, column: int, row: str) -> tuple[str, int, int, str]:
        """Return the file, line and column, and that line of the file, of a column (from 1) of a row. ``row`` is that
        of the text. Macro expansion moves what stands behind it: the column is that of the same token, counted from the
        line's beginning or end, or that of the macro."""
        path, line = self.lines[index]
        if path != self.path or not 0 < line <= len(self.own):
            return path, line, column, row
        own = self.own[line - 1]
        here, there = list(_TOKEN.finditer(row)), [t for t in _TOKEN.finditer(own) if t[0][:2] not in ("/*", "//")]
        number = sum(token.end() < column for token in here)  # of the token that the column is in
        if number >= len(here) or not there:
            return path, line, len(own.rstrip()) + 1 if there else 1, own
        same = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a[0] != b[0]), len(there))
        if number < same:
            within = column - 1 - here[number].start()
            return path, line, there[number].start() + within + 1, own
        after = number - len(here)
        if -after <= len(there) and all(a[0] == b[0] for a, b in zip(here[after:], there[after:], strict=True)):
            return path, line, there[after].start() + column - here[number].start(), own
        return path, line, there[min(same, len(there) - 1)].start() + 1, own


def expand(source: str, path: str, folder: str | None, options: BuildOptions, version: str) -> Expanded:
    """Expand ``source``, known to the user as ``path``; quoted includes are sought in ``folder`` first. ``version``: of
    the language, ``CL1.2``. Raises :class:`SourceError` with the problems that clang found."""
    quoted = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    given = f'# 1 "{_PRELUDE}"\n{_header(version)}# 1 "{quoted}"\n{source.removeprefix(chr(0xFEFF))}\n'
    words = [f"-I{include}" for include in options.folders]
    words += [f"-U{name}" if value is None else f"-D{name}={value}" for name, value in options.macros]
    if "-cl-fast-relaxed-math" in options.flags:
        words.append("-D__FAST_RELAXED_MATH__=1")
    output, said = _run(given, folder, version, *words)
    own = () if _RENUMBERED.search(source) else tuple(source.removeprefix("\ufeff").splitlines())
    expander = _Output(path, folder, own)
    problems = tuple(expander.problems(said))
    if any(problem.is_error for problem in problems):
        raise SourceError("the source cannot be preprocessed", tuple(p for p in problems if p.is_error))
    if _PRAGMA.search(output):  # with Microsoft's extensions, clang expands what stands in pragmas
        others = _run(given, folder, version, *words, "-fms-extensions")[0].split("\n")
        rows = output.split("\n")
        if len(rows) == len(others):
            output = "\n".join(b if _PRAGMA.match(a) else a for a, b in zip(rows, others, strict=True))
    return expander.read(output, problems)


class _Output:
    """Reads what clang has written about a source."""

    def __init__(self, path: str, folder: str | None, own: tuple[str, ...]) -> None:
        self.path, self.folder, self.own = path, folder, own

    def problems(self, said: str) -> Iterator[Diagnostic]:
        for found in map(_SAID.fullmatch, said.splitlines()):
            if found is not None:
                path, line = self.shown(found["path"]), int(found["line"])
                row = self.own[line - 1] if path == self.path and 0 < line <= len(self.own) else ""
                before = row.encode()[: int(found["column"]) - 1].decode(errors="replace")
                severity, text = found["severity"].removeprefix("fatal "), found["text"]
                if text.startswith("#include nested too deeply"):
                    text = "#include is nested too deeply (does a file include itself?)"
                text = text if len(text) <= 300 else text[:300] + " ..."
                yield Diagnostic(path, line, len(before) + 1 if row else int(found["column"]), severity, text, row)

    def shown(self, path: str) -> str:
        """An included file as the user would name it: relative to the including file where it lies below it."""
        if path == self.path or self.folder is None or path.startswith("<"):
            return path
        relative = os.path.relpath(os.path.join(self.folder, path), self.folder)
        return path if relative.startswith("..") else os.path.join(os.path.dirname(self.path), relative)

    def read(self, output: str, problems: tuple[Diagnostic, ...]) -> Expanded:
        parts: list[str] = []
        lines: list[tuple[str, int]] = []
        files: list[str] = []
        here, line = _PRELUDE, 0
        for row in output.split("\n"):
            marker = _MARKER.fullmatch(row) if row.startswith("# ") else None
            if marker is not None:
                name = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], marker[2])
                if marker[3].startswith(" 1") and name not in ("<built-in>", "<command line>"):
                    files.append(os.path.abspath(os.path.join(self.folder or "", name)))
                here, number = self.shown(name), int(marker[1])
                if lines and lines[-1][0] == here and 0 < number - line < 100:
                    parts.extend([""] * (number - line))
                    lines.extend((here, line + i) for i in range(number - line))
                line = number
                continue
            if here not in _HIDDEN or here == self.path:
                parts.append("" if _OWN_PRAGMA.match(row) else row)
                lines.append((here, line))
            line += 1
        while len(parts) > 1 and not parts[-1] and not parts[-2]:
            parts.pop()
            lines.pop()
        return Expanded(
            "\n".join(parts), tuple(lines) or ((self.path, 1),), problems, tuple(files), self.path, self.own
        )


@functools.cache
def _header(version: str) -> str:
    """Definitions of the macros of OpenCL's header, by names or numbers, and of the version of the device."""
    include = cindex.Config.resource_dir or ""
    own, with_header = (
        dict(re.findall(r"^#define (\w+(?:\([^)]*\))?) ?(.*)$", _run("", None, version, "-dM", *words)[0], re.M))
        for words in ((), ("-Xclang", "-finclude-default-header", f"-I{include}/include"))
    )
    rows = [f"#define __OPENCL_VERSION__ {version[2]}{version[4]}0"]
    for name, value in with_header.items():
        if name not in own:
            rows.append(f"#define {name} {value if _NUMBER.fullmatch(value) and name[:3] != 'CLK' else name}")
    return "".join(f"{row}\n" for row in rows)


def _run(given: str, folder: str | None, version: str, *words: str) -> tuple[str, str]:
    """Return what clang makes of a text in a folder, and what it says. Raises SourceError where it does not end."""
    wheel = limited.wheel()
    clang = (str(wheel), "clang") if wheel is not None else (flags.clang() or "clang",)
    command = (*clang, *_OPTIONS, f"-cl-std={version}", "-cl-no-stdinc", *words, "-E", "-")
    place = Path(folder) if folder is not None and os.path.isdir(folder) else Path(tempfile.gettempdir())
    done = limited.run(command, given=given.encode(), folder=place, computing=COMPUTING, output=MAX_BYTES)
    if done.trouble and not _SAID.search(done.log):
        said = f"the source cannot be preprocessed: {done.trouble}\n{done.log[:1000]}".rstrip()
        hint = "" if "started" in done.trouble else "do its macros explode, or does it include what is no file?"
        raise SourceError(said, hint=hint)
    return done.output.decode(errors="replace"), done.log
