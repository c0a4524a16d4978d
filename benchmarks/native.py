"""Native devices beside PoCL, Intel's runtime, loops written by hand, and NumPy: kernels, their results checked.

The kernels: four that differ in what makes them fast, those of Libsplit's experiments, and some like PolyBench's
(``native_kernels``). Times are CPU seconds of all threads, the least of several, since machines are shared; each way
has a process of its own, first with one core, then with all. ``kernels`` in the JSON has a row for each.

Above 1, native devices are faster: hand_cut_least, the least of the four against loops written by hand, compiled by the
same clang; over_intel_geomean, over_pocl_geomean, over_pocl_least: of all kernels against these runtimes with plain
PyOpenCL. All of these are on one core; ``_all``: on all cores. blas_share: a naive product of 2048 x 2048, against
NumPy's, both on all cores. wrong: kernels whose results differ from NumPy's; failed: those that gave none. compile_ms,
cached_ms: a program, from its source until all of its kernels may be launched, compiled anew and found in the cache, by
a process that has built another one: on the clock, the medians. enqueue_us, little_us, range_us: as
``devices.py native_runtime`` says. corpus_share, with --corpus: the kernels of the tests' corpus that
are compiled natively. --quick: small sizes, for tests. Runtimes that are not installed have no figures.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import common
from devices_figures import native_runtime
from native_kernels.measured import BLAS, CASES, FOUR, PLATFORMS, Task, serve

from manycl.drivers.driver import DriverError, Source
from manycl.drivers.native.compiler import clang
from manycl.drivers.opencl.icd import prepare

SECONDS = 1800.0
"""After which a process counts as hung."""
Rows = dict[tuple[str, str, str, int], dict[str, Any]]
"""By application, kernel, way, and number of cores."""


def arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--only", metavar="NAMES", help=f"of: {', '.join(CASES)}")
    parser.add_argument("--corpus", action="store_true", help="how much of the tests' corpus is compiled natively")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.names = args.only.split(",") if args.only else list(CASES)
    if unknown := [name for name in args.names if name not in CASES]:
        parser.error(f"there are no kernels {', '.join(unknown)}")
    return args


def installed() -> list[str]:
    """The runtimes that are here."""
    prepare()
    import pyopencl as cl

    platforms = [p.name for p in cl.get_platforms()]
    return [way for way, name in PLATFORMS.items() if any(p.startswith(name) for p in platforms)]


def environment(folder: Path, cores: int) -> dict[str, str]:
    """The user's own, but nothing is found that an earlier run has compiled, and libraries use so many threads."""
    env = dict(os.environ)
    for variable in ("MANYCL_CACHE", "POCL_CACHE_DIR", "XDG_CACHE_HOME"):
        env[variable] = str(folder / variable)
        Path(env[variable]).mkdir(exist_ok=True)
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "POCL_MAX_PTHREAD_COUNT"):
        env[variable] = str(cores)
    env |= {"PYOPENCL_NO_CACHE": "1", "PYOPENCL_COMPILER_OUTPUT": "0"}
    env.pop("MANYCL_THREADS", None)
    return env


def measure(args: argparse.Namespace, folder: Path) -> Rows:
    """Every way in a process of its own, on one core and on all."""
    rows: Rows = {}
    some = [name for name in args.names if name in (*FOUR, BLAS)]
    own = [name for name in args.names if name != BLAS]
    allowed = sorted(os.sched_getaffinity(0))
    for cores in sorted({1, len(allowed)}):
        for way in ("native", *installed(), "hand", "numpy"):
            names = {"native": own, "hand": [n for n in some if n != BLAS], "numpy": some}.get(way, own)
            if way == "native" and BLAS in some and cores == len(allowed):
                names = [*own, BLAS]
            if not names or (way == "hand" and cores > 1):
                continue
            task = Task(way, names, args.quick, args.repeats, str(folder))
            for row in told(task, environment(folder, cores), allowed[:cores]):
                rows[row["application"], row["kernel"], way, cores] = row
                shown = f"{1e3 * row['cpu_s']:.2f} ms" if "cpu_s" in row else row["failed"]
                common.progress(f"{row['application']}, {row['kernel']}: {way} on {cores}: {shown}")
    return rows


