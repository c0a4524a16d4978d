"""Versions of a kernel: implementations of one step. Any of them may run: all do the same to the same arguments. What
can be checked is checked: the same arguments in the same order, of the same kinds, types and directions. That they
compute the same results is for the user to see to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from manycl.analysis.annotations import about_data, merge
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.errors import LaunchError
from manycl.graph.graph import Launch, Version


def preferred(versions: Sequence[Version], kind: str) -> tuple[int, ...]:
    """Indices of the versions that a device of ``kind`` may run: those meant for the kind, then those for any."""
    meant = tuple(i for i, v in enumerate(versions) if kind in v.kinds)
    return meant + tuple(i for i, v in enumerate(versions) if not v.kinds)


def run_as(launch: Launch, version: int) -> Launch:
    """The launch as one of its versions (index) alone; itself where it has none."""
    if not launch.versions:
        return launch
    chosen = launch.versions[version]
    return replace(
        launch,
        program=chosen.program,
        kernel=chosen.kernel,
        global_size=chosen.global_size,
        local_size=chosen.local_size,
        annotations=chosen.annotations,
        versions=(),
    )


def possible(versions: Sequence[Version], kinds: Iterable[str]) -> tuple[int, ...]:
    """Indices of the versions that devices of some kinds may run, in ascending order."""
    return tuple(sorted({index for kind in kinds for index in preferred(versions, kind)}))


def all_versions(
    own: Version, others: Sequence[Version], global_offset: tuple[int, ...] | None = None
) -> tuple[Version, ...]:
    """A launch's ``versions``: its own, then the others, which also take over what is promised about the data. Raises
    LaunchError where one differs from the first in its arguments, or its NDRange does not go with the offset."""
    data = about_data(own.annotations)
    found = [own]
    for other in others:
        check_same_arguments(own.program, own.kernel, other.program, other.kernel)
        if global_offset is not None and len(global_offset) != len(other.global_size):
            raise LaunchError(
                f"{_place(other.program, other.kernel)}: global offset {global_offset}"
                f" does not fit the global size {other.global_size}"
            )
        found.append(replace(other, annotations=merge(data, other.annotations)) if data else other)
    return tuple(found)


def check_same_arguments(
    program: ProgramFacts, kernel: KernelFacts, other_program: ProgramFacts, other_kernel: KernelFacts
) -> None:
    """Raise LaunchError at the first difference in number, order, kind, address space, type or direction."""
    here, there = _place(program, kernel), _place(other_program, other_kernel)
    mine, others = kernel.arguments, other_kernel.arguments
    if len(mine) != len(others):
        counts = [f"{len(a)} ({', '.join(_name(x) for x in a)})" if a else "none" for a in (mine, others)]
        raise LaunchError(
            f"versions of one step differ in their arguments: {here} has {counts[0]}, {there} {counts[1]}"
        )
    same_names = {a.name for a in mine} == {a.name for a in others}
    for a, b in zip(mine, others, strict=True):
        if same_names and a.name != b.name:
            raise LaunchError(
                f"versions of one step differ in the order of their arguments:"
                f" argument {a.index} is {_name(a)} in {here}, {_name(b)} in {there}"
            )
        for aspect in _ASPECTS:
            if aspect(a) != aspect(b):
                name = _name(a) if a.name == b.name else f"{_name(a)}, {_name(b)}"
                raise LaunchError(
                    f"versions of one step differ in argument {a.index} ({name}):"
                    f" {aspect(a)}{_why(a, aspect)} in {here}, {aspect(b)}{_why(b, aspect)} in {there}"
                )


def _kind(a: ArgumentFacts) -> str:
    return {"scalar": "a value", "local": "local memory", "buffer": "a buffer"}.get(a.kind, a.kind)


def _space(a: ArgumentFacts) -> str:
    return f"{a.address_space} memory"


def _type(a: ArgumentFacts) -> str:
    lanes = str(a.lanes) if a.lanes > 1 else ""
    return f"type {a.base}{lanes}" if a.base else f"type {a.element} of {a.size} bytes"


def _direction(a: ArgumentFacts) -> str:
    return {"both": "read and written"}.get(a.direction, a.direction)


_ASPECTS: tuple[Callable[[ArgumentFacts], str], ...] = (_kind, _space, _type, _direction)


def _why(a: ArgumentFacts, aspect: Callable[[ArgumentFacts], str]) -> str:
    return f" ({a.reason})" if aspect is _direction and a.reason else ""


def _place(program: ProgramFacts, kernel: KernelFacts) -> str:
    return f"kernel {kernel.name} ({program.path}:{kernel.line})"


def _name(a: ArgumentFacts) -> str:
    return a.name or f"#{a.index}"
