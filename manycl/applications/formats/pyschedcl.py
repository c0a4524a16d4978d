"""Reads PySchedCL's files as they are: ``dag.json`` of its paper (Figure 8), and what it has published: a list of
kernels, ``dag.graph`` with a file per kernel, or a list of independent tasks.

Fields and semantics: A. Ghose et al., "PySchedCL: Leveraging Concurrency in Heterogeneous Data-Parallel
Systems", section 4, and the files of its public repositories.
"""

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

_NODE = re.compile(r"(\S+)\s+(\S+)\s*(\{.*\})?\s*\Z", re.DOTALL)
_EDGE = re.compile(r"(\S+)\s+(\d+)\s*->\s*(\S+)\s+(\d+)\s*\Z")
_DAG_EDGE = re.compile(r"\s*([^\s,]+)\s*,\s*(\d+)\s*->\s*([^\s,]+)\s*,\s*(\d+)\s*\Z")
_TASK = re.compile(r"(\S+)\s+(\d+)\s+(\d+)\s*\Z")
_SOURCES = ("kernels", "src", "kernel_src", "database/kernels")
_INFOS = ("info", "database/info")

Infos = dict[Path, tuple[dict[str, Any], Location]]
"""Information files that have been read."""


def read_list(
    document: Any, place: Location, parameters: Mapping[str, str], kernel_folders: Sequence[Path]
) -> Application:
    """The array form: a list of kernel objects (or one alone)."""
    folder = Path(place.path).parent
    reader = Reader(place, Path(place.path).stem, parameters, [*kernel_folders, *_around(folder, *_SOURCES)])
    nodes = document if isinstance(document, list) else [document]
    for index, info in enumerate(nodes):
        reader.add(info, place.at(index) if isinstance(document, list) else place)
    return reader.read()


def read_graph(
    text: str,
    path: Path,
    parameters: Mapping[str, str],
    kernel_folders: Sequence[Path],
    info_folders: Sequence[Path] = (),
) -> Application:
    """The graph form: ``dag.graph`` with a line per kernel and a line per edge, and information files in folders."""
    folder = path.parent
    reader = _reader(path, folder.resolve().name or path.stem, parameters, kernel_folders)
    folders = [*info_folders, *_around(folder, *_INFOS)]
    infos: Infos = {}
    edges: list[EdgeText] = []
    section = 0
    for number, line in enumerate(text.splitlines(), 1):
        here = Location(str(path), fixed_line=number)
        stripped = line.strip()
        if stripped.startswith("---"):
            section += 1
        elif stripped and section == 0:
            _add_line(reader, stripped, here, folders, infos)
        elif stripped:
            match = _EDGE.match(stripped)
            if match is None:
                raise here.error(f"{stripped!r:.80} is not an edge", hint="an edge looks like '2 2->6 1'")
            edges.append(EdgeText((match[1], match[2]), (match[3], match[4]), here))
    return reader.read(edges)


def is_dag(document: Any) -> bool:
    """Return whether a document is a graph as in the paper's Figure 8: kernels have devices called ``dev``, or there
    are components ``tc`` or queues ``cq``."""
    if not isinstance(document, dict) or "manycl" in document or not isinstance(document.get("kernels"), list):
        return False
    kernels = [kernel for kernel in document["kernels"] if isinstance(kernel, dict)]
    return "tc" in document or "cq" in document or any("dev" in kernel for kernel in kernels)


def read_dag(
    document: Any,
    place: Location,
    parameters: Mapping[str, str],
    kernel_folders: Sequence[Path],
    info_folders: Sequence[Path] = (),
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
    reader = _reader(path, path.stem, parameters, kernel_folders)
    folders, infos = [*info_folders, *_around(path.parent, *_INFOS)], Infos()
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
        _add_kernel(reader, kernel["id"], kernel["name"], symbols, kernel.place, folders, infos, more)
    for identifier in components:
        raise place.at("tc").error(f"there is no kernel with the id {identifier!r:.60}")
    edges: list[EdgeText] = []
    for index, text in enumerate(dag["edges"]):
        here = place.at("edges").at(index)
        if (match := _DAG_EDGE.match(text)) is None:
            raise here.error(f"{text!r:.80} is not an edge", hint="an edge looks like '0,2 -> 2,0'")
        edges.append(EdgeText((match[1], match[2]), (match[3], match[4]), here))
    queues = {re.sub(r"\Ar(\d+)\Z", r"#\1", device): count for device, count in dag["cq"].items()}
    return replace(reader.read(edges), queues=queues)


def read_tasks(
    text: str,
    path: Path,
    parameters: Mapping[str, str],
    kernel_folders: Sequence[Path],
    info_folders: Sequence[Path] = (),
) -> Application:
    """The task form: a line per kernel, with its information file, its partition and its dataset; none needs another.
    A kernel's id is the number of its line."""
    reader = _reader(path, path.stem, parameters, kernel_folders)
    folders = [*info_folders, *_around(path.parent, *_INFOS)]
    infos: Infos = {}
    for number, line in enumerate(text.splitlines(), 1):
        here = Location(str(path), fixed_line=number)
        if not line.strip():
            continue
        match = _TASK.match(line.strip())
        if match is None:
            raise here.error(f"{line.strip()!r:.80} is not a task", hint="a task looks like 'NAME.json 5 1024'")
        info, info_place = _info(match[1], folders, here, infos)
        info = {k: v for k, v in info.items() if k not in ("depends", "task", "dataset")}
        info["partition"] = int(match[2])
        reader.add(info, info_place, {"dataset": int(match[3])}, (str(number), here))
    return reader.read()


def _reader(path: Path, name: str, parameters: Mapping[str, str], kernel_folders: Sequence[Path]) -> Reader:
    folders = [*kernel_folders, *_around(path.parent, *_SOURCES, *_INFOS)]
    return Reader(Location(str(path)), name, parameters, folders)


def _info(name: str, folders: Sequence[Path], place: Location, infos: Infos) -> tuple[dict[str, Any], Location]:
    file = _find(name, folders, place)
    if file not in infos:
        text = read_text(file)
        info_place = Location(str(file), text)
        info = parse(text, str(file))
        check(info, INFORMATION, info_place)
        infos[file] = info, info_place
    return infos[file]


def _add_line(reader: Reader, line: str, place: Location, folders: Sequence[Path], infos: Infos) -> None:
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
    _add_kernel(reader, identifier, name, symbols, place, folders, infos, {})


def _add_kernel(
    reader: Reader,
    identifier: str,
    name: str,
    symbols: Mapping[str, Any],
    place: Location,
    folders: Sequence[Path],
    infos: Infos,
    more: Mapping[str, Any],
) -> None:
    """Add a kernel with the information of a file, the values of its symbols, and ``more`` information."""
    info, info_place = _info(name, folders, place, infos)
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
    reader.add(info, info_place, scope, (identifier, place))


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
