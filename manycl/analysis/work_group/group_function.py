"""A work-group function, as who made it hands it to who compiles it: processes that find one on disk load no more."""

from __future__ import annotations

from dataclasses import dataclass

ENTRY = "manycl_entry"
"""The name of the function in a shared object that runs work-groups."""
MOST_OWN = 1 << 16
"""Bytes of the copies that a thread has of what it counts in: so many begin the frame of a function that counts."""
NARROW = (1 << 31) - (1 << 16)
"""The most work-items of a dimension, with the offset, whose ids have 31 bits. A tile has fewer than 2 ** 16."""


@dataclass(frozen=True, slots=True)
class WorkGroupFunction:
    """``source`` defines ``manycl_entry``, which runs work-groups of ``kernel``; or ``reason`` says why there is none.

    ``sized``: the text is for launches whose work-groups have the size that was asked for. Others are for any: they do
    not ask for their groups, and the sizes were chosen for them. ``defined``: functions that the text has of its own.
    ``counted``: the arguments (indices) that are only counted in. For each of them the function is given a further one,
    a ulong behind all others: the bytes of that memory, of which threads may have copies of their own; 0 where they may
    not, as something else may use the memory meanwhile. Rounded up to 64 each, they are ``MOST_OWN`` together at most.
    """

    kernel: str
    source: str
    reason: str = ""
    sized: bool = False
    defined: frozenset[str] = frozenset()
    counted: tuple[int, ...] = ()
