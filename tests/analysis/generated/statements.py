"""Statements of generated kernels: their OpenCL C text, and their execution by all work-items in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.analysis.generated.accesses import Data, Place, Pointer
from tests.analysis.generated.expressions import INT, CType, Expression, Mask, State, Undefined, Values, wrapped

ITERATIONS = 40


class Statement:
    def lines(self) -> list[str]:
        raise NotImplementedError

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        """Execute by the masked items; returns those that go on behind the statement."""
        raise NotImplementedError


@dataclass
class DataFlow:
    """Items that left a loop's body, the loop, or the function."""

    breaks: Mask
    continues: Mask
    returns: Mask
    results: Values

    @staticmethod
    def new(count: int) -> DataFlow:
        return DataFlow(*(np.zeros(count, bool) for _ in range(3)), results=np.zeros(count, np.int64))

    def inner(self) -> DataFlow:
        """Of a loop: its own breaks and continues, the function's returns."""
        return DataFlow(np.zeros_like(self.breaks), np.zeros_like(self.breaks), self.returns, self.results)


def indented(statements: Sequence[Statement]) -> list[str]:
    return [f"    {line}" for st in statements for line in st.lines()]


def run_all(statements: Sequence[Statement], s: State, m: Mask, flow: DataFlow) -> Mask:
    for st in statements:
        if not m.any():
            break
        m = st.run(s, m, flow)
    return m


