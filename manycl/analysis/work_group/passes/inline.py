"""Functions become part of the kernel where its body is to be cut within them: those in which work-items wait for each
other, and, where that is simple, those with loops, which work-items may run together."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable

from manycl.analysis.reading.options import BuildOptions
from manycl.analysis.reading.tree import LOOPS, THROUGH, CType, Function, Node, Unit, assigned, callee, initial_value
from manycl.analysis.texts.rewrite import apply_edits, unused_prefix
from manycl.analysis.work_group.parts import waiting
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import NoGroupFunctionError, Statement, parameter_text, statements, with_callers
from manycl.errors import SourceError

_VARIABLES = ("VAR_DECL", "PARM_DECL")
MOST_TEXT = 1 << 20  # bytes


def read_again(unit: Unit, text: bytes) -> Unit:
    """A unit of another text. Raises NoGroupFunctionError for one that is too long."""
    from manycl.analysis.reading.frontend import load

    if len(text) > MOST_TEXT:
        raise NoGroupFunctionError("its functions are too large to be written where they are called")
    return load(text.decode(), "<source>", None, BuildOptions(version=unit.version, quiet=True))


def name_uniquely(unit: Unit, kernel: Function) -> None:
    """Gives each variable of a kernel a name that nothing else has that the program's functions mention, as all that a
    part of its body needs is declared in one block: in the text, and in the nodes, which move with it. Raises
    NoGroupFunctionError where a macro hides a name."""
    nodes = (*kernel.parameters, *kernel.nodes)
    declared = {node.ref: node for node in nodes if node.kind in _VARIABLES and node.name}
    mentioned = (node for f in unit.functions.values() for node in f.nodes if node.kind == "DECL_REF_EXPR")
    local = {node.ref for f in unit.functions.values() for node in (*f.parameters, *f.nodes) if node.kind in _VARIABLES}
    taken = {node.name for node in mentioned if node.ref not in local}
    names: dict[int, str] = {}
    for ref, node in sorted(declared.items(), key=lambda item: item[1].at):
        name, number = node.name, 1
        while name in taken or (number > 1 and name.encode() in unit.text):
            number += 1
            name = f"{node.name}__{number}"
        taken.add(name)
        if number > 1:
            names[ref] = name
    edits = set[tuple[int, int, str]]()
    named = [n for n in nodes if n.ref in names and (n.kind == "DECL_REF_EXPR" or n is declared[n.ref])]
    for node in named:
        start = node.start if node.kind == "DECL_REF_EXPR" else node.at
        if not unit.text.startswith(node.name.encode(), start):
            raise NoGroupFunctionError(f"a macro hides {node.name}")
        edits.add((start, start + len(node.name), names[node.ref]))
    if edits:
        _move(unit, sorted(edits))
        for node in named:
            node.name = names[node.ref]


def _move(unit: Unit, edits: list[tuple[int, int, str]]) -> None:
    """Edits a unit's text where it has names, and moves all places in it accordingly."""
    ends = [end for _, end, _ in edits]
    by = [0, *itertools.accumulate(len(words) - (end - start) for start, end, words in edits)]
    functions = unit.functions.values()
    roots = (*unit.variables.values(), *unit.prototypes, *(n for f in functions for n in (*f.parameters, f.body)))
    places: Iterable[Function | Node] = (*functions, *(node for root in roots for node in root.walk()))
    for place in places:
        place.start += by[bisect.bisect_right(ends, place.start)]
        place.end += by[bisect.bisect_right(ends, place.end)]
        if isinstance(place, Node):
            place.at += by[bisect.bisect_right(ends, place.at)]
    for ref, (start, end) in unit.unused.items():
        unit.unused[ref] = start + by[bisect.bisect_right(ends, start)], end + by[bisect.bisect_right(ends, end)]
    unit.text = apply_edits(unit.text, edits)
    unit._starts.clear()


MOST_ROUNDS = 16
_COMPUTING = ("_EXPR", "_OPERATOR", "IF_STMT", "SWITCH_STMT", "RETURN_STMT")
_APART = ("STMT_EXPR", "BLOCK_EXPR", "CXX_UNARY_EXPR")
"""Expressions that have statements of their own, or are not computed."""
MOST_SIMPLE = 1 << 15  # bytes of a text that functions with loops are written into


