"""What ``manycl bench hopping`` writes: pictures after Device-Hopping's Figures 8 to 10, and a page of results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from manycl_bench import pages, provenance
from manycl_bench.hopping import lines, model
from manycl_bench.hopping.real import SHORT, TELLING, best_share, beyond, speedups
from manycl_bench.pages import table

SHOWN = (1.32, 2.0, 2.35, 3.0, 5.54, 8.0, 13.0)
"""k of the table of bounds: those of the paper's benchmarks, and around the largest."""
ABOUT = """\
P. Metzger, V. Seeker, C. Fensch and M. Cole, *Device-Hopping: Transparent Mid-Kernel Runtime Switching for
Heterogeneous Systems*, TACO 2021.
"""
MODEL = """\
A kernel that takes 1 on its fast device and *k* on the slow one arrives while the fast one is taken (Equations 5 to
16). *bound* is the largest speed-up of migrating over the perfect scheduler that cannot migrate; *mean* the geometric
mean over all waits up to k. *both*: the kernel goes on on both devices.
"""
LINES = """\
The paper's Table 4, and the same counted here: bodies of `mc.parallel_for` (`manycl_bench/hopping/loops.py`), and
PyOpenCL by hand (`manycl_bench/hopping/hand`) with slices, chunked transfers, switch and merging. Lines in brackets are
only about migrating. Comments, imports, defines and blank lines do not count. The paper's have versions in CUDA, OpenCL
and OpenMP.
"""
MEASURED = """\
Each benchmark on the slower and the faster of two devices, with inputs with which it takes {seconds} s on the slow one
(Table 3; fewer where larger ones do not fit). Another kernel has the fast device for the part of the slow one's time
that heads the column. Speed-ups of migrating are over the better of waiting and running whole on the slow device; in
brackets those of going on on both. Nobody is told when the fast device will be free: a launch runs packet by packet,
and what is left moves (`Plan.in_turn`, `Plan.movable`). Times are the caller's, with transfers from and to the host.

- *reached*: the gain at the best wait, of the largest possible one (`bound`), where that is {telling:g} at least;
  "cannot be" where runs were disturbed.
- *never*: the cost for a kernel that could migrate and does not, and its packets.
- *predicted*: the same in slices of predicted sizes (Figure 11); the predictors know these kernels among 35.
- *switch*: ms from when the fast device is free until the kernel begins there, transfers included.
- *paper's k*: of the same size, on a CPU and a GPU.

Kernels of less than {short:g} ms on the slow device are not in the summary but for their number, `too_short`: a run
that may migrate costs the host some milliseconds.
"""
SAMPLES = "`lines` and `model`; `results`: medians of each benchmark and wait, in seconds"
SPREAD = "medians of runs in turns; the model and the lines have none"
PAPER = {
    "bound_share_mean": 0.74,
    "bound_share_most": 0.96,
    "geomean_over_pns": 1.08,
    "most_over_pns": 1.30,
    "never_predicted_percent": 2.44,
    "fewer_lines_percent": 88.0,
}
"""The paper's figures (abstract and Section 7); of lines the least."""
MODEL_PICTURE, MEASURED_PICTURE, SLICES_PICTURE = "hopping_model.svg", "hopping_measured.svg", "hopping_slices.svg"


def figures_of_model() -> dict[str, Any]:
    """The model's values, as the page shows them."""
    rows = [
        {
            "k": k,
            "bound": model.bound(k),
            "mean": model.mean(k),
            "both_bound": model.bound(k, together=True),
            "both_mean": model.mean(k, together=True),
        }
        for k in SHOWN
    ]
    return {"model": rows, "lines": [row._asdict() | {"fewer_percent": row.fewer_percent} for row in lines.table()]}


def summary(figures: dict[str, Any]) -> dict[str, float]:
    """The figures that stand for all others."""
    fewer = fmean(row["fewer_percent"] for row in figures["lines"])
    return {**figures.get("summary", {}), "fewer_lines_percent": fewer}


