"""``manycl analyze``: the launch that its options describe, read and checked."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from manycl import units
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.analysis.reading.options import read_options
from manycl.cli import options
from manycl.errors import LaunchError, ManyclError
from manycl.expressions import ExpressionError, Number, evaluate, evaluate_integer, split_list, suggest
from manycl.group_range import GroupRange
from manycl.report.charts.drawing import check_drawable

if TYPE_CHECKING:  # they import islpy
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.analysis.launched import LaunchFacts
    from manycl.report.analysis.launch_report import LaunchView

_ROOM = 1 << 40  # bytes of a buffer whose size is sought
_LIKELY = 1 << 31  # bytes: data-dependent accesses that go further are taken for unbounded


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a launch: exact regions, verdicts and costs for given sizes")
    group.add_argument("--global", dest="global_size", metavar="SIZES", help="global size, e.g. 4096,4096")
    group.add_argument("--local", dest="local_size", metavar="SIZES", help="local size, e.g. 16,16")
    group.add_argument("--offset", metavar="SIZES", help="global offset; default: 0")
    group.add_argument(
        "--arg",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a scalar's value (n=4096, size=1024,768 for a vector, p=0x0100 for the bytes of a struct), or a buffer's "
        "size in elements (a=n*n) or bytes (a=64MiB), or the buffer that it shares (out=in)",
    )
    group.add_argument(
        "--groups",
        metavar="DIM:FIRST:COUNT",
        help="work-groups to show the regions of; default: the first half along the first dimension that splits",
    )
    group.add_argument(
        "--cache", metavar="BYTES", help="show sizes of slices: predicted, and of which the data stay in such a cache"
    )
    group.add_argument("--picture", metavar="FILE", help="draw these regions: .png, .svg or .pdf")


def wanted(args: argparse.Namespace) -> bool:
    """Return whether a launch is described. Raises where its options are there without its sizes."""
    if args.global_size is not None:
        return True
    for name in ("local_size", "offset", "arg", "groups", "cache", "picture"):
        if getattr(args, name):
            raise ManyclError(f"--{name.removesuffix('_size')} belongs to a launch", hint="give --global, too")
    return False


def chosen(args: argparse.Namespace, program: ProgramFacts, kernel: KernelFacts) -> LaunchView:
    """The launch that the options describe, analysed. Raises :class:`ManyclError` for what is missing or wrong."""
    from manycl.analysis import service
    from manycl.analysis.known_launch import KnownLaunch
    from manycl.report.analysis.launch_report import LaunchView

    global_size, local_size, offset = _sizes(args, program, kernel)
    given = options.pairs(args.arg, "--arg")
    _check_names(kernel, given)
    scope, data = _scalars(kernel, given)
    sizes, same = _buffers(kernel, given, scope)
    launch = KnownLaunch(global_size, local_size, offset, data, sizes, same)
    missing = [a for a in kernel.arguments if a.kind == "buffer" and same.get(a.index, a.index) not in sizes]
    if missing:
        launch = sized(program, kernel, launch, missing)
    found = service.launched(program, kernel.name, launch)
    origin = {
        a.index: f"same as {kernel.arguments[same[a.index]].name}"
        if a.index in same
        else ("given" if a.index in sizes else "accesses")
        for a in kernel.arguments
        if a.kind == "buffer"
    }
    scalars = {a.name: given[a.name] for a in kernel.arguments if a.kind == "scalar" and a.name in given}
    sub_kernel = service.sub_kernel(program, kernel.name)
    symbolic = service.symbolic(program, kernel.name)
    cache = 0 if args.cache is None else _cache(args.cache)
    return LaunchView(found, _range(args.groups, found), origin, scalars, sub_kernel, symbolic, cache)


def _cache(text: str) -> int:
    try:
        found = units.parse_bytes(text)
    except ValueError as error:
        raise ManyclError(f"--cache {text}: {error}") from None
    if found < 1:
        raise ManyclError(f"--cache {text}: a cache has bytes")
    return found


def picture_kind(path: str) -> str:
    """``png``, ``svg`` or ``pdf``. Raises :class:`ManyclError` for any other ending, and without matplotlib."""
    kind = path.rpartition(".")[2].lower()
    if kind not in ("png", "svg", "pdf"):
        raise ManyclError(f"--picture {path}: expected a file that ends in .png, .svg or .pdf")
    check_drawable(f"--picture {path}")
    return kind


# -- sizes


def _sizes(
    args: argparse.Namespace, program: ProgramFacts, kernel: KernelFacts
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    global_size = _numbers(args.global_size, "--global", 1)
    required = kernel.required_work_group
    if args.local_size is not None:
        local_size = _numbers(args.local_size, "--local", 1)
    elif required:
        local_size = required[: len(global_size)]
    else:
        raise ManyclError("--global is given without --local", hint="e.g. --local 64, or --local 16,16 for two")
    offset = _numbers(args.offset, "--offset", 0) if args.offset else ()
    for option, sizes in (("--local", local_size), ("--offset", offset)):
        if sizes and len(sizes) != len(global_size):
            raise ManyclError(f"{option} has {len(sizes)} dimensions, --global {len(global_size)}")
    if required and local_size != required[: len(local_size)]:
        words = ",".join(map(str, required[: len(local_size)]))
        raise ManyclError(f"kernel {kernel.name} requires work-groups of {words}", hint=f"--local {words}")
    if len(global_size) < kernel.dimensions:
        asks = f"kernel {kernel.name} asks for ids of {kernel.dimensions} dimensions, --global has {len(global_size)}"
        raise ManyclError(asks, hint="add ,1 for dimensions of one work-item")
    _check_multiple(global_size, local_size, program)
    return global_size, local_size, offset


def _check_multiple(global_size: Sequence[int], local_size: Sequence[int], program: ProgramFacts) -> None:
    if read_options(program.options).version in ("CL2.0", "CL3.0"):
        return
    for d, (size, local) in enumerate(zip(global_size, local_size, strict=True)):
        if size % local:
            near = -(-size // local) * local
            raise ManyclError(
                f"--global {size} is no multiple of --local {local} in dimension {d}",
                hint=f"{near} is; a smaller last work-group needs --build-options -cl-std=CL2.0 or CL3.0",
            )


def _numbers(text: str, option: str, least: int) -> tuple[int, ...]:
    words = text.replace("x", ",").split(",")
    if not 1 <= len(words) <= 3 or not all(w.strip().isdigit() and int(w) >= least for w in words):
        raise ManyclError(f"{option} {text}: expected one to three integers from {least} on", hint=f"{option} 1024,768")
    return tuple(int(w) for w in words)


def _range(text: str | None, found: LaunchFacts) -> GroupRange:
    """The work-groups to show the regions of."""
    launch = found.launch
    if text is None:
        wide = [d for d in range(len(launch.global_size)) if launch.groups(d) > 1]
        best = [d for d in wide if found.split(d).splittable] or [d for d in wide if found.split(d).mergeable] or wide
        dimension = best[0] if best else 0
        return GroupRange(dimension, 0, max(1, launch.groups(dimension) // 2))
    words = text.split(":")
    if len(words) != 3 or not all(w.isdigit() for w in words):
        raise ManyclError(f"--groups {text}: expected DIM:FIRST:COUNT", hint="--groups 0:0:8, the first 8 along x")
    dimension, first, count = map(int, words)
    if dimension >= len(launch.global_size):
        raise ManyclError(f"--groups {text}: the launch has {len(launch.global_size)} dimensions, from 0 on")
    groups = launch.groups(dimension)
    if count < 1 or first + count > groups:
        raise ManyclError(f"--groups {text}: there are {groups} work-groups along dimension {dimension}, from 0 on")
    return GroupRange(dimension, first, count)


# -- arguments


def _check_names(kernel: KernelFacts, given: Mapping[str, str]) -> None:
    known = {a.name: a for a in kernel.arguments}
    for name in given:
        if name not in known:
            near = suggest(name, list(known))
            raise ManyclError(
                f"kernel {kernel.name} has no argument {name!r}{near}",
                hint=f"its arguments: {', '.join(known) or 'none'}",
            )
        if known[name].kind in ("image", "sampler", "pipe", "other"):
            raise ManyclError(f"argument {name} is of kind {known[name].kind}: it takes no value here")


def _scalars(kernel: KernelFacts, given: Mapping[str, str]) -> tuple[dict[str, Number], dict[int, bytes]]:
    """Values by name, for the sizes of buffers, and bytes by index."""
    from manycl.graph.launch import INTEGERS

    scope: dict[str, Number] = {}
    data: dict[int, bytes] = {}
    for argument in kernel.arguments:
        if argument.kind != "scalar":
            continue
        text = given.get(argument.name)
        if text is not None:
            data[argument.index], value = _packed(argument, text, scope)
            if value is not None:
                scope[argument.name] = value
        elif argument.base in INTEGERS:
            raise ManyclError(
                f"argument {argument.name} ({argument.element}) of kernel {kernel.name} needs a value",
                hint=f"--arg {argument.name}={'1,2' if argument.lanes > 1 else '1024'}",
            )
    return scope, data


def _packed(argument: ArgumentFacts, text: str, scope: Mapping[str, Number]) -> tuple[bytes, Number | None]:
    """The bytes of a scalar argument, and its value where it is one number."""
    from manycl.graph.launch import INTEGERS, TYPES, scalar_bytes

    what = f"--arg {argument.name}={text}"
    if argument.base not in TYPES:
        try:
            return scalar_bytes(argument, bytes.fromhex(text.removeprefix("0x"))), None
        except (ValueError, LaunchError) as error:
            raise ManyclError(f"{what}: {error}", hint="bytes in hexadecimal, 0x01020304") from None
    evaluated = evaluate_integer if argument.base in INTEGERS else evaluate
    try:
        values = [evaluated(word, scope) for word in split_list(text)]
        data = scalar_bytes(argument, values[0] if argument.lanes == len(values) == 1 else values)
    except (ExpressionError, LaunchError) as error:
        raise ManyclError(f"{what}: {error}") from None
    return data, values[0] if len(values) == 1 else None


def _buffers(
    kernel: KernelFacts, given: Mapping[str, str], scope: Mapping[str, Number]
) -> tuple[dict[int, int], dict[int, int]]:
    """Bytes of the buffers that are given a size, and which share an earlier one's."""
    buffers = {a.name: a for a in kernel.arguments if a.kind == "buffer"}
    sizes: dict[int, int] = {}
    same: dict[int, int] = {}
    for name, argument in buffers.items():
        text = given.get(name)
        if text is None:
            continue
        other = buffers.get(text.strip())
        if other is None:
            sizes[argument.index] = _bytes(argument, text, scope)
            continue
        first, later = sorted(same.get(i, i) for i in (argument.index, other.index))
        if first == later:
            raise ManyclError(f"--arg {name}={text}: they are the same buffer anyway")
        same.update(dict.fromkeys((later, *(i for i, root in same.items() if root == later)), first))
    for later, first in same.items():
        if later in sizes:
            sizes.setdefault(first, sizes.pop(later))
    return sizes, same


