"""Random loops: every direction and condition, for, while and do, grid-stride and geometric."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.analysis.generated.expressions import (
    INT,
    LONG,
    SHORT,
    SIZE,
    UCHAR,
    UINT,
    USHORT,
    Binary,
    CType,
    Expression,
    Literal,
    Query,
    Variable,
)
from tests.analysis.generated.operands import Builtin, TableEntry
from tests.analysis.generated.statements import Loop, Set, Statement

if TYPE_CHECKING:
    from tests.analysis.generated.kernel import KernelMaker

FOR = "for ({s0}; {c}; {n0}) {"
WHILE = "while ({c}) {"


class LoopMaker:
    def __init__(self, kernel: KernelMaker) -> None:
        self.kernel = kernel
        self.open = 0

    def loop(self, body: Callable[[], list[Statement]] | None = None) -> Loop:
        k = self.kernel
        makers = [self._up, self._up, self._up, self._unequal, self._down, self._countdown, self._wrapping]
        makers += [self._doubling, self._halving, self._strided, self._strided, self._while, self._while, self._do]
        bound = self.bound()
        self.open += 1
        with k.block():
            made = k.r.choice(makers)(bound)
            plain = made.head.startswith("for")
            made.body = body() if body else k.statements(True, plain and not made.test_step)
        self.open -= 1
        return made

    def bound(self) -> Expression:
        """A small number of iterations: a constant, a scalar, or made of ids, other counters or data."""
        k, r = self.kernel, self.kernel.r
        pick = r.random()
        if pick < 0.35 or not k.scope:
            return Literal(r.randint(1, 6))
        if pick < 0.65:
            return r.choice(k.scope)
        if k.table and pick < 0.7:
            return Binary("&", TableEntry("steer", k.simple(), 16), Literal(7))
        if pick < 0.85:
            return Binary(r.choice("%&"), k.simple(), Literal(r.choice([3, 5, 7])))
        return Builtin("min", (Binary("+", k.simple(), Literal(r.randint(0, 3))), Literal(r.randint(2, 9))))

    def _counter(self, kinds: tuple[CType, ...]) -> Variable:
        kind = self.kernel.r.choice(kinds)
        return Variable(self.kernel.new("k"), kind)

    def _start(self, v: Variable, e: Expression) -> Statement:
        return Set(v.name, v.kind, e, f"{v.kind.name} {v.name} = {{e}}")

    def _step(self, v: Variable, operator: str, by: Expression) -> Statement:
        shown = f"{v.name} {operator}= {by.text}"
        if operator in "+-" and isinstance(by, Literal) and by.number == 1:
            shown = self.kernel.r.choice([f"{v.name}{operator * 2}", f"{operator * 2}{v.name}", shown])
        return Set(v.name, v.kind, Binary(operator, v, by), shown)

    def _made(self, v: Variable, start: Expression, test: Expression, step: Statement, head: str = FOR) -> Loop:
        self.kernel.scope.append(v)
        return Loop(head, "}", [self._start(v, start)], test, [step], [])

    def _up(self, bound: Expression) -> Loop:
        r = self.kernel.r
        v = self._counter((INT, INT, INT, UINT, SIZE, SHORT, UCHAR, LONG))
        start = self.kernel.simple() if self.kernel.chance(0.15) else Literal(r.choice([0, 0, 0, 1, 2]))
        step = self._step(v, "+", Literal(r.choice([1, 1, 1, 2, 3])))
        return self._made(v, start, Binary(r.choice(["<", "<", "<="]), v, bound), step)

    def _unequal(self, bound: Expression) -> Loop:
        r = self.kernel.r
        v, by = self._counter((INT, UINT, SIZE)), r.choice([1, 2, 3])
        end = Binary("*", bound, Literal(by))
        if self.kernel.chance(0.4):
            return self._made(v, end, Binary("!=", v, Literal(0)), self._step(v, "-", Literal(by)))
        return self._made(v, Literal(0), Binary("!=", v, end), self._step(v, "+", Literal(by)))

    def _down(self, bound: Expression) -> Loop:
        r = self.kernel.r
        v = self._counter((INT, INT, LONG, SHORT))
        test = Binary(">=", v, Literal(r.choice([0, 0, 1]))) if self.kernel.chance(0.6) else Binary(">", v, Literal(-1))
        return self._made(v, Binary("-", bound, Literal(1)), test, self._step(v, "-", Literal(r.choice([1, 1, 2, 3]))))

    def _countdown(self, bound: Expression) -> Loop:
        """``for (k = n; k-- > 0;)`` and ``while (k--)``: the test changes the counter, at the end as well."""
        v = self._counter((UINT, SIZE, INT, USHORT))
        self.kernel.scope.append(v)
        shown = f"{v.name}-- > 0" if self.kernel.chance(0.6) else f"{v.name}--"
        operator = ">" if "> 0" in shown else "!="
        head = "for ({s0}; %s;) {" if self.kernel.chance(0.6) else "while (%s) {"
        step = Set(v.name, v.kind, Binary("-", v, Literal(1)), "")
        test = Binary(operator, v, Literal(0))
        return Loop(head % shown, "}", [self._start(v, bound)], test, [], [], test_step=[step])

    def _wrapping(self, bound: Expression) -> Loop:
        """Ends when the unsigned counter wraps around."""
        v = self._counter((UINT, SIZE))
        last = Binary("-", bound, Literal(1, UINT))
        return self._made(v, last, Binary("<", v, bound), self._step(v, "-", Literal(1)))

    def _doubling(self, bound: Expression) -> Loop:
        v = self._counter((INT, UINT, SIZE))
        operator, by = self.kernel.r.choice([("*", 2), ("<<", 1), ("*", 3)])
        return self._made(
            v, Literal(1), Binary("<", v, Binary("*", bound, Literal(3))), self._step(v, operator, Literal(by))
        )

    def _halving(self, bound: Expression) -> Loop:
        v = self._counter((INT, UINT, SIZE))
        operator, by = self.kernel.r.choice([("/", 2), (">>", 1), ("/", 3)])
        return self._made(
            v, Binary("*", bound, Literal(2)), Binary(">", v, Literal(0)), self._step(v, operator, Literal(by))
        )

    def _strided(self, bound: Expression) -> Loop:
        """Grid-stride, or over a work-group."""
        r = self.kernel.r
        d = r.randrange(self.kernel.dimensions)
        first, step = r.choice(
            [
                ("global_id", "global_size"),
                ("global_id", "global_size"),
                ("local_id", "local_size"),
                ("group_id", "num_groups"),
            ]
        )
        v = self._counter((INT, INT, UINT, SIZE))
        end = Literal(r.randint(3, 40)) if first == "global_id" else Binary("*", bound, Literal(2))
        return self._made(v, Query(first, d), Binary("<", v, end), self._step(v, "+", Query(step, d)))

    def _while(self, bound: Expression) -> Loop:
        v, r = self._counter((INT, UINT, SIZE)), self.kernel.r
        step = self._step(v, "+", Literal(r.choice([1, 1, 2])))
        found = self._made(v, Literal(r.choice([0, 0, 1])), Binary("<", v, bound), step, WHILE)
        found.own_text = [step]
        return found

    def _do(self, bound: Expression) -> Loop:
        found = self._while(bound)
        found.head, found.tail, found.test_first = "do {", "} while ({c});", False
        return found
