"""Device-Hopping's features against counts that a person derives from the source by the paper's rules."""

from __future__ import annotations

import math

import pytest

from manycl.analysis.costs.cost_function import COMPARISONS, COMPUTE, CPU, MEMORY, Features, static_features
from manycl.analysis.interpreter.interpret import interpret
from tests.analysis.corpus_case import Case, f32, i32, launch, out
from tests.analysis.costs.test_cost import MULTIPLY
from tests.analysis.regions.test_regions import _program, facts_of

HEADER = "kernel void f(global float *d, global const int *s, int n) { int i = get_global_id(0); "
# (body, comparisons, compute operations, memory accesses) for n = 10 and 16 work-items
RULES = {
    "plain": ("d[i] = s[i] * 2.0f;", (0, 1, 2)),
    "loop": ("for (int k = 0; k < n; k++) d[i] += 1;", (11, 20, 20)),
    "guard_counts": ("if (i < n) d[i] = 1;", (1, 0, 1)),
    "both_branches_count": ("if (i < n) d[i] = 1; else d[i + 1] = 2;", (1, 1, 2)),
    "lone_branch_in_a_loop": ("for (int k = 0; k < n; k++) if (s[k] == i) d[i] = 1;", (21, 10, 10)),
    "lone_branch_in_a_loop_that_ids_decide": ("for (int k = 0; k < n; k++) if (k < i) d[i] = 1;", (21, 10, 10)),
    "inside_of_a_point_that_was_found": ("for (int k = 0; k < n; k++) if (s[k]) if (k < i) d[i] = 1;", (21, 10, 10)),
    "branches_in_a_loop": ("for (int k = 0; k < n; k++) if (s[k]) d[i] = 1; else d[0] = 1;", (21, 10, 30)),
    "lone_branch_around_a_loop": ("if (i < n) for (int k = 0; k < n; k++) d[k] = 1;", (12, 10, 10)),
    "unknown_bound": ("for (int k = 0; k < s[i]; k++) d[i] = k;", (2, 1, 3)),
    "unknown_term": ("for (int k = 0; k < n && s[k] > 0; k++) d[i] = k;", (21, 10, 20)),
    "mean_over_ids": ("for (int k = 0; k < i; k++) d[i] = k;", (8.5, 7.5, 7.5)),
    "special": ("d[i] = sqrt(d[i]) + sin(d[i]);", (0, 3, 3)),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    body, expected = RULES[name]
    ndrange = launch(16, 4, out(16), i32(16), 10)
    facts = facts_of(Case("f", "", (), (True,), text=HEADER + body + " }"), ndrange)
    found = facts.features
    assert (found.comparisons, found.compute, found.memory_accesses) == expected


def test_bytes_are_those_of_buffers_that_are_read() -> None:
    n = 12
    text = "kernel void f(global float *d, global const float *s, global float *b) { d[0] = s[0] + b[0]; b[1] = 0; }"
    facts = facts_of(Case("f", "", (), (True,), text=text), launch(n, 4, out(100), f32(60), f32(6)))
    found = facts.features
    assert found.bytes_transferred == 4 * 66 / n
    assert found.values("gpu") == (22, 1)
    assert found.values("cpu") == (0, 1, 4)
    assert found.logarithms("gpu") == (math.log(23), math.log(2))
    with pytest.raises(KeyError):
        found.values("tpu")


def test_static_features() -> None:
    unit, facts = _program(MULTIPLY, ())
    found = static_features(interpret(unit, facts["multiply"]))
    assert {name: str(found[name]) for name in CPU} == {
        COMPARISONS: "(n + 3)",
        COMPUTE: "(7*n + 2)",
        MEMORY: "(2*n + 1)",
    }


def test_large_launches_are_quick_and_alike() -> None:
    """The features of a work-item do not depend on how many there are."""
    case = Case("multiply", "", (), (True, True), text=MULTIPLY)
    found = []
    for side in (32, 4096):
        facts = facts_of(case, launch((side, side), (16, 16), f32(1), f32(1), f32(1), 20))
        found.append(facts.features)
    assert [f.values("cpu") for f in found] == [(23, 142, 41)] * 2


def test_no_work_items_no_features() -> None:
    assert Features(0, 0, 0, 0).logarithms("cpu") == (0, 0, 0)
