"""Vectors' components as scalars: what a kernel says of vectors, said of each of their components.

Compilers make vectors of work-items only where these compute with scalars. Private variables of vector types become a
scalar for each component, where each of their writes is a statement whose value can be said component by component or
taken apart; uses that are none of these are of a vector that is put together again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from manycl.analysis.interpreter.values import swizzle
from manycl.analysis.reading.tree import Node, Unit, assigned, callee
from manycl.analysis.work_group.contexts import LANES
from manycl.analysis.work_group.syntax import Variable

BASES = {"float": 4, "int": 4, "uint": 4, "double": 8, "long": 8, "ulong": 8}
"""Components' types, which integer promotion leaves as they are, and their sizes."""
NARROW = ("char", "uchar", "short", "ushort")
"""Those that are only read, written and converted by component."""
_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
_COMPARISONS = ("<", ">", "<=", ">=", "==", "!=", "&&", "||")
_MEMORY = ("ARRAY_SUBSCRIPT_EXPR", "UNARY_OPERATOR", "MEMBER_REF_EXPR")
_SWIZZLE = re.compile(r"\s*\.\s*(\w+)\s*")
_ELEMENTWISE = re.compile(
    r"(a?(sin|cos|tan)(h|pi)?|atan2(pi)?|cbrt|erfc?|exp(2|10|m1)?|log(2|10|1p)?|fmod|hypot|pow[nr]?|rootn|remainder"
    r"|ceil|floor|trunc|rint|round|fabs|r?sqrt|degrees|radians|sign|copysign|fdim|fmax|fmin|max|min|maxmag|minmag"
    r"|clamp|mix|step|smoothstep|fma|mad|ldexp|(native|half)_(cos|exp(2|10)?|log(2|10)?|r?sqrt|sin|tan|recip|divide"
    r"|powr)|abs|abs_diff|mul_hi|mad_hi|rotate|clz|popcount|hadd|rhadd|mul24|mad24|add_sat|sub_sat|mad_sat)"
)
"""Built-in functions that give of vectors what they give of each component."""
_BITS = re.compile(rb"as_(\w+)\s*\(")
_CONVERSION = re.compile(r"convert_(float|double|u?(?:char|short|int|long))(\d+)((?:_sat)?(?:_rt[ezpn])?)")


class NotByComponentError(Exception):
    """A vector that is computed as a whole."""


