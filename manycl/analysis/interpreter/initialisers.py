"""Initial values: literals of vectors, arrays and records, tables of program scope."""

from __future__ import annotations

from manycl.analysis.interpreter.places import Places
from manycl.analysis.interpreter.values import Aggregate, Cell, Pointer, Value, Vector, blank, integer, lane_type
from manycl.analysis.reading.tree import CType, Node
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr


class Initialisers(Places):
    """Evaluation of what stands behind a declaration."""

    def compound_literal(self, node: Node) -> Cell:
        return self.initialised(node.children[-1], node.type) if node.children else self.unknown_of(node.type)

    def init_list(self, node: Node) -> Cell:
        return self.initialised(node, node.type)

    def initialised(self, node: Node, type_: CType) -> Cell:
        """The value of ``node``, which initialises something of a type."""
        if node.kind != "INIT_LIST_EXPR":
            return self.value(node)
        if type_.kind == "vector":
            lanes: list[Value] = []
            for child in node.children:
                value = self.scalar(child)
                lanes.extend(value.lanes if isinstance(value, Vector) else (value,))
            if len(lanes) == 1:
                lanes *= type_.lanes
            lane = lane_type(type_)
            if len(lanes) != type_.lanes:
                return self.fresh_of(type_)
            return Vector(tuple(self.convert(v, lane) for v in lanes))
        if type_.kind == "array" and type_.target is not None:
            return self.array_of(node, type_)
        if type_.kind == "record" and len(node.children) <= len(type_.members):
            return self.record_of(node, type_)
        if type_.kind in ("record", "union", "array"):
            for child in node.children:
                self.visit_initialiser(child)
            return blank()
        values = [self.value(child) for child in node.children]
        return values[0] if values else x.ZERO if integer(type_) else self.unknown_of(type_)

    def visit_initialiser(self, node: Node) -> None:
        if node.kind == "INIT_LIST_EXPR" or (node.kind == "UNEXPOSED_EXPR" and node.type.kind == "void"):
            for child in node.children:
                self.visit_initialiser(child)
        elif node.kind != "MEMBER_REF":
            self.value(node)

    def array_of(self, node: Node, type_: CType) -> Aggregate:
        element = type_.target
        assert element is not None
        entries: dict[tuple[int, int], Value] = {}
        designated = False
        for position, child in enumerate(node.children):
            if child.kind == "UNEXPOSED_EXPR" and child.type.kind == "void":
                designated = True
                self.visit_initialiser(child)
                continue
            value = self.initialised(child, element)
            start = position * element.size
            if isinstance(value, Aggregate):
                entries |= {(start + k[0], k[1]): v for k, v in value.entries.items()}
            else:
                entries[start, element.size] = self.convert(value, element) if not isinstance(value, Pointer) else value
        if designated:
            return blank()
        self.fill(entries, type_, 0, len(node.children) * element.size)
        return Aggregate(entries)

    def record_of(self, node: Node, type_: CType) -> Aggregate:
        entries: dict[tuple[int, int], Value] = {}
        for (start, member), child in zip(type_.members, node.children, strict=False):
            if child.kind == "UNEXPOSED_EXPR" and child.type.kind == "void":  # designated
                for each in node.children:
                    self.visit_initialiser(each)
                return blank()
            value = self.initialised(child, member)
            if isinstance(value, Aggregate):
                entries |= {(start + k[0], k[1]): v for k, v in value.entries.items()}
            elif member.kind not in ("record", "union", "array"):
                entries[start, member.size] = value if isinstance(value, Pointer) else self.convert(value, member)
        return Aggregate(entries)

    def fill(self, entries: dict[tuple[int, int], Value], type_: CType, start: int, filled: int) -> None:
        """What an initialiser does not name is zero."""
        leaf = type_.target
        while leaf is not None and leaf.kind == "array":
            leaf = leaf.target
        if leaf is None or integer(leaf) is None or leaf.kind == "vector" or not leaf.size or type_.size > 4096:
            return
        for place in range(start, type_.size, leaf.size):
            if not any(k[0] < place + leaf.size and place < k[0] + k[1] for k in entries):
                entries[place, leaf.size] = x.ZERO

    def load_table(self, ref: int, offset: Expr, type_: CType, size: int) -> Value:
        node = self.unit.variables.get(ref)
        if node is None or not (node.type.const or node.type.address_space == "constant") or not node.children:
            return self.fresh_of(type_)
        table = self.tables.get(ref)
        if table is None:
            self.silent += 1
            last = node.children[-1]
            table = self.initialised(last, node.type) if self.initialises(node, last) else blank()
            self.silent -= 1
            self.tables[ref] = table
        if isinstance(table, Aggregate):
            return self.load_memory(table, offset, type_, size)
        return self.convert(table, type_) if offset == x.ZERO and node.type.size == type_.size else self.fresh_of(type_)

    tables: dict[int, Cell]

    def initialises(self, declaration: Node, last: Node) -> bool:
        """Whether the last child of a declaration is its initial value (not the size of an array)."""
        if last.kind in ("TYPE_REF", "MEMBER_REF") or last.kind.endswith("_ATTR") or last.kind.endswith("_DECL"):
            return False
        before = self.unit.text[declaration.start : last.start].rstrip()
        while before.endswith(b"("):
            before = before[:-1].rstrip()
        return before.endswith(b"=") and last.start > declaration.start
