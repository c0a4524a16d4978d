"""PySchedCL's kernel information: what both of its formats have in common.

The kernel decides what an argument is; a declaration that says otherwise is warned about. Expressions are
Python 2's.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from manycl.analysis.facts import ArgumentFacts, KernelFacts
from manycl.api.kernel_files import KernelFiles
from manycl.applications.application import Application, Contents
from manycl.applications.assemble import (
    Draft,
    DraftArgument,
    DraftBuffer,
    DraftEdge,
    DraftKernel,
    assemble,
    partitioned,
)
from manycl.applications.formats.contents import array_type
from manycl.applications.formats.kinds import show
from manycl.errors import LaunchError, a
from manycl.expressions import (
    IDENTIFIER,
    ExpressionError,
    Number,
    evaluate,
    evaluate_integer,
    names,
    split_list,
    suggest,
)
from manycl.graph.graph import BufferArg, BufferKey, LocalArg
from manycl.graph.launch import TYPES, check_ndrange, scalar_bytes, split_type
from manycl.utilities.json_lines import Location

_WHOLE: Mapping[str, Number] = {"size_percent": 100, "offset_percent": 0}
"""A launch is one piece: all of the size, from its start."""

_DECLARED = {"inputBuffers": "read", "outputBuffers": "written", "ioBuffers": "both"}


@dataclass
class KernelInfo:
    """One kernel's information with the symbols that hold for it."""

    id: str
    info: dict[str, Any]
    place: Location
    scope: dict[str, Number] = field(default_factory=dict)
    symbols_place: Location | None = None


class Edge(NamedTuple):
    """A line of ``dag.graph``: kernel and argument position to kernel and argument position."""

    source: tuple[str, int]
    target: tuple[str, int]
    place: Location


