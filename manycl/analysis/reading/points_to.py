"""Pointers: what they may point at, and what is done to that memory: the state of a points-to analysis.

Inclusion-based (L. O. Andersen, "Program Analysis and Specialization for the C Programming Language", 1994,
chapter 4), insensitive to control flow and fields, with one summary per function.

Locations: ``("param", i)`` what parameter i points at; ``("reach", i)`` whatever can be reached from there
through further pointers; ``("var", d)`` the variable declared by d; ``("temp", n)`` an unnamed value;
``("global", d)`` a variable of program scope; ``("unknown", why)`` any memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from manycl.analysis.reading.tree import CType, Function, Node, Unit

Location = tuple[str, int | str]
Locations = frozenset[Location]

NONE: Locations = frozenset()
SYMBOLIC = ("param", "reach", "deep", "unknown")  # locations that mean something to a caller
VOID = CType("void", "void")


@dataclass
class FunctionSummary:
    """The effects of a call of a function, in terms of its parameters; it grows until the fixed point."""

    reads: set[Location] = field(default_factory=set)
    writes: set[Location] = field(default_factory=set)
    raw: set[Location] = field(default_factory=set)  # written with data that is no pointer, through a pointer
    escapes: dict[Location, str] = field(default_factory=dict)  # with the reason
    returns: set[Location] = field(default_factory=set)
    stores: set[tuple[Location, Location]] = field(default_factory=set)  # (into, address)

    def size(self) -> int:
        parts = (self.reads, self.writes, self.raw, self.escapes, self.returns, self.stores)
        return sum(len(part) for part in parts)


class PointsTo:
    """The values that the variables of one function may hold, and the effects found so far. Everything only grows."""

    def __init__(self, unit: Unit, function: Function, summary: FunctionSummary) -> None:
        self.unit = unit
        self.function = function
        self.summary = summary
        self.contents: dict[Location, set[Location]] = {}
        self.declared: dict[int, CType] = {}
        self.escaped: dict[Location, str] = {}
        self.temps: dict[int, int] = {}
        for index, parameter in enumerate(function.parameters):
            self.declared[parameter.ref] = parameter.type
            if parameter.type.holds_pointers:
                self.contents[("var", parameter.ref)] = {("param", index)}

    def size(self) -> int:
        return sum(len(held) for held in self.contents.values()) + self.summary.size() + len(self.escaped)

    def where(self, node: Node) -> str:
        return self.unit.where(node.start)

    def read(self, locations: Iterable[Location]) -> None:
        self.summary.reads.update(each for each in locations if each[0] in SYMBOLIC)

    def write(self, locations: Iterable[Location], type_: CType, *, direct: bool = False) -> None:
        locations = tuple(locations)
        self.summary.writes.update(each for each in locations if each[0] in SYMBOLIC)
        if not type_.holds_pointers and not direct:
            self.write_raw(locations)

    def write_raw(self, locations: Iterable[Location]) -> None:
        """Data written through a pointer where addresses may be kept: afterwards they may be anything."""
        for each in locations:
            if each[0] == "var" and self.declared.get(int(each[1]), VOID).holds_pointers:
                self.hold(each, {("unknown", "a pointer overwritten as plain data")})
            elif each[0] in SYMBOLIC:
                self.summary.raw.add(each)

    def escape(self, locations: Iterable[Location], reason: str) -> None:
        for each in locations:
            if each[0] in SYMBOLIC:
                self.summary.escapes.setdefault(each, reason)
            elif each[0] in ("var", "temp") and each not in self.escaped:
                self.escaped[each] = reason
                if each[0] == "temp" or self.declared.get(int(each[1]), VOID).holds_pointers:
                    self.hold(each, {("unknown", reason)})

    def hold(self, location: Location, addresses: Iterable[Location]) -> None:
        self.contents.setdefault(location, set()).update(addresses)

    def store(self, locations: Iterable[Location], addresses: Locations, node: Node) -> None:
        """Addresses become part of what the locations hold."""
        if not addresses:
            return
        for each in locations:
            if each[0] == "global":
                self.escape(addresses, f"stored in a variable of program scope, {self.where(node)}")
                continue
            self.hold(each, addresses)
            if each[0] == "unknown":
                self.escape(addresses, f"stored where the analysis cannot follow, {self.where(node)}")
            elif each[0] in ("param", "reach", "deep"):
                self.summary.stores.update((each, address) for address in addresses)

    def load(self, locations: Iterable[Location], type_: CType) -> Locations:
        """The addresses that a value of this type, loaded from the locations, may carry."""
        return self.beyond(locations) if type_.holds_pointers else NONE

    def beyond(self, locations: Iterable[Location]) -> Locations:
        """Return what the pointers kept in the locations point at."""
        found: set[Location] = set()
        for each in locations:
            found |= self.contents.get(each, set())
            kind, index = each
            if kind in ("param", "reach", "deep"):
                found.add(("reach" if kind == "param" else "deep", index))
            elif kind == "unknown":
                found.add(each)
            elif kind == "global":
                variable = self.unit.variables.get(int(index))
                if variable is None or variable.type.address_space != "constant":
                    found.add(("unknown", "a pointer kept in a variable of program scope"))
        return frozenset(found)

    def closure(self, locations: Iterable[Location]) -> Locations:
        """Everything that can be reached from the locations through one pointer or more."""
        reached: Locations = NONE
        new = frozenset(locations)
        while new:
            new = self.beyond(new) - reached
            reached |= new
        return reached

    def temp(self, node: Node, addresses: Locations) -> Locations:
        location: Location = ("temp", self.temps.setdefault(id(node), len(self.temps)))
        self.hold(location, addresses)
        return frozenset({location})
