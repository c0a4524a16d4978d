"""OpenCL C's types: names, sizes and limits."""

from __future__ import annotations

from typing import NamedTuple

WIDTHS = (2, 3, 4, 8, 16)
LANES = "0123456789abcdef"


class Scalar(NamedTuple):
    """``unsigned``: the unsigned integer of the same size."""

    name: str
    bits: int
    signed: bool
    real: bool
    unsigned: str

    @property
    def lowest(self) -> str:
        return f"({self.name})(-1{self.suffix} << {self.bits - 1})" if self.signed else "0"

    @property
    def highest(self) -> str:
        return f"({self.name})~(-1{self.suffix} << {self.bits - 1})" if self.signed else f"({self.name})-1"

    @property
    def suffix(self) -> str:
        return "L" if self.bits == 64 else ""


def _integers() -> tuple[Scalar, ...]:
    names = (("char", 8), ("short", 16), ("int", 32), ("long", 64))
    both = [(Scalar(n, b, True, False, "u" + n), Scalar("u" + n, b, False, False, "u" + n)) for n, b in names]
    return tuple(scalar for pair in both for scalar in pair)


INTEGERS = _integers()
FLOAT = Scalar("float", 32, True, True, "uint")
DOUBLE = Scalar("double", 64, True, True, "ulong")
REALS = (FLOAT, DOUBLE)
SCALARS = {scalar.name: scalar for scalar in (*INTEGERS, *REALS)}


def named(scalar: str, width: int) -> str:
    """``float`` and 4: ``float4``; a width of 1 is no vector."""
    return scalar if width == 1 else f"{scalar}{width}"


def spread(kind: str, width: int, one: str) -> str:
    """A vector of what ``one`` says of each element, with ``@`` for its number: ``x.s@`` is ``x.s0``, ``x.s1``, ..."""
    return f"({named(kind, width)})({', '.join(one.replace('@', lane) for lane in LANES[:width])})"


def numbered(text: str) -> str:
    """A text of elements of arrays, not of vectors: ``[a]`` is ``[10]`` there."""
    for lane, number in zip("abcdef", range(10, 16), strict=True):
        text = text.replace(f"[{lane}]", f"[{number}]")
    return text
