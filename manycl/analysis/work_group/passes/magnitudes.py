"""Sines of what is certainly not huge: the angles that huge ones need are then not computed. Built-in functions have
one way for all arguments, since loops become vectors. For ``cos(6.28f * (float)i / n)`` with an ``int`` ``i``, the way
for huge ones is never taken, and costs as much as the rest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from manycl.analysis.reading.tree import Function, Node, Unit, callee
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import Variable

NEAR = 2.0**48
"""Angles below, infinities and NaN have their sines from the functions for what is near (``manycl_near_sin``)."""
_FUNCTIONS = ("sin", "cos")
_DEEP = 32
_INTEGERS = ("int", "bool")
_CONVERTING = ("PAREN_EXPR", "UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR")


def near_angles(unit: Unit, kernel: Function, variables: dict[int, Variable]) -> Iterator[Edit]:
    """The edits of the names of functions of floats whose arguments are certainly near, infinite, or NaN."""
    for node in kernel.nodes:
        function = callee(node)
        if function.name not in _FUNCTIONS or function.ref in unit.declared:
            continue
        argument = node.children[-1]
        if argument.type.name != "float" or unit.words(function) != function.name:
            continue
        if _most(unit, argument, variables, 0) < NEAR:
            yield function.start, function.end, f"manycl_near_{function.name}"


def _most(unit: Unit, node: Node, variables: dict[int, Variable], depth: int) -> float:
    """No value of a node that is finite is larger, or smaller than this negated; of floats, with rounding."""
    if depth > _DEEP:
        return math.inf
    if _is_converted(unit, node):
        child = node.children[-1]
        if node.type.kind == "float" and child.type.kind in ("float", *_INTEGERS):
            return _most(unit, child, variables, depth + 1) * 1.001
    if node.type.kind in _INTEGERS:
        return _most_of_integer(node)
    if node.type.kind != "float":
        return math.inf
    if node.kind == "FLOATING_LITERAL":
        return _literal(unit, node)
    if node.kind == "DECL_REF_EXPR":
        variable = variables.get(node.ref)
        if variable is None or variable.value is None or not variable.is_constant:
            return math.inf
        return _most(unit, variable.value, variables, depth + 1)
    if node.kind == "UNARY_OPERATOR" and node.op in ("-", "+"):
        return _most(unit, node.children[0], variables, depth + 1)
    if node.kind != "BINARY_OPERATOR" or node.op not in ("+", "-", "*", "/"):
        return math.inf
    left = _most(unit, node.children[0], variables, depth + 1)
    if node.op == "/":
        return left / _least(unit, node.children[1]) * 1.001
    right = _most(unit, node.children[1], variables, depth + 1)
    return (left * right if node.op == "*" else left + right) * 1.001


def _is_converted(unit: Unit, node: Node) -> bool:
    """Whether a node has its child's value, as another type perhaps: not its bits."""
    if node.kind not in _CONVERTING or not node.children:
        return False
    return not unit.text.startswith(b"as_", node.start)


def _most_of_integer(node: Node) -> float:
    while node.kind in _CONVERTING and len(node.children) == 1:
        child = node.children[0]
        if child.type.kind not in _INTEGERS or child.type.size > node.type.size:
            break
        node = child
    limit = 2.0 ** (8 * node.type.size) if node.type.size else math.inf
    if node.kind == "BINARY_OPERATOR" and node.op == ">>" and node.children[0].type.name.startswith("u"):
        by = node.children[1].value
        if node.children[1].kind == "INTEGER_LITERAL" and by is not None and by < 8 * node.type.size:
            return limit / 2.0**by
    return limit


def _least(unit: Unit, node: Node) -> float:
    """No value of a divisor is nearer to 0, but 0 itself."""
    while _is_converted(unit, node):
        if node.children[-1].type.kind in _INTEGERS:
            return 0.999
        node = node.children[-1]
    found = _literal(unit, node) if node.kind == "FLOATING_LITERAL" else 0.0
    return found if found else 1e-300


def _literal(unit: Unit, node: Node) -> float:
    text = unit.words(node).lower().removesuffix("f")
    try:
        return float.fromhex(text) if text.startswith("0x") else float(text)
    except ValueError:
        return math.inf
