"""Buffers that arrays have left behind, as they are, for the next arrays of just their sizes.

A loop that makes its arrays anew drops and makes the same ones again and again. Such a buffer keeps its key and all its
memory, so that nothing has to be done to either; what does not find its like goes to :mod:`manycl.run.data.pool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from manycl.graph.graph import BufferKey, Owned


class ExactSizePool:
    """Buffers without an array, by exact size. Threads may share it. ``is_used``: a buffer was taken since this was
    last set to False."""

    __slots__ = ("_waiting", "is_used")

    def __init__(self) -> None:
        # by size: those without a copy on the host, and those with one
        self._waiting: dict[int, tuple[list[Owned], list[Owned]]] = {}
        self.is_used = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def give(self, whole: Owned, has_host: bool) -> None:
        """Add a buffer, which has a copy on the host or not."""
        nbytes = whole[0].nbytes
        waiting = self._waiting.get(nbytes)
        if waiting is None:
            waiting = self._waiting[nbytes] = [], []
        waiting[has_host].append(whole)

    def take(self, nbytes: int, on_host: bool) -> Owned | None:
        """Take the buffer of ``nbytes`` that was added last, preferring one with a host copy (``on_host``) or one
        without. None where there is none."""
        waiting = self._waiting.get(nbytes)
        if waiting is None:
            return None
        found = waiting[on_host] or waiting[not on_host]
        try:
            whole = found.pop()
        except IndexError:  # there is none, or another thread has it
            return None
        self.is_used = True
        return whole

    def leave(self) -> Iterator[Owned]:
        """Yield all buffers one after another, and remove them."""
        while self._waiting:
            try:
                _, waiting = self._waiting.popitem()
            except KeyError:  # another thread has the last ones
                return
            for found in waiting:
                with suppress(IndexError):
                    while True:
                        yield found.pop()

    def keys(self) -> set[BufferKey]:
        """Return the keys of the buffers in the pool."""
        found = [whole for waiting in list(self._waiting.values()) for some in waiting for whole in list(some)]
        return {whole.buffer.key for whole in found}
