"""Division of a launch into ranges of its work-groups, and what each of them touches. Planners, lowering and whoever
cuts launches for little memory ask one object; the launches of ranges are made of it in
:mod:`manycl.run.lowering.ranges`."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import chain, product
from math import gcd
from typing import TYPE_CHECKING

from manycl.analysis import service
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import LaunchError, PolicyError, SourceError
from manycl.graph.access import Access, interfere
from manycl.graph.graph import BufferArg, BufferKey, Launch
from manycl.graph.known import known_launch
from manycl.graph.reduction import ATOMICS, PROMISE, PROMISES, Atomic, Reduction
from manycl.graph.versions.host_version import HostProgram
from manycl.graph.versions.sequence import SequenceProgram
from manycl.graph.work_groups import chosen_by_driver, why_none, with_work_groups
from manycl.group_range import GroupRange
from manycl.region import NOTHING, Rectangle, Region, union
from manycl.units import PAGE
from manycl.utilities.kept import ENOUGH, FEW, MANY, Kept

if TYPE_CHECKING:
    from manycl.analysis.launched import LaunchFacts
    from manycl.analysis.regions.regions import Footprint
    from manycl.analysis.texts.merge import MergeKernel
    from manycl.analysis.texts.rewrite import SubKernel


_known: Kept[Hashable, Division] = Kept(256)
_shared: Kept[Hashable, Division] = Kept(256)  # by launches whose buffers are named by their places


class NotDivisibleError(PolicyError):
    """A launch that cannot run in ranges along a dimension, for this ``reason``."""

    def __init__(self, launch: Launch, dimension: int, reason: str) -> None:
        super().__init__(f"{launch.name} cannot be split along dimension {dimension}: {reason}")
        self.reason = reason


def divide(launch: Launch, dimension: int, sizes: Mapping[BufferKey, int]) -> Division:
    """A launch divided along a dimension; the same for all of one identity. ``sizes``: bytes of its buffers by key.
    Raises NotDivisibleError where its ranges cannot be run apart."""
    key = dimension, identity(launch, sizes), broken_promise(launch)
    found = _known.get(key)
    if found is None:  # another thread may be first
        # loops that make their arrays anew launch the same on other buffers
        places = {k: BufferKey(place) for place, k in enumerate(dict.fromkeys(a.key for a in _buffers(launch)))}
        alike = _keyed(launch, places)
        of = {places[k]: sizes[k] for k in places}
        shared = dimension, identity(alike, of), key[2]
        common_to_all = _shared.get(shared)
        if common_to_all is None:
            if isinstance(launch.program, SequenceProgram):
                raise NotDivisibleError(launch, dimension, f"its version {launch.kernel.name} is several kernels")
            made = HostDivision if isinstance(launch.program, HostProgram) else Division
            common_to_all = _shared.keep(shared, made(alike, dimension, of))
        found = _known.keep(key, common_to_all.on(launch, {place: k for k, place in places.items()}))
    return found


def _keyed(launch: Launch, keys: Mapping[BufferKey, BufferKey]) -> Launch:
    """A launch of the buffers ``keys[b]`` instead of b."""
    return replace(
        launch,
        args=tuple([a.of(keys[a.key]) if isinstance(a, BufferArg) else a for a in launch.args]),
        reads=_named(launch.reads, keys),
        writes=_named(launch.writes, keys),
        overwrites=_named(launch.overwrites, keys),
    )


def _named(found: tuple[BufferKey, ...], keys: Mapping[BufferKey, BufferKey]) -> tuple[BufferKey, ...]:
    return tuple([keys[key] for key in found if key in keys])


def broken_promise(launch: Launch) -> str:
    """Why a promise that a launch's work-groups are apart does not count any more; empty: there is none, or it does."""
    promises = any(a.apart for a in launch.annotations)
    return PROMISES.broken(launch.program, launch.kernel) if promises else ""


