"""Annotations: Python's own arithmetic is the oracle of bounds; everything wrong is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.annotations import (
    Annotation,
    AnnotationError,
    ElementBounds,
    Operation,
    Symbol,
    about_data,
    annotation,
    evaluate,
    merge,
)

SOURCE = """
typedef struct { int a; float b; } pair;
kernel void gather(global const int *index, global const float *from, global float *to, global float4 *both,
                   global uint *unused, int n, long stride, float factor, int4 four, int lid1, local float *tmp,
                   global pair *pairs, global void *raw) {
  int i = get_global_id(0);
  if (i < n) to[i * stride] = factor * from[index[i]];
  both[i] += four.x + lid1;
  pairs[i].a = tmp[0];
  ((global int *)raw)[i] = 1;
}
"""
KERNEL = parse_program(SOURCE).kernels["gather"]
VALUES = {"n": 7, "stride": -3, "gid0": 5, "lid2": 2, "grp1": 11, "gsz0": 64, "lsz1": 4, "ngrp2": 9, "len(to)": 100}

LEAVES = st.sampled_from([*VALUES, "0", "1", "12", "2.0"])
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, st.sampled_from(["+", "-"]), inner).map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        inner.map(lambda t: f"-({t})"),
        st.tuples(inner, inner).map(lambda t: f"min({t[0]}, {t[1]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"max({t[0]}, {t[1]}, {t[2]})"),
        st.tuples(inner, inner).map(lambda t: f"ceil_div({t[0]}, {t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"round_up({t[0]}, {t[1]})"),
    ),
    max_leaves=12,
)


def value(symbol: Symbol) -> int:
    found = VALUES[str(symbol)]
    names = [a.name for a in KERNEL.arguments]
    if symbol.kind in ("scalar", "len"):
        assert names[symbol.index] == symbol.name
    else:
        assert symbol.name == f"{symbol.kind}{symbol.index}"
    return found


def oracle(text: str) -> int:
    scope: dict[str, Any] = {
        **VALUES,
        "to": range(100),
        "min": min,
        "max": max,
        "len": len,
        "ceil_div": lambda a, b: -(-a // b),
        "round_up": lambda a, b: -(-a // b) * b,
    }
    return int(eval(text, scope))


@given(TREES)
def test_bounds_agree_with_python(text: str) -> None:
    """The text's value is Python's, and the term's own text is read as the same term again."""
    try:
        expected = oracle(text)
    except ZeroDivisionError:
        with pytest.raises((AnnotationError, ZeroDivisionError)):
            evaluate(annotation(KERNEL, "to", within=(text, "gid0 + n")).writes.low, value)  # type: ignore[union-attr]
        return
    made = annotation(KERNEL, "to", within=(text, "gid0 + n")).writes
    assert made is not None
    assert evaluate(made.low, value) == expected
    assert annotation(KERNEL, "to", within=(str(made.low), str(made.high))).writes == made


@given(st.text(max_size=30) | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers()))
def test_nothing_but_annotation_errors(bound: Any) -> None:
    try:
        made = annotation(KERNEL, "index", values=(bound, "n"))
    except AnnotationError as error:
        assert error.field[0] == "values"  # noqa: PT017
    else:
        assert isinstance(made.values, ElementBounds)


def test_what_is_said() -> None:
    index = annotation(KERNEL, "index", values=(0, "len(from) - k"), distinct=True, symbols={"k": 2, "n": 99})
    high = Operation("-", (Symbol("len", 1, "from"), 2))
    assert index == Annotation(0, "index", ElementBounds(0, high), True)
    assert index.to_json() == {"argument": 0, "name": "index", "values": ["0", "len(from) - 2"], "distinct": True}
    to = annotation(KERNEL, 2, within=("gid0 * stride", "n"), symbols={"n": 99})
    assert to.reads is None  # the kernel only writes it
    assert to.writes == ElementBounds(
        Operation("*", (Symbol("gid", 0, "gid0"), Symbol("scalar", 6, "stride"))), Symbol("scalar", 5, "n")
    )
    assert to.to_json() == {"argument": 2, "name": "to", "within": {"writes": ["gid0 * stride", "n"]}}
    both = annotation(KERNEL, "both", within=(0, 4))
    assert both.reads == both.writes == ElementBounds(0, 4)
    apart = annotation(KERNEL, "both", within={"reads": ("0", "n"), "writes": ("gid0", "gid0 + 1")})
    assert apart.to_json()["within"] == {"reads": ["0", "n"], "writes": ["gid0", "gid0 + 1"]}


def test_merging() -> None:
    first = annotation(KERNEL, "index", values=(0, 4))
    second = annotation(KERNEL, "index", distinct=True, within=("gid0", "gid0 + 1"))
    other = annotation(KERNEL, "to", within=(0, 9))
    merged = merge(merge((), [other]), [first, second])
    assert [a.name for a in merged] == ["index", "to"]
    assert merged[0].to_json() == {
        "argument": 0,
        "name": "index",
        "values": ["0", "4"],
        "distinct": True,
        "within": {"reads": ["gid0", "gid0 + 1"]},
    }
    again = merge(merged, [annotation(KERNEL, "index", values=(1, 3))])
    assert (again[0].values, again[0].distinct, again[0].reads) == (ElementBounds(1, 3), True, merged[0].reads)
    assert about_data(merged) == (Annotation(0, "index", ElementBounds(0, 4), True),)


