"""MKMD's Table 1 on the devices that are here: how far off predicted times are; and a whole run's makespan.

For each of seven kernels, launches are drawn at random (work-groups and arguments); the regression (MKMD, Eq. 3) is
fitted to 20 of them, or 40, and predicts 100 others. A launch's time is the shortest of five runs, on the device's
clock (others who use the machine only make it longer), every run at another time between those of the others. The noise
floor is what nothing could predict: launches that are there five times, the mean relative deviation of their times from
the median.

The paper does not say how its launches were drawn. Here they are drawn twice: from ``RESTRICTED`` sizes, on which a
CPU's times are what the regression can express, and from all sizes that the kernels take (``WIDE``).

Simulated against real: a graph of all seven kernels, twice, on two one-core devices. In turns, models learn from four
runs of it, the simulator predicts the makespan of a plan, and the plan runs three times; the error is that against the
median of the three.

Ranges: :mod:`manycl_bench.ranges`, of the kernels of ``manycl bench slices``.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.api.program import LocalMemory, Program
from manycl.api.queue import Queue
from manycl.graph.graph import Launch
from manycl.model.history.history import History
from manycl.model.regression import Regression, Sample, fit
from manycl.model.trips import trip_count
from manycl.plan.policy import find
from manycl.run.simulation.simulate import plan_with, simulate
from manycl_bench import pages, provenance, ranges

KERNELS = Path(__file__).with_name("model_kernels.cl")
DEVICE = "cpu"
PROFILES, MORE = 20, 40
LEARNED, RUNS_A_TURN = 4, 3  # runs of the graph before a prediction, and after it
DRAWN = 8  # launches of an input in Figure 5
REPEATED, TIMES = 4, 5  # launches that are there several times, for the noise
COST = {  # f as the second column of Table 1 has it, by the paper's numbers of arguments
    "blackscholes": "8th argument",
    "nbody": "8th argument / local size",
    "matrixmul": "6th argument",
    "fdtd3d": "6th argument",
    "sobel": "1",
    "median": "1",
    "kmeans": "4th argument x 5th",
}
PAPER = {  # percent, with 20 and 40 profiles, on a GTX 760 (Table 1)
    "blackscholes": (2.12, 1.27),
    "nbody": (1.72, 1.23),
    "matrixmul": (1.4, 0.9),
    "fdtd3d": (1.98, 1.45),
    "sobel": (1.18, 0.97),
    "median": (1.06, 0.98),
    "kmeans": (1.42, 1.18),
}


@dataclass(frozen=True)
class Settings:
    """``unseen`` launches that are predicted, ``runs`` of each; ``turns`` of the simulator against devices (0: none);
    ``device``: which one (the whole CPU); ``wide``: also from all sizes; ``large``: those for a GPU; ``ranged``:
    kernels in ranges, at most."""

    unseen: int = 100
    runs: int = 5
    turns: int = 7
    device: str = DEVICE
    kernels: tuple[str, ...] = tuple(PAPER)
    wide: bool = True
    large: bool = False
    ranged: int = 100


class Case(NamedTuple):
    """A launch of one of the kernels. ``f`` as MKMD's Table 1 has it: what the analysis finds must be proportional."""

    kernel: str
    size: tuple[int, ...]
    local: tuple[int, ...]
    args: tuple[object, ...]
    f: float


class Arrays(NamedTuple):
    """Buffers that are large enough for every launch."""

    inputs: Sequence[Array]
    outputs: Sequence[Array]
    bodies: tuple[Array, Array]
    nearest: Array


class Sizes(NamedTuple):
    """From which sizes launches are drawn: ranges, ends included, and their steps; of work-groups where it says so."""

    steps: tuple[int, int]  # blackscholes: of a path
    paths: tuple[int, int]  # groups of 64
    bodies: tuple[int, int]  # nbody: sixty-fourths of those that attract
    moved: tuple[int, int]  # groups of 64 that are moved
    matrix: tuple[int, int]  # matrixmul: rows, columns and the third size, in sixteenths
    plane: tuple[tuple[int, int], tuple[int, int]]  # fdtd3d: width in sixteenths, height in fourths
    depth: tuple[int, int]  # planes
    picture: tuple[tuple[int, int], tuple[int, int]]  # sobel and median: likewise
    centres: tuple[int, int]  # kmeans
    points: range  # groups of 64
    floats: int = 6_000_000  # of the largest array


