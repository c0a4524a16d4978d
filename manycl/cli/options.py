"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from manycl import flags
from manycl.cli import completion
from manycl.cli.completion import completed
from manycl.errors import ManyclError
from manycl.utilities import user_file

if TYPE_CHECKING:
    from manycl.applications.application import Application
    from manycl.drivers.choice import Opened
    from manycl.trace import Trace

DEVICES = (
    "which devices, e.g. all, gpu, cpu/2 (two parts), cpu/2#0,cpu/2#1@4 (second part 4 times slower); "
    "default: MANYCL_DEVICES, else all"
)


def add_application(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "application", metavar="APP", help="specification (.json) or PySchedCL file (.json, dag.graph, .task)"
    )
    parser.add_argument(
        "-D", dest="define", metavar="NAME=VALUE", action="append", default=[], help="set a symbolic parameter"
    )
    parser.add_argument(
        "--kernels", metavar="DIR", action="append", default=[], help="more folders to find kernel sources in"
    )
    parser.add_argument(
        "--info",
        metavar="DIR",
        action="append",
        default=[],
        help="more folders to find the information files of PySchedCL's dag.graph and .task files in",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="let the specification run Python files from, and write results to, any folder",
    )


def add_source_options(parser: argparse.ArgumentParser, macro: str = "a macro") -> None:
    """Add the options that say how an OpenCL C file is read."""
    parser.add_argument(
        "-D", dest="define", metavar="NAME[=VALUE]", action="append", default=[], help=f"define {macro}"
    )
    parser.add_argument(
        "-I", dest="include", metavar="DIR", action="append", default=[], help="look for #include files there, too"
    )
    parser.add_argument(
        "--build-options", metavar="OPTIONS", default="", help="options as for clBuildProgram, in one string"
    )


def source_options(args: argparse.Namespace) -> list[str]:
    """Return the build options that arguments of ``add_source_options`` stand for. Raises ManyclError."""
    try:
        words = shlex.split(args.build_options)
    except ValueError as error:
        raise ManyclError(f"--build-options {args.build_options!r}: {error}") from None
    return [*(f"-D{word}" for word in args.define), *(f"-I{folder}" for folder in args.include), *words]


def add_cluster(parser: argparse.ArgumentParser) -> None:
    words = "run on the workers of the Dask cluster whose scheduler has this address (docs/clusters.md)"
    parser.add_argument("--cluster", metavar="ADDRESS", help=words)


def add_devices(parser: argparse._ActionsContainer) -> None:
    completed(parser.add_argument("--devices", metavar="SPEC", help=DEVICES), completion.devices, listed=True)


@contextmanager
def cluster(args: argparse.Namespace) -> Iterator[str | Opened | None]:
    """Have the devices that arguments mean: of ``--cluster`` the workers, for as long as the block lasts. Raises
    ManyclError."""
    if args.cluster is None:
        yield args.devices
        return
    check_cluster(args)
    from manycl.api.node import workers
    from manycl.api.queue import Queue
    from manycl.cluster.opening import connected

    with connected(args.cluster) as client:
        yield workers(client, Queue)


def check_cluster(args: argparse.Namespace) -> None:
    """Raise ManyclError for ``--cluster`` beside what says which devices to use, or without Dask."""
    if args.cluster is None:
        return
    if args.devices is not None or getattr(args, "serve", None):
        raise ManyclError("--cluster: a cluster's workers have devices of their own", hint="no --devices, no --serve")
    if importlib.util.find_spec("distributed") is None:
        raise ManyclError("--cluster: distributed is not installed", hint="pip install distributed")


def add_machine(parser: argparse._ActionsContainer, words: str) -> None:
    """``words``: what is done with the machine that is described."""
    completed(parser.add_argument("--machine", metavar="NAME|FILE.toml", help=words), completion.machines)


