"""Expressions of OpenCL C, evaluated abstractly: their values, their side effects, the accesses they make. Operators
(arithmetic, comparisons, assignments) lane by lane where operands are vectors."""

from __future__ import annotations

import re
from collections.abc import Callable

from manycl.analysis.interpreter.abstract import FLOATING_STEPS, Unanalysable
from manycl.analysis.interpreter.conversions import COMPARISONS, Conversions
from manycl.analysis.interpreter.values import (
    FLOATING,
    FOLLOWED,
    LOST,
    OPAQUE,
    Aggregate,
    Cell,
    Pointer,
    Value,
    Vector,
    arithmetic,
    arithmetic_kind,
    at,
    blank,
    compare,
    integer,
    lane_type,
)
from manycl.analysis.reading.tree import CType, Node
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic import real
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import Real, of_float

INT = CType("int", "int", "int", size=4)
_RANKS = {"bool": 0, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 3, "uint": 3, "long": 4, "ulong": 4}
_NAMES = {
    "+": "add",
    "-": "add",
    "*": "mul",
    "/": "div",
    "%": "div",
    "<<": "shift",
    ">>": "shift",
    "&": "logic",
    "|": "logic",
    "^": "logic",
}
_OF_REALS: dict[str, Callable[[Real, Real], Real | None]] = {
    "+": real.add,
    "-": lambda left, right: real.add(left, real.negated(right)),
    "*": real.mul,
    "/": real.divide,
}
_FLOAT = re.compile(r"(?:(0[xX][\da-fA-F.]+[pP][+-]?\d+)|((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFlL]?")


