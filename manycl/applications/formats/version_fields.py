"""Versions of a kernel in a specification: other kernels, functions of Python, several kernels one after another. Each
is read as a function that makes it, once the buffers of the launch are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications.application import Contents
from manycl.applications.assemble import DraftVersion
from manycl.applications.formats.contents import array_type
from manycl.applications.formats.kernel_fields import (
    given_arguments,
    inherit,
    label_of,
    read_annotations,
    read_ndrange,
    read_offset,
    read_program,
    read_value,
    show_value,
)
from manycl.applications.formats.kinds import Fields
from manycl.applications.formats.symbols import Scope, limit, text
from manycl.applications.python_files import FileFunction, PythonFile, python_file
from manycl.errors import LaunchError
from manycl.expressions import suggest
from manycl.graph.bounds import check_launch
from manycl.graph.graph import Argument, Buffer, BufferArg, BufferKey, Launch, LocalArg, Version
from manycl.graph.launch import LaunchOptions, make_launch
from manycl.graph.versions.host_version import RUNS_ON, ArrayForm, host_program
from manycl.graph.versions.sequence import sequence_program
from manycl.graph.versions.versions import check_same_arguments
from manycl.utilities.json_lines import Location, read_text

StepArgument = int | LocalArg | bytes
"""An argument of one of several kernels; a number: a buffer of the launch, or else a temporary one of the version."""
Step = Callable[[Sequence[Argument], Mapping[BufferKey, Contents]], Launch]
"""A function that makes the launch of a kernel of a sequence from its buffers and the contents of all buffers."""

_OF_FUNCTIONS = ("file", "function", "divide", "description")
_OF_SEQUENCES = ("kernels", "buffers", "name", "source", "options", "macros", "for", "description")


class VersionReader:
    """Of one file. ``folder``: where it lies; ``trust``: its Python files may lie anywhere."""

    def __init__(self, programs: KernelFiles, folder: Path, trust: bool) -> None:
        self._programs, self._folder, self._trust = programs, folder, trust
        self._files: dict[Path, PythonFile] = {}

    def read(self, program: ProgramFacts, kernel: KernelFacts, own: Fields) -> Iterator[DraftVersion]:
        """The versions of a kernel, whose fields are ``own``."""
        for version in own["versions"]:
            if any(name in version for name in ("file", "function", "divide")):
                _only(version, _OF_FUNCTIONS, "a function of Python")
                yield self._function(version, kernel, own)
            elif "kernels" in version or "buffers" in version:
                _only(version, _OF_SEQUENCES, "several kernels")
                yield self._sequence(version, kernel, own)
            else:
                yield self._kernel(version, program, kernel, own)

    def _kernel(self, node: Fields, program: ProgramFacts, kernel: KernelFacts, own: Fields) -> DraftVersion:
        fields = _with_own_ndrange(node, own)
        version_program, version = read_program(self._programs, fields)
        try:
            check_same_arguments(program, kernel, version_program, version)
        except LaunchError as error:
            raise node.place.error(error.message) from None
        size, local = read_ndrange(version, fields)
        found = Version(version_program, version, size, local, node["for"], read_annotations(version, node))
        return lambda launch, contents: found

    def _function(self, node: Fields, kernel: KernelFacts, own: Fields) -> DraftVersion:
        if "file" not in node:
            raise node.place.error("the field 'file' is missing")
        path = python_file(node, self._folder, self._trust)
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = PythonFile(path, read_text(path))
        dimension = node["divide"]
        if dimension is not None:
            dimensions = len(read_ndrange(kernel, own)[0])
            if dimension >= dimensions:
                raise node.where("divide").error(f"is dimension {dimension} of an NDRange that has {dimensions}")
        return partial(_of_function, FileFunction(file, node["function"] or kernel.name), dimension)

    def _sequence(self, node: Fields, kernel: KernelFacts, own: Fields) -> DraftVersion:
        if "kernels" not in node:
            raise node.place.error("the field 'kernels' is missing")
        outer = own.without("offset").inside(node, ("source",))
        names: dict[str, int] = {}
        temporaries: list[Contents] = []
        for name, buffer in node["buffers"].items():
            if any(name == a.name for a in kernel.arguments):
                raise buffer.place.error(f"kernel {kernel.name} has an argument of that name")
            names[name] = len(kernel.arguments) + len(temporaries)
            dtype, shape = array_type(buffer["type"], buffer["shape"], buffer.place)
            temporaries.append(Contents("undefined", dtype, shape))
        names.update((a.name, a.index) for a in kernel.arguments if a.kind == "buffer")
        steps: list[Step] = []
        called: dict[str, None] = {}
        for entry in node["kernels"]:
            for fields in entry.repeated():
                name, step = self._step(fields, outer, kernel, names)
                steps.append(step)
                called[name] = None
                limit(len(steps), fields.place)
        if not steps:
            raise node.where("kernels").error("there are no kernels (every repetition is empty)")
        return partial(_of_sequence, node["name"] or " + ".join(called), node["for"], steps, temporaries)

    def _step(self, node: Fields, outer: Fields, kernel: KernelFacts, names: Mapping[str, int]) -> tuple[str, Step]:
        """The name of the kernel, and what makes its launch, checked."""
        fields = _with_own_ndrange(node, outer)
        program, facts = read_program(self._programs, fields)
        size, local = read_ndrange(facts, fields)
        args = [_argument(*given, kernel, names) for given in given_arguments(facts, fields)]
        options = LaunchOptions(global_offset=read_offset(fields, len(size)), annotations=read_annotations(facts, node))

        def step(given: Sequence[Argument], known: Mapping[BufferKey, Contents]) -> Launch:
            bound = [given[value] if isinstance(value, int) else value for value in args]
            buffers = {key: Buffer(key, of.nbytes) for key, of in known.items()}
            dtypes = {key: of.dtype for key, of in known.items()}
            try:
                found = make_launch(
                    program, facts.name, size, local, bound, buffers=buffers, dtypes=dtypes, options=options
                )
                check_launch(found, buffers)
            except LaunchError as error:
                raise node.place.error(error.message, error.hint) from None
            return found

        return facts.name, step


def _with_own_ndrange(node: Fields, outer: Fields) -> Fields:
    """The fields of a version, or of one of its kernels: with ``global``, nothing of an NDRange is handed down."""
    alone = "global" in node and "local" not in node
    return inherit(outer.without("local") if alone else outer, node)


def _of_function(
    function: FileFunction, dimension: int | None, launch: Launch, contents: Mapping[BufferKey, Contents]
) -> Version:
    """A function of Python, which can be told which part to do along a dimension of the NDRange (None: it does all)."""

    def form(argument: Argument) -> ArrayForm | None:
        if not isinstance(argument, BufferArg):
            return None
        return ArrayForm(contents[argument.key].shape, np.dtype(contents[argument.key].dtype), argument.offset)

    origin = function.origin(launch.kernel.name)
    program = host_program(function, launch.program, launch.kernel, tuple(map(form, launch.args)), dimension, origin)
    kernel = program.kernels[function.__name__]
    return Version(program, kernel, launch.global_size, launch.local_size, RUNS_ON, launch.annotations)


def _of_sequence(
    name: str,
    kinds: tuple[str, ...],
    steps: Sequence[Step],
    temporaries: Sequence[Contents],
    launch: Launch,
    contents: Mapping[BufferKey, Contents],
) -> Version:
    """Several kernels, with ``temporaries`` (types and sizes count) between them, for devices of some ``kinds``."""
    first = max(contents, default=-1) + 1
    new = {BufferKey(first + i): of for i, of in enumerate(temporaries)}
    given, known = [*launch.args, *map(BufferArg, new)], {**contents, **new}
    launches = [step(given, known) for step in steps]
    sizes = {key: of.nbytes for key, of in new.items()}
    program = sequence_program(name, launch.kernel, launch.args, launches, sizes)
    return Version(program, program.kernels[name], launch.global_size, launch.local_size, kinds, launch.annotations)


def _argument(
    facts: ArgumentFacts, value: Any, scope: Scope, place: Location, kernel: KernelFacts, known: Mapping[str, int]
) -> StepArgument:
    """What one of several kernels is given: for buffers, parameters of the kernel or temporary buffers, by name."""
    if facts.kind != "buffer":
        return read_value(facts, value, scope, place, known)
    if not isinstance(value, str):
        raise place.error(
            f"{label_of(facts)} is a buffer: give the name of an argument of kernel {kernel.name}, or of a buffer of"
            f" the version, not {show_value(value)}"
        )
    name = text(value, scope, place)
    if name not in known:
        raise place.error(
            f"{label_of(facts)} is a buffer, and neither an argument of kernel {kernel.name} nor a buffer of the"
            f" version is called {name!r}{suggest(name, known)}"
        )
    return known[name]


def _only(version: Fields, names: tuple[str, ...], what: str) -> None:
    """That a version which is ``what`` has no other fields."""
    for name in version.values:
        if name not in names:
            raise version.where(name).error(f"a version that is {what} has no such field (it has {', '.join(names)})")
