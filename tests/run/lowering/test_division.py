"""What a launch in ranges is: which are refused, and what is said of what ranges touch, against one another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.errors import PolicyError
from manycl.graph.division import Division, divide
from manycl.graph.graph import BufferArg, Launch, Version
from manycl.region import Region
from manycl.run.lowering.ranges import launches_of
from manycl.run.tiling.time_skewing import _DENSE, shape_of
from manycl.utilities.kept import Kept
from tests.run.chaos.test_divided_chaos import DIVISIBLE, GROUP, ITEMS, NBYTES
from tests.run.chaos.test_divided_chaos import launch as kernel

PROGRAM = parse_program("""
uint far(uint d);
kernel void plain(global int *a) { a[get_global_id(0)] = 1; }
kernel void hidden(global int *a) { if (0) far(0); a[get_global_id(0)] = 1; }
kernel void same(global int *a) { a[0] = a[0] + 1; }
kernel void group(global int *a) { a[get_group_id(0)] = 1; }
kernel void apart(global int *a, int n) { a[(int)get_group_id(0) * n + (int)get_local_id(0)] = 1; }
kernel void copy(global const int *a, global int *b, int n) {
    b[(int)get_group_id(0) * n + (int)get_local_id(0)] = a[get_global_id(0)];
}
""")


def launch(name: str, items: int = 64, local: int | None = 16, *scalars: int, **more: Any) -> Launch:
    facts = PROGRAM.kernels[name]
    buffers = [a for a in facts.arguments if a.kind == "buffer"]
    args = (*(BufferArg(i) for i in range(len(buffers))), *(n.to_bytes(4, "little") for n in scalars))
    reads = tuple(i for i, a in enumerate(buffers) if a.reads)
    writes = tuple(i for i, a in enumerate(buffers) if a.writes)
    return Launch(name, PROGRAM, facts, (items,), local and (local,), args, reads, writes, **more)


@pytest.mark.parametrize(
    ("task", "dimension", "why"),
    [
        (launch("hidden"), 0, "line 4 calls far, whose body is not here"),
        (launch("plain"), 1, "it has no dimension 1"),
        (launch("plain"), -1, "it has no dimension -1"),
        (launch("same"), 0, "a: line 5"),
        (launch("group", 64, None), 0, "its local size is left to the driver, and the kernel may tell"),
        (
            launch("plain", versions=(Version(PROGRAM, PROGRAM.kernels["plain"], (64,), (16,)),)),
            0,
            "it has several versions: each is divided for itself",
        ),
    ],
)
def test_launches_that_cannot_be_split(task: Launch, dimension: int, why: str) -> None:
    with pytest.raises(PolicyError) as caught:
        divide(task, dimension, {0: 256})
    assert str(caught.value).startswith(f"{task.name} cannot be split along dimension {dimension}: ")
    assert why in str(caught.value)


def test_launches_that_can_be_split() -> None:
    assert divide(launch("plain"), 0, {0: 256}).groups == 4
    assert divide(launch("plain", 64, None), 0, {0: 256}).groups == 1, "one group of 64 was chosen"
    assert divide(launch("group"), 0, {0: 256}).groups == 4


@given(st.sampled_from(DIVISIBLE), st.data())
def test_the_hull_is_around_what_is_touched(name: str, data: Any) -> None:
    first = data.draw(st.integers(0, ITEMS // GROUP - 1))
    count = data.draw(st.integers(1, ITEMS // GROUP - first))
    division = divide(kernel(name, [0, 1, 2]), 0, dict.fromkeys(range(3), NBYTES))
    groups = division.range(first, count)
    access, hull, density = division.access(groups), division.hull(groups), division.density(groups)
    assert set(access) == set(division.sizes) & {a.key for a in division.launch.args if isinstance(a, BufferArg)}
    assert (density is None) == (hull is None)
    for key, found in hull.items() if hull is not None else ():
        assert around(found.reads) == around(access[key].reads)
        assert around(found.writes) == around(access[key].writes)
        assert max(len(found.reads.intervals), len(found.writes.intervals)) <= 1
        counts = [sum(high - low for low, high in given.intervals) for given in (access[key].reads, access[key].writes)]
        low, high = around(found.reads, found.writes)
        assert density is not None
        assert density * (high - low) <= sum(counts) + NBYTES  # what is touched in several ways counts as often
        if found.overwrites:
            assert access[key].overwrites
            assert sum(high - low for low, high in found.writes.intervals) == counts[1] > 0


def around(*regions: Region) -> tuple[int, int]:
    ends = [end for region in regions for interval in region.intervals for end in interval]
    return (min(ends), max(ends)) if ends else (0, 0)


@given(st.integers(1, 40), st.integers(1, 12), st.sampled_from(["apart", "copy"]))
def test_launches_whose_ranges_touch_little_of_what_they_span_are_in_no_pass(groups: int, step: int, name: str) -> None:
    """Of half of the groups: each writes four elements, ``step`` times as far from one another."""
    task = launch(name, 4 * groups, 4, 4 * step)
    sizes = {0: 16 * groups * step, 1: 16 * groups * step}
    half = max(groups // 2, 1)
    mask = np.zeros(groups * step, bool)
    mask[: half * step : step] = True  # in units of a group
    span = (half - 1) * step + 1
    found = shape_of(divide(task, 0, sizes))
    assert (found is not None) == (groups >= 2 and span <= mask.sum() / _DENSE)
    if found is not None:
        assert found.groups == groups
        (key,) = found.writes
        assert found.writes[key].stride == 16 * step * (groups > 1)
        for at in range(groups):
            assert found.writes[key].begin(at) == 16 * step * at
            assert found.writes[key].end(at + 1) == 16 * (step * at + 1)


@pytest.mark.parametrize("missing", [None, (3, 1), (4, 1), (0, 8), (2, 4)])
def test_launches_of_which_a_range_takes_long_to_find_out_are_in_no_pass(
    missing: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One group, its neighbour, all of them, half of them: whichever it is."""
    division = Division(launch("apart", 32, 4, 4), 0, {0: 128})
    quick = division._quick
    monkeypatch.setattr(division, "_quick", lambda groups: None if groups[1:] == missing else quick(groups))
    monkeypatch.setattr(division, "_hulls", Kept[Any, Any](16))
    assert (shape_of(division) is None) == (missing is not None)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 7), st.integers(1, 8))
