"""Loops whose counter is halved or doubled: how often they run at most, against running them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.interpreter.interpret import interpret
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.api.program import Program
from manycl.model.trips import trip_count
from tests.analysis.regions.test_regions import _program


def trips(header: str) -> Expr | None:
    unit, facts = _program(f"kernel void f(global int *x, int n, uint m) {{ for ({header}) x[i] += 1; }}", ())
    loops = interpret(unit, facts["f"]).loops
    assert len(loops) <= 1
    return loops[0].trips if loops else x.ONE  # what is done once, or never, is no loop


@settings(max_examples=60)
@given(
    start=st.integers(0, 5000),
    by=st.integers(2, 5),
    least=st.integers(0, 40),
    kind=st.sampled_from(["int", "uint", "long", "short"]),
    shifts=st.booleans(),
)
def test_what_is_divided(start: int, by: int, least: int, kind: str, shifts: bool) -> None:
    steps = f"i >>= {by}" if shifts else f"i /= {by}"
    i, expected = start, 0
    while i > least:
        i, expected = i >> by if shifts else i // by, expected + 1
    found = trips(f"{kind} i = {start}; i > {least}; {steps}")
    assert found is not None
    assert found.value == max(expected, 1)


@settings(max_examples=60)
@given(start=st.integers(1, 50), by=st.integers(2, 5), end=st.integers(0, 5000), kind=st.sampled_from(["int", "uint"]))
def test_what_is_multiplied(start: int, by: int, end: int, kind: str) -> None:
    i, expected = start, 0
    while i < end:
        i, expected = i * by, expected + 1
    found = trips(f"{kind} i = {start}; i < {end}; i *= {by}")
    assert found is not None
    assert found.value == max(expected, 1)


@pytest.mark.parametrize(
    ("header", "most"),
    [
        ("int i = get_local_size(0) / 2; i > 0; i >>= 1", 30),
        ("int i = n; i > 0; i /= 2", 31),
        ("int i = 1; i < n; i <<= 1", 31),
        ("uint i = get_local_size(0); i; i >>= 1", 32),
    ],
)
def test_of_what_sizes_and_scalars_decide_there_is_a_bound(header: str, most: int) -> None:
    found = trips(header)
    assert found is not None
    assert most - 1 <= found.value <= most
    text = f"kernel void f(global int *x, int n) {{ for ({header}) x[i] += 1; }}"
    program = Program(text)
    assert trip_count(program.facts, program.f.facts).bounded


@pytest.mark.parametrize(
    "header",
    [
        "int i = x[0]; i > 0; i /= 2",  # data decide
        "int i = n; i != 1; i /= 2",  # it may come by
        "int i = 0; i < n; i *= 2",  # it stays 0
        "uint i = 1; i < m; i *= 2",  # it may come around
        "int i = 64; i > 0; i -= i / 2",  # it stays 1
        "int i = n; i; i /= 1",
    ],
)
def test_others_have_none(header: str) -> None:
    found = trips(header)
    assert found is None or found.unknown


def test_what_grows_too_long_to_be_followed() -> None:
    """Every condition may have held or not: twice as many values each time."""
    body = " ".join(f"if (x[{k}]) i += {3**k};" for k in range(14))
    unit, facts = _program(f"kernel void f(global int *x, int n) {{ for (int i = n; i > 0;) {{ {body} }} }}", ())
    (loop,) = interpret(unit, facts["f"]).loops
    assert loop.trips is None
