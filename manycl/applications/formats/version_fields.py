"""Versions of a kernel in a specification: other kernels, functions of Python, several kernels one after another. Each
is read as a function that makes it, once the buffers of the launch are known."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from manycl.analysis.annotations import Annotation, AnnotationError, annotation, from_environment, merge
from manycl.analysis.facts import ArgumentFacts, KernelFacts, ProgramFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications.application import Contents
from manycl.applications.assemble import DraftVersion
from manycl.applications.formats.fields import ARGUMENT, NOT_HANDED_DOWN, OF_KERNELS
from manycl.applications.formats.kinds import Fields, Scope, integer, limit, number, text
from manycl.applications.python_files import FileFunction, PythonFile, python_file
from manycl.errors import LaunchError
from manycl.expressions import Number, suggest
from manycl.graph.bounds import check_launch
from manycl.graph.graph import Argument, Buffer, BufferArg, BufferKey, Launch, LocalArg, Version
from manycl.graph.launch import TYPES, LaunchOptions, check_ndrange, make_launch, scalar_bytes, split_type, stored_lanes
from manycl.graph.versions.host_version import RUNS_ON, ArrayForm, host_program
from manycl.graph.versions.sequence import sequence_program
from manycl.graph.versions.versions import check_same_arguments
from manycl.units import LARGEST
from manycl.utilities.json_lines import Location, read_text

_FIELDS = {"random": ("seed", "low", "high"), "constant": ("value",), "file": ("path",)}
_REQUIRED = {"constant": ("value",), "file": ("path",)}
_OPENCL = {t.dtype: name for name, t in reversed(list(TYPES.items()))}


def check_fields(init: Fields) -> None:
    """That a kind of contents has its fields and no others."""
    kind = init["kind"]
    for key in init.values:
        if key != "kind" and key not in _FIELDS.get(kind, ()):
            raise init.where(key).error(f"contents of kind {kind} have no such field")
    for key in _REQUIRED.get(kind, ()):
        if key not in init:
            raise init.place.error(f"contents of kind {kind} need the field {key!r}")


def array_type(type_name: str, shape: tuple[int, ...], place: Location) -> tuple[str, tuple[int, ...]]:
    """NumPy's type and shape for elements of an OpenCL C type; a vector adds a dimension."""
    try:
        base, lanes = split_type(type_name)
    except ValueError as error:
        raise place.at("type").error(f"{error}{suggest(type_name, TYPES)}") from None
    full = (*shape, stored_lanes(lanes)) if lanes > 1 else shape
    nbytes = TYPES[base].size
    for extent in full:
        nbytes *= extent
    if nbytes > LARGEST:
        raise place.at("shape").error(f"{nbytes} bytes are too many")
    return TYPES[base].dtype, full


def random(dtype: str, shape: tuple[int, ...], seed: int, init: Fields) -> Contents:
    """Uniform numbers: floats from [0, 1) and integers from 0 to 99 unless ``init`` says otherwise."""
    integer = np.dtype(dtype).kind != "f"
    low, high = init["low"], init["high"]
    low, high = 0 if low is None else low, (100 if integer else 1) if high is None else high
    if not low < high:
        raise init.place.error(f"low must be less than high, not {low} and {high}")
    for key, value in (("low", low), ("high", high - 1 if integer else high)):
        _check_fits(dtype, value, init.where(key))
    return Contents("random", dtype, shape, seed=seed, low=float(low), high=float(high))


def constant(dtype: str, shape: tuple[int, ...], value: Number, place: Location) -> Contents:
    _check_fits(dtype, value, place)
    if float(value) != value:
        raise place.error(f"{value} has too many digits for initial contents")
    return Contents("constant", dtype, shape, value=float(value))


