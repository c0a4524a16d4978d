"""Built-in functions of whole vectors: geometric and relational ones, and shuffles."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.drivers.native.builtins.native_calls import TYPES, WIDTHS, entry, run, same

INTEGERS = [kind for kind in TYPES if kind not in ("float", "double")]
REALS = ("float", "double")
MASKS = {1: "char", 2: "short", 4: "int", 8: "long"}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def size(kind: str) -> int:
    return int(np.dtype(TYPES[kind]).itemsize)


def values(kind: str, count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind in REALS:
        return random.uniform(-8, 8, count).astype(TYPES[kind])
    info = np.iinfo(TYPES[kind])
    return random.integers(info.min, info.max, count, TYPES[kind], endpoint=True)


@functools.cache
def geometric(kind: str, width: int) -> str:
    calls = {"dot": ("dot(a, b)", kind), "length": ("length(a)", kind), "distance": ("distance(a, b)", kind)}
    vectors = {"normalize": "normalize(a)"}
    if kind == "float":
        calls |= {"fast_length": ("fast_length(a)", kind), "fast_distance": ("fast_distance(a, b)", kind)}
        vectors["fast_normalize"] = "fast_normalize(a)"
    if width in (3, 4):
        vectors["cross"] = "cross(a, b)"
    lines = [entry(f"k_{n}", c, kind, [kind, kind], width) for n, c in vectors.items()]
    for name, (call, _) in calls.items():  # the same in all lanes: a vector's result for an entry of vectors
        made = call if width == 1 else f"({kind}{width})({call})"
        lines.append(entry(f"k_{name}", made, kind, [kind, kind], width))
    return "\n".join(lines)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", REALS)
def test_geometry(kind: str, width: int) -> None:
    a, b = values(kind, 120, 1), values(kind, 120, 2)
    scale = np.repeat(np.array([1, 1e-30, 1e30, 1e-160, 1e150], np.longdouble)[: 3 if kind == "float" else 5], width)
    a = (a * np.resize(scale, 120)).astype(TYPES[kind])
    x, y = (v.astype(np.longdouble).reshape(-1, width) for v in (a, b))
    eps = float(np.finfo(TYPES[kind]).eps)
    text = geometric(kind, width)

    def got(name: str) -> np.ndarray:
        return run(text, f"k_{name}", kind, [a, b], width).reshape(-1, width)

    length = np.sqrt((x * x).sum(1))
    assert (np.abs(got("length")[:, 0] - length) <= 3 * eps * length).all()
    assert (np.abs(got("dot")[:, 0] - (x * y).sum(1)) <= 4 * eps * np.abs(x * y).sum(1)).all()
    apart = np.sqrt(((x - y) ** 2).sum(1))
    assert (np.abs(got("distance")[:, 0] - apart) <= 4 * eps * apart).all()
    assert (np.abs(got("normalize") - x / length[:, None]) <= 3 * eps).all()
    if kind == "float":
        usual = (length > 1e-10) & (length < 1e10)
        assert (np.abs(got("fast_length")[:, 0] - length)[usual] <= 8192 * eps * length[usual]).all()
        assert (np.abs(got("fast_distance")[:, 0] - apart)[usual] <= 8192 * eps * apart[usual]).all()
        assert (np.abs(got("fast_normalize") - x / length[:, None])[usual] <= 4 * eps).all()
    if width in (3, 4):
        wanted = np.cross(x[:, :3], y[:, :3])
        bound = 4 * eps * np.abs(x[:, :3]).max(1) * np.abs(y[:, :3]).max(1)
        assert (np.abs(got("cross")[:, :3] - wanted).max(1) <= bound).all()
        assert width == 3 or (got("cross")[:, 3] == 0).all()


@pytest.mark.parametrize("kind", REALS)
def test_geometry_at_the_ends(kind: str) -> None:
    inf, nan, most = np.inf, np.nan, float(np.finfo(TYPES[kind]).max)
    rows = [[0, 0, 0, 0], [inf, 1, -2, -inf], [nan, 1, inf, 0], [most, 0, 0, 0], [most / 4, most / 4, 0, 0]]
    a = np.array(rows, TYPES[kind]).ravel()
    length = run(geometric(kind, 4), "k_length", kind, [a, a], 4)[::4]
    assert length[0] == 0
    assert np.isinf(length[1])
    assert np.isnan(length[2])
    assert length[3] == TYPES[kind](most)
    assert abs(length[4] / TYPES[kind](most) * 4 - 2**0.5) < 1e-6
    unit = run(geometric(kind, 4), "k_normalize", kind, [a, a], 4).reshape(-1, 4)
    assert (unit[0] == 0).all()
    assert np.allclose(unit[1], [0.5**0.5, 0, -0.0, -(0.5**0.5)])
    assert np.isnan(unit[2]).all()
    assert np.allclose(unit[3:], [[1, 0, 0, 0], [0.5**0.5, 0.5**0.5, 0, 0]])


@pytest.mark.parametrize("kind", REALS)
def test_unit_vectors_of_elements_of_any_size(kind: str) -> None:
    """Each element by itself is right, the smallest ones too."""
    ends = np.finfo(TYPES[kind])
    random = np.random.default_rng(3)
    a = np.ldexp(random.uniform(1, 2, 2000), random.integers(ends.minexp, ends.maxexp, 2000)).astype(TYPES[kind])
    x = a.astype(np.longdouble).reshape(-1, 4)
    wanted = x / np.sqrt((x * x).sum(1))[:, None]
    unit = run(geometric(kind, 4), "k_normalize", kind, [a, a], 4).reshape(-1, 4)
    assert (np.abs(unit - wanted) <= 3 * float(ends.eps) * wanted + np.longdouble(ends.smallest_subnormal)).all()


COMPARED = {
    "isequal(a, b)": np.equal, "isnotequal(a, b)": np.not_equal, "isgreater(a, b)": np.greater,
    "isgreaterequal(a, b)": np.greater_equal, "isless(a, b)": np.less, "islessequal(a, b)": np.less_equal,
    "islessgreater(a, b)": lambda a, b: (a < b) | (a > b), "isordered(a, b)": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "isunordered(a, b)": lambda a, b: np.isnan(a) | np.isnan(b), "isfinite(a)": lambda a, b: np.isfinite(a),
    "isinf(a)": lambda a, b: np.isinf(a), "isnan(a)": lambda a, b: np.isnan(a),
    "signbit(a)": lambda a, b: np.signbit(a),
    "isnormal(a)": lambda a, b: np.isfinite(a) & (np.abs(a) >= np.finfo(a.dtype).tiny),
}  # fmt: skip


@pytest.mark.parametrize("kind", REALS)
def test_relations(kind: str) -> None:
    ends = np.finfo(TYPES[kind])
    few = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, ends.tiny, ends.tiny / 2, ends.max, -ends.smallest_subnormal, 2]
    a, b = (x.ravel() for x in np.meshgrid(np.array(few, TYPES[kind]), np.array(few, TYPES[kind])))
    a, b = np.copysign(a, a), b
    mask = MASKS[size(kind)]
    lines = [entry(f"k{i}_1", c, "int", [kind, kind]) for i, c in enumerate(COMPARED)]
    lines += [entry(f"k{i}_{w}", c, mask, [kind, kind], w) for i, c in enumerate(COMPARED) for w in WIDTHS]
    text = "\n".join(lines)
    for i, (call, exact) in enumerate(COMPARED.items()):
        wanted = exact(a, b)
        assert np.array_equal(run(text, f"k{i}_1", "int", [a, b]), wanted.astype(int)), call
        for width in WIDTHS:
            got = run(text, f"k{i}_{width}", mask, [a, b], width)
            assert np.array_equal(got, -wanted.astype(int)), (call, width)


@pytest.mark.parametrize("kind", ["char", "short", "int", "long"])
def test_any_and_all(kind: str) -> None:
    calls = {(n, w): f"{n}(a)" if w == 1 else f"({kind}{w})({n}(a))" for w in (1, *WIDTHS) for n in ("any", "all")}
    text = "\n".join(entry(f"{name}{width}", call, kind, [kind], width) for (name, width), call in calls.items())
    for width in (1, *WIDTHS):
        a = values(kind, 48 * 8, width)
        a[:96] = np.abs(a[:96] // 2)
        a[96:192] = -1 - np.abs(a[96:192] // 2)
        rows = (a < 0).reshape(-1, width)
        for name, wanted in (("any", rows.any(1)), ("all", rows.all(1))):
            got = run(text, f"{name}{width}", kind, [a], width)
            assert np.array_equal(got, np.repeat(wanted, width)), (name, width)


@pytest.mark.parametrize("kind", TYPES)
def test_select(kind: str) -> None:
    """By the sign of vectors' elements, by whether scalars are 0."""
    a, b = values(kind, 96, 1), values(kind, 96, 2)
    for mask in (MASKS[size(kind)], "u" + MASKS[size(kind)]):
        c = values(mask, 96, 3)
        c[::3] = 0
        signs = c.view(TYPES[mask.removeprefix("u")]) < 0
        text = "\n".join(entry(f"k{w}", "select(a, b, c)", kind, [kind, kind, mask], w) for w in (1, *WIDTHS))
        assert same(run(text, "k1", kind, [a, b, c]), np.where(c != 0, b, a))
        for width in WIDTHS:
            assert same(run(text, f"k{width}", kind, [a, b, c], width), np.where(signs, b, a)), width


