"""``manycl reserve``, and what ``manycl devices`` says of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from manycl.cli import main
from manycl.reservations.records import in_force
from manycl.reservations.register import reservations
from manycl.utilities.runtime_folder import runtime_folder

Reserve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    base = tmp_path / "run"
    base.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    return runtime_folder()


@pytest.fixture
def reserve(folder: Path) -> Iterator[Reserve]:
    """The command, in a process group of its own; what it says on both ways comes by one pipe."""
    made: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "manycl", "reserve", *words]
        pipe, out = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(command, stdout=pipe, stderr=out, text=True, start_new_session=True)
        made.append(process)
        return process

    yield start
    for one in made:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def holders() -> list[int]:
    return [r.pid for r in in_force(reservations())]


def test_a_command_has_the_device_while_it_runs(reserve: Reserve, folder: Path) -> None:
    code = (
        "import os; from manycl.reservations.records import held_by_others; from manycl.reservations.records import *;"
        "from manycl.reservations.register import reservations; import sys;"
        "print(len(held_by_others(reservations(), 'another', ())), len(held_by_others(reservations(), process(),"
        " under())), sys.argv[1:], flush=True); sys.exit(7)"
    )
    process = reserve("cpu", "--for", "1000", "--", sys.executable, "-c", code, "--for", "--", "x")
    assert said(process) == "manycl: cpu is reserved for 1000 s"
    taken, own, *arguments = said(process).split(" ", 2)
    assert int(taken) > int(own) == 0
    assert arguments == ["['--for', '--', 'x']"]
    assert process.wait(60) == 7
    assert os.listdir(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_with_a_signal_and_leaves_nothing(reserve: Reserve, folder: Path, number: int) -> None:
    process = reserve("cpu")
    assert "reserved" in said(process)
    waiting = reserve("cpu", "--for", "1000")
    assert f"waiting for process {process.pid}" in said(waiting)
    for one in (waiting, process):
        one.send_signal(number)
        assert one.wait(60) in (130, 128 + number)
    assert os.listdir(folder) == []


def test_it_ends_when_the_time_is_over_and_the_command_goes_on(reserve: Reserve, folder: Path) -> None:
    alone = reserve("cpu", "--for", "0.1")
    assert alone.wait(60) == 0
    assert alone.stdout is not None
    assert alone.stdout.read() == "manycl: cpu is reserved for 0.1 s\n", "nobody else has reserved it"
    process = reserve("cpu", "--for", "0.1", "--", sys.executable, "-c", "import time; time.sleep(1e6)")
    while "not reserved any more" not in said(process):
        pass
    assert process.pid not in holders()
    assert process.poll() is None


def test_a_higher_priority_is_told_and_comes_first(reserve: Reserve) -> None:
    low = reserve("cpu")
    assert "reserved" in said(low)
    high = reserve("cpu", "--priority", "1")
    assert "reserved" in said(high)
    assert holders() == [high.pid]
    assert "higher priority" in said(low)
    high.send_signal(signal.SIGINT)
    high.wait(60)
    assert holders() == [low.pid]


def test_killed_it_holds_nothing_whatever_its_command_does(reserve: Reserve) -> None:
    """The command has none of its files."""
    process = reserve("cpu", "--", sys.executable, "-c", "import time; print('runs', flush=True); time.sleep(1e6)")
    assert {said(process), said(process)} == {"manycl: cpu is reserved", "runs"}
    process.kill()
    process.wait(60)
    assert holders() == []


def test_devices_says_who_has_what(reserve: Reserve, capsys: pytest.CaptureFixture[str]) -> None:
    before = time.time()
    process = reserve("cpu/2#0", "--for", "1000", "--priority", "3")
    assert "reserved" in said(process)
    waiting = reserve("cpu", "--", "true")
    assert "waiting" in said(waiting)
    assert main(["devices"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("reserved:", "wanted:"))]
    assert len(lines) == 2
    assert lines[0].startswith("reserved: cpu0")
    assert f"(cpu/2#0) by process {process.pid}, since " in lines[0]
    assert lines[0].endswith(", priority 3: manycl reserve")
    assert lines[1].startswith("wanted: cpu0")
    assert lines[1].endswith(f"by process {waiting.pid}: true")
    assert main(["devices", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["reservations"]
    assert first["state"] == "in force"
    assert "cpu0" in first["devices"]
    assert before - 1 <= first["since"] <= time.time() <= first["until"] <= time.time() + 1001
    assert second == {
        "device": "cpu",
        "devices": second["devices"],
        "state": "waits",
        "pid": waiting.pid,
        "command": "true",
        "priority": 0,
        "since": None,
        "until": None,
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["gpu99"], "there is no such device"),
        (["cpu", "--for", "0"], "reserved for 0 s"),
        (["cpu", "--for", "-3"], "reserved for"),
        (["cpu", "--priority", "99999999999"], "no priority"),
        (["cpu", "--", "no-such-program-anywhere"], "no such program"),
    ],
)
def test_what_cannot_be_is_refused(
    folder: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reserve", *words]) == 2
    assert why in capsys.readouterr().err
    assert os.listdir(folder) == []
