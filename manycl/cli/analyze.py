"""``manycl analyze``: what each kernel of a file does with its arguments, as tables or as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manycl.errors import ManyclError

if TYPE_CHECKING:
    from rich.table import Table

    from manycl.analysis import ArgumentFacts, KernelFacts, ProgramFacts

HELP = "What each kernel of an OpenCL C file reads and writes, from its source alone"

_EPILOG = """\
The direction of a buffer is derived from what the kernel does with every pointer to it: through
aliases, casts, called functions and atomics. Where the analysis cannot tell, the buffer counts as
read and written, and the notes say why.

example: with scale.cl being
  kernel void scale(global float *y, global const float *x, float a)
  { y[get_global_id(0)] = a * x[get_global_id(0)]; }
  $ manycl analyze scale.cl
shows y as written, x as read and a as a scalar. Macros of the host program are given here, too:
  $ manycl analyze matmul.cl -D TILE=16 -I include --build-options "-cl-std=CL2.0"
  $ manycl analyze matmul.cl --kernel matmul --json | jq '.kernels[0].arguments[].direction'
"""


def _joined(words: Sequence[str] | None) -> list[str] | None:
    """``--build-options "-cl-std=CL2.0"`` in one word: argparse takes a value that begins with a dash for an
    option."""
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
    parser.add_argument("file", metavar="FILE.cl", help="OpenCL C source")
    parser.add_argument("-D", dest="define", metavar="NAME[=VALUE]", action="append", default=[], help="define a macro")
    parser.add_argument(
        "-I",
        dest="include",
        metavar="DIR",
        action="append",
        default=[],
        help="look for #include files there, too",
    )
    parser.add_argument(
        "--build-options", metavar="OPTIONS", default="", help="options as for clBuildProgram, in one string"
    )
    parser.add_argument(
        "--kernel", metavar="NAME", action="append", default=[], help="only this kernel (may be repeated)"
    )
    parser.add_argument("--all", action="store_true", help="show long lists as a whole")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from manycl.analysis import parse_program

    source = _read(args.file)
    options = [*(f"-D{word}" for word in args.define), *(f"-I{folder}" for folder in args.include)]
    try:
        options += shlex.split(args.build_options)
    except ValueError as error:
        raise ManyclError(f"--build-options {args.build_options!r}: {error}") from None
    program = parse_program(source, path=args.file, options=options)
    kernels = _chosen(program, args.kernel)
    if args.json:
        print(json.dumps(as_json(program, kernels), indent=2))
    else:
        _show(program, kernels, args.all)
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_bytes().decode("utf-8-sig", "replace")  # comments are in whatever encoding
    except OSError as error:
        raise ManyclError(f"{path}: {error.strerror or error}") from None


def _chosen(program: ProgramFacts, names: list[str]) -> list[KernelFacts]:
    for name in names:
        if name not in program.kernels:
            known = ", ".join(program.kernels) or "none"
            raise ManyclError(f"{program.path} has no kernel {name!r}", hint=f"its kernels: {known}")
    return [kernel for name, kernel in program.kernels.items() if not names or name in names]


def as_json(program: ProgramFacts, kernels: list[KernelFacts]) -> dict[str, Any]:
    """The stable form for machines: ``{"file", "kernels": [{..., "arguments": [...]}], "warnings"}``."""
    rows = []
    for kernel in kernels:
        row = dataclasses.asdict(kernel)
        row["arguments"] = [dataclasses.asdict(a) | {"direction": a.direction} for a in kernel.arguments]
        rows.append(row)
    return {"file": program.path, "kernels": rows, "warnings": list(program.warnings)}


def _show(program: ProgramFacts, kernels: list[KernelFacts], everything: bool) -> None:
    from rich.console import Console

    from manycl.analysis import service
    from manycl.report.analysis_text import symbolic

    console = Console(highlight=False, soft_wrap=False)
    if not kernels:
        console.print(f"{program.path}: no kernels", markup=False, soft_wrap=True)
    for kernel in kernels:
        heading = f"{kernel.name} ({program.path}:{kernel.line}): {_traits(kernel)}"
        console.print(heading, markup=False, soft_wrap=True)
        console.print(_table(kernel))
        summary = service.symbolic(program, kernel.name)
        lines = symbolic(kernel, summary, program.path, everything=everything)
        console.print("\n".join([*lines, ""]), markup=False, soft_wrap=True)
    for warning in program.warnings:
        console.print(warning, markup=False, soft_wrap=True)


def _table(kernel: KernelFacts) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("#", justify="right")
    for heading in ("name", "type", "address space", "direction", "notes"):
        table.add_column(heading, overflow="fold")
    for argument in kernel.arguments:
        cells = (argument.name or "(unnamed)", _type(argument), argument.address_space)
        direction = argument.direction or argument.kind
        table.add_row(str(argument.index), *(Text(cell) for cell in (*cells, direction, argument.reason)))
    return table


def _type(argument: ArgumentFacts) -> str:
    pointer = "*" if argument.kind in ("buffer", "local") else ""
    const = "const " if argument.is_const and argument.address_space != "constant" else ""
    return f"{const}{argument.element}{pointer}"


def _traits(kernel: KernelFacts) -> str:
    parts = [f"{kernel.dimensions} dimension{'s' if kernel.dimensions > 1 else ''}"]
    if kernel.required_work_group:
        parts.append(f"work-group of {' x '.join(str(n) for n in kernel.required_work_group)} required")
    if kernel.uses_barrier:
        parts.append("barriers")
    if kernel.local_bytes:
        parts.append(f"{kernel.local_bytes} bytes of local variables")
    if kernel.uses_double:
        parts.append("double precision")
    return ", ".join(parts)
