"""The findings of the analysis about a kernel in any launch, as lines of text: its accesses, and what stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.analysis.summary import KernelSummary, Loop, MemoryAccess
from manycl.report.analysis.expr import AccessWriter, named

MOST = 8
"""Entries of a list that are shown unless all are asked for."""
_VERBS = {"read": "reads", "write": "writes", "atomic": "atomic", "any": "touches"}


@dataclass(frozen=True, slots=True)
class AccessGroup:
    """Accesses that read alike, of the source lines ``places``. ``text`` is what they touch and when."""

    argument: int
    kind: str
    text: str
    places: tuple[str, ...]


def entries(reader: AccessWriter, path: str) -> list[AccessGroup]:
    """The accesses of a kernel, by argument; those that read alike are one. ``path``: its lines go without it."""
    found: dict[tuple[int, str, str], dict[str, None]] = {}
    ordered = sorted(reader.summary.accesses, key=lambda a: (a.argument % (1 << 30), _place(a)))
    for access in ordered:
        where = str(access.line) if access.path in ("", path) else f"{access.path}:{access.line}"
        kind = "any" if access.operation == "unknown" else access.kind
        found.setdefault((access.argument, kind, line_of(reader, access)), {})[where] = None
    return [AccessGroup(*key, tuple(places)) for key, places in found.items()]


def _place(access: MemoryAccess) -> int:
    return tuple(_VERBS).index(access.kind)


def line_of(reader: AccessWriter, access: MemoryAccess) -> str:
    """``a[gid1*n + k]  for k in 0..n  if gid1 < n``."""
    if access.operation == "unknown":
        return f"any part of {reader.name(access.argument)}"
    parts = [reader.elements(access)]
    if access.kind == "atomic" and access.operation:
        parts[0] = f"{access.operation} {parts[0]}{', its old value is used' if access.used else ''}"
    parts += [f"for {reader.loop(loop)}" for loop in shown_loops(access)]
    guard = reader.guard(access)
    if guard:
        parts.append(f"if {guard}")
    return "  ".join(parts)


def shown_loops(access: MemoryAccess) -> list[Loop]:
    """The loops that have a part in what an access touches."""
    names = {*access.offset.variables(), *access.condition.variables()}
    for loop in reversed(access.loops):
        if loop.name in names and loop.trips is not None:
            names |= loop.trips.variables().keys()
    return [loop for loop in access.loops if loop.name in names]


def cut(lines: Sequence[str], everything: bool) -> list[str]:
    """At most :data:`MOST` lines, and how many more there are."""
    if everything or len(lines) <= MOST + 1:
        return list(lines)
    indent = " " * (len(lines[0]) - len(lines[0].lstrip()))
    return [*lines[:MOST], f"{indent}... and {len(lines) - MOST} more"]


def symbolic(facts: KernelFacts, summary: KernelSummary, path: str, *, everything: bool = False) -> list[str]:
    """A kernel in any launch: a line per access and argument, indented. Long lists are cut, or ``everything``."""
    if summary.failure:
        return [f"  what it touches is not known: {summary.failure}"]
    reader = AccessWriter(facts, summary)
    found = entries(reader, path)
    lines: list[str] = []
    for index in sorted({e.argument for e in found}, key=lambda i: (i < 0, i)):
        rows = [f"  {_VERBS[e.kind]:7} {e.text}  {_lines(e.places)}" for e in found if e.argument == index]
        lines += cut(rows, everything)
    if not found:
        lines.append("  it touches no buffers")
    if reader.unknowns:
        words = [f"{name}: {reason}" for name, reason in reader.unknowns.items()]
        lines += ["  where", *(f"    {row}" for row in cut(words, everything))]
    return lines + [f"  {word}" for word in remarks(facts, summary)]


def remarks(facts: KernelFacts, summary: KernelSummary) -> list[str]:
    """Return what else a reader of the kernel should know, whatever the launch."""
    found = []
    if summary.barriers:
        found.append(f"barriers: {summary.barriers} in the source")
    found += [f"hazard: {named(hazard, facts)}" for hazard in summary.hazards]
    inexact = {loop.line: loop.reason for loop in summary.loops if not loop.exact}
    found += [f"loop in line {line}: {reason}" for line, reason in sorted(inexact.items()) if reason]
    return found


def _lines(places: Sequence[str]) -> str:
    shown = ", ".join(places[:4]) + (", ..." if len(places) > 4 else "")
    return f"(line{'s' if len(places) > 1 else ''} {shown})"


def type_of(argument: ArgumentFacts) -> str:
    """An argument's type as it is declared: ``const float*``."""
    pointer = "*" if argument.kind in ("buffer", "local") else ""
    const = "const " if argument.is_const and argument.address_space != "constant" else ""
    return f"{const}{argument.element}{pointer}"


def traits(kernel: KernelFacts) -> str:
    """Return what stands out of a kernel beside its arguments: its dimensions, barriers, …"""
    parts = [f"{kernel.dimensions} dimension{'s' if kernel.dimensions > 1 else ''}"]
    if kernel.required_work_group:
        parts.append(f"work-group of {' x '.join(str(n) for n in kernel.required_work_group)} required")
    if kernel.uses_barrier:
        parts.append("barriers")
    if kernel.local_bytes:
        parts.append(f"{kernel.local_bytes} bytes of local variables")
    if kernel.uses_double:
        parts.append("double precision")
    return ", ".join(parts)
