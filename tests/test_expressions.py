"""Expressions: Python's own arithmetic is the oracle; nothing but ExpressionError ever comes out."""

from __future__ import annotations

import ast
import contextlib
import math
import warnings
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.expressions import (
    ExpressionError,
    evaluate,
    evaluate_integer,
    expand,
    names,
    parse,
    split_list,
    suggest,
)

SCOPE = {"n": 6, "m": 7, "x": 0.5, "big": 2**40}

LEAVES = st.sampled_from(["n", "m", "x", "big", "0", "1", "3", "2.5", "1e3"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda t: f"-{t}"),
        st.tuples(inner, inner).map(lambda t: f"min({t[0]}, {t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"max({t[0]}, {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} < {t[2]} else {t[2]})"),
    ),
    max_leaves=12,
)


@given(TREES)
def test_agrees_with_python(text: str) -> None:
    try:
        expected = eval(text, {"min": min, "max": max}, dict(SCOPE))
    except (ZeroDivisionError, OverflowError):
        with pytest.raises(ExpressionError):
            evaluate(text, SCOPE)
        return
    bounded = isinstance(expected, float) or abs(expected) < 2**250
    if bounded and math.isfinite(expected):
        result = evaluate(text, SCOPE)
        assert result == expected
        assert type(result) is type(expected)


@given(st.integers(-1000, 1000), st.integers(-1000, 1000).filter(bool))
def test_division_of_integers(a: int, b: int) -> None:
    scope = {"a": a, "b": b}
    assert evaluate("a / b", scope, pyschedcl=True) == math.floor(Fraction(a, b))
    assert evaluate("ceil_div(a, b)", scope) == math.ceil(Fraction(a, b))
    if a % b:
        with pytest.raises(ExpressionError, match="not a whole number: use // or ceil_div"):
            evaluate("a / b", scope)
    else:
        assert evaluate("a / b", scope) == Fraction(a, b)
    assert evaluate("a / (b * 1.0)", scope) == a / b


@given(st.text(max_size=60))
@settings(max_examples=400)
def test_no_text_does_harm(text: str) -> None:
    for pyschedcl in (False, True):
        try:
            result = evaluate(text, SCOPE, pyschedcl=pyschedcl)
        except ExpressionError:
            continue
        assert isinstance(result, (int, float))
        assert math.isfinite(result)


ALPHABET = st.lists(
    st.sampled_from(
        [
            "n",
            "m",
            "9",
            "**",
            "*",
            "<<",
            "(",
            ")",
            "-",
            "/",
            "//",
            "%",
            ",",
            "min(",
            "sqrt(",
            "1e308",
            "[",
            "]",
            ".",
        ]
    ),
    max_size=25,
).map("".join)


