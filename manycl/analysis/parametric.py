"""Parametric launches: launches of a kernel that differ in integer scalars only, known together. Loops launch a kernel
slice by slice, or step by step. The kernel is followed once with variables for such scalars, its parameters, between
bounds within which it never has to be guessed what it does. That summary with values put in is the launch's own; what
isl proves of it holds for all values."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.analysis.known_launch import KnownLaunch, parameter
from manycl.analysis.regions.enclosure import INTEGERS
from manycl.analysis.regions.spans import ProvedSpans, Spans
from manycl.analysis.summary import CountedPlace, KernelSummary, Loop, MemoryAccess
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.utilities.kept import Kept

MOST_TRIED = 16
"""Choices of parameters that are tried for the launches of a kernel that differ in scalars only: each takes an abstract
run, and up to six more where the choice is good."""
MOST_PARAMETERS = 2
MOST_LIKE = 64
"""Launches that others are like which are kept of one with parameters: more differ in what conditions on these say."""


Keeps = Callable[[KnownLaunch, Mapping[int, tuple[int, int]]], bool]
Chosen = tuple[tuple[ArgumentFacts, bool], ...]
Seek = Callable[[KnownLaunch, Chosen, int], tuple[KnownLaunch, KernelSummary] | None]


class Translation(NamedTuple):
    """The movement of accesses with parameters: launches in which the same ``conditions`` on parameters hold, for all
    work-items or for none, do the same, by ``steps`` bytes further on for each 1 of a parameter, by argument."""

    conditions: tuple[Expr, ...]
    steps: Mapping[int, Mapping[str, int]]

    def place(self, values: Mapping[str, Expr]) -> tuple[tuple[Expr, ...], Mapping[int, int]] | None:
        """Return which of the conditions hold, and where the accesses are; None where one holds for some work-items."""
        of = x.substitution(values)
        try:
            holding = tuple([of(condition) for condition in self.conditions])
        except (x.TooLargeError, x.UndefinedError):
            return None
        if any(condition.op != "const" for condition in holding):
            return None
        places = {a: sum([by * values[name].value for name, by in steps.items()]) for a, steps in self.steps.items()}
        return holding, places


class Parametric:
    """A launch with parameters, and its summary; and of launches that it is, those that others are like."""

    def __init__(self, kernel: KernelFacts, launch: KnownLaunch, summary: KernelSummary, keeps: Keeps) -> None:
        self.launch = launch
        self.summary = summary
        self._keeps = keeps
        self._arguments = [kernel.arguments[index] for index in launch.parameters]
        self._translation = translation(kernel, summary, launch)
        self._first: Kept[tuple[Expr, ...], tuple[KnownLaunch, Mapping[int, int]]] = Kept(MOST_LIKE)
        self._spans: ProvedSpans | None = None  # of parameters with which a launch stays within its buffers

    def has(self, launch: KnownLaunch) -> bool:
        """Return whether it is a launch."""
        ends = self.launch.parameters
        return self.launch.scalars.items() <= launch.scalars.items() and all(
            ends[a.index][0] <= number(a, launch.scalars[a.index]) <= ends[a.index][1] for a in self._arguments
        )

    def values(self, launch: KnownLaunch) -> dict[str, Expr]:
        """The parameters of one of its launches."""
        return {parameter(a.index): x.const(number(a, launch.scalars[a.index])) for a in self._arguments}

    def like(self, launch: KnownLaunch) -> tuple[KnownLaunch, Mapping[int, int]]:
        """Return the first launch that was asked about which accesses the same, moved; and by how many bytes the
        launch's accesses are further on, by argument."""
        placed = self._translation.place(self.values(launch)) if self._translation is not None else None
        if placed is None or not self._stays(launch):  # its regions end where its buffers do
            return launch, {}
        holding, places = placed
        first, begin = self._first.get(holding) or self._first.keep(holding, (launch, places))
        return first, {argument: place - begin[argument] for argument, place in places.items()}

    def _stays(self, launch: KnownLaunch) -> bool:
        """Return whether one of its launches certainly stays within its buffers."""
        values = [number(a, launch.scalars[a.index]) for a in self._arguments]
        if self._spans is None:

            def prove(spans: Spans) -> bool:
                return self._keeps(launch, {a.index: span for a, span in zip(self._arguments, spans, strict=True)})

            self._spans = ProvedSpans(values, [self.launch.parameters[a.index][1] for a in self._arguments], prove)
        elif self._spans.cover(values):
            return True
        return self._keeps(launch, {})


