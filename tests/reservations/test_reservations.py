"""Which reservations are in force, and what becomes of their files and sockets, whatever ends the processes."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manycl.errors import ManyclError
from manycl.reservations import ear as ears
from manycl.reservations.ear import Ear, listeners, tell
from manycl.reservations.hold import Hold
from manycl.reservations.records import (
    Reservation,
    for_children,
    held_by_others,
    in_force,
    in_order,
    parse,
    unexpired,
)
from manycl.reservations.register import reservations
from manycl.utilities.runtime_folder import runtime_folder

TURNS = 200
KILLS = 20
HOLDER = """
import sys, time
from manycl.reservations.hold import Hold
from manycl.reservations.records import Reservation
hold = Hold(Reservation("a device", frozenset(sys.argv[1].split(",")), priority=int(sys.argv[2])))
first = ["waits"]
hold.begin(lambda others: first and print(first.pop(), flush=True))
print("holds", flush=True)
sys.stdin.read()
hold.end()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder of the test's own, of a path longer than sockets' addresses are."""
    base = tmp_path / ("long" * 40)
    base.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    return runtime_folder()


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path) -> Iterator[Start]:
    """Processes that hold a reservation until their input ends."""
    made: list[subprocess.Popen[str]] = []

    def process(resources: str, priority: int = 0, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, resources, str(priority)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        made.append(process)
        return process

    yield process
    for one in made:
        one.kill()
        one.wait()
        assert one.stdin is not None
        assert one.stdout is not None
        with suppress(BrokenPipeError):
            one.stdin.close()
        one.stdout.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


# who is first


def reservation(ticket: int, **fields: Any) -> Reservation:
    usual: dict[str, Any] = {"process": f"p{ticket}", "resources": frozenset("a"), "priority": 0}
    return Reservation(**({"name": f"r{ticket}", "pid": 1, "device": "d", "ticket": ticket} | usual | fields))


@st.composite
def several(draw: st.DrawFn) -> list[Reservation]:
    found: list[Reservation] = []
    for ticket in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([None, *found]))
        under = () if parent is None else (*parent.under, parent.process)
        same = draw(st.sampled_from([None, None, *found]))
        found.append(
            reservation(
                ticket,
                resources=frozenset(draw(st.sets(st.sampled_from("abc"), min_size=1))),
                priority=draw(st.integers(0, 2)),
                process=f"p{ticket}" if same is None else same.process,
                under=under if same is None else same.under,
            )
        )
    return draw(st.permutations(found))


@given(several())
def test_who_is_in_force(there: list[Reservation]) -> None:
    holding = in_force(there)
    assert holding == in_force(list(reversed(there)))
    for a, b in combinations(holding, 2):
        assert not a.resources & b.resources or a.is_family(b)
    for r in there:
        if not any(r.resources & e.resources for e in there if e is not r):
            assert r in holding, "nobody else wants that"
    if there:
        assert in_order(there)[0] in holding
    for r in there:  # who waits, waits for somebody before it
        before = in_order(there)[: in_order(there).index(r)]
        if r not in holding:
            assert any(r.resources & e.resources and not r.is_family(e) for e in before)
        left = [e for e in there if e is r or e.is_family(r)]
        assert r in in_force(left), "its family does not keep it waiting"


@given(several())
def test_nobody_uses_what_others_hold(there: list[Reservation]) -> None:
    for r in there:
        taken = held_by_others(there, r.process, r.under)
        own = [h for h in in_force(there) if h.process == r.process or h.process in r.under]
        if r in own and not r.under:
            others = [h for h in in_force(there) if h.is_family(r) is False]
            assert all(not (h.resources & r.resources) for h in others)
        for h in in_force(there):
            assert h in own or h.resources <= taken


def test_those_that_wait_keep_those_behind_them_waiting() -> None:
    first, both, second = (reservation(i, resources=frozenset(r)) for i, r in enumerate(("a", "ab", "b")))
    assert in_force([first, both, second]) == [first]
    assert in_force([both, second]) == [both]
    assert in_force([first, both, replace(second, priority=1)]) == [replace(second, priority=1), first]


def test_a_command_is_not_kept_waiting_by_what_waits_for_its_reservation() -> None:
    outer, stranger = reservation(0), reservation(1)
    inner, sibling = reservation(2, under=("p0",)), reservation(3, under=("p0",))
    assert in_force([outer, stranger, inner, sibling]) == [outer, inner]
    assert in_force([stranger, inner, sibling]) == [stranger], "the time of the outer one is over"


def test_what_is_over_counts_no_more() -> None:
    there = [reservation(0, until=10.0), reservation(1)]
    assert in_force(unexpired(there, 9.0)) == there[:1]
    assert in_force(unexpired(there, 10.0)) == there[1:]


@given(several())
def test_files_say_what_reservations_are(there: list[Reservation]) -> None:
    for r in there:
        assert parse(r.format(), r.name) == r


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"process": 1}', "\xff"])
def test_what_no_reservation_says_is_none(text: str) -> None:
    assert parse(text.encode("latin-1"), "x") is None


@pytest.mark.parametrize(("seconds", "priority"), [(0.0, 0), (-1.0, 0), (float("nan"), 0), (1e10, 0), (None, 1 << 31)])
def test_what_cannot_be_reserved_is_refused(folder: Path, seconds: float | None, priority: int) -> None:
    with pytest.raises(ManyclError):
        Hold(Reservation("d", frozenset("a"), seconds, priority))


# of real processes


def test_first_come_first_served(folder: Path, start: Start) -> None:
    first = start("a")
    assert said(first) == "holds"
    second, other = start("a,b"), start("c")
    assert said(second) == "waits"
    assert said(other) == "holds"
    third = start("a")
    assert said(third) == "waits"
    there = reservations()
    assert [r.pid for r in in_force(there)] == [first.pid, other.pid]
    assert [r.since is None for r in in_order(there)] == [r.pid in (second.pid, third.pid) for r in in_order(there)]
    end(first)
    assert said(second) == "holds"
    end(second)
    assert said(third) == "holds"
    end(third)
    end(other)
    assert os.listdir(folder) == []


def test_priority_goes_before_those_that_hold_and_comes_back_to_them(folder: Path, start: Start) -> None:
    low = start("a")
    assert said(low) == "holds"
    high = start("a", 5)
    assert said(high) == "holds"
    assert [r.pid for r in in_force(reservations())] == [high.pid]
    end(high)
    assert [r.pid for r in in_force(reservations())] == [low.pid]
    end(low)


def test_a_process_does_not_wait_for_itself_nor_its_command_for_it(folder: Path, start: Start) -> None:
    first, again = Hold(Reservation("d", frozenset("a"))), Hold(Reservation("d", frozenset("ab")))
    first.begin()
    stranger = start("a")
    assert said(stranger) == "waits"
    again.begin()
    assert again.is_in_force
    command = start("a", MANYCL_RESERVATION=for_children())
    assert said(command) == "holds"
    end(command)
    again.end()
    first.end()
    assert said(stranger) == "holds"
    end(stranger)


def test_a_reservation_ends_when_its_time_is_over(folder: Path, start: Start) -> None:
    hold = Hold(Reservation("d", frozenset("a"), seconds=0.2))
    hold.begin()
    stranger = start("a")
    while said(stranger) != "holds":
        pass
    assert not hold.is_in_force
    hold.end()
    end(stranger)


def test_killed_processes_leave_nothing_that_counts(folder: Path, start: Start) -> None:
    """At random times: whoever comes next has the device, and finds and leaves no file."""
    choose, killed = random.Random(7), list[subprocess.Popen[str]]()
    for turn in range(KILLS):
        holder = start("a")
        if choose.random() < 0.7:
            assert said(holder) == "holds"
            waiter = start("a")
            if choose.random() < 0.5:
                said(waiter)
            waiter.kill()
            killed.append(waiter)
        time.sleep(choose.random() * 0.05)
        holder.kill()
        killed.append(holder)
        if turn % 4 == 0:
            hold = Hold(Reservation("d", frozenset("a")))
            hold.begin()
            assert hold.is_in_force
            hold.end()
    hold = Hold(Reservation("d", frozenset("a")))
    hold.begin()
    hold.end()
    for one in killed:
        one.wait()  # the system takes its time to close what it had
    reservations()
    tell(str(folder), listeners(str(folder)))
    assert os.listdir(folder) == []


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_counts(folder: Path) -> None:
    (folder / "1-2-3.reservation.unfinished").write_text("{")
    (folder / "1-2-3.reservation").write_text(json.dumps({"resources": ["a"]}))
    hold = Hold(Reservation("d", frozenset("a")))
    hold.begin()
    assert [r.name for r in reservations()] == [hold.name]
    hold.end()
    assert os.listdir(folder) == []


def test_files_that_say_nothing_are_passed_over(folder: Path) -> None:
    path = folder / "5-6-7.reservation"
    path.write_text("nothing")
    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert reservations() == []
        assert path.exists()
    (folder / "8-9.reservation").symlink_to(path)
    assert reservations() == []


def test_a_reader_never_removes_the_file_of_one_that_holds(folder: Path, start: Start) -> None:
    """However often it is replaced while others read."""
    over = threading.Event()
    hold = Hold(Reservation("d", frozenset("a"), seconds=1e6))
    hold.begin()
    reader = """
