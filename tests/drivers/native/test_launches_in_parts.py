"""Launches that native devices are given in parts: beside the one before them, and ended early."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from manycl.drivers.native.driver import NativeDriver
from manycl.group_range import RangeParts
from tests.drivers.native.native_commands import Flag, Open, kernel, shared


def test_a_launch_runs_beside_the_one_before_it(open_driver: Open) -> None:
    """When all of that has begun; and is complete after it."""
    driver = open_driver(2)
    queue, other, counts = driver.queue(timed=True), driver.queue(timed=True), np.zeros(1000, np.uint32)
    flag, once = Flag(driver, queue), kernel(driver, "once", shared(driver, counts), 0)
    second = driver.launch_in_parts(queue, once, (1000,), (1,), None, None, RangeParts(0, (1000,)), is_beside=True)
    third = driver.launch_in_parts(queue, once, (1000,), (1,), None, [second], RangeParts(0, (1000,)), is_beside=True)
    while counts.min() < 1:
        time.sleep(1e-3)
    behind = driver.launch(other, once, (1000,), (1,), None, [second])
    last = driver.launch(queue, once, (1000,), (1,), None, None)
    time.sleep(0.02)
    assert (counts == 1).all(), "what waits for it waits for what is before it"
    assert not any(driver.done(event) for event in (flag.event, second, third, behind, last))
    flag.let_go()
    driver.wait(last)
    driver.wait(behind)
    assert (counts == 4).all()
    assert driver.times(second)[1] < driver.times(flag.event)[1] <= driver.times(third)[0] + 2e-9


def test_a_launch_that_has_not_begun_ends_with_its_first_part(open_driver: Open) -> None:
    driver = open_driver(2)
    queue, counts = driver.queue(timed=True), np.zeros(1000, np.uint32)
    flag, once = Flag(driver, queue), kernel(driver, "once", shared(driver, counts), 0)
    parts = RangeParts(0, (100, 400, 650, 1000))
    event = driver.launch_in_parts(queue, once, (1000,), (1,), None, None, parts)
    assert driver.shorten(event) == (1, 0.0)
    assert driver.shorten(event) is None, "it cannot be any shorter"
    behind = driver.launch(queue, once, (1000,), (1,), None, None)
    assert driver.shorten(flag.event) is None
    assert driver.shorten(behind) is None, "it has no parts"
    flag.let_go()
    driver.wait(event)
    driver.wait(behind)
    assert (counts[:100] == 2).all()
    assert (counts[100:] == 1).all()
    assert driver.shorten(event) is None, "it is complete"


@pytest.mark.parametrize("ns", [0, 300, 20_000])
def test_what_a_shortened_launch_leaves_is_run_by_another_one(driver: NativeDriver, ns: int) -> None:
    """Whenever it is shortened, each group runs once, and what comes behind it waits for it."""
    choose = random.Random(ns)
    queue, other = driver.queue(timed=True), driver.queue(timed=True)
    groups = 3000 if ns < 1000 else 100
    for turn in range(150):
        counts = np.zeros(groups, np.uint32)
        run = kernel(driver, "once", shared(driver, counts), ns)
        ends = sorted({*choose.sample(range(1, groups), choose.randrange(1, 9)), groups})
        event = driver.launch_in_parts(
            queue, run, (groups,), (1,), None, None, RangeParts(0, tuple(ends)), turn % 3 == 0
        )
        if turn % 2:
            wait_a_moment(choose.randrange(0, 2 * ns * groups // 1000 + 10))
        count, events = len(ends), [event]
        for _ in range(choose.randrange(1, 3)):
            found = driver.shorten(event)
            if found is not None:
                assert 1 <= found[0] <= count
                assert 0.0 <= found[1] <= ends[found[0] - 1] / ends[count - 1]
                count = found[0]
        if count < len(ends):
            rest = kernel(driver, "once", shared(driver, counts[ends[count - 1] :]), ns)
            events.append(driver.launch(other, rest, (groups - ends[count - 1],), (1,), None, None))
        last = driver.launch(queue, kernel(driver, "once", shared(driver, counts), 0), (groups,), (1,), None, events)
        driver.wait(last)
        assert (counts == 2).all()
        start, end = driver.times(event)
        assert start < end <= driver.times(last)[0] + 2e-9


def wait_a_moment(microseconds: int) -> None:
    until = time.perf_counter() + 1e-6 * microseconds
    while time.perf_counter() < until:
        pass


def test_only_the_last_dimension_is_shortened(open_driver: Open) -> None:
    """Groups run with dimension 0 fastest: what is behind some of them is no part along that."""
    driver = open_driver(2)
    queue, counts = driver.queue(timed=True), np.zeros(60, np.uint32)
    flag, once = Flag(driver, queue), kernel(driver, "once", shared(driver, counts), 0)
    across = driver.launch_in_parts(queue, once, (6, 10), (1, 1), None, None, RangeParts(0, (2, 6)))
    down = driver.launch_in_parts(queue, once, (6, 10), (1, 1), None, None, RangeParts(1, (3, 10)))
    assert driver.shorten(across) is None
    assert driver.shorten(down) == (1, 0.0)
    flag.let_go()
    driver.wait(down)
    assert counts.tolist() == [2] * 18 + [1] * 42