def identity(launch: Launch, sizes: Mapping[BufferKey, int]) -> Hashable:
    """Return what launches have in common whose ranges do the same to the same buffers."""
    given = tuple((a, sizes[a.key]) if isinstance(a, BufferArg) else a for a in launch.args)
    ndrange = launch.global_size, launch.local_size, launch.global_offset
    others = tuple(
        [(_text(v.program, v.kernel), v.global_size, v.local_size, v.kinds, v.annotations) for v in launch.versions]
    )
    return launch.name, given, ndrange, _text(launch.program, launch.kernel), launch.annotations, others


def _text(program: ProgramFacts, kernel: KernelFacts) -> Hashable:
    """Return what a kernel does; a function of Python may be any, whatever its text."""
    name = id(program) if isinstance(program, HostProgram | SequenceProgram) else ()
    return program.source, program.path, program.options, kernel.name, name


def _buffers(launch: Launch) -> Iterator[BufferArg]:
    return (a for a in launch.args if isinstance(a, BufferArg))


class Division:
    """See :func:`divide`. Several threads may share one. ``own_groups``: the launch's ranges run with its work-groups
    (else with those that the driver chooses). ``operations``: by buffer that groups change by atomic operations;
    ``promised``: buffers on which groups do not meet, as the user promises."""

    def __init__(self, launch: Launch, dimension: int, sizes: Mapping[BufferKey, int]) -> None:
        self.own_groups = not chosen_by_driver(launch)
        self.launch = launch = with_work_groups(launch)
        self.dimension = dimension
        self.sizes = sizes
        if launch.versions:
            raise self._refused("it has several versions: each is divided for itself")
        if launch.local_size is None:
            raise self._refused(why_none(launch))
        try:
            of = launch.program, launch.kernel.name
            known, self._further = service.accessing(*of, known_launch(launch, sizes))
            self.facts: LaunchFacts = service.launched(*of, known)
            if not 0 <= dimension < len(launch.global_size):
                raise self._refused(f"it has no dimension {dimension}")
            verdict = self.facts.split(dimension)
            if not verdict.mergeable:
                more = f"; {PROMISE}" if verdict.promisable and not launch.program.shared else ""
                raise self._refused(broken_promise(launch) or verdict.reasons[0] + more)
            if verdict.apart and launch.program.shared:
                raise self._refused(launch.program.shared[0])
            self.sub_kernel = service.sub_kernel(launch.program, launch.kernel.name)
        except (LaunchError, SourceError) as error:
            raise self._refused(error.message) from None
        if self.sub_kernel.reason:
            raise self._refused(self.sub_kernel.reason)
        self.groups = self.facts.launch.groups(dimension)
        self.operations = self._operations(verdict.merges)
        self.promised = frozenset(map(self.key, verdict.apart))
        if self.promised and (reason := self.guarded.reason):
            raise self._refused(reason)
        # of which this is another, and its keys here
        self._common: tuple[Division, Mapping[BufferKey, BufferKey]] | None = None
        self._access: Kept[tuple[int, int], dict[BufferKey, Access]] = Kept(MANY)
        self._alike: Kept[Hashable, tuple[Region, bool]] = Kept(MANY)
        self._hulls: Kept[tuple[int, int], tuple[dict[BufferKey, Access] | None]] = Kept(MANY)

    def on(self, launch: Launch, keys: Mapping[BufferKey, BufferKey]) -> Division:
        """Return the division of a launch that differs in its buffers only: ``keys[b]`` instead of b."""
        made = object.__new__(type(self))
        made.own_groups, made.dimension, made.groups = self.own_groups, self.dimension, self.groups
        made.facts, made.sub_kernel, made._further = self.facts, self.sub_kernel, self._further
        made.launch = with_work_groups(launch)
        made.sizes = {keys[key]: size for key, size in self.sizes.items()}
        made.operations = {keys[key]: atomic for key, atomic in self.operations.items()}
        made.promised = frozenset(keys[key] for key in self.promised)
        made._access, made._hulls, made._alike, made._common = Kept(MANY), Kept(MANY), self._alike, (self, keys)
        return made

    def _refused(self, why: str) -> NotDivisibleError:
        return NotDivisibleError(self.launch, self.dimension, why)

    def _operations(self, merges: Mapping[int, str]) -> dict[BufferKey, Atomic]:
        found: dict[BufferKey, Atomic] = {}
        for index, operation in merges.items():
            base = self.launch.kernel.arguments[index].base.removeprefix("atomic_")
            if base not in ATOMICS:
                raise self._refused(f"atomic operations on elements of type {base} cannot be merged")
            if not self.is_one(self.key(index)):
                raise self._refused("it changes a part of a buffer by atomic operations, and has other parts of it")
            found[self.key(index)] = Atomic(operation, base)
        return found

    def argument(self, index: int) -> BufferArg:
        """The buffer, or view of one, that an argument is."""
        argument = self.launch.args[index]
        assert isinstance(argument, BufferArg)
        return argument

    def _placed(self, index: int, found: Footprint) -> Footprint:
        """Return an argument's region in its buffer, in bytes. It may lie further on than that of the launch whose
        facts these are; a region that is not exact may then lie anywhere in the argument."""
        by = self._further.get(index, 0)
        if by and not found.exact:
            whole = Rectangle(0, self.argument(index).size(self.sizes))
            by, found = 0, replace(found, rectangles=(whole,), tight=True, elements="")
        return found.behind(self.argument(index).offset + by)

    def name(self, key: BufferKey) -> str:
        """The arguments that are a buffer, by name."""
        return ", ".join(self.launch.kernel.arguments[i].name for i in self.arguments.get(key, ()))

    def unit(self, key: BufferKey) -> int:
        """The most bytes, a power of two up to 8, of which all that the kernel writes at once consists."""
        mine, accesses = self.arguments[key], self.facts.summary.accesses
        sizes = [a.size or 1 for a in accesses if a.argument in mine and a.kind != "read"]
        return gcd(8, *sizes) if sizes else 1  # (none of a kernel that could not be followed)

    def key(self, index: int) -> BufferKey:
        """The buffer that an argument is, or is a part of."""
        return self.argument(index).key

    def is_one(self, key: BufferKey) -> bool:
        """Return whether all arguments that are a buffer, or a part of it, are the same bytes."""
        return len({(a.offset, a.nbytes) for a in map(self.argument, self.arguments.get(key, ()))}) < 2

    def extent(self, key: BufferKey) -> tuple[int, int]:
        """Return from which byte up to which the launch may touch a buffer: around its views of it."""
        mine = [self.argument(i) for i in self.arguments.get(key, ())]
        if not mine:
            return 0, self.sizes[key]
        return min(a.offset for a in mine), max(a.offset + a.size(self.sizes) for a in mine)

    @cached_property
    def proof(self) -> Hashable:
        """The key of launches of which one stands for all where a promise is checked: all but the contents of their
        buffers and scalars. Nothing where nothing is promised."""
        launch, sizes = self.launch, tuple(self.sizes[a.key] for a in _buffers(self.launch))
        places = tuple(indices[0] for indices in self.arguments.values())
        ndrange = self.dimension, launch.global_size, launch.local_size
        return (_text(launch.program, launch.kernel), *ndrange, sizes, places) if self.promised else None

    @cached_property
    def arguments(self) -> dict[BufferKey, list[int]]:
        """The arguments that are each buffer."""
        found: dict[BufferKey, list[int]] = {}
        for index, argument in enumerate(self.launch.args):
            if isinstance(argument, BufferArg):
                found.setdefault(argument.key, []).append(index)
        return found

    def range(self, first: int, count: int) -> GroupRange:
        """Groups ``first`` … ``first + count - 1``."""
        return GroupRange(self.dimension, first, count)

    @cached_property
    def whole(self) -> GroupRange:
        return self.range(0, self.groups)

    # what ranges touch

    def footprints(self, key: BufferKey, kind: str, groups: GroupRange) -> list[Footprint]:
        """Return what some groups read, or write (``kind``), of a buffer, by argument that it is, or a view of it."""
        found = ((i, self.facts.region(i, kind, groups)) for i in self._touching[kind][key])
        return [self._placed(i, region) for i, region in found]

    def foresee(self, kinds: Collection[str], ranges: Collection[GroupRange]) -> None:
        """Find out together what some ranges of groups read, or write, for which :meth:`footprints` will be asked."""
        wanted, alike = [], set[Hashable]()
        touching = [(i, kind) for kind in kinds for indices in self._touching[kind].values() for i in indices]
        for of, groups in product(touching, ranges):
            place = self.facts.place(*of, groups)
            if place is None or (place[0] not in alike and self._alike.get(place[0]) is None):  # not another's, moved
                wanted.append((*of, groups))
                alike.update(place[:1] if place is not None else ())
        self.facts.foresee(wanted)

    @cached_property
    def _touching(self) -> dict[str, dict[BufferKey, list[int]]]:
        """The arguments that are each buffer and are read, and written."""
        given, of = self.launch.kernel.arguments, self.arguments.items()
        read = {key: [i for i in indices if given[i].reads] for key, indices in of}
        return {"read": read, "write": {key: [i for i in indices if given[i].writes] for key, indices in of}}

    def expect(self, ranges: Sequence[GroupRange]) -> None:
        """Find out together what some ranges of groups do, for which :meth:`access` will be asked."""
        missing = [groups for groups in ranges if self._access.get(groups[1:]) is None]
        if self._common is None:
            if len(missing) > ENOUGH:  # then to compare all groups takes less than to ask about the ranges
                self._compare()
            return self.foresee(("read", "write"), missing)
        return self._common[0].expect(missing)

    def access(self, groups: GroupRange) -> dict[BufferKey, Access]:
        """Return what some groups do, by buffer."""
        known = self._access.get(groups[1:])
        if known is None:
            if self._common is not None:
                common, keys = self._common
                found = {keys[key]: access for key, access in common.access(groups).items()}
            else:
                self.foresee(("read", "write"), [groups])
                found = {key: self._of(key, groups) for key in self.arguments}
            known = self._access.keep(groups[1:], found)
        return known

    def widened(self, inner: GroupRange, groups: GroupRange) -> dict[BufferKey, Access]:
        """Return what ``access`` of ``groups`` does, by what those ``inner`` among them and each of the few others do:
        of single groups, nearly all do what another one does, moved."""
        known = self._access.get(groups[1:])
        if known is not None:
            return known
        if self._common is not None:
            common, keys = self._common
            return self._access.keep(groups[1:], {keys[k]: x for k, x in common.widened(inner, groups).items()})
        outer = [*range(groups.first, inner.first), *range(inner.end, groups.end)]
        if len(outer) > FEW:
            return self.access(groups)
        if outer:
            self._compare()
        parts = [self.access(inner), *[self.access(self.range(group, 1)) for group in outer]]
        found = {}
        for key in parts[0]:
            reads, writes = union([part[key].reads for part in parts]), union([part[key].writes for part in parts])
            around = reads.filled
            reads = around if (around - reads).nbytes < PAGE else reads  # so that it is cut nowhere for little
            found[key] = Access(reads, writes, all(part[key].overwrites for part in parts))
        return self._access.keep(groups[1:], found)

    def _compare(self) -> None:
        """Find out which groups touch what others do, moved."""
        for kind, touching in self._touching.items():
            for index in chain.from_iterable(touching.values()):
                self.facts.compare(index, kind, self.dimension)

    def _of(self, key: BufferKey, groups: GroupRange) -> Access:
        writes = [self._around(index, "write", groups) for index in self._touching["write"][key]]
        reads = [self._around(index, "read", groups)[0] for index in self._touching["read"][key]]
        return Access(union(reads), union([region for region, _ in writes]), all(sure for _, sure in writes))

    def _around(self, index: int, kind: str, groups: GroupRange) -> tuple[Region, bool]:
        """Return what some groups read, or write, of the buffer that an argument is, as :meth:`Footprint.around`, and
        whether that is sure: nearly all ranges touch what others do, moved."""
        if (moved := self._moved(index, kind, groups)) is not None:
            return moved
        found = self.facts.region(index, kind, groups)
        region, just = self._placed(index, found).around()
        place = self.facts.place(index, kind, groups)
        if place is not None:
            self._alike.keep(place[0], (region.moved(-place[1]), just and found.exact))
        return region, just and found.exact

    def _moved(self, index: int, kind: str, groups: GroupRange) -> tuple[Region, bool] | None:
        """Return the answer of ``_around`` where groups touch what others do, of which it is known, moved."""
        place = self.facts.place(index, kind, groups)
        known = None if place is None else self._alike.get(place[0])
        return None if place is None or known is None else (known[0].moved(place[1]), known[1])

    def hull(self, groups: GroupRange) -> Mapping[BufferKey, Access] | None:
        """Return :meth:`access` with intervals around what is touched, where that is found out in no time; else
        None."""
        known = self._hulls.get(groups[1:])
        if known is None:
            hulls: dict[BufferKey, Access] | None = None
            if self._common is not None:
                common, keys = self._common
                if (of := common.hull(groups)) is not None:
                    hulls = {keys[key]: access for key, access in of.items()}
            elif (found := self._quick(groups)) is not None:
                hulls = {key: _hull(*kinds) for key, kinds in found.items()}
            known = self._hulls.keep(groups[1:], (hulls,))
        return known[0]

    def density(self, groups: GroupRange) -> float | None:
        """Return the part of the interval around it that some groups touch, at least, of any buffer (what they touch in
        several ways counts as often); None where that takes long to find out."""
        found, parts = self._quick(groups), [1.0]
        for reads, writes in found.values() if found is not None else ():
            access = _hull(reads, writes)
            low, high = (access.reads | access.writes).hull
            if high > low:
                parts.append(sum(rect.nbytes for f in (*reads, *writes) for rect in f.rectangles) / (high - low))
        return None if found is None else min(parts)

    def _quick(self, groups: GroupRange) -> dict[BufferKey, tuple[list[Footprint], list[Footprint]]] | None:
        """Return what is read and written by buffer, without isl."""
        out: dict[BufferKey, tuple[list[Footprint], list[Footprint]]] = {}
        for key, indices in self.arguments.items():
            reads, writes = out[key] = [], []
            for index in indices:
                argument = self.launch.kernel.arguments[index]
                for kind, asked, kept in (("read", argument.reads, reads), ("write", argument.writes, writes)):
                    found = self.facts.regions.rectangular(index, kind, groups) if asked else None
                    if asked and found is None:
                        return None
                    if found is not None:
                        kept.append(self._placed(index, found))
        return out

    # windows

    @cached_property
    def windowed(self) -> SubKernel:
        """The sub-kernel whose buffers may be windows; its ``reason`` says why there is none."""
        return service.sub_kernel(self.launch.program, self.launch.kernel.name, "windowed_kernel")

    @cached_property
    def guarded(self) -> SubKernel:
        """The kernel that does nothing unless an integer is set; its ``reason`` says why there is none."""
        return service.sub_kernel(self.launch.program, self.launch.kernel.name, "guarded_kernel")

    @cached_property
    def movable(self) -> frozenset[BufferKey]:
        """The buffers that may be windows."""
        may = frozenset(self.windowed.windows)
        return frozenset(key for key, indices in self.arguments.items() if may.issuperset(indices))

    # what puts results together

    @cached_property
    def merge_kernel(self) -> MergeKernel:
        """The merge kernel; its ``reason`` says why there is none."""
        found = service.merge_kernel(self.launch.program, self.launch.kernel.name)
        if any(a.nbytes is not None for a in _buffers(self.launch)):
            return replace(found, reason="its arguments are views")
        if not found.reason and {self.key(i) for i in found.reads} & {self.key(i) for i in found.written}:
            return replace(found, reason="what decides what is copied is written by the launch")
        return found

    @cached_property
    def merge_written(self) -> frozenset[BufferKey]:
        """The buffers that the merge kernel copies to."""
        return frozenset(self.key(i) for i in self.merge_kernel.written)

    @cached_property
    def merge_reads(self) -> frozenset[BufferKey]:
        """The buffers that steer it."""
        return frozenset(self.key(i) for i in self.merge_kernel.reads)

    def reduction(self, shared: Set[BufferKey]) -> Reduction:
        """Return the reduction that combines results where ranges in several memories write the same bytes of buffers
        ``shared``."""
        if self.operations or shared & self.promised:
            return Reduction.DIFFERENCE
        if not shared:
            return Reduction.NONE
        if self.merge_kernel.reason or not shared <= self.merge_written:
            return Reduction.DIFFERENCE
        return Reduction.SCATTER