@pytest.mark.parametrize("kind", REALS)
def test_bits_of_floats_are_selected(kind: str) -> None:
    bits = np.uint32 if kind == "float" else np.uint64
    a, b, c = (np.random.default_rng(s).integers(0, np.iinfo(bits).max, 48, bits) for s in (1, 2, 3))
    text = "\n".join(entry(f"k{width}", "bitselect(a, b, c)", kind, [kind] * 3, width) for width in (1, *WIDTHS))
    for width in (1, *WIDTHS):
        got = run(text, f"k{width}", kind, [x.view(TYPES[kind]) for x in (a, b, c)], width)
        assert same(got, ((a & ~c) | (b & c)).view(TYPES[kind])), width


@pytest.mark.parametrize("kind", TYPES)
def test_shuffles(kind: str) -> None:
    mask = "u" + MASKS[size(kind)]
    a, b, c = values(kind, 16, 1), values(kind, 16, 2), values(mask, 16, 3)
    lines, cases = [], []
    for of in (2, 4, 8, 16):
        for to in (2, 4, 8, 16):
            given = [f"({kind}{of})({', '.join(f'{n}_[{i}]' for i in range(of))})" for n in "ab"]
            by = f"({mask}{to})({', '.join(f'c_[{i}]' for i in range(to))})"
            for name, arguments, both in (("shuffle", given[:1], a[:of]), ("shuffle2", given, np.r_[a[:of], b[:of]])):
                call = f"vstore{to}({name}({', '.join(arguments)}, {by}), 0, r);"
                head = f"void {name}{of}_{to}(ulong n, {kind} *r, const {kind} *a_, const {kind} *b_, const {mask} *c_)"
                lines.append(f"{head} {{ {call} }}")
                cases.append((f"{name}{of}_{to}", both[(c[:to].astype(np.uint64) % len(both)).astype(int)]))
    for name, wanted in cases:
        assert same(run("\n".join(lines), name, kind, [a, b, c])[: len(wanted)], wanted), name
