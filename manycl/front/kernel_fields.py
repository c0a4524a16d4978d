"""Fields of specifications that kernels, their versions and the kernels of a version have in common."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from manycl.analysis.annotations import Annotation, AnnotationError, annotation, merge
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.errors import LaunchError
from manycl.expressions import suggest
from manycl.front.contents import struct_bytes
from manycl.front.fields import Fields
from manycl.front.json_lines import Location
from manycl.front.kernel_files import KernelFiles
from manycl.front.symbols import Scope, integer, integers, number, text
from manycl.graph.graph import LocalArg
from manycl.graph.launch import check_ndrange, scalar_bytes

NDRange = tuple[tuple[int, ...], tuple[int, ...] | None]

_ABSENT = object()


def read_program(programs: KernelFiles, fields: Fields) -> tuple[ProgramFacts, KernelFacts]:
    """The kernel that is named, and its program."""
    name, name_place = fields.get("name")
    source, source_place = fields.get("source")
    if source is None:
        raise fields.place.error("the field 'source' is missing (here, in a group, or for the whole file)")
    name, source = text(name, fields.scope, name_place), text(source, fields.scope, source_place)
    return programs.kernel(source, name, fields.options, source_place, name_place)


def read_ndrange(kernel: KernelFacts, fields: Fields) -> NDRange:
    """Global and local size, checked."""
    size, size_place = fields.get("global")
    local, local_place = fields.get("local")
    global_size = integers(size, fields.scope, size_place)
    local_size = None if local is None else integers(local, fields.scope, local_place)
    try:
        return check_ndrange(kernel, global_size, local_size)
    except LaunchError as error:
        raise (size_place if local is None else local_place).error(error.message, error.hint) from None


def read_offset(fields: Fields, dimensions: int) -> tuple[int, ...] | None:
    """The global offset, if there is one, of an NDRange with so many dimensions."""
    value, place = fields.get("offset")
    if value is None:
        return None
    if len(value) != dimensions:
        raise place.error(f"has {len(value)} dimensions, the global size {dimensions}")
    return integers(value, fields.scope, place, least=0)


def read_annotations(kernel: KernelFacts, scope: Scope, nodes: Any, place: Location) -> tuple[Annotation, ...]:
    """What is promised about a kernel's arguments."""
    found: list[Annotation] = []
    for name, node in (nodes or {}).items():
        try:
            found.append(annotation(kernel, name, **node, symbols=scope))
        except AnnotationError as error:
            raise place.at(name, *error.field).error(error.message, error.hint) from None
    return merge((), found)


def given_arguments(kernel: KernelFacts, fields: Fields) -> list[tuple[ArgumentFacts, Any, Location]]:
    """What is given for each of a kernel's parameters, in order, and where."""
    value, place = fields.get("args")
    if isinstance(value, dict):
        known = {a.name: a for a in kernel.arguments}
        for name in value:
            if name not in known:
                raise place.at(name).error(f"kernel {kernel.name} has no such argument{suggest(name, known)}")
        items = [(value.get(a.name, _ABSENT), place.at(a.name)) for a in kernel.arguments]
    else:
        items = [(v, place.at(i)) for i, v in enumerate(value)]
    missing = [a.name for a, (v, _) in zip(kernel.arguments, items, strict=False) if v is _ABSENT]
    if missing or len(items) != len(kernel.arguments):
        names = ", ".join(a.name for a in kernel.arguments)
        problem = f"kernel {kernel.name} takes {len(kernel.arguments)} arguments ({names})"
        raise place.error(f"{problem}, got {len(items) - len(missing)}")
    return [(facts, v, here) for facts, (v, here) in zip(kernel.arguments, items, strict=True)]


def read_value(
    facts: ArgumentFacts, value: Any, scope: Scope, place: Location, buffers: Container[str]
) -> bytes | LocalArg:
    """What is given for a parameter that is no buffer. ``buffers``: the names of buffers, which are told apart."""
    label = label_of(facts)
    try:
        if facts.kind == "scalar":
            return _scalar(facts, value, scope, place, buffers)
        if facts.kind == "local" and isinstance(value, (int, float, str)):
            return LocalArg(integer(value, scope, place, 1) * max(facts.size, 1))
    except LaunchError as error:
        raise place.error(error.message, error.hint) from None
    if facts.kind == "local":
        raise place.error(f"{label} is local memory: give its number of elements")
    raise place.error(f"{label} is of a kind ({facts.kind}) that manycl does not run yet")


def label_of(facts: ArgumentFacts) -> str:
    """A parameter, for people."""
    return f"argument {facts.index} ({facts.name})"


def show_value(value: Any) -> str:
    """A JSON value, for people."""
    return "a list" if isinstance(value, list) else repr(value)


def _scalar(facts: ArgumentFacts, value: Any, scope: Scope, place: Location, buffers: Container[str]) -> bytes:
    if isinstance(value, list):
        return scalar_bytes(facts, [number(v, scope, place.at(i)) for i, v in enumerate(value)])
    if isinstance(value, dict) and "values" in value:
        return _struct(facts, value, scope, place)
    if not isinstance(value, (int, float, str)):
        raise place.error(f"{label_of(facts)} takes a value of type {facts.element}, not a buffer")
    if isinstance(value, str) and value in buffers and value not in scope:
        raise place.error(f"{label_of(facts)} takes a value of type {facts.element}, not the buffer {value!r}")
    return scalar_bytes(facts, number(value, scope, place))


def _struct(facts: ArgumentFacts, value: dict[str, Any], scope: Scope, place: Location) -> bytes:
    types = value.get("types", [])
    if set(value) != {"types", "values"} or len(types) != len(value["values"]):
        raise place.error("a struct needs 'types' and 'values' of one length, and nothing else")
    values = [number(v, scope, place.at("values", i)) for i, v in enumerate(value["values"])]
    return struct_bytes(facts, types, values, place)
