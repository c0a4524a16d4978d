"""The lowering cache: steps of plans that have run, for when they run again, as lowering takes time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from manycl.graph.graph import Graph, same_graph
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan, same_plan
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.data.contents import HostContents
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import Lowered
from manycl.run.tiling.limits import limited
from manycl.utilities.kept import PLANS

if TYPE_CHECKING:
    from manycl.run.data.memory import Memory


class LoweringCache:
    """The cached steps of plans with ranges, or in little memory. What steps allocate beside the graph's buffers lives
    as long as they are cached; then ``discard`` is called with its keys."""

    def __init__(self, memory: Memory, discard: Callable[..., None]) -> None:
        self._memory = memory
        self._discard = discard
        self._contents = HostContents(memory)
        self._kept: deque[tuple[Graph, Plan | None, dict[DeviceIndex, int], Collection[DeviceIndex], Lowered]] = deque()
        self._ahead: tuple[Graph, Plan, Lowered] | None = None

    def lower(self, problem: Problem, plan: Plan | None, directory: Directory) -> Lowered:
        """Return the steps from the cache, or new ones."""
        limits = limited(problem, plan) if not problem.roomy else {}
        graph = problem.graph
        is_plain = not (limits or directory.parts or graph.parts or graph.own)
        if is_plain and (plan is None or not plan.is_split):
            return lower(problem, plan, directory)
        demanded = problem.demanded if plan is not None and plan.movable else frozenset()  # (decides the chunks)
        for graph, known, kept, asked, lowered in self._kept:
            is_same = kept == limits and asked == demanded and (known is plan or (limits and same_plan(known, plan)))
            if is_same and same_graph(graph, problem.graph) and lowered.fits(directory):
                return lowered
        if len(self._kept) >= PLANS:
            self._forget()
        ahead, self._ahead = self._ahead, None
        is_asked = ahead is not None and ahead[1] is plan and not limits and not demanded
        if ahead is not None and is_asked and same_graph(ahead[0], problem.graph) and ahead[2].fits(directory):
            lowered = ahead[2]
        else:
            lowered = lower(problem, plan, directory, limits, self._contents)
        for buffer in lowered.temporaries:
            self._memory.create(buffer.key, buffer.nbytes, buffer.name)
        for window in lowered.room.windows.values() if lowered.room is not None else ():
            self._memory.create_window(window.key, window.nbytes, self._memory.name(window.whole))
        if lowered.steps:
            self._kept.append((problem.graph, plan, limits, demanded, lowered))
        return lowered

    def lower_ahead(self, problem: Problem, plan: Plan, directory: Directory) -> Lowered | None:
        """Make the steps of a plan that will be asked for, in any thread, and return them; None where memory limits
        them, or contents may decide them that nobody has looked at. Raises what lowering raises."""
        if not plan.is_split or limited(problem, plan):
            return None
        contents = self._contents.known
        lowered = lower(problem, plan, directory, {}, contents)
        if contents.has_missed:
            return None
        self._ahead = problem.graph, plan, lowered
        return lowered

    def exists(self, lowered: Lowered) -> bool:
        """Return whether what steps have allocated still exists."""
        return any(kept is lowered for *_, kept in self._kept)

    def clear(self) -> None:
        """Drop all steps, as the devices have changed."""
        self._ahead = None
        while self._kept:
            self._forget()

    def _forget(self) -> None:
        """Drop the oldest steps."""
        *_, old = self._kept.popleft()
        self._discard(*(b.key for b in old.temporaries), *(old.room.windows if old.room is not None else ()))
