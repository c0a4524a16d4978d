"""Merge kernels: what a range of work-groups wrote is copied, element by element, from another copy of the buffers.

MKMD (section 2.2, figure 2c): the kernel with its computation removed. Its control flow and its subscripts stay, and
each store to an argument becomes ``dst[e] = src[e]``, ``src`` being the buffer of the device that ran the range. So
exactly the elements that the range writes are copied, whatever pattern they make. What only feeds stored values goes:
:mod:`manycl.analysis.texts.merge_expressions` keeps an expression for its value where something kept depends on it, and
else only for its effects. That can be done if what steers the stores can be found out again: not from buffers that
the kernel writes, and not with atomic operations whose results depend on an order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from manycl.analysis.reading.options import read_options, remaining_options
from manycl.analysis.reading.tree import LOOPS, Function, Node, Unit, initial_value, loop_head, operands
from manycl.analysis.texts import rewrite
from manycl.analysis.texts.merge_expressions import MergeExpressions, neutral
from manycl.analysis.texts.merge_points import Inclusions, Place, RefusedError, balanced, splice
from manycl.errors import SourceError

Text = tuple[str, bool]  # a statement, and whether it does anything

_TYPE_OF_VALUE = re.compile(rb"typeof|__auto_type|\[\s*\]")


class MergeStatements(MergeExpressions):
    """Bodies of functions. ``kept`` loops and switches do something, so that leaving them matters."""

    def __init__(self, points: Inclusions, prefix: str) -> None:
        super().__init__(points, prefix)
        self.kept: set[int] = set()
        self.around: list[tuple[int, bool]] = []  # (loop or switch, whether it is a loop)
        self.function = points.kernel

    def bodies(self) -> dict[int, str]:
        """The text of the body of each function that is still called, once nothing more turns out to be needed."""
        size = -1
        found: dict[int, str] = {}
        while size != (size := self.size()):
            self.copies.asked.clear()
            found.clear()
            pending = [self.points.kernel.ref]
            while pending:
                function = self.unit.functions[pending.pop()]
                if function.ref in found:
                    continue
                self.function = function
                found[function.ref] = self.compound(function.body)[0]
                pending.extend(sorted(self.entered - set(found)))
        return found

    def size(self) -> int:
        parts = (self.needed, self.arguments, self.entered, self.kept, self.copies.shared)
        return sum(len(part) for part in parts) + self.local

    def statement(self, node: Node) -> Text:
        handler = _STATEMENTS.get(node.kind)
        if handler is not None:
            return handler(self, node)
        if node.kind.endswith("_STMT"):
            raise RefusedError(f"a statement that is not understood, {self.points.line(node)}")
        if node.kind.endswith("_DECL"):
            return f"{self.text(node)};", False
        words = self.effects(node)
        return f"{words};" if words else "", bool(words)

    def body(self, node: Node) -> Text:
        """A statement where the language wants exactly one."""
        words, does = self.statement(node)
        return (words if node.kind == "COMPOUND_STMT" else f"{{ {words} }}"), does

    def compound(self, node: Node) -> Text:
        found = [self.statement(child) for child in node.children]
        return "{\n" + "\n".join(words for words, _ in found if words) + "\n}", any(does for _, does in found)

    def attributed(self, node: Node) -> Text:
        found = [self.statement(child) for child in node.children if not child.kind.endswith("_ATTR")]
        return "\n".join(words for words, _ in found), any(does for _, does in found)

    # -- declarations

    def declaration(self, node: Node) -> Text:
        edits: list[tuple[int, int, str]] = []
        does, after = False, ""
        for child in node.children:
            if child.kind == "VAR_DECL":
                edit, acts = self.variable(child)
                edits += edit
                does = does or bool(acts)
                if acts and child.type.name == "event_t" and ("var", child.ref) not in self.needed:
                    after += f" {acts};"
        words = splice(self.unit.text, balanced(self.unit.text, node.start, node.end), edits)
        if words is None:
            raise RefusedError(f"a macro hides what {self.points.line(node)} declares")
        return (words if words.rstrip().endswith(";") else f"{words};") + after, does

    def variable(self, node: Node) -> tuple[list[tuple[int, int, str]], str]:
        """Return the edits of a variable's initial value, which is deleted unless the variable is needed, and the text
        of the value's effects."""
        value = initial_value(self.unit, node)
        if value is None or node.type.address_space in ("constant", "local"):
            return [], ""
        place: Place = ("var", node.ref)
        acts = self.effects(value)
        typed = _TYPE_OF_VALUE.search(self.unit.text, node.start, value.start)
        event = node.type.name == "event_t"  # to wait for, where there still are asynchronous copies
        anything = neutral(node.type)
        if typed or (event and self.local) or (acts and not event and not anything):
            self.needed.add(place)
        start, end = balanced(self.unit.text, value.start, value.end)
        if place in self.needed:
            words = self.initial(value)
            return ([(start, end, words)] if words != self.text(value) else []), acts
        if acts and not event:
            return [(start, end, f"({acts}, {anything})")], acts
        return [(self.unit.text.rindex(b"=", node.start, value.start), end, "")], acts

    def initial(self, value: Node) -> str:
        if value.kind != "INIT_LIST_EXPR":
            return self.wanted(value)
        parts: list[tuple[Node, str]] = []
        for child in operands(value):
            designated = child.kind == "UNEXPOSED_EXPR" and child.type.kind == "void"
            parts += [(part, self.initial(part)) for part in (operands(child) if designated else [child])]
        return self.spliced(value, parts)

    # -- control

    def branch(self, node: Node) -> Text:
        condition, *branches = node.children
        found = [self.body(branch) for branch in branches]
        if not any(does for _, does in found):
            words = self.effects(condition)
            return f"{words};" if words else "", bool(words)
        text = f"if ({self.wanted(condition)}) {found[0][0]}"
        return f"{text} else {found[1][0]}" if len(found) > 1 and found[1][1] else text, True

    def loop(self, node: Node) -> Text:
        """``for``, ``while`` and ``do``."""
        head = loop_head(self.unit, node)
        if head is None:
            raise RefusedError(f"the head of a loop that is not understood, {self.points.line(node)}")
        self.around.append((id(node), True))
        words, does = self.body(head.body)
        self.around.pop()
        first, starts = self.statement(head.init) if head.init is not None else ("", False)
        last = self.effects(head.step) if head.step is not None else ""
        tested = head.condition is not None and self.effects(head.condition)
        if not (does or starts or last or tested):
            return "", False
        self.kept.add(id(node))
        test = self.wanted(head.condition) if head.condition is not None else ""
        if node.kind == "DO_STMT":
            return f"do {words} while ({test});", True
        if node.kind == "WHILE_STMT":
            return f"while ({test}) {words}", True
        return f"for ({first or ';'} {test}; {last}) {words}", True

    def switch(self, node: Node) -> Text:
        self.around.append((id(node), False))
        words, does = self.body(node.children[-1])
        self.around.pop()
        if not does:
            left = self.effects(node.children[0])
            return f"{left};" if left else "", bool(left)
        self.kept.add(id(node))
        return f"switch ({self.wanted(node.children[0])}) {words}", True

    def labelled(self, node: Node) -> Text:
        """``case``, ``default`` and labels of ``goto``; whatever they stand in, they are jumped to."""
        last = node.children[-1]
        words, does = self.statement(last)
        head = self.unit.text[node.start : last.start].decode("utf-8", "replace")
        switch = next((ref for ref, loop in reversed(self.around) if not loop), None)
        return f"{head} {words or ';'}", does or node.kind == "LABEL_STMT" or switch in self.kept

    def leave(self, node: Node) -> Text:
        left = next((ref for ref, loop in reversed(self.around) if loop or node.kind == "BREAK_STMT"), None)
        return (f"{self.text(node)};", True) if left in self.kept else ("", False)

    def returned(self, node: Node) -> Text:
        if not node.children:
            return "return;", True
        place: Place = ("result", self.function.ref)
        anything = neutral(self.function.result)
        if not anything and self.function.result.kind != "void":
            self.needed.add(place)
        if place in self.needed:
            return f"return {self.wanted(node.children[0])};", True
        words = self.effects(node.children[0])
        return f"{{ {words}{';' if words else ''} return {anything}; }}", True


