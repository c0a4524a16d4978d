"""Files of the user's: Python that is run (policies, references to check against), and files that are to be written."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from manycl.errors import ManyclError


def run(path: Path, what: str, error: type[ManyclError]) -> ModuleType:
    """Run a file and return it as a module; ``error`` (naming the file) if it is missing or raises. ``what`` it is."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise error(f"{path}: there is no such {what}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as reason:
        raise error(f"{path}: {type(reason).__name__}: {reason}") from reason
    return module


def check_writable(path: str | Path, what: str = "") -> None:
    """Raise ManyclError, which begins with ``what``, for a file that cannot be written: known before the work is done.
    A file that is there stays as it is."""
    place = Path(path).absolute()
    try:
        is_new = not place.exists()
        if not place.is_fifo():  # whose reader would be told of its end
            place.open("ab").close()
        if is_new:
            place.unlink()
    except OSError as error:
        reason = "this is a folder" if place.is_dir() else error.strerror
        reason = reason if place.parent.is_dir() else f"there is no folder {place.parent}"
        raise ManyclError(f"{what} {path}: {reason}".strip()) from None
