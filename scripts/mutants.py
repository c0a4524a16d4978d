"""Small faults in Python sources, one at a time: what a test suite should notice.

A mutant replaces one expression or statement: a comparison by its neighbour (``<`` by ``<=``, ``==`` by ``!=``),
``and`` by ``or``, a condition by its opposite or without one of its parts, an integer by the next, an operation by its
counterpart, a returned value by none; or it removes a statement (mutation analysis: DeMillo, Lipton and Sayward, Hints
on test data selection, 1978). Pure.

Left alone are what does not decide what happens: annotations, docstrings and messages, module-level constants (tuning),
assertions, ``validate`` (which asserts), and imports for the type checker.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Callable, Iterator
from typing import NamedTuple

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_QUIET = ("validate", "__repr__", "__str__")


class Mutant(NamedTuple):
    """``source`` is the whole module with one fault, in line ``line``; ``what`` names the operator."""

    line: int
    what: str
    before: str
    after: str
    source: str

    def diff(self, original: str) -> str:
        """The lines that differ, with - and +."""
        lines = difflib.unified_diff(original.splitlines(), self.source.splitlines(), lineterm="", n=0)
        return "\n".join(line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---"))


def mutants(source: str) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its text."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    data = b"".join(lines)
    for node in _statements(ast.parse(source)):
        for changed, what, new in _changes(node):
            assert isinstance(changed, ast.expr | ast.stmt)
            assert changed.end_lineno is not None
            assert changed.end_col_offset is not None
            low = starts[changed.lineno - 1] + changed.col_offset
            high = starts[changed.end_lineno - 1] + changed.end_col_offset
            text = new if isinstance(new, str) else ast.unparse(new)
            if isinstance(new, ast.expr) and changed.end_lineno > changed.lineno:
                text = f"({text})"
            mutated = (data[:low] + text.encode() + data[high:]).decode()
            if text != data[low:high].decode():
                yield Mutant(changed.lineno, what, data[low:high].decode(), text, mutated)


def _statements(tree: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Statements in functions, without what is left alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in _QUIET:
                yield from _statements(node, True)
        elif isinstance(node, ast.ClassDef):
            yield from _statements(node, inside)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        elif isinstance(node, ast.stmt) and not isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
            if inside:
                yield node
            yield from _statements(node, inside)
        elif isinstance(node, ast.ExceptHandler | ast.match_case):
            yield from _statements(node, inside)


Change = tuple[ast.AST, str, ast.AST | str]


def _changes(statement: ast.AST) -> Iterator[Change]:
    """Of a statement itself, and of the expressions in it that are not in statements of their own."""
    yield from _of_statement(statement)
    for field, value in ast.iter_fields(statement):
        if field in ("annotation", "decorator_list", "returns", "type_comment", "pattern"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr | ast.withitem | ast.keyword) and not _is_text(child):
                yield from _of_expressions(child)


def _of_expressions(expression: ast.AST) -> Iterator[Change]:
    if isinstance(expression, ast.keyword) and expression.arg == "strict":
        return  # of zip: an assertion
    yield from _of_expression(expression)
    if isinstance(expression, ast.JoinedStr | ast.Lambda):
        return  # in 3.11 the parts of formatted text have no places; what lambdas do is tested by whoever calls them
    for child in ast.iter_child_nodes(expression):
        yield from _of_expressions(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_false(node: ast.expr) -> bool:
    """None and False say the same to whoever asks; that False becomes True is a mutant of its own."""
    return isinstance(node, ast.Constant) and (node.value is None or node.value is False)


def _operator(new: ast.AST) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        vars(node)["op"] = new

    return change


def _comparator(i: int, new: ast.cmpop) -> Callable[[ast.AST], None]:
    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.Compare)
        node.ops[i] = new

    return change


def _of_statement(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue() | ast.Raise():
            yield node, "statement removed", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
            yield node, "statement removed", "pass"
        case ast.Return(value=ast.expr() as value) if not _is_false(value):
            yield node, "returns nothing", "return None"
    if isinstance(node, ast.AugAssign) and type(node.op) in _OPERATED:
        yield _with(node, "operation", _operator(_OPERATED[type(node.op)]()))
    if isinstance(node, ast.If | ast.While):
        yield node.test, "condition negated", f"not ({ast.unparse(node.test)})"


def _of_expression(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                if type(op) in _COMPARED:
                    yield _with(node, "comparison", _comparator(i, _COMPARED[type(op)]()))
        case ast.BoolOp():
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            changed, what, new = _with(node, "and, or", _operator(other()))
            yield changed, what, f"({ast.unparse(new) if isinstance(new, ast.AST) else new})"
            for i in range(len(node.values)):
                rest = [value for j, value in enumerate(node.values) if j != i]
                kept = ast.unparse(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
                yield node, "part of a condition removed", f"({kept})"
        case ast.UnaryOp(op=ast.Not()):
            yield node, "not removed", f"({ast.unparse(node.operand)})"
        case ast.IfExp():
            yield node.test, "condition negated", f"(not ({ast.unparse(node.test)}))"
        case ast.BinOp() if type(node.op) in _OPERATED and not _is_text(node.left) and not _is_text(node.right):
            changed, what, new = _with(node, "operation", _operator(_OPERATED[type(node.op)]()))
            yield changed, what, f"({ast.unparse(new) if isinstance(new, ast.AST) else new})"
        case ast.Constant(value=bool() as value):
            yield node, "constant", str(not value)
        case ast.Constant(value=int() as value):
            yield node, "constant", str(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED:
            yield node.func, "opposite called", _CALLED[name]


def _with(node: ast.AST, what: str, change: Callable[[ast.AST], object]) -> Change:
    changed = copy.deepcopy(node)
    change(changed)
    return node, what, changed
