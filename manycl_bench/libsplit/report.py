"""What ``manycl bench libsplit`` writes: pictures after Libsplit's Figures 4, 5 and 6, and a page of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from manycl_bench import pages, provenance
from manycl_bench.libsplit.experiments import CLOSE, LABELS
from manycl_bench.libsplit.granularity import REGULAR, STEPS
from manycl_bench.libsplit.simulated import METHODS
from manycl_bench.pages import table

_COLOURS = {
    "uniform": "0.6",
    "profile": "tab:green",
    "fixed_point": "tab:blue",
    "broyden": "tab:orange",
    "estimates": "tab:olive",
    "oracle": "0.2",
}


def write(figures: dict[str, Any], folder: Path) -> None:
    """``libsplit.json``, ``libsplit.md`` and the pictures, in a folder that is made if need be."""
    pages.write(folder, "libsplit", figures, page(figures))
    draw_granularity(figures["granularity"], folder / "libsplit_granularity.png")
    draw_iterations(figures["per_iteration"], folder / "libsplit_iterations.png")
    draw_drift(figures["drifting"], folder / "libsplit_drift.png")
    draw_overall(figures, folder / "libsplit_overall.png")


def write_real(figures: dict[str, Any], folder: Path) -> None:
    """``libsplit_real.json``, ``libsplit_real.md`` and its picture, in a folder that is made if need be."""
    pages.write(folder, "libsplit_real", figures, real_page(figures))
    draw_granularity(figures["granularity"], folder / "libsplit_real_granularity.png")


def _axes(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_granularity(found: dict[str, Any], path: Path) -> None:
    """What ranges take (Figure 1 a to d)."""
    figure, axes = _axes(2, 2, (12, 8))
    for name, ax in zip(REGULAR, axes[0], strict=True):
        for device, curve in found[name].items():
            ax.plot([100.0 * i / STEPS for i in range(1, STEPS + 1)], curve, "o-", label=device, markersize=3)
        ax.set(title=name, xlabel="granularity, %", ylabel="us a work-group", yscale="log")
        ax.legend(fontsize="small")
    offsets, quarters = axes[1]
    offsets.plot([100.0 * i / STEPS for i in range(len(found["SPMV"]))], found["SPMV"], "o-", markersize=3)
    offsets.set(title=f"SPMV, a quarter on {found['fast']}", xlabel="offset, %", ylabel="ms", ylim=(0, None))
    quarters.plot(found["NBody"], label=[f"quarter {i}" for i in range(1, 5)])
    quarters.set(title=f"N-body, quarters on {found['fast']}", xlabel="iteration", ylabel="ms", ylim=(0, None))
    quarters.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def draw_iterations(found: Sequence[dict[str, Any]], path: Path) -> None:
    """Speed-up per iteration (Figure 4)."""
    figure, axes = _axes(1, len(found), (6 * len(found), 4))
    for of, ax in zip(found, axes[0], strict=True):
        for label in LABELS:
            turns = range(1, len(of[label]) + 1)
            ax.plot(turns, of[label], "o-", color=_COLOURS[label], label=label.replace("_", " "), markersize=3)
        ax.set(title=f"{of['application']} (Figure 4)", xlabel="iteration", ylabel="speed-up", ylim=(0, None))
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def draw_drift(found: dict[str, Any], path: Path) -> None:
    """Time of every device's range while the load drifts (Figure 5)."""
    figure, axes = _axes(1, 2, (12, 4))
    for label, title, ax in (("uniform", "divided evenly", axes[0][0]), (METHODS[0], "adapted", axes[0][1])):
        for d, device in enumerate(found["devices"]):
            ax.plot([row[d] for row in found[label]], label=device)
        ax.set(title=f"N-body {title} (Figure 5)", xlabel="iteration", ylabel="ms", yscale="log")
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def draw_overall(figures: dict[str, Any], path: Path) -> None:
    """Speed-ups of all applications (Figure 6)."""
    machines = figures["overall"]
    figure, axes = _axes(len(machines), 1, (14, 4 * len(machines)))
    for (name, rows), ax in zip(machines.items(), axes[:, 0], strict=True):
        width = 0.8 / len(LABELS)
        for i, label in enumerate(LABELS):
            at = [x - 0.4 + width * (i + 0.5) for x in range(len(rows))]
            heights = [r[f"{label}_speedup"] for r in rows]
            ax.bar(at, heights, width, label=label.replace("_", " "), color=_COLOURS[label])
        ax.set_xticks(range(len(rows)), [r["application"] for r in rows], rotation=40, ha="right")
        ax.axhline(1.0, color="0.3", linewidth=0.8)
        ax.set(title=f"{name}, {figures['settings']['repetitions']} repetitions (Figure 6)", ylabel="speed-up")
        ax.grid(axis="y", alpha=0.3)
        ax.legend(fontsize="small", ncols=len(LABELS))
    figure.savefig(path, dpi=100)


