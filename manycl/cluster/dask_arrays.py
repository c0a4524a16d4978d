"""Dask's arrays as contents of a session's buffers, and the other way round: chunks go from a worker's Dask to the
session on the same worker, and back, without a way over the network or the client."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import dask.array
import distributed
import numpy as np
import numpy.typing as npt
from dask.core import flatten

from manycl.cluster.driver import NodeDriver
from manycl.cluster.link import NodeEvent
from manycl.cluster.node import give_chunks, take_chunks
from manycl.drivers.driver import DriverError, End
from manycl.errors import ResultError, RunError
from manycl.graph.copies import Place
from manycl.graph.graph import BufferKey
from manycl.machine import HOST_BIT, DeviceIndex
from manycl.region import Region
from manycl.utilities.interrupts import Uninterrupted

if TYPE_CHECKING:
    from manycl.run.session.session import Session

Given = list[tuple[NodeDriver, NodeEvent]]
"""Commands that are under way."""


class ChunkArray(NamedTuple):
    """An array of a session, or a part of one. ``place``: its bytes."""

    session: Session
    place: Place
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nodes(self) -> dict[DeviceIndex, NodeDriver]:
        """The drivers of the session's nodes."""
        drivers = {d: self.session.backend.lanes[d].driver for d in self.session.machine.indices}
        return {d: driver for d, driver in drivers.items() if isinstance(driver, NodeDriver)}


def check(contents: Any) -> None:
    """Raise ResultError for an array of Dask's whose shape is not known."""
    if any(np.isnan(extent) for extent in contents.shape):
        raise ResultError("an array of Dask's has chunks of unknown sizes", hint="x.compute_chunk_sizes()")


def fill(array: ChunkArray, contents: Any) -> None:
    """Copy an array of Dask's to a whole buffer of a session: each chunk where it is, and computed there if need be.
    What no node has comes by the client. Raises what computing it raises, and RunError."""
    (session, place, shape, dtype), nodes = array, array.nodes
    key, memory, names = place.buffer.key, session.backend.memory, dict[str, list[Any]]()
    client, tags = next(iter(nodes.values())).nodes.client, next(iter(nodes.values())).nodes.tags
    kept = client.persist(contents)
    distributed.wait(kept)
    futures = {future.key: future for future in distributed.futures_of(kept)}
    for future in futures.values():
        if future.status != "finished":
            future.result()  # raises what it has failed with
    having = client.who_has(list(futures.values()))
    here = {driver.link.address: device for device, driver in nodes.items()}
    with session.devices.lock, Uninterrupted():
        session.devices.check_open()
        session.backend.settle()
        regions, given = list[tuple[Region, int]](), list[tuple[DeviceIndex, Region, int]]()
        parts = itertools.product(*[_slices(sizes) for sizes in kept.chunks])
        for name, part in zip(flatten(kept.__dask_keys__()), parts, strict=True):
            if not (region := region_of(shape, dtype.itemsize, part)):
                continue
            device = next((here[at] for at in having.get(name, ()) if at in here), None)
            if device is None:
                memory.host(key).view(dtype).reshape(shape)[part] = futures[name].result()
                regions.append((region, HOST_BIT))
            else:
                tag, driver = next(tags), nodes[device]
                given.append((device, region, tag))
                names.setdefault(driver.link.address, []).append((driver.place, tag, name, dtype.str, region.nbytes))
                regions.append((region, 1 << session.machine.devices[device].memory))
        if names:
            client.run(give_chunks, next(iter(nodes.values())).nodes.session, names, workers=[*names])
        events = [(nodes[d], nodes[d].take(End(memory.on_device(key, d)), r.rectangles, tag)) for d, r, tag in given]
        _wait(events, f"{memory.name(key)} cannot take chunks")
        session.directory.define_regions(key, regions)
        if session.buffers.rollback is not None:
            session.buffers.rollback.defined(key)


