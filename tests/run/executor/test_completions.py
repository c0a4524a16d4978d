"""What the engine hears: commands it watches itself, and what threads bring."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from manycl.api.program import Program
from manycl.api.queue import Queue
from manycl.drivers.driver import DriverError
from manycl.run.commands.backend import Done, Failed
from manycl.run.executor.run_state import Awaited, Completions, wait_for_all


class Event:
    """Complete (or failed) from the n-th look on."""

    def __init__(self, looks: int, fault: str = "") -> None:
        self.left = looks
        self.fault = fault


class Driver:
    def done(self, event: Event) -> bool:
        event.left -= 1
        if event.left < 0 and event.fault:
            raise DriverError(event.fault)
        return event.left < 0


def completions() -> Completions:
    return Completions(itertools.count(1.0).__next__)


def watch(found: Completions, device: int, queue: int, tokens: list[int], event: Any) -> None:
    driver: Any = Driver()
    found.watch((device, queue), tokens, driver, event)


def test_a_queue_is_reported_in_order_and_queues_independently() -> None:
    found = completions()
    watch(found, 0, 0, [1], Event(40))
    watch(found, 0, 0, [2], Event(0))  # ended, but behind 1
    watch(found, 1, 0, [3, 4], Event(3))
    first = found.wait()
    assert [r.token for r in first] == [3, 4]
    later = found.wait()
    assert [r.token for r in later] == [1, 2]
    assert all(isinstance(r, Done) for r in (*first, *later))


def test_a_failed_command_is_reported_once() -> None:
    found = completions()
    watch(found, 0, 0, [7, 8], Event(2, "it burns"))
    (report,) = found.wait()
    assert isinstance(report, Failed)
    assert report.token == 7
    assert report.message == "it burns"


@pytest.mark.parametrize("watched", [False, True])
def test_what_threads_bring_is_heard_of(watched: bool) -> None:
    found = completions()
    if watched:
        watch(found, 0, 0, [1], Event(10**9))
    threading.Timer(0.02, lambda: found.put(Done(5, 0.0))).start()
    assert found.wait() == [Done(5, 0.0)]


@pytest.mark.parametrize("watched", [False, True])
def test_a_wait_that_has_an_end_ends_without_a_report(watched: bool) -> None:
    found = Completions(time.perf_counter)
    if watched:
        watch(found, 0, 0, [1], Event(10**9))
    until = time.perf_counter() + 0.01
    assert found.wait(until) == []
    assert time.perf_counter() >= until
    found.put(Done(5, 0.0))
    assert found.wait(time.perf_counter() + 60.0) == [Done(5, 0.0)], "at once"


def test_a_host_function_alone_runs_on_the_callers_thread_and_can_be_interrupted() -> None:
    with Queue("cpu/2#0") as queue:
        array = queue.zeros(4, "int32")
        threads: list[int] = []
        queue.call(lambda a: threads.append(threading.get_ident()), array)
        queue.finish()
        assert threads == [threading.get_ident()]

        def stop(a: Any) -> None:
            raise KeyboardInterrupt

        queue.call(stop, array)
        with pytest.raises(KeyboardInterrupt):
            queue.finish()
        queue.call(lambda a: threads.append(0), queue.zeros(4, "int32"))
        queue.finish()
        assert threads[-1] == 0


def test_a_run_is_forgotten_with_its_events_when_others_have_come() -> None:
    """Not by the next garbage collection of all that there is: ten thousand events may hang on it."""
    with Queue("cpu/2#0", policy="heft") as queue:
        array = queue.zeros(4, "int32")
        program = Program("kernel void up(global int *x) { x[get_global_id(0)] += 1; }")
        runs = []
        gc.disable()
        try:
            for _ in range(3):
                program.up(queue, (4,), None, array)
                queue.finish()
                runs.append(weakref.ref(queue.session.backend.run))
            assert runs[0]() is None
        finally:
            gc.enable()


@pytest.mark.parametrize(("faults", "told"), [(["", "", ""], None), (["", "it burns", "it leaks"], (1, "it burns"))])
def test_the_first_failure_is_told_once_all_have_ended(faults: list[str], told: tuple[int, str] | None) -> None:
    waited: list[str] = []

    def wait(fault: str) -> None:
        waited.append(fault)
        if fault:
            raise DriverError(fault)

    lanes = SimpleNamespace(is_interruptible=False, watched=False, driver=SimpleNamespace(wait=wait))
    run: Any = SimpleNamespace(lanes=[lanes], now=lambda: 0.5, number=3)
    failure = wait_for_all(run, [Awaited(0, 0, token, fault) for token, fault in enumerate(faults)], at_once=True)
    assert failure == (told and Failed(told[0], 0.5, told[1], 3))
    assert waited == faults
