"""Hundreds of random graphs on real devices, against NumPy: random plans, every policy, faults in the middle."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.opencl import devices, staging
from manycl.errors import ResultError, RunError
from manycl.graph.graph import Graph, HostTask
from manycl.plan.plan import ON_HOST, Assignment
from manycl.run.data import host_memory

N = 1500  # uints; host copies of this size are pinned beside devices with memories of their own
BUFFERS = 6
POLICIES = ["auto", "in_order", "eager", "heft", "clustering"]
PROGRAM = mc.Program(
    """
__kernel void blend(__global const uint *a, __global const uint *b, __global uint *c, uint m) {
  int i = get_global_id(0); c[i] = a[i] * m + (b[i] >> 3);
}
__kernel void churn(__global uint *x, uint m) {
  int i = get_global_id(0); uint v = x[i];
  for (int k = 0; k < 40; k++) v = v * 1664525u + m;
  x[i] = v;
}
__kernel void middle(__global const uint *a, __global uint *c) {
  int i = get_global_id(0), n = get_global_size(0);
  if (i >= n / 3 && i < 2 * n / 3) c[i] = a[n - 1 - i] + 1;
}
"""
)

Values = list[np.ndarray]


class Step(NamedTuple):
    """One node: what it does, to which of the buffers, with which number."""

    kind: str
    buffers: tuple[int, ...]
    number: int


def random_steps(random: np.random.Generator, count: int) -> list[Step]:
    kinds = random.choice(["blend", "churn", "middle", "host"], count, p=[0.4, 0.3, 0.2, 0.1])
    return [
        Step(str(kind), tuple(int(b) for b in random.permutation(BUFFERS)[:3]), int(random.integers(1, 1 << 32)))
        for kind in kinds
    ]


def by_numpy(step: Step, values: Values) -> None:
    a, b, c = step.buffers
    m = np.uint32(step.number)
    if step.kind == "blend":
        values[c] = values[a] * m + (values[b] >> np.uint32(3))
    elif step.kind == "churn":
        v = values[a].copy()
        for _ in range(40):
            v = v * np.uint32(1664525) + m
        values[a] = v
    elif step.kind == "middle":
        i = np.arange(N // 3, 2 * N // 3)
        values[c] = values[c].copy()
        values[c][i] = values[a][N - 1 - i] + np.uint32(1)
    else:
        values[c] = np.cumsum(values[a], dtype=np.uint32)


def enqueue(queue: mc.Queue, step: Step, arrays: Sequence[mc.Array]) -> None:
    a, b, c = (arrays[i] for i in step.buffers)
    match step.kind:
        case "blend":
            PROGRAM.blend(queue, (N,), (50,), a, b, c, step.number)
        case "churn":
            PROGRAM.churn(queue, (N,), (50,), a, step.number)
        case "middle":
            PROGRAM.middle(queue, (N,), (50,), a, c)
        case _:
            queue.call(cumulate, a, c, writes=[c])


def cumulate(a: np.ndarray, c: np.ndarray) -> None:
    np.cumsum(a, dtype=np.uint32, out=c)


def random_plan(random: np.random.Generator, graph: Graph, devices: tuple[str, ...]) -> mc.Plan:
    """Anywhere, on any of three queues."""
    assignments = [
        Assignment(n, ON_HOST, 0, 0.0, 0.0)
        if isinstance(node, HostTask)
        else Assignment(n, int(random.integers(len(devices))), int(random.integers(3)), 0.0, 0.0)
        for n, node in enumerate(graph.nodes)
    ]
    return mc.Plan(tuple(assignments), "random", devices, 0.0)


def run(queue: mc.Queue, random: np.random.Generator, arrays: Sequence[mc.Array], steps: Sequence[Step]) -> None:
    """Under a policy, or as a random plan says."""
    choice = int(random.integers(2 * len(POLICIES)))
    if choice < len(POLICIES):
        queue.policy = POLICIES[choice]
        for step in steps:
            enqueue(queue, step, arrays)
        queue.finish()
        return
    with queue.prepare() as prepared:
        for step in steps:
            enqueue(queue, step, arrays)
    queue.session.run(prepared.graph, random_plan(random, prepared.graph, queue.devices))


def some_values(random: np.random.Generator) -> Values:
    return [random.integers(0, 1 << 32, N, dtype=np.uint32) for _ in range(BUFFERS)]


def open_queue(memories: str, patch: pytest.MonkeyPatch) -> mc.Queue:
    """``mixed``: some devices in the host's memory; ``staged``: every transfer through many small pinned chunks."""
    patch.setenv("MANYCL_ZERO_COPY", "1" if memories in ("shared", "mixed") else "0")
    if memories == "mixed":
        answers = iter([True, False, False, True])
        patch.setattr(devices, "shares_host_memory", lambda _: next(answers))
    if memories == "staged":
        patch.setattr(staging, "STAGE_FROM", 1)
        patch.setattr(host_memory, "PAGE", 1 << 40)
        patch.setattr(staging, "CHUNK", 1024)
    by_hand = {"slowed": "cpu/2#0,cpu/2#1@2", "mixed": "opencl/4", "staged": "opencl/4"}
    return mc.Queue(by_hand.get(memories, "cpu/4"))


