"""Finds arguments of a kernel that are read and written, by a points-to analysis of the light tree. A function has a
summary that its calls instantiate. Everything that cannot be followed (an address made an integer, stored in memory, or
given to an unknown function; a pointer loaded from a buffer) widens to read and written, with why."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from itertools import product

from manycl.analysis.reading import builtins
from manycl.analysis.reading.points_to import NONE, SYMBOLIC, VOID, FunctionSummary, Location, Locations, PointsTo
from manycl.analysis.reading.tree import Function, Node, Unit, callee, stripped

_STATEMENTS = {
    *("COMPOUND_STMT", "IF_STMT", "FOR_STMT", "WHILE_STMT", "DO_STMT", "SWITCH_STMT", "CASE_STMT", "DEFAULT_STMT"),
    *("LABEL_STMT", "NULL_STMT", "BREAK_STMT", "CONTINUE_STMT", "GOTO_STMT", "DECL_STMT", "UNEXPOSED_STMT"),
}
_INERT = {
    *("INTEGER_LITERAL", "FLOATING_LITERAL", "CHARACTER_LITERAL", "STRING_LITERAL", "CXX_BOOL_LITERAL_EXPR"),
    *("TYPE_REF", "LABEL_REF", "MEMBER_REF", "OVERLOADED_DECL_REF", "TYPEDEF_DECL", "STRUCT_DECL", "UNION_DECL"),
    *("ENUM_DECL", "FUNCTION_DECL"),
    "CXX_UNARY_EXPR",  # sizeof and the like: not evaluated
}
_ATOMIC = re.compile(r"__opencl_atomic_(load|store|init)?")
_TYPEOF = re.compile(rb"typeof|__auto_type")
ASSEMBLY = re.compile(rb"\b(__asm__|__asm|asm)\b")


def summaries(unit: Unit) -> dict[int, FunctionSummary]:
    """The summary of every function of a program."""
    result = {ref: FunctionSummary() for ref in unit.functions}
    for function in _callees_first(unit):
        _Body(unit, function, result).analyse()
    return result


def accesses(
    unit: Unit, function: Function, known: Mapping[int, FunctionSummary]
) -> Iterator[tuple[frozenset[Location], frozenset[Location]]]:
    """Yield for each statement of a function's body what memory of its parameters, or any, it reads, and what it
    writes; where an address is lost, both. ``known``: the summaries of all functions."""
    body = _Body(unit, function, {**known, function.ref: FunctionSummary()})
    body.analyse()
    lost = frozenset[Location](body.summary.escapes)
    for statement in function.body.children:
        body.summary = FunctionSummary()
        body.value(statement)
        found = body.summary
        if lost:
            yield lost | found.reads, lost | found.writes
        else:
            yield frozenset(found.reads), frozenset(found.writes)


def _callees_first(unit: Unit) -> Iterator[Function]:
    """The functions, each behind those that it mentions."""
    mentioned = {
        ref: {n.ref for n in function.nodes if n.kind == "DECL_REF_EXPR" and n.ref in unit.functions}
        for ref, function in unit.functions.items()
    }
    return map(unit.functions.__getitem__, TopologicalSorter(mentioned).static_order())


def is_null(node: Node) -> bool:
    """Return whether an expression is a literal zero, however cast."""
    while len(node.children) >= 1 and node.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR"):
        node = node.children[-1]
    return node.kind == "INTEGER_LITERAL" and node.value == 0


@functools.cache
def _method(kind: str) -> str:
    """The method that evaluates nodes of a kind."""
    return f"value_{kind.lower()}"


class _Body(PointsTo):
    """One function's body, evaluated over and over until what its variables may hold grows no more."""

    def __init__(self, unit: Unit, function: Function, known: dict[int, FunctionSummary]) -> None:
        super().__init__(unit, function, known[function.ref])
        self.known = known
        self.has_typeof = bool(_TYPEOF.search(unit.text, function.start, function.end))

    def analyse(self) -> None:
        if ASSEMBLY.search(self.unit.text, self.function.start, self.function.end):
            for index in range(len(self.function.parameters)):
                self.escape({("param", index)}, "inline assembly")
        size = -1
        while size != (size := self.size()):
            self.value(self.function.body)
            for location, reason in list(self.escaped.items()):
                held = self.contents.get(location, set())
                self.escape(held - {("unknown", reason)}, reason)

    # -- expressions

    def value(self, node: Node) -> Locations:
        """Evaluate a statement or expression for its value: the addresses that it may carry."""
        kind = node.kind
        if kind in _INERT or kind.endswith("_ATTR"):
            return NONE
        if kind in _STATEMENTS:
            for child in node.children:
                self.value(child)
            return NONE
        handler = getattr(self, _method(kind), None)
        if handler is not None:
            result: Locations = handler(node)
            return result
        return self.opaque(node)

    def opaque(self, node: Node) -> Locations:
        """A construct that the analysis does not know: everything mentioned in it may be read and written."""
        reason = f"a construct that the analysis does not follow, {self.where(node)}"
        for child in node.children:
            self.escape(self.value(child), reason)
        for child in node.walk():
            if child.ref in self.declared:
                self.escape({("var", child.ref)}, reason)
        return frozenset({("unknown", reason)}) if node.type.holds_pointers else NONE

    def value_block_expr(self, node: Node) -> Locations:
        """A block captures values, so it counts where it is written; its parameters may be anything."""
        for declaration in node.children:
            for child in declaration.children:
                if child.kind == "PARM_DECL":
                    self.declared[child.ref] = child.type
                    self.hold(("var", child.ref), {("unknown", f"a block's argument, {self.where(child)}")})
                else:
                    self.value(child)
        return NONE

    def loaded(self, node: Node) -> Locations:
        locations = self.place(node)
        if node.type.kind == "function":
            return locations
        if node.type.kind == "array":  # decays to its address
            if node.type.holds_pointers and not self.has_typeof:
                return locations
            # libclang shows a pointer declared as typeof(parameter) as an array: then it holds addresses
            return locations.union(*(self.contents.get(each, NONE) for each in locations))
        self.read(locations)
        return self.load(locations, node.type)

    value_decl_ref_expr = value_member_ref_expr = value_array_subscript_expr = loaded

    def value_paren_expr(self, node: Node) -> Locations:
        return self.value(node.children[-1]) if node.children else NONE

    def value_var_decl(self, node: Node) -> Locations:
        self.declared[node.ref] = node.type
        for child in node.children:
            self.store({("var", node.ref)}, self.value(child), node)
        return NONE

    def value_return_stmt(self, node: Node) -> Locations:
        for child in node.children:
            self.summary.returns.update(self.exported(self.value(child)))
        return NONE

    def exported(self, locations: Iterable[Location]) -> Locations:
        """Return the locations of a returned value that the caller can use: own variables are gone by then."""
        return frozenset(each for each in locations if each[0] in (*SYMBOLIC, "global"))

    def value_stmtexpr(self, node: Node) -> Locations:
        result = NONE
        for statement in node.children:  # the compound statement
            for child in statement.children:
                result = self.value(child)
        return result

    def value_init_list_expr(self, node: Node) -> Locations:
        found: set[Location] = set()
        for child in node.children:
            designated = child.kind == "UNEXPOSED_EXPR" and child.type.kind == "void"
            for part in child.children if designated else (child,):
                found |= self.value(part)
        return frozenset(found)

    value_compound_literal_expr = value_init_list_expr

    def value_conditional_operator(self, node: Node) -> Locations:
        condition, first, second = node.children
        self.value(condition)
        return self.value(first) | self.value(second)

    def value_unary_operator(self, node: Node) -> Locations:
        operand = node.children[0]
        if node.op == "&":
            return self.place(operand)
        if node.op == "*":
            return self.loaded(node)
        if "++" in node.op or "--" in node.op:
            return self.modified(node, operand)
        carried = self.value(operand)
        return carried if node.type.holds_pointers else NONE

    def modified(self, node: Node, target: Node) -> Locations:
        locations = self.target(target)
        self.read(locations)
        self.write(locations, target.type, direct=self.is_direct(target))
        return self.load(locations, target.type)

    def value_compound_assignment_operator(self, node: Node) -> Locations:
        target, operand = node.children
        self.value(operand)
        return self.modified(node, target)

    def value_binary_operator(self, node: Node) -> Locations:
        first, second = node.children
        if node.op == "=":
            carried = self.value(second)
            locations = self.target(first)
            self.write(locations, first.type, direct=self.is_direct(first))
            self.store(locations, carried, node)
            return carried
        left, right = self.value(first), self.value(second)
        if node.op == ",":
            return right
        if node.op == "-" and first.type.kind == second.type.kind == "pointer" and len(left | right) > 1:
            # one plus the difference may be the other
            self.escape(left | right, f"the distance of two pointers, {self.where(node)}")
        return left | right if node.type.holds_pointers else NONE

    def is_direct(self, node: Node) -> bool:
        """Return whether an lvalue names a part of a variable as declared: data written there overwrite no address."""
        while node.kind in ("PAREN_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR", "UNEXPOSED_EXPR"):
            if not node.children:
                return False
            base = node.children[0]
            if node.kind == "MEMBER_REF_EXPR" and base.type.kind != "record":
                return False  # through a pointer, or one view of a union
            if node.kind == "UNEXPOSED_EXPR" and node.type.kind == "pointer" and base.type.kind != "array":
                return False
            node = base
        return node.kind == "DECL_REF_EXPR"

    def value_cstyle_cast_expr(self, node: Node) -> Locations:
        return self.converted(node, node.children[-1]) if node.children else NONE

    def converted(self, node: Node, operand: Node) -> Locations:
        """A cast, explicit or not."""
        carried = self.value(operand)
        if node.type.kind in ("bool", "void"):
            return NONE
        if node.type.holds_pointers:
            if operand.type.holds_pointers or operand.type.kind in ("function", "array") or is_null(operand):
                return carried
            return carried | {("unknown", f"a pointer made from an integer, {self.where(node)}")}
        if operand.type.holds_pointers or operand.type.kind == "array":
            self.escape(carried, f"the address is made an integer, {self.where(node)}")
        return NONE

    def value_unexposed_expr(self, node: Node) -> Locations:
        """libclang's word for implicit casts, vector components, and rarer expressions."""
        if len(node.children) == 1:
            child = node.children[0]
            if self.is_component(node, child):
                return self.loaded(node)
            return self.converted(node, child)
        values = [self.value(child) for child in node.children]
        carried = frozenset(each for value in values for each in value)
        if node.type.holds_pointers or not carried:
            return carried
        atomic = _ATOMIC.match(self.unit.words(node))
        if atomic is None:
            return self.opaque(node)
        if atomic.group(1) not in ("store", "init"):
            self.read(carried)
        if atomic.group(1) != "load":
            self.write(carried, VOID)  # also what was expected, of a compare and exchange
        return NONE

    def is_component(self, node: Node, child: Node) -> bool:
        """``p->xy`` of a pointer to a vector."""
        target = child.type.target
        pointed = child.type.kind == "pointer" and target is not None and target.kind == "vector"
        return pointed and node.type.kind in ("vector", "int", "float") and bool(node.type.base)

    def value_call_expr(self, node: Node) -> Locations:
        if not node.children:
            return NONE
        target, arguments = callee(node), node.children[1:]
        values = [self.value(argument) for argument in arguments]
        if target.ref in self.unit.functions:
            return self.call(self.unit.functions[target.ref], values, node)
        known = None
        if target.name and self.is_builtin(target):
            if target.name in builtins.POINTER_CASTS and values:
                return values[0]
            known = builtins.effects(target.name, len(arguments))
        else:
            self.escape(self.value(node.children[0]), f"called, {self.where(node)}")
        self.apply(known, arguments, values, target.name or "a function pointer", node)
        unknown = frozenset({("unknown", f"a pointer from {target.name or 'a call'}, {self.where(node)}")})
        return unknown if node.type.holds_pointers else NONE

    def is_builtin(self, target: Node) -> bool:
        return not any(
            target.ref in own for own in (self.unit.declared, self.unit.variables, self.declared)
        ) and target.type.kind in ("function", "other")

    def apply(
        self, known: dict[int, str] | None, arguments: tuple[Node, ...], values: list[Locations], name: str, node: Node
    ) -> None:
        """The effects of a function that has no body here."""
        for position, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            effect = known.get(position) if known else None
            if effect is None:
                self.escape(value, f"passed to {name}, {self.where(node)}")
                continue
            if "r" in effect:
                self.read(value)
            if "w" in effect:
                self.write(value, argument.type.target or VOID)
                self.write_raw(value)

    def call(self, function: Function, values: list[Locations], node: Node) -> Locations:
        """Instantiate a function's summary at a call."""
        summary = self.known[function.ref]
        for extra in values[len(function.parameters) :]:
            self.escape(extra, f"a variable argument, {self.where(node)}")
        mapped: dict[Location, Locations] = {}

        def actual(location: Location) -> Locations:
            kind, index = location
            if kind in ("unknown", "global") or not isinstance(index, int):
                return frozenset({location})
            if location not in mapped:
                value = values[index] if index < len(values) else NONE
                if kind == "reach":
                    value = self.beyond(value)
                elif kind == "deep":
                    value = self.closure(self.beyond(value))
                mapped[location] = value
            return mapped[location]

        for location in tuple(summary.reads):
            self.read(actual(location))
        for location in tuple(summary.writes):
            self.summary.writes.update(each for each in actual(location) if each[0] in SYMBOLIC)
        for location in tuple(summary.raw):
            self.write_raw(actual(location))
        for location, reason in tuple(summary.escapes.items()):
            self.escape(actual(location), reason)
        for into, address in tuple(summary.stores):
            self.store(actual(into), actual(address), node)
        if not node.type.holds_pointers:
            return NONE
        return frozenset(each for location in summary.returns for each in actual(location))

    # -- lvalues

    def target(self, node: Node) -> Locations:
        """The place of what is assigned to; if it is no lvalue known here, nothing is sure."""
        locations = self.place(node)
        if any(each[0] == "temp" for each in locations):
            self.opaque(node)
        return locations

    def place(self, node: Node) -> Locations:
        """Evaluate an expression for where it is, without reading it."""
        kind = node.kind
        if kind == "PAREN_EXPR" and node.children:
            return self.place(node.children[-1])
        if kind == "DECL_REF_EXPR":
            if node.ref in self.unit.functions or node.type.kind == "function":
                return NONE
            outlives = node.type.address_space == "global"  # of program scope, or static
            return frozenset({("global" if outlives else "var", node.ref)})
        if kind == "MEMBER_REF_EXPR" and node.children:
            base = node.children[0]
            return self.value(base) if base.type.kind == "pointer" else self.place(base)
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            base, index = node.children
            if base.type.kind == "vector":
                self.value(index)
                return self.place(base)
            return self.value(base) | self.value(index)
        if kind == "UNARY_OPERATOR" and node.op in ("*", "?"):  # "?" is __extension__
            return self.value(node.children[0]) if node.op == "*" else self.place(node.children[0])
        if kind == "UNEXPOSED_EXPR" and len(node.children) == 1:
            child = node.children[0]
            if self.is_component(node, child):
                return self.value(child)
            if child.type.kind == "vector":
                return self.place(child)
        if kind == "UNEXPOSED_EXPR" and len(node.children) > 1:
            places = [self.place(child) for child in node.children if child.kind not in _INERT]
            self.opaque(node)
            return frozenset(each for place in places for each in place)
        return self.temp(node, self.value(node))


