"""What the expressions of one kernel, with all the functions that it calls, may point at and store to. Inclusion-based
like :mod:`manycl.analysis.reading.points_to`, but over the whole program at once and down to its variables: every call
of a function counts for all of them. What is too clever to be followed is refused."""

from __future__ import annotations

from manycl.analysis.reading import builtins
from manycl.analysis.reading.directions import is_null
from manycl.analysis.reading.tree import CType, Function, Node, Unit, assigned, callee, operands

#: a piece of memory: ``("var", ref)``, ``("arg", i)`` and ``("local", i)`` what a kernel's argument points at,
#: ``("result", ref)`` of a function, ``("text", offset)`` an unnamed constant or compound literal, ``("unknown", why)``
Place = tuple[str, int | str]
Set = frozenset[Place]

NONE: Set = frozenset()
BARRIER: Place = ("barrier", "")
_VALUES = ("int", "float", "bool", "vector")


class RefusedError(Exception):
    """There is no merge kernel, for the reason given."""


def is_component(node: Node) -> bool:
    """Whether a node is ``v.xy`` or ``p->x``, which libclang shows as an expression without a name."""
    if node.kind != "UNEXPOSED_EXPR" or len(node.children) != 1 or node.type.kind not in _VALUES:
        return False
    child = node.children[0]
    if child.type.kind == "pointer":
        return child.type.target is not None and child.type.target.kind == "vector" and bool(node.type.base)
    return child.type.kind == "vector" and node.end > child.end


def is_place(node: Node) -> bool:
    """Whether an expression names a place in memory."""
    if node.kind in ("DECL_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR"):
        return node.value is None and node.type.kind != "function"
    if node.kind == "MEMBER_REF_EXPR":
        return bool(node.children) and (node.children[0].type.kind == "pointer" or is_place(node.children[0]))
    if node.kind == "UNARY_OPERATOR":
        return node.op == "*"
    if node.kind == "PAREN_EXPR":
        return bool(node.children) and is_place(node.children[-1])
    if node.kind == "COMPOUND_LITERAL_EXPR":
        return node.type.kind != "vector"
    return is_component(node) and (node.children[0].type.kind == "pointer" or is_place(node.children[0]))


