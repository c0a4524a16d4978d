"""How what ranges of a launch wrote in several memories becomes one."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Reduction(StrEnum):
    """What is done for a launch whose ranges run in several memories:

    - NONE: no two ranges in different memories write the same bytes (of what is known of them). Bytes that a range is
      only said to write at most are brought first, so that its memory holds current contents whatever it leaves out;
    - SCATTER: they interleave. What ranges in other memories wrote goes to a buffer of its own, and the kernel without
      its computation copies from there exactly the elements that the range wrote (MKMD, Section 2.2);
    - DIFFERENCE: they interleave, and there is no such kernel; or groups change the same integers by atomic operations
      that may come in any order. Ranges in other memories work on a copy. Every byte of it that differs from the old
      contents is then taken over; where there is an operation, the copy begins with its neutral element, and goes to
      the original by it.
    """

    NONE = "none"
    SCATTER = "kernel"
    DIFFERENCE = "difference"

    def words(self, operation: str = "") -> str:
        """What users are told."""
        name = {Reduction.NONE: "in place", Reduction.SCATTER: "merge kernel"}.get(self, self.value)
        return f"{name} {operation}" if operation else name


class Atomic(NamedTuple):
    """The operation by which groups change a buffer, and the type of its elements."""

    operation: str
    element: str


ATOMICS = ("int", "uint", "long", "ulong")
"""Types whose elements may be merged by an operation."""
