"""What is not looked at, and says so: arrays that the kernel writes, too many points, too many pieces."""

from __future__ import annotations

import numpy as np
import pytest

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import launched, parse_program
from manycl.group_range import GroupRange

SOURCE = """
kernel void gather(global float *out, global const int *map, global const float *in) {
    int i = get_global_id(0);
    out[i] = in[map[i]];
}
kernel void relabel(global int *out, global int *map) {
    int i = get_global_id(0);
    out[map[i]] = 1;
    map[i] = 0;
}
kernel void by_rows(global int *out, global const int *rows, int width) {
    out[rows[get_global_id(1)] * width + get_global_id(0)] = 1;
}
kernel void found_or_not(global int *out, global const int *map, global const float *x) {
    int i = get_global_id(0);
    if (x[i] > 0.5f) out[map[i]] = 1;
}
kernel void sorted(global int *out, global int *order, global const int *base) {
    int i = get_global_id(0);
    order[i] = 3 * i;
    out[order[i] + base[i]] = 1;
}
kernel void by_weight(global int *out, global const int *map, global const float *x, global const int *mask) {
    int i = get_global_id(0);
    if (mask[(int)x[i]] > 2) out[map[i]] = 1;
}
kernel void partly(global int *out, global const int *map) {
    int i = get_global_id(0);
    out[i < 8 ? i : map[i]] = 1;
}
kernel void scatter(global int *out, global const int *map) { out[map[get_global_id(0)]] = 1; }
"""
BUFFERS = {0: 64, 1: 64, 2: 64}


def known_of(name: str, size=(16,), local=(4,), scalars=None, sizes=None, same=None) -> LaunchFacts:
    launch = KnownLaunch(size, local, (), scalars or {}, sizes or BUFFERS, same or {})
    return launched(parse_program(SOURCE), name, launch)


def test_what_the_kernel_writes_is_refused() -> None:
    known = known_of("relabel", sizes={0: 64, 1: 64})
    assert known.wanted(0, "write") == ()
    with pytest.raises(ValueError, match="the kernel writes map"):
        known.look({1: np.arange(16, dtype=np.int32)})
    twice = known_of("gather", sizes={0: 64, 1: 64, 2: 64}, same={1: 0})
    assert twice.wanted(2, "read") == ()
    with pytest.raises(ValueError, match="the kernel writes map"):
        twice.look({1: np.arange(16, dtype=np.int32)})


def test_contents_are_of_buffers_and_whole() -> None:
    known = known_of("gather")
    with pytest.raises(ValueError, match="map has 64 bytes, its contents 60"):
        known.look({1: np.arange(15, dtype=np.int32)})
    with pytest.raises(KeyError):
        known.look({7: np.arange(16, dtype=np.int32)})
    looked = known.look({1: np.arange(16, dtype=np.int32)})
    with pytest.raises(ValueError, match="no range"):
        looked.region(2, "read", GroupRange(0, 3, 2))
    with pytest.raises(KeyError):
        looked.region(5, "read")


def test_without_the_contents_nothing_changes() -> None:
    known = known_of("gather")
    looked = known.look({})
    plain, found = known.region(2, "read", GroupRange(0, 1, 1)), looked.region(2, "read", GroupRange(0, 1, 1))
    assert (found.boxes, found.exact) == (plain.boxes, plain.exact)
    assert looked.region(0, "write", GroupRange(0, 1, 1)) == known.region(0, "write", GroupRange(0, 1, 1))
    assert looked.splits == known.splits


def test_one_array_for_two_arguments_of_the_same_memory() -> None:
    known = known_of("gather", same={2: 1})
    assert known.wanted(2, "read") == (1,)
    data = np.full(16, 7, np.int32)
    for argument in (1, 2):
        region = known.look({argument: data}).region(2, "read", GroupRange(0, 1, 1))
        assert [(b.offset, b.end) for b in region.boxes] == [(28, 32)]


