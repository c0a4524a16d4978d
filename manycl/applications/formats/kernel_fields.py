"""The kernels of a specification with all their fields (groups and repetitions expanded, fields of groups inherited),
and fields that kernels, their versions and the kernels of a version have in common."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from manycl.analysis.annotations import Annotation, AnnotationError, annotation, from_environment, merge
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications.formats.contents import struct_bytes
from manycl.applications.formats.fields import ARGUMENT, NOT_HANDED_DOWN, OF_KERNELS
from manycl.applications.formats.kinds import Fields
from manycl.applications.formats.symbols import Scope, integer, number
from manycl.errors import LaunchError
from manycl.expressions import suggest
from manycl.graph.graph import LocalArg
from manycl.graph.launch import check_ndrange, scalar_bytes
from manycl.utilities.json_lines import Location


def kernels(outer: Fields, handed: Fields) -> Iterator[Fields]:
    """Every kernel of the list in ``outer``. ``handed``: the fields of the groups around."""
    for own in (repeated for entry in outer["kernels"] for repeated in entry.repeated()):
        fields = inherit(handed, own)
        if "kernels" in own:
            for name in OF_KERNELS:
                if name in own:
                    raise own.where(name).error("a group of kernels has no such field")
            yield from kernels(own, fields)
            continue
        for name in ("name", "global", "args"):
            if name not in fields:
                raise own.place.error(f"the field {name!r} is missing")
        yield fields


def inherit(outer: Fields, inner: Fields) -> Fields:
    """The fields of an object with those that are handed down to it."""
    return outer.inside(inner, tuple([name for name in inner.table.fields if name not in NOT_HANDED_DOWN]))


NDRange = tuple[tuple[int, ...], tuple[int, ...] | None]

_ABSENT = object()


def read_program(programs: KernelFiles, fields: Fields) -> tuple[ProgramFacts, KernelFacts]:
    """The kernel that is named, and its program."""
    name, source = fields["name"], fields["source"]
    if source is None:
        raise fields.place.error("the field 'source' is missing (here, in a group, or for the whole file)")
    return programs.kernel(source, name, fields.options, fields.where("source"), fields.where("name"))


def read_ndrange(kernel: KernelFacts, fields: Fields) -> NDRange:
    """Global and local size, checked."""
    try:
        return check_ndrange(kernel, fields["global"], fields["local"])
    except LaunchError as error:
        raise fields.where("local" if "local" in fields else "global").error(error.message, error.hint) from None


def read_offset(fields: Fields, dimensions: int) -> tuple[int, ...] | None:
    """The global offset, if there is one, of an NDRange with so many dimensions."""
    offset: tuple[int, ...] | None = fields["offset"]
    if offset is not None and len(offset) != dimensions:
        raise fields.where("offset").error(f"has {len(offset)} dimensions, the global size {dimensions}")
    return offset


def read_annotations(kernel: KernelFacts, fields: Fields) -> tuple[Annotation, ...]:
    """What is promised about a kernel's arguments."""
    found: list[Annotation] = []
    for name, node in (fields["annotations"] or {}).items():
        try:
            found.append(annotation(kernel, name, **node, symbols=fields.scope))
        except AnnotationError as error:
            raise fields.where("annotations").at(name, *error.field).error(error.message, error.hint) from None
    return merge(from_environment(kernel), found)


def given_arguments(kernel: KernelFacts, fields: Fields) -> list[tuple[ArgumentFacts, Any, Scope, Location]]:
    """Return, for each of a kernel's parameters in order, the value that is given, its symbols and its place."""
    value, place = fields["args"], fields.where("args")
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
    return [(facts, v, fields.scope, here) for facts, (v, here) in zip(kernel.arguments, items, strict=True)]


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
    fields = ARGUMENT.fields_of(value, scope, place)
    types = fields["types"]
    if fields.values.keys() != {"types", "values"} or len(types) != len(value["values"]):
        raise place.error("a struct needs 'types' and 'values' of one length, and nothing else")
    return struct_bytes(facts, types, fields["values"], place)
