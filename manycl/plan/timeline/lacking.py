"""The bytes that devices lack of what a launch reads, found for all memories of a network at once: from any memory of
it to any other one bytes take equally long, so what a device lacks is all that there is, less what it has. Asked one by
one, each of a thousand devices would look at the parts of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from manycl.graph.graph import BufferKey
from manycl.machine import HOST
from manycl.plan.timeline.writer_intervals import INITIAL, Places, WriterInterval


class Lacking(NamedTuple):
    """The bytes that a memory lacks, and the seconds that their transfers take one after another; when other devices
    know that they are there (``known``), and when what it has is there itself (``ready``)."""

    nbytes: int
    seconds: float
    known: float
    ready: float


class _Part(NamedTuple):
    """Bytes of a buffer that an operation has put into a memory, from which others get them."""

    key: BufferKey
    low: int
    high: int
    writer: int
    source: int
    op: int


class NetworkNeeds:
    """The bytes that the memories of a network (``joined``) lack of some. ``ends``, ``heard``: when operations end, and
    other devices know."""

    def __init__(
        self,
        intervals: Iterable[tuple[BufferKey, int, int, Sequence[WriterInterval]]],
        joined: frozenset[int],
        transfer: Callable[[int, int, int], float],
        times: tuple[Sequence[float], Sequence[float], float],
    ) -> None:
        self._ends, self._heard, self._floor = times
        self._transfer, self._others = transfer, sorted(joined)[:2]
        self._parts: list[_Part] = []
        self._places: list[Places] = []
        self._has: dict[int, list[int]] = {}
        self.usable = True
        """False if some of the bytes are in memories that the network does not join."""
        for key, low, high, of in intervals:
            for a, b, writer, places in of:
                if not places:
                    continue
                self.usable &= joined.issuperset(places)
                source = HOST if HOST in places else next(iter(places))
                for memory in places:
                    self._has.setdefault(memory, []).append(len(self._parts))
                self._parts.append(_Part(key, max(a, low), min(b, high), writer, source, places[source]))
                self._places.append(places)
        self.nbytes = sum(part.high - part.low for part in self._parts)
        self._run_of: list[int] = []
        self._runs: list[list[int]] = []
        if not self.usable:
            return
        for run in self._joined(range(len(self._parts))):
            self._run_of += [len(self._runs)] * len(run)
            self._runs.append(run)
        self._seconds = [self._takes(run) for run in self._runs]
        self._all = math.fsum(self._seconds)
        made = [i for i, part in enumerate(self._parts) if part.op != INITIAL]
        self._latest = sorted(made, key=lambda i: self._heard[self._parts[i].op], reverse=True)

    def of(self, memory: int) -> Lacking:
        """Return what a memory lacks."""
        own, parts = self._has.get(memory, ()), self._parts
        mine, runs = frozenset(own), {self._run_of[i] for i in own}
        seconds = [self._all, *(-self._seconds[run] for run in runs)]
        for run in runs:
            seconds += [self._takes(rest) for rest in self._joined([i for i in self._runs[run] if i not in mine])]
        latest = next((self._heard[parts[i].op] for i in self._latest if i not in mine), self._floor)
        here = [self._places[i][memory] for i in own]
        ready = max([self._ends[op] for op in here if op != INITIAL], default=self._floor)
        lacking = self.nbytes - sum(parts[i].high - parts[i].low for i in own)
        return Lacking(lacking, math.fsum(seconds), max(latest, self._floor), max(ready, self._floor))

    def _joined(self, indices: Sequence[int]) -> Iterator[list[int]]:
        """Yield parts (indices) of which one transfer serves several: each lies behind the one before it, and the same
        operation has put them where they are."""
        run: list[int] = []
        for i in indices:
            part = self._parts[i]
            before = self._parts[run[-1]] if run else None
            is_next = before is not None and (before.key, before.high, *before[3:]) == (part.key, part.low, *part[3:])
            if run and not is_next:
                yield run
                run = []
            run.append(i)
        if run:
            yield run

    def _takes(self, run: Sequence[int]) -> float:
        """Return the seconds of a transfer of some parts."""
        source, nbytes = self._parts[run[0]].source, sum(self._parts[i].high - self._parts[i].low for i in run)
        return self._transfer(nbytes, source, self._others[self._others[0] == source])
