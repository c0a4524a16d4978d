"""Processes that reserve, wait, use a device, leave it and take it again, killed at random times: nothing that they
leave keeps anybody from anything, and no two use the device at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import manycl as mc
from manycl.reservations.ear import ENDING, Ear, listeners, tell
from manycl.reservations.records import UNFINISHED
from manycl.utilities.runtime_folder import runtime_folder

ROUNDS = 100
STRESS = """
import fcntl, os, random, select, signal, sys, time
from manycl.reservations.ear import Ear
from manycl.reservations.hold import Hold
from manycl.reservations.register import LOOK_AGAIN
from manycl.reservations.records import Reservation, process, under
from manycl.reservations.records import held_by_others
from manycl.reservations.register import reservations
from manycl.utilities.runtime_folder import runtime_folder

# a file that is locked by who uses the device: by lockf, as such locks end before a killed process's files are closed
rounds, device = int(sys.argv[1]), sys.argv[2]
folder, r = runtime_folder(), random.Random(11)
signal.alarm(120)

def reserves(chance, one_time):
    while True:
        hold = Hold(Reservation("d", frozenset("a"), priority=0))
        hold.begin()
        handle = os.open(device, os.O_RDWR)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where somebody uses it
            time.sleep(chance.random() * 2e-3)
        finally:
            os.close(handle)
        hold.end()
        if one_time:
            return

def uses(chance):
    ear, poll, handle, waiting = Ear(folder), select.poll(), os.open(device, os.O_RDWR), []
    poll.register(ear, select.POLLIN)
    while True:
        waiting += ear.heard() or ()
        if held_by_others(reservations(), process(), under()):
            fcntl.lockf(handle, fcntl.LOCK_UN)
        else:
            fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as others that use it do
        if waiting:
            time.sleep(chance.random() * 1e-3)
        while waiting:
            os.close(waiting.pop())
        poll.poll(LOOK_AGAIN * 1e3)

def child(work, *arguments):
    seed = r.random()
    pid = os.fork()
    if not pid:
        signal.alarm(120)
        try:
            work(random.Random(seed), *arguments)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return pid

def ended(pid):
    _, status = os.waitpid(pid, 0)
    assert status in (0, signal.SIGKILL), f"it has ended with {status}"

for turn in range(rounds):
    there = [child(reserves, False) for _ in range(r.choice((1, 2)))]
    there += [child(uses) for _ in range(r.choice((0, 1, 2)))]
    r.shuffle(there)
    for pid in there[:-1]:
        time.sleep(r.random() * 6e-3)
        os.kill(pid, signal.SIGKILL)
    if turn % 2:  # with the last one still there
        time.sleep(r.random() * 6e-3)
        next_one = child(reserves, True)
        if r.random() < 0.5:
            ended(next_one)
            os.kill(there[-1], signal.SIGKILL)
        else:
            time.sleep(r.random() * 6e-3)
            os.kill(there[-1], signal.SIGKILL)
            ended(next_one)
    else:
        os.kill(there[-1], signal.SIGKILL)
        ended(child(reserves, True))
    for pid in there:
        ended(pid)
descriptors = len(os.listdir("/proc/self/fd"))
hold = Hold(Reservation("d", frozenset("a")))
hold.begin()
assert hold.is_in_force
hold.end()
assert len(os.listdir("/proc/self/fd")) == descriptors
assert os.listdir(folder) == [], os.listdir(folder)
print("right")
"""


def test_nothing_that_killed_processes_leave_keeps_anybody_waiting(tmp_path: Path) -> None:
    device, base = tmp_path / "device", tempfile.mkdtemp(prefix="manycl-killed-", dir=tmp_path)
    device.touch()
    words = [sys.executable, "-c", STRESS, str(ROUNDS), str(device)]
    done = subprocess.run(
        words, env=os.environ | {"XDG_RUNTIME_DIR": base}, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "right\n"
    assert done.stderr == ""


def test_who_listens_removes_what_killed_processes_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody ever reserves, too; those that are there hear nothing of it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", tempfile.mkdtemp(dir=tmp_path))
    folder = runtime_folder()
    there, gone = Ear(folder), [Ear(folder) for _ in range(3)]
    for one in gone:
        one._socket.close()  # as the kernel does
    (folder / f"1-2-3{ENDING}{UNFINISHED}").touch()
    assert len(listeners(str(folder))) == 4
    with mc.Queue("cpu"):
        names = os.listdir(folder)
        assert len(names) == 2
        assert there._path.name in names
        assert there.is_there
        assert there.heard() is None
        assert tell(str(folder), listeners(str(folder))) == []
        assert there.heard() == []
    there.close()
