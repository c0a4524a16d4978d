"""Buffers on the host's own memory (USE_HOST_PTR), which programs look at, and change, as if it were the buffers'.

Drivers of devices that compute in the host's memory make it so, and programs count on that. Here such a buffer has what
the memory has when it is first used after somebody waited, and the memory has what is in the buffer when somebody
waits.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from manycl.drivers.driver import Bytes
from manycl.front.arrays import Array
from manycl.graph.graph import BufferKey

if TYPE_CHECKING:
    from manycl.stand_in.runtime import Runtime


class SharedMemory:
    """Of the buffers of a runtime. ``used``: those that commands have used since somebody waited, with their memory."""

    def __init__(self) -> None:
        self.used: dict[BufferKey, tuple[Array, Bytes]] = {}
        self._lock = threading.RLock()

    def use(self, runtime: Runtime, array: Array, memory: Bytes) -> None:
        """A command is about to use a whole buffer that lies on ``memory``."""
        with self._lock:
            if array.buffer.key not in self.used:
                runtime.store(array, 0, memory)
                self.used[array.buffer.key] = array, memory

    def show(self, runtime: Runtime) -> None:
        """Somebody has waited."""
        with self._lock:
            used, self.used = self.used, {}
            for array, memory in used.values():
                if memory.flags.writeable:
                    runtime.load(array, 0, memory)

    def leave(self, runtime: Runtime, array: Array | None) -> None:
        """A whole buffer is needed no more, and its memory is soon the program's own again."""
        with self._lock:
            found = self.used.pop(array.buffer.key, None) if array is not None else None
        if found is not None and found[1].flags.writeable:
            runtime.load(found[0], 0, found[1])
