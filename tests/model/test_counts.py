"""Counted work: by hand, in proportion, and where nothing can be counted."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis import parse_program
from manycl.analysis.facts import ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import Buffer, BufferArg, Launch
from manycl.machine import Device, Machine
from manycl.model import counts
from manycl.model.counts import PROPORTION, Counts
from manycl.model.estimate import ModelEstimates

SOURCE = """
__kernel void product(__global float *c, __global const float *a, __global const float *b, int n) {
  int i = get_global_id(1), j = get_global_id(0);
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
  c[i * n + j] = sum;
}
__kernel void part(__global float *c, __global const float *a, int n) {
  if (get_global_id(0) < n) c[get_global_id(0)] = a[get_global_id(0)] + 1;
}
__kernel void data(__global float *c, __global const float *a) {
  for (int k = 0; a[k] > 0; k++) c[get_global_id(0)] += a[k];
}
"""
PROGRAM = parse_program(SOURCE)
SIZE = 1 << 22
BUFFERS = {key: Buffer(key, SIZE) for key in range(3)}


def launch(kernel: str, size: Sequence[int], *scalars: int, local: tuple[int, ...] | None = None) -> Launch:
    facts = PROGRAM.kernels[kernel]
    buffers = tuple(BufferArg(a.index) for a in facts.arguments if a.kind == "buffer")
    args = (*buffers, *(struct.pack("=i", n) for n in scalars))
    reads = tuple(b.key for b in buffers[1:])
    return Launch(kernel, PROGRAM, facts, tuple(size), local, args, reads, (0,))


@given(st.integers(1, 12), st.sampled_from([None, (1, 1), (4, 4)]))
def test_a_matrix_product(n: int, local: tuple[int, ...] | None) -> None:
    n *= 4
    node = launch("product", (n, n), n, local=local)
    work = Counts(BUFFERS).work(node, node)
    assert work.exact
    assert work.operations["float.mul"] == work.operations["float.add"] == n**3
    assert work.operations["load.global"] == 2 * n**3
    assert work.operations["store.global"] == n**2
    assert work.global_bytes == min(3 * SIZE, 4 * (2 * n**3 + n**2))
    assert (work.work_items, work.f, work.cost) == (n * n, n, n**3)
    assert work.work_groups == (0 if local is None else n * n // (local[0] * local[1]))


@given(st.integers(0, 100), st.integers(1, 100))
def test_work_items_that_do_nothing_are_not_counted(n: int, items: int) -> None:
    node = launch("part", (items,), n)
    work = Counts(BUFFERS).work(node, node)
    assert work.operations.get("store.global", 0) == min(n, items)
    assert work.global_bytes == 8 * min(n, items)


def test_what_data_decide_is_said() -> None:
    node = launch("data", (64,))
    work = Counts(BUFFERS).work(node, node)
    assert not work.exact
    assert work.operations
    assert "line 12" in work.reason


def test_facts_made_by_hand_have_nothing_to_count() -> None:
    node = launch("product", (64, 64), 64)
    node.program = ProgramFacts("by hand", (), PROGRAM.kernels)
    work = Counts(BUFFERS).work(node, node)
    assert not work.operations
    assert work.reason
    assert work.global_bytes == 3 * SIZE


def test_of_many_launches_some_are_counted_and_the_others_follow_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    count = counts._counted
    monkeypatch.setattr(counts, "_counted", lambda *a: calls.append(a) or count(*a))
    found = Counts(BUFFERS)
    sizes = [4 * i for i in range(1, 50)]
    nodes = [launch("product", (n, n), n) for n in sizes]
    works = [found.work(node, node) for node in nodes]
    assert [found.work(node, node) for node in nodes] == works
    assert len(calls) == counts.EACH
    for i, (n, work) in enumerate(zip(sizes, works, strict=True)):
        assert work.exact == (i < counts.EACH)
        assert work.reason == ("" if i < counts.EACH else PROPORTION)
        assert work.operations["float.mul"] == pytest.approx(n**3)
        assert work.global_bytes <= 3 * SIZE


def test_no_more_than_so_many_kernels_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "MOST", 1)
    found = Counts(BUFFERS)
    first, second = launch("part", (64,), 64), launch("data", (64,))
    assert found.work(first, first).exact
    work = found.work(second, second)
    assert not work.operations
    assert work.global_bytes == 2 * SIZE
    assert "too many" in work.reason


def test_the_first_guess_knows_the_operations() -> None:
    builder = GraphBuilder()
    for _ in range(3):
        builder.buffer(SIZE)
    builder.add(launch("product", (256, 256), 256, local=(16, 16)))
    builder.add(launch("part", (1 << 16,), 1, local=(64,)))
    device = Device("cpu0", "cpu", compute_units=2, flops=1e9, bandwidth=1e10, launch_overhead=1e-5)
    estimates = ModelEstimates(builder.build(), Machine((device,), notes={}))
    heavy, idle = (estimates.estimate(n, 0) for n in (0, 1))
    assert heavy.source == "prior (counted operations, estimated device)"
    # two operations and two loads a step, and some for addresses
    assert 2 * 256**3 / 1e9 < heavy.seconds < 5 * 256**3 / 1e9
    assert idle.seconds < 1e-5 + 1e-3
    assert heavy.low < heavy.seconds / 8.9


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_described_rate_is_that_of_a_matrix_product(kind: str) -> None:
    builder = GraphBuilder()
    for _ in range(3):
        builder.buffer(SIZE)
    builder.add(launch("product", (1024, 1024), 1024, local=(16, 16)))
    device = Device("d0", kind, memory=1, compute_units=2, flops=1e11, bandwidth=1e12, launch_overhead=1e-5)
    graph = builder.build()
    described = Machine((device,), notes={"d0.flops": "measured: naive matrix product"})
    found = ModelEstimates(graph, described).launch(0, 0)
    assert found == pytest.approx(2 * 1024**3 / 1e11, rel=0.02)
    # here it is what multiply-adds alone reach, and the product's loads and addresses come on top
    assert ModelEstimates(graph, Machine((device,))).launch(0, 0) > 1.5 * found
