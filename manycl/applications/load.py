"""Reads an application file of any format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from manycl.applications.application import Application
from manycl.errors import SpecificationError
from manycl.utilities.json_lines import Location, parse, read_text

NO_PARAMETERS: Mapping[str, str] = {}


def load_application(
    path: str | Path,
    parameters: Mapping[str, str] = NO_PARAMETERS,
    *,
    kernel_folders: Sequence[str | Path] = (),
    info_folders: Sequence[str | Path] = (),
    trust: bool = False,
) -> Application:
    """The application in a file: manycl's own format, or PySchedCL's ``dag.json``, list of kernels, ``dag.graph`` (or
    its folder) or ``.task`` list. ``parameters`` are the values of symbols given on the command line, as text;
    ``kernel_folders`` and ``info_folders`` are searched first for the sources and information files of PySchedCL's
    formats. ``trust``: the file may run Python from anywhere and write results anywhere. Raises SpecificationError, or
    SourceError for a kernel file that does not compile."""
    file = Path(path)
    folders = [Path(folder) for folder in kernel_folders]
    infos = [Path(folder) for folder in info_folders]
    try:
        if (file / "dag.graph").is_file():
            file = file / "dag.graph"
    except (OSError, ValueError):
        raise SpecificationError("not a possible file name", path=repr(str(path))) from None
    text = read_text(file)
    if file.suffix == ".graph":
        from manycl.applications.formats.pyschedcl import read_graph

        return read_graph(text, file, parameters, folders, infos)
    if file.suffix == ".task":
        from manycl.applications.formats.pyschedcl import read_tasks

        return read_tasks(text, file, parameters, folders, infos)
    document = parse(text, str(file))
    place = Location(str(file), text)
    if isinstance(document, list) or (isinstance(document, dict) and "manycl" not in document and "src" in document):
        from manycl.applications.formats.pyschedcl import read_list

        return read_list(document, place, parameters, folders)
    from manycl.applications.formats.pyschedcl import is_dag, read_dag

    if is_dag(document):
        return read_dag(document, place, parameters, folders, infos)
    from manycl.applications.formats.specification import read_specification

    return read_specification(document, place, parameters, trust)
