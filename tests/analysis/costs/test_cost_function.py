"""Cost functions in symbols against what a person derives, and against the launches of the corpus."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from manycl.analysis.costs.cost_function import CostFunction, cost_function
from manycl.analysis.interpreter.interpret import interpret
from manycl.analysis.symbolic import expr as x
from tests.analysis.corpus_case import Case
from tests.analysis.corpus_case import Launch as CaseLaunch
from tests.analysis.costs.test_cost import value
from tests.analysis.kernel_corpus import BY_NAME, CASES
from tests.analysis.regions.test_regions import _program, facts_of


@functools.lru_cache(maxsize=16)
def function_of(name: str, text: str, options: tuple[str, ...] = ()) -> CostFunction:
    unit, facts = _program(text, options)
    return cost_function(interpret(unit, facts[name]))


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # the first seven are those of MKMD's Table 1 that have loops, and loops of the other papers
        ("matrix_multiply", "T * inner"),
        ("k_means_assign", "T * clusters*dimensions"),
        ("n_body", "T * (n / lsz0)*lsz0"),
        ("black_scholes", "T * ((-1*gid0 + gsz0 + n - 1) / gsz0)"),
        ("fdtd_3d", "T * (2*nz)"),
        ("monte_carlo", "T * paths"),
        ("attention_scores", "T * beta"),
        ("stencil_2d", "T"),
        ("triangular", "T * (gid0 + 1)"),
        ("covariance", "T * (-1*gid0*n + m*n)"),
        ("nested_loops", "T * ((b + 1) / 2)*a"),
        ("spmv_csr", "T * trips(162)"),
        ("softmax_row_each", "T * (3*n - 1)"),
    ],
)
def test_cost_functions(name: str, expected: str) -> None:
    found = function_of(name, BY_NAME[name].source, BY_NAME[name].options)
    assert str(found) == expected
    assert bool(found.unknown) == ("trips" in expected)


LOOPS = {
    "if (n > 3) { for (int k = 0; k < n; k++) d[i]++; } else { for (int k = 0; k < m; k++) d[i]++; }": "T * max(n, m)",
    "for (int k = 0; k < n; k++) d[i]++; for (int k = 0; k < m; k++) d[i]++;": "T * (m + n)",
    "for (int k = 0; k < n; k++) { for (int j = 0; j < m; j++) d[i]++; for (int j = 0; j < k; j++) d[i]++; }": (
        "T * (m*n - 1*n + n*n)"
    ),
    "for (int k = 0; k < n; k++) for (int j = k; j < n; j++) d[i]++;": "T * n*n",
    "for (int k = 0; k < n && d[k]; k++) d[i]++;": "T * n",
    "d[i] = 0;": "T",
}


@pytest.mark.parametrize("body", LOOPS)
def test_sums_products_and_bounds(body: str) -> None:
    text = f"kernel void f(global int *d, int n, int m) {{ int i = get_global_id(0); {body} }}"
    assert str(function_of("f", text)) == LOOPS[body]


@pytest.mark.parametrize(
    ("body", "expected", "known"),
    [
        ("for (int k = 0; k < n; k++) { if (d[k]) break; d[i]++; }", "T * n", False),
        ("int k = 0, *p = &k; for (int j = 0; k < n && j < 100; j++) *p += 1;", "T * min(max(n, 0), 100)", True),
        ("struct one a = {0}, *p = &a; for (int j = 0; a.k < n && j < 100; j++) p->k += 1;", "T * 100", False),
        ("for (int j = 0; j < s.n; j++) d[i]++;", "T * s.n", True),
        (
            "for (int j = 0; j < s.of[i].k; j++) for (int k = 0; k < s.of[n].k; k++) d[i]++;",
            "T * trips(1)*trips(1)",
            False,
        ),
    ],
)
def test_what_a_body_changes_by_jumps_and_pointers(body: str, expected: str, known: bool) -> None:
    """And members of arguments, of which those that a subscript chooses differ."""
    records = "struct one { int k, l; }; struct all { struct one of[4]; int n; };"
    text = f"{records} kernel void f(global int *d, int n, struct all s) {{ int i = get_global_id(0); {body} }}"
    found = function_of("f", text)
    assert str(found) == expected
    assert (not found.unknown) == known


def test_domain_and_terms() -> None:
    text = """kernel void f(global float *d, global const float *s, int n, int m) {
        int i = get_global_id(0);
        if (i < n) for (int k = 0; k < m; k++) { d[i] += s[k] * 2; d[i] += 1; }
    }"""
    found = function_of("f", text)
    assert [str(c) for c in found.domain] == ["(-1 < m)"]
    assert found.unknown == ()
    assert [str(t) for t in found.operations["load.global"]] == ["(3*m) if (gid0 < n)"]
    assert [str(t) for t in found.operations["float.mul"]] == ["m if (gid0 < n)"]
    assert [str(t) for t in found.operations["compare.int"]] == ["1", "m if (gid0 < n)", "1 if (gid0 < n)"]


def scalars(case: Case, ndrange: CaseLaunch, found: CostFunction) -> dict[str, int] | None:
    """What the variables of f are in a launch, if it depends on integer scalars only."""
    _, facts = _program(case.source, case.options)
    known = {
        argument.name: int(given)
        for argument, given in zip(facts[case.name].arguments, ndrange.arguments, strict=True)
        if isinstance(given, np.integer)
    }
    names = found.f.variables()
    return known if all(name in known for name in names) else None


def test_f_holds_in_launches() -> None:
    """Where scalars alone decide trips, T f is at least what the launch counts, and that where nothing is guarded."""
    checked = same = 0
    for case in CASES:
        found = function_of(case.name, case.source, case.options)
        if found.unknown or not found.f.variables():
            continue
        for ndrange in case.launches:
            known = scalars(case, ndrange, found)
            work = facts_of(case, ndrange).work()
            if known is None or not work.exact or not all(value(c, known) for c in found.domain):
                continue
            cost = work.work_items * value(found.f, known)
            assert work.cost <= max(cost, work.work_items), case.name
            checked += 1
            same += work.cost == cost
    assert checked > 60
    assert same > 30


def test_kernels_without_a_summary() -> None:
    text = "kernel void f(global int *d) { if (d[0]) goto end; { d[0] = 1; end: ; } }"
    unit, facts = _program(text, ())
    summary = interpret(unit, facts["f"])
    assert summary.failure
    assert cost_function(summary).f == x.ONE
