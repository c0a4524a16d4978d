"""Ctrl-C: at random moments, of runs that do not end, and of work that was enqueued far ahead."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

import numpy as np
import pytest

import manycl as mc
from manycl.errors import ResultError
from manycl.utilities import interrupts
from manycl.utilities.interrupts import Uninterrupted, interruptible
from tests import environment

N = 64
SPIN = "__kernel void spin(__global volatile int *a) { while (a[0] == 0) ; a[1] = 5; }"
PROGRAM = mc.Program(f"{SPIN}\n__kernel void inc(__global int *x) {{ x[get_global_id(0)] += 1; }}")

pytestmark = [
    pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="Ctrl-C is the main thread's"),
    # Ctrl-C may hit a finalizer of the threading module, which swallows it
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_arrays_are_right_or_lost_and_the_next_run_is_right() -> None:
    """In a process of its own: a press may hit whatever Python does at that moment, pytest's own code too."""
    seed = SystemRandom().randrange(1 << 32)
    command = [sys.executable, "-m", "tests.run.faults.interrupts", "2", str(seed), "5"]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, f"seed {seed}: {ended.stdout}{ended.stderr}"
    assert ended.stdout.count("right") == 5


ALONE = "MANYCL_TEST_ALONE"
"""An environment variable: this process is one that a press may end."""
PRESSED = (
    "test_a_run_that_does_not_end_is_left_and_waited_for_by_the_next",
    "test_what_is_not_to_be_interrupted_hears_of_it_where_it_may",
)
"""The tests that may."""


@functools.cache
def _alone() -> subprocess.CompletedProcess[str]:
    """Run these in a process of their own, twice if need be: a late press hits pytest's own code,
    and would end the process that runs all other tests."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(f"{__file__}::{name}" for name in PRESSED),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {ALONE: "1"}
    for _ in range(2):
        ended = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
        if not ended.returncode:
            break
    return ended


def is_alone() -> bool:
    """Whether the present test is in a process of its own; else it has been."""
    if os.environ.get(ALONE):
        return True
    ended = _alone()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{len(PRESSED)} passed" in ended.stdout
    return False


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def until(true: Callable[[], bool], end: Callable[[], None]) -> None:
    """``end``: what is done before it is given up."""
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    end()
    raise AssertionError("it did not come to that in a minute")


def pressed_until(true: Callable[[], bool], end: Callable[[], None]) -> None:
    """Press Ctrl-C, and again where a finalizer seems to have swallowed it."""
    for _ in range(3):
        press()
        for _ in range(1000):
            if true():
                return
            time.sleep(0.01)
    until(true, end)


def test_a_run_that_does_not_end_is_left_and_waited_for_by_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    if not is_alone():
        return
    with mc.Queue("cpu/2#0", policy="in_order") as queue:
        a, b = queue.zeros(N, np.int32), queue.zeros(N, np.int32)
        PROGRAM.inc(queue, (N,), (16,), b)
        queue.finish()
        spinning = queue.session.backend.memory.host(a.buffer.key).view(np.int32)
        said: list[str] = []

        def told(words: str) -> bool:
            said.append(capfd.readouterr().err)
            return words in "".join(said)

        def twice() -> None:
            until(lambda: interrupts._innermost is not None, end)  # the main thread waits, and notes Ctrl-C
            pressed_until(lambda: told("waiting for kernel spin on cpu0.0; Ctrl-C leaves it running"), end)
            press()

        def end() -> None:
            spinning[0] = 1  # or the test would wait for ever

        PROGRAM.spin(queue, (1,), (1,), a)
        PROGRAM.inc(queue, (N,), (16,), b)
        thread = threading.Thread(target=twice)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            queue.finish()
        thread.join()
        for lost in (a, b):
            with pytest.raises(ResultError, match="stopped by KeyboardInterrupt"):
                lost.get()
        assert spinning[0] == 0, "it still runs"

        def once() -> None:
            until(lambda: told("still waiting for kernel spin on cpu0.0, which an interrupted run has left"), end)
            press()

        def release() -> None:
            until(lambda: told("still waiting for kernel spin on cpu0.0, which an interrupted run has left"), end)
            end()

        for helper, ends in ((once, False), (release, True)):
            said.clear()
            thread = threading.Thread(target=helper)
            thread.start()
            if ends:
                b.set(np.zeros(N, np.int32))
            else:
                with pytest.raises(KeyboardInterrupt):
                    b.set(np.zeros(N, np.int32))
            thread.join()
        PROGRAM.inc(queue, (N,), (16,), b)
        assert (b.get() == 1).all()


def test_the_command_line_says_what_it_waits_for_and_how_to_leave(tmp_path: Path) -> None:
    (tmp_path / "spin.cl").write_text(SPIN)
    kernel = {"name": "spin", "global": 1, "local": 1, "args": ["a"]}
    buffers = {"a": {"type": "int", "shape": N}}
    specification = {"manycl": 1, "source": "spin.cl", "buffers": buffers, "kernels": [kernel]}
    (tmp_path / "spin.json").write_text(json.dumps(specification))
    command = [sys.executable, "-m", "manycl", "run", str(tmp_path / "spin.json"), "--devices", "cpu/2"]
    environment = os.environ | {"MANYCL_DEBUG": "3"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment)
    assert process.stderr is not None
    guard = threading.Timer(120, process.kill)
    guard.start()
    said = []
    for line in process.stderr:
        said.append(line)
        if "Run(token=0" in line or "Ctrl-C leaves it" in line:
            process.send_signal(signal.SIGINT)
    guard.cancel()
    process.stderr.close()
    assert process.wait() == 130, "".join(said)
    assert "stopping; waiting for kernel spin on cpu0." in "".join(said)
    assert said[-1] == "manycl: interrupted\n"


def test_what_is_not_to_be_interrupted_hears_of_it_where_it_may() -> None:
    if not is_alone():
        return
    reached: list[str] = []

    def inside() -> None:
        with Uninterrupted():
            press()
            reached.append("held")
            with interruptible:
                reached.append("never")

    with pytest.raises(KeyboardInterrupt):
        inside()
    assert reached == ["held"]

    def afterwards() -> None:
        with Uninterrupted():
            with interruptible, Uninterrupted():  # as a host function's own run is
                press()
                reached.append("nested")
            reached.append("never")

    with pytest.raises(KeyboardInterrupt):
        afterwards()
    assert reached == ["held", "nested"]
    before = signal.getsignal(signal.SIGINT)
    with Uninterrupted():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before