def inlined(unit: Unit, kernel: str) -> Unit:
    """The unit with the bodies of functions that wait, or have loops, where a kernel calls them, and with a name of its
    own for each variable of the kernel. Raises NoGroupFunctionError for functions that wait and cannot be."""
    for number in range(MOST_ROUNDS):
        root = unit.kernel(kernel)
        name_uniquely(unit, root)
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
    """The functions that have loops, or call such, and are simple enough to be written where they are called."""
    simple = {ref: function for ref, function in unit.functions.items() if _is_simple(unit, function)}
    return with_callers(simple, {ref for ref, f in simple.items() if any(n.kind in LOOPS for n in f.nodes)})


def _is_simple(unit: Unit, function: Function) -> bool:
    """Return whether a function's parameters and variables are plain values or pointers to what is no work-item's own,
    and nothing in it is a label or a switch: then its text means the same where it is called, and costs no more."""
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
    """The functions that wait, or are ``chosen``, which have to be (or can be) written where they are called."""

    def __init__(self, unit: Unit, kernel: Function, prefix: str, chosen: set[int] | None = None) -> None:
        self.unit, self.kernel, self.prefix = unit, kernel, prefix
        self.may_stay = chosen is not None
        self.wanted = waiting(unit) if chosen is None else chosen
        self.count = 0

    def edits(self) -> list[Edit]:
        calls = {id(n) for n in self.kernel.nodes if callee(n).ref in self.wanted}
        found = list[Edit]()
        for block in self.kernel.nodes:
            for statement in self._statements(block):
                call = self._called(statement.node, calls)
                if call is not None:
                    calls.discard(id(call))
                    try:
                        found += self._body(statement, call, block.kind != "COMPOUND_STMT")
                    except NoGroupFunctionError:
                        if not self.may_stay:
                            raise
        if calls and not found and not self.may_stay:
            raise NoGroupFunctionError(
                "a barrier within a function whose call is part of an expression: call it in a statement of its own"
            )
        return found

    def _statements(self, node: Node) -> list[Statement]:
        if node.kind == "COMPOUND_STMT":
            return statements(self.unit, node)
        if node.kind in ("IF_STMT", "FOR_STMT", "WHILE_STMT", "DO_STMT"):
            bodies = node.children[1:] if node.kind == "IF_STMT" else node.children[-1:]
            return [s for body in bodies if body.kind != "COMPOUND_STMT" for s in statements(self.unit, body)]
        return []

    def _called(self, node: Node, calls: set[int]) -> Node | None:
        """One of the calls that a statement makes in any case, and may make before all else in it; one within another's
        arguments comes first. Of calls that may stay, one that is all that is assigned."""
        if node.kind == "DECL_STMT" and node.children:
            value = initial_value(self.unit, node.children[0])
            return self._called(value, calls) if value is not None else None
        if not node.kind.endswith(_COMPUTING) or node.kind in _APART:
            return None
        before, acts = list(node.children), False
        if node.kind in ("IF_STMT", "SWITCH_STMT", "CONDITIONAL_OPERATOR") or node.op in ("&&", "||", ","):
            del before[1:]
        if assigned(node) is not None:  # what is assigned is found behind its value
            before.reverse()
        if self.may_stay and node.kind not in THROUGH and assigned(node) is None:
            before.clear()
        for child in before:
            found = self._called(child, calls)
            if found is not None:
                return None if acts else found
            acts = acts or any(n.kind == "CALL_EXPR" or assigned(n) is not None for n in child.walk())
        return node if id(node) in calls else None

    def _body(self, statement: Statement, call: Node, alone: bool) -> list[Edit]:
        """The edits that write the function's body before the statement that calls it; ``alone``: in no block."""
        function = self.unit.functions[callee(call).ref]
        self.count += 1
        own = f"{self.prefix}{self.count}"
        arguments = call.children[1:]
        if len(arguments) != len(function.parameters):
            raise NoGroupFunctionError(f"a macro hides a call of {function.name}")
        outer, inner = "", ""
        for index, (parameter, argument) in enumerate(zip(function.parameters, arguments, strict=True)):
            specifiers, declarator = parameter_text(self.unit, parameter)
            name = f"{own}_{index}"
            renamed = re.sub(rf"(?<![\w$]){re.escape(parameter.name)}(?![\w$])", name, declarator, count=1)
            outer += f"{specifiers}{renamed} = {self.unit.words(argument)}; "
            inner += f"{specifiers}{declarator} = {name}; "
        body, result = self._statements_of(function, own)
        before = f"{'{ ' if alone else ''}{result} {{ {outer}{{ {inner}{body} }} }} "
        edits = [(statement.start, statement.start, before), (call.start, call.end, own if result else "(void)0")]
        return [*edits, (statement.end, statement.end, " }")] if alone else edits

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
