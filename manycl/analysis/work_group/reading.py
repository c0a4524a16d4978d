"""Units that were changed: read again, or with other names."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable

from manycl.analysis.reading.options import BuildOptions
from manycl.analysis.reading.tree import Function, Node, Unit
from manycl.analysis.texts.rewrite import apply_edits
from manycl.analysis.work_group.syntax import NoGroupFunctionError

_VARIABLES = ("VAR_DECL", "PARM_DECL")
MOST_TEXT = 1 << 20  # bytes


def read_again(unit: Unit, text: bytes) -> Unit:
    """A unit of another text. Raises NoGroupFunctionError for one that is too long."""
    from manycl.analysis.reading.frontend import load

    if len(text) > MOST_TEXT:
        raise NoGroupFunctionError("its functions are too large to be written where they are called")
    return load(text.decode(), "<source>", None, BuildOptions(version=unit.version, quiet=True))


def name_uniquely(unit: Unit, kernel: Function) -> None:
    """Gives each variable of a kernel a name that nothing else has that the program's functions mention, as all that a
    part of its body needs is declared in one block: in the text, and in the nodes, which move with it. Raises
    NoGroupFunctionError where a macro hides a name."""
    nodes = (*kernel.parameters, *kernel.nodes)
    declared = {node.ref: node for node in nodes if node.kind in _VARIABLES and node.name}
    mentioned = (node for f in unit.functions.values() for node in f.nodes if node.kind == "DECL_REF_EXPR")
    local = {node.ref for f in unit.functions.values() for node in (*f.parameters, *f.nodes) if node.kind in _VARIABLES}
    taken = {node.name for node in mentioned if node.ref not in local}
    names: dict[int, str] = {}
    for ref, node in sorted(declared.items(), key=lambda item: item[1].at):
        name, number = node.name, 1
        while name in taken or (number > 1 and name.encode() in unit.text):
            number += 1
            name = f"{node.name}__{number}"
        taken.add(name)
        if number > 1:
            names[ref] = name
    edits = set[tuple[int, int, str]]()
    named = [n for n in nodes if n.ref in names and (n.kind == "DECL_REF_EXPR" or n is declared[n.ref])]
    for node in named:
        start = node.start if node.kind == "DECL_REF_EXPR" else node.at
        if not unit.text.startswith(node.name.encode(), start):
            raise NoGroupFunctionError(f"a macro hides {node.name}")
        edits.add((start, start + len(node.name), names[node.ref]))
    if edits:
        _move(unit, sorted(edits))
        for node in named:
            node.name = names[node.ref]


def _move(unit: Unit, edits: list[tuple[int, int, str]]) -> None:
    """Edits a unit's text where it has names, and moves all places in it accordingly."""
    ends = [end for _, end, _ in edits]
    by = [0, *itertools.accumulate(len(words) - (end - start) for start, end, words in edits)]
    functions = unit.functions.values()
    roots = (*unit.variables.values(), *unit.prototypes, *(n for f in functions for n in (*f.parameters, f.body)))
    places: Iterable[Function | Node] = (*functions, *(node for root in roots for node in root.walk()))
    for place in places:
        place.start += by[bisect.bisect_right(ends, place.start)]
        place.end += by[bisect.bisect_right(ends, place.end)]
        if isinstance(place, Node):
            place.at += by[bisect.bisect_right(ends, place.at)]
    for ref, (start, end) in unit.unused.items():
        unit.unused[ref] = start + by[bisect.bisect_right(ends, start)], end + by[bisect.bisect_right(ends, end)]
    unit.text = apply_edits(unit.text, edits)
    unit._starts.clear()
