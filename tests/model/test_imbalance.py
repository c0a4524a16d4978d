"""How far shares were from what was planned: only what several runs in a row say."""

from __future__ import annotations

from manycl.machine import DeviceIndex
from manycl.model.history.history import Imbalances
from manycl.utilities.kept import ENOUGH, MANY

A, B, C = (DeviceIndex(d) for d in range(3))


def test_what_every_one_of_the_last_runs_says_counts() -> None:
    known = Imbalances()
    assert known.of("k", [A, B]) == 0.0
    for took in (2.0, 3.0, 2.5):
        assert known.of("k", [A, B]) == 0.0
        known.note("k", {A: 1.0, B: took})
    assert known.of("k", [A, B]) == known.of("k", [B, A]) == 1.0
    assert known.of("other", [A, B]) == 0.0
    known.note("k", {A: 1.0, B: 0.9})  # it is over
    assert known.of("k", [A, B]) == 0.0
    for _ in range(ENOUGH):
        known.note("k", {A: 1.5, B: 1.0})  # now it is the other one
    assert known.of("k", [A, B]) == 0.5


def test_what_disturbs_now_this_and_then_that_device_does_not_count() -> None:
    known = Imbalances()
    for run in range(10):
        known.note("k", {A: 1.0 + run % 2, B: 2.0 - run % 2})
        assert known.of("k", [A, B]) == 0.0


def test_devices_that_did_not_take_part_are_not_judged() -> None:
    known = Imbalances()
    for _ in range(ENOUGH):
        known.note("k", {A: 1.0, B: 2.0})
        known.note("alone", {A: 3.0})
        known.note("zero", {A: 0.0, B: 1.0})
    assert known.of("k", [A, B, C]) == known.of("k", [A, C]) == 0.0
    assert known.of("k", [A]) == known.of("alone", [A, B]) == known.of("zero", [A, B]) == 0.0


def test_launches_that_ran_long_ago_are_forgotten() -> None:
    known = Imbalances()
    for _ in range(ENOUGH):
        known.note("old", {A: 1.0, B: 2.0})
    for number in range(MANY):
        known.note(number, {A: 1.0, B: 2.0})
    assert known.of("old", [A, B]) == 0.0
