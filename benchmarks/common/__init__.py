"""What the benchmarks share: their command line, and one JSON object at the end."""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def parser(description: str | None, repeats: int = 7) -> argparse.ArgumentParser:
    """``--json`` prints only the JSON object; ``--output FILE`` writes it as well; ``--quick``: everything once, as
    small as it can be, to see that it runs."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(description=description, formatter_class=raw)
    made.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    made.add_argument("--output", metavar="FILE", help="write the JSON object to a file too")
    made.add_argument("--repeats", type=int, default=repeats, help=f"of each figure (default {repeats})")
    made.add_argument("--quick", action="store_true", help="small sizes: whether everything runs")
    return made


def parse(description: str | None) -> argparse.Namespace:
    """The command line of a benchmark that has no options of its own."""
    args = parser(description).parse_args()
    args.repeats = 1 if args.quick else args.repeats
    return args


def chosen(package: str) -> None:
    """Run the benchmark of a package that the first word of the command line names, with the words behind it."""
    there = sorted(path.stem for path in (Path(__file__).parents[1] / package).glob("[!_]*.py"))
    name = sys.argv[1] if sys.argv[1:] else ""
    if name not in there:
        sys.exit(f"{Path(sys.argv[0]).name} NAME [OPTION ...], where NAME is one of {', '.join(there)}")
    sys.argv[:2] = [f"{sys.argv[0]} {name}"]
    importlib.import_module(f"{package}.{name}").main()


def report(args: argparse.Namespace, figures: dict[str, Any], details: Mapping[str, Any] | None = None) -> None:
    """Print the figures: keys as the project's issues and documents name them. ``details`` are only in the JSON."""
    rounded = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in figures.items()}
    whole = {**rounded, **(details or {})}
    if args.json:
        print(json.dumps(whole))
    else:
        for name, value in rounded.items():
            print(f"{name:32} {value}")
    if args.output:
        with open(args.output, "w", encoding="utf-8") as file:
            json.dump(whole, file, indent=1)


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(work: Callable[[], float], repeats: int) -> float:
    """The median of several measurements, each given by ``work`` itself."""
    return statistics.median(work() for _ in range(repeats))


def progress(text: str) -> None:
    """To the standard error, at once: also where that is a file, so that what was cut short says how far it came."""
    print(text, file=sys.stderr, flush=True)
