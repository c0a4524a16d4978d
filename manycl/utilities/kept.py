"""Answers that are kept for those who ask again: bounded, and shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

PLANS = 8
"""Entries of a cache of whole command graphs, with the memory that they need; our own choice."""
FEW = 64
"""Entries of a cache of what keeps graphs, buffers or results of runs; our own choice."""
MANY = 4096
"""Entries of a cache of answers, which take some kilobytes at most; our own choice."""

ENOUGH = 3
"""Measurements, comparisons or runs that are kept until they count: the first is slow, one may be disturbed."""


class _Answer(Generic[Value]):
    __slots__ = ("is_asked_for", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.is_asked_for = False


class Kept(Generic[Key, Value]):
    """The ``most`` answers that were last asked for or found, nearly: one that was asked for since it had its turn to
    be forgotten is given another turn (the clock algorithm: F. J. Corbató, "A paging experiment with the Multics
    system", 1968). So asking takes no lock and a tenth of a microsecond."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, _Answer[Value]] = OrderedDict()  # in the order of their turns

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        if found is None:
            return None
        found.is_asked_for = True
        return found.value

    def keep(self, key: Key, value: Value) -> Value:
        """The value, or what another thread had found by then: all who ask get the same one."""
        with self._lock:
            values = self._values
            found = values.get(key)
            if found is not None:
                found.is_asked_for = True
                return found.value
            while len(values) >= self._most:
                oldest, answer = next(iter(values.items()))
                if answer.is_asked_for:
                    answer.is_asked_for = False
                    values.move_to_end(oldest)
                else:
                    del values[oldest]
            values[key] = _Answer(value)
            return value

    def values(self) -> list[Value]:
        """Return all that is kept now."""
        with self._lock:
            return [answer.value for answer in self._values.values()]

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
