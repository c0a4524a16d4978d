"""Where every byte is while a plan is built: in which memories, put there by what; changes can be taken back."""

from __future__ import annotations

from typing import NamedTuple

from manycl.plan.problem import Problem
from manycl.plan.transfers import Move

INITIAL = -1

Places = dict[int, int]
"""Memory -> the operation that put the bytes there (INITIAL: none, they were there)."""


class Segment(NamedTuple):
    """Bytes ``low`` … ``high - 1`` of a buffer as node ``writer`` left them, and where they are (nowhere: nobody needs
    them, they are undefined)."""

    low: int
    high: int
    writer: int
    places: Places


class Segments:
    """``of[key]``: a buffer's segments in order; no entry: its contents are undefined."""

    def __init__(self, problem: Problem) -> None:
        self.of: dict[int, list[Segment]] = {
            key: [Segment(p.low, p.high, INITIAL, dict.fromkeys(p.memories, INITIAL)) for p in parts]
            for key in problem.graph.buffers
            if (parts := problem.initial(key))
        }
        self._old: list[tuple[int, list[Segment] | None]] = []

    def mark(self) -> int:
        """Where :meth:`back` can go back to."""
        return len(self._old)

    def back(self, mark: int) -> None:
        """Take back all changes since ``mark``."""
        while len(self._old) > mark:
            key, segments = self._old.pop()
            if segments is None:
                del self.of[key]
            else:
                self.of[key] = segments

    def set(self, key: int, segments: list[Segment]) -> None:
        """A buffer has new contents."""
        self._old.append((key, self.of.get(key)))
        self.of[key] = segments

    def write(self, key: int, new: Segment) -> None:
        """Some bytes of a buffer have new contents."""
        kept = [s for old in self.of.get(key, ()) for s in _outside(old, new.low, new.high)]
        kept.append(new)
        kept.sort(key=_by_low)
        self.set(key, kept)

    def arrived(self, move: Move, op: int) -> None:
        """A move, operation ``op``, brings bytes to one more memory."""
        changed: list[Segment] = []
        for s in self.of[move.buffer]:
            low, high = max(s.low, move.low), min(s.high, move.high)
            if low >= high:
                changed.append(s)
                continue
            changed.extend(_outside(s, low, high))
            changed.append(Segment(low, high, s.writer, {**s.places, move.target: op}))
        if len(changed) > 1:
            changed.sort(key=_by_low)
        self.set(move.buffer, changed)


def _outside(s: Segment, low: int, high: int) -> list[Segment]:
    """What of a segment lies outside of some bytes."""
    if s.high <= low or s.low >= high:
        return [s]
    out = []
    if s.low < low:
        out.append(Segment(s.low, low, s.writer, s.places))
    if s.high > high:
        out.append(Segment(high, s.high, s.writer, s.places))
    return out


def _by_low(s: Segment) -> int:
    return s.low
