"""The command batch of an eager stream (:mod:`manycl.run.streams.eager_stream`): the commands between two waits for all
of its commands. Each batch is a run."""

from __future__ import annotations

from manycl.graph.graph import BufferKey
from manycl.run.data.coherence import ValidRegion


class CommandBatch:
    """A command batch. ``first``: the index of its first command; ``moved``: the index of its first transfer in the
    stream. ``found``: by key of a buffer that it uses, where that was valid before: the memories' mask, or part by
    part; ``written``: keys of the buffers that it writes. ``began``: by ``time.perf_counter``, 0 as long as it has no
    commands."""

    __slots__ = ("began", "first", "found", "moved", "written")

    def __init__(self, first: int, moved: int, began: float = 0.0) -> None:
        self.first = first
        self.moved = moved
        self.began = began
        self.found: dict[BufferKey, int | tuple[ValidRegion, ...]] = {}
        self.written: set[BufferKey] = set()
