"""What a specification may do beside running kernels: run Python files and write results, beneath certain folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from manycl.front.json_lines import Location

_HINT = "--trust allows it, as for a program that you would run"


def confined(path: Path, folders: Sequence[Path], what: str, place: Location, trust: bool) -> Path:
    """The path, if it lies beneath one of the folders, links followed, or the file is trusted; else
    SpecificationError."""
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
