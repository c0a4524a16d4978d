"""Programs of others, unmodified: with plain PyOpenCL on PoCL, and with `manycl exec`; outputs compared, times in
turns.

foreign.json names the programs: where each is from (its `source`), the file, its arguments. They are not part of the
project: FOLDER holds a folder for each source, and what is not there is left out (docs/foreign_programs.md says how to
fill it). Run it with a Python that has the packages that the programs need, and no OpenCL platform beside PoCL.

Each program runs in processes of its own, by turns plain and exec, in a fresh copy of its source; each process runs it
several times (`foreign_programs/worker.py`), as ``python program.py`` would. Compared, of plain's and exec's processes:
the exit status; the checksums of all that blocking copies and maps brought to the host in the first run; what was
printed, without lines that tell times, rates, addresses or the platform (`drop` in foreign.json, and the program's
own); the names and contents of files that were written. What two processes of plain already differ in is not compared
(and told). Where OpenCL leaves open how a program's results are rounded (products and sums in one step or two,
functions that are only nearly exact), foreign.json says how far its numbers may be apart (`close`, by the largest of
the array or line; of integers what share may differ) and why.

Figures: programs, same (exact: bit for bit), different, failing_both (ended with the same error in both). Of those that
are the same: second_geomean, second_worst: plain's time over exec's, above 1 is faster, each the least time of the runs
after a process's first; building the program is part of a run. first_geomean: the first runs, which import PyOpenCL's
packages, analyse and build. processor_geomean, processor_worst: as second, of the seconds that all threads of the
process took together, which other work on the machine changes less. With several devices: two_devices_geomean: second,
of those that compute (foreign.json says which); plain has one of the devices then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import common
import numpy as np
from foreign_programs.worker import MARK

HERE = Path(__file__).parent
SECONDS = 120.0
"""After which a process counts as hung."""
RUNS, ROUNDS = 3, 2
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
KEPT_APART = shutil.ignore_patterns(".git", "__pycache__", "site-packages")

OWN = """
import numpy as np
import pyopencl as cl
device = next(p for p in cl.get_platforms() if "Oclgrind" not in p.name).get_devices()[0]
ctx = cl.Context([device])
queue = cl.CommandQueue(ctx)
a = np.arange(1024, dtype=np.float32)
buffer = cl.Buffer(ctx, cl.mem_flags.COPY_HOST_PTR, hostbuf=a)
cl.Program(ctx, "kernel void f(global float *a) { a[get_global_id(0)] += 1; }").build().f(queue, a.shape, None, buffer)
cl.enqueue_copy(queue, a, buffer)
print(a.sum())
"""
"""The program of ``--quick``."""


@dataclass(frozen=True)
class Program:
    """An entry of foreign.json: ``name`` of the file in the source's folder; ``module``: what runs it
    (pytest, with the file as its argument); ``path``: more for PYTHONPATH, from the
    file's folder; ``drop``: lines that are not compared; ``drop_files``: files that are not (what they hold, or their
    names, tells times); ``computes``: most of the time is in kernels; ``close``: how far numbers may be apart, ``why``;
    ``unfixed``: why its results may be any (a race, memory that nobody writes), so that only its own checks count."""

    source: str
    name: str
    module: str = ""
    args: tuple[str, ...] = ()
    input: str = ""
    path: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    drop_files: tuple[str, ...] = ()
    computes: bool = False
    close: float = 0.0
    why: str = ""
    unfixed: str = ""

    @property
    def title(self) -> str:
        return " ".join((self.source, self.name, *self.args))


def entry(found: Mapping[str, Any]) -> Program:
    """A program as foreign.json has it."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    return Program(**fields)


@dataclass
class Ended:
    """What a process left: its worker's word, what it printed in its first run, the files that it wrote."""

    told: Mapping[str, Any]
    printed: list[str]
    files: dict[str, str]
    errors: str
    values: dict[str, Any] = field(default_factory=dict)

    def compared(self) -> dict[str, Any]:
        return {
            "exit status": self.told["status"],
            "results": self.told["reads"],
            "output": self.printed,
            "files": self.files,
        }


