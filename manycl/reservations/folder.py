"""The runtime folder while nobody else enters anything there, and without what killed processes left half made."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished"
"""What a name ends with while its file is made, which is done with the folder's lock."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """The lock is the folder's own: no file is needed for it. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.endswith(UNFINISHED):  # of a process that was killed at it
                with suppress(FileNotFoundError):
                    os.unlink(folder / name)
        yield
    finally:
        os.close(handle)