BARRIER = re.compile(r"(work_group_)?barrier")
TOGETHER = re.compile(
    r"(work|sub)_group_\w+|intel_sub_group\w*|\w*barrier|\w*fence\w*|async_\w+|wait_group_events|printf"
)
_STOPS = ("GOTO_STMT", "INDIRECT_GOTO_STMT", "LABEL_STMT")


def barriers(unit: Unit, kernel: Function, known: Mapping[int, FunctionSummary]) -> dict[int, bool]:
    """The barriers among the statements of a kernel's body, by where their calls begin, that need not be, as far as can
    be told: False where they order nothing, True where that is so unless a buffer that the kernel writes is another
    argument as well. ``known``: what functions do, by their declarations. The kernel has no local memory."""
    if any(node.kind in _STOPS for node in kernel.nodes) or any(
        not variable.type.const and variable.type.address_space == "global" for variable in unit.variables.values()
    ):
        return {}

    def called(node: Node) -> str:
        """The name of a function of OpenCL C's that a node calls; "" if it calls none."""
        target = callee(node)
        return "" if target.ref in unit.declared else target.name

    found = [stripped(node) for node in kernel.body.children]
    calls = [index for index, node in enumerate(found) if BARRIER.fullmatch(called(node))]
    done = list(accesses(unit, kernel, known)) if calls else []
    for index, node in enumerate(found if calls else ()):
        if index in calls:
            done[index] = frozenset(), frozenset()
        elif any(TOGETHER.fullmatch(called(below)) for below in node.walk()):
            done[index] = (frozenset({("unknown", "")}),) * 2
    told = {}
    for index in calls:
        reads, writes = (frozenset[Location]().union(*(each[k] for each in done[:index])) for k in (0, 1))
        read, written = (frozenset[Location]().union(*(each[k] for each in done[index:])) for k in (0, 1))
        pairs = [*product(writes, read | written), *product(reads, written)]
        if not any(one == two or one[0] != "param" or two[0] != "param" for one, two in pairs):
            told[found[index].start] = bool(pairs)
    return told
