"""Expressions of the analysis as one would write them in C, and accesses as elements of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.analysis.summary import Computed, KernelSummary, Loop, MemoryAccess
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

_TERNARY, _OR, _AND, _EQUAL, _LESS, _SUM, _PRODUCT, _UNARY, _ATOM = range(9)
_TYPES = {8: "char", 16: "short", 32: "int", 64: "long"}
_IDS = ("gid", "lid", "grp", "gsz", "lsz", "ngrp", "goff")
_DEEPEST = 3  # elements within subscripts of elements


def show(expr: Expr, words: Mapping[str, str] | None = None) -> str:
    """An expression in C's notation. ``words`` replace variables (they are put in no parentheses)."""
    return _show(expr, words or {}, _TERNARY)


def _show(e: Expr, words: Mapping[str, str], least: int) -> str:
    text, level = _SHOWN[e.op](e, words)
    return f"({text})" if level < least else text


def _sum(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    terms = sorted(zip(e.args, e.terms, strict=True), key=lambda t: (t[1] < 0, _order(t[0])))
    parts = [_term(atom, factor, words) for atom, factor in terms]
    if e.value:
        place = 0 if e.value > 0 and terms[0][1] < 0 else len(parts)  # 60 - n
        parts.insert(place, str(e.value))
    text = parts[0] + "".join(f" - {p[1:]}" if p[0] == "-" else f" + {p}" for p in parts[1:])
    return text, _SUM if len(parts) > 1 else _PRODUCT


def _term(atom: Expr, factor: int, words: Mapping[str, str]) -> str:
    if factor == 1:
        return _show(atom, words, _PRODUCT)
    text = _show(atom, words, _PRODUCT if atom.op == "mul" else _UNARY)  # 2*(n / 2) is not 2*n / 2
    return f"-{text}" if factor == -1 else f"{factor}*{text}"


def _order(e: Expr) -> tuple[int, int, str]:
    """Products first, then ids, then all else; by name."""
    size = len(e.args) if e.op == "mul" else 1
    first = min((not _is_id(a) for a in e.args), default=True) if e.op == "mul" else not _is_id(e)
    return -size, int(first), e.key


def _is_id(e: Expr) -> bool:
    return e.op == "var" and e.key[:-1] in _IDS


def _mul(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    factors = sorted(e.args, key=lambda a: (not _is_id(a), a.op != "var", a.key))
    return "*".join(_show(a, words, _UNARY) for a in factors), _PRODUCT


def _quotient(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    left, right = e.args
    if e.op == "fdiv" and left.low < 0:
        return f"floor({_show(left, words, _PRODUCT)} / {_show(right, words, _UNARY)})", _ATOM
    sign = "%" if e.op in ("fmod", "tmod") else "/"
    if e.op == "fmod" and left.low < 0:
        return f"mod({show(left, words)}, {show(right, words)})", _ATOM
    return f"{_show(left, words, _PRODUCT)} {sign} {_show(right, words, _UNARY)}", _PRODUCT


def _call(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    return f"{e.op}({', '.join(show(a, words) for a in e.args)})", _ATOM


def _select(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    condition, yes, no = (_show(a, words, _OR) for a in e.args)
    return f"{condition} ? {yes} : {no}", _TERNARY


def _wrap(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    name = f"{'' if e.value < 0 else 'u'}{_TYPES.get(abs(e.value), f'int{abs(e.value)}')}"
    return f"({name}){_show(e.args[0], words, _UNARY)}", _UNARY


def _less(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    """Every term on the side where it is positive, ids on the left."""
    gap = x.subtract(e.args[1], e.args[0])  # is above 0
    terms = list(zip(gap.args, gap.terms, strict=True)) if gap.op == "sum" else [(gap, 1)]
    constant = gap.value if gap.op == "sum" else 0
    sides = [x.add(*(x.scale(a, abs(f)) for a, f in terms if (f > 0) == up)) for up in (False, True)]
    sign = "<"
    if constant == 1:
        sign = "<="
    elif constant:
        sides[constant > 0] = x.add(sides[constant > 0], x.const(abs(constant)))
    left, right = sides
    if left.op == "const" or (not _has_id(left) and _has_id(right)):
        left, right, sign = right, left, sign.replace("<", ">")
    return f"{_show(left, words, _SUM)} {sign} {_show(right, words, _SUM)}", _LESS


def _has_id(e: Expr) -> bool:
    return any(_is_id(v) for v in e.variables().values())


def _equal(e: Expr, words: Mapping[str, str], sign: str = "==") -> tuple[str, int]:
    left, right = e.args if e.args[0].op != "const" else (e.args[1], e.args[0])
    return f"{_show(left, words, _LESS)} {sign} {_show(right, words, _LESS)}", _EQUAL


def _not(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    if e.args[0].op == "eq":
        return _equal(e.args[0], words, "!=")
    return f"!{_show(e.args[0], words, _UNARY)}", _UNARY


def _joined(e: Expr, words: Mapping[str, str]) -> tuple[str, int]:
    sign, level = (" && ", _AND) if e.op == "and" else (" || ", _OR)
    return sign.join(_show(a, words, level + 1) for a in e.args), level


_SHOWN = {
    "const": lambda e, words: (str(e.value), _ATOM if e.value >= 0 else _UNARY),
    "var": lambda e, words: (words.get(e.key, e.key), _ATOM),
    "sum": _sum,
    "mul": _mul,
    **dict.fromkeys(("fdiv", "fmod", "tdiv", "tmod"), _quotient),
    **dict.fromkeys(("min", "max"), _call),
    "select": _select,
    "wrap": _wrap,
    "lt": _less,
    "eq": _equal,
    "not": _not,
    **dict.fromkeys(("and", "or"), _joined),
}


@dataclass
class AccessWriter:
    """Writes the accesses of one kernel. ``unknowns``: those values that it had to leave as they are (``?1``), with
    where they come from; it grows with what is written."""

    facts: KernelFacts
    summary: KernelSummary
    unknowns: dict[str, str] = field(default_factory=dict)

    def name(self, argument: int) -> str:
        """An argument's name."""
        return self.facts.arguments[argument].name or f"argument{argument}"

    def expression(self, expr: Expr) -> str:
        return show(expr, self._words(expr, 0))

    def elements(self, access: MemoryAccess) -> str:
        """Return what an access touches: ``a[gid0]``, ``a[4*gid0:4]`` (four elements from there on), ``v[gid0].xy``,
        ``p[gid0] bytes 4 to 7`` (of that element), ``((char *)a)[5*gid0:4]``."""
        if access.argument < 0:
            return "some memory, through a pointer that was lost"
        return self._elements(access.argument, access.offset, access.size, 0)

    def guard(self, access: MemoryAccess) -> str:
        """The condition of an access, without what its loops say; empty if there is none."""
        parts = access.condition.args if access.condition.op == "and" else (access.condition,)
        kept = [p for p in parts if p != x.ONE and not any(_bounded_by(p, loop) for loop in access.loops)]
        return " && ".join(_show(p, self._words(p, 0), _AND + 1 if len(kept) > 1 else _TERNARY) for p in kept)

    def loop(self, loop: Loop) -> str:
        """``k in 0..n``: from 0 up to n, without n; nothing if n is not positive."""
        end = self.bound(loop)
        if not end:
            return f"{loop.name} in 0..? ({loop.reason or f'the loop in line {loop.line}'})"
        if " " in end and not end.endswith(")"):
            end = f"({end})"
        return f"{loop.name} in 0..{end}" + ("" if loop.exact else f" at most ({loop.reason})")

    def bound(self, loop: Loop) -> str:
        """Return what a loop's counter stays below; empty if that is not known."""
        if loop.trips is None:
            return ""
        words = [self._end(end) for end in dict.fromkeys(_ends(loop.trips))]
        return words[0] if len(words) == 1 else f"min({', '.join(words)})"

    def _end(self, end: Expr) -> str:
        """A trip count; negative ones count as none, so that it does not matter how they are rounded."""
        if end.op not in ("fdiv", "tdiv"):
            return self.expression(end)
        left, by = end.args
        rounded = x.add(left, x.ONE, x.scale(by, -1))  # (a + b - 1) / b
        words = self._words(end, 0)
        name = "floor"
        if len(str(rounded)) <= len(str(left)):
            left, name = rounded, "ceil"
        common = gcd(by.value, x.divisor(left)) if by.op == "const" and name == "ceil" else 1
        shorter = divided(left, common)
        if shorter is not None and common > 1:
            left, by = shorter, x.const(by.value // common)
        if by == x.ONE:
            return show(left, words)
        return f"{name}({_show(left, words, _PRODUCT)} / {_show(by, words, _UNARY)})"

    # -- elements

    def _elements(self, index: int, offset: Expr, size: int, depth: int) -> str:
        argument, name = self.facts.arguments[index], self.name(index)
        element = argument.size or 1
        if offset.op == "wrap" and abs(offset.value) == 64:  # as addresses do
            offset = offset.args[0]
        rest = _constant(offset) % element
        place = divided(x.add(offset, x.const(-rest)), element)
        if place is None or (rest and rest + size > element) or (not rest and size > element and size % element):
            return f"((char *){name})[{self._subscript(offset, depth)}{f':{size}' if size > 1 else ''}]"
        subscript = self._subscript(place, depth)
        if not rest and size >= element:
            return f"{name}[{subscript}{f':{size // element}' if size > element else ''}]"
        text = f"{name}[{subscript}]{_part(argument, rest, size)}"
        return f"({text})" if depth and " byte" in text else text

    def _subscript(self, expr: Expr, depth: int) -> str:
        return show(expr, self._words(expr, depth))

    def _words(self, expr: Expr, depth: int) -> dict[str, str]:
        """The unknown values of an expression as the elements that they were read from."""
        words = {}
        for name, variable in expr.variables().items():
            if variable.unknown:
                found = self._origin(name, depth)
                if found:
                    words[name] = found
                elif not name.startswith("@"):
                    origin = self.summary.origins.get(name)
                    self.unknowns[name] = named(origin.reason, self.facts) if origin else "not followed"
        return words

    def _origin(self, name: str, depth: int) -> str:
        origin = self.summary.origins.get(name)
        if origin is None or depth >= _DEEPEST:
            return ""
        if isinstance(origin, Computed):
            return "" if _passing(origin.value) else f"({show(origin.value, self._words(origin.value, depth + 1))})"
        if origin.argument < 0 or origin.offset is None or _passing(origin.offset):
            return ""
        return self._elements(origin.argument, origin.offset, origin.size, depth + 1)


def _passing(expr: Expr) -> bool:
    """Return whether an expression holds a value that is only known within a loop."""
    return any(name.startswith("@") for name in expr.variables())


def _part(argument: ArgumentFacts, start: int, size: int) -> str:
    """Return the text that stands behind an element for a part of it."""
    lane = 0 if argument.lanes < 2 else argument.size // (4 if argument.lanes == 3 else argument.lanes)
    if lane and start % lane == 0 and size % lane == 0:
        first, count = start // lane, size // lane
        if argument.lanes == 3 and (first, count) == (0, 3):
            return ""
        letters = "xyzw" if argument.lanes <= 4 else "0123456789abcdef"
        return f".{'' if argument.lanes <= 4 else 's'}{letters[first : first + count]}"
    return f" byte {start}" if size == 1 else f" bytes {start} to {start + size - 1}"


def _constant(e: Expr) -> int:
    return e.value if e.op in ("const", "sum") else 0


def divided(e: Expr, by: int) -> Expr | None:
    """The quotient of an expression by a number that divides it whatever its variables are, else None."""
    if by == 1:
        return e
    if e.op == "const":
        return x.const(e.value // by) if e.value % by == 0 else None
    if e.op == "sum":
        if e.value % by:
            return None
        parts = [x.const(e.value // by)]
        for atom, factor in zip(e.args, e.terms, strict=True):
            part = x.scale(atom, factor // by) if factor % by == 0 else divided(atom, by)
            if part is None:
                return None
            parts.append(part if factor % by == 0 else x.scale(part, factor))
        return x.add(*parts)
    if e.op in ("min", "max", "select"):
        parts = [divided(a, by) for a in e.args[e.op == "select" :]]  # type: ignore[misc]
        if any(p is None for p in parts):
            return None
        if e.op == "select":
            return x.select(e.args[0], *parts)
        return (x.minimum if e.op == "min" else x.maximum)(*parts)
    return None


def _ends(trips: Expr) -> list[Expr]:
    """``max(n, 0)`` as n, a minimum as its parts: a counter is below all of them."""
    if trips.op == "min":
        return [end for part in trips.args for end in _ends(part)]
    if trips.op == "max" and x.ZERO in trips.args:
        return _ends(next(a for a in trips.args if a != x.ZERO))
    return [trips]


def _bounded_by(condition: Expr, loop: Loop) -> bool:
    """Return whether a condition only says that a loop's counter is below its end."""
    if condition.op != "lt" or loop.trips is None:
        return False
    gap = x.subtract(condition.args[1], condition.args[0])
    parts = dict(zip(gap.args, gap.terms, strict=True)) if gap.op == "sum" else {}
    step = next((-f for a, f in parts.items() if a.op == "var" and a.key == loop.name), 0)
    if step <= 0:
        return False
    rest = x.add(gap, x.scale(x.var(loop.name), step))  # step * counter < rest
    end = x.divide(x.add(rest, x.const(step - 1)), x.const(step), floor=True)
    return end in _ends(loop.trips)


def named(reason: str, facts: KernelFacts) -> str:
    """A reason of the analysis with arguments by their names."""
    for argument in reversed(facts.arguments):
        reason = reason.replace(f"argument {argument.index} ", f"{argument.name or f'argument {argument.index}'} ")
    return reason
