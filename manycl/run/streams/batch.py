"""A leg of a flight (:mod:`manycl.run.streams.eager_stream`): what it was given between two times that somebody waited
for all of it. Each is a run."""

from __future__ import annotations

from time import perf_counter

from manycl.graph.graph import BufferKey
from manycl.run.data.coherence import ValidRegion


class CommandBatch:
    """``first``: the command that it begins with; ``moved``: the first of the flight's transfers that belongs to it.
    ``found``: by the keys of buffers that it uses, where these were valid before: the memories' mask, or part by part;
    ``written``: keys of those that it writes. ``began``: by ``time.perf_counter``, 0 as long as it has no commands."""

    __slots__ = ("began", "first", "found", "moved", "written")

    def __init__(self, first: int, moved: int, began: float = 0.0) -> None:
        self.first = first
        self.moved = moved
        self.began = began
        self.found: dict[BufferKey, int | tuple[ValidRegion, ...]] = {}
        self.written: set[BufferKey] = set()

    def begin(self) -> None:
        """Its first command is about to be given."""
        if not self.began:
            self.began = perf_counter()
