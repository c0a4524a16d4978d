"""Built-in functions that treat each element of vectors alike: mathematical, integer, common and relational ones. A row
of a table says what a function has, and what it is of one element; overloads follow: for scalars, for vectors of each
width, and those of which some parameters are scalars for all elements."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from manycl.drivers.native.builtins.mathematical import MATHEMATICAL
from manycl.drivers.native.builtins.rows import Row
from manycl.drivers.native.builtins.types import INTEGERS, SCALARS, Scalar, named, numbered, spread

_WIDER = {8: "int", 16: "int", 32: "long", 64: "__int128"}


def _each(body: str, types: tuple[Scalar, ...] = INTEGERS) -> dict[str, str]:
    """``$W``: a type in which all products fit, of the same sign."""
    wider = {s.name: ("" if s.signed else "unsigned ") + _WIDER[s.bits] for s in types}
    return {s.name: body.replace("$W", wider[s.name]) for s in types}


def _bits() -> list[Row]:
    leading, trailing, count = {}, {}, {}
    for s in INTEGERS:
        call = "l" if s.bits == 64 else ""
        kind = "ulong" if s.bits == 64 else "uint"
        value = f"({kind})({s.unsigned})x"
        less = f" - {32 - s.bits}" if s.bits < 32 else ""
        leading[s.name] = f"x == 0 ? {s.bits} : ($T)(__builtin_clz{call}({value}){less})"
        trailing[s.name] = f"x == 0 ? {s.bits} : ($T)__builtin_ctz{call}({value})"
        count[s.name] = f"($T)__builtin_popcount{call}({value})"
    rows = [("clz", leading), ("ctz", trailing), ("popcount", count)]
    return [Row(name, "T", ("T",), bodies) for name, bodies in rows]


def _upsample() -> list[Row]:
    wider = {"char": "short", "short": "int", "int": "long"}
    rows = []
    for name, to in wider.items():
        for sign in ("", "u"):
            bits = {"char": 8, "short": 16, "int": 32}[name]
            body = f"(({sign}{to})(((u{to})x << {bits}) | y))"
            rows.append(Row("upsample", f"{sign}{to}", (f"{sign}{name}", f"u{name}"), {f"{sign}{name}": body}))
    return rows


def _made() -> list[Row]:
    one, two, three = ("T",), ("T", "T"), ("T", "T", "T")
    middle = tuple(s for s in INTEGERS if s.bits == 32)
    saturated = "$W r = ($W)x * ($W)y + ($W)z; return r > ($W)$HIGH ? $HIGH : r < ($W)$LOW ? $LOW : ($T)r;"
    less = "x > y ? ($U)(($U)x - ($U)y) : ($U)(($U)y - ($U)x)"
    turn = "($T)((($U)x << (($U)y & ($B - 1))) | (($U)x >> ((($U)0 - ($U)y) & ($B - 1))))"
    rows = [
        Row("abs", "U", one, {s.name: "($U)(x < 0 ? ($U)0 - ($U)x : ($U)x)" if s.signed else "x" for s in INTEGERS}),
        Row("abs_diff", "U", two, _each(less)),
        Row("add_sat", "T", two, _each("__builtin_elementwise_add_sat(x, y)")),
        Row("sub_sat", "T", two, _each("__builtin_elementwise_sub_sat(x, y)")),
        Row("hadd", "T", two, _each("($T)((x >> 1) + (y >> 1) + (x & y & 1))")),
        Row("rhadd", "T", two, _each("($T)((x >> 1) + (y >> 1) + ((x | y) & 1))")),
        Row("max", "T", two, _each("x < y ? y : x")),
        Row("min", "T", two, _each("y < x ? y : x")),
        Row("max", "T", ("T", "t"), _each(""), only_vectors=True),
        Row("min", "T", ("T", "t"), _each(""), only_vectors=True),
        Row("clamp", "T", three, _each("x < y ? y : x > z ? z : x")),
        Row("clamp", "T", ("T", "t", "t"), _each(""), only_vectors=True),
        Row("mul_hi", "T", two, _each("($T)((($W)x * ($W)y) >> $B)")),
        Row("mad_hi", "T", three, _each("($T)(($U)((($W)x * ($W)y) >> $B) + ($U)z)")),
        Row("mad_sat", "T", three, _each(saturated)),
        Row("mul24", "T", two, _each("($T)(($U)x * ($U)y)", middle)),
        Row("mad24", "T", three, _each("($T)(($U)x * ($U)y + ($U)z)", middle)),
        Row("rotate", "T", two, _each(turn)),
    ]
    return rows + _bits() + _upsample()


INTEGER = tuple(_made())


_RESULTS = "xyzw"


class _ParameterKind(NamedTuple):
    """A type in a row: the scalar's name, and whether all elements share one, or it is a pointer."""

    scalar: str
    shared: bool = False
    pointer: bool = False


