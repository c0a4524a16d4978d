"""Uniformity: which values are the same for all work-items of a group, and which loops and branches all of them take
alike."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from manycl.analysis.reading.builtins import effects
from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, assigned, callee, stripped
from manycl.analysis.work_group.syntax import Variable, head_of, with_callers

SAME = re.compile(r"get_(group_id|num_groups|local_size|enqueued_local_size|global_size|global_offset|work_dim)")
"""Queries with one answer for a whole group."""
OWN = re.compile(r"get_(global|local)(_linear)?_id|get_sub_group\w*")
_EFFECTS = re.compile(
    r"atom(ic)?_|printf|\w*barrier|mem_fence|\w*_mem_fence|async_|wait_group|prefetch|work_group_|sub_group_"
)
_PURE = {
    *("PAREN_EXPR", "UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR", "BINARY_OPERATOR", "UNARY_OPERATOR", "CONDITIONAL_OPERATOR"),
    *("MEMBER_REF_EXPR", "INIT_LIST_EXPR", "COMPOUND_LITERAL_EXPR", "CXX_UNARY_EXPR", "TYPE_REF", "MEMBER_REF"),
    *("INTEGER_LITERAL", "FLOATING_LITERAL", "CHARACTER_LITERAL", "CXX_BOOL_LITERAL_EXPR", "STRING_LITERAL"),
}


@dataclass(slots=True)
class Uniformity:
    """``varying`` are the references of variables whose values may differ between work-items."""

    unit: Unit
    kernel: Function
    variables: dict[int, Variable]
    varying: set[int] = field(default_factory=set)
    asking: set[int] = field(default_factory=set)  # functions that ask who they are, directly or not
    _divergent: set[int] = field(default_factory=set)  # loops and branches, by identity
    _depths: dict[int, int] = field(default_factory=dict)  # within them
    _declared: dict[int, int] = field(default_factory=dict)  # depths of variables' declarations

    def __post_init__(self) -> None:
        asks = {ref for ref, f in self.unit.functions.items() if any(_asks(node) for node in f.nodes)}
        self.asking = with_callers(self.unit.functions, asks)
        if any(node.kind in ("GOTO_STMT", "LABEL_STMT", "INDIRECT_GOTO_STMT") for node in self.kernel.nodes):
            self.varying |= set(self.variables)
        for variable in self.variables.values():
            if variable.escapes or variable.partial or variable.node.type.address_space == "local":
                self.varying.add(variable.ref)
        self.settle()

    def demote(self, refs: Iterable[int]) -> None:
        """Treat these as varying, and all that follows from it."""
        self.varying |= set(refs)
        self.settle()

    def settle(self) -> None:
        size = -1
        while size != (size := len(self.varying) + len(self._divergent)):
            self._visit(self.kernel.body, 0, [])

    def is_divergent(self, node: Node) -> bool:
        """Return whether work-items may disagree about a loop or a branch."""
        return id(node) in self._divergent

    def _visit(self, node: Node, depth: int, loops: list[Node]) -> None:
        """Assignments below ``node``, which is within so many loops and branches that work-items disagree about. A
        variable is one value for the work-items that run the block it is declared in: whoever assigns it further inside
        does so for some of them."""
        if node.kind in LOOPS:
            parts = head_of(self.unit, node)
            if parts.init is not None:
                self._visit(parts.init, depth, loops)
            if parts.condition is not None and not self.same(parts.condition):
                self._divergent.add(id(node))
            inside = self._enter(node, depth)
            for part in (parts.condition, parts.step):
                if part is not None:
                    self._visit(part, inside, loops)
            self._visit(parts.body, inside, [*loops, node])
            return
        if node.kind in ("IF_STMT", "SWITCH_STMT"):
            if not self.same(node.children[0]):
                self._divergent.add(id(node))
            self._visit(node.children[0], depth, loops)
            inside = self._enter(node, depth)
            around = [*loops, node] if node.kind == "SWITCH_STMT" else loops
            for child in node.children[1:]:
                self._visit(child, inside, around)
            return
        if node.kind in ("BREAK_STMT", "CONTINUE_STMT"):
            whom = loops if node.kind == "BREAK_STMT" else [loop for loop in loops if loop.kind != "SWITCH_STMT"]
            if whom and depth > self._depths[id(whom[-1])]:
                self._divergent.add(id(whom[-1]))
        self._assign(node, depth)
        lazily = node.kind == "CONDITIONAL_OPERATOR" or node.op in ("&&", "||")
        for index, child in enumerate(node.children):
            apart = lazily and index > 0 and not self.same(node.children[0])
            self._visit(child, depth + apart, loops)

    def _enter(self, node: Node, depth: int) -> int:
        """The depth within a loop or branch."""
        inside = self._depths[id(node)] = depth + self.is_divergent(node)
        return inside

    def _assign(self, node: Node, depth: int) -> None:
        if node.kind == "VAR_DECL" and node.ref in self.variables:
            self._declared[node.ref] = depth
            value = self.variables[node.ref].value
            if value is not None and not self.same(value):
                self.varying.add(node.ref)
            return
        target = assigned(node)
        if target is None:
            return
        variable = self.variables.get(stripped(target).ref)
        if variable is None:
            return
        others = node.children[1:]
        if depth > self._declared.get(variable.ref, 0) or not all(self.same(child) for child in others):
            self.varying.add(variable.ref)

    def same(self, node: Node) -> bool:
        """Return whether an expression has one value, and no effects, for all work-items that reach it together."""
        kind = node.kind
        if kind == "DECL_REF_EXPR":
            if node.value is not None or node.ref in self.unit.variables:
                return node.value is not None or self.unit.variables[node.ref].type.address_space == "constant"
            return node.ref in self.variables and node.ref not in self.varying
        if kind == "CALL_EXPR":
            return self._same_call(node)
        if kind == "ARRAY_SUBSCRIPT_EXPR" or (kind == "UNARY_OPERATOR" and node.op == "*"):
            return self._same_memory(node.children[0]) and all(self.same(child) for child in node.children)
        if kind == "MEMBER_REF_EXPR" and node.children and node.children[0].type.kind == "pointer":
            return self._same_memory(node.children[0]) and self.same(node.children[0])
        if assigned(node) is not None or (kind == "UNARY_OPERATOR" and node.op == "&"):
            return False
        return kind in _PURE and all(self.same(child) for child in node.children)

    def _same_memory(self, base: Node) -> bool:
        """Return whether nothing writes the memory that is read: constant, or a private array that keeps its
        contents."""
        base = stripped(base)
        target = base.type.target
        if target is not None and target.address_space == "constant":
            return True
        variable = self.variables.get(base.ref) if base.kind == "DECL_REF_EXPR" else None
        return variable is not None and base.type.kind == "array" and variable.is_constant

    def _same_call(self, node: Node) -> bool:
        function = callee(node)
        if not function.name or not all(self.same(child) for child in node.children[1:]):
            return False
        if SAME.fullmatch(function.name):
            return True
        if OWN.fullmatch(function.name) or _EFFECTS.match(function.name) or function.ref in self.asking:
            return False
        if any(child.type.kind in ("pointer", "array", "image", "sampler") for child in node.children[1:]):
            return False
        own = self.unit.functions.get(function.ref)
        if own is None:
            return function.ref not in self.unit.declared and effects(function.name, len(node.children) - 1) is None
        return not any(n.kind == "DECL_REF_EXPR" and self._is_changeable(n) for n in own.nodes)

    def _is_changeable(self, node: Node) -> bool:
        variable = self.unit.variables.get(node.ref)
        if variable is not None:
            return variable.type.address_space != "constant"
        return node.type.kind == "function" and bool(_EFFECTS.match(node.name))


def _asks(node: Node) -> bool:
    return node.type.kind == "function" and OWN.fullmatch(node.name) is not None
