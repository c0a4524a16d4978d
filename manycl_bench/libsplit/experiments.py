"""Libsplit's Figures 4, 5 and 6, on its two machines, simulated."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from manycl.machine import Machine
from manycl.machine_file import load_machine, shipped_machines
from manycl.plan.policies.adaptive import Adaptive
from manycl.plan.policy import StaticPolicy
from manycl.trace import KernelEvent
from manycl_bench.libsplit import divisions, granularity, own
from manycl_bench.libsplit.application import Application
from manycl_bench.libsplit.divisions import Fixed
from manycl_bench.libsplit.registry import APPLICATIONS
from manycl_bench.libsplit.repeat import repetitions
from manycl_bench.libsplit.simulated import METHODS, Case, auto_over_one_device, learner, policies, seconds_of

Say = Callable[[str], None]
MACHINES = ("conan", "happycl")
SHOWN = ("EP", "AESEncrypt")
"""The applications of Figure 4."""
CALIBRATED: dict[str, Callable[[], Application]] = {
    "EP": partial(own.ep, 352 * own.LOCAL, pairs=1792),
    "AESEncrypt": partial(own.aes, 17_920),
}
"""Sizes that the paper does not tell, so that on conan the peak of the fixed point is Figure 4's: 2.8 for EP, whose few
work-groups a device runs in whole rounds; 2.15 for AESEncrypt, so brief that what every adjustment moves counts. How
many iterations that takes is not calibrated."""
CLOSE = 1.03
"""Within this factor of the oracle's time, the best split is reached."""
LABELS = ("uniform", *METHODS, "estimates", "oracle")
PAPER = {
    "EP": {"speedup": 2.8, "fixed_point": 6, "broyden": 4},
    "AESEncrypt": {"speedup": 2.15, "fixed_point": 3, "broyden": 3},
}
"""What the text of Section 7 says in numbers: speed-up on conan, and iterations to reach it."""


@dataclass(frozen=True)
class Settings:
    """``repetitions`` of Figure 6, of Figure 4, and of Figure 5; ``scale``: sizes are divided by this; ``names``: of
    the applications (none: all)."""

    repetitions: int = 100
    shown: int = 10
    drifting: int = 60
    scale: int = 1
    names: tuple[str, ...] = ()


def machine_file(name: str) -> Machine:
    """One of the machine files that come with the project."""
    return load_machine(shipped_machines()[name])


