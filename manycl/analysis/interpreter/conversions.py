"""Conversions between types, written and implied, and what becomes of addresses in them; conditions, and expressions of
which a part is only evaluated on some condition."""

from __future__ import annotations

import re
from collections.abc import Callable

from manycl.analysis.interpreter.abstract import ControlState, join, meet
from manycl.analysis.interpreter.places import Places
from manycl.analysis.interpreter.values import (
    FLOATING,
    FOLLOWED,
    LOST,
    OPAQUE,
    Aggregate,
    Cell,
    Pointer,
    Value,
    arithmetic_kind,
    integer,
)
from manycl.analysis.reading.tree import CType, Node
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic import real
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import Fresh, Real

COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
_LITERALS = ("INTEGER_LITERAL", "FLOATING_LITERAL", "CHARACTER_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CXX_UNARY_EXPR")
_COMPUTED = (
    "PAREN_EXPR",
    "UNEXPOSED_EXPR",
    "CSTYLE_CAST_EXPR",
    "UNARY_OPERATOR",
    "BINARY_OPERATOR",
    "CONDITIONAL_OPERATOR",
)


_REINTERPRETS = re.compile(rb"as_u?(char|short|int|long|float|double|half)\s*\(")


class Conversions(Places):
    """The truth of expressions; ``&&``, ``||`` and ``?:``; casts, and the nodes that are conversions which nobody
    wrote."""

    constants: dict[int, bool]

    def condition(self, node: Node) -> Expr:
        """The truth of an expression; numbers and pointers are compared with zero."""
        found = self.value(node)
        if not self.silent and not self.is_truth(node):
            self.count(f"compare.{arithmetic_kind(node.type)}")
        if isinstance(found, Expr):
            return x.truth(found)
        if isinstance(found, Real):
            return real.compare("!=", found, Real(x.ZERO), self.rounding)
        if isinstance(found, Pointer):
            return self.fresh(0, 1, f"whether a pointer is null, line {self.line(node.start)}")
        return self.fresh(0, 1, f"a condition on data, line {self.line(node.start)}")

    def is_truth(self, node: Node) -> bool:
        """Return whether an expression needs no comparison with zero to be a condition."""
        while node.kind == "PAREN_EXPR" or (node.kind == "UNEXPOSED_EXPR" and node.type.kind in ("int", "bool")):
            if len(node.children) != 1 or node.children[0].type.kind == "vector":
                break
            node = node.children[0]
        tests = node.kind == "BINARY_OPERATOR" and (node.op in COMPARISONS or node.op in ("&&", "||"))
        negates = node.kind == "UNARY_OPERATOR" and node.op == "!"
        return tests or negates or node.type.kind == "bool" or self.is_constant(node)

    def is_constant(self, node: Node) -> bool:
        """Return whether a compiler computes an expression once and for all: nothing is then executed."""
        found = self.constants.get(id(node))
        if found is None:
            literal = node.kind in _LITERALS or (node.kind == "DECL_REF_EXPR" and node.value is not None)
            made = node.kind in _COMPUTED and all(
                self.is_constant(c) for c in node.children if c.kind not in ("TYPE_REF", "NAMESPACE_REF")
            )
            found = self.constants[id(node)] = literal or (made and bool(node.children))
        return found

    def short_circuit(self, node: Node) -> Cell:
        first, second = node.children
        left = self.condition(first)
        wanted = left if node.op == "&&" else x.negate(left)
        before = self.path
        if before is None:
            return left
        inner = before.where(wanted)
        if inner is None:  # the second is not evaluated
            return x.ZERO if node.op == "&&" else x.ONE
        skipped = ControlState(before, self.copied(self.env)) if inner is not before else None
        self.path = inner
        right = self.condition(second)
        if skipped is not None and self.path is inner and self.env == skipped.env:
            self.path = before  # it had no side effects
        else:
            self.rejoin(x.negate(wanted), skipped)
        return x.both(left, right) if node.op == "&&" else x.either(left, right)

    def rejoin(self, otherwise: Expr, skipped: ControlState | None) -> None:
        """Control meets again after a part that ran only on some condition."""
        if skipped is None:
            return
        rest, states = skipped.path.where(otherwise), list[ControlState]()
        self.note(states)
        if rest is not None:
            states.append(ControlState(rest, skipped.env))
        self.continue_from(states)

    def note(self, states: list[ControlState]) -> None:
        """Add where control is now to the states."""
        if self.path is not None:
            states.append(ControlState(self.path, self.env))

    def continue_from(self, states: list[ControlState]) -> None:
        joined = join(states)
        if joined is None:
            self.path, self.env = None, dict(self.env)
        else:
            self.path, self.env = joined.path, joined.env

    def conditional(self, node: Node) -> Cell:
        condition, first, second = node.children
        if condition.type.kind == "vector":
            for child in node.children:
                self.value(child)
            return self.unknown_of(node.type)
        chosen = self.condition(condition)
        if self.path is None:
            return self.unknown_of(node.type)
        before, env = self.path, self.env
        outcomes: list[tuple[ControlState, Cell]] = []
        for choice, branch in ((chosen, first), (x.negate(chosen), second)):
            path = before.where(choice)
            if path is None:
                continue
            self.path, self.env = path, self.copied(env)
            value = self.place(branch).pointer if branch.type.kind == "array" else self.value(branch)
            if self.path is not None:
                outcomes.append((ControlState(self.path, self.env), value))
        self.continue_from([state for state, _ in outcomes])
        if not outcomes:
            return self.unknown_of(node.type)
        return meet(chosen, outcomes[0][1], outcomes[1][1]) if len(outcomes) > 1 else outcomes[0][1]

    def unexposed(self, node: Node) -> Cell:
        children = node.children
        if len(children) != 1:
            return self.several(node)
        component = self.component(node)
        if component is not None:
            self.here = node.start
            return self.read(component) if component.component is not None or component.lanes else OPAQUE
        return self.converted(node, children[0])

    def several(self, node: Node) -> Cell:
        """C11 atomics come as an expression with all their operands."""
        words = self.unit.words(node)
        pointers = [self.scalar(child) for child in node.children]
        for value in pointers:
            if isinstance(value, Pointer):
                self.anything(value, f"{words.split('(')[0].strip()[:40]}, line {self.line(node.start)}")
        return self.unknown_of(node.type)

    def anything(self, pointer: Pointer, reason: str) -> None:
        """Note that all memory that a pointer leads to may be read and written."""
        for target in pointer.targets:
            kind, index = target.base
            if kind == "var":
                self.env[index] = self.unknown_of(self.types[index])
            elif kind in ("arg", "unknown"):
                where = self.fresh(-x.INFINITE, x.INFINITE, reason)
                self.access(target, "atomic", 1, where, operation="unknown", used=True)
        if any(t.base[0] == "unknown" for t in pointer.targets):
            self.forget_variables()

    def cast(self, node: Node) -> Cell:
        return self.converted(node, node.children[-1]) if node.children else self.unknown_of(node.type)

    def converted(self, node: Node, operand: Node) -> Cell:
        type_ = node.type
        if operand.type.kind == "array" and type_.kind == "pointer":
            found: Cell = self.place(operand).pointer if operand.kind != "STRING_LITERAL" else LOST
        else:
            found = self.value(operand)
        if isinstance(found, Aggregate) or type_.kind in ("record", "union", "array", "function"):
            return found
        if type_.kind in ("void", "opaque", "sampler", "image", "pipe", "other", "block"):
            return found
        if type_.kind == "pointer":
            return found if isinstance(found, Pointer) else LOST
        if isinstance(found, Pointer):
            if type_.kind == "bool":
                return self.fresh(0, 1, f"whether a pointer is null, line {self.line(node.start)}")
            return self.address_as_integer(found, type_, node)
        self.count_conversion(node, operand)
        self.here = node.start
        same_bits = node.kind == "UNEXPOSED_EXPR" and (node.start, node.end) != (operand.start, operand.end)
        if type_.kind == "int" and operand.type.kind == "float":
            return self.as_integer(OPAQUE if same_bits else found, real.truncated, type_)
        if type_.kind == "float":
            return OPAQUE if same_bits else self.as_float(found, operand.type, type_)
        return self.convert(found, type_)

    def as_integer(
        self, value: Value, made: Callable[[Real, Fresh], Expr], type_: CType, saturates: bool = False
    ) -> Value:
        """A floating-point number as an integer of a type: ``made`` from it, which is undefined where the type does not
        hold that, unless it ``saturates``."""
        width = integer(type_)
        if width is None:
            return self.fresh_of(type_)
        low, high = x.type_range(*width)
        if isinstance(value, Real):
            found = made(value, self.rounding)
            if saturates:
                return x.minimum(x.maximum(found, x.const(low)), x.const(high))
            if low <= found.low and found.high <= high and len(found.key) <= x.LONG:
                return found
        return self.fresh(low, high, f"a floating-point number made an integer, line {self.line()}")

    def rounding(self, low: int, high: int) -> Expr:
        """By how much devices may differ, and from what is written."""
        return self.fresh(low, high, f"a rounded floating-point number, line {self.line()}")

    def as_float(self, value: Value, source: CType, type_: CType) -> Value:
        """A number of a type ``source`` as a floating-point number of another type."""
        if not self.floats or type_.base not in FOLLOWED:
            return OPAQUE
        if isinstance(value, Real):
            exact = source.base == type_.base or type_.base == "double"
            return value if exact else real.rounded(value.top, value.bottom, value.error) or OPAQUE
        if isinstance(value, Expr) and source.base not in FLOATING:
            return real.rounded(value) or OPAQUE
        return OPAQUE

    def count_conversion(self, node: Node, operand: Node) -> None:
        """Between numbers of which one is floating, and to truth; others cost nothing."""
        type_ = node.type
        kinds = operand.type.kind, type_.kind
        if self.silent or kinds == ("int", "int") or operand.type.kind not in ("int", "bool", "float", "pointer"):
            return
        if self.is_constant(operand) or operand.kind == "INIT_LIST_EXPR":
            return
        if kinds in (("int", "float"), ("bool", "float"), ("float", "int")):
            if not _REINTERPRETS.match(self.unit.text, node.start):  # as_float and the like show as conversions
                self.count("convert")
        elif kinds == ("float", "float") and operand.type.base != type_.base:
            self.count("convert")
        elif type_.kind == "bool" and not self.is_truth(operand):
            self.count(f"compare.{arithmetic_kind(operand.type)}")

    def address_as_integer(self, pointer: Pointer, type_: CType, node: Node) -> Value:
        for target in pointer.targets:
            if target.base[0] == "var":  # may come back as a pointer
                cell = target.base[1]
                self.env[cell] = self.unknown_of(self.types[cell])
        return self.fresh_of(type_, f"an address, line {self.line(node.start)}")
