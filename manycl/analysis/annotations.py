"""Annotations: what the user promises about a kernel's data where the analysis cannot prove it.

    values     every element read from an index array lies in [low, high)
    distinct   no two elements of an index array are equal
    within     a work-item only touches the elements low <= e < high of an argument; reads and writes apart
    apart      no two work-groups write different values to an element of an argument, and none reads an element that
               another one writes

Annotations are trusted (all but ``apart`` without a check: docs/splitting.md), and never change what a launch counts as
reading or writing. Bounds are integer expressions (:data:`Term`), read here from text and never evaluated by Python.
Symbols:

    NAME                  an integer argument of the kernel
    len(NAME)             elements of a buffer argument, in the type that the kernel declares
    gsz0 lsz0 ngrp0 …     global size, local size and number of work-groups in dimension 0, 1, 2
    gid0 lid0 grp0 …      ids of the work-item as OpenCL C's functions return them (only in ``within``)

Numbers are mathematical integers (nothing wraps around); ``//`` and ``%`` round down.
"""

from __future__ import annotations

import ast
import keyword
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from manycl import flags
from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.errors import ManyclError
from manycl.expressions import IDENTIFIER, ExpressionError, Number, parse, show, suggest

IDS = ("gid", "lid", "grp")
SIZES = ("gsz", "lsz", "ngrp")
DIRECTIONS = ("reads", "writes")
LARGEST = 2**63
"""Constants lie between -LARGEST and LARGEST."""
DEEPEST = 100
"""Operations within operations of an expression."""

_INTEGERS = frozenset({"char", "uchar", "short", "ushort", "int", "uint", "long", "ulong"})
_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}
_COMPUTED: dict[str, Callable[..., int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": min,
    "max": max,
}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}
_MARK = "__argument"
_CALLS = {"min": (2, 64), "max": (2, 64), "ceil_div": (2, 2), "round_up": (2, 2), "len": (1, 1)}


@dataclass(frozen=True, slots=True)
class Symbol:
    """``kind``: one of IDS and SIZES (``index`` is the dimension), or ``scalar`` and ``len`` (the argument's index)."""

    kind: str
    index: int
    name: str

    def __str__(self) -> str:
        return f"len({self.name})" if self.kind == "len" else self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """``op``: ``+ - * // %`` of two operands (the last two round down), ``min``, ``max`` of two or more."""

    op: str
    operands: tuple[Term, ...]

    def __str__(self) -> str:
        if self.op not in _PRECEDENCE:
            return f"{self.op}({', '.join(map(str, self.operands))})"
        own = _PRECEDENCE[self.op]
        left, right = self.operands
        return f"{_wrapped(left, own)} {self.op} {_wrapped(right, own + 1)}"


Term = int | Symbol | Operation
"""An integer expression; ``str()`` gives text that is read as the same expression again."""


@dataclass(frozen=True, slots=True)
class ElementBounds:
    """The integers ``low <= e < high``; none where high is not above low."""

    low: Term
    high: Term

    def to_json(self) -> list[str]:
        return [str(self.low), str(self.high)]


@dataclass(frozen=True, slots=True)
class Annotation:
    """A promise about one argument; ``reads`` and ``writes`` are ``within``, by direction, in elements. ``values`` and
    ``distinct`` are about the data, so they hold for every version of a kernel; ``reads``, ``writes`` and ``apart`` are
    about one kernel's code."""

    argument: int
    name: str
    values: ElementBounds | None = None
    distinct: bool = False
    reads: ElementBounds | None = None
    writes: ElementBounds | None = None
    apart: bool = False

    def to_json(self) -> dict[str, Any]:
        """Only what is said: ``{"argument", "name", "values", "distinct", "within": {"reads", "writes"}, "apart"}``."""
        within = {key: b.to_json() for key, b in (("reads", self.reads), ("writes", self.writes)) if b}
        values = self.values.to_json() if self.values is not None else None
        said = {"values": values, "distinct": self.distinct, "within": within, "apart": self.apart}
        return {"argument": self.argument, "name": self.name, **{key: what for key, what in said.items() if what}}