class LaunchFamily:
    """Launches of a kernel that differ in scalars only, and which of them are one with parameters. ``seek``:
    :func:`widest`; ``keeps``: :func:`manycl.analysis.regions.enclosure.stays`, of this kernel."""

    def __init__(self, kernel: KernelFacts, seek: Seek, keeps: Keeps) -> None:
        self._kernel = kernel
        self._seek = seek
        self._keeps = keeps
        self._found: list[Parametric] = []
        self._tried: set[object] = set()
        self._last: KnownLaunch | None = None
        self._seeking = threading.Lock()  # a queue's thread and the background analysis ask about the same launches

    def of(self, launch: KnownLaunch) -> Parametric | None:
        """Return the parametric launch that this one is one of; None where there is none: of the first that is asked
        about, and where what a kernel does is not told by variables."""
        with self._seeking:
            found = next((found for found in self._found if found.has(launch)), None)
            if found is None:
                last, self._last = self._last, launch
                found = self._sought(last, launch) if last is not None else None
            return found

    def _sought(self, one: KnownLaunch, other: KnownLaunch) -> Parametric | None:
        """The parametric launch that two launches are of."""
        varying = [index for index, data in other.scalars.items() if one.scalars.get(index) != data]
        arguments = [self._kernel.arguments[index] for index in varying]
        whole = all(a.lanes == 1 and a.base in INTEGERS for a in arguments)
        if not whole or not 0 < len(varying) <= MOST_PARAMETERS or one.scalars.keys() != other.scalars.keys():
            return None
        values = [[number(a, launch.scalars[a.index]) for launch in (one, other)] for a in arguments]
        fixed = {index: data for index, data in other.scalars.items() if index not in varying}
        choice = tuple(fixed.items()), tuple(min(of) < 0 for of in values)
        if choice in self._tried or len(self._tried) >= MOST_TRIED or any(min(of) < 0 <= max(of) for of in values):
            return None
        self._tried.add(choice)
        found = self._seek(
            replace(other, scalars=fixed),
            tuple((a, of[0] < 0) for a, of in zip(arguments, values, strict=True)),
            max([abs(value).bit_length() for of in values for value in of]),
        )
        many = found and Parametric(self._kernel, *found, self._keeps)
        if many is None or not (many.has(one) and many.has(other)):
            return None
        self._found.insert(0, many)
        many.like(one)  # which has been asked about
        return many


def widest(
    launch: KnownLaunch, chosen: Chosen, least: int, follow: Callable[[KnownLaunch], KernelSummary]
) -> tuple[KnownLaunch, KernelSummary] | None:
    """Return a launch with parameters of as many bits as possible, at least ``least``, whose summary knows all, or
    None. ``chosen``: scalars, and whether they are negative; ``follow``: the abstract run of a launch."""
    found: tuple[KnownLaunch, KernelSummary] | None = None
    most = max(least, min([8 * a.size - (a.base[0] != "u") for a, _ in chosen]))
    bits = least
    while least <= most:
        bounds = {a.index: (-1 << bits, -1) if negative else (0, (1 << bits) - 1) for a, negative in chosen}
        many = replace(launch, parameters=bounds)
        summary = follow(many)
        if is_certain(summary, {variable.key for variable in many.variables}):
            found, least = (many, summary), bits + 1
        elif found is None:
            return None
        else:
            most = bits - 1
        bits = (least + most + 1) // 2
    return found


def number(argument: ArgumentFacts, data: bytes) -> int:
    """Return the value of an integer scalar."""
    return int.from_bytes(data, "little", signed=argument.base[0] != "u")


def is_certain(summary: KernelSummary, names: Set[str]) -> bool:
    """Return whether nothing in a summary is unknown, and no variable of these ``names`` is converted: with values put
    in, it is that of the launch with these."""
    if summary.failure or summary.hazards:
        return False
    accesses = (*summary.accesses, *summary.own)
    if any(a.argument < 0 or a.operation == "unknown" for a in accesses):
        return False
    places: list[MemoryAccess | CountedPlace] = [*accesses, *(place for place, _ in summary.counts)]
    loops = [*summary.loops, *(loop for p in places for loop in p.loops)]
    trips = [loop.trips for loop in loops if loop.exact and loop.trips is not None]
    values = [*trips, *(p.condition for p in places), *(a.offset for a in accesses)]
    return len(trips) == len(loops) and not any(e.unknown or _converts(e, names) for e in values)


