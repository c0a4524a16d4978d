"""Random forms of accesses: scalars, vectors, swizzles, vloadN and vstoreN, casts, structs, rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from generated_accesses import ArgumentPointer, CastPointer, Place, Pointer
from generated_expressions import INT, SHORT, UCHAR, UINT, ULONG, CType, Fit

if TYPE_CHECKING:
    from generated_kernel import KernelMaker

LETTERS = "xyzw"
MEMBERS = {"a": (0, INT), "b": (4, SHORT), "c[1]": (7, UCHAR), "d": (8, UINT)}


def _signed_vector(kind: CType, lanes: int) -> str:
    return f"{kind.name}{lanes}"


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
        vector = _signed_vector(kind, lanes)
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
        vector = f"((global {_signed_vector(kind, lanes)} *){{p}})[{{i}}].{word}"
        made = f"({kind.name})HASH({{v}})"
        if len(chosen) > 1:
            made = f"({_signed_vector(kind, len(chosen))})({made})"
        touched = tuple((k * kind.nbytes, kind.nbytes) for k in sorted(chosen))
        load = vector if len(chosen) == 1 else f"({vector}).x"
        if len(chosen) > 1:  # a load takes the first component only
            return self._split_swizzle(pointer, how, vector, made, chosen, lanes)
        whole = lanes * kind.nbytes
        return Place(pointer, self.kernel.subscript(), whole, touched, load, f"{vector} {how} {made}", whole)

    def _split_swizzle(
        self, pointer: Pointer, how: str, vector: str, made: str, chosen: list[int], lanes: int
    ) -> Place:
        """Loads sum up all components, so that a load and a store touch the same."""
        size = pointer.element.nbytes
        load = f"(({vector}).x + ({vector}).y)"
        touched = tuple((k * size, size) for k in sorted(chosen))
        return Place(
            pointer, self.kernel.subscript(), lanes * size, touched, load, f"{vector} {how} {made}", lanes * size
        )

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
