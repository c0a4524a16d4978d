"""Contents of buffers, as the host has them between runs, by which steps of a run may be made. Such steps are for these
contents: these are kept beside them, and compared again if anything may have written the buffer since
(``Directory.unchanged``)."""

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
            now = self._memory.present(self.key) if _is_on_host(self.key, directory) else None
            if now is None or not np.array_equal(now, self.data):
                return False
            directory.unchanged[self.key] = self
        return True


class HostContents:
    """The contents of a session's buffers; only asked while nothing is under way (``memory`` None: at any time, of no
    others than are known; ``has_missed``: others were asked for). ``hulls``: of what ranges of launches read by them,
    by launch (:mod:`manycl.run.lowering.index_arrays`)."""

    def __init__(self, memory: HostCopies | None) -> None:
        self._memory, self.has_missed = memory, False
        self._looked: dict[BufferKey, LookedAt] = {}
        self.hulls: Kept[Hashable, dict[tuple[Hashable, ...], tuple[int, int]]] = Kept(FEW)

    @property
    def known(self) -> HostContents:
        """The contents that were looked at, for threads beside runs."""
        found = HostContents(None)
        found._looked, found.hulls = self._looked, self.hulls
        return found

    def look(self, key: BufferKey, directory: Directory) -> LookedAt | None:
        """Return a buffer's contents; None where the host does not have all of them, or they change again and again:
        steps would be made anew each time."""
        known, number = self._looked.get(key), 0
        if known is not None:
            if directory.unchanged.get(key) is known or (self._memory is not None and known.is_current(directory)):
                return known
            number = known.number + 1
        if number >= ENOUGH or not _is_on_host(key, directory):
            return None
        found = self._memory.present(key) if self._memory is not None else None
        if self._memory is None or found is None:
            self.has_missed = True
            return None
        if len(self._looked) >= FEW:
            self._looked.clear()
        directory.unchanged[key] = self._looked[key] = known = LookedAt(key, found, self._memory, number)
        return known


def _is_on_host(key: BufferKey, directory: Directory) -> bool:
    return key not in directory.lost and all(part.mask & HOST_BIT for part in directory.regions_of(key, 0))
