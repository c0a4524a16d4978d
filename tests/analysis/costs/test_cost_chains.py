"""Costs of integer generators: whatever is computed, a launch has costs, and what does not depend on it is exact."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import _unit
from manycl.group_range import GroupRange

PARK_MILLER = """
    int k = x / 127773;
    x = 16807 * (x - k * 127773) - 2836 * k;
    if (x < 0) x += 2147483647;
"""
CONSTANTS = st.sampled_from([1, 2, 3, 7, 64, 2836, 16807, 65535, 127773, 2147483647])
ATOMS = st.sampled_from(["x", "y", "j", "n", "(int)get_local_id(0)"])
OPERATORS = st.sampled_from(["+", "-", "*", "/", "%", "^", "&", ">>", "<<"])


@st.composite
def terms(draw: st.DrawFn) -> str:
    left, op = draw(ATOMS), draw(OPERATORS)
    right = str(draw(st.integers(1, 31))) if op in (">>", "<<") else draw(st.one_of(CONSTANTS.map(str), ATOMS))
    if op in "/%" and not right.isdigit():
        right = f"({right} + 1)"
    return f"({left} {op} {right})"


@st.composite
def bodies(draw: st.DrawFn) -> str:
    statements = []
    for _ in range(draw(st.integers(1, 4))):
        target, value = draw(st.sampled_from(["x", "y"])), " + ".join(draw(st.lists(terms(), min_size=1, max_size=3)))
        test = draw(st.sampled_from(["", "if (x < 0) ", "if (y > x) ", f"if (x % {draw(st.integers(2, 9))} == 1) "]))
        statements.append(f"{test}{target} = {value};")
    return " ".join(statements)


def facts_of(body: str, rounds: int, type_: str) -> LaunchFacts:
    source = f"""kernel void generator(global const {type_} *in, global {type_} *out, int n) {{
        {type_} x = in[get_global_id(0)], y = n;
        for (int j = 0; j < {rounds}; j++) {{ {body} }}
        out[get_global_id(0)] = x + y;
    }}"""
    program = parse_program(source)
    launch = KnownLaunch((256,), (64,), (), {2: b"\5\0\0\0"}, {0: 2048, 1: 2048})
    return LaunchFacts(_unit(program), program.kernels["generator"], launch)


def check(facts: LaunchFacts) -> None:
    work = facts.work()
    assert work.operations, work.reason
    assert (work.operations["load.global"], work.operations["store.global"]) == (256, 256)
    assert facts.work(GroupRange(0, 1, 2)).operations["store.global"] == 128
    written = facts.region(1, "write", GroupRange(0, 1, 1))
    assert (written.exact, written.nbytes) == (True, 64 * facts.facts.arguments[1].size)


def test_the_park_miller_generator_has_costs() -> None:
    """With each of its rounds, the expression of its state doubles and more."""
    for rounds in (5, 6, 12, 40):
        check(facts_of(PARK_MILLER, rounds, "int"))


@given(bodies(), st.integers(1, 16), st.sampled_from(["int", "uint", "long", "short"]))
@settings(max_examples=60)
def test_integer_generators_have_costs(body: str, rounds: int, type_: str) -> None:
    check(facts_of(body, rounds, type_))
