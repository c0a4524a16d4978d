"""Buffers cut into pieces, and the order of steps that follows from the pieces that they touch. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np

from manycl.graph import pieces
from manycl.graph.graph import Buffer, Piece, Rows
from manycl.graph.pieces import Bytes
from manycl.run.coherence import Directory

_ALIGNED = 4096  # bytes


def chunks(rows: tuple[Rows, ...], most: int) -> list[tuple[Rows, ...]]:
    """A piece as several of about ``most`` bytes, where it is much larger and one interval or one rectangle."""
    if len(rows) != 1 or rows[0].width * rows[0].rows < 2 * most:
        return [rows]
    offset, width, pitch, count = rows[0]
    if count == 1:
        number = width // most
        ends = [width * i // number // _ALIGNED * _ALIGNED for i in range(number)] + [width]
        return [(Rows(offset + a, b - a),) for a, b in pairwise(ends)]
    number = min(count, width * count // most)
    ends = [count * i // number for i in range(number + 1)]
    return [(Rows(offset + a * pitch, width, pitch if b - a > 1 else 0, b - a),) for a, b in pairwise(ends)]


class Cut:
    """The buffers of a run, cut into pieces, of no more than about ``most`` bytes (0: of any size)."""

    def __init__(self, sizes: Mapping[int, int], directory: Directory, most: int = 0) -> None:
        self._most = most
        self._sizes = sizes
        self._directory = directory
        self._sets: dict[int, list[Bytes]] = {}
        self._index: dict[int, dict[bytes, int]] = {}
        self._held: dict[int, list[tuple[int, ...]]] = {}
        self.buffers: dict[int, Buffer] = {}
        self.cut: dict[int, dict[int, tuple[Rows, ...]]] = {}
        self.opens: dict[int, list[tuple[int, int]]] = {}
        for key in sizes:
            for part in directory.parts.get(key, ()):
                self.add(key, pieces.of_rows(part.rows))

    def add(self, key: int, touched: Bytes) -> None:
        """A set of bytes that is to be told from others."""
        known = self._index.setdefault(key, {})
        name = _name(touched)
        if name not in known:
            known[name] = len(known)
            self._sets.setdefault(key, []).append(touched)

    def make(self, buffers: Mapping[int, Buffer], temporary: set[int]) -> None:
        """Cut; ``temporary`` buffers are not in the directory."""
        for key, buffer in buffers.items():
            found, held = self._cut(buffer.nbytes, self._sets.get(key, ()))
            if len(found) == 1:
                self.buffers[key] = buffer
                self._held[key] = [(key,) if h else () for h in held]
                continue
            keys = [self._directory.new_key() for _ in found]
            for new, rows in zip(keys, found, strict=True):
                nbytes = sum(r.width * r.rows for r in rows)
                self.buffers[new] = Piece(new, nbytes, buffer.name or f"buffer {key}", key, rows)
            self._held[key] = [tuple(keys[i] for i in h) for h in held]
            self.cut[key] = dict(zip(keys, found, strict=True))
            if key not in temporary:
                part_of = dict.fromkeys(keys, 0)
                for number in range(len(self._directory.parts.get(key, ()))):
                    part_of.update(dict.fromkeys(self._held[key][number], number))
                self.opens[key] = list(part_of.items())

    def _cut(self, nbytes: int, sets: Sequence[Bytes]) -> tuple[list[tuple[Rows, ...]], list[tuple[int, ...]]]:
        """As ``pieces.partition``."""
        found, held = pieces.partition(nbytes, sets)
        if not self._most or len(found) == 1:  # what is used as a whole stays whole
            return found, held
        parts = [chunks(rows, self._most) for rows in found]
        first = [0, *accumulate(len(p) for p in parts)]
        return [c for p in parts for c in p], [tuple(j for i in h for j in range(first[i], first[i + 1])) for h in held]

    def of(self, touched: Mapping[int, Bytes]) -> tuple[int, ...]:
        """The pieces that sets of bytes are made of."""
        return tuple(p for key, given in touched.items() for p in self._held[key][self._index[key][_name(given)]])


def _name(given: Bytes) -> bytes:
    return np.concatenate(given).tobytes()


class Order:
    """Which step comes after which: read after write, write after read, write after write, by pieces. Steps that are
    added between ``begin`` and ``end`` do not wait for one another."""

    def __init__(self) -> None:
        self.predecessors: list[tuple[int, ...]] = []
        self._writers: dict[int, list[int]] = {}
        self._readers: dict[int, list[int]] = {}

    def begin(self) -> None:
        self._read: dict[int, list[int]] = {}
        self._written: dict[int, list[int]] = {}

    def add(self, step: int, reads: Iterable[int], writes: Iterable[int], before: Iterable[int]) -> None:
        found = set(before)
        for piece in reads:
            found.update(self._writers.get(piece, ()))
            self._read.setdefault(piece, []).append(step)
        for piece in writes:
            found.update(self._readers.get(piece) or self._writers.get(piece) or ())
            self._written.setdefault(piece, []).append(step)
        self.predecessors.append(tuple(sorted(found)))

    def end(self) -> None:
        for piece, steps in self._read.items():
            if piece not in self._written:
                self._readers.setdefault(piece, []).extend(steps)
        for piece, steps in self._written.items():
            self._writers[piece] = steps
            self._readers.pop(piece, None)
            # steps of the round that only read it (never what the others write of it) are to be waited for, too
            only = [s for s in self._read.get(piece, ()) if s not in steps]
            if only:
                self._writers[piece] = [*steps, *only]
