"""The lowering cache: steps of plans that have run, for when they run again, as lowering takes time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Set
from typing import TYPE_CHECKING

from manycl.graph.graph import BufferKey, Graph, same_graph
from manycl.graph.rename import keys_of
from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan, same_plan
from manycl.plan.problem import Problem
from manycl.run.data.coherence import Directory
from manycl.run.data.contents import HostContents
from manycl.run.lowering.lower import lower
from manycl.run.lowering.steps import ANYWHERE, Lowered
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
        is_plain = not (limits or directory.valid_regions or graph.parts or graph.own)
        if is_plain and (plan is None or not plan.is_split):
            return lower(problem, plan, directory)
        demanded = problem.demanded if plan is not None and plan.movable else frozenset()  # (decides the chunks)
        for graph, known, kept, asked, lowered in self._kept:
            is_same = kept == limits and asked == demanded and (known is plan or (limits and same_plan(known, plan)))
            if is_same and same_graph(graph, problem.graph) and lowered.fits(directory):
                return lowered
        others = None if limits or demanded or plan is None else self._on_others(problem.graph, plan, directory)
        lowered = others or lower(problem, plan, directory, limits, self._contents)
        for buffer in lowered.temporaries if not self._has(lowered) else ():
            self._memory.create(buffer.key, buffer.nbytes, buffer.name)
        if len(self._kept) >= PLANS:
            self._forget(lowered)
        for window in lowered.room.windows.values() if lowered.room is not None else ():
            self._memory.create_window(window.key, window.nbytes, self._memory.name(window.whole))
        if lowered.steps:
            self._kept.append((problem.graph, plan, limits, demanded, lowered))
        return lowered

    def _on_others(self, graph: Graph, plan: Plan, directory: Directory) -> Lowered | None:
        """Return steps that were made ahead, or are cached, for the same graph, maybe on other buffers."""
        ahead, self._ahead = self._ahead, None
        found = [(ahead[0], ahead[2])] if ahead is not None and ahead[1] is plan else []
        found += [
            (of, lowered) for of, known, limits, asked, lowered in self._kept if known is plan and not (limits or asked)
        ]
        for of, lowered in found:
            keys = keys_of(of, graph)
            steps = None if keys is None else lowered.on(keys, graph.buffers)
            if steps is not None and steps.fits(directory):
                return steps
        return None

    def _has(self, lowered: Lowered) -> bool:
        """Return whether steps with the same temporary buffers are cached."""
        own = lowered.temporaries
        return bool(own) and any(kept.temporaries is own for *_, kept in self._kept)

    def lower_ahead(self, problem: Problem, plan: Plan, directory: Directory, given: Set[BufferKey]) -> Lowered | None:
        """Make the steps of a plan that will be asked for, in any thread, and return them; None where memory limits
        them, or contents may decide them that nobody has looked at. ``given``: buffers that get their contents before
        each run, in any memories. Raises what lowering raises."""
        if not plan.is_split or limited(problem, plan):
            return None
        contents = self._contents.known
        lowered = lower(problem, plan, directory, {}, contents)
        if contents.has_missed:
            return None
        lowered.state.update({key: (along, ANYWHERE) for key, (along, _) in lowered.state.items() if key in given})
        self._ahead = problem.graph, plan, lowered
        return lowered

    def of(self, plan: Plan) -> list[Lowered]:
        """Return the cached steps of a plan, for different buffers."""
        ahead = self._ahead
        cached = [(known, lowered) for _, known, _, _, lowered in self._kept]
        return [lowered for known, lowered in (*cached, *((ahead[1:],) if ahead else ())) if known is plan]

    def has(self, graph: Graph, plan: Plan) -> bool:
        """Return whether a plan for a graph has steps here."""
        return any(of is graph and known is plan for of, known, *_ in self._kept)

    def exists(self, lowered: Lowered) -> bool:
        """Return whether what steps have allocated still exists."""
        return any(kept is lowered for *_, kept in self._kept)

    def clear(self) -> None:
        """Drop all steps, as the devices have changed."""
        self._ahead = None
        while self._kept:
            self._forget()

    def _forget(self, wanted: Lowered | None = None) -> None:
        """Drop the oldest steps, but no temporary buffers that ``wanted`` or other steps have, too."""
        *_, old = self._kept.popleft()
        if self._has(old) or (old.temporaries and wanted is not None and wanted.temporaries is old.temporaries):
            return
        self._discard(*(b.key for b in old.temporaries), *(old.room.windows if old.room is not None else ()))
