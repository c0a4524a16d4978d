"""Versions of kernels that are several kernels, one after another, with temporary memory between them. A step of an
application may be one large unit or several smaller ones ("Static partitioning and scheduling of kernels from profiles"
(REPARA), Section 2.1). Such a version is a program whose kernel has the arguments and directions of the kernel that it
is a version of; a device that runs it is given its kernels, in order."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import LaunchError
from manycl.graph.graph import Argument, BufferArg, BufferKey, Launch, Version
from manycl.graph.rename import renamed_arguments, renamed_node


@dataclass(frozen=True, slots=True, eq=False)
class SequenceProgram(ProgramFacts):
    """``steps``: launches of the kernels, whose buffers are the numbers of the launch's arguments, and
    :func:`temporary_key`. ``temporaries``: bytes of each. Its own ``source`` names it for models."""

    steps: tuple[Launch, ...] = ()
    temporaries: tuple[int, ...] = ()

    def launches(self, launch: Launch) -> list[Launch]:
        """The kernels' launches for one of the kernel that this is a version of."""
        keys = {BufferKey(number): a.key for number, a in enumerate(launch.args) if isinstance(a, BufferArg)}
        return [renamed_node(step, keys) for step in self.steps]

    def sizes(self) -> dict[BufferKey, int]:
        """Bytes of the temporary buffers by key."""
        return {temporary_key(number): nbytes for number, nbytes in enumerate(self.temporaries)}


def temporary_key(number: int) -> BufferKey:
    """Stands for a temporary buffer; no other buffer has it."""
    return BufferKey(-(1 << 40) - number)


def is_sequence(version: Version) -> bool:
    """Return whether a version is several kernels."""
    return isinstance(version.program, SequenceProgram)


def sequence_program(
    name: str, kernel: KernelFacts, args: Sequence[Argument], steps: Sequence[Launch], sizes: Mapping[BufferKey, int]
) -> SequenceProgram:
    """Launches that are to do what one of ``kernel`` does with ``args``; ``sizes``: bytes of the temporary buffers that
    they use beside. Raises LaunchError where they touch what the kernel does not, or read what nobody has written."""
    _check(name, kernel, args, steps, sizes)
    keys = _numbered(args, sizes)
    texts = (f"{s.kernel.name} {s.local_size} {s.program.options}\n{s.program.source}" for s in steps)
    return SequenceProgram(
        source="\n".join([f"kernels {name} as kernel {kernel.name}", *texts]),
        options=(),
        kernels={
            name: replace(
                kernel,
                name=name,
                uses_double=any(s.kernel.uses_double for s in steps),
                extensions=tuple(sorted({word for s in steps for word in s.kernel.extensions})),
            )
        },
        path=steps[0].program.path,
        steps=tuple(
            replace(renamed_node(step, keys), versions=(), device="", rank=None, overwrites=()) for step in steps
        ),
        temporaries=tuple(sizes.values()),
    )


def structure(args: Sequence[Argument], steps: Sequence[Launch], sizes: Mapping[BufferKey, int]) -> Hashable:
    """Return what sequences have in common that are the same program."""
    keys = _numbered(args, sizes)
    return tuple(sizes.values()), tuple(
        (
            id(s.program),
            s.kernel.name,
            s.global_size,
            s.local_size,
            s.global_offset,
            s.annotations,
            renamed_arguments(s.args, keys),
        )
        for s in steps
    )


def _numbered(args: Sequence[Argument], sizes: Mapping[BufferKey, int]) -> dict[BufferKey, BufferKey]:
    """By buffer, the number of the argument that it is first, and the keys of temporary ones."""
    keys = {key: temporary_key(number) for number, key in enumerate(sizes)}
    for number, a in enumerate(args):
        if isinstance(a, BufferArg):
            keys.setdefault(a.key, BufferKey(number))
    return keys


def _check(
    name: str, kernel: KernelFacts, args: Sequence[Argument], steps: Sequence[Launch], own: Mapping[BufferKey, int]
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
                what = "a temporary array" if key in own else names[key]
                raise LaunchError(f"{where} reads {what}, which the kernel does not and nothing before it has written")
        for key in step.writes:
            if key not in writes and key not in own:
                raise LaunchError(f"{where} writes {names[key]}, which the kernel does not")
        written.update(step.writes)
