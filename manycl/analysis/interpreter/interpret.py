"""``interpret``: one abstract run of a kernel, for any launch (symbolic) or for a given one (concrete).
``interpret_any``: one for any launch, as exact as for a given one."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from manycl.analysis.facts import KernelFacts
from manycl.analysis.interpreter.abstract import Frame, Unanalysable
from manycl.analysis.interpreter.loops import Loops, Parts
from manycl.analysis.interpreter.values import FOLLOWED, OPAQUE, Aggregate, Cell, Value, Vector, at, integer, lane_type
from manycl.analysis.known_launch import LARGEST, KnownLaunch, parameter
from manycl.analysis.reading.tree import CType, Function, Node, Unit
from manycl.analysis.summary import Computed, KernelSummary, Loop, MemoryAccess, Operated, Origin
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr
from manycl.analysis.symbolic.real import of_float
from manycl.utilities.kept import MANY, Kept
from manycl.utilities.unforeseen import told


class _AbstractRun(Loops):
    def __init__(self, unit: Unit, facts: KernelFacts, launch: KnownLaunch | None) -> None:
        super().__init__(unit, concrete=launch is not None)
        self.facts = facts
        self.launch = launch
        self.floats = launch is not None and not unit.loose
        self.first = len(facts.arguments)
        self.tables: dict[int, Cell] = {}
        self.discarded: set[int] = set()
        self.assigned_refs: dict[int, frozenset[int]] = {}
        self.plain_bodies: dict[int, bool] = {}
        self.constants: dict[int, bool] = {}
        self.blocks: dict[int, tuple[Node, ...]] = {}
        self.cached_ids: dict[tuple[str, int], Expr | None] = {}
        shared = {*launch.same, *launch.same.values(), *launch.overlapping} if launch else set()
        self.read_only = frozenset(
            a.index for a in facts.arguments if a.kind == "buffer" and not a.writes and a.index not in shared
        )
        self.dimensions = len(launch.global_size) if launch else 3

    def element_bounds(self, argument: int, bits: int, signed: bool) -> tuple[int, int]:
        low, high = x.type_range(bits, signed)
        if self.launch is not None and argument in self.launch.values:
            least, below = self.launch.values[argument]
            return max(low, least), min(high, max(below - 1, least))
        return low, high

    def fitted(self, value: Expr, bits: int, signed: bool) -> Expr:
        result = super().fitted(value, bits, signed)
        if result is not value and result.op == "var":
            self.origins[result.key] = Computed(self.origins[result.key].reason, value=value)
        return result

    def space(self, base: str, index: int) -> str:
        return self.facts.arguments[index].address_space if base == "arg" else super().space(base, index)

    # -- queries of the NDRange

    def ids(self, name: str, dimension: int) -> Expr | None:
        key = name, dimension
        if key not in self.cached_ids:
            self.cached_ids[key] = (
                self.symbolic(name, dimension) if self.launch is None else self.known(name, dimension)
            )
        return self.cached_ids[key]

    def symbolic(self, name: str, d: int) -> Expr | None:
        if name == "get_work_dim":
            return x.var("work_dim", 1, 3)
        if d > 2 or d < 0:
            return x.ZERO if name in ("get_global_id", "get_local_id", "get_group_id", "get_global_offset") else x.ONE
        short = {
            "get_global_id": (f"gid{d}", 0),
            "get_local_id": (f"lid{d}", 0),
            "get_group_id": (f"grp{d}", 0),
            "get_global_offset": (f"goff{d}", 0),
            "get_global_size": (f"gsz{d}", 1),
            "get_local_size": (f"lsz{d}", 1),
            "get_enqueued_local_size": (f"lsz{d}", 1),
            "get_num_groups": (f"ngrp{d}", 1),
            "get_global_linear_id": ("glin", 0),
            "get_local_linear_id": ("llin", 0),
        }.get(name)
        return None if short is None else x.var(short[0], short[1], LARGEST)

    def known(self, name: str, d: int) -> Expr | None:
        launch = self.launch
        assert launch is not None
        if name == "get_work_dim":
            return x.const(self.dimensions)
        if name == "get_global_linear_id":
            return self.linear(
                [x.subtract(self.global_id(i), x.const(launch.start(i))) for i in range(3)], launch.global_size
            )
        if name == "get_local_linear_id":
            return self.linear([self.local_id(i) for i in range(3)], launch.local_size)
        if d >= self.dimensions or d < 0:
            if name in ("get_global_id", "get_local_id", "get_group_id", "get_global_offset"):
                return x.ZERO if d < 3 else self.fresh(0, 1)
            return x.ONE if d < 3 else self.fresh(0, 1)
        size, local = launch.global_size[d], launch.local_size[d]
        if name == "get_global_id":
            return self.global_id(d)
        if name == "get_local_id":
            return self.local_id(d)
        if name == "get_group_id":
            return self.group_id(d)
        if name == "get_local_size":
            rest = size % local
            if rest == 0:
                return x.const(local)
            return x.select(x.equal(self.group_id(d), x.const(launch.groups(d) - 1)), x.const(rest), x.const(local))
        return {
            "get_global_offset": x.const(launch.start(d)),
            "get_global_size": x.const(size),
            "get_enqueued_local_size": x.const(local),
            "get_num_groups": x.const(launch.groups(d)),
        }.get(name)

    def group_id(self, d: int) -> Expr:
        assert self.launch is not None
        return x.var(f"grp{d}", 0, self.launch.groups(d) - 1)

    def local_id(self, d: int) -> Expr:
        assert self.launch is not None
        if d >= self.dimensions:
            return x.ZERO
        return x.var(f"lid{d}", 0, min(self.launch.local_size[d], self.launch.global_size[d]) - 1)

    def global_id(self, d: int) -> Expr:
        launch = self.launch
        assert launch is not None
        if d >= self.dimensions:
            return x.ZERO
        inner = x.add(x.scale(self.group_id(d), launch.local_size[d]), self.local_id(d))
        return x.add(inner, x.const(launch.start(d)))

    @staticmethod
    def linear(ids: list[Expr], sizes: Sequence[int]) -> Expr:
        wide = [*sizes, 1, 1]
        return x.add(ids[0], x.scale(x.add(ids[1], x.scale(ids[2], wide[1])), wide[0]))

    # -- the kernel

    def run(self, function: Function) -> None:
        self.frames.append(Frame(function.ref))
        for index, node in enumerate(function.parameters):
            self.declare(node.ref, node.type, self.argument(index, node.name, node.type))
        if self.launch is not None:
            self.cut_last_group()
        self.run_body(function)

    def cut_last_group(self) -> None:
        """A local size that does not divide the global one leaves the last group short."""
        assert self.launch is not None
        for d in range(self.dimensions):
            if self.launch.global_size[d] % self.launch.local_size[d] and self.path is not None:
                end = x.const(self.launch.global_size[d] + self.launch.start(d))
                self.path = self.path.where(x.less(self.global_id(d), end))

    def argument(self, index: int, name: str, type_: CType) -> Cell:
        if type_.kind == "pointer":
            space = type_.target.address_space if type_.target is not None else ""
            if space in ("global", "constant"):
                return at(("arg", index))
            return at(("local", -index - 1)) if space == "local" else self.fresh_of(type_)
        if self.launch is not None and index in self.launch.parameters:
            return x.var(parameter(index), *self.launch.parameters[index])
        data = self.launch.scalars.get(index) if self.launch is not None else None
        if type_.kind in ("record", "union"):
            return Aggregate({}, data) if data is not None else Aggregate({}, None, name)
        width = integer(type_)
        is_known = width is not None or (self.floats and data is not None and type_.base in FOLLOWED)
        if type_.kind in ("image", "sampler", "pipe", "opaque", "other") or not is_known:
            return self.fresh_of(type_)
        if type_.kind == "vector":
            lane = lane_type(type_)
            return Vector(
                tuple(
                    self.scalar_argument(
                        None if data is None else data[i * lane.size : (i + 1) * lane.size], f"{name}.s{i:x}", lane
                    )
                    for i in range(type_.lanes)
                )
            )
        return self.scalar_argument(data, name, type_)

    def scalar_argument(self, data: bytes | None, name: str, type_: CType) -> Value:
        if data is not None and type_.base in FOLLOWED:
            (number,) = struct.unpack("<f" if type_.base == "float" else "<d", data[: type_.size])
            return of_float(number) or OPAQUE
        bits, signed = integer(type_) or (32, True)
        if data is None:
            low, high = x.type_range(bits, signed)
            taken = name in self.names or name[:3] in ("gid", "lid", "grp")
            return x.var(self.name(f"{name}_" if taken else name), low, high)
        kind = {1: "b", 2: "h", 4: "i", 8: "q"}[type_.size]
        (value,) = struct.unpack("<" + (kind if signed else kind.upper()), data[: type_.size])
        return x.const(value)


class _AnyLaunch(_AbstractRun):
    """The abstract run of whatever launch, as C computes: ids, sizes and scalars are variables, named as no variable of
    a kernel is. What operations make of them that have no form of their own is said by origins (:class:`Operated`)."""

    def __init__(self, unit: Unit, facts: KernelFacts) -> None:
        super().__init__(unit, facts, None)
        self.concrete = True

    def symbolic(self, name: str, d: int) -> Expr | None:
        found = super().symbolic(name, d)
        if found is None or found.op != "var":
            return found
        return x.var(f"[{found.key}]", found.low, found.high)

    def argument(self, index: int, name: str, type_: CType) -> Cell:
        return super().argument(index, parameter(index), type_)

    def unrolled(self, parts: Parts) -> bool:
        return False  # how often, only launches say

    def lane(self, op: str, left: Value, right: Value, type_: CType) -> Value:
        known = self.names.get("?", 0)
        result = super().lane(op, left, right, type_)
        width = integer(type_)
        if isinstance(left, Expr) and isinstance(right, Expr) and isinstance(result, Expr) and width is not None:
            origin = self.origins.get(result.key)
            if self.names.get("?", 0) > known and type(origin) is Origin:
                self.origins[result.key] = Operated(
                    origin.reason, operator=op, left=left, right=right, bits=width[0], signed=width[1]
                )
        return result


def interpret(unit: Unit, facts: KernelFacts, launch: KnownLaunch | None = None) -> KernelSummary:
    """Run kernel ``facts.name`` abstractly. Never raises: what cannot be followed is the summary's ``failure``."""
    return _summary(unit, facts, lambda: _AbstractRun(unit, facts, launch))


