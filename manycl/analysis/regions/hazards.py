"""Hazards: along which dimensions the work-groups of a launch may run apart, and why not otherwise. Groups may run
anywhere and in any order if no two write different values to the same element and none reads what another writes. Both
are proved on the relations of :mod:`manycl.analysis.regions.regions`, which contain everything that can happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from manycl.analysis.regions.regions import Regions, Relation
from manycl.analysis.regions.shapes import TooComplexError
from manycl.analysis.summary import MemoryAccess
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.isl import isl

#: integer atomics that may be done in any order on copies, and merged: the operation that merges them
MERGEABLE = dict.fromkeys(("add", "sub", "inc", "dec"), "add") | {n: n for n in ("min", "max", "and", "or", "xor")}
_REPEATABLE = ("min", "max", "and", "or")  # doing them twice is doing them once


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict whether the groups of a launch may run apart along ``dimension``: if there are no ``reasons``.
    ``merges``: buffer arguments (index) that groups change only by atomic operations, which are then done on copies and
    merged by the operation given. Empty: nothing needs to be merged. ``apart``: buffer arguments on which groups do not
    meet, as the user promises. ``promisable``: such promises would leave no reasons. ``races``: the reasons that are
    certain: plain accesses of groups that meet."""

    dimension: int
    reasons: tuple[str, ...] = ()
    merges: dict[int, str] = field(default_factory=dict)
    apart: tuple[int, ...] = ()
    promisable: bool = False
    races: tuple[str, ...] = ()

    @property
    def splittable(self) -> bool:
        """Without any merging."""
        return not self.reasons and not self.merges

    @property
    def mergeable(self) -> bool:
        """True if atomics are merged."""
        return not self.reasons


@dataclass(frozen=True, slots=True)
class Repeat:
    """The verdict whether running the launch twice gives what running it once gives: if there are no ``reasons``."""

    reasons: tuple[str, ...] = ()

    @property
    def idempotent(self) -> bool:
        return not self.reasons


def split(regions: Regions, dimension: int, seen: Callable[[Sequence[int]], bool] | None = None) -> Verdict:
    """The verdict for one dimension of the launch. ``seen`` is asked about the arguments of a memory on which groups
    seem to meet; true says that evaluating every work-item proves them apart."""
    if regions.summary.failure:
        return _unfollowed(regions, dimension)
    reasons = [*regions.summary.hazards, *_overlaps(regions)]
    promisable = not reasons
    merges: dict[int, str] = {}
    apart: list[int] = []
    races: list[str] = []
    for sharers in _memories(regions):
        writes = [r for i in sharers for r in regions.relations(i, "write")]
        reads = [r for i in sharers for r in regions.relations(i, "read")]
        if not writes or (not reads and _is_one_value(writes)):
            continue
        operation = _merged_by(regions, writes, reads)
        found = _conflict(regions, dimension, writes, reads)
        if not found or _distinct(regions, dimension, writes, reads) or (seen is not None and seen(sharers)):
            continue
        if operation and len(sharers) == 1 and not regions.buffers[sharers[0]].base.startswith("atomic_float"):
            merges[sharers[0]] = operation
            continue
        may_be = _may_be_apart(regions, dimension, writes, reads)
        if may_be and regions.launch.apart.issuperset(r.argument for r in writes):
            apart += sharers
        else:
            promisable &= may_be
            reasons.append(found)
            if not may_be and not regions.summary.ordered and _certainly_meet(regions, dimension, writes, reads):
                races.append(found)
    return Verdict(dimension, tuple(reasons), merges, tuple(apart), bool(reasons) and promisable, tuple(races))


def repeat(regions: Regions) -> Repeat:
    """The verdict on running the whole launch again."""
    if regions.summary.failure:
        return Repeat((regions.summary.failure,))
    reasons = [*regions.summary.hazards, *_overlaps(regions)]
    for sharers in _memories(regions):
        writes = [r for i in sharers for r in regions.relations(i, "write")]
        reads = [r for i in sharers for r in regions.relations(i, "read")]
        plain = [r for r in reads if not _repeatable(r)]
        for write, read in product(writes, plain):
            if not _proved(regions, _apart, write, read):
                name = regions.buffers[read.argument].name
                what = f"{_doing(read, 'reads')} what {_doing(write, 'writes')}"
                if read.access is write.access and read.access is not None:
                    what = f"line {read.access.line} changes what it reads"
                reasons.append(f"{name}: {what}")
                break
    return Repeat(tuple(reasons))


def _proved(regions: Regions, question: Callable[..., bool], *of: Any) -> bool:
    """Return whether something holds, as far as can be found out within limits."""
    try:
        return bool(regions.limited(question, *of))
    except TooComplexError:
        return False


