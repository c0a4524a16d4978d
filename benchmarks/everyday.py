"""Ordinary programs: the same with plain PyOpenCL on the best single device, and with manycl; ratios within one run.

Each program is written twice, as a stranger would: with PyOpenCL (one in-order queue, ordinary memory, blocking copies)
and with manycl, enqueued anew each time, its arrays made where they are needed (unless its text says *kept*). OpenCL C
is shared by both and built before time starts. In each of several tries a program runs twenty times with plain and
twenty times with manycl, in two fresh processes that take turns of a few runs; what is told is the median of the tries.
Results are compared, bit for bit where all devices are of one kind.

Figures are plain's time over manycl's, so above 1 manycl is faster. first: the first run of a process; ten: the first
ten together; steady: the median of the eleventh to twentieth; of plain the best single device (of several of one model,
one is asked; for cpu/2, one part). prepared: steady, as a prepared graph on arrays that are kept, in twenty more runs.
regret: manycl's first twenty runs over twenty times plain's steady one, so below 1 is better; peak: the slowest of them
after the first, over the same. wait_manycl_us, wait_plain_us: launching one small kernel and waiting for it.
threads_manycl_s, threads_plain_s: the processor's time of a first small program, from start to end, in all of its
threads and processes.

--by-hand asks what several devices are worth, with the programs that somebody has also divided evenly by hand: manycl
on the best single device, manycl on all of --devices, and the hand with PyOpenCL on the same (or those of --plain),
twenty runs of each in turns. For native devices the hand has PoCL on the same cores, which compiles differently:
--devices opencl/2 has one driver for all. first, third: these runs; ten, twenty: the first ones together; steady: the
median from the eighth run on. ratio: the single device's steady time over that on all devices; ratio_hand: over the
hand's; share: the part that manycl gains on all of what the hand gains over the single device. Some sizes are too small
to be divided: the hand gains less than a tenth, there is no share, and the ratio should be 1. With --size large these
are sizes of GPUs.

What programs leave on disk (compiled kernels, analyses, measurements, Python's own code) is in a folder of this run. A
first round, which does not count, fills it: a second process on a machine is the case that is told. With --cold every
process finds it empty. --size: small, for two cores (a run takes some 50 ms at most), medium, or large, for GPUs.
--quick: a few of them, one try.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import common
from everyday_programs.divided import DividedBench
from everyday_programs.processes import BLOCKS, GIVE_UP, RUNS, SECONDS, Failed, Worker, environment, place
from everyday_programs.program import PROGRAMS, SIZES, Divisible, Repeatable
from everyday_programs.worker import TOLERANCE, Task, serve

from manycl.drivers.choice import OpenDevice, open_devices
from manycl.drivers.opencl.icd import prepare
from manycl.machine import Machine
from manycl_bench import provenance

FEW = ("triad", "stencil", "chain_2000", "conjugate_gradients", "lyapunov", "launch_and_wait")
TRIES = 2
HERE = Path(__file__).parent
Row = dict[str, Any]


@dataclass
class Turns:
    """Seconds of one try: of plain's runs by device, of manycl's, and of the prepared graph and plain's beside it."""

    plain: dict[int, list[float]]
    manycl: list[float] = field(default_factory=list)
    prepared: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    error: float = 0.0


