"""Built-in functions of whole vectors: geometric and relational ones, and shuffles (OpenCL C 3.0, sections 6.15.5,
6.15.6 and 6.15.14)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from manycl.drivers.native.builtins.types import INTEGERS, LANES, REALS, SCALARS, WIDTHS, Scalar, named, spread

_SIGNED = tuple(s for s in INTEGERS if s.signed)
_FLOAT = REALS[:1]


class _Function(NamedTuple):
    """A function of vectors: of elements of these types, and of 1 and ``widths`` of these (2 to 16) elements. It
    results in one element (or ``result``), or in a ``whole`` vector. ``body`` says in what, by type and width."""

    scalars: Sequence[Scalar]
    widths: Sequence[int]
    given: str
    body: Callable[[Scalar, int], str]
    whole: bool = False
    result: str = ""

    def overloads(self, name: str, widths: Sequence[int]) -> Iterator[str]:
        for s in self.scalars:
            for width in [w for w in (1, *widths) if w in self.widths]:
                kind = named(s.name, width)
                listed = ", ".join(f"{kind} {parameter}" for parameter in self.given)
                result = kind if self.whole else self.result or s.name
                yield f"BUILTIN {result} {name}({listed}) {{ {self.body(s, width)} }}"


def source(name: str, widths: Sequence[int]) -> str | None:
    """Return all overloads of a function, for scalars and for vectors of these widths."""
    if name in _CHOOSING:
        return "\n".join(_CHOOSING[name](name, widths))
    return "\n".join(_FUNCTIONS[name].overloads(name, widths)) if name in _FUNCTIONS else None


def _lane(name: str, width: int, lane: str) -> str:
    return name if width == 1 else f"{name}.s{lane}"


def _joined(width: int, one: str, by: str) -> str:
    """Return what ``one`` says of each element of ``x`` and ``y``, marked by ``@``."""
    return by.join(one.replace("x@", _lane("x", width, i)).replace("y@", _lane("y", width, i)) for i in LANES[:width])


def _made(width: int, kind: str, one: str) -> str:
    if width == 1:
        return one.replace("x@", "x").replace("y@", "y")
    return spread(kind, width, one.replace("x@", "x.s@").replace("y@", "y.s@"))


def _squares(s: Scalar, width: int) -> str:
    """Statements that make ``q``, the sum of squares of ``x``'s elements times ``k``, which neither overflows nor
    underflows: floats' by way of double."""
    if s.bits == 32:
        return f"double k = 1.0, q = {_joined(width, '(double)x@ * (double)x@', ' + ')};"
    most = _joined(width, "m = __builtin_fabs(x@) > m ? __builtin_fabs(x@) : m;", " ")
    scale = "double k = m > 0x1.0p500 ? 0x1.0p-600 : m < 0x1.0p-400 ? 0x1.0p600 : 1.0;"
    return f"double m = 0.0; {most} {scale} double q = {_joined(width, '(k * x@) * (k * x@)', ' + ')};"


def _normalize(s: Scalar, width: int) -> str:
    f = "f" if s.bits == 32 else ""
    inf = f"__builtin_inf{f}()"
    far = _joined(width, f"(__builtin_fabs{f}(x@) == {inf})", " | ")
    ends = f"__builtin_copysign{f}(__builtin_fabs{f}(x@) == {inf} ? 1.0{f} : 0.0{f}, x@)"
    nan = _joined(width, "(x@ != x@)", " | ")
    far_off = "k < 1.0 ? x@ / (r * 0x1.0p598) * 0.25 : "  # of great lengths: small elements times k were nothing
    unit = _made(width, s.name, f"({s.name})({far_off if s.bits == 64 else ''}(k * x@) / r)")
    return (
        f"int n = {nan}; {named(s.name, width)} e = {_made(width, s.name, ends)};"
        f" x = ({far}) & !n ? e : x; {_squares(s, width)} double r = __builtin_sqrt(q);"
        f" return r == 0.0 ? x : {unit};"
    )


