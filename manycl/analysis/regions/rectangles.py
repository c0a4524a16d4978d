"""Regions of the usual accesses without isl: linear subscripts, each variable between bounds of its own. Then what a
range of work-groups touches is a rectangle: runs of bytes, repeated at some pitch. Everything else is left to
:mod:`manycl.analysis.regions.regions`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.summary import MemoryAccess
from manycl.analysis.symbolic.expr import INFINITE, Expr
from manycl.group_range import GroupRange
from manycl.region import Rectangle
from manycl.utilities.kept import Kept

_Factors = tuple[dict[str, int], int]
_ALIKE = 64  # sizes of ranges


def linear(e: Expr) -> _Factors | None:
    """Coefficients of variables by name, and the constant; None if it is not linear."""
    if e.op == "const":
        return {}, e.value
    if e.op == "var":
        return {e.key: 1}, 0
    if e.op != "sum" or any(a.op != "var" for a in e.args):
        return None
    return {a.key: f for a, f in zip(e.args, e.terms, strict=True)}, e.value


class Linear(NamedTuple):
    """An access of ``size`` bytes that is linear, as its conditions are, in variables with bounds of their own:
    ``guards`` are greater than 0, ``fixed`` are 0. ``bounds``: of the variables that are not the launch's own.
    ``joined``: of the dimensions along which group and work-item ids always come together, which then stand for the
    work-item ids of all groups: the names of both, and work-items of a group."""

    size: int
    offset: _Factors
    guards: tuple[_Factors, ...]
    fixed: tuple[_Factors, ...]
    bounds: dict[str, tuple[int, int]]
    joined: tuple[tuple[str, str, int], ...]


def linear_access(access: MemoryAccess, conditions: Sequence[Expr], launch: KnownLaunch) -> Linear | None:
    """An access as such; None where it is none."""
    offset = linear(access.offset)
    if offset is None or access.offset.unknown:
        return None
    guards: list[_Factors] = []
    fixed: list[_Factors] = []
    for condition in conditions:
        if condition.op not in ("lt", "eq"):
            return None
        low, high = linear(condition.args[0]), linear(condition.args[1])
        if low is None or high is None:
            return None
        gap = dict(high[0])
        for name, factor in low[0].items():
            gap[name] = gap.get(name, 0) - factor
        kept = fixed if condition.op == "eq" else guards
        kept.append(({n: f for n, f in gap.items() if f}, high[1] - low[1]))
    own = launch.ids
    variables = {name: v for e in (access.offset, *conditions) for name, v in e.variables().items() if name not in own}
    if any(v.high >= INFINITE or v.low <= -INFINITE for v in variables.values()):
        return None
    functions = [offset, *guards, *fixed]
    joined = []
    for d in range(3):
        group, local, size = f"grp{d}", f"lid{d}", own[f"lid{d}"][1] + 1
        if size > 1 and all(f.get(group, 0) == size * f.get(local, 0) for f, _ in functions):
            joined.append((group, local, size))
            for f, _ in functions:
                f.pop(group, None)
    bounds = {name: (v.low, v.high) for name, v in variables.items()}
    return Linear(access.size, offset, tuple(guards), tuple(fixed), bounds, tuple(joined))


def _fixes(fixed: Iterable[_Factors], ends: dict[str, tuple[int, int]]) -> bool:
    """Narrow variables of which factor * v + constant == 0 is known; whether they can have such values."""
    for factors, constant in fixed:
        ((name, factor),) = factors.items()
        number = -constant // factor
        if constant % factor or not ends[name][0] <= number <= ends[name][1]:
            return False
        ends[name] = (number, number)
    return True


def rectangles_of(access: Linear, ids: Mapping[str, tuple[int, int]]) -> tuple[Rectangle, ...] | None:
    """Return the bytes of an access, as one rectangle or none; None where that cannot be told. They are exact if the
    access is. ``ids``: the bounds of the launch's own variables."""
    offset, guards, fixed = access.offset, access.guards, access.fixed
    ends = {**ids, **access.bounds}
    for group, local, size in access.joined:
        low, high = ends[group]
        ends[local] = (low * size, high * size + size - 1)
    if not all(len(factors) == 1 for factors, _ in fixed):
        return None
    if not _fixes(fixed, ends):
        return ()
    clips = []
    for factors, constant in guards:
        if len(factors) > 1:
            clip = _clip(offset, factors, constant, access.size)
            if clip is None:
                return None
            clips.append(clip)
            continue
        for name, factor in factors.items():  # factor * v + constant > 0
            low_end, high_end = ends[name]
            if factor > 0:
                low_end = max(low_end, _least(factor, constant))
            else:
                high_end = min(high_end, _most(factor, constant))
            if low_end > high_end:
                return ()
            ends[name] = (low_end, high_end)
        if not factors and constant <= 0:
            return ()
    start, dims = offset[1], []
    for name, factor in offset[0].items():
        low_end, high_end = ends[name]
        start += factor * (low_end if factor > 0 else high_end)
        if high_end > low_end:
            dims.append((abs(factor), high_end - low_end + 1))
    rect = _folded(start, access.size, sorted(dims))
    if rect is None or not clips:
        return None if rect is None else (rect,)
    if not dims or min(stride for stride, _ in dims) != access.size or rect.slices > 1:
        return None
    return _clipped(rect, max(low for low, _ in clips), min(high for _, high in clips))


