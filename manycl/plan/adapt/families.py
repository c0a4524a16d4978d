"""Families: kernels of a repeated graph that are cut at the same places, so that no data move between them.

Libsplit adapts one kernel at a time; the stencil and the copy of its Jacobi benchmarks get different splits, and what
one leaves on a device the other needs on another (Section 7). Here kernels are of one *family* where one of them writes
linear regions of a buffer that another reads, in this iteration or the next, and ranges of the one match ranges of the
other over the whole buffer. A family has one cut, in work-groups of the kernel with the fewest (the *leader*), and each
member's groups follow from it by the positions of its linear regions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.plan.problem import Problem
from manycl.plan.split import LinearRegion
from manycl.plan.tuning import ADAPT


class Member(NamedTuple):
    """A kernel of a family: its group g lies at ``scale * g + shift`` in groups of the family's leader."""

    node: int
    groups: int
    scale: float
    shift: float

    def cuts(self, leader: Sequence[int]) -> list[int]:
        """Return the leader's cuts as this kernel's: the first group of each range, and one past the last."""
        inner = (min(max(round((c - self.shift) / self.scale), 0), self.groups) for c in leader[1:-1])
        return [0, *inner, self.groups]


class Family(NamedTuple):
    """Kernels with one cut; the leader first, with scale 1 and shift 0."""

    members: tuple[Member, ...]

    @property
    def leader(self) -> Member:
        return self.members[0]


def families(problem: Problem) -> tuple[Family, ...]:
    """Return the families of the nodes that may be split (often of one node alone), by the number of their first node.
    The graph is taken to be run again and again: its first nodes read what its last nodes write."""
    near: dict[int, list[tuple[int, float, float]]] = {n: [] for n in problem.splits}
    for a, b, scale, shift in _matches(problem):
        near[a].append((b, scale, shift))
        near[b].append((a, 1.0 / scale, -shift / scale))
    out, seen = [], set[int]()
    for node in sorted(near):
        if node in seen:
            continue
        found = {node: Member(node, problem.splits[node].groups, 1.0, 0.0)}
        todo = [node]
        while todo:
            at = found[todo.pop()]
            for other, scale, shift in near[at.node]:
                if other not in found:
                    groups = problem.splits[other].groups
                    found[other] = Member(other, groups, at.scale * scale, at.scale * shift + at.shift)
                    todo.append(other)
        seen.update(found)
        out.append(_led(list(found.values())))
    return tuple(out)


def _led(members: list[Member]) -> Family:
    """Return the family in groups of the kernel that has the fewest, the first of these."""
    leader = min(members, key=lambda m: (m.groups, m.node))
    rest = sorted(m for m in members if m is not leader)
    moved = [
        Member(m.node, m.groups, m.scale / leader.scale, (m.shift - leader.shift) / leader.scale)
        for m in (leader, *rest)
    ]
    return Family(tuple(moved))


def _matches(problem: Problem) -> Iterator[tuple[int, int, float, float]]:
    """Yield pairs (a, b) of nodes of which one writes and one reads linear regions of a buffer: group g of b lies where
    group ``scale * g + shift`` of a does."""
    touch: dict[BufferKey, list[int]] = {}
    for node, split in sorted(problem.splits.items()):
        if split.merge == "none":
            for key in split.regions:
                touch.setdefault(key, []).append(node)
    nodes = problem.graph.nodes
    for key, several in touch.items():
        writers = [n for n in several if key in nodes[n].writes]
        for a in writers:
            for b in several:
                if a != b and key in nodes[b].reads:
                    found = _match(problem, a, b, key)
                    if found is not None:
                        yield (a, b, *found)


def _match(problem: Problem, a: int, b: int, key: BufferKey) -> tuple[float, float] | None:
    mine, theirs = problem.splits[a], problem.splits[b]
    p, q = mine.regions[key], theirs.regions[key]
    if p.stride <= 0 or q.stride <= 0:
        return None
    scale, shift = q.stride / p.stride, (_middle(q) - _middle(p)) / p.stride
    end = scale * theirs.groups + shift
    slack = ADAPT.border * mine.groups + max(1.0, scale)
    return (scale, shift) if abs(shift) <= slack and abs(end - mine.groups) <= slack else None


def _middle(s: LinearRegion) -> float:
    """Return where the first group's own bytes begin: a halo lies on both sides of them."""
    return s.offset + 0.5 * ((s.width or s.stride) - s.stride)
