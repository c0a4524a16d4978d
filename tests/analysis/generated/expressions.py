"""Integer expressions of generated kernels: their OpenCL C text, and their values for all work-items at once.

The values are a direct interpretation of C's rules (promotion, usual arithmetic conversions, wrap-around of unsigned
types) in NumPy, and share nothing with the analysis. A value is an int64 array over the work-items: the true value,
or the bit pattern for 64-bit unsigned types. What is undefined in C raises ``Undefined``, so that such kernels are
thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Values = np.ndarray  # int64, one for each work-item
Mask = np.ndarray  # bool, one for each work-item


class Undefined(Exception):
    """The kernel does what C leaves undefined, or takes too long: it is thrown away."""


@dataclass(frozen=True)
class CType:
    name: str
    bits: int
    signed: bool

    @property
    def dtype(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.bits // 8}"

    @property
    def nbytes(self) -> int:
        return self.bits // 8


CHAR, UCHAR = CType("char", 8, True), CType("uchar", 8, False)
SHORT, USHORT = CType("short", 16, True), CType("ushort", 16, False)
INT, UINT = CType("int", 32, True), CType("uint", 32, False)
LONG, SIZE = CType("long", 64, True), CType("size_t", 64, False)
ULONG = CType("ulong", 64, False)  # an element type; size_t cannot be one


def promoted(kind: CType) -> CType:
    return INT if kind.bits < 32 else kind


def common(a: CType, b: CType) -> CType:
    """C's usual arithmetic conversions."""
    a, b = promoted(a), promoted(b)
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return b if a.signed else a


def wrapped(kind: CType, v: Values) -> Values:
    """A value of any type converted to ``kind``."""
    if kind.bits == 64:
        return v
    v = v & ((1 << kind.bits) - 1)
    return np.where(v >> (kind.bits - 1), v - (1 << kind.bits), v) if kind.signed else v


def in_range(kind: CType, v: Values, estimate: np.ndarray, mask: Mask) -> Values:
    """Unsigned results wrap; signed ones must fit."""
    if not kind.signed:
        return wrapped(kind, v)
    bound = 2.0**31 if kind.bits == 32 else 2.0**62
    if ((estimate[mask] >= bound) | (estimate[mask] < -bound)).any():
        raise Undefined("signed overflow")
    return v


@dataclass
class State:
    """What all work-items see: ids, variables, arrays; and what they have touched."""

    count: int
    queries: dict[tuple[str, int], Values]
    variables: dict[str, Values]
    tables: dict[str, np.ndarray]
    pointers: dict[str, tuple[Any, Values]] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    events: list[tuple[str, str, np.ndarray, np.ndarray, int]] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=dict)  # bytes needed
    measuring: bool = False

    def set(self, name: str, value: Values, mask: Mask) -> None:
        name = self.aliases.get(name, name)
        self.variables[name] = np.where(mask, value, self.variables.get(name, 0))

    def touch(self, kind: str, argument: str, offset: Values, size: int, mask: Mask) -> None:
        items = np.flatnonzero(mask)
        if items.size and not self.measuring:
            self.events.append((kind, argument, items, offset[items], size))
            self.reach(argument, offset, size, mask)

    def reach(self, argument: str, offset: Values, size: int, mask: Mask) -> None:
        """The bytes must lie in the buffer."""
        if mask.any() and not self.measuring:
            if offset[mask].min() < 0:
                raise Undefined("below the buffer")
            self.reached[argument] = max(self.reached.get(argument, 0), int(offset[mask].max()) + size)


class Expression:
    """``kind``: the C type; ``text``: the source; ``value``: of all work-items, meaningless where the mask is false."""

    kind: CType

    @property
    def text(self) -> str:
        raise NotImplementedError

    def value(self, s: State, m: Mask) -> Values:
        raise NotImplementedError


@dataclass
class Literal(Expression):
    number: int
    kind: CType = INT

    @property
    def text(self) -> str:
        if self.kind in (INT, UINT):
            plain = f"{self.number}{'' if self.kind is INT else 'u'}"
        else:
            plain = f"({self.kind.name}){self.number}"
        return f"({plain})" if self.number < 0 or self.kind not in (INT, UINT) else plain

    def value(self, s: State, m: Mask) -> Values:
        return np.full(s.count, self.number, np.int64)


@dataclass
class Variable(Expression):
    name: str
    kind: CType
    dereferenced: bool = False

    @property
    def text(self) -> str:
        return f"(*{self.name})" if self.dereferenced else self.name

    def value(self, s: State, m: Mask) -> Values:
        return s.variables[s.aliases.get(self.name, self.name)]


@dataclass
class Query(Expression):
    """``get_<name>(<dimension>)``."""

    name: str
    dimension: int
    kind: CType = SIZE

    @property
    def text(self) -> str:
        return f"get_{self.name}({self.dimension})"

    def value(self, s: State, m: Mask) -> Values:
        return s.queries[self.name, self.dimension]


