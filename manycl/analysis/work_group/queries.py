"""Who a work-item is: the texts that replace OpenCL C's queries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from manycl.analysis.reading.tree import Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import appended, parameters_of, signatures
from manycl.analysis.work_group.group_function import NARROW
from manycl.analysis.work_group.passes.uniformity import OWN, SAME
from manycl.analysis.work_group.passes.unlocked import Unlocked
from manycl.analysis.work_group.syntax import NoGroupFunctionError, parameter_text, with_callers

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
