"""Closed forms: what an iteration of a loop changes, as a function of a counter, and how often the loop runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from manycl.analysis.interpreter.abstract import ControlState, Env, Path
from manycl.analysis.interpreter.statements import Statements
from manycl.analysis.interpreter.values import OPAQUE, Aggregate, Cell, Pointer, Vector, integer
from manycl.analysis.reading.tree import CType
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr


@dataclass(slots=True)
class Iteration:
    """The effects of one silent iteration, from ``start`` on (with symbols for what changes)."""

    start: Env
    condition: Expr
    end: ControlState | None
    breaks: list[ControlState]
    returned: bool
    base: Path
    first_unknown: int
    lossy: bool
    after: bool  # the condition is tested behind the body


@dataclass(slots=True)
class Form:
    """The closed form of a loop. ``steps``: cells that grow by so much per iteration; ``settled``: cells that hold a
    value from the second iteration on; ``lost``: cells of which only bounds are known."""

    steps: dict[int, Expr] = field(default_factory=dict)
    settled: dict[int, Cell] = field(default_factory=dict)
    lost: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    trips: Expr | None = None  # times that the body is begun
    whole: Expr | None = None  # times that the condition alone allows
    out: Expr | None = None  # the iteration in which a break leaves it, if the condition allows that many
    exact: bool = True
    reason: str = ""
    improvable: bool = False  # running every iteration would tell more


class ClosedForms(Statements):
    """Finding closed forms."""

    def form(self, line: int, found: Iteration, changed: set[int]) -> Form:
        form = Form()
        symbols = {cell: found.start[cell] for cell in changed}
        names = {v.key for v in symbols.values() if isinstance(v, Expr)}
        names |= {
            name
            for v in symbols.values()
            if isinstance(v, Pointer)
            for t in v.targets
            for name in t.offset.variables()
            if name.startswith("@")
        }
        for cell in changed:
            self.classify(cell, found, names, form)
        self.find_trips(line, found, names, form)
        self.check_wrapping(form)
        if found.returned:
            form.exact, form.reason = False, f"a way out of the loop of line {line}"
            form.improvable = True
        left = any(state.env.get(cell) is not found.start[cell] for state in found.breaks for cell in changed)
        form.improvable = form.improvable or found.lossy or (bool(found.breaks) and (left or bool(form.lost)))
        if self.concrete and any(step.op != "const" for step in form.steps.values()):
            form.improvable = True
        if self.concrete and form.trips is not None and not _is_affine(form.trips):
            self.lossy += 1
        return form

    def invariant(self, value: Expr, names: set[str], found: Iteration) -> bool:
        """Return whether an expression has the same value in every iteration."""
        for name, variable in value.variables().items():
            if name in names:
                return False
            if variable.unknown and int(name[1:]) > found.first_unknown:
                origin = self.origins[name]
                same = origin.argument in self.read_only and origin.offset is not None
                if not same or not self.invariant(origin.offset, names, found):  # type: ignore[arg-type]
                    return False
        return True

    def classify(self, cell: int, found: Iteration, names: set[str], form: Form) -> None:
        start = found.start[cell]
        if found.end is None:  # the body never comes to its end
            form.lost[cell] = None
            return
        end = found.end.env.get(cell, OPAQUE)
        type_ = self.types[cell]
        if isinstance(start, Aggregate):  # in the set of what changes because it did
            form.lost[cell] = None
            form.improvable = form.improvable or _holds_integers(type_)
            return
        if end is start:
            form.steps[cell] = x.ZERO
            return
        step = self.growth(start, end)
        if step is not None and self.invariant(step, names, found):
            form.steps[cell] = step
            return
        if isinstance(end, Expr):
            if self.invariant(end, names, found):
                form.settled[cell] = end
                return
            form.lost[cell] = self.bounds(start, end, self.env[cell])
            data = any(v.unknown and int(n[1:]) > found.first_unknown for n, v in end.variables().items())
            form.improvable = form.improvable or not data
            return
        form.lost[cell] = None
        if isinstance(end, Pointer):
            form.improvable = True
        elif isinstance(end, Vector):
            form.improvable = form.improvable or integer(type_) is not None

    @staticmethod
    def growth(start: Cell, end: Cell) -> Expr | None:
        if isinstance(start, Expr) and isinstance(end, Expr):
            inner = end.args[0] if end.op == "wrap" else end
            return x.subtract(inner, start)
        if isinstance(start, Pointer) and isinstance(end, Pointer) and len(start.targets) == len(end.targets):
            steps = set()
            for one, other in zip(start.targets, end.targets, strict=True):
                if one.base != other.base or one.condition != other.condition:
                    return None
                steps.add(x.subtract(other.offset, one.offset))
            return steps.pop() if len(steps) == 1 else None
        return None

    @staticmethod
    def bounds(start: Cell, end: Expr, before: Cell) -> tuple[int, int] | None:
        """Within which a variable stays that is halved or doubled."""
        inner = end.args[0] if end.op == "wrap" else end
        if not isinstance(start, Expr) or not isinstance(before, Expr) or before.low < 0:
            return None
        if inner.op in ("fdiv", "tdiv") and inner.args[0] == start and inner.args[1].low >= 1:
            return 0, before.high
        return None

    def find_trips(self, line: int, found: Iteration, names: set[str], form: Form) -> None:
        """Find how often the body runs: as long as every part of the condition holds."""
        counter = x.var("@k", 0, x.INFINITE)
        limits: list[Expr] = []
        guards: list[Expr] = []
        for part in found.condition.parts if found.condition != x.ONE else ():
            limit = x.ZERO if part == x.ZERO else self.limit(part, found, names, form, counter)
            if part != x.ZERO and self.invariant(part, names, found):
                guards.append(part)  # holds always or never
            elif limit is None:
                most = self.powers(part, found, names)
                if most is not None:
                    limits.append(x.const(most))
                form.exact = False
                form.reason = form.reason or f"the condition of the loop in line {line}"
                form.improvable = True
            else:
                limits.append(limit)
        trips = _least(limits)
        if guards and trips is not None:
            trips = x.select(x.both(*guards), trips, x.ZERO)
        if trips is not None and found.after:
            trips = x.add(trips, x.ONE)
        form.whole = trips
        outs: list[Expr] = []
        for state in found.breaks:
            out = self.break_limit(state, found, names, form, counter)
            if out is None:
                form.exact = False
                form.reason = f"a break in the loop of line {line}"
                form.improvable = form.improvable or not self.on_data(state, found)
            else:
                outs.append(out)
                form.out = out
        if outs and trips is None and not limits and found.condition == x.ONE:
            form.whole = None
        form.trips = _least([*([trips] if trips is not None else []), *(x.add(out, x.ONE) for out in outs)])
        if form.trips is None:
            form.exact = False
            form.reason = form.reason or f"the loop in line {line} has no bound that is found"

    def powers(self, part: Expr, found: Iteration, names: set[str]) -> int | None:
        """Return how often a condition holds at most of what is divided, or multiplied, by two or more in each
        iteration."""
        if found.end is None or part.op not in ("lt", "not"):
            return None
        small, large = part.args if part.op == "lt" else (x.ZERO, self._not_zero(part.args[0]))
        for name in names.intersection([*small.variables(), *large.variables()]):
            cell = int(name.split("'")[0][1:])
            start, end, before = found.start[cell], found.end.env.get(cell, OPAQUE), self.env[cell]
            width = integer(self.types[cell])
            if not isinstance(end, Expr) or not isinstance(before, Expr) or before.unknown or width is None:
                continue
            inner = end.args[0] if end.op == "wrap" else end
            if inner.op in ("fdiv", "tdiv") and inner.args[0] == start == large and inner.args[1].low >= 2:
                is_down = small.op == "const" and small.value >= 0 and (part.op == "lt" or before.low >= 0)
                if is_down and before.high < x.INFINITE:
                    return _divisions(before.high, small.value, inner.args[1].low)
            elif inner.op == "sum" and inner.args == (start,) and start == small and inner.value == 0:
                factor, (_, most) = inner.terms[0], x.type_range(*width)
                is_up = factor >= 2 and before.low >= 1 and large.high < x.INFINITE
                if is_up and ((width[1] and width[0] >= 32) or (large.high - 1) * factor <= most):
                    return _divisions(large.high - 1, before.low - 1, factor)  # (what is signed may not overflow)
        return None

    @staticmethod
    def _not_zero(equal: Expr) -> Expr:
        """Return what is not 0 where an equality does not hold; 0 for others."""
        if equal.op == "eq" and x.ZERO in equal.args:
            return equal.args[equal.args[0] == x.ZERO]
        return x.ZERO

    def on_data(self, state: ControlState, found: Iteration) -> bool:
        conditions = state.path.conditions(found.base)
        return any(v.unknown and int(n[1:]) > found.first_unknown for c in conditions for n, v in c.variables().items())

    def break_limit(
        self, state: ControlState, found: Iteration, names: set[str], form: Form, counter: Expr
    ) -> Expr | None:
        """The first iteration in which the loop is left here; None if that is not known."""
        if len(found.breaks) > 1:
            return None
        conditions = state.path.conditions(found.base)
        for part in found.condition.parts:
            if part in conditions:
                conditions.remove(part)
        if not conditions:
            return x.ZERO
        if len(conditions) != 1:
            return None
        return self.limit(x.negate(conditions[0]), found, names, form, counter)

    def limit(self, part: Expr, found: Iteration, names: set[str], form: Form, counter: Expr) -> Expr | None:
        """The number of iterations from the first on for which a condition holds, if it then never holds again."""
        part = self.unconverted(part, found, form)
        values: dict[str, Expr] = {}
        for name in part.variables():
            if name not in names:
                continue
            cell = int(name.split("'")[0][1:])
            start, step, before = found.start[cell], form.steps.get(cell), self.env[cell]
            if step is None:
                return None
            if isinstance(before, Expr):
                values[name] = x.add(before, x.mul(step, counter))
            elif isinstance(start, Pointer):
                values[name] = x.mul(step, counter)
            else:
                return None
        try:
            there = x.substitute(part, values)
        except x.UndefinedError:
            return None
        if not self.invariant(there, names, found):
            return None
        if counter.key not in there.variables():
            return None
        if there.op == "lt":
            return _countdown(x.subtract(there.args[1], there.args[0]), counter)
        if there.op == "not" and there.args[0].op == "eq":
            return _until_equal(there.args[0], counter)
        return None

    def unconverted(self, part: Expr, found: Iteration, form: Form) -> Expr:
        """A condition on what counters hold behind the body, without conversions to types that may not overflow."""
        if part.op != "lt" or found.end is None:
            return part
        plain: dict[str, Expr] = {}
        for cell in form.steps:
            end, width = found.end.env.get(cell), integer(self.types[cell])
            if isinstance(end, Expr) and end.op == "wrap" and width is not None and width[1] and width[0] >= 32:
                plain[end.key] = end.args[0]
        return x.less(*(plain.get(side.key, side) for side in part.args))

    def check_wrapping(self, form: Form) -> None:
        """An unsigned or narrow counter must not come around; otherwise it is lost."""
        if not self.concrete:
            return
        for cell, step in list(form.steps.items()):
            width, before = integer(self.types[cell]), self.env[cell]
            if width is None or step == x.ZERO or not isinstance(before, Expr) or self.types[cell].kind == "vector":
                continue
            if width[1] and width[0] >= 32:
                continue  # overflow is undefined
            last = None if form.trips is None else x.add(before, x.mul(step, form.trips))
            low, high = x.type_range(*width)
            if last is None or last.low < low or last.high > high:
                del form.steps[cell]
                form.lost[cell] = None
                form.exact, form.improvable = False, True
                form.reason = "a counter that may overflow"


def _divisions(number: int, least: int, by: int) -> int:
    """Return how often a number can be divided before it is not greater than ``least``."""
    count = 0
    while number > least:
        number, count = number // by, count + 1
    return count


def _is_affine(e: Expr) -> bool:
    """Return whether nothing is multiplied or divided by what is not constant."""
    if e.op == "mul" or (e.op in ("fdiv", "fmod", "tdiv") and e.args[1].op != "const"):
        return False
    return all(_is_affine(a) for a in e.args)


def _least(limits: list[Expr]) -> Expr | None:
    return reduce(x.minimum, limits) if limits else None


def _slope(gap: Expr, counter: Expr) -> tuple[Expr, Expr] | None:
    """(what a linear expression is at 0, by how much it changes per step); None if it is not linear."""
    try:
        start = x.substitute(gap, {counter.key: x.ZERO})
    except x.UndefinedError:
        return None
    slope: Expr = x.ZERO
    for atom, factor in gap.summands:
        if atom == counter:
            slope = x.add(slope, x.const(factor))
        elif counter.key in atom.variables():
            rest = [a for a in atom.args if a != counter] if atom.op == "mul" else None
            if rest is None or len(rest) != len(atom.args) - 1 or any(counter.key in a.variables() for a in rest):
                return None
            slope = x.add(slope, reduce(x.mul, rest, x.const(factor)))
    return start, slope


def _countdown(gap: Expr, counter: Expr) -> Expr | None:
    """Return for how many steps a shrinking number is positive."""
    found = _slope(gap, counter)
    if found is None:
        return None
    start, slope = found
    down = x.scale(slope, -1)
    if down.low <= 0:
        return None
    rounds = x.divide(x.add(start, down, x.const(-1)), down, floor=True) if down.low > 0 else None
    return None if rounds is None else x.maximum(rounds, x.ZERO)


def _until_equal(equality: Expr, counter: Expr) -> Expr | None:
    """Return for how many steps two numbers differ that meet exactly and, before, only approach each other."""
    gap = x.subtract(equality.args[1], equality.args[0])
    found = _slope(gap, counter)
    if found is None or found[1].op != "const" or found[1].value == 0:
        return None
    start, slope = found
    if slope.value > 0:
        start, slope = x.scale(start, -1), x.scale(slope, -1)
    down = -slope.value
    if start.low < 0 or x.divisor(start) % down:
        return None
    return x.divide(start, x.const(down), floor=True)


def _holds_integers(type_: CType) -> bool:
    leaf: CType | None = type_
    while leaf is not None and leaf.kind == "array":
        leaf = leaf.target
    return leaf is None or (leaf.kind not in ("float",) and leaf.base not in ("float", "double", "half"))
