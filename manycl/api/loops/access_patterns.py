"""Access patterns of the batches of a ``parallel_for``: Device-Hopping's attributes of buffers (P. Metzger et al., TACO
2021, Section 5). The analysis derives them, and compares them with those that the user gives.

A batch is a number of neighbouring points along the first index, with all points of the others. Patterns count
elements. The user need not give any: accesses that are proved are used as they are. Where the analysis cannot see what
a batch accesses, the user's pattern is taken for a promise (as by ``Kernel.annotate``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from manycl.analysis import service
from manycl.analysis.facts import ArgumentFacts
from manycl.analysis.known_launch import KnownLaunch
from manycl.api.arrays.arrays import Array
from manycl.api.loops import parallel_text as text
from manycl.api.loops.parallel_run import ndrange
from manycl.errors import LaunchError, ManyclError
from manycl.expressions import ExpressionError, evaluate_integer
from manycl.graph.launch import scalar_bytes
from manycl.group_range import GROUP, GroupRange
from manycl.region import Region
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.analysis.launched import LaunchFacts
    from manycl.analysis.regions.hazards import Verdict
    from manycl.api.program import Kernel

Bound = str | Callable[[int], int]
"""A bound of a pattern: an expression of ``batch`` and the body's integer scalars, or a function of its number."""
Local = Sequence[int] | None
"""The points of a work-group along each index, where the body asks for these."""
_BATCH = re.compile(r"\bbatch\b")
_LOOKED = 8
"""Batches that are analysed at the beginning, in the middle and at the end of a space, each; our own choice."""
_KINDS = {"read": "reads", "write": "writes"}


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """The elements of an array that a batch accesses. ``kind``: ``all_or_any``, ``successive_subsections`` (of
    ``count`` elements each, the first from element 0 on), ``continuous_subsections`` (from ``start`` to below ``end``)
    or ``unused``."""

    kind: str
    count: int = 0
    start: Bound = ""
    end: Bound = ""

    def __str__(self) -> str:
        if self.kind == "successive_subsections":
            return f"{self.kind}({self.count})"
        if self.kind == "continuous_subsections" and self.start and self.end:
            return f"{self.kind}({self.start}, {self.end})"
        return self.kind


all_or_any = AccessPattern("all_or_any")
"""The pattern of batches that may access every element."""


def successive_subsections(count: int) -> AccessPattern:
    """Return the pattern of batch b accessing only the elements from ``b * count`` to below ``(b + 1) * count``."""
    if count < 1:
        raise LaunchError(f"a batch accesses at least one element, not {count}")
    return AccessPattern("successive_subsections", count)


def continuous_subsections(start: Bound, end: Bound) -> AccessPattern:
    """Return the pattern of batch b accessing only elements from ``start`` to below ``end``: expressions of ``batch``
    and the body's integer scalars, as ``"batch * n - 1"``, or functions of the batch's number."""
    return AccessPattern("continuous_subsections", 0, start, end)


@dataclass(frozen=True, slots=True)
class ArrayAccess:
    """The accesses of batches to an array. ``reason``: why more may be accessed than is certain, or empty."""

    reads: AccessPattern
    writes: AccessPattern
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Derived:
    """The analysis' findings about a loop. ``batch``: points of the first index in a batch; ``repeats``: why the loop
    may not run twice (empty: it is idempotent); ``apart``: by index, why its points may not run apart, or nothing."""

    arrays: Mapping[str, ArrayAccess]
    batch: int
    repeats: tuple[str, ...]
    apart: Mapping[str, tuple[str, ...]]

    @property
    def is_idempotent(self) -> bool:
        return not self.repeats

    def __str__(self) -> str:
        lines = [f"batches of {self.batch}; {'idempotent' if self.is_idempotent else 'not idempotent'}"]
        for name, found in self.arrays.items():
            reason = f"  ({found.reason})" if found.reason else ""
            lines.append(f"{name}: reads {found.reads}; writes {found.writes}{reason}")
        lines += [
            f"its points do not run apart along {name}: {why}"
            for name, reasons in self.apart.items()
            for why in reasons
        ]
        return "\n".join(lines)