def test_divisions_of_one_launch_on_other_buffers_are_the_same(one: int, other: int, first: int, count: int) -> None:
    """What was found out about the one holds for the other."""
    count = min(count, 8 - first)
    task = launch("apart", 32, 4, 4)
    (argument, *rest) = task.args
    assert isinstance(argument, BufferArg)
    found = []
    for key in (one, other):
        moved = replace(task, args=(BufferArg(key), *rest), writes=(key,))
        division = divide(moved, 0, {key: 128})
        groups = division.range(first, count)
        alone = Division(moved, 0, {key: 128})
        assert division.access(groups) == alone.access(groups)
        assert division.hull(groups) == alone.hull(groups)
        assert division.density(groups) == alone.density(groups)
        assert (division.groups, division.operations, division.sizes) == (alone.groups, alone.operations, {key: 128})
        assert division.launch.args == moved.args
        assert division.footprints(key, "write", groups) == alone.footprints(key, "write", groups)
        found.append((division, division.access(groups)[key]))
    assert found[0][1] == found[1][1]
    assert found[0][0].facts is found[1][0].facts


@pytest.mark.parametrize(
    "task",
    [
        launch("plain", 70, 16, global_offset=(3,)),
        launch("group", 64, 16),
        launch("apart", 64, 16, 16),
    ],
)
def test_a_packet_is_the_launch_of_its_range(task: Launch) -> None:
    """Also where it is made from what all ranges have in common."""
    launches = launches_of(divide(task, 0, {0: 1 << 12}))
    count = launches.division.facts.launch.groups(0)
    for first, groups in ((0, 1), (0, count), (1, count - 1), (count - 1, 1)):
        made, asked = (
            launches.packets((first, first + groups))(0, 1),
            launches.range(launches.division.range(first, groups), {}),
        )
        assert made is not asked
        for name in Launch.__slots__:
            assert getattr(made, name) == getattr(asked, name), name
