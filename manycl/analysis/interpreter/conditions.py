"""Conditions, and expressions of which a part is only evaluated on some condition."""

from __future__ import annotations

from manycl.analysis.interpreter.initialisers import Initialisers
from manycl.analysis.interpreter.paths import ControlState, join, meet
from manycl.analysis.interpreter.values import Cell, Pointer, arithmetic_kind
from manycl.analysis.reading.tree import Node
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic import real
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import Real

COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
_LITERALS = ("INTEGER_LITERAL", "FLOATING_LITERAL", "CHARACTER_LITERAL", "CXX_BOOL_LITERAL_EXPR", "CXX_UNARY_EXPR")
_COMPUTED = (
    "PAREN_EXPR",
    "UNEXPOSED_EXPR",
    "CSTYLE_CAST_EXPR",
    "UNARY_OPERATOR",
    "BINARY_OPERATOR",
    "CONDITIONAL_OPERATOR",
)


class Conditions(Initialisers):
    """The truth of expressions; ``&&``, ``||`` and ``?:``."""

    constants: dict[int, bool]

    def rounding(self, low: int, high: int) -> Expr:
        raise NotImplementedError

    def condition(self, node: Node) -> Expr:
        """The truth of an expression; numbers and pointers are compared with zero."""
        found = self.value(node)
        if not self.silent and not self.is_truth(node):
            self.count(f"compare.{arithmetic_kind(node.type)}")
        if isinstance(found, Expr):
            return x.truth(found)
        if isinstance(found, Real):
            return real.compare("!=", found, Real(x.ZERO), self.rounding)
        if isinstance(found, Pointer):
            return self.fresh(0, 1, f"whether a pointer is null, line {self.line(node.start)}")
        return self.fresh(0, 1, f"a condition on data, line {self.line(node.start)}")

    def is_truth(self, node: Node) -> bool:
        """Whether an expression needs no comparison with zero to be a condition."""
        while node.kind == "PAREN_EXPR" or (node.kind == "UNEXPOSED_EXPR" and node.type.kind in ("int", "bool")):
            if len(node.children) != 1 or node.children[0].type.kind == "vector":
                break
            node = node.children[0]
        tests = node.kind == "BINARY_OPERATOR" and (node.op in COMPARISONS or node.op in ("&&", "||"))
        negates = node.kind == "UNARY_OPERATOR" and node.op == "!"
        return tests or negates or node.type.kind == "bool" or self.is_constant(node)

    def is_constant(self, node: Node) -> bool:
        """Whether a compiler computes an expression once and for all: nothing is then executed."""
        found = self.constants.get(id(node))
        if found is None:
            literal = node.kind in _LITERALS or (node.kind == "DECL_REF_EXPR" and node.value is not None)
            made = node.kind in _COMPUTED and all(
                self.is_constant(c) for c in node.children if c.kind not in ("TYPE_REF", "NAMESPACE_REF")
            )
            found = self.constants[id(node)] = literal or (made and bool(node.children))
        return found

    def short_circuit(self, node: Node) -> Cell:
        first, second = node.children
        left = self.condition(first)
        wanted = left if node.op == "&&" else x.negate(left)
        before = self.path
        if before is None:
            return left
        inner = before.where(wanted)
        if inner is None:  # the second is not evaluated
            return x.ZERO if node.op == "&&" else x.ONE
        skipped = ControlState(before, self.copied(self.env)) if inner is not before else None
        self.path = inner
        right = self.condition(second)
        if skipped is not None and self.path is inner and self.env == skipped.env:
            self.path = before  # it had no side effects
        else:
            self.rejoin(x.negate(wanted), skipped)
        return x.both(left, right) if node.op == "&&" else x.either(left, right)

    def rejoin(self, otherwise: Expr, skipped: ControlState | None) -> None:
        """Control meets again after a part that ran only on some condition."""
        if skipped is None:
            return
        rest, states = skipped.path.where(otherwise), list[ControlState]()
        self.note(states)
        if rest is not None:
            states.append(ControlState(rest, skipped.env))
        self.continue_from(states)

    def note(self, states: list[ControlState]) -> None:
        """Add where control is now to the states."""
        if self.path is not None:
            states.append(ControlState(self.path, self.env))

    def continue_from(self, states: list[ControlState]) -> None:
        joined = join(states)
        if joined is None:
            self.path, self.env = None, dict(self.env)
        else:
            self.path, self.env = joined.path, joined.env

    def conditional(self, node: Node) -> Cell:
        condition, first, second = node.children
        if condition.type.kind == "vector":
            for child in node.children:
                self.value(child)
            return self.unknown_of(node.type)
        chosen = self.condition(condition)
        if self.path is None:
            return self.unknown_of(node.type)
        before, env = self.path, self.env
        outcomes: list[tuple[ControlState, Cell]] = []
        for choice, branch in ((chosen, first), (x.negate(chosen), second)):
            path = before.where(choice)
            if path is None:
                continue
            self.path, self.env = path, self.copied(env)
            value = self.place(branch).pointer if branch.type.kind == "array" else self.value(branch)
            if self.path is not None:
                outcomes.append((ControlState(self.path, self.env), value))
        self.continue_from([state for state, _ in outcomes])
        if not outcomes:
            return self.unknown_of(node.type)
        return meet(chosen, outcomes[0][1], outcomes[1][1]) if len(outcomes) > 1 else outcomes[0][1]
