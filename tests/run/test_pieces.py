"""Pieces become longer as long as that makes a device faster, and no longer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.machine import DeviceIndex
from manycl.plan.plan import Plan
from manycl.run.member import Terms
from manycl.run.pieces import BETTER, PART, SETTLED, PieceLength, settled_pieces
from manycl.run.stealing import Stealing

DEVICE = DeviceIndex(0)
SHORT = 0.75e-3


def rate(seconds: float, full: float) -> float:
    """Groups a second of a device that pieces fill which take so long there (``full``)."""
    return 1e6 * min(1.0, seconds / full)


def settled(full: float, total: float) -> PieceLength:
    """After any number of pieces of a launch that takes so long when they fill the device."""
    pieces, now = PieceLength(SHORT, 2, round(total * 1e6)), 0.0
    for _ in range(200):
        groups = max(1, round(pieces.seconds * rate(pieces.seconds, full)))
        now += groups / rate(pieces.seconds, full)
        pieces.end(groups, now)
        assert 2 * pieces.seconds <= max(PART * total / rate(pieces.seconds / 2, full) * 1e6 * 1.01, 2 * SHORT)
    return pieces


@given(st.floats(0.1e-3, 100e-3), st.floats(5e-3, 2.0))
def test_pieces_are_as_long_as_it_pays(full: float, total: float) -> None:
    pieces = settled(full, total)
    assert pieces.is_settled
    if pieces.seconds > SHORT:  # it has paid
        assert rate(pieces.seconds, full) >= 0.99 * BETTER * rate(pieces.seconds / 2, full)
    takes = total * 1e6 / rate(pieces.seconds, full)
    if 4 * pieces.seconds <= 0.99 * PART * takes:  # more does not
        assert rate(2 * pieces.seconds, full) <= 1.01 * BETTER * rate(pieces.seconds, full)


def test_what_is_settled_stays() -> None:
    pieces = PieceLength(5e-3, 2, 10**6, is_settled=True)
    for n in range(100):
        pieces.end(1 + n, 1.0 + n)
    assert pieces.seconds == 5e-3


def test_packets_are_no_longer_than_pieces() -> None:
    """Of a launch of 200 ms, on a device that is all alone, and as fast as foreseen."""
    total, cells = 40_000, 400
    each = 0.2 / total
    pieces = PieceLength(SHORT, 2, total)
    terms = {DEVICE: Terms(each, 20e-6, pieces=pieces)}
    stealing = Stealing([total // cells] * cells, {DEVICE: (0, cells)}, terms)
    given_, now, sizes = [], 0.0, []
    while not stealing.is_over:
        while (packet := stealing.take(DEVICE, now)) is not None:
            given_.append(stealing.groups(packet.first, packet.last))
        assert 0 < len(given_) <= 2
        sizes.append(given_[0])
        now += given_.pop(0) * each
        stealing.ended(DEVICE, now)
    assert sum(sizes) == total
    assert max(sizes) * each <= 2.6 * SHORT  # longer ones are tried once
    assert max(sizes[20:]) * each <= 1.3 * SHORT
    assert len(sizes) < 2 * 0.2 / SHORT
    assert stealing.settled(DEVICE) == (SHORT, pytest.approx(1 / each, rel=0.1))


def test_plans_say_what_was_settled() -> None:
    plan = Plan((), "p", ("d0",), 0.0, details={SETTLED: ((3, DEVICE, 0.5),)})
    assert settled_pieces(Plan.from_json(plan.to_json())) == settled_pieces(plan) == {(3, DEVICE): 0.5}
    assert settled_pieces(Plan((), "p", ("d0",), 0.0)) == {}
