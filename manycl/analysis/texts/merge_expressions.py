"""The expressions of a merge kernel: what of an expression is kept, and the copies that its stores become; which memory
must hold what it held in the launch. An expression is wanted for its value, or only for its effects. Effects are the
stores to arguments, which become copies, and what is stored to variables that something wanted reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from manycl.analysis.interpreter.values import swizzle
from manycl.analysis.reading import builtins
from manycl.analysis.reading.tree import CType, Function, Node, assigned, callee, operands
from manycl.analysis.texts.merge_points import (
    BARRIER,
    CopyingFunctions,
    Inclusions,
    Place,
    RefusedError,
    Set,
    balanced,
    is_component,
    is_place,
    splice,
)


class Needs:
    """The state of making a merge kernel: ``needed`` is what wanted expressions read; it only grows."""

    def __init__(self, points: Inclusions, prefix: str) -> None:
        self.points = points
        self.unit = points.unit
        self.needed: set[Place] = set()
        self.arguments: set[int] = set()  # whose contents are read
        self.local = False  # local memory is needed
        self.entered: set[int] = set()  # functions that are called
        self.written = sorted({int(p[1]) for p in points.stores[points.kernel.ref] if p[0] == "arg"})
        self.copies = CopyingFunctions(prefix)

    # -- what is needed

    def need(self, places: Iterable[Place], node: Node) -> None:
        for place in places:
            kind, index = place
            if kind == "unknown":
                raise RefusedError(f"what steers the stores is read from memory that is not known: {index}")
            if kind == "arg":
                if index in self.written:
                    name = self.points.kernel.parameters[int(index)].name
                    where = self.points.line(node)
                    raise RefusedError(f"{where} decides with the contents of {name}, which the kernel writes")
                self.arguments.add(int(index))
            self.local = self.local or kind == "local" or self.space(place) == "local"
            if self.space(place) == "global":
                raise RefusedError(f"{self.points.line(node)} decides with a variable that outlives the kernel")
            self.needed.add(place)

    def space(self, place: Place) -> str:
        type_ = self.points.types.get(place)
        return "" if type_ is None else type_.address_space

    def is_needed(self, places: Set) -> bool:
        return not self.needed.isdisjoint(places)

    def targets(self, places: Set, node: Node) -> tuple[int, ...]:
        """The arguments that a store goes to, in order; none for a store to the kernel's own memory."""
        found = sorted({int(index) for kind, index in places if kind == "arg"})
        where = self.points.line(node)
        unknown = next((why for kind, why in places if kind == "unknown"), None)
        if unknown is not None or not places:
            raise RefusedError(f"{where} stores where it is not known: {unknown or 'through no known pointer'}")
        if any(self.space(place) == "global" for place in places):
            raise RefusedError(f"{where} stores to a variable that outlives the kernel")
        if found and any(kind != "arg" for kind, _ in places):
            raise RefusedError(f"{where} stores to an argument or to other memory")
        return tuple(found)

    def is_kept(self, function: Function) -> bool:
        """Return whether a function is called for what it does."""
        found = {p for p in self.points.stores[function.ref] if self.points.owner.get(p) != function.ref}
        barrier = self.local and BARRIER in found
        return barrier or not self.needed.isdisjoint(found) or any(kind in ("arg", "unknown") for kind, _ in found)

    # -- text

    def text(self, node: Node) -> str:
        start, end = balanced(self.unit.text, node.start, node.end)
        return self.unit.text[start:end].decode("utf-8", "replace")

    def spliced(self, node: Node, parts: Sequence[tuple[Node, str]]) -> str:
        """The text of a node with that of others below it replaced."""
        extent = balanced(self.unit.text, node.start, node.end)
        edits = []
        for child, words in parts:
            if words != self.text(child):
                edits.append((*balanced(self.unit.text, child.start, child.end), words))
        found = splice(self.unit.text, extent, edits)
        if found is None:
            raise RefusedError(f"a macro hides what {self.points.line(node)} does")
        return found


