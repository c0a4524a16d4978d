"""Reductions: how what ranges of a launch wrote in several memories becomes one, and what is remembered of that."""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple, Protocol

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.utilities.kept import MANY, Kept

if TYPE_CHECKING:
    from manycl.graph.graph import Launch


class Reduction(StrEnum):
    """The ways to put results together of a launch whose ranges run in several memories:

    - NONE: no two ranges in different memories write the same bytes (of what is known of them). Bytes that a range is
      only said to write at most are brought first, so that its memory holds current contents whatever it leaves out;
    - SCATTER: they interleave. What ranges in other memories wrote goes to a buffer of its own, and the kernel without
      its computation copies from there exactly the elements that the range wrote (MKMD, Section 2.2);
    - DIFFERENCE: they interleave, and there is no such kernel, or groups are only promised to be apart; or groups
      change the same integers by atomic operations that may come in any order. Ranges in other memories work on a copy.
      Every byte of it that differs from the old contents is then taken over; where there is an operation, the copy
      begins with its neutral element, and goes to the original by it.
    """

    NONE = "none"
    SCATTER = "kernel"
    DIFFERENCE = "difference"

    def words(self, operation: str = "") -> str:
        """Return what users are told."""
        name = {Reduction.NONE: "in place", Reduction.SCATTER: "merge kernel"}.get(self, self.value)
        return f"{name} {operation}" if operation else name


class Atomic(NamedTuple):
    """The operation by which groups change a buffer, and the type of its elements."""

    operation: str
    element: str


PROMISE = "promised to be apart (MANYCL_APART=1, or kernel.annotate), it would be divided, and checked"
"""What is said of a launch of which it is only unproved that its work-groups are apart."""
ATOMICS = ("int", "uint", "long", "ulong")
"""Types whose elements may be merged by an operation."""


class Promised(NamedTuple):
    """A promise that steps rely on: the launch (``proof``: see :class:`Promises`), and whether it was checked."""

    proof: Hashable
    program: ProgramFacts
    kernel: KernelFacts
    is_kept: bool

    @classmethod
    def of(cls, proof: Hashable, launch: Launch) -> Promised:
        """Return what is known now."""
        return cls(proof, launch.program, launch.kernel, PROMISES.is_kept(proof))

    @property
    def is_current(self) -> bool:
        """True if nothing else is known of it now."""
        return PROMISES.is_kept(self.proof) == self.is_kept and not PROMISES.broken(self.program, self.kernel)


class Noted(Protocol):
    """The notes that all processes of the user write and find (:class:`manycl.utilities.disk_cache.DiskCache`)."""

    def recall(self, question: bytes) -> object: ...

    def note(self, question: bytes, answer: object) -> None: ...


class Promises:
    """The findings of runs about launches whose work-groups are promised to be apart: those whose ranges, on copies,
    left what the undivided launch left, and the kernels of which ranges did not. The latter are never divided by a
    promise again, until their source changes; by no process of the user where ``others`` is set."""

    def __init__(self) -> None:
        self._kept: Kept[Hashable, bool] = Kept(MANY)
        self._broken: dict[Hashable, str] = {}
        self.others: Noted | None = None

    def is_kept(self, launch: Hashable) -> bool:
        """Return whether ranges of a launch have been compared with it."""
        return self._kept.get(launch) is not None

    def keep(self, launch: Hashable) -> None:
        """Note that ranges of a launch left what it left."""
        self._kept.keep(launch, True)

    def broken(self, program: ProgramFacts, kernel: KernelFacts) -> str:
        """Return why a promise about a kernel does not count any more; empty: it does."""
        key = program.source, program.options, kernel.name
        found = self._broken.get(key)
        if found is None and self.others is not None:
            noted = self.others.recall(_digest(key))
            found = self._broken[key] = noted if isinstance(noted, str) else ""
        return found or ""

    def broke(self, program: ProgramFacts, kernel: KernelFacts, why: str) -> None:
        """Note that a kernel's work-groups are not apart."""
        key = program.source, program.options, kernel.name
        self._broken[key] = why
        if self.others is not None:
            self.others.note(_digest(key), why)


def _digest(key: Hashable) -> bytes:
    return sha256(repr(key).encode()).digest()


PROMISES = Promises()
