"""Floating-point numbers as the analysis follows them, against NumPy's single precision: as each operation is rounded,
as sums of products are fused, and as quotients are off by what OpenCL C allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.service import launched
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic import real

IDS = np.arange(48)
ITEM = x.var("i", 0, len(IDS) - 1)
F = np.float32

Tree = tuple[Any, ...]
numbers = st.floats(-300, 300, width=32, allow_subnormal=False) | st.sampled_from(
    [0.5, 0.1, 1.5, 1 / 3, 2.0, 1e-30, 1e9]
)
leaves = (
    st.just(("item",)) | st.integers(-40, 1 << 26).map(lambda n: ("moved", n)) | numbers.map(lambda n: ("number", F(n)))
)
trees = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.sampled_from("+-*"), inner, inner)
        | st.tuples(st.just("/"), inner, numbers.filter(lambda n: abs(n) > 1e-3).map(lambda n: ("number", F(n))))
        | st.tuples(st.sampled_from(["floor", "ceil", "trunc", "fabs", "round"]), inner)
        | st.tuples(st.sampled_from(["fmin", "fmax"]), inner, inner)
    ),
    max_leaves=6,
)
PLAIN: dict[str, Callable[..., Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "fmin": np.minimum, "fmax": np.maximum,
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "fabs": np.abs,
    "round": lambda a: np.trunc(a.astype(float) + np.copysign(0.5, a)),
}  # fmt: skip


def fresh(low: int, high: int) -> x.Expr:
    if low == high:
        return x.const(low)
    fresh.made += 1  # type: ignore[attr-defined]
    return x.var(f"?{fresh.made}", low, high, unknown=True)  # type: ignore[attr-defined]


fresh.made = 0  # type: ignore[attr-defined]


def followed(tree: Tree) -> real.Real | None:
    """As the analysis sees it; None where it gives up."""
    op, *rest = tree
    if op in ("item", "moved"):
        return real.rounded(x.add(ITEM, x.const(rest[0] if rest else 0)))
    if op == "number":
        return real.of_float(float(rest[0]))
    parts = [followed(part) for part in rest]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if op in real.FUNCTIONS:
        return real.FUNCTIONS[op](fresh, *known)
    one, other = known
    return {"+": real.add, "*": real.mul, "/": real.divide}[op](one, other) if op != "-" else real.add(
        one, real.negated(other)
    )  # fmt: skip


def computed(tree: Tree, fuses: bool, off: int) -> np.ndarray:
    """As a device computes it, for all items. ``off``: by how many units in the last place quotients are."""
    op, *rest = tree
    if op in ("item", "moved"):
        return (IDS + (rest[0] if rest else 0)).astype(F)
    if op == "number":
        return np.full(len(IDS), rest[0], F)
    if fuses and op in "+-" and rest[0][0] == "*":
        one, other = (computed(part, fuses, off).astype(np.longdouble) for part in rest[0][1:])
        return PLAIN[op](one * other, computed(rest[1], fuses, off).astype(np.longdouble)).astype(F)
    found = PLAIN[op](*(computed(part, fuses, off) for part in rest)).astype(F)
    for _ in range(abs(off) if op == "/" else 0):
        found = np.where(found == 0, found, np.nextafter(found, F(off) * F(np.inf)))
    return found


WAYS = [(False, 0), (True, 0), (False, 2), (True, -2)]


def check(expected: np.ndarray, found: x.Expr, certain: np.ndarray | bool = True) -> int:
    """How many of the values are known to the last digit."""
    exact = 0
    for item, value, is_certain in zip(IDS, expected, np.broadcast_to(certain, len(IDS)), strict=True):
        here = x.substitute(found, {"i": x.const(int(item))})
        assert not is_certain or here.low <= value <= here.high, (item, value, str(found))
        exact += here.low == here.high
    return exact


@given(trees)
@example(("-", ("+", ("*", ("item",), ("number", F(0.1))), ("number", F(1e6))), ("number", F(1e6))))
@example(("moved", (1 << 24) + 1))
@example(("fmax", ("moved", 4096), ("number", F(1e-30))))
@example(("*", ("number", F(3e9)), ("*", ("moved", 1 << 25), ("number", F(3e9)))))
def test_integers_made_of_floats(tree: Tree) -> None:
    number = followed(tree)
    if number is None:
        return
    for name, rounding in (("_rtz", np.trunc), ("_rtn", np.floor), ("_rtp", np.ceil), ("_rte", np.rint)):
        found = real.INTEGERS[name](number, fresh)
        for fuses, off in WAYS:
            with np.errstate(all="ignore"):
                check(rounding(computed(tree, fuses, off)), found)


@given(trees, trees, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
def test_comparisons_of_floats(left: Tree, right: Tree, op: str) -> None:
    one, other = followed(left), followed(right)
    if one is None or other is None:
        return
    compare: Callable[..., Any] = {
        "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    }[op]  # fmt: skip
    found = real.compare(op, one, other, fresh)
    for fuses, off in WAYS:
        with np.errstate(all="ignore"):
            check(compare(computed(left, fuses, off), computed(right, fuses, off)).astype(int), found)


@pytest.mark.parametrize(("scale", "exact"), [(0.5, 48), (1.0, 48), (2.25, 48), (1 / 3, 32), (0.1, 43), (F(0.7), 43)])
def test_only_what_may_be_rounded_either_way_is_not_known(scale: float, exact: int) -> None:
    """A third of 3, 6, ... may be 1, 2, ..., or a little less; that of all others is no integer."""
    number = real.mul(real.Real(ITEM), real.of_float(float(F(scale))) or real.Real(x.ZERO))
    assert number is not None
    found = real.truncated(number, fresh)
    assert check(np.trunc(IDS.astype(F) * F(scale)), found) == exact + (exact < 48)  # 0 is 0


SOURCE = "kernel void k(global int *d, float f) { int i = get_global_id(0); d[(int)(i * f)] = i; }"


@pytest.mark.parametrize("option", ["-cl-fast-relaxed-math", "-cl-unsafe-math-optimizations", "-cl-mad-enable"])
def test_fast_arithmetic_is_not_followed(option: str) -> None:
    for options, splits in (
        ((), True),
        (("-cl-denorms-are-zero",), True),
        ((option,), False),
        (("-ffast-math",), False),
    ):
        program = parse_program(SOURCE, options=options)
        facts = launched(program, "k", KnownLaunch((64,), (8,), scalars={1: F(2).tobytes()}, sizes={0: 512}))
        assert facts.split(0).splittable == splits
