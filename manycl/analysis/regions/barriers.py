"""What the barriers of a kernel order: the accesses of work-items before them, and those of others behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from manycl.analysis.reading.directions import accesses
from manycl.analysis.reading.points_to import FunctionSummary, Location
from manycl.analysis.reading.tree import Function, Node, Unit, callee, stripped

BARRIER = re.compile(r"(work_group_)?barrier")
TOGETHER = re.compile(
    r"(work|sub)_group_\w+|intel_sub_group\w*|\w*barrier|\w*fence\w*|async_\w+|wait_group_events|printf"
)
_ANYWHERE: Location = ("unknown", "")
_STOPS = ("GOTO_STMT", "INDIRECT_GOTO_STMT", "LABEL_STMT")


class _Accesses(NamedTuple):
    reads: frozenset[Location]
    writes: frozenset[Location]


def barriers(unit: Unit, kernel: Function, known: Mapping[int, FunctionSummary]) -> dict[int, bool]:
    """The barriers among the statements of a kernel's body, by where their calls begin, that need not be, as far as can
    be told: False where they order nothing, True where that is so unless a buffer that the kernel writes is another
    argument as well. ``known``: what functions do, by their declarations. The kernel has no local memory."""
    if any(node.kind in _STOPS for node in kernel.nodes) or any(
        not variable.type.const and variable.type.address_space == "global" for variable in unit.variables.values()
    ):
        return {}
    found = kernel.body.children
    calls = {index: call for index, node in enumerate(found) if (call := _barrier(unit, node)) is not None}
    if not calls:
        return {}
    done = [_Accesses(*found) for found in accesses(unit, kernel, known)]
    for index, node in enumerate(found):
        if index in calls:
            done[index] = _Accesses(frozenset(), frozenset())
        elif any(_is_together(unit, below) for below in node.walk()):
            done[index] = _Accesses(frozenset({_ANYWHERE}), frozenset({_ANYWHERE}))
    told = {}
    for index, call in calls.items():
        order = _order(_all(done[:index]), _all(done[index + 1 :]))
        if order is not None:
            told[call.start] = order
    return told


def _all(done: Iterable[_Accesses]) -> _Accesses:
    parts = tuple(done)
    return _Accesses(
        frozenset[Location]().union(*(p.reads for p in parts)), frozenset[Location]().union(*(p.writes for p in parts))
    )


def _order(before: _Accesses, behind: _Accesses) -> bool | None:
    """None: what is before may concern what is behind; True: only where two arguments are one buffer; False: not."""
    pairs = [(one, two) for one in before.writes for two in behind.reads | behind.writes]
    pairs += [(one, two) for one in before.reads for two in behind.writes]
    if any(one == two or one[0] != "param" or two[0] != "param" for one, two in pairs):
        return None
    return bool(pairs)


def _barrier(unit: Unit, node: Node) -> Node | None:
    """The call, of a statement that is one of a barrier."""
    node = stripped(node)
    return node if BARRIER.fullmatch(_called(unit, node)) else None


def _is_together(unit: Unit, node: Node) -> bool:
    return TOGETHER.fullmatch(_called(unit, node)) is not None


def _called(unit: Unit, node: Node) -> str:
    """The name of a function of OpenCL C's that a node calls; "" if it calls none."""
    target = callee(node)
    return "" if target.ref in unit.declared else target.name