class AnnotationError(ManyclError):
    """An annotation that cannot be meant. ``field`` leads to the part of it that is wrong, as ``("values", 0)``."""

    def __init__(self, message: str, field: tuple[str | int, ...] = (), *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.field = field


def annotation(
    kernel: KernelFacts,
    argument: str | int,
    *,
    values: Sequence[str | int] | None = None,
    distinct: bool = False,
    within: Sequence[str | int] | Mapping[str, Sequence[str | int]] | None = None,
    apart: bool = False,
    symbols: Mapping[str, Number] | None = None,
) -> Annotation:
    """Read an annotation of a kernel's argument (its name or index). Raises AnnotationError. ``values`` and ``within``
    are (low, high); ``within`` also ``{"reads": (low, high), "writes": (low, high)}``. ``symbols`` are names beside the
    kernel's own with their values; the kernel's own win."""
    facts = _find(kernel, argument)
    what = f"kernel {kernel.name}, argument {facts.index} ({facts.name or 'unnamed'})"
    if facts.kind != "buffer":
        raise AnnotationError(f"{what} is no buffer: there is nothing to annotate")
    if values is None and not distinct and (within is None or within == {}) and not apart:
        raise AnnotationError(f"{what}: the annotation says nothing", hint="give values, distinct, within or apart")
    if apart and not facts.writes:
        raise AnnotationError(f"{what} is never written by the kernel: its work-groups are apart", ("apart",))
    if (values is not None or distinct) and facts.base not in _INTEGERS:
        field = "values" if values is not None else "distinct"
        raise AnnotationError(f"{what} is no index array: its elements are {facts.element}", (field,))
    if within is not None and not facts.size:
        raise AnnotationError(f"{what}: elements of {facts.element} have no size to count in", ("within",))
    reader = _BoundsReader(kernel, symbols or {})
    found: dict[str, ElementBounds] = {}
    if values is not None:
        found["values"] = reader.bounds(values, ("values",), with_ids=False)
    if isinstance(within, Mapping):
        for key, pair in within.items():
            if key not in DIRECTIONS:
                raise AnnotationError(f"{what}: within has reads and writes, no {key!r}", ("within", key))
            found[key] = reader.bounds(pair, ("within", key), with_ids=True)
            if not getattr(facts, key):
                raise AnnotationError(f"{what} is never {_PAST[key]} by the kernel", ("within", key))
    elif within is not None:
        bounds = reader.bounds(within, ("within",), with_ids=True)
        found |= dict.fromkeys((d for d in DIRECTIONS if getattr(facts, d)), bounds)
        if not facts.reads and not facts.writes:
            raise AnnotationError(f"{what} is never used by the kernel", ("within",))
    return Annotation(facts.index, facts.name, distinct=bool(distinct), apart=bool(apart), **found)


def from_environment(kernel: KernelFacts) -> tuple[Annotation, ...]:
    """Return the promises of MANYCL_APART about a kernel: ``apart`` for each buffer that it writes."""
    written = (a for a in kernel.arguments if a.kind == "buffer" and a.writes) if flags.apart() else ()
    return tuple(Annotation(a.index, a.name, apart=True) for a in written)


def merge(old: Sequence[Annotation], new: Sequence[Annotation]) -> tuple[Annotation, ...]:
    """One annotation per argument, in the order of the arguments; what ``new`` says replaces what ``old`` says."""
    merged = {a.argument: a for a in old}
    for a in new:
        before = merged.get(a.argument, a)
        said = {n: getattr(a, n) or getattr(before, n) for n in ("values", "distinct", "reads", "writes", "apart")}
        merged[a.argument] = replace(a, **said)
    return tuple(merged[index] for index in sorted(merged))


def about_data(annotations: Sequence[Annotation]) -> tuple[Annotation, ...]:
    """Return what holds whatever kernel uses the arguments: values and distinct."""
    return tuple(replace(a, reads=None, writes=None, apart=False) for a in annotations if a.values or a.distinct)


def evaluate(term: Term, value: Callable[[Symbol], int]) -> int:
    """The value of an expression, ``value`` giving that of each symbol. Raises ZeroDivisionError."""
    if isinstance(term, int):
        return term
    if isinstance(term, Symbol):
        return value(term)
    return _COMPUTED[term.op](*(evaluate(operand, value) for operand in term.operands))


_PAST = {"reads": "read", "writes": "written"}


def _find(kernel: KernelFacts, argument: str | int) -> ArgumentFacts:
    if isinstance(argument, str):
        found = next((a for a in kernel.arguments if a.name == argument and argument), None)
    else:
        found = kernel.arguments[argument] if 0 <= argument < len(kernel.arguments) else None
    if found is None:
        names = [a.name for a in kernel.arguments]
        close = suggest(argument, names) if isinstance(argument, str) else ""
        have = ", ".join(names) or "none"
        raise AnnotationError(f"kernel {kernel.name} has no argument {argument!r}{close}", hint=f"it has: {have}")
    return found


def _wrapped(term: Term, precedence: int) -> str:
    """Return a text as an operand: in parentheses where its own operator binds less than ``precedence``."""
    loose = _PRECEDENCE.get(term.op, 9) < precedence if isinstance(term, Operation) else False
    negative = isinstance(term, int) and term < 0
    return f"({term})" if loose or negative else str(term)


class _BoundsReader:
    """Reads bounds: text to :data:`Term`, over the names of one kernel."""

    def __init__(self, kernel: KernelFacts, symbols: Mapping[str, Number]) -> None:
        self.kernel = kernel
        self.arguments = {a.name: a for a in kernel.arguments if a.name}
        self.symbols = symbols
        self.ndrange = {f"{kind}{d}": Symbol(kind, d, f"{kind}{d}") for kind in (*IDS, *SIZES) for d in range(3)}
        self.with_ids = False
        # parameters may be called like Python's keywords (in, from): those are marked before Python's parser sees them
        words = [name for name in self.arguments if keyword.iskeyword(name)]
        self.keywords = re.compile(rf"\b({'|'.join(words)})\b") if words else None

    def bounds(self, value: Any, field: tuple[str | int, ...], *, with_ids: bool) -> ElementBounds:
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
            raise AnnotationError(f"{field[-1]} needs two bounds, low and high, not {value!r:.60}", field)
        self.with_ids = with_ids
        low, high = (self.term(v, (*field, i)) for i, v in enumerate(value))
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            raise AnnotationError(f"there is no integer from {low} to below {high}", field)
        return ElementBounds(low, high)

    def term(self, value: Any, field: tuple[str | int, ...]) -> Term:
        try:
            if not isinstance(value, str):
                return _constant(value)
            term = self.read(parse(self.keywords.sub(r"\1" + _MARK, value) if self.keywords else value))
            if _depth(term) > DEEPEST:
                raise ExpressionError(f"{show(value)} is nested too deeply")
            return term
        except ExpressionError as error:
            message = str(error).replace(_MARK, "")
            within = isinstance(value, str) and not IDENTIFIER.match(value)
            within = within and not message.startswith((show(value), "an "))
            raise AnnotationError(f"{message} (in {show(value)})" if within else message, field) from None
        except RecursionError:
            raise AnnotationError(f"{show(str(value))} is nested too deeply", field) from None

    def read(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=value):
                return _constant(value)
            case ast.Name(id=name):
                return self.name(name)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                term = self.read(operand)
                return -term if isinstance(term, int) else Operation("-", (0, term))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _binary(_BINARY[type(op)], self.read(left), self.read(right))
            case ast.BinOp(op=ast.Div()):
                raise ExpressionError("/ is not allowed in a bound: use // or ceil_div")
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(name, args)
        raise ExpressionError(f"{show(ast.unparse(node))} is not allowed in a bound")

    def name(self, name: str) -> Term:
        name = name.removesuffix(_MARK)
        facts, symbol = self.arguments.get(name), self.ndrange.get(name)
        if facts is not None and symbol is not None:
            raise ExpressionError(f"{name!r} is an argument of kernel {self.kernel.name} as well")
        if facts is not None:
            if facts.kind == "buffer":
                raise ExpressionError(f"{name!r} is a buffer: len({name}) is its number of elements")
            if facts.kind != "scalar" or facts.lanes != 1 or facts.base not in _INTEGERS:
                raise ExpressionError(f"{name!r} is of type {facts.element}, not an integer")
            return Symbol("scalar", facts.index, name)
        if symbol is not None:
            if symbol.kind in IDS and not self.with_ids:
                raise ExpressionError(f"{name!r} differs between work-items, the values of an array do not")
            return symbol
        if name in self.symbols:
            return _constant(self.symbols[name])
        known = [a.name for a in self.arguments.values() if a.kind == "scalar"]
        raise ExpressionError(f"unknown symbol {name!r}{suggest(name, [*known, *self.ndrange, *self.symbols])}")

    def call(self, name: str, args: list[ast.expr]) -> Term:
        if name not in _CALLS:
            raise ExpressionError(f"unknown function {name!r}{suggest(name, _CALLS)}")
        fewest, most = _CALLS[name]
        if not fewest <= len(args) <= most:
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            raise ExpressionError(f"{name} takes {wanted} argument(s), got {len(args)}")
        if name == "len":
            facts = self.arguments.get(args[0].id.removesuffix(_MARK)) if isinstance(args[0], ast.Name) else None
            if facts is None or facts.kind != "buffer" or not facts.size:
                raise ExpressionError(f"len takes the name of a buffer argument, not {show(ast.unparse(args[0]))}")
            return Symbol("len", facts.index, facts.name)
        terms = tuple(self.read(a) for a in args)
        if name in ("min", "max"):
            return Operation(name, terms)
        rounded = _binary("-", 0, _binary("//", _binary("-", 0, terms[0]), terms[1]))
        return rounded if name == "ceil_div" else _binary("*", rounded, terms[1])


def _depth(term: Term) -> int:
    return 1 + max(_depth(operand) for operand in term.operands) if isinstance(term, Operation) else 0


def _constant(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ExpressionError(f"{value!r:.60} is not an integer")
    number: int = value.__index__()
    if not -LARGEST <= number <= LARGEST:
        raise ExpressionError(f"{number} is too large")
    return number


def _binary(op: str, left: Term, right: Term) -> Term:
    """The operation; its value where both are constants."""
    if op in ("//", "%") and right == 0:
        raise ExpressionError("division by zero")
    term = Operation(op, (left, right))
    if isinstance(left, int) and isinstance(right, int):
        return _constant(evaluate(term, lambda symbol: 0))
    return term
