"""Work-group functions: the whole text that a compiler makes a kernel's entry of. Work-groups of fewer work-items than
a vector has lanes are run beside one another: what a kernel asks of its group it is told by global ids, so that it is
nothing to it which work-items form one. A loop over the work-items of such a group leaves most of a vector empty, and
one after the other is as slow as loops that are not vectors at all."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from manycl.analysis.reading.directions import barriers, summaries
from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import apply_edits, unused_prefix
from manycl.analysis.work_group.contexts import Contexts
from manycl.analysis.work_group.emit import GroupEmitter, register_tile
from manycl.analysis.work_group.entry import GroupEntry, is_local
from manycl.analysis.work_group.group_function import WorkGroupFunction
from manycl.analysis.work_group.parts import BARRIER, Cutter, ParallelRegion
from manycl.analysis.work_group.passes.inline import inlined, read_again
from manycl.analysis.work_group.passes.strides import Strides, best_dimension, stepped
from manycl.analysis.work_group.passes.uniformity import Uniformity
from manycl.analysis.work_group.queries import COPIES, DECLARATIONS, FIRST, FUNCTIONS, Edit, Queries, pointers, strings
from manycl.analysis.work_group.syntax import NoGroupFunctionError, head_of, variables
from manycl.errors import SourceError

_ANY_NUMBER = 1 << 15  # work-items of a tile that nothing is kept of: fewer than NARROW leaves room for
_OF_GROUPS = re.compile(r"get_(local|group|enqueued_local|num_groups)|(work_group_)?barrier|async_work|wait_group")
_SPACES = ("__global", "global", "__local", "local", "__private", "private", "__generic", "generic")
_KEYWORDS = "".join(f"#define {name}\n" for name in (*_SPACES, "__kernel", "kernel")) + (
    "#define __constant const\n#define constant const\n"
)
"""A processor has one address space."""


def work_group_function(
    unit: Unit, kernel: str, local_size: tuple[int, int, int], lanes: int = 16, wide: bool = False, lines: bool = False
) -> WorkGroupFunction:
    """The work-group function of a kernel of ``unit``. ``local_size`` is that of the launches that it is for; ``lanes``
    how many 4-byte values a vector of the processor has; ``wide``: global ids may exceed 31 bits; ``lines``: compilers
    are told the user's. Raises KeyError for a kernel that the program does not have."""
    unit.kernel(kernel)
    try:
        unit = inlined(without_needless(unit, kernel), kernel)
        told = beside(unit, kernel, local_size, lanes)
        root = told.kernel(kernel)
        found = _GroupWriter(told, root, local_size, lanes, wide, lines).function()
        return found if told is unit else replace(found, sized=True)
    except NoGroupFunctionError as error:
        return WorkGroupFunction(kernel, "", str(error))


def without_needless(unit: Unit, kernel: str) -> Unit:
    """The unit without the barriers of a kernel that order nothing; with local memory, nothing is known of them."""
    root = unit.kernel(kernel)
    waits = any(BARRIER.fullmatch(callee(stripped(node)).name) for node in root.body.children)
    nodes = (node for function in unit.reachable(root) for node in (*function.parameters, *function.nodes))
    if not waits or any("local" in (n.type.address_space, (n.type.target or n.type).address_space) for n in nodes):
        return unit
    found = barriers(unit, root, summaries(unit))
    ends = {stripped(n).start: stripped(n).end for n in root.body.children}
    edits = [(at, ends[at], "\n" * unit.text.count(b"\n", at, ends[at])) for at, orders in found.items() if not orders]
    return read_again(unit, apply_edits(unit.text, edits)) if edits else unit