def interpret_any(unit: Unit, facts: KernelFacts) -> KernelSummary:
    """Return the summary of all launches of a kernel at once, for :mod:`manycl.analysis.regions.enclosure`: ids, sizes
    and scalars are the variables that it names. Raises as :func:`interpret`."""
    return _summary(unit, facts, lambda: _AnyLaunch(unit, facts))


def _summary(unit: Unit, facts: KernelFacts, begun: Callable[[], _AbstractRun]) -> KernelSummary:
    run = None
    try:
        run = begun()
        return _followed(run)
    except Unanalysable as found:
        failure = str(found)
    except RecursionError:
        failure = "it is nested too deeply"
    except x.TooLargeError:
        failure = f"it computes something that takes more than {x.LONGEST} characters to write"
    except Exception as error:
        failure = told(error, f"the analysis of kernel {facts.name}")
    ordered = _has(unit, facts, _ORDERING, _ATOMICS)
    return KernelSummary(facts.name, failure=failure, steps=run.steps if run is not None else 0, ordered=ordered)


def _followed(run: _AbstractRun) -> KernelSummary:
    facts, launch = run.facts, run.launch
    run.run(run.unit.kernel(facts.name))
    accesses = [a for a in run.accesses if a.argument >= -1]
    own = [replace(a, argument=-2 - a.argument) for a in run.accesses if a.argument < -1]
    if launch is not None:
        accesses = [_annotated(access, facts, launch) for access in accesses]
    return KernelSummary(
        facts.name,
        tuple(accesses),
        run.origins,
        run.places(),
        tuple(run.all_loops),
        tuple(run.hazards),
        run.barriers,
        steps=run.steps,
        own=tuple(own),
        arrays=tuple(run.arrays.values()),
        ordered=_has(run.unit, facts, _ORDERING),
    )


