"""Pointers of a merge: what the expressions of one kernel, with all the functions that it calls, may point at and store
to. Inclusion-based like :mod:`manycl.analysis.reading.points_to`, but over the whole program at once and down to its
variables: every call of a function counts for all of them. What is too clever to be followed is refused."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.analysis.reading import builtins
from manycl.analysis.reading.directions import is_null
from manycl.analysis.reading.tree import CType, Function, Node, Unit, assigned, callee, operands
from manycl.analysis.texts.rewrite import apply_edits, without_strings

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
    """Return whether a node is ``v.xy`` or ``p->x``, which libclang shows as an expression without a name."""
    if node.kind != "UNEXPOSED_EXPR" or len(node.children) != 1 or node.type.kind not in _VALUES:
        return False
    child = node.children[0]
    if child.type.kind == "pointer":
        return child.type.target is not None and child.type.target.kind == "vector" and bool(node.type.base)
    return child.type.kind == "vector" and node.end > child.end


def is_place(node: Node) -> bool:
    """Return whether an expression names a place in memory."""
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
        """Return what memory the value of an expression points at."""
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
        """Return what a function of the language stores to; events that are waited for count."""
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


def balanced(text: bytes, start: int, end: int) -> tuple[int, int]:
    """An extent with all parentheses closed: libclang leaves out the last one of ``(float4)(1)``."""
    words = without_strings(text[start:end])
    missing = words.count(b"(") - words.count(b")")
    while missing > 0 and text[end : end + 1] in (b")", b" ", b"\n", b"\t", b"\r"):
        missing -= text[end : end + 1] == b")"
        end += 1
    return start, end


def splice(text: bytes, extent: tuple[int, int], edits: Sequence[tuple[int, int, str]]) -> str | None:
    """The text of an extent after edits of parts of it; None where they are not parts, or overlap."""
    start, end = extent
    position = start
    for first, last, _ in sorted(edits, key=lambda edit: edit[:2]):
        if first < position or last > end or first >= last:
            return None
        position = last
    moved = [(first - start, last - start, words) for first, last, words in edits]
    return apply_edits(text[start:end], moved).decode("utf-8", "replace")


class CopyingFunctions:
    """The copying functions that a merge kernel calls. Each knows the arguments whose buffers its address may lie in,
    and is given for each argument where its buffer begins and where the copy of it begins that is copied from."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.shared: set[tuple[int, ...]] = set()  # arguments that one store may go to
        self.asked: dict[str, tuple[str, str, tuple[int, ...]]] = {}

    # -- parameters

    def names(self, argument: int, sized: Sequence[int]) -> list[str]:
        kinds = ("to", "from", "size") if argument in sized else ("to", "from")
        return [f"{self.prefix}{kind}_{argument}" for kind in kinds]

    def passed(self, arguments: Sequence[int], sized: Sequence[int]) -> list[str]:
        return [name for argument in arguments for name in self.names(argument, sized)]

    def declared(self, arguments: Sequence[int], sized: Sequence[int]) -> list[str]:
        types = {"size": "ulong "}
        found = self.passed(arguments, sized)
        kind = [name.removeprefix(self.prefix).split("_")[0] for name in found]
        return [types.get(k, "__global const uchar *") + name for k, name in zip(kind, found, strict=True)]

    # -- calls

    def value(self, word: str, where: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        return self.call("value", word, [self.cast(word, where)], arguments, sized)

    def lanes(
        self, word: str, where: str, lanes: Sequence[int], arguments: tuple[int, ...], sized: Sequence[int]
    ) -> str:
        mask = sum(1 << lane for lane in set(lanes))
        return self.call("lanes", word, [self.cast(word, where), f"{mask}u"], arguments, sized)

    def vector(self, word: str, where: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        return self.call("vector", word, [self.cast(word.rstrip("0123456789"), where)], arguments, sized)

    def bytes(self, size: int, where: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        return self.call("bytes", "uchar", [self.cast("uchar", where), f"{size}u"], arguments, sized)

    def group(
        self, word: str, where: str, number: str, step: str, arguments: tuple[int, ...], sized: Sequence[int]
    ) -> str:
        self.call("value", word, [], arguments, sized)
        return self.call("group", word, [self.cast(word, where), number, step], arguments, sized)

    @staticmethod
    def cast(word: str, where: str) -> str:
        return f"(__global {word} *)({where})"

    def call(self, kind: str, word: str, first: list[str], arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        name = self.name(kind, word, arguments)
        self.asked[name] = (kind, word, arguments)
        if len(arguments) > 1:
            self.shared.add(arguments)
        return f"{name}({', '.join([*first, *self.passed(arguments, sized)])})"

    def name(self, kind: str, word: str, arguments: Sequence[int]) -> str:
        return f"{self.prefix}{kind}_{word}_{'_'.join(map(str, arguments))}"

    # -- definitions

    def definitions(self, sized: Sequence[int]) -> str:
        tuples = sorted({arguments for _, _, arguments in self.asked.values()})
        parts = [self.source(arguments, sized) for arguments in tuples]
        parts += [self.definition(name, *asked, sized) for name, asked in sorted(self.asked.items(), key=self.order)]
        return "\n".join(parts) + "\n"

    @staticmethod
    def order(item: tuple[str, tuple[str, str, tuple[int, ...]]]) -> tuple[bool, str]:
        return item[1][0] == "group", item[0]

    def source(self, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        """The function from an address to that of the same element in the copy."""
        tests = ""
        for argument in arguments[:-1]:
            to, source, size = self.names(argument, sized)
            tests += f" if ((ulong)p - (ulong){to} < {size}) return {source} + ((ulong)p - (ulong){to});"
        to, source = self.names(arguments[-1], sized)[:2]
        name, declared = self.name("source", "of", arguments), ", ".join(self.declared(arguments, sized))
        body = f"{tests} return {source} + (p - {to});"
        return f"__global const uchar *{name}(__global const uchar *p, {declared}) {{{body} }}"

    def definition(self, name: str, kind: str, word: str, arguments: tuple[int, ...], sized: Sequence[int]) -> str:
        passed, declared = (", ".join(f(arguments, sized)) for f in (self.passed, self.declared))
        element = word.rstrip("0123456789") if kind == "vector" else word
        source = (
            f"(__global const {element} *){self.name('source', 'of', arguments)}((__global const uchar *)p, {passed})"
        )
        lanes = word.removeprefix(element)
        more, body = {
            "value": ("", f"*p = *({source});"),
            "vector": ("", f"vstore{lanes}(vload{lanes}(0, {source}), 0, p);"),
            "lanes": (
                ", uint mask",
                f"__global const {word} *q = {source};"
                " for (uint k = 0; mask >> k; k++) if (mask >> k & 1) p[k] = q[k];",
            ),
            "bytes": (", uint n", _BYTES.replace("@", source)),
            "group": (
                ", size_t n, size_t step",
                _GROUP.replace("@", f"{self.name('value', word, arguments)}(p + k * step, {passed});"),
            ),
        }[kind]
        return f"void {name}(__global {element} *p{more}, {declared}) {{ {body} }}"


_BYTES = """__global const uchar *q = @;
    if ((((ulong)p | (ulong)q | n) & 7) == 0)
        for (uint k = 0; k < n / 8; k++) ((__global ulong *)p)[k] = ((__global const ulong *)q)[k];
    else if ((((ulong)p | (ulong)q | n) & 3) == 0)
        for (uint k = 0; k < n / 4; k++) ((__global uint *)p)[k] = ((__global const uint *)q)[k];
    else for (uint k = 0; k < n; k++) p[k] = q[k];"""
_GROUP = """size_t k = (get_local_id(2) * get_local_size(1) + get_local_id(1)) * get_local_size(0) + get_local_id(0);
    for (; k < n; k += get_local_size(0) * get_local_size(1) * get_local_size(2)) @"""