class _GroupWriter:
    def __init__(
        self, unit: Unit, kernel: Function, local_size: tuple[int, int, int], lanes: int, wide: bool, lines: bool
    ) -> None:
        self.unit = unit
        self.kernel = kernel
        self.local_size = local_size
        self.lanes = lanes
        self.wide = wide
        self.lines = lines

    def function(self) -> WorkGroupFunction:
        unit, kernel = self.unit, self.kernel
        if b"@" in unit.text:
            raise NoGroupFunctionError("its text has a character that OpenCL C does not have")
        queries = Queries(unit, kernel)
        self._look_for_others(queries)
        sized = self._is_sized(queries)
        found = variables(unit, kernel)
        uniformity = Uniformity(unit, kernel, found)
        many = not sized or self.local_size != (1, 1, 1)
        several = self.local_size[1] > 1
        dimension = best_dimension(kernel, found, uniformity) if several else 0
        while True:
            cutter = Cutter(unit, kernel, uniformity, apart=many, dimension=dimension)
            parts = cutter.cut()
            contexts = Contexts(unit, kernel, found, uniformity, parts)
            if not contexts.demoted:
                break
            uniformity.demote(contexts.demoted)
        cut = len(parts) > 1 or any(not isinstance(part, ParallelRegion) for part in parts)
        emitter = GroupEmitter(unit, kernel, contexts, queries, self.lines)
        body = emitter.body(parts)
        kept = "@EXTENT" in body
        tile = self._tile(sized, kept, cut, cutter.has_columns, contexts)
        in_strips = not sized and tile[1] > 1 and not cutter.has_columns  # these need other lines in each turn
        put_away = emitter.put_away if in_strips else ""
        if dimension and not sized:
            tile = tile[1], tile[0], tile[2]
        entry = GroupEntry(unit, kernel, tile, sized, kept, cut, self.lanes, put_away, dimension, queries.unlocked)
        text = self._text(queries, entry.text(body))
        defined = frozenset(function.name for function in queries.reached.values())
        counted = tuple(counted.argument for counted in queries.unlocked.counted)
        return WorkGroupFunction(kernel.name, text, "", sized, defined, counted)

    def _look_for_others(self, queries: Queries) -> None:
        """Raises NoGroupFunctionError for what only OpenCL drivers do."""
        for function in (self.kernel, *queries.reached.values()):
            for node in function.nodes:
                if node.name == "printf" and node.type.kind == "function":
                    raise NoGroupFunctionError("it prints")
                variable = self.unit.variables.get(node.ref)
                if variable is not None and variable.type.address_space != "constant" and not variable.type.const:
                    raise NoGroupFunctionError(f"it uses {variable.name}, which keeps its value between kernels")
                if node.kind == "BLOCK_EXPR":
                    raise NoGroupFunctionError("it has a block")

    def _is_sized(self, queries: Queries) -> bool:
        """Return whether it matters which work-items form a group."""
        are_local = [is_local(parameter) for parameter in self.kernel.parameters]  # all are looked at
        if any(are_local):
            return True
        for function in (self.kernel, *queries.reached.values()):
            for node in function.nodes:
                if node.kind == "VAR_DECL" and node.type.address_space == "local":
                    return True
                if node.kind == "DECL_REF_EXPR" and node.type.kind == "function" and _OF_GROUPS.match(node.name):
                    return True
        return False

    def _tile(self, sized: bool, kept: bool, cut: bool, columns: bool, contexts: Contexts) -> tuple[int, int, int]:
        """The extents of what is run together: a work-group, or what is best where these are nothing to the kernel."""
        if sized:
            return self.local_size
        if not kept:
            return _ANY_NUMBER, 1, 1
        across, rows = register_tile(contexts, self.lanes)
        if rows == 1 or self.local_size[1] == 1:
            if columns:  # few, so that the lines of a turn are still in the cache in the next one
                return self.lanes, 1, 1
            # work-items that have left a loop of their own wait for those that have not: few do
            return self.lanes * (4 if contexts.stepped else 8 if cut else 16), 1, 1
        if columns:  # the lanes of a vector are far apart: the fewer lines the better, and each for more rows
            across, rows = 1, max(1, 2 * across * rows // 3)
        return self.lanes * across, rows, 1

    def _text(self, queries: Queries, groups: str) -> str:
        head = (
            DECLARATIONS.replace("@int", "long" if self.wide else "int")
            .replace("@first", FIRST[self.wide])
            .replace("@members", queries.unlocked.members)
            + FUNCTIONS
            + queries.unlocked.declarations()
            + self._copies(queries)
            + "\n#line 1\n"
        )
        text = "".join((_KEYWORDS, head, self._program(queries), "\n", groups))
        return text.replace("@", unused_prefix(self.unit.text))

    def _copies(self, queries: Queries) -> str:
        functions = (self.kernel, *queries.reached.values())
        return COPIES if any(n.name.startswith("async_work_group") for f in functions for n in f.nodes) else ""

    def _program(self, queries: Queries) -> str:
        """The program's text with the functions that the kernel calls, and without all others."""
        edits: list[Edit] = []
        unused = dict(self.unit.unused)
        for function in self.unit.functions.values():
            if function.ref in queries.reached:
                edits += queries.of_function(function)
                line = self.unit.marker(function.start) if self.lines else ""
                edits.append((function.start, function.start, f"{line}static inline __attribute__((always_inline)) "))
            else:
                unused[function.ref] = function.start, function.end
        for start, end in unused.values():
            edits.append((start, end, re.sub(rb"[^\n]", b"", self.unit.text[start:end]).decode()))
        for prototype in self.unit.prototypes:
            if prototype.ref in queries.reached:
                edits.append((prototype.start, prototype.start, "static "))
                edits += pointers(self.unit, prototype.children)
            elif prototype.ref in unused:
                edits.append((prototype.start, prototype.end, ""))
        for variable in self.unit.variables.values():
            edits += strings(variable)
            if not self.unit.text[variable.start : variable.end].lstrip().startswith(b"static"):
                edits.append((variable.start, variable.start, "static "))
        return apply_edits(self.unit.text, edits).decode("utf-8", "replace")


Size = tuple[int, int, int]
_ASKED = re.compile(r"get_(group_id|local_id|local_linear_id|(enqueued_)?local_size|num_groups)")
_TOGETHER = re.compile(r"(get_)?(work|sub)_group_\w+|intel_sub_group\w*|\w*barrier|async_\w+|wait_group_events")
_PLACE = "(get_global_id({d}) - get_global_offset({d}))"


def beside(unit: Unit, kernel: str, local_size: Size, lanes: int) -> Unit:
    """The unit as launches with work-groups of ``local_size`` may have it, if several of these fit into a vector and
    work-items of a group have nothing in common; else ``unit`` itself."""
    root = unit.kernel(kernel)
    if math.prod(local_size) >= lanes:
        return unit
    functions = [f for f in unit.functions.values() if f is root or not f.is_kernel]
    asked = [node for function in functions for node in function.nodes if _asks(unit, node)]
    if not asked or any(_has_group(function) for function in functions):
        return unit
    prefix = unused_prefix(unit.text)
    edits = [_edit(unit, node, local_size, prefix) for node in asked]
    if any(not words for _, _, words in edits):
        return unit
    text = _helpers(local_size, prefix).encode() + apply_edits(unit.text, edits)
    try:
        changed = read_again(unit, text)
    except (SourceError, NoGroupFunctionError):
        return unit
    return changed if local_size == (1, 1, 1) or _pays(unit, changed, kernel) else unit


def _pays(unit: Unit, changed: Unit, kernel: str) -> bool:
    """Return whether work-items of several groups do as well together as those of one: take loops alike, and do not
    read side by side what those of other groups read elsewhere."""
    (before, is_near), (after, _) = (_divergent(each, kernel) for each in (unit, changed))
    return after <= before and not is_near


def _asks(unit: Unit, node: Node) -> bool:
    named = callee(node)
    return _ASKED.fullmatch(named.name) is not None and named.ref not in unit.declared


def _has_group(function: Function) -> bool:
    """Return whether work-items of a group share memory, or wait for one another."""
    for node in function.nodes:
        if node.type.address_space == "local" or (node.type.target and node.type.target.address_space == "local"):
            return True
        if node.kind == "DECL_REF_EXPR" and node.type.kind == "function" and _TOGETHER.fullmatch(node.name):
            return True
    return any(p.type.target is not None and p.type.target.address_space == "local" for p in function.parameters)


def _edit(unit: Unit, node: Node, local_size: Size, prefix: str) -> Edit:
    """Return what stands instead of a query; no words where a macro hides it."""
    named = callee(node)
    name = named.name
    if unit.words(named) != name or unit.text[node.end - 1 : node.end] != b")":
        return node.start, node.end, ""
    if name == "get_local_linear_id":
        x, y, z = (_told("get_local_id", d, size) for d, size in enumerate(local_size))
        return node.start, node.end, f"(({z} * {local_size[1]}ul + {y}) * {local_size[0]}ul + {x})"
    dimension = stripped(node.children[1])
    if dimension.kind == "INTEGER_LITERAL" and dimension.value is not None:
        size = local_size[dimension.value] if dimension.value < 3 else 1
        return node.start, node.end, _told(name, dimension.value, size)
    return named.start, named.end, prefix + name


def _told(name: str, dimension: int, size: int) -> str:
    """Return what a query of a dimension means where groups have a size in it."""
    place = _PLACE.format(d=dimension)
    whole = f"get_global_size({dimension})"
    return {
        "get_group_id": place if size == 1 else f"({place} / {size}ul)",
        "get_local_id": "0ul" if size == 1 else f"({place} % {size}ul)",
        "get_num_groups": whole if size == 1 else f"({whole} / {size}ul)",
    }.get(name, f"{size}ul")


def _helpers(local_size: Size, prefix: str) -> str:
    """Functions for queries of dimensions that are computed."""
    x, y, z = local_size
    size = f"(d == 0 ? {x}ul : d == 1 ? {y}ul : d == 2 ? {z}ul : 1ul)"
    place = _PLACE.format(d="d")
    found = {
        "get_group_id": f"{place} / {size}",
        "get_local_id": f"{place} % {size}",
        "get_num_groups": f"get_global_size(d) / {size}",
        "get_local_size": size,
        "get_enqueued_local_size": size,
    }
    return "".join(f"ulong {prefix}{name}(uint d) {{ return {value}; }} " for name, value in found.items())


def _divergent(unit: Unit, kernel: str) -> tuple[int, bool]:
    """Loops that work-items may leave one by one; and whether neighbours of a group use neighbouring memory in one."""
    root = unit.kernel(kernel)
    found = variables(unit, root)
    uniformity = Uniformity(unit, root, found)
    loops = [node for node in root.nodes if node.kind in LOOPS]
    moving = (stepped(unit, uniformity, found, loop, head_of(unit, loop)) for loop in loops)
    strides = Strides(found, uniformity, {each.variable: each for each in moving if each is not None})
    return sum(map(uniformity.is_divergent, loops)), any(1 in strides.found(loop) for loop in loops)
