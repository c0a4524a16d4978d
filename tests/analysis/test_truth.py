"""The harness of the dynamic truth, and the corpus against it."""

from __future__ import annotations

import functools
import os
import re

import numpy as np
import pytest

from tests.analysis import truth
from tests.analysis.corpus_case import Case, Launch, f32, i32, launch, out
from tests.analysis.corpus_constructs import PATTERNS, SHOWN_BY, own_text
from tests.analysis.kernel_corpus import BY_NAME, CASES

LAUNCHES = [(case, ndrange) for case in CASES for ndrange in case.launches]
IDS = [f"{case.name}-{case.launches.index(ndrange)}" for case, ndrange in LAUNCHES]
# compiling takes PoCL a while: a sample, and with NIGHTLY=1 everything; Oclgrind always runs everything
ON_POCL = slice(None, None, 1 if os.environ.get("NIGHTLY") else 61)

# groups that touch the same elements, though no run can show it: no bit is written by two of them with other values
NO_CONFLICT_SEEN = {"atomic_or_bits", "closure_step"}
# a second run would find other contents, were the graph another one
REPEATS_BY_CHANCE = {"bfs_expand"}

HAND_MADE = """
kernel void every_third(global int *a, global const int *b) { int i = get_global_id(0); a[3 * i] = b[i + 1]; }
kernel void by_group(global int *a) { if (get_local_id(0) == 0) a[get_group_id(0) + get_num_groups(0)] = 1; }
kernel void sum_order(global int *a) { a[0] = 3 * a[0] + (int)get_group_id(0); }
"""


def hand_made(name: str, ndrange: Launch) -> Case:
    return Case(name, "", (ndrange,), (True,), text=HAND_MADE)


def elements(mask: np.ndarray) -> list[int]:
    return sorted(set((np.flatnonzero(mask) // 4).tolist()))


@pytest.mark.parametrize("name", [truth.OCLGRIND, truth.POCL])
def test_written_set_is_the_known_one(name: str) -> None:
    ndrange = launch(16, 4, out(50, "i4"), i32(20))
    case = hand_made("every_third", ndrange)
    changed = truth.written(case, ndrange, 0, 1, 2, name)
    assert elements(changed[0]) == [3 * i for i in range(4, 12)]
    assert truth.rounded(ndrange, 0, changed[0]).sum() == 8 * 4
    assert not changed[1].any()


@pytest.mark.parametrize("name", [truth.OCLGRIND, truth.POCL])
def test_group_ids_and_counts_are_those_of_the_whole_launch(name: str) -> None:
    ndrange = launch(24, 4, out(20, "i4"))
    changed = truth.written(hand_made("by_group", ndrange), ndrange, 0, 2, 3, name)
    assert elements(changed[0]) == [8, 9, 10]


def test_a_read_outside_of_the_region_is_found_and_one_inside_is_not() -> None:
    ndrange = launch(16, 4, out(50, "i4"), i32(20))
    case = hand_made("every_third", ndrange)
    region = np.zeros(80, bool)
    region[4 * 5 : 4 * 9] = True
    assert truth.reads_leak(case, ndrange, 0, 1, 1, {1: region}) == []
    region[4 * 8 : 4 * 9] = False
    assert truth.reads_leak(case, ndrange, 0, 1, 1, {1: region}) == [1]
    assert truth.reads_leak(case, ndrange, 0, 1, 1, {}) == [1]


def test_dependence_on_the_order_of_groups_is_found() -> None:
    ndrange = launch(4, 1, i32(1))
    assert not truth.split_matches_whole(hand_made("sum_order", ndrange), ndrange, 0, 1)
    assert not truth.repeats(hand_made("sum_order", ndrange), ndrange)
    fine = launch(24, 4, out(20, "i4"))
    assert truth.split_matches_whole(hand_made("by_group", fine), fine, 0, 1)


def test_contents_are_the_same_for_the_same_seed_only() -> None:
    ndrange = launch(8, 4, out(8), f32(8))
    one, same, other = (truth.contents(ndrange, seed) for seed in (1, 1, 2))
    assert all((one[i] == same[i]).all() for i in one)
    assert all((one[i] != other[i]).any() for i in one)


def check(case: Case, ndrange: Launch, name: str) -> None:
    assert len(case.split) == len(ndrange.global_size)
    for dimension, splits in enumerate(case.split):
        if splits:
            assert truth.split_matches_whole(case, ndrange, dimension, 11, name), f"dimension {dimension}"
    if case.idempotent:
        assert truth.repeats(case, ndrange, name)


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES, ids=IDS)
def test_corpus_on_oclgrind(case: Case, ndrange: Launch, capfd: pytest.CaptureFixture[str]) -> None:
    """What a person expects holds, and no launch leaves its buffers: the simulator complains about nothing."""
    check(case, ndrange, truth.OCLGRIND)
    complaints = capfd.readouterr()
    assert "Invalid" not in complaints.err + complaints.out


@pytest.mark.parametrize(("case", "ndrange"), LAUNCHES[ON_POCL], ids=IDS[ON_POCL])
def test_corpus_on_pocl(case: Case, ndrange: Launch) -> None:
    check(case, ndrange, truth.POCL)


def test_every_kernel_of_the_files_has_a_case() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in {case.file: case for case in CASES}.values():
        found, context, _ = truth.device(truth.OCLGRIND)
        names = truth.cl.Program(context, case.source).build(["-w"], devices=[found]).kernel_names.split(";")
        assert {c.name for c in CASES if c.file == case.file} == set(names)
    assert all(case.launches for case in CASES)


def seen_to_be_bad(case: Case) -> tuple[list[int], bool]:
    """Dimensions along which groups are seen to conflict, and whether a second run is seen to matter."""
    bad = [d for d in range(len(case.split)) if any(truth.groups_conflict(case, n, d) for n in case.launches)]
    return bad, not all(truth.repeats(case, ndrange) for ndrange in case.launches)


@pytest.mark.parametrize("case", [c for c in CASES if not (all(c.split) and c.idempotent)], ids=lambda case: case.name)
def test_what_is_said_to_conflict_is_seen_to(case: Case) -> None:
    conflicts, changes = seen_to_be_bad(case)
    if case.name not in NO_CONFLICT_SEEN:
        assert conflicts == [d for d, splits in enumerate(case.split) if not splits]
    if case.name not in REPEATS_BY_CHANCE:
        assert changes == (not case.idempotent)


def test_exceptions_are_needed() -> None:
    assert all(not seen_to_be_bad(BY_NAME[name])[0] for name in NO_CONFLICT_SEEN)
    assert all(not seen_to_be_bad(BY_NAME[name])[1] for name in REPEATS_BY_CHANCE)


@pytest.mark.parametrize("construct", SHOWN_BY)
def test_every_construct_has_two_kernels(construct: str) -> None:
    names = SHOWN_BY[construct].split()
    assert len(names) == len(set(names)) >= 2
    assert not [name for name in names if name not in BY_NAME]


@functools.cache
def own_texts() -> list[str]:
    return [own_text(case) for case in CASES]


@pytest.mark.parametrize("construct", PATTERNS)
def test_every_word_of_the_language_is_in_two_kernels(construct: str) -> None:
    assert sum(bool(re.search(PATTERNS[construct], text)) for text in own_texts()) >= 2
