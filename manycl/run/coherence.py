"""The coherence directory: for every buffer, in which memories its current contents are valid.

Pure bookkeeping. Contents are undefined until somebody defines them; undefined contents are never copied. A kernel
that writes a buffer may leave parts of it as they were, so it needs the current contents first, like a reader.
"""

from __future__ import annotations

from manycl.errors import ResultError
from manycl.machine import HOST

HOST_BIT = 1 << HOST


class Directory:
    """``valid[key]`` is a bit mask over memories (bit m: valid in memory m). No entry: contents are undefined."""

    def __init__(self) -> None:
        self.valid: dict[int, int] = {}
        self._lost: dict[int, str] = {}

    def define(self, key: int, memory: int = HOST) -> None:
        """The contents were set in one memory; all other copies are stale."""
        self.valid[key] = 1 << memory
        self._lost.pop(key, None)

    def copied(self, key: int, memory: int) -> None:
        """A transfer made the contents valid in one more memory."""
        self.valid[key] |= 1 << memory

    def drop(self, key: int, memory: int) -> None:
        """A transfer that was counted upon may never have ended: the memory does not hold the contents."""
        self.valid[key] &= ~(1 << memory)

    def lose(self, key: int, reason: str) -> None:
        """A failed run leaves the contents unknown; asking for them raises with ``reason``."""
        self.valid.pop(key, None)
        self._lost[key] = reason

    def forget(self, key: int) -> None:
        """The buffer is gone."""
        self.valid.pop(key, None)
        self._lost.pop(key, None)

    def check(self, key: int) -> None:
        """Raise :class:`ResultError` if a failed run left the contents unknown."""
        if key in self._lost:
            raise ResultError(
                f"the contents are unknown: {self._lost[key]}",
                hint="write new contents to the array before it is used again",
            )

    def memories(self, key: int) -> frozenset[int]:
        """The memories where the contents are valid; empty: undefined."""
        mask = self.valid.get(key, 0)
        return frozenset(m for m in range(mask.bit_length()) if mask >> m & 1)

    def validate(self, memories: int) -> None:
        """Assert the invariants (used by tests and at debug level 4)."""
        for key, mask in self.valid.items():
            assert 0 < mask < 1 << memories, f"buffer {key} valid in no memory of the machine: {mask:b}"
            assert key not in self._lost, f"buffer {key} both valid and lost"