class HostDivision(Division):
    """The division of a version that is a function of Python: its ranges do to the buffers what those of the kernel do
    that it is a version of. They have whole buffers, and nothing but different bytes is put together."""

    def __init__(self, launch: Launch, dimension: int, sizes: Mapping[BufferKey, int]) -> None:
        program = launch.program
        assert isinstance(program, HostProgram)
        super().__init__(replace(launch, program=program.original, kernel=program.kernel), dimension, sizes)
        if self.promised:
            raise self._refused(f"its version {launch.kernel.name}, a function of Python, is not divided by a promise")
        if program.dimension != dimension:
            only = f"divided along dimension {program.dimension} only"
            along = only if program.dimension is not None else "not divided"
            raise self._refused(f"its version {launch.kernel.name}, a function of Python, is {along}")
        self.launch = replace(self.launch, program=program, kernel=launch.kernel)

    @cached_property
    def windowed(self) -> SubKernel:
        return replace(self.sub_kernel, reason=f"{self.launch.kernel.name} is a function of Python", windows=())

    @cached_property
    def movable(self) -> frozenset[BufferKey]:
        return frozenset()

    @cached_property
    def merge_kernel(self) -> MergeKernel:
        from manycl.analysis.texts.merge import MergeKernel  # few programs need it

        return MergeKernel("", reason=f"{self.launch.kernel.name} is a function of Python")


