"""Which ranges of a launch touch the same bytes: against masks of bytes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.access import Access, clash, forget_unread, interfere
from manycl.region import Region

N, KEY = 6, 7
some_bytes = st.frozensets(st.integers(0, N - 1))
few_bytes = st.just(frozenset()) | some_bytes
touches = st.lists(st.tuples(few_bytes, few_bytes, st.booleans(), st.integers(0, 2)), min_size=1, max_size=4)


def as_bytes(chosen: frozenset[int]) -> Region:
    at = np.array(sorted(chosen), np.int64)
    return Region.of(at, at + 1)


def as_set(given: Region) -> frozenset[int]:
    return frozenset(b for low, high in given.intervals for b in range(low, high))


@given(some_bytes, some_bytes, st.booleans())
def test_what_may_be_left_as_it_was_must_be_there(
    reads: frozenset[int], writes: frozenset[int], overwrites: bool
) -> None:
    needs = Access(as_bytes(reads), as_bytes(writes), overwrites).needs
    assert as_set(needs) == (reads if overwrites else reads | writes)


@given(touches)
def test_ranges_in_different_memories_clash_where_one_writes_what_another_touches(
    ranges: list[tuple[frozenset[int], frozenset[int], bool, int]],
) -> None:
    found = [{KEY: Access(as_bytes(reads), as_bytes(writes), exact)} for reads, writes, exact, _ in ranges]
    wrong = any(
        here != there and writes & (other_reads | other_writes)
        for reads, writes, _, here in ranges
        for other_reads, other_writes, _, there in ranges
    )
    assert clash(KEY, found, [memory for *_, memory in ranges]) == wrong


@given(touches)
def test_ranges_interfere_where_one_writes_what_another_touches(
    ranges: list[tuple[frozenset[int], frozenset[int], bool, int]],
) -> None:
    wrong = any(
        i != j and writes & (other_reads | other_writes)
        for i, (_, writes, *_) in enumerate(ranges)
        for j, (other_reads, other_writes, *_) in enumerate(ranges)
    )
    assert interfere([(as_bytes(reads), as_bytes(writes)) for reads, writes, *_ in ranges]) == wrong


@given(touches, st.booleans())
def test_no_range_reads_what_others_certainly_write(
    ranges: list[tuple[frozenset[int], frozenset[int], bool, int]], shared: bool
) -> None:
    found = [{KEY: Access(as_bytes(reads), as_bytes(writes), exact)} for reads, writes, exact, _ in ranges]
    forget_unread(found, {KEY} if shared else ())
    for i, (reads, writes, exact, _) in enumerate(ranges):
        others = [w for j, (_, w, sure, _) in enumerate(ranges) if j != i and sure and not shared]
        assert as_set(found[i][KEY].reads) == reads.difference(*others)
        assert as_set(found[i][KEY].writes) == writes
        assert found[i][KEY].overwrites == exact
