"""Lineage: what is left to do of a run that was stopped, that is, which steps need not run (again), and where contents
are. Pure.

As memories hold versions of pieces (:mod:`manycl.run.recovery.history`), what a lost device had begun is run again from
the contents that it began with, if these are still anywhere. What only its memory held is made again by the steps that
made it, and by those that made what these need (lineage). A step that changes contents in place, and may have been
interrupted, runs again from what it has left only where running it twice has the effect of running it once
(Device-Hopping, Section 2.2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from manycl.graph.graph import BufferKey, Graph, HostTask
from manycl.machine import HOST, HOST_BIT
from manycl.run.recovery.history import CommandHistory, PieceVersion

_NOTHING: frozenset[int] = frozenset()
Overwrites = Callable[[int, BufferKey], bool]


def nothing_known(step: int, key: BufferKey) -> bool:
    """Return False: it is known of no step that it writes all of a piece."""
    return False


class Unrecoverable(Exception):
    """The error that a run cannot go on. ``keys``: pieces whose contents are gone for good; ``reason`` in words."""

    def __init__(self, keys: Collection[BufferKey], reason: str) -> None:
        super().__init__(reason)
        self.keys, self.reason = tuple(keys), reason


@dataclass(frozen=True)
class Lineage:
    """The lineage of a stopped run. ``done``: steps that need not run again. ``valid``: where pieces that the run
    touches are, as masks (0: nowhere, and no step needs them). ``again``: steps that had run, and run once more.
    ``lost``: pieces that no step needs, whose contents are gone. ``restored``: by piece that is to be in the host's
    memory, the number of the copy kept beside that has it."""

    done: frozenset[int]
    valid: Mapping[BufferKey, int]
    again: frozenset[int]
    lost: frozenset[BufferKey]
    restored: Mapping[BufferKey, int]


def needed(graph: Graph, step: int) -> Set[BufferKey]:
    """Return the pieces whose contents a step must find."""
    task = graph.nodes[step]
    return {*task.reads, *(key for key in task.writes if key not in task.overwrites)}


class _Closure:
    """The set of steps that run (again), extended until all that they need is somewhere."""

    def __init__(self, history: CommandHistory, repeatable: Callable[[int], bool], overwrites: Overwrites) -> None:
        self._history, self._repeatable, self._overwrites = history, repeatable, overwrites
        self._graph, self._done = history.graph, history.done
        self._needs = [needed(self._graph, step) for step in range(len(self._graph.nodes))]
        self._touching: dict[BufferKey, list[int]] = {key: [] for key in self._graph.buffers}
        for step, task in enumerate(self._graph.nodes):
            for key in self._needs[step] | {*task.writes}:
                self._touching[key].append(step)
        self._run = set(range(len(self._graph.nodes))) - self._done
        self._masks: dict[BufferKey, int] = {}
        self._lost: set[BufferKey] = set()
        self._restored: dict[BufferKey, int] = {}

    def result(self) -> Lineage:
        pending = set(self._graph.buffers)
        while pending:
            new = self._settle(pending.pop())
            for step in new:
                self._check(step)
            self._run |= new
            pending.update(key for step in new for key in (*self._needs[step], *self._graph.nodes[step].writes))
        again = frozenset(self._run & self._done)
        done = frozenset(range(len(self._graph.nodes))) - self._run
        return Lineage(done, self._masks, again, frozenset(self._lost), self._restored)

    def _check(self, step: int) -> None:
        task = self._graph.nodes[step]
        if isinstance(task, HostTask) and step in self._done:
            raise Unrecoverable(task.writes, f"host function {task.name} would have to be called again")

    def _settle(self, key: BufferKey) -> set[int]:
        """Note where a piece is, for the first step that runs and touches it. Return the steps to run besides."""
        groups = self._history.writers.get(key, [])
        first = next((step for step in self._touching[key] if step in self._run), None)
        self._lost.discard(key)
        if first is None:
            return self._final(key, groups)
        number = next((n for n, group in enumerate(groups) if max(group) >= first), len(groups))
        if number < len(groups) and first not in groups[number] and min(groups[number]) < first:
            # (a step that reads what joint writers write comes before or after all of them)
            raise Unrecoverable((key,), "the order of steps that were interrupted is not known")
        begun = number < len(groups) and first in groups[number]
        later = {step for group in groups[number + begun :] for step in group} - self._run
        if later:  # their results would be undone
            return later
        there = groups[number] - self._run if begun else _NOTHING
        if begun and not there and all(self._needs_not(s, key) for s in groups[number]):
            self._masks[key] = self._where(key, PieceVersion(number), _NOTHING)  # it is overwritten, wherever it is
            return set()
        return self._somewhere(key, groups, PieceVersion(number, there), groups[number] if begun else _NOTHING)

    def _needs_not(self, step: int, key: BufferKey) -> bool:
        """Return whether a step that writes a piece does not need its old contents."""
        if key not in self._needs[step]:
            return True
        return key not in self._graph.nodes[step].reads and self._overwrites(step, key)

    def _final(self, key: BufferKey, groups: list[frozenset[int]]) -> set[int]:
        """Note where a piece is that no step touches any more. Return the steps that make it."""
        mask = self._where(key, PieceVersion(len(groups)), _NOTHING)
        self._masks[key] = mask
        if not mask and groups:
            return set(groups[-1])
        if not mask and key in self._history.is_defined:
            self._lost.add(key)
        return set()

    def _somewhere(
        self, key: BufferKey, groups: list[frozenset[int]], wanted: PieceVersion, writing: frozenset[int]
    ) -> set[int]:
        """Note where a version is, for steps that write it next or, if there are none, for one that reads it. Return
        the steps that have to make it."""
        self._masks[key] = mask = self._where(key, wanted, writing)
        if mask:
            return set()
        if wanted.also:
            return set(wanted.also)  # all joint writers begin anew
        if wanted.number == 0:
            if key not in self._history.is_defined:
                return set()
            raise Unrecoverable((key,), "its contents are gone, and nothing in this run makes them again")
        return set(groups[wanted.number - 1])

    def _where(self, key: BufferKey, wanted: PieceVersion, writing: frozenset[int]) -> int:
        """Return the mask of the memories that hold a version; if only a copy does, the host's, to be put back to."""
        mask = 0
        self._restored.pop(key, None)
        for place, version in self._history.held[key].items():
            if (
                version[:2] != wanted[:2]
                or not version.begun <= writing
                or not all(map(self._repeatable, version.begun))
            ):
                continue
            if place >= HOST:
                mask |= 1 << place
            else:
                self._restored[key] = place
        if mask:
            self._restored.pop(key, None)
        return mask or (HOST_BIT if key in self._restored else 0)


def rest_of(
    history: CommandHistory, repeatable: Callable[[int], bool], overwrites: Overwrites = nothing_known
) -> Lineage:
    """Return what is left to do of a run. ``repeatable(step)``: whether a step may run on what it has left when it was
    interrupted; ``overwrites(step, key)``: whether it is known to write all of a piece that it does not read. Raises
    Unrecoverable."""
    return _Closure(history, repeatable, overwrites).result()
