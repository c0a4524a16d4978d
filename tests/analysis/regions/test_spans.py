"""Spans of integers between which something has been proved."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis.regions.spans import ProvedSpans

MOST = (1 << 31) - 1


@given(st.lists(st.tuples(st.integers(-5, 300), st.integers(0, 40)), min_size=2, max_size=60), st.integers(0, 250))
def test_only_what_was_proved_is_covered(values: Sequence[tuple[int, int]], limit: int) -> None:
    spans = ProvedSpans(values[0], (MOST, 40), lambda found: found[0][1] + found[1][1] <= limit)
    for one, other in values[1:]:
        assert not spans.cover((one, other)) or one + other <= limit


@given(st.integers(200, 3000), st.integers(1, 3000))
def test_few_proofs_are_enough_for_a_loop(last: int, beyond: int) -> None:
    """Also for one that comes close to where nothing can be proved any more."""
    asked = list[int]()

    def prove(found: Sequence[tuple[int, int]]) -> bool:
        asked.append(found[0][1])
        return found[0][1] <= last

    spans = ProvedSpans((0,), (MOST,), prove)
    looked = [n for n in range(1, last + beyond) if not spans.cover((n,))]
    assert looked[:1] == [1]
    assert all(n > last for n in looked[1:])
    assert len(asked) < 80
