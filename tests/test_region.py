"""Regions against masks of bytes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.region import NOTHING, Rectangle, Region, common, partition, union

N = 64

rectangles = st.builds(
    Rectangle,
    st.integers(0, 20),
    st.integers(0, 6),
    st.integers(6, 9),
    st.integers(1, 3),
    st.integers(20, 22),
    st.integers(1, 2),
)
intervals = st.lists(st.tuples(st.integers(0, N), st.integers(0, N)), max_size=6)
masks = st.binary(min_size=N // 8, max_size=N // 8).map(lambda bits: np.unpackbits(np.frombuffer(bits, np.uint8)) > 0)


def mask(given: Region, size: int = N) -> Any:
    """Made from the ends alone."""
    assert len(given.ends) % 2 == 0
    assert all(a < b for a, b in zip(given.ends[:-1], given.ends[1:], strict=True)), "intervals overlap, or touch"
    found = np.zeros(size, bool)
    for low, high in zip(given.ends[::2], given.ends[1::2], strict=True):
        found[low:high] = True
    return found


def of_rectangle(rect: Rectangle, size: int = 2 * N) -> Any:
    found = np.zeros(size, bool)
    for s in range(rect.slices):
        for r in range(rect.rows):
            start = rect.offset + s * rect.slice_pitch + r * rect.pitch
            found[start : start + rect.width] = True
    return found


def of_mask(wanted: Any) -> Region:
    at = np.flatnonzero(wanted)
    return Region.of(at, at + 1)


spans = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda ends: Region.span(*ends))  # many touch
ragged = intervals.map(lambda ends: Region.of(*np.array(ends, np.int64).reshape(-1, 2).T))
steps = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=9)  # widths and gaps, many alike


@st.composite
def stepped(draw: Any) -> Region:
    ends = np.cumsum([n for step in draw(steps) for n in step[::-1]])
    return Region.of(ends[::2], ends[1::2])


def regions() -> Any:
    return st.one_of(spans, ragged, stepped(), masks.map(of_mask))


@given(intervals)
def test_a_region_of_intervals_is_their_bytes_in_whatever_order(ends: list[tuple[int, int]]) -> None:
    wanted = np.zeros(N, bool)
    for low, high in ends:
        wanted[low:high] = True
    low, high = np.array([a for a, _ in ends], np.int64), np.array([b for _, b in ends], np.int64)
    assert (mask(Region.of(low, high)) == wanted).all()


@given(st.lists(rectangles, max_size=3))
def test_a_region_of_rectangles_is_the_bytes_of_their_rows(of: list[Rectangle]) -> None:
    assert (
        mask(Region.of_rectangles(of), 2 * N) == np.any([np.zeros(2 * N, bool), *map(of_rectangle, of)], axis=0)
    ).all()


@given(rectangles)
def test_what_a_rectangle_says_of_itself(rect: Rectangle) -> None:
    wanted = of_rectangle(rect)
    assert rect.kind == ("interval", "rectangle")[rect.rows > 1] if rect.slices == 1 else rect.kind == "slices"
    if rect.width:
        assert rect.end == np.flatnonzero(wanted)[-1] + 1
        assert rect.offset == np.flatnonzero(wanted)[0]
    assert len(rect.starts()) == rect.rows * rect.slices
    assert rect.nbytes == len(rect.starts()) * rect.width
    assert (of_rectangle(rect.scaled(2), 4 * N) == np.repeat(wanted, 2)).all()


@given(regions())
def test_what_a_region_says_of_itself(region: Region) -> None:
    wanted = mask(region)
    assert bool(region) == wanted.any()
    assert region.nbytes == wanted.sum()
    at = np.flatnonzero(wanted)
    assert region.hull == ((at[0], at[-1] + 1) if len(at) else (0, 0))
    assert region.filled.intervals == ([region.hull] if region else [])
    assert {i for low, high in region.intervals for i in range(low, high)} == set(at)
    assert [(low, high) for low, high in zip(region.low, region.high, strict=True)] == region.intervals
    assert (region.has(np.arange(N)) == wanted).all()
    again = pickle.loads(pickle.dumps(region))  # it goes to other processes
    assert again == region
    assert (mask(again) == wanted).all()


@given(masks, masks, st.booleans())
def test_regions_are_equal_where_their_bytes_are(a: Any, b: Any, same: bool) -> None:
    one, other = of_mask(a), of_mask(a if same else b)
    assert (one == other) == (same or bool((a == b).all()))
    assert one != 3
    if one == other:
        assert hash(one) == hash(other)


@settings(max_examples=400)
@given(regions(), regions())
def test_operations_are_those_of_masks(a: Region, b: Region) -> None:
    assert (mask(a | b) == (mask(a) | mask(b))).all()
    assert (mask(a & b) == (mask(a) & mask(b))).all()
    assert (mask(a - b) == (mask(a) & ~mask(b))).all()
    assert a.meets(b) == bool((mask(a) & mask(b)).any())


@given(st.lists(regions(), max_size=5))
def test_what_is_in_one_and_in_two_of_some_regions(some: list[Region]) -> None:
    count = np.sum([np.zeros(N, int), *map(mask, some)], axis=0)
    assert (mask(union(some)) == (count > 0)).all()
    assert (mask(common(some)) == (count > 1)).all()


@given(regions(), st.integers(1, 8))
def test_rectangles_are_the_same_bytes_and_a_single_row_has_no_pitch(region: Region, most: int) -> None:
    found = region.rectangles
    assert (np.any([np.zeros(2 * N, bool), *map(of_rectangle, found)], axis=0)[:N] == mask(region)).all()
    assert sum(rect.nbytes for rect in found) == region.nbytes
    assert all((rect.pitch == 0) == (rect.rows == 1) and rect.slices == 1 for rect in found)
    assert list(found) == sorted(found)
    assert region.at_most(most) == (found if len(found) <= most else None)


def test_a_rectangle_stays_one_rectangle() -> None:
    assert Region.of_rectangles([Rectangle(4096, 4096, 16384, 4096)]).rectangles == (
        Rectangle(4096, 4096, 16384, 4096),
    )


@settings(max_examples=400)
@given(st.lists(regions(), max_size=6))
def test_pieces_are_disjoint_and_make_up_every_region(some: list[Region]) -> None:
    found, held = partition(N, some)
    made = [mask(piece) for piece in found]
    assert (np.sum(made, axis=0) == 1).all()
    assert [piece.hull[0] for piece in found] == sorted(piece.hull[0] for piece in found)
    for region, indices in zip(some, held, strict=True):
        together = np.any([made[i] for i in indices], axis=0) if indices else np.zeros(N, bool)
        assert (together == mask(region)).all()
        assert list(indices) == sorted(set(indices))
    signatures = {tuple(i in h for h in held) for i in range(len(found))}
    assert len(signatures) == len(found), "two pieces that nothing tells apart"


def test_more_regions_than_a_word_has_bits() -> None:
    some = [Region.span(i % 7, i + 1) for i in range(7, 150)]
    found, held = partition(200, some)
    made = [mask(piece, 200) for piece in found]
    assert (np.sum(made, axis=0) == 1).all()
    for region, indices in zip(some, held, strict=True):
        assert (np.any([made[i] for i in indices], axis=0) == mask(region, 200)).all()
    assert len({tuple(i in h for h in held) for i in range(len(found))}) == len(found)


@pytest.mark.parametrize("deep", [1, 2, 3])
def test_many_regions_of_which_a_byte_is_in_few(deep: int) -> None:
    """Columns of an array of three rows, which reach into their neighbours."""
    count, size = 700, 3 * 705
    some = [Region.of_rectangles([Rectangle(i, deep, 705, 3)]) for i in range(count)]
    found, held = partition(size, [*some, some[7], NOTHING])
    together = np.zeros(size, int)
    for piece in found:
        together += mask(piece, size)
    assert (together == 1).all()
    for region, indices in zip(some, held, strict=False):
        assert union(found[i] for i in indices) == region
    assert held[count:] == [held[7], ()]
    assert len({tuple(i for i, h in enumerate(held) if n in h) for n in range(len(found))}) == len(found)


def test_the_whole_of_a_buffer_is_one_piece() -> None:
    assert partition(N, [Region.span(0, N), NOTHING]) == ([Region.span(0, N)], [(0,), ()])
