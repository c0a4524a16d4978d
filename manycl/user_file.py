"""Python files of the user's: policies, references to check against."""

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
