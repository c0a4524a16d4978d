"""Regions: which bytes of each argument a range of work-groups of one launch reads and writes. Every access of the
interpreted kernel becomes a relation from work-groups to elements. What the analysis could not follow makes a relation
larger, never smaller; it is then not *exact*, and says why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np

from manycl.analysis.facts import KernelFacts
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.regions.bounds import Outside
from manycl.analysis.regions.rectangles import Linear, Pattern, RangeRectangles, linear_access, merged
from manycl.analysis.regions.shapes import TooComplexError, interval, moved_alike, rectangles
from manycl.analysis.summary import KernelSummary, MemoryAccess, Origin
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.affine import AffineBuilder, value
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.isl import isl
from manycl.group_range import GroupRange
from manycl.region import Rectangle, Region
from manycl.utilities.kept import MANY, Kept

MOST_OPERATIONS = 60_000  # of isl, for one step: 0.2 to 0.7 us each, seldom 5
MOST_SPENT = 2_000_000  # operations of isl for all questions about a launch that were not brief
BRIEF = 200_000  # operations for a question that counts nothing: divisions are learned, and each asks for other ranges
_SPENT = (100, 300, 1_000, 3_000, 10_000, 30_000)  # a step counts as the first of these that it stayed below
MOST_ROWS = 1 << 16  # of rectangles; of a footprint with more only the interval around it is used
_IN, _SET, _PARAM = isl.dim_type.in_, isl.dim_type.set, isl.dim_type.param
_GROUPS = ("grp0", "grp1", "grp2")


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of one argument that a range of work-groups touches. ``exact``: all of these and no others (else at most
    these, for ``reason``). ``rectangles`` cover them (they may overlap); if ``tight``, they are just these. Where they
    are not, ``elements`` is the set itself, in units of ``unit`` bytes, in isl's notation."""

    argument: int
    kind: str  # "read" or "write"
    unit: int
    rectangles: tuple[Rectangle, ...]
    tight: bool
    exact: bool
    reason: str = ""
    elements: str = field(default="", compare=False, repr=False)

    @property
    def shape(self) -> str:
        """``nothing``, ``interval``, ``rectangle``, ``slices`` or ``several``."""
        if not self.rectangles:
            return "nothing"
        return self.rectangles[0].kind if len(self.rectangles) == 1 else "several"

    @property
    def nbytes(self) -> int:
        """Bytes in the region; in its rectangles where those are larger."""
        return self.rectangles[0].nbytes if len(self.rectangles) == 1 else Region.of_rectangles(self.rectangles).nbytes

    def around(self) -> tuple[Region, bool]:
        """A region around it, and whether this is just it: not where that would take too many rows."""
        if sum(rect.rows * rect.slices for rect in self.rectangles) > MOST_ROWS:
            return Region.span(
                min(rect.offset for rect in self.rectangles), max(rect.end for rect in self.rectangles)
            ), False
        return Region.of_rectangles(self.rectangles), self.tight

    def behind(self, offset: int) -> Footprint:
        """Return the same bytes counted from ``offset`` bytes before the argument's first (``elements`` is left
        out)."""
        if not offset:
            return self
        rectangles = tuple(rect._replace(offset=rect.offset + offset) for rect in self.rectangles)
        return replace(self, rectangles=rectangles, elements="")

    def mask(self, nbytes: int) -> np.ndarray:
        """A bool for each of ``nbytes`` bytes: whether it belongs to the region."""
        result = np.zeros(nbytes, bool)
        if self.tight or not self.elements.strip("{ }"):
            for rect in self.rectangles:
                for start in rect.starts():
                    result[max(start, 0) : max(start + rect.width, 0)] = True
            return result
        units = np.zeros(-(-nbytes // self.unit), bool)

        def add(point: Any) -> None:
            place = point.get_coordinate_val(_SET, 0).to_python()
            if 0 <= place < len(units):
                units[place] = True

        isl.Set(self.elements).foreach_point(add)
        return np.repeat(units, self.unit)[:nbytes]


@dataclass(frozen=True, slots=True)
class Relation:
    """``groups -> elements`` of one access (``access`` None: widened by the facts, of everything)."""

    argument: int
    kind: str
    map: Any
    exact: bool
    reason: str
    access: MemoryAccess | None
    outside: Any = None  # elements beyond the memory that it certainly touches


_PROBE = isl.BasicSet("{ [a, b] : 0 <= a <= 10 and 2a + 3b >= 5 and b <= 7 - a }")


def _operations(context: Any) -> int:
    """About how many operations a context has done since they were last counted from 0. It does not tell; but it does
    no more of them beyond a limit."""
    for limit in _SPENT:
        context.set_max_operations(limit)
        try:
            _PROBE.sample()  # 7 operations, 5 us
            return limit
        except isl.Error:
            pass
    return MOST_OPERATIONS


_MOST_TIDIED = 16  # basic sets


def tidied(found: Any) -> Any:
    """Return the same set or map in fewer pieces, if it has few. Without limit: islpy 2026.2.2 crashes where it runs
    out."""
    pieces = found.n_basic_map() if isinstance(found, isl.Map) else found.n_basic_set()
    if pieces > _MOST_TIDIED:
        return found
    context = isl.DEFAULT_CONTEXT
    context.set_max_operations(0)
    try:
        return found.coalesce()
    finally:
        context.set_max_operations(MOST_OPERATIONS)


class Regions:
    """The regions of one launch, computed when asked for and then kept."""

    def __init__(self, facts: KernelFacts, summary: KernelSummary, launch: KnownLaunch, isl_here: bool = True) -> None:
        self.isl_here = isl_here
        self.absent = ""  # why the process that has isl did not answer, if it was asked
        self.facts = facts
        self.summary = summary
        self.spent = 0  # operations of isl
        self.launch = launch
        self.dimensions = len(launch.global_size)
        self.buffers = {a.index: a for a in facts.arguments if a.kind == "buffer"}
        self.units: dict[int, int] = {}
        self._relations: dict[tuple[int, str], tuple[Relation, ...]] = {}
        self._regions: Kept[tuple[int, str, GroupRange], Footprint] = Kept(MANY)
        self._unions: dict[tuple[int, str, int], Any] = {}
        self._linears: dict[tuple[int, str], tuple[RangeRectangles | None, str | None]] = {}
        self._by_argument: dict[int, list[MemoryAccess]] = {index: [] for index in self.buffers}
        for access in summary.accesses:
            if access.argument in self._by_argument:
                self._by_argument[access.argument].append(access)
        self.lost = {kind: self._lost(kind) for kind in ("read", "write")}
        for index in self.buffers:
            self.units[index] = self._unit(self.memory(index))

    def limited(self, function: Any, *arguments: Any) -> Any:
        """Call something that works with isl, with bounded effort. Raises :class:`TooComplexError`."""
        if not self.isl_here:
            raise TooComplexError(self.absent)
        if self.spent > MOST_SPENT:
            raise TooComplexError(f" (more than {MOST_SPENT} operations)")
        context = isl.DEFAULT_CONTEXT
        context.reset_operations()
        context.set_max_operations(MOST_OPERATIONS)
        try:
            return function(*arguments)
        except (isl.Error, TypeError) as error:  # TypeError: a function of isl's that gave up has no result
            words = "" if "operations" in str(error) else f" (isl: {str(error)[:80]})"
            raise TooComplexError(words) from None
        finally:
            self.spent += _operations(context)
            context.set_max_operations(0)

    def answered(self, before: int) -> None:
        """A question has been answered that was asked when ``before`` was spent."""
        if self.spent - before < BRIEF:
            self.spent = before

    def memory(self, argument: int) -> int:
        """The first argument that has the same memory."""
        return self.launch.same.get(argument, argument)

    def _nbytes(self, argument: int) -> int:
        """Bytes of an argument's memory: its unit divides them."""
        return self.launch.sizes[self.memory(argument)]

    def sharers(self, argument: int) -> list[int]:
        root = self.memory(argument)
        return [index for index in self.buffers if self.memory(index) == root]

    def may_be_written(self, argument: int) -> bool:
        """Return whether the kernel may write an argument's memory, through whatever argument."""
        overlapping = self.launch.overlapping
        return any(self.buffers[i].writes for i in self.sharers(argument)) or (
            argument in overlapping and any(self.buffers[i].writes for i in overlapping)
        )

    def _lost(self, kind: str) -> str:
        """Why any buffer that may be read (or written) at all may be so everywhere."""
        if self.summary.failure:
            return self.summary.failure
        for access in self.summary.accesses:
            if access.argument < 0 and access.kind in (kind, "atomic"):
                return f"a pointer that was lost, line {access.line}"
        return ""

    def _unit(self, root: int) -> int:
        found = 0
        for index in self.sharers(root):
            for access in self._by_argument[index]:
                found = gcd(found, access.size, x.divisor(access.offset))
        nbytes = self._nbytes(root)
        return max(gcd(found, nbytes), 1) if found else max(gcd(nbytes, self.buffers[root].size or 1), 1)

    def widened(self, argument: int, kind: str) -> str:
        """Why an argument counts as read (or written) everywhere, or nothing."""
        facts = self.buffers[argument]
        allowed = facts.reads if kind == "read" else facts.writes
        if not allowed:
            return ""
        return self.lost[kind] or facts.reason

    # -- relations

    def relations(self, argument: int, kind: str) -> tuple[Relation, ...]:
        """Return the relations of all that reads (or writes) an argument; an atomic operation does both."""
        key = argument, kind
        if key not in self._relations:
            self._relations[key] = tuple(self._relate(argument, kind))
        return self._relations[key]

    def _relate(self, argument: int, kind: str) -> list[Relation]:
        reason = self.widened(argument, kind)
        if reason:
            return [Relation(argument, kind, self._everything(argument), False, reason, None)]
        found = []
        for access in self._by_argument[argument]:
            if access.kind not in (kind, "atomic"):
                continue
            if access.operation == "unknown":
                why = _reasons([access.offset], self.summary.origins) or "unknown"
                found.append(Relation(argument, kind, self._everything(argument), False, why, access))
                continue
            try:
                found.append(self.limited(self._relation, access, kind))
            except TooComplexError as error:
                why = f"the access in line {access.line} is too complex{error}"
                found.append(Relation(argument, kind, self._everything(argument), False, why, access))
        return found

    def _count(self, argument: int) -> int:
        """Units of an argument's memory."""
        return self._nbytes(argument) // self.units[argument]

    def _everything(self, argument: int) -> Any:
        groups = isl.BasicSet.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, 3))
        for d in range(3):
            groups = groups.lower_bound_val(_SET, d, value(0))
            groups = groups.upper_bound_val(_SET, d, value(self.launch.groups(d) - 1))
        return isl.Map.from_basic_map(
            isl.BasicMap.from_domain_and_range(groups, interval(0, self._count(argument) - 1))
        )

    def _relation(self, access: MemoryAccess, kind: str) -> Relation:
        unit = self.units[access.argument]
        conditions, dropped = access.relevant
        groups = [x.var(name, 0, self.launch.groups(d) - 1) for d, name in enumerate(_GROUPS)]
        groups = [g if g.op == "var" else Expr("var", (), 0, (), _GROUPS[d], 0, 0) for d, g in enumerate(groups)]
        inexact_loops = [loop for loop in access.loops if not loop.exact]
        start = _quotient(access.offset, unit)
        parameters = self.launch.variables
        builder = AffineBuilder([*groups, *parameters], [start, *conditions])
        domain = builder.where(conditions)
        exact = builder.exact and not dropped and not inexact_loops
        aff = builder.aff(start)
        lengths = access.size // unit
        if aff is not None:
            relation = isl.Map.from_aff(aff).intersect_domain(domain)
        else:
            relation = isl.Map.from_pw_aff(builder.pwaff(start)).intersect_domain(domain)
        relation = relation.move_dims(_PARAM, 0, _IN, 3, len(parameters))
        for place, variable in enumerate(parameters):
            relation = relation.set_dim_name(_PARAM, place, variable.key)
        relation = relation.project_out(_IN, 3, relation.dim(_IN) - 3)
        if lengths > 1:
            relation = relation.apply_range(_run(lengths))
        reason = "" if exact else self._why(access)
        inside, outside = self._clipped(relation, access, exact)
        return Relation(access.argument, kind, tidied(inside), exact, reason, access, outside)

    def _clipped(self, relation: Any, access: MemoryAccess, exact: bool) -> tuple[Any, Any]:
        """Return what lies in the memory, and what provably lies outside."""
        nbytes = self._nbytes(access.argument)
        if access.offset.low >= 0 and access.offset.high + access.size <= nbytes:
            return relation, None
        valid = isl.Set.from_basic_set(interval(0, self._count(access.argument) - 1))
        outside = None
        if exact and not relation.range().is_subset(valid):
            outside = relation.range().subtract(valid)
        return relation.intersect_range(valid), outside

    def union(self, argument: int, kind: str, dimension: int) -> Any:
        """``group along the dimension -> elements`` of everything that reads (or writes) an argument."""
        key = argument, kind, dimension
        if key not in self._unions:
            space = isl.Space.alloc(isl.DEFAULT_CONTEXT, 0, 1, 1)
            total = isl.Map.empty(space)
            for relation in self.relations(argument, kind):
                total = total.union(self.along(relation, dimension))
            self._unions[key] = total
        return self._unions[key]

    @staticmethod
    def along(relation: Relation, dimension: int) -> Any:
        """A relation with only the groups' numbers along one dimension left."""
        found = relation.map
        if dimension < 2:
            found = found.project_out(_IN, dimension + 1, 2 - dimension)
        return found.project_out(_IN, 0, dimension) if dimension else found

    # -- regions

    def region(self, argument: int, kind: str, groups: GroupRange | None = None) -> Footprint:
        """The bytes of a buffer argument that some work-groups, or all of them, read or write (``kind``). Raises
        ValueError for a range outside of the launch, KeyError for an argument that is no buffer."""
        quick = self.rectangular(argument, kind, groups)
        if quick is not None:
            return quick
        key = argument, kind, groups or self.launch.whole()
        return self._regions.get(key) or self._regions.keep(key, self._region(*key))

    def _region(self, argument: int, kind: str, groups: GroupRange) -> Footprint:
        unit = self.units[argument]
        relations = self.relations(argument, kind)
        exact = all(relation.exact for relation in relations)
        reason = next((relation.reason for relation in relations if not relation.exact), "")
        try:
            found: Footprint = self.limited(self._exact_region, argument, kind, groups, exact, reason)
            return found
        except TooComplexError as error:
            around = self._around(argument, kind, groups)
            return Footprint(argument, kind, unit, around, True, False, f"the region is too complex{error}")

    def _around(self, argument: int, kind: str, groups: GroupRange) -> tuple[Rectangle, ...]:
        """Return for each access the bytes from the first to the last, as far as bounds of its parts tell."""
        size, found = self._nbytes(argument), []
        ids = {name: x.var(name, *ends) for name, ends in self.launch.ids_of(groups).items()}
        for access in self._by_argument[argument]:
            if access.kind not in (kind, "atomic"):
                continue
            try:
                offset = x.substitute(access.offset, ids)
            except (x.TooLargeError, x.UndefinedError):
                offset = access.offset
            first, end = max(offset.low, 0), min(offset.high + access.size, size)
            is_known = access.operation != "unknown"
            found.append(Rectangle(first, end - first) if is_known else Rectangle(0, size))
        return merged([rect for rect in found if rect.width > 0])

    def rectangular(self, argument: int, kind: str, groups: GroupRange | None = None) -> Footprint | None:
        """The region without isl, if every access to it is a rectangle. Raises as :meth:`region`."""
        groups = checked(self.launch, kind, groups)
        unit, size = self.units[argument], self._nbytes(argument)
        if reason := self.widened(argument, kind):
            return Footprint(argument, kind, unit, (Rectangle(0, size),) if size else (), True, False, reason)
        linear, vague = self._linears.get((argument, kind)) or self._linear(argument, kind)
        found = linear.of(groups) if linear is not None else None
        if found is None or (found and (found[0].offset < 0 or max([rect.end for rect in found]) > size)):
            return None
        return Footprint(argument, kind, unit, found, True, vague is None, vague or "")

    def place(self, argument: int, kind: str, groups: GroupRange) -> tuple[Pattern, int] | None:
        """Return what an exact region has in common with others that are known, and by how many bytes it is moved from
        there; None where that is not known yet. Raises ValueError as :meth:`region`, and nothing else."""
        checked(self.launch, kind, groups)
        linear, vague = self._linears.get((argument, kind), (None, None))
        if linear is None or vague is not None or self.widened(argument, kind):
            return None
        return linear.place(groups, self._nbytes(argument))

    def alike(self, argument: int, kind: str, dimension: int) -> tuple[int, int, int]:
        """Return the group along a dimension, and the one past the last, between which each group's exact region is
        that of the one before, moved by a number of bytes, and this number; zeros: none."""
        with suppress(TooComplexError):
            if all(relation.exact for relation in self.relations(argument, kind)):
                of = self.union(argument, kind, dimension), self.launch.groups(dimension), self.units[argument]
                found: tuple[int, int, int] = self.limited(moved_alike, *of)
                return found
        return 0, 0, 0

    def _linear(self, argument: int, kind: str) -> tuple[RangeRectangles | None, str | None]:
        """The accesses of a kind to an argument, if all are linear, and why they are not exact (None: they are)."""
        found: list[Linear | None] = []
        vague: str | None = None
        for access in self._by_argument[argument]:
            if access.kind not in (kind, "atomic"):
                continue
            conditions, dropped = access.relevant
            found.append(linear_access(access, conditions, self.launch))
            if vague is None and (dropped or not all(loop.exact for loop in access.loops)):
                vague = self._why(access)
        linear = [access for access in found if access is not None]
        rectangular = RangeRectangles(linear, self.launch) if len(linear) == len(found) else None
        self._linears[argument, kind] = rectangular, vague
        return rectangular, vague

    def _why(self, access: MemoryAccess) -> str:
        """Why an access is not exact."""
        words = _reasons([access.offset, access.condition], self.summary.origins)
        loops = [loop.reason for loop in access.loops if not loop.exact and loop.reason]
        return words or (loops[0] if loops else f"a subscript that is not affine, line {access.line}")

    def _exact_region(self, argument: int, kind: str, groups: GroupRange, exact: bool, reason: str) -> Footprint:
        unit = self.units[argument]
        relation = self.union(argument, kind, groups.dimension)
        if groups != self.launch.whole(groups.dimension):
            relation = relation.intersect_domain(isl.Set.from_basic_set(interval(groups.first, groups.end - 1)))
        elements = tidied(relation.range())
        found, tight = rectangles(elements)
        scaled = tuple(rect.scaled(unit) for rect in found)
        return Footprint(argument, kind, unit, scaled, tight, exact, reason, "" if tight else str(elements))

    def out_of_bounds(self) -> list[str]:
        """Accesses that certainly leave their memory, in words."""
        return list(dict.fromkeys(map(str, self.outside())))

    def outside(self) -> list[Outside]:
        """Accesses that certainly leave their memory."""
        found: list[Outside] = []
        for index, facts in self.buffers.items():
            for kind in ("read", "write"):
                for relation in self.relations(index, kind):
                    if relation.outside is None or relation.access is None:
                        continue
                    unit, size = self.units[index], self._nbytes(index)
                    first = relation.outside.dim_min_val(0).to_python() * unit
                    end = (relation.outside.dim_max_val(0).to_python() + 1) * unit
                    line, path = relation.access.line, relation.access.path
                    found.append(
                        Outside(index, max(facts.size, 1), facts.name, kind, line, path, size, unit, first, end)
                    )
        return found


