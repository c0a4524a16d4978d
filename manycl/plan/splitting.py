"""How the launches of a graph may be split, derived from what the analysis knows of them.

The slices are for predictions: intervals of bytes that move evenly with the groups, as far as a launch's regions are
such. What a run really moves follows the regions themselves (``run/lowering/lower.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from manycl.analysis import service
from manycl.errors import LaunchError, SourceError
from manycl.graph.division import Division, NotDivisibleError, apart, divide
from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask, Launch
from manycl.graph.known import known_launch
from manycl.graph.reduction import Reduction
from manycl.graph.versions.versions import possible, run_as
from manycl.graph.work_groups import why_none, with_work_groups
from manycl.group_range import GroupRange
from manycl.machine import DEVICE_KINDS
from manycl.plan.split import Along, AnalysedSplits, Slice, Split
from manycl.plan.tuning import PLANNING
from manycl.region import union
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.kept import Kept
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:  # they import islpy
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.analysis.launched import LaunchFacts

ONE_WORK_GROUP = "it has one work-group"
_WEIGHTS = {"special": 8.0}  # what an operation of a kind costs beside an addition

_known: Kept[object, Split | str] = Kept(4096)  # launches, with buffers named by their places
_answers = DiskCache("splits", 16 << 20, (*service.CODE, "manycl/plan/"))


class Splits(AnalysedSplits):
    """How the nodes of a graph may be split, each found out when it is first asked for (``Problem.splits``).

    Launches with several versions of their kernel are split where ranges do the same in all that devices of some
    ``kinds`` may run. ``why(node)`` tells why a node is not.
    """

    def __init__(self, graph: Graph, kinds: Collection[str] = DEVICE_KINDS) -> None:
        self._graph = graph
        self._kinds = kinds
        self._found: dict[int, Split | str] = {}

    def _look(self, node: int) -> Split | str:
        found = self._found.get(node)
        if found is None:
            task = self._graph.nodes[node]
            if isinstance(task, Launch):
                keys = {a.key for a in task.args if isinstance(a, BufferArg)}
                found = split_of(task, {k: self._graph.buffers[k].nbytes for k in keys}, self._kinds)
            else:
                found = "it is a host function" if isinstance(task, HostTask) else "it is no kernel"
            self._found[node] = found
        return found

    def why(self, node: int) -> str:
        """Why the node cannot be split; empty if it can."""
        found = self._look(node)
        return found if isinstance(found, str) else ""

    def undivided(self) -> list[dict[str, str | int]]:
        """Which kernels cannot be divided, of those that somebody asked about, and why: ``kernel``, ``path`` and
        ``line`` of its definition, ``reason``, and how many ``launches``. One work-group is no reason."""
        found: dict[tuple[str, str, int, str], int] = {}
        for node, reason in self._found.items():
            task = self._graph.nodes[node]
            if isinstance(reason, str) and isinstance(task, Launch) and reason != ONE_WORK_GROUP:
                key = task.kernel.name, task.program.path, task.kernel.line, reason
                found[key] = found.get(key, 0) + 1
        names = ("kernel", "path", "line", "reason")
        return [{**dict(zip(names, key, strict=True)), "launches": launches} for key, launches in found.items()]

    def is_known(self, node: int) -> bool:
        task = self._graph.nodes[node]
        if node in self._found or not isinstance(task, Launch):
            return True
        sizes = {a.key: self._graph.buffers[a.key].nbytes for a in task.args if isinstance(a, BufferArg)}
        return not task.versions and is_known(task, sizes)

    def following(self, node: int) -> float:
        task = self._graph.nodes[node]
        if node in self._found or not isinstance(task, Launch):
            return 0.0
        return following(
            task, {a.key: self._graph.buffers[a.key].nbytes for a in task.args if isinstance(a, BufferArg)}
        )

    def work(self, node: int, parts: int) -> Along | None:
        task, split = self._graph.nodes[node], self[node]
        assert isinstance(task, Launch)
        keys = {a.key for a in task.args if isinstance(a, BufferArg)}
        return work_along(task, {k: self._graph.buffers[k].nbytes for k in keys}, split, parts)

    def touched(self, node: int, key: BufferKey, first: int, count: int) -> float:
        task, split, size = self._graph.nodes[node], self[node], self._graph.buffers[key].nbytes
        assert isinstance(task, Launch)
        sizes = {a.key: self._graph.buffers[a.key].nbytes for a in task.args if isinstance(a, BufferArg)}
        try:
            division = divide(run_as(task, 0), split.dimension, sizes)
            found = division.footprints(key, "read", division.range(first, count))
        except (LaunchError, SourceError):
            return 1.0
        except Exception as error:
            told(error, f"finding out what ranges of {task.name} read")
            return 1.0
        return min(sum(region.nbytes for region in found) / size, 1.0)

    def __getitem__(self, node: int) -> Split:
        found = self._look(node) if 0 <= node < len(self._graph) else ""
        if isinstance(found, str):
            raise KeyError(node)
        return found

    def __iter__(self) -> Iterator[int]:
        return (n for n in range(len(self._graph)) if isinstance(self._look(n), Split))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def split_of(launch: Launch, sizes: Mapping[BufferKey, int], kinds: Collection[str] = DEVICE_KINDS) -> Split | str:
    """How a launch may be split best, or why it cannot. ``sizes``: bytes of its buffers by key. ``kinds``: of the
    devices that may run it, in their versions."""
    if launch.versions:
        return _of_versions(launch, sizes, kinds)
    launch = with_work_groups(launch)
    why = _never(launch)
    if why:
        return why
    try:
        question = _asked(launch, sizes)
        found = _answered(question)
        if found is None:
            found = _found_out(question, sizes)
        return found if isinstance(found, str) else _on(found, question.keys)
    except (LaunchError, SourceError) as error:
        return error.message
    except Exception as error:
        return told(error, f"finding out how {launch.name} may be split")


def _of_versions(launch: Launch, sizes: Mapping[BufferKey, int], kinds: Collection[str]) -> Split | str:
    """As the kernel itself, along a dimension where it is split without merging, and ranges do the same in each version
    that devices may run: asked for some ranges, as a run asks for its own."""
    versions = [run_as(launch, index) for index in possible(launch.versions, kinds)]
    if len(versions) == 1:
        return split_of(versions[0], sizes)
    reason = ONE_WORK_GROUP
    found: list[tuple[int, Split]] = []
    try:
        for dimension in reversed(range(len(launch.global_size))):
            try:
                divisions = [divide(version, dimension, sizes) for version in versions]
            except NotDivisibleError as error:
                reason = error.reason
                continue
            rank, split = _split(divisions[0])
            if split.groups < 2:
                continue
            unlike = _unlike(divisions, split)
            if unlike:
                reason = unlike
            else:
                found.append((rank, split))
    except (LaunchError, SourceError) as error:
        return error.message
    except Exception as error:
        return told(error, f"finding out how {launch.name} may be split")
    return min(found, key=lambda f: f[0])[1] if found else reason


def _unlike(divisions: Sequence[Division], split: Split) -> str:
    """Why versions that are divided like this cannot do ranges of one launch; empty: they can, as far as some ranges
    tell."""
    counts = {division.groups for division in divisions}
    if len(counts) > 1:
        return f"its versions have different numbers of work-groups ({', '.join(map(str, sorted(counts)))})"
    if split.merge is not Reduction.NONE:
        return "what ranges of it write has to be merged, and it has several versions"
    cuts = sorted({0, 1, *(split.groups * i // 4 for i in range(5))})
    return apart(divisions, [GroupRange(split.dimension, low, high - low) for low, high in pairwise(cuts)])


def is_known(launch: Launch, sizes: Mapping[BufferKey, int]) -> bool:
    """Whether :func:`split_of` need not find its answer out: this process has, or another one."""
    try:
        launch = with_work_groups(run_as(launch, 0))
        return bool(_never(launch)) or _answered(_asked(launch, sizes)) is not None
    except (LaunchError, SourceError):
        return True
    except Exception as error:
        told(error, f"looking up how {launch.name} may be split")
        return True


def following(launch: Launch, sizes: Mapping[BufferKey, int]) -> float:
    """Seconds that following a launch is foreseen to take, by the steps that one of its kernel took, if that is more
    than ``launch_look`` and not known."""
    seconds = PLANNING.step_look * service.steps(launch.program, launch.kernel.name)
    return seconds if seconds > PLANNING.launch_look and not is_known(launch, sizes) else 0.0


def _never(launch: Launch) -> str:
    """Why a launch is not split whatever it does."""
    return why_none(launch) if launch.local_size is None else ""


class _Question(NamedTuple):
    """A launch; what is known of it; its buffers; by these, their places among them, which stand for them in answers,
    as loops that make their arrays anew launch the same on other buffers; and what it shares."""

    launch: Launch
    known: KnownLaunch
    keys: Sequence[BufferKey]
    places: Mapping[BufferKey, BufferKey]
    shared: Hashable

    @property
    def key(self) -> object:
        """In this process."""
        return self.launch.program.tree, self.launch.kernel.name, self.known.key, self.shared

    @property
    def text(self) -> bytes:
        """In all."""
        digest = sha256(self.launch.program.tree).digest()
        return repr((digest, self.launch.kernel.name, self.known.key, self.shared)).encode()


def _asked(launch: Launch, sizes: Mapping[BufferKey, int]) -> _Question:
    keys = list(dict.fromkeys(a.key for a in launch.args if isinstance(a, BufferArg)))
    places = {key: BufferKey(place) for place, key in enumerate(keys)}
    shared = tuple((places[a.key], a.offset) if isinstance(a, BufferArg) else None for a in launch.args)
    known = service.accessing(launch.program, launch.kernel.name, known_launch(launch, sizes))
    return _Question(launch, known, keys, places, shared)


def _answered(question: _Question) -> Split | str | None:
    """What has been found out by this process or another one, of buffers named by their places."""
    found = _known.get(question.key)
    kept = _answers.recall(question.text) if found is None and question.launch.program.tree else None
    return _known.keep(question.key, kept) if isinstance(kept, Split | str) else found


def _found_out(question: _Question, sizes: Mapping[BufferKey, int]) -> Split | str:
    """The answer, which is kept unless there may be a better one the next time."""
    launch = question.launch
    facts = service.launched(launch.program, launch.kernel.name, question.known)
    before = facts.unanswered
    found = _best(launch, facts, sizes)
    if isinstance(found, Split):
        found = _on(found, question.places)
    if facts.unanswered != before:
        return found
    if launch.program.tree:
        _answers.note(question.text, found)
    return _known.keep(question.key, found)


def _on(split: Split, keys: Sequence[BufferKey] | Mapping[BufferKey, BufferKey]) -> Split:
    """The same of buffers ``keys[b]`` instead of b."""
    return replace(split, slices={keys[key]: part for key, part in split.slices.items()})


def work_along(launch: Launch, sizes: Mapping[BufferKey, int], split: Split, parts: int) -> Along | None:
    """The counted operations in ``parts`` equal parts of a launch's work-groups, a group on average. ``sizes``: bytes
    of its buffers by key."""
    launch = with_work_groups(run_as(launch, 0))
    try:
        facts = service.launched(launch.program, launch.kernel.name, known_launch(launch, sizes))
        ends = [split.groups * i // parts for i in range(parts + 1)]
        found = [facts.work(GroupRange(split.dimension, a, b - a)) for a, b in pairwise(ends)]
    except (LaunchError, SourceError):
        return None
    except Exception as error:
        told(error, f"counting ranges of {launch.name}")
        return None
    # by group, since parts have not all the same number of groups
    work = [
        sum(n * _WEIGHTS.get(kind, 1.0) for kind, n in w.operations.items()) / (b - a)
        for w, (a, b) in zip(found, pairwise(ends), strict=True)
    ]
    if not any(work):
        return None
    return Along(tuple(work), all(w.exact for w in found), not any("loop" in w.reason for w in found))


def _best(launch: Launch, facts: LaunchFacts, sizes: Mapping[BufferKey, int]) -> Split | str:
    """Of the dimensions that may be split: one along which nothing has to be merged, and bytes lie side by side; of
    several such, the last, along which neighbouring groups are furthest apart."""
    reason = ONE_WORK_GROUP
    found: list[tuple[int, Split]] = []
    for dimension in reversed(range(len(launch.global_size))):
        if facts.launch.groups(dimension) < 2:
            continue
        try:
            rank, split = _split(divide(launch, dimension, sizes))
        except NotDivisibleError as error:
            reason = error.reason
            continue
        found.append((rank, split))
        if rank == 0:
            break
    return min(found, key=lambda f: f[0])[1] if found else reason


def _split(division: Division) -> tuple[int, Split]:
    """How a launch may be split along a dimension, for predictions, and how good that is: 0 the best."""
    launch, dimension, groups = division.launch, division.dimension, division.groups
    reads = [k for k in launch.reads if k not in launch.writes]
    slices = {k: part for k in reads if (part := _slice(division, k, ("read",))) is not None}
    if division.operations:
        return 3, Split(dimension, groups, slices, Reduction.DIFFERENCE)
    rank = 0
    shared: set[BufferKey] = set()
    written: dict[BufferKey, Slice] = {}
    for key in launch.writes:
        part = _slice(division, key, ("read", "write"))
        if part is not None and part.width <= part.stride:
            written[key] = Slice(part.stride, 0, part.offset)
        elif division.is_one(key) and _are_apart(division, key):
            rank = 1  # rectangles: as many bytes, wherever they lie
            low, high = division.extent(key)
            written[key] = Slice(-(-(high - low) // groups), 0, low)
        else:
            shared.add(key)
    reduction = division.reduction(shared)
    if reduction is Reduction.NONE:
        return rank, Split(dimension, groups, {**slices, **written})
    if reduction is Reduction.DIFFERENCE or not set(launch.reads).isdisjoint(launch.writes):
        return 3, Split(dimension, groups, slices, Reduction.DIFFERENCE)
    return 2, Split(dimension, groups, slices, Reduction.SCATTER)


def _slice(division: Division, key: BufferKey, kinds: Sequence[str]) -> Slice | None:
    """The interval that moves with the groups and holds what these touch; None where there is none."""
    if not division.is_one(key):
        return None
    middle = division.groups // 2
    sample = {0, 1, 2, middle - 1, middle, division.groups - 2, division.groups - 1}
    ends: dict[int, tuple[int, int]] = {}
    for f in sorted(sample & set(range(division.groups))):
        of = division.range(f, 1)
        boxes = [b for kind in kinds for r in division.footprints(key, kind, of) for b in r.boxes if b.width]
        if boxes:
            ends[f] = min(b.offset for b in boxes), max(b.end for b in boxes)
    if middle - 1 not in ends or middle not in ends:
        return None
    stride = ends[middle][0] - ends[middle - 1][0]
    if stride <= 0:
        return None
    offset = min(low - stride * f for f, (low, _) in ends.items())
    width = max(high - stride * f for f, (_, high) in ends.items()) - offset
    return (
        Slice(stride, width, offset) if width < PLANNING.nearly_all * division.sizes[key] or width <= stride else None
    )


def _are_apart(division: Division, key: BufferKey) -> bool:
    """Whether the two halves of the groups write other bytes."""
    half = division.groups // 2
    mine, theirs = (
        union(found.around()[0] for found in division.footprints(key, "write", division.range(first, count)))
        for first, count in ((0, half), (half, division.groups - half))
    )
    return not mine.meets(theirs)