ERRORS: list[tuple[str, dict[str, Any], tuple[Any, ...], str]] = [
    ("indx", {"distinct": True}, (), "kernel gather has no argument 'indx' (did you mean 'index'?)"),
    ("", {"distinct": True}, (), "kernel gather has no argument ''"),
    ("n", {"distinct": True}, (), "kernel gather, argument 5 (n) is no buffer: there is nothing to annotate"),
    ("tmp", {"within": (0, 1)}, (), "kernel gather, argument 10 (tmp) is no buffer: there is nothing to annotate"),
    ("index", {}, (), "kernel gather, argument 0 (index): the annotation says nothing"),
    ("index", {"within": {}}, (), "kernel gather, argument 0 (index): the annotation says nothing"),
    (
        "from",
        {"values": (0, 1)},
        ("values",),
        "kernel gather, argument 1 (from) is no index array: its elements are float",
    ),
    (
        "pairs",
        {"distinct": True},
        ("distinct",),
        "kernel gather, argument 11 (pairs) is no index array: its elements are pair",
    ),
    (
        "raw",
        {"within": (0, 1)},
        ("within",),
        "kernel gather, argument 12 (raw): elements of void have no size to count in",
    ),
    (
        "index",
        {"within": {"writes": (0, 1)}},
        ("within", "writes"),
        "kernel gather, argument 0 (index) is never written by the kernel",
    ),
    ("unused", {"within": (0, 1)}, ("within",), "kernel gather, argument 4 (unused) is never used by the kernel"),
    (
        "index",
        {"within": {"read": (0, 1)}},
        ("within", "read"),
        "kernel gather, argument 0 (index): within has reads and writes, no 'read'",
    ),
    ("index", {"values": "0n"}, ("values",), "values needs two bounds, low and high, not '0n'"),
    ("index", {"values": (0, 1, 2)}, ("values",), "values needs two bounds, low and high, not (0, 1, 2)"),
    ("index", {"values": (4, 2 + 2)}, ("values",), "there is no integer from 4 to below 4"),
    ("index", {"values": (0, "strid")}, ("values", 1), "unknown symbol 'strid' (did you mean 'stride'?)"),
    (
        "index",
        {"values": ("gid0", "n")},
        ("values", 0),
        "'gid0' differs between work-items, the values of an array do not",
    ),
    ("to", {"within": ("factor", "n")}, ("within", 0), "'factor' is of type float, not an integer"),
    ("to", {"within": ("four", "n")}, ("within", 0), "'four' is of type int4, not an integer"),
    (
        "to",
        {"within": ("0", "from + 1")},
        ("within", 1),
        "'from' is a buffer: len(from) is its number of elements (in 'from + 1')",
    ),
    ("to", {"within": ("lid1", 4)}, ("within", 0), "'lid1' is an argument of kernel gather as well"),
    ("to", {"within": ("n / 2", 4)}, ("within", 0), "/ is not allowed in a bound: use // or ceil_div (in 'n / 2')"),
    ("to", {"within": ("n // 0", 4)}, ("within", 0), "division by zero (in 'n // 0')"),
    ("to", {"within": (0.5, 4)}, ("within", 0), "0.5 is not an integer"),
    ("to", {"within": ("n +", 4)}, ("within", 0), "'n +' is not an arithmetic expression"),
    ("to", {"within": ("", 4)}, ("within", 0), "an empty expression has no value"),
    ("to", {"within": ("n[0]", 4)}, ("within", 0), "'n[0]' is not allowed in a bound"),
    ("to", {"within": ("open('x')", 4)}, ("within", 0), "unknown function 'open' (in \"open('x')\")"),
    ("to", {"within": ("min(n)", 4)}, ("within", 0), "min takes at least 2 argument(s), got 1 (in 'min(n)')"),
    (
        "to",
        {"within": ("len(n)", 4)},
        ("within", 0),
        "len takes the name of a buffer argument, not 'n' (in 'len(n)')",
    ),
    ("to", {"within": (2**70, 4)}, ("within", 0), f"{2**70} is too large"),
    ("to", {"within": (0, "2**n")}, ("within", 1), "'2 ** n' is not allowed in a bound (in '2**n')"),
    ("to", {"within": (0, "(" * 300 + "n" + ")" * 300)}, ("within", 1), "is not an arithmetic expression"),
]


@pytest.mark.parametrize(("argument", "said", "field", "words"), ERRORS, ids=[e[3][:60] for e in ERRORS])
def test_what_is_wrong(argument: str, said: dict[str, Any], field: tuple[Any, ...], words: str) -> None:
    with pytest.raises(AnnotationError) as caught:
        annotation(KERNEL, argument, **said)
    assert caught.value.field == field
    message = caught.value.message
    assert message == words or (words.startswith("is not an") and message.endswith(words))


@pytest.mark.parametrize("text", ["+".join(["n"] * 500), "-" * 900 + "n", "n" + " * (n" * 150 + ")" * 150])
def test_deep_expressions_are_refused(text: str) -> None:
    with pytest.raises(AnnotationError, match=r"nested too deeply|not an arithmetic"):
        annotation(KERNEL, "to", within=(text, "n"))
    assert annotation(KERNEL, "to", within=("+".join(["n"] * 100), "n")).writes is not None
