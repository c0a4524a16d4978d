"""Functions of floating-point numbers (OpenCL C 3.0, sections 6.15.2, 6.15.4 and 6.15.6)."""

from __future__ import annotations

from manycl.drivers.native.builtins.rows import Row

_OF_ONE = (
    *("acos", "acosh", "acospi", "asin", "asinh", "asinpi", "atan", "atanh", "atanpi", "cbrt", "cos", "cosh", "cospi"),
    *("erf", "erfc", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sin", "sinh", "sinpi"),
    *("tan", "tanh", "tanpi", "tgamma"),
)
_OF_TWO = ["atan2", "atan2pi", "fmod", "hypot", "nextafter", "pow", "powr", "remainder"]
_EXACT = {  # the processor's, or by bits: of both types alike
    "ceil": "__builtin_ceil{f}(x)", "floor": "__builtin_floor{f}(x)", "trunc": "__builtin_trunc{f}(x)",
    "rint": "__builtin_rint{f}(x)", "fabs": "__builtin_fabs{f}(x)", "sqrt": "__builtin_sqrt{f}(x)",
    "rsqrt": "1.0{f} / __builtin_sqrt{f}(x)",
    "round": "manycl_round_{t}(x)", "logb": "manycl_logb_{t}(x)",
    "degrees": "x * 0x1.ca5dc1a63c1f8p+5{f}", "radians": "x * 0x1.1df46a2529d39p-6{f}",
    "sign": "(x > 0) - (x < 0) == 0 ? (x == x ? x : 0.0{f}) : ($T)((x > 0) - (x < 0))",
}  # fmt: skip
_EXACT_OF_TWO = {
    "copysign": "__builtin_copysign{f}(x, y)",
    "fdim": "x != x ? x : y != y ? y : x > y ? x - y : 0.0{f}",
    "fmax": "x != x ? y : x < y ? y : x", "fmin": "x != x ? y : y < x ? y : x",
    "max": "x < y ? y : x", "min": "y < x ? y : x",
    "maxmag": "$T a = __builtin_fabs{f}(x), b = __builtin_fabs{f}(y); return a > b ? x : b > a ? y : fmax(x, y);",
    "minmag": "$T a = __builtin_fabs{f}(x), b = __builtin_fabs{f}(y); return a < b ? x : b < a ? y : fmin(x, y);",
}  # fmt: skip
_OWN_DOUBLES = (
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "cbrt",
    "acospi",
    "asinpi",
    "atanpi",
    "cospi",
    "sinpi",
    "tanpi",
    "atan2pi",
    "powr",
    "nextafter",
    "ilogb",
    "ldexp",
    "pown",
    "rootn",
)
_HALF_AND_NATIVE = ["cos", "exp", "exp2", "exp10", "log", "log2", "log10", "rsqrt", "sin", "sqrt", "tan"]
_STEPS = "$T t = (z - x) / (y - x); t = t < 0 ? 0 : t > 1 ? 1 : t; return t * t * (3 - 2 * t);"


def _both(body: str) -> dict[str, str]:
    return {"float": body.format(f="f", t="f"), "double": body.format(f="", t="d")}


def _core(name: str, given: str) -> dict[str, str]:
    double = f"manycl_{name}_d" if name in _OWN_DOUBLES else f"__builtin_{name}"
    return {"float": f"manycl_{name}_f({given})", "double": f"{double}({given})"}


def _made() -> list[Row]:
    two, three = ("T", "T"), ("T", "T", "T")
    rows = [Row(name, "T", ("T",), _core(name, "x")) for name in _OF_ONE]
    rows += [Row(name, "T", two, _core(name, "x, y")) for name in _OF_TWO]
    rows += [Row(name, "T", ("T",), _both(body)) for name, body in _EXACT.items()]
    rows += [Row(name, "T", two, _both(body)) for name, body in _EXACT_OF_TWO.items()]
    fused = {"float": "__builtin_fmaf(x, y, z)", "double": "__builtin_fma(x, y, z)"}
    rows += [
        Row("fma", "T", three, fused),
        Row("mad", "T", three, {"float": "MANYCL_MADF(x, y, z)", "double": "MANYCL_MAD(x, y, z)"}),
        Row("ilogb", "I", ("T",), _core("ilogb", "x")),
        *(Row(name, "T", ("T", "I"), _core(name, "x, y")) for name in ("ldexp", "pown", "rootn")),
        Row("nan", "float", ("uint",), {"float": "MANYCL_FLOAT(0x7fc00000u | x)"}),
        Row("nan", "double", ("ulong",), {"double": "MANYCL_DOUBLE(0x7ff8000000000000UL | x)"}),
        Row(
            "lgamma", "T", ("T",), {"float": "manycl_lgamma_f(x)", "double": "int s; return manycl_lgamma_libm(x, &s);"}
        ),
    ]
    return rows + _with_pointers() + _common() + _fast() + _relational()


def _with_pointers() -> list[Row]:
    fract = "$T w = __builtin_floor{f}(x); *y = x != x ? x : w; $T r = x - w; r = r >= 1 ? 0x1.{b}{f} : r;"
    fract += " return __builtin_fabs{f}(x) == __builtin_inf{f}() ? __builtin_copysign{f}(0, x) : x == 0 ? x : r;"
    modf = "$T w = __builtin_trunc{f}(x); *y = w; $T r = __builtin_fabs{f}(x) == __builtin_inf{f}() ? 0 : x - w;"
    modf += " return x != x ? x : __builtin_copysign{f}(r, x);"
    sincos = {"float": "MANYCL_TURNED(x, turns, r); *y = manycl_turn_sin_f((float)r, (unsigned int)turns + 1);"}
    sincos["float"] += " return x == 0.0f ? x : manycl_turn_sin_f((float)r, (unsigned int)turns);"
    sincos["double"] = "*y = __builtin_cos(x); return __builtin_sin(x);"
    return [
        Row("fract", "T", ("T", "T*"), {
            "float": fract.format(f="f", b="fffffep-1"), "double": fract.format(f="", b="fffffffffffffp-1")}),
        Row("modf", "T", ("T", "T*"), _both(modf)),
        Row("sincos", "T", ("T", "T*"), sincos),
        Row("frexp", "T", ("T", "I*"), _both("*y = manycl_power_{t}(x); return manycl_fraction_{t}(x);")),
        Row("remquo", "T", ("T", "T", "I*"), {
            "float": "MANYCL_NEXT(x, y, value, count); *z = count; return (float)value;",
            "double": "manycl_remquo_d(x, y, z)"}),
        Row("lgamma_r", "T", ("T", "I*"), {
            "float": "int s; double r = manycl_lgamma_libm((double)x, &s); *y = s; return (float)r;",
            "double": "int s; double r = manycl_lgamma_libm(x, &s); *y = s; return r;"}),
    ]  # fmt: skip


def _common() -> list[Row]:
    clamp, mix, step = "y > x ? y : z < x ? z : x", "x + (y - x) * z", "y < x ? 0.0{f} : 1.0{f}"
    rows = [
        Row("clamp", "T", ("T", "T", "T"), _both(clamp)),
        Row("mix", "T", ("T", "T", "T"), _both(mix)),
        Row("step", "T", ("T", "T"), _both(step)),
        Row("smoothstep", "T", ("T", "T", "T"), _both(_STEPS)),
    ]
    shared = {
        "clamp": ("T", "t", "t"), "mix": ("T", "T", "t"), "step": ("t", "T"), "smoothstep": ("t", "t", "T"),
        "fmax": ("T", "t"), "fmin": ("T", "t"), "max": ("T", "t"), "min": ("T", "t"),
        "ldexp": ("T", "i"),  # (OpenCL C has pown and rootn for vectors of integers only)
    }  # fmt: skip
    return rows + [Row(name, "T", given, _both(""), only_vectors=True) for name, given in shared.items()]


def _fast() -> list[Row]:
    rows = []
    for prefix in ("half_", "native_"):
        for name in _HALF_AND_NATIVE:
            body = f"manycl_native_{name}(x)" if name in ("sin", "cos", "tan") else f"{name}(x)"
            rows.append(Row(prefix + name, "T", ("T",), {"float": body}))
        rows.append(Row(prefix + "powr", "T", ("T", "T"), {"float": "powr(x, y)"}))
        rows.append(Row(prefix + "divide", "T", ("T", "T"), {"float": "x / y"}))
        rows.append(Row(prefix + "recip", "T", ("T",), {"float": "1.0f / x"}))
    return rows


def _relational() -> list[Row]:
    of_two = {
        "isequal": "x == y", "isnotequal": "x != y", "isgreater": "x > y", "isgreaterequal": "x >= y",
        "isless": "x < y", "islessequal": "x <= y", "islessgreater": "(x < y) | (x > y)",
        "isordered": "(x == x) & (y == y)", "isunordered": "(x != x) | (y != y)",
    }  # fmt: skip
    of_one = {
        "isfinite": "__builtin_fabs{f}(x) < __builtin_inf{f}()", "isinf": "__builtin_fabs{f}(x) == __builtin_inf{f}()",
        "isnan": "x != x",
        "isnormal": "(__builtin_fabs{f}(x) < __builtin_inf{f}()) & (__builtin_fabs{f}(x) >= 0x1.0p-{m}{f})",
    }  # fmt: skip
    rows = [Row(name, "R", ("T", "T"), _both(body), relational=True) for name, body in of_two.items()]
    for name, body in of_one.items():
        bodies = {"float": body.format(f="f", m=126), "double": body.format(f="", m=1022)}
        rows.append(Row(name, "R", ("T",), bodies, relational=True))
    signs = {"float": "(int)(MANYCL_BITSF(x) >> 31)", "double": "(int)(MANYCL_BITS(x) >> 63)"}
    rows.append(Row("signbit", "R", ("T",), signs, relational=True))
    return rows


MATHEMATICAL = tuple(_made())
