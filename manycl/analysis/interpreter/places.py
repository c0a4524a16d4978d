"""Places: what lvalues of OpenCL C mean, and reading and writing them; initial values, of vectors, arrays, records and
tables of program scope, too."""

from __future__ import annotations

import re
from dataclasses import dataclass

from manycl.analysis.interpreter.memory import LoadsAndStores
from manycl.analysis.interpreter.values import (
    LOST,
    OPAQUE,
    Aggregate,
    Cell,
    Pointer,
    Value,
    Vector,
    at,
    blank,
    integer,
    lane_type,
    swizzle,
)
from manycl.analysis.reading.tree import CType, Node, initial_value
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

_COMPONENT = re.compile(rb"(?:\.|->)\s*(\w+)[\s)]*$")


@dataclass(slots=True)
class LValue:
    """A place in memory and its type; ``lanes`` of a vector there, if only some are meant."""

    pointer: Pointer
    type: CType
    lanes: tuple[int, ...] | None = None
    component: CType | None = None  # the type of the lanes together


class Places(LoadsAndStores):
    """Evaluation of lvalues, and of what stands behind a declaration; ``value`` is what
    :mod:`manycl.analysis.interpreter.operators` adds."""

    def value(self, node: Node) -> Cell:
        raise NotImplementedError

    def scalar(self, node: Node) -> Value:
        """The value of an expression that is no whole array or record."""
        found = self.value(node)
        return OPAQUE if isinstance(found, Aggregate) else found

    def number(self, node: Node) -> Expr:
        """The value of an expression of integer type."""
        found = self.value(node)
        if isinstance(found, Expr):
            return found
        width = integer(node.type) if node.type.kind != "vector" else None
        return self.fresh(*(x.type_range(*width) if width else (-x.INFINITE, x.INFINITE)))

    def unknown_of(self, type_: CType) -> Cell:
        return blank() if type_.kind in ("array", "record", "union") else self.fresh_of(type_)

    def place(self, node: Node) -> LValue:
        """Return where an lvalue is."""
        self.step()
        kind, children = node.kind, node.children
        if kind == "PAREN_EXPR" and children:
            return self.place(children[-1])
        if kind == "DECL_REF_EXPR":
            return LValue(self.variable(node), node.type)
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            return self.subscript(node)
        if kind == "UNARY_OPERATOR" and node.op == "*":
            found = self.value(children[0])
            return LValue(found if isinstance(found, Pointer) else LOST, node.type)
        if kind == "UNARY_OPERATOR" and node.op == "?" and children:
            return self.place(children[0])
        if kind == "MEMBER_REF_EXPR" and children:
            return self.member(node)
        if kind == "UNEXPOSED_EXPR" and len(children) == 1:
            component = self.component(node)
            if component is not None:
                return component
            return self.place(children[0])
        if kind in (
            "COMPOUND_LITERAL_EXPR",
            "CALL_EXPR",
            "CONDITIONAL_OPERATOR",
            "BINARY_OPERATOR",
            "CSTYLE_CAST_EXPR",
            "COMPOUND_ASSIGNMENT_OPERATOR",
            "UNARY_OPERATOR",
            "INIT_LIST_EXPR",
        ):
            return self.temporary(node)
        self.value(node)
        return LValue(LOST, node.type)

    def temporary(self, node: Node) -> LValue:
        """A value without a name that is then looked into."""
        cell = len(self.types) + 1
        self.types[cell] = node.type
        self.env[cell] = self.initial(node.type, self.value(node))
        return LValue(at(("var", cell)), node.type)

    def variable(self, node: Node) -> Pointer:
        cell = self.cell(node.ref)
        if cell is not None:
            if self.types[cell].address_space == "local":
                return at(("local", node.ref))
            return at(("var", cell))
        if node.ref in self.unit.variables:
            return at(("program", node.ref))
        return LOST

    def subscript(self, node: Node) -> LValue:
        base, index = node.children
        if base.type.kind not in ("pointer", "array", "vector"):
            base, index = index, base
        if base.type.kind == "vector":
            place = self.place(base)
            number = self.number(index)
            if number.op == "const" and 0 <= number.value < place.type.lanes and place.lanes is None:
                return LValue(place.pointer, place.type, (number.value,), node.type)
            lane = lane_type(base.type)
            return LValue(self.moved(place.pointer, number, max(lane.size, 1)), lane)
        pointer = self.value(base)
        number = self.number(index)
        size = node.type.size
        if not isinstance(pointer, Pointer):
            return LValue(LOST, node.type)
        return LValue(self.moved(pointer, number, size), node.type)

    def moved(self, pointer: Pointer, number: Expr, size: int) -> Pointer:
        if number == x.ZERO:
            return pointer
        return LOST if size <= 0 else pointer.moved(x.scale(number, size))

    def member(self, node: Node) -> LValue:
        base = node.children[0]
        if base.type.kind == "pointer":
            found = self.value(base)
            pointer = found if isinstance(found, Pointer) else LOST
        else:
            pointer = self.place(base).pointer
        if node.value is None:  # a bit field, or nothing known: anywhere in the record
            size = max((base.type.target or base.type).size, 1)
            where = self.fresh(0, max(size - max(node.type.size, 1), 0), f"a bit field, line {self.line(node.start)}")
            return LValue(pointer.moved(where), node.type)
        moved = pointer.moved(x.const(node.value))
        if len(moved.targets) == 1 and moved.targets[0].base[0] == "var":
            self.member_words[moved.targets[0].base[1], moved.targets[0].offset.key] = self.unit.words(node)
        return LValue(moved, node.type)

    def component(self, node: Node) -> LValue | None:
        """``v.xy`` or ``p->x``, which libclang shows as an expression without a name."""
        child = node.children[0]
        pointed = child.type.kind == "pointer" and child.type.target is not None and child.type.target.kind == "vector"
        if not pointed and child.type.kind != "vector":
            return None
        if node.type.kind not in ("vector", "int", "float", "bool") or not node.type.base:
            return None
        if node.end <= child.end and not pointed:
            return None
        match = _COMPONENT.search(self.unit.text, child.end, node.end)
        if match is None:
            return None
        whole = child.type.target if pointed else child.type
        assert whole is not None
        lanes = swizzle(match.group(1).decode(), whole.lanes)
        if pointed:
            found = self.value(child)
            place = LValue(found if isinstance(found, Pointer) else LOST, whole)
        else:
            place = self.place(child)
        if lanes is None:
            return LValue(place.pointer, whole, None, node.type)
        if place.lanes is not None:
            lanes = tuple(place.lanes[lane] for lane in lanes if lane < len(place.lanes))
            whole = place.type
        return LValue(place.pointer, whole, lanes, node.type)

    # -- reading and writing places

    def read(self, place: LValue) -> Cell:
        if place.lanes is not None:
            return self.read_lanes(place)
        if place.type.kind in ("record", "union"):
            return self.read_record(place)
        return self.load(place.pointer, place.type)

    def read_lanes(self, place: LValue) -> Value:
        assert place.lanes is not None
        single = place.pointer.targets[0] if len(place.pointer.targets) == 1 else None
        if single is not None and single.base[0] == "var" and single.offset == x.ZERO:
            held = self.env.get(single.base[1])
            if isinstance(held, Vector) and all(lane < len(held.lanes) for lane in place.lanes):
                chosen = tuple(held.lanes[lane] for lane in place.lanes)
                return Vector(chosen) if len(chosen) > 1 else chosen[0]
        lane = lane_type(place.type)
        self.count_access("load", place.pointer, place.type.size)  # a vector is loaded as a whole
        found = [self.load(place.pointer.moved(x.const(i * lane.size)), lane, counted=False) for i in place.lanes]
        return found[0] if len(found) == 1 else Vector(tuple(found))

    def read_record(self, place: LValue) -> Cell:
        target = place.pointer.targets[0] if len(place.pointer.targets) == 1 else None
        if target is not None and target.base[0] == "var":
            held = self.env.get(target.base[1])
            if (
                isinstance(held, Aggregate)
                and target.offset == x.ZERO
                and self.types[target.base[1]].size == place.type.size
            ):
                return held
            return blank()
        self.load(place.pointer, place.type)  # noted; its parts are not known
        return blank()

    def write(self, place: LValue, value: Cell) -> None:
        if place.lanes is None:
            self.store(place.pointer, place.type, value)
            return
        lane = lane_type(place.type)
        whole = len(set(place.lanes)) == place.type.lanes
        if whole:
            self.count_store(place.pointer, place.type)
        parts: tuple[Value, ...]
        if isinstance(value, Vector):
            parts = value.lanes
        else:
            parts = ((OPAQUE if isinstance(value, Aggregate) else value),) * len(place.lanes)
        for i, part in zip(place.lanes, parts, strict=False):
            self.store(place.pointer.moved(x.const(i * lane.size)), lane, part, counted=not whole)

    def loaded(self, node: Node) -> Cell:
        """An lvalue used for its value."""
        place = self.place(node)
        if node.type.kind == "array":
            return place.pointer
        if node.type.kind == "function":
            return OPAQUE
        self.here = node.start
        return self.read(place)

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
        """Set to zero the elements of an array that its initialiser does not name."""
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
            value = initial_value(self.unit, node)
            table = blank() if value is None else self.initialised(value, node.type)
            self.silent -= 1
            self.tables[ref] = table
        if isinstance(table, Aggregate):
            return self.load_memory(table, offset, type_, size)
        return self.convert(table, type_) if offset == x.ZERO and node.type.size == type_.size else self.fresh_of(type_)

    tables: dict[int, Cell]
