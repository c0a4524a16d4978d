"""Regions and verdicts after a look at index arrays, against what the kernels really do, range by range."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from manycl.analysis.launched import LaunchFacts
from manycl.analysis.regions.look import Looked
from manycl.analysis.service import launched, parse_program
from manycl.group_range import GroupRange
from tests.analysis import truth
from tests.analysis.corpus_case import Case
from tests.analysis.corpus_case import Launch as CaseLaunch
from tests.analysis.corpus_launch import launch_of
from tests.analysis.kernel_corpus import BY_NAME, CASES


@functools.lru_cache(maxsize=16)
def known_of(case: Case, ndrange: CaseLaunch) -> LaunchFacts:
    program = parse_program(case.source, path=case.file or "<source>", options=case.options)
    return launched(program, case.name, launch_of(ndrange))


def all_wanted(known: LaunchFacts) -> set[int]:
    buffers = known.regions.buffers
    return {array for i in buffers for kind in ("read", "write") for array in known.wanted(i, kind)}


def look_at(case: Case, ndrange: CaseLaunch, seed: int = 1) -> Looked:
    """With the contents of everything wanted, as the truth's runs have them."""
    known = known_of(case, ndrange)
    data = truth.contents(ndrange, seed)
    return known.look({i: data[i] for i in all_wanted(known)})


STEERED = [
    (case, ndrange) for case in CASES for ndrange in case.launches if any(b.steers for b in ndrange.buffers.values())
]
IDS = [f"{case.name}-{case.launches.index(ndrange)}" for case, ndrange in STEERED]


def some_ranges(groups: int) -> list[tuple[int, int]]:
    return sorted({(0, 1), (groups - 1, 1), (groups // 3, max(1, groups // 3)), (0, groups)})


def check(case: Case, ndrange: CaseLaunch) -> None:
    looked = look_at(case, ndrange)
    regions = looked.regions
    for dimension in range(len(ndrange.global_size)):
        for first, count in some_ranges(ndrange.groups[dimension]):
            where = f"dimension {dimension}, groups [{first}, {first + count})"
            happened = truth.written(case, ndrange, dimension, first, count)
            reads = {i: np.zeros(b.nbytes, bool) for i, b in ndrange.buffers.items()}
            writes, exact = {i: m.copy() for i, m in reads.items()}, dict.fromkeys(reads, True)
            for i in regions.buffers:
                root = regions.memory(i)
                size = ndrange.buffers[root].nbytes
                for kind, masks in (("read", reads), ("write", writes)):
                    region = looked.region(i, kind, GroupRange(dimension, first, count))
                    wider = regions.region(i, kind, GroupRange(dimension, first, count))
                    assert not (region.mask(size) & ~wider.mask(size)).any(), "looking made it larger"
                    assert region.exact or region.reason
                    masks[root] |= region.mask(size)
                exact[root] &= looked.region(i, "write", GroupRange(dimension, first, count)).exact
            for i, mask in happened.items():
                assert not (mask & ~writes[i]).any(), f"argument {i} is written outside of the region: {where}"
                if exact[i]:
                    said = truth.rounded(ndrange, i, writes[i])
                    assert (said == truth.rounded(ndrange, i, mask)).all(), f"argument {i} is not exact: {where}"
            assert not truth.reads_leak(case, ndrange, dimension, first, count, reads), where
    for dimension, expected in enumerate(case.split):
        assert expected or not looked.split(dimension).splittable, f"dimension {dimension}"


@pytest.mark.parametrize(("case", "ndrange"), STEERED, ids=IDS)
def test_corpus(case: Case, ndrange: CaseLaunch) -> None:
    check(case, ndrange)


EXACT = {
    "spmv_csr": [(2, "read"), (3, "read"), (4, "read")],
    "csr_scale_rows": [(0, "read"), (0, "write")],
    "spmv_ell": [(3, "read")],
    "gather": [(2, "read")],
    "scatter": [(0, "write")],
    "scatter_permutation": [(0, "write")],
    "data_dependent_loop": [(0, "write")],
    "bound_from_memory": [(0, "write")],
    "neighbour_lists": [(1, "read")],
    "struct_by_pointer": [(0, "write")],
    "scatter_data_times_groups": [(0, "write")],
    "scatter_wraps_out": [(0, "write")],
}


@pytest.mark.parametrize("name", EXACT)
def test_what_data_decide_becomes_exact(name: str) -> None:
    case = BY_NAME[name]
    ndrange = case.launches[0]
    known, looked = known_of(case, ndrange), look_at(case, ndrange)
    for argument, kind in EXACT[name]:
        assert not known.region(argument, kind).exact
        assert known.wanted(argument, kind)
        region = looked.region(argument, kind, GroupRange(0, 1, 1))
        assert region.exact, region.reason


@pytest.mark.parametrize("name", ["csr_scale_rows", "scatter_permutation", "data_dependent_loop", "bound_from_memory"])
def test_kernels_that_become_splittable(name: str) -> None:
    case = BY_NAME[name]
    ndrange = case.launches[0]
    verdict = look_at(case, ndrange).split(0)
    assert verdict.splittable, verdict.reasons
    assert truth.split_matches_whole(case, ndrange, 0, 3)