@given(st.integers(0, 999), st.sampled_from("-+~(["))
def test_no_nesting_breaks_the_reader(depth: int, mark: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert abs(evaluate(mark * depth + "n", SCOPE)) == 6


@given(ALPHABET)
@settings(max_examples=400)
def test_no_arithmetic_explodes(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert math.isfinite(evaluate(text, SCOPE))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("9**9**9", "too large"),
        ("(-2)**0.5", "not a real number"),
        ("1 << 10**6", "not far"),
        ("10**80", "too large"),
        ("n" + "+n" * 600, "too long"),
        ("(" * 300 + "n" + ")" * 300, "not an arithmetic"),
        ("", "empty"),
        ("n +", "not an arithmetic expression"),
        ("1if n else 2", "not an arithmetic expression"),
        ("n / 0", "division by zero"),
        ("1e308 * 10", "finite"),
        ("sqrt(-1)", "no finite value"),
        ("k + 1", "unknown symbol 'k'"),
        ("biig", "did you mean 'big'"),
        ("miin(1, 2)", "unknown function 'miin'.*did you mean 'min'"),
        ("min(1)", "at least 2 argument"),
        ("ceil(1, 2)", "ceil takes 1 argument"),
        ("gcd(1.5, 2)", "gcd takes integers"),
        ("'a'", "not allowed"),
        ("True.real", "not allowed"),
        ("__import__('os')", "unknown function"),
        ("[1, 2]", "not allowed"),
        ("(lambda: 1)()", "not allowed"),
        ("n if n", "not an arithmetic"),
        ("min(*n, m)", "not allowed"),
        ("n is m", "not allowed"),
        ("1j", "not allowed"),
        ("n @ m", "not allowed"),
        ("~n", "not allowed"),
        ("partition_round(n, 3)", "unknown function"),
        ("n\x00", "not an arithmetic"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ExpressionError, match=words):
        evaluate(text, SCOPE)


def test_values() -> None:
    assert evaluate("round_up(n, 4)", SCOPE) == 8
    assert evaluate("2 ** -1", {}) == 0.5
    assert evaluate("n < m < 8 and not x > 1", SCOPE) == 1
    assert evaluate("0 or m", SCOPE) == 7
    assert evaluate("log2(big)", SCOPE) == 40
    assert evaluate("1 << 3", SCOPE) == 8
    assert evaluate("partition_round(n, size_percent)", {**SCOPE, "size_percent": 100}, pyschedcl=True) == 6
    assert evaluate(2.5, {}) == 2.5
    assert evaluate_integer("x * 4", SCOPE) == 2
    with pytest.raises(ExpressionError, match="not a whole number"):
        evaluate_integer("x", SCOPE)


def test_templates_names_and_lists() -> None:
    assert expand("Q{n}_{n + 1}", SCOPE) == "Q6_7"
    assert expand("plain", SCOPE) == "plain"
    with pytest.raises(ExpressionError, match="unknown symbol 'h'"):
        expand("Q{h}", SCOPE)
    assert names("min(n, m) + k ** 2") == {"n", "m", "k"}
    assert split_list("[n1, m1 / 2]") == ["n1", "m1 / 2"]
    assert split_list("(a, b)") == ["a", "b"]
    assert split_list("a + b") == ["a + b"]
    assert suggest("qeues", ["queues", "name"]) == " (did you mean 'queues'?)"
    assert suggest("zzz", ["queues", "name"]) == ""


def test_other_threads_may_warn_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filters of warnings are the whole process's."""
    seen = []

    def looking(*args: Any, **kwargs: Any) -> Any:
        seen.append(list(warnings.filters))
        return parse_python(*args, **kwargs)

    parse_python = ast.parse
    monkeypatch.setattr(ast, "parse", looking)
    parse.cache_clear()
    before = list(warnings.filters)
    evaluate("3 * n + 1", {"n": 4})
    assert seen == [before]


def _share(elements: int, percent: int, *rest: int) -> int:
    words = ", ".join(map(str, (elements, percent, *rest)))
    return evaluate_integer(f"partition_round({words})", {}, pyschedcl=True)


@pytest.mark.parametrize(
    ("elements", "percent", "share"),
    # as PySchedCL cuts its datasets: tenths of sizes below 100, else hundredths
    [
        *((4096, 0, 0), (4096, 100, 4096), (4096, 30, 1200), (4096, 70, 2896), (4096, 50, 2048), (64, 30, 18)),
        *((64, 70, 46), (33, 30, 10), (33, 70, 23), (33, 50, 17), (1001, 10, 101), (1001, 90, 900)),
        *((5, 30, 1), (0, 100, 0), (7, 0, 0)),
    ],
)
def test_shares_of_pyschedcl(elements: int, percent: int, share: int) -> None:
    assert _share(elements, percent) == share


@given(st.integers(0, 10**6), st.integers(0, 100))
def test_shares_of_two_devices_are_all(elements: int, percent: int) -> None:
    both = elements % 2 if percent == 50 else 0  # of an odd number, PySchedCL's halves both have the one in the middle
    assert _share(elements, percent) + _share(elements, 100 - percent) == elements + both
    assert abs(_share(elements, percent) - elements * percent / 100) <= 101
