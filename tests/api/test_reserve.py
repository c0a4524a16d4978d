"""Queues leave devices that other processes reserve, and use them again, with the right results at any time."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import manycl as mc
from manycl.drivers.choice import chosen_devices
from manycl.errors import DeviceError, ManyclError
from manycl.reservations.register import reservations
from manycl.utilities.runtime_folder import runtime_folder

KILLS = 6
COMPUTE = """
import sys, numpy as np, manycl as mc
devices, mode = sys.argv[1:3]
program = mc.Program("__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }"
    "__kernel void slow(__global int *x, int n) {"
    " volatile int v = 0; for (int i = 0; i < n; i++) v += i; x[get_global_id(0)] += 1; }")
queue = mc.Queue(devices)
n = 1 << 12
x = queue.zeros(n, np.int32)
done = 0
print("ready", flush=True)
while True:
    if mode == "slow":
        program.slow(queue, (n,), (64,), x, np.int32(20000))
        done += 1
    else:
        for _ in range(50):
            program.inc(queue, (n,), (64,), x)
        done += 50
    if done % 7 or mode == "slow":
        queue.finish()
    found = x.get()
    assert (found == done).all(), (done, found)
    print(done, ",".join(sorted(queue.away)), flush=True)
"""
TURNS = """
import sys, time, manycl as mc
usual = sys.getswitchinterval()
with mc.Queue(sys.argv[1]) as queue:
    print("ready", flush=True)
    for _ in sys.stdin:
        for _ in range(2000):  # whoever has reserved has gone on: the listener has heard
            if sys.getswitchinterval() == usual:
                break
            time.sleep(0.005)
        print(sys.getswitchinterval() == usual, flush=True)
"""
HOLD = """
import sys, time, manycl as mc
with mc.reserve(sys.argv[1], priority=int(sys.argv[2])) as held:
    print("holds", flush=True)
    sys.stdin.read()
    assert held.in_force
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "run"
    base.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    return runtime_folder()


class Program:
    """A process that says something line by line."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, env=os.environ | environment)
        self._left = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """What it says next; empty when it has ended."""
        while b"\n" not in self._left:
            assert self.process.stdout is not None
            found = os.read(self.process.stdout.fileno(), 1 << 16)
            if not found:
                return ""
            self._left += found
        line, _, self._left = self._left.partition(b"\n")
        return line.decode()

    def heard(self) -> list[str]:
        """What it has said by now, without waiting for more."""
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], 0)[0]:
            found = os.read(self.process.stdout.fileno(), 1 << 16)
            if not found:
                break
            self._left += found
        *lines, self._left = self._left.split(b"\n")
        return [line.decode() for line in lines]

    def busy(self) -> None:
        """It computes."""
        for _ in range(5):
            assert self.said()

    def end(self) -> None:
        """Its input ends, and it does."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


Start = Callable[..., Program]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one of the processes has compiled, the next ones find."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def start(folder: Path, cache: str) -> Iterator[Start]:
    made: list[Program] = []

    def program(text: str, *arguments: str, **environment: str) -> Program:
        made.append(
            Program([sys.executable, "-W", "ignore", "-c", text, *arguments], {"MANYCL_CACHE": cache} | environment)
        )
        return made[-1]

    yield program
    for one in made:
        one.kill()


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="parts need a core each")


@pytest.mark.parametrize("mode", ["slow", "quick"])
def test_the_only_device_stands_still_while_it_is_reserved(folder: Path, start: Start, mode: str) -> None:
    computing = start(COMPUTE, "cpu", mode)
    computing.busy()
    for _ in range(3):
        with mc.reserve("cpu") as held:
            assert held.in_force
            assert held.is_free
            computing.heard()
            time.sleep(0.2)
            assert len(computing.heard()) <= 1  # what had ended, and was not told yet
        computing.busy()


def test_turns_of_threads_are_as_long_as_before(folder: Path, start: Start) -> None:
    program = start(TURNS, "cpu")
    assert program.said() == "ready"
    for _ in range(2):
        with mc.reserve("cpu"):
            pass
        assert program.process.stdin is not None
        program.process.stdin.write(b"\n")
        program.process.stdin.flush()
        assert program.said() == "True"


@two_cores
@pytest.mark.parametrize("mode", ["slow", "quick"])
def test_a_queue_with_other_devices_goes_on_with_these(folder: Path, start: Start, mode: str) -> None:
    computing = start(COMPUTE, "cpu/2", mode)
    computing.busy()
    for part in ("cpu/2#0", "cpu/2#1", "cpu/2#0"):
        with mc.reserve(part) as held:
            assert held.is_free
            away = f"cpu0.{part[-1]}"
            while away not in computing.said():
                pass
            computing.busy()
        while "cpu0" in computing.said():
            pass
    with mc.reserve("cpu"):
        computing.heard()
        time.sleep(0.1)
        assert len(computing.heard()) <= 1
    computing.busy()


@pytest.mark.parametrize("devices", ["cpu", "opencl"])
def test_a_queue_that_begins_while_its_device_is_reserved_waits(folder: Path, start: Start, devices: str) -> None:
    holder = start(HOLD, devices, "0")
    assert holder.said() == "holds"
    waiting, other = start(COMPUTE, devices, "quick"), start(COMPUTE, devices, "quick", MANYCL_RESERVED="ignore")
    assert waiting.said() == other.said() == "ready"
    other.busy()
    other.kill()
    assert waiting.heard() == []
    holder.end()
    waiting.busy()


