"""Parts of a kernel's body, where it is cut: regions that all work-items run before any goes on, and what lies around
them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from manycl.analysis.reading.tree import LOOPS, Function, LoopHead, Node, Unit, assigned, callee, stripped
from manycl.analysis.work_group.passes.strides import FAR, Stepped, Strides, stepped
from manycl.analysis.work_group.passes.uniformity import OWN, Uniformity
from manycl.analysis.work_group.syntax import NoGroupFunctionError, Statement, head_of, statements, with_callers

BARRIER = re.compile(r"barrier|work_group_barrier|wait_group_events")
_GROUP = re.compile(r"(work|sub)_group_(?!barrier)\w+|sub_group_barrier|intel_sub_group\w*")
SHORT = 8
"""Loops that run at most so often stay within their work-item: compilers unroll them."""


@dataclass(slots=True, eq=False)
class ParallelRegion:
    """Statements that each work-item runs without waiting for others."""

    statements: list[Statement]
    number: int = 0


@dataclass(slots=True, eq=False)
class CutScope:
    """A block, for the names in it."""

    parts: list[Part]


@dataclass(slots=True, eq=False)
class CutLoop:
    """A loop that all work-items take equally often; ``masked``: some may leave before others, and the parts of its
    head are regions with these ``numbers``; ``stepped``: what is known of its variable then."""

    node: Node
    head: LoopHead
    parts: list[Part]
    masked: bool
    numbers: tuple[int, int, int]
    stepped: Stepped | None = None

    def heads(self) -> tuple[Node | None, Node | None, Node | None]:
        return self.head.init, self.head.condition, self.head.step


@dataclass(slots=True, eq=False)
class CutBranch:
    """A branch that all work-items take alike; ``masked``: each by its own condition, a region with this ``number``."""

    node: Node
    condition: Node
    then: list[Part]
    other: list[Part] | None
    masked: bool
    number: int


@dataclass(slots=True, eq=False)
class CutJump:
    """A jump by which all work-items leave a loop, or its body."""

    node: Node


Part = ParallelRegion | CutScope | CutLoop | CutBranch | CutJump


@dataclass(slots=True)
class Cutter:
    """Cuts one kernel. ``apart``: whether needless loops are taken apart. ``dimension``: vectors run along it."""

    unit: Unit
    kernel: Function
    uniformity: Uniformity
    apart: bool
    dimension: int = 0
    count: int = 0
    has_columns: bool = False  # loops in which each work-item goes through memory of its own are taken apart
    _barriers: set[int] = field(default_factory=set)  # functions that wait for the group
    _stepped: dict[int, Stepped] = field(default_factory=dict)  # by variable

    def cut(self) -> list[Part]:
        """Raises NoGroupFunctionError."""
        for node in self.kernel.nodes:
            name = node.name if node.kind == "DECL_REF_EXPR" and node.type.kind == "function" else ""
            if _GROUP.fullmatch(name):
                raise NoGroupFunctionError(f"it calls {name}")
        self._barriers = waiting(self.unit)
        self._find_stepped()
        return self._parts(statements(self.unit, self.kernel.body), [])

    def _find_stepped(self) -> None:
        uniformity = self.uniformity
        for node in self.kernel.nodes:
            if node.kind == "FOR_STMT":
                found = stepped(self.unit, uniformity, uniformity.variables, node, head_of(self.unit, node))
                if found is not None and found.variable in uniformity.varying:
                    self._stepped[found.variable] = found

    def _number(self) -> int:
        self.count += 1
        return self.count

    def _waits(self, node: Node) -> bool:
        return any(_is_wait(each, self._barriers) for each in node.walk())

    def _parts(self, given: list[Statement], loops: list[Node]) -> list[Part]:
        """``loops`` are the loops around that are cut and not masked."""
        found: list[Part] = []
        run: list[Statement] = []

        def close() -> None:
            if run:
                found.append(ParallelRegion(run[:], self._number()))
                run.clear()

        for statement in given:
            node = _inner(statement.node)
            if self._is_barrier(node):
                close()
            elif not self._must_cut(node, loops):
                run.append(statement)
            elif node.kind in ("DECL_STMT", "CALL_EXPR") or node.kind not in _CUTTABLE:
                raise NoGroupFunctionError(f"a barrier within {_PLAIN.get(node.kind, 'an expression')}")
            else:
                close()
                found.append(self._cut(node, loops))
        close()
        return found

    def _may_be_masked(self, loop: Node) -> bool:
        """Return whether work-items leave a loop alike, or by its condition alone."""
        leaving = ("BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT", "GOTO_STMT")
        return not self.uniformity.is_divergent(loop) or not any(each.kind in leaving for each in loop.walk())

    def _is_barrier(self, node: Node) -> bool:
        return BARRIER.fullmatch(callee(node).name) is not None

    def _must_cut(self, node: Node, loops: list[Node]) -> bool:
        return self._waits(node) or self._leaves(node, loops) or self._has_paying(node)

    def _has_paying(self, node: Node) -> bool:
        """Return whether a loop pays that can be reached by cutting what is around it, which work-items turn alike."""
        node = _inner(node)
        if node.kind in LOOPS:
            body = head_of(self.unit, node).body
            return self._pays(node) or (self._may_be_masked(node) and self._has_paying(body))
        return node.kind in ("COMPOUND_STMT", "IF_STMT") and any(self._has_paying(child) for child in node.children)

    def _leaves(self, node: Node, loops: list[Node]) -> bool:
        """Return whether a jump below ``node`` leaves a loop around it, which all work-items leave together."""
        return bool(loops) and any(True for _ in jumps(node))

    def _cut(self, node: Node, loops: list[Node]) -> Part:
        if node.kind == "COMPOUND_STMT":
            return CutScope(self._parts(statements(self.unit, node), loops))
        if node.kind in ("BREAK_STMT", "CONTINUE_STMT"):
            return CutJump(node)
        divergent = self.uniformity.is_divergent(node)
        if node.kind == "IF_STMT":
            if divergent and self._leaves(node, loops):
                raise NoGroupFunctionError("work-items leave a loop that others stay in")
            condition, *branches = node.children
            parts = [self._parts(statements(self.unit, branch), loops) for branch in branches]
            return CutBranch(node, condition, parts[0], parts[1] if len(parts) > 1 else None, divergent, self._number())
        head = head_of(self.unit, node)
        heads = [part for part in (head.condition, head.step, head.init) if part is not None]
        if any(self._waits(part) for part in heads):
            raise NoGroupFunctionError("a barrier within the head of a loop")
        divergent = divergent or not self._steps_alike(head)
        body = self._parts(statements(self.unit, head.body), [] if divergent else [*loops, node])
        numbers = self._number(), self._number(), self._number()
        stepping = next((s for s in self._stepped.values() if s.loop is node), None) if divergent else None
        return CutLoop(node, head, body, divergent, numbers, stepping)

    def _pays(self, node: Node) -> bool:
        """Return whether it pays to take a loop apart that need not be: all work-items run it equally often, it does
        something, and nothing in it is a loop that they do not."""
        if not self.apart or node.kind not in LOOPS or self.uniformity.is_divergent(node):
            return False
        head = head_of(self.unit, node)
        if head.condition is None or self._trips(head) <= SHORT or not self._steps_alike(head):
            return False
        for each in head.body.walk():
            if each.kind in ("RETURN_STMT", "SWITCH_STMT", "GOTO_STMT", "LABEL_STMT"):
                return False
            if each.kind in ("IF_STMT",) and self.uniformity.is_divergent(each) and any(True for _ in jumps(each)):
                return False
            if each.kind in LOOPS and self.uniformity.is_divergent(each):
                return False
        does = {each.kind for each in head.body.walk()} | {each.op for each in head.body.walk()}
        return bool(does & {"ARRAY_SUBSCRIPT_EXPR", "CALL_EXPR", "*"}) and not self._are_rows(node, does)

    def _are_rows(self, loop: Node, does: set[str]) -> bool:
        """Return whether work-items go through memory of their own in a loop, as through rows of a matrix, and do
        little with it: then a vector of work-items needs as many cache lines as it has lanes, and one work-item after
        the other is quicker. Not so where others in dimension 1 read the same."""
        strides = Strides(self.uniformity.variables, self.uniformity, self._stepped, self.dimension).found(loop)
        if FAR not in strides or 1 in strides:
            return False
        if "CALL_EXPR" not in does and not self._has_several_dimensions():
            return True
        self.has_columns = True
        return False

    def _has_several_dimensions(self) -> bool:
        """Return whether the kernel asks for its ids in other dimensions than the first."""
        asks = (node for node in self.kernel.nodes if OWN.fullmatch(callee(node).name) and len(node.children) > 1)
        return any(stripped(node.children[1]).value != 0 for node in asks)

    def _steps_alike(self, head: LoopHead) -> bool:
        """Return whether all that a loop's head assigns is one value for the group."""
        varying = self.uniformity.varying
        for part in (head.init, head.condition, head.step):
            for node in part.walk() if part is not None else ():
                target = assigned(node)
                if (node.kind == "VAR_DECL" and node.ref in varying) or (
                    target is not None and stripped(target).ref in varying
                ):
                    return False
        return True

    def _trips(self, head: LoopHead) -> float:
        """Return how often a loop runs, where literals tell."""
        if head.init is None or head.condition is None or head.condition.kind != "BINARY_OPERATOR":
            return float("inf")
        begin = [n.value for n in head.init.walk() if n.kind == "INTEGER_LITERAL"]
        end = stripped(head.condition.children[1])
        limit = end.value if end.kind == "INTEGER_LITERAL" else None
        if len(begin) != 1 or begin[0] is None or limit is None:
            return float("inf")
        return abs(limit - begin[0])


