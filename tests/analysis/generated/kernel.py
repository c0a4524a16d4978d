"""Random choices that make one kernel: parameters, helper functions, loops, subscripts, accesses."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.analysis.generated.accesses import (
    ArgumentPointer,
    Data,
    DataLoad,
    DataMix,
    DataOf,
    Place,
    Pointer,
    PointerSum,
    PointerVariable,
)
from tests.analysis.generated.expressions import (
    INT,
    LONG,
    SHORT,
    SIZE,
    UCHAR,
    UINT,
    ULONG,
    USHORT,
    Binary,
    Cast,
    Conditional,
    CType,
    Expression,
    Literal,
    Logic,
    Query,
    Unary,
    Variable,
)
from tests.analysis.generated.helpers import make_helper
from tests.analysis.generated.loops import LoopMaker
from tests.analysis.generated.operands import ArrayEntry, Builtin, Fit, TableEntry
from tests.analysis.generated.places import PlaceMaker
from tests.analysis.generated.statements import (
    CallStatement,
    CallValue,
    Helper,
    If,
    Leave,
    Set,
    SetArray,
    SetPointer,
    Statement,
    Store,
    Switch,
)

TABLE_SIZE = 16
ELEMENTS = (INT, INT, INT, UINT, UINT, UCHAR, SHORT, USHORT, ULONG)
VARIABLES = (INT, INT, INT, INT, UINT, UINT, SIZE, SIZE, LONG, SHORT, UCHAR, USHORT)


@dataclass
class Parameter:
    name: str
    kind: CType
    role: str  # "data", "table" or "scalar"

    @property
    def declaration(self) -> str:
        if self.role == "scalar":
            return f"{self.kind.name} {self.name}"
        return f"global {'const ' if self.role == 'table' else ''}{self.kind.name} *{self.name}"


class KernelMaker:
    """One kernel in the making; every choice comes from ``r``."""

    def __init__(self, r: random.Random, name: str, dimensions: int) -> None:
        self.r, self.name, self.dimensions = r, name, dimensions
        self.fits: list[Fit] = []
        self.fresh = self.depth = 0
        self.inside = False  # a helper that stores
        self.parameters = [Parameter(f"a{k}", r.choice(ELEMENTS), "data") for k in range(r.choice([1, 2, 2, 3]))]
        self.data = list(self.parameters)
        if len(self.data) > 1 and r.random() < 0.4:
            self.data[1].kind = self.data[0].kind
        # about half of the kernels are tidy: every work-item stores to elements of its own, and reads others' nowhere
        self.tidy = r.random() < 0.5
        self.outputs = self.data[: r.randint(1, 2)] if self.tidy else self.data
        self.inputs = [p for p in self.data if p not in self.outputs] if self.tidy else self.data
        self.own = {p.name: (r.choice([1, 1, 2, 3, 4]), r.choice([1, 1, 1, 1, 2, 3, 4])) for p in self.outputs}
        self.table = Parameter("steer", INT, "table") if r.random() < 0.35 else None
        scalars = [
            Parameter(f"n{k}", r.choice((INT, INT, UINT, ULONG, SHORT)), "scalar") for k in range(r.randint(0, 2))
        ]
        self.parameters += [self.table] if self.table else []
        self.parameters += scalars
        self.scope: list[Variable] = []
        self.mutable: list[Variable] = []
        self.pointers: list[PointerVariable] = []
        self.arrays: list[tuple[str, int]] = []
        self.values: list[Helper] = []  # helpers that return a value
        self.writers: list[Helper] = []  # helpers that store through a pointer
        self.places = PlaceMaker(self)
        self.loops = LoopMaker(self)
        self.helpers: list[Helper] = []
        table, self.table = self.table, None  # helpers see their parameters only
        for _ in range(r.choice([0, 0, 1, 1, 2])):
            self.helpers.append(make_helper(self))
        self.table, self.pointers, self.depth = table, [], 0
        self.scope = [Variable(p.name, p.kind) for p in scalars]

    def new(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}" if prefix != "h" else f"{self.name}_h{self.fresh}"

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    @contextmanager
    def block(self) -> Iterator[None]:
        """Declarations end with their block."""
        kept = [list(x) for x in (self.scope, self.mutable, self.pointers, self.arrays)]
        self.depth += 1
        yield
        self.depth -= 1
        self.scope, self.mutable, self.pointers, self.arrays = kept  # type: ignore[assignment]

    # expressions

    def leaf(self) -> Expression:
        r = self.r
        pick = r.random()
        if self.scope and pick < 0.72:
            return r.choice(self.scope[-4:] if self.chance(0.6) else self.scope)
        if pick < 0.86:
            name = r.choice(
                ["global_id", "global_id", "local_id", "group_id", "local_size", "num_groups", "global_offset"]
            )
            return Query(name, r.randrange(self.dimensions) if self.chance(0.95) else 2)
        if self.arrays and pick < 0.92:
            name, size = r.choice(self.arrays)
            return ArrayEntry(name, Literal(r.randrange(size)) if self.chance(0.5) else self.simple(), size)
        if pick < 0.94:
            return TableEntry("fixed", self.simple(), 8, argument=False)
        if self.table and pick < 0.97:
            return TableEntry("steer", self.simple(), TABLE_SIZE)
        return Literal(r.randint(0, 9), r.choice([INT, INT, UINT]))

    def simple(self) -> Expression:
        if self.scope and self.chance(0.9):
            return self.r.choice(self.scope)
        return Query("global_id", self.r.randrange(self.dimensions))

    def affine(self) -> Expression:
        r = self.r
        total: Expression | None = None
        for _ in range(r.choice([1, 1, 2, 2, 3])):
            factor = r.choice([1, 1, 1, 2, 2, 3, 4, 5, 8, 16, -1, -1, -2, -3])
            leaf = self.leaf()
            term = leaf if abs(factor) == 1 else Binary("*", *self._either(leaf, Literal(abs(factor))))
            if total is None:
                total = Unary("-", term) if factor < 0 else term
            else:
                total = Binary("-" if factor < 0 else "+", total, term)
        assert total is not None
        if self.chance(0.5):
            total = Binary(r.choice("+-"), total, Literal(r.randint(0, 12), r.choice([INT, INT, INT, UINT])))
        return total

    def _either(self, a: Expression, b: Expression) -> tuple[Expression, Expression]:
        return (a, b) if self.chance(0.5) else (b, a)

    def quasi(self, depth: int = 0) -> Expression:
        """Affine, or bent: divided, masked, narrowed, chosen."""
        r, e = self.r, self.affine()
        if depth > 2 or self.chance(0.45):
            return e
        kinds: list[Callable[[Expression], Expression]] = [
            lambda e: Binary(r.choice("/%"), e, Literal(r.randint(2, 7), r.choice([INT, INT, UINT]))),
            lambda e: Binary("&", e, Literal(r.choice([1, 3, 7, 15, 6, -2, -4]))),
            lambda e: Binary(">>", e, Literal(r.randint(1, 3))),
            lambda e: Binary("<<", Cast(UINT, e) if self.chance(0.5) else e, Literal(r.randint(1, 3))),
            lambda e: Binary(r.choice("|^"), e, Literal(r.randint(1, 9))),
            lambda e: Builtin(r.choice(["min", "max"]), self._either(e, self.affine()), r.choice([INT, UINT])),
            lambda e: Builtin("clamp", (e, Literal(r.randint(0, 3)), Literal(r.randint(4, 30))), r.choice([INT, UINT])),
            lambda e: Builtin("abs", (e,)),
            lambda e: Builtin("abs_diff", (e, self.affine())),
            lambda e: Builtin("mad24", (e, Literal(r.randint(1, 6)), self.simple())),
            lambda e: Builtin("mul24", (e, Literal(r.randint(1, 6)))),
            lambda e: Builtin("select", (e, self.affine(), self.condition(2))),
            lambda e: Builtin("hadd", (e, self.affine())),
            lambda e: Builtin("mul_hi", (e, Literal(0x55555556)), r.choice([INT, UINT])),
            lambda e: Builtin("rotate", (e, Literal(r.choice([1, 2, 31]), UINT)), UINT),
            lambda e: Cast(r.choice([UCHAR, SHORT, USHORT, INT, UINT, SIZE, LONG]), e),
            lambda e: Conditional(self.condition(2), e, self.affine()),
            lambda e: Binary("*", e, self.simple()),
            lambda e: Unary("~", e),
            lambda e: Binary("+", e, self.condition(2)),
        ]
        if self.values:
            kinds += [self._call_value, self._call_value]
        bent = r.choice(kinds)(e)
        return Binary(r.choice("+-+*"), bent, self.leaf()) if self.chance(0.35) else bent

    def _call_value(self, e: Expression) -> Expression:
        helper = self.r.choice(self.values)
        rest: list[Expression] = [self.affine() for _ in helper.parameters[1:]]
        return CallValue(helper, [e, *rest])

    def condition(self, depth: int = 0) -> Expression:
        r, pick = self.r, self.r.random()
        if depth < 2 and pick < 0.25:
            return Logic(r.choice(["&&", "||"]), self.condition(depth + 1), self.condition(depth + 1))
        if depth < 2 and pick < 0.32:
            return Unary("!", self.condition(depth + 1))
        if pick < 0.45:  # an interval by one unsigned comparison
            low, width = Literal(r.randint(0, 6), UINT), Literal(r.randint(1, 12), UINT)
            return Binary("<", Binary("-", Cast(UINT, self.simple()), low), width)
        if pick < 0.6:
            modulo = Binary(r.choice("%&"), self.affine(), Literal(r.choice([1, 2, 3, 4])))
            return Binary(r.choice(["==", "!=", "<"]), modulo, Literal(r.randint(0, 2)))
        left = self.affine() if depth < 2 else self.leaf()
        right = self.leaf() if self.chance(0.4) else Literal(r.randint(0, 24), r.choice([INT, INT, UINT]))
        return Binary(r.choice(["<", "<", "<=", ">", ">=", "!=", "=="]), left, right)

    def fit(self, e: Expression, limit: int = 150) -> Fit:
        found = Fit(e, limit)
        self.fits.append(found)
        return found

    def subscript(self) -> Fit:
        return self.fit(self.quasi() if self.chance(0.5) else self.affine())

    # statements

    def data_value(self, depth: int = 0) -> Data:
        pick = self.r.random()
        if pick < 0.35 or depth > 1 or not (self.inputs or self.pointers):
            return DataOf(self.leaf())
        if pick < 0.75:
            return DataLoad(self.places.place(self.some_pointer()))
        condition = self.condition(1) if self.chance(0.3) else None
        return DataMix(self.data_value(depth + 1), self.data_value(depth + 1), condition)

    def some_pointer(self) -> Pointer:
        if self.pointers and (self.inside or self.chance(0.35)):
            return self.r.choice(self.pointers)
        p = self.r.choice(self.inputs or self.data)
        return ArgumentPointer(p.name, p.kind)

    def store(self) -> Statement:
        return self.places.own_store() if self.tidy else self.store_at(self.some_pointer())

    def store_at(self, pointer: Pointer) -> Statement:
        if pointer.element in (INT, UINT) and self.chance(0.03):
            form = "atomic_add({p} + {i}, 1)"
            lanes = ((0, 4),)
            return Store(Place(pointer, self.subscript(), 4, lanes, "", form), DataOf(Literal(0)), "atomic")
        how = "^=" if self.chance(0.12) else "="
        return Store(self.places.place(pointer, how), self.data_value(), how)

    def declaration(self) -> Statement:
        kind, name = self.r.choice(VARIABLES), self.new("v")
        made = Set(name, kind, self.quasi(), f"{kind.name} {name} = {{e}}")
        self.scope.append(Variable(name, kind))
        self.mutable.append(self.scope[-1])
        return made

    def assignment(self) -> Statement:
        if not self.mutable:
            return self.declaration()
        v = self.r.choice(self.mutable)
        if self.chance(0.5):
            return Set(v.name, v.kind, self.affine(), f"{v.name} = {{e}}")
        operator, by = self.r.choice(["+", "-", "*", "&", "^"]), Literal(self.r.randint(1, 4))
        return Set(v.name, v.kind, Binary(operator, v, by), f"{v.name} {operator}= {by.text}")

    def pointer_declaration(self) -> Statement:
        if not self.inputs:
            return self.declaration()
        base = self.some_pointer()
        other = condition = None
        twins = [p for p in self.inputs if p.kind == base.element]
        if isinstance(base, ArgumentPointer) and len(twins) > 1 and self.chance(0.4):
            other, condition = ArgumentPointer(self.r.choice(twins).name, base.element), self.condition(1)
        by: Expression = self.fit(self.affine(), 60)
        if self.chance(0.3):
            by = Binary("+", by, Literal(24))
        name = self.new("p")
        made = SetPointer(name, PointerSum(base, by, other, condition), f"global {base.element.name} *{name} = {{e}}")
        self.pointers.append(PointerVariable(name, base.element))
        return made

    def pointer_step(self) -> Statement:
        if not self.pointers:
            return self.pointer_declaration()
        p = self.r.choice(self.pointers)
        by = self.r.choice([1, 1, 1, 2, 3, -1])
        shown = {1: f"{p.name}++", -1: f"--{p.name}"}.get(by, f"{p.name} += {by}")
        return SetPointer(p.name, PointerSum(p, Literal(by)), shown)

    def array_declaration(self) -> Statement:
        name, size = self.new("t"), self.r.choice([2, 4])
        made = SetArray(name, tuple(self.affine() for _ in range(size)))
        self.arrays.append((name, size))
        return made

    def array_assignment(self) -> Statement:
        if not self.arrays:
            return self.array_declaration()
        name, size = self.r.choice(self.arrays)
        index = Literal(self.r.randrange(size)) if self.chance(0.5) else Binary("&", self.simple(), Literal(size - 1))
        return SetArray(name, (self.affine(),), index)

    def branch(self, in_loop: bool, may_continue: bool) -> Statement:
        condition = self.condition()
        with self.block():
            yes = self.statements(in_loop, may_continue)
        no: list[Statement] = []
        if self.chance(0.35):
            with self.block():
                no = self.statements(in_loop, may_continue)
        return If(condition, yes, no)

    def leaving(self, in_loop: bool, may_continue: bool) -> Statement:
        words = ["return"] + ["break"] * (2 * in_loop) + ["continue"] * (2 * may_continue)
        return If(self.condition(), [Leave(self.r.choice(words))])

    def switch(self, in_loop: bool, may_continue: bool) -> Statement:
        selector = Binary(self.r.choice("%&"), Cast(UINT, self.affine()), Literal(3))
        cases: list[tuple[int | None, list[Statement]]] = []
        for value in self.r.sample([0, 1, 2, None], self.r.randint(2, 4)):
            with self.block():
                body = self.statements(False, may_continue)
            cases.append((value, [*body, Leave("break")] if self.chance(0.7) else body))
        return Switch(selector, cases)

    def call(self) -> Statement:
        if not self.writers:
            return self.store()
        helper = self.r.choice(self.writers)
        element = helper.parameters[0][3]
        fitting = [p for p in self.pointers if p.element == element]
        fitting += [ArgumentPointer(p.name, p.kind) for p in self.data if p.kind == element]  # type: ignore[misc]
        if not fitting:
            return self.store()
        base: Pointer = self.r.choice(fitting)
        pointer = PointerSum(base, self.fit(self.affine(), 60)) if self.chance(0.5) else base
        return CallStatement(helper, [pointer, *(self.affine() for _ in helper.parameters[1:])])

    def out_call(self) -> Statement:
        outs = [h for h in self.helpers if any(kind == "out" for _, _, kind, _ in h.parameters)]
        ints = [v for v in self.mutable if v.kind is INT and not v.dereferenced]
        if not outs or len(ints) < 2:
            return self.assignment()
        one, two = self.r.sample(ints, 2)
        return CallStatement(outs[0], [self.affine(), one.name, two.name])

    def statement(self, in_loop: bool, may_continue: bool) -> Statement:
        pick, deep = self.r.random(), self.depth > 2
        if pick < 0.36 or deep:
            return self.store()
        if pick < 0.46:
            return self.branch(in_loop, may_continue)
        if pick < 0.62:
            return self.loops.loop() if self.loops.open < 2 else self.store()
        if pick < 0.66:
            return self.switch(in_loop, may_continue)
        if pick < 0.71:
            return self.leaving(in_loop, may_continue)
        others = [
            (self.declaration, 3),
            (self.assignment, 3),
            (self.pointer_declaration, 3),
            (self.pointer_step, 3),
            (self.array_declaration, 1),
            (self.array_assignment, 1),
            (self.call, 4),
            (self.out_call, 3),
        ]
        made: Statement = self.r.choices([f for f, _ in others], [w for _, w in others])[0]()
        return made

    def statements(self, in_loop: bool, may_continue: bool) -> list[Statement]:
        found = [self.statement(in_loop, may_continue) for _ in range(self.r.choice([1, 1, 2, 2, 3]))]
        if not any(isinstance(x, Store | CallStatement) for x in found):
            found.append(self.store())
        return found

    def body(self) -> list[Statement]:
        found: list[Statement] = []
        for d in range(self.dimensions):
            kind, name = self.r.choice([INT, INT, INT, UINT, SIZE, SHORT, LONG]), f"i{d}"
            found.append(Set(name, kind, Query("global_id", d), f"{kind.name} {name} = {{e}}"))
            self.scope.append(Variable(name, kind))
        if self.chance(0.25):
            found.append(If(self.condition(), [Leave("return")]))
        for _ in range(self.r.choice([1, 2, 2, 3, 4])):
            found.append(self.statement(False, False))
        return [*found, self.store()]
