"""Expressions of OpenCL C, evaluated abstractly: their values, their side effects, the accesses they make."""

from __future__ import annotations

import re
from collections.abc import Callable

from manycl.analysis.interpreter.abstract import Unanalysable
from manycl.analysis.interpreter.operators import Operators
from manycl.analysis.interpreter.values import FOLLOWED, LOST, OPAQUE, Cell, at, integer
from manycl.analysis.reading.tree import Node
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import of_float

_FLOAT = re.compile(r"(?:(0[xX][\da-fA-F.]+[pP][+-]?\d+)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFlL]?")


class Expressions(Operators):
    """Evaluation of expressions by kind of node. ``call`` is what :mod:`manycl.analysis.interpreter.calls` adds,
    ``execute`` what :mod:`manycl.analysis.interpreter.statements` does."""

    def call(self, node: Node) -> Cell:
        raise NotImplementedError

    def execute(self, node: Node) -> None:
        raise NotImplementedError

    def value(self, node: Node) -> Cell:
        self.step()
        handler = _HANDLERS.get(node.kind)
        if handler is None:
            return self.other(node)
        found = handler(self, node)
        if isinstance(found, Expr) and len(found.key) > x.LONG:
            return self.fresh(found.low, found.high, f"a value that takes too long to write, line {self.line()}")
        return found

    def other(self, node: Node) -> Cell:
        """What is rare: evaluate what is below it and know nothing."""
        if node.kind in ("BLOCK_EXPR", "GCC_ASM_STMT", "ASM_STMT", "MS_ASM_STMT"):
            what = "a block" if node.kind == "BLOCK_EXPR" else "inline assembly"
            raise Unanalysable(f"{what}, line {self.line(node.start)}")
        if node.kind == "STMTEXPR" or node.kind == "STMT_EXPR":
            raise Unanalysable(f"a statement as an expression, line {self.line(node.start)}")
        for child in node.children:
            if not child.kind.endswith(("_ATTR", "_DECL", "TYPE_REF")):
                self.value(child)
        return self.unknown_of(node.type)

    def floating_literal(self, node: Node) -> Cell:
        match = _FLOAT.fullmatch(self.unit.words(node))
        if match is None or not self.floats or node.type.base not in FOLLOWED:
            return OPAQUE
        return of_float(float.fromhex(match[1]) if match[1] else float(match[2])) or OPAQUE

    def literal(self, node: Node) -> Cell:
        if node.type.kind == "float":
            return OPAQUE
        if node.value is None:
            return self.unknown_of(node.type)
        width = integer(node.type)
        return x.const(node.value) if width is None or width[0] == 1 else x.wrap(x.const(node.value), *width)

    def name_of(self, node: Node) -> Cell:
        if node.value is not None:
            return x.const(node.value)
        cell = self.cell(node.ref)
        if cell is not None and self.types[cell].address_space != "local":
            if self.types[cell].kind == "array":
                return at(("var", cell))
            found = self.env.get(cell)
            return self.unknown_of(node.type) if found is None else found
        place = self.place(node)
        return place.pointer if node.type.kind == "array" else self.read(place)

    def parenthesised(self, node: Node) -> Cell:
        return self.value(node.children[-1]) if node.children else OPAQUE


_HANDLERS: dict[str, Callable[[Expressions, Node], Cell]] = {
    "INTEGER_LITERAL": Expressions.literal,
    "FLOATING_LITERAL": Expressions.floating_literal,
    "CHARACTER_LITERAL": Expressions.literal,
    "CXX_BOOL_LITERAL_EXPR": Expressions.literal,
    "CXX_UNARY_EXPR": Expressions.literal,
    "STRING_LITERAL": lambda self, node: LOST,
    "DECL_REF_EXPR": Expressions.name_of,
    "PAREN_EXPR": Expressions.parenthesised,
    "UNEXPOSED_EXPR": Expressions.unexposed,
    "CSTYLE_CAST_EXPR": Expressions.cast,
    "ARRAY_SUBSCRIPT_EXPR": Expressions.loaded,
    "MEMBER_REF_EXPR": Expressions.loaded,
    "UNARY_OPERATOR": Expressions.unary,
    "BINARY_OPERATOR": Expressions.binary,
    "COMPOUND_ASSIGNMENT_OPERATOR": Expressions.compound,
    "CONDITIONAL_OPERATOR": Expressions.conditional,
    "CALL_EXPR": lambda self, node: self.call(node),
    "COMPOUND_LITERAL_EXPR": Expressions.compound_literal,
    "INIT_LIST_EXPR": Expressions.init_list,
}
