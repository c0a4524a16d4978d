"""``manycl spec FILE.cl``: write the specification of a kernel file."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from manycl.cli.options import writable
from manycl.errors import ManyclError

HELP = "write a specification for the kernels of a file, with the sizes left as parameters to set"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.cl", nargs="?", help="OpenCL C source")
    parser.add_argument("--schema", action="store_true", help="write the JSON Schema of specifications, for editors")
    parser.add_argument(
        "-D", dest="define", metavar="NAME[=VALUE]", action="append", default=[], help="preprocessor symbol"
    )
    parser.add_argument("-o", "--output", metavar="OUT", help="file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    from manycl.analysis import parse_program
    from manycl.api.kernel_files import read_source
    from manycl.applications.formats.skeleton import format_specification, left_out, skeleton

    writable({"-o": args.output})
    if args.schema:
        from manycl.applications.formats.fields import DOCUMENT
        from manycl.applications.formats.kinds import json_schema

        schema = json_schema(DOCUMENT, "manycl application specification, version 1")
        return _write(json.dumps(schema, indent=1) + "\n", args.output)
    if args.file is None:
        raise ManyclError("give FILE.cl, or --schema")
    path = Path(args.file)
    options = tuple(f"-D{word}" for word in args.define)
    program = parse_program(read_source(path), path=str(path), options=options)
    folder = Path(args.output).absolute().parent if args.output else Path.cwd()
    source = Path(os.path.relpath(path.absolute(), folder)).as_posix()
    text = format_specification(skeleton(program, source, path.stem, options))
    for name in left_out(program):
        print(f"manycl: {path}: kernel {name} is left out: it has images, samplers or pipes", file=sys.stderr)
    return _write(text, args.output)


def _write(text: str, output: str | None) -> int:
    if output:
        Path(output).write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
    return 0
