"""Estimates: measured times, models, first guesses, scaling, and what a bad sample may not do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.analysis.costs.cost import Work
from manycl.analysis.facts import KernelFacts, ProgramFacts
from manycl.graph.dependences import GraphBuilder
from manycl.graph.graph import BufferArg, Graph, HostTask, Launch, Version
from manycl.machine import Device, Machine
from manycl.model.estimate import History, ModelEstimates
from manycl.model.history.history import KEEP, SHAPES, Shape, identity, kernel_key
from manycl.model.history.learning import enough, learn
from manycl.model.history.store import Store
from manycl.model.occupancy import share
from manycl.model.prior import FACTOR_LIMIT, correction, prior
from manycl.model.work import Estimate, work_of

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


def guess(node: Launch, device: Device, nbytes: int = 0) -> float:
    return prior(replace(work_of(node, node), global_bytes=nbytes), device).seconds


def observe(history: History, node: Launch, device: Device, *seconds: float) -> None:
    for s in seconds:
        history.next_run()
        history.observe(kernel_key(node), Shape(node.global_size, 1.0), identity(device), s)


def found(history: History, *nodes: Launch, machine: Machine = MACHINE) -> ModelEstimates:
    return ModelEstimates(graph(*nodes), machine, history)


# first guesses


def test_prior_of_a_compute_bound_and_of_a_memory_bound_kernel() -> None:
    big = launch(1 << 20)
    assert guess(big, SLOW) == pytest.approx(1e-5 + 64 * (1 << 20) / 1e10)
    assert guess(big, FAST) == pytest.approx(2e-5 + 64 * (1 << 20) / 1e12)
    assert guess(big, SLOW, 10**9) == pytest.approx(1e-5 + 0.1)


def test_counted_operations_replace_the_assumption_and_narrow_the_bar() -> None:
    counted = Work(1000, 100, operations={"float.add": 1e9, "double.mul": 1e9}, exact=True)
    partly, assumed = replace(counted, exact=False), Work(1000, 100)
    first, second = prior(assumed, SLOW), prior(counted, SLOW, measured=True)
    assert second.seconds == pytest.approx(1e-5 + 3e9 / 1e10)
    assert second.spread < prior(partly, SLOW, measured=True).spread < prior(assumed, SLOW, measured=True).spread
    assert prior(counted, SLOW).spread < first.spread
    assert "partly counted" in prior(partly, SLOW).source
    assert "assumed" in first.source
    assert "estimated" in first.source
    assert "counted" in second.source
    assert "measured" in second.source


def test_on_native_devices_neighbours_at_the_same_or_the_next_element_are_one_operation() -> None:
    native = replace(SLOW, platform="native", clock=1e9, flops=4 * 16e9, launch_overhead=0.0)
    near = Work(1 << 20, 1 << 14, operations={"load.global": 1e9, "float.add": 1e9}, exact=True)
    apart = replace(near, scattered=1e9)
    assert prior(near, native).seconds == pytest.approx(1e9 * (0.5 + 0.75) / (4 * 16e9))
    assert prior(replace(near, shared=1e9), native).seconds == pytest.approx(1e9 * 0.5 / (4 * 16e9))
    assert prior(apart, native).seconds == pytest.approx(prior(near, native).seconds + 1e9 * 1.25 / (4 * 1e9))
    assert prior(apart, SLOW).seconds == prior(near, SLOW).seconds  # where nobody makes vectors
    slower = replace(native, flops=4 * 4e9)  # shorter vectors: only what is in them takes longer
    assert prior(apart, slower).seconds - prior(near, slower).seconds == pytest.approx(1e9 * 1.25 / (4 * 1e9))


def test_what_lies_in_the_caches_of_a_native_device_comes_faster() -> None:
    native = replace(SLOW, platform="native", launch_overhead=0.0)
    small, large = (
        Work(1 << 20, 1 << 14, operations={"float.add": 1.0}, global_bytes=n) for n in (4 << 20, 4 * (4 << 20))
    )
    assert prior(large, native).seconds == pytest.approx(8 * prior(small, native).seconds)
    assert prior(large, SLOW).seconds - 1e-5 == pytest.approx(4 * (prior(small, SLOW).seconds - 1e-5))


def test_prior_counts_a_buffer_per_direction() -> None:
    estimates = ModelEstimates(graph(launch(1, None, (0,), (0, 1)), buffers=(10**9, 10**8)), MACHINE)
    assert estimates.launch(0, 0) == pytest.approx(1e-5 + 2.1e9 / 1e10)


def test_few_work_items_cannot_use_the_whole_device() -> None:
    assert guess(launch(64), FAST) - 2e-5 == pytest.approx(64 * 64 / (1e12 * 64 / (10 * 2048)))


def test_slowdown_multiplies_guess_and_measurement() -> None:
    slowed, node = replace(SLOW, slowdown=4.0), launch(1 << 20)
    assert guess(node, slowed) - 1e-5 == pytest.approx(4 * (guess(node, SLOW) - 1e-5))
    history = History()
    observe(history, node, SLOW, 0.5, 0.5)
    assert found(history, node, machine=Machine((slowed,))).launch(0, 0) == pytest.approx(2.0)


def test_five_kernels_correct_the_next_guess_and_its_bar() -> None:
    assert correction([2.0] * 4).kernels == 0
    seen = correction([2.0, 3.0, 4.0, 5.0, 100.0])
    assert seen.ratio == 4.0
    plain, better = prior(Work(1 << 20, 0), SLOW), prior(Work(1 << 20, 0), SLOW, seen=seen)
    assert better.seconds - 1e-5 == pytest.approx(4 * (plain.seconds - 1e-5))
    assert better.low < better.seconds < better.high
    assert "corrected" in better.source


@pytest.mark.parametrize(
    ("device", "items", "local", "expected"),
    [
        (SLOW, 64, 64, 0.25),  # one work-group on four cores
        (SLOW, 65, 64, 0.5),
        (SLOW, 640, 64, 1.0),
        (SLOW, 2, None, 0.5),
        (FAST, 2048, 64, 0.1),
        (FAST, 20480, 64, 1.0),  # a wave
        (FAST, 30720, 64, 0.75),  # one and a half, in the time of two
        (FAST, 51200, 256, 2.5 / 3),
    ],
)
def test_share(device: Device, items: int, local: int | None, expected: float) -> None:
    assert share(launch(items, local), device) == pytest.approx(expected)


# measurements


def test_a_measurement_replaces_the_guess_and_scales_it_at_other_sizes() -> None:
    history = History()
    observe(history, launch(128), SLOW, 0.001)
    estimates = found(history, launch(128), launch(256))
    assert estimates.launch(0, 0) == 0.001
    assert estimates.estimate(0, 0).source == "measured once"
    # twice the work in twice the groups, on four cores instead of two
    assert estimates.launch(1, 0) == pytest.approx(0.001, rel=0.01)
    assert estimates.estimate(1, 0).source == "another size, scaled"


def test_another_work_group_size_or_option_is_another_kernel() -> None:
    history = History()
    observe(history, launch(128), SLOW, 0.5)
    other = replace_program(launch(128), ("-DN=2",))
    estimates = found(history, launch(128, 32), other)
    for node in (0, 1):
        assert estimates.estimate(node, 0).source.startswith("prior")


def replace_program(node: Launch, options: tuple[str, ...]) -> Launch:
    return Launch(
        "k", ProgramFacts("source", options, {"k": KERNEL}), KERNEL, node.global_size, node.local_size, (), (), ()
    )


def typical(samples: Sequence[float]) -> float:
    history = History()
    observe(history, launch(64), SLOW, *samples)
    return found(history, launch(64)).launch(0, 0)


def test_the_first_run_only_counts_while_it_is_alone() -> None:
    assert typical([100.0]) == 100.0
    assert typical([100.0, 3.0]) == 3.0
    assert typical([100.0, 3.0, 1.0, 2.0]) == 2.0


@given(st.lists(st.floats(1e-6, 10), min_size=1, max_size=KEEP - 1), st.integers(0, KEEP), st.floats(2, 1e6))
def test_one_bad_sample_of_two_or_more_never_counts(good: list[float], where: int, factor: float) -> None:
    where = min(where, len(good))
    bad = max(good) * factor
    result = typical([*good[:where], bad, *good[where:]])
    assert min(good) <= result <= max(good)


@given(st.lists(st.floats(1e-6, 10), min_size=3, max_size=KEEP))
def test_many_samples_give_their_median(samples: list[float]) -> None:
    assert typical(samples) == statistics.median_low(samples[1:])


def test_old_measurements_are_forgotten() -> None:
    assert typical([9.0, *[8.0] * 100, *[1.0] * KEEP]) == 1.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_measurements_are_ignored(seconds: float) -> None:
    history = History()
    observe(history, launch(64), SLOW, seconds)
    assert found(history, launch(64)).estimate(0, 0).source.startswith("prior")


def test_the_bar_of_a_measured_launch_holds_its_scatter() -> None:
    history = History()
    observe(history, launch(64), SLOW, 1.0, *[0.9, 1.0, 1.1] * 5)
    estimate = found(history, launch(64)).estimate(0, 0)
    assert estimate.low < 0.9 < 1.1 < estimate.high < 1.3
    assert estimate.error_percent == pytest.approx(6.5, abs=1.5)
    assert (estimate.source, estimate.samples) == ("measured", 16)


def test_other_devices_are_scaled_by_what_was_measured() -> None:
    node = launch(1 << 20)
    first = [guess(node, d) for d in MACHINE.devices]
    history = History()
    observe(history, node, FAST, 2e-5 + 7 * (first[1] - 2e-5))
    estimates = found(history, node)
    assert estimates.launch(0, 0) == pytest.approx(1e-5 + 7 * (first[0] - 1e-5))
    assert estimates.estimate(0, 0).source == "another device, scaled"
    history = History()
    observe(history, node, FAST, 1e9)
    assert found(history, node).launch(0, 0) == pytest.approx(1e-5 + FACTOR_LIMIT * (first[0] - 1e-5))


def test_no_guess_for_a_described_device_draws_more_of_its_memory_than_it_carries() -> None:
    """1 GB at 100 GB/s; it took a tenth of its guess elsewhere, as caches may do. What was measured there stays."""
    node = launch(1 << 10, reads=(1,))
    of, history = graph(node, buffers=(8, 10**9)), History()
    observe(history, node, SLOW, 1e-5 + 1e-2)
    described = replace(MACHINE, notes={"gpu0.flops": "a data sheet"})
    assert ModelEstimates(of, MACHINE, history).launch(0, 1) == pytest.approx(2e-5 + 1e-3)
    assert ModelEstimates(of, described, history).launch(0, 1) == pytest.approx(2e-5 + 1e-2)
    observe(history, node, FAST, *[2e-3] * 3)
    assert ModelEstimates(of, described, history).launch(0, 1) == pytest.approx(2e-3)


def test_a_device_that_was_unlucky_once_gets_a_second_chance() -> None:
    node, twin = launch(1 << 20), replace(SLOW, name="cpu1")
    machine = Machine((SLOW, twin))
    history = History()
    observe(history, node, twin, 100.0)  # one bad sample, alone
    observe(history, node, SLOW, 1.0, 1.0)
    seen = []
    for _ in range(30):
        observe(history, node, SLOW, 1.0)
        seen.append(found(history, node, machine=machine).launch(0, 1))
    assert 10 < seen[0] <= 100
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 1.1  # worth a try again
    observe(history, node, twin, 100.0)  # it is slow indeed
    assert found(history, node, machine=machine).launch(0, 1) == 100.0


def test_a_single_measurement_that_fits_the_others_is_believed() -> None:
    node, twin = launch(1 << 20), replace(SLOW, name="cpu1")
    history = History()
    observe(history, node, SLOW, 1.0, 1.0, 1.0)
    observe(history, node, twin, 0.6)
    for _ in range(50):
        observe(history, node, SLOW, 1.0)
    assert found(history, node, machine=Machine((SLOW, twin))).launch(0, 1) == 0.6


# models


def linear(size: int) -> float:
    return 1e-4 + 2e-8 * size


def test_two_sizes_are_interpolated_and_more_are_fitted() -> None:
    history = History()
    for size in (6400, 64000):
        observe(history, launch(size), SLOW, linear(size), linear(size))
    estimate = found(history, launch(32000)).estimate(0, 0)
    assert estimate.source == "interpolation"
    assert estimate.seconds == pytest.approx(linear(32000))
    for size in (12800, 128000, 25600):
        observe(history, launch(size), SLOW, linear(size), linear(size))
    estimate = found(history, launch(99968)).estimate(0, 0)
    assert estimate.source == "regression"
    assert estimate.seconds == pytest.approx(linear(99968), rel=1e-6)
    assert estimate.samples == 5


def test_far_beyond_the_data_the_bar_says_so() -> None:
    history = History()
    for size in (6400, 64000, 12800, 128000, 25600):
        observe(history, launch(size), SLOW, linear(size), linear(size))
    estimates = found(history, launch(32000), launch(64 * 10**6))
    assert estimates.estimate(1, 0).spread > 8.9 > 1.2 > estimates.estimate(0, 0).spread


def test_a_single_bad_size_among_many_is_doubted() -> None:
    history = History()
    for size in (6400, 64000, 12800, 128000, 25600, 51200):
        observe(history, launch(size), SLOW, linear(size), linear(size))
    observe(history, launch(32000), SLOW, 100 * linear(32000))
    for _ in range(30):
        observe(history, launch(6400), SLOW, linear(6400))
    estimate = found(history, launch(32000)).estimate(0, 0)
    assert estimate.source == "measured once, doubted"
    assert estimate.seconds < 1.2 * linear(32000)


def test_learning_compares_predictions_with_what_came() -> None:
    history = History()
    sizes = [6400 * i for i in range(1, 13)]
    for size in sizes:
        learn(history, graph(launch(size)), MACHINE, [(0, 0, linear(size) * (1.1 if size > 40000 else 1.0))])
        here = history.on(kernel_key(launch(1)), identity(SLOW))
        assert here is not None
        here.models()  # as planning does: runs do not wait until models are fitted
    assert len(here.comparisons["prior"]) == 1
    assert len(here.comparisons["interpolation"]) == len(sizes) - 2
    error = here.error("interpolation")
    assert error is not None
    assert 0.001 < error < 0.1
    assert found(history, launch(9600)).estimate(0, 0).error_percent == pytest.approx(
        100 * (here.error(found(history, launch(9600)).estimate(0, 0).source) or 0)
    )


def test_learning_takes_the_slowdown_out() -> None:
    history = History()
    slowed = Machine((replace(SLOW, slowdown=4.0),))
    learn(history, graph(launch(64)), slowed, [(0, 0, 4.0)])
    assert found(history, launch(64), machine=Machine((SLOW,))).launch(0, 0) == 1.0


OTHER = ProgramFacts("other", (), {"k": KERNEL})


def test_the_version_that_ran_is_the_one_that_is_learned() -> None:
    versions = (
        Version(PROGRAM, KERNEL, (64,), (64,), ("gpu",)),
        Version(OTHER, KERNEL, (16,), (16,), ("cpu",)),
    )
    node = replace_versions(launch(64), versions)
    history = History()
    learn(history, graph(node), MACHINE, [(0, 0, 2.0), (0, 1, 3.0)])
    estimates = found(history, node)
    assert [estimates.launch(0, d) for d in (0, 1)] == [2.0, 3.0]
    assert [estimates.version(0, d) for d in (0, 1)] == [1, 0]
    only_gpu = replace_versions(launch(64), versions[:1])
    assert found(history, only_gpu).launch(0, 0) == float("inf")


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ((), (), 0),  # nothing is known: what the device prefers
        ((2.0, 2.0), (), 0),  # a guess is no reason to leave it, however small
        ((), (1e-9, 1e-9), 1),
        ((2.0, 2.0), (1.0, 1.0), 1),
        ((1.0, 1.0), (2.0, 2.0), 0),
        ((9.0, 1.0), (2.0, 2.0), 0),  # one bad sample decides nothing
    ],
)
def test_the_version_that_was_seen_to_be_faster_is_the_one(
    first: tuple[float, ...], second: tuple[float, ...], chosen: int
) -> None:
    versions = (Version(PROGRAM, KERNEL, (1 << 20,), (64,)), Version(OTHER, KERNEL, (64,), (64,)))
    node = replace_versions(launch(1 << 20), versions)
    history = History()
    for version, seconds in zip(versions, (first, second), strict=True):
        for s in seconds:
            learn(history, graph(node), MACHINE, [(0, 0, s)], {0: version})
    estimates = found(history, node)
    assert estimates.version(0, 0) == chosen
    if first or second:
        assert estimates.launch(0, 0) == min((second if chosen else first), default=0.0)
    assert estimates.version(0, 1) in (0, chosen)


def replace_versions(node: Launch, versions: tuple[Version, ...]) -> Launch:
    return Launch("k", PROGRAM, KERNEL, node.global_size, node.local_size, (), (), (), versions=versions)


# ranges, host tasks


@given(st.integers(1, 512), st.integers(1, 512))
def test_ranges_of_work_groups(groups: int, count: int) -> None:
    estimates = ModelEstimates(graph(launch(64 * groups)), MACHINE)
    for device in (0, 1):
        whole = estimates.launch(0, device)
        part = estimates.groups(0, device, count, groups)
        assert 0 < part <= whole * (1 + 1e-12)
        if count >= groups:
            assert part == whole
        else:
            assert part <= estimates.groups(0, device, count + 1, groups) * (1 + 1e-12)
            rest = estimates.groups(0, device, groups - count, groups)
            # splitting saves no work; but a wave that is nearly empty takes nearly as long as a full one
            assert part + rest >= whole * (1 - 1e-12 if device == 0 else 2 / 3)


def test_host_tasks_take_no_time() -> None:
    assert ModelEstimates(graph(HostTask("h", print, (), (), ())), MACHINE).launch(0, 1) == 0.0


def test_estimates_scale_as_a_whole() -> None:
    assert Estimate(1.0, 0.5, 2.0, "x", 3.0, 4).times(2) == Estimate(2.0, 1.0, 4.0, "x", 3.0, 4)


def test_thousands_of_different_launches_are_bounded_and_still_predicted(tmp_path: Path) -> None:
    history = Store(tmp_path).history()
    nodes = [launch(64 * i) for i in range(1, 3 * SHAPES)]
    learn(history, graph(*nodes), MACHINE, [(i, 0, linear(64 * (i + 1))) for i in range(len(nodes))])
    here = history.on(kernel_key(nodes[0]), identity(SLOW))
    assert here is not None
    assert len(here.series) == SHAPES
    estimate = found(history, launch(64 * 5 * SHAPES // 2 + 32)).estimate(0, 0)
    assert estimate.seconds == pytest.approx(linear(64 * 5 * SHAPES // 2 + 32), rel=1e-6)
    store = Store(tmp_path)
    for _ in range(2):  # saved anew, no more are kept
        store.save(history)
        assert len(store.rows()) == SHAPES
        history = store.history()
        learn(history, graph(*nodes[:8]), MACHINE, [(i, 0, 1.0) for i in range(8)])


@given(st.lists(st.sampled_from([0, 64, 128, 192]), max_size=8), st.integers(1, SHAPES))
def test_enough_launches_of_each_kind_are_learned_from(sizes: list[int], times: int) -> None:
    """Of size 0 there are host functions."""
    host = HostTask("h", print, (), (), ())
    nodes = [launch(size) if size else host for size in sizes * times]
    few = enough(nodes)
    for size in {64, 128, 192} & {*sizes}:
        alike = [n for n, node in enumerate(nodes) if isinstance(node, Launch) and node.global_size == (size,)]
        chosen = [n for n in alike if n in few]
        assert chosen[0] == alike[0]
        assert len(alike) / 2 <= len(chosen) or SHAPES / 2 <= len(chosen) <= SHAPES
        assert len(chosen) == len(alike) or len(alike) > SHAPES
    assert not few & {n for n, node in enumerate(nodes) if node is host}


TIMES = st.lists(st.sampled_from([0.0, 1e-12, 1e-9, 1e-6, 1e-6, 1.0]), max_size=6)


@given(data=st.data())
def test_few_groups_no_time_and_many_compute_units(data: st.DataObject) -> None:
    """However small launches are, whatever devices take and however large these are: times are numbers, and a range
    takes no longer than the launch."""
    sizes = [data.draw(st.sampled_from([1, 2, 3, 64])) for _ in range(3)]
    nodes = [launch(size, data.draw(st.sampled_from([None, 1, size]))) for size in sizes]
    several = st.sampled_from([1, 2, 1024])
    overhead = st.sampled_from([0.0, 1e-5])
    devices = tuple(
        replace(d, compute_units=data.draw(several), launch_overhead=data.draw(overhead)) for d in (SLOW, FAST)
    )
    history = History()
    for node in nodes:
        for device in devices:
            observe(history, node, device, *data.draw(TIMES))
    estimates = found(history, *nodes, machine=Machine(devices))
    for index, size in enumerate(sizes):
        for device in range(2):
            whole = estimates.launch(index, device)
            assert 0.0 <= whole < math.inf
            assert 0.0 <= estimates.doubt(index, (0, 1)) < math.inf
            for count in range(1, size + 1):
                part = estimates.groups(index, device, count, size)
                assert part is not None
                assert 0.0 <= part <= whole
