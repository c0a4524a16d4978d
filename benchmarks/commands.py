"""What each kind of command costs a PyOpenCL program that is not changed: by plain PyOpenCL, and by `manycl exec`.

One program (`commands_program.py`) makes many calls of each kind, in processes of its own, plain and exec in turns. For
each kind: us that a call takes of plain's and of exec's time, and of the calling thread's processor time (`thread`),
the medians of the processes' medians; `extra`: what exec takes beyond plain's, by the clock; `extra_thread`: of the
thread's time, which other programs disturb less. Figures: extra_worst_us, extra_thread_worst_us: the most of any kind.
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

PROGRAM = Path(__file__).with_name("commands_program.py")


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


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--devices", default="", help="what exec is given (default: all)")
    parser.add_argument("--only", default="", metavar="NAMES", help="these kinds, separated by commas")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of a process and kind (default 15)")
    args = parser.parse_args()
    env = environment()
    devices = ["--devices", args.devices] if args.devices else []
    exec_ = [sys.executable, "-m", "manycl", "exec", *devices, "--", sys.executable]
    plains: list[dict[str, Any]] = []
    ours: list[dict[str, Any]] = []
    for _ in range(args.repeats):
        for prefix, found in (([sys.executable], plains), (exec_, ours)):
            told = run(prefix, env, args.rounds, args.only)
            assert (told["platform"] == "manycl") == (prefix is exec_), told["platform"]
            found.append(told["kinds"])
    rows: dict[str, dict[str, float]] = {}
    for name in plains[0]:
        plain, thread = (statistics.median(p[name][i] for p in plains) for i in (0, 1))
        other, own = (statistics.median(p[name][i] for p in ours) for i in (0, 1))
        values = {
            "plain": plain,
            "exec": other,
            "extra": other - plain,
            "plain_thread": thread,
            "exec_thread": own,
            "extra_thread": own - thread,
        }
        rows[name] = {key: round(value, 2) for key, value in values.items()}
        if not args.json:
            print(f"{name:22}" + "".join(f"{key:>14} {value:7.1f}" for key, value in rows[name].items()), flush=True)
    figures = {
        "extra_worst_us": max(row["extra"] for row in rows.values()),
        "extra_thread_worst_us": max(row["extra_thread"] for row in rows.values()),
    }
    common.report(args, figures, {"kinds": rows, "devices": args.devices})


if __name__ == "__main__":
    main()
