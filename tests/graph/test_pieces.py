"""Sets of bytes and the pieces that they cut a buffer into, against masks of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.shapes import Box
from manycl.graph import pieces
from manycl.graph.graph import Rows
from manycl.run.coherence import Directory, Part
from manycl.run.cut import Cut, chunks

N = 64

boxes = st.builds(
    Box, st.integers(0, 20), st.integers(0, 6), st.integers(6, 9), st.integers(1, 3), st.integers(20, 22), st.just(1)
)
intervals = st.lists(st.tuples(st.integers(0, N), st.integers(0, N)), max_size=6)


def mask(given: pieces.Bytes, size: int = N) -> Any:
    found = np.zeros(size, bool)
    for low, high in zip(*given, strict=True):
        found[low:high] = True
    return found


@st.composite
def some_bytes(draw: Any) -> pieces.Bytes:
    if draw(st.booleans()):
        return pieces.of_boxes(draw(st.lists(boxes, max_size=3)))[0]
    ends = np.array(draw(intervals), np.int64).reshape(-1, 2)
    return pieces.merged(ends[:, 0], ends[:, 1])


@settings(max_examples=400)
@given(st.lists(some_bytes(), max_size=6))
def test_pieces_are_disjoint_and_make_up_every_set(sets: list[pieces.Bytes]) -> None:
    found, held = pieces.partition(N, sets)
    masks = [mask(pieces.of_rows(rows)) for rows in found]
    assert (np.sum(masks, axis=0) == 1).all()
    for given_set, indices in zip(sets, held, strict=True):
        together = np.any([masks[i] for i in indices], axis=0) if indices else np.zeros(N, bool)
        assert (together == mask(given_set)).all()
    signatures = {tuple(i in h for h in held) for i in range(len(found))}
    assert len(signatures) == len(found), "two pieces that nothing tells apart"


@given(some_bytes())
def test_rows_are_the_same_bytes_and_a_single_one_has_no_pitch(given_set: pieces.Bytes) -> None:
    found = pieces.as_rows(given_set)
    assert (mask(pieces.of_rows(found)) == mask(given_set)).all()
    assert sum(row.width * row.rows for row in found) == mask(given_set).sum()
    assert all((row.pitch == 0) == (row.rows == 1) for row in found)


@given(st.lists(boxes, min_size=2, max_size=3), st.integers(1, 9))
def test_too_many_rows_are_taken_for_all_between_them(of: list[Box], most: int) -> None:
    """Then the set is larger than it is, and says so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "MOST_ROWS", most)
        found, exact = pieces.of_boxes(of)
    true = mask(pieces.of_boxes(of)[0], 2 * N)
    taken = mask(found, 2 * N)
    assert exact == (sum(box.rows * box.slices for box in of) <= most)
    if exact:
        assert (taken == true).all()
    else:
        low, high = min(box.offset for box in of), max(box.end for box in of)
        assert taken.sum() == high - low
        assert taken[low:high].all()
        assert not (true & ~taken).any()


def test_more_sets_than_a_word_has_bits() -> None:
    sets = [pieces.span(i % 7, i + 1) for i in range(7, 150)]
    found, held = pieces.partition(200, sets)
    masks = [mask(pieces.of_rows(rows), 200) for rows in found]
    assert (np.sum(masks, axis=0) == 1).all()
    for given_set, indices in zip(sets, held, strict=True):
        assert (np.any([masks[i] for i in indices], axis=0) == mask(given_set, 200)).all()
    assert len({tuple(i in h for h in held) for i in range(len(found))}) == len(found)


@settings(max_examples=400)
@given(some_bytes(), some_bytes())
def test_operations_are_those_of_masks(a: pieces.Bytes, b: pieces.Bytes) -> None:
    assert (mask(pieces.union([a, b])) == (mask(a) | mask(b))).all()
    assert (mask(pieces.without(a, b)) == (mask(a) & ~mask(b))).all()
    assert pieces.meet(a, b) == bool((mask(a) & mask(b)).any())
    assert (mask(pieces.of_rows(pieces.as_rows(a))) == mask(a)).all()


def test_a_rectangle_stays_one_row_of_rows() -> None:
    columns, just = pieces.of_boxes([Box(4096, 4096, 16384, 4096)])
    assert just
    assert pieces.as_rows(columns) == (Rows(4096, 4096, 16384, 4096),)


@settings(max_examples=200)
@given(st.integers(0, 99), st.integers(1, 60_000), st.integers(0, 9), st.integers(1, 30), st.integers(5000, 30_000))
def test_large_pieces_fall_into_chunks(offset: int, width: int, gap: int, rows: int, most: int) -> None:
    row = Rows(offset, width, width + gap if rows > 1 else 0, rows)
    if rows > 1 and gap == 0:
        row = Rows(offset, width * rows)
    found = chunks((row,), most)
    size = row.offset + row.rows * max(row.pitch, row.width)
    assert (np.sum([mask(pieces.of_rows(f), size) for f in found], axis=0) == mask(pieces.of_rows((row,)), size)).all()
    assert all(f[0].width * f[0].rows <= 2 * most + max(4096, row.width) for f in found)
    assert len(found) > 1 or row.width * row.rows < 2 * most or row.rows == 1


def test_what_has_too_many_rows_counts_as_all_between() -> None:
    many, just = pieces.of_boxes([Box(0, 1, 2, 1 << 17)])
    assert not just
    assert pieces.as_rows(many) == (Rows(0, (1 << 18) - 1),)


@settings(max_examples=200)
@given(st.lists(some_bytes(), max_size=4), st.lists(st.integers(0, 7), min_size=16, max_size=16), st.data())
def test_a_directory_comes_back_from_pieces_as_it_was(
    sets: list[pieces.Bytes], masks: list[int], data: st.DataObject
) -> None:
    directory = Directory()
    start, _ = pieces.partition(N, sets)
    groups: dict[int, list[Any]] = {}
    for rows, places in zip(start, masks, strict=False):
        groups.setdefault(places, []).append(pieces.of_rows(rows))
    if len(groups) > 1:
        directory.parts[0] = tuple(Part(pieces.as_rows(pieces.union(g)), m) for m, g in groups.items())
    elif places := next(iter(groups)):
        directory.valid[0] = places
    held = {m: mask(pieces.union(g)) for m, g in groups.items()}
    directory.validate(3)
    cut = Cut({0: N}, directory)
    for other in data.draw(st.lists(some_bytes(), max_size=3)):
        cut.add(0, other)
    from manycl.graph.graph import Buffer

    cut.make({0: Buffer(0, N)}, set())
    directory.open(cut.opens)
    if cut.cut:
        assert 0 not in directory.valid
        assert 0 not in directory.parts
        for key, rows in cut.cut[0].items():
            (places,) = {m for m, inside in held.items() if (inside & mask(pieces.of_rows(rows))).any()}
            assert directory.valid.get(key, 0) == places
    directory.close(cut.cut, {})
    directory.validate(3)
    assert {p.mask: mask(pieces.of_rows(p.rows)).tolist() for p in directory.parts.get(0, ())} == (
        {m: inside.tolist() for m, inside in held.items()} if len(held) > 1 else {}
    )
    assert directory.valid.get(0, 0) == (0 if len(held) > 1 else next(iter(held)))


@given(st.lists(boxes, max_size=3))
def test_boxes_are_the_bytes_of_their_rows(of: list[Box]) -> None:
    found, exact = pieces.of_boxes(of)
    true = np.zeros(2 * N, bool)
    for box in of:
        for start in box.starts():
            true[start : start + box.width] = True
    assert exact
    assert (mask(found, 2 * N) == true).all()
