"""The facts of one launch, all that is known of it: its regions, hazards and costs, each found out when it is first
asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from manycl.analysis.costs.cost import LaunchCost, Work
from manycl.analysis.costs.cost_function import Features, launch_features
from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.analysis.interpreter.interpret import interpret
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.reading.tree import Unit
from manycl.analysis.regions import bounds
from manycl.analysis.regions.bounds import Outside
from manycl.analysis.regions.counted import CountedRegions
from manycl.analysis.regions.hazards import Repeat, Verdict, repeat, split
from manycl.analysis.regions.regions import Footprint, Regions, checked
from manycl.analysis.summary import KernelSummary
from manycl.group_range import GroupRange
from manycl.region import Rectangle
from manycl.utilities.kept import MANY, Kept
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The other process has no answer, for this ``reason``; ``again``: it may have one when it is asked again."""

    reason: str
    again: bool


#: answers a question (a method or property of LaunchFacts) in another process
Remote = Callable[[str, tuple[object, ...]], object]
MOST_ASKED = 3
"""Times that a question is asked which may have an answer the next time."""


class LaunchFacts:
    """The facts of a launch of a kernel (sizes, scalars and buffers known).

    With ``remote``, whatever needs isl is asked there: on rare inputs it crashes, or takes minutes. Several threads may
    share one; the first answer to a question stays the answer. Where there is none, or the analysis fails, all may be
    read and written and nothing runs apart, for a reason; what may have an answer later (``unanswered`` counts these)
    is asked again. ``summary``: what ``interpret`` has found, if it has been asked. ``is_evaluated``: it is that of a
    launch with parameters, with values put in, so that answers are found in less time than in a cache on disk.
    """

    def __init__(
        self,
        unit: Unit,
        facts: KernelFacts,
        launch: KnownLaunch,
        remote: Remote | None = None,
        summary: KernelSummary | None = None,
        is_evaluated: bool = False,
    ) -> None:
        self.remote, self.is_evaluated = remote, is_evaluated
        self.facts, self._unit = facts, unit
        self.launch = launch
        self.summary: KernelSummary = interpret(unit, facts, launch) if summary is None else summary
        self.unanswered = 0
        self._found: Kept[tuple[object, ...], Any] = Kept(MANY)
        self._foreseen: dict[tuple[object, ...], Any] = {}  # the other process's answers, until they are asked for
        self._asked: dict[tuple[object, ...], int] = {}  # what had no answer: few

    @cached_property
    def regions(self) -> Regions:
        return Regions(self.facts, self.summary, self.launch, self.remote is None)

    def computed(self, question: str, *arguments: Any) -> Any:
        """The answer to a question that needs isl, in this process. Raises whatever fails."""
        if question == "region":
            return self.regions.region(*arguments)
        if question == "alike":
            return self.regions.alike(*arguments)
        if question == "split":
            seen = None if self.launch.parameters else lambda sharers: self._counted.apart(sharers, *arguments)
            return split(self.regions, arguments[0], seen)
        if question == "repeat":
            return repeat(self.regions)
        own = _of_own_memory(self.facts, self.summary, self.launch, self.remote is None)
        return self.regions.outside() + own.outside()

    def _answer(self, question: str, *arguments: Any) -> Any:
        """The answer, from the process that isl may bring down if there is one; kept, unless it may be better later."""
        key = question, *arguments
        known = self._found.get(key)
        if known is not None:
            return known
        keep = True
        try:
            found, keep = self._answered(key, question, *arguments)
            found = self._refined(question, found, *arguments)
        except Exception as error:
            found = self._unknown(question, told(error, f"the analysis of kernel {self.facts.name}"), *arguments)
        return self._found.keep(key, found) if keep else found

    def _answered(self, key: tuple[object, ...], question: str, *arguments: Any) -> tuple[Any, bool]:
        quick = self.regions.rectangular(*arguments) if question == "region" else None
        if quick is not None:
            return quick, not quick.exact  # what takes no time is not kept: who asks of many ranges keeps what they do
        if self.remote is None or self.summary.failure:
            return self.computed(question, *arguments), True
        found = self._foreseen.pop(key, None) or self.remote(question, arguments)
        if not isinstance(found, Unanswered):
            return found, True
        self._asked[key] = asked = self._asked.get(key, 0) + 1
        self.unanswered += found.again
        self.regions.absent = f" ({found.reason})"
        return self.computed(question, *arguments), not found.again or asked >= MOST_ASKED

    def _refined(self, question: str, found: Any, *arguments: Any) -> Any:
        """Return what evaluating all work-items tells besides, where subscripts are too difficult for isl."""
        if question == "region" and not (found.exact and found.tight):
            return self._counted.region(*arguments) or found
        return found

    def _unknown(self, question: str, reason: str, *arguments: Any) -> Any:
        """The answer of which nothing is certain but that it holds."""
        if question == "alike":
            return 0, 0, 0
        if question == "split":
            return Verdict(arguments[0], (reason,))
        if question == "repeat":
            return Repeat((reason,))
        if question == "outside":
            return []
        argument, kind = arguments[:2]
        buffer = next(a for a in self.facts.arguments if a.index == argument)
        size = self.launch.sizes.get(self.launch.same.get(argument, argument), 0)
        touched = size > 0 and (buffer.reads if kind == "read" else buffer.writes)
        return Footprint(argument, kind, 1, (Rectangle(0, size),) if touched else (), True, False, reason)

    def region(self, argument: int, kind: str, groups: GroupRange | None = None) -> Footprint:
        """The bytes of buffer argument ``argument`` that some work-groups, or all of them, read or write (``kind``).
        Raises ValueError for a range outside of the launch, KeyError for an argument that is no buffer."""
        groups = checked(self.launch, kind, groups)
        if argument not in self.regions.buffers:
            raise KeyError(argument)
        found: Footprint = self._answer("region", argument, kind, groups)
        return found

    def foresee(self, regions: Collection[tuple[int, str, GroupRange]]) -> None:
        """Have regions found out together that will be asked for one by one (argument, kind and groups of each): most
        of what a question takes is asking the other process. Where this has no answer, nothing is foreseen."""
        if self.remote is None or self.summary.failure:
            return
        hard = {of for of in {of[:2] for of in regions} if self.regions.rectangular(*of) is None}
        keys = [("region", *of) for of in dict.fromkeys(regions) if of[:2] in hard]
        missing = [key for key in keys if self._found.get(key) is None and key not in self._foreseen]
        found: Any = self.remote("several", tuple(missing)) if len(missing) > 1 else Unanswered("", again=False)
        if not isinstance(found, Unanswered):
            self._foreseen.update(zip(missing, found, strict=True))

    def place(self, argument: int, kind: str, groups: GroupRange) -> tuple[Hashable, int] | None:
        """Return what an exact region has in common with others that are known, and by how many bytes it is moved from
        there; None where that is not known yet. Raises ValueError as :meth:`region`."""
        place = self.regions.place(argument, kind, groups)
        if place is None and (alike := self._found.get(("alike", argument, kind, groups.dimension))) is not None:
            first, end, step = alike
            if first <= groups.first and groups.end <= end:
                return ("alike", argument, kind, groups.dimension, groups.count), groups.first * step
        return place

    def compare(self, argument: int, kind: str, dimension: int) -> None:
        """Find out which groups' regions differ from others' by their place only, so that :meth:`place` knows it."""
        if self.regions.rectangular(argument, kind) is None and not self.summary.failure:
            self._answer("alike", argument, kind, dimension)

    def quick_region(self, argument: int, kind: str) -> Footprint | None:
        """Return :meth:`region` of the whole launch, if it is known already or found out in no time (without isl)."""
        known: Footprint | None = self._found.get(("region", argument, kind, self.launch.whole()))
        return known or self.regions.rectangular(argument, kind)

    @cached_property
    def _counted(self) -> CountedRegions:
        return CountedRegions(self.regions)

    def looked(self, contents: Mapping[int, np.ndarray], budget: int) -> CountedRegions:
        """The regions of the launch with the ``contents`` of index arrays. For the rest, see
        :class:`~manycl.analysis.regions.counted.CountedRegions`."""
        return CountedRegions(self._followed, budget, contents)

    @cached_property
    def _followed(self) -> Regions:
        """The regions by following the launch itself: one that values were put in does not tell where data are from."""
        own = interpret(self._unit, self.facts, self.launch) if self.is_evaluated else None
        return self.regions if own is None else Regions(self.facts, own, self.launch, isl_here=False)

    def split(self, dimension: int) -> Verdict:
        """Return whether work-groups may run apart along a dimension, or why not."""
        found: Verdict = self._answer("split", dimension)
        return found

    def for_all(self, question: str, *arguments: Any) -> Verdict | Repeat | None:
        """The answer for each of the launches that a launch with parameters is, where that is none against them."""
        if question == "split":
            verdict = self.split(*arguments)
            return verdict if verdict.splittable else None
        return self.repeat if question == "repeat" and self.repeat.idempotent else None

    @property
    def splits(self) -> Mapping[int, Verdict]:
        """The verdict on every dimension of the launch."""
        return {d: self.split(d) for d in range(len(self.launch.global_size))}

    @property
    def repeat(self) -> Repeat:
        """The verdict whether the launch may run twice, or why not."""
        found: Repeat = self._answer("repeat")
        return found

    @property
    def out_of_bounds(self) -> tuple[str, ...]:
        """Accesses that certainly leave their memory."""
        return tuple(dict.fromkeys(map(str, self.outside)))

    @property
    def outside(self) -> tuple[Outside, ...]:
        """The accesses of :attr:`out_of_bounds`, as values."""
        return tuple(self._answer("outside"))

    @property
    def may_leave(self) -> bool:
        """True if :attr:`outside` is worth asking: some access is no rectangle, or none that lies in its memory."""
        kinds = [(a, kind) for a in self.regions.buffers for kind in ("read", "write")]
        if not bounds.suspicious(self.summary, self.launch):
            return False
        return bool(self.summary.own) or any(self.regions.rectangular(*k) is None for k in kinds)

    # -- costs

    @cached_property
    def cost(self) -> LaunchCost:
        return LaunchCost(self.summary, self.launch)

    def work(self, groups: GroupRange | None = None) -> Work:
        """Return what some work-groups, or all of them, execute. Raises ValueError for a range outside of the
        launch."""
        return self.cost.work(groups)

    def cost_with(self, contents: Mapping[int, np.ndarray]) -> LaunchCost:
        """The costs of the launch with the contents of arrays (by argument) as it will find them. Raises KeyError for
        an argument that is no buffer, ValueError for one that the kernel may write."""
        buffers = {a.index: a for a in self.facts.arguments if a.kind == "buffer"}
        shared = {*self.launch.same, *self.launch.same.values(), *self.launch.overlapping}
        for index in contents:
            if buffers[index].writes or index in shared:
                raise ValueError(f"the kernel may write {buffers[index].name}: work-items may find other contents")
        return LaunchCost(self.summary, self.launch, {i: data.view("u1").reshape(-1) for i, data in contents.items()})

    @property
    def f(self) -> float:
        """MKMD's f of the whole launch: iterations of its innermost loops per work-item (Section 4, Eq. 1)."""
        return self.work().f

    @cached_property
    def features(self) -> Features:
        """Device-Hopping's features of the launch (Table 1), per work-item."""
        return launch_features(self.cost, self.facts)


def _of_own_memory(facts: KernelFacts, summary: KernelSummary, launch: KnownLaunch, isl_here: bool) -> Regions:
    """Return the regions of what may leave local and private arrays: as if these were buffers."""
    local = (replace(a, kind="buffer", reads=True, writes=True) for a in facts.arguments if a.kind == "local")
    arrays = (
        ArgumentFacts(a.number, a.name, "buffer", "", "", 1, a.size, "private", reads=True, writes=True)
        for a in summary.arrays
        if a.nbytes
    )
    sizes = {**launch.sizes, **summary.nbytes}
    known = tuple(a for a in (*local, *arrays) if a.index in sizes)
    own = replace(launch, sizes=sizes, same={}, overlapping=frozenset())
    return Regions(replace(facts, arguments=known), replace(summary, accesses=summary.own), own, isl_here)
