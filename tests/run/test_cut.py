"""Which step comes after which: against what steps of different rounds do to the same pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from manycl.run.cut import Order

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