def regions(parts: Iterable[Part]) -> Iterator[ParallelRegion]:
    """The regions of some parts."""
    for part in parts:
        if isinstance(part, ParallelRegion):
            yield part
        elif not isinstance(part, CutJump):
            yield from regions((*part.then, *(part.other or ())) if isinstance(part, CutBranch) else part.parts)


def nodes_of(part: Part) -> Iterator[Node]:
    """The statements of the regions of a part."""
    return (statement.node for region in regions((part,)) for statement in region.statements)


def waiting(unit: Unit) -> set[int]:
    """The functions in which work-items wait for each other, directly or not."""
    waits = {f.ref for f in unit.functions.values() if any(_is_wait(n, set()) for n in f.nodes)}
    return with_callers(unit.functions, waits)


def _is_wait(node: Node, functions: set[int]) -> bool:
    if node.kind != "DECL_REF_EXPR" or node.type.kind != "function":
        return False
    return BARRIER.fullmatch(node.name) is not None or _GROUP.fullmatch(node.name) is not None or node.ref in functions


def jumps(node: Node, breaks: bool = True, continues: bool = True) -> Iterator[Node]:
    """The jumps below a node that leave it."""
    if (node.kind == "BREAK_STMT" and breaks) or (node.kind == "CONTINUE_STMT" and continues):
        yield node
    if node.kind in LOOPS:
        return
    for child in node.children:
        yield from jumps(child, breaks and node.kind != "SWITCH_STMT", continues)


def _inner(node: Node) -> Node:
    """A statement without its attributes (hints of loops)."""
    while node.kind == "UNEXPOSED_STMT" and node.children:
        node = node.children[-1]
    return node


def assignments(node: Node) -> Iterator[Node]:
    """Yield what is assigned at the top of a statement: ``a = 1``, ``a++, b--``."""
    node = stripped(node)
    if node.kind == "BINARY_OPERATOR" and node.op == ",":
        for child in node.children:
            yield from assignments(child)
    elif assigned(node) is not None:
        yield node


_CUTTABLE = {"COMPOUND_STMT", "IF_STMT", "BREAK_STMT", "CONTINUE_STMT", *LOOPS}
_PLAIN = {"SWITCH_STMT": "a switch", "LABEL_STMT": "a part that is jumped to", "CALL_EXPR": "a function"}
