"""How near the adapted split comes to the best one, how soon, and how it follows a load that drifts.

On two one-core sub-devices of the CPU, alike and with one four times slower (``--devices`` for others, with GPUs at
large sizes). For a few benchmarks of Libsplit's (Section 7) that differ in what bounds them, two seconds each, which
ends within five minutes on two cores; with ``--all`` for every one of them, eight seconds each, which takes a quarter
of an hour and more. Told are: within_oracle_percent, how much longer the slowest device takes (its kernels, and what
it waits for data) with the split that ``adaptive`` has after eight repetitions than with the best split found by
measuring, both measured again in turns; iterations: after how many repetitions it was within 3 % of that; settled: the
same, and it stayed so (one time that is disturbed may lead it away for a while). It adapts from the start five times,
and what is told is the median of these.
drift_imbalance_percent: with the N-body whose crowd moves, how much longer than the mean the slowest device takes, from
the third repetition on, at most. decide_us: the processor's
time of deciding, once prepared, per kernel; relook_us: where times are news. The file of ``--output`` has all that was
tried and measured; it is written after each application. POCL_AFFINITY=1 binds PoCL's threads to cores, and times
scatter less; it must not have more threads than there are cores.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import common

from manycl.api.queue import Queue
from manycl.plan.policies.adaptive import Adaptive
from manycl_bench.libsplit import real
from manycl_bench.libsplit.registry import APPLICATIONS

DEVICES = ("cpu/2", "cpu/2#0,cpu/2#1@4")
DECISIONS = 300
FEW = ("AESEncrypt", "SPMV", "GEMM", "COVAR", "Jacobi2D")
"""A cipher, a load that rises and depends on contents, products, triangles, and two kernels that hand data on."""
QUICK, LONG = 2.0, 8.0
"""Seconds for each benchmark."""


def decide_us(devices: str) -> tuple[float, float]:
    """Microseconds per kernel that an execution's times take to be looked at when they are as foreseen, and when they
    are not (most of the time then goes by other ways: a new plan is made)."""
    with Queue(devices) as queue:
        bench = real.Bench(APPLICATIONS["Jacobi2D"].make(256), queue)
        policy = Adaptive()
        result = bench.prepared(policy, {"first": "uniform"}).run()
        measured = [(m.step.node, m.device, m.seconds) for m in result.measured()]
        policy.plan(bench.problem)
        found = []
        for scale in (1.0, 2.0):
            taken = []
            for turn in range(DECISIONS):
                now = [(n, d, s * (1.0 + d * turn % 2 * (scale - 1.0))) for n, d, s in measured]
                start = time.process_time()
                policy.observe(bench.graph, now)
                settled = policy.settled(bench.graph)
                taken.append(time.process_time() - start)
                if not settled:
                    policy.plan(bench.problem)
            found.append(statistics.median(taken) if scale == 1.0 else max(taken[DECISIONS // 2 :]))
        return 1e6 * found[0] / len(bench.graph), 1e6 * found[1] / len(bench.graph)


def arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.set_defaults(repeats=300)
    parser.add_argument("--devices", action="append", help="instead of the two pairs; may be repeated")
    parser.add_argument("--all", action="store_true", help="all benchmarks, for longer: a quarter of an hour and more")
    parser.add_argument("--applications", type=applications, help="those that are named, separated by commas")
    parser.add_argument("--seconds", type=float, help="for each of them (default 2, with --all 8)")
    parser.add_argument("--drifting", type=int, default=30, help="repetitions while the load drifts (default 30)")
    return parser.parse_args()


def applications(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := [name for name in names if name not in APPLICATIONS]:
        raise argparse.ArgumentTypeError(f"no application {', '.join(unknown)}; there are {', '.join(APPLICATIONS)}")
    return names


def has_gpu(devices: str) -> bool:
    with Queue(devices) as queue:
        return any(d.kind == "gpu" for d in queue.session.machine.devices)


def save(output: str | None, figures: dict[str, Any], details: dict[str, Any]) -> None:
    """What there is so far; the file is whole at any time."""
    if output:
        path = Path(output)
        new = path.with_name(f"{path.name}.new")
        new.write_text(json.dumps({**figures, "details": details}, indent=1), encoding="utf-8")
        new.replace(path)


def main() -> None:
    args = arguments()
    output, args.output = args.output, None
    figures: dict[str, Any] = {}
    details: dict[str, Any] = {}
    worst = {"within_oracle_percent": 0.0, "iterations": 0, "settled": 0, "drift_imbalance_percent": 0.0}
    chosen = args.devices or DEVICES
    names = args.applications or (tuple(APPLICATIONS) if args.all else FEW)
    seconds = LONG if args.all else QUICK
    for devices in chosen:
        settings = real.Settings(
            names=names,
            turns=max(1, args.repeats),
            seconds=seconds if args.seconds is None else args.seconds,
            drifting=args.drifting,
            large=has_gpu(devices),
        )
        rows = details[devices] = {}
        for name in names:
            row = rows[name] = real.measure(name, devices, settings)
            behind, reached, settled = row["within_oracle_percent"], row["iterations"], row["settled"]
            common.progress(f"{devices} {name}: {behind:.1f} % behind; 3 % reached in {reached}, settled in {settled}")
            for key in ("within_oracle_percent", "iterations", "settled", "adaptive_speedup", "oracle_speedup"):
                figures[f"{devices} {name} {key}"] = row[key]
            for key in ("within_oracle_percent", "iterations", "settled"):
                worst[key] = max(worst[key], row[key])
            save(output, {**worst, **figures}, details)
        drift = rows["drifting"] = real.drifting(devices, settings)
        common.progress(f"{devices} drifting: {drift['drift_imbalance_percent']:.1f} % imbalance")
        figures[f"{devices} drift_imbalance_percent"] = drift["drift_imbalance_percent"]
        worst["drift_imbalance_percent"] = max(worst["drift_imbalance_percent"], drift["drift_imbalance_percent"])
    deciding, looking = decide_us(chosen[0])
    figures = {**worst, "decide_us": deciding, "relook_us": looking, **figures, "repeats": args.repeats}
    common.report(args, figures)
    save(output, figures, details)
