"""Into which ranges launches are cut that do not fit: against trying all numbers of ranges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import RunError
from manycl.graph.dependences import GraphBuilder
from manycl.graph.division import divide
from manycl.graph.graph import Graph, Launch
from manycl.group_range import GroupRange
from manycl.machine import Device, Machine
from manycl.plan.plan import Assignment, Plan
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.lowering.lower import lower
from manycl.run.tiling import tiling
from manycl.run.tiling.limits import stores
from manycl.run.tiling.windows import intervals, size_of
from tests.run.between_runs import small_windows
from tests.run.chaos.test_divided_chaos import GROUP, ITEMS, NBYTES
from tests.run.chaos.test_divided_chaos import launch as kernel
from tests.run.chaos.test_state import Unit

patched = small_windows({"tiling.tiling.LARGE": 4})
GROUPS = ITEMS // GROUP
ONE = ["map", "change", "stencil", "reversed", "columns", "maybe", "count"]


def graph_of(*names: str) -> Graph:
    builder = GraphBuilder()
    a, b = builder.buffer(NBYTES, "a"), builder.buffer(NBYTES, "b")
    for name in names:
        builder.add(kernel(name, [a, b]))
    return builder.build()


def machine(limit: int, largest: int | None = None) -> Machine:
    largest = limit if largest is None else largest
    return Machine((Device("d", "gpu", memory=1, global_memory=limit, max_allocation=largest),))


def cutter(graph: Graph, where: Machine, plan: Plan) -> tiling._Fitter:
    return tiling._Fitter(Problem(graph, where, Unit(), (1,)), plan, {0: where.devices[0].global_memory})


def plan_of(*assignments: Assignment) -> Plan:
    return Plan(assignments, "one", ("d",), 0.0)


@given(
    st.tuples(st.integers(0, GROUPS - 1), st.integers(1, GROUPS)).filter(lambda r: sum(r) <= GROUPS) | st.none(),
    st.integers(1, 2 * GROUPS),
    st.integers(0, 9),
    st.integers(1, 9),
)
def test_the_ranges_of_an_assignment_are_all_of_it_in_turn(
    given_range: tuple[int, int] | None, number: int, start: int, seconds: int
) -> None:
    """Each takes its share of the time."""
    whole = Assignment(0, 0, 0, float(start), float(start + seconds))
    first, count = given_range or (0, GROUPS)
    a = whole if given_range is None else whole._replace(dimension=0, first=first, groups=count)
    found = cutter(graph_of("map"), machine(1 << 20), plan_of(a)).cut(a, 0, number)
    assert len(found) == min(number, count)
    assert found[0].first == first
    assert found[0].start == start
    assert sum(f.groups for f in found) == count
    assert max(f.groups for f in found) - min(f.groups for f in found) <= 1
    assert {(f.node, f.device, f.queue, f.dimension) for f in found} == {(0, 0, 0, 0)}
    for f in found:
        assert f.end - f.start == pytest.approx(seconds * f.groups / count)
    for one, other in pairwise(found):
        assert one.first + one.groups == other.first
        assert one.end == pytest.approx(other.start)


@given(st.integers(0, 9), st.integers(1, 40), st.data())
def test_the_ranges_that_are_looked_at_are_as_large_as_the_largest(first: int, count: int, data: Any) -> None:
    number = data.draw(st.integers(1, count))
    found = {(low, n) for _, low, n in tiling._samples(GroupRange(0, first, count), number)}
    (size,) = {n for _, n in found}
    ends = [count * i // number for i in range(number + 1)]
    assert size == max(b - a for a, b in pairwise(ends))
    assert all(first <= low and low + n <= first + count for low, n in found)
    assert min(found)[0] == first
    assert max(found) == (first + count - size, size)
    if number > 2:
        assert any(low <= first + count // 2 <= low + n for low, n in found - {min(found), max(found)})


@given(
    st.integers(0, 60),
    st.integers(0, 9),
    st.integers(0, 20),
    st.integers(1, 2000),
    st.integers(1, 4000),
    st.sampled_from([3, 5, 8]),
)
def test_as_few_ranges_as_have_room(whole: int, band: int, each: int, count: int, limit: int, at_once: int) -> None:
    """As many at a time as wanted, or three, two, one: the first for which some number of ranges has room. At most
    twice as many ranges as are needed, found without trying many numbers."""
    tried = []

    def windows(n: int) -> int:
        return band + each * -(-count // n)

    device = Device("d", "gpu", memory=1)

    def needed(division: Any, groups: GroupRange, device: Device) -> tuple[int, int]:
        tried.append(groups.count)
        return whole, band + each * groups.count

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiling, "_needed", needed)
        found = tiling._ranges(None, GroupRange(0, 0, count), limit, at_once, device)  # type: ignore[arg-type]
    for together in (at_once, 3, 2, 1):
        fitting = [n for n in range(1, count + 1) if whole + together * windows(n) <= limit]
        if fitting:
            assert found.at_once == together
            assert found.number in fitting
            assert found.nbytes == whole + windows(found.number)
            assert found.number <= 2 * fitting[0]
            break
    else:
        assert found.at_once == 0
    if whole + at_once * windows(count) <= limit:
        assert len(tried) <= 130


@pytest.mark.parametrize("name", ONE)
def test_launches_that_do_not_fit_are_cut_so_that_their_ranges_do(name: str) -> None:
    """Against every number of ranges along the one dimension there is."""
    graph = graph_of(name)
    task = graph.nodes[0]
    keys = {*task.reads, *task.writes}
    needs = NBYTES * len(keys)
    division = divide(task, 0, dict.fromkeys(graph.buffers, NBYTES))  # type: ignore[arg-type]

    def fits(n: int, together: int, limit: int) -> bool:
        """Whether so many ranges at a time have room, whichever of them."""
        found = []
        for low, high in pairwise([GROUPS * i // n for i in range(n + 1)]):
            windows = intervals(division, division.range(low, high - low))
            found.append((NBYTES * len(keys - windows.keys()), sum(size_of(*w) for w in windows.values())))
        return all(rest + together * parts <= limit for rest, parts in found)

    whole = Assignment(0, 0, 0, 0.0, 0.0)
    for limit in range(NBYTES // 8, 4 * needs, 12):
        look = cutter(graph, machine(limit), plan_of(whole))
        wanted = look._at_once[0]
        together = next((t for t in (wanted, 3, 2, 1) for n in range(1, GROUPS + 1) if fits(n, t, limit)), 0)
        try:
            dimension, number = look.look(whole)
        except RunError:
            assert not together
            continue
        if needs <= limit:
            assert (dimension, number) == (None, 0)
        else:
            least = next(n for n in range(1, GROUPS + 1) if fits(n, together, limit))
            assert dimension == 0
            assert least <= number <= 2 * least
            assert fits(number, together, limit) or GROUPS % number


def test_no_buffer_is_larger_than_the_device_takes() -> None:
    """A launch that fits is cut all the same where one of its buffers is too large for the device; where no cut makes
    it less, the reason is told."""
    whole = Assignment(0, 0, 0, 0.0, 0.0)
    for largest in (NBYTES, NBYTES - 1, NBYTES // 2, NBYTES // 4):
        found = cutter(graph_of("map"), machine(1 << 20, largest), plan_of(whole)).look(whole)
        assert found == ((None, 0) if largest == NBYTES else (0, found[1]))
        if found[0] == 0:
            assert found[1] >= NBYTES / largest
    with pytest.raises(RunError, match=r"in ranges along dimension 0 needs .* for one buffer: its ranges do not touch"):
        cutter(graph_of("scatter"), machine(1 << 20, NBYTES - 1), plan_of(whole)).look(whole)
    with pytest.raises(RunError) as caught:
        cutter(graph_of("scatter"), machine(NBYTES, 1 << 20), plan_of(whole)).look(whole)
    assert "for one buffer" not in str(caught.value)


def test_what_a_device_needs_of_a_range_that_has_none_is_more_than_there_is() -> None:
    graph = graph_of("map")
    division = divide(graph.nodes[0], 0, dict.fromkeys(graph.buffers, NBYTES))  # type: ignore[arg-type]
    assert tiling._needed(division, division.range(0, 2), machine(1000).devices[0]) == (0, 2 * 2 * 4 * GROUP)
    assert tiling._needed(division, division.range(0, 2), machine(1000, 31).devices[0]) == (1000, 2 * 2 * 4 * GROUP)
    assert tiling._needed(division, division.range(0, 2), machine(1000, 32).devices[0]) == (0, 2 * 2 * 4 * GROUP)


def test_all_launches_of_a_device_are_cut_into_as_many_ranges() -> None:
    """So that those that hand data to one another are cut at the same places."""
    graph = graph_of("map", "change", "map")
    where = machine(100)
    plan = plan_of(*(Assignment(n, 0, 0, float(n), n + 1.0) for n in range(3)))
    found = tiling.fitted(Problem(graph, where, Unit(), (1,)), plan, {0: 100}, together=False)
    assert not found.time_tiles
    cuts = [[(a.first, a.groups) for a in found.plan.assignments if a.node == n] for n in range(3)]
    assert cuts[0] == cuts[1] == cuts[2]
    assert len(cuts[0]) > 1
    roomy = tiling.fitted(Problem(graph, machine(1 << 20), Unit(), (1,)), plan, {0: 1 << 20}, together=False)
    assert roomy.plan is plan


@pytest.mark.parametrize("limit", [2 * 16 + 8, 2 * 16 - 1, 20, 19])
def test_windows_of_one_size_are_made_smaller_where_they_do_not_fit(limit: int) -> None:
    """Each launch reads four bytes of the buffer of which the other writes sixteen in a range."""
    builder = GraphBuilder()
    a, b = builder.buffer(NBYTES, "a"), builder.buffer(NBYTES, "b")
    builder.add(kernel("reversed", [a, b]))
    builder.add(kernel("reversed", [b, a]))
    where, directory = machine(limit), Directory()
    for key in (a, b):
        directory.define(key)
    plan = plan_of(*(Assignment(n, 0, 0, float(n), n + 1.0) for n in range(2)))
    problem = Problem(builder.build(), where, Unit(), (1,))
    if limit < 20:
        with pytest.raises(RunError, match="at once"):
            lower(problem, plan, directory, {0: limit})
        return
    found = lower(problem, plan, directory, {0: limit})
    assert found.room is not None
    needs = [
        sum(found.room.sizes[key] for key in stores(task)) for task in found.graph.nodes if isinstance(task, Launch)
    ]
    assert len(needs) == 2 * GROUPS
    assert max(needs) <= limit
    assert len({w.nbytes for w in found.room.windows.values()}) == (1 if limit >= 32 else 2)
