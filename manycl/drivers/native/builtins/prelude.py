"""The prelude of a program: the definitions of the built-in functions that it calls."""

from __future__ import annotations

import functools
import re

from manycl.drivers.native.builtins import constants, conversions, elementwise, library, memory, vectors
from manycl.drivers.native.builtins.types import WIDTHS

_WORD = re.compile(r"\b[A-Za-z_]\w*\s*\(?")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
_VECTOR = re.compile(r"(?:char|short|int|long|float|double|half|load|store)(?:a?_half)?(2|3|4|8|16)(?![0-9])")
_ANY_WIDTH = re.compile(r"vector_type|vector_size|##|read_image|write_image")
_CONSTANT = re.compile(
    r"(?<![\w.])(?:0x[0-9a-f]*\.?[0-9a-f]*p[+-]?\d+|\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)(?![\w.])", re.I
)
_BEFORE = """#line 1 "built-in functions"
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define BUILTIN static inline __attribute__((overloadable, always_inline))
#define PURE static inline __attribute__((always_inline))
"""


def prelude(text: str, defined: frozenset[str] = frozenset(), *, single: bool = False) -> str:
    """The definitions of all built-in functions, types and constants that a text names, but for those in ``defined``. A
    function is one that is called, or whose name is in a macro. ``single``: for a compiler that takes floating-point
    constants without suffix for floats."""
    plain = _COMMENT.sub(" ", text)
    widths = _widths(plain)
    called, named = _words(plain)
    for macro in _MACRO.findall(plain):
        called |= set(re.findall(r"[A-Za-z_]\w*", macro))
    parts: list[str] = []
    seen = set(defined)

    def need(called: set[str], named: set[str]) -> None:
        for name in sorted(called | named):
            if name in seen:
                continue
            ours = name in called or name.startswith("MANYCL_")
            body = constants.source(name) or (_function(name, widths) if ours else None)
            if body is None:
                continue
            seen.add(name)
            need(*_words(body))
            parts.append(body)

    need(called, named)
    whole = "\n".join(parts)
    return f"{_BEFORE}{_as_bits(whole) if single else whole}\n"


def source(name: str) -> str | None:
    """The definition of a function, a type or a constant, with all its overloads; None for what is none."""
    return constants.source(name) or _function(name, WIDTHS)


@functools.lru_cache(maxsize=4096)
def _function(name: str, widths: tuple[int, ...]) -> str | None:
    for source in (elementwise.source, vectors.source, conversions.source, memory.source):
        found = source(name, widths)
        if found is not None:
            return found
    return library.source(name)


def _widths(text: str) -> tuple[int, ...]:
    """The widths of vectors that a text may have: parts of vectors are no wider than these."""
    if _ANY_WIDTH.search(text):
        return WIDTHS
    most = max((int(width) for width in _VECTOR.findall(text)), default=1)
    return tuple(width for width in WIDTHS if width <= most)


def _words(text: str) -> tuple[set[str], set[str]]:
    """Return the names in a text that are called, or may be, and all other names."""
    found = set(_WORD.findall(text))
    called = {word[:-1].rstrip() for word in found if word[-1] == "("}
    return called, {word.rstrip() for word in found if word[-1] != "("}


def _as_bits(text: str) -> str:
    """Return a text with constants of type double written as their bits."""

    def bits(match: re.Match[str]) -> str:
        word = match[0]
        value = float.fromhex(word) if word[:2].lower() == "0x" else float(word)
        import struct

        return f"__builtin_astype({struct.unpack('<Q', struct.pack('<d', value))[0]:#x}UL, double)"

    return _CONSTANT.sub(bits, text)
