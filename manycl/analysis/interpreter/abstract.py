"""The abstract machine: what variables hold, what is read and written, and what is counted while a kernel runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from manycl.analysis.interpreter.values import (
    LOST,
    OPAQUE,
    Aggregate,
    Cell,
    Pointer,
    Target,
    Value,
    Vector,
    convert,
    unknown,
)
from manycl.analysis.reading.tree import CType, Unit
from manycl.analysis.summary import CountedPlace, Loop, MemoryAccess, Origin, OwnArray
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
        """Return the conditions from the outermost to the innermost, down from ``above``."""
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
    """A point of a kernel's control flow: the path that leads to it, and the values of variables there."""

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


MOST_STEPS = 400_000  # for one kernel: nodes evaluated, and variables copied at branches; 4 to 10 us each
MOST_CHARACTERS = 1 << 27  # of the expressions made for it; 5 to 8 ns each where they are long
COPIED = 64  # variables are copied in the time of a step
FLOATING_STEPS = 16  # that an operation on floating-point numbers takes which are followed
DEEPEST_CALLS = 40


class Unanalysable(Exception):
    """The reason why nothing can be said of the kernel."""


@dataclass(slots=True)
class Frame:
    """A function that is being run: its variables' cells by declaration, and the ways out of it."""

    function: int
    cells: dict[int, int] = field(default_factory=dict)
    returns: list[tuple[ControlState, Cell]] = field(default_factory=list)
    jumps: dict[str, list[ControlState]] = field(default_factory=dict)  # on the way to a label


@dataclass(slots=True)
class Exits:
    """The places where ``break`` and ``continue`` go; a switch has no ``continue`` of its own."""

    breaks: list[ControlState] = field(default_factory=list)
    continues: list[ControlState] | None = None
    label: str = ""  # with which an iteration begins


