"""``manycl analyze``: what each kernel of a file does with its arguments, as text, JSON or picture; of an application
file, the versions of its kernels."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manycl.cli import options
from manycl.cli.kernel_files import analyze_launch
from manycl.errors import ManyclError
from manycl.expressions import suggest

if TYPE_CHECKING:
    from rich.table import Table

    from manycl.analysis import KernelFacts, ProgramFacts
    from manycl.report.analysis.launch_report import LaunchView


HELP = "What each kernel of an OpenCL C file reads and writes, from its source alone"

_EPILOG = """\
Every access to a buffer is shown in its elements, with the loops and conditions under which it
happens, for any launch; a[i:4] are four elements from i on. What cannot be followed counts as
touched everywhere, and the reason is told. docs/analysis.md explains how to read all of it.

example: with scale.cl being
  kernel void scale(global float *y, global const float *x, float a, int n)
  { int i = get_global_id(0); if (i < n) y[i] = a * x[i]; }
  $ manycl analyze scale.cl
shows that y[gid0] is written and x[gid0] read, both if gid0 < n. With a launch, it shows the exact
regions of a range of work-groups, along which dimensions the launch may be split over devices
(or which accesses forbid it), and draws a picture:
  $ manycl analyze scale.cl scale --global 1024 --local 64 --arg n=1000 --groups 0:4:8
  $ manycl analyze matmul.cl mm --global 4096,4096 --local 16,16 --arg n=4096 --picture mm.png
A scalar takes its value, a buffer its size in elements or bytes, or the buffer that it shares; a
buffer without a size gets the smallest one that holds its accesses:
  $ manycl analyze fir.cl fir --global 1024 --local 64 --arg n=1000 --arg in=n+16 --arg out=64KiB
Macros of the host program are given here, too:
  $ manycl analyze matmul.cl -D TILE=16 -I include --build-options "-cl-std=CL2.0"
  $ manycl analyze matmul.cl --json | jq '.kernels[].symbolic.accesses[].elements'
Of a specification, the versions of its kernels are shown, and how launches may be divided by them:
  $ manycl analyze app.json -D n=4096
"""


def _joined(words: Sequence[str] | None) -> list[str] | None:
    """``--build-options "-cl-std=CL2.0"`` in one word: argparse takes a value with a dash for an option."""
    if words is None:
        return None
    rest = list(words)
    if "--build-options" in rest[:-1]:
        at = rest.index("--build-options")
        rest[at : at + 2] = [f"--build-options={rest[at + 1]}"]
    return rest


def configure(parser: argparse.ArgumentParser) -> None:
    parse = parser.parse_known_args
    parser.parse_known_args = lambda args=None, namespace=None: parse(_joined(args), namespace)  # type: ignore
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE.cl", help="OpenCL C source, or a specification (.json)")
    parser.add_argument("kernel", metavar="KERNEL", nargs="*", help="only these kernels; default: all")
    options.add_source_options(parser, "a macro, or a symbol")
    parser.add_argument(
        "--kernel", dest="also", metavar="NAME", action="append", default=[], help="only this kernel, too"
    )
    parser.add_argument("--all", action="store_true", help="show long lists as a whole")
    parser.add_argument("--json", action="store_true", help="print JSON (docs/analysis.md)")
    analyze_launch.add_options(parser)


def run(args: argparse.Namespace) -> int:
    from manycl.analysis import parse_program
    from manycl.api.kernel_files import read_source

    if args.file.lower().endswith(".json"):
        return show_versions(args, [*args.kernel, *args.also])
    launch = analyze_launch.wanted(args)
    if args.picture:
        options.writable({"--picture": args.picture})
        analyze_launch.picture_kind(args.picture)
    source = read_source(args.file)
    program = parse_program(source, path=args.file, options=options.source_options(args))
    kernels = _chosen(program, [*args.kernel, *args.also])
    view = None
    if launch:
        view = analyze_launch.chosen(args, program, _only(program, kernels))
    if args.picture and view is not None:
        from manycl.report.analysis.figure import picture

        Path(args.picture).write_bytes(picture(view, analyze_launch.picture_kind(args.picture)))
    if args.json:
        print(json.dumps(as_json(program, kernels, view), indent=2))
    else:
        _show(program, kernels, view, args.all)
    return 0


def _chosen(program: ProgramFacts, names: list[str]) -> list[KernelFacts]:
    for name in names:
        if name not in program.kernels:
            known = ", ".join(program.kernels) or "none"
            near = suggest(name, program.kernels)
            raise ManyclError(f"{program.path} has no kernel {name!r}{near}", hint=f"its kernels: {known}")
    return [kernel for name, kernel in program.kernels.items() if not names or name in names]


def _only(program: ProgramFacts, kernels: list[KernelFacts]) -> KernelFacts:
    """A launch is one kernel's."""
    if len(kernels) == 1:
        return kernels[0]
    names = ", ".join(kernel.name for kernel in kernels) or "none"
    raise ManyclError(f"{program.path}: a launch is of one kernel; which?", hint=f"its kernels: {names}")


