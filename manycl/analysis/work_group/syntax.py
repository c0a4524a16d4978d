"""The syntax of a kernel's body, as the rest of this folder asks for it: statements with their texts, the parts of
loops and branches, and where variables are declared and used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from manycl.analysis.reading.tree import (
    LOOPS,
    THROUGH,
    Function,
    LoopHead,
    Node,
    Unit,
    assigned,
    initial_value,
    loop_head,
    stripped,
)

_PARTS = ("MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")


class NoGroupFunctionError(Exception):
    """A kernel that cannot be made a work-group function; the message says why."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and its text, the semicolon included."""

    node: Node
    start: int
    end: int


@dataclass(slots=True)
class Variable:
    """A private variable or parameter of a kernel. ``scope`` is the block that declares it (None: a parameter),
    ``statement`` the declaration, ``value`` its initial value; ``specifiers`` and ``declarator`` are the texts that
    declare it. ``writes`` are the nodes that assign it (``=`` and its likes, ``++``), ``partial`` those that assign
    parts; ``uses`` are all references; ``escapes``: something else than its name may mean it."""

    node: Node
    scope: Node | None
    statement: Node | None
    value: Node | None
    specifiers: str
    declarator: str
    writes: list[Node] = field(default_factory=list)
    partial: list[Node] = field(default_factory=list)
    uses: list[Node] = field(default_factory=list)
    escapes: bool = False
    is_taken: bool = False  # other than by handing its address to a call
    subscripted: bool = True  # every use is of an element

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def ref(self) -> int:
        return self.node.ref

    @property
    def is_constant(self) -> bool:
        """True if nothing changes it behind its initial value."""
        return not self.writes and not self.partial and not self.escapes


def statements(unit: Unit, node: Node) -> list[Statement]:
    """Return the statements of a block, or the one that stands where a block might."""
    if node.kind != "COMPOUND_STMT":
        return [Statement(node, node.start, behind(unit.text, node.end))]
    found = []
    starts = [child.start for child in node.children] + [node.end - 1]
    for child, after in zip(node.children, starts[1:], strict=True):
        if not node.start <= child.start < child.end <= after <= node.end:
            raise NoGroupFunctionError("a macro hides where its statements are")
        found.append(Statement(child, child.start, after))
    return found


def behind(text: bytes, end: int) -> int:
    """Behind the semicolon of a statement, where it has one."""
    match = re.compile(rb"\s*;").match(text, end)
    return match.end() if match is not None and text[end - 1 : end] not in (b";", b"}") else end


def head_of(unit: Unit, loop: Node) -> LoopHead:
    """Return the parts of a loop. Raises NoGroupFunctionError."""
    found = loop_head(unit, loop)
    if found is None:
        raise NoGroupFunctionError("the head of a loop is not understood")
    return found


def with_callers(functions: Mapping[int, Function], found: set[int]) -> set[int]:
    """Some functions, and those of ``functions`` that mention one of them, directly or not."""
    while True:
        more = {ref for ref, f in functions.items() if ref not in found and any(n.ref in found for n in f.nodes)}
        if not more:
            return found
        found = found | more


def variables(unit: Unit, kernel: Function) -> dict[int, Variable]:
    """The parameters and private variables of a kernel, with all that is done to them."""
    found: dict[int, Variable] = {}
    for parameter in kernel.parameters:
        found[parameter.ref] = Variable(parameter, None, None, None, "", "")
    for scope in (node for node in kernel.nodes if node.kind in ("COMPOUND_STMT", *LOOPS)):
        for statement in scope.children:
            if statement.kind == "DECL_STMT":
                for variable in _declared(unit, scope, statement):
                    found[variable.ref] = variable
    _note_uses(kernel.body, found)
    return found


def _declared(unit: Unit, scope: Node, statement: Node) -> Iterator[Variable]:
    """The variables of a declaration, with the texts that declare each."""
    names = [child for child in statement.children if child.kind == "VAR_DECL"]
    text, specifiers = unit.text, ""
    for index, child in enumerate(names):
        value = initial_value(unit, child)
        end = child.end
        if value is not None:
            end = text.rindex(b"=", child.start, value.start)
        if not text.startswith(child.name.encode(), child.at):
            raise NoGroupFunctionError(f"a macro hides the declaration of {child.name}")
        if index == 0:
            opening = _declarator_start(text, child.start, child.at)
            specifiers = text[statement.start : opening].decode()
            start = opening
        else:
            start = text.index(b",", names[index - 1].end) + 1
        declarator, element = text[start:end].decode().strip(), child.type.target
        if child.type.kind == "array" and element is not None and element.size:  # its initial value may give its length
            declarator = re.sub(r"\[\s*\]", f"[{child.type.size // element.size}]", declarator, count=1)
        yield Variable(child, scope, statement, value, specifiers, declarator)


