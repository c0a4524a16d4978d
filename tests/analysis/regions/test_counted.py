"""Regions and verdicts by evaluating every work-item, against kernels followed by hand, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.regions.counted import CountedRegions
from manycl.analysis.regions.regions import Regions
from manycl.analysis.service import launched, parse_program
from manycl.group_range import GroupRange

ITEMS, LOCAL, SIZE = 24, 4, 4 * 100
SOURCE = """
kernel void butterfly(global int *out) { int i = get_global_id(0); out[i ^ 3] = 1; }
kernel void rows(global int *out) { int i = get_global_id(0); for (int k = 0; k < i % 5; k++) out[4 * i + k] = 1; }
kernel void backwards(global int *out) {
    int i = get_global_id(0);
    for (int k = i * i % 7; k >= 0; k--) out[3 * i + k] = 1;
}
kernel void spread(global int *out) {
    int i = get_global_id(0);
    for (int k = 0; k < i % 3; k++) out[2 * k + (i ^ 1)] = 1;
}
kernel void nested(global int *out) {
    int i = get_global_id(0);
    for (int k = 0; k < i % 4; k++) for (int j = 0; j < k; j++) out[4 * (i ^ 2) + j] = 1;
}
kernel void ring(global int *out) {
    uint i = get_global_id(0);
    for (uint k = 0; k < 3; k++) out[((i ^ 1) - 2 * k) % 90] = 1;
}
kernel void wrapping(global int *out) {
    uint i = get_global_id(0);
    for (uchar k = 0; k < 3; k++) out[(uchar)((i ^ 1) + k + 254)] = 1;
}
kernel void conditional(global int *out) { int i = get_global_id(0); if (i * i % 3 == 1 || i == 5) out[i + 2] = 1; }
kernel void before_and_behind(global int *out) { int i = get_global_id(0); out[(i ^ 1) * 9 - 20] = 1; }
kernel void by_data(global int *out, global const int *at) { out[at[get_global_id(0)]] = 1; }
"""

SUBJECTS: dict[str, Callable[[int], Iterator[int]]] = {
    "butterfly": lambda i: iter([i ^ 3]),
    "rows": lambda i: (4 * i + k for k in range(i % 5)),
    "backwards": lambda i: (3 * i + k for k in range(i * i % 7 + 1)),
    "spread": lambda i: (2 * k + (i ^ 1) for k in range(i % 3)),
    "nested": lambda i: (4 * (i ^ 2) + j for k in range(i % 4) for j in range(k)),
    "ring": lambda i: (((i ^ 1) - 2 * k) % 2**32 % 90 for k in range(3)),
    "wrapping": lambda i: (((i ^ 1) + k + 254) % 256 for k in range(3)),
    "conditional": lambda i: iter([i + 2] if i * i % 3 == 1 or i == 5 else []),
    "before_and_behind": lambda i: iter([(i ^ 1) * 9 - 20]),
}


@functools.cache
def regions_of(name: str) -> Regions:
    launch = KnownLaunch((ITEMS,), (LOCAL,), (), {}, {0: SIZE, 1: 4 * ITEMS})
    return launched(parse_program(SOURCE), name, launch).regions


def touched(name: str, first: int, count: int) -> np.ndarray:
    """The bytes of the buffer that some work-groups write."""
    mask = np.zeros(SIZE // 4, bool)
    for i in range(first * LOCAL, (first + count) * LOCAL):
        mask[[e for e in SUBJECTS[name](i) if 0 <= e < SIZE // 4]] = True
    return np.repeat(mask, 4)


@pytest.mark.parametrize("name", SUBJECTS)
def test_regions_and_verdicts(name: str) -> None:
    counted, groups = CountedRegions(regions_of(name)), ITEMS // LOCAL
    for first, count in ((0, 1), (groups - 1, 1), (1, 3), (0, groups)):
        region = counted.region(0, "write", GroupRange(0, first, count))
        assert region is not None, (first, count)
        assert (region.mask(SIZE) == touched(name, first, count)).all(), (first, count)
    several = np.sum([touched(name, group, 1) for group in range(groups)], 0) > 1
    assert counted.apart((0,), 0) == (not several.any())


def test_beyond_the_budget_nothing_is_found_out() -> None:
    regions, whole = regions_of("rows"), GroupRange(0, 0, ITEMS // LOCAL)
    assert CountedRegions(regions, ITEMS).region(0, "write", whole) is not None
    assert CountedRegions(regions, ITEMS - 1).region(0, "write", whole) is None
    assert not CountedRegions(regions, ITEMS - 1).apart((0,), 0)


def test_what_data_decide_is_not_found_out() -> None:
    counted = CountedRegions(regions_of("by_data"))
    assert counted.region(0, "write", GroupRange(0, 0, 1)) is None
    assert not counted.apart((0,), 0)
    assert counted.region(1, "read", GroupRange(0, 0, 1)) is not None


def test_more_pieces_than_a_region_may_have_are_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manycl.analysis.regions.counted.MOST_RECTANGLES", 4)
    counted = CountedRegions(regions_of("nested"))
    assert counted.region(0, "write", GroupRange(0, 0, ITEMS // LOCAL)) is None
    assert counted.region(0, "write", GroupRange(0, 0, 1)) is not None