def checked(launch: KnownLaunch, kind: str, groups: GroupRange | None) -> GroupRange:
    """The groups (by default all). Raises ValueError for what is no range of the launch's, or no kind of region."""
    if kind not in ("read", "write"):
        raise ValueError(f"a region is read or written, not {kind}")
    if groups is None:
        return launch.whole()
    dimension, first, count = groups
    number = launch.groups(dimension)
    if first < 0 or count < 1 or first + count > number or not 0 <= dimension < 3:
        raise ValueError(f"groups {first} to {groups.end - 1} are no range of {number} groups")
    return groups


def _run(length: int) -> Any:
    """``{ [e] -> [f] : e <= f < e + length }``"""
    return isl.Map(f"{{ [e] -> [f] : e <= f < e + {length} }}")


def _quotient(offset: Expr, unit: int) -> Expr:
    if unit == 1:
        return offset
    found = x.divide(offset, x.const(unit), floor=True)
    assert found is not None
    return found


def _reasons(expressions: Sequence[Expr], origins: Any) -> str:
    words: dict[str, None] = {}
    for expression in expressions:
        for name, variable in expression.variables().items():
            if variable.unknown:
                origin: Origin | None = origins.get(name)
                if origin is not None:
                    words[origin.reason] = None
    return "; ".join(list(words)[:3])
