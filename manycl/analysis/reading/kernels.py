"""Facts of a program from its tree: the arguments of each kernel, their directions, what the kernel uses, and which
floating-point arguments decide its accesses (become integers or are compared, not computed with data)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from manycl.analysis.facts import FLOATS, SHARED, ArgumentFacts, KernelFacts
from manycl.analysis.reading import builtins
from manycl.analysis.reading.directions import ASSEMBLY, barriers, summaries
from manycl.analysis.reading.points_to import FunctionSummary, Location
from manycl.analysis.reading.tree import CType, Function, Node, Unit, callee
from manycl.analysis.symbolic.real import FUNCTIONS

_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=")
_FOLLOWED = re.compile(rf"get_\w+|convert_\w+|{'|'.join(FUNCTIONS)}")
_LOADS = ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR", "COMPOUND_ASSIGNMENT_OPERATOR")


def steering(unit: Unit, kernel: Function, functions: Iterable[Function]) -> frozenset[int]:
    """Return these arguments of a kernel, by their place; ``functions``: it, and what it may call. An argument that is
    missing is one that the analysis need not be told."""
    flow = _Flow(unit, kernel, list(functions))
    return frozenset().union(*(flow.sources(node) or () for node in flow.uses()))


class _Flow:
    """The flow of values between the variables of a kernel, without the order of its statements."""

    def __init__(self, unit: Unit, kernel: Function, functions: list[Function]) -> None:
        self._unit, self._functions = unit, functions
        self._places = {node.ref: place for place, node in enumerate(kernel.parameters)}
        self._made: dict[int, list[Node]] = {}  # of variables, parameters and results of functions, by declaration
        self._sources: dict[int, frozenset[int] | None] = {}
        for function in functions:
            for node in function.nodes:
                self._note(function, node)

    def _note(self, function: Function, node: Node) -> None:
        if node.kind == "VAR_DECL" and node.children:
            self._made.setdefault(node.ref, []).append(node.children[-1])
        elif (node.op == "=" or node.kind == "COMPOUND_ASSIGNMENT_OPERATOR") and node.children[
            0
        ].kind == "DECL_REF_EXPR":
            self._made.setdefault(node.children[0].ref, []).append(node.children[1])
        elif node.kind == "RETURN_STMT" and node.children:
            self._made.setdefault(function.ref, []).append(node.children[0])
        elif (called := self._called(node)) is not None:
            for parameter, argument in zip(called.parameters, node.children[1:], strict=False):
                self._made.setdefault(parameter.ref, []).append(argument)

    def _called(self, node: Node) -> Function | None:
        return self._unit.functions.get(callee(node).ref)

    def uses(self) -> Iterable[Node]:
        """Yield the expressions that turn floating-point numbers into integers or conditions."""
        for function in self._functions:
            for node in function.nodes:
                made_integer = node.type.kind in ("int", "bool", "vector") and not _is_floating(node.type)
                compares = node.op in _COMPARISONS or node.kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "CALL_EXPR")
                tested = node.kind in ("IF_STMT", "CONDITIONAL_OPERATOR") and _is_floating(node.children[0].type)
                if (made_integer and compares and any(_is_floating(c.type) for c in node.children)) or tested:
                    yield node.children[0] if tested else node

    def sources(self, node: Node) -> frozenset[int] | None:
        """The arguments that a value is made of; None where data, or a loop, have a part in it."""
        if node.kind == "DECL_REF_EXPR":
            return self._of(node.ref) if node.ref else frozenset()
        if node.kind in _LOADS or (node.kind == "UNARY_OPERATOR" and node.op in ("*", "++", "--", "x++", "x--")):
            return None
        called = self._called(node)
        if node.kind == "CALL_EXPR" and called is None and not _FOLLOWED.fullmatch(callee(node).name):
            return None
        found: frozenset[int] = frozenset()
        parts = [self._of(called.ref)] if called is not None else [self.sources(child) for child in node.children]
        for part in parts:
            if part is None:
                return None
            found |= part
        return found

    def _of(self, ref: int) -> frozenset[int] | None:
        if ref in self._places:
            return None if ref in self._made else frozenset([self._places[ref]])
        if ref not in self._sources:
            self._sources[ref] = None  # what is made of itself
            found: frozenset[int] | None = frozenset()
            for node in self._made.get(ref, ()):
                part = self.sources(node)
                found = None if found is None or part is None else found | part
            self._sources[ref] = found
        return self._sources[ref]


def _is_floating(type_: CType) -> bool:
    return type_.kind in ("float", "vector") and type_.base in FLOATS


_KINDS = {"image": "image", "pipe": "pipe", "sampler": "sampler", "opaque": "other", "other": "other"}


def kernel_facts(unit: Unit) -> dict[str, KernelFacts]:
    """The facts of every kernel, by name, in the order of the source."""
    known = summaries(unit)
    kernels = [function for function in unit.functions.values() if function.is_kernel]
    return {kernel.name: _kernel(unit, kernel, known) for kernel in kernels}


def shared_variables(unit: Unit) -> tuple[str, ...]:
    """A warning for each variable through which kernels may pass data without having it as an argument."""
    found = [node for node in unit.variables.values() if node.type.address_space == "global"]
    for function in unit.functions.values():
        found += [n for n in function.nodes if n.kind == "VAR_DECL" and n.type.address_space == "global"]
    places = [(node, *unit.place(node.start)) for node in found if not node.type.const]
    return tuple(f"{path}:{line}: warning: variable {node.name} {SHARED}" for node, path, line in places)


def _kernel(unit: Unit, kernel: Function, known: Mapping[int, FunctionSummary]) -> KernelFacts:
    summary = known[kernel.ref]
    stored = {address for _, address in summary.stores}
    anywhere = _lost(summary.escapes)
    lost_reads = _lost(summary.reads) or anywhere
    lost_writes = _lost(summary.writes) or anywhere
    functions = list(unit.reachable(kernel))
    steer = steering(unit, kernel, functions)
    arguments = tuple(
        replace(
            _argument(i, node, summary, ("param", i) in stored, lost_reads, lost_writes),
            steers=i in steer and node.type.base in FLOATS,
        )
        for i, node in enumerate(kernel.parameters)
    )
    group = kernel.required_work_group
    asked = max((_dimensions(function) for function in functions), default=1)
    sees, sees_shared = _sees_groups(unit, kernel, arguments, functions, known)
    if group:
        asked = max(asked, max(d + 1 for d in range(3) if group[d] > 1 or d == 0))
    return KernelFacts(
        name=kernel.name,
        line=unit.place(_name_offset(unit, kernel))[1],
        arguments=arguments,
        dimensions=asked,
        required_work_group=group,
        uses_barrier=any(builtins.synchronises(name) for f in functions for name, _ in _calls(unit, f)),
        uses_double=any(_uses_double(unit, function) for function in functions),
        local_bytes=sum(n.type.size for f in functions for n in f.nodes if _is_local(n)),
        sees_groups=sees,
        sees_groups_shared=sees_shared,
        prints=any(name == "printf" for f in functions for name, _ in _calls(unit, f)),
        extensions=tuple(sorted({name for function in functions for name in _extensions(unit, function)})),
    )


def _sees_groups(
    unit: Unit,
    kernel: Function,
    arguments: Sequence[ArgumentFacts],
    functions: Sequence[Function],
    known: Mapping[int, FunctionSummary],
) -> tuple[str, str]:
    """By what a kernel may tell how its work-items are grouped, in any case, and where a buffer that it writes is
    another argument as well; empty: by nothing."""
    home = unit.place(kernel.start)[0]

    def line(offset: int) -> str:
        path, number = unit.place(offset)
        return f"line {number}" if path == home else f"line {number} of {os.path.basename(path)}"

    for argument in arguments:
        if argument.kind == "local":
            return f"argument {argument.name or argument.index} is local memory", ""
    for function in functions:
        if ASSEMBLY.search(unit.text, function.start, function.end):
            return f"{line(function.start)} has assembly", ""
        for node in function.nodes:
            if node.kind == "VAR_DECL" and node.type.address_space == "local":
                return f"{line(node.start)} has local memory", ""
    needless, shared = barriers(unit, kernel, known), ""
    for function in functions:
        for node in function.nodes:
            target = callee(node)
            if target.ref in unit.declared or not builtins.sees_groups(target.name):
                continue
            words = f"{line(node.start)} calls {target.name}"
            if function is not kernel or node.start not in needless:
                return words, ""
            if needless[node.start]:
                shared = shared or words
    return "", shared


def _lost(locations: Iterable[Location]) -> str:
    """Why some accesses may go anywhere, or nothing."""
    for kind, why in sorted(locations, key=str):
        if kind == "unknown":
            return str(why)
        if kind in ("reach", "deep"):
            return "a pointer loaded from an argument's memory"
    return ""


def _argument(
    index: int, node: Node, summary: FunctionSummary, stored: bool, lost_reads: str, lost_writes: str
) -> ArgumentFacts:
    type_ = node.type
    name = node.name
    if type_.kind == "pointer" and type_.target is not None:
        target, space = type_.target, type_.target.address_space
        kind = "local" if space == "local" else "buffer" if space in ("global", "constant") else "other"
        const = target.const or space == "constant"
        element, base, lanes, size = target.name, target.base, target.lanes, target.size
    else:
        kind = _KINDS.get(type_.kind, "scalar")
        space = "global" if kind in ("image", "pipe") else "private"
        const = False
        element, base, lanes, size = type_.name, type_.base, type_.lanes, type_.size
    if kind not in ("buffer", "image", "pipe"):
        return ArgumentFacts(index, name, kind, element, base, lanes, size, space, const)
    here = ("param", index)
    reads, writes = here in summary.reads, here in summary.writes
    widened = summary.escapes.get(here, "") or ("its address is stored in memory" if stored else "")
    may_read, may_write = _allowed(type_)
    all_reads = reads or bool(widened or lost_reads)
    all_writes = writes or bool(widened or lost_writes)
    all_reads, all_writes = all_reads and may_read, all_writes and may_write
    reason = ""
    if (all_reads, all_writes) != (reads and may_read, writes and may_write):
        reason = widened or lost_writes or lost_reads
    elif kind == "pipe" and all_reads and all_writes:
        reason = "reading and writing a pipe both depend on its packets and change them"
    return ArgumentFacts(index, name, kind, element, base, lanes, size, space, const, all_reads, all_writes, reason)


def _allowed(type_: CType) -> tuple[bool, bool]:
    """Return whether the language lets the argument be read, and written, at all."""
    if type_.kind == "image":
        return type_.access != "write_only", type_.access != "read_only"
    if type_.kind == "pointer" and type_.target is not None and type_.target.address_space == "constant":
        return True, False
    return True, True


def _calls(unit: Unit, function: Function) -> Iterator[tuple[str, tuple[Node, ...]]]:
    """Calls of functions that the program does not declare itself: (name, arguments)."""
    for node in function.nodes:
        target = callee(node)
        if target.name and target.ref not in unit.declared:
            yield target.name, node.children[1:]


def _dimensions(function: Function) -> int:
    highest = 1
    for node in function.nodes:
        if not builtins.asks_dimension(callee(node).name) or len(node.children) != 2:
            continue
        argument = node.children[1]
        while argument.kind in ("UNEXPOSED_EXPR", "PAREN_EXPR", "CSTYLE_CAST_EXPR") and argument.children:
            argument = argument.children[-1]
        value = argument.value if argument.kind == "INTEGER_LITERAL" else None
        highest = max(highest, 3 if value is None else min(value + 1, 3))
    return highest


def _uses_double(unit: Unit, function: Function) -> bool:
    """Return whether a double is computed with; a literal at once made a float is none, nor a float passed to
    printf."""
    if any(_is_double(node.type) for node in function.parameters) or _is_double(function.result):
        return True
    pending = [function.body]
    while pending:
        node = pending.pop()
        children = list(node.children)
        if node.kind == "UNEXPOSED_EXPR" and not _is_double(node.type):
            children = [child for child in children if child.kind != "FLOATING_LITERAL"]
        if node.kind == "CALL_EXPR":
            target = callee(node)
            if target.name == "printf" and target.ref not in unit.declared:
                children = [_unpromoted(child) for child in children[1:]]
        elif _is_double(node.type):
            return True
        if node.kind == "CALL_EXPR" and _is_double(node.type):
            return True
        pending.extend(children)
    return False


def _extensions(unit: Unit, function: Function) -> Iterator[str]:
    """Yield the extensions that a function cannot be built without: of arithmetic in ``half`` (values that are only
    loaded and stored by vload_half and the like need none), and of atomic operations on 64 bits."""
    for node in function.nodes:
        if node.kind in _VALUES and node.type.base == "half" and node.type.target is None:
            yield "cl_khr_fp16"
    for name, arguments in _calls(unit, function):
        target = arguments[0].type.target if name.startswith("atom_") and arguments else None
        if target is not None and target.base in ("long", "ulong"):
            yield f"cl_khr_int64_{'base' if name[5:] in _BASE else 'extended'}_atomics"


_VALUES = ("VAR_DECL", "PARM_DECL", "UNEXPOSED_EXPR", "BINARY_OPERATOR", "COMPOUND_ASSIGNMENT_OPERATOR", "CALL_EXPR")
_BASE = ("add", "sub", "xchg", "inc", "dec", "cmpxchg")


def _unpromoted(node: Node) -> Node:
    promoted = node.kind == "UNEXPOSED_EXPR" and _is_double(node.type) and len(node.children) == 1
    return node.children[0] if promoted and not _is_double(node.children[0].type) else node


def _is_double(type_: CType) -> bool:
    while type_.target is not None:
        type_ = type_.target
    return type_.base == "double"


def _is_local(node: Node) -> bool:
    return node.kind == "VAR_DECL" and node.type.address_space == "local"


def _name_offset(unit: Unit, kernel: Function) -> int:
    """Return where the kernel's name stands: attributes before it may be on lines of their own."""
    position = unit.text.find(kernel.name.encode(), kernel.start, kernel.body.start)
    return position if position >= 0 else kernel.start
