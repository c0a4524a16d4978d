"""All that is known of one launch: its regions, hazards and costs, each found out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from manycl.analysis.cost import LaunchCost, Work
from manycl.analysis.facts import KernelFacts
from manycl.analysis.features import Features, launch_features
from manycl.analysis.hazards import Repeat, Split, repeat, split
from manycl.analysis.interpret import Launch, interpret
from manycl.analysis.look import MOST_POINTS, Looked
from manycl.analysis.regions import RANGES_KEPT, Region, Regions
from manycl.analysis.summary import Summary
from manycl.analysis.tree import Unit
from manycl.analysis.walk import Looking
from manycl.kept import Kept

if TYPE_CHECKING:
    import numpy as np


MOST_COUNTED = 1 << 18  # points evaluated for one access that isl is not given: a few milliseconds


#: answers a question (a method or property of LaunchFacts) in another process; None where that was lost
Remote = Callable[[str, tuple[object, ...]], object]


class LaunchFacts:
    """What the analysis says of a launch of a kernel (sizes, scalars and buffers known).

    With ``remote``, whatever needs isl is asked there: on rare inputs it crashes, or takes minutes. Several threads may
    share one; the first answer to a question stays the answer (it may be less exact where time ran out).
    """

    def __init__(self, unit: Unit, facts: KernelFacts, launch: Launch, remote: Remote | None = None) -> None:
        self.remote = remote
        self.facts = facts
        self.launch = launch
        self.summary: Summary = interpret(unit, facts, launch)
        self._splits: dict[int, Split] = {}
        self._found: Kept[tuple[int, str, int, int, int | None], Region] = Kept(RANGES_KEPT)

    @cached_property
    def regions(self) -> Regions:
        return Regions(self.facts, self.summary, self.launch, self.remote is None)

    def _elsewhere(self, question: str, *arguments: object) -> Any:
        """The answer of the process that isl may bring down; None if it did, and where there is nothing to ask."""
        if self.remote is None or self.summary.failure:
            return None
        return self.remote(question, arguments)

    def region(self, argument: int, kind: str, dimension: int = 0, first: int = 0, count: int | None = None) -> Region:
        """The bytes of buffer argument ``argument`` that work-groups [first, first + count) along a dimension read or
        write (``kind``); everything without a count. Raises ValueError for a range outside of the launch, KeyError for
        an argument that is no buffer."""
        key = argument, kind, dimension, first, count
        found = self._found.get(key)
        if found is None:
            found = self.regions.boxed(*key) or self._elsewhere("region", *key) or self.regions.region(*key)
            if not found.exact or not found.tight:
                found = self._counted.counted(*key) or found
            found = self._found.keep(key, found)
        return found

    @cached_property
    def _counted(self) -> Looked:
        """What evaluating all work-items tells, where subscripts are too difficult for isl."""
        return Looked(self._looking, {}, MOST_COUNTED)

    def split(self, dimension: int) -> Split:
        """Whether work-groups may run apart along a dimension, or why not."""
        found = self._splits.get(dimension)
        if found is None:
            found = self._elsewhere("split", dimension) or split(
                self.regions, dimension, lambda sharers: self._counted.counted_apart(sharers, dimension)
            )
            found = self._splits.setdefault(dimension, found)
        return found

    @cached_property
    def splits(self) -> Mapping[int, Split]:
        """The verdict on every dimension of the launch."""
        return {d: self.split(d) for d in range(len(self.launch.global_size))}

    @cached_property
    def repeat(self) -> Repeat:
        """Whether the launch may run twice, or why not."""
        return self._elsewhere("repeat") or repeat(self.regions)

    @cached_property
    def out_of_bounds(self) -> tuple[str, ...]:
        """Accesses that certainly leave their memory."""
        found = self._elsewhere("out_of_bounds")
        return tuple(self.regions.out_of_bounds()) if found is None else tuple(found)

    # -- costs

    @cached_property
    def cost(self) -> LaunchCost:
        return LaunchCost(self.summary, self.launch)

    def work(self, dimension: int = 0, first: int = 0, count: int | None = None) -> Work:
        """What work-groups [first, first + count) along a dimension execute; everything without a count. Raises
        ValueError for a range outside of the launch."""
        return self.cost.work(dimension, first, count)

    def cost_with(self, contents: Mapping[int, np.ndarray]) -> LaunchCost:
        """The costs of the launch with the contents of arrays (by argument) as it will find them. Raises KeyError for
        an argument that is no buffer, ValueError for one that the kernel may write."""
        buffers = {a.index: a for a in self.facts.arguments if a.kind == "buffer"}
        shared = {*self.launch.same, *self.launch.same.values()}
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

    # -- looking at index arrays

    @cached_property
    def _looking(self) -> Looking:
        return Looking(self.regions)

    def wanted(self, argument: int, kind: str) -> tuple[int, ...]:
        """Index arrays (arguments, the first of those that share memory) whose contents, given to :meth:`look`, narrow
        the region of an argument, and make it exact unless something else stands in the way. Empty: nothing to gain."""
        return self._looking.wanted(argument, kind)

    def look(self, contents: Mapping[int, np.ndarray], *, budget: int = MOST_POINTS) -> Looked:
        """The launch with the contents of index arrays (by argument) as it will find them. ``budget``: points (of
        work-items and iterations) that may be evaluated for one access; about 40 bytes each.

        Raises KeyError for an argument that is no buffer, ValueError for one that the kernel may write or for contents
        that are shorter than its memory."""
        return Looked(self._looking, contents, budget, self.region)
