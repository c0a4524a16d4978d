"""What a range of the work-groups of a launch costs: operations by kind, and memory traffic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from manycl.analysis.cost import Work
from manycl.analysis.facts import KernelFacts
from manycl.report.analysis_expr import named
from manycl.report.analysis_launch import LaunchView
from manycl.report.analysis_text import cut
from manycl.report.words import nbytes


def lines(view: LaunchView, *, everything: bool = False) -> list[str]:
    """The work of the view's range, in words."""
    work = view.found.work(view.dimension, view.first, view.count)
    words = f"{_number(work.work_items)} work-items, f = {work.f:.6g}, T f = {_number(work.cost)}"
    found = [f"cost of these work-groups: {words}"]
    kinds = sorted(work.operations.items(), key=lambda item: (-item[1], item[0]))
    each = max(work.work_items, 1)
    rows = [f"  {kind:14} {_number(n):>16}  {n / each:.6g} per work-item" for kind, n in kinds if n]
    found += cut(rows, everything)
    if work.global_bytes or work.local_bytes:
        found.append(f"  global memory: {nbytes(work.global_bytes)}, local memory: {nbytes(work.local_bytes)}")
    if not work.exact:
        found.append(f"  estimated: {named(work.reason, view.found.facts) or 'nothing is counted'}")
    return found


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"


def as_dict(view: LaunchView) -> dict[str, Any]:
    """The work of the view's range and of the whole launch."""
    part, facts = view.found.work(view.dimension, view.first, view.count), view.found.facts
    return {"range": _work(part, facts), "launch": _work(view.found.work(), facts)}


def _work(work: Work, facts: KernelFacts) -> Mapping[str, Any]:
    return {**asdict(work), "operations": dict(work.operations), "cost": work.cost, "reason": named(work.reason, facts)}