def case_of(name: str, machine: Machine, settings: Settings) -> Case:
    if name in CALIBRATED:
        return Case(CALIBRATED[name](), machine)
    entry = APPLICATIONS[name]
    return Case(entry.make(max(entry.small, entry.large // settings.scale)), machine)


def shown_case(name: str, machine: Machine) -> Case:
    """An application of Figure 1: EP as in Figure 4, others where no launch is brief, and indices are looked at."""
    entry = APPLICATIONS[name]
    return Case(CALIBRATED[name]() if name == "EP" else entry.make(max(entry.quick, 1 << 19)), machine)


def alone(case: Case, times: int) -> tuple[str, list[float]]:
    """The device that is fastest alone, and the seconds of each repetition there."""
    found = [
        (seconds_of(case, Fixed(divisions.alone(case.problem, d)), times), device.name)
        for d, device in case.machine.numbered()
    ]
    seconds, name = min(found, key=lambda f: sum(f[0]))
    return name, seconds


def settled(seconds: Sequence[float], best: Sequence[float]) -> int | None:
    """After how many repetitions none takes longer than the oracle's by more than CLOSE (None: not within these); the
    first of the oracle's own, which brings the data, is no measure."""
    after = divisions.settled([s > CLOSE * b for s, b in zip(seconds, best, strict=True)])
    return after if after <= len(seconds) else None


def overall(name: str, machine: Machine, settings: Settings) -> dict[str, Any]:
    """A row of Figure 6: speed-ups over the best device, all repetitions together."""
    case = case_of(name, machine, settings)
    times = settings.repetitions
    device, single = alone(case, times)
    row: dict[str, Any] = {"application": name, "best_device": device, "alone_ms": 1e3 * single[-1]}
    seconds: dict[str, list[float]] = {}
    for label, policy, options in policies(case):
        seconds[label] = seconds_of(case, policy, times, options)
        row[f"{label}_speedup"] = sum(single) / sum(seconds[label])
    # when data are where they belong: of the last repetitions, and for the oracle of every one after the first two
    steady = statistics.median(seconds["oracle"][2:])
    best = [steady] * times if case.application.between is None else seconds["oracle"]
    for method in METHODS:
        tail = slice(max(0, times - 10), None)
        row[f"{method}_behind_percent"] = 100.0 * (sum(seconds[method][tail]) / sum(best[tail]) - 1.0)
        row[f"{method}_settled"] = settled(seconds[method], best)
    row["steady_speedup"] = single[-1] / seconds[METHODS[0]][-1]
    row["bound_speedup"] = single[-1] / seconds["oracle"][-1]
    row["pays_after"] = pays_after(seconds[METHODS[0]], single)
    row["auto_once_speedup"] = auto_over_one_device(case)
    row["samples_ms"] = {label: _kept(of) for label, of in {"alone": single, **seconds}.items()}
    return row


def pays_after(seconds: Sequence[float], single: Sequence[float]) -> int | None:
    """After how many repetitions, all together, these are shorter than those on one device, if the last of each go on
    (None: never)."""
    behind = sum(seconds) - sum(single)
    if behind <= 0.0:
        return next(n for n in range(1, len(single) + 1) if sum(seconds[:n]) <= sum(single[:n]))
    gain = single[-1] - seconds[-1]
    return None if gain <= 0.0 else len(single) + math.ceil(behind / gain)


def _kept(seconds: Sequence[float]) -> list[float]:
    """Milliseconds of the repetitions; the last one stands for all like it behind it."""
    ms = [float(f"{1e3 * s:.5g}") for s in seconds]
    while len(ms) > 1 and ms[-1] == ms[-2]:
        ms.pop()
    return ms


def per_iteration(name: str, machine: Machine, settings: Settings) -> dict[str, Any]:
    """Figure 4: speed-up of each repetition over the best device's last one."""
    case = case_of(name, machine, settings)
    device, single = alone(case, settings.shown)
    out: dict[str, Any] = {"application": name, "best_device": device}
    for label, policy, options in policies(case):
        out[label] = [single[-1] / s for s in seconds_of(case, policy, settings.shown, options)]
    return out


def drifting(machine: Machine, settings: Settings) -> dict[str, Any]:
    """Figure 5: seconds of every device's range in every repetition, divided evenly and adapted."""
    case = case_of("NBody", machine, settings)
    chosen: list[tuple[str, StaticPolicy, dict[str, str]]] = [
        ("uniform", Fixed(divisions.parts(case.problem, [1.0] * len(machine.devices))), {})
    ]
    chosen += [(m, *learner(m)) for m in METHODS]
    chosen.append(("estimates", Adaptive(), {}))
    out: dict[str, Any] = {"devices": [d.name for d in machine.devices]}
    for label, policy, options in chosen:
        rows = []
        for r in islice(repetitions(replace(case.problem, options=options), policy, case.seconds), settings.drifting):
            taken = dict.fromkeys(out["devices"], 0.0)
            for event in r.trace.events:
                if isinstance(event, KernelEvent):
                    taken[event.device] += event.end - event.start
            rows.append([1e3 * taken[d] for d in out["devices"]])
        out[label] = rows
        out[f"{label}_imbalance_percent"] = [imbalance(row) for row in rows]
    return out


def imbalance(seconds: Sequence[float]) -> float:
    """How much longer than the mean the slowest device takes, in per cent; devices that do nothing do not count."""
    used = [s for s in seconds if s > 0.0]
    return 100.0 * (max(used) / statistics.mean(used) - 1.0)


def run(settings: Settings, say: Say) -> dict[str, Any]:
    """All experiments: the figures as data."""
    machines = {name: machine_file(name) for name in MACHINES}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, machine in machines.items():
        rows[name] = []
        for application in settings.names or APPLICATIONS:
            row = overall(application, machine, settings)
            say(
                f"{name}: {application}: uniform {row['uniform_speedup']:.2f}x, "
                f"adaptive {row['profile_speedup']:.2f}x, oracle {row['oracle_speedup']:.2f}x"
            )
            rows[name].append(row)
    conan = machines["conan"]
    return {
        "machines": {n: {"name": m.name, "devices": [f"{d.name}: {d.model}" for d in m.devices]} for n, m in
                     machines.items()},
        "settings": vars(settings),
        "granularity": granularity.figures(
            lambda name: granularity.simulated(shown_case(name, conan)), conan, settings.drifting
        ),
        "overall": rows,
        "per_iteration": [per_iteration(n, conan, settings) for n in SHOWN],
        "drifting": drifting(conan, settings),
        "paper": PAPER,
        "summary": summary(rows),
    }  # fmt: skip


def summary(rows: dict[str, list[dict[str, Any]]]) -> dict[str, float | None]:
    """Over both machines: geometric means of speed-ups, and how far behind the oracle each method is at the end."""
    every = [r for of in rows.values() for r in of]
    out: dict[str, float | None] = {
        f"{label}_speedup_geomean": statistics.geometric_mean([r[f"{label}_speedup"] for r in every])
        for label in LABELS
    }
    for method in METHODS:
        out[f"{method}_behind_percent_worst"] = max(r[f"{method}_behind_percent"] for r in every)
        out[f"{method}_behind_percent_median"] = statistics.median(r[f"{method}_behind_percent"] for r in every)
        found = [r[f"{method}_settled"] for r in every if r[f"{method}_settled"] is not None]
        out[f"{method}_settled_median"] = statistics.median(found) if found else None
        out[f"{method}_not_settled"] = float(len(every) - len(found))
    return out
