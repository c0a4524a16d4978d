"""A kernel's cost in symbols: MKMD's cost function T f(x1, …, xN) (Section 4), and what a work-item executes; and
Device-Hopping's features of a kernel (Table 1 and Section 4.2), per point of the iteration space: per work-item.

T is the number of work-items; f sums the products of the trip counts of nested loops, in terms of scalars, sizes and
ids. Where an inner loop's trips depend on an outer counter, f has their upper bound; of loops that exclude each other
it has the largest. As everywhere in the symbolic form, no conversion or overflow is taken to change an integer.

Device-Hopping's rules: operations inside of loops count as often as the loops run; terms of a loop's condition that
cannot be evaluated before the kernel runs are ignored, and a loop without any other counts once; operations in a branch
without else inside of a loop do not count; all other branches do. Where trips depend on ids, which the paper's rules
leave open, features have the mean over all work-items. Branches are left out as they are rarely taken, such as one that
is taken where something was found; so those that ids, counters and scalars decide (is this point inside?) do count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from manycl.analysis.costs.cost import ITERATION, LaunchCost, Visits, known_trips
from manycl.analysis.facts import KernelFacts
from manycl.analysis.summary import CountedPlace, KernelSummary, Loop
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

if TYPE_CHECKING:  # imports islpy
    pass


@dataclass(frozen=True, slots=True)
class Term:
    """``times * trips`` operations for work-items that fulfil ``condition``."""

    times: int
    trips: Expr
    condition: Expr

    def __str__(self) -> str:
        words = f"{x.scale(self.trips, self.times)}"
        return words if self.condition == x.ONE else f"{words} if {self.condition}"


@dataclass(frozen=True, slots=True)
class CostFunction:
    """The cost of a kernel in any launch. ``domain``: on which values of scalars and ids the trip counts are these
    (elsewhere loops do not run at all). ``unknown``: why loops have the trip count ``trips(line)``, which stands for
    what is not known before execution. ``operations``: what one work-item executes at most, by kind (bytes of accesses
    end in ``.bytes``)."""

    f: Expr
    domain: tuple[Expr, ...]
    unknown: tuple[str, ...]
    operations: Mapping[str, tuple[Term, ...]]

    def __str__(self) -> str:
        return "T" if self.f == x.ONE else f"T * {self.f}"

    def of_item(self) -> Expr:
        """``SKIPPED`` times the operations of one work-item, with its ids; conditions on data count as true."""
        times: dict[tuple[Expr, Expr], int] = {}
        for kind, terms in self.operations.items():
            for term in terms if not kind.endswith(".bytes") else ():
                condition = x.ONE if term.condition.unknown else term.condition
                key = x.maximum(term.trips, x.ZERO), condition
                times[key] = times.get(key, 0) + term.times
        parts = [x.scale(x.select(c, x.scale(trips, SKIPPED), trips), n) for (trips, c), n in times.items()]
        return x.add(*parts) if parts else x.ONE


SKIPPED = 4
"""The ratio of an operation's time to that of one which a condition leaves out: neighbours wait for those that run it,
and a work-group that does nothing has to start (measured: 2 to 6 on native devices, up to 100 on PoCL)."""


def cost_function(summary: KernelSummary) -> CostFunction:
    """The cost function of a kernel's symbolic summary; ``T`` and nothing else for one that could not be analysed."""
    named = Trips()
    groups: list[list[tuple[Expr, Expr]]] = []  # (condition, trips) that exclude each other
    operations: dict[str, list[Term]] = {}
    for place, counts in summary.counts:
        trips = named.product(place.loops)
        condition = _outside(place)
        if ITERATION in counts:
            apart = [g for g in groups if all(x.both(condition, c) == x.ZERO for c, _ in g)]
            if not apart:
                groups.append([])
            (apart or groups[-1:])[0].append((condition, x.scale(trips, counts[ITERATION])))
        for kind, times in counts.items():
            if kind != ITERATION:
                _add(operations.setdefault(kind, []), Term(times, trips, condition))
    f = x.add(*(reduce(x.maximum, [trips for _, trips in group]) for group in groups)) if groups else x.ONE
    kept = {kind: tuple(terms) for kind, terms in operations.items()}
    return CostFunction(f, tuple(named.domain), tuple(named.unknown), kept)


