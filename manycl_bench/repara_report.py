"""What ``manycl bench repara`` writes: a picture after REPARA's Figures 2 to 7, and a page of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manycl_bench import pages, provenance
from manycl_bench.pages import table
from manycl_bench.repara import words

_COLOURS = {"cpu": "tab:blue", "gpu": "tab:orange", "accelerator": "tab:green"}


def write(figures: dict[str, Any], folder: Path) -> None:
    """``repara.json``, ``repara.md`` and ``repara.png``, in a folder that is made if need be."""
    pages.write(folder, "repara", figures, page(figures))
    draw(figures, folder / "repara.png")


def draw(figures: dict[str, Any], path: Path) -> None:
    """The percentile of every plan that was chosen, and how far it and single devices are from the best plan."""
    from matplotlib.figure import Figure

    rows = figures["results"]
    figure = Figure(figsize=(13, 8), layout="constrained")
    rank, speed = figure.subplots(2, 1, sharex=True)
    at = range(len(rows))
    rank.bar(at, [r["percentile"] for r in rows], color="0.5")
    low = min(50.0, *(r["percentile"] for r in rows))
    rank.set(
        ylabel="percentile",
        ylim=(low - 5, 100.5),
        title="Plans that are no faster than the chosen one (Figures 2 and 4)",
    )
    speed.plot(at, [r["percent_of_best"] for r in rows], "ko", label="chosen")
    for kind, colour in _COLOURS.items():
        known = [(i, 100.0 * r["best_ms"] / r["alone_ms"][kind]) for i, r in enumerate(rows) if kind in r["alone_ms"]]
        speed.plot(
            *zip(*known, strict=True), "_", color=colour, markersize=11, markeredgewidth=2, label=f"all on the {kind}"
        )
    speed.set(ylabel="% of the best plan's speed", ylim=(0, 104), title="Beside the best plan (Figures 3, 5, 6 and 7)")
    speed.set_xticks(at, [f"{r['benchmark']} {r['size']}" for r in rows], rotation=90, fontsize="small")
    for axes in (rank, speed):
        axes.grid(axis="y", alpha=0.3)
    speed.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, dpi=100)


ABOUT = """\
REPARA's paper, *Static partitioning and scheduling of kernels from profiles*, Section 3, on its machine, simulated.