def test_beyond_the_budget_nothing_is_narrowed() -> None:
    known = known_of("gather")
    data = {1: np.arange(16, dtype=np.int32)[::-1].copy()}
    assert known.look(data, budget=4).region(2, "read", GroupRange(0, 1, 1)).exact
    region = known.look(data, budget=3).region(2, "read", GroupRange(0, 1, 1))
    assert not region.exact
    assert region.reason == "looking takes more than 3 points, line 4"
    assert region.nbytes == 64
    scatter = known_of("by_rows", (4, 4), (2, 1), {2: np.int32(4).tobytes()}, {0: 64, 1: 16})
    rows = {1: np.array([2, 0, 3, 1], np.int32)}
    assert scatter.look(rows).split(1).splittable
    assert scatter.look(rows, budget=15).split(1).reasons


def test_rows_and_columns_of_two_dimensions() -> None:
    known = known_of("by_rows", (4, 4), (2, 1), {2: np.int32(4).tobytes()}, {0: 64, 1: 16})
    assert not known.split(1).splittable
    looked = known.look({1: np.array([2, 0, 3, 1], np.int32)})
    assert looked.splits[0].splittable
    assert looked.splits[1].splittable
    (rows,) = looked.region(0, "write", GroupRange(1, 0, 2)).boxes
    assert (rows.offset, rows.width, rows.pitch, rows.rows) == (0, 16, 32, 2)
    (column,) = looked.region(0, "write", GroupRange(0, 1, 1)).boxes
    assert (column.offset, column.width, column.pitch, column.rows) == (8, 8, 16, 4)
    assert known.look({1: np.array([2, 0, 2, 1], np.int32)}).split(1).reasons


def test_many_pieces_have_their_smallest_gaps_filled() -> None:
    count = 1 << 15
    known = known_of("gather", (count,), (64,), sizes={0: 4 * count, 1: 4 * count, 2: 400 * count})
    random = np.random.default_rng(5)
    places = np.sort(random.choice(100 * count, count, replace=False)).astype(np.int32)
    region = known.look({1: random.permutation(places)}).region(2, "read")
    assert not region.exact
    assert "pieces" in region.reason
    assert len(region.boxes) == 4096
    mask = region.mask(400 * count).reshape(-1, 4)[:, 0]
    assert mask[places].all()
    gaps = np.sort(np.diff(places) - 1)
    assert mask.sum() == count + gaps[:-4095].sum()


def test_conditions_on_what_is_not_an_integer_keep_it_inexact() -> None:
    known = known_of("found_or_not")
    assert known.wanted(0, "write") == (1,)
    looked = known.look({1: np.arange(16, dtype=np.int32)[::-1].copy()})
    region = looked.region(0, "write", GroupRange(0, 1, 1))
    assert [(b.offset, b.end) for b in region.boxes] == [(32, 48)]
    assert not region.exact
    assert looked.split(0).splittable


def test_arrays_that_would_narrow_nothing_are_not_wanted() -> None:
    """Beside one that the kernel writes, and where a float chooses the element."""
    assert known_of("sorted").wanted(0, "write") == ()
    assert known_of("by_weight", sizes=dict.fromkeys(range(4), 64)).wanted(0, "write") == (1,)


def test_elements_outside_of_an_index_array_may_be_anything() -> None:
    known = known_of("partly", sizes={0: 64, 1: 32})
    looked = known.look({1: np.arange(8, dtype=np.int32)})
    inside, outside = (looked.region(0, "write", GroupRange(0, first, 1)) for first in (1, 2))
    assert ([(b.offset, b.end) for b in inside.boxes], inside.exact) == ([(16, 32)], True)
    assert ([(b.offset, b.end) for b in outside.boxes], outside.exact) == ([(0, 64)], False)
    assert "an element outside of its array" in outside.reason


def test_what_lies_before_or_behind_the_memory_is_nobodys() -> None:
    known = known_of("scatter", sizes={0: 64, 1: 64})
    looked = known.look({1: np.array([*range(4), -1, -2, -3, -4, -1, -5, -6, -7, *range(16, 20)], np.int32)})
    nbytes = [looked.region(0, "write", GroupRange(0, group, 1)).nbytes for group in range(4)]
    assert nbytes == [16, 0, 0, 0]
    assert looked.split(0).splittable, "groups share no element of the memory"
