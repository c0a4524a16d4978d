"""Queries of who a work-item is: the texts that replace OpenCL C's queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from manycl.analysis.reading.tree import LOOPS, CType, Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import appended, parameters_of, signatures
from manycl.analysis.work_group.group_function import NARROW
from manycl.analysis.work_group.passes.uniformity import OWN, SAME
from manycl.analysis.work_group.syntax import NoGroupFunctionError, parameter_text, with_callers

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
        """The value of a copy's element before anything is counted, which changes nothing."""
        if self.operation == "and":
            return f"({self.element})-1"
        return {"min": _MOST, "max": _LEAST}.get(self.operation, dict.fromkeys(_MOST, "0"))[self.element]


class Unlocked:
    """Atomic operations that need not be atomic, of a kernel and the functions that it reaches: on local memory, as one
    thread runs all of a group, and on memory that a kernel only *counts in*, of which each thread has a copy of its own
    meanwhile (the privatisation of a reduction). An argument is counted in if all that is done with it is one kind of
    atomic operation whose results nobody uses: in whatever order that is done, the same comes of it. What else the
    kernel is given must not overlap that memory, which is for the driver to see."""

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
        """Yield the edits of a call, if it is made otherwise; ``at`` reads a member of the group."""
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
        """The members of a group that tell how many elements each copy has."""
        return f" ulong own[{len(self.counted)}];" if self.counted else ""

    def before(self, arguments: int) -> str:
        """Return what an entry does first; ``arguments``: of the kernel. Copies lie at the beginning of the frame."""
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
        """Return what an entry does last."""
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
        """Return which atomic operation a call is, "" if none."""
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
    """Yield what stands as a statement, so that its value is nobody's."""
    for node in function.nodes:
        if node.kind == "COMPOUND_STMT":
            yield from node.children
        elif node.kind == "IF_STMT":
            yield from node.children[1:]
        elif node.kind in LOOPS:
            yield node.children[0 if node.kind == "DO_STMT" else -1]


def _uses_memory_as_pointers(function: Function) -> bool:
    """Return whether a function may have a pointer from memory, or of a number: then it may be one to anything."""
    for node in function.nodes:
        if node.type.kind == "pointer":
            if node.kind in ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR") or (
                node.kind == "UNARY_OPERATOR" and "*" in node.op
            ):
                return True
            if node.kind == "CSTYLE_CAST_EXPR" and stripped(node.children[-1]).type.kind not in ("pointer", "array"):
                return True
    return any(p.type.holds_pointers and p.type.kind != "pointer" for p in function.parameters)


Edit = tuple[int, int, str]

DECLARATIONS = """
#ifndef manycl_given
#define manycl_given(p, n, name) p
#define manycl_own(n) n
#define manycl_placed(p, name, extent, at) p
#endif
struct @range { ulong global_size[3], local_size[3], offset[3], groups[3]; uint dims; };
struct @group { const struct @range *r; @int base[3]; ulong group[3]; ulong items[3];@members };
#define @BASE(first) @first
"""
"""``@range`` is what was enqueued (``struct manycl_range`` of the driver's runtime), ``@group`` what is run: its first
global ids, its number, and how many work-items it has; ``@members``: those of :class:`Unlocked`. The macros:
pointers to arguments of so many bytes, and to what is a work-item's own, which checks of accesses define."""
FIRST = {False: f"((uint)(first) < {NARROW}u ? (first) : {NARROW})", True: "(first)"}
"""The first global id, by whether ids may have more than 31 bits. Compilers are shown that its sum with the number of a
work-item in its tile does not overflow: ids that might wrap around are not known to be consecutive."""