class Bench:
    """The programs on devices: ``folder`` is for results, and for what is left on disk unless each process is cold."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder
        machine, _ = open_devices(args.devices)
        self.machine, opened = open_devices(args.plain or args.devices)  # of what plain PyOpenCL is tried on
        self.singles = singles(self.machine, opened)
        self.plain = {i: opened[i].handle.cl for i in self.singles}  # type: ignore[attr-defined]
        shown = {(d.platform.name, d.name) for d in self.plain.values()}
        self.exactly = {(d.platform, d.model) for d in machine.devices} == shown and len(shown) == 1

    def turns(self, name: str) -> Turns:
        """One try of a program."""
        results = str(self.folder / "results")
        with ExitStack() as stack:

            def worker(single: int | None) -> Worker:
                devices = self.args.devices if single is None else self.args.plain or self.args.devices
                task = Task(
                    name,
                    self.args.size,
                    devices,
                    "manycl" if single is None else "plain",
                    results,
                    single or 0,
                    self.args.kept,
                )
                return stack.enter_context(Worker(task, environment(place(self.folder, self.args.cold, stack))))

            ours = worker(None)
            plain = {single: worker(single) for single in self.singles}
            for one in (ours, *plain.values()):
                one.built()
            return in_turns(ours, plain, issubclass(PROGRAMS[name].kind, Repeatable))

    @staticmethod
    def told(turns: Turns) -> str:
        """A try, in words."""
        now = min(steady(seconds) for seconds in turns.plain.values() if len(seconds) >= RUNS)
        return f"plain {1e3 * now:.2f} ms, manycl {1e3 * steady(turns.manycl):.2f} ms"

    def row(self, name: str, tries: Sequence[Turns]) -> Row:
        """The figures of one program, and whether its results are wrong."""
        found = row(tries, [d.name for d in self.machine.devices])
        if found["error"] > (0.0 if PROGRAMS[name].kind.exact and self.exactly else TOLERANCE):
            found["wrong"] = True
        return found

    def figures(self, rows: Mapping[str, Row]) -> dict[str, Any]:
        """The flat figures over all programs that ended, and of a first small program."""
        return summary(rows) | self.threads(self.args.repeats)

    @staticmethod
    def columns() -> tuple[Sequence[str], Sequence[str]]:
        """Those of the table: figures with two decimals, and others."""
        times = [f"steady_{way}_ms" for way in ("plain", "manycl")]
        return ["steady", "first", "ten", "prepared", "regret", "peak", *times], ["plain_on"]

    def threads(self, tries: int) -> dict[str, float]:
        """Seconds of the processor for a first small program, with both."""
        device = self.plain[self.singles[0]]
        start = HERE / "everyday_programs"
        chosen = [self.args.devices] if self.args.devices else []
        ways = {
            "threads_plain_s": [str(start / "first_plain.py"), device.platform.name, device.name],
            "threads_manycl_s": [str(start / "first_manycl.py"), *chosen],
        }
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for round_ in range(1 + tries):
            for way, command in ways.items():
                with ExitStack() as stack:
                    env = environment(place(self.folder, self.args.cold, stack))
                    before = resource.getrusage(resource.RUSAGE_CHILDREN)
                    subprocess.run([sys.executable, *command], env=env, check=True, timeout=SECONDS)
                    after = resource.getrusage(resource.RUSAGE_CHILDREN)
                if round_:
                    taken[way].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return {way: statistics.median(seconds) for way, seconds in taken.items()}


def in_turns(ours: Worker, plain: Mapping[int, Worker], repeatable: bool) -> Turns:
    """All runs of one try; the processes take turns, so that whatever else the machine does disturbs all alike."""
    out = Turns({single: [] for single in plain})
    asked = dict(plain)
    for block in BLOCKS:
        out.manycl += ours.ask(f"run {block}")  # first: nothing that it needs has time to start before
        for single, worker in asked.items():
            out.plain[single] += worker.ask(f"run {block}")
        if len(out.manycl) == BLOCKS[0]:
            least = min(seconds[1] for seconds in out.plain.values())
            asked = {s: w for s, w in asked.items() if out.plain[s][1] <= GIVE_UP * least}
    best = min(asked, key=lambda single: steady(out.plain[single]))
    if repeatable:
        for block in BLOCKS:
            out.prepared += ours.ask(f"prepared {block}")
            out.beside += plain[best].ask(f"run {block}")
    plain[best].ask("save")
    (out.error,) = ours.ask("compare")
    for worker in (ours, *plain.values()):
        worker.end()
    return out


def singles(machine: Machine, opened: Sequence[OpenDevice]) -> list[int]:
    """The devices that plain PyOpenCL is tried on: of those that are alike, one."""
    found: dict[tuple[str, str, int], int] = {}
    for i, device in machine.numbered():
        if hasattr(opened[i].handle, "cl"):
            found.setdefault((device.platform, device.model, device.compute_units), i)
    return sorted(found.values())


def steady(seconds: Sequence[float]) -> float:
    """The median of the eleventh to twentieth."""
    return statistics.median(seconds[10:RUNS])


FIGURES: dict[str, Callable[[Sequence[float]], float]] = {
    "first": lambda seconds: seconds[0],
    "ten": lambda seconds: sum(seconds[:10]),
    "steady": steady,
}


def row(tries: Sequence[Turns], names: Sequence[str]) -> Row:
    """The figures of one program: medians of the tries. ``names``: of the devices."""
    whole = {d for d in tries[0].plain if all(len(t.plain[d]) >= RUNS for t in tries)}
    best = min(whole, key=lambda d: statistics.median(steady(t.plain[d]) for t in tries))

    def median(of: Callable[[Turns], float]) -> float:
        return statistics.median(of(t) for t in tries)

    def plain(t: Turns, figure: str) -> float:
        asked = t.plain.values() if figure == "first" else (t.plain[d] for d in whole)
        return min(FIGURES[figure](seconds) for seconds in asked)

    found: Row = {}
    for figure, of in FIGURES.items():
        found[figure] = median(lambda t, f=figure, of=of: plain(t, f) / of(t.manycl))  # type: ignore[misc]
    if tries[0].prepared:
        found["prepared"] = median(lambda t: steady(t.beside) / steady(t.prepared))
    found["regret"] = median(lambda t: sum(t.manycl) / (RUNS * plain(t, "steady")))
    found["peak"] = median(lambda t: max(t.manycl[1:]) / plain(t, "steady"))
    found["plain_on"] = names[best]
    for figure, of in FIGURES.items():
        found[f"{figure}_plain_ms"] = 1e3 * median(lambda t, f=figure: plain(t, f))  # type: ignore[misc]
        found[f"{figure}_manycl_ms"] = 1e3 * median(lambda t, of=of: of(t.manycl))  # type: ignore[misc]
    found["error"] = max(t.error for t in tries)
    return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}


def summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    """The flat figures over all programs that ended."""
    out: dict[str, Any] = {}
    for figure in ("first", "ten", "steady", "prepared"):
        values = {name: r[figure] for name, r in rows.items() if figure in r}
        if values:
            worst = min(values, key=values.__getitem__)
            out |= {f"{figure}_worst": values[worst], f"{figure}_worst_program": worst}
            out[f"{figure}_geomean"] = statistics.geometric_mean(values.values())
    regrets = {name: r["regret"] for name, r in rows.items() if "regret" in r}
    if regrets:
        worst = max(regrets, key=regrets.__getitem__)
        out |= {"regret_worst": regrets[worst], "regret_worst_program": worst}
    for name, found in rows.items():
        waits = PROGRAMS[name].kind.waits
        if waits and "steady" in found:
            for way in ("manycl", "plain"):
                out[f"wait_{way}_us"] = 1e3 * found[f"steady_{way}_ms"] / waits
    return out


def measure(bench: Any, names: Sequence[str]) -> dict[str, Row]:
    """A row for each program; one that failed says why."""
    tries: dict[str, list[Any]] = {name: [] for name in names}
    rows: dict[str, Row] = {}
    for round_ in range(bench.args.repeats + (not bench.args.cold)):
        counts = bench.args.cold or round_ > 0
        for name in names:
            if name in rows:
                continue
            try:
                turns = bench.turns(name)
            except Failed as error:
                rows[name] = {"failed": str(error)}
                common.progress(f"{name}: {error}")
                continue
            if counts:
                tries[name].append(turns)
            common.progress(f"{name}: {bench.told(turns)}{'' if counts else ' (does not count)'}")
    return {name: rows[name] if name in rows else bench.row(name, tries[name]) for name in names}


def show(rows: Mapping[str, Row], figures: Sequence[str], others: Sequence[str]) -> None:
    """A table, the least of the first figure first."""
    from rich.console import Console
    from rich.table import Table

    table = Table("program", box=None)
    for column in figures:
        table.add_column(column.replace("_", " "), justify="right")
    for column in (*others, "results"):
        table.add_column(column.replace("_", " "))
    for name, r in sorted(rows.items(), key=lambda item: item[1].get(figures[0], 0.0)):
        if "failed" in r:
            table.add_row(name, *[""] * (len(figures) + len(others)), "failed")
            continue
        shown = [f"{r[c]:.2f}" if c in r else "" for c in figures]
        error = max(value for key, value in r.items() if key.startswith("error"))
        same = "WRONG" if r.get("wrong") else f"{error:.1g} off" if error else "the same"
        table.add_row(name, *shown, *(r[c] for c in others), same)
    console = Console()
    console.width = max(console.width, 120)
    console.print(table)


def arguments() -> argparse.Namespace:
    parser = common.parser(__doc__, TRIES)
    parser.set_defaults(repeats=None)
    parser.add_argument("--devices", metavar="WHICH", help="as for manycl (default: those of Queue())")
    parser.add_argument("--plain", metavar="WHICH", help="of which plain PyOpenCL has the best (default: the same)")
    parser.add_argument("--by-hand", action="store_true", help="all devices against the best one and against a hand")
    parser.add_argument("--kept", action="store_true", help="manycl's arrays of inputs are kept, and set each time")
    parser.add_argument("--size", choices=SIZES, default="small", help="large is for GPUs (default small)")
    parser.add_argument("--only", metavar="NAMES", type=chosen, help="these programs, separated by commas")
    parser.add_argument("--list", action="store_true", help="name the programs")
    parser.add_argument("--cold", action="store_true", help="every process finds nothing on disk")
    parser.add_argument("--worker", metavar="TASK", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.repeats = args.repeats or (1 if args.quick else TRIES)
    return args


def chosen(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in PROGRAMS]:
        raise argparse.ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    return names


def main() -> None:
    args = arguments()
    if args.worker:
        serve(Task(**json.loads(args.worker)))
        return
    if args.list:
        for name, entry in PROGRAMS.items():
            print(f"{name:22} {' '.join((entry.kind.__doc__ or '').split())}")
        return
    names = args.only or (FEW if args.quick else list(PROGRAMS))
    if args.by_hand:
        names = [name for name in names if issubclass(PROGRAMS[name].kind, Divisible)]
    with tempfile.TemporaryDirectory(prefix="manycl-everyday-") as folder:
        prepare()  # what starts without manycl finds the drivers by the environment
        bench: Bench | DividedBench = (DividedBench if args.by_hand else Bench)(args, Path(folder))
        command = " ".join(["python benchmarks/everyday.py", *sys.argv[1:]])
        made = provenance.made(command, bench.machine, simulated=False)
        rows = measure(bench, names)
        figures = bench.figures(rows)
    failed, wrong = ([name for name, r in rows.items() if what in r] for what in ("failed", "wrong"))
    figures |= {"failed": failed, "wrong": wrong, "size": args.size, "tries": args.repeats}
    figures["devices"] = [d.name for d in bench.machine.devices]
    figures["disk"] = "cold: every process finds it empty" if args.cold else "warm: filled by a round before"
    if not args.json:
        show(rows, *bench.columns())
    common.report(args, figures, {"made": made, "programs": rows})
    if failed or wrong:
        sys.exit(1)


if __name__ == "__main__":
    main()
