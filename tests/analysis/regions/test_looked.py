"""What groups read by the contents of index arrays, sane and hostile, against kernels followed by hand, element by
element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import launched, parse_program
from manycl.group_range import GroupRange

ITEMS, LOCAL, SIZE = 24, 4, 400  # (SIZE: bytes of what is read by index arrays)
SOURCE = """
kernel void rows(global const int *in, global float *o, global const int *rows, int n) {
    int r = get_global_id(0);
    if (r >= n) return;
    for (int k = rows[r]; k < rows[r + 1]; k++) o[r] += in[k];
}
kernel void backwards(global const int *in, global float *o, global const int *rows) {
    int r = get_global_id(0);
    for (int k = rows[r + 1] - 1; k >= rows[r]; k--) o[r] += in[k];
}
kernel void listed(global const int *in, global float *o, global const int *rows, global const uchar *list) {
    int r = list[get_global_id(0)];
    for (int k = rows[r]; k < rows[r + 1]; k += 2) o[get_global_id(0)] += in[k];
}
kernel void gather(global const int *in, global float *o, global const int *rows, global const int *at) {
    int r = get_global_id(0);
    for (int k = rows[r]; k < rows[r + 1]; k++) o[r] += in[at[k]];
}
kernel void twice(global const int *in, global float *o, global const int *at, global const int *also) {
    int r = get_global_id(0);
    o[r] = in[at[r]] + in[also[r] + r];
}
kernel void conditional(global const int *in, global float *o, global const uchar *flags, global const int *at) {
    int r = get_global_id(0);
    if (flags[r] > 1 || r == 5) o[r] = in[at[r] / 2 + r];
}
kernel void unknown(global const int *in, global float *o, global const int *at) {
    int r = get_global_id(0);
    if (o[r] > 1) for (int k = at[r]; k < at[r] + 3; k++) { if (in[k] == 7) break; o[r] += k; }
}
kernel void lengths(global const char *in, global float *o, global const long *first, global const ulong *count) {
    int r = get_global_id(0);
    for (ulong k = 0; k < count[r]; k++) o[r] += in[first[r] + k];
}
kernel void nested(global const int *in, global float *o, global const int *rows, global const uchar *lengths) {
    int r = get_global_id(0);
    for (int k = rows[r]; k < rows[r + 1]; k++)
        for (int j = 0; j < lengths[k % 24]; j++) o[r] += in[k + j];
}
kernel void ring(global const int *in, global float *o, global const uint *at, uint m) {
    int r = get_global_id(0);
    for (uint k = 0; k < 3; k++) o[r] += in[(at[r] - 2 * k) % m];
}
kernel void scaled(global const int *in, global float *o, global const int *at, int m) {
    o[get_global_id(0)] = in[at[get_global_id(0)] * m + 1];
}
kernel void clamped(global const int *in, global float *o, global const int *at, int n) {
    o[get_global_id(0)] = in[max(0, min(at[get_global_id(0)], n - 1))];
}
kernel void bytes(global const int *in, global float *o, global const int *at) {
    int r = get_global_id(0);
    o[r] = in[((global const uchar *)at)[3 * r + 1] % 16 + r];
}
kernel void vectors(global const int *in, global float *o, global const int *at) {
    int r = get_global_id(0);
    o[r] = vload3(at[r], in).y;
}
"""
Data = Mapping[int, npt.NDArray[Any]]


class UndefinedError(Exception):
    """An element outside of its array was read."""


class Subject(NamedTuple):
    """A kernel: its index arrays (type, least and largest value that are sane, elements), its scalars, and the elements
    that a work-item reads: of ``width`` bytes, ``lanes`` at a time."""

    arrays: Mapping[int, tuple[str, int, int, int]]
    scalars: Mapping[int, np.generic]
    follow: Callable[[Callable[[int, int], int], int], Iterator[int]]
    width: int = 4
    lanes: int = 1


ROWS = {2: ("<i4", 0, 90, ITEMS + 1)}


def pairs(a: Callable[[int, int], int], r: int, step: int = 1) -> range:
    return range(a(2, r), a(2, r + 1), step)


SUBJECTS = {
    "rows": Subject(ROWS, {3: np.int32(21)}, lambda a, r: iter(pairs(a, r) if r < 21 else ())),
    "backwards": Subject(ROWS, {}, lambda a, r: iter(pairs(a, r))),
    "listed": Subject({**ROWS, 3: ("u1", 0, ITEMS, ITEMS)}, {}, lambda a, r: iter(pairs(a, a(3, r), 2))),
    "gather": Subject({**ROWS, 3: ("<i4", 20, 100, 90)}, {}, lambda a, r: (a(3, k) for k in pairs(a, r))),
    "twice": Subject(
        {2: ("<i4", 50, 100, ITEMS), 3: ("<i4", 0, 70, ITEMS)}, {}, lambda a, r: iter([a(2, r), a(3, r) + r])
    ),
    "conditional": Subject(
        {2: ("u1", 0, 4, ITEMS), 3: ("<i4", 0, 150, ITEMS)},
        {},
        lambda a, r: (int(a(3, r) / 2) + r for _ in (0,) if r == 5 or a(2, r) > 1),
    ),
    "unknown": Subject({2: ("<i4", 0, 90, ITEMS)}, {}, lambda a, r: iter(range(a(2, r), a(2, r) + 3))),
    "lengths": Subject(
        {2: ("<i8", 0, 300, ITEMS), 3: ("<u8", 0, 99, ITEMS)},
        {},
        lambda a, r: (a(2, r) + k for k in range(a(3, r))),
        1,
    ),
    "nested": Subject(
        {**ROWS, 3: ("u1", 0, 6, ITEMS)}, {}, lambda a, r: (k + j for k in pairs(a, r) for j in range(a(3, k % 24)))
    ),
    "ring": Subject(
        {2: ("<u4", 0, 90, ITEMS)}, {3: np.uint32(90)}, lambda a, r: ((a(2, r) - 2 * k) % 2**32 % 90 for k in range(3))
    ),
    "scaled": Subject({2: ("<i4", 0, 30, ITEMS)}, {3: np.int32(3)}, lambda a, r: iter([a(2, r) * 3 + 1])),
    "clamped": Subject({2: ("<i4", -9, 99, ITEMS)}, {3: np.int32(80)}, lambda a, r: iter([max(0, min(a(2, r), 79))])),
    "bytes": Subject(
        {2: ("<i4", 0, 2**20, ITEMS)},
        {},
        lambda a, r: iter([(a(2, (3 * r + 1) // 4) >> 8 * ((3 * r + 1) % 4)) % 256 % 16 + r]),
    ),
    "vectors": Subject({2: ("<i4", 0, 33, ITEMS)}, {}, lambda a, r: iter([a(2, r)]), 12, 3),
}


@functools.cache
def known_of(name: str) -> LaunchFacts:
    subject = SUBJECTS[name]
    sizes = {0: SIZE, 1: 4 * ITEMS, **{i: np.dtype(kind).itemsize * n for i, (kind, _, _, n) in subject.arrays.items()}}
    scalars = {i: v.tobytes() for i, v in subject.scalars.items()}
    return launched(parse_program(SOURCE), name, KnownLaunch((ITEMS,), (LOCAL,), (), scalars, sizes))


def drawn(subject: Subject, random: np.random.Generator, is_hostile: bool) -> Data:
    """Contents of the index arrays: within the bounds that are sane, or now and then far outside."""
    found = {}
    for argument, (kind, low, high, count) in subject.arrays.items():
        values = random.integers(low, high, count)
        if count == ITEMS + 1 and random.random() < 0.7:
            values = np.sort(values)
        if is_hostile:
            limits = np.iinfo(kind)
            wild = [limits.min, limits.max, -1, high + 3, low - 2, limits.max // 3]
            chosen = [int(np.clip(random.choice(6), 0, 5)) for _ in range(count)]
            values = np.array(
                [
                    max(limits.min, min(limits.max, wild[c])) if random.random() < 0.05 else int(v)
                    for v, c in zip(values, chosen, strict=True)
                ],
                object,
            )
        found[argument] = values.astype(kind)
    return found


def followed(subject: Subject, contents: Data, groups: GroupRange) -> tuple[list[int], bool]:
    """The first bytes of all that is read, and whether all that was read is defined and was followed to its end."""

    def element(argument: int, index: int) -> int:
        if not 0 <= index < len(contents[argument]):
            raise UndefinedError
        return int(contents[argument][index])

    found: list[int] = []
    is_all = True
    for r in range(groups.first * LOCAL, groups.end * LOCAL):
        try:
            for place in subject.follow(element, r):
                found.append(subject.width * place)
                if len(found) > 3000:
                    return found, False
        except UndefinedError:
            is_all = False
    return found, is_all


@pytest.mark.parametrize("name", SUBJECTS)
@given(seed=st.integers(0, 2**32), is_hostile=st.booleans())
@settings(max_examples=20, deadline=None, derandomize=True)
def test_what_is_read_lies_within_the_bytes_that_contents_tell(name: str, seed: int, is_hostile: bool) -> None:
    subject, known = SUBJECTS[name], known_of(name)
    contents = drawn(subject, np.random.default_rng(seed), is_hostile)
    assert known.looked({}, 0).index_arrays(0) == frozenset(subject.arrays)
    looked = known.looked({i: data.view(np.uint8) for i, data in contents.items()}, 1 << 16)
    for first, count in ((0, 1), (ITEMS // LOCAL - 1, 1), (1, 3), (0, ITEMS // LOCAL)):
        groups = GroupRange(0, first, count)
        places, is_all = followed(subject, contents, groups)
        hull = looked.hull(0, groups)
        assert is_hostile or hull is not None
        inside = [p for p in places if p >= 0 and p + subject.width <= SIZE]
        if hull is not None and is_all:
            assert not inside or (hull[0] <= min(inside) and max(inside) + subject.width <= hull[1])
            if not is_hostile and name != "vectors":
                assert hull == ((min(places), max(places) + subject.width) if places else (0, 0))


def test_only_arrays_that_stay_as_they_are_are_looked_at() -> None:
    source = """
    kernel void k(global int *at, global const int *in, global int *o, global const int *of) {
        int i = get_global_id(0); o[i] = in[at[i]] + in[of[i]]; at[i] = 0;
    }
    kernel void chain(global const int *at, global const int *in, global int *o) {
        int i = get_global_id(0), k = i; while (k < 90) { k = at[k]; o[i] += in[k]; }
    }
    kernel void carried(global const int *at, global const int *in, global int *o) {
        int i = get_global_id(0), before = 0;
        for (int k = 0; k < 3; k++) { o[i] += in[before]; before = at[i + k]; }
    }
    """
    own = {"k": {0: 96, 1: 400, 2: 96, 3: 96}, "chain": {0: 400, 1: 400, 2: 96}, "carried": {0: 104, 1: 400, 2: 96}}
    for name, sizes in own.items():
        known = launched(parse_program(source), name, KnownLaunch((ITEMS,), (LOCAL,), (), {}, sizes))
        looked = known.looked({0: np.zeros(sizes[0], np.uint8)}, 1 << 16)
        assert not looked.index_arrays(1)
        assert looked.hull(1, GroupRange(0, 0, 1)) is None
