"""Reads PySchedCL's files as they are: ``dag.json`` of its paper (Figure 8), and what it has published: a list of
kernels, ``dag.graph`` with a file per kernel, or a list of independent tasks. Fields and semantics: A. Ghose et al.,
"PySchedCL: Leveraging Concurrency in Heterogeneous Data-Parallel Systems", section 4, and the files of its public
repositories."""

from __future__ import annotations

import ast
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from manycl.applications.formats.kinds import Fields, Symbols, check, show
from manycl.applications.formats.pyschedcl_fields import DAG, INFORMATION
from manycl.applications.formats.version_fields import array_type
from manycl.errors import LaunchError, a
from manycl.expressions import IDENTIFIER, ExpressionError, Number, evaluate, suggest
from manycl.graph.graph import BufferArg, BufferKey, LocalArg
from manycl.graph.launch import TYPES, check_ndrange, scalar_bytes, split_type
from manycl.utilities.json_lines import Location, parse, read_text

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
        """Warn once for every place, however many kernels share the information file."""
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
    """Return the contents that PySchedCL gives inputs: [0, 1) for floats, 0..127 for chars, 0..4095 for other
    integers."""
    high = 1.0 if dtype.startswith("float") else 128.0 if dtype.endswith("int8") else 4096.0
    return Contents("random", dtype, shape, seed=zlib.crc32(name.encode()), low=0.0, high=high)


def _scalar(facts: ArgumentFacts, entry: Fields) -> bytes:
    values = entry["value"]
    try:
        return scalar_bytes(facts, values[0] if facts.lanes == 1 and len(values) == 1 else values)
    except LaunchError as error:
        raise entry.where("value").error(str(error)) from None


Folders = Sequence[Path]
_NODE = re.compile(r"(\S+)\s+(\S+)\s*(\{.*\})?\s*\Z", re.DOTALL)
_EDGE = re.compile(r"(\S+)\s+(\d+)\s*->\s*(\S+)\s+(\d+)\s*\Z")
_DAG_EDGE = re.compile(r"\s*([^\s,]+)\s*,\s*(\d+)\s*->\s*([^\s,]+)\s*,\s*(\d+)\s*\Z")
_TASK = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s*\Z")
_SOURCES = ("kernels", "src", "kernel_src", "database/kernels")
_INFOS = ("info", "database/info")


def read_list(document: Any, place: Location, parameters: Mapping[str, str], kernel_folders: Folders) -> Application:
    """The array form: a list of kernel objects (or one alone)."""
    folder = Path(place.path).parent
    reader = Reader(place, Path(place.path).stem, parameters, [*kernel_folders, *_around(folder, *_SOURCES)])
    nodes = document if isinstance(document, list) else [document]
    for index, info in enumerate(nodes):
        reader.add(info, place.at(index) if isinstance(document, list) else place)
    return reader.read()


def read_graph(
    text: str, path: Path, parameters: Mapping[str, str], kernel_folders: Folders, info_folders: Folders = ()
) -> Application:
    """The graph form: ``dag.graph`` with a line per kernel and a line per edge, and information files in folders."""
    files = _Files(path, path.parent.resolve().name or path.stem, parameters, kernel_folders, info_folders)
    edges: list[EdgeText] = []
    section = 0
    for number, line in enumerate(text.splitlines(), 1):
        here = Location(str(path), fixed_line=number)
        stripped = line.strip()
        if stripped.startswith("---"):
            section += 1
        elif stripped and section == 0:
            _add_line(files, stripped, here)
        elif stripped:
            edges.append(_edge(_EDGE, stripped, here, "2 2->6 1"))
    return files.reader.read(edges)


def is_dag(document: Any) -> bool:
    """Return whether a document is a graph as in the paper's Figure 8: kernels have devices called ``dev``, or there
    are components ``tc`` or queues ``cq``."""
    if not isinstance(document, dict) or "manycl" in document or not isinstance(document.get("kernels"), list):
        return False
    kernels = [kernel for kernel in document["kernels"] if isinstance(kernel, dict)]
    return "tc" in document or "cq" in document or any("dev" in kernel for kernel in kernels)


def read_dag(
    document: Any, place: Location, parameters: Mapping[str, str], kernel_folders: Folders, info_folders: Folders = ()
) -> Application:
    """Return the application of a ``dag.json`` (Section 4.A, Figure 8): kernels with information files, devices and
    values of symbols, components of kernels (``tc``), queues of the first, second … device (``cq``), and edges."""
    path = Path(place.path)
    check(document, DAG, place)
    dag = DAG.fields_of(document, {}, place)
    components: dict[str, int] = {}
    for number, ids in enumerate(dag["tc"]):
        for identifier in ids:
            if components.setdefault(identifier, number) != number:
                raise place.at("tc").error(f"kernel {identifier} is in two components")
    files = _Files(path, path.stem, parameters, kernel_folders, info_folders)
    devices: dict[int, str] = {}
    for index, kernel in enumerate(dag["kernels"]):
        given, component = document["kernels"][index], components.pop(kernel["id"], None)
        symbols = {key: value for key, value in given.items() if key not in ("id", "name", "dev")}
        more: dict[str, Any] = {"partition": {"gpu": 10, "cpu": 0}[kernel["dev"]]} if kernel["dev"] else {}
        if component is not None:
            more["task"] = component
            if devices.setdefault(component, kernel["dev"]) != kernel["dev"]:
                raise kernel.where("dev").error(
                    f"kernel {kernel['id']} has another device than its component",
                    hint="all kernels of a component run on devices of one kind: give them one, or take it out of tc",
                )
        files.add(kernel["id"], kernel["name"], symbols, kernel.place, more)
    for identifier in components:
        raise place.at("tc").error(f"there is no kernel with the id {identifier!r:.60}")
    edges = [
        _edge(_DAG_EDGE, text, place.at("edges").at(index), "0,2 -> 2,0") for index, text in enumerate(dag["edges"])
    ]
    queues = {re.sub(r"\Ar(\d+)\Z", r"#\1", device): count for device, count in dag["cq"].items()}
    return replace(files.reader.read(edges), queues=queues)