class Pattern:
    """The bytes of ranges that touch the same ones, moved. ``rectangles``: were the first group theirs; None: they
    cannot be told; ``end``: of the last."""

    __slots__ = ("end", "rectangles")

    def __init__(self, rectangles: tuple[Rectangle, ...] | None) -> None:
        self.rectangles = rectangles
        self.end = max([rect.end for rect in rectangles or ()], default=0)


class RangeRectangles:
    """The rectangles of some accesses (:func:`rectangles_of`), range by range: along a dimension whose ids stand alone
    in their conditions, ranges that these leave the same ids touch the same bytes, moved. They are looked at once."""

    def __init__(self, accesses: Sequence[Linear], launch: KnownLaunch) -> None:
        self._launch = launch
        self._along = [self._looked(accesses, d) for d in range(3)]

    def _looked(self, accesses: Sequence[Linear], dimension: int) -> tuple[list[_Moving], list[Linear]]:
        """Return the accesses that move alike, by how far, and those that have to be looked at range by range."""
        moving: dict[int, list[_Free]] = {}
        alone: list[Linear] = []
        for access in accesses:
            if (free := _free(access, dimension)) is None:
                alone.append(access)
            else:
                moving.setdefault(free.size * access.offset[0].get(free.name, 0), []).append(free)
        return [_Moving(self._launch.ids, by, free) for by, free in moving.items()], alone

    def of(self, groups: GroupRange) -> tuple[Rectangle, ...] | None:
        """The rectangles of some groups, by their offsets; None where they cannot be told."""
        moving, alone = self._along[groups.dimension]
        ids = self._launch.ids_of(groups) if alone else {}
        parts = [m.of(groups) for m in moving] + [rectangles_of(access, ids) for access in alone]
        if None in parts:
            return None
        return parts[0] if len(moving) == len(parts) == 1 else merged([rect for part in parts for rect in part or ()])

    def place(self, groups: GroupRange, nbytes: int) -> tuple[Pattern, int] | None:
        """The shape of some groups, and by how many bytes theirs are moved; None where nobody has asked for groups like
        these, not all accesses move alike, or some leave a memory of ``nbytes``. Finds nothing out, so it never fails.
        """
        moving, alone = self._along[groups.dimension]
        place = moving[0].place(groups) if len(moving) == 1 and not alone else None
        if place is None or not (rectangles := place[0].rectangles):
            return None
        return place if rectangles[0].offset + place[1] >= 0 and place[0].end + place[1] <= nbytes else None


class _Free(NamedTuple):
    """An access along a dimension: without the ids ``name`` of it in its conditions (``rest``), which keep them from
    ``low`` to ``high``; ``size`` ids to a group."""

    rest: Linear
    name: str
    size: int
    low: int
    high: int


def _free(access: Linear, dimension: int) -> _Free | None:
    """None: conditions have the dimension's ids with others."""
    name, size = f"grp{dimension}", 1
    joined = tuple(j for j in access.joined if j[0] != name)
    for group, local, count in access.joined:
        if group == name:
            name, size = local, count
    if any(len(f) > 1 for f, _ in access.guards) or any(name in f for f, _ in access.fixed):
        return None
    mine = [(f[name], constant) for f, constant in access.guards if name in f]
    low = max((_least(f, constant) for f, constant in mine if f > 0), default=0)
    high = min((_most(f, constant) for f, constant in mine if f < 0), default=INFINITE)
    guards = tuple(g for g in access.guards if name not in g[0])
    return _Free(access._replace(guards=guards, joined=joined), name, size, low, high)


class _Moving:
    """Accesses that are ``by`` bytes further on with each group along a dimension."""

    def __init__(self, ids: Mapping[str, tuple[int, int]], by: int, accesses: Sequence[_Free]) -> None:
        self._ids = ids
        self._by = by
        self._accesses = accesses
        self._alike: Kept[tuple[tuple[int, int], ...], Pattern] = Kept(_ALIKE)

    def of(self, groups: GroupRange) -> tuple[Rectangle, ...] | None:
        left = self._left(groups)
        known = self._alike.get(left) or self._alike.keep(left, Pattern(self._rectangles(left)))
        by = self._by * groups.first
        return known.rectangles and tuple([Rectangle(rect[0] + by, *rect[1:]) for rect in known.rectangles])

    def place(self, groups: GroupRange) -> tuple[Pattern, int] | None:
        """Return :meth:`RangeRectangles.place`, wherever it is."""
        known = self._alike.get(self._left(groups))
        return None if known is None else (known, self._by * groups.first)

    def _left(self, groups: GroupRange) -> tuple[tuple[int, int], ...]:
        """Return which of the range's own ids are left of each access."""
        _, first, count = groups
        return tuple(
            [(max(0, low - first * n), min(count * n - 1, high - first * n)) for _, _, n, low, high in self._accesses]
        )

    def _rectangles(self, left: Sequence[tuple[int, int]]) -> tuple[Rectangle, ...] | None:
        """The rectangles, were the range the first one."""
        found: list[Rectangle] = []
        for access, ends in zip(self._accesses, left, strict=True):
            rectangles = rectangles_of(access.rest, {**self._ids, access.name: ends}) if ends[0] <= ends[1] else ()
            if rectangles is None:
                return None
            found += rectangles
        return merged(found)


