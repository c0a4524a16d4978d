"""Rectangles of ranges that are found once for all that are alike, against those of each range by itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.regions.rectangles import Linear, RangeRectangles, rectangles_of
from manycl.group_range import GroupRange
from manycl.region import Region

LAUNCH = KnownLaunch((24, 20), (4, 5))
GROUPS = (6, 4)
LOCALS = (4, 5)


@st.composite
def accesses(draw: st.DrawFn) -> Linear:
    """Of bytes by ids of both dimensions and a loop's variable, joined or not; with conditions on single ones, and
    seldom on two."""
    joined = [d for d in (0, 1) if draw(st.booleans())]
    names = [f"lid{d}" for d in (0, 1)] + [f"grp{d}" for d in (0, 1) if d not in joined] + ["loop"]
    some = st.lists(st.sampled_from(names), unique=True, max_size=4)
    factors = {name: draw(st.sampled_from([-40, -4, 1, 4, 8, 32, 128, 640])) for name in draw(some)}
    alone = st.tuples(
        st.sampled_from(names).flatmap(lambda n: st.sampled_from([-2, -1, 1, 3]).map(lambda f: {n: f})),
        st.integers(-20, 30),
    )
    guards = draw(st.lists(alone, max_size=3))
    if draw(st.integers(0, 5)) == 0:
        guards.append(({names[0]: 1, names[1]: -2}, draw(st.integers(-5, 5))))
    fixed = draw(st.lists(st.tuples(st.sampled_from(names).map(lambda n: {n: 1}), st.integers(-4, 0)), max_size=1))
    return Linear(
        draw(st.sampled_from([1, 4])),
        (factors, draw(st.integers(0, 500))),
        tuple(guards),
        tuple(fixed),
        {"loop": (0, draw(st.integers(0, 5)))},
        tuple((f"grp{d}", f"lid{d}", LOCALS[d]) for d in joined),
    )


@settings(max_examples=200)
@given(st.lists(accesses(), max_size=3), st.data())
def test_ranges_that_are_alike_are_told_apart_by_their_place_alone(some: list[Linear], data: st.DataObject) -> None:
    found = RangeRectangles(some, LAUNCH)
    for _ in range(6):
        dimension = data.draw(st.integers(0, 1))
        first = data.draw(st.integers(0, GROUPS[dimension] - 1))
        groups = GroupRange(dimension, first, data.draw(st.integers(1, GROUPS[dimension] - first)))
        alone = [rectangles_of(access, LAUNCH.ids_of(groups)) for access in some]
        rectangles, known = found.of(groups), [rect for each in alone for rect in each or ()]
        if None not in alone:
            assert rectangles is not None, "each of them is rectangles"
        if rectangles is not None:  # what cannot be told of one alone is no more than nothing
            assert Region.of_rectangles(rectangles) == Region.of_rectangles(known)
            assert [rect.offset for rect in rectangles] == sorted(rect.offset for rect in rectangles)
            ends = [0, *(rect.end for rect in rectangles)]
            place = found.place(groups, max(ends))
            if place is not None:
                shape, by = place
                assert Region.of_rectangles(shape.rectangles or ()).moved(by) == Region.of_rectangles(rectangles)
                assert found.place(groups, max(ends) - 1) is None, "it leaves the memory"
