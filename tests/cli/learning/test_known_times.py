"""``manycl plan`` and ``manycl simulate`` plan with what was measured here, and say what their times rest on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from manycl.machine import Device, Machine
from manycl.machine_file import format_machine
from manycl.model.history.history import identity
from manycl.model.history.store import NAME, Store
from tests import ROOT

EQUATION = str(ROOT / "manycl" / "examples" / "matrix_equation" / "matrix_equation.json")
SIZES = ("-D", "n=32", "-D", "m=32")
pytestmark = pytest.mark.usefixtures("folder")


def answer(capsys: pytest.CaptureFixture[str], command: str, *words: str) -> Any:
    capsys.readouterr()
    assert main([command, EQUATION, *SIZES, *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def said(capsys: pytest.CaptureFixture[str], command: str, *words: str) -> list[str]:
    found = answer(capsys, command, *words)["estimates"]
    assert all(e["low"] <= e["seconds"] <= e["high"] for e in found)
    for e in found:  # what was measured says how far off it is; a guess was never compared
        assert (e["error_percent"] is not None) == (e["samples"] > 1) == (e["source"] == "measured")
    return sorted({e["source"].partition(" (")[0] for e in found})


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_first_guesses_only_where_nothing_is_known(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    here = ("--devices", "cpu/2#0")
    assert said(capsys, command, *here) == ["prior"]
    assert not folder.exists()
    assert main(["profile", EQUATION, *SIZES, *here, "--one-size"]) == 0
    assert said(capsys, command, *here) == ["measured"]
    assert said(capsys, command, "--devices", "cpu/2#1") == ["measured"]  # the other half is like it
    assert said(capsys, command, "--devices", "cpu/4#1") == ["prior"]  # but a quarter is not
    assert said(capsys, command, "--machine", "conan") == ["prior"]
    monkeypatch.setenv("MANYCL_MODELS", "0")
    assert said(capsys, command, *here) == ["prior"]


def test_a_file_that_describes_a_device_that_was_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["profile", EQUATION, *SIZES, "--devices", "cpu/2#0", "--one-size"]) == 0
    file = tmp_path / "saved.toml"
    assert main(["devices", "--devices", "cpu/2#0", "--save", str(file)]) == 0
    assert said(capsys, "simulate", "--machine", str(file)) == ["measured"]


def test_measured_numbers_of_the_devices_count(capsys: pytest.CaptureFixture[str]) -> None:
    record = answer(capsys, "plan", "--devices", "cpu/2#0")
    before = record["summary"]["makespan"]
    from manycl.drivers.choice import open_devices

    machine, _ = open_devices("cpu/2#0")
    Store().measured(identity(machine.devices[0]), {"flops": 1e3, "bandwidth": 1e3, "launch_overhead": 1e-3})
    record = answer(capsys, "plan", "--devices", "cpu/2#0")
    assert record["summary"]["makespan"] > 1000 * before
    assert {e["source"] for e in record["estimates"]} == {"prior (counted operations, measured device)"}


def test_text_says_where_times_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", EQUATION, *SIZES, "--machine", "cpu_pair"]) == 0
    out = capsys.readouterr().out
    header = next(line for line in out.splitlines() if line.startswith("KERNEL"))
    assert header.split("  ")[-1] == "ESTIMATE FROM"
    assert "never compared  prior (counted operations" in out
    assert out.splitlines()[-1].endswith(("auto: heft", "auto: one device", "auto: in_order"))
    assert main(["simulate", EQUATION, *SIZES, "--machine", "cpu_pair"]) == 0
    assert "times of " in capsys.readouterr().out


def test_a_damaged_store_is_one_clear_line(folder: Path) -> None:
    folder.mkdir()
    (folder / NAME).write_bytes(b"this is no database" * 100)
    words = [sys.executable, "-m", "manycl", "plan", EQUATION, *SIZES, "--devices", "cpu/2#0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    lines = done.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("manycl: warning: the measurements in ")


def test_the_written_machine_is_that_of_its_identity() -> None:
    device = Device("cpu0", "cpu", "model", "platform", "driver", compute_units=2)
    assert "driver" in format_machine(Machine((device,)))
