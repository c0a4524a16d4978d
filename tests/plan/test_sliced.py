"""What memories lack, added up once, against looking at each piece for each memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.machine import HOST, hops, nearest
from manycl.plan.timeline.sliced import Sliced, Stretch

MEMORIES = 4


def transfer(nbytes: int, source: int, target: int) -> float:
    return 0.5 + nbytes * (1 + source + 3 * target)


@st.composite
def pieces(draw: st.DrawFn) -> list[Stretch]:
    places = st.dictionaries(st.integers(0, MEMORIES - 1), st.integers(0, 9), min_size=1, max_size=3)
    return [Stretch(n, draw(places)) for n in draw(st.lists(st.integers(1, 5), max_size=8))]


@given(pieces(), st.sampled_from([frozenset(), frozenset({(1, 2), (2, 1)})]), st.integers(0, MEMORIES - 1))
def test_what_is_lacking_is_the_sum_of_the_pieces(
    pieces: list[Stretch], peers: frozenset[tuple[int, int]], m: int
) -> None:
    found = Sliced(pieces, transfer, float, peers)
    lacked = [p for p in pieces if m not in p.places]
    assert sorted(found.there(m)) == sorted(p.places[m] for p in pieces if m in p.places)
    lack = found.lack(m)
    if not lacked:
        assert lack is None
        return
    assert lack is not None
    sources = [nearest(p.places, m, peers) for p in lacked]
    ways = [(p.nbytes, *way) for p, s in zip(lacked, sources, strict=True) for way in hops(s, m, peers)]
    assert lack.nbytes == sum(p.nbytes for p in lacked)
    assert lack.seconds == pytest.approx(sum(transfer(*way) for way in ways))
    assert lack.known == max(p.places[s] for p, s in zip(lacked, sources, strict=True))
    assert lack.source == sources[0]
    assert HOST not in (s for p, s in zip(lacked, sources, strict=True) if HOST not in p.places)
