"""The harness of the dynamic truth, and the corpus against it."""

from __future__ import annotations

import numpy as np
import pytest
import truth
from corpus_case import Case, Launch, f32, i32, launch, out
from kernel_corpus import CASES

LAUNCHES = [(case, ndrange) for case in CASES for ndrange in case.launches]
IDS = [f"{case.name}-{case.launches.index(ndrange)}" for case, ndrange in LAUNCHES]
ON_POCL = slice(None, None, 9)  # compiling takes PoCL a while; Oclgrind runs everything

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


def test_corpus_is_one_table_with_a_kernel_for_every_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert f"void {case.name}(" in case.source.replace("\n", " "), case.name
        assert case.launches, case.name


def test_kernels_that_write_do_write() -> None:
    """No expectation is about a kernel that does nothing."""
    idle = [
        case.name
        for case in CASES
        if case.writes != "nothing"
        and not any(
            mask.any() for mask in truth.written(case, case.launches[0], 0, 0, case.launches[0].groups[0]).values()
        )
    ]
    assert not idle
