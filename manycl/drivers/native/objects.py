"""Shared objects that outlive the process, by what they were made of, in a folder of the user's own.

One file an object, named by the digest of what it was made of. Behind the object lie a text that belongs to it and the
digest of all: loaders read an object by its headers and do not mind. So any number of processes may read and write: a
file appears at once, whole, and one that was damaged since is not believed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import tempfile
from pathlib import Path
from typing import NamedTuple

_ENDING = ".so"
_TAIL = struct.Struct("<Q32s")
"""Bytes of the text before it; digest of the object and the text."""
_LOOK = 32
"""Objects that a process keeps until it looks again whether they are too large."""


class KeptObject(NamedTuple):
    """``path``: an object that can be loaded. ``text``: what was kept with it."""

    path: Path
    text: str


class Objects:
    """The objects that were last kept or asked for: ``most`` bytes in a folder, nearly."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self._most = folder, most
        self._kept = 0

    def get(self, key: bytes) -> KeptObject | None:
        """What was kept for a key, if it is whole."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        end = len(data) - _TAIL.size
        if end < 0:
            return None
        size, digest = _TAIL.unpack_from(data, end)
        if hashlib.sha256(memoryview(data)[: end + 8]).digest() != digest:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return KeptObject(path, data[end - size : end].decode())

    def keep(self, key: bytes, content: bytes, text: str = "") -> KeptObject:
        """Raises OSError where nothing can be written."""
        if self._kept % _LOOK == 0:
            self._trim()
        self._kept += 1
        words = text.encode()
        data = content + words + struct.pack("<Q", len(words))
        path = self._path(key)
        handle, name = tempfile.mkstemp(dir=self.folder)
        try:
            with open(handle, "wb") as file:
                file.write(data + hashlib.sha256(data).digest())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        return KeptObject(path, text)

    def _path(self, key: bytes) -> Path:
        return self.folder / (hashlib.sha256(key).hexdigest() + _ENDING)

    def _trim(self) -> None:
        """Forget the oldest, and what processes that were ended left half written. Who has loaded one keeps it."""
        left = self._most
        with contextlib.suppress(OSError):
            with os.scandir(self.folder) as entries:
                states = [(e.path, e.stat()) for e in entries if e.is_file(follow_symlinks=False)]
            for path, state in sorted(states, key=lambda found: found[1].st_mtime, reverse=True):
                left -= 512 * state.st_blocks
                if left < 0:
                    with contextlib.suppress(OSError):
                        os.unlink(path)


def own_folder(folder: Path) -> bool:
    """Make a folder that nobody else can write, if need be, and tell whether it is one: what lies there is run."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = folder.lstat()
    except OSError:
        return False
    others = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not others and os.access(folder, os.W_OK)
