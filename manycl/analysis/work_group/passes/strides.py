"""Strides: how far apart the elements are that neighbouring work-items read and write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from manycl.analysis.reading.tree import LOOPS, Function, LoopHead, Node, Unit, assigned, callee, stripped
from manycl.analysis.work_group.passes.uniformity import Uniformity
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import Variable

_KINDS = ("int", "long")
_STEPS = {
    "int": ("int", "short", "char", "uchar", "ushort"),
    "long": ("long", "int", "short", "char", "uchar", "ushort"),
}
"""By a variable's type, those of steps added to it as they are: sums may be in 64 bits, as overflows are undefined."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The variable of a loop: ``value`` at first, then ``step`` more (``down``: less) in each turn; None: one. Written
    as its first value and a number that is the same for the whole group, neighbours' subscripts stay neighbours."""

    loop: Node
    variable: int
    value: Node
    step: Node | None
    down: bool


def stepped(
    unit: Unit, uniformity: Uniformity, variables: dict[int, Variable], loop: Node, head: LoopHead
) -> Stepped | None:
    """Return a loop's variable with its first value and its step, as the loop's head has them; None where something
    else changes the variable, or reads it outside of the loop."""
    if loop.kind != "FOR_STMT" or head.init is None or head.condition is None or head.step is None:
        return None
    ref, value = _first(variables, head.init)
    variable = variables.get(ref)
    if variable is None or value is None or variable.node.type.name not in _KINDS:
        return None
    moves = _moves(head.step, ref)
    if moves is None or variable.escapes or variable.partial or variable.scope is None:
        return None
    step, down = moves
    writes = [head.step] if head.init.kind == "DECL_STMT" else [head.init, head.step]
    if {id(stripped(node)) for node in writes} != {id(node) for node in variable.writes}:
        return None
    if not all(loop.start <= use.start and use.end <= loop.end for use in variable.uses):
        return None
    if any(node.ref == ref and node.kind == "DECL_REF_EXPR" for node in value.walk()):
        return None
    if step is not None and (
        stripped(step).type.name not in _STEPS[variable.node.type.name]
        or not uniformity.same(step)
        or not all(_keeps(variables, node) for node in step.walk())
    ):
        return None
    return Stepped(loop, ref, value, step, down)


def _first(variables: dict[int, Variable], init: Node) -> tuple[int, Node | None]:
    """The one variable that a loop begins with, and its value."""
    if init.kind == "DECL_STMT":
        if len(init.children) == 1 and init.children[0].ref in variables:
            return init.children[0].ref, variables[init.children[0].ref].value
        return -1, None
    node = stripped(init)
    target = assigned(node)
    if target is None or node.kind != "BINARY_OPERATOR" or target.kind != "DECL_REF_EXPR":
        return -1, None
    return target.ref, node.children[1]


def _moves(node: Node, ref: int) -> tuple[Node | None, bool] | None:
    """By what a loop's last part moves a variable, and whether down."""
    node = stripped(node)
    target = assigned(node)
    if target is None or stripped(target).kind != "DECL_REF_EXPR" or stripped(target).ref != ref:
        return None
    if node.kind == "UNARY_OPERATOR":
        return None, "--" in node.op
    if node.kind == "COMPOUND_ASSIGNMENT_OPERATOR":
        return (node.children[1], node.op == "-=") if node.op in ("+=", "-=") else None
    value = stripped(node.children[1])
    if value.kind != "BINARY_OPERATOR" or value.op not in ("+", "-"):
        return None
    left, right = (stripped(child) for child in value.children)
    if left.kind == "DECL_REF_EXPR" and left.ref == ref:
        return value.children[1], value.op == "-"
    if right.kind == "DECL_REF_EXPR" and right.ref == ref and value.op == "+":
        return value.children[0], False
    return None


def _keeps(variables: dict[int, Variable], node: Node) -> bool:
    """Return whether what a step names has one value."""
    variable = variables.get(node.ref)
    return node.kind != "DECL_REF_EXPR" or variable is None or variable.is_constant


FAR = 1 << 20
"""Stands for a distance that is not known, and more than one."""
_DEEP = 32
_TURNS = 16
"""How often a loop is taken to run, whose turns nobody knows."""
_LANES = 16