import sys
from manycl.reservations.register import reservations
while True:
    assert len(reservations()) == 1
"""
    readers = [subprocess.Popen([sys.executable, "-c", reader], stderr=subprocess.PIPE) for _ in range(2)]
    entry = hold._entry
    assert entry is not None
    try:
        for _ in range(500):
            entry.hold()
    finally:
        over.set()
        for one in readers:
            assert one.poll() is None, one.communicate()
            one.kill()
            one.communicate()
    assert (folder / hold.name).exists()
    hold.end()


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_many_reservations_in_turn_leave_nothing_behind(folder: Path) -> None:
    """With somebody who listens and leaves, somebody who is too busy to, and somebody who is gone."""
    listener, busy = Ear(folder), Ear(folder)
    for _ in range(100):
        tell(str(folder), listeners(str(folder)))
    gone = Ear(folder)
    gone._socket.close()  # as if it had been killed
    over = threading.Event()

    def listen() -> None:
        while not over.is_set():
            for handle in listener.heard() or ():
                os.close(handle)
            time.sleep(1e-5)

    thread = threading.Thread(target=listen)
    thread.start()
    before = descriptors()
    for _ in range(TURNS):
        hold = Hold(Reservation("d", frozenset("a")))
        hold.begin(wait=False)
        hold.end()
    over.set()
    thread.join()
    for handle in listener.heard() or ():
        os.close(handle)
    assert descriptors() == before
    listener.close()
    busy.close()
    assert os.listdir(folder) == []


# listening


@given(several())
def test_who_listens_is_told_what_is_reserved(there: list[Reservation]) -> None:
    for one in there:
        assert parse(one.format()) == one


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"name": 1}', '{"name": "x"}', "\xff", "[" * 4096])
def test_what_is_no_message_says_nothing(text: str) -> None:
    assert parse(text.encode("latin-1")) is None


def test_messages_say_what_is_reserved_if_they_can(folder: Path) -> None:
    listener, names = Ear(folder), listeners(str(folder))
    one, long = reservation(1, resources=frozenset("a")), reservation(2, command="x" * 5000)
    for sent, told in (((one,), [one]), ((one, None, long), [one]), ((None,), []), ((long,), [])):
        for what in sent:
            assert not tell(str(folder), names, (), what)
        assert listener.heard() == []
        assert listener.told == told
    assert listener.heard() is None
    assert listener.told == []
    listener.close()


def test_who_reserves_waits_until_all_have_left_or_are_gone(folder: Path) -> None:
    listener = Ear(folder)
    code = """