def _hull(reads: list[Footprint], writes: list[Footprint]) -> Access:
    """Intervals around what is read and written; all of the latter is, where it is one interval for certain."""
    rectangles = [rect for found in writes for rect in found.rectangles]
    sure = len(rectangles) == 1 and rectangles[0].kind == "interval" and all(found.exact for found in writes)
    return Access(_around([rect for found in reads for rect in found.rectangles]), _around(rectangles), sure)


def _around(rectangles: list[Rectangle]) -> Region:
    if not rectangles:
        return NOTHING
    return Region.span(min(rect.offset for rect in rectangles), max(rect.end for rect in rectangles))


# Whether ranges of a launch may run different versions of its kernel.
#
# Each version is divided for itself, and is right as a whole. Ranges of work-groups that have the same numbers in all
# of them may be done by any, if no version, in whichever of the ranges, writes what it or another one touches in
# another range: then what a range writes is written there by all of them, and nobody else has seen it or ever changes
# it.


def apart(divisions: Sequence[Division], ranges: Sequence[GroupRange]) -> str:
    """Why ranges, which are all of a launch, may not run in different versions, divided like this; empty: they may.
    Asks for what versions touch at most, so it may say so of some that could."""
    for division in divisions:
        if division.operations:
            return f"groups of {division.launch.kernel.name} change the same elements by atomic operations"
    found = [[division.access(groups) for division in divisions] for groups in ranges]
    for key in dict.fromkeys(key for division in divisions for key in division.launch.writes):
        touched = [[access[key] for access in of if key in access] for of in found]
        if interfere([(union(a.reads for a in of), union(a.writes for a in of)) for of in touched]):
            names = ", ".join(dict.fromkeys(division.launch.kernel.name for division in divisions))
            return f"ranges of work-groups do not touch the same in each of {names} (argument {divisions[0].name(key)})"
    return ""
