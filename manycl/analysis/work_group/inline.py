"""Functions become part of the kernel where its body is to be cut within them: those in which work-items wait for each
other, and, where that is simple, those with loops, which work-items may run together."""

from __future__ import annotations

import re

from manycl.analysis.rewrite import apply_edits, unused_prefix
from manycl.analysis.tree import CType, Function, Node, Unit
from manycl.analysis.work_group.parts import waiting
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.reading import read_again
from manycl.analysis.work_group.syntax import (
    LOOPS,
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
from manycl.errors import SourceError

MOST_ROUNDS = 16
MOST_SIMPLE = 1 << 15  # bytes of a text that functions with loops are written into


def inlined(unit: Unit, kernel: str) -> Unit:
    """The unit with the bodies of functions that wait, or have loops, where a kernel calls them. Raises
    NoGroupFunctionError for those that wait, if they cannot be written there."""
    for number in range(MOST_ROUNDS):
        root = next(f for f in unit.functions.values() if f.is_kernel and f.name == kernel)
        prefix = f"{unused_prefix(unit.text)}in{number}_"
        edits = _Calls(unit, root, prefix).edits()
        simple = not edits
        if simple and len(unit.text) <= MOST_SIMPLE:
            edits = _Calls(unit, root, prefix, with_loops(unit)).edits()
        if not edits:
            return unit
        try:
            changed = read_again(unit, apply_edits(unit.text, edits))
        except SourceError:
            if not simple:
                raise
            return unit  # what need not be changed stays as it is
        if simple and number == MOST_ROUNDS - 1:
            return unit
        unit = changed
    raise NoGroupFunctionError("its functions are nested too deeply to be written where they are called")


def with_loops(unit: Unit) -> set[int]:
    """The functions that have loops, or call such; of those that are simple enough to be written where they are
    called."""
    found: set[int] = set()
    growing = True
    while growing:
        growing = False
        for function in unit.functions.values():
            loops = any(n.kind in LOOPS or n.ref in found for n in function.nodes)
            if function.ref not in found and loops and _is_simple(unit, function):
                found.add(function.ref)
                growing = True
    return found


def _is_simple(unit: Unit, function: Function) -> bool:
    """Whether a function's parameters and variables are plain values or pointers to what is no work-item's own, and
    nothing in it is a label or a switch: then its text means the same where it is called, and costs no more."""
    if function.is_kernel or any(b"[" in unit.text[p.start : p.end] for p in function.parameters):
        return False
    if any(node.kind in ("LABEL_STMT", "GOTO_STMT", "SWITCH_STMT", "BLOCK_EXPR") for node in function.nodes):
        return False
    declared = [node.type for node in function.nodes if node.kind == "VAR_DECL"]
    return all(_is_plain(type_) for type_ in (*(p.type for p in function.parameters), *declared))


def _is_plain(type_: CType) -> bool:
    if type_.kind == "pointer":
        return type_.target is not None and type_.target.address_space in ("global", "constant", "local")
    return type_.kind in ("int", "float", "bool", "vector") and type_.address_space != "local"


class _Calls:
    """Of the functions that wait, which have to be written where they are called; or of ``chosen`` ones, which are
    where they can be."""

    def __init__(self, unit: Unit, kernel: Function, prefix: str, chosen: set[int] | None = None) -> None:
        self.unit, self.kernel, self.prefix = unit, kernel, prefix
        self.may_stay = chosen is not None
        self.wanted = waiting(unit) if chosen is None else chosen
        self.names = {n.name for n in (*kernel.parameters, *kernel.nodes) if n.kind in ("VAR_DECL", "PARM_DECL")}
        self.count = 0

    def edits(self) -> list[Edit]:
        calls = {id(n) for n in self.kernel.nodes if (f := callee(n)) is not None and f.ref in self.wanted}
        found = []
        for block in self.kernel.nodes:
            for statement in self._statements(block):
                call = self._called(statement.node)
                if call is not None and id(call) in calls:
                    calls.discard(id(call))
                    try:
                        found.append((statement.start, statement.end, self._body(statement, call)))
                    except NoGroupFunctionError:
                        if not self.may_stay:
                            raise
        if calls and not self.may_stay:
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
