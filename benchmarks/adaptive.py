"""How near the adapted split comes to the best one, how soon, and how it follows a load that drifts.

On two one-core sub-devices of the CPU, alike and with one four times slower (``--devices`` for others). For each
benchmark of Libsplit's (Section 7): within_oracle_percent, how much longer the slowest device takes with the split that
``adaptive`` has after eight repetitions than with the best split found by measuring; iterations: after how many
repetitions it was within 3 % of that. drift_imbalance_percent: with the N-body whose crowd moves, how much longer than
the mean the slowest device takes, from the third repetition on, at most. decide_us: the processor's time of deciding,
once prepared, per kernel.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import common

from manycl.bench.libsplit import real
from manycl.bench.libsplit.registry import APPLICATIONS
from manycl.front.queue import Queue
from manycl.plan.policies.adaptive import Adaptive

DEVICES = ("cpu/2", "cpu/2#0,cpu/2#1@4")
DECISIONS = 300


def decide_us(devices: str) -> float:
    """Microseconds that a kernel's measurements take to be looked at, and to find that the plan is still right."""
    with Queue(devices) as queue:
        bench = real.Bench(APPLICATIONS["Jacobi2D"].make(256), queue)
        policy = Adaptive()
        prepared = bench.prepared(policy, {"first": "uniform"})
        result = prepared.run()
        measured = [(m.step.node, m.device, m.seconds) for m in result.measured()]
        policy.plan(queue.session.problem(bench.graph))
        taken = []
        for _ in range(DECISIONS):
            start = time.process_time()
            policy.observe(bench.graph, measured)
            policy.settled(bench.graph)
            taken.append(time.process_time() - start)
        return 1e6 * statistics.median(taken) / len(bench.graph)


def arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--devices", action="append", help="instead of the two pairs; may be repeated")
    parser.add_argument("--applications", help="some of them, separated by commas")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    names = tuple(args.applications.split(",")) if args.applications else tuple(APPLICATIONS)
    settings = real.Settings(names=names, turns=max(1, args.repeats))
    figures: dict[str, Any] = {}
    worst = {"within_oracle_percent": 0.0, "iterations": 0, "drift_imbalance_percent": 0.0}
    for devices in args.devices or DEVICES:
        for name in names:
            row = real.measure(name, devices, settings)
            common.progress(f"{devices} {name}: {row['within_oracle_percent']:.1f} %, {row['iterations']}")
            for key in ("within_oracle_percent", "iterations", "adaptive_speedup", "oracle_speedup"):
                figures[f"{devices} {name} {key}"] = row[key]
            for key in ("within_oracle_percent", "iterations"):
                worst[key] = max(worst[key], row[key])
        drift = real.drifting(devices, settings)["drift_imbalance_percent"]
        figures[f"{devices} drift_imbalance_percent"] = drift
        worst["drift_imbalance_percent"] = max(worst["drift_imbalance_percent"], drift)
    common.report(args, {**worst, "decide_us": decide_us(DEVICES[0]), **figures, "repeats": args.repeats})


if __name__ == "__main__":
    main()
