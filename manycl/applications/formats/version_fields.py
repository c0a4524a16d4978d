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
    Fields,
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
from manycl.applications.formats.symbols import Scope, integer, integers, limit, repetitions, text
from manycl.applications.python_files import FileFunction, PythonFile, confined
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
        nodes, place = own.get("versions")
        for index, node in enumerate(nodes or ()):
            here = place.at(index)
            if "file" in node or "function" in node or "divide" in node:
                _only(node, _OF_FUNCTIONS, "a function of Python", here)
                yield self._function(node, here, kernel, own)
            elif "kernels" in node or "buffers" in node:
                _only(node, _OF_SEQUENCES, "several kernels", here)
                yield self._sequence(node, here, kernel, own)
            else:
                yield KernelDraft(self._kernel(node, here, program, kernel, own))

    def _kernel(
        self, node: dict[str, Any], here: Location, program: ProgramFacts, kernel: KernelFacts, own: Fields
    ) -> Version:
        fields = _with_own_ndrange(node, inherit(node, here, own))
        version_program, version = read_program(self._programs, fields)
        try:
            check_same_arguments(program, kernel, version_program, version)
        except LaunchError as error:
            raise here.error(error.message) from None
        size, local = read_ndrange(version, fields)
        promised = read_annotations(version, own.scope, node.get("annotations"), here.at("annotations"))
        return Version(version_program, version, size, local, _kinds(node), promised)

    def _function(self, node: dict[str, Any], here: Location, kernel: KernelFacts, own: Fields) -> FunctionDraft:
        if "file" not in node:
            raise here.error("the field 'file' is missing")
        place = here.at("file")
        path = self._folder / text(node["file"], own.scope, place)
        confined(path, [self._folder], "a Python file", place, self._trust)
        try:
            is_there = path.is_file()
        except (OSError, ValueError):
            raise place.error(f"{node['file']!r:.80} is not a possible file name") from None
        if not is_there:
            raise place.error(f"there is no file {str(path)!r}")
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = PythonFile(path, read_text(path))
        name = text(node.get("function", kernel.name), own.scope, here.at("function"))
        dimension = None
        if "divide" in node:
            dimension = integer(node["divide"], own.scope, here.at("divide"), 0)
            dimensions = len(read_ndrange(kernel, own)[0])
            if dimension >= dimensions:
                raise here.at("divide").error(f"is dimension {dimension} of an NDRange that has {dimensions}")
        return FunctionDraft(FileFunction(file, name), dimension)

    def _sequence(self, node: dict[str, Any], here: Location, kernel: KernelFacts, own: Fields) -> SequenceDraft:
        if "kernels" not in node:
            raise here.error("the field 'kernels' is missing")
        fields = inherit(node, here, own, ("source", "options", "macros"))
        fields.values.pop("offset", None)
        names: dict[str, TemporaryBuffer] = {}
        temporaries: list[Contents] = []
        for name, buffer in node.get("buffers", {}).items():
            if any(name == a.name for a in kernel.arguments):
                raise here.at("buffers", name).error(f"kernel {kernel.name} has an argument of that name")
            names[name] = TemporaryBuffer(len(temporaries))
            temporaries.append(_temporary(buffer, own.scope, here.at("buffers", name)))
        steps = []
        for index, entry in enumerate(node["kernels"]):
            place = here.at("kernels", index)
            for scope in repetitions(entry, own.scope, place):
                outer = Fields(scope, place, fields.values, fields.options)
                steps.append(self._step(entry, place, outer, kernel, names))
                limit(len(steps), place)
        if not steps:
            raise here.at("kernels").error("there are no kernels (every repetition is empty)")
        joined = " + ".join(dict.fromkeys(step.kernel for step in steps))
        name = text(node["name"], own.scope, here.at("name")) if "name" in node else joined
        return SequenceDraft(name, _kinds(node), tuple(steps), tuple(temporaries))

    def _step(
        self,
        node: dict[str, Any],
        place: Location,
        outer: Fields,
        kernel: KernelFacts,
        names: Mapping[str, TemporaryBuffer],
    ) -> KernelStep:
        fields = _with_own_ndrange(node, inherit(node, place, outer))
        program, facts = read_program(self._programs, fields)
        size, local = read_ndrange(facts, fields)
        args = tuple(
            _argument(argument, value, fields.scope, here, kernel, names)
            for argument, value, here in given_arguments(facts, fields)
        )
        promised = read_annotations(facts, fields.scope, node.get("annotations"), place.at("annotations"))
        return KernelStep(program, facts.name, size, local, args, read_offset(fields, len(size)), promised, place)


def _with_own_ndrange(node: dict[str, Any], fields: Fields) -> Fields:
    """With ``global``, an NDRange is one of its own: nothing of it is handed down."""
    if "global" in node and "local" not in node:
        fields.values.pop("local", None)
    return fields


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


def _temporary(node: dict[str, Any], scope: Scope, place: Location) -> Contents:
    dtype, shape = array_type(
        text(node["type"], scope, place.at("type")), integers(node["shape"], scope, place.at("shape")), place
    )
    return Contents("undefined", dtype, shape)


def _kinds(node: dict[str, Any]) -> tuple[str, ...]:
    kinds = node.get("for", ())
    return (kinds,) if isinstance(kinds, str) else tuple(kinds)


def _only(node: dict[str, Any], fields: tuple[str, ...], what: str, place: Location) -> None:
    """That a version which is ``what`` has no other fields."""
    for name in node:
        if name not in fields:
            raise place.at(name).error(f"a version that is {what} has no such field (it has {', '.join(fields)})")
