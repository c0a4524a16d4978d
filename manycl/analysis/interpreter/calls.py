"""Calls: functions of the program are run in place, built-in ones by what OpenCL C says of them (3.0, section 6.15)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from manycl.analysis.interpreter.abstract import (
    DEEPEST_CALLS,
    ControlState,
    Frame,
    Path,
    Unanalysable,
    ancestor,
    join,
    meet,
)
from manycl.analysis.interpreter.operators import Expressions
from manycl.analysis.interpreter.values import (
    FLOATING,
    FOLLOWED,
    LOST,
    OPAQUE,
    Aggregate,
    Cell,
    Pointer,
    Value,
    Vector,
    integer,
    lane_type,
)
from manycl.analysis.reading import builtins, jumps
from manycl.analysis.reading.tree import CType, Function, Node, callee
from manycl.analysis.summary import Loop
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic import real
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import Real

_VLOAD = re.compile(r"v(load|store)(a)?(_half)?(2|3|4|8|16)?(?:_rt[ezpn])?")
_CONVERT = re.compile(r"convert_(u?char|u?short|u?int|u?long|float|double|half)(2|3|4|8|16)?(_sat)?(_rt[ezpn])?")
_AS = re.compile(r"as_(u?char|u?short|u?int|u?long|float|double|half)(2|3|4|8|16)?")
_LEGACY = re.compile(r"atom(?:ic)?_(add|sub|xchg|inc|dec|cmpxchg|min|max|and|or|xor)")
_C11 = re.compile(
    r"atomic_(?:fetch_(add|sub|or|xor|and|min|max)|(load|store|init|exchange|flag_test_and_set|flag_clear)"
    r"|compare_exchange_(?:strong|weak))(?:_explicit)?"
)
_SPECIAL = re.compile(
    r"(native_|half_)?(sqrt|rsqrt|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|pown|powr|rootn|cbrt|sin|cos|tan|sincos"
    r"|sinpi|cospi|tanpi|asin|acos|atan|atan2|asinpi|acospi|atanpi|atan2pi|sinh|cosh|tanh|asinh|acosh|atanh|erf|erfc"
    r"|tgamma|lgamma|lgamma_r|hypot|recip|divide|length|distance|normalize|fast_length|fast_distance|fast_normalize)"
)
_SIMPLE_FLOAT = re.compile(
    r"f?(abs|min|max)|floor|ceil|trunc|rint|round|copysign|sign|step|smoothstep|mix|clamp|degrees|radians"
    r"|fmod|remainder|remquo|fract|modf|frexp|ldexp|ilogb|logb|nextafter|nan|fdim|maxmag|minmag"
)


class Calls(Expressions):
    """The effects of calls. ``ids`` answers queries of the NDRange."""

    ids: Callable[[str, int], Expr | None]

    def call(self, node: Node) -> Cell:
        if not node.children:
            return self.unknown_of(node.type)
        called, arguments = callee(node), node.children[1:]
        if called.ref in self.unit.functions:
            return self.inlined(self.unit.functions[called.ref], arguments, node)
        if not called.name or called.ref in self.unit.declared:
            return self.foreign(called.name or "a function pointer", arguments, node)
        return self.builtin(called.name, arguments, node)

    # -- functions of the program

    def inlined(self, function: Function, arguments: tuple[Node, ...], node: Node) -> Cell:
        if len(self.frames) >= DEEPEST_CALLS:
            raise Unanalysable(f"calls nested more than {DEEPEST_CALLS} deep, line {self.line(node.start)}")
        values = [self.value(argument) for argument in arguments]
        frame = Frame(function.ref)
        self.frames.append(frame)
        exits, self.exits = self.exits, []
        for parameter, value in zip(function.parameters, values, strict=False):
            self.declare(parameter.ref, parameter.type, self.initial(parameter.type, value))
        self.run_body(function)
        if self.path is not None:
            frame.returns.append((ControlState(self.path, self.env), OPAQUE))
        self.frames.pop()
        self.exits = exits
        return self.returned(frame, function.result)

    def run_body(self, function: Function) -> None:
        try:
            if any(node.kind == "GOTO_STMT" for node in function.nodes):
                jumps.check(self.unit, function.body)
            self.execute(function.body)
        except jumps.TangledError as error:
            raise Unanalysable(f"goto, line {self.line(error.start)}") from None
        if self.frames[-1].jumps:
            raise Unanalysable(f"goto, line {self.line(function.start)}")

    def returned(self, frame: Frame, type_: CType) -> Cell:
        """Control and the value where all returns of a function meet."""
        if not frame.returns:
            self.path = None
            return self.unknown_of(type_)
        state, value = frame.returns[-1]
        result: Cell = value
        for earlier, other in reversed(frame.returns[:-1]):
            base = ancestor(earlier.path, state.path)
            chosen = x.both(*earlier.path.conditions(base))
            result = meet(chosen, other, result)
            joined = join([earlier, state])
            assert joined is not None
            state = joined
        self.path, self.env = state.path, state.env
        if type_.kind in ("record", "union", "array", "void"):
            return result
        if isinstance(result, Aggregate):
            return self.unknown_of(type_)
        return result if type_.kind == "pointer" and isinstance(result, Pointer) else self.convert(result, type_)

    def foreign(self, name: str, arguments: tuple[Node, ...], node: Node) -> Cell:
        """A function without a body here: whatever it is given may change."""
        for argument in arguments:
            value = self.value(argument)
            if isinstance(value, Pointer):
                self.anything(value, f"passed to {name}, line {self.line(node.start)}")
        self.hazards[f"calls {name}, of which nothing is known, line {self.line(node.start)}"] = None
        return LOST if node.type.kind == "pointer" else self.unknown_of(node.type)

    # -- built-in functions

    def builtin(self, name: str, arguments: tuple[Node, ...], node: Node) -> Cell:
        self.here = node.start
        if builtins.asks_dimension(name) and len(arguments) == 1:
            return self.query(name, arguments[0], node)
        if name in ("get_work_dim", "get_global_linear_id", "get_local_linear_id"):
            found = self.ids(name, 0)
            return self.unknown_of(node.type) if found is None else found
        if builtins.synchronises(name):
            return self.barrier(name, arguments, node)
        if name in builtins.POINTER_CASTS and arguments:
            return self.value(arguments[0])
        if match := _VLOAD.fullmatch(name):
            return self.vector_access(match, arguments, node)
        if name in ("async_work_group_copy", "async_work_group_strided_copy"):
            return self.group_copy(name, arguments, node)
        if match := _LEGACY.fullmatch(name):
            return self.atomic(match.group(1), arguments, node)
        if match := _C11.fullmatch(name):
            return self.atomic(match.group(1) or match.group(2) or "cmpxchg", arguments, node)
        if "image" in name or name.endswith("_pipe") or "_pipe_" in name:
            return self.image(name, arguments, node)
        values = [self.value(argument) for argument in arguments]
        self.here = node.start
        if Pointer in map(type, values):
            return self.through_pointers(name, arguments, values, node)
        if match := _CONVERT.fullmatch(name):
            return self.conversion(match, arguments[0], values[0], node.type)
        if match := _AS.fullmatch(name):
            return self.reinterpreted(arguments[0].type, values[0], node.type)
        return self.mathematics(name, arguments, values, node.type)

    def query(self, name: str, argument: Node, node: Node) -> Cell:
        dimension = self.number(argument)
        if dimension.op == "const":
            found = self.ids(name, dimension.value)
            if found is not None:
                return found
        self.lossy += 1
        return self.fresh(0, (1 << 31) - 1, f"{name} of a dimension that is not constant, line {self.line(node.start)}")

    def barrier(self, name: str, arguments: tuple[Node, ...], node: Node) -> Cell:
        for argument in arguments:
            self.value(argument)
        self.here = node.start
        self.count("barrier")
        self.barriers += not self.silent
        return self.unknown_of(node.type)

    def vector_access(self, match: re.Match[str], arguments: tuple[Node, ...], node: Node) -> Cell:
        """``vloadN``, ``vstoreN`` and their half forms (section 6.15.7)."""
        stores, aligned, half = match.group(1) == "store", match.group(2), match.group(3)
        lanes = int(match.group(4) or 1)
        data = self.value(arguments[0]) if stores else None
        offset = self.number(arguments[1 if stores else 0])
        pointer = self.value(arguments[2 if stores else 1])
        self.here = node.start
        if not isinstance(pointer, Pointer):
            pointer = LOST
        source = arguments[2 if stores else 1].type.target
        element = lane_type(source) if source is not None and source.kind == "vector" else source
        if element is None or element.size == 0:
            element = CType("int", "char", "char", size=1)
        if half:
            element = CType("float", "half", "half", size=2)
        apart = 4 if aligned and lanes == 3 else lanes
        start = pointer.moved(x.scale(offset, apart * element.size))
        whole = CType("vector", f"{element.name}{lanes}", element.base, lanes, lanes * element.size)
        type_ = element if lanes == 1 else whole
        if stores:
            self.store(start, type_, OPAQUE if isinstance(data, Aggregate) or data is None else data)
            if apart != lanes:  # the language leaves the fourth place alone, PoCL writes it as well
                for target in start.moved(x.const(type_.size)).targets:
                    perhaps = self.fresh(
                        0, 1, f"whether a device writes the place behind three halves, line {self.line()}"
                    )
                    self.access(replace(target, condition=x.both(target.condition, perhaps)), "write", element.size)
            return OPAQUE
        value = self.load(start, type_)
        return self.unknown_of(node.type) if half else value

    def group_copy(self, name: str, arguments: tuple[Node, ...], node: Node) -> Cell:
        """The work-items of a group copy together: each element is touched by all of them."""
        values = [self.value(argument) for argument in arguments]
        self.here = node.start
        target, source = values[0], values[1]
        number = values[2] if isinstance(values[2], Expr) else self.fresh(0, (1 << 32) - 1)
        strided = name == "async_work_group_strided_copy"
        stride = values[3] if strided and isinstance(values[3], Expr) else x.ONE
        element = arguments[1].type.target or node.type
        size = max(element.size, 1)
        if element.kind == "vector" and element.lanes == 3:
            size = element.size
        counter = x.var(self.name("e"), 0, max(number.high - 1, 0))
        loop = Loop(counter.key, number, True, self.line()) if counter.op == "var" else None
        path = self.path.where(x.less(counter, number)) if self.path is not None else None
        to_global = arguments[0].type.target is not None and arguments[0].type.target.address_space == "global"
        if path is not None:
            whole, self.path = self.path, path
            for value, kind, steps in ((source, "read", not to_global), (target, "write", to_global)):
                if not isinstance(value, Pointer):
                    value = LOST
                self.count_copied(self.space(*value.targets[0].base), path, (loop,) if loop else (), size)
                for t in value.targets:
                    if t.base[0] in ("arg", "unknown"):
                        by = x.mul(x.scale(counter, size), stride if strided and steps else x.ONE)
                        self.access(t, kind, size, x.add(t.offset, by), (loop,) if loop else ())
                    elif t.base[0] == "var":
                        self.env[t.base[1]] = self.unknown_of(self.types[t.base[1]])
            self.path = whole
        return self.unknown_of(node.type)

    def count_copied(self, space: str, path: Path, loops: tuple[Loop, ...], size: int) -> None:
        """Bytes that a group copies: as if its first work-item did it alone."""
        for d in range(3):
            local = self.ids("get_local_id", d)
            there = path.where(x.equal(local, x.ZERO)) if local is not None else None
            path = there or path
        whole, self.loops = self.loops, self.loops + loops
        if space != "private":
            self.count(f"copy.{space}.bytes", size, path)
        self.loops = whole

    def atomic(self, operation: str, arguments: tuple[Node, ...], node: Node) -> Cell:
        values = [self.value(argument) for argument in arguments]
        self.here = node.start
        pointer = values[0] if values and isinstance(values[0], Pointer) else LOST
        element = arguments[0].type.target or node.type
        used = id(node) not in self.discarded
        kind = {"load": "read", "store": "write", "init": "write", "flag_clear": "write"}.get(operation, "atomic")
        self.count_access("atomic", pointer, max(element.size, 1))
        for target in pointer.targets:
            if target.base[0] == "var":
                self.env[target.base[1]] = self.unknown_of(self.types[target.base[1]])
                continue
            floating = element.base in ("float", "double", "half")
            words = f"{operation}.float" if floating else operation
            self.access(
                target,
                kind if kind != "read" else "atomic",
                max(element.size, 1),
                operation=words,
                used=used or kind == "read",
                element=element.base,
            )
        if len(values) > 1 and isinstance(values[1], Pointer):  # what was expected, of a compare and exchange
            self.anything(values[1], f"an atomic operation, line {self.line()}")
        return self.unknown_of(node.type)

    discarded: set[int]

    def image(self, name: str, arguments: tuple[Node, ...], node: Node) -> Cell:
        """Images and pipes are not arrays: which are read and written is all that is said."""
        for argument in arguments:
            if argument.type.kind not in ("image", "pipe", "sampler"):
                value = self.value(argument)
                if isinstance(value, Pointer) and "pipe" in name:
                    self.anything(value, f"{name}, line {self.line(node.start)}")
        self.here = node.start
        if name.startswith("read_image"):
            self.count("load.image")
        elif name.startswith("write_image"):
            self.count("store.image")
            self.hazards[f"writes an image, line {self.line()}"] = None
        elif "pipe" in name and not name.startswith("get_"):
            self.hazards[f"uses a pipe, line {self.line()}"] = None
        return self.unknown_of(node.type)

    def through_pointers(self, name: str, arguments: tuple[Node, ...], values: list[Cell], node: Node) -> Cell:
        """Functions that return values behind pointers, and those that are not known."""
        effects = builtins.effects(name, len(arguments))
        for position, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            if not isinstance(value, Pointer):
                continue
            effect = None if effects is None else effects.get(position)
            if name in ("printf", "prefetch", "wait_group_events", "get_fence") or effect == "-":
                continue
            whole = name in ("fract", "modf", "sincos", "frexp", "lgamma_r", "remquo")
            if whole and argument.type.target is not None:
                self.store(value, argument.type.target, OPAQUE)
            else:
                self.anything(value, f"passed to {name}, line {self.line(node.start)}")
        if effects is None and any(isinstance(v, Pointer) for v in values):
            self.hazards[f"calls {name}, of which nothing is known, line {self.line(node.start)}"] = None
        if _SPECIAL.fullmatch(name):
            self.count("special", node.type.lanes)
        return LOST if node.type.kind == "pointer" else self.unknown_of(node.type)

    def conversion(self, match: re.Match[str], argument: Node, value: Cell, type_: CType) -> Cell:
        self.count("convert", type_.lanes)
        if isinstance(value, Aggregate | Pointer):
            return self.unknown_of(type_)
        lane = lane_type(type_)
        width = integer(lane)
        if width is None:
            return self.lanewise(lambda a: self.as_float(a, argument.type, lane), value)
        if argument.type.base in FLOATING:
            made = real.INTEGERS[match.group(4) or "_rtz"]
            return self.lanewise(lambda a: self.as_integer(a, made, lane, bool(match.group(3))), value)
        if not match.group(3):
            return self.convert(value, type_)

        def saturated(a: Value) -> Value:
            return _saturate(*width, a) if isinstance(a, Expr) else self.fresh_of(lane)

        return self.lanewise(saturated, value)

    def reinterpreted(self, source: CType, value: Cell, type_: CType) -> Cell:
        ours, theirs = integer(source), integer(type_)
        if (
            ours
            and theirs
            and ours[0] == theirs[0]
            and source.lanes == type_.lanes
            and not isinstance(value, Aggregate)
        ):
            return self.convert(value, type_)
        return self.unknown_of(type_)

    def mathematics(self, name: str, arguments: tuple[Node, ...], values: list[Cell], type_: CType) -> Cell:
        bases = {a.type.base for a in arguments}
        kind = "double" if "double" in bases else "float"
        lanes = max([type_.lanes, *[a.type.lanes for a in arguments]])
        if not bases.isdisjoint(FLOATING):
            if name in ("fma", "mad"):
                self.count(f"{kind}.fma", lanes)
            elif _SPECIAL.fullmatch(name):
                self.count("special", lanes)
            elif name in ("dot", "cross"):
                self.count(f"{kind}.mul", lanes)
                self.count(f"{kind}.add", lanes)
            elif _SIMPLE_FLOAT.fullmatch(name):
                self.count(f"{kind}.simple", lanes)
            else:
                self.count(f"call.{name}" if name.startswith("is") else f"{kind}.simple", lanes)
            return self.of_floats(name, values, type_)
        if builtins.effects(name, len(arguments)) is None and name not in _INTEGER and not name.startswith("sub_group"):
            self.count("int.other", lanes)
        else:
            self.count("int.simple", lanes)
        if name in ("any", "all") and values and isinstance(values[0], Vector):
            return self.of_lanes(name, values[0])
        handler = _INTEGER.get(name) if self.concrete else _SYMBOLIC.get(name, _INTEGER.get(name))
        if handler is None or any(isinstance(v, Aggregate) for v in values):
            return self.unknown_of(type_)
        lane = lane_type(type_) if type_.kind == "vector" else type_
        if name == "select" and lane is not type_:  # of vectors: by the highest bit
            handler = _select_lane
        return self.by_lanes(lambda *row: self.integral(handler, row, lane), values, type_)

    def by_lanes(self, function: Callable[..., Value], values: list[Cell], type_: CType) -> Cell:
        """Return what a function gives of values, or, of vectors, of each of their lanes."""
        if type_.kind != "vector":
            return function(*values)
        columns = [v.lanes if isinstance(v, Vector) else (v,) * type_.lanes for v in values]
        if any(len(c) != type_.lanes for c in columns):
            return self.unknown_of(type_)
        return Vector(tuple(function(*row) for row in zip(*columns, strict=True)))

    def of_floats(self, name: str, values: list[Cell], type_: CType) -> Cell:
        """Return the value of a built-in function of floating-point numbers; unknown where it is not followed."""
        handler = real.FUNCTIONS.get(name)
        if handler is None or type_.base not in FOLLOWED:
            return self.fresh_of(type_, f"{name} of floating-point numbers, line {self.line()}")

        def lane(*numbers: Cell) -> Value:
            known = [v for v in numbers if isinstance(v, Real)]
            found = handler(self.rounding, *known) if len(known) == len(numbers) else None
            return OPAQUE if found is None or len(found.top.key) > x.LONG else found

        return self.by_lanes(lane, values, type_)

    def of_lanes(self, name: str, value: Vector) -> Cell:
        """Return whether any, or all, lanes have their highest bit set."""
        signs = [x.less(lane, x.ZERO) for lane in value.lanes if isinstance(lane, Expr)]
        if len(signs) != len(value.lanes):
            return self.fresh(0, 1, f"a condition on data, line {self.line()}")
        return x.either(*signs) if name == "any" else x.both(*signs)

    def integral(self, handler: Callable[..., Expr | None], values: Sequence[Cell], type_: CType) -> Value:
        width = integer(type_)
        numbers = [v for v in values if isinstance(v, Expr)]
        if width is None:
            return self.fresh_of(type_)
        found = handler(*width, *numbers) if len(numbers) == len(values) else None
        if found is None:
            return self.fresh(*x.type_range(*width), f"a value that is not followed, line {self.line()}")
        return self.fitted(found, *width)


def _saturate(bits: int, signed: bool, value: Expr) -> Expr:
    low, high = x.type_range(bits, signed)
    return x.minimum(x.maximum(value, x.const(low)), x.const(high))


def _mul24(bits: int, signed: bool, left: Expr, right: Expr, more: Expr = x.ZERO) -> Expr | None:
    """``mul24`` and ``mad24``: defined if the factors fit 24 bits."""
    low, high = x.type_range(24, signed)
    fits = all(low <= value.low and value.high <= high for value in (left, right))
    return x.add(x.mul(left, right), more) if fits else None


def _mul_hi(bits: int, signed: bool, left: Expr, right: Expr, more: Expr = x.ZERO) -> Expr | None:
    high = x.divide(x.mul(left, right), x.const(1 << bits), floor=True)
    return None if high is None else x.add(high, more)


def _select_lane(bits: int, signed: bool, no: Expr, yes: Expr, chosen: Expr) -> Expr:
    highest = x.const(1 << bits - 1)
    return x.select(x.either(x.less(chosen, x.ZERO), x.less(x.add(highest, x.const(-1)), chosen)), yes, no)


def _rotate(bits: int, signed: bool, value: Expr, by: Expr) -> Expr | None:
    if signed or by.op != "const":
        return None
    amount = by.value % bits
    low = x.remainder(value, x.const(1 << bits - amount), floor=True)
    high = x.divide(value, x.const(1 << bits - amount), floor=True)
    return None if low is None or high is None else x.add(x.scale(low, 1 << amount), high)


_INTEGER: dict[str, Callable[..., Expr | None]] = {
    "rotate": _rotate,
    "upsample": lambda bits, signed, high, low: x.add(x.scale(high, 1 << bits // 2), low),
    "min": lambda bits, signed, a, b: x.minimum(a, b),
    "max": lambda bits, signed, a, b: x.maximum(a, b),
    "clamp": lambda bits, signed, value, low, high: x.minimum(x.maximum(value, low), high),
    "abs": lambda bits, signed, value: x.maximum(value, x.scale(value, -1)),
    "abs_diff": lambda bits, signed, a, b: x.subtract(x.maximum(a, b), x.minimum(a, b)),
    "add_sat": lambda bits, signed, a, b: _saturate(bits, signed, x.add(a, b)),
    "sub_sat": lambda bits, signed, a, b: _saturate(bits, signed, x.subtract(a, b)),
    "mul24": _mul24,
    "mad24": _mul24,
    "hadd": lambda bits, signed, a, b: x.divide(x.add(a, b), x.const(2), floor=True),
    "rhadd": lambda bits, signed, a, b: x.divide(x.add(a, b, x.ONE), x.const(2), floor=True),
    "mul_hi": _mul_hi,
    "mad_hi": _mul_hi,
    "select": lambda bits, signed, no, yes, chosen: x.select(x.truth(chosen), yes, no),
}

#: what is written for any launch: as for conversions, no operand is taken to be too long
_SYMBOLIC: dict[str, Callable[..., Expr | None]] = {
    "mul24": lambda bits, signed, a, b: x.mul(a, b),
    "mad24": lambda bits, signed, a, b, c: x.add(x.mul(a, b), c),
}
