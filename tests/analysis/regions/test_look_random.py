"""Random index arrays, sane and hostile, against the kernels followed by hand, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.launched import LaunchFacts
from manycl.analysis.service import launched, parse_program
from manycl.group_range import GroupRange

SOURCE = """
kernel void scale_rows(global float *values, global const int *rows, int n) {
    int r = get_global_id(0);
    if (r >= n) return;
    for (int k = rows[r]; k < rows[r + 1]; k++) values[k] *= 2;
}
kernel void backwards(global int *out, global const int *rows) {
    int r = get_global_id(0);
    for (int k = rows[r + 1] - 1; k >= rows[r]; k--) out[k] = r;
}
kernel void listed_rows(global int *out, global const int *rows, global const uchar *list) {
    int r = list[get_global_id(0)];
    for (int k = rows[r]; k < rows[r + 1]; k += 2) out[k] = r;
}
kernel void multiply(global float *y, global const int *rows, global const int *columns, global const float *values,
                     global const float *x) {
    int r = get_global_id(0);
    float sum = 0;
    for (int k = rows[r]; k < rows[r + 1]; k++) sum += values[k] * x[columns[k]];
    y[r] = sum;
}
kernel void twice(global short *out, global const ushort *outer, global const char *inner) {
    out[outer[inner[get_global_id(0)]]] = 1;
}
kernel void flagged(global int *out, global const uchar *flags) {
    int i = get_global_id(0);
    if (flags[i] || i == 5) out[i + 2] = 1;
}
kernel void long_runs(global char *out, global const long *first, global const ulong *count) {
    int i = get_global_id(0);
    for (ulong k = 0; k < count[i]; k++) out[first[i] + k] = 1;
}
kernel void nested(global int *out, global const int *rows, global const uchar *lengths) {
    int r = get_global_id(0);
    for (int k = rows[r]; k < rows[r + 1]; k++)
        for (int j = 0; j < lengths[k]; j++) out[2 * k + j] = 1;
}
kernel void limited_by_data(global int *out, global const int *limits, int n) {
    int i = get_global_id(0);
    for (int k = 0; k < n; k++) if (k < limits[k]) out[3 * i + k] = 1;
}
kernel void unsigned_ring(global int *out, global const uint *at, uint m) {
    int i = get_global_id(0);
    for (uint k = 0; k < 3; k++) out[(at[i] - 2 * k) % m] = 1;
}
kernel void triples(global int *out, global const int *at) {
    int i = at[get_global_id(0)];
    vstore3((int3)(i), i + 1, out);
}
kernel void bytes_of_ints(global int *out, global const int *at) {
    int i = get_global_id(0);
    out[((global const uchar *)at)[3 * i + 1] % 16 + i] = 1;
}
kernel void clamped(global int *out, global const int *at, int n) {
    int i = get_global_id(0);
    out[max(0, min(at[i], n - 1))] = 1;
    if (at[i] != i) out[at[i] < 4 ? 4 - i / 8 : i] = 2;
}
kernel void empty_unless(global int *out, global const int *rows) {
    int r = get_global_id(0);
    for (int k = rows[r]; k < rows[r + 1]; k++) out[r] += 1;
}
kernel void wrapping_run(global int *out, global const uint *at) {
    int i = get_global_id(0);
    for (uint k = 0; k < 3; k++) out[at[i] + k] = 1;
}
kernel void from_somewhere(global int *out, global const int *from) {
    int i = get_global_id(0);
    for (int k = 0; k < 3; k++) if (k >= from[i]) out[3 * i + k] = 1;
}
kernel void either(global int *out, global const uchar *flags, global const uchar *list) {
    int i = get_global_id(0);
    if (i == 5 || flags[list[i]]) out[i] = 1;
}
kernel void moved(global int *out, global const int *to, global const int *from) {
    int i = get_global_id(0);
    out[to[i]] = out[from[i]];
}
kernel void summed(global int *out, global const int *to, global const int *rows) {
    int i = get_global_id(0), sum = 0;
    for (int k = rows[i]; k < rows[i + 1]; k++) sum += out[k];
    out[to[i]] = sum;
}
kernel void triangle(global int *out, global const uchar *count) {
    int i = get_global_id(0);
    for (int k = 0; k < count[i]; k++)
        for (int j = 0; j < 3; j++) if (j < k) out[3 * i + j] = 1;
}
kernel void scaled(global int *out, global const int *at) { out[at[get_global_id(0)] * 3 + 1] = 1; }
"""
ITEMS, LOCAL = 24, 4
Bytes = Iterator[tuple[int, str, int, int]]  # argument, kind, first byte, bytes


class UndefinedError(Exception):
    """An element outside of its array was read."""


class TooLongError(Exception):
    """More is touched than is worth following."""


class Arrays:
    """Index arrays, read element by element."""

    def __init__(self, contents: Mapping[int, np.ndarray]) -> None:
        self.contents = contents

    def __call__(self, argument: int, index: int) -> int:
        if not 0 <= index < len(self.contents[argument]):
            raise UndefinedError
        return int(self.contents[argument][index])


@dataclass(frozen=True)
class Subject:
    """A kernel: sizes in bytes of its buffers, scalars, and index arrays with their types and sane bounds."""

    sizes: tuple[int, ...]
    arrays: Mapping[int, tuple[str, int, int]]
    follow: Callable[[Arrays, int], Bytes]
    scalars: Mapping[int, np.generic]


SUBJECTS: dict[str, Subject] = {}


def subject(sizes: tuple[int, ...], arrays: Mapping[int, tuple[str, int, int]], **scalars: np.generic):
    def added(follow: Callable[[Arrays, int], Bytes]) -> Callable[[Arrays, int], Bytes]:
        given = {int(name[1:]): value for name, value in scalars.items()}
        SUBJECTS[follow.__name__] = Subject(sizes, arrays, follow, given)
        return follow

    return added


ROWS, PLACES, NEAR = ("<i4", 0, 60), ("<i4", 0, 24), ("<i4", 0, 48)


@subject((240, 4 * 25), {1: ROWS}, _2=np.int32(21))
def scale_rows(a: Arrays, i: int) -> Bytes:
    if i < 21:
        for k in range(a(1, i), a(1, i + 1)):
            yield 0, "read", 4 * k, 4
            yield 0, "write", 4 * k, 4


@subject((240, 4 * 25), {1: ROWS})
def backwards(a: Arrays, i: int) -> Bytes:
    for k in range(a(1, i), a(1, i + 1)):
        yield 0, "write", 4 * k, 4


@subject((240, 4 * 25, 24), {1: ROWS, 2: ("u1", 0, 24)})
def listed_rows(a: Arrays, i: int) -> Bytes:
    r = a(2, i)
    for k in range(a(1, r), a(1, r + 1), 2):
        yield 0, "write", 4 * k, 4


@subject((96, 4 * 25, 240, 240, 160), {1: ROWS, 2: ("<i4", 0, 40)})
def multiply(a: Arrays, i: int) -> Bytes:
    for k in range(a(1, i), a(1, i + 1)):
        yield 3, "read", 4 * k, 4
        yield 2, "read", 4 * k, 4
        yield 4, "read", 4 * a(2, k), 4


@subject((100, 60, 24), {1: ("<u2", 0, 50), 2: ("i1", 0, 30)})
def twice(a: Arrays, i: int) -> Bytes:
    yield 0, "write", 2 * a(1, a(2, i)), 2


@subject((4 * 26, 24), {1: ("u1", 0, 2)})
def flagged(a: Arrays, i: int) -> Bytes:
    if a(1, i) or i == 5:
        yield 0, "write", 4 * (i + 2), 4


@subject((100, 8 * 24, 8 * 24), {1: ("<i8", 0, 95), 2: ("<u8", 0, 5)})
def long_runs(a: Arrays, i: int) -> Bytes:
    if a(2, i):
        yield 0, "write", a(1, i), a(2, i)


@subject((4 * 130, 4 * 25, 60), {1: ROWS, 2: ("u1", 0, 6)})
def nested(a: Arrays, i: int) -> Bytes:
    for k in range(a(1, i), a(1, i + 1)):
        for j in range(a(2, k)):
            yield 0, "write", 4 * (2 * k + j), 4


@subject((4 * 80, 4 * 9), {1: ("<i4", 0, 9)}, _2=np.int32(9))
def limited_by_data(a: Arrays, i: int) -> Bytes:
    for k in range(9):
        if k < a(1, k):
            yield 0, "write", 4 * (3 * i + k), 4


@subject((4 * 50, 4 * 24), {1: ("<u4", 0, 50)}, _2=np.uint32(45))
def unsigned_ring(a: Arrays, i: int) -> Bytes:
    for k in range(3):
        yield 0, "write", 4 * ((a(1, i) - 2 * k) % 2**32 % 45), 4


@subject((12 * 20, 4 * 24), {1: ("<i4", 0, 19)})
def triples(a: Arrays, i: int) -> Bytes:
    yield 0, "write", 12 * (a(1, i) + 1), 12


@subject((4 * 50, 4 * 24), {1: ("<i4", 0, 2**20)})
def bytes_of_ints(a: Arrays, i: int) -> Bytes:
    byte = a.contents[1].view(np.uint8)[3 * i + 1]
    yield 0, "write", 4 * (int(byte) % 16 + i), 4


@subject((4 * 30, 4 * 24), {1: ("<i4", -5, 40)}, _2=np.int32(30))
def clamped(a: Arrays, i: int) -> Bytes:
    at = a(1, i)
    yield 0, "write", 4 * max(0, min(at, 29)), 4
    if at != i:
        yield 0, "write", 4 * (4 - i // 8 if at < 4 else i), 4


@subject((4 * 24, 4 * 25), {1: ROWS})
def empty_unless(a: Arrays, i: int) -> Bytes:
    if a(1, i) < a(1, i + 1):
        yield 0, "write", 4 * i, 4
        yield 0, "read", 4 * i, 4


@subject((4 * 50, 4 * 24), {1: ("<u4", 0, 48)})
def wrapping_run(a: Arrays, i: int) -> Bytes:
    for k in range(3):
        yield 0, "write", 4 * ((a(1, i) + k) % 2**32), 4


@subject((4 * 72, 4 * 24), {1: ("<i4", -2, 5)})
def from_somewhere(a: Arrays, i: int) -> Bytes:
    for k in range(max(0, a(1, i)), 3):
        yield 0, "write", 4 * (3 * i + k), 4


@subject((4 * 24, 24, 24), {1: ("u1", 0, 2), 2: ("u1", 0, 24)})
def either(a: Arrays, i: int) -> Bytes:
    if i == 5 or a(1, a(2, i)):
        yield 0, "write", 4 * i, 4


@subject((4 * 48, 4 * 24, 4 * 24), {1: PLACES, 2: NEAR})
def moved(a: Arrays, i: int) -> Bytes:
    yield 0, "write", 4 * a(1, i), 4
    yield 0, "read", 4 * a(2, i), 4


@subject((4 * 60, 4 * 24, 4 * 25), {1: PLACES, 2: ROWS})
def summed(a: Arrays, i: int) -> Bytes:
    yield 0, "write", 4 * a(1, i), 4
    for k in range(a(2, i), a(2, i + 1)):
        yield 0, "read", 4 * k, 4


@subject((4 * 72, 24), {1: ("u1", 0, 5)})
def triangle(a: Arrays, i: int) -> Bytes:
    for k in range(a(1, i)):
        for j in range(min(k, 3)):
            yield 0, "write", 4 * (3 * i + j), 4


@subject((4 * 60, 4 * 24), {1: ("<i4", 0, 19)})
def scaled(a: Arrays, i: int) -> Bytes:
    place = 3 * a(1, i) + 1
    if not -(2**31) <= place < 2**31:
        raise UndefinedError
    yield 0, "write", 4 * place, 4


@functools.cache
def known_of(name: str) -> LaunchFacts:
    subject = SUBJECTS[name]
    scalars = {i: v.tobytes() for i, v in subject.scalars.items()}
    launch = KnownLaunch((ITEMS,), (LOCAL,), (), scalars, dict(enumerate(subject.sizes)))
    return launched(parse_program(SOURCE), name, launch)


def drawn(subject: Subject, random: np.random.Generator, hostile: bool, ordered: bool) -> dict[int, np.ndarray]:
    """Contents of the index arrays: within the bounds that are sane, or now and then far outside."""
    found = {}
    for argument, (kind, low, high) in subject.arrays.items():
        count = subject.sizes[argument] // np.dtype(kind).itemsize
        values = random.integers(low, high, count)
        if ordered and (kind, low, high) == ROWS:
            values = np.sort(np.where(random.random(count) < 0.3, np.roll(values, 1), values))
        if ordered and (kind, low, high) == PLACES:
            values = random.permutation(count)
        if ordered and (kind, low, high) == NEAR:  # what the group writes itself, or nobody
            own = random.permuted(found[1].reshape(-1, LOCAL), axis=1).reshape(-1)
            values = np.where(random.random(count) < 0.1, np.clip(values, 24, 47), own)
        if hostile:
            limits = np.iinfo(kind)
            wild = np.array([limits.min, limits.max, -1, high + 3, low - 2, limits.max // 3], object)
            chosen = random.random(count) < 0.05
            drawn = np.clip(random.choice(wild, count), limits.min, limits.max)
            values = np.where(chosen, drawn, values.astype(object))
        found[argument] = values.astype(kind)
    return found


@dataclass
class Truth:
    """Per group and (argument, kind): the bytes touched within the memory; whether any element was undefined, and
    whether it was not followed to the end; whether anything lies outside of the memory."""

    masks: list[dict[tuple[int, str], np.ndarray]]
    undefined: list[bool]
    cut: list[bool]
    outside: bool = False


def followed(subject: Subject, contents: Mapping[int, np.ndarray]) -> Truth:
    groups = ITEMS // LOCAL
    result = Truth([{} for _ in range(groups)], [False] * groups, [False] * groups)
    arrays = Arrays(contents)
    for group, masks in enumerate(result.masks):
        for argument, size in enumerate(subject.sizes):
            for kind in ("read", "write"):
                masks[argument, kind] = np.zeros(size, bool)
        for i in range(group * LOCAL, (group + 1) * LOCAL):
            try:
                for argument, kind, first, count in bounded(subject.follow(arrays, i)):
                    size = subject.sizes[argument]
                    result.outside |= first < 0 or first + count > size
                    masks[argument, kind][max(first, 0) : max(first + count, 0)] = True
            except UndefinedError:
                result.undefined[group] = True
            except TooLongError:
                result.cut[group] = True
    return result


def bounded(touched: Bytes) -> Bytes:
    """Of a hostile loop only the first iterations."""
    for number, item in enumerate(touched):
        if number > 2000:
            raise TooLongError
        yield item


@pytest.mark.parametrize("name", SUBJECTS)
@given(seed=st.integers(0, 2**32), hostile=st.booleans(), ordered=st.booleans())
@settings(max_examples=30, deadline=None)
def test_regions_and_verdicts(name: str, seed: int, hostile: bool, ordered: bool) -> None:
    subject, known = SUBJECTS[name], known_of(name)
    contents = drawn(subject, np.random.default_rng(seed), hostile, ordered)
    truth = followed(subject, contents)
    looked = known.look(contents)
    groups = len(truth.masks)
    outputs = [(0, "read"), (0, "write")] if name != "multiply" else [(2, "read"), (3, "read"), (4, "read")]
    exact = True
    for first, count in ((0, 1), (groups - 1, 1), (1, 3), (0, groups)):
        undefined, cut = (any(flags[first : first + count]) for flags in (truth.undefined, truth.cut))
        for argument, kind in outputs:
            happened = np.logical_or.reduce([m[argument, kind] for m in truth.masks[first : first + count]])
            region = looked.region(argument, kind, GroupRange(0, first, count))
            said = region.mask(subject.sizes[argument])
            assert not (happened & ~said).any(), (argument, kind, first, count)
            if region.exact and not cut and not undefined:
                assert (said == happened).all(), (argument, kind, first, count)
            if undefined and kind == "write":
                assert not region.exact, (argument, first, count)
            assert hostile or region.exact, (region.reason, argument, kind)
            exact &= region.exact
    apart = not conflict(truth)
    assert apart or not looked.split(0).splittable
    if not hostile:
        assert looked.split(0).splittable == apart
        assert not truth.outside
    if exact and not any(truth.undefined) and not any(truth.cut):
        assert bool(looked.out_of_bounds) == truth.outside


def conflict(truth: Truth) -> bool:
    """Whether some group writes what another reads or writes."""
    writes = np.array([m[0, "write"] for m in truth.masks], int)
    both = np.array([m[0, "write"] | m[0, "read"] for m in truth.masks], int)
    return bool(((both.sum(0) > 1) & (writes.sum(0) > 0)).any())


def test_the_kernels_are_what_data_steer() -> None:
    """Without looking none of the written regions is exact; what to look at is known."""
    for name, subject in SUBJECTS.items():
        known = known_of(name)
        if name != "multiply":
            assert not known.region(0, "write").exact, name
            assert set(known.wanted(0, "write")) <= set(subject.arrays), name
            assert known.wanted(0, "write"), name
    assert known_of("multiply").wanted(4, "read") == (1, 2)
    assert known_of("multiply").wanted(0, "write") == ()
