"""What is given to a device as it is enqueued, on devices that do everything in the worst legal order, and of which one
may fail: random programs (``eager_programs.py``), and what was wrong once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random, SystemRandom
from unittest import mock

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ManyclError, ResultError
from manycl.graph.copies import Place
from manycl.run.session.session import Session
from tests import environment
from tests.drivers.test_mixed import FUNCTIONS, PROGRAM, on
from tests.run.streams.chaos_driver import FAULTS, Chaos, ChaosQueue, Fault, Kind, chaos_devices
from tests.run.streams.eager_programs import watched
from tests.run.streams.eager_state import Seen, Words

COUNT = int(os.environ.get("MANYCL_TEST_INTERLEAVINGS", "12"))
"""Programs for each fault."""
INTERRUPT = ["interrupt"]


@pytest.mark.parametrize("faults", [INTERRUPT, [fault for fault in FAULTS if fault not in INTERRUPT]], ids=" ".join)
def test_what_is_given_to_devices_at_once_is_right_or_unknown(faults: list[str]) -> None:
    """In a process of its own, as Ctrl-C is pressed there; all others in one more."""
    seed = SystemRandom().randrange(1 << 40)
    command = [sys.executable, "-m", "tests.run.streams.eager_programs", ",".join(faults), str(COUNT), str(seed)]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(f": {COUNT} seeds from {seed}, 0 failed") == len(faults)
    assert "given=0," not in ended.stdout, "nothing was given to a device at once"


# what went wrong once, each in few commands

N = 16
OWN = Kind()
PROCESS = Kind(has_own_process=True)
ALONE = Kind(is_polled=False, is_interruptible=True)


@contextmanager
def opened(*kinds: Kind) -> Iterator[tuple[Chaos, mc.Queue]]:
    """A queue on devices of these kinds, on which nothing goes wrong yet."""
    chaos = Chaos(Random(1), kinds, FUNCTIONS.functions)
    with chaos_devices(chaos), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with Session(remember=False) as session, mc.Queue(session=session) as queue:
            yield chaos, queue
            with suppress(ManyclError):
                queue.finish()
    assert not chaos.wrong


def words(queue: mc.Queue, first: int = 0, copy: bool = True) -> mc.Array:
    return queue.array(np.arange(first, first + N, dtype=np.uint32), copy=copy)


def inc(queue: mc.Queue, array: mc.Array) -> mc.Event:
    return PROGRAM.inc(queue, (N,), None, array, 7)


def after(first: int = 0, times: int = 1) -> Words:
    """What ``words`` has after so many times ``inc``."""
    value = np.arange(first, first + N, dtype=np.uint32)
    for _ in range(times):
        value = value * np.uint32(1664525) + np.uint32(7)
    return value


def test_launches_that_come_again_are_right() -> None:
    """By the launch cache, as many as a batch has and more."""
    seen = Seen()
    for kind in (OWN, ALONE, PROCESS, Kind(shares=True)):
        with opened(kind) as (_, queue), watched(seen, []):
            array = words(queue)
            for times in range(0, 900, 300):
                for _ in range(300):
                    inc(queue, array)
                assert (array.get() == after(times=times + 300)).all()
    assert seen.commands == 4 * 900
    assert seen.given < 4 * 20


@pytest.mark.parametrize("is_there", [False, True])
def test_a_device_that_takes_no_array_is_left_out(is_there: bool) -> None:
    """It is lost while it has nothing to do: what it is given next finds that, and what follows runs elsewhere.
    ``is_there``: whether it has memory for the array."""
    with opened(OWN, OWN) as (chaos, queue):
        array = words(queue)
        if is_there:
            inc(queue, array)
            array.set(np.arange(N, dtype=np.uint32))
        chaos.drivers[0].die()
        with pytest.raises(ManyclError, match="NOT_AVAILABLE"):
            inc(queue, array)
        inc(queue, array)
        assert (array.get() == after()).all()
        assert queue.devices == ("gpu1",)


def test_a_run_is_the_first_thing_that_a_lost_device_hears_of() -> None:
    with opened(PROCESS, PROCESS) as (chaos, queue):
        array = words(queue)
        chaos.drivers[0].die()
        queue.policy = "heft"
        inc(queue, array)
        queue.call(lambda x: np.copyto(x, x[::-1].copy()), array)
        assert (array.get() == after()[::-1]).all()


def test_what_the_host_wrote_beside_a_failure_is_unknown() -> None:
    for fails in (0, 1, 2):  # the command before it, the copy itself, or the command behind it
        with opened(ALONE) as (chaos, queue):
            array, other = words(queue), words(queue, 50)
            for _ in range(4):
                inc(queue, array)
                inc(queue, other)
                queue.catch_up()
            inc(queue, other)
            inc(queue, array)
            queue.catch_up()
            inc(queue, other)
            chaos.fault = Fault("fails", fails)
            assert queue.write_ahead(Place(array.buffer, 0, 16), np.zeros(16, np.uint8)), "the stream does not take it"
            inc(queue, other)
            with pytest.raises(ManyclError, match="failed"):
                queue.finish()
            with pytest.raises(ResultError, match="unknown"):
                array.get()
            array.set(np.arange(N, dtype=np.uint32))
            inc(queue, array)
            assert (array.get() == after()).all()


def test_a_read_behind_a_failure_says_so() -> None:
    """Though the copy itself succeeds: the device goes on."""
    with opened(ALONE) as (chaos, queue):
        array, out = words(queue), np.empty(16, np.uint8)
        chaos.fault = Fault("fails", 1, goes_on=True)
        inc(queue, array)
        inc(queue, array)
        event = queue.read_behind(array, Place(array.buffer, 0, 16), out)
        assert event is not None
        with pytest.raises(ManyclError, match="it has failed"):
            event.wait()
        with pytest.raises(ManyclError, match="it has failed"):
            queue.finish()


def test_what_the_host_lent_is_there_until_it_is_overwritten() -> None:
    """The device is lost before a result takes the place of contents that were not copied: another one needs them."""
    with opened(PROCESS, PROCESS) as (chaos, queue):
        array = words(queue, copy=False)
        inc(queue, array)
        chaos.drivers[0].die()
        assert (array.get() == after()).all()


@pytest.mark.parametrize("own_process", [False, True])
def test_nobody_goes_on_from_what_a_result_has_overwritten(own_process: bool) -> None:
    """The copy of a result fails, and has overwritten a part of what the host had: of what is left there, the other
    device cannot make the result."""
    with opened(Kind(has_own_process=own_process), OWN) as (chaos, queue):
        array = words(queue)
        chaos.fault = Fault("fails", 2)  # the upload, the kernel, the result
        inc(queue, array)
        with pytest.raises(ManyclError, match="gpu0"):
            array.get()
        with pytest.raises(ResultError, match="unknown"):
            array.get()
        array.set(np.arange(N, dtype=np.uint32))
        inc(queue, array)
        assert (array.get() == after()).all()
        assert queue.devices == ("gpu1",)


def test_an_eager_stream_ends_before_devices_get_other_numbers() -> None:
    """One queue finds a device lost while another has given it commands: these run elsewhere."""
    with opened(PROCESS, PROCESS) as (chaos, queue):
        kept, array = words(queue), words(queue, 50)
        inc(queue, kept)
        queue.finish()
        other = mc.Queue(session=queue.session)
        inc(other, array)
        assert other.enqueued.stream is not None
        chaos.drivers[0].die()
        with pytest.raises(ManyclError, match="cannot be brought"):
            kept.get()
        assert (array.get() == after(50)).all()


def test_a_command_may_have_begun_though_sending_it_has_failed() -> None:
    with opened(Kind(shares=True, has_own_process=True), OWN) as (chaos, queue):
        array, driver, lanes = words(queue), chaos.drivers[0], queue.session.backend.lanes[0]

        def lost(sent: ChaosQueue) -> None:
            sent.flush()
            driver.half(sent.sent[0])
            sent.sent[0].is_begun = driver.is_dead = True
            raise driver._lost(False)

        queue.policy = on(queue, 0)
        inc(queue, array)
        with mock.patch.object(lanes, "flush", lost), suppress(ManyclError):
            queue.finish()
        with suppress(ResultError):
            assert (array.get() == after()).all()


def test_what_a_lost_device_is_given_next_tells_what_was_lost_there() -> None:
    with opened(Kind(shares=True, has_own_process=True), OWN) as (chaos, queue):
        array, driver = queue.zeros(N, np.uint32, name="mine"), chaos.drivers[0]
        inc(queue, array)
        (sent,) = (command for of in driver.queues for command in of.sent)
        driver.half(sent)
        sent.is_begun = driver.is_dead = True
        for use in (lambda: inc(queue, array), array.get):
            with pytest.raises(ManyclError, match="it cannot go on without: mine: "):
                use()
        with pytest.raises(ResultError, match="unknown"):
            array.get()


def test_a_kept_plan_runs_on_other_arrays() -> None:
    """Whatever handles of memory are: those here have no truth value."""
    with opened(OWN, OWN) as (_, queue):
        value, by = np.arange(N, dtype=np.uint32), np.uint32(3)
        array = words(queue)
        right = (value * by + (value >> by)) * by + (value >> by)
        for _ in range(40):
            one, two = queue.empty(N, np.uint32), queue.empty(N, np.uint32)
            PROGRAM.mixup(queue, (N,), None, array, array, one, 3)
            PROGRAM.mixup(queue, (N,), None, one, array, two, 3)
            assert (two.get() == right).all()


def test_nothing_is_given_to_a_device_behind_a_failure_in_the_background() -> None:
    """What is enqueued before somebody is told of it does not run: it would find what the failed run has left."""
    with opened(OWN) as (_, queue):
        array, copied = words(queue), words(queue, 50)
        queue.session.directory.lose(array.buffer.key, "for a test")
        queue.call(lambda x: None, array)
        PROGRAM.mixup(queue, (N,), None, copied, copied, array, 3)
        queue.flush()
        reached = threading.Event()
        queue.background.submit(reached.set)
        reached.wait()
        inc(queue, copied)
        assert queue.enqueued.stream is None
        with pytest.raises(ResultError, match="for a test"):
            queue.finish()
        with pytest.raises(ResultError, match="did not run"):
            copied.get()
