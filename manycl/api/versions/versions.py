"""Versions of a kernel that are declared from Python, and the versions that a launch of it has."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from manycl.api.arrays.arrays import Array
from manycl.errors import LaunchError
from manycl.graph.bounds import check_launch
from manycl.graph.graph import Argument, BufferArg, Launch, Version
from manycl.graph.launch import check_ndrange
from manycl.graph.versions.host_version import HOST_KIND, RUNS_ON, ArrayForm, HostProgram, function_name, host_program
from manycl.graph.versions.sequence import SequenceProgram, sequence_program, structure
from manycl.machine import DEVICE_KINDS
from manycl.utilities.kept import MANY, Kept

if TYPE_CHECKING:
    from manycl.api.arrays.array_queue import ArrayQueue as Queue
    from manycl.api.program import Kernel

_Sizes = tuple[int, ...]
_NDRange = tuple[_Sizes, _Sizes | None]
NDRangeFunction = Callable[[_Sizes, _Sizes | None], tuple[Sequence[int], Sequence[int] | None]]


@dataclass(frozen=True)
class SourceVersion:
    """Another kernel as a version. ``kinds``: the kinds of device that it is for; ``ndrange``: turns a call's sizes
    into its own."""

    kernel: Kernel
    kinds: tuple[str, ...]
    ndrange: NDRangeFunction | None

    def of(self, queue: Queue, own: Kernel, sizes: _NDRange, args: Sequence[Any], bound: Sequence[Argument]) -> Version:
        """Return this version of a launch whose arguments are ``bound``."""
        size, local = check_ndrange(self.kernel.facts, *(self.ndrange(*sizes) if self.ndrange else sizes))
        return Version(self.kernel.program, self.kernel.facts, size, local, self.kinds, self.kernel.annotations)


@dataclass(frozen=True)
class FunctionVersion:
    """A function of Python as a version. ``dimension``: along which it can be called for a range of work-items."""

    function: Callable[..., Any]
    dimension: int | None
    _programs: Kept[tuple[ArrayForm | None, ...], HostProgram] = field(default_factory=lambda: Kept(MANY))

    def of(self, queue: Queue, own: Kernel, sizes: _NDRange, args: Sequence[Any], bound: Sequence[Argument]) -> Version:
        """Return this version of a launch: the same program as long as the arrays have the same shapes and types."""
        if self.dimension is not None and self.dimension >= len(sizes[0]):
            raise LaunchError(
                f"kernel {own.name}: a version of it, {function_name(self.function)}, is divided along dimension"
                f" {self.dimension}, which the NDRange {sizes[0]} does not have"
            )
        forms = tuple([ArrayForm(a.shape, a.dtype, a.offset) if isinstance(a, Array) else None for a in args])
        program = self._programs.get(forms) or self._programs.keep(
            forms, host_program(self.function, own.program, own.facts, forms, self.dimension)
        )
        (kernel,) = program.kernels.values()
        return Version(program, kernel, *sizes, RUNS_ON, own.annotations)


@dataclass(frozen=True)
class SequenceVersion:
    """Several kernels as a version, which ``function(queue, global_size, local_size, *arguments)`` enqueues, for
    devices of some ``kinds``."""

    function: Callable[..., Any]
    kinds: tuple[str, ...]
    _programs: Kept[Hashable, SequenceProgram] = field(default_factory=lambda: Kept(MANY))

    def of(self, queue: Queue, own: Kernel, sizes: _NDRange, args: Sequence[Any], bound: Sequence[Argument]) -> Version:
        """Return this version of a launch. Raises LaunchError for none, and what the function raises."""
        name = function_name(self.function)
        nodes, arrays, made = queue.collected(lambda: self.function(queue, *sizes, *args))
        outer = {a.key for a in bound if isinstance(a, BufferArg)}
        sizes_of = {key: array.buffer.nbytes for key, array in arrays.items() if key not in outer}
        steps = [node for node in nodes if isinstance(node, Launch)]
        what = ""
        if len(steps) < len(nodes) or not nodes:
            what = "enqueues something else than kernels" if nodes else "enqueues no kernel"
        elif not sizes_of.keys() <= {array.buffer.key for array in made}:
            what = "uses an array that is neither an argument nor made by it with queue.empty"
        if what:
            raise LaunchError(f"kernel {own.name}: its version {name} {what}")
        for step in steps:
            check_launch(step, {key: array.buffer for key, array in arrays.items()})
        key = structure(bound, steps, sizes_of)
        program = self._programs.get(key) or self._programs.keep(
            key, sequence_program(name, own.facts, bound, steps, sizes_of)
        )
        return Version(program, program.kernels[name], *sizes, self.kinds, own.annotations)


AnyVersion = SourceVersion | FunctionVersion | SequenceVersion


def function_version(
    own: Kernel, function: Callable[..., Any], kinds: Sequence[str], dimension: int | None
) -> FunctionVersion:
    """Return a function of Python as a version of a kernel. Raises LaunchError where it cannot be one."""
    if tuple(kinds) != (HOST_KIND,):
        raise LaunchError(
            f"kernel {own.name}: a function of Python is a version for {HOST_KIND!r},"
            f" not for {', '.join(kinds) or 'any device'}",
            hint=f'kernel.add_version(function, "{HOST_KIND}")',
        )
    if dimension is not None and not 0 <= dimension <= 2:
        raise LaunchError(f"kernel {own.name}: divide={dimension!r} is no dimension of an NDRange (0, 1 or 2)")
    return FunctionVersion(function, dimension)


def check_kinds(own: Kernel, kinds: Sequence[str]) -> None:
    """Raise LaunchError for a name that is no kind of device."""
    for kind in kinds:
        if kind == HOST_KIND:
            raise LaunchError(
                f"kernel {own.name}: versions for {HOST_KIND!r} are functions of Python, not kernels",
                hint='a kernel for the processor is one for "cpu"',
            )
        if kind not in DEVICE_KINDS:
            raise LaunchError(
                f"kernel {own.name}: {kind!r} is no kind of device", hint=f"kinds: {', '.join(DEVICE_KINDS)}"
            )
