"""The statements of a merge kernel: those that do something, and all that decides whether they do it."""

from __future__ import annotations

import re
from collections.abc import Callable

from manycl.analysis.reading.tree import LOOPS, Node, initial_value, loop_head, operands
from manycl.analysis.texts.merge_expressions import MergeExpressions, neutral
from manycl.analysis.texts.merge_points import Inclusions, Place, RefusedError
from manycl.analysis.texts.merge_text import balanced, splice

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
        """What becomes of a variable's initial value, which goes unless the variable is needed; and its effects."""
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
