"""OpenCL files of applications: how many are analysed, and how many of their kernels compiled natively.

``FOLDER`` has a folder for each application. Of each, files are taken that a plain clang takes, with OpenCL's header,
the include folders and macros that they ask for: constants that a program would define are guessed (names in capitals
are 16, types float). ``analysed`` and ``native`` are shares of these files and of their kernels; kernels with images,
samplers, pipes or ``printf`` are for OpenCL drivers, and counted as ``elsewhere``.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import multiprocessing
import re
import subprocess
import unittest.mock
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import common
from clang import cindex

from manycl.analysis import service
from manycl.analysis.reading.options import remaining_options
from manycl.drivers.driver import DriverError
from manycl.drivers.native.compiler import clang, compiling
from manycl.drivers.native.program import lanes
from manycl.errors import ManyclError

VERSIONS = ("CL1.2", "CL3.0", "CL2.0")
ROUNDS = 8
"""How often macros are guessed for one file."""
ELSEWHERE = re.compile(r"it prints|its argument \w+ is a|it calls (read|write|get)_(image|pipe)")
_LACKING = re.compile(r"use of undeclared identifier '([A-Z]\w*)'|unknown type name '(\w+)'|'([^']+)' file not found")


def accepted(path: Path, root: Path) -> tuple[str, ...] | None:
    """The build options with which a plain clang takes a file; None where there are none."""
    include = f"-I{cindex.Config.resource_dir}/include"
    given = [f"-I{folder}" for folder in (path.parent, *path.parent.parents) if folder.is_relative_to(root)]
    for _ in range(ROUNDS):
        said = ""
        for version in VERSIONS:
            words = (
                "-x",
                "cl",
                f"-cl-std={version}",
                "-target",
                "spir64",
                include,
                "-Xclang",
                "-finclude-default-header",
            )
            command = (*clang.find().compiler, *words, "-fsyntax-only", "-w", *given, str(path))
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode == 0:
                return (*given, *(() if version == VERSIONS[0] else (f"-cl-std={version}",)))
            said = said or done.stderr
        more = list[str]()
        for constant, kind, file in set(_LACKING.findall(said)):
            if file:
                more += [f"-I{str(found)[: -len(file) - 1]}" for found in sorted(root.rglob(file))[:1]]
            else:
                more.append(f"-D{constant or kind}={'16' if constant else 'float'}")
        if not set(more) - set(given):
            return None
        given += sorted(set(more) - set(given))
    return None


def compiled(path: Path, options: tuple[str, ...], most: int, *, whole: bool) -> dict[str, str]:
    """Of each kernel of a file, ``native`` or why it is not; of the file as ``""``, why it is not analysed. ``whole``:
    down to an object; else compilers only look at the text."""
    try:
        source = path.read_text(encoding="utf-8", errors="replace")
        facts = service.parse_program(source, path=str(path), options=options)
    except ManyclError as error:
        return {"": str(error)}
    found = {}
    for name, kernel in list(facts.kernels.items())[:most]:
        try:
            size = kernel.required_work_group or (64, 1, 1)
            function = service.work_group_function(facts, name, size, lanes())
            if function.reason:
                raise DriverError(function.reason)
            with contextlib.nullcontext() if whole else unittest.mock.patch.object(clang, "build", looked_at):
                compiling.compile_kernels(
                    function.source, remaining_options(facts.options, ""), defined=function.defined
                )
            found[name] = "native"
        except Compiles:
            found[name] = "native"
        except ManyclError as error:
            found[name] = str(error)
    return found


class Compiles(Exception):
    """A compiler has nothing to say against a text."""


def looked_at(compiler: clang.Clang, text: str, extra: tuple[str, ...] = ()) -> bytes:
    """Raises DriverError for a text that does not compile, Compiles for others."""
    command = (*compiler.compiler, *compiler.flags, *clang.KERNELS, *extra, "-x", "cl", "-fsyntax-only", "-")
    done = subprocess.run(command, input=text, capture_output=True, text=True, errors="replace", check=False)
    raise DriverError(done.stderr) if done.returncode else Compiles


def _file(
    asked: tuple[str, str, tuple[str, ...] | None, int, bool],
) -> tuple[str, tuple[str, ...] | None, dict[str, str]]:
    path, root, options, most, whole = asked
    options = options or accepted(Path(path), Path(root))
    return path, options, compiled(Path(path), options, most, whole=whole) if options else {}


def kind(reason: str) -> str:
    """A reason without the names and lines in it."""
    line = next((line for line in reason.splitlines() if "error:" in line), reason.splitlines()[0])
    return re.sub(r"'[^']*'|\d+", "_", re.sub(r"^.*?error: ", "", line))[:110]


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=60, help="most files of an application (default 60)")
    parser.add_argument("--kernels", type=int, default=20, help="most kernels of a file (default 20)")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--whole", action="store_true", help="down to objects")
    parser.add_argument("--list", type=Path, help="where files that clang takes are kept, with their options")
    args = parser.parse_args()
    known: dict[str, tuple[str, ...] | None] = {}
    if args.list and args.list.exists():
        known = json.loads(args.list.read_text())
    asked = []
    for root in sorted(p for p in args.folder.iterdir() if p.is_dir()):
        paths = [p for p in root.rglob("*") if p.suffix in (".cl", ".ocl", ".opencl") and p.is_file()]
        paths.sort(key=lambda p: hashlib.sha256(str(p.relative_to(args.folder)).encode()).digest())
        for path in map(str, paths[: args.files]):
            if args.only in path and known.get(path, ()) is not None:
                asked.append((path, str(root), tuple(known.get(path) or ()) or None, args.kernels, args.whole))
    outcomes: collections.Counter[str] = collections.Counter()
    reasons = collections.defaultdict[str, list[str]](list)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for number, (path, options, found) in enumerate(pool.map(_file, asked, chunksize=2)):
            known[path] = options
            if number % 50 == 0:
                common.progress(f"{number} of {len(asked)} files")
            if options is None:
                continue
            outcomes["files"] += 1
            outcomes["files_analysed"] += "" not in found
            own = [reason for reason in found.values() if not ELSEWHERE.search(reason)]
            outcomes["kernels"] += "" not in found and len(own)
            outcomes["kernels_elsewhere"] += len(found) - len(own)
            outcomes["kernels_native"] += own.count("native")
            outcomes["files_native"] += all(reason == "native" for reason in own)
            for name, reason in found.items():
                if reason != "native" and not ELSEWHERE.search(reason):
                    reasons[kind(reason)].append(f"{path}: {name}: {reason[:600]}")
    if args.list:
        args.list.write_text(json.dumps(known))
    figures: dict[str, Any] = dict(outcomes)
    figures["analysed"] = outcomes["files_analysed"] / max(1, outcomes["files"])
    figures["native"] = outcomes["kernels_native"] / max(1, outcomes["kernels"])
    figures["native_files"] = outcomes["files_native"] / max(1, outcomes["files"])
    for reason, where in sorted(reasons.items(), key=lambda item: -len(item[1])):
        common.progress(f"{len(where):4} {reason}   ({where[0].split(': ')[0]})")
    common.report(args, figures, {"reasons": reasons})