class Reader:
    def __init__(self, place: Location, name: str, parameters: Mapping[str, str], folders: Sequence[Path]) -> None:
        self.place = place
        self.files = KernelFiles(folders)
        self.draft = Draft(place, name)
        self.kernels: list[KernelInfo] = []
        self.ids: dict[str, int] = {}
        self.used: set[str] = set()
        self.origins: list[tuple[int, int, Any, Location]] = []  # kernel, position, its "from"
        self.warned: set[tuple[str, str]] = set()
        self.given: dict[str, Number] = {}
        for symbol, text in parameters.items():
            if symbol in _WHOLE or not IDENTIFIER.match(symbol):
                raise place.error(f"-D {symbol}: not the name of a parameter")
            try:
                self.given[symbol] = evaluate(str(text), {})
            except ExpressionError as error:
                raise place.error(f"-D {symbol}={text}: {error}") from None

    def read(self, edges: Sequence[Edge] = ()) -> Application:
        for index, kernel in enumerate(self.kernels):
            if kernel.id in self.ids:
                raise kernel.place.error(f"there are two kernels with the id {kernel.id!r}")
            self.ids[kernel.id] = index
        for kernel in self.kernels:
            self.read_kernel(kernel)
        if not self.kernels:
            raise self.place.error("there are no kernels")
        self.read_dependences(edges)
        self.prefer_devices()
        for symbol in self.given:
            if symbol not in self.used:
                raise self.place.error(f"-D {symbol}: no kernel uses it{suggest(symbol, self.used)}")
        assembled = assemble(self.draft)
        return Application(
            name=self.draft.name,
            graph=assembled.graph,
            contents=assembled.contents,
            outputs=assembled.results,
            parameters=self.given,
        )

    # Values

    def declared_symbols(self, value: Any, place: Location) -> dict[str, Number]:
        """``symbolicVariables``: names, whose values are given elsewhere, or names with values."""
        if isinstance(value, dict):
            return {
                symbol: self.number(v, {}, place.at(symbol))
                for symbol, v in value.items()
                if v not in (None, "", symbol)
            }
        return {}

    def scope(self, kernel: KernelInfo) -> dict[str, Number]:
        return {**kernel.scope, **self.given, **_WHOLE}

    def number(self, value: Any, scope: Mapping[str, Number], place: Location) -> Number:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise place.error(f"must be a number or an expression, not {show(value)}")
        try:
            if isinstance(value, str):
                self.used |= names(value)
            return evaluate(value, scope, pyschedcl=True)
        except ExpressionError as error:
            raise place.error(str(error)) from None

    def integer(self, value: Any, scope: Mapping[str, Number], place: Location) -> int:
        result = self.number(value, scope, place)
        try:
            return evaluate_integer(result, {})
        except ExpressionError:
            raise place.error(f"must be a whole number, not {result}") from None

    def sizes(self, value: Any, scope: Mapping[str, Number], place: Location) -> tuple[int, ...]:
        """One to three sizes: a number, a list, or an expression of either."""
        try:
            items = split_list(value) if isinstance(value, str) else value if isinstance(value, list) else [value]
        except ExpressionError as error:
            raise place.error(str(error)) from None
        sizes = tuple([self.integer(item, scope, place) for item in items])
        if any(size < 1 for size in sizes):
            raise place.error(f"must be at least 1, not {min(sizes)}")
        return sizes

    # Kernels

    def read_kernel(self, kernel: KernelInfo) -> None:
        info, place = kernel.info, kernel.place
        scope = self.scope(kernel)
        name = _string(info, "name", place)
        source = _string(info, "src", place)
        options = ("-cl-mad-enable", *self.macros(info.get("macros_values"), scope, place.at("macros_values")))
        program, facts = self.files.kernel(source, name, options, place.at("src"), place.at("name"))
        if info.get("globalWorkSize") is None:
            raise place.error("the field 'globalWorkSize' is missing")
        dataset = info.get("dataset")
        if isinstance(dataset, (int, float)):
            scope.setdefault("dataset", dataset)
        global_size = self.sizes(info["globalWorkSize"], scope, place.at("globalWorkSize"))
        scope.setdefault("dataset", global_size[0] if global_size else 0)
        local_size = self.local_size(info.get("localWorkSize"), scope, place.at("localWorkSize"), len(global_size))
        try:
            check_ndrange(facts, global_size, local_size)
        except LaunchError as error:
            at = place.at("globalWorkSize" if local_size is None else "localWorkSize")
            raise at.error(f"{error.message}{self.with_symbols(kernel)}", error.hint) from None
        task = info.get("task")
        if task is not None and (isinstance(task, bool) or not isinstance(task, (int, str))):
            raise place.at("task").error(f"must be a number or a name, not {show(task)}")
        self.draft.kernels.append(
            DraftKernel(
                id=kernel.id,
                name=f"{name}#{kernel.id}",
                place=kernel.symbols_place or place,
                program=program,
                kernel=facts,
                global_size=global_size,
                local_size=local_size,
                args=self.args(kernel, facts, scope),
                component="" if task is None else f"task {task}",
            )
        )

    def with_symbols(self, kernel: KernelInfo) -> str:
        """Which line of the graph form set the sizes, for messages about the information file."""
        return f" (kernel {kernel.id} at {kernel.symbols_place.show()})" if kernel.symbols_place else ""

    def local_size(
        self, value: Any, scope: Mapping[str, Number], place: Location, dimensions: int
    ) -> tuple[int, ...] | None:
        if value in (None, [], ""):
            return None
        if isinstance(value, dict) and set(value) == {"every"}:
            return (self.integer(value["every"], scope, place),) * dimensions
        return self.sizes(value, scope, place)

    def macros(self, value: Any, scope: Mapping[str, Number], place: Location) -> list[str]:
        options = []
        for key, text in as_object({} if value is None else value, place).items():
            here = place.at(key)
            if not IDENTIFIER.match(key):
                raise here.error("is not the name of a macro")
            if isinstance(text, str) and (not text or _is_type(text)):
                options.append(f"-D{key}={text}" if text else f"-D{key}")
            else:
                options.append(f"-D{key}={self.number(text, scope, here)}")
        return options

    def args(self, kernel: KernelInfo, facts: KernelFacts, scope: Mapping[str, Number]) -> list[DraftArgument]:
        found: dict[int, DraftArgument] = {}
        for group in (*_DECLARED, "varArguments", "localArguments"):
            here = kernel.place.at(group)
            for index, entry in enumerate(as_list(kernel.info.get(group), here)):
                place = here.at(index)
                position = self.position(as_object(entry, place), facts, place)
                argument = facts.arguments[position]
                if position in found:
                    raise place.error(f"argument {position} ({argument.name}) of {facts.name} is given twice")
                if group == "varArguments":
                    found[position] = self.scalar(argument, entry, scope, place)
                elif group == "localArguments":
                    found[position] = self.local(argument, entry, scope, place)
                else:
                    found[position] = self.buffer(kernel, argument, group, entry, scope, place)
        missing = [f"{a.index} ({a.name})" for a in facts.arguments if a.index not in found]
        if missing:
            raise kernel.place.error(
                f"kernel {facts.name} takes {len(facts.arguments)} arguments; not given: {', '.join(missing)}"
            )
        return [found[a.index] for a in facts.arguments]

    def position(self, entry: dict[str, Any], facts: KernelFacts, place: Location) -> int:
        position = entry.get("pos")
        if isinstance(position, bool) or not isinstance(position, int):
            raise place.error(f"'pos' must be the position of an argument, not {show(position)}")
        if not 0 <= position < len(facts.arguments):
            raise place.at("pos").error(
                f"kernel {facts.name} takes {len(facts.arguments)} arguments, none at {position}"
            )
        return position

    def scalar(
        self, facts: ArgumentFacts, entry: dict[str, Any], scope: Mapping[str, Number], place: Location
    ) -> bytes:
        value = entry.get("value")
        here = place.at("value")
        try:
            items = split_list(value) if isinstance(value, str) else value if isinstance(value, list) else [value]
            values = [self.number(item, scope, here) for item in items]
            return scalar_bytes(facts, values[0] if facts.lanes == 1 and len(values) == 1 else values)
        except (ExpressionError, LaunchError) as error:
            raise here.error(str(error)) from None

    def local(
        self, facts: ArgumentFacts, entry: dict[str, Any], scope: Mapping[str, Number], place: Location
    ) -> LocalArg:
        if facts.kind != "local":
            raise place.error(f"argument {facts.index} ({facts.name}) is no local memory but {a(facts.kind)}")
        items = self.integer(entry.get("size"), scope, place.at("size"))
        if items < 1:
            raise place.at("size").error(f"must be at least 1, not {items}")
        dtype, shape = array_type(self.type_name(facts, entry, place), (items,), place)
        return LocalArg(Contents("undefined", dtype, shape).nbytes)

    def type_name(self, facts: ArgumentFacts, entry: dict[str, Any], place: Location) -> str:
        """The declared type, unless the kernel has another base type: then the kernel's."""
        declared = entry.get("type") or facts.element
        if not isinstance(declared, str):
            raise place.at("type").error(f"must be the name of a type, not {show(declared)}")
        try:
            base, lanes = split_type(declared)
        except ValueError as error:
            raise place.at("type").error(str(error)) from None
        if facts.base not in TYPES or TYPES[facts.base] == TYPES[base]:
            return declared
        self.warn(place.at("type"), f"{facts.name} is declared {declared}, but the kernel has {facts.element}")
        return facts.base + (str(lanes) if lanes > 1 else "")

    def buffer(
        self,
        kernel: KernelInfo,
        facts: ArgumentFacts,
        group: str,
        entry: dict[str, Any],
        scope: Mapping[str, Number],
        place: Location,
    ) -> BufferArg:
        if facts.kind != "buffer":
            raise place.error(f"argument {facts.index} ({facts.name}) is no buffer but {a(facts.kind)}")
        items = self.integer(entry.get("size"), scope, place.at("size"))
        if items < 1:
            raise place.at("size").error(f"must be at least 1, not {items}{self.with_symbols(kernel)}")
        dtype, shape = array_type(self.type_name(facts, entry, place), (items,), place)
        declared = _DECLARED[group]
        wider = facts.reason and facts.direction == "both"  # the analysis could not tell
        if facts.direction != declared and not wider:
            self.warn(place, f"{facts.name} is declared in {group}, but in the kernel it is {facts.direction}")
        name = f"{kernel.id}.{facts.name or facts.index}"
        contents = _initial(name, dtype, shape) if group != "outputBuffers" else Contents("zeros", dtype, shape)
        self.draft.buffers.append(DraftBuffer(name, contents, place, given=True))
        origin = entry.get("from")
        if origin is not None:
            self.origins.append((len(self.draft.kernels), facts.index, origin, place.at("from")))
        return BufferArg(BufferKey(len(self.draft.buffers) - 1))

    def warn(self, place: Location, message: str) -> None:
        """Once for every place, however many kernels share the information file."""
        if (place.path, str(place.where)) not in self.warned:
            self.warned.add((place.path, str(place.where)))
            self.draft.warn("declarations that the kernel contradicts", place, message)

    # Dependences and devices

    def read_dependences(self, edges: Sequence[Edge]) -> None:
        for edge in edges:
            source, target = (self.endpoint(*end, edge.place) for end in (edge.source, edge.target))
            self.draft.edges.append(DraftEdge(source, target, edge.place, True))
        for kernel, position, origin, place in self.origins:
            position_there = as_object(origin, place).get("pos")
            if isinstance(position_there, bool) or not isinstance(position_there, int):
                raise place.at("pos").error(f"must be the position of an argument, not {show(position_there)}")
            source = self.endpoint(str(origin.get("kernel")), position_there, place)
            self.draft.edges.append(DraftEdge(source, (kernel, position), place, True))
        for index, kernel_read in enumerate(self.kernels):
            depends = kernel_read.info.get("depends")
            here = kernel_read.place.at("depends")
            for identifier in depends if isinstance(depends, list) else [] if depends is None else [depends]:
                self.draft.orders.append((self.kernel_index(str(identifier), here), index, here))

    def endpoint(self, identifier: str, position: int, place: Location) -> tuple[int, int]:
        kernel = self.kernel_index(identifier, place)
        facts = self.draft.kernels[kernel].kernel
        if not 0 <= position < len(facts.arguments):
            raise place.error(f"kernel {identifier} ({facts.name}) has no argument {position}")
        return kernel, position

    def kernel_index(self, identifier: str, place: Location) -> int:
        if identifier not in self.ids:
            raise place.error(f"there is no kernel with the id {identifier!r:.60}{suggest(identifier, self.ids)}")
        return self.ids[identifier]

    def prefer_devices(self) -> None:
        """Tenths on the GPU: all (10) or none (0) is a preference for a kind, of a component that of its first kernel;
        what is between divides a kernel that is a component alone."""
        first: dict[str, str] = {}
        sizes = Counter(draft.component for draft in self.draft.kernels)
        for kernel, draft in zip(self.kernels, self.draft.kernels, strict=True):
            partition, place = kernel.info.get("partition"), kernel.place.at("partition")
            if partition is not None:
                partition = self.integer(partition, self.scope(kernel), place)
                if not 0 <= partition <= 10:
                    raise place.error(f"must be tenths on the GPU, from 0 to 10, not {partition}")
            device, tenths = partitioned(partition)
            draft.device = first.setdefault(draft.component, device) if draft.component else device
            draft.partition = tenths if not draft.component or sizes[draft.component] == 1 else None


def _initial(name: str, dtype: str, shape: tuple[int, ...]) -> Contents:
    """What PySchedCL puts into inputs: [0, 1) for floats, 0..127 for chars, 0..4095 for other integers."""
    high = 1.0 if dtype.startswith("float") else 128.0 if dtype.endswith("int8") else 4096.0
    return Contents("random", dtype, shape, seed=zlib.crc32(name.encode()), low=0.0, high=high)


def _is_type(text: str) -> bool:
    try:
        split_type(text)
    except ValueError:
        return False
    return True


def as_object(value: Any, place: Location) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise place.error(f"must be an object, not {show(value)}")
    return value


def as_list(value: Any, place: Location) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise place.error(f"must be a list, not {show(value)}")
    return value


def _string(info: dict[str, Any], key: str, place: Location) -> str:
    if key not in info:
        raise place.error(f"the field {key!r} is missing")
    value = info[key]
    if not isinstance(value, str) or not value:
        raise place.at(key).error(f"must be a name, not {show(value)}")
    return value
