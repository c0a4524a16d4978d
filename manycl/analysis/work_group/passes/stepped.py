"""Loops whose variable starts differently in each work-item and moves alike in all of them. ``for (int k =
get_global_id(0); k < n; k++)``: after so many turns, the variable is its first value and a number, the same for the
whole group, more. Written so, neighbours' subscripts stay neighbours, which a variable that each work-item counts up
for itself does not show."""

from __future__ import annotations

from dataclasses import dataclass

from manycl.analysis.reading.tree import LoopHead, Node, Unit, assigned, stripped
from manycl.analysis.work_group.passes.uniformity import Uniformity
from manycl.analysis.work_group.syntax import Variable

_KINDS = ("int", "long")
_STEPS = {
    "int": ("int", "short", "char", "uchar", "ushort"),
    "long": ("long", "int", "short", "char", "uchar", "ushort"),
}
"""By a variable's type, those of steps added to it as they are: sums may be in 64 bits, as overflows are undefined."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """The variable of a loop: ``value`` at first, then ``step`` more (``down``: less) in each turn; None: one."""

    loop: Node
    variable: int
    value: Node
    step: Node | None
    down: bool


def stepped(
    unit: Unit, uniformity: Uniformity, variables: dict[int, Variable], loop: Node, head: LoopHead
) -> Stepped | None:
    """What a loop's head says of its variable, which nothing else changes and nothing outside of the loop reads."""
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
    """Whether what a step names has one value."""
    variable = variables.get(node.ref)
    return node.kind != "DECL_REF_EXPR" or variable is None or variable.is_constant
