"""Vectors' components as scalars: which variables become scalars, and the texts of all that is done to them. Compilers
make vectors of work-items only where these compute with scalars. Private variables of vector types become a scalar for
each component, where each of their writes is a statement whose value can be said component by component or taken apart;
uses that are none of these are of a vector that is put together again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from manycl.analysis.interpreter.values import swizzle
from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, assigned, callee
from manycl.analysis.work_group.contexts import LANES, Contexts, Mode
from manycl.analysis.work_group.parts import ParallelRegion, regions
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import Variable

_MODES = (Mode.LOCAL, Mode.AGAIN, Mode.COPIED)
_COMPOUND = {f"{op}=": op for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")}


class Vectors:
    """The loops of one kernel that become vectors. ``words`` gives the text of a node with the edits that are known so
    far; ``is_safe``: whether the turns of a region's loop are independent, so that it becomes vectors of work-items."""

    def __init__(
        self,
        unit: Unit,
        kernel: Function,
        contexts: Contexts,
        words: Callable[[Node], str],
        is_safe: Callable[[list[Node]], bool],
    ) -> None:
        self.unit, self.kernel, self.contexts = unit, kernel, contexts
        self.is_safe = is_safe
        self.parents = {id(child): node for node in kernel.nodes for child in node.children}
        self.components = Components(unit, contexts.variables, set(), words)
        self.components.split.update(self._found())

    def __contains__(self, ref: int) -> bool:
        return ref in self.components.split

    # which

    def _found(self) -> list[int]:
        if b"volatile" in self.unit.text:
            return []
        used = self.contexts.used_in
        apart = {ref for r in regions(self.contexts.parts) if self._has_loops(r) for ref in used.get(r.number, ())}
        return [v.ref for v in self.contexts.variables.values() if v.ref not in apart and self._may_split(v)]

    def _has_loops(self, region: ParallelRegion) -> bool:
        """Return whether a region becomes no vectors of work-items."""
        nodes = [statement.node for statement in region.statements]
        return not self.is_safe(nodes) or any(each.kind in LOOPS for node in nodes for each in node.walk())

    def _may_split(self, variable: Variable) -> bool:
        scope, mode = variable.scope, self.contexts.modes[variable.ref]
        if scope is None or scope.kind != "COMPOUND_STMT" or mode not in _MODES or variable.escapes:
            return False
        if not self.components.splits(variable.node) or variable.partial:
            return False
        if any(self._is_taken(use) for use in variable.uses):
            return False
        return all(self._is_written(node) for node in variable.writes)

    def _is_taken(self, use: Node) -> bool:
        """Return whether one component is chosen by a number, or the address is taken."""
        parent = self.parents[id(use)]
        while parent.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR"):
            parent = self.parents[id(parent)]
        return parent.kind == "ARRAY_SUBSCRIPT_EXPR" and parent.children[0].type.kind == "vector"

    def _is_written(self, node: Node) -> bool:
        """Return whether a write can be said component by component."""
        target = assigned(node)
        assert target is not None
        lanes = self.components.swizzled(target)
        base = target.children[0] if lanes is not None else target
        if base.kind != "DECL_REF_EXPR" or (lanes is None and target.type.kind != "vector"):
            return False
        if lanes is not None and len(lanes) == 1:
            return True
        if node.kind == "COMPOUND_ASSIGNMENT_OPERATOR" and base.type.base not in BASES:
            return False
        if node.kind == "UNARY_OPERATOR" or (lanes is not None and len(set(lanes)) < len(lanes)):
            return False
        return self._is_statement(node)

    def _is_statement(self, node: Node) -> bool:
        """Return whether an expression's value is not used."""
        parent = self.parents[id(node)]
        if parent.kind == "COMPOUND_STMT" or (parent.kind == "IF_STMT" and parent.children[0] is not node):
            return True
        return parent.kind in LOOPS and parent.children[0 if parent.kind == "DO_STMT" else -1] is node

    # edits

    def uses(self) -> Iterator[Edit]:
        """The edits of all names: of one component, or of the whole."""
        for ref in self.components.split:
            for use in self.contexts.variables[ref].uses:
                parent = self.parents[id(use)]
                lanes = self.components.swizzled(parent)
                if lanes is not None and len(lanes) == 1:
                    yield parent.start, parent.end, self.components.name(ref, lanes[0])
                else:
                    yield use.start, use.end, self.components.whole(ref)

    def statements(self) -> Iterator[Edit]:
        """The edits of statements that assign variables, or vectors in memory of what is computed of them."""
        for node in self.kernel.nodes:
            target = assigned(node)
            if target is None or node.kind == "UNARY_OPERATOR" or target.type.kind != "vector":
                continue
            lanes = self.components.swizzled(target)
            base = target.children[0] if lanes is not None else target
            if base.kind == "DECL_REF_EXPR" and base.ref in self:
                yield node.start, node.end, self._assigned(node, base.ref, lanes)
            elif lanes is None and self._is_statement(node):
                text = self._stored(node, target)
                if text:
                    yield node.start, node.end, text

    def _assigned(self, node: Node, ref: int, lanes: Sequence[int] | None) -> str:
        type_ = self.contexts.variables[ref].node.type
        lanes = lanes if lanes is not None else list(range(type_.lanes))
        op = _COMPOUND.get(node.op, "")
        before, values = self._values(node.children[1], len(lanes), type_.base)
        names = [self.components.name(ref, lane) for lane in lanes]
        for index, value in enumerate(values):
            before += f"const {type_.base} @v{index} = {f'{names[index]} {op} {value}' if op else value}; "
        after = "".join(f"{name} = @v{index}; " for index, name in enumerate(names))
        return f"({{ {before}{after}(void)0; }})"

    def _values(self, value: Node, count: int, base: str) -> tuple[str, list[str]]:
        """The components of a value, and statements before them."""
        if value.type.kind != "vector":
            return f"const {base} @s = {self.components.words(value)}; ", ["@s"] * count
        try:
            if is_pure(self.unit, value):
                return "", [self.components.lane(value, lane) for lane in range(count)]
        except NotByComponentError:
            pass
        lanes = "0123456789ABCDEF"[:count]
        return f"const {value.type.name} @t = {self.components.words(value)}; ", [f"@t.s{lane}" for lane in lanes]

    def _stored(self, node: Node, target: Node) -> str:
        """A vector that is written to memory, where it is computed of variables that are scalars now."""
        value, type_, op = node.children[1], target.type, _COMPOUND.get(node.op, "")
        named = any(each.kind == "DECL_REF_EXPR" and each.ref in self for each in value.walk())
        if (
            not named
            or type_.lanes == 3
            or (op and type_.base not in BASES)
            or not self.components.splits(target)
            or value.type.kind != "vector"
        ):
            return ""
        if not is_pure(self.unit, node.children[1]) or not is_pure(self.unit, target):
            return ""
        try:
            address = self.components.address(same_text(target))
            values = [self.components.lane(value, lane) for lane in range(type_.lanes)]
        except NotByComponentError:
            return ""
        text = f"{type_.base} *const @p = {address}; "
        for lane, each in enumerate(values):
            text += f"const {type_.base} @v{lane} = {f'@p[{lane}] {op} {each}' if op else each}; "
        return f"({{ {text}{''.join(f'@p[{lane}] = @v{lane}; ' for lane in range(type_.lanes))}(void)0; }})"

    # declarations and copies

    def declared(self, variable: Variable) -> str:
        type_, value = variable.node.type, variable.value
        names = [self.components.name(variable.ref, lane) for lane in range(type_.lanes)]
        if value is None:
            return f"{type_.base} {', '.join(names)};"
        before, values = self._values(value, type_.lanes, type_.base)
        if before:
            listed = ", ".join(names)
            parts = "".join(f"{name} = {text}; " for name, text in zip(names, values, strict=True))
            return f"{type_.base} {listed}; {{ {before}{parts}}}"
        return " ".join(f"{type_.base} {name} = {text};" for name, text in zip(names, values, strict=True))

    def copied_in(self, variable: Variable, at: str) -> str:
        type_, array = variable.node.type, variable.name
        names = (self.components.name(variable.ref, lane) for lane in range(type_.lanes))
        return "".join(f"{type_.base} {name} = {array}_@[{lane}]{at};" for lane, name in enumerate(names))

    def copied_out(self, variable: Variable, at: str) -> str:
        array = variable.name
        names = (self.components.name(variable.ref, lane) for lane in range(variable.node.type.lanes))
        return "".join(f"{array}_@[{lane}]{at} = {name};" for lane, name in enumerate(names))


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
        """Return whether a vector's components are known by their type."""
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
        """Return where the components of a vector in memory lie. Raises NotByComponentError for what lies in none."""
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
        """Return which components of its child a node names, if it does."""
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
    """Return whether an expression may be computed once for each component."""
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
