"""Costs of a kernel, in any launch and in a given one: operations by kind, memory traffic, features."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from manycl.analysis.costs.cost import Work
from manycl.analysis.costs.cost_function import (
    COMPARISONS,
    COMPUTE,
    MEMORY,
    Features,
    Term,
    cost_function,
    launch_features,
    static_features,
)
from manycl.analysis.facts import KernelFacts
from manycl.analysis.summary import KernelSummary
from manycl.analysis.symbolic import expr as x
from manycl.model.slices import cached_slice, shipped
from manycl.report.analysis.as_text import cut
from manycl.report.analysis.expr import AccessWriter, named
from manycl.report.analysis.launch_report import LaunchView
from manycl.report.words import nbytes

_KEYS = {COMPARISONS: "comparisons", COMPUTE: "compute", MEMORY: "memory_accesses"}


def in_symbols(reader: AccessWriter, summary: KernelSummary, *, everything: bool = False) -> list[str]:
    """A kernel's cost function and what a work-item executes at most, in words; indented by two."""
    found = cost_function(summary)
    f = reader.expression(found.f)
    lines = [f"  cost: T * ({f})" if found.f.op == "sum" else f"  cost: T * {f}" if f != "1" else "  cost: T"]
    lines[0] += " for T work-items"
    rows = [f"    {kind}: {_terms(reader, terms)}" for kind, terms in found.operations.items()]
    lines += cut([row for row in rows if not row.split(":")[0].endswith(".bytes")], everything)
    features = static_features(summary)
    words = [f"{name[0].lower()}{name[1:]} {reader.expression(value)}" for name, value in features.items()]
    lines.append(f"  features: {'; '.join(words)}")
    return lines + [f"  {named(reason, reader.facts)}" for reason in found.unknown]


def _terms(reader: AccessWriter, terms: Sequence[Term]) -> str:
    words = []
    for term in terms:
        number = reader.expression(x.scale(term.trips, term.times))
        words.append(number if term.condition == x.ONE else f"{number} if {reader.expression(term.condition)}")
    return " + ".join(words) if all(" if " not in w for w in words) else "; ".join(words)


def symbolic_dict(reader: AccessWriter, summary: KernelSummary) -> dict[str, Any]:
    """The cost function (``f`` of MKMD's T f), where it holds, operations of a work-item, Device-Hopping's features."""
    found = cost_function(summary)
    return {
        "f": reader.expression(found.f),
        "domain": [reader.expression(part) for part in found.domain],
        "assumed": [named(reason, reader.facts) for reason in found.unknown],
        "operations": {kind: _terms(reader, terms) for kind, terms in found.operations.items()},
        "features": {_KEYS[name]: reader.expression(value) for name, value in static_features(summary).items()},
    }


def lines(view: LaunchView, *, everything: bool = False) -> list[str]:
    """The work of the view's range, in words."""
    work = view.found.work(view.groups)
    words = f"{_number(work.work_items)} work-items, f = {work.f:.6g}, T f = {_number(work.cost)}"
    found = [f"cost of these work-groups: {words}"]
    kinds = sorted(work.operations.items(), key=lambda item: (-item[1], item[0]))
    each = max(work.work_items, 1)
    rows = [f"  {kind:14} {_number(n):>16}  {n / each:.6g} per work-item" for kind, n in kinds if n]
    found += cut(rows, everything)
    if work.global_bytes or work.local_bytes:
        found.append(f"  global memory: {nbytes(work.global_bytes)}, local memory: {nbytes(work.local_bytes)}")
    features = launch_features(view.found.cost, view.found.facts)
    words = f"{features.comparisons:.6g} comparisons, {features.compute:.6g} compute operations"
    words += f", {features.memory_accesses:.6g} memory accesses, {features.bytes_transferred:.6g} bytes transferred"
    found.append(f"  features per work-item of the launch: {words}")
    if view.cache:
        sizes = _slices(view, features)
        said = [f"{_number(n)} (predicted, {kind}, per compute unit)" for kind, n in sizes["predicted"].items()]
        said.append(f"{_number(sizes['cached'])} (their data stay in {nbytes(view.cache)})")
        found.append(f"  slices in work-items: {', '.join(said)}")
    if not work.exact:
        found.append(f"  estimated: {named(work.reason, view.found.facts) or 'nothing is counted'}")
    return found


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.6g}"


def as_dict(view: LaunchView) -> dict[str, Any]:
    """The work of the view's range and of the whole launch."""
    part, facts = view.found.work(view.groups), view.found.facts
    features = launch_features(view.found.cost, facts)
    found = {"range": _work(part, facts), "launch": _work(view.found.work(), facts), "features": asdict(features)}
    return found | ({"slices": _slices(view, features)} if view.cache else {})


def _slices(view: LaunchView, features: Features) -> dict[str, Any]:
    """Work-items of a slice: by Device-Hopping's predictors, per compute unit of a kind of device, and by its rule for
    sparse matrices."""
    launch = view.found.launch
    points, group = math.prod(launch.global_size), math.prod(launch.local_size)
    touched = min(sum(launch.sizes.values()), round(view.found.work().global_bytes))
    known = {kind: shipped().points(features, kind, 1) for kind in ("cpu", "gpu")}
    predicted = {kind: min(round(n), points) for kind, n in known.items() if n is not None}
    return {"predicted": predicted, "cached": cached_slice(points, touched, view.cache, group)}


def _work(work: Work, facts: KernelFacts) -> Mapping[str, Any]:
    return {**asdict(work), "operations": dict(work.operations), "cost": work.cost, "reason": named(work.reason, facts)}
