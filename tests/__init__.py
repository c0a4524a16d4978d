"""The tests of manycl: those of a folder of the product lie in the folder here that has its name."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def environment(**settings: str) -> dict[str, str]:
    """Return the environment of a process that imports these tests, wherever it is started."""
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | settings
