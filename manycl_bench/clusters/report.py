"""What ``manycl bench clusters`` writes: a page of results, and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manycl_bench import pages, provenance
from manycl_bench.pages import table

LIMITS = {
    "stencil": "the latency of an exchange in each step, of which what runs beside it hides a part",
    "product": "the client's connection, over which the common matrix goes to each node",
    "gradients": "sums of all nodes: their parts go to one node one after another, each with a latency, and back",
    "bodies": "each node gets the bodies of each other one: as many messages as the square of the nodes",
    "transformer": "the client's connection, over which weights go to nodes and results come from them",
}


def write(figures: dict[str, Any], folder: Path) -> None:
    """``clusters.json``, ``clusters.md`` and the picture, in a folder that is made if need be."""
    pages.write(folder, "clusters", figures, page(figures))
    draw(figures, folder / "clusters.png")


def draw(figures: dict[str, Any], path: Path) -> None:
    """Efficiencies of weak and strong scaling, and the time of planning."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4), layout="constrained")
    weak, strong, planning = figure.subplots(1, 3)
    for axes, key, title in ((weak, "weak", "weak scaling"), (strong, "strong", "strong scaling")):
        for name in dict.fromkeys(row["application"] for row in figures[key]):
            rows = [row for row in figures[key] if row["application"] == name]
            axes.plot([r["nodes"] for r in rows], [100 * r["efficiency"] for r in rows], "o-", label=name)
        axes.set(xscale="log", xlabel="nodes", ylabel="efficiency, %", title=title, ylim=(0, 105))
    rows = figures["client"]
    efficiencies = [100 * r["efficiency"] for r in rows]
    weak.plot([r["nodes"] for r in rows], efficiencies, "k--", label="stencil, with the client's time")
    rows = figures["planning"]
    planning.plot([r["nodes"] for r in rows], [r["seconds"] for r in rows], "o-", label="100 launches of the stencil")
    planning.axhline(1.0, color="0.3", linestyle="--", label="asked at 1,024 nodes")
    planning.set(xscale="log", yscale="log", xlabel="nodes", ylabel="s of a processor", title="planning")
    for axes in (weak, strong, planning):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def page(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# Clusters, simulated"
    yield ""
    yield "Five applications on up to 1,024 nodes, by policy `balance`, the real engine on a virtual clock. Each"
    yield "node has a connection of 25 GB/s, over which a message takes 2 us and 0.5 ms of a handler; racks have 32"
    yield "nodes and half of their connections' bandwidth to the others. Nobody measured such a cluster."
    yield ""
    yield from provenance.header(figures, "clusters", "all", "none but of planning: simulated runs are always alike")
    yield "![efficiencies](clusters.png)"
    yield ""
    yield "## Weak scaling"
    yield ""
    yield "As much work for each node, however many there are (of bodies, the square root as many for each)."
    yield ""
    yield from _scaling(figures["weak"])
    yield "The client is taken to enqueue commands in no time there. With 80 us for each, as measured of two workers,"
    yield "the stencil is limited by the client:"
    yield ""
    yield from _scaling(figures["client"])
    yield "## Strong scaling"
    yield ""
    yield "The same work, on more and more nodes."
    yield ""
    yield from _scaling(figures["strong"])
    yield "## What limits each"
    yield ""
    names = dict.fromkeys(row["application"] for row in figures["weak"])
    yield from table(["application", "limit"], [(name, LIMITS[name]) for name in names])
    yield "## Where the planner is the limit"
    yield ""
    launches = figures["planning"][0]["launches"]
    yield f"Seconds of a processor for {launches} launches of the stencil, of which the first few are planned and"
    yield "the others follow: they grow as the nodes do. Asked is 1 s at 1,024 nodes. Of bodies, the number of"
    yield "transfers grows with the square of the nodes, and so does planning; it is not tried on more than 64. A"
    yield "transformer's heads are whole launches: each is tried on each node, so it is not tried on more than 16."
    yield (
        "Where a launch as a whole does not fit into a node, it is tried in ranges on each node, and planning takes far"
        " longer."
    )
    yield ""
    head = ["nodes", "ranges", "planning s", "us a range"]
    rows = [(r["nodes"], r["ranges"], r["seconds"], 1e6 * r["seconds"] / r["ranges"]) for r in figures["planning"]]
    yield from table(head, [(f"{n:,}", f"{k:,}", f"{s:.2f}", f"{each:.1f}") for n, k, s, each in rows])
    yield "## Beside others"
    yield ""
    yield "Celerity's authors show strong scaling of SYCL programs to 128 GPUs ([arXiv"
    yield "2503.10516](https://arxiv.org/abs/2503.10516), and of one application in IJPP 53:17, 2025) as curves, on"
    yield "clusters with MPI. No figures of these curves are at hand, so none are put beside ours."


def _scaling(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    head = ["application", "nodes", "ms", "efficiency", "computing", "moving", "transfers", "MB"]
    cells = [
        (
            row["application"],
            f"{row['nodes']:,}",
            f"{row['ms']:.1f}",
            *(f"{100 * row[key]:.1f} %" for key in ("efficiency", "computing", "moving")),
            f"{row['transfers']:,}",
            f"{row['mbytes']:,.1f}",
        )
        for row in rows
    ]
    yield from table(head, cells)