SAMPLES = "`samples_ms` of each row: every repetition, the last for all like it; `per_iteration`, `drifting`"
SPREAD = "none: what is simulated takes the same time again"
ABOUT = """\
P. Huchant, M.-C. Counilh and D. Barthou, *Automatic OpenCL Task Adaptation for Heterogeneous Architectures*, Euro-Par
2016, Section 7, on its two machines, simulated:

{machines}

The machine files give the source of each number. GPUs and processors are taken at what plain kernels reach. What the
text says in numbers calibrates conan: a GPU is eight times as fast as the processor; EP and AESEncrypt have as many
work-groups as give about Figure 4's 2.8 and 2.15. Nothing else is calibrated, and nothing on happycl. So these figures
compare divisions on one model of a machine; they do not predict that machine.

The analysis counts what a range takes; every transfer is simulated. All methods start from equal shares, as in the
paper, and see only what each repetition took:

- *fixed point* and *broyden*: the paper's methods (Section 5), each kernel by itself;
- *profile*: ours (`adaptive`), with families of kernels and a fitted workload;
- *estimates*: the same, started from first guesses.

Speed-ups are over the fastest single device. *Oracle* is the best split by the true times. The applications are our
own (`manycl_bench/libsplit`).
"""
GRANULARITY = """\
How many times as long as the shortest the longest is. A work-group of AESEncrypt: {AESEncrypt:.2f} (the paper's Figure
1 a: nearly constant); of EP: {EP:.2f} (b: drops at regular intervals), over {steps} granularities on one device. A
quarter of SPMV: {SPMV:.2f} (c: more than 7). A quarter of the N-body: {NBody:.2f} in one iteration (d; Figure 5 a: more
than 3).
"""
ITERATIONS = """\
The paper needs 3 iterations for AESEncrypt (2.15x) with both methods, for EP (2.8x) 6 with the fixed point and 4 with
Broyden's method. Here the best of the first ten, and the first iteration within 3 % of it:

{reached}

AESEncrypt varies because shares are no whole numbers of work-groups. EP's time is a staircase.
"""
DRIFT = """\
Divided evenly, the slowest range takes several times as long as the fastest. Adapted, the slowest device is longer than
the mean by:
{imbalance}
"""
OVERALL = """\
All repetitions together, with the first one's transfers. *Behind the oracle*: how much longer the last repetitions
take. *Settled*: from which repetition on none is more than 3 % behind (-: never). The raw figures have both for the
paper's methods. These adapt Jacobi's stencil and copy one by one, so rows move in every repetition; *profile* cuts both
at the same places. *auto, once*: a single run by the default policy, over the device that is fastest at that.
"""
SLOWER = """\
Divided all the time, some are slower than one device alone: {slower}. Their transfers and the first, even division cost
more than dividing gains. `auto` does not divide them: the least of *auto, once* is {least:.2f}.
"""


