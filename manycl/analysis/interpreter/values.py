"""Values of the abstract interpreter: integers, pointers, vectors and what cannot be followed; C's conversions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from manycl.analysis.reading.tree import CType
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import Real

#: what a pointer is based on: ("arg", index), ("var", declaration), ("local", declaration), ("program", declaration)
#: or ("unknown", 0)
Base = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Target:
    """One place that a pointer may mean: it does so exactly when ``condition`` holds; ``offset`` in bytes."""

    condition: Expr
    base: Base
    offset: Expr


@dataclass(frozen=True, slots=True)
class Pointer:
    targets: tuple[Target, ...]

    def moved(self, amount: Expr) -> Pointer:
        return Pointer(tuple(Target(t.condition, t.base, x.add(t.offset, amount)) for t in self.targets))


@dataclass(frozen=True, slots=True)
class Vector:
    lanes: tuple[Value, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A floating-point number, a struct, an event: nothing is known of it, so that no two need be the same."""


Value = Expr | Real | Pointer | Vector | Opaque


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """The contents of an array or a record: values by (byte offset, bytes), everything else by ``raw`` where given
    (the bytes of an argument), unknown otherwise."""

    entries: dict[tuple[int, int], Value]
    raw: bytes | None = None
    name: str = ""  # of an argument whose bytes are not known: its members are symbols

    def stored(self, offset: int, size: int, value: Value) -> Aggregate:
        kept = {k: v for k, v in self.entries.items() if k[0] + k[1] <= offset or offset + size <= k[0]}
        kept[offset, size] = value
        return Aggregate(kept, self.raw, self.name)

    def forgets(self, offset: int, size: int) -> Aggregate:
        return self.stored(offset, size, OPAQUE)


Cell = Value | Aggregate


def blank() -> Aggregate:
    """Contents of which nothing is known, different from all others."""
    return Aggregate({})


OPAQUE = Opaque()
LOST = Pointer((Target(x.ONE, ("unknown", 0), x.ZERO),))
Fresh = Callable[[int, int], Expr]  # a new unknown within bounds

FLOATING = ("float", "double", "half")
FOLLOWED = ("float", "double")
_BITS = {"char": 8, "short": 16, "int": 32, "long": 64}


def at(base: Base) -> Pointer:
    return Pointer((Target(x.ONE, base, x.ZERO),))


def integer(type_: CType) -> tuple[int, bool] | None:
    """Bits and signedness of an integer type (or of a vector's lanes); None for others."""
    if type_.kind == "bool":
        return 1, False
    if type_.kind not in ("int", "vector") or type_.name.startswith("atomic_"):
        return None
    base = type_.base
    if base == "bool":
        return 1, False
    signed = not base.startswith("u")
    bits = _BITS.get(base if signed else base[1:])
    return None if bits is None else (bits, signed)


def unknown(type_: CType, fresh: Fresh) -> Value:
    if type_.kind == "vector":
        lane = lane_type(type_)
        return Vector(tuple(unknown(lane, fresh) for _ in range(type_.lanes)))
    if type_.kind == "pointer":
        return LOST
    found = integer(type_)
    return OPAQUE if found is None else fresh(*x.type_range(*found))


