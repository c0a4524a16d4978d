"""Buffers that arrays have left behind, as they are, for the next arrays of just their sizes.

A loop that makes its arrays anew drops and makes the same ones again and again. Such a buffer keeps its key and all its
memory, so that nothing has to be done to either; what does not find its like goes to :mod:`manycl.run.backends.pool`.
"""

from __future__ import annotations

from collections.abc import Iterator

from manycl.graph.graph import BufferKey, Owned


class Resting:
    """``is_used``: one was taken, since somebody said otherwise. Threads may share it."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, bool], list[Owned]] = {}
        self.is_used = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def give(self, whole: Owned, has_host: bool) -> None:
        """One more, which has a copy on the host or not."""
        kind = whole.buffer.nbytes, has_host
        waiting = self._waiting.get(kind)
        if waiting is None:
            self._waiting[kind] = [whole]
        else:
            waiting.append(whole)

    def take(self, nbytes: int, on_host: bool) -> Owned | None:
        """The one of so many bytes that was given last, rather one with a copy on the host, or without."""
        kinds = self._waiting
        waiting = kinds.get((nbytes, on_host)) or kinds.get((nbytes, not on_host))
        if not waiting:
            return None
        try:
            found = waiting.pop()
        except IndexError:  # another thread has it
            return None
        self.is_used = True
        return found

    def leave(self) -> Iterator[Owned]:
        """All of them, one after another, which are here no longer."""
        while self._waiting:
            try:
                _, waiting = self._waiting.popitem()
                while True:
                    yield waiting.pop()
            except (IndexError, KeyError):  # the last one, or another thread has it
                pass

    def keys(self) -> set[BufferKey]:
        """Of their buffers."""
        return {whole.buffer.key for waiting in list(self._waiting.values()) for whole in list(waiting)}
