"""Functions in Python files that an application names. Nothing of them runs before they are needed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from manycl.applications.formats.kinds import Fields
from manycl.errors import RunError
from manycl.graph.graph import Graph, Launch, Version
from manycl.graph.versions.host_version import FunctionSource, HostProgram
from manycl.utilities import user_file
from manycl.utilities.json_lines import Location


class PythonFile:
    """A file with functions, which is run once, when one of them is first called or loaded."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self._lock = threading.Lock()
        self._module: ModuleType | None = None

    def module(self) -> ModuleType:
        """Return the module of the file, which runs when it is first asked for. Raises RunError."""
        with self._lock:  # several devices' threads may be first
            if self._module is None:
                self._module = user_file.run(self.path, "file of functions", RunError)
            return self._module


class FileFunction:
    """A function of a file by its name."""

    def __init__(self, file: PythonFile, name: str) -> None:
        self.file, self.__name__ = file, name
        self._function: Callable[..., Any] | None = None

    def load(self) -> Callable[..., Any]:
        """The function itself. Raises RunError where the file does not run, or has no such function."""
        if self._function is None:
            self._function = user_file.function_of(self.file.module(), self.file.path, self.__name__, RunError)
        return self._function

    def origin(self, kernel: str) -> FunctionSource:
        """Return the source of the function as a version of a kernel: the same text is taken to be equally fast."""
        found = re.search(rf"^def\s+{re.escape(self.__name__)}\b", self.file.text, re.MULTILINE)
        line = self.file.text.count("\n", 0, found.start()) + 1 if found else 0
        text = f"function {self.__name__} of a file as kernel {kernel}\n{self.file.text}"
        return FunctionSource(str(self.file.path), text, line)

    def __call__(self, *args: Any) -> Any:
        return self.load()(*args)


def functions(graph: Graph) -> Iterator[tuple[Version, FileFunction]]:
    """The versions of a graph's launches that are functions of files."""
    for task in graph.nodes:
        for version in task.versions if isinstance(task, Launch) else ():
            if isinstance(version.program, HostProgram) and isinstance(version.program.function, FileFunction):
                yield version, version.program.function


# What a specification may do beside running kernels: run Python files and write results, beneath certain folders.


_HINT = "--trust allows it, as for a program that you would run"


def python_file(fields: Fields, folder: Path, trust: bool) -> Path:
    """The Python file that the field ``file`` names; ``folder``: where the specification lies."""
    place = fields.where("file")
    path = folder / str(fields["file"])
    confined(path, [folder], "a Python file", place, trust)
    try:
        is_there = path.is_file()
    except (OSError, ValueError):
        raise place.error(f"{str(path)!r:.80} is not a possible file name") from None
    if not is_there:
        raise place.error(f"there is no file {str(path)!r}")
    return path


def confined(path: Path, folders: Sequence[Path], what: str, place: Location, trust: bool) -> Path:
    """The path, if it is beneath a folder, links followed, or the file is trusted; else SpecificationError."""
    if trust:
        return path
    try:
        real = path.resolve()
        beneath = any(real.is_relative_to(folder.resolve()) for folder in folders)
    except (OSError, ValueError, RuntimeError):  # loops of links
        raise place.error(f"{str(path)!r:.80} is not a possible file name") from None
    if not beneath:
        raise place.error(f"{what} outside of {' and '.join(str(f.resolve()) for f in folders)}: {path}", hint=_HINT)
    return path
