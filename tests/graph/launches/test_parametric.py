"""Launches of random kernels that differ in scalars only: their divisions against what their work-items touch, which is
counted out, and what is known of all of them against what is found out about each alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from manycl.analysis import parse_program, service
from manycl.analysis.facts import ProgramFacts
from manycl.analysis.launched import LaunchFacts
from manycl.graph import division
from manycl.graph.division import NotDivisibleError
from manycl.graph.graph import BufferArg, BufferKey, Launch
from manycl.graph.known import known_launch
from manycl.group_range import GroupRange
from manycl.plan import splitting
from manycl.plan.split import Split
from manycl.plan.splitting import split_of
from manycl.region import Rectangle, Region
from manycl.utilities.kept import Kept

KERNELS = 24
ELEMENTS = 512
SIZE, LOCAL = (8, 6), (2, 3)
TYPES = {"int": np.int32, "uint": np.uint32, "long": np.int64, "char": np.int8, "ushort": np.uint16}
SUBSCRIPTS = (
    *("i * {w} + y * 8 + x", "i + {c} * x + {w} * y", "(i - {c}) * {w} + x + 8 * y", "{w} * y + x + {c}"),
    *("(i + y) * 8 + x", "x * i + y", "MIN(i, {c}) * {w} + x + 8 * y", "(i % {c}) * {w} + x + 8 * y"),
    *("(i << 2) + x + 8 * y", "({c} - i) * 8 + x + {w} * y", "i * i + x", "(i ^ 1) + x + 8 * y", "(i + k) * 4 + x"),
    *("k * 8 + x", "i * j + x + 8 * y", "j * {w} + i + x"),
    *("(i ^ x) + 8 * y", "i * x * y + x", "(x ^ j) + (i & 8)", "(x & i) + 8 * y"),  # of which none are known together
)
CONDITIONS = ("i > 0", "i < {c}", "x < i", "x + y < i + {c}", "y > {c} - 4", "i != {c}", "i > 0 && x > 0", "j < i", "1")
STEERED = (
    "(b[x] > 3) == ((i & 2) == 0)",
    "b[x] * i > 5",
    "b[x] > 3 && i % 3 == 1",
    "b[x] < i",
    "b[x] > 2 && (i & x) > 0",
)
"""Conditions on what an array holds: where these say nothing of places, launches that differ in them touch the same."""
HELD = [e * 7 % 10 for e in range(ELEMENTS)]
LOOPS = ("", "", "", "for (int k = 0; k < {c} % 5; k++)", "for (int k = 0; k < i; k++)", "for (int k = i; k < j; k++)")


class Number(int):
    """One whose remainders have its sign, as in C."""

    def __mod__(self, by: int) -> int:
        return abs(self) % by * (-1 if self < 0 else 1)


@dataclass
class Random:
    """A kernel ``k(a, b, i, j)`` that copies elements of b to a where a condition holds, as text and in Python."""

    loop: str
    condition: str
    to: str
    of: str
    type: str

    @property
    def source(self) -> str:
        return f"""#define MIN(a, b) ((a) < (b) ? (a) : (b))
        kernel void k(global int *a, global const int *b, {self.type} i, int j) {{
            int x = get_global_id(0), y = get_global_id(1);
            {self.loop} if ({self.condition}) a[{self.to}] = b[{self.of}];
        }}"""

    def rounds(self, i: int, j: int) -> range:
        if not self.loop:
            return range(1)
        begin, end = self.loop.removeprefix("for (int k = ").split("; k++")[0].split("; k < ")
        return range(eval(begin, {"i": i}), eval(end, {"i": i, "j": j}))

    def touched(self, i: int, j: int, groups: GroupRange) -> dict[str, set[int]] | None:
        """Elements that some groups write and read; None where they leave the arrays, or 31 bits do not do."""
        if i >= 1 << 30 or (self.loop and abs(i) > 64):
            return None
        found: dict[str, set[int]] = {"write": set(), "read": set()}
        condition, to, of = [compile(t.replace("&&", "and"), "", "eval") for t in (self.condition, self.to, self.of)]
        for x, y, k in product(range(SIZE[0]), range(SIZE[1]), self.rounds(i, j)):
            names = {"i": Number(i), "j": j, "x": x, "y": y, "k": k, "MIN": min, "b": HELD}
            here = (x, y)[groups.dimension] // LOCAL[groups.dimension]
            if not groups.first <= here < groups.end:
                continue
            if self.condition in STEERED:
                found["read"].add(x)
            if eval(condition, names):
                found["write"].add(eval(to, names))
                found["read"].add(eval(of, names))
        ends = [e for elements in found.values() for e in elements]
        return found if not ends or 0 <= min(ends) <= max(ends) < ELEMENTS else None


def drawn(r: random.Random) -> Random:
    def filled(texts: list[str] | tuple[str, ...], loop: str) -> str:
        found = r.choice([t for t in texts if loop or "k" not in t])
        return found.format(c=r.randint(1, 9), w=r.choice([1, 4, 8, 48, 50]))

    loop = filled(LOOPS, "k")
    conditions = CONDITIONS if r.random() < 0.6 else STEERED
    return Random(loop, filled(conditions, loop), *[filled(SUBSCRIPTS, loop) for _ in "ab"], r.choice(list(TYPES)))


def values(r: random.Random, type_: str) -> Iterator[tuple[int, int]]:
    """Numbers for i and j, as loops have them, then edges of these and of their types."""
    j = r.randint(0, 6)
    yield from ((i, j) for i in range(1, 9))
    yield from ((0, j), (r.randint(9, 40), j), (3, j + 1), (4, j + 1), (5, j + 1))
    if not type_.startswith("u"):
        yield from ((-i, j) for i in (1, 2, 3, 7))
    edges = np.iinfo(TYPES[type_])
    yield from ((i, j) for i in (int(edges.min), int(edges.max) - 1, int(edges.max), min(1 << 15, int(edges.max))))


def launch_of(program: ProgramFacts, kernel: Random, i: int, j: int) -> Launch:
    args = (BufferArg(BufferKey(0)), BufferArg(BufferKey(1)), TYPES[kernel.type](i).tobytes(), np.int32(j).tobytes())
    return Launch("k", program, program.kernels["k"], SIZE, LOCAL, args, (BufferKey(1),), (BufferKey(0),))


SIZES = {BufferKey(0): 4 * ELEMENTS, BufferKey(1): 4 * ELEMENTS}
SOME = [(0, 4), (0, 1), (1, 2), (3, 1)], [(0, 2), (0, 1), (1, 1)]


def by_itself(monkeypatch: pytest.MonkeyPatch, launch: Launch) -> Split | str:
    """How a launch may be split, by what is found out about it for itself."""
    with monkeypatch.context() as patched:
        patched.setattr(service, "accessing", lambda program, kernel, known, at_once=False: (known, {}))
        patched.setattr(division, "_known", Kept(256))
        patched.setattr(division, "_shared", Kept(256))
        return splitting._best(launch, [launch], SIZES)


def check_ranges(kernel: Random, i: int, j: int, launch: Launch, own: LaunchFacts, dimension: int) -> None:
    where = f"i = {i}, j = {j}\n{kernel.source}"
    verdict = own.split(dimension)
    if not verdict.mergeable:
        with pytest.raises(NotDivisibleError):
            division.divide(launch, dimension, SIZES)
        return
    found = division.divide(launch, dimension, SIZES)
    for first, count in SOME[dimension]:
        groups = GroupRange(dimension, first, count)
        access, happened = found.access(groups), kernel.touched(i, j, groups)
        for index, kind in enumerate(("write", "read")):
            of = access[BufferKey(index)]
            region = of.writes if kind == "write" else of.reads
            mine = own.region(index, kind, groups)
            if mine.exact:
                assert region == mine.around()[0], f"{kind} {groups} {where}"
            if happened is not None:
                true = Region.of_rectangles([Rectangle(4 * e, 4) for e in happened[kind]])
                assert not true - region, f"{kind} outside of the region, {groups} {where}"
                assert not mine.exact or region == true, f"said to be exact: {kind} {groups} {where}"


def check(monkeypatch: pytest.MonkeyPatch, kernel: Random, pairs: list[tuple[int, int]], seen: Counter[str]) -> None:
    program = parse_program(kernel.source)
    for i, j in pairs:
        launch = launch_of(program, kernel, i, j)
        known = known_launch(launch, SIZES)
        where = f"i = {i}, j = {j}\n{kernel.source}"
        own = LaunchFacts(service._unit(program), program.kernels["k"], known)  # for itself, with isl in this process
        like, by = service.accessing(program, "k", known)
        seen["moved"] += any(by.values())
        seen["like another"] += like is not known
        for dimension in 0, 1:
            check_ranges(kernel, i, j, launch, own, dimension)
        assert split_of(launch, SIZES) == by_itself(monkeypatch, launch), where
        together = service.launched(program, "k", known)
        seen["evaluated"] += together.summary.steps != own.summary.steps
        assert together.repeat.idempotent == own.repeat.idempotent, where
        assert [together.split(d).mergeable for d in (0, 1)] == [own.split(d).mergeable for d in (0, 1)], where
        for groups in None, GroupRange(1, 0, 1):
            assert together.work(groups) == own.work(groups), where


@pytest.mark.parametrize("seed", range(KERNELS))
def test_what_is_known_of_many_is_true_of_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(seed)
    kernel = drawn(r)
    check(monkeypatch, kernel, list(values(r, kernel.type)), Counter())


SORT = """kernel void stage(global uint *x, uint k, uint j) {
    uint i = get_global_id(0), p = i ^ j;
    if (p > i && (x[i] > x[p]) == ((i & k) == 0)) { uint a = x[i]; x[i] = x[p]; x[p] = a; }
}
kernel void pair(global uint *x, uint k, uint j) {
    uint t = get_global_id(0), i = 2 * j * (t / j) + t % j;
    if ((x[i] > x[i + j]) == ((i & k) == 0)) { uint a = x[i]; x[i] = x[i + j]; x[i + j] = a; }
}
kernel void some(global uint *x, uint k, uint j) {
    if (x[get_global_id(0)] * (k & 2) > j && (get_global_id(0) & k)) x[get_global_id(0)] = 0;
}"""


@pytest.mark.parametrize(("name", "different", "before"), [("stage", 5, 15), ("pair", 5, 15), ("some", 5, 5)])
def test_steps_of_a_sort_that_touch_the_same_are_one_question(name: str, different: int, before: int) -> None:
    """They differ in the direction that a condition on data has, which says nothing of places; not so what never holds,
    or says which work-items may do it."""
    program, key = parse_program(SORT), BufferKey(0)
    asked, at_once = set(), set()
    for k in (2, 4, 8, 16, 32):
        for j in (k >> s for s in range(1, k.bit_length())):
            args = BufferArg(key), np.uint32(k).tobytes(), np.uint32(j).tobytes()
            known = known_launch(
                Launch(name, program, program.kernels[name], (32,), (4,), args, (key,), (key,)), {key: 128}
            )
            at_once.add(service.accessing(program, name, known, at_once=True)[0].key)
            asked.add(service.accessing(program, name, known)[0].key)
            assert service.accessing(program, name, known, at_once=True)[0].key in asked
    assert (len(asked), len(at_once)) == (different, before)


def test_what_a_bit_is_exchanged_in_is_followed() -> None:
    program, key = parse_program(SORT), BufferKey(0)
    for j in (1, 2, 4, 8, 16):
        args = BufferArg(key), np.uint32(32).tobytes(), np.uint32(j).tobytes()
        launch = Launch("stage", program, program.kernels["stage"], (32,), (4,), args, (key,), (key,))
        facts = service.launched(program, "stage", known_launch(launch, {key: 128}))
        for first in range(8):
            items = {i for i in range(4 * first, 4 * first + 4) if i ^ j > i}
            found = facts.region(0, "read", GroupRange(0, first, 1))
            assert found.around()[0] == Region.of_rectangles([Rectangle(4 * e, 4) for i in items for e in (i, i ^ j)])
