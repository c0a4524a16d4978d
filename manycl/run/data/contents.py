"""Contents of buffers, as the host has them between runs, by which steps of a run may be made.

Such steps are for these contents: these are kept beside them, and compared again if anything may have written the
buffer since (``Directory.unchanged``).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from manycl.graph.graph import BufferKey
from manycl.machine import HOST_BIT
from manycl.run.data.coherence import Directory
from manycl.utilities.kept import ENOUGH, FEW, Kept

Bytes = npt.NDArray[np.uint8]


class HostCopies(Protocol):
    """The host's copies of buffers (:class:`manycl.run.data.memory.Memory`)."""

    def present(self, key: BufferKey) -> Bytes | None: ...


class LookedAt:
    """The contents of a buffer (``data``) that were looked at; the ``number``-th other ones."""

    def __init__(self, key: BufferKey, data: Bytes, memory: HostCopies, number: int) -> None:
        self.key, self.data, self._memory, self.number = key, data.copy(), memory, number

    def is_current(self, directory: Directory) -> bool:
        """Return whether the buffer has these contents."""
        if directory.unchanged.get(self.key) is not self:
            now = _present(self.key, directory, self._memory)
            if now is None or not np.array_equal(now, self.data):
                return False
            directory.unchanged[self.key] = self
        return True


class HostContents:
    """The contents of a session's buffers; only asked while nothing is under way. ``hulls``: of what ranges of launches
    read by them, by launch (:mod:`manycl.run.lowering.index_arrays`)."""

    def __init__(self, memory: HostCopies) -> None:
        self._memory = memory
        self._looked: dict[BufferKey, LookedAt] = {}
        self.hulls: Kept[Hashable, dict[tuple[Hashable, ...], tuple[int, int]]] = Kept(FEW)

    def look(self, key: BufferKey, directory: Directory) -> LookedAt | None:
        """Return a buffer's contents; None where the host does not have all of them, or they change again and again:
        steps would be made anew each time."""
        known, number = self._looked.get(key), 0
        if known is not None:
            if known.is_current(directory):
                return known
            number = known.number + 1
        found = _present(key, directory, self._memory) if number < ENOUGH else None
        if found is None:
            return None
        if len(self._looked) >= FEW:
            self._looked.clear()
        directory.unchanged[key] = self._looked[key] = known = LookedAt(key, found, self._memory, number)
        return known


def _present(key: BufferKey, directory: Directory, memory: HostCopies) -> Bytes | None:
    """Return the contents of a buffer; None where the host does not have all of them."""
    masks = [part.mask for part in directory.parts.get(key, ())] or [directory.valid.get(key, 0)]
    is_known = key not in directory.lost and all(mask & HOST_BIT for mask in masks)
    return memory.present(key) if is_known else None
