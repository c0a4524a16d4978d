"""Smaller kernels that differ in the same way: whole statements are left out, then expressions become parts of
themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.fuzz_compare import compare
from tests.fuzz.fuzz_tree import Block, Kernel, Node

Test = Callable[[Kernel], bool]
WORK = 400
"""Kernels that are tried at most."""
FIXED = re.compile(r"ulong \w+_fold_|const int item")
LEFT_ALONE = re.compile(r"[A-Z]+$|as_|convert_")
"""Calls without which something may be undefined."""


def differs(whom: tuple[str, ...]) -> Test:
    """Whether these implementations, which all run the kernel, still differ."""

    def test(kernel: Kernel) -> bool:
        found = compare(kernel.case(), kernel.called, whom)
        return len(found.ran) == len(whom) and bool(found.differences)

    return test


def shrunk(kernel: Kernel, test: Test, work: int = WORK) -> Kernel:
    """As small as it becomes in so many trials."""
    left = [work]

    def tried(candidate: Kernel) -> bool:
        left[0] -= 1
        return left[0] >= 0 and test(candidate)

    progress = True
    while progress and left[0] > 0:
        progress = False
        for smaller in (_fewer_statements, _smaller_expressions):
            found = smaller(kernel, tried)
            progress |= found is not kernel
            kernel = found
    return kernel


def _fewer_statements(kernel: Kernel, test: Test) -> Kernel:
    size = 1 << 10
    while size:
        at = 0
        while at < len(places := list(_places(kernel))):
            candidate = _without(kernel, places[at : at + size])
            if test(candidate):
                kernel = candidate
            else:
                at += size
        size //= 2
    return kernel


Place = tuple[int, ...]


def _places(kernel: Kernel) -> Iterator[Place]:
    """All statements and helper functions, the last ones first."""

    def within(nodes: list[Node], path: Place) -> Iterator[Place]:
        for at in reversed(range(len(nodes))):
            yield (*path, at)
            node = nodes[at]
            if isinstance(node, Block) and not node.whole:
                yield from within(node.body, (*path, at))

    yield from within(kernel.body, (1,))
    yield from within(kernel.before, (0,))


def _without(kernel: Kernel, places: list[Place]) -> Kernel:
    gone = set(places)

    def within(nodes: list[Node], path: Place) -> list[Node]:
        kept: list[Node] = []
        for at, node in enumerate(nodes):
            if (*path, at) not in gone:
                is_open = isinstance(node, Block) and not node.whole
                kept.append(replace(node, body=within(node.body, (*path, at))) if is_open else node)
        return kept

    return replace(kernel, before=within(kernel.before, (0,)), body=within(kernel.body, (1,)))


def _smaller_expressions(kernel: Kernel, test: Test) -> Kernel:
    """Of each line, from the outside: something in brackets becomes one of the parts that commas or operators leave."""
    for place in list(_places(kernel)):
        at = 0
        while (line := _line(kernel, place)) is not None and not FIXED.match(line):
            found = next((c for c in _parts(line, at) if test(_with(kernel, place, c))), None)
            if found is not None:
                kernel = _with(kernel, place, found)
                continue
            at = line.find("(", at) + 1
            if at == 0:
                break
    return kernel


def _line(kernel: Kernel, place: Place) -> str | None:
    nodes: list[Node] = [Block([], kernel.before), Block([], kernel.body)]
    for at in place:
        node = nodes[at]
        if isinstance(node, str):
            return node
        nodes = node.body
    return node.head[0] if node.head else None  # type: ignore[union-attr]


def _with(kernel: Kernel, place: Place, text: str) -> Kernel:
    def within(nodes: list[Node], rest: Place) -> list[Node]:
        node, copy = nodes[rest[0]], list(nodes)
        if isinstance(node, str):
            copy[rest[0]] = text
        elif len(rest) == 1:
            copy[rest[0]] = replace(node, head=[text, *node.head[1:]])
        else:
            copy[rest[0]] = replace(node, body=within(node.body, rest[1:]))
        return copy

    if place[0]:
        return replace(kernel, body=within(kernel.body, place[1:]))
    return replace(kernel, before=within(kernel.before, place[1:]))


def _parts(line: str, at: int) -> Iterator[str]:
    """The line with what the next bracket holds, and the word before it, replaced by its parts."""
    first = line.find("(", at)
    if first < 0:
        return
    depth, cuts, end = 0, [first], -1
    for i in range(first, len(line)):
        depth += {"(": 1, ")": -1}.get(line[i], 0)
        if depth == 0:
            end = i
            break
        if depth == 1 and (line[i] in ",?:" or (line[i - 1] == " " and line[i + 1] == " " and line[i] in "+-*/%&|^<>")):
            cuts.append(i)
    if end < 0:
        return
    word = re.search(r"\w*$", line[:first])
    if word and LEFT_ALONE.match(word.group()):
        cuts = []
    start = word.start() if word and word.group() not in ("if", "while", "for", "switch", "return") else first
    for a, b in zip(cuts, [*cuts[1:], end][: len(cuts)], strict=True):
        part = line[a + 1 : b].strip()
        if part and part != line[start : end + 1]:
            yield f"{line[:start]}{part}{line[end + 1 :]}"
    if len(line[first:end]) > 3:
        yield f"{line[:start]}1{line[end + 1 :]}"
        yield f"{line[:first]}(0){line[end + 1 :]}"