import os, sys, time
from manycl.reservations.ear import Ear
from manycl.utilities.runtime_folder import runtime_folder
ear = Ear(runtime_folder())
print("listens", flush=True)
while not (found := ear.heard()): time.sleep(1e-3)
print("heard", flush=True)
time.sleep(1e6)
"""
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert said(other) == "listens"
    hold = Hold(Reservation("d", frozenset("a")))
    hold.begin(wait=False)
    assert said(other) == "heard"
    assert not hold.has_left(0.05)
    found = listener.heard()
    assert found is not None
    assert len(found) == 1
    os.close(found[0])
    assert not hold.has_left(0.05)
    other.kill()
    other.communicate()
    assert hold.has_left(60)
    hold.end()
    listener.close()


def test_a_child_that_was_forked_keeps_nothing(folder: Path) -> None:
    """Neither a reservation in force when its parent is gone, nor a pipe open."""
    code = """
import os, sys, time
from manycl.reservations.ear import Ear
from manycl.reservations.hold import Hold
from manycl.reservations.records import Reservation
from manycl.utilities.runtime_folder import runtime_folder
ear, hold = Ear(runtime_folder()), Hold(Reservation("d", frozenset("a")))
hold.begin(wait=False)
child = os.fork()
if not child:
    os.write(1, b"child\\n")
    time.sleep(1e6)
os.write(1, f"{child}\\n".encode())
time.sleep(1e6)
"""
    parent = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, text=True)
    words = {said(parent), said(parent)}
    (number,) = words - {"child"}
    try:
        assert len(reservations()) == 1
        parent.kill()
        parent.wait()
        assert reservations() == []
        hold = Hold(Reservation("d", frozenset("a")))
        hold.begin()  # waits for nobody
        hold.end()
        assert os.listdir(folder) == []
    finally:
        os.kill(int(number), signal.SIGKILL)
        parent.communicate()


def test_who_listens_hears_of_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even of descriptors, which are closed."""
    listener = Ear(folder)
    read, write = os.pipe()
    monkeypatch.setattr(ears, "_allowed", lambda: (os.getuid() + 1,))
    tell(str(folder), listeners(str(folder)), (write,))
    assert listener.heard() is None
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)
    listener.close()
