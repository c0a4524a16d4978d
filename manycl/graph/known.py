"""The facts of a launch in a graph that the analysis is told: sizes, scalars, shared buffers, and annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from manycl.analysis.annotations import ElementBounds, Symbol, Term, evaluate
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.errors import LaunchError
from manycl.graph.graph import BufferArg, BufferKey, Launch, LocalArg, Version
from manycl.graph.reduction import PROMISES

if TYPE_CHECKING:
    from manycl.analysis.annotations import Annotation

_KINDS = {"reads": "read", "writes": "write"}
_OPERATIONS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "+": x.add,
    "-": x.subtract,
    "*": x.mul,
    "min": x.minimum,
    "max": x.maximum,
}


def known_launch(launch: Launch, sizes: Mapping[BufferKey, int], version: Version | None = None) -> KnownLaunch:
    """Return what the analysis is told of a launch, or of another version of it, for
    :func:`manycl.analysis.service.launched`. ``sizes``: bytes of each of its buffers by key. Floating-point arguments
    on which no access depends are left out. Raises LaunchError where the local size is left open, or an annotation
    cannot be evaluated for this launch."""
    own = version or Version(launch.program, launch.kernel, launch.global_size, launch.local_size)
    annotations = launch.annotations if version is None else version.annotations
    if own.local_size is None:
        raise LaunchError(f"kernel {own.kernel.name}: the analysis needs a local size")
    scalars: dict[int, bytes] = {}
    nbytes: dict[int, int] = {}
    given: dict[int, BufferArg] = {}
    for index, (facts, argument) in enumerate(zip(own.kernel.arguments, launch.args, strict=True)):
        if isinstance(argument, BufferArg):
            nbytes[index] = argument.size(sizes)
            given[index] = argument
        elif isinstance(argument, bytes) and facts.decides:
            scalars[index] = argument
    offset = launch.global_offset or ()
    same, overlapping = shared_memory(given, nbytes)
    nbytes |= {index: argument.nbytes for index, argument in enumerate(launch.args) if isinstance(argument, LocalArg)}
    plain = KnownLaunch(own.global_size, own.local_size, offset, scalars, nbytes, same, overlapping=overlapping)
    return _promised(plain, own.program, own.kernel, annotations) if annotations else plain


def shared_memory(
    arguments: Mapping[int, BufferArg], nbytes: Mapping[int, int]
) -> tuple[dict[int, int], frozenset[int]]:
    """Return which of some buffer arguments (by index) have the same bytes, each with the first of them; and which have
    some bytes in common with others that have not the same."""
    same: dict[int, int] = {}
    first: dict[tuple[int, int, int], int] = {}
    by_key: dict[int, list[tuple[int, int]]] = {}
    for index, argument in arguments.items():
        place = argument.key, argument.offset, nbytes[index]
        if first.setdefault(place, index) != index:
            same[index] = first[place]
        else:
            by_key.setdefault(argument.key, []).append((argument.offset, argument.offset + nbytes[index]))
    several = {key: ends for key, ends in by_key.items() if len(ends) > 1}
    if not several:
        return same, frozenset()
    found = set()
    for index, argument in arguments.items():
        low, high = argument.offset, argument.offset + nbytes[index]
        others = [ends for ends in several.get(argument.key, ()) if ends != (low, high)]
        if any(begin < high and low < end for begin, end in others):
            found.add(index)
    return same, frozenset(found)


def _promised(
    launch: KnownLaunch, program: ProgramFacts, kernel: KernelFacts, annotations: tuple[Annotation, ...]
) -> KnownLaunch:
    """The launch with what is promised about its arguments."""
    terms = _Terms(launch, kernel)
    values: dict[int, tuple[int, int]] = {}
    within: dict[tuple[int, str], tuple[Expr, Expr]] = {}
    for annotation in annotations:
        if annotation.values is not None:
            values[annotation.argument] = terms.numbers(annotation.values, annotation.name)
        for field, kind in _KINDS.items():
            bounds: ElementBounds | None = getattr(annotation, field)
            found = terms.expressions(bounds, annotation.name) if bounds is not None else None
            if found is not None:
                within[annotation.argument, kind] = found
    distinct = frozenset(a.argument for a in annotations if a.distinct)
    apart = frozenset(a.argument for a in annotations if a.apart)
    if apart and PROMISES.broken(program, kernel):
        apart = frozenset()
    return replace(launch, values=values, within=within, distinct=distinct, apart=apart)


class _Terms:
    """The bounds of annotations in one launch."""

    def __init__(self, launch: KnownLaunch, kernel: KernelFacts) -> None:
        self.launch = launch
        self.kernel = kernel

    def numbers(self, bounds: ElementBounds, name: str) -> tuple[int, int]:
        try:
            return evaluate(bounds.low, self.number), evaluate(bounds.high, self.number)
        except ZeroDivisionError:
            raise self.divides_by_zero(name) from None

    def expressions(self, bounds: ElementBounds, name: str) -> tuple[Expr, Expr] | None:
        """In terms of the ids; None where a quotient is none that the analysis has (the promise is then not used)."""
        low, high = self.expression(bounds.low, name), self.expression(bounds.high, name)
        return None if low is None or high is None else (low, high)

    def divides_by_zero(self, name: str) -> LaunchError:
        return LaunchError(f"kernel {self.kernel.name}: the annotation of {name} divides by zero in this launch")

    def number(self, symbol: Symbol) -> int:
        launch, index = self.launch, symbol.index
        if symbol.kind == "scalar":
            signed = not self.kernel.arguments[index].base.startswith("u")
            return int.from_bytes(launch.scalars[index], "little", signed=signed)
        if symbol.kind == "len":
            return launch.sizes.get(index, 0) // self.kernel.arguments[index].size
        if symbol.kind == "ngrp":
            return launch.groups(index)
        sizes = launch.global_size if symbol.kind == "gsz" else launch.local_size
        return sizes[index] if index < len(sizes) else 1

    def symbol(self, symbol: Symbol) -> Expr:
        launch, d = self.launch, symbol.index
        if symbol.kind not in ("gid", "lid", "grp"):
            return x.const(self.number(symbol))
        if d >= len(launch.global_size):
            return x.ZERO
        group = x.var(f"grp{d}", 0, launch.groups(d) - 1)
        local = x.var(f"lid{d}", 0, min(launch.local_size[d], launch.global_size[d]) - 1)
        if symbol.kind == "grp":
            return group
        if symbol.kind == "lid":
            return local
        return x.add(x.scale(group, launch.local_size[d]), local, x.const(launch.start(d)))

    def expression(self, term: Term, name: str) -> Expr | None:
        if isinstance(term, int):
            return x.const(term)
        if isinstance(term, Symbol):
            return self.symbol(term)
        operands = []
        for operand in term.operands:
            found = self.expression(operand, name)
            if found is None:
                return None
            operands.append(found)
        result, *rest = operands
        for other in rest:
            if term.op in ("//", "%"):
                return self.quotient(term.op, result, other, name)
            result = _OPERATIONS[term.op](result, other)
        return result

    def quotient(self, op: str, left: Expr, right: Expr, name: str) -> Expr | None:
        if right == x.ZERO:
            raise self.divides_by_zero(name)
        if right.high < 0:  # a // -b == -a // b, and a % -b == -(-a % b)
            left, right = x.scale(left, -1), x.scale(right, -1)
            found = self.quotient(op, left, right, name)
            return found if found is None or op == "//" else x.scale(found, -1)
        if right.low <= 0 or (right.op != "const" and left.low < 0):  # the second: the analysis rounds to zero
            return None
        return x.divide(left, right, floor=True) if op == "//" else x.remainder(left, right, floor=True)
