"""OpenCL build options as the analysis sees them: macros, include folders and the language version; and whether files
that a text includes are as they were, in every branch of its conditions, as each device's compiler may take another."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from manycl.errors import ManyclError, OptionError

VERSIONS = ("CL1.0", "CL1.1", "CL1.2", "CL2.0", "CL3.0")
TOLERANT = tuple(
    f"-Wno-error={name}" for name in ("incompatible-pointer-types", "int-conversion", "parentheses", "implicit-int")
)
"""What newer compilers made errors of: drivers' own are older, and warn."""
_MACRO = re.compile(r"[A-Za-z_]\w*(\([\w\s,.]*\))?\Z")
_TAKES_VALUE = ("-D", "-U", "-I")
_FLAG = re.compile(
    r"(?P<own>-(Werror|g|w|cl-(denorms-are-zero|fast-relaxed-math|finite-math-only|fp32-correctly-rounded-divide-sqrt"
    r"|kernel-arg-info|mad-enable|no-signed-zeros|no-subgroup-ifp|opt-disable|single-precision-constant"
    r"|strict-aliasing|uniform-work-group-size|unsafe-math-optimizations))\Z)"  # OpenCL 3.0, section 5.8.6
    r"|-cl-(nv|intel|amd|arm|qcom|img|ext)-|-(W|f|O|m|g|x|save-temps|spir-std=|Xclang)"  # how drivers' begin
)
_HARMLESS = re.compile(
    r"-(Werror|W.*|g|w|cl-(denorms-are-zero|finite-math-only|fp32-correctly-rounded-divide-sqrt|kernel-arg-info"
    r"|no-signed-zeros|no-subgroup-ifp|opt-disable|strict-aliasing|uniform-work-group-size))\Z"
)


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """``macros``: (name, value) to define, or (name, None) to undefine, in order; ``folders``: absolute, of ``-I``."""

    macros: tuple[tuple[str, str | None], ...] = ()
    folders: tuple[str, ...] = ()
    version: str = ""  # CL1.2 and so on; empty: not asked for
    quiet: bool = False  # -w
    flags: frozenset[str] = field(default=frozenset())

    @property
    def loose(self) -> bool:
        """True if floating-point numbers may be off by more than OpenCL C allows without options, or of other types."""
        return not all(map(_HARMLESS.match, self.flags))


def read_options(options: Sequence[str]) -> BuildOptions:
    """Read build options, each an argument of its own (``-D``, ``N=4`` or ``-DN=4``). Options that only steer code
    generation are accepted and ignored, and those that only some drivers know are theirs to judge. Raises
    :class:`OptionError` for a macro that has no proper name, an unknown language version, an option without its value
    and an argument that is no option."""
    macros: list[tuple[str, str | None]] = []
    folders: list[str] = []
    flags: set[str] = set()
    version, quiet, loose = "", False, False
    pending = list(reversed(options))
    while pending:
        option = pending.pop().strip()
        letter = option[:2]
        if letter in _TAKES_VALUE:
            value = option[2:].strip()
            if not value:
                if not pending:
                    raise OptionError(f"the build option {option} lacks its value")
                value = pending.pop().strip()
            if letter == "-I":
                folders.append(os.path.abspath(value))
            else:
                macros.append(_macro(value, define=letter == "-D"))
        elif option.startswith("-cl-std="):
            version = option.removeprefix("-cl-std=").upper()
            if version not in VERSIONS:
                raise OptionError(
                    f"the analysis does not know the language version {option}",
                    hint=f"known versions: {', '.join(VERSIONS)}",
                )
        elif option == "-w":
            quiet = True
        elif option.startswith("-"):
            flags.add(option)
            if not _FLAG.match(option):
                raise OptionError(f"{option} is no build option")
            loose = not option.startswith(("-cl-", "-W", "-f"))  # of an unknown option a value may follow
            continue
        elif option and not loose:
            raise OptionError(f"{option!r} is no build option", hint="macros are given as -D NAME=VALUE")
        loose = False
    return BuildOptions(tuple(macros), tuple(folders), version, quiet, frozenset(flags))


def are_own(options: Sequence[str]) -> bool:
    """Return whether all of some options are OpenCL's own, which every driver knows."""
    return all(found["own"] for flag in read_options(options).flags if (found := _FLAG.match(flag)))


def _macro(text: str, *, define: bool) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not _MACRO.match(name) or "\n" in value or "\0" in value:
        raise OptionError(f"{text!r} defines no macro", hint="macros are given as -D NAME=VALUE")
    if not define:
        return name, None
    return name, value if equals else "1"


def remaining_options(options: Sequence[str], version: str) -> tuple[str, ...]:
    """The build options that still count for the expanded source: all but macros and include folders. A language
    version that was not asked for, other than the default 1.2, is added."""
    kept: list[str] = []
    pending = list(reversed(options))
    while pending:
        option = pending.pop().strip()
        if option[:2] in ("-D", "-U", "-I"):
            if len(option) == 2 and pending:
                pending.pop()
            continue
        kept.append(option)
    if version not in ("", "CL1.2") and not any(option.startswith("-cl-std=") for option in kept):
        kept.append(f"-cl-std={version}")
    return tuple(kept)


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
    """Return digests of the files on which the meaning of a text depends: those that it, and its options, may include,
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
    """Return the names of the files that a text includes; None where one has another form, such as a macro's name."""
    if _ANY.search(text) is None:
        return []
    bare = _COMMENT.sub(lambda match: match[1] or " ", _JOINED.sub("", text))
    if _ELSEWHERE.search(bare):
        return None
    names = [match[1] for match in _DIRECTIVE.finditer(bare)]
    return None if None in names else names