_STATEMENTS: dict[str, Callable[[MergeStatements, Node], Text]] = {
    "COMPOUND_STMT": MergeStatements.compound,
    "DECL_STMT": MergeStatements.declaration,
    "IF_STMT": MergeStatements.branch,
    **dict.fromkeys(LOOPS, MergeStatements.loop),
    "SWITCH_STMT": MergeStatements.switch,
    **dict.fromkeys(("CASE_STMT", "DEFAULT_STMT", "LABEL_STMT"), MergeStatements.labelled),
    **dict.fromkeys(("BREAK_STMT", "CONTINUE_STMT"), MergeStatements.leave),
    "GOTO_STMT": lambda self, node: (f"{self.text(node)};", True),
    "RETURN_STMT": MergeStatements.returned,
    "NULL_STMT": lambda self, node: ("", False),
    "UNEXPOSED_STMT": MergeStatements.attributed,
}


@dataclass(frozen=True, slots=True)
class Hidden:
    """A parameter of a merge kernel behind the kernel's own. ``copy``: the buffer from which is copied what goes to the
    buffer of ``argument``. ``bytes``: the size of the latter, an ulong (where one store may go to several arguments,
    this tells which)."""

    kind: str
    argument: int


@dataclass(frozen=True, slots=True)
class MergeKernel:
    """A kernel that copies what ranges of work-groups of ``kernel`` wrote.

    Build ``source`` with ``options`` and set the kernel's own arguments as for the launch to merge, with the buffers
    to copy to. Behind them come one argument for each of ``hidden`` and then those of ``ranges`` (a sub-kernel of
    ``source``: :meth:`SubKernel.arguments` gives the launch of a range, and its values). The buffers copied to and
    from must not overlap.

    ``written`` are the arguments that are copied to. ``reads`` are the arguments whose contents decide what is
    copied: they must be as they were in the launch, so none may share memory with one that is written. The contents
    of all other arguments do not matter. ``reason`` says why there is no merge kernel (``source`` is then empty).
    """

    kernel: str
    source: str = ""
    options: tuple[str, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    written: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    ranges: rewrite.SubKernel = field(default_factory=lambda: rewrite.SubKernel("", "", ()))
    reason: str = ""


def merge_kernel(unit: Unit, kernel: str, options: Sequence[str]) -> MergeKernel:
    """The merge kernel of a kernel of ``unit``, which was read with build ``options``. Never raises for a program that
    was read; KeyError for a kernel that it does not have."""
    root = unit.kernel(kernel)
    try:
        return _Merging(unit, root).merge_kernel(remaining_options(options, unit.version))
    except RefusedError as refused:
        return MergeKernel(kernel, reason=str(refused))


class _Merging:
    """One merge kernel being made."""

    def __init__(self, unit: Unit, root: Function) -> None:
        self.unit, self.root = unit, root
        self.prefix = rewrite.unused_prefix(unit.text)
        self.slice = MergeStatements(Inclusions(unit, root), self.prefix)
        self.bodies = self.slice.bodies()
        self.written = tuple(self.slice.written)
        self.sized = self.slice.sized()

    def merge_kernel(self, options: tuple[str, ...]) -> MergeKernel:
        from manycl.analysis.reading import frontend

        text = self.text()
        try:
            merged = frontend.load(text, "<merge kernel>", None, read_options(options))
        except SourceError as error:  # what the edits did not foresee
            problem = error.diagnostics[0].text if error.diagnostics else error.message
            return MergeKernel(self.root.name, reason=f"the kernel's text cannot be edited: {problem}")
        ranges = rewrite.sub_kernel(merged, self.root.name, text, options)
        if ranges.reason:
            return MergeKernel(self.root.name, reason=ranges.reason)
        hidden = tuple(
            Hidden(kind, argument)
            for argument in self.written
            for kind in (("copy", "bytes") if argument in self.sized else ("copy",))
        )
        reads = tuple(sorted(self.slice.arguments))
        return MergeKernel(self.root.name, ranges.source, ranges.options, hidden, self.written, reads, ranges)

    def text(self) -> str:
        """The program with the bodies that are left, and hidden parameters."""
        edits: list[tuple[int, int, str]] = []
        for ref, function in self.unit.functions.items():
            extent = function.body.start, function.body.end
            if ref not in self.bodies:  # not called any more, and perhaps calling what has other parameters now
                edits.append((*extent, "{ }" if function.is_kernel else ";"))
                continue
            body = self.bodies[ref]
            copies = self.slice.copies
            if ref == self.root.ref:
                body = "{\n" + self.beginnings() + body.removeprefix("{")
                names = [d for d in copies.declared(self.written, self.sized) if f" *{self.prefix}to_" not in d]
            else:
                names = copies.declared(self.slice.written_by(function), self.sized)
            edits.append((*extent, body))
            if names:
                edits += self.parameters(function, ", ".join(names))
        text = rewrite.apply_edits(self.unit.text, edits).decode("utf-8", "replace")
        return self.slice.copies.definitions(self.sized) + text

    def parameters(self, function: Function, declared: str) -> list[tuple[int, int, str]]:
        edits = []
        for start, end in rewrite.signatures(self.unit, function):
            place = rewrite.parameters_of(self.unit, function, start, end)
            if place is None:
                raise RefusedError(f"the parameters of {function.name} cannot be extended")
            edits.append(rewrite.appended(self.unit, *place, declared))
        return edits

    def beginnings(self) -> str:
        """Return where the buffers of the arguments begin, which may change themselves."""
        lines = []
        for argument in self.written:
            to = self.slice.copies.names(argument, self.sized)[0]
            name = self.root.parameters[argument].name
            lines.append(f"__global const uchar *{to} = (__global const uchar *){name};\n")
        return "".join(lines)
