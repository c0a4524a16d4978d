"""How far apart the elements are that neighbouring work-items read and write."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from manycl.analysis.reading.tree import LOOPS, Function, Node, assigned, callee, stripped
from manycl.analysis.work_group.passes.stepped import Stepped
from manycl.analysis.work_group.passes.uniformity import Uniformity
from manycl.analysis.work_group.syntax import Variable

FAR = 1 << 20
"""Stands for a distance that is not known, and more than one."""
_DEEP = 32
_TURNS = 16
"""How often a loop is taken to run, whose turns nobody knows."""
_LANES = 16


@dataclass(frozen=True, slots=True)
class Strides:
    """Of the subscripts of one kernel, in elements, between neighbours in a dimension."""

    variables: dict[int, Variable]
    uniformity: Uniformity
    stepped: dict[int, Stepped]
    dimension: int = 0

    def found(self, loop: Node) -> set[int | None]:
        """Of the subscripts of pointers that change from turn to turn; None of those that nothing is known of."""
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
        """What it costs to read and write vectors of neighbours, relatively: each lane may need a cache line of its
        own. Infinite where nothing is known of a subscript."""
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