def as_json(program: ProgramFacts, kernels: list[KernelFacts], view: LaunchView | None = None) -> dict[str, Any]:
    """The stable form for machines, which docs/analysis.md describes: ``{"file", "kernels", "warnings"}``."""
    from manycl.analysis import service
    from manycl.report.analysis import as_json, cost_report, launch_report
    from manycl.report.analysis.expr import AccessWriter

    rows = []
    for kernel in kernels:
        summary = service.symbolic(program, kernel.name)
        row = as_json.facts_dict(kernel) | {"symbolic": as_json.summary_dict(kernel, summary)}
        if not summary.failure:
            row["symbolic"]["cost"] = cost_report.symbolic_dict(AccessWriter(kernel, summary), summary)
        if view is not None:
            row["launch"] = launch_report.as_dict(view) | {"cost": cost_report.as_dict(view)}
        rows.append(row)
    return {"file": program.path, "kernels": rows, "warnings": list(program.warnings)}


def _show(program: ProgramFacts, kernels: list[KernelFacts], view: LaunchView | None, everything: bool) -> None:
    from rich.console import Console

    from manycl.analysis import service
    from manycl.report.analysis import cost_report, launch_report
    from manycl.report.analysis.as_text import symbolic, traits
    from manycl.report.analysis.expr import AccessWriter

    console = Console(highlight=False, soft_wrap=False)
    if not kernels:
        console.print(f"{program.path}: no kernels", markup=False, soft_wrap=True)
    for kernel in kernels:
        heading = f"{kernel.name} ({program.path}:{kernel.line}): {traits(kernel)}"
        console.print(heading, markup=False, soft_wrap=True)
        console.print(_table(kernel))
        summary = service.symbolic(program, kernel.name)
        lines = symbolic(kernel, summary, program.path, everything=everything)
        if not summary.failure:
            lines += cost_report.in_symbols(AccessWriter(kernel, summary), summary, everything=everything)
        if view is not None:
            lines += ["", *launch_report.lines(view, everything=everything)]
            lines += cost_report.lines(view, everything=everything)
        console.print("\n".join([*lines, ""]), markup=False, soft_wrap=True)
    for warning in program.warnings:
        console.print(warning, markup=False, soft_wrap=True)


def _table(kernel: KernelFacts) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from manycl.report.analysis.as_text import type_of

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("#", justify="right")
    for heading in ("name", "type", "address space", "direction", "notes"):
        table.add_column(heading, overflow="fold")
    for argument in kernel.arguments:
        cells = (argument.name or "(unnamed)", type_of(argument), argument.address_space)
        direction = argument.direction or argument.kind
        table.add_row(str(argument.index), *(Text(cell) for cell in (*cells, direction, argument.reason)))
    return table


def show_versions(args: argparse.Namespace, kernels: Sequence[str]) -> int:
    """Print the versions of an application's kernels, or of those that are named."""
    from manycl.applications.load import load_application
    from manycl.graph.graph import Launch
    from manycl.report.analysis import versions

    for name in ("include", "build_options", "global_size", "picture"):
        if getattr(args, name):
            option = name.removesuffix("_size").replace("_", "-")
            raise ManyclError(f"{args.file}: --{option} goes with OpenCL C, not with a specification")
    application = load_application(args.file, options.pairs(args.define, "-D"))
    sizes = {key: buffer.nbytes for key, buffer in application.graph.buffers.items()}
    launches = [task for task in application.graph.nodes if isinstance(task, Launch)]
    known = {name: None for launch in launches for name in (launch.kernel.name, launch.name)}
    for name in kernels:
        if name not in known:
            raise ManyclError(f"{args.file} has no kernel {name!r}{suggest(name, known)}")
    chosen = [x for x in launches if not kernels or x.kernel.name in kernels or x.name in kernels]
    views = [versions.versions_of(launch, sizes) for launch in chosen if launch.versions]
    if args.json:
        print(json.dumps({"file": args.file, "launches": [versions.as_dict(view) for view in views]}, indent=2))
        return 0
    for view in views:
        print("\n".join([*versions.lines(view), ""]))
    if not views:
        print(f"{args.file}: no kernel has versions")
    return 0
