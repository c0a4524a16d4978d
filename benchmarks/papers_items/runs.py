"""What runs on this machine's processor in processes of their own (``item.elsewhere``)."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

import manycl as mc
from manycl.machine import DeviceIndex
from manycl.plan.plan import Assignment, Plan
from manycl.plan.policy import names
from manycl.plan.splitting import Splits

SCATTERS = """
kernel void scatter(global const int *p, global const float *a, global float *o, int rounds) {
    int i = get_global_id(0); float x = a[i];
    for (int r = 0; r < rounds; r++) x = x * 0.999f + 0.5f;
    o[p[i]] = x;
}
kernel void flag(global int *changed, global const float *a, global float *o, int rounds) {
    int i = get_global_id(0); float x = a[i];
    for (int r = 0; r < rounds; r++) x = x * 0.999f + 0.5f;
    o[i] = x;
    if (x > 20.f) *changed = 1;
}
kernel void compact(global int *o, global const float *a, int m) {
    int i = get_global_id(0), c = 0;
    for (int j = 0; j < m; j++) if (a[(i * 7 + j) & 1023] > 0.5f) o[i * m + c++] = j;
}
kernel void nearest(global float *o, global const float *a, float s) {
    int i = get_global_id(0); o[(int)(i * 1.0f)] = a[(int)(i * s)];
}
kernel void gotos(global float *o, global const float *a, int n) {
    int i = get_global_id(0), j = 0; float s = 0;
again: s += a[j]; j++;
    if (j < n) goto again;
    o[i] = s;
}
kernel void bfs(global const int *st, global const int *ed, global const uchar *front, global uchar *next,
                global uchar *seen, global int *cost, global int *over, int n) {
    int t = get_global_id(0);
    if (t < n && front[t]) for (int e = st[t]; e < st[t + 1]; e++) {
        int v = ed[e];
        if (!seen[v]) { cost[v] = cost[t] + 1; next[v] = 1; *over = 1; }
    }
}
"""
N = 1 << 12


def _given() -> dict[str, tuple[Any, ...]]:
    """The arguments of each kernel; arrays are NumPy's."""
    chance = np.random.default_rng(0)
    a, out = chance.random(N, np.float32), np.zeros(N, np.float32)
    st, ed = (np.arange(N + 1) * 2).astype(np.int32), chance.integers(0, N, 2 * N).astype(np.int32)
    front = (chance.random(N) < 0.1).astype(np.uint8)
    seen = front.copy()  # else the cost of a vertex of the front may change while others read it
    one = np.zeros(1, np.int32)
    return {
        "scatter": (chance.permutation(N).astype(np.int32), a, out, 50),
        "flag": (one, a, out, 50),
        "compact": (np.zeros(16 * N, np.int32), a, 16),
        "nearest": (out, a, np.float32(0.5)),
        "gotos": (out, a, 16),
        "bfs": (st, ed, front, seen.copy(), seen, np.zeros(N, np.int32), one, N),
    }


def _ran(devices: str, policy: str) -> dict[str, tuple[bool, list[Any]]]:
    """Of each kernel, whether it may be divided, and what its arrays hold after a run."""
    found, program = {}, mc.Program(SCATTERS)
    with mc.Queue(devices, policy=policy) as queue:
        for name, args in _given().items():
            arrays = [queue.array(a.copy()) if isinstance(a, np.ndarray) else a for a in args]
            with queue.prepare() as prepared:
                program.kernel(name)(queue, (N,), (64,), *arrays)
            is_divisible = 0 in Splits(prepared.graph)
            for _ in range(2):
                program.kernel(name)(queue, (N,), (64,), *arrays)
            found[name] = is_divisible, [a.get() for a in arrays if isinstance(a, mc.Array)]
    return found


def scatters() -> dict[str, Any]:
    """Which of six kernels whose writes are not proved apart may be divided, and whose results differ from one
    device's."""
    one, two = _ran("cpu0", "in_order"), _ran("cpu/2", "balance")
    pairs = {name: zip(one[name][1], two[name][1], strict=True) for name in one}
    return {
        "divided": [name for name, (is_divisible, _) in two.items() if is_divisible],
        "wrong": [name for name, of in pairs.items() if not all(np.array_equal(a, b) for a, b in of)],
    }


