"""Accesses that certainly leave their memory: what is said of them, and whether looking closer is worth it."""

from __future__ import annotations

from dataclasses import dataclass

from manycl.analysis.facts import KernelFacts
from manycl.analysis.known_launch import KnownLaunch
from manycl.analysis.reading.tree import Unit
from manycl.analysis.summary import KernelSummary

PRIVATE = 64 << 20
"""Bytes of a private variable that no device has (stacks of CPU drivers: 8 MiB; NVIDIA's work-items: 512 KiB)."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Line ``line`` of ``path`` reads or writes (``kind``) the bytes ``low`` … ``high - 1`` of argument ``argument``
    or, behind these, of an array of the kernel's own, which has ``nbytes`` bytes in elements of ``element``: the first
    and the last of those that lie outside."""

    argument: int
    element: int
    name: str
    kind: str
    line: int
    path: str
    nbytes: int
    unit: int
    low: int
    high: int

    def __str__(self) -> str:
        words = "reads" if self.kind == "read" else "writes"
        where = f"at bytes {self.low} to {self.high - self.unit}"
        return f"line {self.line} {words} {self.name} outside of its {self.nbytes} bytes ({where})"


def suspicious(summary: KernelSummary, launch: KnownLaunch) -> bool:
    """Return whether some access may leave its memory and be known for certain to do so. Costs microseconds."""
    sizes = {**launch.sizes, **summary.nbytes}
    for access in (*summary.accesses, *summary.own):
        nbytes = sizes.get(launch.same.get(access.argument, access.argument))
        if nbytes is None or access.offset.unknown or access.operation == "unknown":
            continue
        if access.offset.low < 0 or access.offset.high + access.size > nbytes:
            return True
    return False


def deciding(summary: KernelSummary, facts: KernelFacts) -> frozenset[int] | None:
    """The scalar arguments (indices) on whose values it depends what a kernel accesses, by its symbolic summary; None
    where any may. Launches that differ in others only access the same."""
    if summary.failure:
        return None
    names: set[str] = set()
    for access in (*summary.accesses, *summary.own):
        parts = access.offset, access.condition, *(loop.trips for loop in access.loops)
        found = [part.variables().keys() for part in parts if part is not None and not part.unknown]
        if len(found) == len(parts) and access.argument >= 0:
            names = names.union(*found)
        elif access not in summary.own:  # (of these, what is not certain is not told)
            return None
    scalars = [a for a in facts.arguments if a.kind == "scalar"]
    return frozenset(a.index for a in scalars if a.name in names or a.lanes != 1 or not a.base)


def oversized(unit: Unit, facts: KernelFacts) -> tuple[str, int, str, int] | None:
    """A private variable of a kernel or its functions that no device has room for: its name, bytes, path and line."""
    for function in unit.reachable(unit.kernel(facts.name)):
        for node in function.nodes:
            if node.kind == "VAR_DECL" and node.type.size > PRIVATE and node.type.address_space in ("", "private"):
                return (node.name, node.type.size, *unit.place(node.start))
    return None
