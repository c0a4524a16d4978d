"""Built-in functions of whole vectors: geometric and relational ones, and shuffles (OpenCL C 3.0, sections 6.15.5,
6.15.6 and 6.15.14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from manycl.drivers.native.builtins.types import INTEGERS, LANES, REALS, SCALARS, Scalar, named, spread

_SIGNED = tuple(s for s in INTEGERS if s.signed)


def source(name: str, widths: Sequence[int]) -> str | None:
    """All overloads of a function, for scalars and for vectors of these widths."""
    made = _FUNCTIONS.get(name)
    return "\n".join(made(name, tuple(widths))) if made else None


def _lane(name: str, width: int, lane: str) -> str:
    return name if width == 1 else f"{name}.s{lane}"


def _joined(width: int, one: str, by: str) -> str:
    """What ``one`` says of each element of ``x`` and ``y``, marked by ``@``."""
    return by.join(one.replace("x@", _lane("x", width, i)).replace("y@", _lane("y", width, i)) for i in LANES[:width])


def _made(width: int, kind: str, one: str) -> str:
    if width == 1:
        return one.replace("x@", "x").replace("y@", "y")
    return spread(kind, width, one.replace("x@", "x.s@").replace("y@", "y.s@"))


def _up_to_4(widths: tuple[int, ...]) -> list[int]:
    return [1, *(w for w in widths if w <= 4)]


def _dot(name: str, widths: tuple[int, ...]) -> list[str]:
    return [
        f"BUILTIN {one} {name}({kind} x, {kind} y) {{ return {_joined(w, 'x@ * y@', ' + ')}; }}"
        for one, kind, w in ((s.name, named(s.name, w), w) for s in REALS for w in _up_to_4(widths))
    ]


def _cross(name: str, widths: tuple[int, ...]) -> list[str]:
    lanes = "x.s1 * y.s2 - x.s2 * y.s1, x.s2 * y.s0 - x.s0 * y.s2, x.s0 * y.s1 - x.s1 * y.s0"
    parts = []
    for s in REALS:
        for w in (w for w in widths if w in (3, 4)):
            kind, last = named(s.name, w), ", 0" if w == 4 else ""
            parts.append(f"BUILTIN {kind} {name}({kind} x, {kind} y) {{ return ({kind})({lanes}{last}); }}")
    return parts


def _squares(s: Scalar, width: int) -> str:
    """Statements that make ``q``, the sum of squares of ``x``'s elements times ``k``, which neither overflows nor
    underflows: floats' by way of double."""
    if s.bits == 32:
        return f"double k = 1.0, q = {_joined(width, '(double)x@ * (double)x@', ' + ')};"
    most = _joined(width, "m = __builtin_fabs(x@) > m ? __builtin_fabs(x@) : m;", " ")
    scale = "double k = m > 0x1.0p500 ? 0x1.0p-600 : m < 0x1.0p-400 ? 0x1.0p600 : 1.0;"
    return f"double m = 0.0; {most} {scale} double q = {_joined(width, '(k * x@) * (k * x@)', ' + ')};"


def _length(name: str, widths: tuple[int, ...]) -> list[str]:
    parts = []
    for s in REALS:
        for w in _up_to_4(widths):
            body = f"{_squares(s, w)} return ({s.name})(__builtin_sqrt(q) / k);"
            parts.append(f"BUILTIN {s.name} {name}({named(s.name, w)} x) {{ {body} }}")
    return parts


def _distance(name: str, widths: tuple[int, ...]) -> list[str]:
    length = name.replace("distance", "length")
    types = REALS[:1] if name.startswith("fast") else REALS
    kinds = [(s.name, named(s.name, w)) for s in types for w in _up_to_4(widths)]
    return [f"BUILTIN {one} {name}({kind} x, {kind} y) {{ return {length}(x - y); }}" for one, kind in kinds]


def _normalize(name: str, widths: tuple[int, ...]) -> list[str]:
    parts = []
    for s in REALS:
        f = "f" if s.bits == 32 else ""
        inf = f"__builtin_inf{f}()"
        for w in _up_to_4(widths):
            kind = named(s.name, w)
            far = _joined(w, f"(__builtin_fabs{f}(x@) == {inf})", " | ")
            ends = f"__builtin_copysign{f}(__builtin_fabs{f}(x@) == {inf} ? 1.0{f} : 0.0{f}, x@)"
            nan = _joined(w, "(x@ != x@)", " | ")
            far_off = (
                "k < 1.0 ? x@ / (r * 0x1.0p598) * 0.25 : "  # of great lengths: small elements times k were nothing
            )
            unit = _made(w, s.name, f"({s.name})({far_off if s.bits == 64 else ''}(k * x@) / r)")
            parts.append(
                f"BUILTIN {kind} {name}({kind} x) {{ int n = {nan}; {kind} e = {_made(w, s.name, ends)};"
                f" x = ({far}) & !n ? e : x; {_squares(s, w)} double r = __builtin_sqrt(q);"
                f" return r == 0.0 ? x : {unit}; }}"
            )
    return parts


def _fast_length(name: str, widths: tuple[int, ...]) -> list[str]:
    kinds = [(w, named("float", w)) for w in _up_to_4(widths)]
    return [
        f"BUILTIN float {name}({kind} x) {{ return __builtin_sqrtf({_joined(w, 'x@ * x@', ' + ')}); }}"
        for w, kind in kinds
    ]


def _fast_normalize(name: str, widths: tuple[int, ...]) -> list[str]:
    parts = []
    for w in _up_to_4(widths):
        kind = named("float", w)
        body = f"float q = {_joined(w, 'x@ * x@', ' + ')}; float r = q == 0.0f ? 1.0f : 1.0f / __builtin_sqrtf(q);"
        parts.append(f"BUILTIN {kind} {name}({kind} x) {{ {body} return {_made(w, 'float', 'x@ * r')}; }}")
    return parts


def _any_all(name: str, widths: tuple[int, ...]) -> list[str]:
    by = " | " if name == "any" else " & "
    return [
        f"BUILTIN int {name}({named(s.name, w)} x) {{ return {_joined(w, '(x@ < 0)', by)}; }}"
        for s in _SIGNED
        for w in (1, *widths)
    ]


def _select(name: str, widths: tuple[int, ...]) -> list[str]:
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


def _bitselect(name: str, widths: tuple[int, ...]) -> list[str]:
    parts = []
    for s in SCALARS.values():
        for w in (1, *widths):
            kind, bits = named(s.name, w), named(s.unsigned, w)
            x, y, z = (f"__builtin_astype({v}, {bits})" for v in "xyz")
            mixed = f"__builtin_astype(({bits})(({x} & ~{z}) | ({y} & {z})), {kind})"
            parts.append(f"BUILTIN {kind} {name}({kind} x, {kind} y, {kind} z) {{ return {mixed}; }}")
    return parts


def _shuffle(name: str, widths: tuple[int, ...]) -> list[str]:
    """Of all widths whatever the program's are: masks may be made by functions."""
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


_FUNCTIONS: dict[str, Callable[[str, tuple[int, ...]], list[str]]] = {
    "dot": _dot, "cross": _cross, "length": _length, "distance": _distance, "normalize": _normalize,
    "fast_length": _fast_length, "fast_distance": _distance, "fast_normalize": _fast_normalize,
    "any": _any_all, "all": _any_all, "select": _select, "bitselect": _bitselect,
    "shuffle": _shuffle, "shuffle2": _shuffle,
}  # fmt: skip
