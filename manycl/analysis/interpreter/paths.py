"""Under which conditions a statement runs, and how values meet where paths join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from manycl.analysis.interpreter.values import LOST, OPAQUE, Aggregate, Cell, Pointer, Target, Value, Vector
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic import real
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import Real

MOST_TARGETS = 12  # places that one pointer may mean


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """A chain of conditions; compared by identity, so that what runs equally often is seen at once."""

    parent: Path | None
    condition: Expr
    depth: int

    def where(self, condition: Expr) -> Path | None:
        """This path and ``condition``; None if that cannot be."""
        if condition.op == "const":
            return self if condition.value else None
        if condition.op == "and":
            path: Path | None = self
            for part in condition.args:
                path = path.where(part) if path is not None else None
            return path
        opposite = x.negate(condition)
        step: Path | None = self
        while step is not None and step.parent is not None:
            if step.condition == condition:
                return self
            if step.condition == opposite:
                return None
            step = step.parent
        return Path(self, condition, self.depth + 1)

    def conditions(self, above: Path | None = None) -> list[Expr]:
        """From the outermost to the innermost, down from ``above``."""
        found = []
        step: Path | None = self
        while step is not None and step is not above and step.parent is not None:
            found.append(step.condition)
            step = step.parent
        return found[::-1]

    def whole(self) -> Expr:
        return x.both(*self.conditions())


ROOT = Path(None, x.ONE, 0)

Env = dict[int, Cell]


@dataclass(slots=True)
class ControlState:
    """Where control is: the path to it and what variables hold there."""

    path: Path
    env: Env


def ancestor(one: Path, other: Path) -> Path:
    while one is not other:
        if one.depth >= other.depth:
            assert one.parent is not None
            one = one.parent
        else:
            assert other.parent is not None
            other = other.parent
    return one


def join(states: list[ControlState]) -> ControlState | None:
    """One state for several, of which at most one is the case; the later ones branched off later."""
    result: ControlState | None = None
    for state in reversed(states):
        result = state if result is None else _meet(state, result)
    return result


def _meet(one: ControlState, other: ControlState) -> ControlState:
    if one.path is other.path and one.env is other.env:
        return one
    base = ancestor(one.path, other.path)
    mine, theirs = one.path.conditions(base), other.path.conditions(base)
    path = _either(base, mine, theirs)
    chosen = x.both(*mine)
    env = {
        key: value if (there := other.env[key]) is value else meet(chosen, value, there)
        for key, value in one.env.items()
        if key in other.env
    }
    return ControlState(path, env)


def _either(base: Path, mine: list[Expr], theirs: list[Expr]) -> Path:
    common = [c for c in mine if c in theirs]
    mine, theirs = [c for c in mine if c not in common], [c for c in theirs if c not in common]
    path: Path | None = base
    for condition in common:
        path = path.where(condition) if path is not None else None
    assert path is not None
    left, right = x.both(*mine), x.both(*theirs)
    if left == x.negate(right) or right == x.negate(left):
        return path
    if len(mine) == 1:
        theirs = [c for c in theirs if c != x.negate(mine[0])]
        right = x.both(*theirs)
    elif len(theirs) == 1:
        mine = [c for c in mine if c != x.negate(theirs[0])]
        left = x.both(*mine)
    joined = x.either(left, right)
    return path.where(joined) or path


def meet(chosen: Expr, yes: Cell, no: Cell) -> Cell:
    """The value where ``chosen`` decides between two."""
    if yes is no or yes == no:
        return yes
    if isinstance(yes, Aggregate) or isinstance(no, Aggregate):
        return _meet_memories(chosen, yes, no)
    return meet_values(chosen, yes, no)


def meet_values(chosen: Expr, yes: Value, no: Value) -> Value:
    if isinstance(yes, Expr) and isinstance(no, Expr):
        found = x.select(chosen, yes, no) if len(chosen.key) + len(yes.key) + len(no.key) <= x.LONGEST else None
        return found if found is not None and len(found.key) <= x.LONG else OPAQUE
    if isinstance(yes, Real) and isinstance(no, Real):
        short = len(chosen.key) + len(yes.top.key) + len(no.top.key) <= x.LONG
        return (real.select(chosen, yes, no) if short else None) or OPAQUE
    if isinstance(yes, Vector) and isinstance(no, Vector) and len(yes.lanes) == len(no.lanes):
        return Vector(tuple(meet_values(chosen, a, b) for a, b in zip(yes.lanes, no.lanes, strict=True)))
    if isinstance(yes, Pointer) and isinstance(no, Pointer):
        targets = [*_guarded(chosen, yes, no), *_guarded(x.negate(chosen), no, yes)]
        merged = {(t.base, t.offset, t.condition): t for t in targets}
        return Pointer(tuple(merged.values())) if len(merged) <= MOST_TARGETS else LOST
    if isinstance(yes, Pointer) or isinstance(no, Pointer):
        return LOST
    return OPAQUE


def _guarded(chosen: Expr, pointer: Pointer, other: Pointer) -> Iterator[Target]:
    for target in pointer.targets:
        if target in other.targets:
            yield target
        elif (condition := x.both(chosen, target.condition)) != x.ZERO:
            yield Target(condition, target.base, target.offset)


def _meet_memories(chosen: Expr, yes: Cell, no: Cell) -> Cell:
    if not isinstance(yes, Aggregate) or not isinstance(no, Aggregate):
        return OPAQUE
    both = {}
    for key, value in yes.entries.items():
        there = no.entries.get(key)
        if there is not None:
            both[key] = value if value is there else meet_values(chosen, value, there)
    same = yes.raw == no.raw and len(both) == len(yes.entries) == len(no.entries)
    return Aggregate(both, yes.raw if same else None)
