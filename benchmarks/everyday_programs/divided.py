"""Programs on several devices: the best single device, all devices, and what somebody divides evenly by hand."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from everyday_programs.processes import BLOCKS, GIVE_UP, RUNS, Worker, environment, place
from everyday_programs.program import PROGRAMS
from everyday_programs.worker import TOLERANCE, Task, opencl_devices
from manycl import flags
from manycl.device_syntax import parse
from manycl.drivers.choice import open_devices

FIGURES: dict[str, Callable[[Sequence[float]], float]] = {
    "first": lambda seconds: seconds[0],
    "third": lambda seconds: seconds[2],
    "ten": lambda seconds: sum(seconds[:10]),
    "twenty": lambda seconds: sum(seconds[:RUNS]),
    "steady": lambda seconds: statistics.median(seconds[7:RUNS]),
}
steady = FIGURES["steady"]
WORTH = 1.1
"""Times as fast as one device: a hand that gains less gains nothing of which a share could be told from noise."""


@dataclass
class DividedTurns:
    """Seconds of one try: of the runs on single devices, on all, and by hand; how far the results of the latter two are
    off."""

    single: dict[str, list[float]]
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"all": [], "hand": []})
    errors: dict[str, float] = field(default_factory=dict)

    def best(self) -> str:
        """The single device that is fastest, of those that were not given up."""
        return min((s for s in self.single if len(self.single[s]) >= RUNS), key=lambda s: steady(self.single[s]))


class DividedBench:
    """The programs that somebody has divided, on devices: ``folder`` is for results, and for what is left on disk
    unless each process is cold."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.machine = open_devices(args.devices)[0]
        if len(self.machine.devices) < 2:
            raise SystemExit("--by-hand needs more than one device: --devices gpu, or --devices cpu/2")
        self.singles = single_devices(args.devices)
        self.by_hand = args.plain or args.devices
        hands = opencl_devices(open_devices(self.by_hand)[1])
        ours = {(device.platform, device.model) for device in self.machine.devices}
        shown = {(device.platform.name, device.name) for device in hands}
        self.exactly = {"all": len(ours) == 1, "hand": len(ours | shown) == 1}

    def turns(self, name: str) -> DividedTurns:
        """One try of a program; the processes take turns, so that whatever else the machine does disturbs all alike."""
        results = str(self.folder / "results")
        with ExitStack() as stack:

            def worker(devices: str | None, way: str) -> Worker:
                task = Task(name, self.args.size, devices, way, results, kept=self.args.kept)
                return stack.enter_context(Worker(task, environment(place(self.folder, self.args.cold, stack))))

            singles = {name: worker(selector, "manycl") for name, selector in self.singles.items()}
            several = {"all": worker(self.args.devices, "manycl"), "hand": worker(self.by_hand, "hand")}
            for one in (*singles.values(), *several.values()):
                one.built()
            out, asked = DividedTurns({single: [] for single in singles}), dict(singles)
            for block in BLOCKS:
                for way, one in several.items():
                    out.seconds[way] += one.ask(f"run {block}")
                for single, one in asked.items():
                    out.single[single] += one.ask(f"run {block}")
                least = min(out.single[s][1] for s in asked)
                asked = {s: one for s, one in asked.items() if out.single[s][1] <= GIVE_UP * least}
            singles[out.best()].ask("save")
            for way, one in several.items():
                (out.errors[way],) = one.ask("compare")
            for one in (*singles.values(), *several.values()):
                one.end()
        return out

    @staticmethod
    def told(turns: DividedTurns) -> str:
        """A try, in words."""
        ways = {"single": turns.single[turns.best()], **turns.seconds}
        return ", ".join(f"{way} {1e3 * steady(seconds):.2f} ms" for way, seconds in ways.items())

    def row(self, name: str, tries: Sequence[DividedTurns]) -> dict[str, Any]:
        """The figures of one program: medians of the tries."""
        found: dict[str, Any] = {"single_on": statistics.mode(t.best() for t in tries)}
        for figure, of in FIGURES.items():
            found[f"{figure}_single_ms"] = 1e3 * statistics.median(of(t.single[t.best()]) for t in tries)
            for way in ("all", "hand"):
                found[f"{figure}_{way}_ms"] = 1e3 * statistics.median(of(t.seconds[way]) for t in tries)
        single, every, hand = (found[f"steady_{way}_ms"] for way in ("single", "all", "hand"))
        found |= {"ratio": single / every, "ratio_hand": single / hand}
        if found["ratio_hand"] >= WORTH:
            found["share"] = (single - every) / (single - hand)
        for way, exactly in self.exactly.items():
            error = found[f"error_{way}"] = max(t.errors[way] for t in tries)
            if error > (0.0 if PROGRAMS[name].kind.exact and exactly else TOLERANCE):
                found["wrong"] = True
        last = tries[-1]
        found["runs_ms"] = {
            way: [float(f"{1e3 * s:.4g}") for s in seconds]
            for way, seconds in {"single": last.single[last.best()], **last.seconds}.items()
        }
        return {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in found.items()}

    def figures(self, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The flat figures over all programs that ended."""
        out: dict[str, Any] = {}
        for figure in ("ratio", "ratio_hand", "share"):
            values = {name: r[figure] for name, r in rows.items() if figure in r}
            if values:
                worst = min(values, key=values.__getitem__)
                out |= {f"{figure}_worst": values[worst], f"{figure}_worst_program": worst}
                out[f"{figure}_median"] = statistics.median(values.values())
        return out

    @staticmethod
    def columns() -> tuple[Sequence[str], Sequence[str]]:
        """Those of the table: figures with two decimals, and others."""
        times = ["twenty_single_ms", "twenty_all_ms", "steady_single_ms", "steady_all_ms", "steady_hand_ms"]
        return ["ratio", "ratio_hand", "share", *times], ["single_on"]


def single_devices(devices: str | None) -> dict[str, str]:
    """Names of devices and what selects each: of those that are alike, one."""
    found: dict[tuple[str, str, int, float], tuple[str, str]] = {}
    for item in parse(devices or flags.devices()):
        for device in open_devices(str(item))[0].devices:
            root, _, part = device.name.partition(".")
            alone = replace(item, selector=root, parts=(int(part), int(part)) if part else None)
            key = device.platform, device.model, device.compute_units, item.factor
            found.setdefault(key, (device.name, str(alone)))
    return dict(found.values())