class Expressions(Conversions):
    """Evaluation of expressions by kind of node. ``call`` is what :mod:`manycl.analysis.interpreter.calls` adds,
    ``execute`` what :mod:`manycl.analysis.interpreter.statements` does. Signed overflow, which is undefined, makes a
    value unknown in a launch."""

    lossy = 0  # operations whose result was given up although their operands are known
    discovering = 0

    def unary(self, node: Node) -> Cell:
        operand, op = node.children[0], node.op
        if op == "&":
            place = self.place(operand)
            if place.lanes and len(place.lanes) == 1:
                return place.pointer.moved(x.const(place.lanes[0] * lane_type(place.type).size))
            return place.pointer
        if op == "*":
            return self.loaded(node)
        if op in ("x++", "x--", "++x", "--x", "++", "--"):
            return self.stepped(node, operand)
        if op == "!":
            if operand.type.kind == "vector":
                self.value(operand)
                return self.unknown_of(node.type)
            return x.negate(self.condition(operand))
        found = self.scalar(operand)
        if op in ("+", "?"):
            return found
        type_ = node.type
        if not self.is_constant(node):
            kind = arithmetic_kind(type_)
            self.count(f"{kind}.neg" if kind != "int" else "int.add" if op == "-" else "int.logic", type_.lanes)
        return self.lanewise(lambda a: self.negated(op, a, type_), found)

    def negated(self, op: str, value: Value, type_: CType) -> Value:
        if type_.base in FLOATING:
            return real.negated(value) if isinstance(value, Real) and op == "-" else OPAQUE
        width = integer(type_)
        if not isinstance(value, Expr) or width is None:
            return self.fresh_of(lane_type(type_) if type_.kind == "vector" else type_)
        if op == "~":
            result = x.subtract(x.const(-1), value)
        elif op == "-":
            result = x.scale(value, -1)
        else:
            return self.fresh(*x.type_range(*width))
        return self.fitted(result, *width)

    def fitted(self, value: Expr, bits: int, signed: bool) -> Expr:
        """The result of arithmetic in a type. Signed overflow is undefined, and compilers use that: in a launch
        nothing is then known of the value; the symbolic form assumes that there is none."""
        low, high = x.type_range(bits, signed)
        if low <= value.low and value.high <= high:
            return value
        if not self.concrete:
            return value
        if signed and (self.discovering or _wide_alone(value, low, high)):
            return value  # what a loop changes is found out with symbols of any value
        if signed:
            self.lossy += 1
            return self.fresh(low, high, f"arithmetic that may overflow, line {self.line()}")
        return x.wrap(value, bits, signed)

    def lanewise(self, function: Callable[[Value], Value], value: Value) -> Value:
        return Vector(tuple(map(function, value.lanes))) if isinstance(value, Vector) else function(value)

    def stepped(self, node: Node, operand: Node) -> Cell:
        """``++`` and ``--``, before and after."""
        place = self.place(operand)
        self.here = node.start
        before = self.read(place)
        sign = 1 if "++" in node.op else -1
        type_ = operand.type
        if isinstance(before, Pointer):
            after: Cell = self.moved(before, x.const(sign), (type_.target or type_).size)
        elif isinstance(before, Aggregate):
            after = blank()
        elif type_.base in FLOATING:
            self.count(f"{type_.base}.add", type_.lanes)
            after = self.lanewise(lambda a: self.floating("+", a, Real(x.const(sign)), type_), before)
        else:
            self.count("int.add", type_.lanes)
            after = self.lanewise(lambda a: self.plus(a, sign, type_), before)
        self.write(place, after)
        return before if node.op.startswith("x") else after

    def plus(self, value: Value, amount: int, type_: CType) -> Value:
        width = integer(type_)
        if not isinstance(value, Expr) or width is None:
            return self.fresh_of(lane_type(type_) if type_.kind == "vector" else type_)
        result = x.add(value, x.const(amount))
        if self.concrete and width[0] < 32:  # computed as int, then narrowed
            return x.wrap(result, *width)
        return self.fitted(result, *width)

    def assigned(self, node: Node) -> Cell:
        target, operand = node.children
        value = self.value(operand)
        place = self.place(target)
        self.here = node.start
        self.write(place, value)
        return value

    def compound(self, node: Node) -> Cell:
        """``x op= y``."""
        target, operand = node.children
        amount = self.scalar(operand)
        place = self.place(target)
        self.here = node.start
        before = self.read(place)
        op = node.op.removesuffix("=")
        type_ = target.type
        if isinstance(before, Pointer):
            number = amount if isinstance(amount, Expr) else self.fresh(-x.INFINITE, x.INFINITE)
            after: Cell = self.moved(before, number if op == "+" else x.scale(number, -1), (type_.target or type_).size)
        elif isinstance(before, Aggregate):
            after = blank()
        else:
            computed = self.computed_in(op, type_, operand.type)
            self.count_arithmetic(op, computed)
            result = self.operated(
                op,
                self.convert(before, computed),
                self.convert(amount, computed) if op not in ("<<", ">>") else amount,
                computed,
            )
            narrows = type_.kind == computed.kind == "float"
            after = self.as_float(result, computed, type_) if narrows else self.convert(result, type_)
        self.write(place, after)
        return after

    @staticmethod
    def computed_in(op: str, target: CType, operand: CType) -> CType:
        """The type in which a compound assignment computes."""
        if target.kind == "vector":
            return target
        if op in ("<<", ">>"):
            return target if _RANKS.get(target.base, 9) >= 3 else INT
        if operand.kind in ("float", "vector"):
            return operand
        if target.kind == "float":
            return target
        return operand if _RANKS.get(operand.base, 0) >= 3 else INT

    def binary(self, node: Node) -> Cell:
        op = node.op
        if op == "=":
            return self.assigned(node)
        if op == ",":
            self.value(node.children[0])
            return self.value(node.children[1])
        if op in ("&&", "||") and node.type.kind != "vector":
            return self.short_circuit(node)
        if op in _NAMES and len(node.children) == 2:
            return self.chain(node)
        left, right = (self.scalar(child) for child in node.children)
        self.here = node.start
        if op in COMPARISONS:
            return self.compared(node, left, right)
        return self.unknown_of(node.type)

    def chain(self, node: Node) -> Cell:
        """Arithmetic; long sums lean to the left and are walked without recursion."""
        spine = [node]
        while (inner := spine[-1].children[0]).kind in ("BINARY_OPERATOR", "PAREN_EXPR"):
            while inner.kind == "PAREN_EXPR" and inner.children:
                inner = inner.children[-1]
            if inner.kind != "BINARY_OPERATOR" or inner.op not in _NAMES:
                break
            spine.append(inner)
        result = self.scalar(spine[-1].children[0])
        for part in reversed(spine):
            self.step()
            right = self.scalar(part.children[1])
            self.here = part.start
            result = self.combined(part, result, right)
        return result

    def combined(self, node: Node, left: Value, right: Value) -> Value:
        _first, _second = node.children
        if isinstance(left, Pointer) and isinstance(right, Pointer):
            return self.distance(node, left, right)
        if isinstance(left, Pointer) and isinstance(right, Expr):
            number = right if node.op == "+" else x.scale(right, -1)
            return self.moved(left, number, (node.type.target or node.type).size)
        if isinstance(right, Pointer) and isinstance(left, Expr):
            return self.moved(right, left, (node.type.target or node.type).size)
        if isinstance(left, Pointer) or isinstance(right, Pointer):
            return LOST if node.type.kind == "pointer" else self.fresh_of(node.type)
        if not self.silent and not self.is_constant(node):
            self.count_arithmetic(node.op, node.type)
        return self.operated(node.op, left, right, node.type)

    def count_arithmetic(self, op: str, type_: CType) -> None:
        self.count(f"{arithmetic_kind(type_)}.{_NAMES.get(op, 'logic')}", type_.lanes)

    def distance(self, node: Node, left: Pointer, right: Pointer) -> Value:
        size = (node.children[0].type.target or node.type).size
        one, other = left.targets[0], right.targets[0]
        self.count("int.add")
        self.count("int.div")
        if (
            len(left.targets) == len(right.targets) == 1
            and one.base == other.base
            and one.base[0] != "unknown"
            and size
        ):
            found = x.divide(x.subtract(one.offset, other.offset), x.const(size))
            if found is not None:
                return found
        return self.fresh_of(node.type, f"the distance of two pointers, line {self.line(node.start)}")

    def operated(self, op: str, left: Value, right: Value, type_: CType) -> Value:
        """``left op right`` in a type, lane by lane."""
        if type_.kind == "vector":
            ours = left.lanes if isinstance(left, Vector) else (left,) * type_.lanes
            theirs = right.lanes if isinstance(right, Vector) else (right,) * type_.lanes
            lane = lane_type(type_)
            if len(ours) != len(theirs):
                return self.fresh_of(type_)
            return Vector(tuple(self.lane(op, a, b, lane) for a, b in zip(ours, theirs, strict=True)))
        return self.lane(op, left, right, type_)

    def floating(self, op: str, left: Value, right: Value, type_: CType) -> Value:
        """``left op right`` of floating-point numbers."""
        function = _OF_REALS.get(op)
        if function is None or type_.base not in FOLLOWED or not isinstance(left, Real) or not isinstance(right, Real):
            return OPAQUE
        self.steps += FLOATING_STEPS
        try:
            result = function(left, right)
        except x.TooLargeError:
            return OPAQUE
        return OPAQUE if result is None or len(result.top.key) > x.LONG else result

    def lane(self, op: str, left: Value, right: Value, type_: CType) -> Value:
        if type_.base in FLOATING:
            return self.floating(op, left, right, type_)
        width = integer(type_)
        if not isinstance(left, Expr) or not isinstance(right, Expr) or width is None:
            return self.fresh_of(type_)
        try:
            result = arithmetic(op, left, right, type_, self.fresh)
        except x.TooLargeError:
            return self.too_long(type_)
        if not left.unknown and not right.unknown and (result.unknown or (op == "*" and _not_linear(result))):
            self.lossy += 1
        if not self.concrete:
            while result.op == "wrap":
                result = result.args[0]
            wide = result.op == "const" and abs(result.value) > x.INFINITE
            return self.too_long(type_) if wide or len(result.key) > x.LONG else result
        if width[0] < 32:  # lanes of vectors of small types wrap; scalars are computed as int
            return x.wrap(result, *width)
        return self.fitted(result, *width)

    def too_long(self, type_: CType) -> Value:
        return self.fresh_of(type_, f"a value that takes too long to write, line {self.line()}")

    def compared(self, node: Node, left: Value, right: Value) -> Cell:
        operand = node.children[0].type
        if not self.silent and not self.is_constant(node):
            self.count(f"compare.{arithmetic_kind(operand)}", operand.lanes)
        if node.type.kind == "vector":
            return self.compared_lanes(node, left, right)
        if isinstance(left, Expr) and isinstance(right, Expr):
            return compare(node.op, left, right)
        if isinstance(left, Real) and isinstance(right, Real):
            return real.compare(node.op, left, right, self.rounding)
        if isinstance(left, Pointer) and isinstance(right, Pointer):
            one, other = left.targets[0], right.targets[0]
            if len(left.targets) == len(right.targets) == 1 and one.base == other.base and one.base[0] != "unknown":
                return compare(node.op, one.offset, other.offset)
        reason = f"a comparison of {'pointers' if isinstance(left, Pointer) else 'data'}, line {self.line(node.start)}"
        return self.fresh(0, 1, reason)

    def compared_lanes(self, node: Node, left: Value, right: Value) -> Cell:
        """Vectors compare lane by lane: -1 where it is true."""
        if not isinstance(left, Vector) or not isinstance(right, Vector) or len(left.lanes) != len(right.lanes):
            return self.unknown_of(node.type)
        pairs = list(zip(left.lanes, right.lanes, strict=True))
        minus = x.const(-1)
        return Vector(
            tuple(
                x.select(compare(node.op, a, b), minus, x.ZERO)
                if isinstance(a, Expr) and isinstance(b, Expr)
                else self.fresh(-1, 0, f"a comparison of data, line {self.line(node.start)}")
                for a, b in pairs
            )
        )

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
        """Evaluate the operands of a rare expression, and return that its value is not known."""
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


def _wide_alone(value: Expr, low: int, high: int) -> bool:
    """Return whether a sum can leave its type only by variables that may be anything in it, added or subtracted once:
    all that could be concluded from the sum then also holds if it comes around."""
    if value.op != "sum":
        return False
    least = most = value.value
    for atom, factor in zip(value.args, value.terms, strict=True):
        if abs(factor) == 1 and atom.op == "var" and atom.high - atom.low > high >> 1:
            continue
        ends = sorted((atom.low * factor, atom.high * factor))
        least, most = least + ends[0], most + ends[1]
    return low <= least and most <= high


def _not_linear(result: Expr) -> bool:
    return result.op == "mul" or (result.op == "sum" and any(a.op == "mul" for a in result.args))


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