def _converts(e: Expr, names: Set[str]) -> bool:
    """Return whether numbers that depend on variables come around in an expression."""
    return (e.op == "wrap" and not names.isdisjoint(e.variables())) or any(_converts(a, names) for a in e.args)


def translation(kernel: KernelFacts, summary: KernelSummary, launch: KnownLaunch) -> Translation | None:
    """Return how the accesses of a launch with parameters move with these; None where they do anything else, or what is
    done to the same memory does not move together."""
    if any(a.reason for a in kernel.arguments if a.kind == "buffer"):  # it counts as touched everywhere
        return None
    names = frozenset(variable.key for variable in launch.variables)
    conditions: dict[Expr, None] = {}
    steps: dict[int, Mapping[str, int]] = {}
    places: list[MemoryAccess | CountedPlace] = [*summary.accesses, *summary.own, *(p for p, _ in summary.counts)]
    for place in places:
        if any(names & loop.trips.variables().keys() for loop in place.loops if loop.trips is not None):
            return None
        for part in place.condition.parts:
            if names & part.variables().keys():
                conditions[part] = None
        if isinstance(place, MemoryAccess):
            step = _step(place.offset, names)
            root = launch.same.get(place.argument, place.argument)
            if step is None or steps.setdefault(root, step) != step or (step and root in launch.overlapping):
                return None
    steps |= {argument: steps[root] for argument, root in launch.same.items() if root in steps}
    return Translation(tuple(conditions), steps)


def _step(offset: Expr, names: Set[str]) -> Mapping[str, int] | None:
    """By how much an offset grows with variables; None where it depends on them otherwise."""
    atoms = {offset.key: (offset, 1)} if offset.op != "sum" else {
        a.key: (a, factor) for a, factor in zip(offset.args, offset.terms, strict=True)
    }  # fmt: skip
    others = [a for key, (a, _) in atoms.items() if key not in names]
    if any(names & a.variables().keys() for a in others):
        return None
    return {key: factor for key, (_, factor) in atoms.items() if key in names}


def evaluated(many: Parametric, launch: KnownLaunch) -> KernelSummary | None:
    """Return the summary of one of the launches that a launch with parameters is; None where a loop does not run at
    all (which loops are innermost depends on that), or an expression has no value."""
    summary, values = many.summary, _Values(many.values(launch))
    try:
        accesses = tuple(values.accesses(summary.accesses))
        own = tuple(values.accesses(summary.own))
        counts = []
        for place, found in summary.counts:
            loops = values.loops(place.loops)
            condition = values.of(place.condition)
            if condition != x.ZERO:
                counts.append((replace(place, condition=condition, loops=loops), found))
            elif loops:
                return None
        loops = values.loops(summary.loops)
    except (x.TooLargeError, x.UndefinedError, _NoneError):
        return None
    return replace(summary, accesses=accesses, own=own, counts=tuple(counts), loops=loops)


class _NoneError(Exception):
    """A loop does not run."""


class _Values:
    """Expressions with values of parameters put in."""

    def __init__(self, given: dict[str, Expr]) -> None:
        self._given = given
        self._loops: dict[Loop, Loop] = {}
        self.of = x.substitution(given)

    def accesses(self, accesses: Sequence[MemoryAccess]) -> Iterator[MemoryAccess]:
        for access in accesses:
            loops = self.loops(access.loops)
            condition = self.of(access.condition)
            if condition != x.ZERO:
                yield replace(access, offset=self.of(access.offset), condition=condition, loops=loops)
            elif loops:
                raise _NoneError

    def loops(self, loops: Sequence[Loop]) -> tuple[Loop, ...]:
        """Loops from the outermost on, whose counters get the bounds that they have here."""
        return tuple([self._loops.get(loop) or self._loop(loop) for loop in loops])

    def _loop(self, loop: Loop) -> Loop:
        assert loop.trips is not None
        trips = self.of(loop.trips)
        if trips.high <= 0:
            raise _NoneError
        if trips is not loop.trips:
            self._given[loop.name] = x.var(loop.name, 0, trips.high - 1)
        self._loops[loop] = found = replace(loop, trips=trips)
        return found
