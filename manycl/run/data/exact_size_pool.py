"""Buffers that arrays have left behind, as they are, for the next arrays of just their sizes.

A loop that makes its arrays anew drops and makes the same ones again and again. Such a buffer keeps its key and all its
memory, so that nothing has to be done to either; what does not find its like goes to :mod:`manycl.run.data.pool`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from manycl.graph.graph import BufferKey, Owned


class ExactSizePool:
    """``is_used``: one was taken, since somebody said otherwise. Threads may share it."""

    __slots__ = ("_waiting", "is_used")

    def __init__(self) -> None:
        # by size: those without a copy on the host, and those with one
        self._waiting: dict[int, tuple[list[Owned], list[Owned]]] = {}
        self.is_used = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def give(self, whole: Owned, has_host: bool) -> None:
        """One more, which has a copy on the host or not."""
        nbytes = whole[0].nbytes
        waiting = self._waiting.get(nbytes)
        if waiting is None:
            waiting = self._waiting[nbytes] = [], []
        waiting[has_host].append(whole)

    def take(self, nbytes: int, on_host: bool) -> Owned | None:
        """The one of so many bytes that was given last, rather one with a copy on the host, or without."""
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
        """All of them, one after another, which are here no longer."""
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
        """Of their buffers."""
        found = [whole for waiting in list(self._waiting.values()) for some in waiting for whole in list(some)]
        return {whole.buffer.key for whole in found}