@dataclass
class Row:
    program: Program
    lines: int
    result: str = ""
    undetermined: list[str] = field(default_factory=list)
    apart: float = 0.0
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Plain's seconds, exec's; ``processor``: of all threads of the process, in the runs after the first."""

    @property
    def ratio(self) -> float:
        return self.second[0] / self.second[1]


def contents(folder: Path) -> dict[str, str]:
    """Checksums of all files, by their names."""
    files = (f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    return {str(f.relative_to(folder)): sha256(f.read_bytes()).hexdigest() for f in files}


def matches(patterns: Sequence[str], text: str) -> bool:
    return any(re.search(pattern, text, re.IGNORECASE) for pattern in patterns)


def first_output(text: str, drop: Sequence[str], folder: Path) -> list[str]:
    """The lines of the first run that are compared."""
    lines = text.partition(f"\n{MARK}")[0].replace(str(folder), "FOLDER").splitlines()
    return [line.rstrip() for line in lines if not matches(drop, line)]


def loaded(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    with np.load(file) as found:
        return {name: found[name] for name in found.files}


class Bench:
    def __init__(self, args: Any, catalogue: Mapping[str, Any], place: Path) -> None:
        self.devices = args.devices
        self.sources = Path(args.folder)
        self.drop = tuple(catalogue["drop"])
        self.place = place
        self.env = {**os.environ, **catalogue["environment"]}
        self.env["POCL_CACHE_DIR"] = str(place / "pocl")
        self.env["XDG_CACHE_HOME"] = str(place / "cache")
        for name in ("pocl", "cache", "data"):
            (place / name).mkdir()
        self.rounds = args.repeats
        self.env |= {"MANYCL_CACHE": str(place / "cache"), "MANYCL_DATA": str(place / "data")}

    def run(self, program: Program, plain: bool) -> Ended:
        """Raises TimeoutExpired."""
        with tempfile.TemporaryDirectory(dir=self.place) as folder:
            work = Path(folder) / "work"
            shutil.copytree(self.sources / program.source, work, ignore=KEPT_APART)
            file = work / program.name
            before = contents(work)
            told = Path(folder) / "told.json"
            task = {
                "plain": plain,
                "program": program.module or file.name,
                "args": [file.name, *program.args] if program.module else program.args,
                "path": program.path,
                "runs": RUNS,
                "told": str(told),
                "values": str(Path(folder) / "values.npz"),
            }
            env = self.env
            if plain and self.devices != "cpu":
                env = env | {"POCL_MAX_PTHREAD_COUNT": "1"}  # a part of the processor, as each of exec's devices is
            words = [sys.executable, str(HERE / "foreign_programs" / "worker.py"), json.dumps(task)]
            if not plain:
                words = [sys.executable, "-m", "manycl", "exec", "--devices", self.devices, "--", *words]
            ended = subprocess.run(
                words,
                cwd=file.parent,
                env=env,
                input=program.input * RUNS,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=SECONDS,
            )
            word = {"status": f"process ended with {ended.returncode}", "reads": [], "seconds": []}
            if told.exists():
                word = json.loads(told.read_text(encoding="utf-8"))
            if bool(word.get("core", plain)) != plain:
                raise RuntimeError(f"{program.title}: the process did not use the PyOpenCL that it should")
            after = {name: sum_ for name, sum_ in contents(work).items() if before.get(name) != sum_}
            if program.drop_files:
                after = {name: sum_ for name, sum_ in after.items() if not matches(program.drop_files, name)}
            printed = first_output(ended.stdout, (*self.drop, *program.drop), work)
            return Ended(word, printed, after, ended.stderr.strip()[-1500:], loaded(Path(folder) / "values.npz"))

    def row(self, program: Program) -> Row:
        text = (self.sources / program.source / program.name).read_text(encoding="utf-8", errors="replace")
        row = Row(program, len(text.splitlines()))
        rounds: list[tuple[Ended, Ended]] = []
        for _ in range(self.rounds):
            try:
                plain = self.run(program, True)
            except subprocess.TimeoutExpired:
                row.result = "plain PyOpenCL does not end"
                return row
            try:
                rounds.append((plain, self.run(program, False)))
            except subprocess.TimeoutExpired:
                row.result = f"different: does not end in {SECONDS:.0f} s"
                return row
        judge(row, rounds)
        if all(len(ended.told["seconds"]) > 1 for both in rounds for ended in both):
            row.first = [min(both[i].told["seconds"][0] for both in rounds) for i in (0, 1)]
            row.second, row.processor = (
                [min(s for both in rounds for s in both[i].told[what][1:]) for i in (0, 1)]
                for what in ("seconds", "processor")
            )
        return row


def judge(row: Row, rounds: Sequence[tuple[Ended, Ended]]) -> None:
    """Fill in what is the same, what is different, and what plain PyOpenCL differs in from itself."""
    plains, others = ([both[i].compared() for both in rounds] for i in (0, 1))
    row.undetermined = [key for key in plains[0] if any(p[key] != plains[0][key] for p in plains)]
    different = {
        key: next(o[key] for o in others if o[key] != plains[0][key])
        for key in plains[0]
        if key not in row.undetermined and any(o[key] != plains[0][key] for o in others)
    }
    if row.program.close and different.keys() <= {"results", "output"}:
        row.apart = max(apart(*both, different.keys()) for both in rounds)
        if row.apart <= row.program.close:
            different = {}
    if row.program.unfixed:
        different = {key: value for key, value in different.items() if key == "exit status"}
        row.undetermined = sorted({*row.undetermined, "results", "output", "files"})
    if different:
        row.result = "different: " + "; ".join(f"{k}: {difference(plains[0][k], v)}" for k, v in different.items())
        row.result += f" | {rounds[0][1].errors[-600:]}" if "exit status" in different else ""
    elif plains[0]["exit status"]:
        row.result = "fails on both: " + (rounds[0][0].errors.splitlines() or ["?"])[-1][:100]
    else:
        row.result = "same"


def apart(plain: Ended, other: Ended, looked_at: Iterable[str]) -> float:
    """How far the numbers of two processes are apart, at most, by the largest of their array or line (of arrays of
    integers: what share of them differs); infinity where anything else is different. ``looked_at``: results, output."""
    notes = (plain.told["reads"], other.told["reads"]) if "results" in looked_at else ([], [])
    lines = (plain.printed, other.printed) if "output" in looked_at else ([], [])
    if len(notes[0]) != len(notes[1]) or len(lines[0]) != len(lines[1]):
        return math.inf
    found = 0.0
    for index, (one, two) in enumerate(zip(*notes, strict=True)):
        if one != two:
            found = max(found, numbers_apart(plain.values.get(str(index)), other.values.get(str(index))))
    for one, two in zip(*lines, strict=True):
        if one != two:
            words = [[part.split() for part in NUMBER.split(line)] for line in (one, two)]
            if words[0] != words[1]:
                return math.inf
            numbers = (np.array([float(number) for number in NUMBER.findall(line)]) for line in (one, two))
            found = max(found, numbers_apart(*numbers))
    return found


def numbers_apart(one: Any, two: Any) -> float:
    if one is None or two is None or one.shape != two.shape or one.dtype != two.dtype:
        return math.inf
    if one.dtype.kind in "iu":
        return float(np.count_nonzero(one != two) / max(one.size, 1))
    if not np.array_equal(np.isfinite(one), np.isfinite(two)):
        return math.inf
    here = np.isfinite(one)
    if not np.array_equal(one[~here], two[~here], equal_nan=True):
        return math.inf
    largest = float(np.abs(one[here]).max(initial=0.0))
    farthest = float(np.abs(one[here].astype(np.result_type(one, np.float64)) - two[here]).max(initial=0.0))
    return farthest / largest if largest else (math.inf if farthest else 0.0)


def difference(expected: Any, found: Any) -> str:
    """In a few words."""
    if isinstance(expected, list) and isinstance(found, list):
        pairs = enumerate(zip(expected, found, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(expected), len(found)))
        return f"#{at} of {len(expected)}: {expected[at : at + 1]} and {found[at : at + 1]}"
    if isinstance(expected, dict) and isinstance(found, dict):
        return ", ".join(sorted(k for k in expected.keys() | found.keys() if expected.get(k) != found.get(k)))
    return f"{expected} and {found}"


def figures(rows: Sequence[Row], devices: str) -> dict[str, Any]:
    same = [r for r in rows if r.result == "same"]
    found: dict[str, Any] = {"devices": devices, "programs": len(rows), "same": len(same)}
    found["exact"] = sum(not (r.apart or r.program.unfixed) for r in same)
    found["different"] = sum(r.result.startswith("different") for r in rows)
    found["failing_both"] = sum(r.result.startswith(("fails", "plain")) for r in rows)
    timed = [r for r in same if r.second]
    if timed:
        found["first_geomean"] = statistics.geometric_mean([r.first[0] / r.first[1] for r in timed])
        found["second_geomean"] = statistics.geometric_mean([r.ratio for r in timed])
        found["second_worst"] = min(r.ratio for r in timed)
        used = [r.processor[0] / r.processor[1] for r in timed if r.processor[1]]
        found["processor_geomean"], found["processor_worst"] = statistics.geometric_mean(used), min(used)
    computing = [r.ratio for r in timed if r.program.computes]
    if computing and devices != "cpu":
        found["two_devices_geomean"] = statistics.geometric_mean(computing)
    return found


def told(row: Row) -> dict[str, Any]:
    return {
        "program": row.program.title,
        "lines": row.lines,
        "result": row.result,
        "undetermined": row.undetermined,
        "apart": row.apart,
        "first": row.first,
        "second": row.second,
        "processor": row.processor,
        "ratio": row.ratio if row.second else None,
    }


def main() -> None:
    parser = common.parser(__doc__)
    parser.set_defaults(repeats=ROUNDS)
    parser.add_argument("folder", nargs="?", help="where the sources are, each in a folder of its name")
    parser.add_argument("--devices", default="cpu", help="what exec is given (default cpu)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="programs whose name has this (a regular expression)"
    )
    parser.add_argument("--programs", default=str(HERE / "foreign.json"), help="another list of programs")
    parser.add_argument("--computing", action="store_true", help="only those that compute")
    args = parser.parse_args()
    if not args.folder and not args.quick:
        parser.error("a folder with the sources is needed, or --quick")
    with tempfile.TemporaryDirectory() as own:
        if args.quick:
            args.folder, args.programs, args.repeats = own, _own_program(Path(own)), 1
        compare(args)


def _own_program(folder: Path) -> str:
    """The list of a program that ``--quick`` compares."""
    (folder / "own").mkdir()
    (folder / "own" / "add.py").write_text(OWN, encoding="utf-8")
    catalogue = {"environment": {}, "drop": [], "programs": [{"source": "own", "name": "add.py"}]}
    (folder / "programs.json").write_text(json.dumps(catalogue), encoding="utf-8")
    return str(folder / "programs.json")


def compare(args: argparse.Namespace) -> None:
    """Run the programs, and report."""
    catalogue = json.loads(Path(args.programs).read_text(encoding="utf-8"))
    programs = [entry(e) for e in catalogue["programs"]]
    here = [p for p in programs if (Path(args.folder) / p.source / p.name).exists() and re.search(args.only, p.title)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as place:
        bench = Bench(args, catalogue, Path(place))
        for program in here:
            if args.computing and not program.computes:
                continue
            row = bench.row(program)
            rows.append(row)
            used = " (processor {:.4f} {:.4f})".format(*row.processor) if row.processor else ""
            times = f"{row.second[0]:.4f} {row.second[1]:.4f} s, {row.ratio:.2f}{used}" if row.second else ""
            far = f", {row.apart:.1e} apart" if row.apart else ""
            common.progress(f"{program.title}: {row.result}{far} {times} {row.undetermined or ''}")
    found = figures(rows, args.devices)
    common.report(args, found, {"rows": [told(r) for r in rows]})
    if args.quick and found["same"] != len(rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
