"""Random kernels' own oracle against Oclgrind and PoCL, and what the generator promises."""

from __future__ import annotations

import os
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.analysis import truth
from tests.analysis.corpus_case import Same
from tests.analysis.generated import expressions as ge
from tests.analysis.generated import operands as go
from tests.analysis.generated.generator import Generated, Program, generate, programs, touched, touched_by
from tests.analysis.generated.own_process import own_process

NIGHTLY = bool(os.environ.get("NIGHTLY"))
SEEDS = range(40) if NIGHTLY else range(2)
KERNELS = 25


def check_ranges(case: Generated, name: str) -> None:
    """What a range writes is what the oracle says, and nothing it reads lies elsewhere."""
    ndrange = case.launches[0]
    all_touched = touched_by(case, ndrange)
    for dimension, groups in enumerate(ndrange.groups):
        for first, count in sorted({(0, groups), (groups // 2, 1)}):
            where = f"{case.name}, dimension {dimension}, groups [{first}, {first + count})"
            reads, writes, atomics = touched(case, ndrange, dimension, first, count)
            changed = truth.written(case, ndrange, dimension, first, count, name)
            for i, mask in changed.items():
                assert not (mask & ~(writes[i] | atomics[i])).any(), (
                    f"written, but not foreseen: argument {i} of {where}"
                )
            group = all_touched.group(dimension)
            chosen = (group >= first) & (group < first + count)
            for kind, i, items, at, size in all_touched.events:
                if kind in ("write", "atomic"):  # an update with ^= may undo itself
                    lanes = at[chosen[items]][:, None] + np.arange(size)
                    assert changed[i][lanes].any(axis=1).all(), f"foreseen, but not written: argument {i} of {where}"
            known = {i: reads[i] | atomics[i] for i in reads}
            assert truth.reads_leak(case, ndrange, dimension, first, count, known, name) == [], where


def check_case(case: Generated, name: str) -> None:
    ndrange = case.launches[0]
    check_ranges(case, name)
    for dimension, splits in enumerate(case.split):
        if splits:
            assert truth.split_matches_whole(case, ndrange, dimension, 3, name), f"{case.name}, dimension {dimension}"
    if case.idempotent:
        assert truth.repeats(case, ndrange, name), case.name


def check_program(seed: int, kernels: int, name: str) -> None:
    for case in generate(seed, kernels).cases:
        check_case(case, name)


def check_on_pocl(seed: int) -> None:
    del truth.UNOPTIMISED[truth.POCL]
    os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"  # groups that race do so in the same way every time
    check_program(seed, 4, truth.POCL)


@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_agrees_with_oclgrind(seed: int, capfd: pytest.CaptureFixture[str]) -> None:
    check_program(seed, KERNELS, truth.OCLGRIND)
    said = capfd.readouterr()
    assert "Invalid" not in said.err + said.out  # every access lies in its buffer


@pytest.mark.parametrize("seed", range(1000, 1040) if NIGHTLY else [1002])
def test_oracle_agrees_with_pocl(seed: int) -> None:
    """In a process of its own: now and then PoCL's compiler crashes or does not come to an end."""
    truth.device(truth.POCL)
    status = own_process(check_on_pocl, seed)
    if status is None or status < 0:
        pytest.skip(f"PoCL crashed or hung: {status}")
    assert status == 0


def test_conflicts_and_changes_are_seen() -> None:
    """Verdicts are not only safe: what is called a conflict is one that runs show, but for a few by chance."""
    cases = generate(2, 12).cases
    bad = [(c, d) for c in cases for d, splits in enumerate(c.split) if not splits]
    seen = [truth.groups_conflict(c, c.launches[0], d) for c, d in bad]
    assert len(bad) >= 8
    assert sum(seen) >= 0.9 * len(bad)
    assert any(not c.idempotent and not truth.repeats(c, c.launches[0]) for c in cases)


def test_same_seed_gives_the_same_program_and_a_kernel_does_not_depend_on_the_others() -> None:
    one, again, fewer = generate(7, 6), generate(7, 6), generate(7, 2)
    assert (one.text, repr(one.cases)) == (again.text, repr(again.cases))
    assert repr(fewer.cases[0].launches) == repr(one.cases[0].launches)
    assert fewer.text in one.text
    assert generate(8, 2).text != fewer.text


def test_programs_show_the_language() -> None:
    cases = [case for seed in range(8) for case in generate(seed, KERNELS).cases]
    text = "\n".join({case.tree.text for case in cases if case.tree})
    words = {
        "loops": r"\bfor \(",
        "while": r"\bwhile \((?!.*;)",
        "do": r"\bdo \{",
        "!= condition": r"for \([^;]*; \(k\d+ != ",
        "countdown": r"k\d+-- > 0",
        "geometric": r"k\d+ (?:\*=|<<=|/=|>>=) [123]\b",
        "grid-stride": r"\+= get_global_size",
        "switch": r"\bswitch\b",
        "fall-through": r";\n +(?:case \d|default): ;",
        "break": r"\bbreak;",
        "continue": r"\bcontinue;",
        "return": r"\breturn;",
        "vload": r"\bvload\d+\(",
        "vstore": r"\bvstore\d+\(",
        "swizzle": r"\]\.(?:lo|hi|even|odd|[xyzw]+)\b",
        "struct": r"record \*\)",
        "rows": r"\(\*\)\[",
        "narrow cast": r"\(global (?:uchar|short) \*\)",
        "wide cast": r"\(global ulong \*\)",
        "pointer steps": r"\bp\d+(?:\+\+| \+= )",
        "choice of pointers": r"\? a\d : a\d\)",
        "out-parameters": r"\*o\d+ = ",
        "helpers": r"g\d+_\d+_h\d+\(",
        "private arrays": r"int t\d+\[\d\] = ",
        "data-dependent": r"steer\[",
        "atomics": r"\batomic_add\(",
        "unsigned interval": r"\(\(uint\)\w+\) - \d+u\) < \d+u",
        "modulo": r" % ",
        "narrowing": r"\(\((?:uchar|short|ushort)\)",
        "functions": r"\b(?:clamp|mad24|mul24|select|abs_diff|hadd|mul_hi|rotate)\(",
        "size_t": r"\bsize_t [ikv]\d+",
        "short": r"\bshort [ikv]\d+",
    }
    assert not [word for word, pattern in words.items() if len(re.findall(pattern, text)) < 2]
    assert {len(case.launches[0].global_size) for case in cases} == {1, 2, 3}
    assert any(isinstance(a, Same) for case in cases for a in case.launches[0].arguments)
    assert any(any(case.launches[0].offset) for case in cases)
    share = np.mean([all(case.split) for case in cases])
    assert 0.15 < share < 0.85


@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(programs(3))
def test_drawn_programs_are_launches_in_bounds(program: Program) -> None:
    for case in program.cases:
        ndrange = case.launches[0]
        whole = [touched(case, ndrange, d, 0, ndrange.groups[d]) for d in range(len(ndrange.groups))]
        for i, buffer in ndrange.buffers.items():
            parts = [touched(case, ndrange, 0, g, 1) for g in range(ndrange.groups[0])]
            for kind in range(3):
                assert whole[0][kind][i].size == buffer.nbytes
                assert (np.logical_or.reduce([p[kind][i] for p in parts]) == whole[0][kind][i]).all()
                assert all((w[kind][i] == whole[0][kind][i]).all() for w in whole)
        assert any(w.any() for masks in whole[0][1:] for w in masks.values())


def evaluated(e: ge.Expression, **variables: int) -> int:
    s = ge.State(1, {}, {n: np.array([v], np.int64) for n, v in variables.items()}, {})
    return int(e.value(s, np.ones(1, bool))[0])


def test_arithmetic_is_that_of_c() -> None:
    i, u, z = ge.Variable("i", ge.INT), ge.Variable("u", ge.UINT), ge.Variable("z", ge.SIZE)
    one, seven = ge.Literal(1), ge.Literal(7)
    assert evaluated(ge.Binary("/", i, ge.Literal(4)), i=-9) == -2
    assert evaluated(ge.Binary("%", i, ge.Literal(4)), i=-9) == -1
    assert evaluated(ge.Binary(">>", i, ge.Literal(2)), i=-9) == -3
    assert evaluated(ge.Binary("-", u, one), u=0) == 2**32 - 1
    assert evaluated(ge.Binary("<", ge.Binary("-", i, seven), u), i=3, u=5) == 0  # -4 as an unsigned number
    assert evaluated(ge.Binary("/", ge.Binary("-", z, one), ge.Literal(2)), z=0) == 2**63 - 1
    assert evaluated(ge.Cast(ge.SHORT, ge.Binary("*", i, ge.Literal(4096))), i=9) == 9 * 4096 - 65536
    assert evaluated(ge.Cast(ge.UCHAR, i), i=-3) == 253
    assert evaluated(go.Builtin("rotate", (u, ge.Literal(31, ge.UINT)), ge.UINT), u=3) == 2**31 + 1
    assert evaluated(go.Builtin("mul_hi", (i, ge.Literal(0x55555556))), i=100) == 33
    assert evaluated(ge.Unary("~", ge.Cast(ge.UCHAR, i)), i=5) == -6
    for undefined in (
        ge.Binary("%", i, ge.Literal(0)),
        ge.Binary("*", i, ge.Literal(2**31 - 1)),
        ge.Binary("<<", i, one),
    ):
        with pytest.raises(ge.Undefined):
            evaluated(undefined, i=-5)
