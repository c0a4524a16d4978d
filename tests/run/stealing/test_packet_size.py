"""Packets become larger as long as that makes a device faster, and no larger."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.run.stealing.packet_size import BETTER, PART, SETTLED, PacketSize, settled_packets
from manycl.run.stealing.work_stealing import WorkStealing
from manycl.run.stealing.worker import Terms
from tests.run.stealing.test_work_stealing import chunked

DEVICE = DeviceIndex(0)
SHORT = 0.75e-3
RATE = 1e6
"""Groups a second."""


def rate(groups: float, full: float) -> float:
    """Groups a second of a device that a packet of so many groups fills (``full``)."""
    return RATE * min(1.0, groups / full)


@given(st.floats(100, 100_000), st.integers(5000, 2_000_000))
def test_pieces_are_as_large_as_it_pays(full: float, total: int) -> None:
    first = max(1, round(SHORT * RATE))
    packets, now = PacketSize(SHORT, 2, total), 0.0
    for _ in range(200):  # of a launch that never ends
        groups = max(1, round(packets.groups or first))
        assert groups == first or 2 * groups <= max(PART * total, 4 * first)
        now += groups / rate(groups, full)
        packets.end(groups, now)
    assert packets.is_settled
    if packets.groups > first:  # it has paid
        assert rate(packets.groups, full) >= 0.99 * BETTER * rate(packets.groups / 2, full)
    if 4 * packets.groups <= 0.99 * PART * total:  # more does not
        assert rate(2 * packets.groups, full) <= 1.01 * BETTER * rate(packets.groups, full)


def test_what_is_settled_stays() -> None:
    packets = PacketSize(5e-3, 2, 10**6, 77.0, is_settled=True)
    for n in range(100):
        packets.end(1 + n, 1.0 + n)
    assert packets.groups == 77.0


def test_packets_are_no_longer_than_pieces() -> None:
    """Of a launch of 200 ms, on a device that is all alone, and as fast as foreseen."""
    total, chunks = 40_000, 400
    each = 0.2 / total
    packets = PacketSize(SHORT, 2, total)
    terms = {DEVICE: Terms(each, 20e-6, size=packets)}
    stealing = WorkStealing(chunked([total // chunks] * chunks, {DEVICE: (0, chunks)}), terms)
    given_, now, sizes = [], 0.0, []
    while not stealing.is_over:
        while (packet := stealing.take(DEVICE, now)) is not None:
            given_.append(stealing.groups(packet.first, packet.last))
        assert 0 < len(given_) <= 2
        sizes.append(given_[0])
        now += given_.pop(0) * each
        stealing.workers[DEVICE].end(now)
    assert sum(sizes) == total
    assert max(sizes) * each <= 2.6 * SHORT  # longer ones are tried once
    assert max(sizes[20:]) * each <= 1.3 * SHORT
    assert len(sizes) < 2 * 0.2 / SHORT
    assert packets.is_settled
    assert packets.groups == pytest.approx(sizes[30])


def test_plans_say_what_was_settled() -> None:
    plan = Plan((), "p", ("d0",), 0.0, details={SETTLED: ((3, DEVICE, 50.0),)})
    assert settled_packets(Plan.from_json(plan.to_json())) == settled_packets(plan) == {(3, DEVICE): 50.0}
    assert settled_packets(Plan((), "p", ("d0",), 0.0)) == {}