class Inclusions:
    """The fixed point, for one kernel."""

    def __init__(self, unit: Unit, kernel: Function) -> None:
        self.unit = unit
        self.kernel = kernel
        self.functions = list(unit.reachable(kernel))
        self.held: dict[Place, set[Place]] = {}
        self.types: dict[Place, CType] = {("var", n.ref): n.type for n in unit.variables.values()}
        self.owner: dict[Place, int] = {}
        for function in self.functions:
            for node in (*function.parameters, *function.nodes):
                if node.kind in ("VAR_DECL", "PARM_DECL"):
                    self.types[("var", node.ref)] = node.type
                    self.owner[("var", node.ref)] = function.ref
        for index, parameter in enumerate(kernel.parameters):
            target = parameter.type.target
            if target is not None:
                kind = "local" if target.address_space == "local" else "arg"
                self.held[("var", parameter.ref)] = {(kind, index)}
        size = -1
        while size != (size := sum(len(held) for held in self.held.values())):
            self.collect()
        self.stores = {function.ref: self.stored(function) for function in self.functions}
        self.spread()

    def line(self, node: Node) -> str:
        return self.unit.where(node.start)

    def called(self, node: Node) -> Function | None:
        """The function of the program that a call calls."""
        return self.unit.functions.get(callee(node).ref)

    # -- what pointers hold

    def collect(self) -> None:
        for variable in self.unit.variables.values():
            self.collect_of(variable)
        for function in self.functions:
            for node in function.nodes:
                self.collect_of(node)
                if node.kind == "RETURN_STMT" and node.children:
                    self.hold({("result", function.ref)}, self.values(node.children[0]))

    def collect_of(self, node: Node) -> None:
        if node.kind == "BINARY_OPERATOR" and node.op == "=":
            self.hold(self.places(node.children[0]), self.values(node.children[1]))
        elif node.kind == "VAR_DECL":
            for child in operands(node):
                self.hold({("var", node.ref)}, self.values(child))
        elif node.kind == "COMPOUND_LITERAL_EXPR":
            for child in node.children:
                self.hold({("text", node.start)}, self.values(child))
        elif node.kind == "CALL_EXPR" and (function := self.called(node)) is not None:
            for parameter, argument in zip(function.parameters, node.children[1:], strict=False):
                self.hold({("var", parameter.ref)}, self.values(argument))
        elif node.kind == "CSTYLE_CAST_EXPR" and node.children:
            before, after = node.children[-1].type.target, node.type.target
            if before is not None and after is not None and before.holds_pointers != after.holds_pointers:
                raise RefusedError(f"pointers in memory are taken for something else, {self.line(node)}")
        elif node.type.kind == "union" and node.type.holds_pointers:
            raise RefusedError(f"a pointer in a union, {self.line(node)}")

    def hold(self, places: Set | set[Place], held: Set) -> None:
        if held:
            for place in places:
                self.held.setdefault(place, set()).update(held)

    def places(self, node: Node) -> Set:
        """In what memory an lvalue lies."""
        kind, children = node.kind, node.children
        if kind == "PAREN_EXPR" and children:
            return self.places(children[-1])
        if kind == "DECL_REF_EXPR":
            return NONE if node.type.kind == "function" or node.value is not None else frozenset({("var", node.ref)})
        if kind == "MEMBER_REF_EXPR" and children:
            return self.values(children[0]) if children[0].type.kind == "pointer" else self.places(children[0])
        if kind == "ARRAY_SUBSCRIPT_EXPR":
            found = [self.values(c) if c.type.kind == "pointer" else self.places(c) for c in children]
            return found[0] if children[0].type.kind in ("pointer", "array", "vector") else found[1]
        if kind == "UNARY_OPERATOR" and node.op == "*":
            return self.values(children[0])
        if kind == "CALL_EXPR" and (function := self.called(node)) is not None:
            return frozenset({("result", function.ref)})
        if kind in ("COMPOUND_LITERAL_EXPR", "STRING_LITERAL"):
            return frozenset({("text", node.start)})
        if kind == "UNEXPOSED_EXPR" and len(children) == 1:
            return self.values(children[0]) if children[0].type.kind == "pointer" else self.places(children[0])
        if kind == "CONDITIONAL_OPERATOR":
            return self.places(children[1]) | self.places(children[2])
        if kind == "BINARY_OPERATOR" and node.op == ",":
            return self.places(children[1])
        return self.places(children[0]) if assigned(node) is not None else NONE

    def values(self, node: Node) -> Set:
        """What memory the value of an expression points at."""
        kind, children = node.kind, node.children
        if kind in ("PAREN_EXPR", "INIT_LIST_EXPR") or (kind == "UNEXPOSED_EXPR" and node.type.kind == "void"):
            parts = children if kind != "PAREN_EXPR" else children[-1:]
            return frozenset(p for c in parts if not c.kind.endswith("_REF") for p in self.values(c))
        if kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR") and not is_component(node):
            return self.converted(node)
        if not node.type.holds_pointers and node.type.kind != "array":
            return NONE
        if kind == "UNARY_OPERATOR" and node.op == "&":
            return self.places(children[0])
        if kind == "CONDITIONAL_OPERATOR":
            return self.values(children[1]) | self.values(children[2])
        if kind == "BINARY_OPERATOR":
            both = self.values(children[0]) | self.values(children[1])
            return both if node.op in ("+", "-") else self.values(children[1])
        if kind == "CALL_EXPR" and self.called(node) is None:
            if callee(node).name in builtins.POINTER_CASTS and len(children) > 1:
                return self.values(children[1])
            return frozenset({("unknown", f"a pointer from a function, {self.line(node)}")})
        if node.type.kind == "array":
            return self.places(node)
        return self.contents(self.places(node), node)

    def contents(self, places: Set, node: Node) -> Set:
        found: set[Place] = set()
        for place in places:
            found |= self.held.get(place, set())
            if place[0] in ("arg", "local"):
                found.add(("unknown", f"a pointer loaded from memory, {self.line(node)}"))
            elif place[0] == "unknown":
                found.add(place)
        return frozenset(found)

    def converted(self, node: Node) -> Set:
        operands = [c for c in node.children if not c.kind.endswith(("_REF", "_ATTR"))]
        if node.kind == "CSTYLE_CAST_EXPR":
            operands = operands[-1:]  # before it come lengths of arrays in the type
        if len(operands) != 1:
            words = f"an expression that is not followed, {self.line(node)}"
            return frozenset({("unknown", words)}) if node.type.holds_pointers else NONE
        operand = operands[0]
        if operand.type.kind == "array":
            return self.places(operand)
        if not node.type.holds_pointers:
            return NONE
        if operand.type.holds_pointers or operand.kind == "INIT_LIST_EXPR":
            return self.values(operand)
        if operand.type.kind == "function" or is_null(operand):
            return NONE
        return frozenset({("unknown", f"a pointer made from an integer, {self.line(node)}")})

    # -- what is stored to

    def stored(self, function: Function) -> set[Place]:
        found: set[Place] = set()
        for node in function.nodes:
            if (target := assigned(node)) is not None:
                found |= self.places(target)
            elif node.kind == "CALL_EXPR" and node.children and self.called(node) is None:
                found |= self.stored_by(callee(node).name, node.children[1:])
        return found

    def stored_by(self, name: str, arguments: tuple[Node, ...]) -> set[Place]:
        """What a function of the language stores to; events that are waited for count."""
        effects = builtins.effects(name, len(arguments)) or {}
        found = {
            place
            for index, argument in enumerate(arguments)
            if "w" in effects.get(index, "-") or name == "wait_group_events"
            for place in self.values(argument)
        }
        return found | ({BARRIER} if builtins.synchronises(name) or name.endswith("mem_fence") else set())

    def spread(self) -> None:
        calls = {
            f.ref: {g.ref for n in f.nodes if n.kind == "CALL_EXPR" and (g := self.called(n)) is not None}
            for f in self.functions
        }
        growing = True
        while growing:
            growing = False
            for ref, called in calls.items():
                for other in called:
                    more = {p for p in self.stores[other] if self.owner.get(p) != other} - self.stores[ref]
                    if more:
                        self.stores[ref] |= more
                        growing = True