@functools.cache
def _rows() -> dict[str, list[Row]]:
    known: dict[str, list[Row]] = {}
    for row in (*MATHEMATICAL, *INTEGER):
        known.setdefault(row.name, []).append(row)
    return known


def source(name: str, widths: Sequence[int]) -> str | None:
    """Return all overloads of a function, for scalars and for vectors of these widths."""
    rows = _rows().get(name)
    if rows is None:
        return None
    parts = []
    for row in rows:
        for scalar in row.types:
            parts += _overloads(row, SCALARS[scalar], widths)
    return "\n".join(parts)


def _overloads(row: Row, of: Scalar, widths: Sequence[int]) -> list[str]:
    result = _kind(row.result, of)
    given = [_kind(code, of) for code in row.parameters]
    names = _RESULTS[: len(given)]
    parts = []
    if not row.only_vectors:
        listed = ", ".join(_declared(kind, name, 1) for kind, name in zip(given, names, strict=True))
        words = {"T": of.name, "U": of.unsigned, "B": str(of.bits), "LOW": of.lowest, "HIGH": of.highest}
        body = _filled(row.bodies[of.name], words)
        parts.append(f"BUILTIN {result.scalar} {row.name}({listed}) {{ {body} }}")
    result = _kind(row.result, of, vector=True)
    return parts + [_of_vectors(row, result, given, width) for width in widths]


def _of_vectors(row: Row, result: _ParameterKind, given: list[_ParameterKind], width: int) -> str:
    names = _RESULTS[: len(given)]
    listed = ", ".join(_declared(kind, name, width) for kind, name in zip(given, names, strict=True))
    head = f"BUILTIN {named(result.scalar, width)} {row.name}({listed})"
    pointers = [(kind, name) for kind, name in zip(given, names, strict=True) if kind.pointer]
    if not pointers:
        one = ", ".join(name if kind.shared else f"{name}.s@" for kind, name in zip(given, names, strict=True))
        call = f"{row.name}({one})"
        if row.relational:  # true is -1 in vectors
            call = f"-{call}"
        return f"{head} {{ return {spread(result.scalar, width, call)}; }}"
    (kind, put), *_ = pointers
    values = ", ".join(f"&{put}_[@]" if name == put else f"{name}.s@" for name in names)
    calls = numbered(spread(result.scalar, width, f"{row.name}({values})"))
    stored = numbered(spread(kind.scalar, width, f"{put}_[@]"))
    shape = named(result.scalar, width)
    return f"{head} {{ {kind.scalar} {put}_[{width}]; {shape} r_ = {calls}; *{put} = {stored}; return r_; }}"


def _kind(code: str, of: Scalar, *, vector: bool = False) -> _ParameterKind:
    """T: the type itself; t: one for all elements; I, i: the same for int; U: the unsigned integer of its size; R: what
    relations result in; other words are types' names. With * a pointer to it."""
    pointer = code.endswith("*")
    word = code.removesuffix("*")
    kinds = {"T": of.name, "t": of.name, "I": "int", "i": "int", "U": of.unsigned}
    kinds["R"] = of.unsigned.removeprefix("u") if vector else "int"
    return _ParameterKind(kinds.get(word, word), word in ("t", "i"), pointer)


def _declared(kind: _ParameterKind, name: str, width: int) -> str:
    word = kind.scalar if kind.shared else named(kind.scalar, width)
    return f"{word} {'*' if kind.pointer else ''}{name}"


def _filled(body: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        body = body.replace(f"${word}", value)
    return body if body.endswith((";", "}")) else f"return {body};"
