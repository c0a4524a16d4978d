"""What ``manycl bench pyschedcl`` writes: pictures after PySchedCL's Figures 11 to 13, and a page of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from manycl.plan.problem import HANDOVER
from manycl_bench import pages, provenance
from manycl_bench.pages import table
from manycl_bench.pyschedcl import PUBLISHED_MS, PUBLISHED_QUEUES, WARM, Settings, charts, in_queues

CHARTS = ("clustering", "eager", "heft")
_MARKS = {"anew": "o-", "prepared": "^-", "simulated": "o-", "late callbacks": "^-"}


def name_of(settings: Mapping[str, Any]) -> str:
    """Of the page: simulated runs have one of their own."""
    return "pyschedcl" if settings["machine"] is None else "pyschedcl_simulated"


def write(devices: str | None, settings: Settings, figures: dict[str, Any], folder: Path) -> None:
    """Figures, page and pictures (Gantt charts also as HTML), in a folder that is made if need be."""
    from manycl.report.charts.gantt import write_gantt

    name = name_of(figures["settings"])
    pages.write(folder, name, figures, page(figures))
    draw(figures, folder / f"{name}.png")
    for policy, trace in charts(devices, settings).items():
        write_gantt(trace, folder / f"{name}_{policy}.png")
    for what, trace in in_queues(settings).items() if settings.machine else ():
        write_gantt(trace, folder / f"{name}_{what}.png")


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """The paper's Figures 11 and 12 from our figures, theirs beside them where they published any."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4.5), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for beta in sorted({r["beta"] for r in figures["several_queues"]}):
        rows = [r for r in figures["several_queues"] if r["beta"] == beta]
        for how in rows[0]["how"]:
            found = [r["how"][how]["speedup"] for r in rows]
            left.plot([r["heads"] for r in rows], found, _MARKS[how], label=f"manycl, beta {beta}, {how}")
    theirs = [(heads, one / best) for heads, (one, best) in PUBLISHED_QUEUES.items()]
    left.plot(*zip(*theirs, strict=True), "s--", color="0.5", label="PySchedCL's published runs, beta 256")
    left.set(xlabel="heads", ylabel="speed-up over one queue", title="Several queues (Figure 11)", ylim=(0, None))
    rows = figures["policies"]
    for rival, word, axes, part in (("eager", "eager", middle, "a"), ("heft", "HEFT", right, "b")):
        for how in rows[0]["how"]:
            found = [r["how"][how][f"over_{rival}"] for r in rows]
            axes.plot([r["beta"] for r in rows], found, _MARKS[how], label=f"manycl, {how}")
        theirs = [(beta, ms[1 if rival == "eager" else 2] / ms[0]) for beta, ms in PUBLISHED_MS.items()]
        axes.plot(*zip(*theirs, strict=True), "s--", color="0.5", label="PySchedCL's published runs")
        axes.set(xlabel="beta", ylabel=f"clustering over {word}", title=f"Against {word} (Figure 12 {part})")
        axes.set(xscale="log", yscale="log")
        ticks = sorted({*PUBLISHED_MS, *(r["beta"] for r in rows)})
        axes.set_xticks(ticks, [str(b) for b in ticks])
        axes.set_xticks([], minor=True)
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=100)


ABOUT = """\
A. Ghose, S. Singh, V. Kulaharia, L. Dokara, S. Maity and S. Dey, *PySchedCL: Leveraging Concurrency in Heterogeneous
Data-Parallel Systems*, Section 5: one transformer layer of H heads, matrices beta x beta, each head a task component of
eight kernels. The paper says that several queues gain 15 to 17 % (H up to 10), and that clustering is 1.4 to 3.4 times
as fast as coarse-grained scheduling. Its authors' published runs, on a GTX 970 and an i5-4690K, say 25 to 54 %, and 2.3
to 30 times. *Published* are these runs with all heads on the GPU. On other devices ratios need not be alike.
"""
REAL = """\
The best mapping of `clustering` (queues of the fast device, heads on the slow one) is found first. Then it and its
rivals run in turns, each {repeats} times after {warm} that do not count; medians are compared. *Anew* decides while it
runs, as the paper's three do; *prepared* does what earlier runs have decided. Times are the caller's; programs are
built before.
{inputs}
"""
COLD_RUNS = "Every run begins with its inputs on the host alone, as in the paper."
RESIDENT_RUNS = (
    "Inputs stay where earlier runs, of whatever policy, have brought them; the paper's runs bring them each time."
)
SIMULATED = """\
The real engine on the virtual clock, with the machine file's rates. Every run begins with its inputs on the host.
Deciding takes no time, and the host hears of a command's end after {handover:.0f} us. The paper's `eager` and `heft`
were held up by late callbacks: in rows *late callbacks* they come after {late:.1f} ms, which its run of `eager` at beta
64 implies. Of the mappings of `clustering` that are tried, the best one counts.
"""
QUEUES = """\
*One* is clustering with one queue on the fast device, the paper's default. *Several* is the best mapping that leaves
the slow device alone, *best* the best of all: with none, one, or half of the heads on the slow device.
"""
STRICT = """\
As in the paper's Algorithm 1: one head after another on the fast device, transfers in the kernels' queues. Several
queues then hide transfers behind kernels and fill the last waves of work-groups. The paper's Figures 4 and 5 have 1.11
for one head (105 and 95 ms), less than its 15 to 17 %. No number here is fitted to that gain.
"""


