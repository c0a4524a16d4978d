"""What a merge kernel needs: which memory must hold what it held in the launch, and what may not be needed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from manycl.analysis.reading.tree import Function, Node
from manycl.analysis.texts.merge_points import BARRIER, Inclusions, Place, RefusedError, Set
from manycl.analysis.texts.merge_text import CopyingFunctions, balanced, splice


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
        """Whether a function is called for what it does."""
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
