"""Functions in which work-items wait for each other become part of the kernel: its body is cut there."""

from __future__ import annotations

import re

from manycl.analysis.options import BuildOptions
from manycl.analysis.rewrite import apply_edits, unused_prefix
from manycl.analysis.tree import Function, Node, Unit
from manycl.analysis.work_group.parts import waiting
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import (
    NoGroupFunctionError,
    Statement,
    Variable,
    assigned,
    callee,
    initial_value,
    parameter_text,
    statements,
    stripped,
)

MOST_ROUNDS = 16
MOST_TEXT = 1 << 20  # bytes


def inlined(unit: Unit, kernel: str) -> Unit:
    """The unit with the bodies of functions that wait where a kernel calls them. Raises NoGroupFunctionError."""
    from manycl.analysis.frontend import load

    for number in range(MOST_ROUNDS):
        root = next(f for f in unit.functions.values() if f.is_kernel and f.name == kernel)
        calls = _Calls(unit, root, f"{unused_prefix(unit.text)}in{number}_")
        edits = calls.edits()
        if not edits:
            return unit
        text = apply_edits(unit.text, edits)
        if len(text) > MOST_TEXT:
            raise NoGroupFunctionError("its functions are too large to be written where they are called")
        unit = load(text.decode(), "<source>", None, BuildOptions(version=unit.version, quiet=True), everything=True)
    raise NoGroupFunctionError("its functions are nested too deeply to be written where they are called")


class _Calls:
    def __init__(self, unit: Unit, kernel: Function, prefix: str) -> None:
        self.unit, self.kernel, self.prefix = unit, kernel, prefix
        self.waiting = waiting(unit)
        self.names = {n.name for n in (*kernel.parameters, *kernel.nodes) if n.kind in ("VAR_DECL", "PARM_DECL")}
        self.count = 0

    def edits(self) -> list[Edit]:
        calls = {id(n) for n in self.kernel.nodes if (f := callee(n)) is not None and f.ref in self.waiting}
        found = []
        for block in self.kernel.nodes:
            for statement in self._statements(block):
                call = self._called(statement.node)
                if call is not None and id(call) in calls:
                    calls.discard(id(call))
                    found.append((statement.start, statement.end, self._body(statement, call)))
        if calls:
            raise NoGroupFunctionError("a barrier within a function that is called within an expression")
        return found

    def _statements(self, node: Node) -> list[Statement]:
        if node.kind == "COMPOUND_STMT":
            return statements(self.unit, node)
        if node.kind in ("IF_STMT", "FOR_STMT", "WHILE_STMT", "DO_STMT"):
            bodies = node.children[1:] if node.kind == "IF_STMT" else node.children[-1:]
            return [s for body in bodies if body.kind != "COMPOUND_STMT" for s in statements(self.unit, body)]
        return []

    def _called(self, node: Node) -> Node | None:
        """The call that a statement is, or assigns, or begins a variable with."""
        if node.kind == "DECL_STMT" and len(node.children) == 1:
            value = initial_value(self.unit, node.children[0])
            node = value if value is not None else node
        elif assigned(node) is not None and node.kind != "UNARY_OPERATOR":
            node = node.children[1]
        node = stripped(node)
        return node if node.kind == "CALL_EXPR" else None

    def _body(self, statement: Statement, call: Node) -> str:
        """The statement with the body of the function instead of its call."""
        named = callee(call)
        assert named is not None
        function = self.unit.functions[named.ref]
        self._check(function)
        self.count += 1
        own = f"{self.prefix}{self.count}"
        arguments = call.children[1:]
        if len(arguments) != len(function.parameters):
            raise NoGroupFunctionError(f"a macro hides a call of {function.name}")
        outer, inner = "", ""
        for index, (parameter, argument) in enumerate(zip(function.parameters, arguments, strict=True)):
            words = self.unit.words(parameter)
            specifiers, declarator = parameter_text(self.unit, Variable(parameter, None, None, None, words, ""))
            name = f"{own}_{index}"
            renamed = re.sub(rf"(?<![\w$]){re.escape(parameter.name)}(?![\w$])", name, declarator, count=1)
            outer += f"{specifiers}{renamed} = {self.unit.words(argument)}; "
            inner += f"{specifiers}{declarator} = {name}; "
        body, result = self._statements_of(function, own)
        block = f"{{ {outer}{{ {inner}{body} }} }}"
        if statement.node is call or stripped(statement.node) is call:
            return block if not result else f"{{ {result} {block} }}"
        rest = self.unit.text[statement.start : call.start].decode(), self.unit.text[call.end : statement.end].decode()
        return f"{result} {block} {rest[0]}{own}{rest[1]}"

    def _statements_of(self, function: Function, own: str) -> tuple[str, str]:
        """The statements of a function, and the declaration of what it returns."""
        found = statements(self.unit, function.body)
        returns = [node for node in function.nodes if node.kind == "RETURN_STMT"]
        last = found[-1] if found else None
        if len(returns) > 1 or (returns and (last is None or last.node is not returns[0])):
            raise NoGroupFunctionError(f"a barrier within {function.name}, which returns early")
        texts = [self.unit.text[s.start : s.end].decode() for s in (found[:-1] if returns else found)]
        result = ""
        if returns and returns[0].children:
            if function.result.kind not in ("int", "float", "vector", "bool"):
                raise NoGroupFunctionError(f"a barrier within {function.name}, which returns no number")
            result = f"{function.result.name} {own};"
            texts.append(f"{own} = {self.unit.words(returns[0].children[0])};")
        return " ".join(texts), result

    def _check(self, function: Function) -> None:
        """Nothing that a function means may be hidden by the kernel's own names."""
        for node in function.nodes:
            outside = node.ref in self.unit.variables or node.ref in self.unit.functions or node.value is not None
            if node.kind == "DECL_REF_EXPR" and outside and node.name in self.names:
                raise NoGroupFunctionError(f"a barrier within {function.name}, whose {node.name} the kernel hides")
