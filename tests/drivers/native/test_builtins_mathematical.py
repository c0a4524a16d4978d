"""Mathematical built-in functions of float and double against mpmath, and at the ends of their domains."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest
from mathematical_oracle import FUNCTIONS, arguments, errors
from native_calls import TYPES, WIDTHS, entry, run, same

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is no number
OWN = 0.51
"""Functions of float are computed in double: nearly correctly rounded. What is a product or a quotient is not."""
ROUNDED_TWICE = ("rsqrt", "degrees", "radians")
KINDS = ("float", "double")


def call(name: str) -> str:
    return f"{name}({', '.join('ab'[: FUNCTIONS[name].count])})"


def kinds(name: str, kind: str) -> list[str]:
    function = FUNCTIONS[name]
    return [kind, *(["int" if function.integer else kind] * (function.count - 1))]


@functools.cache
def text(kind: str) -> str:
    return "\n".join(entry(f"k_{name}", call(name), kind, kinds(name, kind)) for name in FUNCTIONS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_within_the_limits(name: str, kind: str) -> None:
    function = FUNCTIONS[name]
    given = arguments(function, TYPES[kind], seed=len(name), count=250)
    got = run(text(kind), f"k_{name}", kind, given)
    limit = OWN if kind == "float" and name not in ROUNDED_TWICE else function.limit
    off = errors(function, TYPES[kind], got, given)
    worst = int(np.argmax(off))
    assert off[worst] <= limit, (name, [x[worst] for x in given], got[worst], off[worst])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_and_vectors_have_the_bits_of_one_at_a_time(name: str) -> None:
    """Clang makes vector code of the loop over all elements; calls of one element each have none."""
    for kind in KINDS:
        given = [x[:144] for x in arguments(FUNCTIONS[name], TYPES[kind], seed=3, count=70)]
        given = [np.tile(x[:48], 3) for x in given]
        whole = run(text(kind), f"k_{name}", kind, given)
        single = [run(text(kind), f"k_{name}", kind, [x[i : i + 1] for x in given])[0] for i in range(48)]
        assert same(whole, np.tile(np.array(single, TYPES[kind]), 3)), kind
        vectors = "\n".join(entry(f"w{w}", call(name), kind, kinds(name, kind), w) for w in (2, 3, 4))
        for width in (2, 3, 4):
            assert same(run(vectors, f"w{width}", kind, given, width), whole), (kind, width)


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_wide_vectors(kind: str, width: int) -> None:
    names = ["exp", "pow", "ldexp", "sqrt", "cospi", "atan2"]
    calls = {n: (call(n), kinds(n, kind)) if n in FUNCTIONS else (f"{n}(a, b)", [kind, "int"]) for n in names}
    lines = [entry(f"{n}_{w}", c, kind, k, w) for n, (c, k) in calls.items() for w in (1, width)]
    random = np.random.default_rng(width)
    for name, (_, given) in calls.items():
        arrays = [random.uniform(-9, 9, 64).astype(TYPES[k]) for k in given]
        assert same(*(run("\n".join(lines), f"{name}_{w}", kind, arrays, w) for w in (1, width)))


INF, NAN = np.inf, np.nan
ENDS: dict[str, list[tuple[float, ...]]] = {  # arguments, then the result (OpenCL C 3.0, section 7.5.1; C99, annex F)
    "acos": [(1, 0.0), (1.5, NAN)], "acosh": [(1, 0.0), (0.5, NAN), (-3, NAN), (INF, INF)],
    "acospi": [(1, 0.0), (-1, 1), (2, NAN)], "asin": [(-0.0, -0.0), (2, NAN)], "asinh": [(-0.0, -0.0), (-INF, -INF)],
    "asinpi": [(-0.0, -0.0), (1, 0.5), (-2, NAN)], "atan": [(-0.0, -0.0)],
    "atanh": [(-0.0, -0.0), (1, INF), (-1, -INF), (1.5, NAN), (INF, NAN)], "atanpi": [(-0.0, -0.0), (-INF, -0.5)],
    "atan2": [(0.0, -0.0, np.pi), (-0.0, -2, -np.pi), (-0.0, 0.0, -0.0), (INF, -INF, 0.75 * np.pi), (1, NAN, NAN)],
    "atan2pi": [(0.0, -0.0, 1), (-0.0, -0.0, -1), (0.0, 0.0, 0.0), (-0.0, 2, -0.0), (3, 0.0, 0.5), (INF, INF, 0.25),
                (-INF, -INF, -0.75), (1, INF, 0.0), (-1, -INF, -1), (INF, 3, 0.5), (NAN, 1, NAN), (1, NAN, NAN)],
    "cbrt": [(-0.0, -0.0), (-INF, -INF), (27, 3)], "cos": [(0.0, 1), (INF, NAN)], "cosh": [(0.0, 1), (-INF, INF)],
    "cospi": [(0.0, 1), (0.5, 0.0), (-0.5, 0.0), (1.5, 0.0), (3, -1), (INF, NAN)],
    "erf": [(-0.0, -0.0), (-INF, -1)], "erfc": [(INF, 0.0), (-INF, 2)], "exp": [(-INF, 0.0), (INF, INF), (-0.0, 1)],
    "exp2": [(-INF, 0.0), (INF, INF), (10, 1024)], "exp10": [(-INF, 0.0), (INF, INF)],
    "expm1": [(-0.0, -0.0), (-INF, -1), (INF, INF)],
    "fmod": [(-0.0, 3, -0.0), (INF, 3, NAN), (3, 0.0, NAN), (5, INF, 5), (-5.5, 2, -1.5), (NAN, 1, NAN), (0.0, NAN, NAN)],
    "hypot": [(INF, NAN, INF), (NAN, -INF, INF), (NAN, 1, NAN), (3, -4, 5)],
    "log": [(-0.0, -INF), (1, 0.0), (-1, NAN), (INF, INF)], "log2": [(0.0, -INF), (8, 3), (-1, NAN), (INF, INF)],
    "log10": [(0.0, -INF), (1000, 3), (-INF, NAN)], "log1p": [(-0.0, -0.0), (-1, -INF), (-2, NAN), (INF, INF)],
    "pow": [(-0.0, -3, -INF), (0.0, -2, INF), (-0.0, 3, -0.0), (-0.0, 2.5, 0.0), (-1, INF, 1), (-1, -INF, 1), (1, NAN, 1),
            (NAN, 0.0, 1), (-8, 1 / 3, NAN), (0.5, -INF, INF), (2, -INF, 0.0), (-INF, -3, -0.0), (-INF, 3, -INF),
            (-INF, 2.5, INF), (INF, -1, 0.0), (INF, 2, INF), (NAN, 1, NAN), (2, NAN, NAN), (-2, 3, -8), (0.0, INF, 0.0)],
    "powr": [(3, 0.0, 1), (-0.0, 0.0, NAN), (INF, 0.0, NAN), (1, INF, NAN), (-1, 2, NAN), (0.0, -2, INF), (-0.0, 3, 0.0),
             (1, 5, 1), (NAN, 0.0, NAN), (2, NAN, NAN), (-0.0, -INF, INF), (INF, 2, INF), (INF, -2, 0.0)],
    "pown": [(0.0, 0, 1), (NAN, 0, 1), (-0.0, -3, -INF), (-0.0, -2, INF), (-0.0, 3, -0.0), (-2, 3, -8), (-INF, 3, -INF)],
    "rootn": [(-0.0, -3, -INF), (-0.0, -2, INF), (-0.0, 3, -0.0), (-0.0, 2, 0.0), (-8, 3, -2), (-8, 2, NAN), (4, 0, NAN),
              (16, 4, 2), (INF, 3, INF), (-INF, 3, -INF), (NAN, 2, NAN)],
    "remainder": [(5, 2, 1), (7, 2, -1), (3, 2, -1), (-0.0, 2, -0.0), (6, -2, 0.0), (-6, 2, -0.0), (5, INF, 5),
                  (INF, 2, NAN), (2, 0.0, NAN), (NAN, 2, NAN)],
    "rsqrt": [(-0.0, -INF), (0.0, INF), (INF, 0.0), (-1, NAN)], "sin": [(-0.0, -0.0), (-INF, NAN)],
    "sinh": [(-0.0, -0.0), (-INF, -INF)], "sinpi": [(-0.0, -0.0), (3, 0.0), (-3, -0.0), (2.5, 1), (INF, NAN)],
    "sqrt": [(-0.0, -0.0), (-1, NAN), (INF, INF)], "tan": [(-0.0, -0.0), (INF, NAN)],
    "tanh": [(-0.0, -0.0), (INF, 1), (-INF, -1)],
    "tanpi": [(-0.0, -0.0), (2, 0.0), (-2, -0.0), (3, -0.0), (-3, 0.0), (0.5, INF), (1.5, -INF), (-0.5, -INF), (2.5, INF),
              (INF, NAN)],
    "tgamma": [(0.0, INF), (-0.0, -INF), (5, 24), (INF, INF), (-1, NAN)], "lgamma": [(1, 0.0), (0.0, INF), (-INF, INF)],
    "fdim": [(5, 3, 2), (3, 5, 0.0), (NAN, 1, NAN), (1, NAN, NAN), (INF, -INF, INF)],
    "fmax": [(1, NAN, 1), (NAN, 1, 1), (-1, 2, 2), (2, -1, 2), (-INF, NAN, -INF)],
    "fmin": [(1, NAN, 1), (NAN, 1, 1), (-1, 2, -1), (2, -1, -1)], "maxmag": [(-3, 2, -3), (2, -3, -3), (2, -2, 2), (NAN, 1, 1)],
    "minmag": [(-3, 2, 2), (2, -3, 2), (2, -2, -2)], "copysign": [(3, -0.0, -3), (-NAN, 1, NAN), (-2, 5, 2)],
    "round": [(2.5, 3), (-2.5, -3), (0.49999997, 0.0), (-0.2, -0.0), (1e30, 1e30), (-INF, -INF), (8388609.0, 8388609.0)],
    "rint": [(2.5, 2), (3.5, 4), (-0.2, -0.0)], "ceil": [(-0.5, -0.0), (1.2, 2)], "floor": [(-0.0, -0.0), (-0.5, -1)],
    "trunc": [(-1.9, -1), (-0.9, -0.0)], "fabs": [(-0.0, 0.0), (-INF, INF)],
    "sign": [(-3, -1), (0.0, 0.0), (-0.0, -0.0), (NAN, 0.0), (INF, 1)],
    "logb": [(0.0, -INF), (-INF, INF), (10, 3), (1e-40, -133)], "step": [(1, 0.5, 0.0), (1, 1, 1), (1, 2, 1)],
    "nextafter": [(0.0, -0.0, -0.0), (2, 2, 2), (NAN, 1, NAN)], "max": [(1, 2, 2), (2, 1, 2)], "min": [(1, 2, 1), (2, 1, 1)],
    "mix": [(1, 3, 0.5, 2), (1, 3, 0.0, 1)], "clamp": [(5, 1, 3, 3), (0.0, 1, 3, 1), (2, 1, 3, 2)],
    "smoothstep": [(1, 3, 0.5, 0.0), (1, 3, 2, 0.5), (1, 3, 9, 1)], "mad": [(2, 3, 4, 10)], "fma": [(2, 3, 4, 10)],
}  # fmt: skip


@functools.cache
def ends_text(kind: str) -> str:
    lines = []
    for name, rows in ENDS.items():
        given = [kind, "int"] if name in ("pown", "rootn") else [kind] * (len(rows[0]) - 1)
        lines.append(entry(f"e_{name}", f"{name}({', '.join('abc'[: len(given)])})", kind, given))
    return "\n".join(lines)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ENDS)
def test_ends(name: str, kind: str) -> None:
    columns = list(zip(*ENDS[name], strict=True))
    kinds = [kind, "int"] if name in ("pown", "rootn") else [kind] * (len(columns) - 1)
    given = [np.array(c, TYPES[k]) for c, k in zip(columns, kinds, strict=False)]
    if (kind, name) == ("double", "logb"):
        given[0][-1] = 2.0**-133
    got = run(ends_text(kind), f"e_{name}", kind, given)
    assert same(got, np.array(columns[-1], TYPES[kind])), list(zip(ENDS[name], got, strict=True))


ODD = [n for n, rows in ENDS.items() if len(rows[0]) == 2 and n not in ("sign",)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_number_stays_none(kind: str) -> None:
    for name in ODD:
        assert np.isnan(run(ends_text(kind), f"e_{name}", kind, [np.array([NAN], TYPES[kind])]))[0], name


def wild(kind: str, count: int, seed: int) -> np.ndarray:
    bits = np.uint32 if kind == "float" else np.uint64
    values = np.random.default_rng(seed).integers(0, np.iinfo(bits).max, count, bits).view(TYPES[kind])
    ends = np.array([0.0, -0.0, 1, -1, INF, -INF, NAN, 0.5, 1e-310, 1e-40, 3.5, -2.5], TYPES[kind])
    return np.concatenate([values, ends, np.random.default_rng(seed).uniform(-50, 50, count).astype(TYPES[kind])])


@pytest.mark.parametrize("kind", KINDS)
def test_exact_ones_are_numpys(kind: str) -> None:
    x, y = wild(kind, 3000, 1), wild(kind, 3000, 2)
    n = np.random.default_rng(3).integers(-2300, 2300, len(x)).astype(np.int32)
    n[::3] = np.random.default_rng(4).integers(-160, 160, len(n[::3]))
    calls = {
        "ceil(a)": np.ceil(x), "floor(a)": np.floor(x), "trunc(a)": np.trunc(x), "rint(a)": np.rint(x), "sqrt(a)": np.sqrt(x),
        "nextafter(a, b)": np.nextafter(x, y), "fmod(a, b)": np.fmod(x, y), "copysign(a, b)": np.copysign(x, y),
        "fabs(a)": np.abs(x), "fmax(a, b)": np.fmax(x, y), "ldexp(a, c)": np.ldexp(x, n),
    }  # fmt: skip
    text = "\n".join(entry(f"x{i}", c, kind, [kind, kind, "int"]) for i, c in enumerate(calls))
    for i, (name, wanted) in enumerate(calls.items()):
        assert same(run(text, f"x{i}", kind, [x, y, n]), wanted), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, *WIDTHS])
def test_results_beside_results(kind: str, width: int) -> None:
    x, y = (wild(kind, 1200, seed)[:2400] for seed in (5, 6))
    near = np.abs(x) < 1e15
    text = "\n".join(
        [
            entry("fract_", "fract(a, P)", kind, [kind], width, [kind]),
            entry("modf_", "modf(a, P)", kind, [kind], width, [kind]),
            entry("frexp_", "frexp(a, P)", kind, [kind], width, ["int"]),
            entry("sincos_", "sincos(a, P)", kind, [kind], width, [kind]),
            entry("sin_", "sin(a)", kind, [kind], width),
            entry("cos_", "cos(a)", kind, [kind], width),
            entry("lgamma_", "lgamma_r(a, P)", kind, [kind], width, ["int"]),
            entry("ilogb_", "ilogb(a)", "int", [kind], width),
        ]
    )
    part, whole = run(text, "modf_", kind, [x], width, [kind])
    assert same(whole, np.modf(x)[1])
    assert same(part, np.modf(x)[0])
    part, whole = run(text, "fract_", kind, [x], width, [kind])
    assert same(whole, np.floor(x))
    below = TYPES[kind](1) - np.finfo(TYPES[kind]).epsneg
    assert same(np.abs(part[near]), np.minimum(x - np.floor(x), below)[near])
    part, power = run(text, "frexp_", kind, [x], width, ["int"])
    finite = np.isfinite(x)
    assert same(part, np.frexp(x)[0])
    assert np.array_equal(power[finite], np.frexp(x)[1][finite])
    logs = run(text, "ilogb_", "int", [x], width)
    odd = finite & (x != 0)
    assert np.array_equal(logs[odd], np.frexp(x)[1][odd] - 1)
    assert (logs[x == 0] == -(2**31)).all()
    assert (logs[~finite] == 2**31 - 1).all()
    sine, cosine = run(text, "sincos_", kind, [x], width, [kind])
    assert same(sine, run(text, "sin_", kind, [x], width))
    assert same(cosine, run(text, "cos_", kind, [x], width))
    _, sign = run(
        text, "lgamma_", kind, [np.resize(np.array([0.5, -0.5, -1.5, 3, -2.5], x.dtype), 240)], width, ["int"]
    )
    assert np.array_equal(sign, np.resize([1, -1, 1, 1, -1], 240))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 3, 16])
def test_remquo(kind: str, width: int) -> None:
    """Python's integers say what the quotient is."""
    x, y = wild(kind, 1176, 7), wild(kind, 1176, 8)
    x, y = x[:2352], y[:2352]
    y[600:1200] = np.random.default_rng(9).integers(1, 40, 600)
    x[600:1200] = np.random.default_rng(10).integers(-4000, 4000, 600) / 2
    text = entry("remquo_", "remquo(a, b, P)", kind, [kind, kind], width, ["int"]) + "\n"
    text += entry("remainder_", "remainder(a, b)", kind, [kind, kind], width)
    rest, count = run(text, "remquo_", kind, [x, y], width, ["int"])
    assert same(rest, run(text, "remainder_", kind, [x, y], width))
    for a, b, r, q in zip(x.tolist(), y.tolist(), rest.tolist(), count.tolist(), strict=True):
        if not (np.isfinite(a) and np.isfinite(b) and b):
            continue
        exact = round(Fraction(a) / Fraction(b))
        assert Fraction(r) == Fraction(a) - exact * Fraction(b), (a, b)
        assert q == (abs(exact) % 128) * (1 if exact >= 0 else -1), (a, b)