def page(figures: dict[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    machines = "\n".join(f"- {n}: {'; '.join(m['devices'])}" for n, m in figures["machines"].items())
    yield "# Libsplit's experiments\n"
    yield from provenance.header(figures, "libsplit", SAMPLES, SPREAD)
    yield ABOUT.format(machines=machines)
    if "granularity" in figures:
        yield from _granularity(figures, "libsplit")
    reached = "\n".join(_reached(of) for of in figures["per_iteration"])
    yield f"## Speed-up per iteration\n{ITERATIONS.format(reached=reached)}"
    yield "![per iteration](libsplit_iterations.png)\n"
    drift = figures["drifting"]
    said = "; ".join(
        f"{label.replace('_', ' ')}: {_mean(drift[f'{label}_imbalance_percent'][2:]):.1f} % on average from the third "
        f"iteration on, at most {max(drift[f'{label}_imbalance_percent'][2:]):.1f} %"
        for label in (*METHODS, "estimates")
    )
    yield f"## A load that drifts\n{DRIFT.format(imbalance=said)}"
    yield "\n![drift](libsplit_drift.png)\n"
    yield f"## All applications\n{OVERALL}\n{_slower(figures['overall'])}\n![overall](libsplit_overall.png)\n"
    head = ["application", "fastest alone", "ms", *(label.replace("_", " ") for label in LABELS), "auto, once"]
    head += ["behind the oracle", "settled"]
    for name, rows in figures["overall"].items():
        yield f"### {name}\n"
        yield from table(head, map(_row, rows))
    yield "## Summary\n"
    yield from table(
        ["", ""], ([k.replace("_", " "), "-" if v is None else f"{v:.2f}"] for k, v in figures["summary"].items())
    )


def _granularity(figures: dict[str, Any], name: str) -> Iterator[str]:
    """Figure 1."""
    yield f"## What ranges take\n\n{GRANULARITY.format(**figures['granularity']['summary'], steps=STEPS)}"
    yield f"![granularity]({name}_granularity.png)\n"


REAL = """\
P. Huchant, M.-C. Counilh and D. Barthou, *Automatic OpenCL Task Adaptation for Heterogeneous Architectures*, Euro-Par
2016, on {devices}. Speed-ups over the fastest device alone, all data where
they belong: divided evenly, *adapted* in {repetitions} repetitions (the last one's division), and the best division
that was found by measuring. *Behind*: how much longer than with the best one all takes with the adapted one; *settled*:
from which repetition on it was within 3 %. How they are judged: `manycl_bench/libsplit/real.py`.
"""
REAL_HEADS = ("application", "alone, ms", "evenly", "adapted", "best found", "behind", "first within 3 %", "settled")


def real_page(figures: dict[str, Any]) -> Iterator[str]:
    """The page of what was measured on the devices that are here, in Markdown."""
    yield "# Libsplit's experiments on real devices\n"
    samples = "`applications`: `counted` tries, and `compared` divisions"
    yield from provenance.header(figures, "libsplit_real", samples, "medians of the tries")
    yield REAL.format(devices=", ".join(figures["devices"]), repetitions=figures["settings"]["repetitions"])
    yield from table(REAL_HEADS, map(_real_row, figures["applications"]))
    drift = figures["drifting"]["drift_imbalance_percent"]
    yield f"While the N-body's load drifts, the slowest device takes at most {drift:.1f} % longer than the mean.\n"
    yield from _granularity(figures, "libsplit_real")


def _real_row(r: dict[str, Any]) -> list[str]:
    speedups = (f"{r[f'{label}_speedup']:.2f}" for label in ("uniform", "adaptive", "oracle"))
    behind = f"{r['within_oracle_percent']:.1f} %"
    return [r["application"], f"{r['alone_ms']:.2f}", *speedups, behind, str(r["iterations"]), str(r["settled"])]


def _reached(of: dict[str, Any]) -> str:
    """How high an application's curves come, and when."""
    words = []
    for method in METHODS:
        best = max(of[method])
        first = next(i for i, v in enumerate(of[method], 1) if v >= best / CLOSE)
        words.append(f"{method.replace('_', ' ')} {best:.2f}x in {first}")
    return f"- {of['application']}: {', '.join(words)}"


def _slower(overall: dict[str, list[dict[str, Any]]]) -> str:
    """Which applications are slower divided than on one device."""
    found = []
    for name, rows in overall.items():
        for r in rows:
            if (speed := r[f"{METHODS[0]}_speedup"]) < 1.0:
                after = "never pays" if r["pays_after"] is None else f"pays from {r['pays_after']} repetitions on"
                found.append(f"{r['application']} on {name} {speed:.2f}x ({after})")
    least = min(r["auto_once_speedup"] for rows in overall.values() for r in rows)
    return SLOWER.format(slower="; ".join(found) or "none", least=least)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _row(r: dict[str, Any]) -> list[str]:
    settled = r[f"{METHODS[0]}_settled"]
    return [
        r["application"],
        r["best_device"],
        f"{r['alone_ms']:.2f}",
        *(f"{r[f'{label}_speedup']:.2f}" for label in LABELS),
        f"{r['auto_once_speedup']:.2f}",
        f"{r[f'{METHODS[0]}_behind_percent']:.1f} %",
        "-" if settled is None else str(settled),
    ]
