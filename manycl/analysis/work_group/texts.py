"""The texts of a kernel's statements and declarations, with what becomes of its variables written in."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, callee, stripped
from manycl.analysis.texts.rewrite import apply_edits
from manycl.analysis.work_group.contexts import LANES, Contexts, Mode, arrays_of
from manycl.analysis.work_group.parts import nodes_of
from manycl.analysis.work_group.passes.strides import is_wide, leaves, subscripts
from manycl.analysis.work_group.passes.vectors import Vectors
from manycl.analysis.work_group.queries import Edit, Queries
from manycl.analysis.work_group.syntax import Variable, behind, parameter_text, with_callers

AT = "[@z][@y][@x]"
"""The element of a context array that is a work-item's."""
AT_TURNED = "[@z][@x][@y]"
"""The same where vectors run along dimension 1."""


@dataclass(slots=True)
class Texts:
    """Texts of one kernel. ``@`` stands for the prefix of all names that the program does not have."""

    unit: Unit
    kernel: Function
    contexts: Contexts
    queries: Queries
    lines: bool = False  # compilers are told of which of the user's lines each statement is
    edits: list[Edit] = field(default_factory=list)
    arrays: list[str] = field(default_factory=list)  # declarations of context arrays
    _wide: dict[int, str] = field(default_factory=dict)  # 64-bit copies
    _unsafe: set[int] = field(default_factory=set)
    _vectors: Vectors = field(init=False)

    def __post_init__(self) -> None:
        self._unsafe = self._unsafe_functions()
        self._vectors = Vectors(self.unit, self.kernel, self.contexts, self.words, self.is_safe)
        self.edits += self.queries.below(self.kernel.body, "@w.")
        self.edits += self._pragmas()
        self.edits += near_angles(self.unit, self.kernel, self.contexts.variables)
        self._wide = self._wide_names()
        self.edits += self._uses()
        self.edits += subscripts(self.kernel.body, self._wide)
        for start, end, words in list(self._vectors.statements()):
            self.edits = [e for e in self.edits if not start <= e[0] <= e[1] <= end]
            self.edits.append((start, end, words))
        self.edits += self._declarations()
        for each in self.kernel.body.children:  # types that are declared there are known to all regions
            if each.kind == "DECL_STMT" and not any(n.ref in self.contexts.variables for n in each.walk()):
                self.arrays.append(self.words(each))
                self.edits.append((each.start, each.end, ";"))
        self._declare_arrays()
        marked = [n for n in self.kernel.nodes if self.lines and n.kind.endswith("_STMT")]
        self.edits += [(n.start, n.start, self.unit.marker(n.start)) for each in marked for n in each.children]

    # texts

    def text(self, start: int, end: int, extra: Iterable[Edit] = ()) -> str:
        """A part of the program with all edits made, and ``extra`` ones."""
        found = [e for e in {*self.edits, *extra} if start <= e[0] and e[1] <= end]
        covered = [e for e in found if e[0] < e[1]]
        kept = [
            (s - start, t - start, words)
            for s, t, words in found
            if not any(a <= s and t <= b and (a, b) != (s, t) and not (s == t and s in (a, b)) for a, b, _ in covered)
        ]
        order = sorted(kept, key=lambda e: (e[0], e[1], {"[": 0, ")": 1}.get(e[2][:1], 2)))
        return apply_edits(self.unit.text[start:end], order).decode("utf-8", "replace")

    def words(self, node: Node, extra: Iterable[Edit] = ()) -> str:
        return self.text(node.start, node.end, extra)

    def _pragmas(self) -> list[Edit]:
        body = self.kernel.body
        text = self.unit.text[body.start : body.end]
        pattern = rb"^[ \t]*#[ \t]*pragma[^\n]*|__attribute__\s*\(\(\s*opencl_unroll_hint[^)]*\)?\s*\)\)"
        found = re.finditer(pattern, text, re.M)
        return [(body.start + m.start(), body.start + m.end(), "") for m in found]

    # names

    def _wide_names(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for variable in self.contexts.variables.values():
            mode = self.contexts.modes[variable.ref]
            if variable.ref in self.contexts.stepped and variable.node.type.name == "int":
                found[variable.ref] = f"{variable.name}_@wide"
            known = variable.value is not None and variable.is_constant and variable.node.type.name == "int"
            if known and mode in (Mode.LOCAL, Mode.AGAIN) and is_wide(variable.value):  # type: ignore[arg-type]
                statement = variable.statement
                if statement is not None and variable.scope is not None and variable.scope.kind == "COMPOUND_STMT":
                    found[variable.ref] = f"{variable.name}_@wide"
        return found

    def _uses(self) -> list[Edit]:
        """Edits of variables' names."""
        edits: list[Edit] = list(self._vectors.uses())
        elements = self._element_uses()
        for variable in self.contexts.variables.values():
            if variable.ref in self._vectors:
                continue
            for use in variable.uses:
                if self.contexts.modes[variable.ref] == Mode.PLACED:
                    name = variable.name
                    words = f'(*(manycl_placed(&{name}_@{AT}, "{name}", @EXTENT, {AT})))'
                    edits.append((use.start, use.end, words))
                elif self.contexts.modes[variable.ref] == Mode.ELEMENTS:
                    edits.append((use.start, use.end, f"{variable.name}_@"))
                    edits.append((elements[id(use)], elements[id(use)], AT))
        return edits

    def _element_uses(self) -> dict[int, int]:
        """Return where the element ends that a reference to an array is the beginning of."""
        found: dict[int, int] = {}
        for node in self.kernel.nodes:
            if node.kind == "ARRAY_SUBSCRIPT_EXPR" and node.type.kind != "array":
                base = stripped(node.children[0])
                while base.kind == "ARRAY_SUBSCRIPT_EXPR" and base.type.kind == "array":
                    base = stripped(base.children[0])
                found[id(base)] = node.end
        return found

    # declarations

    def typed(self, variable: Variable, suffix: str, behind: str = "") -> str:
        """The declaration of a variable by another name: ``T name_suffix``; ``behind`` comes after the name."""
        name = variable.name
        specifiers, declarator = variable.specifiers, variable.declarator
        if variable.scope is None:
            specifiers, declarator = parameter_text(self.unit, variable.node)
        if not declarator.startswith("*"):
            specifiers = re.sub(r"\bconst\b|\bvolatile\b|\b__const\b", " ", specifiers)
        specifiers = re.sub(r"\b(register|static|auto)\b", " ", specifiers)
        pattern = rf"(?<![\w$]){re.escape(variable.name)}(?![\w$])"
        declared = re.sub(pattern, lambda _: f"{name}{suffix}{behind}", declarator, count=1)
        if declarator.startswith("*") and suffix:
            declared = re.sub(r"\*\s*const\b", "*", declared)
        return f"{specifiers} {declared}"

    def _declare_arrays(self) -> None:
        for variable in self.contexts.variables.values():
            mode = self.contexts.modes[variable.ref]
            if mode == Mode.PLACED:
                self.arrays.append(f"{self.typed(variable, '_@', ' @EXTENT')};")
            elif mode == Mode.ELEMENTS:
                self.arrays.append(f"{self.typed(variable, '_@')} @EXTENT;")
            elif mode == Mode.COPIED:
                self.arrays.append(f"{self.context_array(variable)};")
            elif mode == Mode.TABLE and variable.value is not None:
                words = self.words(variable.value)
                self.arrays.append(f"static const {self.typed(variable, '')} = {words};")
            elif mode == Mode.SHARED:
                self.arrays.append(f"{self.typed(variable, '')} __attribute__((aligned(128)));")

    def context_array(self, variable: Variable) -> str:
        """The declaration of the array that a variable is copied in and out of; of vectors, an array of each lane."""
        name, type_ = variable.name, variable.node.type
        if type_.kind == "vector":
            return f"{type_.base} {name}_@[{type_.lanes}] @EXTENT"
        if type_.kind == "pointer":
            return f"ulong {name}_@ @EXTENT"
        return self.typed(variable, "_@", " @EXTENT")

    def _declarations(self) -> list[Edit]:
        """Edits of declarations, wherever they stand."""
        edits: list[Edit] = []
        plain = (Mode.LOCAL, Mode.SAME, Mode.AGAIN, Mode.COPIED)
        closed: list[int] = []
        by_statement: dict[int, list[Variable]] = {}
        regions = (node for part in self.contexts.parts for node in nodes_of(part))
        whole = {id(each) for node in regions for each in node.walk() if each.kind in LOOPS}
        for variable in self.contexts.variables.values():
            if variable.statement is not None:
                by_statement.setdefault(id(variable.statement), []).append(variable)
        for found in by_statement.values():
            statement = found[0].statement
            assert statement is not None
            same = all(v.ref not in self._vectors and self.contexts.modes[v.ref] in plain for v in found)
            wider = [v for v in found if v.ref in self._wide and v.ref not in self.contexts.stepped]
            if same and not wider:
                continue
            if same and len(found) == 1:
                edits.append((statement.end, statement.end, " " + " ".join(self._widened(v) for v in wider)))
                continue
            words = " ".join(self._declared(v) for v in sorted(found, key=lambda v: v.node.start))
            scope = found[0].scope
            if scope is not None and id(scope) in whole:  # the head of a loop has room for one declaration
                edits.append((scope.start, scope.start + 3, f"{{ {words} for"))
                closed.append(behind(self.unit.text, scope.end) - 1)
                words = ";"
            edits.append((statement.start, statement.end, words or ";"))
        for last, count in Counter(closed).items():
            edits.append((last, last + 1, self.unit.text[last : last + 1].decode() + " }" * count))
        return edits

    def _widened(self, variable: Variable) -> str:
        assert variable.value is not None
        value = variable.value
        extra = list(leaves(value, self._wide))
        return f"const long {self._wide[variable.ref]} = {self.words(value, extra)};"

    def _declared(self, variable: Variable) -> str:
        """One variable's declaration, at its place."""
        mode, name = self.contexts.modes[variable.ref], variable.name
        value = self.words(variable.value) if variable.value is not None else ""
        if mode in (Mode.TABLE, Mode.SHARED):
            return ""
        if variable.ref in self._vectors:
            return self._vectors.declared(variable)
        if mode in (Mode.PLACED, Mode.ELEMENTS):
            if not value:
                return ""
            copied = f"{self.typed(variable, '_@value')} = {value};"
            if mode == Mode.PLACED:
                return f"{{ {copied} __builtin_memcpy(&{name}_@{AT}, &{name}_@value, sizeof({name}_@value)); }}"
            count = f"(int)(sizeof({name}_@value) / sizeof({name}_@value[0]))"
            return f"{{ {copied} for (int @e = 0; @e < {count}; @e++) {name}_@[@e]{AT} = {name}_@value[@e]; }}"
        words = f"{self.typed(variable, '')}{' = ' + value if value else ''};"
        wider = variable.ref in self._wide and variable.ref not in self.contexts.stepped
        return f"{words} {self._widened(variable)}" if wider else words

    # copies

    def computed_again(self, variable: Variable) -> str:
        if variable.ref in self.contexts.stepped:
            return self._stepped_again(variable)
        if variable.ref in self._vectors:
            return self._vectors.declared(variable)
        assert variable.value is not None
        words = f"{self.typed(variable, '')} = {self.words(variable.value)};"
        return f"{words} {self._widened(variable)}" if variable.ref in self._wide else words

    def offset(self, variable: Variable) -> str:
        """The name of what the group adds to the first value of a loop's variable."""
        return f"{variable.name}_@offset"

    def _stepped_again(self, variable: Variable) -> str:
        """In 64 bits, where neighbours' values are seen to be neighbours; sums that overflow are undefined."""
        value = self.contexts.stepped[variable.ref].value
        typed = self.typed(variable, "")
        if variable.ref not in self._wide:
            return f"{typed} = (long)({self.words(value)}) + {self.offset(variable)};"
        first = self.words(value, leaves(value, self._wide)) if is_wide(value) else f"(int)({self.words(value)})"
        wide = self._wide[variable.ref]
        return f"const long {wide} = (long)({first}) + {self.offset(variable)}; {typed} = (int){wide};"

    def copied_in(self, variable: Variable) -> str:
        if variable.ref in self._vectors:
            return self._vectors.copied_in(variable, AT)
        name, type_ = variable.name, variable.node.type
        typed = self.typed(variable, "")
        if type_.kind == "vector":
            lanes = ", ".join(f"{name}_@[{lane}]{AT}" for lane in range(type_.lanes))
            return f"{typed} = ({type_.name})({lanes});"
        if type_.kind == "pointer":
            return f"{typed} = (__typeof__({name})){name}_@{AT};"
        return f"{typed} = {name}_@{AT};"

    def copied_out(self, variable: Variable) -> str:
        if variable.ref in self._vectors:
            return self._vectors.copied_out(variable, AT)
        name, type_ = variable.name, variable.node.type
        if type_.kind == "vector":
            return "".join(f"{name}_@[{lane}]{AT} = {name}.s{LANES[lane]};" for lane in range(type_.lanes))
        return f"{name}_@{AT} = {'(ulong)' if type_.kind == 'pointer' else ''}{name};"

    def is_safe(self, nodes: list[Node]) -> bool:
        """Return whether no work-item's own things lie in memory that a loop's turns share, and none is done one by
        one."""
        alone = self.queries.unlocked.nodes
        return not any(each.ref in self._unsafe or id(each) in alone for node in nodes for each in node.walk())

    def _unsafe_functions(self) -> set[int]:
        reached = self.queries.reached.items()
        found = {ref for ref, function in reached if next(arrays_of(function), None) is not None}
        return with_callers(self.queries.reached, found | self.queries.unlocked.functions)


NEAR = 2.0**48
"""Angles below, infinities and NaN have their sines from the functions for what is near (``manycl_near_sin``)."""
_FUNCTIONS = ("sin", "cos")
_DEEP = 32
_INTEGERS = ("int", "bool")
_CONVERTING = ("PAREN_EXPR", "UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR")


def near_angles(unit: Unit, kernel: Function, variables: dict[int, Variable]) -> Iterator[Edit]:
    """The edits of the names of functions of floats whose arguments are certainly near, infinite, or NaN: built-in ones
    have one way for all arguments, since loops become vectors, and that for huge ones costs as much as the rest."""
    for node in kernel.nodes:
        function = callee(node)
        if function.name not in _FUNCTIONS or function.ref in unit.declared:
            continue
        argument = node.children[-1]
        if argument.type.name != "float" or unit.words(function) != function.name:
            continue
        if _most(unit, argument, variables, 0) < NEAR:
            yield function.start, function.end, f"manycl_near_{function.name}"


def _most(unit: Unit, node: Node, variables: dict[int, Variable], depth: int) -> float:
    """No value of a node that is finite is larger, or smaller than this negated; of floats, with rounding."""
    if depth > _DEEP:
        return math.inf
    if _is_converted(unit, node):
        child = node.children[-1]
        if node.type.kind == "float" and child.type.kind in ("float", *_INTEGERS):
            return _most(unit, child, variables, depth + 1) * 1.001
    if node.type.kind in _INTEGERS:
        return _most_of_integer(node)
    if node.type.kind != "float":
        return math.inf
    if node.kind == "FLOATING_LITERAL":
        return _literal(unit, node)
    if node.kind == "DECL_REF_EXPR":
        variable = variables.get(node.ref)
        if variable is None or variable.value is None or not variable.is_constant:
            return math.inf
        return _most(unit, variable.value, variables, depth + 1)
    if node.kind == "UNARY_OPERATOR" and node.op in ("-", "+"):
        return _most(unit, node.children[0], variables, depth + 1)
    if node.kind != "BINARY_OPERATOR" or node.op not in ("+", "-", "*", "/"):
        return math.inf
    left = _most(unit, node.children[0], variables, depth + 1)
    if node.op == "/":
        return left / _least(unit, node.children[1]) * 1.001
    right = _most(unit, node.children[1], variables, depth + 1)
    return (left * right if node.op == "*" else left + right) * 1.001


def _is_converted(unit: Unit, node: Node) -> bool:
    """Return whether a node has its child's value, as another type perhaps: not its bits."""
    if node.kind not in _CONVERTING or not node.children:
        return False
    return not unit.text.startswith(b"as_", node.start)


def _most_of_integer(node: Node) -> float:
    while node.kind in _CONVERTING and len(node.children) == 1:
        child = node.children[0]
        if child.type.kind not in _INTEGERS or child.type.size > node.type.size:
            break
        node = child
    limit = 2.0 ** (8 * node.type.size) if node.type.size else math.inf
    if node.kind == "BINARY_OPERATOR" and node.op == ">>" and node.children[0].type.name.startswith("u"):
        by = node.children[1].value
        if node.children[1].kind == "INTEGER_LITERAL" and by is not None and by < 8 * node.type.size:
            return limit / 2.0**by
    return limit


def _least(unit: Unit, node: Node) -> float:
    """No value of a divisor is nearer to 0, but 0 itself."""
    while _is_converted(unit, node):
        if node.children[-1].type.kind in _INTEGERS:
            return 0.999
        node = node.children[-1]
    found = _literal(unit, node) if node.kind == "FLOATING_LITERAL" else 0.0
    return found if found else 1e-300


def _literal(unit: Unit, node: Node) -> float:
    text = unit.words(node).lower().removesuffix("f")
    try:
        return float.fromhex(text) if text.startswith("0x") else float(text)
    except ValueError:
        return math.inf
