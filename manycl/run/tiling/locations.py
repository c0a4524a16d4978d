"""The locations where pieces of a run that does not fit may be valid. Pure. A device allocates *stores*: whole buffers,
and windows of them (:mod:`manycl.run.tiling.windows`). Each window counts as a memory of its own in the masks of the
directory while the run lasts, so a piece of a buffer may be valid in the host's memory, in a device's whole buffer and
in any of its windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from manycl.graph.graph import BufferKey, Graph, Piece
from manycl.machine import HOST, HOST_BIT, DeviceIndex, Machine
from manycl.run.lowering.steps import Room


class PieceLocations:
    """The locations of a run. A location is a memory of the machine or, from ``base`` on, a window; it is a bit of the
    directory's masks. ``whole[piece]``: the buffer that it is a piece of (or itself). Nothing here changes."""

    def __init__(self, machine: Machine, graph: Graph, room: Room) -> None:
        self.base = machine.memories
        self.whole = {k: b.whole if isinstance(b, Piece) else k for k, b in graph.buffers.items()}
        self._memory = [d.memory for d in machine.devices]
        self._owner = {d.memory: i for i, d in machine.numbered() if d.memory != HOST}
        self._place_of = {key: self.base + i for i, key in enumerate(room.windows)}
        self._window_at = list(room.windows.values())
        self._using = room.using
        self._nodes = graph.nodes
        self._homes: dict[tuple[int, int, int], dict[BufferKey, int]] = {}  # ranges of many launches share locations
        self._pieces = self._pieces_of_stores(graph)

    def _pieces_of_stores(self, graph: Graph) -> dict[BufferKey, list[BufferKey]]:
        found: dict[BufferKey, dict[BufferKey, None]] = {}
        for piece, whole in self.whole.items():
            found.setdefault(whole, {})[piece] = None
        seen: set[tuple[int, int, int]] = set()
        for step, using in enumerate(self._using):
            task = graph.nodes[step]
            if using and (name := (id(task.reads), id(task.writes), id(using))) not in seen:
                seen.add(name)
                for key in (*task.reads, *task.writes):
                    window = using.get(self.whole[key])
                    if window is not None:
                        found.setdefault(window, {})[key] = None
        return {store: list(keys) for store, keys in found.items()}

    def homes(self, step: int, device: DeviceIndex) -> Mapping[BufferKey, int]:
        """Return the locations where a step on a device finds the pieces that it touches."""
        task = self._nodes[step]
        using: Mapping[BufferKey, BufferKey] = self._using[step] if self._using else {}
        name = id(task.reads), id(task.writes), id(using) if using else device
        found = self._homes.get(name)
        if found is None:
            memory = self._memory[device]
            found = self._homes[name] = {
                key: self._place_of[window] if (window := using.get(self.whole[key])) is not None else memory
                for key in (*task.reads, *task.writes)
            }
        return found

    def at(self, device: DeviceIndex, store: BufferKey) -> int:
        """Return the location of a device's store."""
        return self._place_of.get(store, self._memory[device])

    def store(self, place: int, key: BufferKey) -> tuple[DeviceIndex, BufferKey]:
        """Return the device and the store that hold a piece at a location other than the host's memory."""
        if place < self.base:
            return self._owner[place], self.whole[key]
        window = self._window_at[place - self.base]
        return window.device, window.key

    def pieces(self, store: BufferKey) -> Sequence[BufferKey]:
        """Return the pieces that may be valid in a store."""
        return self._pieces.get(store, ())

    @staticmethod
    def of(mask: int) -> Iterator[int]:
        """Yield the locations of a mask other than the host's memory."""
        mask &= ~HOST_BIT
        while mask:
            bit = mask & -mask
            yield bit.bit_length() - 1
            mask ^= bit
