"""``manycl devices``, in this process and from the command line."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from manycl.cli import main
from manycl.drivers import choice
from manycl.drivers.survey import Survey, survey
from manycl.machine import HOST
from manycl.machine_file import load_machine
from tests import ROOT

MACHINES = ROOT / "manycl" / "machines"


@pytest.fixture(autouse=True)
def _all_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MANYCL_DEVICES", raising=False)
    monkeypatch.delenv("MANYCL_ZERO_COPY", raising=False)


def record(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["devices", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    out = record(capsys)
    assert [d["name"] for d in out["devices"]] == [r.device.name for r in survey().roots]
    first = out["devices"][0]
    assert (first["kind"], first["in_all"], first["why_not"]) == ("cpu", True, "")
    assert first["shares_host_memory"] is True
    opencl = next(r for r in survey().roots if r.device.platform == "Portable Computing Language")
    shown = next(d for d in out["devices"] if d["name"] == opencl.device.name)
    assert shown["clock"] == opencl.handle.cl.max_clock_frequency * 1e6
    assert shown["why_not"] == "the processor that native already shows"
    assert out["selection"] == "all"
    assert [d["name"] for d in out["machine"]["devices"]] == [d["name"] for d in out["devices"] if d["in_all"]]


def test_a_selection_is_shown_with_its_slowdown(capsys: pytest.CaptureFixture[str]) -> None:
    out = record(capsys, "--devices", "cpu/2#0,cpu/2#1@4")
    assert [(d["name"], d["slowdown"]) for d in out["machine"]["devices"]] == [("cpu0.0", 1.0), ("cpu0.1", 4.0)]


def test_the_environment_chooses_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_DEVICES", "cpu@3")
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    out = record(capsys)
    assert out["machine"]["devices"][0]["slowdown"] == 3.0
    assert [(x["source"], x["target"]) for x in out["machine"]["links"]] == [(0, 1), (1, 0)]


def test_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--devices", "cpu/2@2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["NAME", "KIND"]
    assert any(line.startswith("cpu0 ") and line.endswith("shared       yes") for line in lines)
    chosen = lines[lines.index("chosen by cpu/2@2:") + 2 :]
    assert [line.split()[0] for line in chosen] == ["cpu0.0", "cpu0.1"]
    assert all(line.endswith(" 2") for line in chosen)


def test_save_writes_a_machine_file_of_the_chosen_devices(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    out = record(capsys, "--devices", "cpu/2", "--save", str(path))
    machine = load_machine(path)
    assert [d.name for d in machine.devices] == ["cpu0.0", "cpu0.1"]
    assert [d.flops for d in machine.devices] == [d["flops"] for d in out["machine"]["devices"]]


def test_links_that_nobody_has_measured_are_saved_as_assumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setenv("MANYCL_MODELS", "0")
    path = tmp_path / "here.toml"
    assert main(["devices", "--devices", "cpu/2", "--save", str(path)]) == 0
    machine = load_machine(path)
    assert len(machine.links) == 6
    ends = (f"{machine.memory_name(x.source)}->{machine.memory_name(x.target)}" for x in machine.links)
    assert all(machine.notes[link] == "assumed: nobody has measured it" for link in ends)


@pytest.mark.parametrize("name", ["pyschedcl", "h200_x2", "cpu_pair"])
def test_machine_files_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(MACHINES / f"{name}.toml")
    machine = load_machine(path)
    out = record(capsys, "--machine", path)
    assert [d["name"] for d in out["machine"]["devices"]] == [d.name for d in machine.devices]
    assert main(["devices", "--machine", path]) == 0
    text = capsys.readouterr().out
    assert text.count("link ") == len(machine.links)
    assert all(f"\n{d.name} " in text for d in machine.devices)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--devices", "gpu7"], "no such device"),
        (["--devices", "cpu/"], "does not choose"),
        (["--devices", ""], "no device is chosen"),
        (["--machine", "absent.toml"], "absent.toml"),
        (["--machine", "a.toml", "--devices", "cpu"], "--machine"),
        (["--save", "no/such/folder/here.toml"], "no/such/folder"),
    ],
)
def test_bad_input_is_one_message_and_status_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("manycl: ")
    assert message in captured.err


def test_no_device_says_what_to_install(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "survey", lambda: Survey((), ("a note",)))
    monkeypatch.setattr(choice, "processor_alone", lambda: None)
    assert main(["devices"]) == 2
    err = capsys.readouterr().err
    assert "no OpenCL or native device" in err
    assert "a note" in err
    assert "pip install" in err


def test_measuring_is_remembered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from manycl.run.session import measure

    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    monkeypatch.setattr(measure, "_LONG", 0.001)
    monkeypatch.setattr(measure, "_STREAM", {"cpu": 1 << 20})
    monkeypatch.setattr(measure, "CHUNK", 1 << 20)
    assert record(capsys, "--devices", "cpu/2")["machine"]["notes"] == {}
    measured = record(capsys, "--devices", "cpu/2#0,cpu/2#1@3", "--measure")["machine"]
    first, second = measured["devices"]
    for name in ("flops", "bandwidth", "launch_overhead"):
        assert first[name] == second[name] > 0  # alike, but for the slow-down that was asked of one
        assert "measured" in measured["notes"][f"cpu0.0.{name}"]
    assert first["launch_overhead"] < 0.1
    assert len(measured["links"]) == 6  # of the two with the host, and with each other
    assert all(link["bandwidth"] > 1e6 and 0 < link["latency"] < 1 for link in measured["links"])
    # not read where nothing is to be remembered (as in all tests), else it is
    assert record(capsys, "--devices", "cpu/2#0")["machine"]["notes"] == {}
    monkeypatch.setenv("MANYCL_MODELS", "1")
    assert record(capsys, "--devices", "cpu/2#0")["machine"]["devices"][0]["flops"] == first["flops"]
    assert main(["devices", "--devices", "cpu/2#0"]) == 0
    assert "measured: host->cpu0.0, 0:00:0" in capsys.readouterr().out
    at = record(capsys, "--devices", "cpu/2#0")["measured"]["cpu0.0"]
    for later, words in ((59, "0:00:59"), (7300, "2:01:40"), (200_000, "2 days, 7:33:20")):
        monkeypatch.setattr(time, "time", lambda later=later: at + later)
        assert main(["devices", "--devices", "cpu/2#0"]) == 0
        assert f"measured: host->cpu0.0, {words} ago\n" in capsys.readouterr().out


def test_what_transfers_share_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from manycl.model.history.history import identity
    from manycl.model.history.measured import together
    from manycl.model.history.store import Store

    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    monkeypatch.setenv("MANYCL_MODELS", "1")
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    machine, _ = choice.open_devices("cpu/2")
    Store().measured(identity(machine.devices[0]), {"up_bandwidth": 1e9, "down_bandwidth": 1e9, "both_ways": 1.1e9})
    Store().measured(together(machine.devices), {"up": 1.5e9, "down": 2e9})
    assert main(["devices", "--devices", "cpu/2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "link host - cpu0.0: one direction at a time" in lines
    assert "from the host to all devices together: 1.5 GB/s" in lines
    assert not any("from all devices together" in line for line in lines)
    saved = tmp_path / "here.toml"
    sharing = record(capsys, "--devices", "cpu/2", "--save", str(saved))["machine"]["sharing"]
    assert load_machine(str(saved)).link(HOST, 1) is not None, "a machine file does not tell what is shared"
    assert sharing == {"half_duplex": [1, 2], "sends": {"0": 1.5e9}, "receives": {}}


def test_links_that_nobody_measured_have_no_figures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MANYCL_DATA", str(tmp_path))
    monkeypatch.setenv("MANYCL_ZERO_COPY", "0")
    assert main(["devices", "--devices", "cpu/2"]) == 0
    links = [line for line in capsys.readouterr().out.splitlines() if line.startswith("link ")]
    assert len(links) == 6
    assert all("nobody has measured it" in line and "B/s" not in line for line in links)