_OF = "int @x, int @y, int @z, const struct @group *@w"
_ITEMS = ("@x", "@y", "@z")
_TEXTS = {
    "get_global_id": ("((ulong)(@BASE({at}base[{d}]) + {item}))", 0),
    "get_local_id": ("((ulong){item})", 0),
    "get_group_id": ("({at}group[{d}])", 0),
    "get_local_size": ("({at}items[{d}])", 1),
    "get_enqueued_local_size": ("({at}r->local_size[{d}])", 1),
    "get_global_size": ("({at}r->global_size[{d}])", 1),
    "get_num_groups": ("({at}r->groups[{d}])", 1),
    "get_global_offset": ("({at}r->offset[{d}])", 0),
}
"""The texts for queries of a dimension, and the number that stands for what is beyond all dimensions."""


def literal(name: str, dimension: int, at: str) -> str:
    """The text for a query of a dimension that is known; ``at`` reads a member of the group: ``w.`` or ``w->``."""
    words, beyond = _TEXTS[name]
    return f"{beyond}ul" if dimension > 2 else words.format(at=at, d=dimension, item=_ITEMS[dimension])


FUNCTIONS = "\n".join(
    f"static inline __attribute__((always_inline)) ulong @{name}(uint d, {_OF}) {{ return "
    + "".join(f"d == {d} ? {literal(name, d, '@w->')} : " for d in range(3))
    + f"{literal(name, 3, '')}; }}"
    for name in _TEXTS
)


COPIES = """
static inline event_t @async_work_group_copy(void *to, const void *from, ulong size, ulong n, event_t e, int @i) {
  if (!@i) __builtin_memcpy(to, from, size * n);
  return e;
}
static inline event_t @strided_in(void *to, const void *from, ulong size, ulong n, ulong by, event_t e, int @i) {
  for (ulong k = 0; k < n && !@i; k++)
    __builtin_memcpy((char *)to + k * size, (const char *)from + k * by * size, size);
  return e;
}
static inline event_t @strided_out(void *to, const void *from, ulong size, ulong n, ulong by, event_t e, int @i) {
  for (ulong k = 0; k < n && !@i; k++)
    __builtin_memcpy((char *)to + k * by * size, (const char *)from + k * size, size);
  return e;
}
"""
"""A group's copies, which its first work-item does: what they copy is complete before them, and is looked at behind."""
_COPY = re.compile(r"async_work_group_(strided_)?copy")


def _linear(name: str, at: str) -> str:
    if name == "get_local_linear_id":
        return f"(((ulong)@z * {at}items[1] + (ulong)@y) * {at}items[0] + (ulong)@x)"
    ids = [f"((ulong)(@BASE({at}base[{d}]) + {_ITEMS[d]}) - {at}r->offset[{d}])" for d in range(3)]
    return f"(({ids[2]} * {at}r->global_size[1] + {ids[1]}) * {at}r->global_size[0] + {ids[0]})"


def is_query(unit: Unit, node: Node) -> bool:
    known = OWN.fullmatch(node.name) or SAME.fullmatch(node.name) or _COPY.fullmatch(node.name)
    return bool(known) and node.type.kind == "function" and node.ref not in unit.declared


def strings(root: Node) -> Iterator[Edit]:
    """The edits of strings below a node that are used as pointers: compilers have them in constant memory, whose
    pointers are of their own kind."""
    for node in root.walk():
        inner = stripped(node)
        if node.kind == "UNEXPOSED_EXPR" and node.type.kind == "pointer" and inner.kind == "STRING_LITERAL":
            yield inner.start, inner.start, "((const char *)(ulong)"
            yield inner.end, inner.end, ")"


def pointers(unit: Unit, parameters: Iterable[Node]) -> Iterator[Edit]:
    """The edits of parameters of functions that are written as arrays: as such they would be private."""
    for node in parameters:
        if node.kind == "PARM_DECL" and b"[" in unit.text[node.at : node.end]:
            yield node.start, node.end, "".join(parameter_text(unit, node))


