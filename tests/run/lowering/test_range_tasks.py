"""Plans that cannot be run are refused, and in which rounds the steps of a divided launch run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import PolicyError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import HostTask
from manycl.machine import Device, Machine
from manycl.plan.plan import ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Problem
from manycl.region import Region
from manycl.run.data.coherence import Directory, ValidRegion
from manycl.run.lowering.lower import lower
from manycl.run.lowering.merging import _MOST_GAPS, RangeTask, _rounds
from manycl.run.lowering.steps import CLEAR, COMBINE, COPY, RANGE, Lowered, Step
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES
from tests.run.chaos.test_divided_chaos import launch as kernel
from tests.run.chaos.test_state import Unit

GROUPS = ITEMS // GROUP
MACHINE = Machine((Device("a", "gpu", memory=1), Device("b", "gpu", memory=2)))
HALF = GROUPS // 2
LOW = Assignment(0, 0, 0, 0.0, 1.0, 0, 0, HALF)
HIGH = Assignment(0, 1, 0, 0.0, 1.0, 0, HALF, HALF)
HOST_FUNCTION = Assignment(1, ON_HOST, 0, 0.0, 0.0)


def lowered(name: str, *assignments: Assignment, directory: Directory | None = None) -> Lowered:
    """One launch, and a host function that reads what it writes."""
    builder = GraphBuilder()
    keys = [builder.buffer(NBYTES, called) for called in "abc"]
    builder.add(kernel(name, keys))
    builder.add(HostTask("shows", print, (), (keys[1],), ()))
    if directory is None:
        directory = Directory()
        for key in keys:
            directory.define(key)
    plan = Plan(assignments, "mine", ("a", "b"), 1.0)
    return lower(Problem(builder.build(), MACHINE, Unit(), (2, 2)), plan, directory)


def test_a_right_plan() -> None:
    found = lowered("map", LOW, HIGH, HOST_FUNCTION)
    assert [(s.node, s.role, s.first, s.groups) for s in found.steps] == [
        (0, "range", 0, HALF),
        (0, "range", HALF, HALF),
        (1, "", 0, 0),
    ]


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ((LOW, HIGH._replace(version=1)), "divides node 0 .map. with version 1, which is not one for"),
        ((LOW._replace(version=1), HIGH), "divides node 0 .map. with version 1, which is not one for"),
        ((LOW,), f"runs {HALF} of {GROUPS} work-groups of node 0 .map."),
        ((LOW, HIGH._replace(groups=HALF + 1)), f"runs {GROUPS + 1} of {GROUPS} work-groups"),
        ((LOW, HIGH._replace(groups=HALF - 1)), f"runs {GROUPS - 1} of {GROUPS} work-groups"),
        ((LOW, LOW), "does not run every work-group of node 0 .map. once"),
        ((LOW, HIGH._replace(first=HALF + 1)), "does not run every work-group"),
        ((LOW, HIGH, HIGH._replace(first=GROUPS, groups=0)), "does not run every work-group"),
        ((LOW, HIGH._replace(dimension=1)), r"divides node 0 .map. along dimensions 0, 1"),
        ((LOW, HIGH._replace(dimension=WHOLE)), r"divides node 0 .map. along dimensions 0, whole"),
        ((LOW, HIGH._replace(device=2)), "divides node 0 .map. along dimensions"),
        ((LOW, HIGH._replace(device=ON_HOST)), "divides node 0 .map. along dimensions"),
        ((LOW, HIGH, HIGH._replace(node=1)), "divides node 1 .shows., a host function"),
        ((LOW, HIGH._replace(node=2)), "the plan is not valid"),
        ((LOW, HIGH._replace(node=-1)), "the plan is not valid"),
        ((LOW._replace(dimension=WHOLE, first=0, groups=0, version=1),), "it chooses one of its versions"),
    ],
)
def test_plans_that_cannot_be_run(assignments: tuple[Assignment, ...], why: str) -> None:
    with pytest.raises(PolicyError, match=why):
        lowered("map", *assignments, HOST_FUNCTION)


@pytest.mark.parametrize("gaps", [1, _MOST_GAPS, _MOST_GAPS + 1])
@pytest.mark.parametrize("name", ["scatter_back", "map", "count"])
def test_what_is_compared_has_contents_first(name: str, gaps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a buffer that is undefined here and there; where that is in too many places, the launch is not split. (What
    writes in place, or by atomic operations, is compared with nothing.)"""
    is_compared = name == "scatter_back"
    size = 4 * gaps
    monkeypatch.setattr(f"{__name__}.NBYTES", max(NBYTES, size))
    directory = Directory()
    for key in range(1 + is_compared):
        directory.define(key)
    low = np.arange(0, size, 4, dtype=np.int64)
    rest = [] if size >= NBYTES else [(size, NBYTES)]
    lows = np.array([*(low + 2), *(a for a, _ in rest)], np.int64)
    highs = np.array([*(low + 4), *(b for _, b in rest)], np.int64)
    directory.valid_regions[1 + is_compared] = (
        ValidRegion(Region.of(lows, highs), 1),
        ValidRegion(Region.of(low, low + 2), 0),
    )
    if is_compared and gaps > _MOST_GAPS:
        with pytest.raises(PolicyError, match=f"{gaps} parts of what it writes are undefined"):
            lowered(name, LOW, HIGH, HOST_FUNCTION, directory=directory)
        return
    found = lowered(name, LOW, HIGH, HOST_FUNCTION, directory=directory)
    cleared = [n for n, step in enumerate(found.steps) if step.role == CLEAR]
    assert len(cleared) == {"scatter_back": gaps, "count": 1}.get(name, 0)  # (the other copy of counts begins with 0)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
    st.integers(0, 3),
    st.integers(0, 3),
    st.sampled_from([0, None]),
)
def test_preparations_come_first_and_what_puts_together_last(
    turns: list[int], before: int, after: int, dimension: int | None
) -> None:
    def draft(turn: int = 0) -> RangeTask:
        task: Any = None
        return RangeTask(Step(0, dimension=dimension), task, 0, 0, {}, round=turn)

    first, ranges, last = [draft() for _ in range(before)], [draft(t) for t in turns], [draft() for _ in range(after)]
    assert _rounds(first, ranges, last) == [*first, *ranges, *last]
    assert [d.round for d in first] == list(range(before))
    assert [d.round - before for d in ranges] == turns
    assert [d.round for d in last] == [before + max(turns) + 1 + i for i in range(after)]


