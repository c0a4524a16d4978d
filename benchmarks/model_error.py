"""How far off predicted times are: MKMD's Table 1 on this machine's CPU, and a whole run's makespan.

For each of seven kernels, launches are drawn at random (work-groups and arguments); the regression (MKMD, Eq. 3) is
fitted to 20 of them, or 40, and predicts 100 others. A launch's time is the shortest of five runs, on the device's
clock (others who use the machine only make it longer), every run at another time between those of the others.
MANYCL_DEVICES chooses the device (one; default: the whole CPU).
mean_error_percent: mean relative error over all kernels with 20 profiles; mean_error_40_percent: with 40.
noise_floor_percent: what nothing could predict: launches that are there five times, the mean relative deviation of
their times from the median.
simulated_vs_real_percent: a graph of all seven kernels, twice, on two one-core devices. In turns, models learn from
four runs of it, the simulator predicts the makespan of a plan, and the plan runs three times; the error is that against
the median of the three, and the figure is the median of the errors' sizes over the turns. simulated_bias_percent: the
median error with its sign; a machine that others use makes runs longer than the medians that models keep.
real_scatter_percent: how far the three are from their median, on average: no prediction could be much better.
"""

from __future__ import annotations

import os
import random
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import common
import numpy as np

os.environ["MANYCL_MODELS"] = "0"  # neither learns from this machine's past nor adds to it

import manycl as mc
from manycl.graph.graph import Launch
from manycl.model.history import History
from manycl.model.regression import Regression, Sample, fit
from manycl.model.trips import trip_count
from manycl.plan.policy import find
from manycl.run.simulate import plan_with, simulate

DEVICE = os.environ.get("MANYCL_DEVICES") or "cpu"
FLOATS = 6_000_000  # of the largest array
PROFILES, MORE, UNSEEN, RUNS = 20, 40, 100, 5
LEARNED, RUNS_A_TURN = 4, 3  # runs of the graph before a prediction, and after it
REPEATED, TIMES = 4, 5  # launches that are there several times, for the noise
PAPER = {  # percent, with 20 and 40 profiles, on a GTX 760 (Table 1)
    "blackscholes": (2.12, 1.27),
    "nbody": (1.72, 1.23),
    "matrixmul": (1.4, 0.9),
    "fdtd3d": (1.98, 1.45),
    "sobel": (1.18, 0.97),
    "median": (1.06, 0.98),
    "kmeans": (1.42, 1.18),
}


class Case(NamedTuple):
    """A launch of one of the kernels. ``f`` as MKMD's Table 1 has it: what the analysis finds must be proportional."""

    kernel: str
    size: tuple[int, ...]
    local: tuple[int, ...]
    args: tuple[object, ...]
    f: float


class Arrays(NamedTuple):
    """Buffers that are large enough for every launch."""

    inputs: Sequence[mc.Array]
    outputs: Sequence[mc.Array]
    bodies: tuple[mc.Array, mc.Array]
    nearest: mc.Array


def arrays(queue: mc.Queue) -> Arrays:
    rng = np.random.default_rng(1)
    data = [rng.random(FLOATS, np.float32) + 0.5 for _ in range(3)]
    return Arrays(
        [queue.array(d, copy=False) for d in data],
        [queue.zeros(FLOATS) for _ in range(2)],
        (queue.array(rng.random((8192, 4), np.float32)), queue.zeros((8192, 4))),
        queue.zeros(1 << 17, np.int32),
    )


def draw(kernel: str, a: Arrays, rng: random.Random) -> Case:
    """A launch of a kernel with random inputs and numbers of work-groups."""
    x, y, z = a.inputs
    out, second = a.outputs
    if kernel == "blackscholes":
        steps = rng.randrange(8, 65)
        return Case(kernel, (64 * rng.randrange(16, 129),), (64,), (out, second, x, y, z, 0.02, 0.3, steps), steps)
    if kernel == "nbody":
        bodies = 64 * rng.randrange(16, 65)
        where = (*a.bodies, mc.LocalMemory(64 * 16), bodies, 0.01)
        return Case(kernel, (64 * rng.randrange(8, 33),), (64,), where, bodies)
    if kernel == "matrixmul":
        columns, rows, inner = (16 * rng.randrange(4, 25) for _ in range(3))
        return Case(kernel, (columns, rows), (16, 16), (x, y, out, columns, inner), inner)
    if kernel == "fdtd3d":
        # nine planes fit into a core's second cache, the whole does not: where the cache changes, so does the slope
        width, height, depth = 16 * rng.randrange(4, 9), 4 * rng.randrange(4, 13), rng.randrange(256, 761)
        return Case(kernel, (width, height), (16, 4), (x, out, y, width + 8, depth), depth)
    if kernel in ("sobel", "median"):
        size = (16 * rng.randrange(32, 129), 4 * rng.randrange(128, 513))
        return Case(kernel, size, (16, 4), (x, out, 0.5) if kernel == "sobel" else (x, out), 1)
    centres, features = rng.randrange(8, 65), 34  # Rodinia's data have 34 features
    args = (x, y, a.nearest, centres, features)
    # an odd number of groups: where features lie a multiple of 2 KiB apart, they share a few sets of the cache (3x)
    return Case(kernel, (64 * rng.randrange(129, 513, 2),), (64,), args, centres * features)