CSR = """
kernel void csr(global const int *st, global const int *c, global const float *v, global const float *x,
                global float *y, int n) {
    int i = get_global_id(0);
    if (i < n) { float s = 0; for (int e = st[i]; e < st[i + 1]; e++) s += v[e] * x[c[e]]; y[i] = s; }
}
"""


def csr_bytes() -> dict[str, Any]:
    """Bytes that come to the first of two devices with a quarter of a sparse product's rows, and what it needs."""
    n, chance, cut = 1 << 14, np.random.default_rng(0), 64
    rows = chance.integers(0, 40, n)
    st = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    c = chance.integers(0, n, st[-1]).astype(np.int32)
    v, x = chance.random(st[-1], np.float32), chance.random(n, np.float32)
    with mc.Queue("cpu/2") as queue:
        y = queue.zeros(n, np.float32)
        arrays = [queue.array(a) for a in (st, c, v, x)]
        with queue.prepare() as prepared:
            mc.Program(CSR).csr(queue, (n,), (64,), *arrays, y, n)
        parts = [
            Assignment(0, DeviceIndex(d), 0, 0.0, 0.0, 0, first, groups)
            for d, (first, groups) in enumerate([(0, cut), (cut, n // 64 - cut)])
        ]
        ran = queue.session.run(prepared.graph, Plan(tuple(parts), "hand", queue.devices, 0.0))
        moved = sum(t.nbytes for t in ran.trace.transfers() if t.target == queue.devices[0])
        expected = [np.dot(v[a:b], x[c[a:b]]) for a, b in pairwise(st)]
        right = bool(np.allclose(y.get(), expected, rtol=1e-3, atol=1e-4))
    needed = int(st[cut * 64]) * 8 + cut * 64 * 4 + 4 + x.nbytes
    return {"moved_mb": moved / 1e6, "needed_mb": needed / 1e6, "right": right}


LONG = "float v = a[i]; for (int r = 0; r < R; r++) v = v * 0.999f + 0.001f * (r & 3); a[i] = v;"


def leave_latency() -> dict[str, Any]:
    """By policy, milliseconds from ``queue.leave`` in mid-launch until the device has ended, the median of five; and
    results that were wrong."""
    found: dict[str, Any] = {"wrong": 0}
    start = np.random.default_rng(0).random(1 << 15, np.float32)
    for policy in names():
        if policy == "optimal":  # whose solver may not be here
            continue
        with mc.Queue("native/2", policy=policy) as queue:
            run = _loop(queue, start, 60_000)  # more than 20 ms on one of them, as is asked
            for _ in range(2):
                expected, seconds = run()
            late = []
            for _ in range(5):
                name = next(iter(queue.trace.kernels())).device
                left: list[float] = []
                timer = threading.Timer(0.4 * seconds, _leave(queue, name, left))
                timer.start()
                result, _ = run()
                timer.join()
                late.append(left[1] - left[0])
                found["wrong"] += not np.allclose(result, expected, rtol=1e-3)
                queue.come(name)
            found[policy] = 1e3 * float(np.median(late))
    return found


def _loop(queue: mc.Queue, start: Any, rounds: int) -> Callable[[], tuple[Any, float]]:
    def run() -> tuple[Any, float]:
        a = queue.array(start.copy())
        begin = time.perf_counter()
        mc.parallel_for(len(start), LONG, a=a, R=rounds)
        return a.get(), time.perf_counter() - begin

    return run


def _leave(queue: mc.Queue, name: str, left: list[float]) -> Callable[[], None]:
    def leave() -> None:
        left.append(time.perf_counter())
        queue.leave(name)
        queue.session.devices.events.wait_until_free(name)
        left.append(time.perf_counter())

    return leave


def _extreme(x: Any, of: str) -> bool:
    return bool(mc.parallel_for(len(x), f"s = {of}(s, x[i]);", x=x, reduction={"s": of}) == getattr(x, of)())


def loops() -> dict[str, Any]:
    """What ``parallel_for`` computes, each against NumPy or a loop: what is wrong, and what is refused."""
    chance = np.random.default_rng(1)
    wrong, refused = [], {}

    def tried(name: str, work: Callable[[], bool]) -> None:
        try:
            if not work():
                wrong.append(name)
        except Exception as error:  # whatever it is, the item tells it
            refused[name] = f"{type(error).__name__}: {error}"[:120]

    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        x = chance.integers(0, 100, 1000).astype(kind)
        for of in ("max", "min"):
            tried(f"{of} of {x.dtype}", partial(_extreme, x, of))

    def clamped() -> bool:
        a, b = chance.random(1000).astype(np.float32), np.zeros(1000, np.float32)
        mc.parallel_for(1000, "b[i] = a[max(i - 1, 0)];", a=a, b=b)
        return bool(np.array_equal(b, a[np.maximum(np.arange(1000) - 1, 0)]))

    def raced() -> bool:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            mc.parallel_for(1000, "a[0] += i;", a=np.zeros(1000, np.float32))
        return bool(told)

    def shared() -> bool:
        a, b = chance.random(256).astype(np.float32), np.zeros(256, np.float32)
        body = "local float t[64]; t[get_local_id(0)] = a[i]; barrier(CLK_LOCAL_MEM_FENCE);"
        body += " b[i] = t[63 - get_local_id(0)];"
        mc.parallel_for(256, body, a=a, b=b, local=(64,))
        return bool(np.array_equal(b.reshape(-1, 64), a.reshape(-1, 64)[:, ::-1]))

    def structures() -> bool:
        a = np.zeros(300, np.dtype([("x", "f4"), ("k", "i4")], align=True))
        mc.parallel_for(300, "a_t t = a[i]; t.k = i; t.x = 2 * i; a[i] = t;", a=a)
        return bool((a["k"] == np.arange(300)).all() and (a["x"] == 2 * np.arange(300)).all())

    def batches() -> bool:
        a = np.zeros(1000, np.int32)
        mc.parallel_for(1000, "a[i] = get_batch_iteration();", a=a, batch=8)
        return bool((a == np.arange(1000) // 8).all())

    def line() -> bool:
        try:
            mc.parallel_for(10, "float t = 1;\na[i + 5] = t;", a=np.zeros(10, np.float32))
        except mc.ManyclError as error:
            return "line 2" in str(error) or ":2" in str(error)
        return False

    tried("max(i - 1, 0)", clamped)
    tried("a race is told", raced)
    tried("an error's line", line)
    tried("barriers and local memory", shared)
    tried("structures", structures)
    tried("batches", batches)
    return {"wrong": wrong, "refused": refused}


def hand_and_specification() -> dict[str, Any]:
    """A layer of four heads on two parts of the processor: the host by hand and the specification in turns, the medians
    of seven in ms, and whether the results are the same within rounding."""
    from manycl.applications.load import load_application
    from manycl.applications.runner import Runner
    from manycl_bench import pyschedcl
    from papers_items.by_hand import Host

    application = load_application(pyschedcl.SPECIFICATION, {"H": "4", "beta": "128"})
    names = {key: buffer.name for key, buffer in application.graph.buffers.items()}
    data = {names[k]: c.create() for k, c in application.contents.items() if c.kind != "undefined"}
    source = pyschedcl.SPECIFICATION.with_name("transformer.cl").read_text(encoding="utf-8")
    taken: dict[str, list[float]] = {"by_hand_ms": [], "specification_ms": []}
    with Runner(application, "opencl/2") as runner:
        opened = [getattr(opened.handle, "cl") for opened in runner.session.devices.opened]  # noqa: B009
        host = Host(opened, 3, source, 4, 128, data)
        for _ in range(9):
            begin = time.perf_counter()
            by_hand = host.run()
            between = time.perf_counter()
            runner.run("clustering", options={"queues": "3"})
            ours = runner.outputs()
            end = time.perf_counter()
            taken["by_hand_ms"].append(1e3 * (between - begin))
            taken["specification_ms"].append(1e3 * (end - between))
        same = [np.allclose(ours[name], by_hand[name], rtol=1e-5, atol=1e-6) for name in ours]
    return {**{name: float(np.median(ms[2:])) for name, ms in taken.items()}, "same": len(same) == 4 and all(same)}
