"""``manycl spec FILE.cl``: write the specification of a kernel file."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from manycl.cli.options import writable

HELP = "write a specification for the kernels of a file, with the sizes left as parameters to set"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.cl", help="OpenCL C source")
    parser.add_argument(
        "-D", dest="define", metavar="NAME[=VALUE]", action="append", default=[], help="preprocessor symbol"
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    from manycl.analysis import parse_program
    from manycl.api.kernel_files import read_source
    from manycl.applications.formats.skeleton import format_specification, left_out, skeleton

    writable({"-o": args.output})
    path = Path(args.file)
    options = tuple(f"-D{word}" for word in args.define)
    program = parse_program(read_source(path), path=str(path), options=options)
    folder = Path(args.output).absolute().parent if args.output else Path.cwd()
    source = Path(os.path.relpath(path.absolute(), folder)).as_posix()
    text = format_specification(skeleton(program, source, path.stem, options))
    for name in left_out(program):
        print(f"manycl: {path}: kernel {name} is left out: it has images, samplers or pipes", file=sys.stderr)
    if args.output:
        Path(args.output).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return 0
