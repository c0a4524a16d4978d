"""Random kernels of OpenCL C that use all of the language, as launches of the corpus are described.

Nothing in them is undefined, no two work-items race, and what atomic operations leave does not depend on their order:
every implementation leaves the same bytes. Groups write elements of their own, so launches may be divided. A kernel is
a tree of lines, so that one that differs somewhere can be made smaller: what is removed takes its part with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.analysis.corpus_case import Buffer, Image, Launch
from tests.fuzz.fuzz_expressions import LETTERS, Function, Variable
from tests.fuzz.fuzz_inputs import Inputs
from tests.fuzz.fuzz_tree import Block, Kernel, Node
from tests.fuzz.fuzz_types import (
    DOUBLE,
    EXPONENTS,
    FLOAT,
    INT,
    INTEGERS,
    LONG,
    OVERFLOW,
    UINT,
    ULONG,
)

ATOMICS = ("add", "sub", "min", "max", "and", "or", "xor", "inc", "dec")
DEEP = 2


class Maker(Inputs):
    """One kernel in the making."""

    def made(self) -> Kernel:
        self._helpers()
        start: list[Node] = [f"const int item = {self.linear('global')}, mine = {self.linear('local')};"]
        self._inputs()
        self._locals()
        start += [*self.pointers, *self.declared_arrays()]
        body = [*start, *self.statements(0, self.r.randint(2, 5), uniform=True)]
        body += self._results()
        if self.images:
            for beyond in ("CLAMP", "CLAMP_TO_EDGE"):
                sampler = f"CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_{beyond} | CLK_FILTER_NEAREST"
                self.declared.append(f"const sampler_t beyond_{beyond} = {sampler};")
        at = 0 if not self.declared else 1
        body[at:at] = self.declared
        offset = tuple(self.r.choice((0, 0, 3)) for _ in self.local) if self.chance(0.1) else ()
        sizes = tuple(g * w for g, w in zip(self.groups, self.local, strict=True))
        launch = Launch(sizes, self.local, tuple(self.arguments), offset)
        return Kernel(self.name, self.parameters, self.before, body, launch, frozenset(self.called))

    def _helpers(self) -> None:
        for _ in range(self.r.choice((0, 0, 1, 2))):
            self._helper()

    def _helper(self) -> None:
        """A function of values, and of pointers to private variables; it may return early."""
        kind, width, name = self.kind(), self.width(), f"{self.name}_{self.new('h')}"
        given = [(self.kind(), self.width(), self.chance(0.25)) for _ in range(self.r.randint(1, 3))]
        kept = self.scope, self.arrays, self.dimensions
        self.scope, self.arrays, self.in_helper, words = [], [], True, []
        for k, w, is_pointer in given:
            p = self.new("p")
            words.append(f"{k.wide(w)} {'*' if is_pointer else ''}{p}")
            self.scope.append(Variable(f"(*{p})" if is_pointer else p, k, w))
        body: list[Node] = self.statements(1, self.r.randint(0, 2), uniform=False)
        if self.chance(0.4):
            body.append(f"if {self.condition(1)} return {self.value(kind, width, 1)};")
        body += self.statements(1, self.r.randint(0, 2), uniform=False)
        tail = [f"  return {self.value(kind, width, 2)};", "}"]
        self.before.append(Block([f"{kind.wide(width)} {name}({', '.join(words)}) {{"], body, tail))
        self.scope, self.arrays, _ = kept
        self.in_helper = False
        self.functions.append(Function(name, kind, width, tuple(given)))

    # statements

    @contextmanager
    def block(self) -> Iterator[None]:
        scope, arrays, writable, kinds = list(self.scope), list(self.arrays), list(self.writable), self.kinds
        yield
        self.scope, self.arrays, self.writable, self.kinds = scope, arrays, writable, kinds

    def statements(self, depth: int, count: int, uniform: bool, leave: str = "") -> list[Node]:
        """``uniform``: all work-items of the group are here; ``leave``: statements that end a turn of the loop."""
        found: list[Node] = []
        for _ in range(count):
            found += self.statement(depth, uniform, leave)
        return found

    def statement(self, depth: int, uniform: bool, leave: str) -> list[Node]:
        plain: list[Callable[[], list[Node]]] = [self._declare, self._declare, self._assign, self._assign]
        plain += [self._components, self._store]
        if not self.in_helper:
            plain += [self._halves, self._split, self._own_atomic]
            plain += [self._pixel] * 3 * len(self.images)
        made = self.r.choice(plain)
        if depth < DEEP and self.chance(0.35):
            return self._nested(depth, uniform, leave)
        if uniform and not self.in_helper and self.has_barriers and self.chance(0.4):
            return self.r.choice((self._exchange, self._exchange, self._tree, self._counted, self._copied))()
        if self.functions and self.chance(0.1):
            return self._called()
        if leave and self.chance(0.2):
            return [f"if {self.condition(1)} {self.r.choice(leave.split())};"]
        return made()

    def _declare(self) -> list[Node]:
        kind, width = self.kind(), self.width()
        hidden = [v.name for v in self.scope if v.name.startswith("v")]
        value = self.value(kind, width, self.r.choice((1, 2, 2, 3)))
        v = Variable(self.new("v"), kind, width)
        free = [n for n in hidden if n not in value and n not in self.opened[-1]] if self.opened else []
        if free and self.chance(0.1):
            v = Variable(self.r.choice(free), kind, width)  # another one of the name, in a block of its own
        self.declare(v)
        return [f"{v.type} {v.name} = {value};"]

    def declare(self, v: Variable) -> None:
        """From now on, a name is this variable's."""
        if self.opened:
            self.opened[-1].add(v.name)
        self.scope = [w for w in self.scope if w.name != v.name] + [v]

    def target(self) -> Variable | None:
        known = [v for v in self.scope if not v.fixed]
        return self.r.choice(known) if known else None

    def _assign(self) -> list[Node]:
        v = self.target()
        if v is None:
            return self._declare()
        value = self.value(v.kind, v.width, self.r.choice((1, 2, 2, 3)))
        operators = ["="]
        if not v.kind.is_float:
            operators += ["^=", "|=", "&="]
            if (v.kind.code == "u" and v.kind.bits >= 32) or (self.raw and self.chance(0.5)):
                operators += ["+=", "-=", "*="]
        elif v.kind.is_float:
            operators += ["+=", "*=", "-="]
        if (v.kind.code == "u" or (self.raw and not v.kind.is_float)) and self.chance(0.08):
            operators, value = ["++", "--"], ""
        operator = self.r.choice(operators)
        if v.kind.name not in ("uint", "ulong") and not v.kind.is_float and operator[0] in "+-*":
            self.called.add(OVERFLOW)
        return [f"{v.name} {operator} {value};".replace(" ;", ";")]

    def _components(self) -> list[Node]:
        """Part of a vector is assigned, or one of its elements through a pointer-like subscript."""
        known = [v for v in self.scope if v.width > 1 and not v.fixed]
        if not known:
            return self._assign()
        v = self.r.choice(known)
        if v.width != 3 and self.chance(0.3):
            part = self.r.choice(("lo", "hi", "even", "odd"))
            return [f"{v.name}.{part} = {self.value(v.kind, v.width // 2, 2)};"]
        width = self.r.choice([w for w in (1, 2, 3, 4, 8) if w <= v.width])
        picked = self.r.sample(range(v.width), width)
        letters = "".join(LETTERS[p] for p in picked) if v.width <= 4 else "s" + "".join(f"{p:x}" for p in picked)
        return [f"{v.name}.{letters} = {self.value(v.kind, width, 2)};"]

    def _store(self) -> list[Node]:
        """To an element of a private array, or several of them."""
        if not self.writable or self.in_helper:
            return self._assign()
        a = self.r.choice(self.writable)
        if a.width == 1 and self.chance(0.4):
            width = self.r.choice([w for w in (2, 4, 8, 16) if w <= a.length])
            at = self.index(a.length // width, 1)
            return [f"vstore{width}({self.value(a.kind, width, 2)}, {at}, {a.name});"]
        return [f"{a.name}[{self.index(a.length, 1)}] = {self.value(a.kind, a.width, 2)};"]

    def _pixel(self) -> list[Node]:
        """A place of an image, which may lie beside it."""
        name, kind = self.r.choice(self.images)
        v = Variable(self.new("v"), kind, 4)
        read = {"s": "i", "u": "ui", "f": "f"}[kind.code]
        beyond = self.r.choice(("CLAMP", "CLAMP_TO_EDGE"))
        sampler = f"beyond_{beyond}, "
        at = f"(({self.value(INT, 2, 2)}) & 15) - 3"
        at = f"convert_float2({at}) + 0.5f" if self.chance(0.4) else at
        if self.chance(0.3):
            sampler, at = "", f"min(abs({self.value(INT, 2, 2)}), abs(get_image_dim({name}) - 1))"
        self.declare(v)
        taken = f"read_image{read}({name}, {sampler}{'convert_int2' * (not sampler)}({at}))"
        return [f"{v.type} {v.name} = {taken};"]

    def _halves(self) -> list[Node]:
        """Numbers of 16 bits are stored and loaded again."""
        width, given, name = self.r.choice((1, 2, 3, 4, 8)), self.r.choice((FLOAT, DOUBLE)), self.new("half")
        v, wide = Variable(self.new("v"), FLOAT, width), "" if width == 1 else str(width)
        mode = self.r.choice(("", "_rte", "_rtz", "_rtp", "_rtn"))
        value = f"NUMBER({self.value(given, width, 1)}, {given.wide(width)})"
        self.declare(v)
        whole = f"vstore_half{wide}{mode}({value}, 0, (half *){name});"
        load = f"{v.type} {v.name} = vload_half{wide}(0, (half *){name});"
        return [f"ushort {name}[{width}];", Block([], [whole], whole=True), load]

    def _split(self) -> list[Node]:
        """Functions of floats that give two results."""
        kind, width = self.r.choice((FLOAT, DOUBLE)), self.width()
        value = f"FINITE({self.value(kind, width, 1)}, {kind.wide(width)})"
        _, name = self.builtin([("k", "frexp"), ("k", "modf"), ("k", "fract")], kind)
        if name == "frexp" and kind is DOUBLE and width >= 8:
            self.called.add(EXPONENTS)
        v, second = (
            Variable(self.new("v"), kind, width),
            Variable(self.new("v"), INT if name == "frexp" else kind, width),
        )
        self.declare(v)
        self.declare(second)
        return [f"{second.type} {second.name};", f"{v.type} {v.name} = {name}({value}, &{second.name}) + ({v.type})0;"]

    def _own_atomic(self) -> list[Node]:
        """An atomic operation on what no other work-item touches, and what it returns."""
        known = [a for a in self.exchanged if a.kind in (INT, UINT) and a.width == 1]
        if not known:
            return self._assign()
        a, v = self.r.choice(known), self.new("v")
        operation = self.r.choice((*ATOMICS, "xchg", "cmpxchg", "cmpxchg"))
        given = "" if operation in ("inc", "dec") else f", {self.value(a.kind, 1, 2)}"
        given += f", {self.value(a.kind, 1, 2)}" if operation == "cmpxchg" else ""
        start = self.value(a.kind, 1, 1)
        self.declare(Variable(v, a.kind, 1))
        put = f"{a.name}[mine] = {start};"
        take = f"{v} = atomic_{operation}(&{a.name}[mine]{given}); {v} ^= {a.name}[mine];"
        return self.together(f"{a.kind.name} {v} = 0;", [put, take])

    def _copied(self) -> list[Node]:
        """What the group copies to local memory at once."""
        known = [a for a in self.arrays if a.space == "global const" and a.width != 3]
        if not known:
            return self._exchange()
        a, name, length = self.r.choice(known), self.new("copied"), self.r.choice((4, 8, 16))
        by = self.r.choice((0, 0, 1, 2))
        self.declared.append(f"local {a.kind.wide(a.width)} {name}[{length}];")
        v = Variable(self.new("v"), a.kind, a.width)
        at = f"{name}[{self.index(length, 2)}]"
        self.declare(v)
        copy = f"async_work_group_strided_copy({name}, {a.name}, {length}, {by}, 0)"
        if not by:
            copy = f"async_work_group_copy({name}, {a.name} + {self.r.randint(0, 8)}, {length}, 0)"
        body: list[Node] = [
            f"{{ event_t copying = {copy}; wait_group_events(1, &copying); }}",
            f"{v.name} = {at};",
            "barrier(CLK_LOCAL_MEM_FENCE);",
        ]
        return self.together(f"{v.type} {v.name} = ({v.type})(0);", body)

    def _called(self) -> list[Node]:
        """A helper called for what it returns, and changes."""
        f = self.r.choice(self.functions)
        texts: list[str] = []
        for kind, width, is_pointer in f.parameters:
            if is_pointer:
                known = [v for v in self.scope if v.kind == kind and v.width == width and not v.fixed]
                known = [v for v in known if f"&{v.name}" not in texts and not v.name.startswith("(*")]
                if not known:
                    return self._assign()
                texts.append(f"&{self.r.choice(known).name}")
            else:
                texts.append(self.value(kind, width, 1))
        v = Variable(self.new("v"), f.kind, f.width)
        self.declare(v)
        return [f"{v.type} {v.name} = {f.name}({', '.join(texts)});"]

    def _nested(self, depth: int, uniform: bool, leave: str) -> list[Node]:
        count = self.r.randint(1, 3)

        def inner(is_uniform: bool, leaves: str = leave) -> list[Node]:
            self.opened = [*self.opened, set()]
            with self.block():
                found = self.statements(depth + 1, count, is_uniform, leaves)
            self.opened = self.opened[:-1]
            return found

        pick = self.r.random()
        if pick < 0.35:
            # a condition that all work-items of a group answer alike keeps it together
            alike = uniform and self.chance(0.4)
            head = f"if ({self.uniform()} > {self.r.randint(-1, 3)}) {{" if alike else f"if {self.condition(2)} {{"
            yes = Block([head], inner(alike), ["}"])
            if self.chance(0.4):
                yes.tail = ["} else {"]
                return [Block([], [yes, Block([], inner(alike), ["}"])], whole=True)]
            return [yes]
        if pick < 0.5:
            return [self._switch(inner)]
        if pick < 0.6:
            return [Block(["{"], inner(uniform), ["}"])]
        return self._loop(uniform, inner)

    def uniform(self) -> str:
        """What is one value for the group: an argument to which nothing is assigned, or what is known of the launch."""
        known = [v.name for v in self.scope if v.name.startswith("n") and v.fixed]
        return self.r.choice([*known, "get_group_id(0)", "get_num_groups(0)"]) if not self.in_helper else "2"

    def _switch(self, inner: Callable[..., list[Node]]) -> Block:
        """Cases that may fall through."""
        kind = self.integer()
        found = Block([f"switch ((int)AT({self.value(kind, 1, 2)}, 8)) {{"], [], ["}"])
        for label in self.r.sample(range(8), self.r.randint(1, 4)):
            end = ["} break;"] if self.chance(0.7) else ["}"]
            found.body.append(Block([f"case {label}: {{"], inner(False, ""), end))
        if self.chance(0.6):
            found.body.insert(self.r.randint(0, len(found.body)), Block(["default: {"], inner(False, ""), ["} break;"]))
        return found

    def _loop(self, uniform: bool, inner: Callable[..., list[Node]]) -> list[Node]:
        """A few turns, with breaks; as many for all of the group, or not."""
        k, turns = self.new("k"), self.r.randint(1, 5)
        counter = Variable(k, self.r.choice((INT, UINT, LONG, ULONG)), 1, fixed=True)
        bound, alike = str(turns), uniform
        if uniform and self.chance(0.3):
            bound = f"AT((int){self.uniform()}, 4)"
        elif self.chance(0.5):
            bound, alike = f"(int)AT({self.value(self.integer(), 1, 1)}, 4)", False
        leaves = "" if alike and self.has_barriers else "break continue"
        pick = self.r.random()
        kept = self.scope
        self.scope = [*self.scope, counter]
        if pick < 0.6:
            head = [f"for ({counter.kind.name} {k} = 0; {k} < {bound}; {k}++) {{"]
            found: list[Node] = [Block(head, inner(alike, leaves), ["}"])]
        elif pick < 0.8:
            body = inner(alike, "break" if leaves else "")
            found = [Block([f"{{ {counter.type} {k} = 0; while ({k} < {bound}) {{"], body, [f"{k}++; }} }}"])]
        else:
            body = inner(alike, "break" if leaves else "")
            found = [Block([f"{{ {counter.type} {k} = 0; do {{"], body, [f"}} while (++{k} < {bound}); }}"])]
        self.scope = kept
        return found

    # what a group does together: each of them is one piece

    def _exchange(self) -> list[Node]:
        """Each work-item takes what another one of its group has put there."""
        if not self.exchanged:
            return self._assign()
        a = self.r.choice(self.exchanged)
        other = self.r.choice((f"(mine + {self.r.randint(0, 7)}) % {self.items}", f"{self.items - 1} - mine"))
        if self.chance(0.3):
            other = f"(uint){self.value(UINT, 1, 2)} % {self.items}u"
        put = f"{a.name}[mine] = {self.value(a.kind, a.width, 2)};"
        v = Variable(self.new("v"), a.kind, a.width)
        take = f"{v.name} = {a.name}[{other}];"
        if a.kind.code == "u" and a.width == 1 and self.chance(0.3):
            rows = f"for (int r = 0; r < {self.items}; r++) {v.name} += {a.name}[r] * (uint)(r + 1);"
            take = rows if a.kind in (UINT, ULONG) else take
        fence = self.r.choice(("CLK_LOCAL_MEM_FENCE", "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"))
        self.declare(v)
        first = f"{v.type} {v.name} = ({v.type})(0);"
        wait = f"barrier({fence});"
        return self.together(first, [put, wait, take, wait])

    def _tree(self) -> list[Node]:
        """A sum over the group, by halves."""
        known = [a for a in self.exchanged if a.kind in (UINT, ULONG) and a.width in (1, 4)]
        if not known:
            return self._exchange()
        a, v, s = self.r.choice(known), self.new("v"), self.new("k")
        top = 1
        while top < self.items:
            top *= 2
        self.declare(Variable(v, a.kind, a.width))
        wait = "barrier(CLK_LOCAL_MEM_FENCE);"
        body: list[Node] = [
            f"{a.name}[mine] = {self.value(a.kind, a.width, 2)};",
            wait,
            f"for (int {s} = {top // 2}; {s} > 0; {s} >>= 1) {{",
            f"  if (mine < {s} && mine + {s} < {self.items}) {a.name}[mine] += {a.name}[mine + {s}];",
            f"  {wait}",
            "}",
            f"{v} = {a.name}[0];",
            wait,
        ]
        return self.together(f"{a.kind.wide(a.width)} {v} = 0;", body)

    def _counted(self) -> list[Node]:
        """Atomic operations on local memory, and what they have left."""
        kind, name, v = self.r.choice((INT, UINT)), self.new("bins"), self.new("v")
        self.declared.append(f"local {kind.name} {name}[4];")
        operation = self.r.choice(ATOMICS)
        self.declare(Variable(v, kind, 1))
        at = self.index(4, 2)
        given = "" if operation in ("inc", "dec") else f", {self.value(kind, 1, 2)}"
        wait = "barrier(CLK_LOCAL_MEM_FENCE);"
        body: list[Node] = [
            f"if (mine < 4) for (int r = mine; r < 4; r += {self.items}) {name}[r] = {self.r.randint(0, 5)} + r;",
            wait,
            f"atomic_{operation}(&{name}[{at}]{given});",
            wait,
            f"{v} = {name}[{self.index(4, 1)}];",
            wait,
        ]
        return self.together(f"{kind.name} {v} = 0;", body)

    def together(self, declared: str, body: list[Node]) -> list[Node]:
        return [declared, Block([], body, whole=True)]

    # results

    def fold(self, v: Variable) -> str:
        """A function that mixes a value into a hash; NaN and zeros count as one each."""
        if v.type not in self.folds:
            self.folds.add(v.type)
            element, size = ("x", "uint" if v.kind is FLOAT else "ulong")
            if v.width > 1:
                element = "a[r]"
            bits = f"({element} == {element} ? as_{size}({element} + 0) : 7u)" if v.kind.is_float else element
            body = f"h = (h ^ (ulong){bits}) * 0x9e3779b97f4a7c15UL; h ^= h >> 29;"
            if v.width > 1:
                array = f"{v.kind.name} a[{v.width}]; vstore{v.width}(x, 0, a);"
                body = f"{array} for (int r = 0; r < {v.width}; r++) {{ {body} }}"
            self.before.append(f"ulong {self.name}_fold_{v.type}(ulong h, {v.type} x) {{ {body} return h; }}")
        return f"{self.name}_fold_{v.type}"

    def _results(self) -> list[Node]:
        """All that is known goes to elements of this work-item's own, or by atomic operations to everybody's."""
        found: list[Node] = ["ulong hash = 1;"]
        for v in self.scope:
            if not v.fixed:
                found.append(f"hash = {self.fold(v)}(hash, {v.name});")
        for a in self.arrays:
            if a.own:
                fold = self.fold(Variable("", a.kind, a.width))
                found.append(f"for (int r = 0; r < {a.length}; r++) hash = {fold}(hash, {a.name}[r]);")
        found += [self._shared_atomic() for _ in range(self.r.choice((0, 0, 0, 1)))]
        if self.chance(0.2):
            found.append(f"if {self.condition(2)} return;")
        outs = [self._output() for _ in range(self.r.choice((0, 1, 1, 2)))]
        name = self.new("out")
        self.parameter(f"global ulong *{name}", Buffer("u8", self.count, whole=True))
        return [*found, *outs, f"{name}[item] = hash;"]

    def _shared_atomic(self) -> str:
        kind, name = self.r.choice((INT, UINT)), self.new("all")
        self.parameter(f"{self.r.choice(('', 'volatile '))}global {kind.name} *{name}", Buffer(kind.dtype, 8, 0, 1000))
        operation = self.r.choice(ATOMICS)
        given = "" if operation in ("inc", "dec") else f", {self.value(kind, 1, 2)}"
        return f"atomic_{operation}(&{name}[{self.index(8, 2)}]{given});"

    def _pixels(self) -> str:
        """This work-item's own place in an image."""
        kind, name = self.r.choice((INT, UINT, FLOAT)), self.new("image")
        shape = (self.r.choice([w for w in range(1, 17) if self.count % w == 0]), 1)
        shape = (shape[0], self.count // shape[0])
        value = self.value(kind, 4, 2)
        if kind.is_float:
            value = f"NUMBER({value}, float4)"
        self.parameter(f"write_only image2d_t {name}", Image(kind.dtype, self.count * 4, whole=True, shape=shape))
        write = {"s": "i", "u": "ui", "f": "f"}[kind.code]
        return f"write_image{write}({name}, (int2)(item % {shape[0]}, item / {shape[0]}), {value});"

    def _output(self) -> str:
        """Stores to elements of this work-item's own, in one of the ways that kernels have."""
        kind = self.r.choice(INTEGERS) if self.chance(0.7) else self.integer()
        width, name = self.r.choice((1, 1, 2, 3, 4, 8, 16)), self.new("out")
        ways = ("plain", "plain", "stored", "strided", "reversed", "updated")
        if self.images and self.chance(0.6):
            return self._pixels()
        way = self.r.choice(ways)
        value = self.value(kind, width, 3)
        count = self.count * (4 if width == 3 and way != "stored" else width)
        if way == "stored" and width > 1:
            self.parameter(f"global {kind.name} *{name}", Buffer(kind.dtype, self.count * width, whole=True))
            return f"vstore{width}({value}, item, {name});"
        if width == 3:  # what lies behind an element may be written
            width = 1
            value, count = self.value(kind, 1, 3), self.count
        by = self.r.randint(2, 3) if way == "strided" else 1
        self.parameter(f"global {kind.wide(width)} *{name}", Buffer(kind.dtype, count * by, whole=True))
        at = {"strided": f"item * {by} + {by - 1}", "reversed": f"{self.count - 1} - item"}.get(way, "item")
        if way == "updated":
            return f"{name}[{at}] ^= {value};"
        return f"{name}[{at}] = {value};"


def kernel(seed: int) -> Kernel:
    """The kernel of a seed: always the same."""
    return Maker(random.Random(f"fuzz {seed}"), f"k{seed}").made()
