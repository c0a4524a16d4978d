"""What ``manycl bench mkmd`` writes: pictures after MKMD's Figures 1 and 6 to 12, and a page of results."""

from __future__ import annotations

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

`manycl/machines/mkmd.toml` has every rate with its source. The peaks of Table 2 allow no speed-up above 1.77, but the
paper measured 1.89. Its text implies 2.12 for the nine equations that compute, and two times of the worked example
(Section 5.2). The rates follow from these; all devices' rates over the GTX 760's are {bound:.3f}. So these figures
compare policies on one model of a machine; they do not predict that machine.
"""
SAMPLES = "`planning_ms_samples` of each equation; what is simulated has one value"
SPREAD = "simulated times: none; planning: the raw figures have all"
METHOD = """\
All times are the engine's on the simulated machine; in order is one queue of the GTX 760. Busy is the share of the
makespan in which a device runs a kernel, averaged over the three. Moving data adds transfers to or from it. The paper
does not say what it counts as use of a device. Its 94 % over all eleven, two of which are bound by transfers, can
hardly be kernels alone.
"""
MEMORY = """\
BiCGSTAB (one iteration) and Jacobi are bound by the host's memory: 12.8 GB/s (Table 2), shared by both links and the
processor's kernels (Section 5.2, Eq. 6). The last columns tell what plans draw of it. `mkmd_coarse` leaves
matrix-vector products on the processor, at the memory's rate. `mkmd` and `balance` do without the processor there, so
every matrix comes from the host once, by both links. The paper, with 1.12, plans each run once: *with planning added*
does so too.
"""
OPTIMUM = """\
Where no kernel may be split, CP-SAT (`optimal`) proves the shortest makespan. `balance` beside it, both without the
limit of the host's memory; the small graphs are random.
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
    head = ["equation", "mkmd ms", "balance ms", "mkmd, % of the makespan", "balance, %"]
    yield from table(head, map(_planning, figures["equations"]))
    yield (
        f"Processor time in Python, the shortest of {figures['settings']['repeats']}; load makes it longer. "
        "The paper's 10 ms are C++.\n"
    )
    if figures["optimum"]:
        yield f"## Beside the optimum\n{OPTIMUM}"
        proven = sum(r["proven"] for r in figures["optimum"])
        gaps = {r["graph"]: r["gap_percent"] for r in figures["optimum"]}
        longer = ", ".join(f"{graph} {gap:.2f} %" for graph, gap in gaps.items() if gap >= 0.005)
        yield f"{proven} of {len(figures['optimum'])} are proven. `balance` is longer for: {longer or 'none'}.\n"
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
    taken = [f"{r[f'{label}_planning_ms']:.2f}" for label in ("mkmd", "balance")]
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