The paper tells no times, only which plans were best and how near to the best they came. `manycl_bench/repara.toml` and
`manycl_bench/repara_rates.py` have every rate, and which are guesses. So these figures compare plans on one model of a
machine; they do not predict that machine. Kernels are real (`manycl_bench/repara.cl`). One iteration of each benchmark
is planned, as in the paper.
"""
SAMPLES = "`results`: each plan, time and rank; what is simulated has one value"
SPREAD = "simulated times: none; planning: once, in wall time"
METHOD = """\
The policy sees interpolated profiles with {noise:.0f} % of noise. Its plan and the other valid plans then run with the
true times, or {sample} random ones where there are more. *Percentile*: how many of them are no faster. *Of best*: the
chosen plan's speed, of the fastest plan's that was run, those of `mkmd` and `balance` among them. *Gap*: how far above
its bound the search was after {limit:,} nodes (0: proven to be the best in REPARA's model).
"""
STENCIL = """\
The same in every column. The rates were chosen so that this can be; that the search finds it from noisy profiles is the
experiment.
"""
CLOSURE = """\
The paper's columns for 128 to 512 do not follow from any one set of rates. Here transfers to the GPU pay from 768 on.
"""
S3D = """\
The order of the paper's 27 kernels is not known, so only their number on the CPU can be compared. Of 2^27 plans
{sample} were run. No search ended with a proof, and `balance` finds faster plans.
"""
OTHERS = """\
Sixteenths on CPU, GPU and accelerator, kernel by kernel. The paper gives no plans for these. For the small bitonic
sort, all on the GPU is faster than the plan that REPARA's model prefers.
"""


def page(figures: dict[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    rows, settings = figures["results"], figures["settings"]
    yield "# REPARA's benchmarks\n"
    yield from provenance.header(figures, "repara", SAMPLES, SPREAD)
    yield ABOUT
    yield from table(["", "manycl", "paper"], _overview(figures["summary"]))
    values = {"noise": 3.0, "sample": settings["sample"], "limit": settings["effort"]}
    yield f"{METHOD.format(**values)}\n![percentiles](repara.png)\n"
    known = {name: [r for r in rows if r["benchmark"] == name] for name in dict.fromkeys(r["benchmark"] for r in rows)}
    stencil, closure, s3d = (known.pop(n, []) for n in ("stencil", "transitive closure", "S3D"))
    if stencil:
        yield "## Stencil (Table 2, Figures 2 and 3)"
        yield from _sized(stencil, _stencil(stencil))
        yield STENCIL
    if closure:
        yield "## Transitive closure (Table 3, Figures 4 and 5)"
        yield from _sized(closure, _closure(closure))
        yield CLOSURE
    if s3d:
        yield "## S3D (Table 4, Figure 6)"
        yield from _sized(s3d, _s3d(s3d))
        yield S3D.format(sample=s3d[0]["plans_run"])
    yield f"## The rest (Figure 7)\n{OTHERS}"
    head = ["benchmark", "size", "plan", "ms", "best device", "balance", "percentile", "of plans", "of best", "gap"]
    yield from table(head, (_other(r) for of in known.values() for r in of))


def _sized(rows: Sequence[dict[str, Any]], plans: list[list[str]]) -> Iterator[str]:
    """A table with a column for every size."""
    shared = [
        ["ms", *(f"{r['ms']:.4g}" for r in rows)],
        ["balance, ms", *(f"{r['balance_ms']:.4g}" for r in rows)],
        *([f"all on the {k}, ms", *(f"{r['alone_ms'][k]:.4g}" for r in rows)] for k in rows[0]["alone_ms"]),
        ["percentile", *(f"{r['percentile']:.1f}" for r in rows)],
        ["of plans", *(str(r["plans_run"]) for r in rows)],
        ["of best", *(f"{r['percent_of_best']:.1f} %" for r in rows)],
        ["gap", *(f"{_gap(r):.1f} %" for r in rows)],
    ]
    yield from table(["size", *(str(r["size"]) for r in rows)], [*plans, *shared])


def _gap(r: dict[str, Any]) -> float:
    return 0.0 if r["search_complete"] else r["search_gap_percent"]


def _stencil(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        line
        for d, name in enumerate(("CPU", "GPU", "accelerator"))
        for line in (
            [f"{name}, sixteenths", *(str(r["plan"][0][d]) for r in rows)],
            [f"{name}, paper", *(str(r["paper"][d]) for r in rows)],
        )
    ]


def _closure(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        line
        for k, name in enumerate(("product", "union", "comparison"))
        for line in ([name, *(words(r["plan"][k]) for r in rows)], [f"{name}, paper", *(r["paper"][k] for r in rows)])
    ]


def _s3d(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        ["kernels of 27 on the CPU", *(str(sum(k[0] > 0 for k in r["plan"])) for r in rows)],
        ["paper", *(str(r["paper"]) for r in rows)],
        ["speed-up over the best device", *(f"{r['speedup_over_best_device']:.2f}" for r in rows)],
    ]


def _other(r: dict[str, Any]) -> list[str]:
    plan = ", ".join("/".join(map(str, k)) for k in r["plan"])
    kind, alone = min(r["alone_ms"].items(), key=lambda item: item[1])
    ranks = [f"{r['percentile']:.1f}", str(r["plans_run"]), f"{r['percent_of_best']:.1f} %", f"{_gap(r):.1f} %"]
    times = [f"{r['ms']:.4g}", f"{alone:.4g} ({kind})", f"{r['balance_ms']:.4g}"]
    return [r["benchmark"], str(r["size"]), plan, *times, *ranks]


def _overview(s: dict[str, float]) -> Iterator[list[str]]:
    yield ["percentile of the chosen plan, mean", f"{s['mean_percentile']:.1f}", "very few plans are better"]
    yield ["percentile, least", f"{s['least_percentile']:.1f}", ""]
    yield ["of the best plan's speed, mean", f"{s['mean_percent_of_best']:.1f} %", "very near to the best"]
    yield ["of the best plan's speed, least", f"{s['least_percent_of_best']:.1f} %", ""]
    over = f"{s['geomean_speedup_over_best_device']:.2f}"
    yield ["speed-up over the best device", over, "close to it or better, but GEMM 256"]
    if "as_paper_stencil" in s:
        yield ["stencil: the paper's plans", f"{s['as_paper_stencil']:.0%}", ""]
    if "as_paper_transitive_closure" in s:
        yield ["transitive closure: the paper's placements", f"{s['as_paper_transitive_closure']:.0%}", ""]
    yield ["searches that ended with a proof", f"{s['searches_complete']:.0%}", "all (the whole tree)"]
    yield ["planning, at most", f"{s['planning_max_s']:.1f} s", ""]
