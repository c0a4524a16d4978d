"""Launches whose arguments are views, in a form that a device can run. A view that begins where parts of the device's
allocations may (``Device.alignment``) becomes such a part. For any other view the kernel gets the whole buffer and
moves its pointer on, as kernels on windows move theirs back (:mod:`manycl.analysis.texts.rewrite`): a hidden ``ulong``
argument is the distance."""

from __future__ import annotations

from typing import NamedTuple

from manycl.analysis import service
from manycl.analysis.facts import ProgramFacts
from manycl.errors import RunError
from manycl.graph.graph import Argument, BufferArg
from manycl.graph.versions.host_version import HostProgram
from manycl.machine import Device
from manycl.utilities.kept import MANY, Kept


class Shifted(NamedTuple):
    """A program whose kernel moves the pointers of the arguments ``movable``; ``reason``: why there is none, or not for
    all arguments. ``original`` is kept because its identity is a key."""

    program: ProgramFacts
    movable: tuple[int, ...]
    reason: str
    original: ProgramFacts


_known: Kept[tuple[int, str], Shifted] = Kept(MANY)


def shifted(program: ProgramFacts, kernel: str) -> Shifted:
    """Return the program for a kernel whose arguments begin anywhere."""
    key = id(program), kernel
    found = _known.get(key)
    if found is None:
        made = service.sub_kernel(program, kernel, "shifted_kernel")
        text = program if made.reason else service.parse_program(made.source, path=program.path, options=made.options)
        found = _known.keep(key, Shifted(text, made.windows, made.reason, program))
    return found


def unaligned(args: tuple[Argument, ...], alignment: int) -> list[int]:
    """Return the arguments (indices) that are views which cannot be parts of allocations."""
    return [i for i, a in enumerate(args) if type(a) is BufferArg and a.nbytes is not None and a.offset % alignment]


def placed(
    program: ProgramFacts, kernel: str, args: tuple[Argument, ...], device: Device
) -> tuple[ProgramFacts, tuple[Argument, ...]]:
    """Return the program and the arguments with which a device runs a kernel. Raises RunError where it cannot."""
    if isinstance(program, HostProgram):  # a host function gets views that begin anywhere
        return program, tuple(BufferArg(a.key) if isinstance(a, BufferArg) else a for a in args)
    moved = unaligned(args, device.alignment)
    if not moved:
        return program, args
    found = shifted(program, kernel)
    if not set(moved) <= set(found.movable):
        index = next(i for i in moved if i not in found.movable)
        argument = args[index]
        assert isinstance(argument, BufferArg)
        raise RunError(
            f"kernel {kernel}: argument {index} ({program.kernels[kernel].arguments[index].name}) begins at byte"
            f" {argument.offset} of its buffer; on {device.name} a part of a buffer begins at a multiple of"
            f" {device.alignment} bytes, and its pointer cannot be moved: {found.reason or 'it points to constants'}",
            hint="copy the part to an array of its own (Queue.copy)",
        )
    moves = (-a.offset if i in moved and isinstance(a := args[i], BufferArg) else 0 for i in found.movable)
    given = tuple(BufferArg(a.key) if i in moved and isinstance(a, BufferArg) else a for i, a in enumerate(args))
    return found.program, (*given, *((n % (1 << 64)).to_bytes(8, "little") for n in moves))
