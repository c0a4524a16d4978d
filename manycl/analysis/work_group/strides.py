"""How far apart the elements are that neighbouring work-items read and write."""

from __future__ import annotations

from dataclasses import dataclass

from manycl.analysis.tree import Node
from manycl.analysis.work_group.stepped import Stepped
from manycl.analysis.work_group.syntax import Variable, assigned, callee, stripped
from manycl.analysis.work_group.uniformity import Uniformity

FAR = 1 << 20
"""Stands for a distance that is not known, and more than one."""
_DEEP = 32


@dataclass(frozen=True, slots=True)
class Strides:
    """Of the subscripts of one kernel, in elements, between neighbours in dimension 0."""

    variables: dict[int, Variable]
    uniformity: Uniformity
    stepped: dict[int, Stepped]

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
            function = callee(node)
            if function is None or function.name not in ("get_global_id", "get_local_id"):
                return None
            return int(stripped(node.children[1]).value == 0)
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
