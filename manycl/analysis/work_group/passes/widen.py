"""Subscripts in 64 bits. ``A[row * n + col]`` with ``int`` operands is computed in 32 bits and extended. That no sum
overflows is known in the language, but lost when compilers reorder it, and with it that neighbours' elements are
neighbours. Signed overflow is undefined, so the same arithmetic in 64 bits gives the same elements; compilers see
through it."""

from __future__ import annotations

from collections.abc import Iterator

from manycl.analysis.reading.tree import Node, stripped
from manycl.analysis.work_group.queries import Edit

_ARITHMETIC = ("+", "-", "*")


def subscripts(root: Node, copies: dict[int, str]) -> Iterator[Edit]:
    """The edits of all subscripts and moved pointers below a node. ``copies`` name 64-bit copies of variables."""
    for node in root.walk():
        if node.kind == "ARRAY_SUBSCRIPT_EXPR":
            yield from _wide(node.children[1], copies, True)
        elif node.kind == "BINARY_OPERATOR" and node.op in ("+", "-") and node.type.kind == "pointer":
            for child in node.children:
                if child.type.kind == "int":
                    yield from _wide(child, copies, False)


def _wide(node: Node, copies: dict[int, str], bare: bool) -> Iterator[Edit]:
    """The edits that compute an ``int`` expression in 64 bits, where it is one of sums and products."""
    inner = stripped(node)
    if inner.type.name != "int":
        return
    if inner.kind == "DECL_REF_EXPR" and inner.ref in copies:
        yield inner.start, inner.end, copies[inner.ref]
    elif inner.kind == "BINARY_OPERATOR" and inner.op in _ARITHMETIC:
        for child in inner.children:
            yield from _leaf(child, copies)


def _leaf(node: Node, copies: dict[int, str]) -> Iterator[Edit]:
    inner = stripped(node)
    if inner.type.name == "int" and inner.kind == "BINARY_OPERATOR" and inner.op in _ARITHMETIC:
        for child in inner.children:
            yield from _leaf(child, copies)
    elif inner.kind == "DECL_REF_EXPR" and inner.ref in copies:
        yield inner.start, inner.end, copies[inner.ref]
    elif inner.type.name == "int" or inner.kind == "INTEGER_LITERAL":
        yield inner.start, inner.start, "((long)("
        yield inner.end, inner.end, "))"


def is_wide(node: Node) -> bool:
    """Whether a variable with this initial value is worth a 64-bit copy."""
    inner = stripped(node)
    return inner.type.name == "int" and inner.kind == "BINARY_OPERATOR" and inner.op in _ARITHMETIC


def leaves(value: Node, copies: dict[int, str]) -> Iterator[Edit]:
    """The edits that compute an ``int`` value in 64 bits."""
    yield from _leaf(value, copies)
