"""Finds the floating-point arguments of a kernel that decide its accesses: those that become integers or are compared,
without having been computed with data."""

from __future__ import annotations

import re
from collections.abc import Iterable

from manycl.analysis.facts import FLOATS
from manycl.analysis.reading.tree import CType, Function, Node, Unit, callee
from manycl.analysis.symbolic.real import FUNCTIONS

_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
_FOLLOWED = re.compile(rf"get_\w+|convert_\w+|{'|'.join(FUNCTIONS)}")
_LOADS = ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR")


def steering(unit: Unit, kernel: Function, functions: Iterable[Function]) -> frozenset[int]:
    """Return these arguments of a kernel, by their place; ``functions``: it, and what it may call. An argument that is
    missing is one that the analysis need not be told."""
    flow = _Flow(unit, kernel, list(functions))
    return frozenset().union(*(flow.sources(node) or () for node in flow.uses()))


class _Flow:
    """The flow of values between the variables of a kernel, without the order of its statements."""

    def __init__(self, unit: Unit, kernel: Function, functions: list[Function]) -> None:
        self._unit, self._functions = unit, functions
        self._places = {node.ref: place for place, node in enumerate(kernel.parameters)}
        self._made: dict[int, list[Node]] = {}  # of variables, parameters and results of functions, by declaration
        self._sources: dict[int, frozenset[int] | None] = {}
        for function in functions:
            for node in function.nodes:
                self._note(function, node)

    def _note(self, function: Function, node: Node) -> None:
        if node.kind == "VAR_DECL" and node.children:
            self._made.setdefault(node.ref, []).append(node.children[-1])
        elif (node.op == "=" or node.kind == "COMPOUND_ASSIGNMENT_OPERATOR") and node.children[
            0
        ].kind == "DECL_REF_EXPR":
            self._made.setdefault(node.children[0].ref, []).append(node.children[1])
        elif node.kind == "RETURN_STMT" and node.children:
            self._made.setdefault(function.ref, []).append(node.children[0])
        elif (called := self._called(node)) is not None:
            for parameter, argument in zip(called.parameters, node.children[1:], strict=False):
                self._made.setdefault(parameter.ref, []).append(argument)

    def _called(self, node: Node) -> Function | None:
        return self._unit.functions.get(callee(node).ref)

    def uses(self) -> Iterable[Node]:
        """Yield the expressions that turn floating-point numbers into integers or conditions."""
        for function in self._functions:
            for node in function.nodes:
                made_integer = node.type.kind in ("int", "bool", "vector") and not _is_floating(node.type)
                compares = node.op in _COMPARISONS or node.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CALL_EXPR")
                tested = node.kind in ("IF_STMT", "CONDITIONAL_OPERATOR") and _is_floating(node.children[0].type)
                if (made_integer and compares and any(_is_floating(c.type) for c in node.children)) or tested:
                    yield node.children[0] if tested else node

    def sources(self, node: Node) -> frozenset[int] | None:
        """The arguments that a value is made of; None where data, or a loop, have a part in it."""
        if node.kind == "DECL_REF_EXPR":
            return self._of(node.ref) if node.ref else frozenset()
        if node.kind in _LOADS or (node.kind == "UNARY_OPERATOR" and node.op in ("*", "++", "--", "x++", "x--")):
            return None
        called = self._called(node)
        if node.kind == "CALL_EXPR" and called is None and not _FOLLOWED.fullmatch(callee(node).name):
            return None
        found: frozenset[int] = frozenset()
        parts = [self._of(called.ref)] if called is not None else [self.sources(child) for child in node.children]
        for part in parts:
            if part is None:
                return None
            found |= part
        return found

    def _of(self, ref: int) -> frozenset[int] | None:
        if ref in self._places:
            return None if ref in self._made else frozenset([self._places[ref]])
        if ref not in self._sources:
            self._sources[ref] = None  # what is made of itself
            found: frozenset[int] | None = frozenset()
            for node in self._made.get(ref, ()):
                part = self.sources(node)
                found = None if found is None or part is None else found | part
            self._sources[ref] = found
        return self._sources[ref]


def _is_floating(type_: CType) -> bool:
    return type_.kind in ("float", "vector") and type_.base in FLOATS