# fdtd3d: nine planes fit into a core's second cache, the whole does not: where the cache changes, so does the slope.
# kmeans: an odd number of groups: where features lie a multiple of 2 KiB apart, they share a few sets of the cache (3x)
RESTRICTED = Sizes(
    *((8, 64), (16, 128), (16, 64), (8, 32), (4, 24), ((4, 8), (4, 12)), (256, 760)),
    *(((32, 128), (128, 512)), (8, 64), range(129, 513, 2)),
)
WIDE = Sizes(
    *((1, 64), (1, 128), (1, 64), (1, 32), (1, 48), ((1, 24), (1, 32)), (1, 760)),
    *(((2, 128), (4, 512)), (1, 64), range(1, 513)),
)

LARGE = Sizes(
    *((8, 64), (1 << 14, 1 << 17), (64, 256), (1 << 10, 1 << 12), (48, 192), ((32, 64), (128, 256)), (16, 48)),
    *(((128, 500), (512, 2000)), (8, 64), range(2049, 16385, 2), 1 << 26),
)
"""For a GPU, whose units a launch keeps busy for many rounds; inputs of more than 100 MB, as the paper's."""
INPUTS = {"blackscholes": "steps", "nbody": "bodies", "fdtd3d": "depth", "kmeans": "centres"}
"""The kernels of Figure 5, and which of their sizes is f; the number of work-items is another."""


def arrays(queue: Queue, sizes: Sizes = RESTRICTED) -> Arrays:
    """The buffers for all launches that may be drawn from some sizes, and from all."""
    rng = np.random.default_rng(1)
    data = [rng.random(sizes.floats, np.float32) + 0.5 for _ in range(3)]
    bodies = max(8192, 64 * sizes.bodies[1], 64 * sizes.moved[1])
    return Arrays(
        [queue.array(d, copy=False) for d in data],
        [queue.zeros(sizes.floats) for _ in range(2)],
        (queue.array(rng.random((bodies, 4), np.float32)), queue.zeros((bodies, 4))),
        queue.zeros(max(1 << 17, 64 * sizes.points.stop), np.int32),
    )