@pytest.mark.parametrize("name", ["map", "count", "scatter"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2)])
def test_steps_come_where_and_when_the_plan_has_their_ranges(name: str, order: tuple[int, ...]) -> None:
    """What prepares them with the first one, what puts them together with the last."""
    planned = [
        LOW._replace(start=1.0, end=2.0),
        HIGH._replace(start=3.0, end=5.0, queue=1),
        HOST_FUNCTION._replace(start=6.0, end=7.0),
    ]
    planned = [planned[i] for i in order]
    found = lowered(name, *planned)
    assert found.plan is not None
    assert sorted(a.node for a in found.plan.assignments) == list(range(len(found.graph)))
    times = [(a.start, a.end) for a in planned]
    roles = [found.step(a.node).role for a in found.plan.assignments]
    first = roles.index(RANGE)
    assert set(roles[:first]) <= {COPY, CLEAR}
    assert roles[first : first + 2] == [RANGE, RANGE]
    assert set(roles[first + 2 : -1]) <= {COMBINE}
    assert (COMBINE in roles) == (name != "map")
    assert roles[-1] == ""
    for i, a in enumerate(found.plan.assignments):
        step = found.step(a.node)
        which = 0 if i <= first else 2 if a.node == len(found.graph) - 1 else 1
        assert (a.start, a.end) == times[which]
        if step.role == RANGE:
            own = planned[which]
            assert (step.first, step.groups, a.device, a.queue) == (own.first, own.groups, own.device, own.queue)
        assert (a.dimension, a.first, a.groups, a.version) == (WHOLE, 0, 0, 0)
    assert not found.plan.events
