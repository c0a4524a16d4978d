"""HTML for notebooks: for a cell, with no script but that of a chart, which is a page in a frame of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch

from manycl.analysis import service
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import ManyclError
from manycl.machine import HOST, Machine
from manycl.plan.plan import ON_HOST, Plan
from manycl.report.analysis.as_text import symbolic, traits, type_of
from manycl.report.charts.html import page, table, tables, text
from manycl.report.summary import summarise
from manycl.report.words import seconds
from manycl.trace import Trace
from manycl.units import show_bytes

MOST = 20_000
"""Events of a chart that is put into a notebook, where it stays: some 100 bytes each."""
_HEIGHT = 480  # pixels, of a chart; what does not fit is scrolled to


@singledispatch
def html(value: object) -> str:
    """The value as HTML; every text in it is escaped."""
    return f"<pre>{text(repr(value))}</pre>"


@html.register
def trace(value: Trace) -> str:
    """The summary's tables and the chart; of a long trace only the tables."""
    if len(value.events) > MOST:
        return f"{_heading(repr(value))}{tables(summarise(value))}<p>{_LONG}</p>\n"
    frame = page(value).replace("&", "&amp;").replace('"', "&quot;")
    style = f"width:100%;height:{_HEIGHT}px;border:0"
    return f'{_heading(repr(value))}<iframe srcdoc="{frame}" sandbox="allow-scripts" style="{style}"></iframe>\n'


_LONG = f"More than {MOST:,} events: <code>trace.gantt(&quot;run.html&quot;)</code> draws them in a file."


@html.register
def plan(value: Plan) -> str:
    """The chart of a plan that was foreseen; else who runs what when, by the policy's estimate."""
    if value.events:
        return trace(value.as_trace())
    rows = []
    for device, name in [*enumerate(value.devices), (ON_HOST, "host")]:
        mine = [a for a in value.assignments if a.device == device]
        if mine:
            ranges, nodes = sum(a.is_range for a in mine), sorted({a.node for a in mine})
            shown = ", ".join(map(str, nodes[:20])) + (", …" if len(nodes) > 20 else "")
            begin, end = min(a.start for a in mine), max(a.end for a in mine)
            rows.append((text(name), str(len(nodes)), shown, str(ranges), seconds(begin), seconds(end)))
    return _heading(repr(value)) + table(("device", "nodes", "which", "ranges", "from", "to"), rows)


@html.register
def program(value: ProgramFacts) -> str:
    """Each kernel's arguments, what it reads and writes, and whether its work-groups may run apart."""
    kernels = "".join(kernel(value, facts) for facts in value.kernels.values())
    warnings = "".join(f"<pre>{text(warning)}</pre>\n" for warning in value.warnings)
    return f"{_heading(value.path)}{kernels or '<p>no kernels</p>'}{warnings}"


def kernel(value: ProgramFacts, facts: KernelFacts) -> str:
    """The facts of one kernel."""
    rows = [
        (text(a.name or "(unnamed)"), text(type_of(a)), a.address_space, text(a.direction or a.kind), text(a.reason))
        for a in facts.arguments
    ]
    lines = [*symbolic(facts, service.symbolic(value, facts.name), value.path), *_ranges(value, facts)]
    known = "\n".join(text(line.removeprefix("  ")) for line in lines)
    heading = f"<b>{text(facts.name)}</b> ({text(value.path)}:{facts.line}): {text(traits(facts))}"
    head = ("argument", "type", "address space", "direction", "notes")
    return f"<p>{heading}</p>\n{table(head, rows)}<pre>{known}</pre>\n"


def _ranges(value: ProgramFacts, facts: KernelFacts) -> list[str]:
    """Return whether ranges of the work-groups may run on different devices, as far as that is the same for all
    launches."""
    try:
        reason = service.sub_kernel(value, facts.name).reason
    except ManyclError as error:
        reason = error.message
    if reason:
        return [f"cannot be divided: {reason}"]
    if hazards := service.symbolic(value, facts.name).hazards:
        return [f"whether a launch can be divided depends on its numbers ({len(hazards)} hazards)"]
    return ["can be divided over devices, unless a launch's own accesses forbid it"]


def devices(heading: str, machine: Machine, excluded: Mapping[str, str]) -> str:
    """The devices of a queue or session, and those that are left out."""
    rows = [
        (
            text(d.name),
            d.kind,
            text(d.model),
            text(d.platform),
            str(d.compute_units),
            show_bytes(d.global_memory),
            "the host's" if d.memory == HOST else "own" if machine.memory_name(d.memory) == d.name else "shared",
        )
        for d in machine.devices
    ]
    head = ("device", "kind", "model", "platform", "units", "memory", "which is")
    left = "".join(f"<p>left out: {text(name)}: {text(reason)}</p>\n" for name, reason in excluded.items())
    return _heading(heading) + table(head, rows) + left


def fields(heading: str, rows: Sequence[tuple[str, str]]) -> str:
    """Names and values."""
    return _heading(heading) + table(("", ""), [(text(name), text(value)) for name, value in rows])


def _heading(words: str) -> str:
    return f"<p><code>{text(words)}</code></p>\n"
