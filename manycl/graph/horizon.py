"""The horizon: how much is collected before it runs without being asked for: programs that enqueue a loop of any length
keep their devices busy meanwhile, and what repeats is met again, part by part. Counted in commands, so that what is
planned together does not depend on how busy the machine is."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.graph.graph import Launch, Node

HORIZON = 4096
"""Commands from which on a part of a program runs by itself: planning fewer together could cost speed."""
LONGEST = 64
"""Commands of a loop's body, at most, for parts to begin where the loop begins again."""


def missing(nodes: Sequence[Node]) -> int:
    """Return how many more commands a part needs that has as many as the horizon, or more, so that the next one is like
    it."""
    body = _body([_kind(node) for node in nodes[-4 * LONGEST :]])
    return -len(nodes) % body


def _kind(node: Node) -> tuple[object, ...]:
    """Return what is the same of a command each time that a loop comes to it."""
    if isinstance(node, Launch):
        return node.name, node.global_size, node.local_size, len(node.args)
    return type(node), node.name


def _body(kinds: Sequence[tuple[object, ...]]) -> int:
    """The length of what is repeated at the end; 1 where nothing is."""
    longest = min(LONGEST, len(kinds) // 2)
    return next((n for n in range(1, longest + 1) if kinds[n:] == kinds[:-n]), 1)