def from_file(path: Path, type_name: str, shape: tuple[int, ...] | None, place: Location) -> Contents:
    """A .npy file, whose header must agree with the declared type and shape, if any. Raises SpecificationError."""
    here = place.at("init", "path")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise here.error(f"{path} cannot be read as a .npy file: {why}") from None
    if not isinstance(array, np.ndarray) or array.dtype.name not in _OPENCL or not array.dtype.isnative:
        kind = getattr(array, "dtype", type(array).__name__)
        raise here.error(f"{path} holds {kind}, which is no type of OpenCL C's numbers")
    type_name = type_name or _OPENCL[array.dtype.name]
    expected_dtype, expected = array_type(type_name, shape if shape is not None else (1,), place)
    if shape is None:
        lanes = expected[1:]
        fits = not lanes or array.shape[-1:] == lanes
        expected = array.shape
    else:
        fits = array.shape == expected
    if array.dtype.name != expected_dtype or not fits or array.size == 0:
        raise here.error(f"{path} holds {array.dtype.name} {array.shape}, not {type_name} {expected}")
    return Contents("file", expected_dtype, tuple(array.shape), path=str(path))


def struct_bytes(argument: ArgumentFacts, types: Sequence[str], values: Sequence[Number], place: Location) -> bytes:
    """A struct with members of scalar types, laid out as C aligns them, as the bytes the kernel receives."""
    codes = []
    for index, (name, value) in enumerate(zip(types, values, strict=True)):
        if name not in TYPES:
            raise place.at("types", index).error(f"{name!r} is no scalar type of OpenCL C{suggest(name, TYPES)}")
        _check_fits(TYPES[name].dtype, value, place.at("values", index))
        codes.append((f"f{index}", TYPES[name].dtype))
    return scalar_bytes(argument, np.array([tuple(values)], np.dtype(codes, align=True))[0])


def _check_fits(dtype: str, value: Number, place: Location) -> None:
    base = _OPENCL[dtype]
    argument = ArgumentFacts(0, "", "scalar", base, base, 1, TYPES[base].size, "private")
    try:
        scalar_bytes(argument, value)
    except LaunchError:
        raise place.error(f"{value} does not fit {base}") from None


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
    """Return the promises about a kernel's arguments."""
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
    """Return the value that is given for a parameter that is no buffer. ``buffers``: the names of buffers, which are
    told apart."""
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


StepArgument = int | LocalArg | bytes
"""An argument of one of several kernels; a number: a buffer of the launch, or else a temporary one of the version."""
Step = Callable[[Sequence[Argument], Mapping[BufferKey, Contents]], Launch]
"""A function that makes the launch of a kernel of a sequence from its buffers and the contents of all buffers."""

_OF_FUNCTIONS = ("file", "function", "divide", "description")
_OF_SEQUENCES = ("kernels", "buffers", "name", "source", "options", "macros", "for", "description")


class VersionReader:
    """The reader of the versions of one file. ``folder``: where it lies; ``trust``: its Python files may lie
    anywhere."""

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
    """Return the argument that one of several kernels is given: for buffers, parameters of the kernel or temporary
    buffers, by name."""
    if facts.kind != "buffer":
        return read_value(facts, value, scope, place, known)
    return named_buffer(facts, value, scope, place, known, f"an argument of kernel {kernel.name}, or of the version")


def named_buffer(
    facts: ArgumentFacts, value: Any, scope: Scope, place: Location, known: Mapping[str, int], what: str
) -> int:
    """Return the number of the buffer whose name is given, which is that of ``what``."""
    if not isinstance(value, str):
        raise place.error(f"{label_of(facts)} is a buffer: give the name of {what}, not {show_value(value)}")
    name = text(value, scope, place)
    if name not in known:
        raise place.error(f"{label_of(facts)} is a buffer, and {name!r} is not that of {what}{suggest(name, known)}")
    return known[name]


def _only(version: Fields, names: tuple[str, ...], what: str) -> None:
    """That a version which is ``what`` has no other fields."""
    for name in version.values:
        if name not in names:
            raise version.where(name).error(f"a version that is {what} has no such field (it has {', '.join(names)})")
