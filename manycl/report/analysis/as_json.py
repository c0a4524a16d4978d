"""The findings of the analysis about a kernel in any launch, as JSON's types."""

from __future__ import annotations

import dataclasses
from typing import Any

from manycl.analysis.facts import KernelFacts
from manycl.analysis.summary import KernelSummary, Loop, MemoryAccess
from manycl.report.analysis.expr import AccessWriter, named


def facts_dict(facts: KernelFacts) -> dict[str, Any]:
    """A kernel and its arguments."""
    row = dataclasses.asdict(facts)
    row["arguments"] = [dataclasses.asdict(a) | {"direction": a.direction} for a in facts.arguments]
    return row


def summary_dict(facts: KernelFacts, summary: KernelSummary) -> dict[str, Any]:
    """The symbolic form. ``offset`` is in bytes; ``elements``, ``condition`` and loops are in C's notation."""
    reader = AccessWriter(facts, summary)
    accesses = [_access(reader, access) for access in summary.accesses]
    return {
        "failure": summary.failure,
        "accesses": accesses,
        "unknowns": dict(reader.unknowns),
        "hazards": [named(hazard, facts) for hazard in summary.hazards],
        "barriers": summary.barriers,
    }


def _access(reader: AccessWriter, access: MemoryAccess) -> dict[str, Any]:
    known = access.argument >= 0
    any_part = access.operation == "unknown"
    return {
        "argument": access.argument,
        "name": reader.name(access.argument) if known else "",
        "kind": access.kind,
        "operation": access.operation,
        "used": access.used,
        "elements": "" if any_part or not known else reader.elements(access),
        "offset": "" if any_part else reader.expression(access.offset),
        "size": access.size,
        "condition": reader.guard(access),
        "loops": [_loop(reader, loop) for loop in access.loops],
        "line": access.line,
        "file": access.path,
    }


def _loop(reader: AccessWriter, loop: Loop) -> dict[str, Any]:
    return {
        "name": loop.name,
        "below": reader.bound(loop),
        "exact": loop.exact,
        "reason": named(loop.reason, reader.facts),
        "line": loop.line,
    }
