"""Expressions of OpenCL C, evaluated abstractly: their values, their side effects, the accesses they make."""

from __future__ import annotations

import re
from collections.abc import Callable

from manycl.analysis import expr as x
from manycl.analysis.abstract import Unanalysable
from manycl.analysis.expr import Expr
from manycl.analysis.initialisers import Initialisers
from manycl.analysis.paths import State, join, meet
from manycl.analysis.tree import CType, Node
from manycl.analysis.values import (
    LOST,
    OPAQUE,
    Cell,
    Memory,
    Pointer,
    Value,
    Vector,
    arithmetic,
    at,
    blank,
    compare,
    integer,
    lane_type,
)

_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
_RANKS = {"bool": 0, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 3, "uint": 3, "long": 4, "ulong": 4}
_LITERALS = (
    "INTEGER_LITERAL",
    "FLOATING_LITERAL",
    "CHARACTER_LITERAL",
    "CXX_BOOL_LITERAL_EXPR",
    "CXX_UNARY_EXPR",
)
_REINTERPRETS = re.compile(rb"as_u?(char|short|int|long|float|double|half)\s*\(")
_FLOATING = ("float", "double", "half")
_COMPUTED = (
    "PAREN_EXPR",
    "UNEXPOSED_EXPR",
    "CSTYLE_CAST_EXPR",
    "UNARY_OPERATOR",
    "BINARY_OPERATOR",
    "CONDITIONAL_OPERATOR",
)
INT = CType("int", "int", "int", size=4)
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


