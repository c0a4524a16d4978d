"""Reads PySchedCL's published files as they are: a list of kernels, ``dag.graph`` with a file per kernel, or a list of
independent tasks.

Fields and semantics: A. Ghose et al., "PySchedCL: Leveraging Concurrency in Heterogeneous Data-Parallel
Systems", section 4, and the files of its public repositories.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from manycl.applications.application import Application
from manycl.applications.assemble import EdgeText
from manycl.applications.formats.kinds import check, show
from manycl.applications.formats.pyschedcl_fields import INFORMATION
from manycl.applications.formats.pyschedcl_kernels import Reader
from manycl.expressions import Number
from manycl.utilities.json_lines import Location, parse, read_text

_NODE = re.compile(r"(\S+)\s+(\S+)\s*(\{.*\})?\s*\Z", re.DOTALL)
_EDGE = re.compile(r"(\S+)\s+(\d+)\s*->\s*(\S+)\s+(\d+)\s*\Z")
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
            _add_kernel(reader, stripped, here, folders, infos)
        elif stripped:
            match = _EDGE.match(stripped)
            if match is None:
                raise here.error(f"{stripped!r:.80} is not an edge", hint="an edge looks like '2 2->6 1'")
            edges.append(EdgeText((match[1], match[2]), (match[3], match[4]), here))
    return reader.read(edges)


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


def _add_kernel(reader: Reader, line: str, place: Location, folders: Sequence[Path], infos: Infos) -> None:
    match = _NODE.match(line)
    if match is None:
        raise place.error(f"{line!r:.80} is not a kernel", hint="a kernel looks like '4 NAME.json {\"n\": 64}'")
    identifier, name, symbols_text = match.groups()
    info, info_place = _info(name, folders, place, infos)
    scope: dict[str, Number] = {}
    try:
        symbols = ast.literal_eval(symbols_text) if symbols_text else {}  # of equal keys, the last holds
        if not isinstance(symbols, dict) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise place.error(f"the symbols of kernel {identifier} must be an object, not {symbols_text!r:.80}") from None
    info = dict(info)
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