@two_cores
def test_a_queue_that_begins_uses_the_other_devices(folder: Path, start: Start) -> None:
    holder = start(HOLD, "cpu/2#1", "0")
    assert holder.said() == "holds"
    computing = start(COMPUTE, "cpu/2", "quick")
    assert computing.said() == "ready"
    for _ in range(5):
        assert computing.said().endswith("cpu0.1")
    holder.end()
    while "cpu0" in computing.said():
        pass


def test_who_is_killed_holds_nothing_and_keeps_nobody_waiting(folder: Path, start: Start) -> None:
    choose = random.Random(3)
    computing = start(COMPUTE, "cpu", "quick")
    computing.busy()
    for turn in range(KILLS):
        holder = start(HOLD, "cpu", "0")
        if turn % 2:
            assert holder.said() == "holds"
        time.sleep(choose.random() * 0.02)
        holder.kill()
        computing.heard()
        computing.busy()
    holder = start(HOLD, "cpu", "0")
    assert holder.said() == "holds"
    computing.kill()  # while it stands still
    holder.end()
    with mc.reserve("cpu") as held:
        assert held.is_free
    assert reservations() == []
    assert os.listdir(folder) == []


def test_a_reservation_in_force_is_no_hindrance_to_its_own_process(folder: Path, start: Start) -> None:
    program = mc.Program("__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }")
    with mc.Queue("cpu") as queue:
        x = queue.zeros(64, np.int32)
        with mc.reserve("cpu") as held, mc.reserve("cpu"):
            program.inc(queue, (64,), None, x)
            assert (x.get() == 1).all()
            child = start(COMPUTE, "cpu", "quick", **held.environment)
            assert child.said() == "ready"
            child.busy()
            with mc.Queue("cpu") as second:
                y = second.zeros(64, np.int32)
                program.inc(second, (64,), None, y)
                assert (y.get() == 1).all()
        assert not held.in_force


def test_a_higher_priority_stops_the_queues_of_a_lower_one(folder: Path, start: Start) -> None:
    program = mc.Program("__kernel void inc(__global int *x) { x[get_global_id(0)] += 1; }")
    with mc.reserve("cpu") as low, mc.Queue("opencl") as queue:
        x = queue.zeros(64, np.int32)
        program.inc(queue, (64,), None, x)
        assert (x.get() == 1).all()
        high = start(HOLD, "cpu", "1")
        assert high.said() == "holds"
        assert not low.in_force
        high.end()
        assert low.in_force
        program.inc(queue, (64,), None, x)
        assert (x.get() == 2).all()


def test_ctrl_c_ends_the_waiting_for_a_device(folder: Path, start: Start) -> None:
    holder = start(HOLD, "cpu", "0")
    assert holder.said() == "holds"
    for text, words in ((HOLD, ("cpu", "0")), (COMPUTE, ("cpu", "quick"))):
        waiting = start(text, *words)
        if text is COMPUTE:
            assert waiting.said() == "ready"
        else:
            while not any(r.pid == waiting.pid for r in reservations()):
                time.sleep(1e-3)
        time.sleep(0.1)
        while waiting.process.poll() is None:
            waiting.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert waiting.process.wait(60)
    assert [r.pid for r in reservations()] == [holder.pid]
    holder.end()


def test_devices_that_share_a_core_are_reserved_together() -> None:
    def resources(selection: str) -> frozenset[str]:
        return frozenset[str]().union(*(chosen.handle.resources for chosen in chosen_devices(selection)))

    whole = resources("cpu")
    assert whole
    assert whole == resources("cpu/2")
    assert resources("opencl") == resources("opencl/2") >= whole  # (of many cores, native devices have four in tests)
    for kind in ("cpu", "opencl"):
        first, second, both = resources(f"{kind}/2#0"), resources(f"{kind}/2#1"), resources(kind)
        assert first | second == both
        assert first < both or len(both) == 1
    if len(whole) > 1:
        assert not resources("cpu/2#0") & resources("cpu/2#1")


def test_waiting_ends_in_time_and_says_for_whom(folder: Path) -> None:
    waits = "import manycl as mc\nwith mc.reserve('cpu', timeout=0.2): pass"
    with mc.reserve("cpu"):
        ended = subprocess.run([sys.executable, "-c", waits], capture_output=True, text=True)
    whom = f"process {os.getpid()}, which has reserved cpu until it ends"
    assert ended.returncode == 1
    assert f"waiting for {whom}" in ended.stderr
    assert f"not free in time: waited for {whom}" in ended.stderr
    assert not reservations()


def test_what_cannot_be_is_refused(folder: Path) -> None:
    with pytest.raises(DeviceError, match="there is no such device"):
        mc.reserve("gpu77")
    with pytest.raises(ManyclError, match="reserved for"):
        mc.reserve("cpu", seconds=0)
    held = mc.reserve("cpu", seconds=30)
    assert not held.in_force
    with held, pytest.raises(ManyclError, match="reserved already"), held:
        pass
    assert "not reserved" in repr(held)
