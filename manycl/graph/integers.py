"""Launches that differ in integers alone: between which bounds of these all of them keep to their buffers. Loops hand
kernels their counters, strides and levels. Looking at each launch takes some 30 us, as long as several small kernels;
intervals (:mod:`manycl.analysis.regions.enclosure`) tell of all integers between two as quickly as of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from manycl.analysis.regions.enclosure import INTEGERS
from manycl.analysis.regions.spans import ProvedSpans, Spans
from manycl.graph.graph import Argument, Launch

Keep = Callable[[Launch, Mapping[int, int], Mapping[int, tuple[int, int]]], bool]
""":func:`manycl.graph.bounds.keep_between`."""


class Integers:
    """The integers of launches like one, with buffers of the same sizes; ``nbytes``: those of its arguments (None: no
    buffer). What it is asked of has been looked at before, or will be."""

    def __init__(self, launch: Launch, nbytes: Sequence[int | None], keep: Keep) -> None:
        self._sizes = {i: n for i, n in enumerate(nbytes) if n is not None}
        self._places = list[int]()
        self._fixed = list[tuple[int, Argument]]()  # what else may decide what is accessed
        self._signed, most = list[bool](), list[int]()
        for i, (facts, given) in enumerate(zip(launch.kernel.arguments, launch.args, strict=True)):
            if isinstance(given, bytes) and facts.lanes == 1 and facts.base in INTEGERS:
                is_signed, bits = facts.base[0] != "u", 8 * len(given)
                self._places.append(i)
                self._signed.append(is_signed)
                most.append((1 << bits - is_signed) - 1)
            elif i not in self._sizes and facts.decides:
                self._fixed.append((i, given))

        def prove(spans: Spans) -> bool:
            return keep(launch, self._sizes, dict(zip(self._places, spans, strict=True)))

        self._spans = ProvedSpans(self._values(launch.args), most, prove)

    def _values(self, args: Sequence[Argument]) -> list[int]:
        return [
            int.from_bytes(args[i], "little", signed=is_signed)  # type: ignore[arg-type]
            for i, is_signed in zip(self._places, self._signed, strict=True)
        ]

    def cover(self, args: Sequence[Argument]) -> bool:
        """Return whether a launch with these arguments is known to keep to its buffers; False where it has to be looked
        at."""
        if self._fixed and any(args[i] != given for i, given in self._fixed):
            return False
        keys = {args[i].key for i in self._sizes}  # type: ignore[union-attr]
        if len(keys) < len(self._sizes):
            return False  # arguments that share memory are looked at closer
        return self._spans.cover(self._values(args))
