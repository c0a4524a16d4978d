"""A work-group function, as who made it hands it to who compiles it: processes that find one on disk load no more."""

from __future__ import annotations

from dataclasses import dataclass

ENTRY = "manycl_entry"
"""The name of the function in a shared object that runs work-groups."""


@dataclass(frozen=True, slots=True)
class WorkGroupFunction:
    """``source`` defines ``manycl_entry``, which runs work-groups of ``kernel``; or ``reason`` says why there is none.

    ``sized``: the text is for launches whose work-groups have the size that was asked for. Others are for any: they do
    not ask for their groups, and the sizes were chosen for them. ``defined``: functions that the text has of its own.
    """

    kernel: str
    source: str
    reason: str = ""
    sized: bool = False
    defined: frozenset[str] = frozenset()
