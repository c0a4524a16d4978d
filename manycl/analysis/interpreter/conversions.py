"""Conversions between types, written and implied; what becomes of addresses in them."""

from __future__ import annotations

import re
from collections.abc import Callable

from manycl.analysis.interpreter.conditions import Conditions
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

_REINTERPRETS = re.compile(rb"as_u?(char|short|int|long|float|double|half)\s*\(")


class Conversions(Conditions):
    """Evaluation of casts, and of the nodes in which libclang shows a conversion that nobody wrote."""

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
        """All memory that a pointer leads to may be read and written."""
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
