"""The launches of a divided launch's ranges, and those that merge what the ranges wrote.
:class:`~manycl.graph.reduction.Reduction` says how it is merged, :class:`~manycl.graph.division.Division` what ranges
touch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from manycl.analysis import service
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.division import Division, HostDivision
from manycl.graph.graph import Argument, BufferArg, BufferKey, Launch, Window
from manycl.graph.reduction import Atomic
from manycl.graph.rename import renamed_arguments
from manycl.group_range import GROUP, GroupRange
from manycl.utilities.kept import MANY, Kept

if TYPE_CHECKING:
    from manycl.analysis.texts.difference import DifferenceMerge
    from manycl.analysis.texts.rewrite import SubKernel


_known: Kept[Division, RangeLaunches] = Kept(256)


def launches_of(division: Division) -> RangeLaunches:
    """Return the launches of a divided launch's ranges; all callers share one object."""
    made = RangeLaunches if division.launch.program.source else SourcelessLaunches
    if isinstance(division, HostDivision):
        made = HostRangeLaunches
    return _known.get(division) or _known.keep(division, made(division))


class _Common(NamedTuple):
    """The values that ranges of a launch have in common: their kernel and work-groups; along the divided dimension the
    work-items of a group (``each``) and of all groups; all sizes, and their offsets."""

    program: ProgramFacts
    kernel: KernelFacts
    local: tuple[int, ...] | None
    each: int
    whole: int
    size: tuple[int, ...]
    begin: tuple[int, ...]


