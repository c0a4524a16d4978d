"""Arrays of Dask's as contents, and contents as arrays of Dask's: the same elements, and none of them travels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import dask.array as da
import distributed
import numpy as np
import pytest

import manycl as mc
from manycl.cluster.dask_arrays import region_of
from manycl.errors import LaunchError, ResultError
from tests.cluster.conftest import cluster
from tests.cluster.counting import Even
from tests.cluster.losing import ADDING, address_of, count_commands
from tests.cluster.test_programs import N


def count_network() -> None:
    """Have this worker count the bytes that come from other nodes, and from and to the client."""
    from manycl.cluster.commands import NodeCommands
    from manycl.cluster.exchange import ReceiveArbiter

    if not hasattr(NodeCommands, "travelled"):
        put, write, read = ReceiveArbiter.put, NodeCommands.write, NodeCommands.read

        async def counted_put(self: Any, source: int, deliveries: Sequence[Any]) -> None:
            NodeCommands.travelled += sum(len(d.frame) for d in deliveries)  # type: ignore[attr-defined]
            await put(self, source, deliveries)

        def counted_write(self: Any, number: int, memory: int, low: int, rows: Any, frame: int) -> None:
            NodeCommands.travelled += len(self._frames[frame])  # type: ignore[attr-defined]
            write(self, number, memory, low, rows, frame)

        def counted_read(self: Any, number: int, memory: int, low: int, rows: Any) -> None:
            NodeCommands.travelled += sum(row[1] * row[3] for row in rows)  # type: ignore[attr-defined]
            read(self, number, memory, low, rows)

        ReceiveArbiter.put = counted_put  # type: ignore[method-assign]
        NodeCommands.write, NodeCommands.read = counted_write, counted_read  # type: ignore[method-assign]
    NodeCommands.travelled = 0  # type: ignore[attr-defined]


def travelled() -> int:
    from manycl.cluster.commands import NodeCommands

    found: int = NodeCommands.travelled  # type: ignore[attr-defined]
    return found


@pytest.fixture
def queue(client: Any) -> Any:
    with mc.Queue(client, policy=Even()) as found:
        client.run(count_network)
        yield found


@pytest.mark.parametrize(
    ("shape", "chunks", "dtype"),
    [
        ((64, 64), (16, 64), np.float32),
        ((64, 64), (20, 30), np.float64),
        ((7, 6, 5), (3, 4, 2), np.int16),
        ((7, 6, 5), (7, 2, 5), np.complex64),
        ((101,), (10,), np.uint8),
        ((5, 1, 4), (1, 1, 4), bool),
        ((9, 8), (9, 8), np.int64),
    ],
)
def test_chunks_become_contents_and_contents_chunks(
    client: Any, queue: mc.Queue, shape: Any, chunks: Any, dtype: Any
) -> None:
    data = (np.random.default_rng(1).random(shape) * 100).astype(dtype)
    given = client.persist(da.from_array(data, chunks=chunks))
    distributed.wait(given)
    client.run(count_network)
    x = queue.array(given, name="x")
    assert (x.shape, x.dtype, x.name) == (shape, data.dtype, "x")
    assert sum(client.run(travelled).values()) == 0
    found = x.as_dask()
    assert (found.shape, found.dtype) == (shape, data.dtype)
    np.testing.assert_array_equal(found.compute(), data)
    np.testing.assert_array_equal(x.get(), data)


def test_what_is_computed_on_the_way(queue: mc.Queue) -> None:
    """Not yet computed, and of other orders in memory."""
    data = np.arange(60).reshape(6, 10)
    lazy = da.from_array(data, chunks=(2, 3))
    for x in ((lazy * 2).T, lazy[::-1, ::2], da.concatenate([lazy, lazy[:0]])):
        np.testing.assert_array_equal(queue.array(x).get(), x.compute())


def test_results_stay_on_their_workers(client: Any, queue: mc.Queue) -> None:
    """Each node's half of a launch's results is a chunk there, and goes nowhere."""
    x = queue.array(da.random.default_rng(1).random((N, N), dtype=np.float32, chunks=(N // 2, N)))
    total, once = queue.zeros((N, N)), x.get()
    ADDING.add(queue, (N * N,), (64,), x, total)
    queue.finish()
    client.run(count_network)
    found = total.as_dask()
    assert found.chunks == ((N // 2, N // 2), (N,))
    assert sum(client.run(travelled).values()) == 0
    where = [[*at] for at in client.who_has(distributed.futures_of(found)).values()]
    assert sorted(where) == sorted([address_of(queue, node)] for node in range(2))
    ADDING.add(queue, (N * N,), (64,), x, total)
    queue.finish()  # what was given away stays as it was
    assert found.compute().tobytes() == once.tobytes()
    assert total.get().tobytes() == (once + once).tobytes()


def test_parts_and_contents_from_the_client(queue: mc.Queue) -> None:
    data = np.arange(12 * 5, dtype=np.float32).reshape(12, 5)
    x = queue.array(data)
    np.testing.assert_array_equal(x.as_dask().compute(), data)
    np.testing.assert_array_equal(x[3:7].as_dask().compute(), data[3:7])
    np.testing.assert_array_equal(x[4].as_dask().compute(), data[4])
    np.testing.assert_array_equal(queue.zeros((3, 2)).as_dask().compute(), 0)


def test_futures_outlive_the_session(client: Any) -> None:
    with mc.Queue(client, policy=Even()) as queue:
        found = queue.array(np.arange(100, dtype=np.int64)).as_dask()
    total = client.submit(np.sum, distributed.futures_of(found)[0])
    assert found.sum().compute() == 4950
    assert 0 < total.result() <= 4950


def test_columns_of_several_nodes(queue: mc.Queue) -> None:
    """Rows of which each node has a part are put together where most of them is."""
    data = np.arange(N * N, dtype=np.float32).reshape(N, N)
    x = queue.array(da.from_array(data, chunks=(N // 4, 10)))
    np.testing.assert_array_equal(x.as_dask().compute(), data)
    np.testing.assert_array_equal(x[5:9].as_dask().compute(), data[5:9])


def test_chunks_of_workers_that_are_no_nodes() -> None:
    """Workers that came later."""
    with cluster(1) as client, mc.Queue(client) as queue:
        client.cluster.scale(2)
        client.wait_for_workers(2)
        data = np.arange(40, dtype=np.float32).reshape(8, 5)
        known, other = address_of(queue, 0), next(a for a in client.run(os.getpid) if a != address_of(queue, 0))
        blocks = [client.scatter(data[i : i + 2], workers=[at]) for i, at in enumerate((known, other, other, known))]
        lazy = da.concatenate([da.from_delayed(b, (2, 5), np.float32) for b in blocks])
        expected = np.concatenate([data[i : i + 2] for i in range(4)])
        np.testing.assert_array_equal(queue.array(lazy).get(), expected)


def test_what_is_refused(client: Any, queue: mc.Queue) -> None:
    x = da.from_array(np.arange(10), chunks=5)
    with pytest.raises(ResultError, match="unknown sizes"):
        queue.array(x[x > 3])
    with pytest.raises(LaunchError, match="no elements"):
        queue.array(x[:0])
    with pytest.raises(ZeroDivisionError):
        queue.array(x.map_blocks(lambda block: 1 // 0, dtype=x.dtype, meta=np.array((), x.dtype)))
    with pytest.raises(mc.ManyclError, match="expected"):  # it says that it has another type
        queue.array(da.map_blocks(lambda block: block.astype(np.int8), x, dtype=np.int64, meta=np.array((), np.int64)))
    np.testing.assert_array_equal(queue.array(x).get(), np.arange(10))
    with mc.Queue("cpu") as alone, pytest.raises(ResultError, match="no workers of a Dask cluster"):
        alone.zeros(4).as_dask()


@pytest.mark.filterwarnings("ignore:node2 does not work any more")
def test_a_checkpoint_has_them() -> None:
    with cluster(3) as client, mc.Queue(client, policy=Even(), checkpoint=2) as queue:
        total = queue.array(da.ones(N * N, dtype=np.float32, chunks=N))
        x = queue.array(da.ones(N * N, dtype=np.float32, chunks=N * N // 3))
        for step in range(6):
            ADDING.add(queue, (N * N,), (64,), x, total)
            queue.finish()
            if step == 1:
                client.run(count_commands, 12, workers=[address_of(queue, 2)])
        np.testing.assert_array_equal(total.get(), 7)
        assert queue.devices == ("node0", "node1")


@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 3, 4), (2, 2, 3, 2)])
def test_the_bytes_of_parts(shape: tuple[int, ...]) -> None:
    whole = np.arange(np.prod(shape) * 4, dtype=np.int64).reshape(*shape, 4)
    cuts = [[slice(a, b) for a in range(n) for b in range(a + 1, n + 1)] for n in shape]
    for part in product(*cuts):
        found = region_of(shape, 4, part)
        assert [b for low, high in found.intervals for b in range(low, high)] == whole[part].reshape(-1).tolist()
