"""Mathematical built-in functions of float and double against mpmath, and at the ends of their domains."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np
import pytest

from tests.drivers.native.builtins.mathematical_ends import ENDS
from tests.drivers.native.builtins.mathematical_oracle import FUNCTIONS, arguments, errors
from tests.drivers.native.builtins.native_calls import TYPES, WIDTHS, entry, run, same

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of what is no number
OWN = 0.51
"""Functions of float are computed in double: nearly correctly rounded. What is a product or a quotient is not."""
IN_FLOATS = ("exp", "log", "sin", "cos")
OF_FLOATS = 1.5
"""Those are computed in float."""
ROUNDED_TWICE = ("rsqrt", "degrees", "radians")
NAN = np.nan
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
    limit = OF_FLOATS if kind == "float" and name in IN_FLOATS else limit
    off = errors(function, TYPES[kind], got, given)
    worst = int(np.argmax(off))
    assert off[worst] <= limit, (name, [x[worst] for x in given], got[worst], off[worst])


@functools.cache
def vectors(kind: str) -> str:
    """All of them of all widths: compilers begin only so often."""
    return "\n".join(
        entry(f"w{width}_{name}", call(name), kind, kinds(name, kind), width)
        for name in FUNCTIONS
        for width in (2, 3, 4)
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_and_vectors_have_the_bits_of_one_at_a_time(name: str) -> None:
    """Clang makes vector code of the loop over all elements; calls of one element each have none."""
    for kind in KINDS:
        given = [x[:144] for x in arguments(FUNCTIONS[name], TYPES[kind], seed=3, count=70)]
        given = [np.tile(x[:48], 3) for x in given]
        whole = run(text(kind), f"k_{name}", kind, given)
        single = [run(text(kind), f"k_{name}", kind, [x[i : i + 1] for x in given])[0] for i in range(48)]
        assert same(whole, np.tile(np.array(single, TYPES[kind]), 3)), kind
        for width in (2, 3, 4):
            assert same(run(vectors(kind), f"w{width}_{name}", kind, given, width), whole), (kind, width)


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
    ends = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, NAN, 0.5, 1e-310, 1e-40, 3.5, -2.5], TYPES[kind])
    return np.concatenate([values, ends, np.random.default_rng(seed).uniform(-50, 50, count).astype(TYPES[kind])])


@pytest.mark.parametrize("kind", KINDS)
def test_exact_ones_are_numpys(kind: str) -> None:
    x, y = wild(kind, 3000, 1), wild(kind, 3000, 2)
    n = np.random.default_rng(3).integers(-2300, 2300, len(x)).astype(np.int32)
    n[::3] = np.random.default_rng(4).integers(-160, 160, len(n[::3]))
    calls = {
        "ceil(a)": np.ceil(x),
        "floor(a)": np.floor(x), "trunc(a)": np.trunc(x), "rint(a)": np.rint(x), "sqrt(a)": np.sqrt(x),
        "nextafter(a, b)": np.nextafter(x, y), "fmod(a, b)": np.fmod(x, y), "copysign(a, b)": np.copysign(x, y),
        "fabs(a)": np.abs(x), "fmax(a, b)": np.fmax(x, y), "ldexp(a, c)": np.ldexp(x, n),
    }  # fmt: skip
    text = "\n".join(entry(f"x{i}", c, kind, [kind, kind, "int"]) for i, c in enumerate(calls))
    for i, (name, wanted) in enumerate(calls.items()):
        assert same(run(text, f"x{i}", kind, [x, y, n]), wanted), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, *WIDTHS])
def test_results_beside_results(kind: str, width: int) -> None:
    x = wild(kind, 1200, 5)[:2400]
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


@pytest.mark.parametrize("prefix", ["half_", "native_"])
def test_native_and_half_ones(prefix: str) -> None:
    """Where programs use them as exact as the others, and sines of whatever is finite lie between -1 and 1."""
    random = np.random.default_rng(1)
    positive, angles = random.uniform(1e-3, 80, 960).astype(np.float32), random.uniform(-60000, 60000, 960)
    two = {"divide": "a / b", "powr": "powr(a, b)"}
    one = ["cos", "exp", "exp2", "exp10", "log", "log2", "log10", "rsqrt", "sin", "sqrt", "tan"]
    calls = {n: f"{n}(a)" for n in one} | two | {"recip": "1 / a"}
    lines = []
    for name, other in calls.items():
        given = "a, b" if name in two else "a"
        lines.append(entry(f"p_{name}", f"{prefix}{name}({given})", "float", ["float", "float"], 3))
        lines.append(entry(f"q_{name}", other, "float", ["float", "float"]))
    for name in calls:
        a = angles.astype(np.float32) if name in ("sin", "cos", "tan") else positive
        got, wanted = (run("\n".join(lines), f"{k}_{name}", "float", [a, positive], w) for k, w in (("p", 3), ("q", 1)))
        assert (np.abs(got - wanted) <= np.spacing(np.abs(wanted))).all() or same(got, wanted), name
    huge = (random.uniform(1, 2, 960) * 2.0 ** random.integers(20, 127, 960)).astype(np.float32)
    assert (np.abs(run("\n".join(lines), "p_sin", "float", [huge, huge], 3)) <= 1).all()
