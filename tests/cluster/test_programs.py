"""Programs on a cluster of two processes: the bits are those of one session, and only missing bytes travel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import manycl as mc
from manycl.cluster import opening
from manycl.run.lowering.steps import RANGE
from tests.cluster.counting import Even, Mask, Touched, count_from_now_on, counted, missing

N, GROUP = 64, 4
SOURCE = """
kernel void sweep(global const float *u, global float *v, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    if (x > 0 && x < n - 1 && y > 0 && y < n - 1) {
        float sum = 0;
        for (long i = -1; i <= 1; i++)
            for (long j = -1; j <= 1; j++) sum += u[(y + i) * n + x + j];
        v[y * n + x] = sum / 9;
    }
}
kernel void smooth(global const float *u, global float *v, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    if (y > 0 && y < n - 1) v[y * n + x] = 0.5f * u[y * n + x] + 0.25f * (u[(y - 1) * n + x] + u[(y + 1) * n + x]);
}
kernel void product(global const float *a, global const float *b, global float *c, long n) {
    long x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (long k = 0; k < n; k++) sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}
kernel void bodies(global const float4 *at, global float4 *next, long n) {
    long i = get_global_id(0);
    float4 here = at[i], pull = 0;
    for (long j = 0; j < n; j++) {
        float4 d = at[j] - here;
        pull += d * (at[j].w / (1.0f + d.x * d.x + d.y * d.y + d.z * d.z));
    }
    pull.w = 0;
    next[i] = here + 0.01f * pull;
}
kernel void histogram(global const uchar *x, global uint *bins) { atomic_inc(&bins[x[get_global_id(0)]]); }
kernel void scatter(global const int *to, global const float *x, global float *y) {
    long i = get_global_id(0);
    y[to[i]] += x[i];
}
"""
PROGRAM = mc.Program(SOURCE)


def elements(marked: Mask, size: int) -> Mask:
    """The bytes of elements of some bytes each."""
    return np.repeat(marked.reshape(-1), size)


def of_rows(first: int, end: int, width: int, size: int) -> Mask:
    marked = np.zeros((N, width), bool)
    marked[first:end] = True
    return elements(marked, size)


def inner(first: int, end: int) -> Mask:
    """The points that sweeps over some rows change."""
    marked = np.zeros((N, N), bool)
    marked[max(first, 1) : min(end, N - 1), 1:-1] = True
    return marked


def around(first: int, end: int) -> Mask:
    """The points that they look at."""
    changed, steps = inner(first, end), (-1, 0, 1)
    return np.logical_or.reduce([np.roll(changed, (i, j), (0, 1)) for i in steps for j in steps])


def stencil(queue: mc.Queue) -> np.ndarray:
    start = np.random.default_rng(1).random((N, N), np.float32)
    u, v = queue.array(start, name="u"), queue.array(start, name="v")
    for _ in range(6):
        PROGRAM.sweep(queue, (N, N), (16, GROUP), u, v, N)
        u, v = v, u
    return u.get()


def product(queue: mc.Queue) -> np.ndarray:
    a, b = (queue.array(np.random.default_rng(seed).random((N, N), np.float32)) for seed in (2, 3))
    c = queue.empty((N, N))
    PROGRAM.product(queue, (N, N), (16, GROUP), a, b, c, N)
    PROGRAM.product(queue, (N, N), (16, GROUP), c, b, a, N)
    return a.get()


def bodies(queue: mc.Queue) -> np.ndarray:
    at = queue.array(np.random.default_rng(4).random((N, 4), np.float32))
    following = queue.empty((N, 4))
    for _ in range(3):
        PROGRAM.bodies(queue, (N,), (GROUP,), at, following, N)
        at, following = following, at
    return at.get()


def histogram(queue: mc.Queue) -> np.ndarray:
    data = np.random.default_rng(5).integers(0, 256, 1 << 12, np.uint8)
    x, bins = queue.array(data), queue.zeros(256, np.uint32)
    PROGRAM.histogram(queue, x.shape, (64,), x, bins)
    found = bins.get()
    np.testing.assert_array_equal(found, np.bincount(data, minlength=256))
    return found


def scatter(queue: mc.Queue) -> np.ndarray:
    to = queue.array(np.random.default_rng(6).permutation(N).astype(np.int32))
    x, y = queue.array(np.arange(N, dtype=np.float32)), queue.zeros(N, np.float32)
    PROGRAM.scatter(queue, (N,), (GROUP,), to, x, y)
    return y.get()


@pytest.fixture(scope="module")
def queue(client: Any) -> Any:
    with mc.Queue(client, policy=Even()) as found:
        yield found


@pytest.mark.parametrize("program", [stencil, product, bodies, histogram, scatter])
def test_bits_are_those_of_one_session(queue: mc.Queue, program: Callable[[mc.Queue], np.ndarray]) -> None:
    with mc.Queue("cpu") as alone:
        expected = program(alone)
    for _ in range(3):
        assert program(queue).tobytes() == expected.tobytes()
    used = {k.device for k in queue.trace.kernels()}
    assert used == ({"node0"} if program is scatter else {"node0", "node1"})
    if program is scatter:
        assert "scatter" in (words := queue.trace.summary())
        assert "y" in words


def swept(source: str, target: str) -> Touched:
    return Touched(
        lambda first, end: {source: elements(around(first, end), 4)},
        lambda first, end: {target: elements(inner(first, end), 4)},
    )


def multiplied(a: str, b: str, c: str) -> Touched:
    return Touched(
        lambda first, end: {a: of_rows(first, end, N, 4), b: of_rows(0, N, N, 4)},
        lambda first, end: {c: of_rows(first, end, N, 4)},
    )


def pulled(at: str, following: str) -> Touched:
    return Touched(
        lambda first, end: {at: of_rows(0, N, 4, 4)}, lambda first, end: {following: of_rows(first, end, 4, 4)}
    )


CASES: dict[Callable[[mc.Queue], np.ndarray], tuple[Mapping[str, int], Sequence[Touched], str]] = {
    stencil: ({"u": 4 * N * N, "v": 4 * N * N}, 3 * [swept("u", "v"), swept("v", "u")], "u"),
    product: (dict.fromkeys("abc", 4 * N * N), [multiplied("a", "b", "c"), multiplied("c", "b", "a")], "a"),
    bodies: (dict.fromkeys("xy", 16 * N), [pulled("x", "y"), pulled("y", "x"), pulled("x", "y")], "y"),
}


@pytest.mark.parametrize("program", CASES)
def test_only_missing_bytes_travel(
    client: Any, program: Callable[[mc.Queue], np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches are divided into halves of their rows, when it is known how; nothing is from before."""
    monkeypatch.setattr("tests.cluster.test_programs.PROGRAM", mc.Program(f"{SOURCE}// {program.__name__}"))
    sizes, touched, asked = CASES[program]
    halves = [(0, 0, N // 2), (1, N // 2, N)]
    with mc.Queue(client, policy=Even()) as queue:
        for _ in range(4):
            client.run(count_from_now_on)
            program(queue)
            ran = [(k.device, k.role, k.groups) for k in queue.trace.kernels()]
            if len(ran) == 2 * len(touched):
                break
    assert sorted(ran) == [(f"node{n}", RANGE, N // GROUP // 2) for n in (0, 1) for _ in touched]
    assert counted(client) == missing(sizes, [(t, halves) for t in touched], asked)


@pytest.mark.parametrize("policy", [Even(), None], ids=["even", "auto"])
def test_arrays_may_be_larger_than_a_node(client: Any, policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of 4 MiB on nodes of which each takes 6 MiB: parts of them are there at a time."""
    n, start = 1024, np.random.default_rng(7).random((1024, 1024), np.float32)

    def swept_four_times(queue: mc.Queue) -> np.ndarray:
        u, v = queue.array(start), queue.array(start)
        for _ in range(4):
            PROGRAM.smooth(queue, (n, n), (16, GROUP), u, v, n)
            u, v = v, u
        return u.get()

    with mc.Queue("cpu") as alone:
        expected = swept_four_times(alone)
    monkeypatch.setattr(opening, "_about", little_memory)
    with mc.Queue(client, policy=policy) as queue:
        assert swept_four_times(queue).tobytes() == expected.tobytes()
        assert any(k.role == RANGE for k in queue.trace.kernels())


def little_memory(dask_worker: Any) -> dict[str, int]:
    return {"memory": 6 << 20}


def test_prepared_graphs_and_host_functions(queue: mc.Queue) -> None:
    """A graph runs again without being planned anew; a function of the host between its launches sees the arrays."""
    start, seen = np.random.default_rng(8).random((N, N), np.float32), list[np.ndarray]()

    def sweeps(on: mc.Queue, graph: bool) -> np.ndarray:
        u, v = on.array(start), on.array(start)

        def enqueue() -> None:
            PROGRAM.sweep(on, (N, N), (16, GROUP), u, v, N)
            on.call(lambda data: seen.append(data.copy()), v, writes=())
            PROGRAM.sweep(on, (N, N), (16, GROUP), v, u, N)

        if graph:
            with on.prepare() as prepared:
                enqueue()
            for _ in range(4):
                prepared.run()
        else:
            for _ in range(4):
                enqueue()
        return u.get()

    with mc.Queue("cpu") as alone:
        expected = sweeps(alone, False)
    assert sweeps(queue, True).tobytes() == expected.tobytes()
    assert [a.tobytes() for a in seen[4:]] == [a.tobytes() for a in seen[:4]]