IN_QUEUES = """\
## A fork and join by one queue and by three (Figure 1)
k0 and k3 run on the processor, k1 and k2 on the GPU, two inputs each. One queue does everything in turn. With three,
inputs are sent together and k1 and k2 share the GPU: {fork_join_3:.1f} ms instead of {fork_join_1:.1f}.

![one queue]({name}_fork_join_1.png)

![three queues]({name}_fork_join_3.png)

## One head by one queue and by three (Figures 3 to 5)
The paper's head takes 105 ms with one queue and 95 with three; here, at beta = {beta}, {head_1:.1f} and {head_3:.1f}
({percent:.0f} % less).

![one queue]({name}_head_1.png)

![three queues]({name}_head_3.png)
"""


def page(figures: Mapping[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    settings = figures["settings"]
    name, simulated = name_of(settings), settings["machine"] is not None
    yield f"# PySchedCL's experiments{', simulated' if simulated else ''}\n"
    spread = "none: a simulated run takes the same time whenever it is run"
    if not simulated:
        spread = provenance.SPREAD
    yield from provenance.header(figures, name, "`samples_ms`: every run", spread)
    inputs = COLD_RUNS if settings["cold"] else RESIDENT_RUNS
    yield ABOUT
    late = 1e3 * settings.get("callback_delay", 0.0)
    yield (
        SIMULATED.format(handover=1e6 * HANDOVER, late=late)
        if simulated
        else REAL.format(repeats=settings["repeats"], warm=WARM, inputs=inputs)
    )
    yield f"![speed-ups]({name}.png)\n"
    if found := figures.get("in_queues_ms"):
        percent = 100.0 * (1.0 - found["head_3"] / found["head_1"])
        yield IN_QUEUES.format(beta=max(settings["betas"]), name=name, percent=percent, **found)
    yield f"## Several command queues (Figure 11)\n{QUEUES}"
    head = ["H", "beta", "run", "one, ms", "several, ms", "best, ms", "queues", "heads on the slow device"]
    yield from table([*head, "several over one", "published", "best over one"], _queues(figures["several_queues"]))
    if strict := [r for r in figures["several_queues"] if r.get("strict")]:
        yield STRICT
        yield from table(["H", "beta", "one, ms", "several, ms", "queues", "several over one"], _strict(strict))
    yield "## Clustering against eager and HEFT (Figure 12)"
    head = ["beta", "run", "clustering, ms", "eager, ms", "heft, ms", "queues", "heads on the slow device"]
    yield from table([*head, "over eager", "published", "over heft", "published"], _policies(figures["policies"]))
    yield "## Summary"
    yield from table(["", ""], ([k.replace("_", " "), f"{v:.2f}"] for k, v in figures["summary"].items()))
    yield f"## A run of each, H = {settings['most_heads']}, beta = {max(settings['betas'])} (Figure 13)"
    yield "\n\n".join(f"{policy}:\n\n![{policy}]({name}_{policy}.png)" for policy in CHARTS)


def _ms(row: Mapping[str, Any], how: str, way: str) -> str:
    return provenance.with_spread(row["samples_ms"][way][how])


def _published(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _queues(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for r in rows:
        for how, of in r["how"].items():
            times = [_ms(r, how, way) for way in ("one", "several", "best")]
            mapping = [f"{r['several_queues']}, {r['best_queues']}", str(r["best_cpu_heads"])]
            ratios = [f"{of['queues_speedup']:.2f}", _published(r["published_speedup"]), f"{of['speedup']:.2f}"]
            yield [str(r["heads"]), str(r["beta"]), how, *times, *mapping, *ratios]


def _strict(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for r in rows:
        if r["heads"] & (r["heads"] - 1):
            continue  # powers of two tell: the others lie between them
        of = r["strict"]
        times = [f"{of['one_ms']:.2f}", f"{of['several_ms']:.2f}"]
        yield [str(r["heads"]), str(r["beta"]), *times, str(of["queues"]), f"{of['speedup']:.2f}"]


def _policies(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for r in rows:
        for how, of in r["how"].items():
            times = [_ms(r, how, way) for way in ("clustering", "eager", "heft")]
            ratios = [(f"{of[f'over_{p}']:.2f}", _published(r[f"published_over_{p}"])) for p in ("eager", "heft")]
            mapping = [str(r["best_queues"]), str(r["best_cpu_heads"])]
            yield [str(r["beta"]), how, *times, *mapping, *(cell for pair in ratios for cell in pair)]


def rows_to_print(figures: Mapping[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Tables for the terminal: a title, and rows."""
    queues = ("one_ms", "several_ms", "best_ms", "queues_speedup", "speedup")
    yield (
        "several command queues against one",
        [
            {
                "H": r["heads"],
                "beta": r["beta"],
                "run": how,
                **{k: of[k] for k in queues},
                "published": r["published_speedup"],
            }
            for r in figures["several_queues"]
            for how, of in r["how"].items()
        ],
    )
    policies = ("clustering_ms", "eager_ms", "heft_ms")
    yield (
        "clustering against eager and HEFT",
        [
            {"beta": r["beta"], "run": how, **{k: of[k] for k in policies}}
            | {"over eager": of["over_eager"], "published eager": r["published_over_eager"]}
            | {"over heft": of["over_heft"], "published heft": r["published_over_heft"]}
            for r in figures["policies"]
            for how, of in r["how"].items()
        ],
    )
