"""Barriers that order nothing: before which, or behind which, no work-item uses memory."""

from __future__ import annotations

import re

from manycl.analysis.reading.tree import Node, Unit, callee, stripped
from manycl.analysis.regions.barriers import BARRIER, TOGETHER
from manycl.analysis.texts.rewrite import apply_edits
from manycl.analysis.work_group.reading import read_again
from manycl.analysis.work_group.syntax import statements

_PLAIN = ("int", "float", "bool", "vector")


def without_needless(unit: Unit, kernel: str) -> Unit:
    """The unit without the barriers of a kernel that order nothing."""
    root = unit.kernel(kernel)
    if not any(_is_barrier(unit, node) for node in root.body.children):
        return unit
    found = statements(unit, root.body)
    uses = [not _is_barrier(unit, s.node) and _uses_memory(unit, s.node, set()) for s in found]
    edits = [
        (
            statement.start,
            statement.end,
            re.sub(r"[^\n]", "", unit.text[statement.start : statement.end].decode()) + ";",
        )
        for index, statement in enumerate(found)
        if _is_barrier(unit, statement.node) and not (any(uses[:index]) and any(uses[index + 1 :]))
    ]
    return read_again(unit, apply_edits(unit.text, edits)) if edits else unit


def _is_barrier(unit: Unit, node: Node) -> bool:
    named = callee(stripped(node))
    return BARRIER.fullmatch(named.name) is not None and named.ref not in unit.declared


def _uses_memory(unit: Unit, root: Node, seen: set[int]) -> bool:
    """Whether memory may be used that other work-items may use, or they may be waited for, below a node and in the
    functions that are called there."""
    for node in root.walk():
        if node.kind == "ARRAY_SUBSCRIPT_EXPR" or (node.kind == "UNARY_OPERATOR" and node.op == "*"):
            return True
        if node.kind == "MEMBER_REF_EXPR" and (not node.children or node.children[0].type.kind == "pointer"):
            return True
        if node.kind == "DECL_REF_EXPR" and node.type.kind not in (*_PLAIN, "pointer", "function"):
            return True  # an array, or what holds one
        if node.kind == "CALL_EXPR" and _call_uses_memory(unit, node, seen):
            return True
    return False


def _call_uses_memory(unit: Unit, call: Node, seen: set[int]) -> bool:
    named = callee(call)
    if not named.name or TOGETHER.fullmatch(named.name):
        return True
    function = unit.functions.get(named.ref)
    if function is None:
        return named.ref in unit.declared or any(stripped(a).type.kind not in _PLAIN for a in call.children[1:])
    if named.ref in seen:
        return False
    seen.add(named.ref)
    return _uses_memory(unit, function.body, seen)
