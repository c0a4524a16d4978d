"""What testing from outside found wrong, run again: one key a reproduction, and how many ended how.

Each reproduction is a small program in a process of its own (``found_cases/``). It is ``right``, ``wrong`` (a result, a
plan or a message is not what it must be), ``crashed`` (an exception that is none of manycl's, or a signal), ``hung`` or
``refused`` (something valid was). ``wrong``, ``crashed``, ``hung`` and ``refused`` are their numbers: all 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import Any

import common
from found_cases.case import CASES, Case, Refused, Wrong

OUTCOMES = {0: "right", 3: "wrong", 4: "refused"}


def load() -> None:
    """Register all cases."""
    from found_cases import messages, processes, results, science, stopped

    _ = messages, processes, results, science, stopped


def run_here(name: str) -> int:
    """One reproduction, in this process; the exit status says how it ended."""
    try:
        CASES[name].body()
    except Wrong as error:
        print(f"wrong: {error}", file=sys.stderr)
        return 3
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 4
    return 0


def run_apart(case: Case, loudly: bool) -> str:
    """How one reproduction ends in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="manycl-found-") as data:
        apart = {"MANYCL_MODELS": "0", "MANYCL_DATA": data, "POCL_MAX_PTHREAD_COUNT": "4"}
        environment = (
            {n: v for n, v in os.environ.items() if not n.startswith("MANYCL_")} | apart | dict(case.environment)
        )
        command = [sys.executable, __file__, "--case", case.name]
        try:
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=case.seconds)
        except subprocess.TimeoutExpired:
            return "hung"
    outcome = OUTCOMES.get(ended.returncode, "crashed")
    if outcome != "right" and loudly:
        common.progress(ended.stderr.strip()[-1500:])
    return outcome


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--case", metavar="NAME", help="run one reproduction in this process")
    parser.add_argument("--only", metavar="TEXT", default="", help="only those whose name contains TEXT")
    args = parser.parse_args()
    load()
    if args.case:
        sys.exit(run_here(args.case))
    figures: dict[str, Any] = {}
    for case in CASES.values():
        if args.only in case.name:
            figures[case.name] = run_apart(case, loudly=not args.json)
            common.progress(f"{case.name}: {figures[case.name]}")
    outcomes = list(figures.values())
    for outcome in ("wrong", "crashed", "hung", "refused"):
        figures[outcome] = outcomes.count(outcome)
    common.report(args, figures)
    if any(outcome != "right" for outcome in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