class RangeLaunches:
    """The launches of a division's ranges and merges, cached (see :func:`launches_of`). For all threads."""

    def __init__(self, division: Division) -> None:
        self.division = division
        self._ranges: Kept[Hashable, Launch] = Kept(MANY)

    def range(
        self,
        groups: GroupRange,
        instead: Mapping[BufferKey, BufferKey],
        windows: Mapping[BufferKey, Window] | None = None,
    ) -> Launch:
        """Return a launch of some groups, with other buffers for some (``instead``), and windows for some."""
        begins = tuple((key, window.key, window.low) for key, window in windows.items()) if windows else ()
        key = groups[1:], tuple(sorted(instead.items())), begins
        found = self._ranges.get(key)
        if found is None:
            found = self._ranges.keep(key, self._range(groups, instead, begins))
        return found

    def packets(self, before: Sequence[int]) -> Callable[[int, int], Launch]:
        """Return a function that makes launches of the groups from ``before[first]`` to before ``before[last]``, on the
        launch's own buffers. They are not cached: a run makes many, waits for each, and never asks for one again."""
        launch, dimension = self.division.launch, self.division.dimension
        called, args, reads, writes = launch.name, launch.args, launch.reads, launch.writes
        device, rank, notes, versions = launch.device, launch.rank, launch.annotations, launch.versions
        overwrites, partition, place = launch.overwrites, launch.partition, self._place
        if place is None:
            return lambda first, last: self._range(
                GroupRange(dimension, before[first], before[last] - before[first]), {}, ()
            )
        program, kernel, local, each, whole, sizes, begin = place
        is_flat, origin = len(sizes) == 1, begin[dimension]

        def packet(first: int, last: int) -> Launch:
            low, high = before[first], before[last]
            name = f"{called} [{low}:{high}]"
            at, end = low * each, high * each
            items = (end if end < whole else whole) - at
            size: tuple[int, ...]
            offset: tuple[int, ...] | None
            if is_flat:
                size = (items,)
                at += origin
                offset = (at,) if at else None
            else:
                size = (*sizes[:dimension], items, *sizes[dimension + 1 :])
                offset = _begin((*begin[:dimension], origin + at, *begin[dimension + 1 :]))
            # (as by _part(), without the call)
            return Launch(
                name, program, kernel, size, local, args, reads, writes, offset, device, rank, notes, versions,
                overwrites, partition,
            )  # fmt: skip

        return packet

    @cached_property
    def _place(self) -> _Common | None:
        """The values that ranges have in common, if the NDRange alone tells them apart; else None."""
        division, launch, local = self.division, self.division.launch, self.division.launch.local_size
        assert local is not None
        if division.sub_kernel.hidden:
            return None
        kernel = self._program.kernels[launch.kernel.name]
        return _place(division, self._program, kernel, local if division.own_groups else None, local)

    def _range(
        self,
        groups: GroupRange,
        instead: Mapping[BufferKey, BufferKey],
        begins: tuple[tuple[BufferKey, BufferKey, int], ...],
    ) -> Launch:
        division = self.division
        sub = division.windowed if begins else division.sub_kernel
        behind: tuple[bytes, ...] = ()
        args = division.launch.args
        if instead or begins:
            args = renamed_arguments(args, {**instead, **{key: window for key, window, _ in begins}})
        if begins:  # a view's pointer is moved to where the view begins in the window
            lows = {key: low for key, _, low in begins}
            behind = tuple(_ulong(lows.get(division.key(i), 0) - division.argument(i).offset) for i in sub.windows)
            args = tuple(
                BufferArg(a.key) if i in sub.windows and isinstance(a, BufferArg) else a for i, a in enumerate(args)
            )
        program = self._windowed if begins else self._program
        name = _name(division.launch, groups)
        return self._launch(name, program.kernels[division.launch.kernel.name], program, groups, sub, args, behind)

    def merge(self, groups: GroupRange, partial: Mapping[BufferKey, BufferKey]) -> Launch:
        """Return a launch that copies what a range wrote to the buffers ``partial`` (by the buffers of the launch) to
        the launch's own buffers."""
        made, division = self.division.merge_kernel, self.division
        program = service.parse_program(made.source, path=division.launch.program.path, options=made.options)
        hidden: list[Argument] = []
        for h in made.hidden:
            key = division.key(h.argument)
            hidden.append(BufferArg(partial[key]) if h.kind == "copy" else _ulong(division.sizes[key]))
        name = f"merge {division.launch.name} {groups}"
        args = (*division.launch.args, *hidden)
        return self._launch(name, program.kernels[made.kernel], program, groups, made.ranges, args)

    def _launch(
        self,
        name: str,
        kernel: KernelFacts,
        program: ProgramFacts,
        groups: GroupRange,
        sub: SubKernel,
        args: tuple[Argument, ...],
        behind: tuple[bytes, ...] = (),
    ) -> Launch:
        division, launch = self.division, self.division.launch
        assert launch.local_size is not None
        firsts, counts = [0] * len(launch.global_size), [*self._counts]
        firsts[division.dimension], counts[division.dimension] = groups.first, groups.count
        begin = launch.global_offset or (0,) * len(counts)
        size, offset, hidden = sub.arguments(launch.global_size, launch.local_size, begin, firsts, counts)
        local = launch.local_size if division.own_groups else None
        return _part(launch, name, program, kernel, size, local, (*args, *hidden, *behind), _begin(offset))

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        """The number of work-groups along each dimension."""
        facts = self.division.facts.launch
        return tuple(facts.groups(d) for d in range(len(self.division.launch.global_size)))

    @cached_property
    def _program(self) -> ProgramFacts:
        sub, program = self.division.sub_kernel, self.division.launch.program
        return self._parsed(sub) if sub.edited else program

    @cached_property
    def _windowed(self) -> ProgramFacts:
        return self._parsed(self.division.windowed)

    def _parsed(self, sub: SubKernel) -> ProgramFacts:
        return service.parse_program(sub.source, path=self.division.launch.program.path, options=sub.options)

    def guarded(self, told: BufferKey) -> Launch:
        """Return the launch, undivided, that does nothing unless the integer in buffer ``told`` is set."""
        division, launch = self.division, self.division.launch
        program = self._parsed(division.guarded)
        name, local = f"{launch.name} undivided", launch.local_size if division.own_groups else None
        kernel, args = program.kernels[launch.kernel.name], (*launch.args, BufferArg(told))
        return _part(launch, name, program, kernel, launch.global_size, local, args, launch.global_offset)

    def difference(self, of: CopyMerge, told: Sequence[BufferKey]) -> Launch:
        """Return a launch that merges a copy. ``told``: the buffer, if any, whose integer is set where both were
        changed; if ``old`` is the target, the copy has the old contents itself, which come back if that is set."""
        division, merge = self.division, merge_of(self.division, of.key, of.target in of.old)
        low, high = of.extent
        nbytes = high - low
        buffers = map(BufferArg, (of.target, of.copy, *of.old))
        args: tuple[Argument, ...] = *buffers, _ulong(low), _ulong(nbytes), *map(BufferArg, told)
        name = f"merge {division.launch.name} ({merge.operation})"
        return _helper(name, _parsed(merge.source), merge.kernel, merge.work_items(nbytes), args)


