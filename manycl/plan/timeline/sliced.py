"""Sliced data of a node: the bytes that memories lack of the buffers of which ranges need parts, computed once for all
devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from manycl.machine import HOST, hops, nearest


class Stretch(NamedTuple):
    """Bytes that lie together, and by memory that has them, the operation that put them there."""

    nbytes: int
    places: Mapping[int, int]


class Lack(NamedTuple):
    """The bytes that a memory lacks, the seconds to transfer all of them one after another, when the last of them is
    known to be ready for its transfer, and the memory that the first of them comes from."""

    nbytes: int
    seconds: float
    known: float
    source: int


class Sliced:
    """The stretches of a node's sliced data. Where no memories but the host's have links to others, all of it comes by
    the host, so the seconds are added up once and each memory's own are taken out: time linear in stretches and
    devices."""

    def __init__(
        self,
        pieces: Sequence[Stretch],
        transfer: Callable[[int, int, int], float],
        known: Callable[[int], float],
        peers: Collection[tuple[int, int]],
    ) -> None:
        """Look at the stretches once. ``transfer``: seconds of bytes from one memory to another; ``known``: when it is
        known that an operation has ended; ``peers``: see :attr:`Machine.peers`."""
        self.nbytes = sum(p.nbytes for p in pieces)
        self._pieces, self._transfer, self._known, self._peers = pieces, transfer, known, peers
        self._at: dict[int, list[int]] = {}
        for i, piece in enumerate(pieces):
            for memory in piece.places:
                self._at.setdefault(memory, []).append(i)
        if peers:
            return
        sources = [nearest(p.places, HOST, peers) for p in pieces]
        self._sources = sources
        ways = list(zip(pieces, sources, strict=True))
        self._downs = [0.0 if source == HOST else transfer(p.nbytes, source, HOST) for p, source in ways]
        self._down = sum(self._downs)
        self._sizes = Counter(p.nbytes for p in pieces)
        self._latest = sorted(((known(p.places[source]), i) for i, (p, source) in enumerate(ways)), reverse=True)

    def there(self, memory: int) -> list[int]:
        """Return the operations that put the stretches in a memory there."""
        return [self._pieces[i].places[memory] for i in self._at.get(memory, ())]

    def lack(self, memory: int) -> Lack | None:
        """Return what a memory lacks; None: nothing."""
        own = set(self._at.get(memory, ()))
        if len(own) == len(self._pieces):
            return None
        nbytes = self.nbytes - sum(self._pieces[i].nbytes for i in own)
        if self._peers:
            lacked = [p for i, p in enumerate(self._pieces) if i not in own]
            sources = [nearest(p.places, memory, self._peers) for p in lacked]
            ways = [(p, source, hops(source, memory, self._peers)) for p, source in zip(lacked, sources, strict=True)]
            seconds = sum(self._transfer(p.nbytes, a, b) for p, _, way in ways for a, b in way)
            return Lack(nbytes, seconds, max(self._known(p.places[source]) for p, source, _ in ways), sources[0])
        seconds = max(0.0, self._down - sum(self._downs[i] for i in own))
        if memory != HOST:
            sizes = self._sizes - Counter(self._pieces[i].nbytes for i in own)
            seconds += sum(count * self._transfer(n, HOST, memory) for n, count in sizes.items())
        known = next(known for known, i in self._latest if i not in own)
        first = next(source for i, source in enumerate(self._sources) if i not in own)
        return Lack(nbytes, seconds, known, first)