def _bytes(argument: ArgumentFacts, text: str, scope: Mapping[str, Number]) -> int:
    try:
        return units.parse_bytes(text)
    except ValueError:
        pass
    try:
        elements = evaluate_integer(text, scope)
    except ExpressionError as error:
        raise ManyclError(
            f"--arg {argument.name}={text}: {error}", hint="a number of elements, or bytes with a unit: 64MiB"
        ) from None
    if elements < 1:
        raise ManyclError(f"--arg {argument.name}={text}: a buffer has at least one element")
    return elements * (argument.size or 1)


def sized(
    program: ProgramFacts, kernel: KernelFacts, launch: KnownLaunch, missing: Sequence[ArgumentFacts]
) -> KnownLaunch:
    """The launch with the smallest sizes that hold what is accessed of the buffers that are given none."""
    from manycl.analysis import service
    from manycl.report.analysis.expr import named

    roots = {launch.same.get(a.index, a.index) for a in missing}
    trial = replace(launch, sizes={**launch.sizes, **dict.fromkeys(roots, _ROOM)})
    found = service.launched(program, kernel.name, trial)
    ends = dict.fromkeys(roots, 0)
    for argument in missing:
        root = launch.same.get(argument.index, argument.index)
        for kind in ("read", "write"):
            region = found.region(argument.index, kind)
            end = max((rect.end for rect in region.rectangles), default=0)
            if end >= (_ROOM if region.exact else _LIKELY):
                raise ManyclError(
                    f"the size of {argument.name} does not follow from the other sizes: "
                    f"{named(region.reason, kernel) or 'its accesses go on for terabytes'}",
                    hint=f"--arg {argument.name}=1024 (elements of {argument.element}) or {argument.name}=64MiB",
                )
            element = argument.size or 1
            ends[root] = max(ends[root], -(-end // element) * element, element)
    return replace(launch, sizes={**launch.sizes, **ends})
