"""Transfers: alone, by the host, and at the same time as others."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.machine import HOST, Device, Link, Machine, Sharing
from manycl.model.history.history import identity
from manycl.model.history.learning import ObservedLinks
from manycl.model.history.measured import OBSERVED, SOURCE, on_machine, together
from manycl.model.transfer import SIZES, TINY, TransferModel, chunk_of, smallest

CPU = Device("cpu0", "cpu")
GPUS = tuple(Device(f"gpu{i}", "gpu", f"model {i}", "platform", "1", memory=i + 1) for i in range(2))
LINKS = (Link(HOST, 1, 1e10, 1e-5), Link(1, HOST, 5e9, 2e-5), Link(HOST, 2, 1e10, 1e-5), Link(2, HOST, 1e10, 1e-5))
MACHINE = Machine((CPU, *GPUS), LINKS)


def test_alone() -> None:
    seconds = TransferModel(Machine(MACHINE.devices, (*LINKS[:2], Link(1, 2, 1e11, 1e-6)))).seconds
    assert seconds(10**9, 1, 1) == 0.0
    assert seconds(10**9, HOST, 1) == pytest.approx(0.1 + 1e-5)
    assert seconds(10**9, 1, HOST) == pytest.approx(0.2 + 2e-5)
    assert seconds(10**9, 1, 2) == pytest.approx(0.01 + 1e-6)
    # no link from 2: to the host at 10 GB/s and 10 us, then on
    assert seconds(10**9, 2, 1) == pytest.approx((0.1 + 1e-5) + (0.1 + 1e-5))


def test_a_shared_link_halves_and_another_link_does_not() -> None:
    model = TransferModel(MACHINE)
    assert model.rates([(HOST, 1), (HOST, 1)]) == pytest.approx([5e9, 5e9])
    assert model.rates([(HOST, 1), (HOST, 2), (1, HOST)])[0] == pytest.approx(1e10)


def test_half_duplex_links_share_both_directions() -> None:
    model = TransferModel(replace(MACHINE, sharing=Sharing(half_duplex=frozenset({2}))))
    assert model.rates([(HOST, 2), (2, HOST)]) == pytest.approx([5e9, 5e9])
    assert model.rates([(HOST, 1), (1, HOST)]) == pytest.approx([1e10, 5e9])
    slow_down = TransferModel(replace(MACHINE, sharing=Sharing(half_duplex=frozenset({1}))))
    assert slow_down.rates([(1, HOST)]) == pytest.approx([5e9])


def test_the_host_gives_no_more_than_it_has() -> None:
    model = TransferModel(replace(MACHINE, sharing=Sharing(sends={HOST: 1.2e10})))
    assert model.rates([(HOST, 1), (HOST, 2)]) == pytest.approx([6e9, 6e9])
    assert model.rates([(HOST, 1), (HOST, 1), (HOST, 2)]) == pytest.approx([4e9, 4e9, 4e9])
    assert model.rates([(HOST, 1), (1, HOST)]) == pytest.approx([1e10, 5e9])


def test_between_devices_each_half_of_the_way_is_shared() -> None:
    model = TransferModel(MACHINE)
    assert model.seconds(10**9, 1, 2) == pytest.approx(0.2 + 0.1 + 3e-5)
    assert model.rates([(1, HOST), (HOST, 2)]) == pytest.approx([5e9, 1e10])
    assert model.rates([(HOST, 2), (HOST, 2)]) == pytest.approx([5e9, 5e9])


ENDS = st.sampled_from([(HOST, 1), (1, HOST), (HOST, 2), (2, HOST)])


MOST = st.one_of(st.just(math.inf), st.floats(1e8, 2e10))


@given(st.lists(st.tuples(ENDS, MOST), min_size=1, max_size=8), st.floats(1e8, 3e10), st.sets(st.sampled_from([1, 2])))
def test_sharing_is_within_every_limit_and_nobody_could_have_more(
    transfers: list[tuple[tuple[int, int], float]], limit: float, half: set[int]
) -> None:
    ends, own = [e for e, _ in transfers], [m for _, m in transfers]
    model = TransferModel(replace(MACHINE, sharing=Sharing(frozenset(half), {HOST: limit}, {HOST: limit})))
    rates = model.rates(ends, own)
    used = {
        link: sum(r for r, e in zip(rates, ends, strict=True) if e == link)
        for link in itertools.product(range(3), repeat=2)
    }
    limits = [(used[x.source, x.target], x.bandwidth, {(x.source, x.target)}) for x in LINKS]
    for m, both in ((1, 1e10), (2, 1e10)):
        if m in half:
            limits.append((used[HOST, m] + used[m, HOST], both, {(HOST, m), (m, HOST)}))
    limits.append((used[HOST, 1] + used[HOST, 2], limit, {(HOST, 1), (HOST, 2)}))
    limits.append((used[1, HOST] + used[2, HOST], limit, {(1, HOST), (2, HOST)}))
    for amount, most, _ in limits:
        assert amount <= most * (1 + 1e-9)
    for rate, e, alone in zip(rates, ends, own, strict=True):
        assert 0 < rate <= alone * (1 + 1e-9)
        full = [s for amount, most, s in limits if e in s and amount >= most * (1 - 1e-9)]
        one_way = e == (1, HOST) and 1 in half and rate >= 5e9 * (1 - 1e-9)
        assert full or one_way or rate >= alone * (1 - 1e-9)


@given(st.lists(ENDS, min_size=1, max_size=8), st.floats(1e8, 3e10), st.sets(st.sampled_from([1, 2])))
def test_company_never_makes_a_transfer_faster(ends: list[tuple[int, int]], limit: float, half: set[int]) -> None:
    model = TransferModel(replace(MACHINE, sharing=Sharing(frozenset(half), {HOST: limit}, {HOST: limit})))
    together = model.slowdowns(ends)
    assert min(together) >= 1 - 1e-9
    alone = TransferModel(MACHINE).slowdowns(ends[:1])
    assert alone == [1.0]


def test_machines_whose_transfers_can_meet() -> None:
    def contended(sharing: Sharing, machine: Machine = MACHINE) -> bool:
        return TransferModel(replace(machine, sharing=sharing)).contended(machine)

    assert not contended(Sharing())
    assert not contended(Sharing(half_duplex=frozenset({7})))
    assert contended(Sharing(half_duplex=frozenset({2})))
    assert contended(Sharing(sends={HOST: 1e10}))
    twins = Machine((CPU, GPUS[0], Device("gpu0.1", "gpu", memory=1)), LINKS)
    assert contended(Sharing(), twins)  # two devices on one link
    assert not contended(Sharing(), Machine((CPU, Device("cpu1", "cpu"))))


def test_measurements_replace_estimates_and_say_so() -> None:
    known = {
        identity(GPUS[0]): {
            "flops": 3e12,
            "up_bandwidth": 2e10,
            "up_latency": 5e-6,
            "down_bandwidth": 1.9e10,
            "down_latency": 6e-6,
            "both_ways": 2.1e10,
        },
        identity(GPUS[1]): {"up_bandwidth": 2e10, "down_bandwidth": 2e10, "both_ways": 3.9e10},
        together(GPUS): {"up": 3e10, "down": 4e10},
    }
    machine = on_machine(MACHINE, known)
    assert machine.devices[1].flops == 3e12
    assert machine.devices[0] == CPU
    assert machine.link(HOST, 1) == Link(HOST, 1, 2e10, 5e-6)
    assert machine.link(1, HOST) == Link(1, HOST, 1.9e10, 6e-6)
    assert machine.notes["gpu0.flops"] == machine.notes["host->gpu0.bandwidth"] == SOURCE
    assert "gpu0.bandwidth" not in machine.notes
    found = machine.sharing
    assert found.half_duplex == {1}
    assert dict(found.sends) == {HOST: 3e10}
    assert dict(found.receives) == {}
    assert on_machine(MACHINE, {}) == MACHINE


def test_a_driver_that_is_known_to_carry_one_direction_at_a_time() -> None:
    machine = replace(MACHINE, devices=(CPU, *(replace(gpu, platform="NVIDIA CUDA") for gpu in GPUS)))
    assert on_machine(machine, {}).sharing.half_duplex == {g.memory for g in GPUS}
    measured = {identity(machine.devices[1]): {"up_bandwidth": 2e10, "down_bandwidth": 2e10, "both_ways": 3.9e10}}
    assert 1 not in on_machine(machine, measured).sharing.half_duplex
    assert on_machine(MACHINE, {}).sharing.half_duplex == frozenset()


def test_transfers_of_real_runs_correct_what_was_measured() -> None:
    seen = ObservedLinks()
    for rate in (2e9, 4e10, 5e10, 4.5e10):  # the first one found new memory
        seen.observe(GPUS[0], True, 1 << 24, (1 << 24) / rate)
    seen.observe(GPUS[0], True, 1 << 10, 1.0)  # too small to tell
    seen.observe(GPUS[0], False, 1 << 24, 1.0)  # one alone is not enough
    machine = on_machine(MACHINE, seen.added_to({}))
    assert machine.link(HOST, 1).bandwidth == pytest.approx(4.25e10)
    assert machine.link(HOST, 1).latency == MACHINE.link(HOST, 1).latency
    assert machine.link(1, HOST) == MACHINE.link(1, HOST)
    assert machine.notes["host->gpu0.bandwidth"] == OBSERVED
    measured = {identity(GPUS[0]): {"up_bandwidth": 3e10}}
    assert on_machine(MACHINE, measured).link(HOST, 1).bandwidth == 3e10
    assert on_machine(MACHINE, seen.added_to(measured)).link(HOST, 1).bandwidth == pytest.approx(4.25e10)
    assert dict(seen.values()) == {identity(GPUS[0]): {"up_observed": pytest.approx(4.25e10)}}


def test_small_transfers_of_real_runs_tell_latencies() -> None:
    seen = ObservedLinks()
    for seconds in (9e-5, 4e-6, 5e-6):
        seen.observe(GPUS[0], False, TINY, seconds)
        seen.observe(GPUS[0], True, TINY + 1, seconds)  # neither one nor the other
    machine = on_machine(MACHINE, seen.added_to({}))
    assert machine.link(1, HOST).latency == 5e-6
    assert machine.link(1, HOST).bandwidth == MACHINE.link(1, HOST).bandwidth
    assert machine.link(HOST, 1) == MACHINE.link(HOST, 1)
    assert machine.notes["gpu0->host.latency"] == OBSERVED
    measured = {identity(GPUS[0]): {"down_bandwidth": 3e10, "down_latency": 2e-5}}
    corrected = on_machine(MACHINE, seen.added_to(measured)).link(1, HOST)
    assert (corrected.bandwidth, corrected.latency) == (3e10, 5e-6)


def test_what_enqueuing_takes_is_learned_from_runs() -> None:
    seen = ObservedLinks()
    for seconds in (9e-5, 4e-6, 5e-6):
        seen.enqueued(CPU, False, seconds)
        seen.enqueued(GPUS[0], True, 2 * seconds)
    cpu, gpu, other = on_machine(MACHINE, seen.added_to({})).devices
    assert (cpu.enqueuing, cpu.enqueuing_copy) == (5e-6, 0.0)
    assert (gpu.enqueuing, gpu.enqueuing_copy) == (0.0, 1e-5)
    assert other == MACHINE.devices[2]


def test_a_handover_is_what_hurries_not_what_waits_for_its_turn() -> None:
    seen = ObservedLinks()
    assert seen.handover(1.0) == 1.0
    for _ in range(3):
        seen.handed_over([0.039, 6e-5, 0.02])  # most of what came was not needed yet
        seen.handed_over([])
    assert seen.handover(1.0) == pytest.approx(6e-5)
    for _ in range(13):
        seen.handed_over([0.039])  # runs in which nothing was waited for
    assert seen.handover(1.0) == pytest.approx(0.039)
    for _ in range(8):
        seen.handed_over([7e-5, 0.5])
    assert seen.handover(1.0) == pytest.approx(7e-5)


def test_bytes_go_by_a_link_of_their_own_or_by_the_host() -> None:
    devices = tuple(Device(f"d{m}", "gpu", memory=m) for m in (1, 2, 3))
    where = Machine(devices, (Link(1, 2, 1.0, 0.0), Link(3, 0, 1.0, 0.0)))
    assert where.routes.between(1, 2) == ((1, 2),)
    assert where.routes.between(2, 1) == ((2, 0), (0, 1)), "the other direction has none"
    assert where.routes.between(1, 3) == ((1, 0), (0, 3))
    assert where.routes.between(0, 3) == ((0, 3),), "all are linked with the host"
    assert where.routes.between(3, 0) == ((3, 0),)
    assert where.routes.between(2, 2) == ()


def test_a_chunk_is_the_smallest_that_loses_little_and_takes_no_longer_than_a_reaction() -> None:
    for bandwidth in (1e8, 3e9, 1e10, 5e10, 1e12):
        for each in (1e-7, 2e-6, 1e-4):  # seconds that a chunk takes beside its bytes
            rates = {n: n / (each + n / bandwidth) for n in SIZES}
            found = smallest(rates)
            assert found in SIZES
            lost = 1.0 - rates[found] / max(rates.values())
            is_bound = 2 * found / max(rates.values()) > 2e-3
            assert lost <= 0.03 or is_bound
            assert found == SIZES[0] or is_bound or 1.0 - rates[found // 2] / max(rates.values()) > 0.03
            assert found == SIZES[0] or found / max(rates.values()) <= 2e-3


def test_transfers_of_real_runs_tell_chunks_once() -> None:
    def observe(seen: ObservedLinks, sizes: tuple[int, ...], each: float) -> None:
        for nbytes in sizes * 8:
            seen.observe(GPUS[0], True, nbytes + 4096, each + nbytes / 5e10)
            seen.observe(GPUS[0], True, nbytes // 64, 1e-5)

    seen = ObservedLinks()
    observe(seen, (1 << 20, 1 << 22), 2e-6)
    assert on_machine(MACHINE, seen.added_to({})).link(HOST, 1).chunk == 0, "no large ones to compare with"
    observe(seen, (1 << 23,), 2e-6)
    machine = on_machine(MACHINE, seen.added_to({}))
    assert machine.link(HOST, 1).chunk == 1 << 22
    assert machine.notes["host->gpu0.chunk"] == OBSERVED
    assert machine.link(1, HOST).chunk == 0
    observe(seen, (1 << 20, 1 << 22, 1 << 23), 1e-12)
    assert on_machine(MACHINE, seen.added_to({})).link(HOST, 1).chunk == 1 << 22, "it is found once"
    kept = {subject: dict(values) for subject, values in seen.values()}
    assert ObservedLinks().added_to(kept) == kept
    assert on_machine(MACHINE, seen.added_to({identity(GPUS[0]): {"up_chunk": 1 << 20}})).link(HOST, 1).chunk == 1 << 20


def test_a_machine_goes_by_the_link_that_needs_the_largest_chunks_and_by_the_slowest() -> None:
    def chunk(*links: tuple[int, int, float, int]) -> int:
        return chunk_of(replace(MACHINE, links=tuple(Link(a, b, rate, 1e-5, n) for a, b, rate, n in links)))

    assert chunk((0, 1, 1e10, 0), (1, 0, 1e10, 0)) == 0
    assert chunk((0, 1, 1e10, 1 << 20), (1, 0, 1e10, 1 << 22), (0, 2, 1e10, 0), (1, 2, 1e3, 1 << 26)) == 1 << 22
    assert chunk((0, 1, 1e10, 1 << 23), (1, 0, 6e8, 1 << 20)) == 1 << 20
    assert chunk((0, 1, 1e3, 1 << 23)) == SIZES[0]
