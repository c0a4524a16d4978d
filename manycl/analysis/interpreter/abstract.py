"""The abstract machine: what variables hold, what is read and written, and what is counted while a kernel runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from manycl.analysis.interpreter.paths import ROOT, ControlState, Env, Path
from manycl.analysis.interpreter.values import Cell, Pointer, Value, convert, unknown
from manycl.analysis.reading.tree import CType, Unit
from manycl.analysis.summary import CountedPlace, Loop, MemoryAccess, Origin, OwnArray
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

MOST_STEPS = 400_000  # for one kernel: nodes evaluated, and variables copied at branches; 4 to 10 us each
MOST_CHARACTERS = 1 << 27  # of the expressions made for it; 5 to 8 ns each where they are long
COPIED = 64  # variables are copied in the time of a step
FLOATING_STEPS = 16  # that an operation on floating-point numbers takes which are followed
DEEPEST_CALLS = 40


class Unanalysable(Exception):
    """Nothing can be said of the kernel, for this reason."""


@dataclass(slots=True)
class Frame:
    """A function that is being run: its variables' cells by declaration, and the ways out of it."""

    function: int
    cells: dict[int, int] = field(default_factory=dict)
    returns: list[tuple[ControlState, Cell]] = field(default_factory=list)
    jumps: dict[str, list[ControlState]] = field(default_factory=dict)  # on the way to a label


@dataclass(slots=True)
class Exits:
    """Where ``break`` and ``continue`` go; a switch has no ``continue`` of its own."""

    breaks: list[ControlState] = field(default_factory=list)
    continues: list[ControlState] | None = None
    label: str = ""  # with which an iteration begins


# by the path's identity, the loops, and whether in a branch without else inside of a loop
Counts = dict[tuple[int, tuple[Loop, ...], bool], tuple[Path, dict[str, int]]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """How far the notes of a run had come."""

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
        """Whether control does not come here."""
        return self.path is None

    def step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Unanalysable(f"it takes more than {MOST_STEPS} steps to follow")
        if x.characters() - self.written > MOST_CHARACTERS:
            raise Unanalysable(f"it takes expressions of more than {MOST_CHARACTERS} characters to follow")

    def copied(self, env: Env) -> Env:
        """What variables hold, for a branch of its own."""
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
        """What has been noted so far, to come back to."""
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
        """What was counted up to here; from now on is counted anew, until :meth:`count_where`."""
        counts, self.counts = self.counts, {}
        return counts

    def count_where(self, condition: Expr, before: Counts) -> None:
        """What was counted since :meth:`counted_apart` happens only if a condition holds as well."""
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
