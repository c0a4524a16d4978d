"""Statements of OpenCL C, run abstractly: branches, switches, jumps, declarations."""

from __future__ import annotations

from collections.abc import Callable

from manycl.analysis.interpreter.abstract import ControlState, Exits, Path, Unanalysable
from manycl.analysis.interpreter.calls import Calls
from manycl.analysis.interpreter.values import OPAQUE, Aggregate, Cell, blank
from manycl.analysis.reading.jumps import label_of, structured
from manycl.analysis.reading.tree import Node, initial_value
from manycl.analysis.symbolic import expr as x
from manycl.analysis.symbolic.expr import Expr


class Statements(Calls):
    """Execution of statements; loops are :mod:`manycl.analysis.interpreter.loops`'."""

    def loop(self, node: Node) -> None:
        raise NotImplementedError

    def execute(self, node: Node) -> None:
        if self.path is None and not _has_labels(node):
            return
        self.step()
        handler = _STATEMENTS.get(node.kind)
        if handler is not None:
            handler(self, node)
        elif node.kind.endswith("_STMT") and node.kind not in ("UNEXPOSED_STMT",):
            raise Unanalysable(f"{_WORDS.get(node.kind, node.kind)}, line {self.line(node.start)}")
        elif node.kind == "UNEXPOSED_STMT":
            for child in node.children:
                if not child.kind.endswith("_ATTR"):
                    self.execute(child)
        elif not node.kind.endswith(("_DECL", "_ATTR")):
            self.discard(node)
            self.value(node)

    def discard(self, node: Node) -> None:
        """The value of this expression is not used."""
        while node.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", "CSTYLE_CAST_EXPR") and node.children:
            if node.kind == "CSTYLE_CAST_EXPR" and node.type.kind != "void":
                break
            node = node.children[-1]
        if node.kind == "BINARY_OPERATOR" and node.op == ",":
            for child in node.children:
                self.discard(child)
        self.discarded.add(id(node))

    def compound_statement(self, node: Node) -> None:
        found = self.blocks.get(id(node))
        if found is None:
            found = self.blocks[id(node)] = structured(self.unit, node.children)
        for child in found:
            self.execute(child)

    blocks: dict[int, tuple[Node, ...]]

    def declaration(self, node: Node) -> None:
        for child in node.children:
            if child.kind == "VAR_DECL":
                self.variable_declaration(child)

    def variable_declaration(self, node: Node) -> None:
        type_ = node.type
        if type_.address_space in ("local", "global"):
            self.declare(node.ref, type_, blank())
            if type_.address_space == "global":
                self.hazards[f"variable {node.name} outlives the kernel"] = None
            return
        value: Cell | None = None
        last = initial_value(self.unit, node)
        if last is not None:
            if last.type.kind == "array" and type_.kind == "pointer" and last.kind != "STRING_LITERAL":
                value = self.place(last).pointer
            elif type_.kind in ("array", "record", "union") and last.kind == "STRING_LITERAL":
                value = blank()
            else:
                value = self.initialised(last, type_) if last.kind == "INIT_LIST_EXPR" else self.value(last)
        self.declare(node.ref, type_, self.initial(type_, value))

    def branch(self, node: Node) -> None:
        condition = self.condition(node.children[0])
        if self.path is None:
            return
        before, env = self.path, self.env
        ends: list[ControlState] = []
        lone = len(node.children) < 3 and self.looping > 0 and condition.unknown
        for choice, branch in zip((condition, x.negate(condition)), node.children[1:], strict=False):
            path = before.where(choice)
            if path is None:
                continue
            self.path, self.env = path, self.copied(env)
            self.lone += lone
            self.execute(branch)
            self.lone -= lone
            self.note(ends)
        if len(node.children) < 3:
            path = before.where(x.negate(condition))
            if path is not None:
                ends.append(ControlState(path, env))
        self.continue_from(ends)

    def leave(self, kind: str) -> None:
        if self.path is None:
            return
        state = ControlState(self.path, self.copied(self.env))
        for exits in reversed(self.exits):
            if kind == "break":
                exits.breaks.append(state)
                break
            if exits.continues is not None:
                exits.continues.append(state)
                break
        self.path = None

    def returns(self, node: Node) -> None:
        value: Cell = OPAQUE
        if node.children:
            value = self.value(node.children[0])
            type_ = self.unit.functions[self.frames[-1].function].result
            if not isinstance(value, Aggregate) and type_.kind in ("int", "float", "bool", "vector"):
                value = self.convert(value, type_)
        if self.path is not None:
            self.frames[-1].returns.append((ControlState(self.path, self.copied(self.env)), value))
        self.path = None

    # -- switch

    def switch(self, node: Node) -> None:
        """Run a switch: its body runs from the label that matches, or not at all; every label joins who falls into
        it."""
        subject = self.number(node.children[0])
        if self.path is None:
            return
        body = node.children[-1]
        statements = body.children if body.kind == "COMPOUND_STMT" else (body,)
        flat = [part for statement in statements for part in _labels(statement)]
        if any(part.kind != "SWITCH_STMT" and _has_labels(part) for kind, part in flat if kind == "statement"):
            raise Unanalysable(f"a label inside a statement of a switch, line {self.line(node.start)}")
        values: dict[int, Expr] = {}
        for kind, part in flat:
            if kind == "case":
                found = self.value(part)
                if not isinstance(found, Expr) or found.op != "const":
                    raise Unanalysable(f"a case that is not constant, line {self.line(part.start)}")
                values[id(part)] = x.equal(subject, found)
        entry, entered = self.path, self.env
        none = x.both(*(x.negate(v) for v in values.values()))
        self.exits.append(Exits())
        self.path = None
        for kind, part in flat:
            if kind == "statement":
                self.execute(part)
                continue
            matches = values[id(part)] if kind == "case" else none
            self.enter(entry, entered, matches)
        ends = self.exits.pop().breaks
        self.note(ends)
        if not any(kind == "default" for kind, _ in flat):
            path = entry.where(none)
            if path is not None:
                ends.append(ControlState(path, entered))
        self.continue_from(ends)

    def arrive(self, label: str) -> None:
        """Control meets here with what jumps to a label."""
        states = self.frames[-1].jumps.pop(label, None)
        if states is not None:
            self.note(states)
            self.continue_from(states)

    def enter(self, entry: Path, entered: dict[int, Cell], matches: Expr) -> None:
        states = list[ControlState]()
        self.note(states)
        path = entry.where(matches)
        if path is not None:
            states.append(ControlState(path, dict(entered)))
        self.continue_from(states)

    def jump(self, node: Node) -> None:
        if self.path is not None:
            state = ControlState(self.path, self.copied(self.env))
            self.frames[-1].jumps.setdefault(label_of(self.unit, node), []).append(state)
        self.path = None

    def label(self, node: Node) -> None:
        self.arrive(label_of(self.unit, node))
        for child in node.children:
            if child.kind != "LABEL_REF":
                self.execute(child)