def write(figures: dict[str, Any], folder: Path) -> None:
    """``hopping.json``, ``hopping.md`` and pictures, in a folder that is made if need be."""
    pages.write(folder, "hopping", figures, page(figures))
    draw(folder / MODEL_PICTURE)
    if "results" in figures:
        draw_measured(figures, folder / MEASURED_PICTURE)
        draw_slices(figures, folder / SLICES_PICTURE)


def draw(path: Path) -> None:
    """Figures 9a and 9b, with going on on both devices beside them, and Figure 8."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 8), layout="constrained")
    FigureCanvasAgg(figure)
    ((bounds, execution), (migrating, together)) = figure.subplots(2, 2)
    for curve in model.figure_9a():
        bounds.plot(curve.x, curve.y, label=curve.label)
    bounds.set(xlabel="k", ylabel="speed-up", title="Largest speed-up (Figure 9a)")
    bounds.legend()
    for at, both in ((0, False), (3, True)):
        for bar in model.figure_8(2.0, 0.0, together=both):
            place = at + (bar.device == "fast")
            colour = "tab:blue" if bar.whose == "the kernel" else "0.8"
            execution.barh(place, bar.end - bar.start, left=bar.start, color=colour)
    execution.set_yticks([0, 1, 3, 4], ["slow", "fast", "slow, both", "fast, both"])
    execution.set(xlabel="times the fast device's", title="Migrating at k = 2, delta = 0 (Figure 8)")
    for axes, both, title in (
        (migrating, False, "migrating (Figure 9b)"),
        (together, True, "on both devices"),
    ):
        for curve in model.figure_9b(together=both):
            axes.plot(curve.x, curve.y, label=curve.label)
        axes.set(xlabel="when the fast device is free, of the slow one's time", ylabel="speed-up", title=title)
        axes.set_ylim(0.98, 2.0)
        axes.legend()
    figure.savefig(path, metadata={"Date": None})


def draw_measured(figures: dict[str, Any], path: Path) -> None:
    """Figure 10: speed-ups of each benchmark by when the fast device became free, and what the model has there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = figures["results"]
    across = min(len(rows), 3)
    figure = Figure(figsize=(4.3 * across, 3.2 * -(-len(rows) // across)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, row in zip(figure.subplots(-(-len(rows) // across), across, squeeze=False).flat, rows, strict=False):
        k, slow = max(row["k"], 1.0001), row["slow_ms"] / 1e3
        at = [p["wait"] / slow for p in row["points"]]
        for way, colour in (("hop", "tab:blue"), ("both", "tab:orange")):
            curve = [step / 100 for step in range(1, 100)]
            ideal = [model.speedup(k, x * k - (k - 1.0), together=way == "both") for x in curve]
            axes.plot(curve, ideal, color=colour, linewidth=0.8, linestyle=":")
            axes.plot(at, speedups(row, way), "o", color=colour, markersize=4, label=way)
        axes.axhline(1.0, color="0.6", linewidth=0.8)
        axes.set(title=f"{_named(row)}, k = {row['k']:.2f}", xlabel="fast device free, of the slow one's time")
        axes.set_xlim(0.0, 1.05)
    figure.axes[0].legend()
    figure.savefig(path, metadata={"Date": None})


def draw_slices(figures: dict[str, Any], path: Path) -> None:
    """Figure 11: times of kernels that never migrate, in predicted slices and in packets, in parts of that without."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = figures["results"]
    figure = Figure(figsize=(2.0 + 0.45 * len(rows), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for at, (how, colour) in enumerate((("predicted", "tab:blue"), ("sliced", "tab:orange"))):
        places = [x + 0.4 * at for x in range(len(rows))]
        label = "predicted slices" if how == "predicted" else "packets"
        axes.bar(places, [1.0 + row[f"{how}_percent"] / 100.0 for row in rows], 0.4, color=colour, label=label)
    axes.axhline(1.0, color="tab:green", linewidth=0.8)
    axes.set_xticks([x + 0.2 for x in range(len(rows))], [_named(row) for row in rows], rotation=90)
    axes.set(ylabel="time, of that without slices", title="Kernels that never migrate (Figure 11)")
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['benchmark']} ({row['size'][0]})"


def page(figures: dict[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    yield "# Device-Hopping"
    yield ""
    yield ABOUT
    yield from provenance.header(figures, "hopping", SAMPLES, SPREAD)
    yield from _summarised(summary(figures))
    yield "## The model"
    yield ""
    yield MODEL
    yield from table(
        ["k", "bound", "mean", "bound, both", "mean, both"],
        ([f"{row['k']:g}", *(f"{row[key]:.3f}" for key in list(row)[1:])] for row in figures["model"]),
    )
    yield "![speed-ups by k and by when a kernel migrates](hopping_model.svg)"
    yield ""
    yield "## Lines of code"
    yield ""
    yield LINES
    yield from table(
        ["benchmark", "by hand", "as a loop", "fewer", "paper: by hand", "as a loop", "fewer"], _line_rows(figures)
    )
    if "results" in figures:
        yield "## Measured"
        yield ""
        seconds = ", ".join(f"{s:g}" for s in figures["settings"]["seconds"])
        yield MEASURED.format(telling=TELLING, short=SHORT, seconds=seconds)
        yield from _measured(figures)
        for other in figures.get("others", ()):
            yield f"On `{other['devices']}`:"
            yield ""
            yield from _summarised(other["summary"])
            yield from _measured(other)
        yield f"![speed-ups of each benchmark by when its fast device became free]({MEASURED_PICTURE})"
        yield f"![times of kernels that never migrate, in slices and packets]({SLICES_PICTURE})"


def _summarised(values: Mapping[str, float]) -> Iterator[str]:
    papers = {key: f"{value:g}" for key, value in PAPER.items()}
    yield from table(["", "here", "paper"], ([f"`{k}`", f"{v:.3f}", papers.get(k, "")] for k, v in values.items()))


def _line_rows(figures: dict[str, Any]) -> Iterator[list[str]]:
    for row in figures["lines"]:
        hand, moving, loop = lines.PAPER[row["name"]]
        ours = [f"{row['by_hand']} ({row['migration']})", str(row["loop"]), f"{row['fewer_percent']:.0f} %"]
        yield [row["name"], *ours, f"{hand} ({moving})", str(loop), f"{100.0 * (1.0 - loop / hand):.0f} %"]


NEVER = (("sliced", "slices"), ("predicted", "predicted_slices"))


def _measured(figures: dict[str, Any]) -> Iterator[str]:
    parts = figures["settings"]["parts"]
    rows, ends = [], []
    for row in figures["results"]:
        pairs = zip(speedups(row, "hop"), speedups(row, "both"), strict=True)
        rows.append([_named(row), *(f"{hop:.2f} ({both:.2f})" for hop, both in pairs)])
        k = max(row["k"], 1.0001)
        bounds = f"{model.bound(k):.2f} ({model.bound(k, together=True):.2f})"
        hop, both = ("cannot be" if beyond(row, way) else _percent(best_share(row, way)) for way in ("hop", "both"))
        never = [f"{row[f'{how}_percent']:.1f} % in {row[n]}" for how, n in NEVER]
        papers = f"{model.TABLE_3[row['benchmark']][model.INPUTS.index(row['size'])]:g}"
        times = [f"{row['slow_ms']:.1f}", f"{row['fast_ms']:.1f}", f"{row['k']:.2f}"]
        switch = "-" if math.isnan(row["switch_ms"]) else f"{row['switch_ms']:.1f}"
        devices = [_named(row), row["slow"], row["fast"]]
        ends.append([*devices, *times, papers, bounds, f"{hop} ({both})", switch, *never])
    yield from table(["benchmark", *(f"{part:g}" for part in parts)], rows)
    heads = [
        "slow device",
        "fast device",
        "slow ms",
        "fast ms",
        "k",
        "paper's k",
        "bound (both)",
        "reached (both)",
        "switch",
    ]
    yield from table(["benchmark", *heads, "never", "predicted"], ends)


def _percent(part: float) -> str:
    return "-" if math.isnan(part) else f"{100.0 * part:.0f} %"
