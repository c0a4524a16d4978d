"""Kernel files of an application: found, read and analysed once per set of build options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.errors import LaunchError, ManyclError
from manycl.graph.launch import find_kernel
from manycl.utilities.json_lines import Location


def read_source(path: str | Path) -> str:
    """Return the OpenCL C in a file; comments may be in any encoding. Raises ManyclError."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig", "replace")
    except (OSError, ValueError) as error:  # ValueError: a path that cannot be one
        raise ManyclError(f"{str(path)!r:.200}: {getattr(error, 'strerror', None) or error}") from None


class KernelFiles:
    """The kernel files of an application: looked up in ``folders``, in order, and kept once they are analysed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(dict.fromkeys(folders))
        self._paths: dict[str, Path] = {}
        self._programs: dict[tuple[Path, tuple[str, ...]], ProgramFacts] = {}

    def kernel(
        self, source: str, name: str, options: tuple[str, ...], source_place: Location, name_place: Location
    ) -> tuple[ProgramFacts, KernelFacts]:
        """Return the program of a source file and one kernel of it. Errors name the field, SourceError the line."""
        program = self.program(source, options, source_place)
        try:
            return program, find_kernel(program, name)
        except LaunchError as error:
            raise name_place.error(error.message) from None

    def program(self, source: str, options: tuple[str, ...], place: Location) -> ProgramFacts:
        path = self._paths.get(source)
        if path is None:
            path = self._paths[source] = self._find(source, place)
        program = self._programs.get((path, options))
        if program is None:
            from manycl.analysis import parse_program

            program = parse_program(read_source(path), path=str(path), options=options)
            self._programs[path, options] = program
        return program

    def _find(self, source: str, place: Location) -> Path:
        for folder in self.folders:
            try:
                if (folder / source).is_file():
                    return folder / source
            except (OSError, ValueError):
                raise place.error(f"{source!r:.80} is not a possible file name") from None
        looked = ", ".join(str(folder) for folder in self.folders)
        raise place.error(f"there is no file {source!r:.80}", hint=f"looked in {looked}")