def _fast_normalize(_: Scalar, width: int) -> str:
    q = _joined(width, "x@ * x@", " + ")
    unit = _made(width, "float", "x@ * r")
    return f"float q = {q}; float r = q == 0.0f ? 1.0f : 1.0f / __builtin_sqrtf(q); return {unit};"


def _cross(s: Scalar, width: int) -> str:
    lanes = "x.s1 * y.s2 - x.s2 * y.s1, x.s2 * y.s0 - x.s0 * y.s2, x.s0 * y.s1 - x.s1 * y.s0"
    return f"return ({named(s.name, width)})({lanes}{', 0' if width == 4 else ''});"


def _bitselect(s: Scalar, width: int) -> str:
    kind, bits = named(s.name, width), named(s.unsigned, width)
    x, y, z = (f"__builtin_astype({v}, {bits})" for v in "xyz")
    return f"return __builtin_astype(({bits})(({x} & ~{z}) | ({y} & {z})), {kind});"


def _select(name: str, widths: Sequence[int]) -> list[str]:
    parts = []
    for s in SCALARS.values():
        for mask in (s.unsigned.removeprefix("u"), s.unsigned):
            scalar = f"{s.name} x, {s.name} y, {mask} z"
            parts.append(f"BUILTIN {s.name} {name}({scalar}) {{ return z ? y : x; }}")
            for w in widths:
                kind = named(s.name, w)
                of_each = spread(s.name, w, f"({s.unsigned.removeprefix('u')})z.s@ < 0 ? y.s@ : x.s@")
                parts.append(f"BUILTIN {kind} {name}({kind} x, {kind} y, {named(mask, w)} z) {{ return {of_each}; }}")
    return parts


def _shuffle(name: str, widths: Sequence[int]) -> list[str]:
    """Return the functions of all widths, whatever the program's are: masks may be made by functions."""
    even = [w for w in widths if w != 3]
    parts = []
    for s in SCALARS.values():
        for of in even:
            for to in even:
                kind, result, mask = named(s.name, of), named(s.name, to), named(s.unsigned, to)
                one = f"x[z.s@ & {of - 1}]"
                given = f"{kind} x, "
                if name == "shuffle2":
                    one, given = f"(z.s@ & {of} ? y[z.s@ & {of - 1}] : {one})", f"{kind} x, {kind} y, "
                parts.append(f"BUILTIN {result} {name}({given}{mask} z) {{ return {spread(s.name, to, one)}; }}")
    return parts


_CHOOSING = {"select": _select, "shuffle": _shuffle, "shuffle2": _shuffle}
_UP_TO_4, _ALL = (1, 2, 3, 4), (1, *WIDTHS)
_FUNCTIONS = {
    "dot": _Function(REALS, _UP_TO_4, "xy", lambda _, w: f"return {_joined(w, 'x@ * y@', ' + ')};"),
    "cross": _Function(REALS, (3, 4), "xy", _cross, whole=True),
    "length": _Function(
        REALS, _UP_TO_4, "x", lambda s, w: f"{_squares(s, w)} return ({s.name})(__builtin_sqrt(q) / k);"
    ),
    "distance": _Function(REALS, _UP_TO_4, "xy", lambda *_: "return length(x - y);"),
    "normalize": _Function(REALS, _UP_TO_4, "x", _normalize, whole=True),
    "fast_length": _Function(
        _FLOAT, _UP_TO_4, "x", lambda _, w: f"return __builtin_sqrtf({_joined(w, 'x@ * x@', ' + ')});"
    ),
    "fast_distance": _Function(_FLOAT, _UP_TO_4, "xy", lambda *_: "return fast_length(x - y);"),
    "fast_normalize": _Function(_FLOAT, _UP_TO_4, "x", _fast_normalize, whole=True),
    "any": _Function(_SIGNED, _ALL, "x", lambda _, w: f"return {_joined(w, '(x@ < 0)', ' | ')};", result="int"),
    "all": _Function(_SIGNED, _ALL, "x", lambda _, w: f"return {_joined(w, '(x@ < 0)', ' & ')};", result="int"),
    "bitselect": _Function(tuple(SCALARS.values()), _ALL, "xyz", _bitselect, whole=True),
}
