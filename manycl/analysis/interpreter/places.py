"""Places: what lvalues of OpenCL C mean, and reading and writing them."""

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
from manycl.analysis.reading.tree import CType, Node
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
    """Evaluation of lvalues; ``value`` is what :mod:`manycl.analysis.interpreter.expressions` adds."""

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
        """Where an lvalue is."""
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