def _labels(node: Node) -> list[tuple[str, Node]]:
    """A statement of a switch's body as labels and the statement behind them."""
    found: list[tuple[str, Node]] = []
    while node.kind in ("CASE_STMT", "DEFAULT_STMT"):
        if node.kind == "CASE_STMT":
            if len(node.children) != 2:
                raise Unanalysable("a range of cases")
            found.append(("case", node.children[0]))
        else:
            found.append(("default", node))
        node = node.children[-1]
    found.append(("statement", node))
    return found


def _has_labels(node: Node) -> bool:
    """Return whether control can come into a statement from outside."""
    if not node.kind.endswith("_STMT"):
        return False
    pending = [node]
    while pending:
        each = pending.pop()
        if each.kind in ("LABEL_STMT", "CASE_STMT", "DEFAULT_STMT") or each.name:  # a loop with a label
            return True
        if each.kind != "SWITCH_STMT" or each is node:
            pending.extend(c for c in each.children if c.kind.endswith("_STMT") and c.kind != "SWITCH_STMT")
    return False


_WORDS = {"INDIRECT_GOTO_STMT": "goto", "ASM_STMT": "inline assembly"}
_STATEMENTS: dict[str, Callable[[Statements, Node], None]] = {
    "COMPOUND_STMT": Statements.compound_statement,
    "DECL_STMT": Statements.declaration,
    "IF_STMT": Statements.branch,
    "FOR_STMT": lambda self, node: self.loop(node),
    "WHILE_STMT": lambda self, node: self.loop(node),
    "DO_STMT": lambda self, node: self.loop(node),
    "SWITCH_STMT": Statements.switch,
    "BREAK_STMT": lambda self, node: self.leave("break"),
    "CONTINUE_STMT": lambda self, node: self.leave("continue"),
    "RETURN_STMT": Statements.returns,
    "LABEL_STMT": Statements.label,
    "GOTO_STMT": Statements.jump,
    "NULL_STMT": lambda self, node: None,
}