def _apart(write: Relation, read: Relation) -> bool:
    return bool(write.map.range().is_disjoint(read.map.range()))


def _repeatable(relation: Relation) -> bool:
    access = relation.access
    return access is not None and access.kind == "atomic" and access.operation in _REPEATABLE and not access.used


def _memories(regions: Regions) -> Iterator[list[int]]:
    """The buffer arguments, grouped by the memory behind them."""
    seen: set[int] = set()
    for index in regions.buffers:
        root = regions.memory(index)
        if root not in seen:
            seen.add(root)
            yield regions.sharers(root)


def _overlaps(regions: Regions) -> Iterator[str]:
    """Arguments that have some of their bytes in common, of which one is written: nothing is proved of these."""
    overlapping = sorted(regions.launch.overlapping)
    written = [i for i in overlapping if regions.buffers[i].writes]
    if written:
        names = ", ".join(regions.buffers[i].name or f"argument {i}" for i in overlapping)
        yield f"{names} are views that overlap, and the kernel writes {regions.buffers[written[0]].name}"


def _merged_by(regions: Regions, writes: Sequence[Relation], reads: Sequence[Relation]) -> str:
    """The operation that merges copies on which groups did only atomic operations, or nothing. It is done in the
    argument's type: a pointer that was cast may have another one."""
    operations = set()
    for relation in (*writes, *reads):
        access = relation.access
        if access is None or access.kind != "atomic" or access.used or access.operation not in MERGEABLE:
            return ""
        buffer = regions.buffers[relation.argument]
        types = {name.removeprefix("atomic_") for name in (buffer.base, access.element)}
        if access.size * buffer.lanes != buffer.size or (len(types) > 1 and access.operation in ("min", "max")):
            return ""
        operations.add(MERGEABLE[access.operation])
    return operations.pop() if len(operations) == 1 else ""


def _conflict(regions: Regions, dimension: int, writes: Sequence[Relation], reads: Sequence[Relation]) -> str:
    """Why groups may not run apart on one memory, or nothing."""
    if regions.launch.groups(dimension) == 1:
        return ""
    try:
        if regions.limited(_independent, regions, dimension, writes, reads):
            return ""
    except TooComplexError as error:
        name = regions.buffers[writes[0].argument].name
        return f"{name}: it takes too long to prove that groups write apart{error}"
    return _culprits(regions, dimension, writes, reads)


def _unfollowed(regions: Regions, dimension: int) -> Verdict:
    """The verdict on a kernel that could not be followed: whether it is promised that groups do not meet on anything
    that it may write. (Its regions are all of the buffers.)"""
    effects = any(a.kind in ("image", "pipe") and a.writes for a in regions.facts.arguments)
    may_be = not (effects or regions.summary.ordered or any(_overlaps(regions)))
    written = frozenset(index for index, a in regions.buffers.items() if a.writes)
    if may_be and written <= regions.launch.apart:
        return Verdict(dimension, apart=tuple(sorted(written)))
    return Verdict(dimension, (regions.summary.failure,), promisable=may_be)


def _is_one_value(writes: Sequence[Relation]) -> bool:
    """Return whether all that is written to a memory is one integer, in elements alike or apart: any may be written
    last."""
    found = set()
    for relation in writes:
        access = relation.access
        if access is None or access.kind != "write" or access.operation or access.stored is None:
            return False
        if x.divisor(access.offset) % access.size:
            return False
        found.add((access.stored, access.size))
    return len(found) == 1


def _may_be_apart(regions: Regions, dimension: int, writes: Sequence[Relation], reads: Sequence[Relation]) -> bool:
    """Return whether a promise that groups do not meet on a memory counts. It does not where they certainly meet, nor
    where the kernel does more there than read and write: by atomic operations, volatile accesses and fences groups
    learn of one another while they run, which they cannot on copies."""
    if regions.summary.ordered or any(a.argument < 0 and a.kind == "atomic" for a in regions.summary.accesses):
        return False
    for relation in (*writes, *reads):
        access = relation.access
        if access is None or access.kind == "atomic" or access.operation not in ("", "unknown"):
            return False
    return not _certainly_meet(regions, dimension, writes, reads)


def _certainly_meet(regions: Regions, dimension: int, writes: Sequence[Relation], reads: Sequence[Relation]) -> bool:
    """Return whether plain accesses of groups certainly meet on a memory, as far as can be found out within limits."""
    of = [[r for r in found if r.exact and r.access and r.access.kind != "atomic"] for found in (writes, reads)]
    return bool(of[0]) and _proved(regions, lambda: not _independent(regions, dimension, *of))


