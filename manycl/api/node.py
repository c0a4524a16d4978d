"""This process's devices as those of a node of a cluster (:mod:`manycl.cluster.node`): behind a queue, which plans,
divides and orders what the node is given as it does any program's commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from manycl.api.arrays.arrays import Array
from manycl.api.events import Event
from manycl.api.program import Kernel, LocalMemory, Program
from manycl.cluster.dask_client import DaskClient
from manycl.drivers.choice import Opened
from manycl.drivers.driver import Bytes, Source
from manycl.errors import ResultError
from manycl.graph.copies import fill_task
from manycl.graph.graph import LocalArg


def workers(client: DaskClient, queue: Callable[[], Any]) -> Opened:
    """Return the workers of a client's Dask cluster as devices. ``queue``: the class of queues, of which each worker
    gets one. Raises DeviceError."""
    from manycl.cluster.opening import opened  # it imports Dask

    return opened(client, partial(QueueDevices, queue))


def of_chunks(queue: Any, contents: Any, name: str) -> Array:
    """Return an array of a queue with the contents of an array of Dask's."""
    from manycl.cluster.dask_arrays import ChunkArray, check, fill

    check(contents)
    array = Array(queue, contents.shape, contents.dtype, name)
    fill(ChunkArray(queue.session, array.place, array.shape, array.dtype), contents)
    return array


def as_chunks(array: Array) -> Any:
    """Return an array's contents as an array of Dask's."""
    from manycl.cluster.dask_arrays import ChunkArray, chunked

    array.queue.finish_for(array.place)
    return chunked(ChunkArray(array.queue.session, array.place, array.shape, array.dtype))


class QueueDevices:
    """The devices of a new queue: those that MANYCL_DEVICES means here, else all."""

    def __init__(self, queue: Callable[[], Any]) -> None:
        self._queue = queue()
        self._buffers = self._queue.session.buffers
        devices = self._queue.session.machine.devices
        self.description: Mapping[str, Any] = {
            "model": ", ".join(dict.fromkeys(d.model for d in devices)),
            "driver": ", ".join(dict.fromkeys(d.driver for d in devices)),
            "compute_units": sum(d.compute_units for d in devices),
            "clock": max(d.clock for d in devices),
            "flops": sum(d.flops for d in devices),
            "bandwidth": sum(d.bandwidth for d in devices),
            "local_memory": min(d.local_memory for d in devices),
            "alignment": max(d.alignment for d in devices),
            "max_work_group": min(d.max_work_group for d in devices),
            "double": all(d.double for d in devices),
            "lacks": " ".join(sorted({word for d in devices for word in d.lacks.split()})),
        }

    def allocate(self, nbytes: int) -> Array:
        found: Array = self._queue.empty(nbytes, np.uint8)
        return found

    def part(self, memory: Array, offset: int, nbytes: int) -> Array:
        return memory[offset : offset + nbytes]

    def build(self, source: Source) -> Program:
        program = Program(source.text, source.options, path=source.path)
        self._queue.session.devices.builder.build_everywhere(program.facts)
        return program

    def kernel(self, program: Program, name: str) -> Kernel:
        return program.kernel(name)

    def launch(self, kernel: Kernel, args: Sequence[Any], *ndrange: tuple[int, ...] | None) -> Event:
        size, local, offset = ndrange
        assert size is not None
        given = [LocalMemory(a.nbytes) if isinstance(a, LocalArg) else a for a in args]
        if offset is None:
            return kernel(self._queue, size, local, *given)  # (launches like one before are found without options)
        return kernel(self._queue, size, local, *given, global_offset=offset)

    def fill(self, memory: Array, pattern: bytes, offset: int, nbytes: int) -> Event:
        task = fill_task(memory.place, pattern, nbytes, target_offset=offset)
        found: Event = self._queue.move(task, None, (memory.owner,))
        return found

    def copy(self, target: Array, target_offset: int, source: Array, source_offset: int, nbytes: int) -> Event:
        offsets = {"src_offset": source_offset, "dst_offset": target_offset}
        found: Event = self._queue.copy(target, source, byte_count=nbytes, **offsets)
        return found

    def finish(self) -> None:
        self._queue.finish()

    def times(self, event: Event) -> tuple[float, float] | None:
        try:
            return event.start / 1e9, event.end / 1e9
        except ResultError:
            return None

    def read(self, memory: Array, low: int, high: int) -> Bytes:
        buffer, first, _ = memory.place
        found: Bytes = self._buffers.host(buffer.key, first + low, high - low)
        return found

    def write(self, memory: Array, low: int, high: int) -> Bytes:
        buffer, first, _ = memory.place
        found: Bytes = self._buffers.overwrite(buffer.key, first + low, high - low)
        return found

    def close(self) -> None:
        self._queue.close()
