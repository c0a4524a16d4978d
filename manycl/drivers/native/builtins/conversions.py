"""``convert_*`` and ``as_*`` (OpenCL C 3.0, section 6.4)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from manycl.drivers.native.builtins.types import SCALARS, Scalar, named, spread

_CONVERT = re.compile(r"convert_([a-z]+?)(2|3|4|8|16)?(_sat)?(_rte|_rtz|_rtp|_rtn)?")
_AS = re.compile(r"as_([a-z]+?)(2|3|4|8|16)?")
_ROUNDED = {"": "x", "_rtz": "x", "_rte": "__builtin_rint{f}(x)", "_rtp": "__builtin_ceil{f}(x)"}
_ROUNDED["_rtn"] = "__builtin_floor{f}(x)"


def source(name: str, widths: Sequence[int]) -> str | None:
    """A conversion from all types of its width; a vector's is made of its elements'."""
    del widths
    match = _AS.fullmatch(name)
    if match is not None and match[1] in SCALARS:
        kind = named(match[1], int(match[2] or 1))
        return f"#define {name}(x) __builtin_astype((x), {kind})"
    match = _CONVERT.fullmatch(name)
    if match is None or match[1] not in SCALARS:
        return None
    to, width, sat, mode = SCALARS[match[1]], int(match[2] or 1), match[3] or "", match[4] or ""
    if to.real and sat:
        return None
    if width > 1:
        call = f"convert_{to.name}{sat}{mode}(x.s@)"
        whole = spread(to.name, width, call)
        result = named(to.name, width)
        heads = [f"BUILTIN {result} {name}({named(kind, width)} x)" for kind in SCALARS]
        return "\n".join(f"{head} {{ return {whole}; }}" for head in heads)
    parts = [f"BUILTIN {to.name} {name}({of.name} x) {{ {_one(of, to, sat, mode)} }}" for of in SCALARS.values()]
    return "\n".join(parts)


def _one(of: Scalar, to: Scalar, sat: str, mode: str) -> str:
    if not to.real:
        return _to_integer(of, to, sat, mode)
    if of.real:
        if of.bits <= to.bits or mode in ("", "_rte"):
            return f"return ({to.name})x;"
        return f"return manycl_narrow(x, {({'_rtz': 0, '_rtp': 1, '_rtn': -1})[mode]});"
    exact = of.bits - of.signed <= (24 if to.bits == 32 else 53)
    if exact or mode in ("", "_rte"):
        return f"return ({to.name})x;"
    size = "(unsigned long)(x < 0 ? 0ul - (unsigned long)x : (unsigned long)x)" if of.signed else "x"
    sign = "x < 0" if of.signed else "0"
    away = {"_rtz": "0", "_rtp": f"!({sign})", "_rtn": sign}[mode]
    return f"return manycl_{to.name}_of({size}, {sign}, {away});"


def _to_integer(of: Scalar, to: Scalar, sat: str, mode: str) -> str:
    if of.real:
        f = "f" if of.bits == 32 else ""
        rounded = _ROUNDED[mode].format(f=f)
        if not sat:
            return f"return ({to.name}){rounded};"
        low, end = (
            (f"-0x1.0p{to.bits - 1}{f}", f"0x1.0p{to.bits - 1}{f}") if to.signed else (f"0.0{f}", f"0x1.0p{to.bits}{f}")
        )
        return (
            f"{of.name} r = {rounded}; {to.name} v = ({to.name})((r >= {low}) & (r < {end}) ? r : 0.0{f});"
            f" v = r >= {end} ? {to.highest} : v; return r < {low} ? {to.lowest} : v;"
        )
    if not sat:
        return f"return ({to.name})x;"
    below = of.signed and (not to.signed or of.bits > to.bits)
    above = of.bits - of.signed > to.bits - to.signed
    text = f"({to.name})x"
    if above:
        text = f"x > ({of.name})({to.highest}) ? {to.highest} : {text}"
    if below:
        text = f"x < ({of.name})({to.lowest}) ? {to.lowest} : {text}"
    return f"return {text};"
