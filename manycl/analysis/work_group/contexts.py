"""Variables of a kernel where its body is cut: which are one value for the whole group, which are computed again, and
which are kept in context arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from manycl.analysis.reading.tree import THROUGH, CType, Function, Node, Unit, callee, stripped
from manycl.analysis.work_group.parts import CutBranch, CutJump, CutLoop, CutScope, ParallelRegion, Part, assignments
from manycl.analysis.work_group.passes.strides import Stepped
from manycl.analysis.work_group.passes.uniformity import OWN, SAME, Uniformity
from manycl.analysis.work_group.syntax import Variable

MOST_AGAIN = 48
"""Nodes of an expression that is computed again in each region rather than kept."""
LANES = "0123456789ABCDEF"


class Mode(Enum):
    """A way in which a variable is kept."""

    LOCAL = "within one region"
    SAME = "one value for the group"
    AGAIN = "computed again in each region"
    COPIED = "in a context array, copied in and out of regions"
    ELEMENTS = "an array of which each element is a context array"
    PLACED = "in a context array, used in place"
    TABLE = "an array of constants"
    SHARED = "local memory"


@dataclass(slots=True)
class Contexts:
    """Modes of all variables of a kernel whose body was cut into ``parts``. ``demoted`` are those that cannot be one
    value for the group after all: the cutting has to be done again."""

    unit: Unit
    kernel: Function
    variables: dict[int, Variable]
    uniformity: Uniformity
    parts: list[Part]
    modes: dict[int, Mode] = field(default_factory=dict)
    demoted: set[int] = field(default_factory=set)
    used_in: dict[int, set[int]] = field(default_factory=dict)  # region -> variables
    written_in: dict[int, set[int]] = field(default_factory=dict)
    _regions_of: dict[int, set[int]] = field(default_factory=dict)
    _at_group: set[int] = field(default_factory=set)  # named outside of regions
    _group_writes: set[int] = field(default_factory=set)  # nodes, by identity
    _top_writes: set[int] = field(default_factory=set)
    _top_declared: set[int] = field(default_factory=set)
    _whole: dict[int, bool] = field(default_factory=dict)
    stepped: dict[int, Stepped] = field(default_factory=dict)  # variables of loops, which the group counts up

    def __post_init__(self) -> None:
        for part in self.parts:
            self._look(part)
        self._find_elements()
        for variable in sorted(self.variables.values(), key=self._known_from):
            mode = self.modes[variable.ref] = self._mode(variable)
            if mode in (Mode.ELEMENTS, Mode.PLACED) and variable.ref not in self.uniformity.varying:
                self.demoted.add(variable.ref)  # each work-item has its own, so the group cannot read it
        self._spread()

    def _known_from(self, variable: Variable) -> int:
        """Return where in the text it is known how a variable is kept: that of a loop, by what it begins with."""
        found = self.stepped.get(variable.ref)
        return found.loop.start if found is not None else -1 if variable.scope is None else variable.node.start

    def _spread(self) -> None:
        """Note that what the group computes is computed from what it has."""
        pending = [ref for ref, mode in self.modes.items() if mode == Mode.SAME]
        while pending:
            variable = self.variables[pending.pop()]
            for root in (variable.value, *variable.writes):
                for node in root.walk() if root is not None else ():
                    if self.modes.get(node.ref) != Mode.LOCAL or node.kind != "DECL_REF_EXPR":
                        continue
                    other = self.variables[node.ref]
                    if not self._written_together(other):
                        self.demoted.add(variable.ref)
                        continue
                    self.modes[node.ref] = Mode.SAME
                    pending.append(node.ref)

    # where variables are used

    def _look(self, part: Part) -> None:
        match part:
            case ParallelRegion():
                self._look_region(part)
            case CutScope():
                for inner in part.parts:
                    self._look(inner)
            case CutBranch():
                self._look_head(part.condition, part.masked, part.number)
                for inner in (*part.then, *(part.other or ())):
                    self._look(inner)
            case CutLoop():
                if part.stepped is not None:
                    self.stepped[part.stepped.variable] = part.stepped
                    for node in part.stepped.step.walk() if part.stepped.step is not None else ():
                        if node.ref in self.variables:
                            self._at_group.add(node.ref)
                for number, head in zip(part.numbers, part.heads(), strict=True):
                    if head is not None:
                        self._look_head(head, part.masked, number)
                for inner in part.parts:
                    self._look(inner)
            case CutJump():
                pass

    def _look_region(self, region: ParallelRegion) -> None:
        for statement in region.statements:
            self._names(statement.node, region.number)
            if statement.node.kind == "DECL_STMT":
                self._top_declared |= {child.ref for child in statement.node.children}
            else:
                self._top_writes |= {id(node) for node in assignments(statement.node)}

    def _look_head(self, head: Node, masked: bool, number: int) -> None:
        if masked:
            self._names(head, number)
            return
        for node in head.walk():
            if node.ref in self.variables:
                self._at_group.add(node.ref)
        if head.kind == "DECL_STMT":
            self._top_declared |= {child.ref for child in head.children}
        self._group_writes |= {id(node) for node in assignments(head)}

    def _names(self, root: Node, number: int) -> None:
        used = self.used_in.setdefault(number, set())
        for node in root.walk():
            if node.kind in ("DECL_REF_EXPR", "VAR_DECL") and node.ref in self.variables:
                used.add(node.ref)
                self._regions_of.setdefault(node.ref, set()).add(number)
        written = self.written_in.setdefault(number, set())
        inside = {id(node) for node in root.walk()}
        for ref in used:
            variable = self.variables[ref]
            changes = (variable.node, *variable.writes, *variable.partial)
            if variable.escapes or any(id(node) in inside for node in changes):
                written.add(ref)

    def _find_elements(self) -> None:
        """Find the arrays of which every use is of a whole element."""
        for node in self.kernel.nodes:
            for child in node.children if node.kind not in THROUGH else ():
                base = stripped(child)
                if base.kind != "ARRAY_SUBSCRIPT_EXPR" or base.type.kind != "array":
                    continue
                if node.kind == "ARRAY_SUBSCRIPT_EXPR" and child is node.children[0]:
                    continue
                while base.kind == "ARRAY_SUBSCRIPT_EXPR":
                    base = stripped(base.children[0])
                self._whole[base.ref] = False

    # modes

    def _mode(self, variable: Variable) -> Mode:
        ref, type_ = variable.ref, variable.node.type
        if ref in self.stepped:
            stepped = self.stepped[ref]
            if self._is_plain(stepped.value, (stepped.loop.start, stepped.loop.end), 0):
                return Mode.AGAIN
            del self.stepped[ref]
        if variable.scope is not None and type_.address_space == "local":
            return Mode.SHARED
        regions = self._regions_of.get(ref, set())
        varying = ref in self.uniformity.varying
        if variable.scope is None:
            if variable.is_constant:
                return Mode.SAME
        elif type_.kind == "array" or (type_.kind in ("record", "union") and _has_arrays(type_)):
            return self._mode_of_array(variable, varying)
        elif variable.is_taken:
            return Mode.PLACED
        elif len(regions) <= 1 and ref not in self._at_group:
            return Mode.LOCAL
        if not varying:
            if not self._written_together(variable):
                self.demoted.add(ref)
            return Mode.SAME
        if variable.is_taken:
            return Mode.PLACED
        return Mode.AGAIN if self._may_be_computed_again(variable) else Mode.COPIED

    def _mode_of_array(self, variable: Variable, varying: bool) -> Mode:
        literal = variable.value is not None and not any(map(self._is_computed, variable.value.walk()))
        if not varying and variable.is_constant and literal:
            return Mode.TABLE
        elements = variable.subscripted and self._whole.get(variable.ref, True) and variable.node.type.kind == "array"
        flat = variable.node.type.target is not None and variable.node.type.target.kind != "array"
        if elements and not variable.escapes and (variable.value is None or flat):
            return Mode.ELEMENTS
        return Mode.PLACED

    def _is_computed(self, node: Node) -> bool:
        """Return whether clang has no constant of this: a name, ``as_int(1)``, ``(int4)(1).xy``, a choice between
        vectors."""
        if node.kind != "UNEXPOSED_EXPR" or not node.children:
            return node.kind == "DECL_REF_EXPR" or (node.kind == "CONDITIONAL_OPERATOR" and node.type.kind == "vector")
        within = node.children[0]
        return (node.start, node.end) != (within.start, within.end) or self.unit.text.startswith(b"as_", node.start)

    def _written_together(self, variable: Variable) -> bool:
        """Return whether each write is where the group does it once: in a head, or at the top of a region."""
        declared = variable.scope is None or variable.ref in self._top_declared
        allowed = self._group_writes | self._top_writes
        return declared and all(id(node) in allowed for node in variable.writes)

    def _may_be_computed_again(self, variable: Variable) -> bool:
        if variable.writes or variable.partial or variable.escapes or variable.value is None or variable.scope is None:
            return False
        assert variable.statement is not None
        within = variable.statement.start, variable.scope.end
        return self._is_plain(variable.value, within, 0) and sum(1 for _ in variable.value.walk()) <= MOST_AGAIN

    def _is_plain(self, node: Node, within: tuple[int, int], depth: int) -> bool:
        """Return whether an expression costs little and has one value within a part of the text."""
        if depth > 16:
            return False
        if node.kind == "CALL_EXPR":
            function = callee(node)
            asks = OWN.fullmatch(function.name) or SAME.fullmatch(function.name)
            known = asks is not None and function.ref not in self.unit.declared
            return known and all(self._is_plain(c, within, depth + 1) for c in node.children[1:])
        if node.kind == "DECL_REF_EXPR":
            return node.value is not None or self._keeps(node.ref, within, depth)
        if node.kind in ("ARRAY_SUBSCRIPT_EXPR", "INIT_LIST_EXPR", "STRING_LITERAL", "COMPOUND_LITERAL_EXPR"):
            return False
        if node.kind == "MEMBER_REF_EXPR" and node.children[0].type.kind == "pointer":
            return False
        if node.op in ("*", "&") and node.kind == "UNARY_OPERATOR":
            return False
        if node.op in ("/", "%") and stripped(node.children[1]).kind != "INTEGER_LITERAL":
            return False
        if node.op in ("=", "x++", "x--", "++x", "--x", ",") or node.kind == "COMPOUND_ASSIGNMENT_OPERATOR":
            return False
        return all(self._is_plain(child, within, depth + 1) for child in node.children)

    def _keeps(self, ref: int, within: tuple[int, int], depth: int) -> bool:
        """Return whether a variable has one value within a part of the text, which can be had there."""
        other = self.variables.get(ref)
        if other is None or other.node.type.address_space == "local":
            return False
        begin, end = within
        if any(begin <= write.start < end for write in (*other.writes, *other.partial)) or other.escapes:
            return False
        if ref not in self.uniformity.varying:
            if other.scope is not None and not self._written_together(other):
                return False
            if self.modes.get(ref) == Mode.LOCAL:  # declared before its user: its mode is known
                self.modes[ref] = Mode.SAME
            return True
        if ref in self.stepped:
            return self.modes.get(ref) == Mode.AGAIN
        if other.scope is None or other.value is None or not other.is_constant:
            return False
        return self._is_plain(other.value, within, depth + 1)

    def needed_again(self, refs: Sequence[int]) -> list[Variable]:
        """Return the variables that are computed again for ``refs``, in the order of their declarations."""
        found: dict[int, Variable] = {}
        pending = [ref for ref in refs if self.modes.get(ref) == Mode.AGAIN]
        while pending:
            variable = self.variables[pending.pop()]
            value = self.value_of(variable)
            if variable.ref in found or value is None:
                continue
            found[variable.ref] = variable
            for node in value.walk():
                if node.ref in self.variables and node.ref in self.uniformity.varying:
                    pending.append(node.ref)
        return sorted(found.values(), key=self._known_from)

    def value_of(self, variable: Variable) -> Node | None:
        """Return what a variable is computed again from."""
        return self.stepped[variable.ref].value if variable.ref in self.stepped else variable.value


def _has_arrays(type_: CType) -> bool:
    return any(inner.kind == "array" or _has_arrays(inner) for _, inner in type_.members) or type_.holds_pointers


def arrays_of(function: Function) -> Iterator[Node]:
    """The arrays that a function declares, or what may be indexed like one."""
    for node in function.nodes:
        if node.kind == "VAR_DECL" and (node.type.kind in ("array", "union") or _has_arrays(node.type)):
            if node.type.address_space in ("constant", "local"):
                continue
            yield node
        if node.kind == "UNARY_OPERATOR" and node.op == "&" and stripped(node.children[0]).kind == "DECL_REF_EXPR":
            yield node
