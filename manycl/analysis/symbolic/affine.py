"""Expressions in isl: quasi-affine functions and the sets that conditions describe. What is not affine becomes a
dimension of its own within its bounds, so that every set contains what the expression describes; :attr:`Builder.exact`
says whether it is just that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from manycl.analysis.symbolic.expr import INFINITE, Expr
from manycl.analysis.symbolic.isl import isl

_IN = isl.dim_type.set


def value(number: int) -> Any:
    """A number of isl's, of any size."""
    return isl.Val(number if -(1 << 62) < number < 1 << 62 else str(number))


LARGEST_FACTOR = 1 << 16  # of a variable whose multiples come around: isl needs minutes for hash functions


def tractable(e: Expr) -> bool:
    """Return whether isl can work with an expression, apart from what stands in its sums, minima and choices."""
    if e.op == "mul":
        return False
    if e.op not in ("fdiv", "fmod", "tdiv", "wrap"):
        return True
    if len(e.args) > 1 and e.args[1].op != "const":
        return False
    inner = e.args[0]
    if inner.op != "sum":
        return tractable(inner)
    large = e.op in ("wrap", "fmod") and any(abs(factor) > LARGEST_FACTOR for factor in inner.terms)
    return not large and all(tractable(a) for a in inner.args)


class AffineBuilder:
    """Functions over one space: the given variables, then one dimension per part that is not affine."""

    def __init__(self, variables: Sequence[Expr], expressions: Sequence[Expr]) -> None:
        self.places: dict[str, int] = {}
        self.atoms: list[Expr] = []
        self.exact = True
        for variable in variables:
            self._add(variable)
        for expression in expressions:
            self._scan(expression)
        self.space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(self.atoms))
        self.local = isl.LocalSpace.from_space(self.space)
        self.zero = isl.Aff.zero_on_domain(self.local)
        self.affs: dict[str, Any] = {}
        self.pwaffs: dict[str, Any] = {}

    def _add(self, atom: Expr) -> None:
        if atom.key not in self.places:
            self.places[atom.key] = len(self.atoms)
            self.atoms.append(atom)
            if atom.unknown or atom.op != "var":
                self.exact = False

    def _scan(self, expression: Expr) -> None:
        stack = [expression]
        seen: set[str] = set()
        while stack:
            e = stack.pop()
            if e.key in seen:
                continue
            seen.add(e.key)
            if e.op == "var" or not tractable(e):
                self._add(e)
            elif e.op != "const":
                stack.extend(e.args)

    def box(self) -> Any:
        """Return the set of all values within the bounds of the dimensions."""
        result = isl.BasicSet.universe(self.space)
        for place, atom in enumerate(self.atoms):
            if atom.low > -INFINITE:
                result = result.lower_bound_val(_IN, place, value(atom.low))
            if atom.high < INFINITE:
                result = result.upper_bound_val(_IN, place, value(atom.high))
        return result

    # -- functions

    def aff(self, e: Expr) -> Any | None:
        """A quasi-affine function in one piece, or None where it takes several."""
        if e.key not in self.affs:
            self.affs[e.key] = self._aff(e)
        return self.affs[e.key]

    def _aff(self, e: Expr) -> Any | None:
        place = self.places.get(e.key)
        if place is not None:
            return isl.Aff.var_on_domain(self.local, _IN, place)
        if e.op == "const":
            return self.zero.set_constant_val(value(e.value))
        if e.op == "sum":
            result = self.zero.set_constant_val(value(e.value))
            others = []
            for atom, factor in zip(e.args, e.terms, strict=True):
                place = self.places.get(atom.key)
                if place is not None:
                    result = result.set_coefficient_val(isl.dim_type.in_, place, value(factor))
                else:
                    others.append((atom, factor))
            for atom, factor in others:  # their remainders have coefficients of their own: added, never set
                inner = self.aff(atom)
                if inner is None:
                    return None
                result = result.add(inner.scale_val(value(factor)))
            return result
        if e.op in ("fdiv", "fmod", "wrap"):
            inner = self.aff(e.args[0])
            return None if inner is None else _divided(e, inner)
        return None

    def pwaff(self, e: Expr) -> Any:
        """A piecewise quasi-affine function."""
        if e.key not in self.pwaffs:
            aff = self.aff(e)
            self.pwaffs[e.key] = self._pwaff(e) if aff is None else isl.PwAff.from_aff(aff)
        return self.pwaffs[e.key]

    def _pwaff(self, e: Expr) -> Any:
        if e.op == "sum":
            result = isl.PwAff.from_aff(self.zero.set_constant_val(value(e.value)))
            for atom, factor in zip(e.args, e.terms, strict=True):
                result = result.add(self.pwaff(atom).scale_val(value(factor)))
            return result
        if e.op in ("fdiv", "fmod", "wrap"):
            return _divided(e, self.pwaff(e.args[0]))
        if e.op == "tdiv":
            by = isl.PwAff.from_aff(self.zero.set_constant_val(value(e.args[1].value)))
            return self.pwaff(e.args[0]).tdiv_q(by)
        if e.op in ("min", "max"):
            one, other = self.pwaff(e.args[0]), self.pwaff(e.args[1])
            return one.min(other) if e.op == "min" else one.max(other)
        if e.op == "select":
            chosen = self.set(e.args[0])
            yes, no = self.pwaff(e.args[1]), self.pwaff(e.args[2])
            return yes.intersect_domain(chosen).union_add(no.intersect_domain(chosen.complement()))
        chosen = self.set(e)  # a condition used as 0 or 1
        one = isl.PwAff.from_aff(self.zero.set_constant_val(value(1)))
        nothing = isl.PwAff.from_aff(self.zero)
        return one.intersect_domain(chosen).union_add(nothing.intersect_domain(chosen.complement()))

    # -- conditions

    def inequality(self, e: Expr) -> Any | None:
        """A function that is not negative where the comparison holds; None if it takes several pieces."""
        one, other = self.aff(e.args[0]), self.aff(e.args[1])
        if one is None or other is None:
            return None
        return other.sub(one).add_constant_val(value(-1))

    def set(self, e: Expr) -> Any:
        """Return where a condition holds."""
        if e.op == "const":
            whole = isl.Set.universe(self.space)
            return whole if e.value else isl.Set.empty(self.space)
        if e.op == "lt":
            gap = self.inequality(e)
            if gap is not None:
                return isl.Set.from_basic_set(gap.ge_basic_set(isl.Aff.zero_on_domain(self.local)))
            return self.pwaff(e.args[0]).lt_set(self.pwaff(e.args[1]))
        if e.op == "eq":
            return self.pwaff(e.args[0]).eq_set(self.pwaff(e.args[1]))
        if e.op == "not":
            return self.set(e.args[0]).complement()
        if e.op in ("and", "or"):
            result = self.set(e.args[0])
            for part in e.args[1:]:
                result = result.intersect(self.set(part)) if e.op == "and" else result.union(self.set(part))
            return result
        nothing = isl.PwAff.from_aff(self.zero)
        return self.pwaff(e).ne_set(nothing)

    def where(self, conditions: Sequence[Expr]) -> Any:
        """Return where all of the conditions hold, within the bounds of the dimensions."""
        basic = self.box()
        others = []
        for condition in conditions:
            gap = self.inequality(condition) if condition.op == "lt" else None
            if gap is not None:
                basic = basic.intersect(gap.ge_basic_set(isl.Aff.zero_on_domain(self.local)))
            else:
                others.append(condition)
        result = isl.Set.from_basic_set(basic)
        for condition in others:
            result = result.intersect(self.set(condition))
        return result


def _divided(e: Expr, inner: Any) -> Any:
    if e.op == "wrap":
        bits = abs(e.value)
        size = value(1 << bits)
        if e.value > 0:
            return inner.mod_val(size)
        half = 1 << (bits - 1)
        return inner.add_constant_val(value(half)).mod_val(size).add_constant_val(value(-half))
    by = value(e.args[1].value)
    if e.op == "fmod":
        return inner.mod_val(by)
    return inner.scale_down_val(by).floor()