@dataclass(frozen=True, slots=True)
class Strides:
    """The strides of the subscripts of one kernel, in elements, between neighbours in a dimension."""

    variables: dict[int, Variable]
    uniformity: Uniformity
    stepped: dict[int, Stepped]
    dimension: int = 0

    def found(self, loop: Node) -> set[int | None]:
        """Return the strides of the subscripts of pointers that change from turn to turn; None of those that nothing is
        known of."""
        changing = {node.ref for node in loop.walk() if node.kind == "VAR_DECL"}
        changing |= {stripped(target).ref for node in loop.walk() if (target := assigned(node)) is not None}
        return {
            self._stride(node.children[1])
            for node in loop.walk()
            if node.kind == "ARRAY_SUBSCRIPT_EXPR"
            and stripped(node.children[0]).type.kind == "pointer"
            and any(each.ref in changing for each in node.children[1].walk() if each.kind == "DECL_REF_EXPR")
        }

    def cost(self, kernel: Function) -> float:
        """Return what it costs to read and write vectors of neighbours, relatively: each lane may need a cache line of
        its own. Infinite where nothing is known of a subscript."""
        return sum(self._cost(node, 1.0) for node in kernel.body.children)

    def _cost(self, node: Node, times: float) -> float:
        found = 0.0
        if node.kind == "ARRAY_SUBSCRIPT_EXPR" and stripped(node.children[0]).type.kind == "pointer":
            stride = self._stride(node.children[1])
            found = inf if stride is None else times * min(abs(stride), _LANES)
        inside = times * _TURNS if node.kind in LOOPS else times
        return found + sum(self._cost(child, inside) for child in node.children)

    def _stride(self, node: Node, depth: int = 0) -> int | None:
        """None where nothing is known."""
        node = stripped(node)
        if node.kind == "CSTYLE_CAST_EXPR":
            return self._stride(node.children[-1], depth)
        if depth > _DEEP:
            return None
        if self.uniformity.same(node):
            return 0
        if node.kind == "CALL_EXPR":
            if callee(node).name not in ("get_global_id", "get_local_id"):
                return None
            return int(stripped(node.children[1]).value == self.dimension)
        if node.kind == "DECL_REF_EXPR":
            if node.ref in self.stepped:
                return self._stride(self.stepped[node.ref].value, depth + 1)
            variable = self.variables.get(node.ref)
            if variable is None or variable.value is None or not variable.is_constant:
                return None
            return self._stride(variable.value, depth + 1)
        if node.kind != "BINARY_OPERATOR" or node.op not in ("+", "-", "*"):
            return None
        left, right = (self._stride(child, depth + 1) for child in node.children)
        if left is None or right is None:
            return None
        if node.op == "*":
            return FAR if left or right else 0
        return FAR if FAR in (left, right) else left + right if node.op == "+" else left - right


def best_dimension(kernel: Function, variables: dict[int, Variable], uniformity: Uniformity) -> int:
    """The dimension whose neighbours should be the lanes of vectors: 1 where that is known to be better than 0."""
    first, second = (Strides(variables, uniformity, {}, d).cost(kernel) for d in (0, 1))
    return int(second < first < inf)


_ARITHMETIC = ("+", "-", "*")


def subscripts(root: Node, copies: dict[int, str]) -> Iterator[Edit]:
    """The edits that compute all subscripts and moved pointers below a node in 64 bits. That no ``int`` sum overflows
    is lost when compilers reorder it, and with it that neighbours' elements are neighbours; signed overflow is
    undefined, so these are the same elements. ``copies`` name 64-bit copies of variables."""
    for node in root.walk():
        if node.kind == "ARRAY_SUBSCRIPT_EXPR":
            yield from _wide(node.children[1], copies, True)
        elif node.kind == "BINARY_OPERATOR" and node.op in ("+", "-") and node.type.kind == "pointer":
            for child in node.children:
                if child.type.kind == "int":
                    yield from _wide(child, copies, False)


def _wide(node: Node, copies: dict[int, str], bare: bool) -> Iterator[Edit]:
    """The edits that compute an ``int`` expression in 64 bits, where it is one of sums and products."""
    inner = stripped(node)
    if inner.type.name != "int":
        return
    if inner.kind == "DECL_REF_EXPR" and inner.ref in copies:
        yield inner.start, inner.end, copies[inner.ref]
    elif inner.kind == "BINARY_OPERATOR" and inner.op in _ARITHMETIC:
        for child in inner.children:
            yield from _leaf(child, copies)


def _leaf(node: Node, copies: dict[int, str]) -> Iterator[Edit]:
    inner = stripped(node)
    if inner.type.name == "int" and inner.kind == "BINARY_OPERATOR" and inner.op in _ARITHMETIC:
        for child in inner.children:
            yield from _leaf(child, copies)
    elif inner.kind == "DECL_REF_EXPR" and inner.ref in copies:
        yield inner.start, inner.end, copies[inner.ref]
    elif inner.type.name == "int" or inner.kind == "INTEGER_LITERAL":
        yield inner.start, inner.start, "((long)("
        yield inner.end, inner.end, "))"


def is_wide(node: Node) -> bool:
    """Return whether a variable with this initial value is worth a 64-bit copy."""
    inner = stripped(node)
    return inner.type.name == "int" and inner.kind == "BINARY_OPERATOR" and inner.op in _ARITHMETIC


def leaves(value: Node, copies: dict[int, str]) -> Iterator[Edit]:
    """The edits that compute an ``int`` value in 64 bits."""
    yield from _leaf(value, copies)
