"""Accesses of generated kernels: pointers, places in memory, and the values that are stored.

Stored values are hashes of what was loaded, so that no byte keeps its contents but by chance; they never reach a
subscript, hence what is touched does not depend on the order of work-items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.analysis.generated.expressions import CType, Expression, Mask, State, Values
from tests.analysis.generated.operands import Fit


class Pointer:
    """``locate`` gives, per work-item, the argument (a name, or an object array of names) and the offset in bytes."""

    text: str
    element: CType

    def locate(self, s: State, m: Mask) -> tuple[object, Values]:
        raise NotImplementedError


@dataclass
class ArgumentPointer(Pointer):
    name: str
    element: CType

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.name

    def locate(self, s: State, m: Mask) -> tuple[object, Values]:
        return self.name, np.zeros(s.count, np.int64)


@dataclass
class PointerVariable(Pointer):
    name: str
    element: CType

    @property
    def text(self) -> str:  # type: ignore[override]
        return self.name

    def locate(self, s: State, m: Mask) -> tuple[object, Values]:
        return s.pointers[self.name]


@dataclass
class PointerSum(Pointer):
    """``base + by``, or one of two bases by a condition."""

    base: Pointer
    by: Fit | None
    other: Pointer | None = None
    condition: Expression | None = None

    @property
    def element(self) -> CType:  # type: ignore[override]
        return self.base.element

    @property
    def text(self) -> str:  # type: ignore[override]
        base = self.base.text
        if self.other is not None and self.condition is not None:
            base = f"({self.condition.text} ? {self.base.text} : {self.other.text})"
        return base if self.by is None else f"({base} + {self.by.text})"

    def locate(self, s: State, m: Mask) -> tuple[object, Values]:
        name, offset = self.base.locate(s, m)
        if self.other is not None and self.condition is not None:
            chosen = self.condition.value(s, m) != 0
            other, other_offset = self.other.locate(s, m)
            name = np.where(chosen, np.asarray(name, object), np.asarray(other, object))
            offset = np.where(chosen, offset, other_offset)
        if self.by is not None:
            offset = offset + self.by.value(s, m) * self.element.nbytes
        return name, offset


@dataclass
class CastPointer(Pointer):
    """``(global T *)base`` for another element type."""

    base: Pointer
    element: CType

    @property
    def text(self) -> str:  # type: ignore[override]
        return f"((global {self.element.name} *){self.base.text})"

    def locate(self, s: State, m: Mask) -> tuple[object, Values]:
        return self.base.locate(s, m)


@dataclass
class Place:
    """What an access touches: ``lanes`` of (offset, size) bytes at ``stride`` * index bytes behind the pointer.

    ``form``: the source, with {p} for the pointer and {i} for the index; a load and a store may differ.
    """

    pointer: Pointer
    index: Fit
    stride: int
    lanes: tuple[tuple[int, int], ...]
    load_form: str
    store_form: str
    whole: int = 0  # bytes that must lie in the buffer: of the vector or struct, where only a part is touched

    def _text(self, form: str) -> str:
        return form.replace("{p}", self.pointer.text).replace("{i}", self.index.text)

    @property
    def load_text(self) -> str:
        return self._text(self.load_form)

    def store_text(self, value: str) -> str:
        return self._text(self.store_form).replace("{v}", value)

    def touch(self, s: State, m: Mask, *kinds: str) -> None:
        name, offset = self.pointer.locate(s, m)
        offset = offset + self.index.value(s, m) * self.stride
        names = {name} if isinstance(name, str) else {str(n) for n in np.broadcast_to(np.asarray(name), (s.count,))[m]}
        for one in sorted(names):
            where = m if isinstance(name, str) else m & (name == one)
            for kind in kinds:
                for lane, size in self.lanes:
                    s.touch(kind, one, offset + lane, size, where)
            s.reach(one, offset, self.whole, where)


class Data:
    """A value that is stored; ``read`` touches what it loads."""

    @property
    def text(self) -> str:
        raise NotImplementedError

    def read(self, s: State, m: Mask) -> None:
        raise NotImplementedError


@dataclass
class DataOf(Data):
    expression: Expression

    @property
    def text(self) -> str:
        return f"(ulong){self.expression.text}"

    def read(self, s: State, m: Mask) -> None:
        self.expression.value(s, m)


@dataclass
class DataLoad(Data):
    place: Place

    @property
    def text(self) -> str:
        return f"(ulong){self.place.load_text}"

    def read(self, s: State, m: Mask) -> None:
        self.place.touch(s, m, "read")


@dataclass
class DataMix(Data):
    """Both, or one of the two by a condition."""

    left: Data
    right: Data
    condition: Expression | None = None

    @property
    def text(self) -> str:
        if self.condition is None:
            return f"({self.left.text} * 31 + {self.right.text})"
        return f"({self.condition.text} ? {self.left.text} : {self.right.text})"

    def read(self, s: State, m: Mask) -> None:
        if self.condition is None:
            self.left.read(s, m)
            self.right.read(s, m)
            return
        chosen = self.condition.value(s, m) != 0
        self.left.read(s, m & chosen)
        self.right.read(s, m & ~chosen)
