"""Random forms of accesses: scalars, vectors, swizzles, vloadN and vstoreN, casts, structs, rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.analysis.generated.accesses import ArgumentPointer, CastPointer, Place, Pointer
from tests.analysis.generated.expressions import (
    INT,
    LONG,
    SHORT,
    SIZE,
    UCHAR,
    UINT,
    ULONG,
    Binary,
    Cast,
    Expression,
    Literal,
    Query,
)
from tests.analysis.generated.operands import Builtin, Fit
from tests.analysis.generated.statements import Statement, Store

if TYPE_CHECKING:
    from tests.analysis.generated.kernel import KernelMaker

LETTERS = "xyzw"
MEMBERS = {"a": (0, INT), "b": (4, SHORT), "c[1]": (7, UCHAR), "d": (8, UINT)}


class PlaceMaker:
    def __init__(self, kernel: KernelMaker) -> None:
        self.kernel = kernel

    def place(self, pointer: Pointer, how: str = "=") -> Place:
        """Where ``how`` is "^=", forms that read and write are made."""
        r = self.kernel.r
        forms = [self._scalar, self._scalar, self._scalar, self._scalar, self._narrow]
        if isinstance(pointer, ArgumentPointer):
            forms += [self._swizzle, self._wide, self._member, self._row]
        if how == "=":
            forms += [self._vload]
        return r.choice(forms)(pointer, how)

    def _linear(self) -> Expression:
        """A number that no other work-item has."""
        n, d = self.kernel.dimensions, self.kernel.r.randrange(3)
        total: Expression = Query("global_id", n - 1)
        if n == 1 and d == 0:
            first = Binary("*", Query("group_id", 0), Query("local_size", 0))
            return Cast(self.kernel.r.choice((INT, UINT, SIZE)), Binary("+", first, Query("local_id", 0)))
        for k in reversed(range(n - 1)):
            if d == 0:
                width: Expression = Binary("+", Query("global_size", k), Query("global_offset", k))
            else:
                width = Literal({2: 17, 3: 10}[n])
            total = Binary("+", Binary("*", total, width), Query("global_id", k))
        return Cast(self.kernel.r.choice((INT, INT, UINT, SIZE, LONG)), total)

    def own_store(self) -> Statement:
        """To one of ``block`` pieces, each of some scalars, that belong to the work-item."""
        p = self.kernel.r.choice(self.kernel.outputs)
        block, lanes = self.kernel.own[p.name]
        at = self._linear()
        if block > 1:
            inner = Builtin("min", (self.kernel.fit(self.kernel.affine(), block), Literal(block - 1)))
            at = Binary("+", Binary("*", at, Literal(block)), inner)
        how = "^=" if lanes == 1 and self.kernel.chance(0.15) else "="
        pointer = ArgumentPointer(p.name, p.kind)
        return Store(self.own(pointer, Fit(at, 1 << 12), lanes, how), self.kernel.data_value(), how)

    def own(self, pointer: Pointer, index: Fit, lanes: int, how: str) -> Place:
        """So many scalars at a subscript that is known to fit."""
        made = self._scalar(pointer, how) if lanes == 1 else self._vload(pointer, how, lanes)
        return replace(made, index=index)

    def _scalar(self, pointer: Pointer, how: str) -> Place:
        size, name = pointer.element.nbytes, pointer.element.name
        form = "{p}[{i}]" if self.kernel.chance(0.8) else "*({p} + {i})"
        store = f"{form} {how} ({name})HASH({{v}})"
        return Place(pointer, self.kernel.subscript(), size, ((0, size),), form, store)

    def _narrow(self, pointer: Pointer, how: str) -> Place:
        narrower = [k for k in (UCHAR, SHORT, UINT) if k.nbytes < pointer.element.nbytes]
        if not narrower:
            return self._scalar(pointer, how)
        return self._scalar(CastPointer(pointer, self.kernel.r.choice(narrower)), how)

    def _wide(self, pointer: Pointer, how: str) -> Place:
        return self._scalar(CastPointer(pointer, self.kernel.r.choice([UINT, ULONG])), how)

    def _vload(self, pointer: Pointer, how: str, width: int = 0) -> Place:
        lanes, kind = width or self.kernel.r.choice([2, 2, 3, 4, 4, 8, 16]), pointer.element
        vector = f"{kind.name}{lanes}"
        load = f"vload{lanes}({{i}}, {{p}}).{self.kernel.r.choice(['s0', 's1'])}"
        store = f"vstore{lanes}(({vector})(({kind.name})HASH({{v}})), {{i}}, {{p}})"
        touched = tuple((k * kind.nbytes, kind.nbytes) for k in range(lanes))
        return Place(pointer, self.kernel.fit(self.kernel.affine(), 60), lanes * kind.nbytes, touched, load, store)

    def _swizzle(self, pointer: Pointer, how: str) -> Place:
        """Some components of a vector in memory."""
        r, kind = self.kernel.r, pointer.element
        lanes = r.choice([2, 4, 4])
        chosen = r.sample(range(lanes), r.randint(1, min(lanes, 2)))
        if lanes == 4 and self.kernel.chance(0.3):
            chosen = r.choice([[0, 1], [2, 3], [0, 2], [1, 3]])
            word = {(0, 1): "lo", (2, 3): "hi", (0, 2): "even", (1, 3): "odd"}[chosen[0], chosen[1]]
        else:
            word = "".join(LETTERS[k] for k in chosen)
        vector = f"((global {kind.name}{lanes} *){{p}})[{{i}}].{word}"
        made = f"({kind.name})HASH({{v}})"
        if len(chosen) > 1:
            made = f"({kind.name}{len(chosen)})({made})"
        touched = tuple((k * kind.nbytes, kind.nbytes) for k in sorted(chosen))
        # a load sums up two components, so that it touches what a store does
        load = vector if len(chosen) == 1 else f"(({vector}).x + ({vector}).y)"
        whole = lanes * kind.nbytes
        return Place(pointer, self.kernel.subscript(), whole, touched, load, f"{vector} {how} {made}", whole)

    def _member(self, pointer: Pointer, how: str) -> Place:
        word = self.kernel.r.choice(sorted(MEMBERS))
        offset, kind = MEMBERS[word]
        form = f"((global record *){{p}})[{{i}}].{word}"
        store = f"{form} {how} ({kind.name})HASH({{v}})"
        return Place(pointer, self.kernel.subscript(), 12, ((offset, kind.nbytes),), form, store, 12)

    def _row(self, pointer: Pointer, how: str) -> Place:
        r, kind = self.kernel.r, pointer.element
        width = r.choice([3, 5, 8])
        column = r.randrange(width)
        form = f"((global {kind.name} (*)[{width}]){{p}})[{{i}}][{column}]"
        lanes = ((column * kind.nbytes, kind.nbytes),)
        store = f"{form} {how} ({kind.name})HASH({{v}})"
        return Place(pointer, self.kernel.fit(self.kernel.affine(), 60), width * kind.nbytes, lanes, form, store)
