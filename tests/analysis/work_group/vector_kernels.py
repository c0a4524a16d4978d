"""Random kernels of expressions of vectors, in which nothing is undefined and every operation has one result."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from tests.analysis.corpus_case import Buffer, Case, Launch

PROLOGUE = """#pragma OPENCL FP_CONTRACT OFF
float4 turned(float4 v, float by) { v.xy = v.yx * by; v.w -= v.z; return v; }
uint2 mixed(uint2 v) { return (v ^ (v >> 3u)) * 0x7feb352du; }
"""
LANES = "0123456789abcdef"
BASES = ("float", "uint", "int")


@dataclass
class Maker:
    """Statements and expressions of the variables ``f0`` to ``f2``, ``u0`` to ``u2`` and ``i0`` to ``i2``, vectors of
    ``lanes`` floats, uints and ints."""

    random: random.Random
    lanes: int

    def kind(self, base: str) -> str:
        return f"{base}{self.lanes}"

    def name(self, base: str) -> str:
        return f"{base[0]}{self.random.randrange(3)}"

    def lane(self) -> str:
        return f"s{self.random.choice(LANES[: self.lanes])}"

    def scalar(self, base: str, depth: int) -> str:
        r = self.random
        if depth <= 0 or r.random() < 0.3:
            literals = {"float": ["0.5f", "-1.25f", "3.0f"], "uint": ["7u", "31u", "64u"], "int": ["0", "-1", "12"]}
            return r.choice(literals[base])
        return f"{self.vector(base, depth - 1)}.{self.lane()}"

    def swizzle(self, base: str, depth: int) -> str:
        r, of = self.random, self.vector(base, depth)
        if self.lanes != 3 and r.random() < 0.3:
            first, second = r.choice([("lo", "hi"), ("even", "odd"), ("hi", "hi")])
            return f"(({self.kind(base)})({of}.{first}, {self.vector(base, depth)}.{second}))"
        if self.lanes <= 4 and r.random() < 0.5:
            return f"{of}.{''.join(r.choice('xyzw'[: self.lanes]) for _ in range(self.lanes))}"
        return f"{of}.s{''.join(r.choice(LANES[: self.lanes]) for _ in range(self.lanes))}"

    def vector(self, base: str, depth: int) -> str:
        r = self.random
        if depth <= 0:
            return self.name(base)
        match r.randrange(9):
            case 0:
                return self.swizzle(base, depth - 1)
            case 1:
                return f"(({self.kind(base)})({self.scalar(base, depth)}))"
            case 2:
                return f"(({self.kind(base)})({', '.join(self.scalar(base, depth - 1) for _ in range(self.lanes))}))"
            case 3:
                condition = f"{self.vector('uint', depth - 1)} {r.choice(['<', '>=', '=='])} {self.vector('uint', 0)}"
                return f"(({condition}) ? {self.vector(base, depth - 1)} : {self.vector(base, depth - 1)})"
            case 4:
                return self.converted(base, depth)
            case 5:
                return f"(j & 1 ? {self.vector(base, depth - 1)} : {self.vector(base, depth - 1)})"
        return self.computed(base, depth)

    def computed(self, base: str, depth: int) -> str:
        r, one, two = self.random, self.vector(base, depth - 1), self.vector(base, depth - 1)
        if base == "float":
            return r.choice([
                f"({one} {r.choice('+-*')} {two})", f"({one} {r.choice('+-*')} {self.scalar(base, depth)})",
                f"(-{one})", f"{r.choice(['fmin', 'fmax'])}({one}, {two})", f"sqrt(fabs({one}))", f"floor({one})",
                f"({one} / (fabs({two}) + 1.0f))", f"clamp({one}, -2.0f, 9.0f)",
                f"vload{self.lanes}(i, (global const float *)fs)", f"fs[(i + {r.randrange(3)})]",
            ])  # fmt: skip
        if base == "uint":
            return r.choice([
                f"({one} {r.choice('+-*&|^')} {two})", f"({one} >> {self.scalar(base, 0)})", f"(~{one})",
                f"({one} << {two})", f"{r.choice(['min', 'max', 'rotate', 'mul_hi'])}({one}, {two})",
                f"({one} % ({two} | 5u))", "(*(us + i))",
            ])  # fmt: skip
        floats = self.vector("float", depth - 1), self.vector("float", depth - 1)
        return r.choice([
            f"({one} {r.choice('&|^')} {two})", f"({one} < {two})", f"(!{one})", f"({one} || {two})", f"(~{one})",
            f"({floats[0]} {r.choice(['<', '!=', '<='])} {floats[1]})",
        ])  # fmt: skip

    def converted(self, base: str, depth: int) -> str:
        n, r = self.lanes, self.random
        if base == "float":
            return f"convert_float{n}({self.vector('uint', depth - 1)} & 1023u)"
        if base == "uint":
            return r.choice([f"as_uint{n}({self.vector('int', depth - 1)})", f"convert_uint{n}(cs[i])"])
        return f"as_int{n}({self.vector('uint', depth - 1)})"

    def statement(self) -> str:
        r = self.random
        base = r.choice([*BASES, "float"])
        name, depth = self.name(base), r.randint(1, 3)
        match r.randrange(8):
            case 0:
                return f"{name}.{self.lane()} = {self.scalar(base, depth)};"
            case 1:
                lanes = r.sample(LANES[: self.lanes], 2)
                values = ", ".join(self.scalar(base, depth) for _ in lanes)
                return f"{name}.s{''.join(lanes)} = ({base}2)({values});"
            case 2:
                op = r.choice({"float": ["+=", "-=", "*="], "uint": ["+=", "*=", ">>="], "int": ["&=", "|="]}[base])
                return f"{name} {op} {self.scalar(base, 1) if r.random() < 0.3 else self.vector(base, depth)};"
            case 3:
                return f"if (i % 3 == {r.randrange(3)}) {name} = {self.vector(base, depth)};"
            case 4 if self.lanes == 4:
                return f"f0 = turned({self.vector('float', 1)}, {self.scalar('float', 1)});"
            case 5 if self.lanes == 2:
                return f"u1 = mixed({self.vector('uint', 1)}) + u1;"
            case 6:
                inner = f"{self.kind(base)} inner = {self.vector(base, depth)}, {name} = inner;"
                return f"{{ {inner} {name}.{self.lane()} = 1; inner = {name}; {base[0]}2 = inner; }}"
        return f"{name} = {self.vector(base, depth)};"


def generate(seed: int) -> Case:
    """A kernel some of whose statements are in a loop that all work-items turn alike, and a launch."""
    r = random.Random(seed)
    lanes = r.choice([2, 3, 4, 4, 8])
    maker, stride = Maker(r, lanes), 4 if lanes == 3 else lanes
    declared = [f"  {maker.kind(b)} {b[0]}{k} = {b[0]}s[i + {k}];" for b in BASES for k in range(3)]
    before, inside, behind = (["  " + maker.statement() for _ in range(r.randint(least, 3))] for least in (0, 1, 0))
    wait = r.choice(["", "  barrier(CLK_GLOBAL_MEM_FENCE);"])
    stored = [f"  {b[0]}o[3 * i + {k}] = {maker.vector(b, 1)};" for b in BASES for k in range(3)]
    if lanes == 3:  # what lies between elements is nobody's
        stored = [f"  vstore3({b[0]}{k}, 3 * i + {k}, (global {b} *){b[0]}o);" for b in BASES for k in range(3)]
    parameters = [f"global const {maker.kind(b)} *{b[0]}s, global {maker.kind(b)} *{b[0]}o" for b in BASES]
    parameters.append(f"global const {maker.kind('uchar')} *cs, int n")
    head = [PROLOGUE, f"kernel void v{seed}({', '.join(parameters)}) {{", "  int i = get_global_id(0), j = 1;"]
    loop = ["  for (j = 0; j < n; j++) {", *inside, "  }"]
    text = "\n".join([*head, *declared, *before, *loop, wait, *behind, *stored, "}", ""])
    group = r.choice([4, 8, 48])
    items = group * r.choice([2, 6, 8])
    buffers: list[Buffer | np.int32] = []
    for dtype, low in (("f4", -9), ("u4", 0), ("i4", -99)):
        buffers += [Buffer(dtype, stride * (items + 3), low, 1000), Buffer(dtype, 3 * stride * items, whole=True)]
    buffers += [Buffer("u1", stride * items, 0, 255), np.int32(r.randint(0, 4))]
    return Case(f"v{seed}", "", (Launch((items,), (group,), tuple(buffers)),), (True,), text=text)
