"""Reads PySchedCL's files as they are: ``dag.json`` of its paper (Figure 8), and what it has published: a list of
kernels, ``dag.graph`` with a file per kernel, or a list of independent tasks. Fields and semantics: A. Ghose et al.,
"PySchedCL: Leveraging Concurrency in Heterogeneous Data-Parallel Systems", section 4, and the files of its public
repositories."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from manycl.applications.application import Application
from manycl.applications.assemble import EdgeText
from manycl.applications.formats.kinds import check, show
from manycl.applications.formats.pyschedcl_fields import DAG, INFORMATION
from manycl.applications.formats.pyschedcl_kernels import Reader
from manycl.expressions import Number
from manycl.utilities.json_lines import Location, parse, read_text

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
    """Where the files of an application lie: beside it, and in folders of those names there or above."""
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
