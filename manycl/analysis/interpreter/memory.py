"""Memory of the abstract machine: loads and stores of variables, arguments and tables, and the accesses they are."""

from __future__ import annotations

from dataclasses import replace

from manycl.analysis.interpreter.abstract import Abstract, Path, Unanalysable, meet_values
from manycl.analysis.interpreter.values import (
    OPAQUE,
    Aggregate,
    Cell,
    Pointer,
    Target,
    Value,
    Vector,
    address,
    blank,
    integer,
    lane_type,
)
from manycl.analysis.reading.tree import CType
from manycl.analysis.summary import Loop, MemoryAccess, Origin, OwnArray
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr

MOST_ACCESSES = 6_000
MOST_OWN = 1_000
"""The most accesses of a kernel of which it is noted whether they may leave its own arrays."""


class LoadsAndStores(Abstract):
    """The part of the interpreter that knows what is behind pointers, and does loads and stores there."""

    def count_store(self, pointer: Pointer, type_: CType) -> None:
        padded = type_.kind == "vector" and type_.lanes == 3 and not type_.size & (type_.size - 1)
        if padded:  # the fourth lane is not written
            self.count_access("store", pointer, type_.size // 4, 3)
        else:
            self.count_access("store", pointer, _size(type_))

    def access(
        self,
        target: Target,
        kind: str,
        size: int,
        offset: Expr | None = None,
        loops: tuple[Loop, ...] = (),
        operation: str = "",
        used: bool = False,
        element: str = "",
    ) -> None:
        """Note an access (``kind``) at a target, at ``offset`` instead of its own, under more ``loops``."""
        base, index = target.base
        if self.silent or self.path is None or base == "program":
            return
        where = address(target.offset if offset is None else offset)
        own = self.left(target, where, size) if base in ("var", "local") else None
        if own is None and base not in ("arg", "unknown"):
            return
        if len(self.accesses) >= MOST_ACCESSES:
            raise Unanalysable(f"it makes more than {MOST_ACCESSES} accesses")
        path = self.path.where(target.condition)
        if path is None:
            return
        file, line = self.unit.place(self.here)
        argument = index if base == "arg" else -1 if own is None else -2 - own.number
        self.accesses.append(
            MemoryAccess(
                argument, kind, where, size, self.whole(path), self.loops + loops, line, file, operation, used, element
            )
        )

    def left(self, target: Target, offset: Expr, size: int) -> OwnArray | None:
        """Return the array of the kernel's own that an access may leave."""
        base, index = target.base
        if len(self.accesses) > MOST_OWN:
            return None
        if base == "local" and index < 0:
            return self.arrays.setdefault(index, OwnArray(-index - 1))
        cells = ((ref, cell) for frame in reversed(self.frames) for ref, cell in frame.cells.items())
        ref, cell = next((c for c in cells if c[base == "var"] == index), (0, 0))
        type_ = self.types.get(cell)
        if (
            type_ is None
            or type_.kind != "array"
            or not type_.size
            or 0 <= offset.low <= offset.high + size <= type_.size
        ):
            return None
        nodes = (node for function in self.unit.functions.values() for node in function.nodes)
        name = next((node.name for node in nodes if node.kind == "VAR_DECL" and node.ref == ref), "?")
        element = type_
        while element.kind == "array" and element.target is not None:
            element = element.target
        return self.arrays.setdefault(
            ref, OwnArray(self.first + len(self.arrays), name, type_.size, max(element.size, 1))
        )

    def whole(self, path: Path) -> Expr:
        """Return the condition that a path stands for."""
        found = self.wholes.get(id(path))
        if found is None:
            found = self.wholes[id(path)] = (path, path.whole())
        return found[1]

    def load(self, pointer: Pointer, type_: CType, counted: bool = True) -> Value:
        """Return the value of a type that lies behind a pointer."""
        if counted:
            self.count_access("load", pointer, _size(type_))
        result: Value | None = None
        for target in pointer.targets:
            value = self.load_from(target, type_)
            result = value if result is None else meet_values(target.condition, value, result)
        return OPAQUE if result is None else result

    def load_from(self, target: Target, type_: CType) -> Value:
        kind, index = target.base
        size = _size(type_)
        self.access(target, "read", size)
        if kind == "var":
            cell = self.env.get(index)
            if isinstance(cell, Aggregate) and cell.name and not cell.entries:
                return self.member_symbol(index, target.offset, type_)
            return self.load_cell(cell, self.types.get(index), target.offset, type_, size)
        if kind == "program":
            return self.load_table(index, target.offset, type_, size)
        if kind == "arg" and integer(type_) is not None:
            return self.element(target, type_, size)
        return self.fresh_of(type_)

    def member_symbol(self, cell: int, offset: Expr, type_: CType) -> Value:
        """Return a member of a record argument in any launch: a symbol named as the source names it."""
        width = integer(type_)
        words = self.member_words.get((cell, offset.key), "")
        if width is None or type_.kind == "vector" or not words or offset.op != "const":
            return self.fresh_of(type_)
        key = cell, offset.value, type_.size
        if key not in self.members:
            self.members[key] = x.var(self.name("".join(words.split())), *x.type_range(*width))
        return self.members[key]

    def element(self, target: Target, type_: CType, size: int) -> Value:
        """Return an integer of a buffer: the same wherever the same element of what nobody writes is read."""
        index = target.base[1]
        if type_.kind == "vector":
            lane = lane_type(type_)
            parts = [
                Target(target.condition, target.base, x.add(target.offset, x.const(i * lane.size)))
                for i in range(type_.lanes)
            ]
            return Vector(tuple(self.element(part, lane, lane.size) for part in parts))
        bits, signed = integer(type_) or (32, True)
        offset = address(target.offset)
        key = index, offset.key, bits if signed else -bits
        if index in self.read_only and key in self.known_loads:
            return self.known_loads[key]
        origin = Origin(f"contents of argument {index} read in line {self.line()}", index, offset, size, signed)
        value = self.fresh(*self.element_bounds(index, bits, signed), origin=origin)
        if index in self.read_only:
            self.known_loads[key] = value
        return value

    def element_bounds(self, argument: int, bits: int, signed: bool) -> tuple[int, int]:
        return x.type_range(bits, signed)

    def load_table(self, ref: int, offset: Expr, type_: CType, size: int) -> Value:
        """Return a value that lies in a constant of program scope."""
        raise NotImplementedError

    def load_cell(self, cell: Cell | None, held: CType | None, offset: Expr, type_: CType, size: int) -> Value:
        if cell is None or held is None:
            return self.fresh_of(type_)
        if isinstance(cell, Aggregate):
            return self.load_memory(cell, offset, type_, size)
        if offset.op != "const":
            return self.fresh_of(type_)
        if offset.value == 0 and held.size == type_.size and not isinstance(cell, Pointer):
            same = held.kind == type_.kind and held.lanes == type_.lanes
            return self.convert(cell, type_) if same else self.fresh_of(type_)
        if isinstance(cell, Pointer) and offset.value == 0 and type_.kind == "pointer":
            return cell
        if isinstance(cell, Vector) and held.kind == "vector":
            lane = lane_type(held)
            if type_.kind != "vector" and type_.size == lane.size and offset.value % lane.size == 0:
                at = offset.value // lane.size
                if 0 <= at < len(cell.lanes):
                    return self.convert(cell.lanes[at], type_)
        return self.fresh_of(type_)

    def load_memory(self, memory: Aggregate, offset: Expr, type_: CType, size: int) -> Value:
        if offset.op != "const":
            return self.choose(memory, offset, type_, size)
        return self.entry(memory, offset.value, type_, size)

    def entry(self, memory: Aggregate, offset: int, type_: CType, size: int) -> Value:
        found = memory.entries.get((offset, size))
        if found is not None:
            return found if isinstance(found, Pointer) else self.convert(found, type_)
        overlaps = any(k[0] < offset + size and offset < k[0] + k[1] for k in memory.entries)
        width = integer(type_)
        if memory.raw is None or overlaps or width is None or not 0 <= offset <= len(memory.raw) - size:
            return self.fresh_of(type_)
        if type_.kind == "vector":
            lane = lane_type(type_)
            return Vector(
                tuple(self.entry(memory, offset + i * lane.size, lane, lane.size) for i in range(type_.lanes))
            )
        return x.const(int.from_bytes(memory.raw[offset : offset + size], "little", signed=width[1]))

    def choose(self, memory: Aggregate, offset: Expr, type_: CType, size: int) -> Value:
        """Return an element of a small table by a subscript that is not known: a choice among all that it may be."""
        stride = x.divisor(offset)
        places = sorted(k[0] for k, v in memory.entries.items() if k[1] == size and isinstance(v, Expr))
        reach = [p for p in places if offset.low <= p <= offset.high and (not stride or p % stride == 0)]
        complete = stride >= size and len(memory.entries) <= 32 and offset.low >= 0
        if not complete or not reach or len(reach) != (offset.high - offset.low) // stride + 1 or len(reach) > 16:
            bounded = [v for k, v in memory.entries.items() if k[1] == size and isinstance(v, Expr)]
            total = sum(k[1] for k in memory.entries)
            if (
                memory.raw is None
                and integer(type_)
                and bounded
                and len(bounded) == len(memory.entries)
                and stride
                and stride % size == 0
                and total == self.extent(memory)
            ):
                return self.fresh(min(v.low for v in bounded), max(v.high for v in bounded))
            return self.fresh_of(type_)
        result = self.entry(memory, reach[-1], type_, size)
        for place in reversed(reach[:-1]):
            value = self.entry(memory, place, type_, size)
            if not isinstance(value, Expr) or not isinstance(result, Expr):
                return self.fresh_of(type_)
            result = x.select(x.equal(offset, x.const(place)), value, result)
        return result

    @staticmethod
    def extent(memory: Aggregate) -> int:
        return max((k[0] + k[1] for k in memory.entries), default=0)

    def store(self, pointer: Pointer, type_: CType, value: Cell, counted: bool = True) -> None:
        """Write a value of a type behind a pointer."""
        if counted:
            self.count_store(pointer, type_)
        given = (
            self.convert(value, type_) if isinstance(value, Expr) and value.op == "const" and integer(type_) else None
        )
        stored = given.value if isinstance(given, Expr) and given.op == "const" else None
        for target in pointer.targets:
            kind, index = target.base
            size = _size(type_)
            before = len(self.accesses)
            self.access(target, "write", size)
            if stored is not None and len(self.accesses) > before:
                self.accesses[-1] = replace(self.accesses[-1], stored=stored)
            if kind == "var":
                certain = len(pointer.targets) == 1
                self.store_cell(index, target, type_, size, value, certain)
                continue
            if kind == "program":
                self.hazards["writes a variable of program scope"] = None
            if kind == "unknown":
                self.forget_variables()

    def forget_variables(self) -> None:
        """Forget what variables hold: something was written through a pointer that was lost, so any may have changed
        whose address is known (that of parameters and locals of which it was taken; to be sure, all)."""
        self.steps += len(self.env)
        for cell in list(self.env):
            type_ = self.types[cell]
            self.env[cell] = blank() if isinstance(self.env[cell], Aggregate) else self.fresh_of(type_)

    def store_cell(self, cell: int, target: Target, type_: CType, size: int, value: Cell, certain: bool) -> None:
        before, held = self.env.get(cell), self.types.get(cell)
        if before is None or held is None:
            return
        after = self.changed(before, held, target.offset, type_, size, value)
        if not certain and not isinstance(after, Aggregate) and not isinstance(before, Aggregate):
            after = meet_values(target.condition, after, before)
        elif not certain:
            after = blank()
        self.env[cell] = after

    def changed(self, before: Cell, held: CType, offset: Expr, type_: CType, size: int, value: Cell) -> Cell:
        """Return a variable's contents after a part of it was written."""
        if isinstance(before, Aggregate):
            if offset.op != "const":
                return blank()
            if isinstance(value, Aggregate):
                return value if offset.value == 0 and size == held.size else before.forgets(offset.value, size)
            return before.stored(offset.value, size, value)
        if isinstance(value, Aggregate):
            return self.fresh_of(held)
        if offset == x.ZERO and held.size == type_.size and held.kind == type_.kind and held.lanes == type_.lanes:
            return value if isinstance(value, Pointer) else self.convert(value, held)
        if isinstance(before, Vector) and held.kind == "vector" and offset.op == "const":
            lane = lane_type(held)
            if type_.kind != "vector" and type_.size == lane.size and offset.value % lane.size == 0:
                at = offset.value // lane.size
                if 0 <= at < len(before.lanes):
                    return Vector((*before.lanes[:at], self.convert(value, lane), *before.lanes[at + 1 :]))
        return self.fresh_of(held)

    def initial(self, type_: CType, value: Cell | None) -> Cell:
        """Return what a variable holds when it is declared."""
        if type_.kind in ("array", "record", "union"):
            return value if isinstance(value, Aggregate) else blank()
        if value is None or isinstance(value, Aggregate):
            return self.fresh_of(type_)
        return value if isinstance(value, Pointer) and type_.kind == "pointer" else self.convert(value, type_)


def _size(type_: CType) -> int:
    return max(type_.size, 1)