class Expressions(Initialisers):
    """Evaluation of expressions. ``call`` is what :mod:`manycl.analysis.calls` adds."""

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

    def scalar(self, node: Node) -> Value:
        """The value of an expression that is no whole array or record."""
        found = self.value(node)
        return OPAQUE if isinstance(found, Memory) else found

    def number(self, node: Node) -> Expr:
        """The value of an expression of integer type."""
        found = self.value(node)
        if isinstance(found, Expr):
            return found
        width = integer(node.type) if node.type.kind != "vector" else None
        return self.fresh(*(x.type_range(*width) if width else (-x.INFINITE, x.INFINITE)))

    def condition(self, node: Node) -> Expr:
        """The truth of an expression; numbers and pointers are compared with zero."""
        found = self.value(node)
        if not self.silent and not self.is_truth(node):
            self.count(f"compare.{arithmetic_kind(node.type)}")
        if isinstance(found, Expr):
            return x.truth(found)
        if isinstance(found, Pointer):
            return self.fresh(0, 1, f"whether a pointer is null, line {self.line(node.start)}")
        return self.fresh(0, 1, f"a condition on data, line {self.line(node.start)}")

    def is_truth(self, node: Node) -> bool:
        """Whether an expression needs no comparison with zero to be a condition."""
        while node.kind == "PAREN_EXPR" or (node.kind == "UNEXPOSED_EXPR" and node.type.kind in ("int", "bool")):
            if len(node.children) != 1 or node.children[0].type.kind == "vector":
                break
            node = node.children[0]
        tests = node.kind == "BINARY_OPERATOR" and (node.op in _COMPARISONS or node.op in ("&&", "||"))
        negates = node.kind == "UNARY_OPERATOR" and node.op == "!"
        return tests or negates or node.type.kind == "bool" or self.is_constant(node)

    def is_constant(self, node: Node) -> bool:
        """Whether a compiler computes an expression once and for all: nothing is then executed."""
        found = self.constants.get(id(node))
        if found is None:
            literal = node.kind in _LITERALS or (node.kind == "DECL_REF_EXPR" and node.value is not None)
            made = node.kind in _COMPUTED and all(
                self.is_constant(c) for c in node.children if c.kind not in ("TYPE_REF", "NAMESPACE_REF")
            )
            found = self.constants[id(node)] = literal or (made and bool(node.children))
        return found

    constants: dict[int, bool]

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

    def unknown_of(self, type_: CType) -> Cell:
        return blank() if type_.kind in ("array", "record", "union") else self.fresh_of(type_)

    # -- leaves

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

    # -- conversions

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
        if isinstance(found, Memory) or type_.kind in ("record", "union", "array", "function"):
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
        if type_.kind == "int" and operand.type.kind == "float":
            width = integer(type_)
            assert True
            reason = f"a floating-point number made an integer, line {self.line(node.start)}"
            return self.fresh(*x.type_range(*width), reason) if width else self.fresh_of(type_)
        return self.convert(found, type_)

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

    # -- operators

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
        if type_.kind == "float" or type_.base in _FLOATING:
            return OPAQUE if type_.kind == "float" else Vector((OPAQUE,) * type_.lanes)
        return self.lanewise(lambda a: self.negated(op, a, type_), found, type_)

    def negated(self, op: str, value: Value, type_: CType) -> Value:
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

    lossy = 0  # operations whose result was given up although their operands are known
    discovering = 0

    def lanewise(self, function: Callable[[Value], Value], value: Value, type_: CType) -> Value:
        if type_.kind == "vector":
            lanes = value.lanes if isinstance(value, Vector) else (value,) * type_.lanes
            return Vector(tuple(function(lane) for lane in lanes))
        return function(value)

    def stepped(self, node: Node, operand: Node) -> Cell:
        """``++`` and ``--``, before and after."""
        place = self.place(operand)
        self.here = node.start
        before = self.read(place)
        sign = 1 if "++" in node.op else -1
        type_ = operand.type
        if isinstance(before, Pointer):
            after: Cell = self.moved(before, x.const(sign), (type_.target or type_).size)
        elif isinstance(before, Memory):
            after = blank()
        elif type_.base in _FLOATING:
            self.count(f"{type_.base}.add", type_.lanes)
            after = OPAQUE
        else:
            self.count("int.add", type_.lanes)
            after = self.lanewise(lambda a: self.plus(a, sign, type_), before, type_)
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
        elif isinstance(before, Memory):
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
            after = self.convert(result, type_)
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
        if op in _COMPARISONS:
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
        if type_.base in _FLOATING:
            return OPAQUE if type_.kind == "float" else Vector((OPAQUE,) * type_.lanes)
        if type_.kind == "vector":
            ours = left.lanes if isinstance(left, Vector) else (left,) * type_.lanes
            theirs = right.lanes if isinstance(right, Vector) else (right,) * type_.lanes
            lane = lane_type(type_)
            if len(ours) != len(theirs):
                return self.fresh_of(type_)
            return Vector(tuple(self.lane(op, a, b, lane) for a, b in zip(ours, theirs, strict=True)))
        return self.lane(op, left, right, type_)

    def lane(self, op: str, left: Value, right: Value, type_: CType) -> Value:
        width = integer(type_)
        if not isinstance(left, Expr) or not isinstance(right, Expr) or width is None:
            return self.fresh_of(type_)
        result = arithmetic(op, left, right, type_, self.fresh)
        if not left.unknown and not right.unknown and (result.unknown or (op == "*" and _not_linear(result))):
            self.lossy += 1
        if not self.concrete:
            while result.op == "wrap":
                result = result.args[0]
            return result
        if width[0] < 32:  # lanes of vectors of small types wrap; scalars are computed as int
            return x.wrap(result, *width)
        return self.fitted(result, *width)

    def compared(self, node: Node, left: Value, right: Value) -> Cell:
        operand = node.children[0].type
        if not self.silent and not self.is_constant(node):
            self.count(f"compare.{arithmetic_kind(operand)}", operand.lanes)
        if node.type.kind == "vector":
            return self.compared_lanes(node, left, right)
        if isinstance(left, Expr) and isinstance(right, Expr):
            return compare(node.op, left, right)
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
        skipped = State(before, dict(self.env)) if inner is not before else None
        self.path = inner
        right = self.condition(second)
        if skipped is not None and self.path is inner and self.env == skipped.env:
            self.path = before  # it had no side effects
        else:
            self.rejoin(x.negate(wanted), skipped)
        return x.both(left, right) if node.op == "&&" else x.either(left, right)

    def rejoin(self, otherwise: Expr, skipped: State | None) -> None:
        """Control meets again after a part that ran only on some condition."""
        if skipped is None:
            return
        rest = skipped.path.where(otherwise)
        states = []
        if self.path is not None:
            states.append(State(self.path, self.env))
        if rest is not None:
            states.append(State(rest, skipped.env))
        joined = join(states)
        if joined is None:
            self.path = None
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
        outcomes: list[tuple[State, Cell]] = []
        for choice, branch in ((chosen, first), (x.negate(chosen), second)):
            path = before.where(choice)
            if path is None:
                continue
            self.path, self.env = path, dict(env)
            value = self.place(branch).pointer if branch.type.kind == "array" else self.value(branch)
            if self.path is not None:
                outcomes.append((State(self.path, self.env), value))
        if len(outcomes) == 1:
            self.path, self.env = outcomes[0][0].path, outcomes[0][0].env
            return outcomes[0][1]
        joined = join([state for state, _ in outcomes])
        if joined is None:
            self.path = None
            return self.unknown_of(node.type)
        self.path, self.env = joined.path, joined.env
        return meet(chosen, outcomes[0][1], outcomes[1][1])

    def assigned(self, node: Node) -> Cell:
        target, operand = node.children
        value = self.value(operand)
        place = self.place(target)
        self.here = node.start
        self.write(place, value)
        return value


def arithmetic_kind(type_: CType) -> str:
    """Under which name operations on a type are counted: float, double, half or int."""
    return type_.base if type_.kind != "pointer" and type_.base in _FLOATING else "int"


def _wide_alone(value: Expr, low: int, high: int) -> bool:
    """Whether a sum can leave its type only by variables that may be anything in it, added or subtracted once: all
    that could be concluded from the sum then also holds if it comes around."""
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
    "FLOATING_LITERAL": lambda self, node: OPAQUE,
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
