"""What each kind of command costs a PyOpenCL program that is not changed: by plain PyOpenCL, and by `manycl exec`.

One program (`foreign_programs/commands.py`) makes many calls of each kind, in processes of its own, plain and exec in
turns. For each kind: us that a call takes of plain's and of exec's time by the clock, and what exec takes beyond
plain's (`extra`): the least of all rounds, which other programs disturb least, and (`median`) the median of the
processes' medians. `extra_thread`: likewise the least of the calling thread's processor time; where many bytes move,
that says nothing, as plain's driver has a thread of its own copy them. A call of some kinds is several commands
(`commands`): `extra_each` is `extra` for one of them. Figures, the most of any kind: extra_worst_us (of a call),
extra_each_worst_us (of a command), extra_median_worst_us, extra_thread_worst_us (of kinds that move no more than 4
KiB).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import common

PROGRAM = Path(__file__).parents[1] / "foreign_programs" / "commands.py"


def run(prefix: list[str], env: dict[str, str], rounds: int, only: str) -> dict[str, Any]:
    words = [*prefix, str(PROGRAM), str(rounds), only]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def environment() -> dict[str, str]:
    """What drivers need is there for plain PyOpenCL, too."""
    import manycl

    manycl.devices()
    return dict(os.environ)


def row(plain: list[list[float]], ours: list[list[float]]) -> dict[str, float]:
    """Of one kind, by what the processes have told: commands, median, least and the thread's least."""
    commands = int(plain[0][0])
    medians = [statistics.median(told[1] for told in side) for side in (plain, ours)]
    least, thread = ([min(told[i] for told in side) for side in (plain, ours)] for i in (2, 3))
    values = {
        "commands": commands,
        "plain": least[0],
        "exec": least[1],
        "extra": least[1] - least[0],
        "extra_each": (least[1] - least[0]) / commands,
        "extra_median": medians[1] - medians[0],
        "plain_thread": thread[0],
        "exec_thread": thread[1],
        "extra_thread": thread[1] - thread[0],
    }
    return {key: round(value, 2) for key, value in values.items()}


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--devices", default="", help="what exec is given (default: all)")
    parser.add_argument("--only", default="", metavar="NAMES", help="these kinds, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of a process and kind (default 15)")
    args = parser.parse_args()
    env = environment()
    devices = ["--devices", args.devices] if args.devices else []
    exec_ = [sys.executable, "-m", "manycl", "exec", *devices, "--", sys.executable]
    plain = [sys.executable, str(PROGRAM.with_name("plain.py"))]
    plains: list[dict[str, Any]] = []
    ours: list[dict[str, Any]] = []
    for _ in range(args.repeats):
        for prefix, found in ((plain, plains), (exec_, ours)):
            told = run(prefix, env, args.rounds, args.only)
            assert (told["platform"] == "manycl") == (prefix is exec_), told["platform"]
            found.append(told["kinds"])
    rows = {name: row([p[name] for p in plains], [o[name] for o in ours]) for name in plains[0]}
    for name, values in rows.items() if not args.json else ():
        print(f"{name:20}" + "".join(f"  {key} {value:.1f}" for key, value in values.items()), flush=True)
    small = [values for name, values in rows.items() if "1mb" not in name]
    figures = {
        "extra_worst_us": max(values["extra"] for values in rows.values()),
        "extra_each_worst_us": max(values["extra_each"] for values in rows.values()),
        "extra_median_worst_us": max(values["extra_median"] for values in rows.values()),
        "extra_thread_worst_us": max((values["extra_thread"] for values in small), default=0.0),
    }
    common.report(args, figures, {"kinds": rows, "devices": args.devices})


if __name__ == "__main__":
    main()