def add_policy(parser: argparse.ArgumentParser) -> None:
    policy = parser.add_argument(
        "--policy",
        metavar="NAME",
        help="scheduling policy, one of docs/policies.md or your own as FILE.py:NAME; "
        "default: MANYCL_POLICY, else auto",
    )
    completed(policy, completion.policies)
    parser.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="an option of the policy (docs/policies.md)"
    )
    goals = "what the policy (auto, repara) makes least: time, energy, or edp, their product (docs/policies.md)"
    parser.add_argument("--objective", choices=("time", "energy", "edp"), help=goals)
    parser.add_argument("--deadline", metavar="TIME", help="the least energy, or other objective, within a time: 20ms")
    parser.add_argument(
        "--as-planned",
        action="store_true",
        help="run a static plan as it is: by default ranges are cut further where that hides transfers",
    )
    parser.add_argument(
        "--queues",
        metavar="DEVICE=N",
        action="append",
        default=[],
        help="command queues per device, by name, kind or place, e.g. gpu=8, #1=4",
    )


def policy(args: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """The policy and its options that :func:`add_policy` asked for. Raises PolicyError for what there is not."""
    from manycl.run.graph_cache.learners import Learners

    name, given = args.policy or flags.policy(), pairs(args.option, "--option")
    given |= {k: v for k in ("objective", "deadline") if (v := getattr(args, k)) is not None}
    Learners().find(name, given)
    return name, given


def pairs(words: list[str], option: str) -> dict[str, str]:
    """``NAME=VALUE`` words as a dictionary."""
    out: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ManyclError(f"{option} {word}: expected NAME=VALUE")
        if name in out:
            raise ManyclError(f"{option} {name} is given twice")
        out[name] = value
    return out


def queue_counts(words: list[str]) -> dict[str, int]:
    """``--queues`` as a dictionary of positive counts."""
    out: dict[str, int] = {}
    for name, value in pairs(words, "--queues").items():
        if not value.isdigit() or not 1 <= int(value) <= 64:
            raise ManyclError(f"--queues {name}={value}: expected a count from 1 to 64")
        out[name] = int(value)
    return out


def seconds(text: str, where: str) -> float:
    """A time, such as ``20us``, in seconds; ``where`` it is given is in the error's message."""
    from manycl.units import parse_quantity

    try:
        return parse_quantity(text, "s")
    except ValueError as error:
        raise ManyclError(f"{where}: {error}") from None


def load(args: argparse.Namespace, parameters: Mapping[str, str]) -> Application:
    """Return what :func:`add_application` asked for, with these values of its symbols."""
    from manycl.applications.load import load_application

    return load_application(
        args.application, parameters, kernel_folders=args.kernels, info_folders=args.info, trust=args.trust
    )


def application(args: argparse.Namespace) -> Application:
    """Return what :func:`add_application` asked for, loaded; its warnings are printed."""
    found = load(args, pairs(args.define, "-D"))
    for warning in found.warnings:
        print(f"manycl: warning: {warning}", file=sys.stderr)
    return found


CHECK_BOUNDS = "check each access of kernels that are compiled natively; others have red zones (docs/analysis.md)"


def add_gantt(parser: argparse.ArgumentParser) -> None:
    words = "Gantt chart: .html, .png, .svg or .pdf; may be given several times"
    parser.add_argument("--gantt", metavar="FILE", action="append", default=[], help=words)


def draw(trace: Trace, args: argparse.Namespace) -> None:
    """Write the charts that :func:`add_gantt` asked for."""
    from manycl.report.charts.gantt import write_gantt

    for path in args.gantt:
        write_gantt(trace, path)


def writable(paths: Mapping[str, str | Sequence[str] | None]) -> None:
    """Fail before the work, not after it: every file that will be written must be one that can be, and
    ``--gantt`` and ``--graph`` be of a kind that there is."""
    each = [(option, p) for option, path in paths.items() for p in ([path] if isinstance(path, str) else path or ())]
    for option, path in each:
        if option == "--gantt":
            from manycl.report.charts import gantt

            gantt.check_suffix(path)
        elif option == "--graph":
            from manycl.report.charts import graph_chart

            graph_chart.check_suffix(path)
        user_file.check_writable(path, option)
