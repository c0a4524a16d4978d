"""MKMD's f of a launch: the analysis finds it in symbols once a kernel (:mod:`manycl.analysis.costs.cost_function`);
here it is evaluated for launches, in microseconds.

Where f differs between work-items, the ids have their mean values: exact where f is linear in them. Trips that only the
data decide count once, and so does anything that cannot be analysed.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.analysis.service import CODE
from manycl.graph.graph import Argument, Launch, Version
from manycl.graph.launch import TYPES
from manycl.graph.versions.host_version import analysed
from manycl.utilities.disk_cache import DiskRecords
from manycl.utilities.kept import MANY, Kept
from manycl.utilities.unforeseen import told

if TYPE_CHECKING:
    from manycl.analysis.symbolic.expr import Expr

_answers = DiskRecords("costs", 16 << 20, CODE)
_known: Kept[tuple[str, tuple[str, ...], str], TripCount] = Kept(MANY)  # by kernel


class TripCount(NamedTuple):
    """f of a kernel: an expression (None: 1), and the scalar arguments in it: name, index, code for :mod:`struct`.
    ``bounded``: no data decide how often its loops run, so that a launch with the same arguments ends after the same
    work."""

    f: Expr | None = None
    scalars: tuple[tuple[str, int, str], ...] = ()
    bounded: bool = False

    def arguments(self, args: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the arguments that f depends on besides the NDRange."""
        return tuple(args[index] for _, index, _ in self.scalars) if self.scalars else ()

    def of(self, launch: Launch, chosen: Launch | Version) -> float:
        """Return f of a launch (of one of its versions); 1 at least."""
        if self.f is None:
            return 1.0
        at = _sizes_and_ids(chosen.global_size, chosen.local_size, launch.global_offset)
        for name, index, code in self.scalars:
            data = launch.args[index]
            if isinstance(data, bytes) and len(data) == struct.calcsize(code):
                at[name] = float(struct.unpack(code, data)[0])
        try:
            value = _value(self.f, at)
        except (OverflowError, RecursionError):
            return 1.0
        except Exception as error:
            told(error, f"evaluating f of {launch.name}")
            return 1.0
        return float(f"{value:.9g}") if 1.0 < value < math.inf else 1.0


ONCE = TripCount()


def trip_count(program: ProgramFacts, kernel: KernelFacts) -> TripCount:
    """Return f of a kernel; found once (a few milliseconds) and cached."""
    program, kernel = analysed(program, kernel)
    key = program.source, program.options, kernel.name
    found = _known.get(key)
    if found is None:
        try:
            found = _found(program, kernel)
        except RecursionError:
            found = ONCE
        except Exception as error:
            told(error, f"finding f of kernel {kernel.name}")
            found = ONCE
        found = _known.keep(key, found)
    return found


def _found(program: ProgramFacts, kernel: KernelFacts) -> TripCount:
    """Return f of a kernel as this process or another one has found it, else a new answer."""
    if not program.tree:  # facts made by hand
        return ONCE
    known: TripCount | None = _answers.of(program.tree).get(kernel.name)
    if known is None:
        known = _find(program, kernel)
        _answers.add(program.tree, kernel.name, known)
    return known


def found_before(program: ProgramFacts, kernel: KernelFacts) -> TripCount | None:
    """Return f of a kernel where it has been found, by this process or another one; else None."""
    program, kernel = analysed(program, kernel)
    found = _known.get((program.source, program.options, kernel.name))
    return _answers.of(program.tree).get(kernel.name) if found is None and program.tree else found


def recall(program: ProgramFacts) -> None:
    """Read what processes before have found out about a program, so that nobody has to wait for that later."""
    if program.tree:
        _answers.of(program.tree)


def _find(program: ProgramFacts, kernel: KernelFacts) -> TripCount:
    from manycl.analysis.costs.cost_function import cost_function
    from manycl.analysis.service import symbolic

    summary = symbolic(program, kernel.name)
    if summary.failure:
        return ONCE
    bounded = all(loop.trips is not None and not loop.trips.unknown for loop in summary.loops)
    f = cost_function(summary).f
    names = f.variables()
    scalars = tuple(
        (a.name, a.index, "=" + TYPES[a.base].code)
        for a in kernel.arguments
        if a.kind == "scalar" and a.name in names and a.base in TYPES and a.lanes == 1
    )
    return TripCount(f, scalars, bounded) if names or f.value != 1 else TripCount(bounded=bounded)


def _sizes_and_ids(
    size: tuple[int, ...], local: tuple[int, ...] | None, offset: tuple[int, ...] | None
) -> dict[str, float]:
    """Return the launch's own variables, by the analysis' names; work-groups of one item where the driver chooses
    them."""
    at: dict[str, float] = {}
    for d in range(3):
        items = size[d] if d < len(size) else 1
        group = local[d] if local is not None and d < len(local) else 1
        groups = -(-items // max(1, group))
        first = offset[d] if offset is not None and d < len(offset) else 0
        at |= {f"gsz{d}": items, f"lsz{d}": group, f"ngrp{d}": groups}
        at |= {f"gid{d}": first + (items - 1) / 2, f"lid{d}": (group - 1) / 2, f"grp{d}": (groups - 1) / 2}
    return at


_OPERATORS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mul": math.prod,
    "fdiv": lambda args: float(args[0] // args[1]) if args[1] else 1.0,
    "tdiv": lambda args: float(math.trunc(args[0] / args[1])) if args[1] else 1.0,
    "fmod": lambda args: args[0] % args[1] if args[1] else 1.0,
    "min": min,
    "max": max,
    "select": lambda args: args[1] if args[0] else args[2],
    "lt": lambda args: float(args[0] < args[1]),
    "eq": lambda args: float(args[0] == args[1]),
    "and": lambda args: float(all(args)),
    "or": lambda args: float(any(args)),
    "not": lambda args: float(not args[0]),
}


def _value(e: Expr, at: Mapping[str, float]) -> float:
    """Return the value of an expression where variables have these values, and others 1."""
    if e.op == "const":
        return float(e.value)
    if e.op == "var":
        return at.get(e.key, 1.0)
    args = [_value(a, at) for a in e.args]
    if e.op == "sum":
        return e.value + sum(a * f for a, f in zip(args, e.terms, strict=True))
    operator = _OPERATORS.get(e.op)
    return operator(args) if operator is not None else args[0]  # a conversion to a type that is assumed to hold it
