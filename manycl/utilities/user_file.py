"""Files of the user's: Python that is run (policies, references to check against), and files that are to be written."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

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


def function(path: Path, name: str, what: str, error: type[ManyclError]) -> Callable[..., Any]:
    """Run a file and return a function of it; ``error`` (naming the file) for what goes wrong. ``what`` the file is."""
    return function_of(run(path, what, error), path, name, error)


def function_of(module: ModuleType, path: Path, name: str, error: type[ManyclError]) -> Callable[..., Any]:
    """A function of a file that was run; ``error`` where it has none of that name."""
    found: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(found):
        raise error(f"{path}: there is no function {name}")
    return found


def check_writable(path: str | Path, what: str = "") -> None:
    """Raise ManyclError, which begins with ``what``, for a file that cannot be written. A file that is there stays."""
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