def _add(terms: list[Term], term: Term) -> None:
    for i, other in enumerate(terms):
        if other.trips == term.trips and other.condition == term.condition:
            terms[i] = Term(other.times + term.times, term.trips, term.condition)
            return
    terms.append(term)


def _outside(place: CountedPlace) -> Expr:
    """The part of a place's condition that does not ask whether its loops run on."""
    counters = {loop.name for loop in place.loops}
    limits = {
        part
        for loop in place.loops
        if loop.trips is not None
        for part in x.less(x.var(loop.name, 0, x.INFINITE), loop.trips).parts
    }
    kept = [p for p in place.condition.parts if p not in limits and not (p.unknown and counters & p.variables().keys())]
    return x.both(*kept)


class Trips:
    """Trip counts of loops, and what was assumed for them; ``unknown`` stands for those that are not known."""

    def __init__(self, unknown: Expr | None = None) -> None:
        self.stand_in = unknown
        self.domain: dict[Expr, None] = {}
        self.counters: set[str] = set()
        self.unknown: dict[str, None] = {}
        self.products: dict[tuple[Loop, ...], Expr] = {(): x.ONE}

    def product(self, loops: tuple[Loop, ...]) -> Expr:
        """Return how often the innermost body of nested loops runs, at most."""
        found = self.products.get(loops)
        if found is None:
            outer, last = loops[:-1], loops[-1]
            self.counters |= {loop.name for loop in outer}
            trips = self.trips(last)
            for loop in reversed(outer):
                highest = x.subtract(self.trips(loop), x.ONE)
                trips = _end(trips, loop.name, highest, True) or trips
            found = self.products[loops] = x.mul(self.product(outer), trips)
        return found

    def trips(self, loop: Loop) -> Expr:
        known = None if loop.trips is None else known_trips(loop.trips)
        trips = None if known is None else self.positive(known)
        if loop.trips is None or loop.trips.unknown:
            self.unknown[loop.reason or f"how often the loop in line {loop.line} runs is decided by data"] = None
        if trips is None:
            return self.stand_in or x.var(f"trips({loop.line})", 0, x.INFINITE)
        if not loop.exact:
            self.unknown[f"{loop.reason or f'the loop in line {loop.line}'} (at most {trips} iterations)"] = None
        return trips

    def positive(self, trips: Expr) -> Expr:
        """Trips where there are any: what makes them so goes to the domain."""
        if trips.op == "max" and x.ZERO in trips.args:
            inner = trips.args[0] if trips.args[1] == x.ZERO else trips.args[1]
            self.assume(x.negate(x.less(inner, x.ZERO)))
            return self.positive(inner)
        if trips.op == "select" and trips.args[2] == x.ZERO:
            self.assume(trips.args[0])
            return self.positive(trips.args[1])
        if trips.op == "sum":
            return x.add(
                x.const(trips.value),
                *(x.scale(self.positive(a), f) for a, f in zip(trips.args, trips.terms, strict=True)),
            )
        return trips

    def assume(self, condition: Expr) -> None:
        if condition.op != "const" and not self.counters & condition.variables().keys():
            self.domain[condition] = None


def _end(e: Expr, counter: str, highest: Expr, up: bool) -> Expr | None:
    """The largest (``up``) or smallest value of an expression for a counter in [0, highest]; None if not monotone."""
    if counter not in e.variables():
        return e
    if e.op == "var":
        return highest if up else x.ZERO
    if e.op == "sum":
        ends = [_end(a, counter, highest, up == (f > 0)) for a, f in zip(e.args, e.terms, strict=True)]
        known = [x.scale(a, f) for a, f in zip(ends, e.terms, strict=True) if a is not None]
        return x.add(x.const(e.value), *known) if len(known) == len(ends) else None
    if e.op == "mul" and all(a.low >= 0 for a in e.args):
        ends = [_end(a, counter, highest, up) for a in e.args]
        known = [end for end in ends if end is not None]
        return reduce(x.mul, known) if len(known) == len(ends) else None
    if e.op in ("fdiv", "min", "max"):
        first = _end(e.args[0], counter, highest, up)
        second = _end(e.args[1], counter, highest, up == (e.op != "fdiv"))
        if first is None or second is None:
            return None
        if e.op == "fdiv":
            grows = second.op == "const" or (e.args[0].low >= 0 and second.low > 0)
            return x.divide(first, second, floor=second.op == "const") if grows else None
        return x.minimum(first, second) if e.op == "min" else x.maximum(first, second)
    return None