_STORE = re.compile(r"vstore(a?)(_half)?(\d*)(_rt[ezpn])?")
_ATOMIC = re.compile(r"atom(ic)?_\w+")
_COMMUTES = re.compile(r"atom(ic)?_(add|sub|inc|dec|min|max|and|or|xor)")
_COMPONENT = re.compile(rb"(?:\.|->)\s*(\w+)[\s)]*$")
_GROUP_COPY = ("async_work_group_copy", "async_work_group_strided_copy")
_DROPPED = ("printf", "prefetch", "__builtin_prefetch")
_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}


def neutral(type_: CType) -> str:
    """An expression that can stand for any value of a type, or nothing where there is none."""
    if type_.kind == "pointer":
        return "0"
    if type_.kind == "vector":
        return f"({type_.base}{type_.lanes})(0)"
    return f"({type_.base})(0)" if type_.kind in ("int", "float", "bool") and "atomic" not in type_.name else ""


def joined(parts: Iterable[str]) -> str:
    return ", ".join(part for part in parts if part)


class MergeExpressions(Needs):
    """Expressions of a kernel."""

    # -- for the value

    def wanted(self, node: Node) -> str:
        """The expression, kept for its value."""
        kind = node.kind
        if kind == "DECL_REF_EXPR" or is_place(node):
            if node.type.kind != "array":  # that stands for its address
                self.need(self.points.places(node), node)
            return self.place(node)
        if kind == "CALL_EXPR":
            return self.wanted_call(node)
        target = assigned(node)
        if target is not None:
            return self.wanted_assignment(node, target)
        if kind == "UNARY_OPERATOR" and node.op == "&":
            return self.spliced(node, [(node.children[0], self.place(node.children[0]))])
        if kind in ("BLOCK_EXPR", "STMTEXPR", "StmtExpr", "STMT_EXPR", "ADDR_LABEL_EXPR"):
            raise RefusedError(f"a block or a statement in an expression, {self.points.line(node)}")
        if kind == "CXX_UNARY_EXPR":
            return self.text(node)
        parts = operands(node)
        if kind == "UNEXPOSED_EXPR" and len(parts) > 1:
            raise RefusedError(f"an expression that is not understood, {self.points.line(node)}")
        number = kind in ("UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR") and node.type.kind in ("int", "float")
        if number and any(o.type.kind in ("pointer", "array") for o in parts):
            raise RefusedError(f"{self.points.line(node)} computes with the number of an address")
        return self.spliced(node, [(child, self.wanted(child)) for child in parts])

    def place(self, node: Node) -> str:
        """An lvalue, kept for where it is."""
        parts = []
        for child in operands(node):
            through = child.type.kind == "pointer" or not is_place(child)
            by_index = node.kind == "ARRAY_SUBSCRIPT_EXPR" and child.type.kind not in ("array", "vector")
            parts.append((child, self.wanted(child) if through or by_index else self.place(child)))
        return self.spliced(node, parts)

    def wanted_assignment(self, node: Node, target: Node) -> str:
        places = self.points.places(target)
        arguments = self.targets(places, node)
        if not arguments:
            self.need(places, node)
            others = [(child, self.wanted(child)) for child in node.children[1:]]
            return self.spliced(node, [(target, self.place(target)), *others])
        value = neutral(target.type).removesuffix("(0)")
        if node.op != "=" or not value or value == "0":
            raise RefusedError(f"{self.points.line(node)} uses what it stores to an argument")
        return f"({self.copied(target, arguments)}, {value}({self.wanted(node.children[1])}))"

    def wanted_call(self, node: Node) -> str:
        if not node.children:
            return self.text(node)
        name, arguments = callee(node).name, node.children[1:]
        function = self.points.called(node)
        if function is not None:
            self.needed.add(("result", function.ref))
            return self.called(node, function)
        if name in _GROUP_COPY and self.targets(self.points.values(arguments[0]), node):
            return f"({self.group_copy(node)}, {self.event(node)})"
        self.check_builtin(node, name)
        if _ATOMIC.fullmatch(name):
            raise RefusedError(f"{self.points.line(node)} uses the result of an atomic operation")
        return self.kept_builtin(node, name)

    def kept_builtin(self, node: Node, name: str) -> str:
        """A call of a function of the language, with all its arguments."""
        arguments = node.children[1:]
        effects = builtins.effects(name, len(arguments)) or {}
        if name.startswith("read_image"):
            self.arguments |= {i for i, p in enumerate(self.points.kernel.parameters) if p.type.kind == "image"}
        for index, argument in enumerate(arguments):
            places = self.points.values(argument)
            effect = effects.get(index, "-")
            if "w" in effect and self.targets(places, node):
                raise RefusedError(f"{self.points.line(node)} uses the result of a function that stores to an argument")
            if effect != "-":
                self.need(places, node)
        return self.spliced(node, [(argument, self.wanted(argument)) for argument in arguments])

    def check_builtin(self, node: Node, name: str) -> None:
        where = self.points.line(node)
        if not name or callee(node).ref in self.unit.declared:
            raise RefusedError(f"{where} calls {name or 'a pointer'}, whose body is not here")
        if name.startswith("write_image"):
            raise RefusedError(f"{where} writes an image")
        if "pipe" in name or name.startswith("enqueue_"):
            raise RefusedError(f"{where} uses {name}")
        known = builtins.effects(name, len(node.children) - 1) is not None or name in builtins.POINTER_CASTS
        if not known and any(self.points.values(argument) for argument in node.children[1:]):
            raise RefusedError(f"what {name} does with a pointer is not known, {where}")

    # -- for the effects

    def effects(self, node: Node) -> str:
        """Return what must still be done of an expression whose value nobody wants; nothing if there is no such
        thing."""
        kind = node.kind
        if kind == "CALL_EXPR":
            return self.effects_of_call(node)
        target = assigned(node)
        if target is not None:
            return self.effects_of_assignment(node, target)
        if kind in ("BLOCK_EXPR", "STMTEXPR", "StmtExpr", "STMT_EXPR", "ADDR_LABEL_EXPR"):
            raise RefusedError(f"a block or a statement in an expression, {self.points.line(node)}")
        if kind == "CXX_UNARY_EXPR":
            return ""
        parts = operands(node)
        if kind == "BINARY_OPERATOR" and node.op in ("&&", "||"):
            second = self.effects(parts[1])
            if second:
                return f"({self.wanted(parts[0])}) {node.op} ({second}, 0)"
            return self.effects(parts[0])
        if kind == "CONDITIONAL_OPERATOR":
            yes, no = self.effects(parts[1]), self.effects(parts[2])
            if yes or no:
                return f"(({self.wanted(parts[0])}) ? ({joined((yes, '0'))}) : ({joined((no, '0'))}))"
            return self.effects(parts[0])
        if kind == "UNEXPOSED_EXPR" and len(parts) > 1:
            return self.effects_of_unknown(node, parts)
        return joined(self.effects(child) for child in parts)

    def effects_of_unknown(self, node: Node, parts: Sequence[Node]) -> str:
        """C11's atomics come as an expression with all operands."""
        places = frozenset(p for child in parts for p in self.points.values(child))
        if self.is_needed(places) or any(kind in ("arg", "unknown") for kind, _ in places):
            raise RefusedError(f"an atomic operation, or what is not understood, {self.points.line(node)}")
        return joined(self.effects(child) for child in parts)

    def effects_of_assignment(self, node: Node, target: Node) -> str:
        places = self.points.places(target)
        arguments = self.targets(places, node)
        if arguments:
            return joined((*(self.effects(child) for child in node.children[1:]), self.copied(target, arguments)))
        if self.is_needed(places) or (self.local and target.type.name == "event_t"):
            return self.wanted_assignment(node, target)
        return joined(self.effects(child) for child in (*operands(target), *node.children[1:]))

    def effects_of_call(self, node: Node) -> str:
        if not node.children:
            return ""
        name, arguments = callee(node).name, node.children[1:]
        function = self.points.called(node)
        if function is not None:
            if self.is_kept(function):
                return self.called(node, function)
            return joined(self.effects(argument) for argument in arguments)
        if name in _DROPPED and callee(node).ref not in self.unit.declared:
            return joined(self.effects(argument) for argument in arguments)
        self.check_builtin(node, name)
        if builtins.synchronises(name) or name.endswith("mem_fence"):
            if self.local and node.type.kind == "void":
                return self.kept_builtin(node, name)
            return joined(self.effects(argument) for argument in arguments)
        if name == "wait_group_events":
            return self.kept_builtin(node, name) if self.is_needed(self.points.values(arguments[1])) else ""
        return self.effects_of_store(node, name, arguments)

    def effects_of_store(self, node: Node, name: str, arguments: tuple[Node, ...]) -> str:
        """A function of the language that may store through pointers."""
        effects = builtins.effects(name, len(arguments)) or {}
        copies: list[str] = []
        kept = False
        for index, argument in enumerate(arguments):
            if "w" not in effects.get(index, "-"):
                continue
            places = self.points.values(argument)
            stored = self.targets(places, node)
            kept = kept or self.is_needed(places)
            if not stored:
                continue
            if _ATOMIC.fullmatch(name):
                raise RefusedError(f"an atomic operation on an argument, {self.points.line(node)}")
            if name in _GROUP_COPY:
                return self.group_copy(node)
            if match := _STORE.fullmatch(name):
                return self.vector_store(node, match, stored)
            if name.startswith("async_"):
                raise RefusedError(f"{name} to an argument, {self.points.line(node)}")
            if argument.type.target is not None:
                copies.append(self.copy_of(argument.type.target, self.wanted(argument), stored, node))
        if not kept:
            inside = (self.effects(a) for i, a in enumerate(arguments) if "w" not in effects.get(i, "-") or not copies)
            return joined((*inside, *copies))
        if copies:
            raise RefusedError(f"{name} stores to an argument and elsewhere, {self.points.line(node)}")
        if _ATOMIC.fullmatch(name) and not self.commutes(name, arguments[0].type.target):
            raise RefusedError(f"an atomic operation that depends on the order, {self.points.line(node)}")
        return self.kept_builtin(node, name)

    @staticmethod
    def commutes(name: str, element: CType | None) -> bool:
        """Return whether the order of atomic operations of this kind makes no difference."""
        return _COMMUTES.fullmatch(name) is not None and element is not None and element.kind == "int"

    # -- calls

    def called(self, node: Node, function: Function) -> str:
        """A call of a function of the program: arguments that it does not need become anything."""
        self.entered.add(function.ref)
        arguments = node.children[1:]
        if len(arguments) != len(function.parameters):
            raise RefusedError(f"{self.points.line(node)} calls {function.name} with other arguments than it declares")
        words = []
        for argument, parameter in zip(arguments, function.parameters, strict=True):
            anything = neutral(parameter.type)
            if not anything or ("var", parameter.ref) in self.needed:
                words.append(self.wanted(argument))
            else:
                before = self.effects(argument)
                words.append(f"({before}, {anything})" if before else anything)
        words += self.copies.passed(self.written_by(function), self.sized())
        return f"{function.name}({', '.join(words)})"

    def written_by(self, function: Function) -> tuple[int, ...]:
        return tuple(sorted({int(i) for kind, i in self.points.stores[function.ref] if kind == "arg"}))

    def sized(self) -> tuple[int, ...]:
        """Arguments that share a store with others, which their sizes tell apart."""
        return tuple(sorted({i for arguments in self.copies.shared for i in arguments}))

    # -- copies

    def copied(self, target: Node, arguments: tuple[int, ...]) -> str:
        """The store to an lvalue as a copy."""
        lanes: tuple[int, ...] | None = None
        while True:
            if target.kind == "PAREN_EXPR":
                target = target.children[-1]
            elif is_component(target):
                child = target.children[0]
                through = child.type.kind == "pointer"
                whole = child.type.target if through else child.type
                assert whole is not None
                lanes = self.lanes_of(target, child, whole, lanes)
                if through:
                    return self.copy_of(whole, self.wanted(child), arguments, target, lanes)
                target = child
            else:
                break
        if target.kind == "ARRAY_SUBSCRIPT_EXPR" and target.children[0].type.kind == "vector":
            vector, index = target.children
            if is_component(vector):
                raise RefusedError(f"a component of components is stored to, {self.points.line(target)}")
            word = self.word(vector.type.size // (4 if vector.type.lanes == 3 else vector.type.lanes), target)
            where = f"(__global {word} *)&({self.place(vector)}) + ({self.wanted(index)})"
            return self.copies.value(word, where, arguments, self.sized())
        if target.kind == "MEMBER_REF_EXPR" and target.value is None:
            raise RefusedError(f"a bit field is stored to, {self.points.line(target)}")
        return self.copy_of(target.type, f"&({self.place(target)})", arguments, target, lanes)

    def lanes_of(self, node: Node, child: Node, whole: CType, lanes: tuple[int, ...] | None) -> tuple[int, ...]:
        match = _COMPONENT.search(self.unit.text, child.end, node.end)
        chosen = swizzle(match.group(1).decode(), whole.lanes) if match else None
        if chosen is None or (lanes is not None and max(lanes) >= len(chosen)):
            raise RefusedError(f"a component that is not understood, {self.points.line(node)}")
        return chosen if lanes is None else tuple(chosen[lane] for lane in lanes)

    def word(self, size: int, node: Node) -> str:
        if size not in _WORDS:
            raise RefusedError(f"an element of {size} bytes is stored to, {self.points.line(node)}")
        return _WORDS[size]

    def copy_of(
        self, type_: CType, where: str, arguments: tuple[int, ...], node: Node, lanes: tuple[int, ...] | None = None
    ) -> str:
        """A copy of what has a type, or of some lanes of it, from and to an address."""
        if type_.holds_pointers:
            raise RefusedError(f"an address is stored to an argument, {self.points.line(node)}")
        if type_.kind == "vector":
            word = self.word(type_.size // (4 if type_.lanes == 3 else type_.lanes), node)
            if lanes is not None:
                return self.copies.lanes(word, where, lanes, arguments, self.sized())
            return self.copies.value(f"{word}{type_.lanes}", where, arguments, self.sized())
        if type_.kind in ("int", "float", "bool"):
            return self.copies.value(self.word(type_.size, node), where, arguments, self.sized())
        if type_.size < 1:
            raise RefusedError(f"what is stored to has no known size, {self.points.line(node)}")
        return self.copies.bytes(type_.size, where, arguments, self.sized())

    def vector_store(self, node: Node, match: re.Match[str], stored: tuple[int, ...]) -> str:
        """``vstoreN`` and its forms for half (OpenCL C 3.0, section 6.15.7)."""
        data, offset, pointer = node.children[1:]
        lanes, target = int(match.group(3) or 1), pointer.type.target
        size = 2 if match.group(2) else (target.size if target is not None else 0)
        word = self.word(size, node)
        apart = 4 if match.group(1) and lanes == 3 else lanes
        where = f"(__global {word} *)({self.wanted(pointer)}) + (size_t)({self.wanted(offset)}) * {apart}"
        name = word if lanes == 1 else f"{word}{lanes}"
        unaligned = self.copies.value if lanes == 1 else self.copies.vector
        return joined((self.effects(data), unaligned(name, where, stored, self.sized())))

    def event(self, node: Node) -> str:
        """An event to wait for in place of a copy's to an argument: that of a copy of nothing the other way."""
        target, source, *_, event = node.children[1:]
        (argument, *_) = self.targets(self.points.values(target), node)
        copy = self.copies.names(argument, ())[1]
        return (
            f"async_work_group_copy((__local uchar *)({self.wanted(source)}), {copy}, (size_t)0, {self.wanted(event)})"
        )

    def group_copy(self, node: Node) -> str:
        """An asynchronous copy to an argument, by the work-items of the group together."""
        target, source, number, *stride = node.children[1:-1]
        element = target.type.target
        stored = self.targets(self.points.values(target), node)
        assert element is not None  # a number or a vector: of nothing else is there such a copy
        lanes = 4 if element.lanes == 3 else element.lanes
        word = self.word(element.size // lanes, node)
        steps = f"({self.wanted(stride[0])})" if stride else "1"
        name = word if lanes == 1 else f"{word}{lanes}"
        before = joined((self.effects(source), self.effects(node.children[-1])))
        found = self.copies.group(name, self.wanted(target), self.wanted(number), steps, stored, self.sized())
        return joined((before, found))
