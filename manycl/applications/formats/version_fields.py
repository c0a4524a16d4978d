"""Versions of a kernel in a specification: other kernels, functions of Python, several kernels one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications.application import Contents
from manycl.applications.formats.contents import array_type
from manycl.applications.formats.draft_versions import (
    ArgumentOf,
    DraftVersion,
    FunctionDraft,
    KernelDraft,
    KernelStep,
    SequenceDraft,
    TemporaryBuffer,
)
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
from manycl.graph.graph import LocalArg, Version
from manycl.graph.versions.versions import check_same_arguments
from manycl.utilities.json_lines import Location, read_text

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
                yield KernelDraft(self._kernel(version, program, kernel, own))

    def _kernel(self, node: Fields, program: ProgramFacts, kernel: KernelFacts, own: Fields) -> Version:
        fields = _with_own_ndrange(node, own)
        version_program, version = read_program(self._programs, fields)
        try:
            check_same_arguments(program, kernel, version_program, version)
        except LaunchError as error:
            raise node.place.error(error.message) from None
        size, local = read_ndrange(version, fields)
        return Version(version_program, version, size, local, node["for"], read_annotations(version, node))

    def _function(self, node: Fields, kernel: KernelFacts, own: Fields) -> FunctionDraft:
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
        return FunctionDraft(FileFunction(file, node["function"] or kernel.name), dimension)

    def _sequence(self, node: Fields, kernel: KernelFacts, own: Fields) -> SequenceDraft:
        if "kernels" not in node:
            raise node.place.error("the field 'kernels' is missing")
        outer = own.without("offset").inside(node, ("source",))
        names: dict[str, TemporaryBuffer] = {}
        temporaries: list[Contents] = []
        for name, buffer in node["buffers"].items():
            if any(name == a.name for a in kernel.arguments):
                raise buffer.place.error(f"kernel {kernel.name} has an argument of that name")
            names[name] = TemporaryBuffer(len(temporaries))
            dtype, shape = array_type(buffer["type"], buffer["shape"], buffer.place)
            temporaries.append(Contents("undefined", dtype, shape))
        steps: list[KernelStep] = []
        for entry in node["kernels"]:
            for fields in entry.repeated():
                steps.append(self._step(fields, outer, kernel, names))
                limit(len(steps), fields.place)
        if not steps:
            raise node.where("kernels").error("there are no kernels (every repetition is empty)")
        joined = " + ".join(dict.fromkeys(step.kernel for step in steps))
        return SequenceDraft(node["name"] or joined, node["for"], tuple(steps), tuple(temporaries))

    def _step(
        self, node: Fields, outer: Fields, kernel: KernelFacts, names: Mapping[str, TemporaryBuffer]
    ) -> KernelStep:
        fields = _with_own_ndrange(node, outer)
        program, facts = read_program(self._programs, fields)
        size, local = read_ndrange(facts, fields)
        args = tuple([_argument(*given, kernel, names) for given in given_arguments(facts, fields)])
        promised = read_annotations(facts, node)
        return KernelStep(program, facts.name, size, local, args, read_offset(fields, len(size)), promised, node.place)


def _with_own_ndrange(node: Fields, outer: Fields) -> Fields:
    """The fields of a version, or of one of its kernels: with ``global``, an NDRange is one of its own, and nothing of
    it is handed down."""
    alone = "global" in node and "local" not in node
    return inherit(outer.without("local") if alone else outer, node)


def _argument(
    facts: ArgumentFacts,
    value: Any,
    scope: Scope,
    place: Location,
    kernel: KernelFacts,
    names: Mapping[str, TemporaryBuffer],
) -> ArgumentOf | TemporaryBuffer | LocalArg | bytes:
    """What one of several kernels is given: for buffers, parameters of the kernel that all are a version of, and
    temporary buffers, by name."""
    known: dict[str, ArgumentOf | TemporaryBuffer] = dict(names)
    known.update((a.name, ArgumentOf(a.index)) for a in kernel.arguments if a.kind == "buffer")
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
