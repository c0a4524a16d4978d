"""What random kernels are given: work-groups, arguments with their contents, local and private arrays, structures."""

from __future__ import annotations

import random

import numpy as np

from tests.analysis.corpus_case import Argument, Buffer, Image, Local
from tests.fuzz.fuzz_expressions import Array, Expressions, Variable
from tests.fuzz.fuzz_tree import Node
from tests.fuzz.fuzz_types import (
    FLOAT,
    GREY,
    IMAGES,
    INT,
    UINT,
    Kind,
)

DATA = 64  # elements of inputs that every work-item may read


class Inputs(Expressions):
    """What a kernel in the making is given: its work-groups, arguments, and memory of its own."""

    def __init__(self, r: random.Random, name: str) -> None:
        super().__init__(r, r.choice((1, 1, 1, 1, 2, 2, 3)))
        self.name = name
        local = {1: (1, 2, 3, 4, 5, 8, 16, 32), 2: (1, 2, 3, 4), 3: (1, 2, 3)}[self.dimensions]
        self.local = tuple(r.choice(local) for _ in range(self.dimensions))
        self.groups = tuple(r.choice((1, 2, 3, 5) if self.dimensions > 1 else (2, 3, 4, 6, 9)) for _ in self.local)
        self.items = int(np.prod(self.local))  # of a group
        self.count = self.items * int(np.prod(self.groups))
        self.parameters: list[str] = []
        self.arguments: list[Argument] = []
        self.before: list[Node] = []
        self.declared: list[str] = []  # local arrays, at the kernel's beginning
        self.fresh = 0
        self.opened: list[set[str]] = []  # of each block around, the variables that it declares
        self.writable: list[Array] = []
        self.has_barriers = r.random() < 0.5
        self.folds: set[str] = set()
        self.images: list[tuple[str, Kind]] = []
        self.pointers: list[Node] = []
        self.in_helper = False

    def new(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def linear(self, which: str) -> str:
        """A work-item's number in the launch or in its group, from 0 on also where there is an offset."""
        text = ""
        for d in reversed(range(self.dimensions)):
            at = f"get_local_id({d})" if which == "local" else f"(get_global_id({d}) - get_global_offset({d}))"
            text = f"({text} * get_{which}_size({d}) + {at})" if text else at
        return text

    # what a kernel is given

    def parameter(self, declared: str, argument: Argument) -> None:
        self.parameters.append(declared)
        self.arguments.append(argument)

    def random_bytes(self, kind: Kind, count: int) -> Buffer:
        """Numbers of all sizes; of floats no NaN, whose bits would be seen."""
        if kind.is_float:
            return Buffer(kind.dtype, count, -1000, 1000, steers=True)
        return Buffer(kind.dtype, count, whole=True, steers=True)

    def _inputs(self) -> None:
        for _ in range(self.r.randint(1, 3)):
            kind, name = self.kind(), self.new("in")
            width = self.r.choice((1, 1, 1, 2, 4, 8, 16))
            space = self.r.choice(("global const", "global const", "constant"))
            words = self.r.choice(("", "", " restrict"))
            self.parameter(f"{space} {kind.wide(width)} *{words} {name}", self.random_bytes(kind, DATA * width))
            self.arrays.append(Array(name, kind, width, DATA, own=False, space=space))
            if self.chance(0.2):
                self.pointers.append(
                    f"{space} {kind.wide(width)} *{name}_at = {name} + {self.r.randint(0, DATA // 2)};"
                )
                self.arrays.append(Array(f"{name}_at", kind, width, DATA // 2, own=False, space=space))
        if self.chance(0.3):
            kind, name, width = self.kind(), f"{self.name}_{self.new('table')}", self.r.choice((1, 1, 2, 4))
            values = [t for t in (self.literal(kind) for _ in range(64 * width)) if "N" not in t][: 16 * width]
            texts = [f"({kind.wide(width)})({', '.join(values[i::16])})" for i in range(16)] if width > 1 else values
            self.before.append(f"constant {kind.wide(width)} {name}[16] = {{{', '.join(texts)}}};")
            self.arrays.append(Array(name, kind, width, 16, own=False, space="constant"))
        for _ in range(self.r.randint(1, 2) if self.chance(0.08) else 0):
            kind, name, channels = (
                self.r.choice((INT, UINT, FLOAT)),
                self.new("image"),
                self.r.choice((1, 4)) if self.odd else 4,
            )
            nbytes = 4 if kind.is_float else self.r.choice((1, 2, 4))
            shape = (self.r.randint(1, 9), self.r.randint(1, 9))
            low = -100 if kind.code != "u" else 0
            count = shape[0] * shape[1] * channels
            self.parameter(
                f"read_only image2d_t {name}", Image(f"{kind.dtype[0]}{nbytes}", count, low, 100, True, shape=shape)
            )
            self.images.append((name, kind))
            self.called |= {IMAGES} if channels == 4 else {IMAGES, GREY}
        for _ in range(self.r.randint(0, 2)):
            kind, name = self.integer(), self.new("n")
            width = self.r.choice((1, 1, 1, 4))
            low, high = (-3, 9) if kind.code == "s" else (0, 9)
            values = np.array([self.r.randint(low, high) for _ in range(width)], kind.dtype)
            self.parameter(f"{kind.wide(width)} {name}", values if width > 1 else values[0])
            self.scope.append(Variable(name, kind, width, fixed=width == 1 and self.chance(0.6)))

    def _locals(self) -> None:
        """Local arrays with an element for each item of the group, as arguments and declared."""
        self.exchanged: list[Array] = []
        for _ in range(self.r.randint(1, 2) if self.has_barriers else 0):
            kind, width, name = self.kind(), self.r.choice((1, 1, 1, 2, 3, 4, 8)), self.new("shared")
            if self.chance(0.4):
                nbytes = self.items * kind.nbytes * (4 if width == 3 else width)
                self.parameter(f"local {kind.wide(width)} *{name}", Local(nbytes))
            else:
                self.declared.append(f"local {kind.wide(width)} {name}[{self.items}];")
            self.exchanged.append(Array(name, kind, width, self.items, space="local"))

    def declared_arrays(self) -> list[Node]:
        """Private arrays and structs."""
        found: list[Node] = []
        for _ in range(self.r.randint(0, 2)):
            kind, width, length, name = (
                self.kind(),
                self.r.choice((1, 1, 2, 4)),
                self.r.choice((4, 8, 16)),
                self.new("a"),
            )
            values = ", ".join(self.value(kind, width, 1) for _ in range(length))
            rows = "[2]" if self.chance(0.2) else ""
            found.append(f"{kind.wide(width)} {name}{rows}[{length // 2 if rows else length}] = {{{values}}};")
            if rows or self.chance(0.2):
                name, array, at = self.new("at"), name, 0 if rows else self.r.choice((0, length // 2))
                found.append(f"{kind.wide(width)} *{name} = {f'&{array}[0][0]' if rows else f'{array} + {at}'};")
                length //= 2 if at else 1
            self.arrays.append(Array(name, kind, width, length))
            self.writable.append(self.arrays[-1])
        for _ in range(self.r.choice((0, 0, 1))):
            found += self._struct()
        return found

    def _struct(self) -> list[Node]:
        fields = [(self.new("f"), self.kind(), self.r.choice((1, 1, 1, 2, 3, 4))) for _ in range(self.r.randint(2, 5))]
        kind, name = f"{self.name}_{self.new('S')}", self.new("s")
        members = " ".join(f"{k.wide(w)} {n};" for n, k, w in fields)
        inner, array = self.new("g"), self.new("h")
        members += f" int {array}[4]; struct {{ short2 {inner}; }} {inner}s;"
        self.before.append(f"typedef struct {{ {members} }} {kind};")
        values = ", ".join(self.value(k, w, 1) for _, k, w in fields)
        found: list[Node] = [f"{kind} {name} = {{{values}, {{1, 2, 3, {self.value(INT, 1, 1)}}}, {{(short2)(3, 4)}}}};"]
        self.scope += [Variable(f"{name}.{n}", k, w) for n, k, w in fields]
        self.arrays.append(Array(f"{name}.{array}", INT, 1, 4))
        self.writable.append(self.arrays[-1])
        if self.chance(0.5):
            copy = self.new("s")
            found.append(f"{kind} {copy} = {name};")
            self.scope += [Variable(f"{copy}.{n}", k, w) for n, k, w in fields]
        return found