def _clip(offset: _Factors, factors: dict[str, int], constant: int, size: int) -> tuple[int, int] | None:
    """Between which bytes a guard keeps an access that it bounds as a whole (``a[i]`` if ``i < n``)."""
    steps = {n: f for n, f in offset[0].items() if f}
    if steps.keys() != factors.keys():
        return None
    ratio = {(steps[n] // f if steps[n] % f == 0 else 0) for n, f in factors.items()}
    by = ratio.pop()
    if ratio or abs(by) != size:
        return None
    bound = offset[1] - by * constant  # the offset where the guard becomes 0
    return (-INFINITE, bound) if by < 0 else (bound + size, INFINITE)


def _clipped(rect: Rectangle, low: int, high: int) -> tuple[Rectangle, ...]:
    """The rows of a rectangle between two bytes: whole ones, and what is left of those that are cut."""
    if rect.rows == 1:
        start, end = max(rect.offset, low), min(rect.offset + rect.width, high)
        return (Rectangle(start, end - start),) if end > start else ()
    pitch = rect.pitch
    first = max(0, -((rect.offset - low) // pitch)) if low > rect.offset else 0
    last = rect.rows - 1 if high >= rect.end else (high - rect.width - rect.offset) // pitch
    found = []
    for row in {first - 1, last + 1}:
        if 0 <= row < rect.rows:
            start, end = max(rect.offset + row * pitch, low), min(rect.offset + row * pitch + rect.width, high)
            if end > start:
                found.append(Rectangle(start, end - start))
    if last > first:
        found.append(Rectangle(rect.offset + first * pitch, rect.width, pitch, last - first + 1))
    elif last == first:
        found.append(Rectangle(rect.offset + first * pitch, rect.width))
    return tuple(found)


def _least(factor: int, constant: int) -> int:
    """The least v with factor * v + constant > 0, for a positive factor."""
    return -((constant - 1) // factor)


def _most(factor: int, constant: int) -> int:
    """The greatest v with factor * v + constant > 0, for a negative factor."""
    return (constant - 1) // -factor


def _folded(start: int, width: int, dims: list[tuple[int, int]]) -> Rectangle | None:
    """Runs of ``width`` repeated by (stride, count), smallest strides first."""
    levels: list[list[int]] = []  # [stride, count] of rows, then slices
    for stride, count in dims:
        if not levels:
            if stride <= width:
                width += stride * (count - 1)
            else:
                levels.append([stride, count])
            continue
        pitch, rows = levels[-1]
        below = width if len(levels) == 1 else (levels[0][1] - 1) * levels[0][0] + width
        if stride % pitch == 0 and stride <= pitch * rows:
            levels[-1][1] = rows + stride // pitch * (count - 1)
        elif len(levels) == 1 and stride >= (rows - 1) * pitch + below:
            levels.append([stride, count])
        else:
            return None
    levels += [[0, 1]] * (2 - len(levels))
    return Rectangle(start, width, levels[0][0], levels[0][1], levels[1][0], levels[1][1])


def merged(found: Sequence[Rectangle]) -> tuple[Rectangle, ...]:
    """Return the same bytes in fewer rectangles: those in others go, those that continue each other become one."""
    if len(found) < 2:
        return tuple(found)
    rest = sorted(set(found), key=itemgetter(2, 3, 4, 5, 0))  # those that are alike together
    result: list[Rectangle] = []
    for rect in rest:
        last = result[-1] if result else None
        if last is not None and last[2:] == rect[2:] and rect.offset <= last.offset + last.width:
            width = max(last.width, rect.offset + rect.width - last.offset)
            if last.rows * last.slices == 1 or width < min(p for p in (last.pitch, last.slice_pitch) if p):
                result[-1] = Rectangle(last.offset, width, last.pitch, last.rows, last.slice_pitch, last.slices)
                continue
        result.append(rect)
    whole = [b for b in result if b.rows == b.slices == 1]
    kept = [b for b in result if not any(w is not b and w.offset <= b.offset and b.end <= w.end for w in whole)]
    return tuple(sorted(kept, key=itemgetter(0)))
