"""Sub-kernels whose buffers may be *windows*: device allocations that hold only some bytes of a buffer, from byte
``low`` on. A hidden ``ulong`` for every such argument says where its window begins, and the kernel's first statement
moves the pointer back by as much, so that all subscripts stay what they are. This is done on integers of the pointer's
size, which wrap, so moving back and forth is exact wherever the pointer lies in between. What a kernel then touches
must lie in the window; that is what the regions of its launches tell (:mod:`manycl.analysis.regions.regions`).

A pointer that is moved is fine as long as it is only followed. Where a kernel, or what it calls, compares addresses,
turns them into numbers or stores them, none of its arguments is a window.
"""

from __future__ import annotations

import re

from manycl.analysis.reading.builtins import effects
from manycl.analysis.reading.tree import Function, Node, Unit, callee

_STATEMENTS = ("COMPOUND_STMT", "DECL_STMT", "LABEL_STMT", "CASE_STMT", "DEFAULT_STMT", "SWITCH_STMT")
_FOLLOWS = ("ARRAY_SUBSCRIPT_EXPR", "MEMBER_REF_EXPR", "VAR_DECL")
_TESTS = ("IF_STMT", "WHILE_STMT", "DO_STMT", "FOR_STMT")


def why_fixed(unit: Unit, root: Function) -> str:
    """Why a kernel cannot be given a parameter and a first statement more; empty: it can."""
    for function in unit.functions.values():
        if any(n.kind == "DECL_REF_EXPR" and n.ref == root.ref for n in function.nodes):
            return f"{function.name} calls it"
    return "" if unit.text[root.body.start : root.body.start + 1] == b"{" else "its body does not begin with a brace"


def movable(unit: Unit, root: Function) -> tuple[tuple[int, ...], str]:
    """The arguments of a kernel (indices) that may be windows, and why none or not all of them may."""
    if reason := why_fixed(unit, root):
        return (), reason
    for function in unit.reachable(root):
        for node in function.nodes:
            if reason := _exposes(unit, function, node):
                path, line = unit.place(node.start)
                return (), f"{path}:{line} {reason}"
    found = [i for i, p in enumerate(root.parameters) if _is_global(p)]
    return tuple(found), ""


def _is_global(parameter: Node) -> bool:
    """A named pointer variable to global memory that may be assigned to."""
    type_ = parameter.type
    target = type_.target
    return (
        type_.kind == "pointer"
        and not type_.const
        and target is not None
        and target.address_space == "global"
        and re.fullmatch(r"[A-Za-z_]\w*", parameter.name) is not None
    )


def _exposes(unit: Unit, function: Function, node: Node) -> str:
    """How a node may let a program see where a pointer points; empty if it does not."""
    if node.kind == "BLOCK_EXPR":
        return "has a block"
    operands = node.children[1:] if node.kind == "CALL_EXPR" else node.children
    if all(child.type.kind != "pointer" for child in operands):
        return ""
    if node.kind == "CALL_EXPR":
        called = callee(node)
        if called.ref in unit.functions:
            return ""
        known = called.ref not in unit.declared and effects(called.name, len(node.children) - 1) is not None
        return "" if known and called.name != "printf" else f"hands an address to {called.name or 'a function'}"
    if node.kind in _STATEMENTS or node.kind in _FOLLOWS:
        return ""
    if node.kind == "RETURN_STMT":
        return "" if function.result.kind == "pointer" else "returns an address as a number"
    if node.kind == "UNARY_OPERATOR" and node.op in "*&":
        return "takes the address of a pointer" if node.op == "&" else ""
    if node.kind in _TESTS or node.type.kind != "pointer":
        return "compares an address, or turns it into a number"
    if node.kind == "CONDITIONAL_OPERATOR":
        return "compares an address" if node.children[0].type.kind == "pointer" else ""
    if node.kind == "BINARY_OPERATOR" and node.op == "=" and node.children[0].kind != "DECL_REF_EXPR":
        return "stores an address"
    return ""


def shift(parameter: Node, hidden: str) -> str:
    """The statement that moves a pointer back by what the hidden parameter says."""
    return f" {parameter.name} = (global void *)((size_t){parameter.name} - (size_t){hidden});"
