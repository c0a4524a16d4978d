"""Estimates: medians of what was measured, honest first guesses, transfers."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch
from manycl.machine import HOST, Device, Link, Machine
from manycl.model.estimate import FACTOR_LIMIT, KEEP, History, ModelEstimates, kernel_key, prior
from manycl.model.occupancy import share

KERNEL = KernelFacts("k", 1, ())
PROGRAM = ProgramFacts("source", ("-DN=1",), {"k": KERNEL})
SLOW = Device("cpu0", "cpu", compute_units=4, flops=1e10, bandwidth=1e10, launch_overhead=1e-5)
FAST = Device("gpu0", "gpu", memory=1, compute_units=10, flops=1e12, bandwidth=1e11, launch_overhead=2e-5)
MACHINE = Machine((SLOW, FAST))


def launch(size: int, local: int | None = 64, reads: tuple[int, ...] = (), writes: tuple[int, ...] = ()) -> Launch:
    args = tuple(BufferArg(k) for k in (*reads, *writes))
    return Launch("k", PROGRAM, KERNEL, (size,), (local,) if local else None, args, reads, writes)


def graph(*nodes: Launch | HostTask, buffers: tuple[int, ...] = ()) -> Graph:
    builder = GraphBuilder()
    for nbytes in buffers:
        builder.buffer(nbytes)
    for node in nodes:
        builder.add(node)
    return builder.build()


def test_prior_of_a_compute_bound_and_of_a_memory_bound_kernel() -> None:
    big = launch(1 << 20)
    assert prior(big, SLOW, 0) == pytest.approx(1e-5 + 64 * (1 << 20) / 1e10)
    assert prior(big, FAST, 0) == pytest.approx(2e-5 + 64 * (1 << 20) / 1e12)
    assert prior(big, SLOW, 10**9) == pytest.approx(1e-5 + 0.1)


def test_prior_counts_a_buffer_per_direction() -> None:
    found = ModelEstimates(graph(launch(1, None, (0,), (0, 1)), buffers=(10**9, 10**8)), MACHINE)
    assert found.launch(0, 0) == pytest.approx(1e-5 + 2.1e9 / 1e10)


def test_few_work_items_cannot_use_the_whole_device() -> None:
    tiny = launch(64)
    assert prior(tiny, FAST, 0) - 2e-5 == pytest.approx(64 * 64 / (1e12 * 64 / (10 * 2048)))


def test_slowdown_multiplies_the_guess() -> None:
    slowed = replace(SLOW, slowdown=4.0)
    assert prior(launch(1 << 20), slowed, 0) - 1e-5 == pytest.approx(4 * (prior(launch(1 << 20), SLOW, 0) - 1e-5))


@pytest.mark.parametrize(
    ("device", "items", "local", "expected"),
    [
        (SLOW, 64, 64, 0.25),  # one work-group on four cores
        (SLOW, 65, 64, 0.5),
        (SLOW, 640, 64, 1.0),
        (SLOW, 2, None, 0.5),
        (FAST, 2048, 64, 0.1),
        (FAST, 1 << 30, 64, 1.0),
    ],
)
def test_share(device: Device, items: int, local: int | None, expected: float) -> None:
    assert share(launch(items, local), device) == pytest.approx(expected)


def test_a_measurement_replaces_the_guess() -> None:
    history = History()
    history.observe(kernel_key(launch(128)), "cpu0", 0.5)
    found = ModelEstimates(graph(launch(128), launch(256)), MACHINE, history)
    assert found.launch(0, 0) == 0.5
    assert found.launch(1, 0) == pytest.approx(prior(launch(256), SLOW, 0))  # another NDRange is another launch


def test_the_first_run_only_counts_while_it_is_alone() -> None:
    history, key = History(), kernel_key(launch(1))
    assert history.median(key, "cpu0") is None
    history.observe(key, "cpu0", 100.0)
    assert (history.median(key, "cpu0"), history.count(key, "cpu0")) == (100.0, 1)
    for seconds in (3.0, 1.0, 2.0):
        history.observe(key, "cpu0", seconds)
    assert (history.median(key, "cpu0"), history.count(key, "cpu0")) == (2.0, 3)


@given(st.lists(st.floats(1e-6, 10), min_size=3, max_size=KEEP))
def test_one_bad_sample_does_not_move_the_median_out_of_the_good_ones(good: list[float]) -> None:
    history, key = History(), kernel_key(launch(1))
    for seconds in (5.0, *good[1:], 1e6):
        history.observe(key, "cpu0", seconds)
    found = history.median(key, "cpu0")
    assert found == statistics.median([*good[1:], 1e6])
    assert found is not None
    assert found <= max(good[1:])


def test_old_measurements_are_forgotten() -> None:
    history, key = History(), kernel_key(launch(1))
    for seconds in (9.0, *[8.0] * 100, *[1.0] * KEEP):
        history.observe(key, "cpu0", seconds)
    assert history.median(key, "cpu0") == 1.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_measurements_are_ignored(seconds: float) -> None:
    history, key = History(), kernel_key(launch(1))
    history.observe(key, "cpu0", seconds)
    assert history.median(key, "cpu0") is None


def test_other_devices_are_scaled_by_what_was_measured() -> None:
    node = launch(1 << 20)
    guess = [prior(node, d, 0) for d in MACHINE.devices]
    history = History()
    history.observe(kernel_key(node), "gpu0", 2e-5 + 7 * (guess[1] - 2e-5))
    found = ModelEstimates(graph(node), MACHINE, history)
    assert found.launch(0, 0) == pytest.approx(1e-5 + 7 * (guess[0] - 1e-5))
    history.observe(kernel_key(node), "gpu0", 1e9)
    found = ModelEstimates(graph(node), MACHINE, history)
    assert found.launch(0, 0) == pytest.approx(1e-5 + FACTOR_LIMIT * (guess[0] - 1e-5))


def test_host_tasks_take_no_time() -> None:
    assert ModelEstimates(graph(HostTask("h", print, (), (), ())), MACHINE).launch(0, 1) == 0.0


def test_transfers() -> None:
    links = (Link(HOST, 1, 1e10, 1e-5), Link(1, HOST, 5e9, 2e-5), Link(1, 2, 1e11, 1e-6))
    where = Machine((SLOW, FAST, replace(FAST, name="gpu1", memory=2)), links)
    transfer = ModelEstimates(graph(), where).transfer
    assert transfer(10**9, 1, 1) == 0.0
    assert transfer(10**9, HOST, 1) == pytest.approx(0.1 + 1e-5)
    assert transfer(10**9, 1, HOST) == pytest.approx(0.2 + 2e-5)
    assert transfer(10**9, 1, 2) == pytest.approx(0.01 + 1e-6)
    # no link from 2: to the host at 10 GB/s and 10 us, then on
    assert transfer(10**9, 2, 1) == pytest.approx((0.1 + 1e-5) + (0.1 + 1e-5))
