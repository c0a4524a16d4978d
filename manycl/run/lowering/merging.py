"""Merging: the steps that put together what ranges of a divided launch have written, and those that check a promise.
:class:`~manycl.graph.reduction.Reduction` says how results are put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from manycl.errors import PolicyError
from manycl.graph.access import Access, access_of
from manycl.graph.copies import copy_task, fill_task
from manycl.graph.division import Division
from manycl.graph.graph import Buffer, BufferArg, BufferKey, Graph, HostTask, Launch, Node, Window
from manycl.graph.reduction import PROMISES, Reduction
from manycl.graph.versions.versions import run_as
from manycl.machine import DeviceIndex
from manycl.plan.plan import ON_HOST, Assignment
from manycl.region import NOTHING, Region, union
from manycl.run.data.coherence import Directory
from manycl.run.lowering.ranges import CopyMerge, launches_of, merge_of
from manycl.run.lowering.steps import CHECK, CLEAR, COMBINE, COPY, Step
from manycl.utilities.logs import logger

log = logger(__name__)
_Bytes = npt.NDArray[np.uint8]
_FLAG = np.dtype(np.int32)  # what a merge sets where a promise is broken
_MOST_GAPS = 64  # the most runs of undefined bytes, which are cleared one by one; our own choice


@dataclass(slots=True)
class RangeTask:
    """A step before its buffers are cut. ``access``: its accesses, by buffer; the same object for steps that do the
    same. ``round``: steps of the same round of a node run beside each other."""

    step: Step
    task: Node
    device: DeviceIndex
    queue: int
    access: Mapping[BufferKey, Access]
    round: int = 0
    windows: dict[BufferKey, Window] = field(default_factory=dict)  # by buffer


@dataclass(frozen=True, slots=True)
class DividedNode:
    """A divided node. ``divisions``: its launch as each range divides it (they differ where ranges run different
    versions); ``division``: the first of these. ``found``: what each range touches, by buffer; ``memories``: the memory
    that each runs in. ``home``: the assignment that merges partial results, in the memory ``at``."""

    node: int
    division: Division
    divisions: Sequence[Division]
    ranges: Sequence[Assignment]
    found: Sequence[Mapping[BufferKey, Access]]
    memories: Sequence[int]
    home: Assignment
    at: int

    @property
    def on_first(self) -> DividedNode:
        """This node, merged on the device of the first range."""
        return replace(self, home=self.ranges[0], at=self.memories[0])

    @property
    def elsewhere(self) -> dict[int, Assignment]:
        """The memories that need partial results of their own, each with the first range that runs there."""
        return {m: self.ranges[self.memories.index(m)] for m in self.memories if m != self.at}


class MergeSteps:
    """Makes the steps of launches whose ranges' results have to be put together."""

    graph: Graph
    directory: Directory
    sizes: dict[BufferKey, int]
    temporaries: list[Buffer]
    defined: dict[BufferKey, Region]

    def _ranges(
        self, cut: DividedNode, method: str, partial: Mapping[int, Mapping[BufferKey, BufferKey]]
    ) -> list[RangeTask]:
        raise NotImplementedError

    def _by_kernel(self, cut: DividedNode) -> list[RangeTask]:
        division, method = cut.division, Reduction.SCATTER.words()
        partial = {m: {k: self._temporary(k) for k in division.merge_written} for m in cut.elsewhere}
        before: list[RangeTask] = []
        for m, a in cut.elsewhere.items():
            kept = ((k, t) for k, t in partial[m].items() if k in division.launch.reads)
            before += [self._copied(cut, a, k, t, (0, self.sizes[k]), method) for k, t in kept]
        drafts = self._ranges(cut, method, partial)
        after = []
        for a, access, m in zip(cut.ranges, cut.found, cut.memories, strict=True):
            if m == cut.at:
                continue
            touched = {k: Access(access[k].reads, NOTHING, False) for k in division.merge_reads}
            touched |= {t: Access(access[k].writes, NOTHING, False) for k, t in partial[m].items()}
            touched |= {k: replace(access[k], reads=NOTHING) for k in partial[m]}
            step = Step(cut.node, COMBINE, *a.range, method)
            merge = launches_of(division).merge(a.range, partial[m])
            after.append(RangeTask(step, merge, cut.home.device, cut.home.queue, touched))
        return _rounds(before, drafts, after)

    def _by_difference(self, cut: DividedNode, keys: set[BufferKey]) -> list[RangeTask]:
        division, launch = cut.division, cut.division.launch
        checks = not division.promised.isdisjoint(keys)
        if checks:  # the launch may run again as a whole: where it can, and from the old contents
            keys = keys.union(launch.reads).intersection(launch.writes)
            cut = cut if cut.home.device in {a.device for a in cut.ranges} else cut.on_first
        home, ordered = cut.home, [k for k in launch.writes if k in keys]
        before: list[RangeTask] = []
        partial: dict[int, dict[BufferKey, BufferKey]] = {m: {} for m in cut.elsewhere}
        merges: list[CopyMerge] = []
        restored: list[CopyMerge] = []
        operations = {k: made.operation for k, made in division.operations.items()}
        methods = {k: Reduction.DIFFERENCE.words(operations.get(k, "")) for k in ordered}
        told = self._flag(cut, before) if checks else None
        for k in ordered:
            extent, method = division.extent(k), methods[k]
            old = [self._temporary(k)] if checks or k not in operations else []
            for same in old:
                before += self._cleared(cut, k, extent, method)
                before.append(self._copied(cut, home, k, same, extent, method))
                if checks:
                    restored.append(CopyMerge(k, k, same, [k], extent))
            for m, a in cut.elsewhere.items():
                copy = partial[m][k] = self._temporary(k)
                if k not in operations:
                    before.append(self._copied(cut, a, k, copy, extent, method))
                else:  # copies begin with neutral elements
                    changed = union(x[k].writes for x, at in zip(cut.found, cut.memories, strict=True) if at == m)
                    extent = (changed or Region.span(*division.extent(k))).hull
                    before.append(self._filled(cut, a, copy, merge_of(division, k).neutral, *extent, method))
                merges.append(CopyMerge(k, k, copy, old if k not in operations else [], extent))
        method = ", ".join(dict.fromkeys(methods[k] for k in ordered))
        drafts = self._ranges(cut, method, partial)
        after = [self._merged(cut, of, told if of.old else None, methods[of.key]) for of in (*merges, *restored)]
        if told is not None:
            after += [self._undivided(cut, told), self._looked_at(cut, told, {}, _conflict)]
        return _rounds(before, drafts, after)

    def _undivided(self, cut: DividedNode, told: BufferKey) -> RangeTask:
        """Return the task that runs the launch as a whole if the flag ``told`` is set."""
        found = [of.access(a.range) for of, a in zip(cut.divisions, cut.ranges, strict=True)]
        touched = {
            k: Access(union(x[k].reads for x in found), union(x[k].writes for x in found), False) for k in found[0]
        }
        touched[told] = Access(Region.span(0, _FLAG.itemsize), NOTHING, False)
        step = Step(cut.node, CHECK, method=Reduction.DIFFERENCE.words())
        return RangeTask(step, launches_of(cut.division).guarded(told), cut.home.device, cut.home.queue, touched)

    def _compared(self, cut: DividedNode, task: Launch) -> list[RangeTask]:
        """Return the tasks of a launch whose work-groups are promised to be apart, when that is checked: on one device,
        ranges run on copies of all that the launch writes, the copies are merged, and the undivided launch is run. What
        it leaves is the result, and is compared."""
        cut = cut.on_first
        division, home, method = cut.division, cut.home, Reduction.DIFFERENCE.words()
        before: list[RangeTask] = []
        merged: dict[BufferKey, tuple[BufferKey, tuple[int, int]]] = {}
        copies: dict[DeviceIndex, dict[BufferKey, BufferKey]] = {a.device: {} for a in cut.ranges}
        told = self._flag(cut, before)
        for k in division.launch.writes:
            extent, is_atomic = division.extent(k), k in division.operations
            before += self._cleared(cut, k, extent, method)
            merged[k] = self._temporary(k), extent
            before.append(self._copied(cut, home, k, merged[k][0], extent, method))
            for of in copies.values():
                of[k] = self._temporary(k)
                if is_atomic:
                    before.append(self._filled(cut, home, of[k], merge_of(division, k).neutral, *extent, method))
                else:
                    before.append(self._copied(cut, home, k, of[k], extent, method))
        after, check = [], Step(cut.node, CHECK, method=method)
        for a, access in zip(cut.ranges, cut.found, strict=True):
            own = copies[a.device]
            launch = launches_of(division).range(a.range, own, {})
            touched = {own.get(k, k): x for k, x in access.items()}
            after.append(RangeTask(check, launch, home.device, home.queue, touched))
        for k, (target, extent) in merged.items():
            old, flag = ([], None) if k in division.operations else ([k], told)
            for of in copies.values():
                after.append(self._merged(cut, CopyMerge(k, target, of[k], old, extent), flag, method))
        whole = run_as(task, home.version) if task.versions else task
        after.append(RangeTask(check, whole, home.device, home.queue, access_of(whole, self.sizes)))
        after.append(self._looked_at(cut, told, merged, _difference))
        return [replace(draft, round=number) for number, draft in enumerate([*before, *after])]

    def _merged(self, cut: DividedNode, of: CopyMerge, told: BufferKey | None, method: str) -> RangeTask:
        """Return a task that merges a copy, and sets the flag ``told`` where it and the target were changed."""
        everything = Region.span(*of.extent)
        read, written = Access(everything, NOTHING, False), Access(NOTHING, everything, False)
        touched = {**dict.fromkeys((of.copy, *of.old), read), of.target: written}
        is_told = of.key in cut.division.promised or of.target in of.old  # (this is where it is restored)
        flags = [told] if told is not None and is_told else []
        for flag in flags:
            touched[flag] = Access(Region.span(0, _FLAG.itemsize), Region.span(0, _FLAG.itemsize), False)
        merge = launches_of(cut.division).difference(of, flags)
        return RangeTask(Step(cut.node, COMBINE, method=method), merge, cut.home.device, cut.home.queue, touched)

    def _flag(self, cut: DividedNode, before: list[RangeTask]) -> BufferKey:
        """Return a new buffer that has one integer, and add the task that clears it."""
        flag = self._temporary(cut.division.launch.writes[0], _FLAG.itemsize)
        before.append(
            self._filled(cut, cut.home, flag, bytes(_FLAG.itemsize), 0, _FLAG.itemsize, Reduction.DIFFERENCE.words())
        )
        return flag

    def _looked_at(
        self,
        cut: DividedNode,
        told: BufferKey,
        merged: Mapping[BufferKey, tuple[BufferKey, tuple[int, int]]],
        why: Callable[..., str],
    ) -> RangeTask:
        """Return a task of the host's that notes whether a promise was kept. ``merged``: by buffer that the launch has
        written, what merging its ranges' copies gave, and the bytes to be compared."""
        launch, proof = cut.division.launch, cut.division.proof
        names = {k: cut.division.name(k) for k in cut.division.promised}
        extents = [(cut.division.name(k), *extent) for k, (_, extent) in merged.items()]

        def look(flag: _Bytes, *pairs: _Bytes) -> None:
            found = why(bool(flag.any()), ", ".join(names.values()), extents, pairs)
            if not found:
                PROMISES.keep(proof)
                return
            PROMISES.broke(launch.program, launch.kernel, found)
            log.warning("%s is not divided any more: %s", launch.name, found)

        keys = [told, *(key for k, (of, _) in merged.items() for key in (k, of))]
        access = {key: Access(Region.span(0, self.sizes[key]), NOTHING, False) for key in keys}
        for k, (of, extent) in merged.items():
            access[k] = access[of] = Access(Region.span(*extent), NOTHING, False)
        task = HostTask(f"check {launch.name}", look, tuple(map(BufferArg, keys)), tuple(keys), ())
        return RangeTask(Step(cut.node, CHECK, method=Reduction.DIFFERENCE.words()), task, ON_HOST, 0, access)

    def _temporary(self, key: BufferKey, nbytes: int | None = None) -> BufferKey:
        """Return a new buffer of this run, of the size of another one if none is given."""
        new = self.directory.new_key()
        self.sizes[new] = self.sizes[key] if nbytes is None else nbytes
        self.temporaries.append(Buffer(new, self.sizes[new], self.graph.buffers[key].name))
        return new

    def _copied(
        self,
        cut: DividedNode,
        a: Assignment,
        source: BufferKey,
        target: BufferKey,
        extent: tuple[int, int],
        method: str,
    ) -> RangeTask:
        """Return a task that copies the bytes of an extent (low, high) to a buffer of the same size."""
        step = Step(cut.node, COPY, method=method)
        low, high = extent
        return self._copy(step, a.device, a.queue, (target, low), (source, low), high - low)

    def _copy(
        self,
        step: Step,
        device: DeviceIndex,
        queue: int,
        target: tuple[BufferKey, int],
        source: tuple[BufferKey, int],
        nbytes: int,
        turn: int = 0,
    ) -> RangeTask:
        """Return a task that copies bytes from one buffer to another, from a byte of each on."""
        (taken, to), (given, of) = target, source
        ends = Buffer(taken, self.sizes[taken]), Buffer(given, self.sizes[given])
        name = f"copy for {self.graph.nodes[step.node].name}"
        copy = copy_task(*ends, nbytes, target_offset=to, source_offset=of, name=name)
        return RangeTask(step, copy, device, queue, access_of(copy, self.sizes), turn)

    def _cleared(self, cut: DividedNode, key: BufferKey, extent: tuple[int, int], method: str) -> list[RangeTask]:
        """Return tasks that clear undefined contents: two copies of undefined contents would compare unequal."""
        gaps = (Region.span(*extent) - self.defined[key]).intervals
        if len(gaps) > _MOST_GAPS:
            raise PolicyError(
                f"{cut.division.launch.name} cannot be split: {len(gaps)} parts of what it writes are undefined"
            )
        return [self._filled(cut, cut.home, key, b"\0", start, end, method) for start, end in gaps]

    def _filled(
        self, cut: DividedNode, a: Assignment, key: BufferKey, element: bytes, start: int, end: int, method: str
    ) -> RangeTask:
        """Return a task that fills some bytes of a buffer with as many elements as lie there."""
        nbytes = (end - start) // len(element) * len(element)
        buffer, name = Buffer(key, self.sizes[key]), f"clear for {cut.division.launch.name}"
        clear = fill_task(buffer, element, nbytes, target_offset=start, name=name)
        step = Step(cut.node, CLEAR, method=method)
        return RangeTask(step, clear, a.device, a.queue, access_of(clear, self.sizes))


def _rounds(before: list[RangeTask], ranges: list[RangeTask], after: list[RangeTask]) -> list[RangeTask]:
    """Number the rounds: preparations one after another, then all ranges beside each other, then merges one by one."""
    for number, draft in enumerate(before):
        draft.round = number
    for draft in ranges:
        draft.round += len(before)
    behind = 1 + max(draft.round for draft in ranges)
    for number, draft in enumerate(after):
        draft.round = behind + number
    return [*before, *ranges, *after]


def _conflict(conflicts: bool, names: str, *_: object) -> str:
    """Return why a promise was not kept, by the flag that merges set."""
    return f"in an earlier run, devices wrote different values to the same element of {names}" if conflicts else ""


def _difference(conflicts: bool, names: str, extents: Sequence[tuple[str, int, int]], pairs: Sequence[_Bytes]) -> str:
    """Return why a promise was not kept, by what the launch and its ranges have left in each buffer."""
    for (name, low, high), left, merged in zip(extents, pairs[::2], pairs[1::2], strict=True):
        differ = left[low:high] != merged[low:high]
        if differ.any():
            return f"its parts, run apart, do not leave in {name} what it leaves (byte {low + int(np.argmax(differ))})"
    return _conflict(conflicts, names)
