"""Which step comes after which: against what steps of different rounds do to the same pieces. Into which pieces buffers
fall."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.graph.graph import Buffer, Piece
from manycl.graph.pieces import span
from manycl.run.coherence import Directory
from manycl.run.cut import Cut, Order

pieces = st.frozensets(st.integers(0, 3), max_size=3)
rounds = st.lists(st.lists(st.tuples(pieces, pieces), min_size=1, max_size=3), min_size=1, max_size=5)


@given(rounds)
def test_steps_wait_for_those_of_earlier_rounds_that_they_meet_and_for_no_others(
    given_rounds: list[list[tuple[frozenset[int], frozenset[int]]]],
) -> None:
    order = Order()
    steps: list[tuple[int, frozenset[int], frozenset[int]]] = []
    for number, members in enumerate(given_rounds):
        order.begin()
        for reads, writes in members:
            order.add(len(steps), sorted(reads), sorted(writes), ())
            steps.append((number, reads, writes))
        order.end()
    assert len(order.predecessors) == len(steps)
    before: list[set[int]] = []
    for step, (number, reads, writes) in enumerate(steps):
        direct = order.predecessors[step]
        assert list(direct) == sorted(set(direct))
        before.append({*direct, *(p for d in direct for p in before[d])})
        for other, (earlier, other_reads, other_writes) in enumerate(steps[:step]):
            if other in direct:
                assert earlier < number
                assert (reads | writes) & (other_reads | other_writes)
            if earlier < number and (other_writes & (reads | writes) or writes & other_reads):
                assert other in before[step], f"{step} does not wait for {other}"


@given(st.lists(st.sets(st.integers(0, 20)), min_size=1, max_size=4))
def test_what_is_said_to_come_before_does(given_before: list[set[int]]) -> None:
    order = Order()
    for number, before in enumerate(given_before):
        order.begin()
        order.add(30 + number, (), (), before)
        order.end()
    assert [set(p) for p in order.predecessors] == given_before


@given(st.integers(0, 40), st.integers(1, 80), st.integers(0, 40), st.sampled_from(["", "named"]))
def test_what_is_used_as_a_whole_stays_whole_and_pieces_say_what_they_are_of(
    most: int, nbytes: int, low: int, name: str
) -> None:
    """However large it is; else nothing is much larger than asked for, and all of it is there once."""
    buffers = {1: Buffer(1, nbytes, "whole"), 2: Buffer(2, nbytes, name)}
    part = span(min(low, nbytes), nbytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manycl.run.cut._ALIGNED", 1)
        cut = Cut(dict.fromkeys(buffers, nbytes), Directory(), most)
        for key in buffers:
            cut.add(key, span(0, nbytes))
        cut.add(2, part)
        cut.make(buffers, set())
    assert cut.of({1: span(0, nbytes)}) == (1,)
    assert cut.buffers[1] is buffers[1]
    found = cut.of({2: span(0, nbytes)})
    if 0 < low < nbytes:
        made = [cut.buffers[key] for key in found]
        assert all(isinstance(b, Piece) and b.whole == 2 and b.name == (name or "buffer 2") for b in made)
        assert sorted(i for b in made for i in range(*bounds(b))) == list(range(nbytes))
        assert all(b.nbytes == bounds(b)[1] - bounds(b)[0] < (2 * most or nbytes) for b in made)
        assert {i for k in cut.of({2: part}) for i in range(*bounds(cut.buffers[k]))} == set(range(low, nbytes))
        assert cut.cut == {2: {k: cut.buffers[k].rows for k in found}}  # type: ignore[attr-defined]
    else:
        assert found == (2,)
        assert not cut.cut


def bounds(buffer: Buffer) -> tuple[int, int]:
    assert isinstance(buffer, Piece)
    ((low, width, _, rows),) = buffer.rows
    return low, low + width * rows