def _united(regions: Regions, dimension: int, relations: Sequence[Relation]) -> Any:
    total = None
    for relation in relations:
        along = regions.along(relation, dimension)
        total = along if total is None else total.union(along)
    return total


def _independent(regions: Regions, dimension: int, writes: Sequence[Relation], reads: Sequence[Relation]) -> bool:
    written = _united(regions, dimension, writes)
    if not written.is_injective():
        return False
    read = _united(regions, dimension, reads)
    return read is None or _own(written, read)


def _distinct(regions: Regions, dimension: int, writes: Sequence[Relation], reads: Sequence[Relation]) -> bool:
    """Return whether all accesses to a memory go through unlike elements of an index array, each group through its
    own."""
    found = [_through(regions, relation) for relation in (*writes, *reads)]
    if not all(found):
        return False
    steps = [step for step in found if step is not None]
    arrays, factors = {regions.memory(s.index.argument) for s in steps}, {s.factor for s in steps}
    starts, ends = [s.start for s in steps], [s.start + s.size for s in steps]
    if len(arrays) > 1 or len(factors) > 1 or max(ends) - min(starts) > abs(steps[0].factor):
        return False
    indices = Regions(regions.facts, replace(regions.summary, accesses=tuple(s.index for s in steps)), regions.launch)
    by_access = {id(r.access): r for i in indices.sharers(arrays.pop()) for r in indices.relations(i, "read")}
    through = [by_access.get(id(s.index)) for s in steps]
    known = [r for r in through if r is not None]
    first = len(writes)
    return len(known) == len(through) and _proved(
        regions, _independent, indices, dimension, known[:first], known[first:]
    )


@dataclass(frozen=True, slots=True)
class _Indirect:
    """``size`` bytes at ``factor * u + start``, where ``u`` is what the access ``index`` reads."""

    index: MemoryAccess
    factor: int
    start: int
    size: int


def _through(regions: Regions, relation: Relation) -> _Indirect | None:
    """Return how an access goes through an element of an array whose elements differ; None if it does not."""
    access = relation.access
    if access is None or access.operation == "unknown" or regions.widened(relation.argument, relation.kind):
        return None
    offset = access.offset if access.offset.op == "sum" else x.Expr("sum", (access.offset,), 0, (1,), "", 0, 0)
    origin = regions.summary.origins.get(offset.args[0].key) if len(offset.args) == 1 else None
    if origin is None or origin.offset is None or origin.argument not in regions.launch.distinct:
        return None
    array = regions.buffers[origin.argument]
    whole = array.lanes == 1 and origin.size == array.size and x.divisor(origin.offset) % array.size == 0
    if not whole or regions.may_be_written(origin.argument):
        return None
    index = replace(access, argument=origin.argument, kind="read", offset=origin.offset, size=origin.size)
    return _Indirect(index, offset.terms[0], offset.value, access.size)


def _own(written: Any, read: Any) -> bool:
    """Return whether every group reads only what no other writes."""
    meets = read.apply_range(written.reverse())
    return bool(meets.is_subset(isl.Map.identity(meets.get_space())))


def _culprits(regions: Regions, dimension: int, writes: Sequence[Relation], reads: Sequence[Relation]) -> str:
    """The pair of accesses that stands in the way, in words."""
    name = regions.buffers[writes[0].argument].name
    for place, write in enumerate(writes):
        along = regions.along(write, dimension)
        for other in writes[place:]:
            if not _proved(regions, _own, along, regions.along(other, dimension)):
                what = _doing(write, "writes")
                if other is write:
                    return f"{name}: {what} elements that other groups write too{_because(write)}"
                return f"{name}: {what} elements that {_doing(other, 'writes')} of other groups{_because(write, other)}"
    for write in writes:
        along = regions.along(write, dimension)
        for read in reads:
            if not _proved(regions, _own, along, regions.along(read, dimension)):
                what = f"{_doing(read, 'reads')} elements that {_doing(write, 'writes')} of other groups"
                return f"{name}: {what}{_because(write, read)}"
    return f"{name}: groups write or read each other's elements"


def _doing(relation: Relation, verb: str) -> str:
    access = relation.access
    if access is None:
        return f"the kernel may {verb.rstrip('s')}"
    if access.kind == "atomic" and access.operation != "unknown":
        return f"atomic {access.operation} in line {access.line} {verb}"
    return f"line {access.line} {verb}"


def _because(*relations: Relation) -> str:
    for relation in relations:
        if not relation.exact and relation.reason:
            return f" (as far as is known: {relation.reason})"
    return ""
