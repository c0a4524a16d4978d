"""Random expressions of any type of OpenCL C, of which nothing is undefined and no rounding is left open.

Sums, differences and products of signed numbers are those of unsigned ones, and divisors never 0 or -1, but in kernels
that are ``raw``: signed numbers overflow there, and wrap, and what is divided by 0 is not used. Floats become
integers by saturated conversions only, and never a NaN, which should become 0, and does so natively, not with PoCL and
Oclgrind. What a NaN's bits are is nowhere seen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.fuzz.fuzz_types import (
    BY_ZERO,
    DOUBLE,
    FLOAT,
    INT,
    INTEGERS,
    KINDS,
    KNOWN_FAULTS,
    LEAST,
    OF_FLOATS,
    OF_INTEGERS,
    OVERFLOW,
    ROUNDED,
    SCALAR,
    TESTS,
    UINT,
    WIDTHS,
    Kind,
    edges,
    signed,
    unsigned,
)

LETTERS = "xyzw"
DIGITS = "0123456789abcdef"


@dataclass(frozen=True)
class Variable:
    name: str
    kind: Kind
    width: int
    fixed: bool = False  # nothing is assigned to it

    @property
    def type(self) -> str:
        return self.kind.wide(self.width)


@dataclass(frozen=True)
class Array:
    """``length``, a power of two, elements in private, local, constant or global memory; ``own``: this work-item may
    write them."""

    name: str
    kind: Kind
    width: int
    length: int
    own: bool = True
    space: str = "private"


@dataclass(frozen=True)
class Function:
    """A helper that returns a value; ``pointers``: parameters that are pointers to private variables."""

    name: str
    kind: Kind
    width: int
    parameters: tuple[tuple[Kind, int, bool], ...]


class Expressions:
    """Random expressions over what is in ``scope``, ``arrays`` and ``functions``."""

    def __init__(self, r: random.Random, dimensions: int) -> None:
        self.r, self.dimensions = r, dimensions
        self.scope: list[Variable] = []
        self.arrays: list[Array] = []
        self.functions: list[Function] = []
        self.called: set[str] = set()  # functions with the types of their arguments, as known faults name them
        self.raw, self.odd = self.chance(0.35), self.chance(0.1)  # ``odd``: with what is known to be wrong elsewhere
        self.kinds = [*r.sample(INTEGERS, r.randint(2, 4)), *r.sample([FLOAT, DOUBLE, INT], r.randint(0, 2))]

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    def kind(self) -> Kind:
        return self.r.choice(self.kinds) if self.chance(0.9) else self.r.choice(KINDS)

    def width(self) -> int:
        return self.r.choice((1, 1, 1, 1, *WIDTHS))

    def integer(self) -> Kind:
        return self.r.choice([k for k in self.kinds if not k.is_float])

    def value(self, kind: Kind, width: int, depth: int) -> str:
        """An expression of exactly this type, in brackets where it needs some."""
        if depth <= 0 or self.chance(0.12):
            return self.leaf(kind, width)
        if self.chance(0.12):
            return self.converted(kind, width, depth)
        if width > 1 and self.chance(0.25):
            return self.gathered(kind, width, depth)
        if self.chance(0.1) and (found := self.call(kind, width, depth)):
            return found
        if self.chance(0.1) and (found := self.element(kind, width, depth)):
            return found
        if self.chance(0.1):
            return self.chosen(kind, width, depth)
        return self.of_floats(kind, width, depth) if kind.is_float else self.of_integers(kind, width, depth)

    def leaf(self, kind: Kind, width: int) -> str:
        known = [v for v in self.scope if v.kind == kind and v.width == width]
        if known and self.chance(0.7):
            return self.r.choice(known).name
        wider = [v for v in self.scope if v.kind == kind and v.width > max(width, 1)]
        if wider and width != 3 and self.chance(0.6):
            return self.swizzle(self.r.choice(wider), width)
        others = [v for v in self.scope if v.width == width and v.kind != kind]
        if others and self.chance(0.6):
            return self.conversion(kind, self.r.choice(others))
        if width == 1:
            return self.query(kind) if not kind.is_float and self.chance(0.3) else self.literal(kind)
        if self.chance(0.5 if width <= 4 else 0.9):
            return f"(({kind.wide(width)})({self.leaf(kind, 1)}))"
        return f"(({kind.wide(width)})({', '.join(self.literal(kind) for _ in range(width))}))"

    def literal(self, kind: Kind) -> str:
        return self.r.choice(edges(kind))

    def query(self, kind: Kind) -> str:
        name = self.r.choice(
            ("global_id", "global_id", "local_id", "local_id", "group_id", "global_size", "local_size", "num_groups")
        )
        return f"(({kind.name})get_{name}({self.r.randrange(self.dimensions)}))"

    def swizzle(self, v: Variable, width: int) -> str:
        """``width`` components of a wider variable."""
        if width == v.width // 2 and v.width != 3 and self.chance(0.5):
            return f"{v.name}.{self.r.choice(('lo', 'hi', 'even', 'odd'))}"
        picked = [self.r.randrange(v.width) for _ in range(width)]
        if v.width <= 4 and self.chance(0.5):
            return f"{v.name}.{''.join(LETTERS[p] for p in picked)}"
        return f"{v.name}.{self.r.choice('sS')}{''.join(DIGITS[p] for p in picked)}"

    def conversion(self, kind: Kind, v: Variable) -> str:
        return self.convert(kind, v.kind, v.width, v.name)

    def convert(self, kind: Kind, given: Kind, width: int, text: str) -> str:
        mode = self.r.choice(("", "", "_rte", "_rtz", "_rtp", "_rtn"))
        target = kind.wide(width)
        if given.is_float and not kind.is_float:
            return f"convert_{target}_sat{mode}(NUMBER({text}, {given.wide(width)}))"
        if kind.is_float:
            return f"convert_{target}{mode}({text})"
        if width == 1 and self.chance(0.3):
            return f"(({target})({text}))"
        return f"convert_{target}{self.r.choice(('', '', '_sat'))}{self.r.choice(('', '', mode))}({text})"

    def converted(self, kind: Kind, width: int, depth: int) -> str:
        given = self.kind()
        if not kind.is_float and self.chance(0.4):
            given = unsigned(kind) if kind.code == "s" else signed(kind)
            return f"as_{kind.wide(width)}({self.value(given, width, depth - 1)})"
        if not kind.is_float and width > 1 and width != 3 and self.chance(0.3):
            same = [
                (k, w) for k in INTEGERS for w in WIDTHS if w != 3 and k.nbytes * w == kind.nbytes * width and k != kind
            ]
            given, wide = self.r.choice(same)
            return f"as_{kind.wide(width)}({self.value(given, wide, depth - 1)})"
        if given == kind:
            return self.value(kind, width, depth - 1)
        return self.convert(kind, given, width, self.value(given, width, depth - 1))

    def gathered(self, kind: Kind, width: int, depth: int) -> str:
        """A vector of parts."""
        pick = self.r.random()
        target = kind.wide(width)
        if pick < 0.25:
            return f"(({target})({self.value(kind, 1, depth - 1)}))"
        if pick < 0.4 and width in (4, 8, 16):
            # the mask's elements are as large as the data's
            mask = self.value(unsigned(kind), width, depth - 2)
            if self.chance(0.5):
                half = self.value(kind, width // 2, depth - 1)
                return f"shuffle2({half}, {self.value(kind, width // 2, depth - 1)}, {mask})"
            return f"shuffle({self.value(kind, self.r.choice((2, 4, 8)), depth - 1)}, {mask})"
        parts, left = [], width
        while left:
            part = self.r.choice([w for w in WIDTHS if w <= left and w < width])
            parts.append(self.value(kind, part, depth - 2))
            left -= part
        return f"(({target})({', '.join(parts)}))"

    def call(self, kind: Kind, width: int, depth: int) -> str:
        known = [f for f in self.functions if f.kind == kind and f.width == width]
        if not known:
            return ""
        f = self.r.choice(known)
        texts = []
        for of, wide, is_pointer in f.parameters:
            if not is_pointer:
                texts.append(self.value(of, wide, depth - 2))
                continue
            fitting = [v.name for v in self.scope if v.kind == of and v.width == wide and not v.fixed]
            if not fitting:
                return ""
            texts.append(f"&{self.r.choice(fitting)}")
        if any(texts.count(t) > 1 for t in texts if t.startswith("&")) or sum(t.startswith("&") for t in texts):
            return ""  # what is changed may be read in the same expression: only statements call these
        return f"{f.name}({', '.join(texts)})"

    def index(self, length: int, depth: int) -> str:
        kind = self.r.choice((INT, UINT, *INTEGERS))
        return f"AT({self.value(kind, 1, depth)}, {length})"

    def element(self, kind: Kind, width: int, depth: int) -> str:
        """What lies in an array: an element, or ``width`` of them."""
        known = [
            a for a in self.arrays if a.kind == kind and (a.width == width or (a.width == 1 and a.length >= width))
        ]
        if not known:
            return ""
        a = self.r.choice(known)
        if a.width == width:
            return f"{a.name}[{self.index(a.length, depth - 1)}]"
        places = max(1, a.length // (16 if width > 8 else 8 if width > 4 else 4 if width > 2 else 2))
        return f"vload{width}({self.index(places, depth - 1)}, {a.name})"

    def chosen(self, kind: Kind, width: int, depth: int) -> str:
        yes, no = self.value(kind, width, depth - 1), self.value(kind, width, depth - 1)
        if width == 1:
            return self.narrowed(kind, width, f"{self.condition(depth - 1)} ? {yes} : {no}")
        if self.chance(0.4):
            mask = self.r.choice((signed(kind), unsigned(kind)))
            return f"select({yes}, {no}, {self.value(mask, width, depth - 1)})"
        return f"({self.mask(kind, width, depth - 1)} ? {yes} : {no})"

    def mask(self, kind: Kind, width: int, depth: int) -> str:
        """A vector of 0 and -1, of signed integers as large as the kind."""
        a, b = self.value(kind, width, depth - 1), self.value(kind, width, depth - 1)
        if kind.is_float and self.chance(0.5):
            return self.builtin(TESTS, kind)[1].format(a, b, t=kind.wide(width))
        return f"({a} {self.r.choice(('<', '<=', '>', '>=', '==', '!='))} {b})"

    def condition(self, depth: int) -> str:
        """A scalar that is tested."""
        pick = self.r.random()
        if pick < 0.15 and depth > 0:
            return f"({self.condition(depth - 1)} {self.r.choice(('&&', '||'))} {self.condition(depth - 1)})"
        if pick < 0.25:
            return f"(!{self.condition(depth - 1)})"
        if pick < 0.35:
            kind = self.integer()
            width = self.r.choice((2, 3, 4, 8, 16))
            return f"({self.r.choice(('any', 'all'))}({self.mask(kind, width, depth - 1)}))"
        kind = self.kind()
        a, b = self.value(kind, 1, depth - 1), self.value(kind, 1, depth - 1)
        return f"({a} {self.r.choice(('<', '>', '==', '!='))} {b})"

    def of_integers(self, kind: Kind, width: int, depth: int) -> str:
        a, b = self.value(kind, width, depth - 1), self.value(kind, width, depth - 1)
        target, u = kind.wide(width), unsigned(kind).wide(width)
        pick = self.r.random()
        if width > 1 and self.chance(0.15):
            b = self.value(kind, 1, depth - 1)  # a scalar, which is widened
            if pick < 0.45 and kind.code == "u":
                return f"({a} {self.r.choice('+-*&|^')} {b})"
            if pick < 0.7 or not self.odd:
                return f"({a} {self.r.choice('&|^')} {b})"
            self.called.add(SCALAR)
            return f"{self.r.choice(('min', 'max'))}({a}, {b})"
        if pick < 0.27:
            return self.wrapped(self.r.choice("+-*"), kind, width, a, b)
        if pick < 0.3:
            return self.wrapped("-", kind, width, "", a)
        if pick < 0.45:
            return self.narrowed(kind, width, f"{a} {self.r.choice('&|^')} {b}")
        if pick < 0.5:
            return self.narrowed(kind, width, f"~{a}")
        if pick < 0.58:
            return self.shifted(kind, width, a, b)
        if pick < 0.66:
            return self.divided(kind, width, a, b)
        if pick < 0.7:
            if width == 1:
                return f"(({target})({self.condition(depth - 1)}))"
            return f"as_{target}({self.mask(kind, width, depth)})"
        if pick < 0.73 and kind.nbytes > 1:
            half = {2: 1, 4: 2, 8: 4}[kind.nbytes]
            given = next(k for k in INTEGERS if k.nbytes == half and k.code == kind.code)
            low = unsigned(given)
            return f"upsample({self.value(given, width, depth - 1)}, {self.value(low, width, depth - 1)})"
        if pick < 0.76 and kind in (INT, UINT):
            name = self.r.choice(("mul24", "mad24"))
            texts = [f"({t} & ({target})(0x7fff))" for t in (a, b)] + (
                [f"({a} & ({target})(0xffff))"] * (name == "mad24")
            )
            return f"{name}({', '.join(texts)})"
        result, text = self.builtin(OF_INTEGERS, kind)
        if result == "u":
            given = self.r.choice((kind, signed(kind))) if kind.code == "u" and self.odd else kind
            self.called.add(f"{text.partition('(')[0]} {given.name}")
            texts = [self.value(given, width, depth - 1) for _ in range(2)]
            called = text.format(*texts)
            return called if kind.code == "u" else f"as_{target}({called})"
        return text.format(a, b, self.value(kind, width, depth - 1), t=target, u=u)

    def builtin(self, known: Sequence[tuple[str, str]], kind: Kind) -> tuple[str, str]:
        """One of the functions, which is noted."""
        while True:
            result, text = self.r.choice(known)
            named = f"{text.lstrip('(').partition('(')[0]} {kind.name}"
            if self.odd or not any(named in faults for faults in KNOWN_FAULTS.values()):
                self.called.add(named)
                return result, text

    def narrowed(self, kind: Kind, width: int, text: str) -> str:
        """Scalars below int become ints in expressions."""
        return f"(({kind.name})({text}))" if width == 1 and kind.bits < 32 else f"({text})"

    def wrapped(self, operator: str, kind: Kind, width: int, a: str, b: str) -> str:
        """``a`` may be empty: then ``b`` is negated."""
        is_small = width == 1 and kind.bits < 32
        if self.raw and self.chance(0.7) and kind.name != "ulong" and kind.name != "uint":
            self.called.add(OVERFLOW)
            return self.narrowed(kind, width, f"{a} {operator} {b}")
        if is_small:
            return f"(({kind.name})({a and f'(uint){a}'} {operator} (uint){b}))"
        if kind.code == "u":
            return f"({a} {operator} {b})"
        u = unsigned(kind).wide(width)
        return f"as_{kind.wide(width)}({a and f'as_{u}({a})'} {operator} as_{u}({b}))"

    def shifted(self, kind: Kind, width: int, a: str, b: str) -> str:
        operator = self.r.choice(("<<", ">>"))
        by = b if self.chance(0.4) else f"({b} & ({kind.wide(width)})({kind.bits - 1}))"
        if width == 1 and kind.bits < 32:
            return f"(({kind.name})((uint){a} << {by}))" if operator == "<<" else f"(({kind.name})({a} >> {by}))"
        if operator == ">>" or kind.code == "u" or self.chance(0.5):
            return f"({a} {operator} {by})"
        u = unsigned(kind).wide(width)
        return f"as_{kind.wide(width)}(as_{u}({a}) << as_{u}({by}))"

    def divided(self, kind: Kind, width: int, a: str, b: str) -> str:
        operator, target = self.r.choice("/%"), kind.wide(width)
        if self.raw and (self.odd or kind.name != "long") and self.chance(0.6):
            self.called.add(f"{LEAST} {kind.name}")
            if self.chance(0.5):
                return self.narrowed(kind, width, f"{a} {operator} ODD({b}, {target})")
            if width > 1:
                self.called.add(BY_ZERO)
            quotient = self.narrowed(kind, width, f"{a} {operator} {b}")
            other = self.leaf(kind, width)
            if width > 1 and self.chance(0.5):
                return f"select({quotient}, {other}, {b} == ({target})(0))"
            return self.narrowed(kind, width, f"{b} == ({target})(0) ? {other} : {quotient}")
        most = self.r.choice((3, 7, 15, 31, 2 ** (kind.bits - 1) - 1))
        divisor = f"DIVISOR({b}, {target}, {most})"
        if kind.code == "s" and self.chance(0.3):
            divisor = f"(-{divisor})"
        return self.narrowed(kind, width, f"{a} {operator} {divisor}")

    def of_floats(self, kind: Kind, width: int, depth: int) -> str:
        a, b = self.value(kind, width, depth - 1), self.value(kind, width, depth - 1)
        pick = self.r.random()
        if pick < 0.5:
            return f"({a} {self.r.choice('+-*/')} {b})"
        if pick < 0.55:
            return f"(-{a})"
        if pick < 0.6:
            other = self.value(signed(kind), width, depth - 1)
            return self.convert(kind, signed(kind), width, other)
        number = self.convert(INT, INT, width, self.value(INT, width, depth - 2))
        some = self.convert(kind, INT, width, self.value(INT, width, depth - 2))
        text = self.builtin(OF_FLOATS, kind)[1]
        if width == 1 and text.startswith(("ceil", "floor", "round", "trunc")):
            self.called.add(ROUNDED)
        return text.format(a, b, self.value(kind, width, depth - 2), t=kind.wide(width), i=number, x=some)
