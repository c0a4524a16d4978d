"""The part of ``mkmd.md`` about MKMD's worked example, with pictures after Figures 1, 6, 7, 8 and 11."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manycl.machine import Machine
from manycl.plan.plan import Assignment
from manycl.plan.problem import Problem
from manycl.report.charts.graph_chart import chart, write_graph
from manycl.run.simulation.simulate import simulate
from manycl_bench.mkmd.equations import problem
from manycl_bench.mkmd.example import Partitioning, Worked, worked
from manycl_bench.pages import table

ABOUT = """\
A^2 B B^T C B, A and C of 1K x 1K and B of 1K x 8K elements (Figure 1; with the devices that run it in the end):

![graph](mkmd_example_graph.png)

The coarse phase (Figure 6). As in the paper, kernel 1 is the processor's, kernel 5 the GTX 750's, all others are the
GTX 760's; the processor is idle from {cpu_idle:.0f} ms on (53 in the paper), the GTX 750 from
{slow_idle:.0f} ms on (138):

![coarse](mkmd_example_coarse.png)

Kernel {node} when it has its turn (Figure 7), and how it is partitioned (Figure 8 a). Slots lie between the end of
kernel {before}, which it waits for, and its own end, {end:.0f} ms, if it ran whole; where kernel 5 would run by then
(hatched), there is none. It then ends at {ends:.0f} ms. In the paper the links are too busy for partitioning kernels 1
and 2; here they are not.

![slots and partition](mkmd_example_slots.png)

The schedule in the end (Figure 8 b): {mkmd:.0f} ms instead of {coarse:.0f}.

![mkmd](mkmd_example_mkmd.png)
"""


def page(figures: dict[str, Any]) -> Iterator[str]:
    """The section, of ``mkmd_example.figures``."""
    kernels = {k["kernel"]: k for k in figures["kernels"]}
    yield "## The worked example (Figures 1, 6, 7, 8)"
    yield ABOUT.format(
        cpu_idle=kernels[1]["coarse"][0]["to_ms"],
        slow_idle=kernels[5]["coarse"][0]["to_ms"],
        node=figures["partitioned"],
        before=figures["partitioned"] - 1,
        end=figures["whole_ms"][1],
        ends=figures["ends_ms"],
        mkmd=figures["mkmd_ms"],
        coarse=figures["coarse_ms"],
    )
    rows = (
        [str(k["kernel"]), k["name"], *("; ".join(map(_run, k[phase])) for phase in ("coarse", "mkmd"))]
        for k in figures["kernels"]
    )
    yield from table(["kernel", "", "coarse", "mkmd"], rows)


def _run(run: dict[str, Any]) -> str:
    share = "" if run["share"] == 1.0 else f" ({run['share']:.1%})"
    return f"{run['device']}{share} {run['from_ms']:.1f} to {run['to_ms']:.1f}"


def draw(machine: Machine, folder: Path) -> None:
    """The pictures."""
    from manycl.report.charts.gantt import write_gantt

    found = worked(machine)
    given = found.problem
    write_graph(chart(given.graph, found.fine, list(given.valid), numbered=True), folder / "mkmd_example_graph.png")
    for name, plan in (("coarse", found.coarse), ("mkmd", found.fine)):
        write_gantt(simulate(given, plan), folder / f"mkmd_example_{name}.png")
    draw_slots(found, folder / "mkmd_example_slots.png")
    commutator = problem("Commutator", machine)
    write_graph(
        chart(commutator.graph, None, list(commutator.valid), numbered=True), folder / "mkmd_commutator_graph.png"
    )


def draw_slots(found: Worked, path: Path) -> None:
    """Figure 7: the slots for the kernel, dotted, between their limits. Figure 8 a: its ranges."""
    from manycl.report.charts.drawing import drawn

    path.write_bytes(drawn(lambda: _figure(found.problem, found.partitioning), "png", font_size=9))


def _figure(given: Problem, part: Partitioning) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    slots, ranges = figure.subplots(2, 1, sharex=True)
    low, high = max(a.end for a in part.before if a.node in _waited(given, part)) * 1e3, part.whole.end * 1e3
    for axes, title in ((slots, "available slots (Figure 7)"), (ranges, "partitioned (Figure 8 a)")):
        for at in (low, high):
            axes.axvline(at, color="0.4", linewidth=0.8, linestyle="--")
        _bars(axes, part.before, "0.8", part)
        names = [d.model.split(" ", 1)[1] for d in given.machine.devices]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_title(title, loc="left")
    for a in part.held:
        span = [(a.start * 1e3, (min(a.end, part.whole.end) - a.start) * 1e3)]
        slots.broken_barh(span, (a.device - 0.35, 0.7), facecolor="none", edgecolor="0.7", hatch="///")
    look = {"facecolor": "none", "edgecolor": "tab:blue", "linestyle": ":", "linewidth": 1.5}
    for slot in part.slots:
        start, end = slot.low * 1e3, min(slot.high * 1e3, high)
        slots.broken_barh([(start, end - start)], (slot.reach.device - 0.35, 0.7), **look)
    _bars(ranges, part.after, "tab:orange", part)
    ranges.set_xlabel("time [ms]")
    return figure


def _waited(given: Problem, part: Partitioning) -> tuple[int, ...]:
    return given.graph.predecessors[part.whole.node]


def _bars(axes: Any, kernels: Sequence[Assignment], colour: str, part: Partitioning) -> None:
    for a in kernels:
        start, length = a.start * 1e3, (a.end - a.start) * 1e3
        axes.broken_barh([(start, length)], (a.device - 0.35, 0.7), facecolor=colour, edgecolor="white")
        share = f" ({a.groups / part.groups:.2f})" if a.node == part.whole.node else ""
        if length > 2.0:
            axes.text(start + length / 2, a.device, f"{a.node + 1}{share}", ha="center", va="center", fontsize=8)