# by the path's identity, the loops, and whether in a branch without else inside of a loop
Counts = dict[tuple[int, tuple[Loop, ...], bool], tuple[Path, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A mark of how far the notes of a run had come."""

    accesses: int
    counts: Counts
    loops: int
    hazards: dict[str, None]
    barriers: int


class Abstract:
    """State of one run. ``path`` is None where control does not come."""

    def __init__(self, unit: Unit, *, concrete: bool) -> None:
        self.unit = unit
        self.concrete = concrete
        self.floats = False  # whether floating-point numbers are followed
        self.path: Path | None = ROOT
        self.env: Env = {}
        self.types: dict[int, CType] = {}
        self.frames: list[Frame] = []
        self.exits: list[Exits] = []
        self.loops: tuple[Loop, ...] = ()
        self.silent = 0  # discovering what a loop does: nothing is recorded
        self.accesses: list[MemoryAccess] = []
        self.arrays: dict[
            int, OwnArray
        ] = {}  # of the kernel's own, by declaration, or of local arguments (-1, -2, ...)
        self.counts: Counts = {}
        self.looping = 0  # bodies of loops around what runs
        self.lone = 0  # branches without else around it, in loops, that the contents of memory decide
        self.wholes: dict[int, tuple[Path, Expr]] = {}
        self.member_words: dict[tuple[int, str], str] = {}
        self.members: dict[tuple[int, int, int], Expr] = {}
        self.origins: dict[str, Origin] = {}
        self.known_loads: dict[tuple[int, str, int], Expr] = {}
        self.read_only: frozenset[int] = frozenset()
        self.all_loops: list[Loop] = []
        self.hazards: dict[str, None] = {}
        self.barriers = 0
        self.names: dict[str, int] = {}
        self.steps = 0
        self.written = x.characters()
        self.first = 0  # number of the first array of the kernel's own
        self.here = 0  # byte offset of what is being evaluated

    # -- names, places, limits

    def dead(self) -> bool:
        """Return whether control does not come here."""
        return self.path is None

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unanalysable(f"it takes more than {MOST_STEPS} steps to follow")
        if x.characters() - self.written > MOST_CHARACTERS:
            raise Unanalysable(f"it takes expressions of more than {MOST_CHARACTERS} characters to follow")

    def copied(self, env: Env) -> Env:
        """Return what variables hold, for a branch of its own."""
        self.steps += len(env) // COPIED
        return dict(env)

    def name(self, wanted: str) -> str:
        """A variable name that nothing has yet."""
        number = self.names.get(wanted, 0)
        self.names[wanted] = number + 1
        return wanted if not number else f"{wanted}'{number}"

    def line(self, offset: int | None = None) -> int:
        return self.unit.place(self.here if offset is None else offset)[1]

    def fresh(self, low: int, high: int, reason: str = "", origin: Origin | None = None) -> Expr:
        """A value of which nothing is known but its bounds."""
        if low == high:
            return x.const(low)
        number = self.names["?"] = self.names.get("?", 0) + 1
        name = f"?{number}"
        self.origins[name] = origin or Origin(reason or f"a value that is not followed, line {self.line()}")
        return x.var(name, low, high, unknown=True)

    def fresh_of(self, type_: CType, reason: str = "") -> Value:
        return unknown(type_, lambda low, high: self.fresh(low, high, reason))

    def convert(self, value: Value, type_: CType) -> Value:
        if not self.concrete and isinstance(value, Expr) and type_.kind == "int" and type_.size >= 4:
            return value  # the symbolic form assumes that no conversion changes the value
        return convert(value, type_, self.fresh)

    # -- taking back

    def recorded(self) -> Recorded:
        """Return what has been noted so far, to come back to."""
        counts = {key: (path, dict(found)) for key, (path, found) in self.counts.items()}
        return Recorded(len(self.accesses), counts, len(self.all_loops), dict(self.hazards), self.barriers)

    def forget(self, recorded: Recorded) -> None:
        """Take back everything noted since."""
        del self.accesses[recorded.accesses :], self.all_loops[recorded.loops :]
        self.counts, self.hazards, self.barriers = recorded.counts, recorded.hazards, recorded.barriers

    # -- counting

    def count(self, what: str, times: int = 1, path: Path | None = None) -> None:
        """Note operations where control is, or on another path."""
        path = path or self.path
        if self.silent or path is None:
            return
        found = self.counts.setdefault((id(path), self.loops, self.lone > 0), (path, {}))[1]
        found[what] = found.get(what, 0) + times

    def count_access(self, kind: str, pointer: Pointer, size: int, times: int = 1) -> None:
        """Note ``times`` loads or stores (or atomic operations) of ``size`` bytes."""
        if self.silent or self.path is None:
            return
        if len(pointer.targets) == 1 and pointer.targets[0].base[0] == "var":
            return
        spaces = [self.space(*target.base) for target in pointer.targets]
        for target, space in zip(pointer.targets, spaces, strict=True):
            same = spaces.count(space) == len(spaces)
            path = self.path if same else self.path.where(target.condition)
            if space != "private" and path is not None:
                self.count(f"{kind}.{space}", times, path)
                self.count(f"{kind}.{space}.bytes", times * size, path)
            if same:
                break

    def counted_apart(self) -> Counts:
        """Return what was counted up to here; from now on is counted anew, until :meth:`count_where`."""
        counts, self.counts = self.counts, {}
        return counts

    def count_where(self, condition: Expr, before: Counts) -> None:
        """Note that what was counted since :meth:`counted_apart` happens only if a condition holds as well."""
        apart, self.counts = self.counts, before
        for (_, loops, lone), (path, found) in apart.items():
            there = path.where(condition)
            if there is not None:
                total = self.counts.setdefault((id(there), loops, lone), (there, {}))[1]
                for kind, times in found.items():
                    total[kind] = total.get(kind, 0) + times

    def space(self, base: str, index: int) -> str:
        """The address space of memory: global, constant, local or private; ``lost`` if that is not known."""
        if base == "program":
            return self.unit.variables[index].type.address_space or "constant"
        return {"arg": "global", "local": "local", "var": "private"}.get(base, "lost")

    def places(self) -> tuple[tuple[CountedPlace, dict[str, int]], ...]:
        counts = self.counts.items()
        return tuple((CountedPlace(path.whole(), loops, lone), found) for (_, loops, lone), (path, found) in counts)

    # -- variables

    def declare(self, ref: int, type_: CType, value: Cell) -> int:
        cell = len(self.types) + 1
        self.types[cell] = type_
        self.frames[-1].cells[ref] = cell
        self.env[cell] = value
        return cell

    def cell(self, ref: int) -> int | None:
        return self.frames[-1].cells.get(ref)
