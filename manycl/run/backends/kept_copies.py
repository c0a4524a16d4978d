"""What the host keeps beside its own copies of buffers while a run is under way (:mod:`manycl.run.keeping`)."""

from __future__ import annotations

from collections.abc import Mapping

from manycl.drivers.driver import Bytes, Driver, DriverError, End
from manycl.drivers.worker.rows import copy_rows
from manycl.graph.graph import BufferKey, Graph, Piece
from manycl.region import Box
from manycl.run.backends.memory import Memory


class KeptCopies:
    """Of each buffer up to one for each number; they stay for the next run, until their buffers are gone."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._held: dict[BufferKey, dict[int, tuple[Bytes, object]]] = {}

    def target(self, key: BufferKey, copy: int, driver: Driver) -> End:
        """Where a device's transfer brings what is to be in a copy. Raises DriverError where there is no room."""
        return End(self._copy(key, copy, driver))

    def save(self, key: BufferKey, copy: int, rows: tuple[Box, ...], driver: Driver) -> None:
        """The host's own copy goes to one beside it. Raises DriverError where there is no room."""
        copy_rows(self._copy(key, copy, driver), self._memory.host(key), rows, 0, 0)

    def restore(self, graph: Graph, copies: Mapping[BufferKey, int]) -> None:
        """The host's own copies of a graph's buffers become what is beside them."""
        for key, copy in copies.items():
            buffer = graph.buffers[key]
            whole = buffer.whole if isinstance(buffer, Piece) else key
            rows = buffer.region.boxes if isinstance(buffer, Piece) else (Box(0, buffer.nbytes),)
            copy_rows(self._memory.host(whole), self._held[whole][copy][0], rows, 0, 0)

    def trim(self) -> None:
        """Give the memory back; no run is under way."""
        self._held.clear()

    def _copy(self, key: BufferKey, copy: int, driver: Driver) -> Bytes:
        held = self._held.get(key)
        if held is None:
            self._held = {k: copies for k, copies in self._held.items() if self._memory.has(k)}
            held = self._held[key] = {}
        found = held.get(copy)
        if found is None or len(found[0]) < self._memory.nbytes(key):
            try:
                data = self._memory.new_bytes(self._memory.nbytes(key))
                found = held[copy] = data, driver.pin(data)
            except MemoryError as error:
                raise DriverError(str(error)) from None
        return found[0]
