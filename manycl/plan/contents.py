"""Which assignment or move of a plan each byte comes from: derived from the plan and the graph alone.

The judge (``plan/verify.py``) and the replay of plans (``run/replay.py``) share it; no policy uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from manycl.graph.graph import HostTask
from manycl.machine import HOST
from manycl.plan.plan import MERGE, ON_HOST, WHOLE, Assignment, Plan
from manycl.plan.problem import Part, Problem

INITIAL = -1


class Piece(NamedTuple):
    """Bytes ``low`` … ``high - 1`` of a buffer as node ``writer`` left them (INITIAL: as they were at the start) in
    ``memories``, made there by the assignments of the indices ``makers``."""

    low: int
    high: int
    writer: int
    memories: frozenset[int]
    makers: tuple[int, ...]


class Need(NamedTuple):
    """Bytes that an assignment or a move needs, and what brings them: indices of assignments, and of moves counted on
    from the number of assignments. ``missing``: nothing brings (all of) them."""

    buffer: int
    low: int
    high: int
    writer: int
    bringers: tuple[int, ...]
    missing: bool


class Contents:
    """The versions of all buffers of a plan, by the order of the graph (times play no part)."""

    def __init__(self, plan: Plan, problem: Problem) -> None:
        self._plan = plan
        self._problem = problem
        self._of: list[list[int]] = [[] for _ in problem.graph.nodes]
        for index, a in enumerate(plan.assignments):
            self._of[a.node].append(index)
        self._moves: dict[tuple[int, int, int, int], list[int]] = {}
        for index, m in enumerate(plan.moves):
            self._moves.setdefault((m.buffer, m.writer, m.target, m.partial), []).append(index)
        self._before: list[dict[int, tuple[Piece, ...]]] = []
        self._made: dict[tuple[int, int], list[Piece]] = {}
        self._writers: dict[int, list[int]] = {}
        self._walk()

    def members(self, node: int) -> list[int]:
        """Indices of the node's assignments."""
        return self._of[node]

    def memory(self, a: Assignment) -> int:
        return HOST if a.device == ON_HOST else self._problem.machine.devices[a.device].memory

    def needs(self, index: int) -> Iterator[Need]:
        """What an assignment needs to be in its memory before it starts (undefined contents are not needed)."""
        a = self._plan.assignments[index]
        memory = self.memory(a)
        if a.dimension == MERGE:
            yield from self._partial_results(a, memory)
            return
        before = self._before[a.node]
        for key, low, high in self._problem.needs(a.node, a.first, a.groups if a.dimension != WHOLE else 0):
            for piece in before.get(key, ()):
                if piece.low < high and low < piece.high:
                    yield self._bring(key, max(low, piece.low), min(high, piece.high), piece, memory)

    def sources(self, index: int) -> Iterator[Need]:
        """What move ``index`` of the plan needs to be in its source memory before it starts."""
        m = self._plan.moves[index]
        if m.partial >= 0:
            yield self._partial_source(m.buffer, m.writer, m.partial, m.source, m.low, m.high)
            return
        covered = m.low
        pieces = [p for p in self._made.get((m.buffer, m.writer), ()) if p.low < m.high and m.low < p.high]
        for piece in sorted(pieces, key=lambda p: p.low):
            low, high = max(m.low, piece.low), min(m.high, piece.high)
            if low > covered:
                break
            covered = max(covered, high)
            yield self._bring(m.buffer, low, high, piece, m.source)
        if covered < m.high:
            yield Need(m.buffer, covered, m.high, m.writer, (), True)

    def overwriters(self, index: int) -> Iterator[int]:
        """Assignments that write bytes of move ``index`` later than the version it moves."""
        m = self._plan.moves[index]
        if m.partial < 0:
            for writer in self._writers.get(m.buffer, ()):
                if writer > m.writer:
                    for piece in self._made[m.buffer, writer]:
                        if piece.low < m.high and m.low < piece.high:
                            yield from piece.makers

    def others(self, node: int, home: int) -> dict[int, list[int]]:
        """The node's ranges by memory, without those in the memory ``home``: first device and assignments."""
        out: dict[int, list[int]] = {}
        for i in self._of[node]:
            a = self._plan.assignments[i]
            if a.dimension != MERGE and self.memory(a) != home:
                out.setdefault(self.memory(a), []).append(i)
        return out

    # derivation

    def _walk(self) -> None:
        graph, problem = self._problem.graph, self._problem
        now: dict[int, tuple[Piece, ...]] = {}
        for key in graph.buffers:
            first = tuple(Piece(p.low, p.high, INITIAL, p.memories, ()) for p in problem.initial(key))
            if first:
                now[key] = first
                self._made[key, INITIAL] = list(first)
        for node, task in enumerate(graph.nodes):
            self._before.append({key: now[key] for key in {*task.reads, *task.writes} if key in now})
            for key in task.writes:
                new = self._written(node, key)
                self._made[key, node] = new
                self._writers.setdefault(key, []).append(node)
                now[key] = _over(now.get(key, ()), new)
        self._after = now

    def left(self) -> dict[int, tuple[Part, ...]]:
        """Where every byte is when the plan has ended: of each buffer, the parts and the memories that hold them."""
        return {key: self._left(key, pieces) for key, pieces in self._after.items() if pieces}

    def _left(self, key: int, pieces: Sequence[Piece]) -> tuple[Part, ...]:
        moves = [m for m in self._plan.moves if m.buffer == key and m.partial < 0]
        out: list[Part] = []
        for piece in pieces:
            mine = [m for m in moves if m.writer == piece.writer and m.low < piece.high and piece.low < m.high]
            edges = {piece.low, piece.high, *(e for m in mine for e in (m.low, m.high) if piece.low < e < piece.high)}
            for low, high in pairwise(sorted(edges)):
                copied = {m.target for m in mine if m.low <= low and high <= m.high}
                part = Part(low, high, piece.memories | copied)
                if out and out[-1].high == low and out[-1].memories == part.memories:
                    part = Part(out.pop().low, high, part.memories)
                out.append(part)
        return tuple(out)

    def _written(self, node: int, key: int) -> list[Piece]:
        """What the node's assignments leave in a buffer."""
        size = self._problem.graph.buffers[key].nbytes
        members = [(i, self._plan.assignments[i]) for i in self._of[node]]
        merge = [(i, a) for i, a in members if a.dimension == MERGE]
        if merge:
            i, a = merge[0]
            return [Piece(0, size, node, frozenset({self.memory(a)}), (i,))]
        split = self._problem.splits.get(node)
        part = split.slices.get(key) if split is not None else None
        if part is None or isinstance(self._problem.graph.nodes[node], HostTask):
            memories = frozenset(self.memory(a) for _, a in members[:1])
            return [Piece(0, size, node, memories, tuple(i for i, _ in members))]
        out: list[Piece] = []
        for i, a in members:
            whole = a.dimension == WHOLE
            low, high = (0, size) if whole else part.bounds(a.first, a.groups, size)
            out.append(Piece(low, high, node, frozenset({self.memory(a)}), (i,)))
        return sorted(out, key=lambda p: p.low)

    def _bring(self, key: int, low: int, high: int, piece: Piece, memory: int) -> Need:
        if memory in piece.memories:
            return Need(key, low, high, piece.writer, piece.makers, False)
        covered, bringers = low, []
        base, moves = len(self._plan.assignments), self._plan.moves
        for j in sorted(self._moves.get((key, piece.writer, memory, -1), ()), key=lambda j: (moves[j].low, j)):
            if moves[j].low <= covered < moves[j].high:
                bringers.append(base + j)
                covered = moves[j].high
                if covered >= high:
                    break
        return Need(key, low, high, piece.writer, tuple(bringers), covered < high)

    def _partial_results(self, a: Assignment, home: int) -> Iterator[Need]:
        own = [i for i in self._of[a.node] if self._plan.assignments[i].dimension != MERGE]
        here = tuple(i for i in own if self.memory(self._plan.assignments[i]) == home)
        for key in self._problem.graph.nodes[a.node].writes:
            size = self._problem.graph.buffers[key].nbytes
            yield Need(key, 0, size, a.node, here, False)
            for members in self.others(a.node, home).values():
                device = min(self._plan.assignments[i].device for i in members)
                yield self._partial_source(key, a.node, device, home, 0, size)

    def _partial_source(self, key: int, node: int, device: int, memory: int, low: int, high: int) -> Need:
        """A partial result of ``device`` in ``memory``: computed there, or moved there."""
        origin = self._problem.machine.devices[device].memory
        if memory == origin:
            members = [i for i in self._of[node] if self.memory(self._plan.assignments[i]) == origin]
            makers = tuple(i for i in members if self._plan.assignments[i].dimension != MERGE)
            return Need(key, low, high, node, makers, not makers)
        base, moves = len(self._plan.assignments), self._plan.moves
        found = [
            base + j
            for j in self._moves.get((key, node, memory, device), ())
            if moves[j].low <= low and moves[j].high >= high
        ]
        return Need(key, low, high, node, tuple(found[:1]), not found)


def _over(old: tuple[Piece, ...], new: list[Piece]) -> tuple[Piece, ...]:
    """What a buffer holds after ``new`` was written over ``old``."""
    kept: list[Piece] = []
    for piece in old:
        low = piece.low
        for n in new:
            if n.high <= low or n.low >= piece.high:
                continue
            if n.low > low:
                kept.append(piece._replace(low=low, high=n.low))
            low = max(low, n.high)
        if low < piece.high:
            kept.append(piece._replace(low=low))
    return tuple(sorted([*kept, *new], key=lambda p: p.low))