def chunked(array: ChunkArray) -> Any:
    """Return an array of Dask's with the contents as they are now, in chunks along the first dimension, each of which
    stays on the worker that has most of it, as a future. Raises ResultError and RunError."""
    (session, (buffer, low, nbytes), shape, dtype), nodes = array, array.nodes
    memory, of = session.backend.memory, next(iter(nodes.values())).nodes
    width = nbytes // shape[0] if shape else nbytes
    name, names, events, sizes = f"manycl-{uuid.uuid4().hex}", dict[str, list[Any]](), Given(), list[int]()
    with session.devices.lock, Uninterrupted():
        session.devices.check_open()
        session.directory.check(buffer.key, Region.span(low, low + nbytes))
        session.backend.settle()
        owners = _owners(session, buffer.key, np.arange(low, low + nbytes + 1, width))
        cuts = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        for number, (first, end) in enumerate(itertools.pairwise(cuts)):
            device, span = DeviceIndex(int(owners[first])), Region.span(low + first * width, low + end * width)
            tag, key = next(of.tags), (name, number, *[0] * (len(shape) - 1)) if shape else (name,)
            events += _brought(array, device, span)
            events.append((nodes[device], nodes[device].lend(_there(array, device), span.rectangles, tag)))
            chunk = nodes[device].place, tag, key, dtype.str, (end - first, *shape[1:]) if shape else ()
            names.setdefault(nodes[device].link.address, []).append(chunk)
            sizes.append(end - first)
        _wait(events, f"{memory.name(buffer.key)} cannot be given to Dask")
    taken: dict[str, dict[Any, int]] = of.client.run(take_chunks, of.session, names, workers=[*names])
    chunks = (tuple(sizes), *((extent,) for extent in shape[1:])) if shape else ()
    return dask.array.Array(_futures(of.client, taken), name, chunks, dtype=dtype)


def _futures(client: Any, taken: Mapping[str, Mapping[Any, int]]) -> dict[Any, Any]:
    """Return the futures of data that workers have, by address, with their bytes: as after ``client.scatter``."""
    who_has = {key: [address] for address, sizes in taken.items() for key in sizes}
    nbytes = {key: size for sizes in taken.values() for key, size in sizes.items()}

    async def update() -> dict[Any, Any]:
        await client.scheduler.update_data(who_has=who_has, nbytes=nbytes, client=client.id)
        futures = {key: distributed.Future(key, client) for key in who_has}
        for future in futures.values():
            client.futures[future.key].finish(type=np.ndarray)
        return futures

    found: dict[Any, Any] = client.sync(update)
    return found


def _owners(session: Session, key: BufferKey, edges: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, for each row from one edge to the next, the device that has most of it; where several have, or none, each
    its share."""
    count, rows = len(session.machine.devices), len(edges) - 1
    held, even = np.zeros((count, rows), np.int64), np.arange(rows) * count // rows
    for region, mask in session.directory.regions_of(key, session.backend.memory.nbytes(key)):
        begun = np.searchsorted(region.low, edges, side="right") - 1  # the last interval that has
        before = np.concatenate([[0], np.cumsum(region.high - region.low)])
        inside = np.where(begun < 0, 0, before[begun] + np.minimum(edges, region.high[begun]) - region.low[begun])
        held[[d for d, device in session.machine.numbered() if mask >> device.memory & 1]] += np.diff(inside)
    return np.where(held[even, np.arange(rows)] == held.max(0), even, held.argmax(0))


def _there(array: ChunkArray, device: DeviceIndex) -> End:
    return End(array.session.backend.memory.on_device(array.place.buffer.key, device))


def _brought(array: ChunkArray, device: DeviceIndex, wanted: Region) -> Iterator[tuple[NodeDriver, NodeEvent]]:
    """Bring what a device lacks of some bytes there, for the time being; yield what is to be waited for."""
    machine, memory, nodes = array.session.machine, array.session.backend.memory, array.nodes
    key = array.place.buffer.key
    for region, mask in array.session.directory.missing(key, machine.devices[device].memory, memory.nbytes(key)):
        if part := region & wanted:
            source = End(memory.host(key))
            if not mask & HOST_BIT:
                owner = next(d for d, other in machine.numbered() if mask >> other.memory & 1)
                source = _there(array, owner)._replace(owner=nodes[owner])
            driver = nodes[device]
            for event in driver.copy(driver.queue(False), _there(array, device), source, part.rectangles, ()):
                yield driver, event


def _wait(events: Given, words: str) -> None:
    """Wait for commands. Raises RunError."""
    for driver, _ in events[:1]:
        driver.flush(driver.queue(False))  # of all nodes
    try:
        for driver, event in events:
            driver.wait(event)
    except DriverError as error:
        raise RunError(f"{words}: {error.message}") from None


def _slices(sizes: Sequence[int]) -> list[slice]:
    ends = [*itertools.accumulate(sizes)]
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def region_of(shape: Sequence[int], itemsize: int, part: Sequence[slice]) -> Region:
    """Return the bytes of a part of an array in C order."""
    starts, width, pitch = np.zeros(1, np.int64), itemsize, itemsize
    is_dense = True  # whether all behind this dimension is one run
    for extent, cut in zip(reversed(shape), reversed(part), strict=True):
        if is_dense:
            starts, width = starts + cut.start * pitch, (cut.stop - cut.start) * width
        else:
            steps = np.arange(cut.start, cut.stop, dtype=np.int64) * pitch
            starts = (steps[:, None] + starts[None, :]).reshape(-1)
        is_dense = is_dense and cut.stop - cut.start == extent
        pitch *= extent
    return Region.of(starts, starts + width)