class Queries:
    """The edits of queries and of calls of functions that ask, for the functions that ``kernel`` reaches."""

    def __init__(self, unit: Unit, kernel: Function) -> None:
        self.unit = unit
        self.kernel = kernel
        self.reached = {f.ref: f for f in unit.reachable(kernel) if f is not kernel}
        self.unlocked = Unlocked(unit, kernel, self.reached)
        asks = {ref: [n for n in f.nodes if is_query(unit, n)] for ref, f in self.reached.items()}
        own = {ref for ref, nodes in asks.items() if any(not SAME.fullmatch(n.name) for n in nodes)}
        self.asking = with_callers(self.reached, {ref for ref, nodes in asks.items() if nodes})
        self._same = self.asking - with_callers(self.reached, own)  # these are called where there is no work-item, too

    def of_function(self, function: Function) -> list[Edit]:
        """Edits of a function's own text: of its parameters and of its body."""
        edits = [*self.below(function.body, "@w->"), *pointers(self.unit, function.parameters)]
        if function.ref in self.asking:
            for start, end in signatures(self.unit, function):
                place = parameters_of(self.unit, function, start, end)
                if place is None:
                    raise NoGroupFunctionError(f"the parameters of {function.name} cannot be extended")
                edits.append(appended(self.unit, *place, _OF))
        return edits

    def below(self, root: Node, at: str) -> list[Edit]:
        """Edits below a node; ``at`` as for :func:`literal`."""
        edits = list(strings(root))
        called: set[int] = set()
        group = "@w" if at.endswith("->") else "&@w"
        for node in root.walk():
            function = callee(node)
            if function.name:
                called.add(id(function))
                is_same = SAME.fullmatch(function.name) or function.ref in self._same
                hidden = f"{'0, 0, 0' if is_same else '@x, @y, @z'}, {group}"
                if _COPY.fullmatch(function.name) and is_query(self.unit, function):
                    edits += self._copy(node, function)
                elif is_query(self.unit, function):
                    edits.append(self._query(node, function, at, hidden))
                elif function.ref in self.asking:
                    edits.append(appended(self.unit, function.end, node.end - 1, hidden))
                else:
                    edits += self.unlocked.edits(node, at)
            elif node.kind == "DECL_REF_EXPR" and id(node) not in called:  # noqa: SIM102
                if is_query(self.unit, node) or node.ref in self.asking:
                    raise NoGroupFunctionError(f"it takes {node.name} as a value")
        return edits

    def _copy(self, node: Node, function: Node) -> list[Edit]:
        """A group's copy: told the size of an element and who asks, and a strided one its direction by its name."""
        arguments = node.children[1:]
        target = stripped(arguments[0]).type.target
        if target is None or not target.size:
            raise NoGroupFunctionError(f"it calls {function.name} with elements of no size")
        name = "@async_work_group_copy"
        if "strided" in function.name:
            name = "@strided_in" if target.address_space == "local" else "@strided_out"
        return [
            (function.start, function.end, name),
            (arguments[1].end, arguments[1].end, f", {target.size}"),
            (node.end - 1, node.end - 1, ", @x | @y | @z"),
        ]

    def _query(self, node: Node, function: Node, at: str, hidden: str) -> Edit:
        name = function.name
        if self.unit.words(function) != name or self.unit.text[node.end - 1 : node.end] != b")":
            raise NoGroupFunctionError(f"a macro hides a call of {name}")
        if name == "get_work_dim":
            return node.start, node.end, f"({at}r->dims)"
        if name.endswith("_linear_id"):
            return node.start, node.end, _linear(name, at)
        if name.startswith("get_sub_group"):
            raise NoGroupFunctionError(f"it calls {name}")
        argument = stripped(node.children[1])
        if argument.kind == "INTEGER_LITERAL" and argument.value is not None:
            return node.start, node.end, literal(name, argument.value, at)
        words = self.unit.text[function.end : node.end - 1].decode()
        return node.start, node.end, f"@{name}{words}, {hidden})"
