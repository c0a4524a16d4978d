"""What ``manycl bench mkmd`` writes: pictures after MKMD's Figures 1 and 6 to 12, and a page of results."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manycl.machine_file import load_machine
from manycl_bench import pages, provenance
from manycl_bench.mkmd import example_report
from manycl_bench.mkmd.experiments import MACHINE, PAPER, POLICIES, timelines
from manycl_bench.pages import table

_COLOURS = {"in_order": "0.6", "coarse": "tab:blue", "mkmd": "tab:orange", "balance": "tab:green"}


def write(figures: dict[str, Any], folder: Path) -> None:
    """``mkmd.json``, ``mkmd.md`` and the pictures, in a folder that is made if need be."""
    from manycl.report.charts.gantt import write_gantt

    pages.write(folder, "mkmd", figures, page(figures))
    draw(figures, folder / "mkmd.png")
    example_report.draw(load_machine(MACHINE), folder)
    for name, trace in timelines().items():
        write_gantt(trace, folder / f"mkmd_commutator_{name}.png")


def draw(figures: dict[str, Any], path: Path) -> None:
    """Speed-ups, idle time and planning overhead of every equation (Figures 9 a, 9 b and 10)."""
    from matplotlib.figure import Figure

    rows = figures["equations"]
    names = [r["equation"] for r in rows]
    figure = Figure(figsize=(13, 9), layout="constrained")
    speed, idle, planning = figure.subplots(3, 1)
    _bars(speed, names, {label: [r[f"{label}_speedup"] for r in rows] for label in POLICIES})
    speed.axhline(figures["throughput_bound"], color="0.3", linestyle="--", label="throughput bound")
    theirs = [(i, r["paper_speedup"]) for i, r in enumerate(rows) if r["paper_speedup"]]
    speed.plot(*zip(*theirs, strict=True), "kD", label="MKMD's paper, where its text tells")
    speed.set(ylabel="speed-up over in order", title="Speed-up (Figure 9 a)")
    _bars(idle, names, {label: [100 * (1 - r[f"{label}_busy"]) for r in rows] for label in ("in_order", *POLICIES)})
    idle.set(ylabel="idle, % of the makespan", title="Devices idle (Figure 9 b)")
    _bars(planning, names, {label: [r[f"{label}_planning_ms"] for r in rows] for label in POLICIES})
    planning.axhline(PAPER["planning_max_ms"], color="0.3", linestyle="--", label="the paper's limit")
    planning.set(ylabel="ms", title="Planning (Figure 10)", yscale="log")
    for axes in (speed, idle, planning):
        axes.grid(axis="y", alpha=0.3)
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=100)


def _bars(axes: Any, names: Sequence[str], series: dict[str, list[float]]) -> None:
    width = 0.8 / len(series)
    for i, (label, values) in enumerate(series.items()):
        at = [x - 0.4 + width * (i + 0.5) for x in range(len(names))]
        axes.bar(at, values, width, label=label.replace("_", " "), color=_COLOURS[label])
    axes.set_xticks(range(len(names)), names)


ABOUT = """\
J. Lee, M. Samadi and S. Mahlke, *Orchestrating Multiple Data-Parallel Kernels on Multiple Devices*, PACT 2015,
Section 6, on its machine, simulated.

`manycl/machines/mkmd.toml` has every rate with its source. By the peaks of Table 2 no speed-up above 1.77 would be
possible, and the paper measured 1.89. Its text implies 2.12 for the nine equations that compute, and has two times of
the worked example (Section 5.2), from which the rates of the processor and of the GTX 750 Ti follow. The GTX 760's is
chosen so that 2.12 is about the most there can be: all devices' rates over its own are {bound:.3f}. So these figures
compare policies on one model of a machine; they do not predict that machine.
"""
SAMPLES = "`planning_ms_samples` of each equation; what is simulated has one value"
SPREAD = "simulated times: none; planning: beside the shortest, the median of all"
METHOD = """\
All are what the engine makes of the policies' plans on the simulated machine, transfers beside kernels; in order is one
queue of the GTX 760. Busy is the time in
which a device runs a kernel, of the makespan, averaged over the three; moving data besides, the time in which it runs
a kernel or has data moved to or from it. Shares are geometric means, as in the paper, which does not say what it counts
as use of a device: its 94 % over all eleven, two of which it found bound by transfers, can hardly be kernels alone.
"""
MEMORY = """\
BiCGSTAB (one iteration) and Jacobi are bound by the host's memory. It carries 12.8 GB/s (Table 2), which both links and
the processor's kernels share: the contention of endpoints (Section 5.2, Eq. 6). The last columns tell what plans draw
of it. `mkmd_coarse` gives each kernel to whoever ends it first: a matrix-vector product ends first on the processor, at
the memory's rate, and is read from there again by the next one. One GPU, to which the matrix goes once, is as fast or
faster. `mkmd` and `balance` also do without the processor where its memory is the limit: then every matrix comes from
the host once, by both links. In the paper, where both phases had 1.12, these kernels ran much faster on the GPUs than
on the processor, and went there anyhow; here it is taken to read at all of its memory's rate. The paper plans each run
once, and says that 1.12 is more than that costs (6.4 and 4.2 % of runs of less than 70 ms; ours here end much
earlier, as the links are taken at their peak): so *with planning added* counts once here, too.

