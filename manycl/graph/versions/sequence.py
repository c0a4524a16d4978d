"""Versions of kernels that are several kernels, one after another, with temporary memory between them.

A step of an application may be one large unit or several smaller ones ("Static partitioning and scheduling of kernels
from profiles" (REPARA), Section 2.1). Such a version is a program whose kernel has the arguments and directions of the
kernel that it is a version of; a device that runs it is given its kernels, in order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import LaunchError
from manycl.graph.graph import Argument, BufferArg, BufferKey, Launch, Version


class OfArgument(NamedTuple):
    """Of the buffer that argument ``number`` of the launch is, or is a part of: all, or ``nbytes`` bytes from
    ``offset`` on."""

    number: int
    offset: int
    nbytes: int | None


class Temporary(NamedTuple):
    """Of temporary buffer ``number``: all of it, or ``nbytes`` bytes from ``offset`` on."""

    number: int
    offset: int
    nbytes: int | None


@dataclass(frozen=True, slots=True, eq=False)
class SequenceProgram(ProgramFacts):
    """``steps``: launches of the kernels, whose buffers are named by :attr:`places`. ``temporaries``: bytes of each.
    Its own ``source`` names it for models."""

    steps: tuple[Launch, ...] = ()
    places: tuple[tuple[OfArgument | Temporary | None, ...], ...] = ()
    temporaries: tuple[int, ...] = ()

    def launches(self, launch: Launch) -> list[Launch]:
        """The kernels' launches for one of the kernel that this is a version of. Temporary buffers have the keys
        :func:`temporary_key`."""
        found = []
        for step, at in zip(self.steps, self.places, strict=True):
            args = tuple(a if p is None else _argument(p, launch.args) for a, p in zip(step.args, at, strict=True))
            pairs = zip(step.args, args, strict=True)
            keys = {a.key: b.key for a, b in pairs if isinstance(a, BufferArg) and isinstance(b, BufferArg)}
            reads, writes = (tuple(keys[key] for key in of) for of in (step.reads, step.writes))
            found.append(replace(step, args=args, reads=reads, writes=writes))
        return found

    def sizes(self) -> dict[BufferKey, int]:
        """Bytes of the temporary buffers by key."""
        return {temporary_key(number): nbytes for number, nbytes in enumerate(self.temporaries)}


def temporary_key(number: int) -> BufferKey:
    """Stands for a temporary buffer; no other buffer has it."""
    return BufferKey(-(1 << 40) - number)


def is_sequence(version: Version) -> bool:
    """Whether a version is several kernels."""
    return isinstance(version.program, SequenceProgram)


def _argument(place: OfArgument | Temporary, args: Sequence[Argument]) -> BufferArg:
    if isinstance(place, Temporary):
        return BufferArg(temporary_key(place.number), place.offset, place.nbytes)
    outer = args[place.number]
    assert isinstance(outer, BufferArg)
    return BufferArg(outer.key, place.offset, place.nbytes)


def sequence_program(
    name: str, kernel: KernelFacts, args: Sequence[Argument], steps: Sequence[Launch], sizes: Mapping[BufferKey, int]
) -> SequenceProgram:
    """Launches that are to do what one of ``kernel`` does with ``args``; ``sizes``: bytes of the temporary buffers that
    they use beside. Raises LaunchError where they touch what the kernel does not, or read what nobody has written."""
    outer, number = _numbered(args, sizes)
    _check(name, kernel, args, steps, number)
    places = tuple(tuple(_place(a, outer, number) for a in step.args) for step in steps)
    texts = (f"{s.kernel.name} {s.local_size} {s.program.options}\n{s.program.source}" for s in steps)
    return SequenceProgram(
        source="\n".join([f"kernels {name} as kernel {kernel.name}", *texts]),
        options=(),
        kernels={name: replace(kernel, name=name)},
        path=steps[0].program.path,
        steps=tuple(replace(step, versions=(), device="", rank=None, overwrites=()) for step in steps),
        places=places,
        temporaries=tuple(sizes.values()),
    )


def structure(args: Sequence[Argument], steps: Sequence[Launch], sizes: Mapping[BufferKey, int]) -> Hashable:
    """What sequences have in common that are the same program."""
    outer, number = _numbered(args, sizes)
    return tuple(sizes.values()), tuple(
        (
            id(s.program),
            s.kernel.name,
            s.global_size,
            s.local_size,
            s.global_offset,
            s.annotations,
            tuple(_place(a, outer, number) or a for a in s.args),
        )
        for s in steps
    )


def _numbered(
    args: Sequence[Argument], sizes: Mapping[BufferKey, int]
) -> tuple[dict[BufferKey, int], dict[BufferKey, int]]:
    """The arguments that buffers are first, and the numbers of temporary ones."""
    outer: dict[BufferKey, int] = {}
    for index, a in enumerate(args):
        if isinstance(a, BufferArg):
            outer.setdefault(a.key, index)
    return outer, {key: i for i, key in enumerate(sizes)}


def _place(
    argument: Argument, outer: Mapping[BufferKey, int], number: Mapping[BufferKey, int]
) -> OfArgument | Temporary | None:
    if not isinstance(argument, BufferArg):
        return None
    if argument.key in outer:
        return OfArgument(outer[argument.key], argument.offset, argument.nbytes)
    return Temporary(number[argument.key], argument.offset, argument.nbytes)


def _check(
    name: str, kernel: KernelFacts, args: Sequence[Argument], steps: Sequence[Launch], number: Mapping[BufferKey, int]
) -> None:
    given = [(a.key, facts) for a, facts in zip(args, kernel.arguments, strict=True) if isinstance(a, BufferArg)]
    reads = {key for key, facts in given if facts.reads}
    writes = {key for key, facts in given if facts.writes}
    names = {key: facts.name for key, facts in given}
    written: set[BufferKey] = set()
    for step in steps:
        where = f"version {name} of kernel {kernel.name}: kernel {step.kernel.name}"
        for key in step.reads:
            if key not in reads and key not in written:
                what = "a temporary array" if key in number else names[key]
                raise LaunchError(f"{where} reads {what}, which the kernel does not and nothing before it has written")
        for key in step.writes:
            if key not in writes and key not in number:
                raise LaunchError(f"{where} writes {names[key]}, which the kernel does not")
        written.update(step.writes)
