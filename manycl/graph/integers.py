"""Launches that differ in integers alone: between which bounds of these all of them keep to their buffers. Loops hand
kernels their counters, strides and levels. Looking at each launch takes some 30 us, as long as several small kernels;
intervals (:mod:`manycl.analysis.regions.enclosure`) tell of all integers between two as quickly as of one."""

from __future__ import annotations

from collections.abc import Sequence

from manycl.analysis.regions.enclosure import INTEGERS
from manycl.graph import bounds
from manycl.graph.graph import Argument, Launch

_FIRST = 2  # launches that were looked at, from which on it may pay


class Integers:
    """The integers of launches like one, with buffers of the same sizes; ``nbytes``: those of its arguments (None: no
    buffer). What it is asked of has been looked at before, or will be."""

    def __init__(self, launch: Launch, nbytes: Sequence[int | None]) -> None:
        self._launch = launch
        self._sizes = {i: n for i, n in enumerate(nbytes) if n is not None}
        self._places = list[int]()
        self._fixed = list[tuple[int, Argument]]()  # what else may decide what is accessed
        self._types = list[tuple[bool, int, int]]()  # whether they are signed; least and most of the integers
        for i, (facts, given) in enumerate(zip(launch.kernel.arguments, launch.args, strict=True)):
            if isinstance(given, bytes) and facts.lanes == 1 and facts.base in INTEGERS:
                is_signed, bits = facts.base[0] != "u", 8 * len(given)
                self._places.append(i)
                self._types.append((is_signed, -(1 << bits - 1) if is_signed else 0, (1 << bits - is_signed) - 1))
            elif i not in self._sizes and facts.decides:
                self._fixed.append((i, given))
        self._seen = [(value, value) for value in self._values(launch.args)]
        self._proved: list[tuple[int, int]] | None = None
        self._missed, self._again = 0, _FIRST

    def _values(self, args: Sequence[Argument]) -> list[int]:
        return [
            int.from_bytes(args[i], "little", signed=is_signed)  # type: ignore[arg-type]
            for i, (is_signed, _, _) in zip(self._places, self._types, strict=True)
        ]

    def cover(self, args: Sequence[Argument]) -> bool:
        """Return whether a launch with these arguments is known to keep to its buffers; False where it has to be looked
        at."""
        if self._fixed and any(args[i] != given for i, given in self._fixed):
            return False
        keys = {args[i].key for i in self._sizes}  # type: ignore[union-attr]
        if len(keys) < len(self._sizes):
            return False  # arguments that share memory are looked at closer
        values = self._values(args)
        if self._proved is not None and _lie_in(values, self._proved):
            return True
        self._seen = [(min(low, v), max(high, v)) for v, (low, high) in zip(values, self._seen, strict=True)]
        self._missed += 1
        if self._missed < self._again:
            return False
        for wanted in (self._wider(1), self._wider(4), self._seen):
            if bounds.keep_between(self._launch, self._sizes, dict(zip(self._places, wanted, strict=True))):
                self._proved, self._again = wanted, self._missed + 1
                return True
        self._again = 2 * self._missed
        return False

    def _wider(self, part: int) -> list[tuple[int, int]]:
        """Return what has been seen, and more above it: as much again, or a part of that."""
        return [
            (low, min(most, high + (max(high - low, abs(high)) + part) // part)) if high > low else (low, high)
            for (low, high), (_, _, most) in zip(self._seen, self._types, strict=True)
        ]


def _lie_in(values: Sequence[int], spans: Sequence[tuple[int, int]]) -> bool:
    return all([low <= value <= high for value, (low, high) in zip(values, spans, strict=True)])  # noqa: C419 (quicker)