class CopyMerge(NamedTuple):
    """The merging of the ``copy`` of a buffer: to the bytes ``extent`` of ``target`` is done what was done to them.
    ``old``: the buffer, if any, that has the contents of both before that (else the copy had neutral elements)."""

    key: BufferKey
    target: BufferKey
    copy: BufferKey
    old: Sequence[BufferKey]
    extent: tuple[int, int]


def merge_of(division: Division, key: BufferKey, is_restored: bool = False) -> DifferenceMerge:
    """Return how copies of a buffer that a divided launch writes are merged, or it is restored."""
    from manycl.analysis.texts.difference import UNITS, difference_merge  # few programs need it

    if is_restored:
        return difference_merge("restore")
    if key in division.promised:
        return difference_merge("checked", UNITS[division.unit(key)])
    return difference_merge(*division.operations.get(key, Atomic("copy", "uchar")))


class HostRangeLaunches(RangeLaunches):
    """The launches of ranges that learn their work-items from the NDRange: functions of Python."""

    @cached_property
    def _place(self) -> _Common | None:
        launch = self.division.launch
        local = launch.local_size or (1,) * len(launch.global_size)
        return _place(self.division, launch.program, launch.kernel, launch.local_size, local)

    def _range(
        self,
        groups: GroupRange,
        instead: Mapping[BufferKey, BufferKey],
        begins: tuple[tuple[BufferKey, BufferKey, int], ...],
    ) -> Launch:
        launch, along = self.division.launch, self.division.dimension
        assert not begins, "it has whole buffers"
        local = 1 if launch.local_size is None else launch.local_size[along]
        offset = list(launch.global_offset or (0,) * len(launch.global_size))
        offset[along] += groups.first * local
        size = (*launch.global_size[:along], groups.count * local, *launch.global_size[along + 1 :])
        args, name = renamed_arguments(launch.args, instead), _name(launch, groups)
        return _part(launch, name, launch.program, launch.kernel, size, launch.local_size, args, _begin(offset))


class SourcelessLaunches(HostRangeLaunches):
    """The launches of ranges without a known source (:mod:`manycl.run.lowering.declared_access`), to be simulated."""

    def merge(self, groups: GroupRange, partial: Mapping[BufferKey, BufferKey]) -> Launch:
        return self._named(f"merge {self.division.launch.name} {groups}")

    def difference(self, of: CopyMerge, told: Sequence[BufferKey]) -> Launch:
        return self._named(f"merge {self.division.launch.name} (copy)")

    def _named(self, name: str) -> Launch:
        return replace(self.division.launch, name=name, global_size=(1,), local_size=(1,), args=())


def _place(
    division: Division, program: ProgramFacts, kernel: KernelFacts, told: tuple[int, ...] | None, local: tuple[int, ...]
) -> _Common:
    """Return what a launch's ranges have in common. ``told``: the work-groups that a range is launched with."""
    launch, along = division.launch, division.dimension
    begin = launch.global_offset or (0,) * len(launch.global_size)
    return _Common(program, kernel, told, local[along], launch.global_size[along], launch.global_size, begin)


def _begin(offset: Sequence[int]) -> tuple[int, ...] | None:
    """Return an offset as launches have it: None where all are 0."""
    return tuple(offset) if any(offset) else None


def _name(launch: Launch, groups: GroupRange) -> str:
    _, first, count = groups
    return f"{launch.name} [{first}:{first + count}]"


def _part(
    launch: Launch,
    name: str,
    program: ProgramFacts,
    kernel: KernelFacts,
    size: tuple[int, ...],
    local: tuple[int, ...] | None,
    args: tuple[Argument, ...],
    offset: tuple[int, ...] | None,
) -> Launch:
    """Return the launch with other values, as ``dataclasses.replace`` would in five times the time."""
    return Launch(
        name,
        program,
        kernel,
        size,
        local,
        args,
        launch.reads,
        launch.writes,
        offset,
        launch.device,
        launch.rank,
        launch.annotations,
        launch.versions,
        launch.overwrites,
        launch.partition,
    )


def _ulong(value: int) -> bytes:
    return (value % (1 << 64)).to_bytes(8, "little")


@cache
def _parsed(source: str) -> ProgramFacts:
    return service.parse_program(source, path="<manycl>")


def _helper(name: str, program: ProgramFacts, kernel: str, items: int, args: tuple[Argument, ...]) -> Launch:
    return Launch(name, program, program.kernels[kernel], (-(-items // GROUP) * GROUP,), (GROUP,), args, (), ())
