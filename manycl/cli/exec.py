"""``manycl exec``: an unmodified program that uses OpenCL, from Python, C or C++, on all devices."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from manycl.cli import completion, options
from manycl.cli.completion import completed
from manycl.errors import ManyclError

HELP = "run an unmodified OpenCL program (Python, C, C++) on every device"
_EPILOG = """\
examples:
  manycl exec -- python mandelbrot.py --size 4096
  manycl exec --devices cpu/2 --explain -- simulate.py       (a Python file, with the Python that manycl has)
  manycl exec --gantt runs.html -- -m pytest tests
  manycl exec --cluster tcp://10.0.0.5:8786 -- simulate.py    (on the workers of a Dask cluster: docs/clusters.md)
  manycl exec --explain -- ./hotspot 512 2 2                  (a program in C, C++, …: docs/c_programs.md)
  eval "$(manycl exec --devices gpu,cpu --env)"               the same for all that this shell starts
exit status: the program's
"""
_APART = (
    "promise that the work-groups of a launch do not write different values to an element, nor read what others write: "
    "scatters and the like are then divided, and compared once (docs/splitting.md)"
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.usage = "manycl exec [options] -- COMMAND ..."
    options.add_devices(parser)
    options.add_cluster(parser)
    words = "scheduling policy (docs/policies.md); default: MANYCL_POLICY, else auto"
    completed(parser.add_argument("--policy", metavar="NAME", help=words), completion.policies)
    options.add_gantt(parser)
    parser.add_argument("--trace", metavar="FILE", help="all runs' events as JSON lines (for `manycl report`)")
    parser.add_argument("--explain", action="store_true", help="say at the end which kernels were divided, and why not")
    parser.add_argument("--apart", action="store_true", help=_APART)
    parser.add_argument("--check-bounds", action="store_true", help=options.CHECK_BOUNDS)
    parser.add_argument("--real", action="store_true", help="show the program the real platforms as well")
    parser.add_argument("--env", action="store_true", help="print what is set for the program, for a shell, instead")
    parser.add_argument("command_line", metavar="COMMAND", nargs=argparse.REMAINDER, help="the program, after `--`")


def run(args: argparse.Namespace) -> int:
    from manycl.device_syntax import parse
    from manycl.stand_in.environment import become, variables

    options.writable({"--gantt": args.gantt, "--trace": args.trace})
    options.check_cluster(args)
    if args.devices is not None:
        parse(args.devices)
    if args.policy is not None:
        from manycl.run.graph_cache.learners import Learners

        Learners().find(args.policy, {})
    found = variables(devices=args.devices, policy=args.policy, real_too=args.real, reports=_reports(args))
    words = [] if args.env else _command(args.command_line)
    found |= _for_c_programs(words) | ({"MANYCL_CHECK": "bounds"} if args.check_bounds else {})
    found |= {"MANYCL_APART": "1"} if args.apart else {}
    found |= {"MANYCL_CLUSTER": args.cluster} if args.cluster is not None else {}
    if args.env:
        print("\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items()))
        return 0
    try:
        become(words, found)
    except OSError as error:
        raise ManyclError(f"{words[0]}: {error.strerror}") from None


def _for_c_programs(words: list[str]) -> dict[str, str]:
    """Return what is set for programs that have OpenCL from a ``libOpenCL.so.1``. Where that cannot be made, only
    Python's programs run on manycl, and others are told so."""
    try:
        if importlib.util.find_spec("manycl_c") is None:
            raise ManyclError("the package manycl_c, which comes with manycl, is not here")
        found: dict[str, str] = importlib.import_module("manycl_c.environment").variables()
        return found
    except ManyclError as failure:
        if words and not _is_python(words[0]):
            hint = f" ({failure.hint})" if failure.hint else ""
            print(f"manycl: C and C++ programs are not run on manycl: {failure.message}{hint}", file=sys.stderr)
        return {}


def _is_python(word: str) -> bool:
    """Return whether a command is a Python or a program in Python: these have OpenCL from PyOpenCL."""
    name = os.path.basename(word)
    if name.startswith("python") or name.endswith(".py"):
        return True
    path = shutil.which(word)
    try:
        with open(path or word, "rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _reports(args: argparse.Namespace) -> dict[str, Any]:
    files = [str(Path(path).absolute()) for path in (*args.gantt, args.trace) if path]
    for path in files:
        if args.trace and path.endswith(Path(args.trace).name) and not path.endswith(".jsonl"):
            raise ManyclError(f"--trace {args.trace}: a trace is a file of JSON lines", hint="end its name in .jsonl")
    return {"files": files, "explain": args.explain} if files or args.explain else {}


def _command(words: list[str]) -> list[str]:
    """The program to start: ``python`` may be left out."""
    given = words[1:] if words[:1] == ["--"] else words
    if not given:
        raise ManyclError("no program is given", hint="manycl exec -- python script.py")
    first = given[0]
    if first == "-m" or (first.endswith(".py") and not os.access(first, os.X_OK)):
        return [sys.executable, *given]
    if shutil.which(first) is None and Path(first).suffix == ".py":
        return [sys.executable, *given]
    return given
