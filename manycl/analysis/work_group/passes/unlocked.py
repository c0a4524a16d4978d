"""Atomic operations that need not be atomic: on local memory, as one thread runs all of a group, and on memory that a
kernel only counts in, of which each thread has a copy of its own meanwhile (the privatisation of a reduction).

An argument is *counted in* if all that a kernel does with it is one kind of atomic operation whose results nobody uses:
in whatever order and in whatever parts that is done, the same comes of it. What else the kernel is given must not
overlap that memory, which is for the driver to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from manycl.analysis.reading.tree import LOOPS, CType, Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import appended

PREFIX = "manycl_unlocked_"
"""Before the names of atomic operations: built-in functions that do the same without locking anything."""
_ATOMIC = re.compile(r"atom(?:ic)?_(add|sub|xchg|inc|dec|cmpxchg|min|max|and|or|xor)")
_FEW = 512
"""Elements of a copy that is worth its making, whatever is counted in it; of larger ones, half the work-items."""
_SUMS = {"add", "sub", "inc", "dec"}
_UNITED = {"min", "max", "and", "or", "xor"}
_LEAST = {"int": "(-0x7fffffff - 1)", "long": "(-0x7fffffffffffffffL - 1)", "uint": "0u", "ulong": "0ul"}
_MOST = {"int": "0x7fffffff", "long": "0x7fffffffffffffffL", "uint": "~0u", "ulong": "~0ul"}


class CountedArgument(NamedTuple):
    """An argument that is counted in: its number and name, its elements' type, the operation that puts copies together
    (``add``), the names of the functions that are called."""

    argument: int
    name: str
    element: str
    operation: str
    called: tuple[str, ...]

    @property
    def first(self) -> str:
        """What an element of a copy is before anything is counted: what changes nothing."""
        if self.operation == "and":
            return f"({self.element})-1"
        return {"min": _MOST, "max": _LEAST}.get(self.operation, dict.fromkeys(_MOST, "0"))[self.element]


class Unlocked:
    """Of a kernel and the functions that it reaches."""

    def __init__(self, unit: Unit, kernel: Function, reached: Mapping[int, Function]) -> None:
        self.unit = unit
        functions = (kernel, *reached.values())
        self._local = {id(node) for function in functions for node in function.nodes if self._is_on_local(node)}
        self.counted: tuple[CountedArgument, ...] = ()
        self._calls: dict[int, int] = {}  # of counting: in which argument
        if not any(_uses_memory_as_pointers(function) for function in functions):
            self._find_counted(kernel)
        changed = self._local | self._calls.keys()
        self.nodes = frozenset(changed)
        """The calls that are made otherwise, by identity: not by several work-items at the same time."""
        self.functions = frozenset(f.ref for f in reached.values() if any(id(node) in changed for node in f.nodes))
        """Those that have such calls."""

    def edits(self, node: Node, at: str) -> Iterator[tuple[int, int, str]]:
        """Of a call, if it is made otherwise; ``at`` reads a member of the group."""
        named = callee(node)
        if id(node) not in self.nodes:
            return
        if id(node) in self._local:
            yield named.start, named.end, PREFIX + named.name
        else:
            number = self._calls[id(node)]
            yield named.start, named.end, f"@count{number}_{named.name}"
            yield appended(self.unit, named.end, node.end - 1, f"{at}own[{number}]")

    def declarations(self) -> str:
        """The functions that count: in a copy, if there is one."""
        found = []
        for number, counted in enumerate(self.counted):
            for name in counted.called:
                value, given = ("", "p") if name.endswith(("inc", "dec")) else (f"{counted.element} x, ", "p, x")
                found.append(
                    f"static inline __attribute__((always_inline)) void @count{number}_{name}"
                    f"(volatile {counted.element} *p, {value}ulong own) {{\n"
                    f"  if (own) {PREFIX}{name}(({counted.element} *){given}); else {name}({given});\n}}\n"
                )
        return "".join(found)

    @property
    def members(self) -> str:
        """Of a group: how many elements each copy has."""
        return f" ulong own[{len(self.counted)}];" if self.counted else ""

    def before(self, arguments: int) -> str:
        """What an entry does first; ``arguments``: of the kernel. Copies lie at the beginning of the frame."""
        if not self.counted:
            return ""
        text = (
            "  ulong own_at = 0, own_items = (end - first) * r->local_size[0] * r->local_size[1] * r->local_size[2];\n"
        )
        for number, (index, name, element, *_) in enumerate(self.counted):
            first = self.counted[number].first
            text += (
                f"  {element} *own{number} = (({element} *)((const struct @a{index} *)args[{index}])->{name});\n"
                f"  const ulong own_bytes{number} = manycl_own(*(const ulong *)args[{arguments + number}]);\n"
                f"  w.own[{number}] = own_bytes{number} / sizeof({element});\n"
                f"  if (w.own[{number}] > own_items / 2 && w.own[{number}] > {_FEW}) w.own[{number}] = 0;\n"
                f"  if (w.own[{number}]) {{\n    own{number} = ({element} *)(frame + own_at);\n"
                f"    for (ulong i = 0; i < w.own[{number}]; i++) own{number}[i] = {first};\n  }}\n"
                f"  own_at += (own_bytes{number} + 63) / 64 * 64;\n"
            )
        return text

    def behind(self) -> str:
        """What an entry does last."""
        text = ""
        for number, counted in enumerate(self.counted):
            index, name, element, operation, _ = counted
            text += (
                f"  for (ulong i = 0; i < w.own[{number}]; i++)\n    if (own{number}[i] != {counted.first}) "
                f"atomic_{operation}(({element} *)((const struct @a{index} *)args[{index}])->{name} + i,"
                f" own{number}[i]);\n"
            )
        return text

    def _is_on_local(self, node: Node) -> bool:
        operation = self._operation(node)
        if not operation or len(node.children) < 2:
            return False
        type_ = stripped(node.children[1]).type
        target = type_.target
        if target is None or not _is_integer(target, operation == "xchg"):
            return False
        return "local" in (target.address_space, type_.address_space if type_.kind == "array" else "")

    def _operation(self, node: Node) -> str:
        """Which atomic operation a call is, "" if none."""
        named = callee(node)
        if named.ref in self.unit.declared or self.unit.words(named) != named.name:
            return ""
        match = _ATOMIC.fullmatch(named.name)
        return match[1] if match is not None and self.unit.text[node.end - 1 : node.end] == b")" else ""

    def _find_counted(self, kernel: Function) -> None:
        dropped = {id(stripped(node)) for node in _statements(kernel)}
        calls: dict[int, list[Node]] = {}  # by the parameter that is counted in
        bases: set[int] = set()  # references to it there
        for node in kernel.nodes:
            base = _base(node.children[1]) if self._operation(node) and id(node) in dropped else None
            if base is not None:
                calls.setdefault(base.ref, []).append(node)
                bases.add(id(base))
        for node in kernel.nodes:
            if node.kind == "DECL_REF_EXPR" and node.ref in calls and id(node) not in bases:
                del calls[node.ref]
        found = [self._counted(index, calls.get(p.ref, []), p) for index, p in enumerate(kernel.parameters)]
        self.counted = tuple(counted for counted in found if counted is not None)
        for number, counted in enumerate(self.counted):
            for call in calls[kernel.parameters[counted.argument].ref]:
                self._calls[id(call)] = number

    def _counted(self, index: int, calls: list[Node], parameter: Node) -> CountedArgument | None:
        target = parameter.type.target
        if not calls or target is None or target.address_space != "global" or not _is_integer(target):
            return None
        operations = {self._operation(call) for call in calls}
        one = "add" if operations <= _SUMS else operations.pop() if len(operations) == 1 else ""
        if (one != "add" and one not in _UNITED) or any(
            function.name == f"atomic_{one}" for function in self.unit.functions.values()
        ):
            return None
        names = tuple(sorted({callee(call).name for call in calls}))
        return CountedArgument(index, parameter.name, target.name, one, names)


def _is_integer(type_: CType, or_float: bool = False) -> bool:
    return (type_.kind == "int" and type_.name in _MOST) or (or_float and type_.name == "float")


def _base(pointer: Node) -> Node | None:
    """The pointer that ``&p[i]``, ``p + i`` and ``p`` begin with, where nothing else of them is a pointer."""
    node = stripped(pointer)
    if node.kind == "UNARY_OPERATOR" and node.op == "&":
        node = stripped(node.children[0])
        if node.kind != "ARRAY_SUBSCRIPT_EXPR":
            return None
        node = stripped(node.children[0])
    elif node.kind == "BINARY_OPERATOR" and node.op == "+":
        node = stripped(node.children[0])
    return node if node.kind == "DECL_REF_EXPR" and node.type.kind == "pointer" else None


def _statements(function: Function) -> Iterator[Node]:
    """What stands as a statement, so that its value is nobody's."""
    for node in function.nodes:
        if node.kind == "COMPOUND_STMT":
            yield from node.children
        elif node.kind == "IF_STMT":
            yield from node.children[1:]
        elif node.kind in LOOPS:
            yield node.children[0 if node.kind == "DO_STMT" else -1]


def _uses_memory_as_pointers(function: Function) -> bool:
    """Whether a function may have a pointer from memory, or of a number: then it may be one to anything."""
    for node in function.nodes:
        if node.type.kind == "pointer":
            if node.kind in ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR") or (
                node.kind == "UNARY_OPERATOR" and "*" in node.op
            ):
                return True
            if node.kind == "CSTYLE_CAST_EXPR" and stripped(node.children[-1]).type.kind not in ("pointer", "array"):
                return True
    return any(p.type.holds_pointers and p.type.kind != "pointer" for p in function.parameters)