Until the limit was modelled, this page had 2.06 and 2.24 for `mkmd`, 2.06 and 2.30 for `balance`: those plans drew 23
to 26 GB/s. The means over all eleven equations were 2.10 and 2.12 with them.
"""
OPTIMUM = """\
Where no kernel may be split, CP-SAT (`optimal`) proves the shortest makespan of graphs of this size. `balance` beside
it, with the same transfers and handovers, both without the limit of the host's memory, which CP-SAT's model does not
have. The small graphs are random, with transfers about half as long as kernels.
"""


def page(figures: dict[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    yield "# MKMD's eleven equations\n"
    yield from provenance.header(figures, "mkmd", SAMPLES, SPREAD)
    yield ABOUT.format(bound=figures["throughput_bound"])
    yield from table(["", "manycl", "paper"], _overview(figures["summary"]))
    yield f"{METHOD}\n## Each equation\n![speed-ups, idle time, planning](mkmd.png)\n"
    head = ["equation", "kernels", "in order ms", "coarse", "mkmd", "balance", "paper", "busy mkmd", "busy balance"]
    yield from table(
        [*head, "moved MB mkmd", "balance", "host GB/s mkmd", "balance"],
        map(_result, figures["equations"]),
    )
    yield MEMORY
    yield "## Planning"
    head = ["equation", "coarse ms", "mkmd ms", "balance ms", "mkmd, % of the makespan", "balance, %"]
    yield from table(head, map(_planning, figures["equations"]))
    yield (
        f"Processor time in Python, the shortest of {figures['settings']['repeats']} and their median; shares are of "
        "the shortest. A loaded machine makes it longer. The paper's 10 ms are C++.\n"
    )
    if figures["optimum"]:
        yield f"## Beside the optimum\n{OPTIMUM}"
        found = [[r["graph"], "yes" if r["proven"] else "no", f"{r['gap_percent']:.2f} %"] for r in figures["optimum"]]
        yield from table(["graph", "proven", "balance is longer by"], found)
    yield from example_report.page(figures["example"])
    yield "## Triple commutator (Figures 11 and 12)\n![graph](mkmd_commutator_graph.png)\n"
    yield "\n\n".join(f"{n}:\n\n![{n}](mkmd_commutator_{n}.png)" for n in ("in_order", *POLICIES.values()))


def _result(r: dict[str, Any]) -> list[str]:
    speed = [f"{r[f'{label}_speedup']:.2f}" for label in POLICIES]
    paper = f"{r['paper_speedup']:.2f}" if r["paper_speedup"] else ""
    rest = [f"{r['mkmd_busy']:.1%}", f"{r['balance_busy']:.1%}", f"{r['mkmd_moved_mb']:.0f}"]
    first = [r["equation"], str(r["kernels"]), f"{r['in_order_ms']:.1f}"]
    drawn = [f"{r[f'{label}_host_gb_per_s']:.1f}" for label in ("mkmd", "balance")]
    return [*first, *speed, paper, *rest, f"{r['balance_moved_mb']:.0f}", *drawn]


def _planning(r: dict[str, Any]) -> list[str]:
    taken = [
        f"{r[f'{label}_planning_ms']:.2f}, {statistics.median(r[f'{label}_planning_ms_samples']):.2f}"
        for label in POLICIES
    ]
    return [r["equation"], *taken, *(f"{r[f'{label}_overhead_percent']:.2f}" for label in ("mkmd", "balance"))]


def _overview(s: dict[str, Any]) -> Iterator[list[str]]:
    share = s["coarse_share_percent"]
    yield ["speed-up over in order, mkmd", f"{s['geomean_speedup_mkmd']:.2f}", f"{PAPER['geomean_speedup']}"]
    yield ["speed-up, coarse only", f"{s['geomean_speedup_coarse']:.2f}", "1.46 (52 % of the gain)"]
    yield ["speed-up, balance", f"{s['geomean_speedup_balance']:.2f}", ""]
    planned = [f"{s[f'geomean_planned_speedup_{p}']:.2f}" for p in ("mkmd", "balance")]
    yield ["speed-up with planning added, mkmd / balance", " / ".join(planned), ""]
    yield ["gain by coarse / fine", f"{share:.0f} / {100 - share:.0f}", "52 / 48"]
    yield ["of the throughput bound, mkmd (nine equations)", f"{s['share_of_bound_mkmd']:.1%}", ""]
    yield ["of the throughput bound, balance (nine equations)", f"{s['share_of_bound_balance']:.1%}", ""]
    yield ["BiCGSTAB and Jacobi, mkmd, at least", f"{s['memory_bound_least_speedup_mkmd']:.2f}", "1.12"]
    yield ["BiCGSTAB and Jacobi, mkmd, at least, with planning added", f"{s['memory_bound_planned_mkmd']:.2f}", "1.12"]
    yield ["BiCGSTAB and Jacobi, balance, at least", f"{s['memory_bound_least_speedup_balance']:.2f}", ""]
    yield ["drawn of the host's memory, at most", f"{s['host_most_gb_per_s']:.1f} GB/s", "12.8 GB/s (Table 2)"]
    yield ["devices busy, mkmd (nine equations)", f"{s['busy_share_mkmd']:.1%}", "94 % (all eleven)"]
    yield ["devices busy, balance (nine equations)", f"{s['busy_share']:.1%}", ""]
    yield ["devices busy, balance (all eleven)", f"{s['busy_share_all']:.1%}", ""]
    yield ["busy or moving data, mkmd (all eleven)", f"{s['used_share_all_mkmd']:.1%}", ""]
    yield ["busy or moving data, balance (all eleven)", f"{s['used_share_all']:.1%}", ""]
    yield ["devices busy, in order (all eleven)", f"{s['busy_share_in_order']:.1%}", "30 %"]
    yield ["planning, at most", f"{s['planning_max_ms']:.1f} ms", "10 ms"]
    if s["gap_to_optimum_percent"] is not None:
        gap = f"{s['gap_to_optimum_percent']:.2f} %"
        yield [f"balance over the optimum, whole kernels, {s['optimum_graphs']:.0f} graphs", gap, ""]