def lane_type(type_: CType) -> CType:
    kind = "float" if type_.base in ("float", "double", "half") else "int"
    places = type_.lanes
    if places == 3 and type_.size & (type_.size - 1) == 0:  # three lanes take the room of four, but in vload3
        places = 4
    return CType(kind, type_.base, type_.base, size=type_.size // max(places, 1))


def convert(value: Value, type_: CType, fresh: Fresh) -> Value:
    """The value after a cast to ``type_``, implicit or not."""
    if type_.kind == "vector":
        lane = lane_type(type_)
        if isinstance(value, Vector):
            if len(value.lanes) != type_.lanes:
                return unknown(type_, fresh)
            return Vector(tuple(convert(v, lane, fresh) for v in value.lanes))
        if isinstance(value, Pointer):
            return unknown(type_, fresh)
        return Vector((convert(value, lane, fresh),) * type_.lanes)
    if type_.kind == "pointer":
        return value if isinstance(value, Pointer) else LOST
    found = integer(type_)
    if found is None:
        return value if isinstance(value, Real) and type_.base in FOLLOWED else OPAQUE
    if not isinstance(value, Expr):
        return fresh(*x.type_range(*found))
    if type_.kind == "bool":
        return x.truth(value)
    bits, signed = found
    return x.wrap(_bare(value, bits), bits, signed)


def arithmetic(op: str, left: Expr, right: Expr, type_: CType, fresh: Fresh) -> Expr:
    """``left op right`` computed in an integer type."""
    found = integer(type_)
    if found is None:
        return fresh(-x.INFINITE, x.INFINITE)
    bits, signed = found
    value = _result(op, left, right, bits, signed)
    if value is None or len(value.key) > x.LONGEST:
        low, high = x.type_range(bits, signed)
        if op == "&" and (left.low >= 0 or right.low >= 0):
            high = min(side.high for side in (left, right) if side.low >= 0)
            low = 0
        elif op in ("|", "^") and left.low >= 0 and right.low >= 0:
            low, high = 0, min(high, (1 << max(left.high.bit_length(), right.high.bit_length())) - 1)
        elif (op == ">>" and left.low >= 0) or (op in ("/", "%") and left.low >= 0 and right.low >= 0):
            low, high = 0, min(high, left.high)
        return fresh(low, high)
    return value if signed and op in _MAY_OVERFLOW else x.wrap(value, bits, signed)


_MAY_OVERFLOW = ("+", "-", "*", "/", "<<")  # of a signed type: undefined; the caller decides what then holds


def _bare(e: Expr, bits: int) -> Expr:
    """Without wraps that make no difference modulo 2**bits."""
    while e.op == "wrap" and abs(e.value) >= bits:
        e = e.args[0]
    if e.op == "sum" and any(a.op == "wrap" and abs(a.value) >= bits for a in e.args):
        return x.add(x.const(e.value), *(x.scale(_bare(a, bits), f) for a, f in zip(e.args, e.terms, strict=True)))
    return e


def address(e: Expr) -> Expr:
    """A number of bytes added to an address: addresses are 64 bits wide, so higher ones make no difference."""
    plain = _bare(e, 64)
    low, high = x.type_range(64, True)
    constant = plain.value if plain.op in ("const", "sum") else 0
    if not low <= constant <= high:
        plain = x.add(plain, x.const((constant - low) % (1 << 64) + low - constant))
    return plain if low <= plain.low and plain.high <= high else x.wrap(plain, 64, True)


def _result(op: str, left: Expr, right: Expr, bits: int, signed: bool) -> Expr | None:
    if op in ("+", "-", "*"):
        if not signed:
            left, right = _bare(left, bits), _bare(right, bits)
        return x.add(left, right) if op == "+" else x.subtract(left, right) if op == "-" else x.mul(left, right)
    if op == "/":
        return x.divide(left, right)
    if op == "%":
        return x.remainder(left, right)
    if op in ("<<", ">>"):
        if right.op != "const":
            return _shifted_by_one_of(op, left, right, bits, signed)
        amount = right.value % bits
        if op == "<<":
            return x.scale(left if signed else _bare(left, bits), 1 << amount)
        return x.divide(left, x.const(1 << amount), floor=True)
    if left.op == "const" and right.op == "const":
        a, b = left.value, right.value
        return x.const({"&": a & b, "|": a | b, "^": a ^ b}[op])
    return _bitwise(op, left, right, bits)


_MOST_SHIFTS = 16


def _shifted_by_one_of(op: str, left: Expr, right: Expr, bits: int, signed: bool) -> Expr | None:
    """A shift by a number between narrow bounds: a choice among all it may be."""
    if right.unknown or right.low < 0 or right.high >= bits or right.high - right.low >= _MOST_SHIFTS:
        return None
    result: Expr | None = None
    for amount in range(right.low, right.high + 1):
        value = _result(op, left, x.const(amount), bits, signed)
        if value is None:
            return None
        result = value if result is None else x.select(x.equal(right, x.const(amount)), value, result)
    return result


def _bitwise(op: str, left: Expr, right: Expr, bits: int) -> Expr | None:
    """``&``, ``|`` and ``^`` as arithmetic, where one side is constant or the two have no bits in common."""
    mask, other = (left, right) if left.op == "const" else (right, left)
    if mask.op == "const":
        common = _masked(other, mask.value, bits)
        if common is None or op == "&":
            return common
        bit = mask.value
        if op == "^" and bit > 0 and bit & (bit - 1) == 0 and other.low >= 0:
            # a sum of what is not negative, so that it is seen not to come around
            above, below = x.divide(other, x.const(2 * bit), floor=True), _masked(other, bit - 1, bits)
            if above is not None and below is not None:
                return x.add(x.scale(above, 2 * bit), x.subtract(mask, common), below)
        twice = x.subtract(x.add(other, mask), common)  # a | b == a + b - (a & b)
        return twice if op == "|" else x.subtract(twice, common)
    if op in ("|", "^") and not possible_bits(left) & possible_bits(right):
        return x.add(left, right)
    return None


def possible_bits(e: Expr) -> int:
    """The bits that may be set in a number; all of them (-1) if it may be negative."""
    if e.low < 0:
        return -1
    if e.op == "const":
        return e.value
    bits = (1 << e.high.bit_length()) - 1
    by = x.divisor(e)
    bits &= -(by & -by)  # what divides it leaves its lowest bits clear
    if e.op == "sum" and e.value >= 0 and all(f & (f - 1) == 0 for f in e.terms):
        parts = [possible_bits(a) << f.bit_length() - 1 for a, f in zip(e.args, e.terms, strict=True)]
        together = e.value
        for part in parts:
            if part < 0 or part & together:
                return bits
            together |= part
        return bits & together
    if e.op == "fmod" and e.args[1].op == "const" and e.args[1].value & (e.args[1].value - 1) == 0:
        return bits & possible_bits(e.args[0])
    return bits


_MOST_RUNS = 4  # of ones in a mask


def _masked(value: Expr, mask: int, bits: int) -> Expr | None:
    """``value & mask``: for each run of ones in the mask, the value moved down, cut and moved up again."""
    if mask < 0:
        rest = _masked(value, ~mask, bits)
        return None if rest is None else x.subtract(value, rest)
    result, runs, low = x.ZERO, 0, 0
    while mask >> low:
        if not mask >> low & 1:
            low += 1
            continue
        high = low
        while mask >> high & 1:
            high += 1
        runs += 1
        if runs > _MOST_RUNS:
            return None
        lowered = x.divide(value, x.const(1 << low), floor=True)
        ones = None if lowered is None else x.remainder(lowered, x.const(1 << high - low), floor=True)
        if ones is None:
            return None
        result = x.add(result, x.scale(ones, 1 << low))
        low = high
    return result


def compare(op: str, left: Expr, right: Expr) -> Expr:
    return {
        "<": lambda: x.less(left, right),
        ">": lambda: x.less(right, left),
        "<=": lambda: x.less(left, x.add(right, x.ONE)),
        ">=": lambda: x.less(right, x.add(left, x.ONE)),
        "==": lambda: x.equal(left, right),
        "!=": lambda: x.negate(x.equal(left, right)),
    }[op]()


def swizzle(word: str, lanes: int) -> tuple[int, ...] | None:
    """The lanes that a vector component means: ``xyzw``, ``rgba``, ``s0f``, ``lo``, ``hi``, ``even``, ``odd``."""
    padded = 4 if lanes == 3 else lanes
    halves = {"lo": range(padded // 2), "hi": range(padded // 2, padded)}
    halves |= {"even": range(0, padded, 2), "odd": range(1, padded, 2)}
    if word in halves:
        found = tuple(halves[word])
    elif word[:1] in ("s", "S") and len(word) > 1 and all(c in "0123456789abcdefABCDEF" for c in word[1:]):
        found = tuple(int(c, 16) for c in word[1:])
    elif word and all(c in "xyzw" for c in word):
        found = tuple("xyzw".index(c) for c in word)
    elif word and all(c in "rgba" for c in word):
        found = tuple("rgba".index(c) for c in word)
    else:
        return None
    return found if all(lane < lanes for lane in found) else None


def arithmetic_kind(type_: CType) -> str:
    """Under which name operations on a type are counted: float, double, half or int."""
    return type_.base if type_.kind != "pointer" and type_.base in FLOATING else "int"
