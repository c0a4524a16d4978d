"""Graphs that are repeated: buffers exchanged between repetitions, conditions of the host, data that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import numpy as np
import pytest

import manycl as mc
from manycl.errors import LaunchError
from manycl.graph.graph import Graph
from manycl.graph.rename import renamed
from manycl.trace import TransferEvent
from manycl.utilities.kept import FEW
from tests.graph.graph_judge import verify

SOURCE = """
kernel void smooth(global const float *a, global float *b, int n) {
    int i = get_global_id(0);
    b[i] = i > 0 && i < n - 1 ? 0.25f * a[i - 1] + 0.5f * a[i] + 0.25f * a[i + 1] : a[i];
}
kernel void add(global float *sum, global const float *a) { sum[get_global_id(0)] += a[get_global_id(0)]; }
"""
PROGRAM = mc.Program(SOURCE)
N = 256


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[mc.Queue]:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    with mc.Queue("cpu/2", policy="in_order") as q:
        yield q


def smooth(data: np.ndarray, times: int) -> np.ndarray:
    for _ in range(times):
        data = np.concatenate([data[:1], 0.25 * data[:-2] + 0.5 * data[1:-1] + 0.25 * data[2:], data[-1:]])
    return data.astype(np.float32)


def start() -> np.ndarray:
    return np.random.default_rng(3).random(N, np.float32)


@pytest.mark.parametrize("times", [0, 1, 4, 7])
def test_exchanged_arrays_are_what_a_copy_would_make_of_them(queue: mc.Queue, times: int) -> None:
    a, b, total = queue.array(start()), queue.zeros(N), queue.zeros(N)
    with queue.prepare() as prepared:
        PROGRAM.smooth(queue, (N,), (64,), a, b, N)
        PROGRAM.add(queue, (N,), (64,), total, a)
    done = prepared.repeat(times, swap=[(a, b)])
    assert (done.times, done.reached) == (times, False)
    assert np.allclose(a.get(), smooth(start(), times), atol=1e-5)
    assert np.allclose(total.get(), sum((smooth(start(), t) for t in range(times)), np.zeros(N)), atol=1e-4)
    # the arrays are what their names say in what is enqueued later, and in the graph
    PROGRAM.smooth(queue, (N,), (64,), a, b, N)
    assert np.allclose(b.get(), smooth(start(), times + 1), atol=1e-5)


def test_a_condition_ends_it(queue: mc.Queue) -> None:
    a, b = queue.array(start()), queue.empty(N)
    with queue.prepare() as prepared:
        PROGRAM.smooth(queue, (N,), (64,), a, b, N)
    asked = []

    def enough() -> bool:
        asked.append(float(np.abs(np.diff(a.get())).max()))
        return asked[-1] < 0.3

    done = prepared.repeat(100, swap=[(a, b)], until=enough, every=3)
    assert done.reached
    assert done.times == 3 * len(asked)
    assert np.allclose(a.get(), smooth(start(), done.times), atol=1e-5)
    again = prepared.repeat(2, swap=[(a, b)])  # from where it was
    assert again.times == 2
    assert np.allclose(a.get(), smooth(start(), done.times + 2), atol=1e-5)


def test_data_stay_on_the_device(queue: mc.Queue) -> None:
    a, b = queue.array(start()), queue.empty(N)
    with queue.prepare() as prepared:
        PROGRAM.smooth(queue, (N,), (64,), a, b, N)
    prepared.repeat(2, swap=[(a, b)])
    for _ in range(4):
        prepared.repeat(1, swap=[(a, b)])
        assert not [e for e in queue.trace.events if isinstance(e, TransferEvent)]


def test_exchanging_is_refused_for_what_does_not_match(queue: mc.Queue) -> None:
    a, b = queue.array(start()), queue.empty(N)
    with pytest.raises(LaunchError, match="differ in shape or type"):
        a.exchange(queue.empty(N, np.int32))
    with a.map(), pytest.raises(LaunchError, match="mapped"):
        a.exchange(b)
    with queue.prepare() as prepared:
        PROGRAM.smooth(queue, (N,), (64,), a, b, N)
    with pytest.raises(LaunchError, match="repeated 1000000001 times"):
        prepared.repeat(10**9 + 1)
    with pytest.raises(LaunchError, match="repeated -1 times"):
        prepared.repeat(-1)
    a.exchange(queue.array(start()))
    with pytest.raises(LaunchError, match="not in it"):
        prepared.run()


def test_an_exchanged_array_keeps_its_contents_when_the_other_goes(queue: mc.Queue) -> None:
    a, b = queue.array(start()), queue.zeros(N)
    a.exchange(b)
    del a
    gc.collect()
    queue.zeros(N).get()
    PROGRAM.add(queue, (N,), (64,), b, queue.zeros(N))
    assert np.array_equal(b.get(), start())


def test_a_renamed_graph_is_the_same_on_other_buffers(queue: mc.Queue) -> None:
    a, b, c = queue.array(start()), queue.zeros(N), queue.zeros(2 * N)
    with queue.prepare() as prepared:
        PROGRAM.smooth(queue, (N,), (64,), a, b, N)
        PROGRAM.add(queue, (N,), (64,), b, a)
        queue.call(lambda x, y: None, b, c)
    graph: Graph = prepared.graph
    keys = {a.buffer.key: b.buffer.key, b.buffer.key: a.buffer.key}
    other = renamed(graph, keys)
    verify(other)
    assert other.predecessors == graph.predecessors
    for node, of in zip(other.nodes, graph.nodes, strict=True):
        assert node.reads == tuple(keys.get(k, k) for k in of.reads)
        assert node.writes == tuple(keys.get(k, k) for k in of.writes)
    assert [n.args for n in renamed(other, keys).nodes] == [n.args for n in graph.nodes]
    with pytest.raises(ValueError, match="same size"):
        renamed(graph, {a.buffer.key: c.buffer.key, c.buffer.key: a.buffer.key})
    with pytest.raises(ValueError, match="cannot be exchanged"):
        renamed(graph, {a.buffer.key: b.buffer.key})


def test_adaptive_learns_across_the_exchange(queue: mc.Queue) -> None:
    queue.policy, queue.options = "adaptive", {"first": "uniform"}
    a, b = queue.array(start()), queue.empty(N)
    with queue.prepare() as prepared:
        PROGRAM.smooth(queue, (N,), (16,), a, b, N)
    prepared.repeat(5, swap=[(a, b)])
    assert np.allclose(a.get(), smooth(start(), 5), atol=1e-5)
    assert prepared.plan is not None
    assert prepared.plan.policy == "adaptive"


@pytest.mark.parametrize("policy", ["in_order", "adaptive"])
def test_few_of_many_exchanges_are_remembered(policy: str, queue: mc.Queue) -> None:
    queue.policy, random = policy, Random(1)
    contents = [np.full(N, i, np.float32) for i in range(6)]
    arrays = [queue.array(values) for values in contents]
    with queue.prepare() as prepared:
        for a, b in pairwise(arrays):
            PROGRAM.add(queue, (N,), (64,), a, b)
    counts = []
    for _ in range(2):
        for _ in range(2 * FEW):
            prepared.run()
            for i in range(5):
                contents[i] = (contents[i] + contents[i + 1]) % 64
                arrays[i] %= 64
            i, j = random.sample(range(6), 2)
            arrays[i].exchange(arrays[j])
            contents[i], contents[j] = contents[j], contents[i]
        queue.finish()
        gc.collect()
        counts.append(sum(type(found) is Graph for found in gc.get_objects()))
    assert counts[1] < counts[0] + FEW
    assert [a.get().tolist() for a in arrays] == [values.tolist() for values in contents]
