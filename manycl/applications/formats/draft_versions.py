"""Versions of a kernel that an application file describes, until the buffers of the launch are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from manycl.analysis.annotations import Annotation
from manycl.analysis.facts import ProgramFacts
from manycl.applications.application import Contents
from manycl.applications.python_files import FileFunction
from manycl.errors import LaunchError
from manycl.graph.bounds import check_launch
from manycl.graph.graph import Argument, Buffer, BufferArg, BufferKey, Graph, Launch, LocalArg, Version
from manycl.graph.launch import LaunchOptions, make_launch
from manycl.graph.versions.host_version import RUNS_ON, ArrayForm, HostProgram, host_program
from manycl.graph.versions.sequence import sequence_program
from manycl.utilities.json_lines import Location


class DraftVersion(Protocol):
    """What becomes a version of a launch, which has no others yet; ``contents``: of the graph's buffers. Raises
    SpecificationError and LaunchError."""

    def of(self, launch: Launch, contents: Mapping[BufferKey, Contents]) -> Version: ...


@dataclass(frozen=True, slots=True)
class KernelDraft:
    """Another kernel."""

    version: Version

    def of(self, launch: Launch, contents: Mapping[BufferKey, Contents]) -> Version:
        return self.version


@dataclass(frozen=True, slots=True)
class FunctionDraft:
    """A function of Python, which can be told which part to do along a ``dimension`` of the NDRange (None: it does
    all)."""

    function: FileFunction
    dimension: int | None

    def of(self, launch: Launch, contents: Mapping[BufferKey, Contents]) -> Version:
        def form(argument: Argument) -> ArrayForm | None:
            if not isinstance(argument, BufferArg):
                return None
            return ArrayForm(contents[argument.key].shape, np.dtype(contents[argument.key].dtype), argument.offset)

        forms = tuple(map(form, launch.args))
        origin = self.function.origin(launch.kernel.name)
        program = host_program(self.function, launch.program, launch.kernel, forms, self.dimension, origin)
        kernel = program.kernels[self.function.__name__]
        return Version(program, kernel, launch.global_size, launch.local_size, RUNS_ON, launch.annotations)


class ArgumentOf(NamedTuple):
    """The buffer that is given for a parameter of the launch's kernel."""

    number: int


class TemporaryBuffer(NamedTuple):
    """A temporary buffer of the version."""

    number: int


class KernelStep(NamedTuple):
    """One of several kernels."""

    program: ProgramFacts
    kernel: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    args: tuple[ArgumentOf | TemporaryBuffer | LocalArg | bytes, ...]
    global_offset: tuple[int, ...] | None
    annotations: tuple[Annotation, ...]
    place: Location


@dataclass(frozen=True, slots=True)
class SequenceDraft:
    """Several kernels, with ``temporaries`` (types and sizes count) between them, for devices of some ``kinds``."""

    name: str
    kinds: tuple[str, ...]
    steps: tuple[KernelStep, ...]
    temporaries: tuple[Contents, ...]

    def of(self, launch: Launch, contents: Mapping[BufferKey, Contents]) -> Version:
        first = max(contents, default=-1) + 1
        keys = [BufferKey(first + i) for i in range(len(self.temporaries))]
        known = {**contents, **dict(zip(keys, self.temporaries, strict=True))}
        steps = [_step(step, launch.args, keys, known) for step in self.steps]
        sizes = {key: known[key].nbytes for key in keys}
        program = sequence_program(self.name, launch.kernel, launch.args, steps, sizes)
        kernel = program.kernels[self.name]
        return Version(program, kernel, launch.global_size, launch.local_size, self.kinds, launch.annotations)


def functions(graph: Graph) -> Iterator[tuple[Version, FileFunction]]:
    """The versions of a graph's launches that are functions of files."""
    for task in graph.nodes:
        for version in task.versions if isinstance(task, Launch) else ():
            if isinstance(version.program, HostProgram) and isinstance(version.program.function, FileFunction):
                yield version, version.program.function


def _step(
    step: KernelStep, given: Sequence[Argument], temporaries: Sequence[BufferKey], known: Mapping[BufferKey, Contents]
) -> Launch:
    """A checked launch of one of several kernels."""

    def bound(value: ArgumentOf | TemporaryBuffer | LocalArg | bytes) -> Argument:
        if isinstance(value, ArgumentOf):
            return given[value.number]
        return BufferArg(temporaries[value.number]) if isinstance(value, TemporaryBuffer) else value

    buffers = {key: Buffer(key, of.nbytes) for key, of in known.items()}
    try:
        launch = make_launch(
            step.program,
            step.kernel,
            step.global_size,
            step.local_size,
            [bound(value) for value in step.args],
            buffers=buffers,
            dtypes={key: of.dtype for key, of in known.items()},
            options=LaunchOptions(global_offset=step.global_offset, annotations=step.annotations),
        )
        check_launch(launch, buffers)
    except LaunchError as error:
        raise step.place.error(error.message, error.hint) from None
    return launch