def divided(kind: CType, x: Values, y: Values, mask: Mask) -> tuple[Values, Values]:
    """Quotient and remainder, towards zero."""
    if (mask & (y == 0)).any():
        raise Undefined("division by zero")
    y = np.where(y == 0, 1, y)
    if kind.bits == 64 and not kind.signed:
        a, b = x.view(np.uint64), y.view(np.uint64)
        return (a // b).view(np.int64), (a % b).view(np.int64)
    quotient = np.sign(x) * np.sign(y) * (np.abs(x) // np.abs(y))
    return in_range(kind, quotient, quotient.astype(float), mask), x - quotient * y


def compared(operator: str, kind: CType, x: Values, y: Values) -> Values:
    if kind.bits == 64 and not kind.signed:
        x, y = np.ascontiguousarray(x).view(np.uint64), np.ascontiguousarray(y).view(np.uint64)
    found = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "==": x == y, "!=": x != y}[operator]
    return found.astype(np.int64)


@dataclass
class Binary(Expression):
    operator: str
    left: Expression
    right: Expression

    @property
    def kind(self) -> CType:  # type: ignore[override]
        if self.operator in ("<", "<=", ">", ">=", "==", "!="):
            return INT
        return promoted(self.left.kind) if self.operator in ("<<", ">>") else common(self.left.kind, self.right.kind)

    @property
    def text(self) -> str:
        return f"({self.left.text} {self.operator} {self.right.text})"

    def value(self, s: State, m: Mask) -> Values:
        return binary(self.operator, self.left.kind, self.right.kind, self.left.value(s, m), self.right.value(s, m), m)


def binary(operator: str, left: CType, right: CType, x: Values, y: Values, m: Mask) -> Values:
    """One C operator on values of the two types."""
    if operator in ("<<", ">>"):
        return shifted(operator, promoted(left), x, y, m)
    kind = common(left, right)
    x, y = np.ascontiguousarray(wrapped(kind, x)), np.ascontiguousarray(wrapped(kind, y))
    if operator in ("<", "<=", ">", ">=", "==", "!="):
        return compared(operator, kind, x, y)
    if operator in ("/", "%"):
        return divided(kind, x, y, m)[operator == "%"]
    if operator in ("&", "|", "^"):
        return wrapped(kind, {"&": x & y, "|": x | y, "^": x ^ y}[operator])
    a, b = x.astype(float), y.astype(float)
    exact, estimate = {"+": (x + y, a + b), "-": (x - y, a - b), "*": (x * y, a * b)}[operator]
    return in_range(kind, exact, estimate, m)


def shifted(operator: str, kind: CType, x: Values, y: Values, m: Mask) -> Values:
    if (m & ((y < 0) | (y >= kind.bits))).any():
        raise Undefined("shift out of range")
    y = np.where(m, y, 0)
    if operator == ">>":
        if kind.bits == 64 and not kind.signed:
            return (np.ascontiguousarray(x).view(np.uint64) >> y.astype(np.uint64)).view(np.int64)
        return x >> y
    if kind.signed and (m & (x < 0)).any():
        raise Undefined("shift of a negative value")
    return in_range(kind, x << y, x.astype(float) * 2.0**y, m)


@dataclass
class Logic(Expression):
    """``&&`` and ``||``: the right side is evaluated only where the left one does not decide."""

    operator: str
    left: Expression
    right: Expression
    kind: CType = INT

    @property
    def text(self) -> str:
        return f"({self.left.text} {self.operator} {self.right.text})"

    def value(self, s: State, m: Mask) -> Values:
        left = self.left.value(s, m) != 0
        undecided = m & (left if self.operator == "&&" else ~left)
        right = self.right.value(s, undecided) != 0
        return ((left & right) if self.operator == "&&" else (left | right)).astype(np.int64)


@dataclass
class Unary(Expression):
    operator: str  # - ~ !
    operand: Expression

    @property
    def kind(self) -> CType:  # type: ignore[override]
        return INT if self.operator == "!" else promoted(self.operand.kind)

    @property
    def text(self) -> str:
        return f"({self.operator}{self.operand.text})"

    def value(self, s: State, m: Mask) -> Values:
        v = self.operand.value(s, m)
        if self.operator == "!":
            return (v == 0).astype(np.int64)
        if self.operator == "~":
            return wrapped(self.kind, ~v)
        return in_range(self.kind, -v, -v.astype(float), m)


@dataclass
class Conditional(Expression):
    condition: Expression
    yes: Expression
    no: Expression

    @property
    def kind(self) -> CType:  # type: ignore[override]
        return common(self.yes.kind, self.no.kind)

    @property
    def text(self) -> str:
        return f"({self.condition.text} ? {self.yes.text} : {self.no.text})"

    def value(self, s: State, m: Mask) -> Values:
        chosen = self.condition.value(s, m) != 0
        yes, no = self.yes.value(s, m & chosen), self.no.value(s, m & ~chosen)
        return np.where(chosen, wrapped(self.kind, yes), wrapped(self.kind, no))


@dataclass
class Cast(Expression):
    kind: CType
    operand: Expression

    @property
    def text(self) -> str:
        return f"(({self.kind.name}){self.operand.text})"

    def value(self, s: State, m: Mask) -> Values:
        return wrapped(self.kind, self.operand.value(s, m))
