"""Functions of integers (OpenCL C 3.0, section 6.15.3), exact."""

from __future__ import annotations

from manycl.drivers.native.builtins.rows import Row
from manycl.drivers.native.builtins.types import INTEGERS, Scalar

_WIDER = {8: "int", 16: "int", 32: "long", 64: "__int128"}


def _each(body: str, types: tuple[Scalar, ...] = INTEGERS) -> dict[str, str]:
    """``$W``: a type in which all products fit, of the same sign."""
    wider = {s.name: ("" if s.signed else "unsigned ") + _WIDER[s.bits] for s in types}
    return {s.name: body.replace("$W", wider[s.name]) for s in types}


def _by_sign(signed: str, unsigned: str) -> dict[str, str]:
    return {s.name: signed if s.signed else unsigned for s in INTEGERS}


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
        Row("abs", "U", one, _by_sign("($U)(x < 0 ? ($U)0 - ($U)x : ($U)x)", "x")),
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
