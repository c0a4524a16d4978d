"""What a loop is made of, and what its body may change: as far as the tree tells without running it."""

from __future__ import annotations

from dataclasses import dataclass

from manycl.analysis.interpreter.abstract import Unanalysable
from manycl.analysis.reading.tree import CType, Node, assigned, loop_head
from manycl.analysis.symbolic.closed_form import ClosedForms


@dataclass(slots=True)
class Parts:
    """A loop: its condition (None: always true) is tested before the body unless ``after``."""

    condition: Node | None
    body: Node
    step: Node | None
    after: bool
    line: int
    name: str = ""
    label: str = ""  # of a loop made by jumps to it


class LoopParts(ClosedForms):
    """Loops, as they are written."""

    assigned_refs: dict[int, frozenset[int]]
    plain_bodies: dict[int, bool]

    def parts(self, node: Node) -> Parts:
        """The parts of a loop that is about to run: what comes before its first iteration is executed."""
        line, head = self.line(node.start), loop_head(self.unit, node)
        if head is None:
            raise Unanalysable(f"the head of a loop that is not understood, line {line}")
        name, init = "", head.init
        if init is not None:
            self.execute(init)
            if init.children and (init.kind == "DECL_STMT" or init.op == "="):
                name = init.children[0].name
        return Parts(head.condition, head.body, head.step, node.kind == "DO_STMT", line, name, node.name)

    def assigned_cells(self, node: Node) -> set[int]:
        """Variables of the function that are assigned by name somewhere in a loop."""
        refs = self.assigned_names(node)
        return {cell for ref in refs if (cell := self.cell(ref)) is not None and cell in self.env}

    def assigned_names(self, node: Node) -> frozenset[int]:
        refs = self.assigned_refs.get(id(node))
        if refs is None:
            refs = self.assigned_refs[id(node)] = _assigned(node)
        return refs

    def leaves_alone(self, body: Node) -> bool:
        """Whether a body plainly changes nothing that the form of its loop depends on: then it need not be tried."""
        found = self.plain_bodies.get(id(body))
        if found is None:
            found = self.plain_bodies[id(body)] = self.is_plain(body)
        if not found:
            return False
        cells = [self.cell(ref) for ref in self.assigned_names(body)]
        return all(cell is None or cell not in self.env or _is_floating(self.types[cell]) for cell in cells)

    def is_plain(self, body: Node) -> bool:
        """Neither jumps nor ways to change a private variable but by its name."""
        for node in body.walk():
            if node.kind in ("BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT", "GOTO_STMT", "LABEL_STMT", "CALL_EXPR"):
                if node.kind != "CALL_EXPR" or any(_is_private_pointer(c.type) for c in node.children[1:]):
                    return False
            elif (node.kind == "UNARY_OPERATOR" and node.op == "&") or (
                node.op in ("", "*") and node.children and _is_private_pointer(node.children[0].type)
            ):
                return False
        return True


def _is_floating(type_: CType) -> bool:
    return type_.kind in ("float", "vector") and type_.base in ("float", "double", "half")


def _is_private_pointer(type_: CType) -> bool:
    space = type_.target.address_space if type_.kind == "pointer" and type_.target is not None else "global"
    return type_.kind == "pointer" and space not in ("global", "local", "constant")


def _assigned(node: Node) -> frozenset[int]:
    found = set()
    for each in node.walk():
        target = assigned(each)
        while target is not None:
            if target.kind == "DECL_REF_EXPR":
                found.add(target.ref)
                break
            through = target.kind in ("PAREN_EXPR", "UNEXPOSED_EXPR", "MEMBER_REF_EXPR", "ARRAY_SUBSCRIPT_EXPR")
            if (
                not through
                or not target.children
                or (target.children[0].type.kind == "pointer" and target.kind == "MEMBER_REF_EXPR")
            ):
                break
            target = target.children[0]
            if target.type.kind == "pointer" and target.kind != "UNEXPOSED_EXPR":
                break
    return frozenset(found)