@pytest.mark.parametrize(
    ("memories", "graphs"), [("shared", 120), ("own", 120), ("mixed", 120), ("staged", 60), ("slowed", 60)]
)
def test_random_graphs(memories: str, graphs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(graphs)
    with open_queue(memories, monkeypatch) as queue:
        values = some_values(random)
        arrays = [queue.array(v) for v in values]
        for turn in range(graphs):
            steps = random_steps(random, int(random.integers(1, 30)))
            run(queue, random, arrays, steps)
            for step in steps:
                by_numpy(step, values)
            changed = int(random.integers(BUFFERS))
            if turn % 3 == 0:
                for k, (array, value) in enumerate(zip(arrays, values, strict=True)):
                    assert (array.get() == value).all(), f"graph {turn}, buffer {k}"
            elif turn % 3 == 1:
                values[changed] = random.integers(0, 1 << 32, N, dtype=np.uint32)
                arrays[changed].set(values[changed], copy=bool(random.integers(2)))
            else:
                arrays[changed] = queue.array(values[changed])  # the old one is freed


@pytest.mark.parametrize("memories", ["shared", "own", "mixed", "staged"])
def test_random_graphs_with_a_fault_in_the_middle(memories: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every array then either says that it is lost or holds what one of its writers left, and all goes on."""
    for asked in ("api.program", "graph.versions.feasible"):  # devices that take less than they say
        monkeypatch.setattr(f"manycl.{asked}.beyond", lambda launch, device: "")
    random = np.random.default_rng(5)
    lost = 0

    def fault() -> None:
        raise ValueError("a fault")

    with open_queue(memories, monkeypatch) as queue:
        values = some_values(random)
        arrays = [queue.array(v) for v in values]
        for turn in range(40):
            steps = random_steps(random, 20)
            versions = [[v] for v in values]
            for step in steps:
                by_numpy(step, values)
                for k, value in enumerate(values):
                    if value is not versions[k][-1]:
                        versions[k].append(value)
            with queue.prepare() as prepared:
                for step in steps[: turn % 20]:
                    enqueue(queue, step, arrays)
                if turn % 2:
                    queue.call(fault, wait_for=())
                else:  # a launch that no device takes
                    PROGRAM.churn(queue, (1 << 16,), (1 << 16,), queue.zeros(1 << 16, np.uint32), 1)
                for step in steps[turn % 20 :]:
                    enqueue(queue, step, arrays)
            graph = prepared.graph
            with pytest.raises(RunError, match="a fault" if turn % 2 else "churn"):
                queue.session.run(graph, random_plan(random, graph, queue.devices))
            for k, array in enumerate(arrays):
                try:
                    values[k] = array.get()
                except ResultError:
                    lost += 1
                    values[k] = random.integers(0, 1 << 32, N, dtype=np.uint32)
                    array.set(values[k])
                else:
                    assert any((values[k] == v).all() for v in versions[k]), f"turn {turn}, buffer {k}"
            steps = random_steps(random, 10)
            run(queue, random, arrays, steps)
            for step in steps:
                by_numpy(step, values)
            for k, (array, value) in enumerate(zip(arrays, values, strict=True)):
                assert (array.get() == value).all(), f"turn {turn}, buffer {k}, after the fault"
    assert lost > 0


def test_three_threads_each_with_a_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = [open_queue(memories, monkeypatch) for memories in ("own", "shared", "slowed")]
    results: list[str] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        with queues[number] as queue:
            values = some_values(random)
            arrays = [queue.array(v) for v in values]
            for _ in range(15):
                steps = random_steps(random, 15)
                run(queue, random, arrays, steps)
                for step in steps:
                    by_numpy(step, values)
            right = all((a.get() == v).all() for a, v in zip(arrays, values, strict=True))
            results.append("right" if right else f"queue {number} is wrong")

    together(work, range(3))
    assert results == ["right"] * 3


def together(work: Callable[[int], None], numbers: Any) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in numbers]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=300)
    assert not any(t.is_alive() for t in threads)


def test_the_steps_touch_everything() -> None:
    """The generator makes every kind of node, and every kind of dependence between neighbours."""
    steps = random_steps(np.random.default_rng(0), 300)
    assert {s.kind for s in steps} == {"blend", "churn", "middle", "host"}
    assert any(p.buffers[2] == q.buffers[0] for p, q in itertools.pairwise(steps))
