"""A program's tree as bytes: how it comes from the process that parses to the one that asks. Pickling thousands of
small objects takes longer than parsing them; flat tuples through ``marshal`` do not. Both ends are the same
installation, so the format needs no version."""

from __future__ import annotations

import marshal
from dataclasses import fields

from manycl.analysis.reading.tree import CType, Function, Node, Unit

_PLAIN = tuple(f.name for f in fields(CType) if f.name not in ("target", "members"))


class _Writer:
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
        """Where a tree's nodes begin; children stand behind their parents, first to last."""
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