_ORDERING = rb"\bvolatile\b|mem_fence\s*\(|atomic_work_item_fence"
"""A pattern of the source text that may order accesses of different work-groups, beside atomic operations."""
_ATOMICS = rb"\batom"


def _has(unit: Unit, facts: KernelFacts, *patterns: bytes) -> bool:
    """Return whether a pattern occurs in a program's source, without the functions that a kernel does not call."""
    key = unit.text, facts.name, patterns
    if (found := _known.get(key)) is None:
        kernels = [f for f in unit.functions.values() if f.is_kernel and f.name == facts.name]
        called = {f.ref for kernel in kernels for f in unit.reachable(kernel)}
        others = [(f.start, f.end) for f in unit.functions.values() if f.ref not in called]
        text = bytearray(unit.text)
        for start, end in (*others, *unit.unused.values()):
            text[start:end] = b" " * (end - start)
        found = _known.keep(key, any(re.search(pattern, text) for pattern in patterns))
    return found


_known: Kept[tuple[bytes, str, tuple[bytes, ...]], bool] = Kept(MANY)


def _annotated(access: MemoryAccess, facts: KernelFacts, launch: KnownLaunch) -> MemoryAccess:
    """The access; where only data decide what it touches, all that a work-item may touch by the user's promise."""
    kinds = ("write", "read") if access.kind == "atomic" else (access.kind,)
    bounds = next((b for kind in kinds if (b := launch.within.get((access.argument, kind)))), None)
    if bounds is None or access.operation == "unknown" or not _on_data(access):
        return access
    element = facts.arguments[access.argument]
    trips = x.maximum(x.subtract(bounds[1], bounds[0]), x.ZERO)
    counter = x.var("[within]", 0, max(trips.high - 1, 0))
    condition = x.both(*(part for part in access.condition.parts if not part.unknown), x.less(counter, trips))
    reason = f"annotated: within {element.name}, line {access.line}"
    loop = Loop("[within]", trips, False, access.line, reason)
    offset = x.scale(x.add(bounds[0], counter), element.size)
    return replace(access, offset=offset, size=element.size, condition=condition, loops=(*access.loops, loop))


def _on_data(access: MemoryAccess) -> bool:
    """Return whether values that are not known decide which bytes an access touches."""
    names = access.offset.variables()
    loops = [loop for loop in access.loops if loop.name in names]
    return access.offset.unknown or any(loop.trips is None or loop.trips.unknown or not loop.exact for loop in loops)
