"""``manycl doctor FILE.cl``: each kernel analysed, compiled and run on every device, and the results compared."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from manycl import __version__, flags
from manycl.cli.options import add_devices, add_source_options, source_options
from manycl.errors import ManyclError

if TYPE_CHECKING:
    import numpy as np

    from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts

HELP = "run each kernel of an OpenCL C file on every device with made-up arguments, and compare: a table for a report"

_EPILOG = """\
Each kernel runs once on each device, and once divided evenly over halves of a processor, each time
in a process of its own: a kernel that ends its process is a line of the table. Whole numbers among
its arguments are the size of the launch, other numbers 0.5; buffers hold random numbers (integers
below 64), and are as large as the analysis says, or hold a value for each work-item and one more.
The first column of devices is the one that the others are compared with, bit for bit.

examples:
  manycl doctor kernels.cl
  manycl doctor kernels.cl blur -D RADIUS=3 --size 512 --devices cpu,gpu0
exit status: 0 all devices agree, 1 some do not, 2 the file is not read
"""
_COMPUTING = 20  # seconds that a kernel may compute
_SMALL = 64
_MOST = 1 << 28  # bytes of a buffer
_WIDTH = 24  # characters of a column
_DIVIDED = "cpu/2"
_CHILD = "import sys; from manycl.cli.kernel_files import doctor; doctor.child(sys.argv[1])"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("file", metavar="FILE.cl", help="OpenCL C source")
    parser.add_argument("kernel", metavar="KERNEL", nargs="*", help="only these kernels; default: all")
    add_source_options(parser)
    parser.add_argument(
        "--size", metavar="N", type=int, default=1024, help="work-items of a launch, about (default: 1024)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_devices(parser)


def run(args: argparse.Namespace) -> int:
    from manycl.analysis import parse_program
    from manycl.drivers.choice import open_devices
    from manycl.utilities.json_lines import read_text

    if not 1 <= args.size <= 1 << 20:
        raise ManyclError(f"--size {args.size} is not from 1 to {1 << 20}")
    words = source_options(args)
    source = read_text(Path(args.file))
    program = parse_program(source, path=args.file, options=words)
    unknown = set(args.kernel) - program.kernels.keys()
    if unknown:
        raise ManyclError(
            f"{args.file} has no kernel {', '.join(sorted(unknown))}", hint=f"its kernels: {', '.join(program.kernels)}"
        )
    machine, _ = open_devices(args.devices if args.devices is not None else flags.devices())
    devices = [*(device.name for device in machine.devices), _DIVIDED]
    rows = {}
    for name in args.kernel or program.kernels:
        print(f"manycl: {name} ...", file=sys.stderr, flush=True)
        rows[name] = _examined(program, program.kernels[name], words, args.size, devices)
    about = f"manycl {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    here = [f"{d.name}: {d.model} ({d.platform})" for d in machine.devices]
    if args.json:
        print(json.dumps({"about": about, "devices": here, "kernels": rows}, indent=2))
    else:
        _show(about, here, rows, devices)
    good = ("runs", "same", "not divided")
    return 1 if any(row[d] not in good for row in rows.values() for d in devices if d in row) else 0


def _show(about: str, here: Sequence[str], rows: dict[str, dict[str, str]], devices: Sequence[str]) -> None:
    print(about, *here, "", sep="\n")
    columns = ["kernel", "launch", "divides", *devices]
    notes: dict[str, int] = {}

    def cell(words: str) -> str:
        """Long words go below the table."""
        return words if len(words) <= _WIDTH else f"({notes.setdefault(words, len(notes) + 1)})"

    lines = [columns, *([name, *(cell(row.get(c, "")) for c in columns[1:])] for name, row in rows.items())]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for number, line in enumerate(lines):
        print("| " + " | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    for words, number in notes.items():
        print(f"({number}) {words}")


def _examined(
    program: ProgramFacts, kernel: KernelFacts, words: list[str], size: int, devices: list[str]
) -> dict[str, str]:
    """Return a row of the table."""
    import numpy as np

    from manycl.utilities import limited

    other = next((a for a in kernel.arguments if a.kind not in ("buffer", "local", "scalar")), None)
    if other is not None:
        return {"divides": f"not run: argument {other.name} is of kind {other.kind}"}
    launch = _launch(program, kernel, size)
    row = {"launch": "x".join(map(str, launch["global"])), "divides": launch.pop("divides")}
    given = {"source": program.source, "path": program.path, "options": words, "kernel": kernel.name, **launch}
    with tempfile.TemporaryDirectory(prefix="manycl-doctor-") as folder:
        first: dict[str, Any] | None = None
        for device in devices:
            file = Path(folder, "result.npz")
            asked = json.dumps({**given, "device": device, "file": str(file)})
            done = limited.run((sys.executable, "-c", _CHILD, asked), folder=Path.cwd(), computing=_COMPUTING)
            said = [line for line in done.log.splitlines() if line.strip()]
            if done.trouble:
                told = next((line for line in reversed(said) if not line.startswith(" ")), "")
                row[device] = told[:200] if told and "status" in done.trouble else done.trouble.removeprefix("it ")
                continue
            with np.load(file) as data:
                found = dict(data)
            ranges = int(found.pop("ranges"))
            row[device] = "runs" if first is None else _difference(kernel, first, found)
            if device == _DIVIDED and ranges < 2 and row[device] == "same":
                row[device] = "not divided"
            first = found if first is None else first
    return row


def _difference(kernel: KernelFacts, first: dict[str, Any], found: dict[str, Any]) -> str:
    import numpy as np

    for name, one in first.items():
        other = found[name]
        if one.tobytes() != other.tobytes():
            places = np.flatnonzero(one.view(f"V{one.itemsize}") != other.view(f"V{one.itemsize}"))
            at = int(places[0])
            what = kernel.arguments[int(name[1:])].name
            return f"DIFFERS: {len(places)} of {one.size}; {what}[{at}] is {other[at]}, not {one[at]}"
    return "same"


def _launch(program: ProgramFacts, kernel: KernelFacts, size: int) -> dict[str, Any]:
    """Made-up sizes and arguments, and along which dimensions the launch divides, or why it does not."""
    import numpy as np

    from manycl.analysis import service
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.cli.kernel_files.analyze_launch import sized

    dimensions = max(kernel.dimensions, 1)
    required = kernel.required_work_group
    local = tuple(required[:dimensions]) if required else ((64,), (8, 8), (4, 4, 4))[dimensions - 1]
    edge = round(size ** (1 / dimensions))
    whole = tuple(max(1, edge // each) * each for each in local)
    scalars = {a.index: _made_up(a, whole[0]).tobytes() for a in kernel.arguments if a.kind == "scalar"}
    buffers = [a for a in kernel.arguments if a.kind == "buffer"]
    most = {a.index: (int(np.prod(whole)) + 1) * (a.size or 1) for a in buffers}
    known = KnownLaunch(whole, local, (), scalars, most, {})
    with suppress(ManyclError):  # of accesses that depend on data
        found = sized(program, kernel, replace(known, sizes={}), buffers)
        known = known if any(nbytes > _MOST for nbytes in found.sizes.values()) else found
    looked = service.launched(program, kernel.name, known)
    splits = [looked.split(d) for d in range(dimensions) if known.groups(d) > 1]
    ways = [str(s.dimension) for s in splits if s.splittable or s.mergeable]
    why = next((str(s.reasons[0]) for s in splits if s.reasons), "one work-group")
    sizes = {str(a.index): max(known.sizes.get(a.index, 0), most[a.index]) for a in buffers}
    return {
        "global": whole,
        "local": local,
        "sizes": sizes,
        "divides": f"along {', '.join(ways)}" if ways else f"no: {why}",
    }


def _made_up(argument: ArgumentFacts, size: int) -> np.ndarray[Any, Any]:
    """The elements of an argument that is no buffer: 0.5, or the size of the launch; a struct's bytes are 0."""
    import numpy as np

    from manycl.graph.launch import TYPES

    known = TYPES.get(argument.base)
    kind = np.dtype(known.dtype if known is not None else "uint8")
    value = 0 if known is None else 0.5 if kind.kind == "f" else min(size, np.iinfo(kind).max)
    return np.full(max(argument.size // kind.itemsize, 1), value, kind)


def child(asked: str) -> None:
    """Run one kernel on one device and write what its buffers hold then."""
    import numpy as np

    import manycl as mc
    from manycl.graph.launch import TYPES

    given = json.loads(asked)
    program = mc.Program(given["source"], given["options"], path=given["path"])
    kernel = program.kernel(given["kernel"])
    random = np.random.default_rng(0)
    is_divided = given["device"] == _DIVIDED  # evenly
    policy, options = ("adaptive", {"first": "uniform"}) if is_divided else ("in_order", {})
    with mc.Queue(given["device"], policy=policy, options=options) as queue:
        arguments: list[Any] = []
        arrays: dict[str, Any] = {}
        for argument in program.facts.kernels[kernel.name].arguments:
            value = _made_up(argument, given["global"][0])
            if argument.kind == "local":
                arguments.append(mc.LocalMemory((argument.size or 4) * int(np.prod(given["local"])) * 2))
            elif argument.kind == "scalar":
                arguments.append(value[0] if argument.lanes == 1 and argument.base in TYPES else value)
            else:
                count = -(-given["sizes"][str(argument.index)] // value.itemsize)
                content = random.random(count) if value.dtype.kind == "f" else random.integers(0, _SMALL, count)
                arrays[f"a{argument.index}"] = queue.array(content.astype(value.dtype))
                arguments.append(arrays[f"a{argument.index}"])
        kernel(queue, tuple(given["global"]), tuple(given["local"]), *arguments)
        results = {name: array.get() for name, array in arrays.items()}
        ranges = sum(1 for event in queue.trace.kernels() if event.role == "range")
    np.savez(given["file"], ranges=ranges, **results)