def draw(kernel: str, a: Arrays, rng: random.Random, sizes: Sizes = RESTRICTED) -> Case:
    """A launch of a kernel with random inputs and numbers of work-groups."""
    x, y, z = a.inputs
    out, second = a.outputs
    one = rng.randint
    if kernel == "blackscholes":
        most, paths = one(*sizes.steps), 64 * one(*sizes.paths)
        steps = min(most, sizes.floats // paths)
        return Case(kernel, (paths,), (64,), (out, second, x, y, z, 0.02, 0.3, steps), steps)
    if kernel == "nbody":
        bodies = 64 * one(*sizes.bodies)
        where = (*a.bodies, LocalMemory(64 * 16), bodies, 0.01)
        return Case(kernel, (64 * one(*sizes.moved),), (64,), where, bodies)
    if kernel == "matrixmul":
        columns, rows, inner = (16 * one(*sizes.matrix) for _ in range(3))
        return Case(kernel, (columns, rows), (16, 16), (x, y, out, columns, inner), inner)
    if kernel == "fdtd3d":
        width, height = 16 * one(*sizes.plane[0]), 4 * one(*sizes.plane[1])
        most = sizes.floats // ((width + 8) * (height + 8)) - 8
        depth = min(one(*sizes.depth), most)
        return Case(kernel, (width, height), (16, 4), (x, out, y, width + 8, depth), depth)
    if kernel in ("sobel", "median"):
        size = (16 * one(*sizes.picture[0]), 4 * one(*sizes.picture[1]))
        return Case(kernel, size, (16, 4), (x, out, 0.5) if kernel == "sobel" else (x, out), 1)
    centres, features = one(*sizes.centres), 34  # Rodinia's data have 34 features
    args = (x, y, a.nearest, centres, features)
    return Case(kernel, (64 * rng.choice(sizes.points),), (64,), args, centres * features)


class Measured:
    """One launch: its graph, the shortest time of its runs, and its T and T f."""

    def __init__(self, queue: Queue, program: Program, case: Case) -> None:
        with queue.prepare() as prepared:
            program.kernel(case.kernel)(queue, case.size, case.local, *case.args)
        self._session, self._graph = queue.session, prepared.graph
        launch = self._graph.nodes[0]
        assert isinstance(launch, Launch)
        f = trip_count(launch.program, launch.kernel).of(launch, launch)
        self.loops = f / case.f  # what the analysis finds, over what Table 1 has
        self._items, self._cost = launch.work_items, launch.work_items * f
        self.seconds = float("inf")

    def run(self) -> None:
        """Once more; on the device's clock."""
        ((_, _, seconds),) = self._session.run(self._graph, "in_order").record.durations()
        self.seconds = min(self.seconds, seconds)

    @property
    def sample(self) -> Sample:
        return Sample(self._items, self._cost, self.seconds)


def errors(model: Regression | None, seen: Sequence[Sample]) -> float:
    """Mean relative error in percent."""
    assert model is not None
    return 100 * statistics.fmean(abs(model.seconds(s.work_items, s.cost) - s.seconds) / s.seconds for s in seen)


class Errors(NamedTuple):
    """Of a kernel: mean relative errors with 20 and 40 profiles, and the noise floor, in per cent; and the raw figures:
    work-items, T f, and seconds of every launch, those that are fitted first, then those that are predicted."""

    few: float
    many: float
    noise: float
    samples: list[list[float]]


def of_kernel(
    kernel: str, queue: Queue, program: Program, a: Arrays, settings: Settings, sizes: Sizes = RESTRICTED
) -> Errors:
    """A row of Table 1."""
    rng = random.Random(kernel)
    again = [draw(kernel, a, rng, sizes) for _ in range(REPEATED)]
    cases = [draw(kernel, a, rng, sizes) for _ in range(MORE + settings.unseen)] + again * TIMES
    found = [Measured(queue, program, c) for c in cases]
    assert len({round(m.loops, 6) for m in found}) == 1, f"{kernel}: f is not what Table 1 has"
    for m in found[:2]:
        m.run()  # to warm up
    for _ in range(settings.runs):
        for m in rng.sample(found, len(found)):
            m.run()
    profiles, unseen = [m.sample for m in found[:MORE]], [m.sample for m in found[MORE : MORE + settings.unseen]]
    seconds = [m.seconds for m in found[MORE + settings.unseen :]]
    repeated = [seconds[i::REPEATED] for i in range(REPEATED)]
    noise = 100 * statistics.fmean(abs(s / statistics.median(of) - 1) for of in repeated for s in of)
    samples = [[float(f"{v:.5g}") for v in (s.work_items, s.cost, s.seconds)] for s in (*profiles, *unseen)]
    return Errors(errors(fit(profiles[:PROFILES]), unseen), errors(fit(profiles), unseen), noise, samples)


def figure_5(
    queue: Queue, program: Program, a: Arrays, sizes: Sizes, settings: Settings
) -> dict[str, list[list[float]]]:
    """Work-items, T f and seconds (the shortest of the runs) of kernels with three inputs, and numbers of work-items
    from few to many."""
    found = {}
    for kernel in (k for k in INPUTS if k in settings.kernels):
        low, high = getattr(sizes, INPUTS[kernel])
        rng = random.Random(kernel)
        changes: list[dict[str, Any]] = [{INPUTS[kernel]: (n, n)} for n in (low, (low + high) // 2, high)]
        inputs = [sizes._replace(**change) for change in changes]
        drawn = [Measured(queue, program, draw(kernel, a, rng, of)) for of in inputs for _ in range(DRAWN)]
        for _ in range(settings.runs + 1):
            for one in drawn:
                one.run()
        found[kernel] = [[float(f"{v:.5g}") for v in (m.sample.work_items, m.sample.cost, m.seconds)] for m in drawn]
    return found


def bend(of: Sequence[Sequence[float]]) -> float:
    """How far off a line through the times of one input is, on average, in per cent: the worst input."""
    off = []
    for one in (np.array(of[at : at + DRAWN]) for at in range(0, len(of), DRAWN)):
        line = np.polyval(np.polyfit(one[:, 1], one[:, 2], 1), one[:, 1])
        off.append(100.0 * float(np.mean(np.abs(line / one[:, 2] - 1.0))))
    return max(off)


class Turn(NamedTuple):
    """A prediction, and what the plan then took: seconds, and the mean relative deviation of its runs."""

    predicted: float
    real: float
    scatter: float

    @property
    def error(self) -> float:
        return (self.predicted - self.real) / self.real


def makespan(program: Program, turns: int) -> dict[str, float]:
    """The simulator against the engine on the devices."""
    rng = random.Random(7)
    with Queue("cpu/2") as queue:
        a = arrays(queue)
        fresh: Callable[[], Array] = lambda: queue.zeros(RESTRICTED.floats)  # noqa: E731
        with queue.prepare() as prepared:
            for _ in range(2):
                for kernel in PAPER:
                    # outputs of their own: the seven do not depend on one another
                    case = draw(kernel, a._replace(outputs=[fresh(), fresh()]), rng)
                    program.kernel(kernel)(queue, case.size, case.local, *case.args)
        graph, session = prepared.graph, queue.session
        found = []
        for _ in range(turns):
            session.models.history = History()  # minutes ago the machine had another load
            for _ in range(LEARNED):
                session.run(graph, "heft")
            problem = session.problem(graph)
            plan = plan_with(find("heft"), problem)
            predicted = simulate(problem, plan).makespan
            runs = [session.run(graph, plan).seconds for _ in range(RUNS_A_TURN)]
            real = statistics.median(runs)
            found.append(Turn(predicted, real, statistics.fmean(abs(r / real - 1) for r in runs)))
    return {
        "simulated_vs_real_percent": 100 * statistics.median(abs(t.error) for t in found),
        "simulated_bias_percent": 100 * statistics.median(t.error for t in found),
        "real_scatter_percent": 100 * statistics.median(t.scatter for t in found),
        "simulated_s": statistics.median(t.predicted for t in found),
        "real_s": statistics.median(t.real for t in found),
    }


def run(settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures: errors in percent by kernel (``wide_…``: of launches of all sizes), their means, the simulator's."""
    program = Program.from_file(KERNELS)
    restricted = LARGE if settings.large else RESTRICTED
    drawn = {"": restricted, **({"wide_": WIDE} if settings.wide else {})}
    found: dict[str, dict[str, Errors]] = {name: {} for name in drawn}
    with Queue(settings.device, profile=True) as queue:
        a = arrays(queue, restricted)
        lines = figure_5(queue, program, a, restricted, settings)
        for kernel in settings.kernels:
            for name, sizes in drawn.items():
                of = found[name][kernel] = of_kernel(kernel, queue, program, a, settings, sizes)
                say(
                    f"{kernel}{', all sizes' if name else ''}: {of.few:.2f} % with {PROFILES} profiles, "
                    f"{of.many:.2f} % with {MORE}, noise {of.noise:.2f} %"
                )
        model = queue.session.machine.devices[0].model
    figures: dict[str, Any] = {"figure_5": lines, "bend_percent": max(bend(of) for of in lines.values())}
    for name, kernels in found.items():
        rows = list(kernels.values())
        figures[f"{name}mean_error_percent"] = statistics.fmean(r.few for r in rows)
        figures[f"{name}mean_error_40_percent"] = statistics.fmean(r.many for r in rows)
        figures[f"{name}noise_floor_percent"] = statistics.fmean(r.noise for r in rows)
    for kernel in settings.kernels:
        figures[kernel] = {}
        for name, kernels in found.items():
            of = kernels[kernel]
            for key, value in (("error_20", of.few), ("error_40", of.many), ("noise", of.noise)):
                figures[kernel][f"{name}{key}"] = round(value, 2)
        figures[kernel] |= {"paper_20": PAPER[kernel][0], "paper_40": PAPER[kernel][1]}
    if settings.turns:
        say("simulated against real")
        figures |= makespan(program, settings.turns)
    if settings.ranged:
        say("ranges")
        with Queue(settings.device, profile=True, policy="in_order") as queue:
            launches = islice(ranges.sampled_launches(queue), settings.ranged)
            figures |= ranges.range_errors(queue, launches, ranges.TURNS * settings.runs, say)
    figures |= {"profiles": PROFILES, "unseen": settings.unseen, "runs": settings.runs, "large": settings.large}
    figures["device"] = f"{settings.device}: {model}"
    return figures | {
        "samples": {n.rstrip("_") or "restricted": {k: e.samples for k, e in of.items()} for n, of in found.items()}
    }


ABOUT = f"""\
J. Lee, M. Samadi and S. Mahlke, *Orchestrating Multiple Data-Parallel Kernels on Multiple Devices*, PACT 2015,
Table 1, on {{device}}. The regression (Eq. 3) is fitted to {PROFILES} launches with random arguments and numbers of
work-groups, or {MORE}, and predicts {{unseen}} others: the mean of |predicted - measured| / measured. A launch's time
is the shortest of {{runs}} runs. The paper's figures are a GTX 760's. *Noise* is by how much the times of one and the
same launch differ from their median, on average: no model could be better.

The paper does not say from which sizes its launches were drawn, and that decides.
"""
OF_A_CPU = f"""\
*Restricted*: where a CPU's times are what the regression can express. No launch is so small that enqueuing counts.
`fdtd3d` has {RESTRICTED.depth[0]} to {RESTRICTED.depth[1]} planes of at most
{16 * RESTRICTED.plane[0][1]} x {4 * RESTRICTED.plane[1][1]}, larger than the caches; `kmeans` has an odd number of
work-groups. *All sizes*: from one work-group, one step and one plane on, up to what the arrays hold (`matrixmul`: up to
{16 * WIDE.matrix[1]} rows).
"""
OF_A_GPU = """\
Here launches keep all of the GPU's units busy for many rounds, and their inputs are up to 256 MB.
"""
FIGURE_5 = """
Figure 5: {drawn} numbers of work-items for each of three inputs; a line through the times of one input is at most
{bend_percent:.1f} % off on average.

![times by T f]({name}.png)
"""
MAKESPAN = f"""\
The simulator, given models that learned from {LEARNED} runs, predicts the makespan of a graph of all seven kernels on
two one-core devices {{simulated_vs_real_percent:.1f}} % off (median; with its sign {{simulated_bias_percent:+.1f}} %);
runs of one plan differ by {{real_scatter_percent:.1f}} % from their median."""
RANGED = """
Halves, quarters and eighths of the launches of {kernels} kernels are predicted {ranges_off_percent:.1f} % off from the
whole launch alone (median), at most by a factor of {ranges_worst:.2f} where that takes over a millisecond; with the
quarters measured as well, {ranges_learned_off_percent:.1f} % and {ranges_learned_worst:.2f}. The times of a range are
{ranges_noise_percent:.1f} % longer than the shortest."""
_COLUMNS = {
    "error_20": f"restricted, {PROFILES} profiles, %",
    "error_40": f"{MORE}, %",
    "paper_20": f"paper, {PROFILES}, %",
    "paper_40": f"paper, {MORE}, %",
    "noise": "noise, %",
    "wide_error_20": f"all sizes, {PROFILES} profiles, %",
    "wide_error_40": f"{MORE}, %",
    "wide_noise": "noise, %",
}


def rows(figures: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By kernel: what Table 1 has, and ours."""
    return {k: figures[k] for k in PAPER if k in figures}


def write(figures: Mapping[str, Any], folder: Path) -> None:
    """``models.json``, ``models.md`` and Figure 5 (a GPU's: ``models_gpu``), in a folder that is made if need be."""
    pages.write(folder, _name(figures), figures, page(figures))
    draw_figure_5(figures["figure_5"], folder / f"{_name(figures)}.png")


def _name(figures: Mapping[str, Any]) -> str:
    return "models_gpu" if figures.get("large") else "models"


def draw_figure_5(found: Mapping[str, Sequence[Sequence[float]]], path: Path) -> None:
    """Times by T f, a colour for each input."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(found), 3.5), layout="constrained")
    for (kernel, of), axes in zip(found.items(), figure.subplots(1, len(found), squeeze=False)[0], strict=True):
        for at in range(0, len(of), DRAWN):
            curve = sorted((cost, 1e3 * seconds) for _, cost, seconds in of[at : at + DRAWN])
            axes.plot(*zip(*curve, strict=True), "o-", markersize=3, label=f"f = {of[at][1] / of[at][0]:g}")
        axes.set(title=kernel, xlabel="T f", ylabel="ms", xlim=(0, None), ylim=(0, None))
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=100)


def page(figures: Mapping[str, Any]) -> Iterator[str]:
    """The page of results, in Markdown."""
    found = rows(figures)
    columns = [key for key in _COLUMNS if key in next(iter(found.values()))]
    kernels = {kernel: [float(row[c]) for c in columns] for kernel, row in found.items()}
    means = [round(statistics.fmean(column), 2) for column in zip(*kernels.values(), strict=True)]
    yield "# MKMD's Table 1: how far off predicted kernel times are\n"
    yield from provenance.header(
        figures, _name(figures), "`samples`: work-items, T f and seconds of every launch", "*noise*, below"
    )
    yield ABOUT.format_map(figures) + (OF_A_GPU if figures.get("large") else OF_A_CPU)
    lines = ([kernel, COST.get(kernel, ""), *map(str, row)] for kernel, row in {**kernels, "mean": means}.items())
    yield from pages.table(["kernel", "f", *(_COLUMNS[c] for c in columns)], lines)
    if "figure_5" in figures:
        yield FIGURE_5.format_map({**figures, "drawn": DRAWN, "name": _name(figures)})
    if "simulated_s" in figures:
        yield MAKESPAN.format_map(figures)
    if "ranges" in figures:
        yield RANGED.format_map({**figures, "kernels": len(figures["ranges"])})