def told(task: Task, env: dict[str, str], cores: list[int]) -> Iterator[dict[str, Any]]:
    """The rows of a process, as they come."""
    command = [sys.executable, __file__, "--worker", json.dumps(asdict(task))]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if process.returncode:
        found = f"its process ended with {process.returncode}"
        yield {"way": task.way, "application": "others", "kernel": "", "failed": found}


def speedups(rows: Rows, way: str, cores: int) -> dict[str, float]:
    """How many times the CPU time of native devices another way takes, by kernel."""
    found = {}
    for (application, kernel, of, on), row in rows.items():
        other = rows.get((application, kernel, way, cores), {})
        if of == "native" and on == cores and "cpu_s" in row and "cpu_s" in other:
            found[f"{application}, {kernel}"] = other["cpu_s"] / max(row["cpu_s"], 1e-9)
    return found


def summary(rows: Rows, cores: int) -> dict[str, Any]:
    """The figures over all kernels."""
    out: dict[str, Any] = {"kernels_measured": len({key[:2] for key in rows})}
    if hand := speedups(rows, "hand", 1):
        least = min(hand, key=hand.__getitem__)
        out |= {"hand_cut_least": hand[least], "hand_cut_least_kernel": least}
    for way in PLATFORMS:
        for on, suffix in ((1, ""), (cores, "_all")):
            if found := speedups(rows, way, on):
                least = min(found, key=found.__getitem__)
                out[f"over_{way}_geomean{suffix}"] = statistics.geometric_mean(found.values())
                out |= {f"over_{way}_least{suffix}": found[least], f"over_{way}_least_kernel{suffix}": least}
    if blas := [value for name, value in speedups(rows, "numpy", cores).items() if name.startswith(BLAS)]:
        out["blas_share"] = blas[0]
    for key, on in (("compile_ms", 1), *([("cached_ms", cores)] if cores > 1 else ())):
        found_ms = {a: r["build_ms"] for (a, _, _, n), r in rows.items() if n == on and "build_ms" in r}
        if found_ms:
            out[key] = statistics.median(found_ms.values())
    out["wrong"] = sorted({f"{a}, {k}: {way}" for (a, k, way, _), row in rows.items() if row.get("wrong")})
    out["failed"] = sorted({f"{a}, {k}: {way}" for (a, k, way, _), row in rows.items() if "failed" in row})
    return out


def runtime(repeats: int) -> dict[str, float]:
    with native_runtime.opened() as driver:
        bench = native_runtime.Bench(driver)
        for _ in range(3):
            bench.chain()
        enqueue = min(bench.chain()[0] for _ in range(repeats))
        return {
            "enqueue_us": 1e6 * enqueue,
            "little_us": 1e6 * min(bench.one(1, 0.0, 500) for _ in range(repeats)),
            "range_us": 1e6 * min(bench.ranges() for _ in range(repeats)),
        }


def corpus() -> dict[str, Any]:
    """Of the kernels and launches of the tests' corpus, which are compiled natively."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    cases = importlib.import_module("tests.analysis.kernel_corpus").CASES

    from manycl.drivers.native.devices import found_with
    from manycl.drivers.native.program import build

    device = found_with(build).device
    refused: dict[str, str] = {}
    for case in cases:
        try:
            kernel = build(Source(case.source, case.options), device).kernel(case.name)
            reason = kernel.refused
        except DriverError as error:
            reason = error
        if reason is not None:
            refused[case.name] = str(reason).splitlines()[0][:200]
    return {"corpus_share": 1 - len(refused) / len(cases), "corpus_refused": refused}


def main() -> None:
    args = arguments()
    if args.worker:
        prepare()
        serve(Task(**json.loads(args.worker)))
        return
    try:
        found = clang.find()
        figures = runtime(args.repeats)
    except DriverError as error:
        common.report(args, {"skipped": error.message})
        return
    with tempfile.TemporaryDirectory(prefix="manycl-native-") as name:
        rows = measure(args, Path(name))
    figures |= summary(rows, len(os.sched_getaffinity(0)))
    details: dict[str, Any] = {"clang": found.version, "processor": found.processor}
    if args.corpus:
        share = corpus()
        figures["corpus_share"] = share.pop("corpus_share")
        details |= share
    details["kernels"] = [{"cores": key[3], **row} for key, row in rows.items()]
    common.report(args, figures, details)


if __name__ == "__main__":
    main()
