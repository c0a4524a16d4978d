"""PySchedCL's kernel information: what both of its formats have in common. The kernel decides what an argument is;
other declarations are warned about. Expressions are Python 2's."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
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
    EdgeText,
    assemble,
    partitioned,
)
from manycl.applications.formats.contents import array_type
from manycl.applications.formats.kinds import Fields, check
from manycl.applications.formats.pyschedcl_fields import INFORMATION
from manycl.applications.formats.symbols import Symbols
from manycl.errors import LaunchError, a
from manycl.expressions import IDENTIFIER, ExpressionError, Number, evaluate, suggest
from manycl.graph.graph import BufferArg, BufferKey, LocalArg
from manycl.graph.launch import TYPES, check_ndrange, scalar_bytes, split_type
from manycl.utilities.json_lines import Location

_WHOLE: Mapping[str, Number] = {"size_percent": 100, "offset_percent": 0}
"""A launch is one piece: all of the size, from its start."""

_DECLARED = {"inputBuffers": "read", "outputBuffers": "written", "ioBuffers": "both"}


class KernelInfo(NamedTuple):
    """One kernel's information. ``place``: where it is said that there is such a kernel."""

    id: str
    info: Fields
    place: Location


class Reader:
    def __init__(self, place: Location, name: str, parameters: Mapping[str, str], folders: Sequence[Path]) -> None:
        self.place = place
        self.files = KernelFiles(folders)
        self.draft = Draft(place, name)
        self.kernels: list[KernelInfo] = []
        self.used: set[str] = set()
        self.origins: list[tuple[int, int, Fields]] = []  # kernel, position, its "from"
        self.warned: set[tuple[str, str]] = set()
        self.given: dict[str, Number] = {}
        for symbol, text in parameters.items():
            if symbol in _WHOLE or not IDENTIFIER.match(symbol):
                raise place.error(f"-D {symbol}: not the name of a parameter")
            try:
                self.given[symbol] = evaluate(str(text), {})
            except ExpressionError as error:
                raise place.error(f"-D {symbol}={text}: {error}") from None

    def read(self, edges: Sequence[EdgeText] = ()) -> Application:
        for kernel in self.kernels:
            self.draft.add_id(kernel.id, kernel.info.place)
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

    def add(
        self,
        info: dict[str, Any],
        place: Location,
        symbols: Mapping[str, Number] | None = None,
        called: tuple[str, Location] | None = None,
    ) -> None:
        """A kernel with its information; by default with the symbols and the id that it has there. ``called``: its id,
        and where that and its symbols are from."""
        check(info, INFORMATION, place)
        note = f" (kernel {called[0]} at {called[1].show()})" if called else ""
        fields = INFORMATION.fields_of(info, Symbols({}, self.used, note), place)
        own: Mapping[str, Number] = fields["symbolicVariables"] if symbols is None else symbols
        fields.scope.update({**own, **self.given, **_WHOLE})
        identifier, said = called or (fields["id"] or str(len(self.kernels)), place)
        self.kernels.append(KernelInfo(identifier, fields, said))

    # Kernels

    def read_kernel(self, kernel: KernelInfo) -> None:
        info, scope = kernel.info, kernel.info.scope
        options = ("-cl-mad-enable", *info["macros_values"])
        program, facts = self.files.kernel(info["src"], info["name"], options, info.where("src"), info.where("name"))
        if isinstance(info["dataset"], (int, float)):
            scope.setdefault("dataset", info["dataset"])
        global_size, local_size = info["globalWorkSize"], info["localWorkSize"]
        scope.setdefault("dataset", global_size[0] if global_size else 0)
        if isinstance(local_size, int):
            local_size = (local_size,) * len(global_size)
        try:
            check_ndrange(facts, global_size, local_size)
        except LaunchError as error:
            at = info.where("globalWorkSize" if local_size is None else "localWorkSize")
            note = scope.note if isinstance(scope, Symbols) else ""
            raise at.error(f"{error.message}{note}", error.hint) from None
        self.draft.kernels.append(
            DraftKernel(
                id=kernel.id,
                name=f"{facts.name}#{kernel.id}",
                place=kernel.place,
                program=program,
                kernel=facts,
                global_size=global_size,
                local_size=local_size,
                args=self.args(kernel, facts),
                component=info["task"],
            )
        )

    def args(self, kernel: KernelInfo, facts: KernelFacts) -> list[DraftArgument]:
        found: dict[int, DraftArgument] = {}
        for group in (*_DECLARED, "varArguments", "localArguments"):
            for entry in kernel.info[group]:
                position = entry["pos"]
                if not 0 <= position < len(facts.arguments):
                    raise entry.where("pos").error(
                        f"kernel {facts.name} takes {len(facts.arguments)} arguments, none at {position}"
                    )
                argument = facts.arguments[position]
                if position in found:
                    raise entry.place.error(f"argument {position} ({argument.name}) of {facts.name} is given twice")
                if group == "varArguments":
                    found[position] = _scalar(argument, entry)
                elif group == "localArguments":
                    found[position] = self.local(argument, entry)
                else:
                    found[position] = self.buffer(kernel, argument, group, entry)
        missing = [f"{a.index} ({a.name})" for a in facts.arguments if a.index not in found]
        if missing:
            raise kernel.info.place.error(
                f"kernel {facts.name} takes {len(facts.arguments)} arguments; not given: {', '.join(missing)}"
            )
        return [found[a.index] for a in facts.arguments]

    def local(self, facts: ArgumentFacts, entry: Fields) -> LocalArg:
        if facts.kind != "local":
            raise entry.place.error(f"argument {facts.index} ({facts.name}) is no local memory but {a(facts.kind)}")
        dtype, shape = array_type(self.type_name(facts, entry), (entry["size"],), entry.place)
        return LocalArg(Contents("undefined", dtype, shape).nbytes)

    def type_name(self, facts: ArgumentFacts, entry: Fields) -> str:
        """The declared type, unless the kernel has another base type: then the kernel's."""
        declared: str = entry["type"] or facts.element
        try:
            base, lanes = split_type(declared)
        except ValueError as error:
            raise entry.where("type").error(str(error)) from None
        if facts.base not in TYPES or TYPES[facts.base] == TYPES[base]:
            return declared
        self.warn(entry.where("type"), f"{facts.name} is declared {declared}, but the kernel has {facts.element}")
        return facts.base + (str(lanes) if lanes > 1 else "")

    def buffer(self, kernel: KernelInfo, facts: ArgumentFacts, group: str, entry: Fields) -> BufferArg:
        place = entry.place
        if facts.kind != "buffer":
            raise place.error(f"argument {facts.index} ({facts.name}) is no buffer but {a(facts.kind)}")
        dtype, shape = array_type(self.type_name(facts, entry), (entry["size"],), place)
        declared = _DECLARED[group]
        wider = facts.reason and facts.direction == "both"  # the analysis could not tell
        if facts.direction != declared and not wider:
            self.warn(place, f"{facts.name} is declared in {group}, but in the kernel it is {facts.direction}")
        name = f"{kernel.id}.{facts.name or facts.index}"
        contents = _initial(name, dtype, shape) if group != "outputBuffers" else Contents("zeros", dtype, shape)
        self.draft.buffers.append(DraftBuffer(name, contents, place, given=True))
        if "from" in entry:
            self.origins.append((len(self.draft.kernels), facts.index, entry["from"]))
        return BufferArg(BufferKey(len(self.draft.buffers) - 1))

    def warn(self, place: Location, message: str) -> None:
        """Once for every place, however many kernels share the information file."""
        if (place.path, str(place.where)) not in self.warned:
            self.warned.add((place.path, str(place.where)))
            self.draft.warn("declarations that the kernel contradicts", place, message)

    # Dependences and devices

    def read_dependences(self, edges: Sequence[EdgeText]) -> None:
        for edge in edges:
            self.draft.add_edge(edge, replace=True)
        for kernel, position, origin in self.origins:
            source = self.draft.argument(origin["kernel"], str(origin["pos"]), origin.place)
            self.draft.edges.append(DraftEdge(source, (kernel, position), origin.place, True))
        for index, kernel_read in enumerate(self.kernels):
            here = kernel_read.info.where("depends")
            for identifier in kernel_read.info["depends"]:
                self.draft.orders.append((self.draft.index(identifier, here), index, here))

    def prefer_devices(self) -> None:
        """Tenths on the GPU: all (10) or none (0) is a preference for a kind, of a component that of its first kernel;
        what is between divides a kernel that is a component alone."""
        first: dict[str, str] = {}
        sizes = Counter(draft.component for draft in self.draft.kernels)
        for kernel, draft in zip(self.kernels, self.draft.kernels, strict=True):
            device, tenths = partitioned(kernel.info["partition"])
            draft.device = first.setdefault(draft.component, device) if draft.component else device
            draft.partition = tenths if not draft.component or sizes[draft.component] == 1 else None


def _initial(name: str, dtype: str, shape: tuple[int, ...]) -> Contents:
    """What PySchedCL puts into inputs: [0, 1) for floats, 0..127 for chars, 0..4095 for other integers."""
    high = 1.0 if dtype.startswith("float") else 128.0 if dtype.endswith("int8") else 4096.0
    return Contents("random", dtype, shape, seed=zlib.crc32(name.encode()), low=0.0, high=high)


def _scalar(facts: ArgumentFacts, entry: Fields) -> bytes:
    values = entry["value"]
    try:
        return scalar_bytes(facts, values[0] if facts.lanes == 1 and len(values) == 1 else values)
    except LaunchError as error:
        raise entry.where("value").error(str(error)) from None