@dataclass
class Set(Statement):
    """A declaration, an assignment or an out-parameter's assignment; ``operator`` for ``+=`` and its like."""

    name: str
    kind: CType
    expression: Expression  # the whole new value
    shown: str  # the source

    def lines(self) -> list[str]:
        return [self.shown.replace("{e}", self.expression.text) + ";"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        s.set(self.name, wrapped(self.kind, self.expression.value(s, m)), m)
        return m


@dataclass
class SetPointer(Statement):
    name: str
    pointer: Pointer
    shown: str  # {e} stands for the pointer

    def lines(self) -> list[str]:
        return [self.shown.replace("{e}", self.pointer.text) + ";"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        name, offset = self.pointer.locate(s, m)
        name = np.broadcast_to(np.asarray(name, object), (s.count,))
        if self.name in s.pointers:
            old, old_offset = s.pointers[self.name]
            name, offset = np.where(m, name, old), np.where(m, offset, old_offset)  # type: ignore[arg-type]
        s.pointers[self.name] = (name, offset)
        return m


@dataclass
class SetArray(Statement):
    """``name[index] = e``, or the declaration with all elements."""

    name: str
    elements: tuple[Expression, ...]
    index: Expression | None = None

    def lines(self) -> list[str]:
        texts = [f"(int){e.text}" for e in self.elements]
        if self.index is None:
            return [f"int {self.name}[{len(texts)}] = {{{', '.join(texts)}}};"]
        return [f"{self.name}[{self.index.text}] = {texts[0]};"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        values = [wrapped(INT, e.value(s, m)) for e in self.elements]
        if self.index is None:
            s.arrays[self.name] = np.array(values)
        else:
            at = self.index.value(s, m)
            items = np.flatnonzero(m)
            array = s.arrays[self.name].copy()
            array[at[items], items] = values[0][items]
            s.arrays[self.name] = array
        return m


@dataclass
class Store(Statement):
    """``how``: "=" writes, "^=" reads and writes, "atomic" adds."""

    place: Place
    data: Data
    how: str = "="

    def lines(self) -> list[str]:
        return [self.place.store_text(self.data.text) + ";"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        self.data.read(s, m)
        kinds = {"=": ("write",), "^=": ("update",), "atomic": ("atomic",)}[self.how]
        self.place.touch(s, m, *kinds)
        return m


@dataclass
class If(Statement):
    condition: Expression
    yes: list[Statement]
    no: list[Statement] = field(default_factory=list)

    def lines(self) -> list[str]:
        found = [f"if ({self.condition.text}) {{", *indented(self.yes)]
        if self.no:
            found += ["} else {", *indented(self.no)]
        return [*found, "}"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        chosen = self.condition.value(s, m) != 0
        after = run_all(self.yes, s, m & chosen, flow)
        return after | run_all(self.no, s, m & ~chosen, flow)


@dataclass
class Leave(Statement):
    """``break``, ``continue`` or ``return``."""

    word: str
    result: Expression | None = None

    def lines(self) -> list[str]:
        return [f"{self.word};" if self.result is None else f"return {self.result.text};"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        if self.word == "return":
            flow.returns |= m
            if self.result is not None:
                flow.results[m] = self.result.value(s, m)[m]
        else:
            found = flow.breaks if self.word == "break" else flow.continues
            found |= m
        return np.zeros_like(m)


@dataclass
class Loop(Statement):
    """``head`` and ``tail`` show the loop in C; ``before`` is tested first, ``after`` (do) behind the body.

    ``test_step`` runs with every test, also the last one (``k-- > 0``).
    """

    head: str
    tail: str
    start: list[Statement]
    condition: Expression
    step: list[Statement]
    body: list[Statement]
    test_first: bool = True
    test_step: list[Statement] = field(default_factory=list)
    own_text: list[Statement] = field(default_factory=list)  # statements of the body that are shown, such as k += 2

    def lines(self) -> list[str]:
        def filled(form: str) -> str:
            for k, st in enumerate(self.start):
                form = form.replace(f"{{s{k}}}", st.lines()[0].rstrip(";"))
            for k, st in enumerate(self.step):
                form = form.replace(f"{{n{k}}}", st.lines()[0].rstrip(";"))
            return form.replace("{c}", self.condition.text)

        before = [] if "{s0}" in self.head else [line for st in self.start for line in st.lines()]
        return [*before, filled(self.head), *indented([*self.body, *self.own_text]), filled(self.tail)]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        active = run_all(self.start, s, m, flow)
        left = np.zeros_like(m)
        for turn in range(ITERATIONS + 1):
            if self.test_first or turn:
                goes_on = self.condition.value(s, active) != 0
                run_all(self.test_step, s, active, flow)
                left |= active & ~goes_on
                active = active & goes_on
            if not active.any():
                return left
            own = flow.inner()
            active = run_all(self.body, s, active, own) | own.continues
            left |= own.breaks
            run_all(self.step, s, active, flow)
        raise Undefined("too many iterations")


@dataclass
class Switch(Statement):
    selector: Expression
    cases: list[tuple[int | None, list[Statement]]]  # None is default; statements fall through

    def lines(self) -> list[str]:
        found = [f"switch ({self.selector.text}) {{"]
        for value, statements in self.cases:
            found += [f"    {'default' if value is None else f'case {value}'}: ;", *indented(statements)]
        return [*found, "}"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        v = self.selector.value(s, m)
        listed = [value for value, _ in self.cases if value is not None]
        own = DataFlow(np.zeros_like(m), flow.continues, flow.returns, flow.results)
        inside = np.zeros_like(m)
        for value, statements in self.cases:
            inside = inside | (m & (~np.isin(v, listed) if value is None else v == value))
            inside = run_all(statements, s, inside, own)
        missed = m & ~np.isin(v, listed) if all(value is not None for value, _ in self.cases) else np.zeros_like(m)
        return inside | own.breaks | missed


@dataclass
class Helper:
    """A function: ``parameters`` are (C declaration, name, kind: "value", "pointer" or "out", type)."""

    name: str
    parameters: list[tuple[str, str, str, CType]]
    body: list[Statement]
    returns: CType | None = None

    def lines(self) -> list[str]:
        result = self.returns.name if self.returns else "void"
        return [f"{result} {self.name}({', '.join(p[0] for p in self.parameters)}) {{", *indented(self.body), "}"]

    def call(self, s: State, m: Mask, arguments: Sequence[Expression | Pointer | str]) -> Values:
        ready: list[tuple[str, object]] = []
        for (_, _, kind, ctype), a in zip(self.parameters, arguments, strict=True):
            if isinstance(a, Pointer):
                ready.append((kind, a.locate(s, m)))
            elif isinstance(a, Expression):
                ready.append((kind, wrapped(ctype, a.value(s, m))))
            else:
                ready.append((kind, a))
        for (_, name, _, _), (kind, a) in zip(self.parameters, ready, strict=True):
            if kind == "pointer":
                s.pointers[name] = a  # type: ignore[assignment]
            elif kind == "value":
                s.variables[name] = a  # type: ignore[assignment]
            else:
                s.aliases[name] = s.aliases.get(str(a), str(a))
        flow = DataFlow.new(s.count)
        ended = run_all(self.body, s, m, flow)
        if self.returns is not None and (m & ended).any():
            raise AssertionError("a helper ends without a result")
        return flow.results if self.returns is None else wrapped(self.returns, flow.results)

    def call_text(self, arguments: Sequence[Expression | Pointer | str]) -> str:
        return f"{self.name}({', '.join(f'&{a}' if isinstance(a, str) else a.text for a in arguments)})"


@dataclass
class CallStatement(Statement):
    helper: Helper
    arguments: list[Expression | Pointer | str]

    def lines(self) -> list[str]:
        return [self.helper.call_text(self.arguments) + ";"]

    def run(self, s: State, m: Mask, flow: DataFlow) -> Mask:
        self.helper.call(s, m, self.arguments)
        return m


@dataclass
class CallValue(Expression):
    helper: Helper
    arguments: list[Expression]

    @property
    def kind(self) -> CType:  # type: ignore[override]
        assert self.helper.returns is not None
        return self.helper.returns

    @property
    def text(self) -> str:
        return self.helper.call_text(self.arguments)

    def value(self, s: State, m: Mask) -> Values:
        return self.helper.call(s, m, self.arguments)
