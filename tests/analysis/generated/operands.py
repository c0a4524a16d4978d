"""Functions, table and array elements, and subscripts that are made to fit, as expressions of generated kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.analysis.generated.expressions import (
    INT,
    UINT,
    Binary,
    Cast,
    CType,
    Expression,
    Literal,
    Mask,
    State,
    Undefined,
    Values,
    in_range,
    promoted,
    wrapped,
)


def _24_bits(m: Mask, *operands: Values) -> None:
    if any((m & ((v < -(1 << 23)) | (v >= 1 << 23))).any() for v in operands):
        raise Undefined("more than 24 bits")


@dataclass
class Builtin(Expression):
    """A function of OpenCL C on int or uint operands, which are converted first."""

    name: str
    operands: tuple[Expression, ...]
    operand_kind: CType = INT

    @property
    def kind(self) -> CType:  # type: ignore[override]
        return UINT if self.name in ("abs", "abs_diff") else self.operand_kind

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(Cast(self.operand_kind, o).text for o in self.operands)})"

    def value(self, s: State, m: Mask) -> Values:
        kind = self.operand_kind
        v = [wrapped(kind, o.value(s, m)) for o in self.operands]
        match self.name:
            case "min":
                return np.minimum(v[0], v[1])
            case "max":
                return np.maximum(v[0], v[1])
            case "clamp":
                return np.minimum(np.maximum(v[0], v[1]), v[2])
            case "abs":
                return np.abs(v[0])
            case "abs_diff":
                return np.abs(v[0] - v[1])
            case "select":
                return np.where(v[2] != 0, v[1], v[0])
            case "hadd":
                return (v[0] + v[1]) >> 1
            case "mul24":
                _24_bits(m, v[0], v[1])
                return in_range(kind, v[0] * v[1], v[0] * v[1].astype(float), m)
            case "mad24":
                _24_bits(m, v[0], v[1])
                total = v[0] * v[1] + v[2]
                return in_range(kind, total, total.astype(float), m)
            case "mul_hi":
                return (v[0] * v[1]) >> 32 if kind.signed else ((v[0] * v[1]).view(np.uint64) >> 32).view(np.int64)
            case "rotate":
                by = v[1] & 31
                return wrapped(UINT, v[0] << by | v[0] >> (32 - by))
        raise AssertionError(self.name)


@dataclass
class TableEntry(Expression):
    """``name[index & (size - 1)]``: an element of a buffer that nobody writes, or of a constant table."""

    name: str
    index: Expression
    size: int
    kind: CType = INT
    argument: bool = True

    @property
    def text(self) -> str:
        return f"{self.name}[{self.index.text} & {self.size - 1}]"

    def value(self, s: State, m: Mask) -> Values:
        at = self.index.value(s, m) & (self.size - 1)
        if self.argument:
            s.touch("read", self.name, at * 4, 4, m)
        return s.tables[self.name][at]


@dataclass
class ArrayEntry(Expression):
    """``name[index & (size - 1)]`` of a private array."""

    name: str
    index: Expression
    size: int
    kind: CType = INT

    @property
    def text(self) -> str:
        plain = isinstance(self.index, Literal)
        return f"{self.name}[{self.index.text}]" if plain else f"{self.name}[{self.index.text} & {self.size - 1}]"

    def value(self, s: State, m: Mask) -> Values:
        at = self.index.value(s, m) & (self.size - 1)
        return s.arrays[self.name][at, np.arange(s.count)]


@dataclass
class Fit(Expression):
    """A subscript that is shifted or masked so that it lies in [0, ``limit``), once it was measured."""

    inner: Expression
    limit: int
    lowest: int = 2**63 - 1
    highest: int = -(2**63)
    mode: str = ""  # "", "shift" or "mask"
    by: int = 0

    @property
    def kind(self) -> CType:  # type: ignore[override]
        return promoted(self.inner.kind)

    def decide(self) -> None:
        """After all launches were measured. One that is never evaluated stays as it is."""
        if self.lowest > self.highest or (self.lowest >= 0 and self.highest < self.limit):
            return
        if self.highest - self.lowest < self.limit and abs(self.lowest) < 1 << 20:
            self.mode, self.by = "shift", -self.lowest
        else:
            self.mode, self.by = "mask", (1 << (self.limit.bit_length() - 1)) - 1

    @property
    def _whole(self) -> Expression:
        kind = INT if self.kind.signed else UINT
        if self.mode == "mask":
            return Binary("&", self.inner, Literal(self.by, kind))
        if self.mode == "shift":
            return Binary("+" if self.by > 0 else "-", self.inner, Literal(abs(self.by), kind))
        return self.inner

    @property
    def text(self) -> str:
        return self._whole.text

    def value(self, s: State, m: Mask) -> Values:
        v = self._whole.value(s, m)
        if s.measuring and m.any():
            seen = wrapped(INT, v[m]) if self.kind is UINT else v[m]
            self.lowest, self.highest = min(self.lowest, int(seen.min())), max(self.highest, int(seen.max()))
        elif m.any() and (v[m].min() < 0 or v[m].max() >= max(self.limit, 1 << 16)):
            raise Undefined("subscript out of range")
        return v
