"""The light syntax tree of an OpenCL C program: plain values, lowered once from libclang, independent of it. Every node
carries its byte extent in the *expanded* source (after macros and includes), which is what later edits of the source
work on; :meth:`Unit.place` maps such an offset back to the user's file."""

from __future__ import annotations

import bisect
import json
import marshal
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

LOOPS = ("FOR_STMT", "WHILE_STMT", "DO_STMT")
THROUGH = ("PAREN_EXPR", "UNEXPOSED_EXPR")
_HEAD = re.compile(rb"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[(){}\[\];]""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CType:
    """A type after typedefs. ``size`` in bytes (0 unknown or incomplete), ``lanes`` of a vector (1 otherwise).

    ``kind``: ``int``, ``float``, ``bool``, ``void``, ``vector``, ``pointer``, ``array``, ``record``,
    ``union``, ``image``, ``pipe``, ``sampler``, ``function``, ``block``, ``opaque`` (events, queues, ...) or
    ``other``. ``name`` is the type as OpenCL C writes it, without qualifiers; ``base`` the scalar under a
    scalar, vector or enum. ``target`` is the pointee of a pointer, the element of an array or the packet of a
    pipe. ``holds_pointers``: a value of this type may carry an address (or a handle of an image or a pipe).
    """

    kind: str
    name: str
    base: str = ""
    lanes: int = 1
    size: int = 0
    const: bool = False
    address_space: str = ""
    access: str = ""  # images and pipes: read_only, write_only, read_write
    target: CType | None = None
    holds_pointers: bool = False
    members: tuple[tuple[int, CType], ...] = ()  # of a record without pointers: (byte offset, type) in order


@dataclass(slots=True, eq=False)
class Node:
    """One node. ``kind`` is libclang's cursor kind; ``ref`` the declaration a reference means (0: none); ``op`` the
    operator as written; ``value`` that of an integer, character or bool literal, ``sizeof`` or enumerator, for a
    record's member its offset in bytes (None: bit fields); ``at``: where a declared name stands."""

    kind: str
    type: CType
    start: int
    end: int
    children: tuple[Node, ...] = ()
    name: str = ""
    ref: int = 0
    op: str = ""
    value: int | None = None
    at: int = 0

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


@dataclass(slots=True, eq=False)
class Function:
    """A function with a body. ``parameters`` and ``body`` are nodes; ``attributes`` texts."""

    ref: int
    name: str
    start: int
    end: int
    is_kernel: bool
    result: CType
    parameters: tuple[Node, ...]
    body: Node
    attributes: tuple[str, ...] = ()
    required_work_group: tuple[int, int, int] | None = None
    _nodes: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the body, parents first."""
        if not self._nodes:
            self._nodes = tuple(self.body.walk())
        return self._nodes


@dataclass(slots=True, eq=False)
class Unit:
    """A whole program. ``text`` is the expanded source in UTF-8; ``lines`` gives for each of its lines the
    file and the 1-based line it came from. ``functions`` are the kernels and what they may call; ``declared`` holds the
    functions that the program itself declares (also without a body); ``variables`` are those of program scope,
    ``prototypes`` its declarations without a body. ``version`` is the language version it was read as (``CL1.2``),
    ``files`` what it includes; ``unused``: where the functions stand that are left out. ``loose``: what it computes
    in floating point may be off by more than OpenCL C allows, as its build options say."""

    text: bytes
    lines: tuple[tuple[str, int], ...]
    functions: dict[int, Function]
    declared: frozenset[int]
    variables: dict[int, Node]
    warnings: tuple[str, ...] = ()
    prototypes: tuple[Node, ...] = ()
    version: str = ""
    files: tuple[str, ...] = ()
    unused: dict[int, tuple[int, int]] = field(default_factory=dict)
    loose: bool = False
    _starts: list[int] = field(default_factory=list)

    def place(self, offset: int) -> tuple[str, int]:
        """The user's file and 1-based line of a byte offset in the expanded source."""
        if not self._starts:
            position = 0
            for line in self.text.split(b"\n"):
                self._starts.append(position)
                position += len(line) + 1
        index = bisect.bisect_right(self._starts, max(offset, 0)) - 1
        return self.lines[min(index, len(self.lines) - 1)]

    def where(self, offset: int) -> str:
        """The place of a byte offset, in words: without the file where that is the program's."""
        path, line = self.place(offset)
        return f"line {line}" if path == self.lines[0][0] else f"{path}:{line}"

    def marker(self, offset: int) -> str:
        """A line that tells compilers the place of what follows."""
        file, line = self.place(offset)
        return f"\n#line {line} {json.dumps(file)}\n"

    def kernel(self, name: str) -> Function:
        """Return a kernel. Raises KeyError for one that there is not."""
        for function in self.functions.values():
            if function.is_kernel and function.name == name:
                return function
        raise KeyError(name)

    def reachable(self, kernel: Function) -> Iterator[Function]:
        """A kernel and every function that it may call."""
        seen, pending = {kernel.ref}, [kernel]
        while pending:
            function = pending.pop()
            yield function
            for node in function.nodes:
                if node.kind == "DECL_REF_EXPR" and node.ref in self.functions and node.ref not in seen:
                    seen.add(node.ref)
                    pending.append(self.functions[node.ref])

    def words(self, node: Node) -> str:
        """The text of a node in the expanded source."""
        return self.text[node.start : node.end].decode("utf-8", "replace")


_NOTHING = Node("", CType("void", "void"), 0, 0)


def callee(node: Node) -> Node:
    """Return the reference to the function that is called; a node without a name where there is none."""
    target = node.children[0] if node.kind == "CALL_EXPR" and node.children else _NOTHING
    while target.kind in THROUGH and target.children:
        target = target.children[0]
    return target if target.kind == "DECL_REF_EXPR" else _NOTHING


def stripped(node: Node) -> Node:
    """Return an expression without parentheses and implicit conversions around it."""
    while node.kind in THROUGH and len(node.children) == 1:
        node = node.children[0]
    return node


def assigned(node: Node) -> Node | None:
    """Return the lvalue that an operator assigns to, if it does."""
    assigns = node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" or (node.kind == "BINARY_OPERATOR" and node.op == "=")
    steps = node.kind == "UNARY_OPERATOR" and ("++" in node.op or "--" in node.op)
    return node.children[0] if assigns or steps else None


def operands(node: Node) -> list[Node]:
    """Return the expressions and statements that a node consists of."""
    return [child for child in node.children if not child.kind.endswith(("_REF", "_DECL", "_ATTR"))]


def initial_value(unit: Unit, node: Node) -> Node | None:
    """Return the initial value of a variable's declaration, if it has one."""
    for value in operands(node)[-1:]:
        if unit.text[node.start : value.start].rstrip(b"( \t\r\n").endswith(b"="):  # else it is an array's length, say
            return value
    return None


@dataclass(frozen=True, slots=True)
class LoopHead:
    """The parts of a loop, each None where there is none. A ``do`` tests behind its body."""

    init: Node | None
    condition: Node | None
    step: Node | None
    body: Node


def loop_head(unit: Unit, node: Node) -> LoopHead | None:
    """Return the parts of a loop (libclang leaves out what a ``for`` leaves out); None where they are not seen."""
    if node.kind == "WHILE_STMT":
        return LoopHead(None, node.children[0], None, node.children[-1])
    if node.kind == "DO_STMT":
        return LoopHead(None, node.children[-1], None, node.children[0])
    semicolons, depth = list[int](), 0
    for match in _HEAD.finditer(unit.text, unit.text.index(b"(", node.start), node.end):
        depth += (match[0] in b"([{") - (match[0] in b")]}")
        if depth == 0:
            break
        if match[0] == b";" and depth == 1:
            semicolons.append(match.start())
    if len(semicolons) != 2:
        return None
    *heads, body = node.children
    parts = {bisect.bisect_right(semicolons, part.start): part for part in heads}
    return LoopHead(parts.get(0), parts.get(1), parts.get(2), body)


_PLAIN = tuple(f.name for f in fields(CType) if f.name not in ("target", "members"))


class _Writer:
    """A program's tree as bytes: how it comes from the process that parses to the one that asks. Pickling thousands of
    small objects takes longer than parsing them; flat tuples through ``marshal`` do not."""

    def __init__(self) -> None:
        self.types: dict[int, int] = {}
        self.table: list[tuple[object, ...]] = []
        self.kept: list[CType] = []
        self.nodes: list[tuple[object, ...]] = []

    def type(self, type_: CType) -> int:
        found = self.types.get(id(type_))
        if found is None:
            target = -1 if type_.target is None else self.type(type_.target)
            members = [(offset, self.type(member)) for offset, member in type_.members]
            found = self.types[id(type_)] = len(self.table)
            self.table.append((target, members, *(getattr(type_, name) for name in _PLAIN)))
            self.kept.append(type_)  # its id stays its own
        return found

    def tree(self, root: Node) -> int:
        """Add a tree's nodes to the table, children behind their parents, first to last; return its root's index."""
        start = len(self.nodes)
        stack = [root]
        while stack:
            n = stack.pop()
            children = n.children
            self.nodes.append((n.kind, self.type(n.type), n.start, n.end, len(children), n.name, n.ref, n.op, n.value))
            stack.extend(reversed(children))
        return start

    def function(self, f: Function) -> tuple[object, ...]:
        parameters = [self.tree(p) for p in f.parameters]
        body = self.tree(f.body)
        where = (f.ref, f.name, f.start, f.end, f.is_kernel, self.type(f.result))
        return (*where, parameters, body, f.attributes, f.required_work_group)


def encode(unit: Unit) -> bytes:
    """Everything that analyses after parsing need of a program."""
    writer = _Writer()
    functions = [writer.function(f) for f in unit.functions.values()]
    variables = [(ref, writer.tree(node)) for ref, node in unit.variables.items()]
    rest = (unit.text, unit.lines, list(unit.declared), unit.version, unit.loose)
    return marshal.dumps((writer.table, writer.nodes, functions, variables, rest))


def decode(data: bytes) -> Unit:
    """The program again, without prototypes, warnings, and where names stand."""
    table, rows, functions, variables, (text, lines, declared, version, loose) = marshal.loads(data)
    types: list[CType] = []
    for target, members, *plain in table:
        values = dict(zip(_PLAIN, plain, strict=True))
        inner = tuple((offset, types[member]) for offset, member in members)
        types.append(CType(**values, target=None if target < 0 else types[target], members=inner))
    nodes: list[Node] = [None] * len(rows)  # type: ignore[list-item]
    stack: list[Node] = []
    for place in range(len(rows) - 1, -1, -1):
        kind, type_, start, end, count, name, ref, op, value = rows[place]
        children: tuple[Node, ...] = ()
        if count:
            children = tuple(stack[: -count - 1 : -1])
            del stack[-count:]
        node = Node(kind, types[type_], start, end, children, name, ref, op, value)
        nodes[place] = node
        stack.append(node)
    found = {}
    for ref, name, start, end, is_kernel, result, parameters, body, attributes, group in functions:
        given = tuple(nodes[p] for p in parameters)
        found[ref] = Function(
            ref, name, start, end, is_kernel, types[result], given, nodes[body], tuple(attributes), group
        )
    outside = {ref: nodes[place] for ref, place in variables}
    return Unit(text, tuple(lines), found, frozenset(declared), outside, version=version, loose=loose)
