"""A launch that runs in ranges of its work-groups: the launches of its ranges, what each of them touches, and what
puts together what they wrote.

Four ways there are, of which a range of groups needs one for each buffer that the launch writes:

- ``in place``: no two ranges in different memories write the same bytes (of what is known of them). Bytes that a range
  is only said to write at most are brought first, so that its memory holds current contents whatever it leaves out;
- ``merge kernel``: they interleave. What ranges in other memories wrote goes to a buffer of its own, and the kernel
  without its computation copies from there exactly the elements that the range wrote (MKMD, Section 2.2);
- ``difference``: they interleave, and there is no such kernel. Ranges in other memories work on a copy, and every byte
  that differs from the old contents is taken over;
- ``difference add`` (min, max, and, or, xor): groups change the same integers, by atomic operations that may come in
  any order. Ranges in other memories work on a copy, whose changes are then done to the original.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple

from manycl.analysis import service
from manycl.analysis.difference import difference_merge
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.analysis.merge import MergeKernel
from manycl.analysis.rewrite import SubKernel
from manycl.errors import LaunchError, PolicyError, SourceError
from manycl.graph.graph import Argument, BufferArg, Launch
from manycl.graph.known import known_launch
from manycl.graph.work_groups import chosen_by_driver, why_none, with_work_groups
from manycl.kept import Kept
from manycl.region import Box, Region, union

if TYPE_CHECKING:  # it imports islpy
    from manycl.analysis.launched import LaunchFacts

IN_PLACE = "in place"
MERGE_KERNEL = "merge kernel"
DIFFERENCE = "difference"
_ATOMICS = ("int", "uint", "long", "ulong")
_BLOCK = 16  # bytes that a work-item of a helper copies
_GROUP = 64

_HELPERS = """\
kernel void manycl_copy(global uchar *dst, global const uchar *src, ulong bytes) {
    ulong first = (ulong)get_global_id(0) * 16;
    if (first + 16 <= bytes) vstore16(vload16(0, src + first), 0, dst + first);
    else for (ulong k = first; k < bytes; k++) dst[k] = src[k];
}
kernel void manycl_clear(global uchar *dst, ulong start, ulong bytes) {
    ulong first = (ulong)get_global_id(0) * 16;
    dst += start;
    for (ulong k = first; k < first + 16 && k < bytes; k++) dst[k] = 0;
}
"""


@dataclass(frozen=True, slots=True)
class Access:
    """What a range does to a buffer: the bytes it reads and writes at most; ``exact``: it writes all of these."""

    reads: Region
    writes: Region
    exact: bool


class Outline(NamedTuple):
    """What a range does to a buffer, as intervals of bytes, [low, high): around what it reads and what it writes, at
    most (empty: (0, 0)). ``sure``: it writes all of ``writes``. ``nbytes``: how many bytes it touches, those that it
    touches in several ways counted as often."""

    reads: tuple[int, int]
    writes: tuple[int, int]
    sure: bool
    nbytes: int


_divided: Kept[Hashable, Divided] = Kept(256)
RANGES_KEPT = 4096  # of a launch


def divide(launch: Launch, dimension: int, sizes: Mapping[int, int]) -> Divided:
    """A launch divided along a dimension; the same for all of one identity. ``sizes``: bytes of its buffers by key.
    Raises PolicyError where its ranges cannot be run apart, with the reason."""
    key = dimension, identity(launch, sizes)
    found = _divided.get(key)
    if found is None:  # another thread may be first
        found = _divided.keep(key, Divided(launch, dimension, {a.key: sizes[a.key] for a in _buffers(launch)}))
    return found


def identity(launch: Launch, sizes: Mapping[int, int]) -> Hashable:
    """What launches have in common whose ranges do the same to the same buffers."""
    given = tuple((a.key, sizes[a.key]) if isinstance(a, BufferArg) else a for a in launch.args)
    ndrange = launch.global_size, launch.local_size, launch.global_offset
    program = launch.program
    text = program.source, program.path, program.options, launch.kernel.name, launch.annotations
    return launch.name, given, ndrange, text, bool(launch.versions)


def _buffers(launch: Launch) -> Iterator[BufferArg]:
    return (a for a in launch.args if isinstance(a, BufferArg))


class Divided:
    """See :func:`divide`. Several threads may share one."""

    def __init__(self, launch: Launch, dimension: int, sizes: Mapping[int, int]) -> None:
        self._own_groups = not chosen_by_driver(launch)
        self.launch = launch = with_work_groups(launch)
        self.dimension = dimension
        self.sizes = sizes
        if launch.versions:
            raise self._refused("it has several versions, with work-groups of their own")
        if launch.local_size is None:
            raise self._refused(why_none(launch))
        try:
            self.facts: LaunchFacts = service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes))
            if not 0 <= dimension < len(launch.global_size):
                raise self._refused(f"it has no dimension {dimension}")
            verdict = self.facts.split(dimension)
            if not verdict.mergeable:
                raise self._refused(verdict.reasons[0])
            self._sub = service.sub_kernel(launch.program, launch.kernel.name)
        except (LaunchError, SourceError) as error:
            raise self._refused(error.message) from None
        if self._sub.reason:
            raise self._refused(self._sub.reason)
        self._program = (
            service.parse_program(self._sub.source, path=launch.program.path, options=self._sub.options)
            if self._sub.edited
            else launch.program
        )
        self.groups = self.facts.launch.groups(dimension)
        self.operations = self._operations(verdict.merges)
        self._access: Kept[tuple[int, int], dict[int, Access]] = Kept(RANGES_KEPT)
        self._hulls: Kept[tuple[int, int], dict[int, tuple[int, int]]] = Kept(RANGES_KEPT)
        self._outlines: Kept[tuple[int, int], tuple[dict[int, Outline] | None]] = Kept(RANGES_KEPT)
        self._ranges: Kept[Hashable, Launch] = Kept(RANGES_KEPT)

    def _refused(self, why: str) -> PolicyError:
        return PolicyError(f"{self.launch.name} cannot be split along dimension {self.dimension}: {why}")

    def _operations(self, merges: Mapping[int, str]) -> dict[int, tuple[str, str]]:
        """Buffers that groups change by atomic operations: the operation that merges them, and of which type."""
        found: dict[int, tuple[str, str]] = {}
        for index, operation in merges.items():
            base = self.launch.kernel.arguments[index].base.removeprefix("atomic_")
            if base not in _ATOMICS:
                raise self._refused(f"atomic operations on elements of type {base} cannot be merged")
            found[self._key(index)] = (operation, base)
        return found

    def _key(self, index: int) -> int:
        argument = self.launch.args[index]
        assert isinstance(argument, BufferArg)
        return argument.key

    # what ranges touch

    def access(self, first: int, count: int) -> dict[int, Access]:
        """By buffer, of groups first … first + count - 1."""
        known = self._access.get((first, count))
        if known is None:
            found = {key: self._of(key, first, count) for key in self._arguments}
            known = self._access.keep((first, count), found)
        return known

    @cached_property
    def _arguments(self) -> dict[int, list[int]]:
        """The arguments that are each buffer."""
        found: dict[int, list[int]] = {}
        for index, argument in enumerate(self.launch.args):
            if isinstance(argument, BufferArg):
                found.setdefault(argument.key, []).append(index)
        return found

    def _of(self, key: int, first: int, count: int) -> Access:
        reads, writes, exact = [], [], True
        for index in self._arguments[key]:
            argument = self.launch.kernel.arguments[index]
            if argument.reads:
                reads.append(self.facts.region(index, "read", self.dimension, first, count).around()[0])
            if argument.writes:
                written = self.facts.region(index, "write", self.dimension, first, count)
                touched, just = written.around()
                writes.append(touched)
                exact = exact and written.exact and just
        return Access(union(reads), union(writes), exact)

    def outline(self, first: int, count: int) -> Mapping[int, Outline] | None:
        """By buffer, of groups first … first + count - 1, where that is found out in no time; else None."""
        known = self._outlines.get((first, count))
        if known is None:
            known = self._outlines.keep((first, count), (self._outline(first, count),))
        return known[0]

    def _outline(self, first: int, count: int) -> dict[int, Outline] | None:
        found: dict[int, Outline] = {}
        for key, indices in self._arguments.items():
            sets: dict[str, list[Box]] = {"read": [], "write": []}
            sure = True
            for index in indices:
                argument = self.launch.kernel.arguments[index]
                for kind, boxes in sets.items():
                    if not (argument.reads if kind == "read" else argument.writes):
                        continue
                    region = self.facts.regions.boxed(index, kind, self.dimension, first, count)
                    if region is None:
                        return None
                    boxes.extend(region.boxes)
                    sure = sure and (kind == "read" or region.exact)
            written = sets["write"]
            sure = sure and len(written) == 1 and written[0].kind == "interval"
            nbytes = sum(box.nbytes for boxes in sets.values() for box in boxes)
            found[key] = Outline(_around(sets["read"]), _around(written), sure, nbytes)
        return found

    @cached_property
    def windowed(self) -> SubKernel:
        """The sub-kernel whose buffers may be windows; its ``reason`` says why there is none."""
        return service.windowed_kernel(self.launch.program, self.launch.kernel.name)

    @cached_property
    def movable(self) -> frozenset[int]:
        """The buffers that may be windows."""
        may = frozenset(self.windowed.windows)
        return frozenset(key for key, indices in self._arguments.items() if may.issuperset(indices))

    def hulls(self, first: int, count: int) -> dict[int, tuple[int, int]]:
        """By buffer that may be a window: the first byte that groups first … first + count - 1 touch, and one past the
        last. Buffers of which nothing is touched have an empty interval."""
        found = self._hulls.get((first, count))
        if found is None:
            found = {}
            access = self.access(first, count) if self.movable else {}
            for key in self._arguments:
                if key in self.movable:
                    found[key] = (access[key].reads | access[key].writes).hull
            found = self._hulls.keep((first, count), found)
        return found

    # launches

    def windows(
        self, first: int, count: int, instead: Mapping[int, int], begins: Mapping[int, tuple[int, int]]
    ) -> Launch:
        """As :meth:`range`, with windows for the buffers in ``begins``: their keys, and the bytes they begin with."""
        size, offset, hidden = self._ndrange(self.windowed, first, count)
        lows = (_ulong(begins.get(self._key(i), (0, 0))[1]) for i in self.windowed.windows)
        renamed = {**instead, **{key: window for key, (window, _) in begins.items()}}
        program = self._windowed_program
        return replace(
            self.launch,
            name=self.name(first, count),
            program=program,
            kernel=program.kernels[self.launch.kernel.name],
            global_size=size,
            local_size=self._local_size,
            args=(*_renamed(self.launch.args, renamed), *hidden, *lows),
            global_offset=offset if any(offset) else None,
        )

    @cached_property
    def _windowed_program(self) -> ProgramFacts:
        made = self.windowed
        return service.parse_program(made.source, path=self.launch.program.path, options=made.options)

    def range(self, first: int, count: int, instead: Mapping[int, int]) -> Launch:
        """Groups first … first + count - 1 as a launch of their own, with other buffers for some (``instead``)."""
        key = first, count, tuple(sorted(instead.items()))
        found = self._ranges.get(key)
        if found is None:
            found = self._ranges.keep(key, self._range(first, count, instead))
        return found

    def _range(self, first: int, count: int, instead: Mapping[int, int]) -> Launch:
        size, offset, hidden = self._ndrange(self._sub, first, count)
        return replace(
            self.launch,
            name=self.name(first, count),
            program=self._program,
            kernel=self._program.kernels[self.launch.kernel.name],
            global_size=size,
            local_size=self._local_size,
            args=(*_renamed(self.launch.args, instead), *hidden),
            global_offset=offset if any(offset) else None,
        )

    @property
    def _local_size(self) -> tuple[int, ...] | None:
        """Of ranges."""
        return self.launch.local_size if self._own_groups else None

    def name(self, first: int, count: int) -> str:
        return f"{self.launch.name} [{first}:{first + count}]"

    def _ndrange(
        self, sub: SubKernel, first: int, count: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bytes, ...]]:
        launch = self.launch
        assert launch.local_size is not None
        dimensions = range(len(launch.global_size))
        firsts = [first if d == self.dimension else 0 for d in dimensions]
        groups = [count if d == self.dimension else self.facts.launch.groups(d) for d in dimensions]
        offset = launch.global_offset or (0,) * len(dimensions)
        return sub.arguments(launch.global_size, launch.local_size, offset, firsts, groups)

    @cached_property
    def merge_kernel(self) -> MergeKernel:
        """The merge kernel; its ``reason`` says why there is none."""
        launch = self.launch
        found = service.merge_kernel(launch.program, launch.kernel.name)
        if not found.reason and {self._key(i) for i in found.reads} & {self._key(i) for i in found.written}:
            return replace(found, reason="what decides what is copied is written by the launch")
        return found

    @cached_property
    def merge_written(self) -> frozenset[int]:
        """The buffers that the merge kernel copies to."""
        return frozenset(self._key(i) for i in self.merge_kernel.written)

    @cached_property
    def merge_reads(self) -> frozenset[int]:
        """The buffers that steer it."""
        return frozenset(self._key(i) for i in self.merge_kernel.reads)

    def merge(self, first: int, count: int, partial: Mapping[int, int]) -> Launch:
        """Copies what a range wrote to the buffers ``partial`` (by the buffers of the launch) to where it belongs."""
        made = self.merge_kernel
        program = service.parse_program(made.source, path=self.launch.program.path, options=made.options)
        size, offset, ids = self._ndrange(made.ranges, first, count)
        hidden: list[Argument] = []
        for h in made.hidden:
            key = self._key(h.argument)
            hidden.append(BufferArg(partial[key]) if h.kind == "copy" else _ulong(self.sizes[key]))
        return replace(
            self.launch,
            name=f"merge {self.name(first, count)}",
            program=program,
            kernel=program.kernels[made.kernel],
            global_size=size,
            local_size=self._local_size,
            args=(*self.launch.args, *hidden, *ids),
            global_offset=offset if any(offset) else None,
        )

    def difference(self, key: int, partial: int, old: int) -> Launch:
        """Does to a buffer what was done to its copy ``partial``, ``old`` being what both were before."""
        operation, element = self.operations.get(key, ("copy", "uchar"))
        merge = difference_merge(operation, element)
        nbytes = self.sizes[key]
        args = (BufferArg(key), BufferArg(partial), BufferArg(old), _ulong(nbytes))
        name = f"merge {self.launch.name} ({operation})"
        return _helper(name, _parsed(merge.source), merge.kernel, merge.work_items(nbytes), args)

    def copy(self, source: int, target: int) -> Launch:
        """Copies the whole of a buffer."""
        nbytes = self.sizes[source]
        args = (BufferArg(target), BufferArg(source), _ulong(nbytes))
        return _helper(f"copy for {self.launch.name}", _parsed(_HELPERS), "manycl_copy", -(-nbytes // _BLOCK), args)

    def clear(self, key: int, start: int, nbytes: int) -> Launch:
        """Makes undefined bytes of a buffer zero."""
        args = (BufferArg(key), _ulong(start), _ulong(nbytes))
        return _helper(f"clear for {self.launch.name}", _parsed(_HELPERS), "manycl_clear", -(-nbytes // _BLOCK), args)


def _around(boxes: list[Box]) -> tuple[int, int]:
    return (min(box.offset for box in boxes), max(box.end for box in boxes)) if boxes else (0, 0)


def _renamed(args: tuple[Argument, ...], instead: Mapping[int, int]) -> tuple[Argument, ...]:
    if not instead:
        return args
    return tuple(BufferArg(instead.get(a.key, a.key)) if isinstance(a, BufferArg) else a for a in args)


def _ulong(value: int) -> bytes:
    return value.to_bytes(8, "little")


@cache
def _parsed(source: str) -> ProgramFacts:
    return service.parse_program(source, path="<manycl>")


def _helper(name: str, program: ProgramFacts, kernel: str, items: int, args: tuple[Argument, ...]) -> Launch:
    facts: KernelFacts = program.kernels[kernel]
    return Launch(name, program, facts, (-(-items // _GROUP) * _GROUP,), (_GROUP,), args, (), ())