@dataclass(frozen=True, slots=True)
class Components:
    """The texts of components. ``split`` are the variables that have become scalars; ``words`` gives the text of a
    node, with all that becomes of names in it."""

    unit: Unit
    variables: dict[int, Variable]
    split: set[int]
    words: Callable[[Node], str]

    def name(self, ref: int, lane: int) -> str:
        return f"{self.variables[ref].name}_@c{lane}"

    def whole(self, ref: int) -> str:
        """A variable put together again."""
        type_ = self.variables[ref].node.type
        return f"(({type_.name})({', '.join(self.name(ref, lane) for lane in range(type_.lanes))}))"

    def splits(self, node: Node) -> bool:
        """Whether a vector's components are known by their type."""
        return node.type.kind == "vector" and (node.type.base in BASES or node.type.base in NARROW)

    def lane(self, node: Node, lane: int) -> str:
        """One component of a vector; a scalar is all of its own. Raises NotByComponentError."""
        if node.type.kind != "vector":
            return self.words(node)
        if not self.splits(node):
            raise NotByComponentError
        match node.kind:
            case "DECL_REF_EXPR":
                return self.name(node.ref, lane) if node.ref in self.split else f"({self.words(node)}).s{LANES[lane]}"
            case "PAREN_EXPR":
                return self.lane(node.children[0], lane)
            case "UNEXPOSED_EXPR":
                return self._implicit(node, lane)
            case "CSTYLE_CAST_EXPR":
                return self._cast(node, lane)
            case "COMPOUND_LITERAL_EXPR":
                return self.lane(node.children[-1], lane)
            case "INIT_LIST_EXPR":
                return self._listed(node, lane)
            case "BINARY_OPERATOR":
                return self._binary(node, lane)
            case "UNARY_OPERATOR" if node.op in ("-", "+", "~") and node.type.base in BASES:
                return f"({node.op}{self.lane(node.children[0], lane)})"
            case "CONDITIONAL_OPERATOR":
                return self._choice(node, lane)
            case "CALL_EXPR":
                return self._call(node, lane)
        return f"({self.address(node)})[{lane}]"

    def address(self, node: Node) -> str:
        """Where the components of a vector in memory lie. Raises NotByComponentError for what lies in none."""
        if node.kind == "ARRAY_SUBSCRIPT_EXPR" or (node.kind == "UNARY_OPERATOR" and node.op == "*"):
            pointer = same_text(node.children[0])
            if pointer.type.kind == "array":
                variable = self.variables.get(pointer.ref)
                if variable is None or variable.node.type.address_space != "local":
                    raise NotByComponentError
            elif pointer.type.kind != "pointer":
                raise NotByComponentError
            return f"({node.type.base} *)&({self.words(node)})"
        raise NotByComponentError

    def _implicit(self, node: Node, lane: int) -> str:
        """A conversion that is not written, the components of a vector that are named, or its bits as another type."""
        child = node.children[0] if len(node.children) == 1 else None
        if child is None:
            raise NotByComponentError
        lanes = self.swizzled(node)
        if lanes is not None:
            return self.lane(child, lanes[lane])
        if child.type.name == node.type.name:
            return self.lane(child, lane)
        named = _BITS.match(self.unit.text[node.start : node.end])
        if named is not None and named[1].decode() == node.type.name:
            width = BASES.get(node.type.base)
            if child.type.lanes != node.type.lanes or width is None or BASES.get(child.type.base) != width:
                raise NotByComponentError
            return f"as_{node.type.base}({self.lane(child, lane)})"
        if child.type.kind == "vector" or (child.start, child.end) != (node.start, node.end):
            raise NotByComponentError
        return f"(({node.type.base})({self.words(child)}))"

    def swizzled(self, node: Node) -> tuple[int, ...] | None:
        """Which components of its child a node names, if it does."""
        if node.kind != "UNEXPOSED_EXPR" or len(node.children) != 1:
            return None
        (child,) = node.children
        if child.type.kind != "vector" or child.start != node.start or child.end >= node.end:
            return None
        match = _SWIZZLE.fullmatch(self.unit.text[child.end : node.end].decode())
        return None if match is None else swizzle(match[1], child.type.lanes)

    def _cast(self, node: Node, lane: int) -> str:
        child = node.children[-1]
        if child.type.kind == "vector":
            if child.type.name != node.type.name:
                raise NotByComponentError
            return self.lane(child, lane)
        return f"(({node.type.base})({self.words(child)}))"

    def _listed(self, node: Node, lane: int) -> str:
        """``(float4)(a, b.xy, c)``."""
        if sum(child.type.lanes for child in node.children) != node.type.lanes:
            if len(node.children) == 1 and node.children[0].type.kind != "vector":
                return f"(({node.type.base})({self.words(node.children[0])}))"
            raise NotByComponentError
        begin = 0
        for child in node.children:
            if lane < begin + child.type.lanes:
                return f"(({node.type.base})({self.lane(child, lane - begin)}))"
            begin += child.type.lanes
        raise NotByComponentError

    def _operand(self, node: Node, base: str, lane: int) -> str:
        text = self.lane(node, lane)
        return text if node.type.kind == "vector" else f"(({base})({text}))"

    def _binary(self, node: Node, lane: int) -> str:
        kind = next((child.type for child in node.children if child.type.kind == "vector"), None)
        if kind is None or kind.base not in BASES:
            raise NotByComponentError
        left, right = (self._operand(child, kind.base, lane) for child in node.children)
        if node.op in _ARITHMETIC:
            return f"({left} {node.op} {right})"
        if node.op in _COMPARISONS:
            return f"(-({node.type.base})({left} {node.op} {right}))"
        raise NotByComponentError

    def _choice(self, node: Node, lane: int) -> str:
        condition, *values = node.children
        if node.type.base not in BASES:
            raise NotByComponentError
        texts = [self._operand(value, node.type.base, lane) for value in values]
        if condition.type.kind != "vector":
            return f"({self.words(condition)} ? {texts[0]} : {texts[1]})"
        if condition.type.base not in ("int", "long"):
            raise NotByComponentError
        return f"({self.lane(condition, lane)} < 0 ? {texts[0]} : {texts[1]})"

    def _call(self, node: Node, lane: int) -> str:
        function, arguments = callee(node), node.children[1:]
        if not function.name or function.ref in self.unit.declared or not arguments:
            raise NotByComponentError
        if any(a.type.kind not in ("vector", "float", "int") or a.type.lanes > node.type.lanes for a in arguments):
            return self._loaded(node, function, lane)
        converts = _CONVERSION.fullmatch(function.name)
        if converts is None:
            if _ELEMENTWISE.fullmatch(function.name) is None:
                raise NotByComponentError
            if any(each.type.base not in BASES for each in (node, *arguments)):
                raise NotByComponentError
        name = f"convert_{converts[1]}{converts[3]}" if converts else function.name
        return f"{name}({', '.join(f'({a.type.base})({self.lane(a, lane)})' for a in arguments)})"

    def _loaded(self, node: Node, function: Node, lane: int) -> str:
        """``vload4(i, p)``."""
        offset, pointer = node.children[1:] if len(node.children) == 3 else (None, None)
        if function.name != f"vload{node.type.lanes}" or offset is None or pointer is None:
            raise NotByComponentError
        target = pointer.type.target
        if target is None or target.name != node.type.base:
            raise NotByComponentError
        return f"({self.words(pointer)})[(long)({self.words(offset)}) * {node.type.lanes} + {lane}]"


def is_pure(unit: Unit, node: Node) -> bool:
    """Whether an expression may be computed once for each component."""
    for each in node.walk():
        if assigned(each) is not None or each.kind in ("STMT_EXPR", "BLOCK_EXPR"):
            return False
        if each.kind == "CALL_EXPR":
            function = callee(each)
            if not function.name or function.ref in unit.declared:
                return False
            points = any(child.type.kind in ("pointer", "array", "image") for child in each.children[1:])
            if points and not re.fullmatch(r"vload\d+", function.name):
                return False
    return True


def same_text(node: Node) -> Node:
    """Without parentheses and conversions that are not written."""
    while node.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR") and len(node.children) == 1:
        (child,) = node.children
        if node.kind == "UNEXPOSED_EXPR" and (child.start, child.end) != (node.start, node.end):
            break
        node = child
    return node
