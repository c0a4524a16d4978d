"""Expressions of the analysis in C's notation: their text has their value, and accesses read as elements."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.analysis.service import parse_program, symbolic
from manycl.analysis.summary import KernelSummary, MemoryAccess
from manycl.analysis.symbolic import expr as x
from manycl.report.analysis.as_text import MOST, cut, line_of
from manycl.report.analysis.expr import AccessWriter, divided, named, show

NAMES = ("gid0", "gid1", "n", "k")


def variables() -> st.SearchStrategy[x.Expr]:
    return st.sampled_from([x.var(name, 0, 50) for name in NAMES])


def grown(inner: st.SearchStrategy[x.Expr]) -> st.SearchStrategy[x.Expr]:
    def quotient(a: x.Expr, by: int) -> x.Expr:
        found = x.divide(a, x.const(by), floor=True)
        assert found is not None
        return found

    def remainder(a: x.Expr, by: int) -> x.Expr:
        found = x.remainder(a, x.const(by), floor=True)
        assert found is not None
        return found

    two = (inner, inner)
    return st.one_of(
        st.builds(x.add, *two),
        st.builds(x.subtract, *two),
        st.builds(x.mul, *two),
        st.builds(x.scale, inner, st.integers(-5, 5)),
        st.builds(lambda a, c: x.add(a, x.const(c)), inner, st.integers(-9, 9)),
        st.builds(x.minimum, *two),
        st.builds(x.maximum, *two),
        st.builds(quotient, inner, st.integers(1, 7)),
        st.builds(remainder, inner, st.integers(1, 7)),
        st.builds(lambda a, b, c: x.select(x.less(a, b), b, c), inner, inner, inner),
        st.builds(lambda a, b, c: x.select(x.both(x.negate(x.equal(a, b)), x.less(c, b)), a, c), inner, inner, inner),
        st.builds(lambda a, b, c: x.either(x.less(a, b), x.equal(b, c)), inner, inner, inner),
        st.builds(lambda a, b: x.negate(x.equal(a, b)), *two),
    )


class _C:
    """A reader of C's expressions, by precedence: no code shared with the writer."""

    LEVELS = (("||",), ("&&",), ("==", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"))

    def __init__(self, text: str, values: dict[str, int]) -> None:
        self.words = re.findall(r"\w+|[|&=!<>]{2}|[<>!?:()+\-*/%,]", text)
        self.values = values

    def ternary(self) -> int:
        condition = self.binary(0)
        if self.words[:1] != ["?"]:
            return condition
        self.take("?")
        yes = self.ternary()
        self.take(":")
        no = self.ternary()
        return yes if condition else no

    def take(self, word: str) -> None:
        assert self.words.pop(0) == word

    def binary(self, level: int) -> int:
        if level == len(self.LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.words and self.words[0] in self.LEVELS[level]:
            sign = self.words.pop(0)
            left = self.apply(sign, left, self.binary(level + 1))
        return left

    @staticmethod
    def apply(sign: str, a: int, b: int) -> int:
        quotient = (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if sign in "/%" else 0
        return int(
            {
                "||": lambda: bool(a or b),
                "&&": lambda: bool(a and b),
                "==": lambda: a == b,
                "!=": lambda: a != b,
                "<": lambda: a < b,
                "<=": lambda: a <= b,
                ">": lambda: a > b,
                ">=": lambda: a >= b,
                "+": lambda: a + b,
                "-": lambda: a - b,
                "*": lambda: a * b,
                "/": lambda: quotient,
                "%": lambda: a - b * quotient,
            }[sign]()
        )

    def unary(self) -> int:
        word = self.words.pop(0)
        if word == "-":
            return -self.unary()
        if word == "!":
            return int(not self.unary())
        if word == "(":
            found = self.ternary()
            self.take(")")
            return found
        if word in ("min", "max", "mod"):
            self.take("(")
            left = self.ternary()
            self.take(",")
            right = self.ternary()
            self.take(")")
            return {"min": min, "max": max, "mod": lambda a, b: a % b}[word](left, right)
        if word == "floor":  # of a quotient: rounded down
            self.take("(")
            left = self.binary(6)
            while self.words[0] == "*":
                self.take("*")
                left *= self.binary(6)
            self.take("/")
            right = self.unary()
            self.take(")")
            return left // right
        return int(word) if word.isdigit() else self.values[word]


@settings(max_examples=400, deadline=None)
@given(st.recursive(variables(), grown, max_leaves=8), st.lists(st.integers(0, 50), min_size=4, max_size=4))
def test_the_text_of_an_expression_has_its_value(expr: x.Expr, numbers: list[int]) -> None:
    values = dict(zip(NAMES, numbers, strict=True))
    expected = x.substitute(expr, {name: x.const(v) for name, v in values.items()})
    assert expected.op == "const"
    reader = _C(show(expr), values)
    assert reader.ternary() == expected.value
    assert reader.words == []


@settings(max_examples=200, deadline=None)
@given(st.recursive(variables(), grown, max_leaves=5), st.integers(1, 8), st.lists(st.integers(0, 50), min_size=4))
def test_what_is_divided_is_divided(expr: x.Expr, by: int, numbers: list[int]) -> None:
    values = {name: x.const(v) for name, v in zip(NAMES, numbers, strict=False)}
    found = divided(x.scale(expr, by), by)
    if found is not None:
        whole, part = x.substitute(x.scale(expr, by), values), x.substitute(found, values)
        assert part.value * by == whole.value


def accesses(source: str, kernel: str = "k") -> list[str]:
    program = parse_program(source)
    reader = AccessWriter(program.kernels[kernel], symbolic(program, kernel))
    return [line_of(reader, access) for access in reader.summary.accesses]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a[get_global_id(1) * n + get_global_id(0)] = 1;", "a[gid1*n + gid0]"),
        ("int i = get_global_id(0); if (i >= 2 && i < n) a[i] = 1;", "a[gid0]  if gid0 > 1 && gid0 < n"),
        ("int i = get_global_id(0); if (i + 1 < n) a[n - 1 - i] = 1;", "a[n - gid0 - 1]  if gid0 + 1 < n"),
        ("for (int k = 0; k < n; k++) a[k] = 1;", "a[k]  for k in 0..n"),
        ("for (int k = 1; k < n; k += 3) a[k] = 1;", "a[3*k# + 1]  for k# in 0..ceil((n - 1) / 3)"),
        (
            "for (int i = get_global_id(0); i < n; i += get_global_size(0)) a[i] = 1;",
            "a[gsz0*i# + gid0]  for i# in 0..ceil((n - gid0) / gsz0)",
        ),
        ("vstore4((float4)(0), get_global_id(0), a);", "a[4*gid0:4]"),
        ("((global char *)a)[4 * get_global_id(0) + 1] = 1;", "a[gid0] byte 1"),
        ("((global short *)a)[get_global_id(0)] = 1;", "((char *)a)[2*gid0:2]"),
        ("v[get_global_id(0)].yz = (float2)(0);", "v[gid0].y"),
        ("v[n] = (float4)(0);", "v[n]"),
        ("p[get_global_id(0)].y = 1;", "p[gid0] bytes 4 to 7"),
        ("a[index[get_global_id(0)]] = 1;", "a[index[gid0]]"),
        ("a[v[n].x > 0] = 1;", "a[?1]"),
    ],
)
def test_accesses_read_like_c(body: str, expected: str) -> None:
    struct = "typedef struct { int x, y; } pair;\n"
    arguments = "global float *a, global float4 *v, global pair *p, global const int *index, int n"
    assert expected in accesses(f"{struct}kernel void k({arguments}) {{ {body} }}")


def test_atomics_say_what_they_do() -> None:
    source = (
        "kernel void k(global int *c, global int *o) { atomic_inc(c + 1); o[get_global_id(0)] = atomic_add(c, 2); }"
    )
    lines = accesses(source)
    assert "inc c[1]" in lines
    assert "add c[0], its old value is used" in lines


def test_an_unknown_value_is_explained() -> None:
    facts = KernelFacts("k", 1, (ArgumentFacts(0, "a", "buffer", "float", "float", 1, 4, "global"),))
    unknown = x.var("?1", 0, 9, unknown=True)
    reader = AccessWriter(facts, KernelSummary("k"))
    assert reader.elements(MemoryAccess(0, "read", x.scale(unknown, 4), 4, x.ONE, (), 3)) == "a[?1]"
    assert reader.unknowns == {"?1": "not followed"}
    assert named("contents of argument 0 read in line 3", facts) == "contents of a read in line 3"


def test_long_lists_are_cut() -> None:
    lines = [f"  {i}" for i in range(MOST + 12)]
    assert cut(lines, False) == [*lines[:MOST], "  ... and 12 more"]
    assert cut(lines, True) == lines
    few: list[Any] = lines[: MOST + 1]
    assert cut(few, False) == few  # nothing is gained by hiding one


def test_short_products_read_as_products() -> None:
    """mul24 and mad24 are defined for short numbers alone, which nothing says the arguments are."""
    source = """kernel void k(global int *d, uint w) {
        uint x = get_global_id(0), y = get_global_id(1);
        d[mad24(y, w, x)] = mul24(x, 2u);
    }"""
    (access,) = symbolic(parse_program(source), "k").accesses
    assert "4*gid1*w + 4*gid0" in show(access.offset)
