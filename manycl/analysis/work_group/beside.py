"""Work-groups of fewer work-items than a vector has lanes, which are run beside one another: what a kernel asks of its
group it is told by global ids, so that it is nothing to it which work-items form one.

A loop over the work-items of such a group leaves most of a vector empty, and one after the other is as slow as loops
that are not vectors at all.
"""

from __future__ import annotations

import math
import re

from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import apply_edits, unused_prefix
from manycl.analysis.work_group.passes.stepped import stepped
from manycl.analysis.work_group.passes.strides import Strides
from manycl.analysis.work_group.passes.uniformity import Uniformity
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.reading import read_again
from manycl.analysis.work_group.syntax import NoGroupFunctionError, head_of, variables
from manycl.errors import SourceError

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
    """Whether work-items of several groups do as well together as those of one: take loops alike, and do not read side
    by side what those of other groups read elsewhere."""
    (before, is_near), (after, _) = (_divergent(each, kernel) for each in (unit, changed))
    return after <= before and not is_near


def _asks(unit: Unit, node: Node) -> bool:
    named = callee(node)
    return _ASKED.fullmatch(named.name) is not None and named.ref not in unit.declared


def _has_group(function: Function) -> bool:
    """Whether work-items of a group share memory, or wait for one another."""
    for node in function.nodes:
        if node.type.address_space == "local" or (node.type.target and node.type.target.address_space == "local"):
            return True
        if node.kind == "DECL_REF_EXPR" and node.type.kind == "function" and _TOGETHER.fullmatch(node.name):
            return True
    return any(p.type.target is not None and p.type.target.address_space == "local" for p in function.parameters)


def _edit(unit: Unit, node: Node, local_size: Size, prefix: str) -> Edit:
    """What stands instead of a query; no words where a macro hides it."""
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
    """What a query of a dimension means where groups have a size in it."""
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
    """Loops that work-items may leave one after the other; and whether neighbours of a group go through neighbouring
    memory in one."""
    root = unit.kernel(kernel)
    found = variables(unit, root)
    uniformity = Uniformity(unit, root, found)
    loops = [node for node in root.nodes if node.kind in LOOPS]
    moving = (stepped(unit, uniformity, found, loop, head_of(unit, loop)) for loop in loops)
    strides = Strides(found, uniformity, {each.variable: each for each in moving if each is not None})
    return sum(map(uniformity.is_divergent, loops)), any(1 in strides.found(loop) for loop in loops)