def _declarator_start(text: bytes, start: int, position: int) -> int:
    """Return where the first declarator begins: at the stars and parentheses before the name."""
    begin = position
    while begin > start:
        before = text[:begin].rstrip()
        word = re.search(rb"(\*|\(|\bconst\b|\bvolatile\b|\brestrict\b|\b__restrict\b)$", before[start:])
        if word is None:
            break
        if word.group(1) not in (b"*", b"("):  # a qualifier belongs to the declarator only behind a star
            earlier = before[: len(before) - len(word.group(1))].rstrip()
            if not earlier.endswith(b"*"):
                break
        begin = len(before) - len(word.group(1))
    return begin


def _note_uses(root: Node, found: dict[int, Variable]) -> None:
    """Every reference to a variable below ``root``, and how it is used."""
    pending = [_VariableUse(root)]
    while pending:
        use = pending.pop()
        node = use.node
        if node.kind == "DECL_REF_EXPR":
            if node.ref in found:
                use.note(found[node.ref])
            continue
        target = assigned(node)
        if target is not None:
            pending.append(_VariableUse(target, "write", node))
            pending.extend(_VariableUse(child) for child in node.children[1:])
        elif node.kind in THROUGH:
            pending.extend(replace(use, node=child) for child in node.children)
        elif node.kind in _PARTS and node.type.kind == "array" and use.role != "taken" and not use.element:
            pending.append(replace(use, role="taken"))  # an array that is a part, as a pointer
        elif node.kind == "MEMBER_REF_EXPR" and node.children and node.children[0].type.kind != "pointer":
            pending.extend(replace(use, node=child, whole=False) for child in node.children)
        elif node.kind == "ARRAY_SUBSCRIPT_EXPR":
            base = stripped(node.children[0])
            inside = base.type.kind in ("array", "vector")
            pending.append(replace(use, node=base, whole=False, element=True) if inside else _VariableUse(base))
            pending.extend(_VariableUse(child) for child in node.children[1:])
        elif node.kind == "UNARY_OPERATOR" and node.op == "&":
            pending.append(_VariableUse(node.children[0], "handed" if use.role == "argument" else "taken"))
        elif node.kind == "CALL_EXPR":
            pending.extend(_VariableUse(child, "argument") for child in node.children)
        else:
            pending.extend(_VariableUse(child) for child in node.children)


@dataclass(frozen=True, slots=True)
class _VariableUse:
    """A node below which variables are used: read (no role), written by ``by``, as an argument of a call, or so that
    their address is taken or handed to a call; the ``whole`` variable, or an ``element`` or member of it."""

    node: Node
    role: str = ""
    by: Node | None = None
    whole: bool = True
    element: bool = False

    def note(self, variable: Variable) -> None:
        variable.uses.append(self.node)
        if self.role == "write" and self.by is not None:
            (variable.writes if self.whole else variable.partial).append(self.by)
        is_array = variable.scope is not None and variable.node.type.kind == "array"
        if self.role in ("handed", "taken") or (is_array and not self.element):
            variable.escapes = True
            variable.is_taken |= self.role != "handed" or is_array
        variable.subscripted &= self.element and self.role not in ("handed", "taken")


def parameter_text(unit: Unit, node: Node) -> tuple[str, str]:
    """The specifiers and the declarator of a parameter; one that is an array is a pointer."""
    before, behind_it = unit.text[node.start : node.at].decode(), unit.text[node.at : node.end].decode()
    if not behind_it.startswith(node.name):
        raise NoGroupFunctionError(f"a macro hides the declaration of {node.name}")
    name, behind_it = node.name, behind_it[len(node.name) :]
    if behind_it.lstrip().startswith("["):
        name, behind_it = f"(*{name})", re.sub(r"\s*\[[^\]]*\]", "", behind_it, count=1)
    star = re.search(r"[*(]", before)
    position = star.start() if star is not None else len(before)
    return before[:position], before[position:] + name + behind_it