class Measured:
    """One launch: its graph, the shortest time of its runs, and its T and T f."""

    def __init__(self, queue: mc.Queue, program: mc.Program, case: Case) -> None:
        program.kernel(case.kernel)(queue, case.size, case.local, *case.args)
        self._session, self._graph = queue.session, queue.take()
        queue.hold.clear()
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


def of_kernel(kernel: str, queue: mc.Queue, program: mc.Program, a: Arrays) -> tuple[float, float, float]:
    """Errors with 20 and 40 profiles, and the noise floor, in percent."""
    rng = random.Random(kernel)
    again = [draw(kernel, a, rng) for _ in range(REPEATED)]
    cases = [draw(kernel, a, rng) for _ in range(MORE + UNSEEN)] + again * TIMES
    found = [Measured(queue, program, c) for c in cases]
    assert len({round(m.loops, 6) for m in found}) == 1, f"{kernel}: f is not what Table 1 has"
    for m in found[:2]:
        m.run()  # to warm up
    for _ in range(RUNS):
        for m in rng.sample(found, len(found)):
            m.run()
    profiles, unseen = [m.sample for m in found[:MORE]], [m.sample for m in found[MORE : MORE + UNSEEN]]
    seconds = [m.seconds for m in found[MORE + UNSEEN :]]
    repeated = [seconds[i::REPEATED] for i in range(REPEATED)]
    noise = 100 * statistics.fmean(abs(s / statistics.median(of) - 1) for of in repeated for s in of)
    return errors(fit(profiles[:PROFILES]), unseen), errors(fit(profiles), unseen), noise


class Turn(NamedTuple):
    """A prediction, and what the plan then took: seconds, and the mean relative deviation of its runs."""

    predicted: float
    real: float
    scatter: float

    @property
    def error(self) -> float:
        return (self.predicted - self.real) / self.real


def makespan(program: mc.Program, repeats: int) -> dict[str, float]:
    """The simulator against the engine on the devices."""
    rng = random.Random(7)
    with mc.Queue("cpu/2") as queue:
        a = arrays(queue)
        fresh: Callable[[], mc.Array] = lambda: queue.zeros(FLOATS)  # noqa: E731
        for _ in range(2):
            for kernel in PAPER:
                # outputs of their own: the seven do not depend on one another
                case = draw(kernel, a._replace(outputs=[fresh(), fresh()]), rng)
                program.kernel(kernel)(queue, case.size, case.local, *case.args)
        graph, session = queue.take(), queue.session
        turns = []
        for _ in range(max(3, repeats)):
            session.history = History()  # what was measured minutes ago was measured on a machine with other load
            for _ in range(LEARNED):
                session.run(graph, "heft")
            problem = session.problem(graph)
            plan = plan_with(find("heft"), problem)
            predicted = simulate(problem, plan).makespan
            runs = [session.run(graph, plan).seconds for _ in range(RUNS_A_TURN)]
            real = statistics.median(runs)
            turns.append(Turn(predicted, real, statistics.fmean(abs(r / real - 1) for r in runs)))
    return {
        "simulated_vs_real_percent": 100 * statistics.median(abs(t.error) for t in turns),
        "simulated_bias_percent": 100 * statistics.median(t.error for t in turns),
        "real_scatter_percent": 100 * statistics.median(t.scatter for t in turns),
        "simulated_s": statistics.median(t.predicted for t in turns),
        "real_s": statistics.median(t.real for t in turns),
    }


def main() -> None:
    args = common.parse(__doc__)
    program = mc.Program.from_file(Path(__file__).with_name("model_kernels.cl"))
    figures: dict[str, object] = {}
    with mc.Queue(DEVICE) as queue:
        a = arrays(queue)
        found = {}
        for kernel in PAPER:
            common.progress(kernel)
            found[kernel] = of_kernel(kernel, queue, program, a)
    for name, column in (("mean_error_percent", 0), ("mean_error_40_percent", 1), ("noise_floor_percent", 2)):
        figures[name] = statistics.fmean(f[column] for f in found.values())
    for kernel, (few, many, noise) in found.items():
        figures[kernel] = {
            "error_20": round(few, 2),
            "error_40": round(many, 2),
            "noise": round(noise, 2),
            "paper_20": PAPER[kernel][0],
            "paper_40": PAPER[kernel][1],
        }
    figures |= makespan(program, args.repeats)
    figures |= {"profiles": PROFILES, "unseen": UNSEEN, "device": f"{DEVICE}: {mc.devices()[0].model}"}
    common.report(args, figures)


if __name__ == "__main__":
    main()