def read_tasks(
    text: str, path: Path, parameters: Mapping[str, str], kernel_folders: Folders, info_folders: Folders = ()
) -> Application:
    """The task form: a line per kernel, with its information file, its partition and its dataset; none needs another.
    A kernel's id is the number of its line."""
    files = _Files(path, path.stem, parameters, kernel_folders, info_folders)
    for number, line in enumerate(text.splitlines(), 1):
        here = Location(str(path), fixed_line=number)
        if not line.strip():
            continue
        match = _TASK.match(line.strip())
        if match is None:
            raise here.error(f"{line.strip()!r:.80} is not a task", hint="a task looks like 'NAME.json 5 1024'")
        info, info_place = files.info(match[1], here)
        info = {k: v for k, v in info.items() if k not in ("depends", "task", "dataset")}
        info["partition"] = int(match[2])
        files.reader.add(info, info_place, {"dataset": int(match[3])}, (str(number), here))
    return files.reader.read()


def _edge(form: re.Pattern[str], text: str, place: Location, example: str) -> EdgeText:
    match = form.match(text)
    if match is None:
        raise place.error(f"{text!r:.80} is not an edge", hint=f"an edge looks like {example!r}")
    return EdgeText((match[1], match[2]), (match[3], match[4]), place)


class _Files:
    """The information files that a file names, each read once, and the reader of its kernels."""

    def __init__(
        self, path: Path, name: str, parameters: Mapping[str, str], kernel_folders: Folders, info_folders: Folders
    ) -> None:
        around = _around(path.parent, *_SOURCES, *_INFOS)
        self.reader = Reader(Location(str(path)), name, parameters, [*kernel_folders, *around])
        self._folders = [*info_folders, *_around(path.parent, *_INFOS)]
        self._read: dict[Path, tuple[dict[str, Any], Location]] = {}

    def info(self, name: str, place: Location) -> tuple[dict[str, Any], Location]:
        """Return a kernel's information, checked, and its place."""
        file = _find(name, self._folders, place)
        if file not in self._read:
            text = read_text(file)
            info_place = Location(str(file), text)
            info = parse(text, str(file))
            check(info, INFORMATION, info_place)
            self._read[file] = info, info_place
        return self._read[file]

    def add(
        self, identifier: str, name: str, symbols: Mapping[str, Any], place: Location, more: Mapping[str, Any]
    ) -> None:
        """Add a kernel with the information of a file, the values of its symbols, and ``more`` information."""
        info, info_place = self.info(name, place)
        scope: dict[str, Number] = {}
        info = {**info, **more}
        for symbol, value in symbols.items():
            if symbol == "localWorkSize":
                info[symbol] = value if isinstance(value, list) else {"every": value}
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                scope[symbol] = value
            else:
                raise place.error(f"the symbol {symbol!r} must be a number, not {show(value)}")
        if "partition" in scope:
            info["partition"] = scope["partition"]
        self.reader.add(info, info_place, scope, (identifier, place))


def _add_line(files: _Files, line: str, place: Location) -> None:
    match = _NODE.match(line)
    if match is None:
        raise place.error(f"{line!r:.80} is not a kernel", hint="a kernel looks like '4 NAME.json {\"n\": 64}'")
    identifier, name, symbols_text = match.groups()
    try:
        symbols = ast.literal_eval(symbols_text) if symbols_text else {}  # of equal keys, the last holds
        if not isinstance(symbols, dict) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise place.error(f"the symbols of kernel {identifier} must be an object, not {symbols_text!r:.80}") from None
    files.add(identifier, name, symbols, place, {})


def _around(folder: Path, *names_: str) -> list[Path]:
    """Return the folders where the files of an application lie: beside it, and in folders of those names there or
    above."""
    above = [folder, folder / "..", folder / ".." / ".."]
    return [folder, *(base / name for base in above for name in names_), folder / ".."]


def _find(name: str, folders: Sequence[Path], place: Location) -> Path:
    for folder in folders:
        try:
            if (folder / name).is_file():
                return folder / name
        except (OSError, ValueError):
            break
    looked = ", ".join(str(folder) for folder in folders)
    raise place.error(f"there is no file {name!r:.80}", hint=f"looked in {looked}; --info DIR adds a folder")
