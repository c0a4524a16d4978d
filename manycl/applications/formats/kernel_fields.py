"""The kernels of a specification with all their fields (groups and repetitions expanded, fields of groups inherited),
and fields that kernels, their versions and the kernels of a version have in common."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from manycl.analysis.annotations import Annotation, AnnotationError, annotation, merge
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications.formats.contents import struct_bytes
from manycl.applications.formats.symbols import Scope, integer, integers, number, repetitions, text
from manycl.errors import LaunchError
from manycl.expressions import suggest
from manycl.graph.graph import LocalArg
from manycl.graph.launch import check_ndrange, scalar_bytes
from manycl.utilities.json_lines import Location

_OWN = ("id", "name", "args", "versions", "annotations")
_HANDED_DOWN = ("source", "options", "macros", "global", "local", "offset", "device", "partition", "rank", "component")


@dataclass(frozen=True)
class Fields:
    """A kernel's fields with the places they come from (its own, or a group's), and the symbols that hold
    there.
    """

    scope: Scope
    place: Location
    values: dict[str, tuple[Any, Location]] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    def get(self, key: str) -> tuple[Any, Location]:
        return self.values.get(key, (None, self.place))


def kernels(node: dict[str, Any], place: Location, outer: Fields) -> Iterator[Fields]:
    """Every kernel of the list in ``node``, whose own fields are in ``outer`` already."""
    for index, entry in enumerate(node["kernels"]):
        here = place.at("kernels", index)
        for scope in repetitions(entry, outer.scope, here):
            inside = Fields(scope, here, outer.values, outer.options)
            if "kernels" in entry:
                for name in _OWN:
                    if name in entry:
                        raise here.at(name).error("a group of kernels has no such field")
                yield from kernels(entry, here, inherit(entry, here, inside))
            else:
                for name in ("name", "global", "args"):
                    if name not in entry and name not in outer.values:
                        raise here.error(f"the field {name!r} is missing")
                yield inherit(entry, here, inside)


def inherit(
    node: dict[str, Any], place: Location, outer: Fields, keys: Sequence[str] = (*_HANDED_DOWN, *_OWN)
) -> Fields:
    """The fields of ``node`` among ``keys``, and those of ``outer`` that it does not have; build options add up."""
    values = dict(outer.values)
    values.update((key, (node[key], place.at(key))) for key in keys if key in node)
    options = list(outer.options)
    for index, option in enumerate(node.get("options", ())):
        options.append(text(option, outer.scope, place.at("options", index)))
    for name, value in node.get("macros", {}).items():
        options = [o for o in options if not o.startswith(f"-D{name}=")]  # the innermost value holds
        options.append(f"-D{name}={number(value, outer.scope, place.at('macros', name))}")
    return Fields(outer.scope, place, values, tuple(options))


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
