"""Who has read and written which bytes of a buffer that nodes touch in parts, while a graph is built."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from manycl.region import Region

END = 1 << 62
"""Beyond the end of any buffer."""


class LastAccesses:
    """A buffer in segments, each with the node that wrote it last (None: nobody) and the nodes that have read it since.
    Begins as one, of which these are known."""

    def __init__(self, writer: int | None, readers: Sequence[int]) -> None:
        self._low = [0, END]  # where segments begin, and where the last one ends
        self._writers = [writer]
        self._readers = [list(readers)]
        self._spans: set[tuple[int, int]] = set()

    def touch(self, node: int, reads: Region, writes: Region, before: set[int]) -> None:
        """A node reads some bytes and writes some; what it comes after goes to ``before``."""
        for region in (reads, writes):
            self._spans.update(region.intervals)
        for at in self._segments(reads):
            if (writer := self._writers[at]) is not None:
                before.add(writer)
        for at in self._segments(writes):
            before.update(self._readers[at])
            if (writer := self._writers[at]) is not None and not self._readers[at]:
                before.add(writer)
        for at in self._segments(reads):
            self._readers[at].append(node)
        for low, high in writes.intervals:  # what is written together is one segment again
            first, last = self._at(low), self._at(high)
            self._low[first:last] = [low]
            self._writers[first:last] = [node]
            self._readers[first:last] = [[]]

    def is_partial(self, nbytes: int) -> bool:
        """Whether any node touched less than all of the buffer, which has so many bytes."""
        return any(low or high < nbytes for low, high in self._spans)

    def _segments(self, region: Region) -> Iterator[int]:
        """The segments that some bytes are made of; they are cut at their ends."""
        for low, high in region.intervals:
            first = self._at(low)
            yield from range(first, self._at(high))

    def _at(self, place: int) -> int:
        """The segment that begins with a byte; there is one from now on."""
        at = bisect_left(self._low, place)
        if self._low[at] != place:
            self._low.insert(at, place)
            self._writers.insert(at, self._writers[at - 1])
            self._readers.insert(at, list(self._readers[at - 1]))
        return at
