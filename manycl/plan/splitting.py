"""Splitting: how the launches of a graph may be divided, derived from their analysis. Linear regions are for
predictions: intervals of bytes that move evenly with the groups, as far as a launch's regions are like that. What a run
really moves follows the regions themselves (``run/lowering/lower.py``)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from manycl.analysis import service
from manycl.errors import LaunchError, SourceError
from manycl.graph.division import Division, NotDivisibleError, apart, broken_promise, divide
from manycl.graph.graph import BufferArg, BufferKey, Graph, HostTask, Launch
from manycl.graph.known import known_launch
from manycl.graph.reduction import PROMISES, Reduction
from manycl.graph.versions.versions import possible, run_as
from manycl.graph.work_groups import why_none, with_work_groups
from manycl.group_range import GroupRange
from manycl.machine import DEVICE_KINDS
from manycl.plan.split import Along, AnalysedSplits, LinearRegion, Split
from manycl.plan.tuning import PLANNING
from manycl.region import union
from manycl.utilities.disk_cache import DiskCache
from manycl.utilities.kept import MANY, Kept
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:  # these import islpy
    from manycl.analysis.known_launch import KnownLaunch

ONE_WORK_GROUP = "it has one work-group"
LATER = "finding out how would take longer than it does: it differs from launches before it in scalars"
_WEIGHTS = {"special": 8.0}  # cost of an operation of a kind, in additions

_known: Kept[object, Split | str] = Kept(MANY)  # by launch, with buffers named by their positions in it
_finding = [threading.Lock() for _ in range(64)]  # by question: threads that ask the same have one find it out
_answers = DiskCache("splits", 16 << 20, (*service.CODE, "manycl/plan/"))
PROMISES.others = DiskCache("promises", 1 << 20, ("manycl/graph/reduction.py",))


class Splits(AnalysedSplits):
    """The splits of a graph's nodes, each found when it is first asked for (``Problem.splits``). Launches with several
    versions of their kernel are split where ranges do the same in all versions that devices of some ``kinds`` may run.
    ``why(node)`` tells why a node is not split. ``seconds``: the predicted seconds of a node that runs once: of
    launches that differ in scalars only, and of which nothing holds for all values, a few are analysed, and those that
    take longer than that."""

    def __init__(
        self, graph: Graph, kinds: Collection[str] = DEVICE_KINDS, seconds: Callable[[int], float] | None = None
    ) -> None:
        self._graph = graph
        self._kinds = kinds
        self._seconds = seconds
        self._values: dict[object, set[object]] = {}  # of launches that differ in scalars only: the first few
        self._found: dict[int, Split | str] = {}

    def for_graph(self, graph: Graph, seconds: Callable[[int], float]) -> Splits:
        return Splits(graph, self._kinds, None if self._seconds is None else seconds)

    def _look(self, node: int) -> Split | str:
        found = self._found.get(node)
        if found is None:
            task = self._graph.nodes[node]
            if isinstance(task, Launch):
                found = split_of(task, self._sizes(task), self._kinds, partial(self._is_worth, node))
            else:
                found = "it is a host function" if isinstance(task, HostTask) else "it is no kernel"
            self._found[node] = found
        return found

    def _is_worth(self, node: int, question: _Question, is_known: bool) -> bool:
        """Return whether a plan waits for an answer, unless it is known."""
        if self._seconds is None:
            return True
        family = question._replace(known=replace(question.known, scalars={})).key
        values = self._values.setdefault(family, set())
        if len(values) < PLANNING.first_values:
            values.add(question.known.key)
        if is_known or question.known.key in values:
            return True
        of = question.launch.program, question.launch.kernel.name, question.known
        is_evaluated = service.is_one_of_many(*of)
        return self._seconds(node) > (PLANNING.evaluated_look if is_evaluated else PLANNING.launch_look)

    def _sizes(self, launch: Launch) -> dict[BufferKey, int]:
        """Return the bytes of a launch's buffers."""
        return {a.key: self._graph.buffers[a.key].nbytes for a in launch.args if isinstance(a, BufferArg)}

    def why(self, node: int) -> str:
        """Return why the node cannot be split; empty if it can."""
        found = self._look(node)
        return found if isinstance(found, str) else ""

    def is_known(self, node: int) -> bool:
        task = self._graph.nodes[node]
        if node in self._found or not isinstance(task, Launch):
            return True
        return not task.versions and self._is_kept(task)

    def _is_kept(self, launch: Launch) -> bool:
        """Return whether this process or another one has cached how a launch may be split."""
        try:
            launch = with_work_groups(run_as(launch, 0))
            return bool(_never(launch)) or _answered(_asked(launch, self._sizes(launch), at_once=True)) is not None
        except (LaunchError, SourceError):
            return True
        except Exception as error:
            told(error, f"looking up how {launch.name} may be split")
            return True

    def following(self, node: int) -> float:
        task = self._graph.nodes[node]
        if node in self._found or not isinstance(task, Launch):
            return 0.0
        # of its abstract run, by the steps that one of its kernel took
        seconds = PLANNING.step_look * service.steps(task.program, task.kernel.name)
        return seconds if seconds > PLANNING.launch_look and not self._is_kept(task) else 0.0

    def work(self, node: int, parts: int) -> Along | None:
        launch, split = self._graph.nodes[node], self[node]
        assert isinstance(launch, Launch)
        launch = with_work_groups(run_as(launch, 0))
        try:
            known = known_launch(launch, self._sizes(launch))
            facts = service.launched(launch.program, launch.kernel.name, known)
            ends = [split.groups * i // parts for i in range(parts + 1)]
            found = [facts.work(GroupRange(split.dimension, a, b - a)) for a, b in pairwise(ends)]
        except (LaunchError, SourceError):
            return None
        except Exception as error:
            told(error, f"counting ranges of {launch.name}")
            return None
        # by group, since parts may differ by a group
        work = [
            sum(n * _WEIGHTS.get(kind, 1.0) for kind, n in w.operations.items()) / (b - a)
            for w, (a, b) in zip(found, pairwise(ends), strict=True)
        ]
        if not any(work):
            return None
        return Along(tuple(work), all(w.exact for w in found), not any("loop" in w.reason for w in found))

    def touched(self, node: int, key: BufferKey, first: int, count: int) -> float:
        task, split, size = self._graph.nodes[node], self[node], self._graph.buffers[key].nbytes
        assert isinstance(task, Launch)
        try:
            division = divide(run_as(task, 0), split.dimension, self._sizes(task))
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


def split_of(
    launch: Launch,
    sizes: Mapping[BufferKey, int],
    kinds: Collection[str] = DEVICE_KINDS,
    is_worth: Callable[[_Question, bool], bool] = lambda question, is_known: True,
) -> Split | str:
    """Return the best split of a launch, or why there is none. ``sizes``: bytes of its buffers by key. ``kinds``: of
    the devices that may run it, in their versions. ``is_worth``: whether to find out what is not known (its
    second argument)."""
    versions = [run_as(launch, index) for index in possible(launch.versions, kinds)] or [launch]
    try:
        return _best(launch, versions, sizes) if len(versions) > 1 else _alone(versions[0], sizes, is_worth)
    except (LaunchError, SourceError) as error:
        return error.message
    except Exception as error:
        return told(error, f"finding out how {launch.name} may be split")


def _alone(launch: Launch, sizes: Mapping[BufferKey, int], is_worth: Callable[[_Question, bool], bool]) -> Split | str:
    """Return the split of a launch that has one version, or why there is none."""
    launch = with_work_groups(launch)
    why = _never(launch)
    if why:
        return why
    question = _asked(launch, sizes, at_once=True)
    found = _answered(question)
    if not is_worth(question, found is not None):
        return LATER
    if found is None:
        question = _asked(launch, sizes)
        found = _answered(question)
    if found is None:
        with _finding[hash(question.key) % len(_finding)]:
            found = _known.get(question.key) or _found_out(question, sizes)
    if isinstance(found, str):
        return broken_promise(launch) or found
    return _moved(_on(found, question.keys), question.further)


def _unlike(divisions: Sequence[Division], split: Split) -> str:
    """Return why versions that are divided like this cannot do ranges of a launch; empty: they can, by some ranges."""
    counts = {division.groups for division in divisions}
    if len(counts) > 1:
        return f"its versions have different numbers of work-groups ({', '.join(map(str, sorted(counts)))})"
    if split.merge is not Reduction.NONE:
        return "what ranges of it write has to be merged, and it has several versions"
    cuts = sorted({0, 1, *(split.groups * i // 4 for i in range(5))})
    return apart(divisions, [GroupRange(split.dimension, low, high - low) for low, high in pairwise(cuts)])


def _never(launch: Launch) -> str:
    """Return why a launch is not split whatever it does."""
    return why_none(launch) if launch.local_size is None else ""


class _Question(NamedTuple):
    """The question how a launch may be split. ``known``: what is known of the launch. ``keys``: its buffers;
    ``places``: their positions among these, which stand for them in answers, as loops that make their arrays anew
    launch the same on other buffers. ``further``: by how many bytes its accesses to these are further on than those of
    the launch that is asked about. ``shared``: which arguments share buffers."""

    launch: Launch
    known: KnownLaunch
    keys: Sequence[BufferKey]
    places: Mapping[BufferKey, BufferKey]
    further: Mapping[BufferKey, int]
    shared: Hashable

    @property
    def key(self) -> object:
        """The key of the question in this process."""
        return self.launch.program.tree, self.launch.kernel.name, self.known.key, self.shared

    @property
    def text(self) -> bytes:
        """The key of the question in all processes."""
        digest = sha256(self.launch.program.tree).digest()
        return repr((digest, self.launch.kernel.name, self.known.key, self.shared)).encode()


def _asked(launch: Launch, sizes: Mapping[BufferKey, int], at_once: bool = False) -> _Question:
    keys = list(dict.fromkeys(a.key for a in launch.args if isinstance(a, BufferArg)))
    places = {key: BufferKey(place) for place, key in enumerate(keys)}
    shared = tuple((places[a.key], a.offset) if isinstance(a, BufferArg) else None for a in launch.args)
    known, by = service.accessing(launch.program, launch.kernel.name, known_launch(launch, sizes), at_once)
    further = {a.key: by[i] for i, a in enumerate(launch.args) if isinstance(a, BufferArg) and by.get(i)}
    return _Question(launch, known, keys, places, further, shared)


def _answered(question: _Question) -> Split | str | None:
    """Return the answer that this process or another one has cached, with buffers named by their positions."""
    found = _known.get(question.key)
    kept = _answers.recall(question.text) if found is None and question.launch.program.tree else None
    return _known.keep(question.key, kept) if isinstance(kept, Split | str) else found


def _found_out(question: _Question, sizes: Mapping[BufferKey, int]) -> Split | str:
    """Return a new answer; it is cached unless a later one may be better."""
    launch = question.launch
    facts = service.launched(launch.program, launch.kernel.name, question.known)
    before = facts.unanswered
    found = _best(launch, [launch], sizes)
    if isinstance(found, Split):
        found = _on(_moved(found, question.further, -1), question.places)
    if facts.unanswered != before or (isinstance(found, str) and broken_promise(launch)):
        return found
    if launch.program.tree and not facts.is_evaluated:
        _answers.note(question.text, found)
    return _known.keep(question.key, found)


def _on(split: Split, keys: Sequence[BufferKey] | Mapping[BufferKey, BufferKey]) -> Split:
    """Return the split for buffers ``keys[b]`` instead of b."""
    return replace(split, regions={keys[key]: part for key, part in split.regions.items()})


def _moved(split: Split, further: Mapping[BufferKey, int], times: int = 1) -> Split:
    """Return the split of a launch whose accesses are so many bytes further on, by buffer."""
    moved = {key: split.regions[key] for key in further if key in split.regions}
    regions = {k: replace(s, offset=s.offset + times * further[k]) for k, s in moved.items() if not s.anywhere}
    return replace(split, regions={**split.regions, **regions}) if regions else split


def _best(launch: Launch, versions: Sequence[Launch], sizes: Mapping[BufferKey, int]) -> Split | str:
    """Return the split of a launch along the best dimension: one along which nothing has to be merged, and bytes lie
    side by side; of several such, the last, along which neighbouring groups are furthest apart. Of several versions
    ranges must do the same: this is checked for some ranges, and by a run for its own."""
    reason = ONE_WORK_GROUP
    found: list[tuple[int, Split]] = []
    groups = with_work_groups(versions[0]).local_size or ()
    for dimension in reversed(range(len(launch.global_size))):
        if dimension < len(groups) and versions[0].global_size[dimension] <= groups[dimension]:
            continue  # one work-group
        try:
            divisions = [divide(version, dimension, sizes) for version in versions]
        except NotDivisibleError as error:
            reason = error.reason
            continue
        rank, split = _split(divisions[0])
        unlike = _unlike(divisions, split) if len(divisions) > 1 else ""
        if unlike:
            reason = unlike
            continue
        found.append((rank, split))
        if rank == 0:
            break
    return min(found, key=lambda f: f[0])[1] if found else reason


def _split(division: Division) -> tuple[int, Split]:
    """Return the split of a launch along a dimension, for predictions, and its rank: 0 is the best."""
    launch, dimension, groups = division.launch, division.dimension, division.groups
    division.foresee(("read", "write"), [division.range(f, 1) for f in _sample(groups)])
    reads = [k for k in launch.reads if k not in launch.writes]
    regions = {k: part for k in reads if (part := _linear_region(division, k, ("read",))) is not None}
    if division.operations:
        return 3, Split(dimension, groups, regions, Reduction.DIFFERENCE)
    rank = 0
    shared: set[BufferKey] = set()
    written: dict[BufferKey, LinearRegion] = {}
    for key in launch.writes:
        part = _linear_region(division, key, ("read", "write"))
        if part is not None and part.width <= part.stride:
            written[key] = LinearRegion(part.stride, 0, part.offset)
        elif division.is_one(key) and _are_apart(division, key):
            rank = 1  # rectangles: as many bytes, wherever they lie
            low, high = division.extent(key)
            written[key] = LinearRegion(-(-(high - low) // groups), 0, low, anywhere=True)
        else:
            shared.add(key)
    reduction = division.reduction(shared)
    if reduction is Reduction.NONE:
        return rank, Split(dimension, groups, {**regions, **written})
    if reduction is Reduction.DIFFERENCE or not set(launch.reads).isdisjoint(launch.writes):
        return 3, Split(dimension, groups, regions, Reduction.DIFFERENCE)
    return 2, Split(dimension, groups, regions, Reduction.SCATTER)


def _linear_region(division: Division, key: BufferKey, kinds: Sequence[str]) -> LinearRegion | None:
    """Return the interval that moves with the groups and holds what these touch; None where there is none."""
    if not division.is_one(key):
        return None
    middle = division.groups // 2
    ends: dict[int, tuple[int, int]] = {}
    for f in _sample(division.groups):
        of = division.range(f, 1)
        rectangles = [b for kind in kinds for r in division.footprints(key, kind, of) for b in r.rectangles if b.width]
        if rectangles:
            ends[f] = min(b.offset for b in rectangles), max(b.end for b in rectangles)
    if middle - 1 not in ends or middle not in ends:
        return None
    stride = ends[middle][0] - ends[middle - 1][0]
    if stride <= 0:
        return None
    offset = min(low - stride * f for f, (low, _) in ends.items())
    width = max(high - stride * f for f, (_, high) in ends.items()) - offset
    return (
        LinearRegion(stride, width, offset)
        if width < PLANNING.nearly_all * division.sizes[key] or width <= stride
        else None
    )


def _sample(groups: int) -> list[int]:
    """Return the groups that linear regions go by."""
    middle = groups // 2
    return sorted({f for f in (0, 1, 2, middle - 1, middle, groups - 2, groups - 1) if 0 <= f < groups})


def _are_apart(division: Division, key: BufferKey) -> bool:
    """Return whether the two halves of the groups write different bytes."""
    half = division.groups // 2
    ranges = [division.range(first, count) for first, count in ((0, half), (half, division.groups - half))]
    division.foresee(("write",), ranges)
    mine, theirs = (union(f.around()[0] for f in division.footprints(key, "write", groups)) for groups in ranges)
    return not mine.meets(theirs)
