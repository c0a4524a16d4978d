"""What annotations say in a launch: against Python's arithmetic, for every work-item."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.annotations import ElementBounds, Operation, Symbol, Term
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.symbolic import expr as x
from manycl.errors import LaunchError
from manycl.graph.graph import BufferArg
from manycl.graph.graph import Launch as Node
from manycl.graph.known import _Terms, known_launch

PROGRAM = parse_program("kernel void k(int n, uint u, global int *a, float f) { a[get_global_id(0)] = n + u + f; }")
KERNEL = PROGRAM.kernels["k"]
IDS = [Symbol(kind, d, f"{kind}{d}") for kind in ("gid", "lid", "grp") for d in range(2)]
SIZES = [Symbol(kind, d, f"{kind}{d}") for kind in ("gsz", "lsz", "ngrp") for d in range(2)]
VALUES = [Symbol("scalar", 0, "n"), Symbol("scalar", 1, "u"), Symbol("len", 2, "a")]
LAUNCHES = st.builds(
    lambda sizes, local, offset, n, u: KnownLaunch(
        sizes,
        local[: len(sizes)],
        offset[: len(sizes)] if offset else (),
        {0: n.to_bytes(4, "little", signed=True), 1: u.to_bytes(4, "little")},
        {2: 28},
    ),
    st.sampled_from([(6,), (6, 4), (5, 3)]),
    st.sampled_from([(3, 2), (2, 1), (4, 4)]),
    st.sampled_from([(), (0, 0), (5, 2)]),
    st.integers(-3, 4),
    st.sampled_from([0, 2, 3, (1 << 32) - 1]),
)


def terms(symbols: list[Symbol]) -> st.SearchStrategy[Term]:
    return st.recursive(
        st.integers(-3, 5) | st.sampled_from(symbols),
        lambda inner: st.builds(
            Operation, st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]), st.tuples(inner, inner)
        ),
        max_leaves=4,
    )


def meaning(launch: KnownLaunch, symbol: Symbol, group: tuple[int, ...], local: tuple[int, ...]) -> int:
    d = symbol.index
    if symbol.kind == "scalar":
        return int.from_bytes(launch.scalars[d], "little", signed=d == 0)
    if symbol.kind == "len":
        return 7
    beyond = d >= len(launch.global_size)
    if symbol.kind in ("gsz", "lsz", "ngrp"):
        size, own = (1, 1) if beyond else (launch.global_size[d], launch.local_size[d])
        return {"gsz": size, "lsz": own, "ngrp": -(-size // own)}[symbol.kind]
    if beyond:
        return 0
    start = launch.offset[d] if launch.offset else 0
    in_all = start + group[d] * launch.local_size[d] + local[d]
    return {"gid": in_all, "lid": local[d], "grp": group[d]}[symbol.kind]


def counted(term: Term, values: Mapping[str, int]) -> int:
    """Python's own arithmetic."""
    if isinstance(term, int):
        return term
    if isinstance(term, Symbol):
        return values[term.name]
    left, right = (counted(operand, values) for operand in term.operands)
    if term.op in ("min", "max"):
        return min(left, right) if term.op == "min" else max(left, right)
    return int(eval(f"a {term.op} b", {"a": left, "b": right}))


def divisors(term: Term) -> list[Term]:
    if not isinstance(term, Operation):
        return []
    own = [term.operands[1]] if term.op in ("//", "%") else []
    return own + [d for operand in term.operands for d in divisors(operand)]


def points(launch: KnownLaunch) -> Any:
    """The ids of all work-items."""
    sizes = list(zip(launch.global_size, launch.local_size, strict=True))
    for group in itertools.product(*(range(-(-size // own)) for size, own in sizes)):
        for local in itertools.product(*(range(min(size, own)) for size, own in sizes)):
            yield group, local


def _is_nought(term: Term, launch: KnownLaunch, of: Mapping[str, Symbol], at: Any) -> bool:
    try:
        return counted(term, {name: meaning(launch, s, *at) for name, s in of.items()}) == 0
    except ZeroDivisionError:
        return False


NUMERATORS = st.builds(Operation, st.just("-"), st.tuples(st.sampled_from(IDS), st.integers(0, 5)))
DIVISORS = st.builds(Operation, st.just("+"), st.tuples(st.sampled_from(IDS), st.integers(-1, 3)))
QUOTIENTS = st.builds(Operation, st.sampled_from(["//", "%"]), st.tuples(NUMERATORS, DIVISORS))


@settings(max_examples=200)
@given(LAUNCHES, terms([*IDS, *SIZES, *VALUES]) | QUOTIENTS)
def test_what_is_said_in_terms_of_ids_is_what_python_counts(launch: KnownLaunch, term: Term) -> None:
    """Where a divisor may be nought, or a quotient is none that the analysis has, nothing is said."""
    known = _Terms(launch, KERNEL)
    of = {s.name: s for s in [*IDS, *SIZES, *VALUES]}
    try:
        found = known.expression(term, "a")
    except LaunchError:
        # a part of it is nought for all of them
        assert any(all(_is_nought(d, launch, of, at) for at in points(launch)) for d in divisors(term))
        return
    if found is None:
        assert any(not isinstance(d, int) for d in divisors(term))
        return
    assert not any(_is_nought(d, launch, of, at) for d in divisors(term) for at in points(launch))
    for group, local in points(launch):
        values = {name: meaning(launch, s, group, local) for name, s in of.items()}
        ids = {f"grp{d}": x.const(n) for d, n in enumerate(group)} | {
            f"lid{d}": x.const(n) for d, n in enumerate(local)
        }
        here = x.substitute(found, ids)
        assert here.low == here.high == counted(term, values)


@given(LAUNCHES, terms([*SIZES, *VALUES]), terms([*SIZES, *VALUES]))
def test_bounds_of_values_are_numbers(launch: KnownLaunch, low: Term, high: Term) -> None:
    values = {s.name: meaning(launch, s, (0, 0), (0, 0)) for s in [*SIZES, *VALUES]}
    known = _Terms(launch, KERNEL)
    try:
        expected = counted(low, values), counted(high, values)
    except ZeroDivisionError:
        with pytest.raises(LaunchError, match="divides by zero"):
            known.numbers(ElementBounds(low, high), "a")
    else:
        assert known.numbers(ElementBounds(low, high), "a") == expected


@pytest.mark.parametrize("keys", [(0, 1, 2), (0, 0, 1), (1, 0, 1), (2, 2, 2)])
def test_arguments_in_one_memory_are_told(keys: tuple[int, int, int]) -> None:
    program = parse_program("kernel void k(global int *a, int n, global int *b, float f, global int *c) { *a = *b; }")
    kernel = program.kernels["k"]
    a, b, c = map(BufferArg, keys)
    node = Node("k", program, kernel, (8,), (4,), (a, b"\3\0\0\0", b, b"\0\0\0\0", c), (), (), (16,))
    found = known_launch(node, {0: 4, 1: 8, 2: 12})
    assert found.global_size == (8,)
    assert found.local_size == (4,)
    assert found.offset == (16,)
    assert found.scalars == {1: b"\3\0\0\0"}, "no subscript depends on a float"
    places = dict(zip((0, 2, 4), keys, strict=True))
    assert found.sizes == {i: 4 * (key + 1) for i, key in places.items()}
    assert found.same == {
        i: min(j for j in places if places[j] == key)
        for i, key in places.items()
        if key in [places[j] for j in places if j < i]
    }