COMPARISONS = "Comparison operations"
COMPUTE = "Floating point and integer compute operations"
MEMORY = "Memory accesses"
TRANSFERRED = "Bytes transferred to the GPU per CUDA thread"
CPU = (COMPARISONS, COMPUTE, MEMORY)
GPU = (TRANSFERRED, COMPUTE)

_COMPUTE = ("float", "double", "half", "int", "special")


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a launch, per work-item."""

    bytes_transferred: float
    comparisons: float
    compute: float
    memory_accesses: float

    def values(self, device: str) -> tuple[float, ...]:
        """Return the inputs of a device's predictor of slice sizes (``cpu`` or ``gpu``), in the order of ``CPU`` and
        ``GPU``. Raises KeyError for another device."""
        named = {
            TRANSFERRED: self.bytes_transferred,
            COMPARISONS: self.comparisons,
            COMPUTE: self.compute,
            MEMORY: self.memory_accesses,
        }
        return tuple(named[name] for name in {"cpu": CPU, "gpu": GPU}[device])

    def logarithms(self, device: str) -> tuple[float, ...]:
        """Their logarithms, which the paper's models take (Section 4.3); of 1 more, as features may be 0."""
        return tuple(math.log1p(value) for value in self.values(device))


def feature_of(kind: str) -> str:
    """Return the feature to which operations of a kind count; empty for none."""
    family, _, rest = kind.partition(".")
    if rest.endswith("bytes"):
        return ""
    if family == "compare":
        return COMPARISONS
    if family in ("load", "store", "atomic"):
        return MEMORY
    return COMPUTE if family in _COMPUTE else ""


def static_features(summary: KernelSummary) -> Mapping[str, Expr]:
    """Every feature that a kernel's source tells, in terms of scalars, sizes and ids."""
    trips = Trips(unknown=x.ONE)
    found: dict[str, Expr] = dict.fromkeys(CPU, x.ZERO)
    for place, counts in summary.counts:
        for kind, times in counts.items():
            name = feature_of(kind)
            if name and not place.lone:
                found[name] = x.add(found[name], x.scale(trips.product(place.loops), times))
    return found


def launch_features(cost: LaunchCost, facts: KernelFacts) -> Features:
    """The features of a launch."""
    launch = cost.launch
    items, _ = cost.extent(launch.whole())
    axes = cost.axes(launch.whole())
    seen: dict[tuple[object, ...], Visits] = {}
    found = dict.fromkeys(CPU, 0.0)
    for place, counts in cost.summary.counts:
        if place.lone or not items:
            continue
        rounds = cost.visits(CountedPlace(_within(place.loops), place.loops), axes, seen).number / items
        for kind, times in counts.items():
            name = feature_of(kind)
            if name:
                found[name] += times * rounds
    needed = [a.index for a in facts.arguments if a.kind == "buffer" and a.reads and a.index not in launch.same]
    transferred = sum(launch.sizes.get(index, 0) for index in needed) / items if items else 0.0
    return Features(transferred, found[COMPARISONS], found[COMPUTE], found[MEMORY])


def _within(loops: tuple[Loop, ...]) -> Expr:
    """Return the condition that loops' counters are below their trip counts, where these are known."""
    limits = [
        x.less(x.var(loop.name, 0, x.INFINITE), loop.trips)
        for loop in loops
        if loop.trips is not None and not loop.trips.unknown
    ]
    return x.both(*limits)
