"""The summary of one abstract run of a kernel: every access to memory, its conditions and loops, and what is
counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from manycl.analysis.symbolic.expr import ONE, ZERO, Expr, add, const, less, scale

#: variables of the NDRange, in this order per dimension: work-group, work-item in it; symbolically the global id
GROUP, LOCAL, GLOBAL = "grp", "lid", "gid"


@dataclass(frozen=True, slots=True)
class Loop:
    """A counter that runs from 0 on. It takes the values below ``trips`` (None: unknown, then any) or, where it is
    not ``exact``, at most those. ``name`` is the counter's in all expressions."""

    name: str
    trips: Expr | None
    exact: bool
    line: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """``size`` bytes from byte ``offset`` on of the memory behind argument ``argument``, for all values of the ids and
    of the ``loops``' counters that fulfil ``condition``. ``kind``: ``read``, ``write`` or ``atomic`` (reads and writes;
    ``operation`` names it, ``used`` says whether the old value is used, ``element`` is the type that it is done in).
    ``stored``: the integer that is written, if it is always the same. ``argument`` -1: some memory that the analysis
    lost. ``line`` is in the user's file."""

    argument: int
    kind: str
    offset: Expr
    size: int
    condition: Expr
    loops: tuple[Loop, ...]
    line: int
    path: str = ""
    operation: str = ""
    used: bool = False
    element: str = ""
    stored: int | None = None

    @property
    def relevant(self) -> tuple[list[Expr], bool]:
        """The conditions, and whether they are all: of those on unknown values that have no part in the offset only
        what bounds of these values tell (``i < n`` of ``i < n + ?1``, where that is 0 at most)."""
        parts = [p for p in self.condition.parts if p != ONE]
        shared = {name for name, v in self.offset.variables().items() if v.unknown}
        kept = [p for p in parts if not p.unknown]
        open_parts = [p for p in parts if p.unknown]
        growing = True
        while growing and open_parts:
            growing = False
            for part in list(open_parts):
                names = {name for name, v in part.variables().items() if v.unknown}
                if names & shared:
                    shared |= names
                    kept.append(part)
                    open_parts.remove(part)
                    growing = True
        told = [found for part in open_parts if (found := _told(part)).op != "const"]
        return kept + told, bool(open_parts)


def _told(part: Expr) -> Expr:
    """Return a condition without unknown values that holds wherever the given one does."""
    return less(_end(part.args[0], 1), _end(part.args[1], -1)) if part.op == "lt" else ONE


def _end(e: Expr, sign: int) -> Expr:
    """An expression with the least (``sign`` 1) or the greatest (-1) values in place of the unknown ones."""
    if e.op != "sum":
        return const(e.low if sign > 0 else e.high) if e.unknown else e
    terms = zip(e.args, e.terms, strict=True)
    return add(const(e.value), *(scale(_end(a, sign if f > 0 else -sign), f) for a, f in terms))


@dataclass(frozen=True, slots=True)
class OwnArray:
    """A local or private array that a kernel declares, numbered behind its arguments; or a local argument, of which
    only launches know how many ``nbytes`` it has. ``size``: of an element, in bytes."""

    number: int
    name: str = ""
    nbytes: int = 0
    size: int = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an unknown value: ``reason`` in words; if it is an element of argument ``argument`` (else -1), the
    byte ``offset``, its ``size`` and whether it is signed."""

    reason: str
    argument: int = -1
    offset: Expr | None = None
    size: int = 0
    signed: bool = True


@dataclass(frozen=True, slots=True)
class Computed(Origin):
    """An unknown value that is ``value``, unless that is more than its type holds."""

    value: Expr = ZERO


@dataclass(frozen=True, slots=True)
class Operated(Origin):
    """An unknown value that is ``left operator right`` in an integer type of so many ``bits``."""

    operator: str = ""
    left: Expr = ZERO
    right: Expr = ZERO
    bits: int = 0


@dataclass(frozen=True, slots=True)
class CountedPlace:
    """Operations counted together: they happen for all ids and counters of ``loops`` that fulfil ``condition``.
    ``lone``: in a branch without else inside of a loop that the contents of memory decide."""

    condition: Expr
    loops: tuple[Loop, ...]
    lone: bool = False


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """One kernel, symbolic or for one launch (``ndrange`` given). ``failure`` says why nothing is known; accesses and
    counts are then empty. ``arguments_written`` and so on are not here: they are the facts'
    (:mod:`manycl.analysis.facts`). ``counts`` has, per place, operations by kind."""

    kernel: str
    accesses: tuple[MemoryAccess, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)
    counts: tuple[tuple[CountedPlace, Mapping[str, int]], ...] = ()
    loops: tuple[Loop, ...] = ()
    hazards: tuple[str, ...] = ()  # why groups may not run apart, beside accesses to arguments
    barriers: int = 0
    failure: str = ""
    steps: int = 0
    own: tuple[MemoryAccess, ...] = ()  # those that may leave an array of the kernel's own, which is their argument
    arrays: tuple[OwnArray, ...] = ()
    ordered: bool = False  # the source has volatile accesses or fences: groups may wait for one another

    @property
    def touching(self) -> str:
        """The parts of it that decide what a launch touches, in words."""
        conditions, numbers = [access.relevant for access in self.accesses], dict[int | None, int]()
        for access in self.accesses:
            numbers.setdefault(access.stored, len(numbers))
        numbered = [None if a.stored is None else numbers[a.stored] for a in self.accesses]  # which are the same
        accesses = tuple([replace(a, condition=ONE, stored=n) for a, n in zip(self.accesses, numbered, strict=True)])
        return repr((replace(self, accesses=accesses, counts=(), steps=0), conditions))

    @property
    def nbytes(self) -> Mapping[int, int]:
        """Bytes of the arrays that the kernel declares, by number."""
        return {array.number: array.nbytes for array in self.arrays if array.nbytes}
