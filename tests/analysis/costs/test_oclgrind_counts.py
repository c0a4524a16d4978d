"""Oclgrind's counts of kernels whose counts a person derived; they agree with the random kernels' own oracle."""

from __future__ import annotations

import pytest

from tests.analysis import truth
from tests.analysis.corpus_case import Case, f32, i32, launch, out
from tests.analysis.costs.oclgrind_counts import Job, count_all, instruction_counts, parse
from tests.analysis.generated.generator import Generated, generate, touched_by
from tests.analysis.kernel_corpus import BY_NAME

truth.device(truth.OCLGRIND)  # skips where it is missing

TWICE = "kernel void twice(global float *d, global const float *s) { int i = get_global_id(0); d[i] = s[i] + s[i]; }"
SHORT_CIRCUIT = """kernel void tests(global int *d, global const int *s, int n) {
    int i = get_global_id(0);
    if (i < n && s[i] > 0) d[i] = 1;
    for (int k = 0; k < 3; k++) d[i] += k;
}"""


def derived() -> list[tuple[Job, dict[str, int]]]:
    """Launches, and counts that follow from the source alone."""
    multiply, reduce, stride = (BY_NAME[n] for n in ("matrix_multiply", "reduce_tree", "grid_stride"))
    accumulate, counters = BY_NAME["gemm_alpha_beta"], BY_NAME["histogram_local"]
    tests = Case("tests", "", (launch(8, 2, out(8, "i4"), i32(8), 5),), (True,), text=SHORT_CIRCUIT)
    return [
        # 49 of 64 items, each 6 products; the guard's second half is reached by 7 of 8 columns
        (
            Job(multiply, multiply.launches[0]),
            {
                "load global": 49 * 12,
                "load global bytes": 49 * 12 * 4,
                "store global": 49,
                "call llvm.fmuladd.f32": 49 * 6,
                "icmp": 64 + 56 + 49 * 7,
            },
        ),
        # rows 0 and 1 of the matrix
        (Job(multiply, multiply.launches[0], 1, 0, 1), {"load global": 14 * 12, "store global": 14}),
        # 4 groups of 8 items halve three times
        (
            Job(reduce, reduce.launches[0]),
            {
                "load global": 32,
                "store global": 4,
                "call barrier": 32 * 4,
                "fadd": 4 * (4 + 2 + 1),
                "load local": 4 * (2 * 7 + 1),
                "store local": 32 + 28,
                "icmp": 32 * (4 + 3 + 1),
            },
        ),
        (Job(stride, stride.launches[0]), {"load global": 90, "store global": 90, "fadd": 90, "icmp": 90 + 16}),
        # an element that is updated in memory is loaded and stored each time
        (
            Job(accumulate, accumulate.launches[0]),
            {"load global": 42 * (1 + 3 * 5), "store global": 42 * (1 + 5), "icmp": 8 * 8 + 7 * 8 + 42 * 6},
        ),
        (Job(tests, tests.launches[0]), {"load global": 5 + 24, "store global": 5 + 24, "icmp": 8 + 5 + 8 * 4}),
        # 16 bins per group are cleared, 60 bytes counted, and 16 bins stored
        (
            Job(counters, counters.launches[0]),
            {"load global": 60, "load global bytes": 60, "call atomic_inc": 60, "store global": 64, "load local": 64},
        ),
    ]


def test_counts_follow_from_the_source() -> None:
    known = derived()
    for (job, expected), counts in zip(known, count_all([job for job, _ in known]), strict=True):
        assert {name: counts.get(name, 0) for name in expected} == expected, job.case.name


def test_optimised_code_loads_less() -> None:
    case = Case("twice", "", (launch(8, 2, out(8), f32(8)),), (True,), text=TWICE)
    assert instruction_counts(case, case.launches[0])["load global"] == 16
    assert instruction_counts(case, case.launches[0], optimised=True)["load global"] == 8


def test_a_launch_that_fails_is_an_error() -> None:
    case = Case("absent", "", (launch(8, 2, out(8), f32(8)),), (True,), text=TWICE)
    with pytest.raises(RuntimeError, match="0 of 1"):
        instruction_counts(case, case.launches[0])
    assert count_all([]) == []


def test_blocks_are_parsed() -> None:
    text = "noise\nInstructions executed for kernel 'a':\n     1,189 - br\n  12 - load global (48 bytes)\n"
    text += "  8 - call _Z13get_global_idj()\n  2 - call llvm.fmuladd.f32()\n\nInstructions executed for kernel 'b':\n"
    first = {
        "br": 1189,
        "load global": 12,
        "load global bytes": 48,
        "call get_global_id": 8,
        "call llvm.fmuladd.f32": 2,
    }
    assert parse(text) == [("a", first), ("b", {})]


def plain_accesses(case: Generated) -> bool:
    """Only accesses that are one load or store each: no vectors or atomics."""
    assert case.tree is not None
    return not any(word in case.tree.text for word in ("vload", "vstore", "2 *)", "4 *)", "atomic_"))


def test_random_kernels_load_and_store_what_their_oracle_says() -> None:
    cases = [case for seed in (11, 12) for case in generate(seed, 25).cases if plain_accesses(case)]
    assert len(cases) >= 10
    for case, counts in zip(cases, count_all([Job(c, c.launches[0]) for c in cases]), strict=True):
        expected = {"load global": 0, "store global": 0, "load global bytes": 0, "store global bytes": 0}
        for kind, _, items, _, size in touched_by(case, case.launches[0]).events:
            for word, kinds in (("load", ("read", "update")), ("store", ("write", "update"))):
                if kind in kinds:
                    expected[f"{word} global"] += items.size
                    expected[f"{word} global bytes"] += items.size * size
        assert {name: counts.get(name, 0) for name in expected} == expected, case.name
