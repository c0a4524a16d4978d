"""Loops that are written with ``goto``, as the loops that they are.

What may be run again is found by the control-flow graph: from a label to the last ``goto`` back to it. That is a loop
with one way in if nothing else jumps between the two (T. A. Proebsting's *natural loop*; Aho, Lam, Sethi and Ullman,
*Compilers*, Section 9.6): the label's statements become the body of one, and a ``goto`` to the label goes on with the
next iteration. All other jumps go on to a label further below, in the same block or in one around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from manycl.analysis.reading.tree import LOOPS, CType, Node, Unit

_LABEL = re.compile(rb"\s*(\w+)\s*:")
_VOID = CType("void", "void")
_TRUE = Node("INTEGER_LITERAL", CType("int", "int", "int", size=4), 0, 0, value=1)


class TangledError(Exception):
    """Jumps, at the byte offset ``start``, that make no loops with one way in."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


def label_of(unit: Unit, node: Node) -> str:
    """The name of a label, or the one that a ``goto`` means."""
    if node.kind == "GOTO_STMT":
        return unit.words(node.children[0]) if node.children else ""
    match = _LABEL.match(unit.text, node.start)
    return match[1].decode() if match else ""


def check(unit: Unit, body: Node) -> None:
    """Raise TangledError for a jump that leads into a block which it does not stand in."""
    pending: list[tuple[Node, frozenset[str]]] = [(body, frozenset())]
    while pending:
        node, known = pending.pop()
        if node.kind == "COMPOUND_STMT":
            known |= {name for child in node.children for name in _labels(unit, child)}
        elif node.kind == "GOTO_STMT" and label_of(unit, node) not in known:
            raise TangledError(node.start)
        pending += [(child, known) for child in node.children if child.kind.endswith("_STMT")]


def structured(unit: Unit, statements: Sequence[Node]) -> tuple[Node, ...]:
    """Return the statements of a block, with loops in place of what ``goto`` runs again. Raises TangledError for a
    loop that is jumped into. The ``name`` of a loop is the label that its iterations begin with."""
    targets = [[label_of(unit, jump) for jump in _jumps(statement)] for statement in statements]
    if not any(targets):
        return tuple(statements)
    names = [_labels(unit, statement) for statement in statements]
    found: list[Node] = []
    first = 0
    while first < len(statements):
        last = _last(names, targets, first)
        if last is None:
            found.append(statements[first])
            first += 1
            continue
        inner = {name for of in names[first + 1 : last + 1] for name in of}
        if any(inner.intersection(of) for of in targets[:first]):
            raise TangledError(statements[first].start)
        found.append(_loop(unit, names[first], statements[first : last + 1]))
        first = last + 1
    for place, (loop, behind) in enumerate(pairwise(found)):
        if loop.kind in LOOPS:
            found[place] = _leaving(unit, loop, _labels(unit, behind))
    return tuple(found)


def _labels(unit: Unit, statement: Node) -> list[str]:
    """The labels that a statement has."""
    found = []
    while statement.kind == "LABEL_STMT":
        found.append(label_of(unit, statement))
        statement = statement.children[-1]
    return found + ([statement.name] if statement.kind in LOOPS and statement.name else [])


def _jumps(statement: Node) -> Iterator[Node]:
    return (node for node in statement.walk() if node.kind == "GOTO_STMT")


def _last(names: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], first: int) -> int | None:
    """The last statement that jumps back to the one at ``first``, or to one between; None where none does."""
    last, place = None, first
    while place <= (first if last is None else last):
        for behind in range(place, len(targets)):
            if set(names[place]).intersection(targets[behind]) and behind > (-1 if last is None else last):
                last = behind
        place += 1
    return last


def _loop(unit: Unit, names: Sequence[str], statements: Sequence[Node]) -> Node:
    """The loop that a labelled statement and those behind it are."""
    head, *rest = statements
    start, end = head.start, statements[-1].end
    while head.kind == "LABEL_STMT":
        head = head.children[-1]
    for statement in statements:
        _stays(statement)
    plain, back = [head, *rest], [jump for s in statements for jump in _jumps(s) if label_of(unit, jump) in names]
    tail = plain[-1]
    if len(back) == 1 and tail is back[0]:
        return _made("WHILE_STMT", names[0], start, end, _TRUE, _block(plain[:-1], start, end))
    if len(back) == 1 and tail.kind == "IF_STMT" and len(tail.children) == 2:
        condition, branch = tail.children
        inside = branch.children if branch.kind == "COMPOUND_STMT" else (branch,)
        if inside and inside[-1] is back[0]:
            if len(inside) == 1:
                return _made("DO_STMT", names[0], start, end, _block(plain[:-1], start, end), condition)
            if len(plain) == 1:
                return _made("WHILE_STMT", names[0], start, end, condition, _block(inside[:-1], start, end))
    done = Node("BREAK_STMT", _VOID, end, end)
    return _made("WHILE_STMT", names[0], start, end, _TRUE, _block([*plain, done], start, end))


def _stays(node: Node, breaks: bool = True, continues: bool = True) -> None:
    """Raise TangledError for a ``break`` or ``continue`` that belongs to a loop, or a switch, around a statement."""
    if (node.kind == "BREAK_STMT" and breaks) or (node.kind == "CONTINUE_STMT" and continues):
        raise TangledError(node.start)
    is_loop = node.kind in LOOPS
    for child in node.children:
        if child.kind.endswith("_STMT"):
            _stays(child, breaks and not is_loop and node.kind != "SWITCH_STMT", continues and not is_loop)


def _made(kind: str, name: str, start: int, end: int, *children: Node) -> Node:
    return Node(kind, _VOID, start, end, children, name)


def _block(statements: Sequence[Node], start: int, end: int) -> Node:
    return Node("COMPOUND_STMT", _VOID, start, end, tuple(statements))


def _leaving(unit: Unit, loop: Node, behind: Sequence[str]) -> Node:
    """The loop, with ``break`` where a jump goes to right behind it."""

    def left(node: Node) -> Node:
        if node.kind == "GOTO_STMT":
            return Node("BREAK_STMT", _VOID, node.start, node.end) if label_of(unit, node) in behind else node
        if node.kind in LOOPS or node.kind == "SWITCH_STMT" or not node.kind.endswith("_STMT"):
            return node
        children = tuple(map(left, node.children))
        return node if all(a is b for a, b in zip(children, node.children, strict=True)) else replace(
            node, children=children
        )  # fmt: skip

    if any(node.kind == "LABEL_STMT" for node in loop.walk()):  # others may become loops, which break would leave
        return loop
    return replace(loop, children=tuple(left(child) for child in loop.children))