class _Batches:
    """The batches of one launch of a loop, and what each of them touches."""

    def __init__(self, kernel: Kernel, counts: tuple[int, ...], args: Sequence[Any], batch: int, local: Local) -> None:
        self.reduces = _reduces(kernel)
        one = self.reduces and len(counts) == 1
        self.unit = GROUP * text.EACH if one else local[0] if local else 1  # points of a group along the first index
        self.batch = -(-batch // self.unit) * self.unit
        self.points = counts[0]
        self.dimension = len(counts) - 1
        self.facts = _launched(kernel, counts, args, local or (1, *counts[1:]))
        self.buffers: dict[str, ArgumentFacts] = {
            a.name: a for a in kernel.facts.arguments if a.kind == "buffer" and not a.name.startswith(text.HIDDEN)
        }

    def __len__(self) -> int:
        return -(-self.points // self.batch)

    def looked(self) -> list[int]:
        """Return the batches that are analysed: all, where they are few."""
        count = len(self)
        if count <= 3 * _LOOKED:
            return list(range(count))
        middle = count // 2 - _LOOKED // 2
        return [*range(_LOOKED), *range(middle, middle + _LOOKED), *range(count - _LOOKED, count)]

    def touched(self, name: str, kind: str, batch: int) -> tuple[Region, bool, str]:
        """Return the bytes of an array that a batch accesses, whether it accesses just these, and why not."""
        fact = self.buffers[name]
        if not getattr(fact, _KINDS[kind]):
            return Region.of_rectangles(()), True, ""
        first = batch * self.batch // self.unit
        last = -(-min((batch + 1) * self.batch, self.points) // self.unit)
        found = self.facts.region(fact.index, kind, GroupRange(self.dimension, first, last - first))
        region, tight = found.around()
        return region, found.exact and tight, found.reason


def _reduces(kernel: Kernel) -> bool:
    return any(a.name.startswith(f"{text.HIDDEN}out_") for a in kernel.facts.arguments)


def _launched(kernel: Kernel, counts: tuple[int, ...], args: Sequence[Any], local: Sequence[int]) -> LaunchFacts:
    """Return the known launch, with work-groups of ``local`` points along each index (a reduction has its own)."""
    size, local = ndrange(counts, None if _reduces(kernel) else local, _reduces(kernel))
    scalars, nbytes, same = {}, {}, {}
    first: dict[int, int] = {}
    for fact, value in zip(kernel.facts.arguments, args, strict=True):
        if fact.kind == "buffer":
            nbytes[fact.index] = value.nbytes
            place = first.setdefault(value.buffer.key if isinstance(value, Array) else id(value), fact.index)
            if place != fact.index and nbytes[place] == nbytes[fact.index]:
                same[fact.index] = place
        elif fact.base not in ("half", "float", "double"):
            scalars[fact.index] = scalar_bytes(fact, value)
    known = KnownLaunch(size, local, (), scalars, nbytes, same)
    return service.launched(kernel.program, kernel.facts.name, known)


def verdicts(kernel: Kernel, counts: tuple[int, ...], args: Sequence[Any], local: Local) -> dict[str, Verdict]:
    """Return by index whether the points of a loop (those of work-groups, where it asks for these) run apart."""
    facts = _launched(kernel, counts, args, local or (1,) * len(counts))
    return {name: facts.split(len(counts) - 1 - at) for at, name in enumerate(_indices(kernel, len(counts)))}


def races(kernel: Kernel, counts: tuple[int, ...], args: Sequence[Any], local: Local) -> list[tuple[str, str]]:
    """Return where points certainly meet, each with the index along which they do; nothing where that is unknown."""
    try:
        return [(index, race) for index, v in verdicts(kernel, counts, args, local).items() for race in v.races]
    except ManyclError:
        return []
    except Exception as error:
        told(error, f"finding out whether points of {kernel.facts.name} meet")
        return []


def derive(kernel: Kernel, counts: tuple[int, ...], args: Sequence[Any], batch: int, local: Local) -> Derived:
    """Return the findings of :meth:`manycl.api.loops.parallel_for.ParallelFor.derive`. Of many batches, the first, some
    in the middle and the last are analysed."""
    batches = _Batches(kernel, counts, args, batch, local)
    arrays = {}
    for name, fact in batches.buffers.items():
        patterns, reason = {}, ""
        for kind in _KINDS:
            patterns[kind], why = _pattern(batches, name, kind, fact.size)
            reason = reason or why
        arrays[name] = ArrayAccess(patterns["read"], patterns["write"], reason)
    apart = {name: verdict.reasons for name, verdict in verdicts(kernel, counts, args, local).items()}
    return Derived(arrays, batches.batch, batches.facts.repeat.reasons, apart)


def _indices(kernel: Kernel, count: int) -> list[str]:
    names = [a.name for a in kernel.facts.arguments if a.name.startswith(f"{text.HIDDEN}n_")]
    return [name.removeprefix(f"{text.HIDDEN}n_") for name in names[:count]]


def _pattern(batches: _Batches, name: str, kind: str, size: int) -> tuple[AccessPattern, str]:
    """Return the narrowest pattern that holds for the batches that are analysed, and why more, or (of what is read)
    less, may be accessed."""
    spans: list[tuple[int, int, int]] = []  # number, first element and end, of each batch that touches any
    looked, why = batches.looked(), ""
    for batch in looked:
        region, exact, reason = batches.touched(name, kind, batch)
        intervals, why = region.intervals, why or ("" if exact else reason)
        if (why and kind != "read") or len(intervals) > 1:
            return all_or_any, why
        spans += [(batch, low // size, -(-high // size)) for low, high in intervals]
    if not spans:
        return AccessPattern("unused"), ""
    (first, low, high), last = spans[0], len(batches) - 1
    count = high - low
    if len({span[1:] for span in spans}) == 1 and (why or len(spans) > 1):
        return all_or_any, why
    if first == 0 and low == 0 and all(a == b * count and (e == a + count or b == last) for b, a, e in spans):
        return successive_subsections(count), why
    whole = [span for span in spans if span[0] != last]  # the last batch may have fewer points
    start, end = _line([s[:2] for s in spans]), _line([s[::2] for s in spans]) or _line([s[::2] for s in whole])
    return AccessPattern("continuous_subsections", 0, start, end), why


def _line(points: Sequence[tuple[int, int]]) -> str:
    """Return the expression of ``batch`` on which all points lie, or nothing."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    if x0 == x1:
        return str(y0)
    if (y1 - y0) % (x1 - x0):
        return ""
    slope = (y1 - y0) // (x1 - x0)
    if any(y != y0 + slope * (x - x0) for x, y in points):
        return ""
    begin = y0 - slope * x0
    times = "" if slope == 1 else f" * {slope}"
    return f"batch{times}" + (f" {'-' if begin < 0 else '+'} {abs(begin)}" if begin else "")


def check(
    kernel: Kernel,
    counts: tuple[int, ...],
    args: Sequence[Any],
    batch: int,
    said: Mapping[str, AccessPattern],
    local: Local,
) -> dict[str, tuple[str, str]]:
    """Compare the user's patterns with what is known. Return the bounds of elements (low, high) that a work-item
    touches, as annotations have them, of arrays where nothing else is known. Raises LaunchError for a wrong pattern."""
    batches = _Batches(kernel, counts, args, batch, local)
    scope = _integers(kernel, args)
    promises: dict[str, tuple[str, str]] = {}
    for name, pattern in said.items():
        if name not in batches.buffers:
            have = ", ".join(batches.buffers) or "none"
            raise LaunchError(f"parallel_for: access names {name}, which is no array of the body (it has: {have})")
        if pattern.kind not in ("successive_subsections", "continuous_subsections"):
            continue
        unknown = False
        for kind in _KINDS:
            for b in batches.looked():
                region, exact, _ = batches.touched(name, kind, b)
                unknown |= not exact
                if exact and region.intervals:
                    _compare(batches, name, pattern, b, (region, kind), (batch, scope))
        if unknown and not batches.reduces and (bounds := _promise(pattern, batch, len(counts) - 1)):
            promises[name] = bounds
    return promises


def _compare(
    batches: _Batches,
    name: str,
    pattern: AccessPattern,
    number: int,
    found: tuple[Region, str],
    counted: tuple[int, Mapping[str, int]],
) -> None:
    """Raise LaunchError where a batch touches elements outside of a pattern. ``counted``: points of a batch as the user
    counts them (several may be analysed together), and the body's integers."""
    region, kind = found
    batch, scope = counted
    first = number * batches.batch // batch
    last = -(-min((number + 1) * batches.batch, batches.points) // batch)
    spans = [_span(pattern, b, scope) for b in range(first, last)]
    size = batches.buffers[name].size
    low, high = np.array(spans, np.int64).T * size
    outside = region - Region.of(low, np.maximum(low, high))
    if outside:
        element = outside.intervals[0][0] // size
        raise LaunchError(
            f"parallel_for: batch {first} {kind}s {name}[{element}], which is not in {pattern}",
            hint="ParallelFor.derive shows how batches access arrays",
        )


def _span(pattern: AccessPattern, batch: int, scope: Mapping[str, int]) -> tuple[int, int]:
    if pattern.kind == "successive_subsections":
        return batch * pattern.count, (batch + 1) * pattern.count
    bounds = []
    for bound in (pattern.start, pattern.end):
        if callable(bound):
            bounds.append(int(bound(batch)))
            continue
        try:
            bounds.append(evaluate_integer(bound, {**scope, "batch": batch}))
        except ExpressionError as error:
            raise LaunchError(f"parallel_for: {pattern}: {error}") from None
    return bounds[0], bounds[1]


def _promise(pattern: AccessPattern, batch: int, dimension: int) -> tuple[str, str] | None:
    """Return the bounds that a pattern gives for a work-item, as an annotation has them."""
    number = f"(gid{dimension} // {batch})" if batch > 1 else f"gid{dimension}"
    if pattern.kind == "successive_subsections":
        return f"{number} * {pattern.count}", f"{number} * {pattern.count} + {pattern.count}"
    return _BATCH.sub(number, str(pattern.start)), _BATCH.sub(number, str(pattern.end))


def bounds_of(said: Mapping[str, AccessPattern], batches: int) -> tuple[tuple[str, AccessPattern], ...]:
    """Return the patterns whose bounds are functions, with expressions of ``batch`` that contain them: lines along all
    batches. (The functions may look at arrays, whose contents change, so they are asked for each call.)"""
    found = []
    for name, pattern in said.items():
        bounds = []
        for bound, furthest in ((pattern.start, min), (pattern.end, max)):
            if callable(bound):
                values = [int(bound(b)) for b in range(batches)]
                rise, run = values[-1] - values[0], max(batches - 1, 1)
                offset = furthest(v - b * rise // run for b, v in enumerate(values))
                bounds.append(f"batch * {rise} // {run} + {offset}")
            else:
                bounds.append(bound)
        if bounds != [pattern.start, pattern.end]:
            found.append((name, continuous_subsections(*bounds)))
    return tuple(found)


def _integers(kernel: Kernel, args: Sequence[Any]) -> dict[str, int]:
    named = zip(kernel.facts.arguments, args, strict=True)
    return {a.name: int(v) for a, v in named if a.kind == "scalar" and a.base not in ("half", "float", "double")}
