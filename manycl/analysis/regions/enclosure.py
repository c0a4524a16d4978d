"""Enclosures: whether a launch keeps to its buffers, by interval arithmetic: for loops that launch a kernel with ever
new scalars.

The kernel is run abstractly once, for all launches (:func:`manycl.analysis.interpreter.interpret.interpret_any`); what
a launch puts in for ids, sizes and scalars encloses each of its accesses, in tens of microseconds. Conditions narrow
what they bound (R. E. Moore, R. B. Kearfott, M. J. Cloud, *Introduction to Interval Analysis*, 2009, on propagation).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from manycl.analysis.facts import KernelFacts
from manycl.analysis.known_launch import LARGEST, KnownLaunch
from manycl.analysis.summary import Computed, KernelSummary, Loop, Operated, Origin
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

MOST_ACCESSES = 64
"""Accesses of a kernel that are enclosed: each takes up to ten microseconds."""
INTEGERS = ("char", "short", "int", "long", "uchar", "ushort", "uint", "ulong")
_UNKNOWN = -x.INFINITE, x.INFINITE, False

Span = tuple[int, int, bool]
"""The least and the greatest value, and whether elements of buffers decide between them."""


@dataclass(frozen=True, slots=True)
class _Guarded:
    """Accesses (argument, byte offset, bytes) on the same conditions; ``gaps``: what is not negative there."""

    loops: tuple[Loop, ...]
    conditions: tuple[Expr, ...]
    gaps: tuple[Expr, ...]
    accesses: tuple[tuple[int, Expr, int], ...]


@dataclass(frozen=True, slots=True)
class Enclosure:
    """The accesses of a kernel, all of them, in any launch."""

    places: tuple[_Guarded, ...]
    origins: Mapping[str, Origin]
    own: Mapping[int, int] = field(default_factory=dict)  # bytes of the arrays that the kernel declares

    def variables(self) -> frozenset[str]:
        """Return the names of all that :meth:`keeps` asks the values of a launch for."""
        left = [e for place in self.places for e in (*place.conditions, *place.gaps)]
        left += [offset for place in self.places for _, offset, _ in place.accesses]
        left += [loop.trips for place in self.places for loop in place.loops if loop.trips is not None]
        found = set[str]()
        while left:
            for name in left.pop().variables():
                if name not in found:
                    found.add(name)
                    origin = self.origins.get(name)
                    left += [origin.value] if isinstance(origin, Computed) else ()
                    left += [origin.left, origin.right] if isinstance(origin, Operated) else ()
        return frozenset(found)

    def keeps(self, values: Mapping[str, Span], sizes: Mapping[int, int], certainly: bool = False) -> bool:
        """Return whether a launch stays within its buffers as far as anybody can tell without the contents of buffers
        (``certainly``: whatever these are); False where that takes a closer look. ``values``: :func:`launch_values`, of
        one launch, or of many, which have values between these; ``sizes``: bytes by argument."""
        anywhere = _Intervals(self.origins, values, certainly)
        known = {**self.own, **sizes}
        for place in self.places:
            found = [(offset, known[a] - size) for a, offset, size in place.accesses if a in known]
            left = [(offset, last) for offset, last in found if not anywhere.within(offset, last)]
            if left:
                there = _Intervals(self.origins, values, certainly)
                if there.enters(place) and not all(there.within(*access, place.gaps) for access in left):
                    return False
        return True


def enclosure(summary: KernelSummary) -> Enclosure | None:
    """Return the enclosure of a summary of all launches; None where accesses are lost, or too many."""
    accesses = summary.accesses
    if summary.failure or any(a.argument < 0 or a.operation == "unknown" for a in accesses):
        return None
    for own in (summary.own, ()):  # where these are too many, only launches that are looked at tell of them
        places: dict[tuple[Expr, tuple[Loop, ...]], dict[tuple[int, Expr, int], None]] = {}
        for access in (*accesses, *own):
            place = places.setdefault((access.condition, access.loops), {})
            place[access.argument, access.offset, access.size] = None
        if sum(map(len, places.values())) <= MOST_ACCESSES:
            found = tuple(_place(*key, tuple(found)) for key, found in places.items())
            return Enclosure(found, summary.origins, summary.nbytes)
    return None


def _place(condition: Expr, loops: tuple[Loop, ...], accesses: tuple[tuple[int, Expr, int], ...]) -> _Guarded:
    gaps = []
    for part in condition.parts:
        if part.op in ("lt", "eq"):
            gap = x.subtract(part.args[1], part.args[0])
            gaps += [x.subtract(gap, x.ONE)] if part.op == "lt" else [gap, x.scale(gap, -1)]
        if part.op == "lt" and part.args[0].low >= 0 and part.args[1].op in ("fdiv", "tdiv"):
            whole, by = part.args[1].args
            if by.low > 0:  # counter < whole / by: by * (counter + 1) <= whole
                gaps.append(x.subtract(whole, x.mul(by, x.add(part.args[0], x.ONE))))
    return _Guarded(loops, condition.parts, tuple(gaps), accesses)


def stays(
    enclosure: Enclosure | None, kernel: KernelFacts, launch: KnownLaunch, between: Mapping[int, tuple[int, int]]
) -> bool:
    """Return whether a launch stays within its buffers for certain, as far as intervals tell; and all that are like it
    but for scalars (indices) ``between`` two integers."""
    if enclosure is None or prod(launch.global_size) + sum(launch.offset) > LARGEST:
        return False
    sizes = launch.global_size, launch.local_size, launch.offset
    values = dict(launch_values(kernel, sizes, [launch.scalars.get(a.index) for a in kernel.arguments]))
    values |= {f"[{index}]": (low, high, False) for index, (low, high) in between.items()}
    return enclosure.keeps(values, launch.sizes, certainly=True)


def launch_values(
    kernel: KernelFacts,
    sizes: tuple[tuple[int, ...], tuple[int, ...] | None, tuple[int, ...] | None],
    arguments: Sequence[object],
) -> Mapping[str, Span]:
    """Return what a launch puts in for a kernel's variables. ``sizes``: the global, the local (None: any), and the
    offset."""
    values = dict(_id_spans(*sizes))
    for facts, data in zip(kernel.arguments, arguments, strict=True):
        if isinstance(data, bytes) and facts.lanes == 1 and facts.base in INTEGERS:
            value = int.from_bytes(data, "little", signed=facts.base[0] != "u")
            values[f"[{facts.index}]"] = value, value, False
    return values


@lru_cache(256)
def _id_spans(
    global_size: tuple[int, ...], local_size: tuple[int, ...] | None, offset: tuple[int, ...] | None
) -> Mapping[str, Span]:
    found = {"work_dim": (len(global_size), len(global_size))}
    items = locals_ = 1
    for d in range(3):
        size = global_size[d] if d < len(global_size) else 1
        most = min(local_size[d], size) if local_size and d < len(local_size) else 1 if local_size else size
        least = (size % most or most) if local_size else 1
        start = offset[d] if offset and d < len(offset) else 0
        items, locals_ = items * size, locals_ * most
        found |= {
            f"gid{d}": (start, start + size - 1),
            f"lid{d}": (0, most - 1),
            f"grp{d}": (0, -(-size // (most if local_size else 1)) - 1),
            f"goff{d}": (start, start),
            f"gsz{d}": (size, size),
            f"lsz{d}": (least, most),
            f"ngrp{d}": (-(-size // most), -(-size // (most if local_size else 1))),
        }
    found |= {"glin": (0, items - 1), "llin": (0, locals_ - 1)}
    return {f"[{name}]": (low, high, False) for name, (low, high) in found.items()}


class _Intervals:
    """Between which bounds expressions lie at a place of a kernel, in one launch."""

    def __init__(self, origins: Mapping[str, Origin], values: Mapping[str, Span], certainly: bool) -> None:
        self._origins = origins
        self._certainly = certainly
        self._known = values  # of variables, and of what conditions narrow
        self._found = dict(values)

    def _narrow(self, key: str, low: int, high: int, data: bool) -> None:
        self._known = {**self._known, key: (low, high, data)}
        self._found = dict(self._known)

    def enters(self, place: _Guarded) -> bool:
        """Return whether control may come there, as far as can be told without the contents of buffers."""
        for loop in place.loops:
            _, trips, data = _UNKNOWN if loop.trips is None else self.of(loop.trips)
            if trips <= 0:
                return False
            self._narrow(loop.name, 0, trips - 1, data)
        for gap in place.gaps:
            if not self._propagate(gap):
                return False
        for condition in place.conditions:
            low, high, data = self.of(condition)
            if high <= 0 or (data and low <= 0):
                return False
        return True

    def _propagate(self, gap: Expr) -> bool:
        """Narrow what an expression consists of, as it is not negative; False if it is."""
        terms = [(a, f, self.of(a)) for a, f in gap.summands]
        most = _constant(gap) + sum([f * (high if f > 0 else low) for _, f, (low, high, _) in terms])
        if most < 0:
            return False
        for atom, factor, (low, high, data) in terms:  # factor * atom >= factor * its best - most
            if factor > 0 and (least := high - most // factor) > low:
                self._narrow(atom.key, least, high, data)
            elif factor < 0 and (best := low + most // -factor) < high:
                self._narrow(atom.key, low, best, data)
        return True

    def within(self, offset: Expr, last: int, gaps: Sequence[Expr] = ()) -> bool:
        """Return whether an offset lies between 0 and ``last``, or contents of buffers decide; ``gaps``: of the
        place."""
        low, high, data = self.of(offset)
        if (data and not self._certainly) or 0 <= low <= high <= last:
            return True
        offset = self._plain(offset)
        factors = dict(offset.summands)
        for gap in map(self._plain, gaps):  # offset + n * gap is not less, -n * gap not more: atoms in both cancel out
            for atom, factor in gap.summands:
                times = -factors.get(atom, 0) // factor
                if times:
                    least, most, _ = self.of(x.add(offset, x.scale(gap, times)))
                    low, high = (low, min(high, most)) if times > 0 else (max(low, least), high)
        return low >= 0 and high <= last

    def _plain(self, e: Expr) -> Expr:
        """A sum without conversions that change nothing here."""
        parts, is_plain = [x.const(_constant(e))], True
        for atom, factor in e.summands:
            origin = self._origins.get(atom.key)
            inner = atom.args[0] if atom.op == "wrap" else origin.value if isinstance(origin, Computed) else None
            if inner is not None and atom.low <= self.of(inner)[0] and self.of(inner)[1] <= atom.high:
                atom, is_plain = self._plain(inner), False
            parts.append(x.scale(atom, factor))
        return e if is_plain else x.add(*parts)

    def of(self, e: Expr) -> Span:
        if e.op == "const":
            return e.value, e.value, False
        found = self._found.get(e.key)
        if found is None:
            found = self._found[e.key] = self._variable(e) if e.op == "var" else self._evaluated(e)
        return found

    def _variable(self, e: Expr) -> Span:
        origin = self._origins.get(e.key)
        if isinstance(origin, Computed):
            return self.of(origin.value)  # more than its type holds is undefined, and never refused
        if isinstance(origin, Operated):
            left, right = self.of(origin.left), self.of(origin.right)
            low, high = _operated(origin, left, right) or (e.low, e.high)
            fits = e.low <= low and high <= e.high
            return (low, high, low < high and (left[2] or right[2])) if fits else (e.low, e.high, left[2] or right[2])
        return e.low, e.high, origin is not None and origin.argument >= 0

    def _evaluated(self, e: Expr) -> Span:
        if e.op == "sum":
            return self._total(e)
        spans = list(map(self.of, e.args))
        if e.op in ("select", "min", "max"):
            return _chosen(e.op, spans)
        if e.op in ("lt", "eq", "and", "or", "not"):
            low, high = _truth(e.op, spans)
        elif e.op == "wrap":
            low, high, _ = spans[0]
            period = 1 << abs(e.value)
            moved = (low - e.low) // period * period
            low, high = (low - moved, high - moved) if high - moved <= e.high else (e.low, e.high)
        elif e.op == "mul":
            low = high = 1
            for a, b, _ in spans:
                ends = low * a, low * b, high * a, high * b
                low, high = min(ends), max(ends)
        else:
            low, high = _divided(e.op, spans[0], spans[1]) or (e.low, e.high)
        return low, high, low < high and any(span[2] for span in spans)

    def _total(self, e: Expr) -> Span:
        low, high, data = e.value, e.value, False
        summands = e.summands
        terms = dict(summands)
        for atom, factor in summands:
            if factor < 0 and (parts := self._rounded(atom)) is not None:  # n * (a - a % m): n * m for each m in a
                whole, by = parts
                inner = dict(whole.summands)
                if all(terms.get(a, 0) >= -factor * f > 0 for a, f in inner.items()):
                    del terms[atom]
                    for a, f in inner.items():
                        terms[a] += factor * f
                    least, most, told = self.of(whole)
                    data = data or told
                    low += factor * (_constant(whole) - least // by * by)
                    high += factor * (_constant(whole) - most // by * by)
        for atom, factor in terms.items():
            least, most, told = self.of(atom)
            low += factor * (least if factor > 0 else most)
            high += factor * (most if factor > 0 else least)
            data = data or (told and factor != 0)
        return low, high, data

    def _rounded(self, e: Expr) -> tuple[Expr, int] | None:
        """Return what an expression is the remainder of, and of division by what."""
        origin = self._origins.get(e.key)
        if e.op == "fmod":
            whole, by = e.args
            least, most, data = self.of(by)
        elif isinstance(origin, Operated) and origin.operator in ("%", "&"):
            whole, by = origin.left, origin.right
            least, most, data = self.of(by)
            if origin.operator == "&":  # i & (2 ** n - 1)
                least, most = (least + 1, most + 1) if not least & (least + 1) else (0, 0)
            if self.of(whole)[0] < 0:
                return None
        else:
            return None
        return (whole, least) if least == most > 0 and not data else None


def _constant(e: Expr) -> int:
    return e.value if e.op in ("sum", "const") else 0


def _chosen(op: str, spans: Sequence[Span]) -> Span:
    """Return the span of ``select`` (a condition, and what it chooses between), ``min`` and ``max``."""
    (a, b, one), (c, d, other) = spans[-2:]
    if op == "select":
        low, high, data = spans[0]
        if low == high:
            return spans[1] if low else spans[2]
        return min(a, c), max(b, d), data or one or other
    choose = min if op == "min" else max
    low, high = choose(a, c), choose(b, d)
    for side in spans:
        if side[:2] == (low, high) and (b <= c or d <= a):  # it is that, whatever the other one is
            return side
    return low, high, one or other


def _truth(op: str, spans: Sequence[Span]) -> tuple[int, int]:
    if op in ("and", "or"):
        choose = min if op == "and" else max
        return choose([low for low, _, _ in spans]), choose([high for _, high, _ in spans])
    a, b, _ = spans[0]
    if op == "not":
        return 1 - b, 1 - a
    c, d, _ = spans[1]
    if op == "lt":
        return int(b < c), int(a < d)
    return int(a == b == c == d), int(a <= d and c <= b)


def _divided(op: str, left: Span, right: Span) -> tuple[int, int] | None:
    """Quotients, rounded down (``fdiv``) or to 0 (``tdiv``), remainders (``fmod``); by what is positive."""
    (a, b, _), (c, d, _) = left, right
    if c <= 0:
        return None
    if op != "fmod":
        ends = [n // by if op == "fdiv" or n >= 0 else -(-n // by) for n in (a, b) for by in (c, d)]
        return min(ends), max(ends)
    if c == d and a // c == b // c:
        return a % c, b % c
    return 0, min(d - 1, b) if a >= 0 else d - 1


def _operated(origin: Operated, left: Span, right: Span) -> tuple[int, int] | None:
    """The bounds of an operation; None where nothing is known of them."""
    (a, b, _), (c, d, _) = left, right
    if origin.operator in ("&", "|", "^"):
        return _bitwise(origin.operator, a, b, c, d)
    if origin.operator in ("<<", ">>"):
        if c == d:
            c = d = c % origin.bits
        if not 0 <= c <= d < origin.bits:
            return None
        ends = [n << by if origin.operator == "<<" else n >> by for n in (a, b) for by in (c, d)]
        return min(ends), max(ends)
    if origin.operator == "/":
        return _divided("tdiv", left, right)
    return _divided("fmod", left, right) if origin.operator == "%" and a >= 0 else None


def _bitwise(op: str, a: int, b: int, c: int, d: int) -> tuple[int, int] | None:
    if a == b and c == d:
        value = {"&": a & c, "|": a | c, "^": a ^ c}[op]
        return value, value
    if op == "&":
        most = [high for low, high in ((a, b), (c, d)) if low >= 0]
        return (0, min(most)) if most else None
    if a < 0 or c < 0:
        return None
    return max(a, c) if op == "|" else 0, min(b + d, (1 << max(b.bit_length(), d.bit_length())) - 1)
