"""MKMD's f of a launch: the analysis finds it in symbols once a kernel (:mod:`manycl.analysis.costs.cost_function`);
here it is evaluated for launches, in microseconds. Where f differs between work-items, the ids have their mean values:
exact where f is linear in them. Trips that only the data decide count once, and so does anything that cannot be
analysed."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.analysis.service import CODE
from manycl.graph.graph import Argument, Launch, Version
from manycl.graph.launch import TYPES
from manycl.graph.versions.host_version import analysed
from manycl.model.occupancy import UNLIKE
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
    work. ``item``: likewise what a work-item costs, where that depends on which it is (None: it does not)."""

    f: Expr | None = None
    scalars: tuple[tuple[str, int, str], ...] = ()
    bounded: bool = False
    item: TripCount | None = None

    def arguments(self, args: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the arguments that f depends on besides the NDRange."""
        return tuple(args[index] for _, index, _ in self.scalars) if self.scalars else ()

    def deciding(self, args: Sequence[Argument]) -> tuple[float, ...]:
        """Return the values with which scalars come into f: of launches of one NDRange where these are the same, f is,
        too. A loop's counter often decides no more than whether something is computed at all."""
        if self.f is None:
            return ()
        at = self._values(args)
        return tuple([_value(e, at) for e in _of_scalars(self.f, frozenset([name for name, _, _ in self.scalars]))])

    def of(self, launch: Launch, chosen: Launch | Version) -> float:
        """Return f of a launch (of one of its versions); 1 at least."""
        found = self._valued(launch, chosen, chosen.local_size, {})
        value = 1.0 if found is None else float(found)
        return float(f"{value:.9g}") if 1.0 < value < math.inf else 1.0

    def along(
        self, launch: Launch, chosen: Launch | Version, local: tuple[int, ...], dimension: int, cells: int
    ) -> tuple[float, ...]:
        """Return what equal parts of a launch along a dimension cost, beside their mean; nothing where they are alike.
        In other dimensions some work-groups stand for all; a group takes as long as its longest work-item."""
        if self.item is None:
            return ()
        import numpy as np

        at: dict[str, Any] = {}
        shape = [1] * (len(local) + 1)  # the last axis: work-items of a group, along the dimension
        for d, (items, size) in enumerate(zip(chosen.global_size, local, strict=True)):
            number = -(-items // size)
            shape[d] = min(cells if d == dimension else math.isqrt(cells), number)
            middles = (np.arange(shape[d]) + 0.5) * (number / shape[d])
            groups = np.floor(middles).reshape([-1 if d == axis else 1 for axis in range(len(shape))])
            of_group = min(size, math.isqrt(cells)) if d == dimension else 1
            ids = np.floor((np.arange(of_group) + 0.5) * (size / of_group))
            at |= {f"grp{d}": groups, f"lid{d}": ids, f"gid{d}": groups * size + ids}
            shape[-1] = max(shape[-1], of_group)
        found = self.item._valued(launch, chosen, local, at)
        if found is None:
            return ()
        others = tuple(axis for axis in range(len(local)) if axis != dimension)
        costs = np.broadcast_to(np.maximum(found, 1.0), shape).max(axis=-1).mean(axis=others)
        return tuple((costs / costs.mean()).tolist()) if costs.max() > UNLIKE * costs.min() else ()

    def _valued(
        self, launch: Launch, chosen: Launch | Version, local: tuple[int, ...] | None, ids: Mapping[str, Any]
    ) -> Any:
        """Return the value of f where ids have these values, numbers or arrays; None where there is none."""
        if self.f is None:
            return None
        at = _sizes_and_ids(chosen.global_size, local, launch.global_offset)
        for d, first in enumerate(launch.global_offset or ()):
            ids = {**ids, f"gid{d}": ids[f"gid{d}"] + first} if f"gid{d}" in ids else ids
        at |= ids
        at |= self._values(launch.args)
        try:
            return _value(self.f, at)
        except (OverflowError, RecursionError):
            return None
        except Exception as error:
            told(error, f"evaluating f of {launch.name}")
            return None

    def _values(self, args: Sequence[Argument]) -> dict[str, float]:
        """Return the scalars' values by name."""
        at = dict[str, float]()
        for name, index, code in self.scalars:
            data = args[index]
            if isinstance(data, bytes) and len(data) == struct.calcsize(code):
                at[name] = float(struct.unpack(code, data)[0])
        return at


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
    from manycl.analysis.symbolic.expr import TooLargeError

    summary = symbolic(program, kernel.name)
    if summary.failure:
        return ONCE
    bounded = all(loop.trips is not None and not loop.trips.unknown for loop in summary.loops)
    costs = cost_function(summary)
    f = costs.f if costs.f.variables() or costs.f.value != 1 else None
    with suppress(TooLargeError):
        item = costs.of_item()
        if _PLACES & item.variables().keys():
            return TripCount(f, _scalars(kernel, costs.f), bounded, TripCount(item, _scalars(kernel, item)))
    return TripCount(f, _scalars(kernel, costs.f), bounded)


_PLACES = {"gid0", "gid1", "gid2", "grp0", "grp1", "grp2"}  # ids that tell work-groups apart


def _scalars(kernel: KernelFacts, e: Expr) -> tuple[tuple[str, int, str], ...]:
    """Return the scalar arguments in an expression."""
    names = e.variables()
    return tuple(
        (a.name, a.index, "=" + TYPES[a.base].code)
        for a in kernel.arguments
        if a.kind == "scalar" and a.name in names and a.base in TYPES and a.lanes == 1
    )


@lru_cache(MANY)
def _of_scalars(e: Expr, names: frozenset[str]) -> tuple[Expr, ...]:
    """Return the largest parts of an expression that have no other variables than these."""
    own = e.variables().keys()
    if own <= names:
        return (e,) if own else ()
    return tuple(dict.fromkeys([part for inner in e.args for part in _of_scalars(inner, names)]))


def _sizes_and_ids(
    size: tuple[int, ...], local: tuple[int, ...] | None, offset: tuple[int, ...] | None
) -> dict[str, float]:
    """Return the launch's own variables, by the analysis' names; groups of one item where the driver chooses them."""
    at: dict[str, float] = {}
    for d in range(3):
        items = size[d] if d < len(size) else 1
        group = local[d] if local is not None and d < len(local) else 1
        groups = -(-items // max(1, group))
        first = offset[d] if offset is not None and d < len(offset) else 0
        at |= {f"gsz{d}": items, f"lsz{d}": group, f"ngrp{d}": groups}
        at |= {f"gid{d}": first + (items - 1) / 2, f"lid{d}": (group - 1) / 2, f"grp{d}": (groups - 1) / 2}
    return at


# of numbers, and of arrays of them
_OPERATORS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "mul": math.prod,
    "fdiv": lambda args: args[0] // (args[1] + (args[1] == 0)),
    "tdiv": lambda args: abs(args[0]) // (abs(args[1]) + (args[1] == 0)) * (1 - 2 * ((args[0] < 0) != (args[1] < 0))),
    "fmod": lambda args: args[0] % (args[1] + (args[1] == 0)),
    "min": lambda args: args[0] * (args[0] <= args[1]) + args[1] * (args[1] < args[0]),
    "max": lambda args: args[0] * (args[0] >= args[1]) + args[1] * (args[1] > args[0]),
    "select": lambda args: args[1] * (args[0] != 0) + args[2] * (args[0] == 0),
    "lt": lambda args: args[0] < args[1],
    "eq": lambda args: args[0] == args[1],
    "and": lambda args: math.prod([a != 0 for a in args]),
    "or": lambda args: 1 - math.prod([a == 0 for a in args]),
    "not": lambda args: args[0] == 0,
}


def _value(e: Expr, at: Mapping[str, Any]) -> Any:
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
