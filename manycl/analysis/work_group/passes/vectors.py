"""Which variables of vector types become scalars, one for each component, and the texts of all that is done to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, assigned
from manycl.analysis.work_group.contexts import Contexts, Mode
from manycl.analysis.work_group.parts import CutBranch, CutLoop, CutScope, ParallelRegion, Part
from manycl.analysis.work_group.passes.components import BASES, Components, NotByComponentError, is_pure, same_text
from manycl.analysis.work_group.queries import Edit
from manycl.analysis.work_group.syntax import Variable

_MODES = (Mode.LOCAL, Mode.AGAIN, Mode.COPIED)
_COMPOUND = {f"{op}=": op for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")}


class Vectors:
    """Of one kernel. ``words`` gives the text of a node with the edits that are known so far; ``is_safe``: whether the
    turns of a region's loop are independent, so that it becomes vectors of work-items."""

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
        apart = {ref for part in self.contexts.parts for ref in self._used_in_loops(part)}
        return [v.ref for v in self.contexts.variables.values() if v.ref not in apart and self._may_split(v)]

    def _used_in_loops(self, part: Part) -> Iterator[int]:
        """Variables of regions that become no vectors of work-items."""
        match part:
            case ParallelRegion():
                nodes = [statement.node for statement in part.statements]
                if not self.is_safe(nodes) or any(each.kind in LOOPS for node in nodes for each in node.walk()):
                    yield from self.contexts.used_in.get(part.number, ())
            case CutScope() | CutLoop():
                for inner in part.parts:
                    yield from self._used_in_loops(inner)
            case CutBranch():
                for inner in (*part.then, *(part.other or ())):
                    yield from self._used_in_loops(inner)

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
        """Whether one component is chosen by a number, or the address is taken."""
        parent = self.parents[id(use)]
        while parent.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR"):
            parent = self.parents[id(parent)]
        return parent.kind == "ARRAY_SUBSCRIPT_EXPR" and parent.children[0].type.kind == "vector"

    def _is_written(self, node: Node) -> bool:
        """Whether a write can be said component by component."""
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
        """Whether an expression's value is not used."""
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
